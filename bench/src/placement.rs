//! Which CPUs poll, and which are left to everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use std::{fmt, fs, thread};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpline_tools::output::note;

use crate::error::BenchError;

/// How long the CPUs are watched before the polling CPUs are chosen.
const WATCHED: Duration = Duration::from_millis(250);
/// Idle time, in percent, from which a CPU is free. A poll loop never sleeps: what else runs on its CPU takes
/// whole time slices of it, and the other end waits meanwhile, spinning.
const FREE_PERCENT: f64 = 80.0;

/// The CPUs that poll the two ends in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each end has a CPU.
    Apart {
        /// The end that measures.
        near: usize,
        /// The other one.
        far: usize,
    },
    /// One CPU polls both ends in one loop. Two loops would fight for it.
    Together(usize),
}

impl Placement {
    /// Places the ends on the CPUs named in `wanted`, or else on the idlest ones that this process may use.
    ///
    /// # Errors
    ///
    /// [`BenchError::Pin`] if this thread may run on no CPU, or not on one that is wanted.
    pub fn choose(wanted: &[usize]) -> Result<Self, BenchError> {
        check(wanted)?;
        let allowed = allowed_cpus();
        match (wanted, &allowed[..]) {
            (&[near, far, ..], _) if near != far => Ok(Self::Apart { near, far }),
            (&[cpu, ..], _) | (_, &[cpu]) => Ok(Self::Together(cpu)),
            (_, []) => Err(BenchError::Pin(0)),
            _ => Ok(by_idle_time(&allowed, &idle_percentages(WATCHED))),
        }
    }

    /// Places the ends of each of `cores` cores, as [`choose`](Self::choose) does where it is one. Of several
    /// each end of each core has a CPU if so many are wanted, or may be used where none are wanted; else
    /// both ends of a core have one, in turn.
    ///
    /// # Errors
    ///
    /// Those of [`choose`](Self::choose);
    /// [`CommandError::Options`](warpline_tools::error::CommandError::Options) if more are wanted than there
    /// are ends.
    pub fn of_cores(wanted: &[usize], cores: usize) -> Result<Vec<Self>, BenchError> {
        check_count(wanted, 2 * cores)?;
        if cores == 1 {
            return Ok(vec![Self::choose(wanted)?]);
        }
        let mut cpus = for_cores(wanted, 2 * cores)?;
        let mut seen = BTreeSet::new();
        cpus.retain(|cpu| seen.insert(*cpu));
        let place = |core| {
            if cpus.len() >= 2 * cores {
                Self::Apart { near: cpus[core], far: cpus[cores + core] }
            } else {
                Self::Together(cpus[core % cpus.len()])
            }
        };
        Ok((0..cores).map(place).collect())
    }

    /// Returns the CPUs that poll.
    pub fn cpus(&self) -> Vec<usize> {
        match *self {
            Self::Apart { near, far } => vec![near, far],
            Self::Together(cpu) => vec![cpu],
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart { near, far } => {
                write!(formatter, "polling: CPU {near} and CPU {far}, one for each end")
            }
            Self::Together(cpu) => write!(formatter, "polling: CPU {cpu}, both ends in one loop"),
        }
    }
}

/// Refuses more CPUs than there are loops to poll on them.
fn check_count(wanted: &[usize], loops: usize) -> Result<(), BenchError> {
    if wanted.len() <= loops {
        return Ok(());
    }
    let count = wanted.len();
    Err(BenchError::options(format!("--cpus lists {count} CPUs, and {loops} are polled on at most")))
}

