//! What the thread that polls the only device of this process does.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the contents of `file` in /proc of the thread that polls the device.
fn file_of(file: &str) -> String {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_it = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "warpline-core")
    };
    let task = tasks.into_iter().find(is_it).expect("the poll thread");
    fs::read_to_string(task.join(file)).unwrap()
}

/// Number of times that the thread has gone to sleep.
pub fn sleeps() -> u64 {
    let status = file_of("status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// Clock ticks of CPU time that it has used.
pub fn cpu_ticks() -> u64 {
    let stat = file_of("stat");
    // proc_pid_stat(5): fields 14 and 15, counted from the name in parentheses, which is field 2.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..=12].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Returns by how much `counter` rises in a second. A sleep of a second takes longer on a busy machine.
pub fn in_a_second(counter: impl Fn() -> u64) -> f64 {
    let (begin, before) = (Instant::now(), counter());
    thread::sleep(Duration::from_secs(1));
    (counter() - before) as f64 / begin.elapsed().as_secs_f64()
}