/// Returns all CPUs that poll, each once, in the order of their numbers.
pub fn cpus_of(placements: &[Placement]) -> Vec<usize> {
    placements.iter().flat_map(Placement::cpus).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Says where the ends of each core are polled.
pub fn words(placements: &[Placement]) -> String {
    let [first, .., _] = placements else { return placements.iter().map(Placement::to_string).collect() };
    let (cores, cpus) = (placements.len(), ranges(&cpus_of(placements)));
    match first {
        Placement::Apart { .. } => format!("polling: CPU {cpus}, one for each end of {cores} cores"),
        Placement::Together(_) => {
            format!("polling: CPU {cpus}, both ends of each of {cores} cores in one loop")
        }
    }
}

/// Returns true if so many loops have fewer CPUs, and says so on standard error: they take turns then. The
/// same CPU may be among `cpus` more than once.
pub fn is_crowded(loops: usize, cpus: &[usize]) -> bool {
    let cpus: Vec<_> = cpus.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let crowded = loops > cpus.len();
    if crowded {
        let cpus = ranges(&cpus);
        note!("warning: {loops} loops poll on CPU {cpus}: they take turns, and give way while idle");
    }
    crowded
}

/// Returns the CPUs whose threads poll `cores` cores: those named in `wanted`, or else as many of those that
/// this process may use as there are cores.
///
/// # Errors
///
/// [`BenchError::Pin`] if this thread may not run on one that is wanted, or on none.
pub fn for_cores(wanted: &[usize], cores: usize) -> Result<Vec<usize>, BenchError> {
    check(wanted)?;
    let mut cpus = if wanted.is_empty() { allowed_cpus() } else { wanted.to_vec() };
    cpus.truncate(cores);
    if cpus.is_empty() { Err(BenchError::Pin(0)) } else { Ok(cpus) }
}

/// Watches `cpus` for a quarter of a second, and returns the idle time of the least idle one, in percent;
/// `None` where the kernel has no figures.
pub fn least_idle_percent(cpus: &[usize]) -> Option<f64> {
    let idle = idle_percentages(WATCHED);
    cpus.iter().filter_map(|cpu| idle.get(cpu).copied()).min_by(f64::total_cmp)
}

/// Places the ends by idle time: two free CPUs take an end each; a single one takes both. `allowed` has two
/// CPUs at least. A CPU of unknown idle time counts as idle, so that without /proc every choice is as on an
/// idle machine.
fn by_idle_time(allowed: &[usize], idle_percent: &BTreeMap<usize, f64>) -> Placement {
    let idle = |cpu: usize| idle_percent.get(&cpu).copied().unwrap_or(100.0);
    // Free CPUs are alike, whatever their last percents: the first ones are taken, so that runs can be
    // compared.
    let mut cpus: Vec<_> = allowed.iter().map(|&cpu| (idle(cpu).min(FREE_PERCENT), cpu)).collect();
    cpus.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    match cpus[..] {
        [(_, near), (second, far), ..] if second >= FREE_PERCENT => Placement::Apart { near, far },
        _ => Placement::Together(cpus[0].1),
    }
}

/// Returns the CPUs that this thread may run on.
fn allowed_cpus() -> Vec<usize> {
    sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
        .unwrap_or_default()
}

/// Returns the CPUs that this thread may run on, as taskset(1) lists them: `0-3,8`.
pub fn list_of_cpus() -> String {
    ranges(&allowed_cpus())
}

/// Returns rising numbers as a list with ranges.
pub fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|before, after| before + 1 == *after);
    let run = |run: &[usize]| match run {
        [first, .., last] => format!("{first}-{last}"),
        only => only.iter().map(usize::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// Parses the number of a CPU.
pub fn parse_cpu(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("'{text}' is no CPU: this process may use {}", list_of_cpus()))
}

/// Refuses CPUs that this thread may not run on.
///
/// # Errors
///
/// [`BenchError::Pin`].
pub fn check(wanted: &[usize]) -> Result<(), BenchError> {
    let allowed = allowed_cpus();
    wanted.iter().find(|cpu| !allowed.contains(cpu)).map_or(Ok(()), |cpu| Err(BenchError::Pin(*cpu)))
}

/// Returns the idle time of each CPU over `time`, in percent; empty where the kernel has no figures.
fn idle_percentages(time: Duration) -> BTreeMap<usize, f64> {
    let read = || fs::read_to_string("/proc/stat").map(|text| ticks(&text)).unwrap_or_default();
    let before = read();
    thread::sleep(time);
    let after = read();
    let idle = |(cpu, (idle, all)): (usize, (u64, u64))| {
        let (idle_before, all_before) = *before.get(&cpu)?;
        let passed = all.saturating_sub(all_before);
        (passed > 0).then(|| (cpu, 100.0 * idle.saturating_sub(idle_before) as f64 / passed as f64))
    };
    after.into_iter().filter_map(idle).collect()
}

/// Returns the idle ticks and all ticks of each CPU in the text of /proc/stat (proc(5)): after its name come
/// user, nice, system, idle, iowait, irq, softirq and steal.
fn ticks(text: &str) -> BTreeMap<usize, (u64, u64)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        Some((cpu, (ticks.get(3)? + ticks.get(4)?, ticks.iter().sum())))
    };
    text.lines().filter_map(line).collect()
}

/// Keeps this thread, and those that it starts from now on, off the CPUs that poll, where there are others.
pub fn keep_off(polling: &[usize]) {
    let mut rest = CpuSet::new();
    allowed_cpus().into_iter().filter(|cpu| !polling.contains(cpu)).for_each(|cpu| rest.set(cpu));
    if rest.count() > 0 {
        // If it fails, threads share the polling CPU: slower, not wrong.
        let _ = sched_setaffinity(None, &rest);
    }
}

/// Pins this thread to CPU `cpu`.
///
/// # Errors
///
/// [`BenchError::Pin`].
pub fn pin_to(cpu: usize) -> Result<(), BenchError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(BenchError::Pin(cpu));
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(|_| BenchError::Pin(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(idle: &[f64]) -> Placement {
        let allowed: Vec<usize> = (0..idle.len()).collect();
        by_idle_time(&allowed, &idle.iter().copied().enumerate().collect())
    }

    #[test]
    fn an_end_gets_a_cpu_of_its_own_only_if_two_are_free() {
        assert_eq!(placed(&[99.0, 98.0]), Placement::Apart { near: 0, far: 1 });
        assert_eq!(placed(&[81.0, 100.0]), Placement::Apart { near: 0, far: 1 }, "free CPUs are alike");
        assert_eq!(placed(&[60.0, 99.0]), Placement::Together(1), "another process at 40 % on CPU 0");
        assert_eq!(placed(&[99.0, 60.0]), Placement::Together(0), "another process at 40 % on CPU 1");
        assert_eq!(placed(&[0.0, 3.0]), Placement::Together(1), "the idlest of those that are not free");
        assert_eq!(placed(&[60.0, 99.0, 5.0, 97.0]), Placement::Apart { near: 1, far: 3 });
        assert_eq!(placed(&[f64::NAN, f64::NAN]).cpus().len(), 2, "no CPU's idle time can be computed");
        assert_eq!(by_idle_time(&[2, 5], &BTreeMap::new()), Placement::Apart { near: 2, far: 5 });
    }

    #[test]
    fn cpus_are_listed_by_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!([ranges(&[3]), ranges(&[])], ["3", ""]);
        let said = BenchError::Pin(1023).to_string();
        assert_eq!(
            said,
            format!("CPU 1023 cannot be used: this process may use {} (taskset -p $$)", list_of_cpus())
        );
    }

    #[test]
    fn ticks_are_read_by_cpu() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 5 70 4 2 3 5 77 0\ncpu12 1 0 0 9 0 0 0 0 0 0\nintr 5 6\n";
        assert_eq!(ticks(text), BTreeMap::from([(0, (74, 100)), (12, (9, 10))]));
        assert!(ticks("cpu0 1 2\ncpux 1 2 3 4 5\n").is_empty());
    }

    /// A thread started later inherits what its starter may use: none of the CPUs that poll.
    #[test]
    fn threads_keep_off_the_polling_cpus() {
        let all = allowed_cpus();
        let inherited = |polling: &[usize]| {
            thread::scope(|scope| {
                let work = || {
                    keep_off(polling);
                    thread::spawn(allowed_cpus).join().unwrap()
                };
                scope.spawn(work).join().unwrap()
            })
        };
        assert_eq!(inherited(&all), all, "where every CPU polls, there is no other");
        if let [first, rest @ ..] = &all[..]
            && !rest.is_empty()
        {
            assert_eq!(inherited(&[*first]), rest);
        }
        assert_eq!(allowed_cpus(), all, "this thread did not ask for it");
    }

    /// The ends of cores have a CPU each only if there are enough for all.
    #[test]
    fn cores_are_placed_on_the_cpus_in_turn() {
        let first = allowed_cpus()[0];
        assert_eq!(Placement::of_cores(&[first], 1).unwrap(), [Placement::Together(first)]);
        assert_eq!(Placement::of_cores(&[first], 3).unwrap(), [Placement::Together(first); 3]);
        let wanted = [first; 4];
        assert_eq!(Placement::of_cores(&wanted, 2).unwrap(), [Placement::Together(first); 2]);
        if let [near, far, other_near, other_far, ..] = allowed_cpus()[..] {
            let placed = Placement::of_cores(&[near, other_near, far, other_far], 2).unwrap();
            let ends =
                [(near, far), (other_near, other_far)].map(|(near, far)| Placement::Apart { near, far });
            assert_eq!(placed, ends);
        }
        let error = Placement::of_cores(&wanted, 1).unwrap_err().to_string();
        assert_eq!(error, "--cpus lists 4 CPUs, and 2 are polled on at most");
        let placements = [Placement::Together(5), Placement::Together(2), Placement::Together(5)];
        assert_eq!(cpus_of(&placements), [2, 5]);
        assert_eq!(words(&placements), "polling: CPU 2,5, both ends of each of 3 cores in one loop");
        assert_eq!(words(&placements[..1]), placements[0].to_string());
        assert_eq!([is_crowded(3, &[2, 5]), is_crowded(2, &[2, 5])], [true, false]);
    }

    #[test]
    fn a_core_has_a_cpu_while_there_are_some() {
        let all = allowed_cpus();
        assert_eq!(for_cores(&[], 1).unwrap(), all[..1]);
        assert_eq!(for_cores(&[], CpuSet::MAX_CPU).unwrap(), all);
        assert_eq!(for_cores(&all[..1], 64).unwrap(), all[..1]);
        assert!(matches!(for_cores(&[CpuSet::MAX_CPU], 1), Err(BenchError::Pin(CpuSet::MAX_CPU))));
    }

    #[test]
    fn cpus_that_are_asked_for_are_taken_or_refused() {
        let all = allowed_cpus();
        assert_eq!(Placement::choose(&[all[0]]).unwrap(), Placement::Together(all[0]));
        assert_eq!(Placement::choose(&[all[0], all[0]]).unwrap(), Placement::Together(all[0]));
        assert!(matches!(Placement::choose(&[CpuSet::MAX_CPU]), Err(BenchError::Pin(CpuSet::MAX_CPU))));
        assert!(matches!(pin_to(CpuSet::MAX_CPU), Err(BenchError::Pin(_))));
    }
}
