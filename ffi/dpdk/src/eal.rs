//! The Environment Abstraction Layer: DPDK's memory, plug-ins and devices.

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::mem;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::process;
use std::sync::{Mutex, PoisonError};

use dpdk_sys as sys;

use crate::errno::Errno;
use crate::interrupts;
use crate::log::{self, LogLines};

/// Proof that the EAL runs. It does until the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eal {
    mode: MemoryMode,
    /// Whether it looks at the PCI bus.
    pci: bool,
}

/// The memory to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Memory {
    /// Hugepages when enough 2 MiB pages are free, ordinary memory else.
    #[default]
    Auto,
    /// Hugepages, or an error.
    Hugepages,
    /// Ordinary memory.
    Ordinary,
}

/// The memory the EAL got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMode {
    /// Hugepages held by this process alone; no file remains after it. Grows on demand.
    Hugepages,
    /// Ordinary pages, a fixed amount: for machines where no hugepage can be reserved. More than twice as
    /// slow.
    Ordinary,
}

impl fmt::Display for MemoryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hugepages => "hugepages",
            Self::Ordinary => "ordinary memory (no hugepages)",
        })
    }
}

/// The PCI devices the EAL takes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Pci {
    /// None.
    #[default]
    None,
    /// Those at these addresses (`0000:03:00.0`), each with driver arguments if need be
    /// (`0000:03:00.0,key=value`).
    Allow(Vec<String>),
    /// Every one that is bound to a DPDK driver.
    All,
}

/// How much DPDK says on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// Errors alone.
    #[default]
    Error,
    /// Warnings too.
    Warning,
    /// DPDK's default.
    Notice,
    /// Progress of probing and memory too.
    Info,
    /// Everything.
    Debug,
}

impl LogLevel {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Why the EAL did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// It runs already.
    #[error("the EAL runs already in this process: take it from Eal::current()")]
    AlreadyInitialised,
    /// An earlier attempt failed.
    #[error(
        "an earlier initialisation of the EAL failed, and DPDK cannot try twice in a process: start a new one"
    )]
    EarlierAttemptFailed,
    /// Hugepages were asked for and are not there.
    #[error(
        "{needed} free hugepages of 2 MiB are needed and {free} are free: reserve more: sudo sysctl \
         vm.nr_hugepages={}",
        .total.saturating_add(*.needed) - .free.min(.needed)
    )]
    NoHugepages {
        /// Pages needed.
        needed: usize,
        /// Pages free.
        free: usize,
        /// Pages there are.
        total: usize,
    },
    /// An argument contains an octet 0.
    #[error("the EAL argument {0:?} contains an octet 0")]
    Argument(String),
    /// An argument has the EAL print its usage and end the process.
    #[error(
        "the EAL argument {0} prints DPDK's usage and ends the process: ask a program of DPDK's instead, \
             as in dpdk-testpmd {0}"
    )]
    EndsProcess(String),
    /// `rte_eal_init` failed.
    #[error("the EAL did not start: {errno}; its arguments were `{arguments}`{said}")]
    Init {
        /// DPDK's reason.
        errno: Errno,
        /// The arguments it was given.
        arguments: String,
        /// What it said.
        said: LogLines,
    },
}

enum State {
    Fresh,
    Running(Eal),
    Failed,
}

/// DPDK keeps one EAL per process.
static STATE: Mutex<State> = Mutex::new(State::Fresh);

/// How to start the EAL.
#[derive(Clone, Debug)]
pub struct EalBuilder {
    memory: Memory,
    memory_mib: usize,
    lcores: Option<String>,
    vdevs: Vec<String>,
    pci: Pci,
    file_prefix: Option<String>,
    /// `None` keeps the log for errors.
    log_level: Option<LogLevel>,
    telemetry: bool,
    arguments: Vec<String>,
}

impl EalBuilder {
    /// Sets the kind of memory.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the memory to reserve at the start, in MiB (256 by default). Hugepage memory grows beyond it on
    /// demand; ordinary memory does not.
    #[must_use]
    pub fn memory_mib(mut self, mib: usize) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Sets the lcores, in EAL's notation (`0@2,1@3`). By default there is one, for the thread that
    /// initialises: threads of the program join with [`Eal::register_thread`], and an EAL worker would only
    /// sleep.
    #[must_use]
    pub fn lcores(mut self, lcores: impl Into<String>) -> Self {
        self.lcores = Some(lcores.into());
        self
    }

    /// Adds a virtual device: its name and arguments (`net_tap0,iface=tap0`).
    #[must_use]
    pub fn vdev(mut self, device: impl Into<String>) -> Self {
        self.vdevs.push(device.into());
        self
    }

    /// Sets the PCI devices to take; none by default, so that no NIC is seized by accident.
    #[must_use]
    pub fn pci(mut self, pci: Pci) -> Self {
        self.pci = pci;
        self
    }

    /// Sets the name of this process among DPDK processes; by default it is made from the process number.
    #[must_use]
    pub fn file_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.file_prefix = Some(prefix.into());
        self
    }

    /// Has DPDK log to standard error, from `level` up. Without it neither DPDK nor a library that it loads
    /// writes anything there, and what they say of an error is in the error ([`LogLines`]).
    #[must_use]
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Opens DPDK's telemetry socket, which stays in the runtime directory after the process.
    #[must_use]
    pub fn telemetry(mut self, open: bool) -> Self {
        self.telemetry = open;
        self
    }

    /// Adds an argument as it is (`--single-file-segments`, for virtio-user).
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Starts the EAL. The calling thread becomes its main lcore and keeps its CPU affinity.
    ///
    /// # Errors
    ///
    /// [`EalError`]; after [`EalError::Init`] only a new process can try again.
    pub fn init(self) -> Result<Eal, EalError> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Fresh => {}
            State::Running(_) => return Err(EalError::AlreadyInitialised),
            State::Failed => return Err(EalError::EarlierAttemptFailed),
        }
        if let Some(usage) = self.arguments.iter().find(|argument| ["-h", "--help"].contains(&&***argument)) {
            return Err(EalError::EndsProcess(usage.clone()));
        }
        let affinity = Affinity::of_this_thread();
        let mode = self.choose_memory()?;
        let arguments = self.arguments(mode, affinity.as_ref().and_then(Affinity::first));
        let strings = arguments
            .iter()
            .map(|argument| CString::new(argument.as_str()).map_err(|_| EalError::Argument(argument.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*mut c_char> =
            strings.iter().map(|string| string.as_ptr().cast_mut()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
        pointers.push(core::ptr::null_mut());
        if self.log_level.is_none() {
            log::keep();
        }
        // SAFETY: `pointers` is an argument vector of `count` strings and a null, as for `main`. EAL reorders
        // the pointers and copies what it keeps; it does not write to the strings. The lock makes this the
        // only call.
        let result = control(|_| unsafe { sys::rte_eal_init(count, pointers.as_mut_ptr()) });
        // EAL has pinned this thread to the main lcore: every thread it starts from here on would inherit
        // that.
        if let Some(affinity) = affinity {
            affinity.apply();
        }
        let errno = Errno::last();
        if result < 0 || !self.telemetry {
            remove_runtime_directory();
        }
        if result < 0 {
            *state = State::Failed;
            return Err(EalError::Init { errno, arguments: arguments[1..].join(" "), said: log::take() });
        }
        let eal = Eal { mode, pci: self.pci != Pci::None };
        *state = State::Running(eal);
        Ok(eal)
    }

    fn choose_memory(&self) -> Result<MemoryMode, EalError> {
        let needed = self.memory_mib.div_ceil(HUGEPAGE_MIB);
        let Hugepages { free, total } = Hugepages::count();
        match self.memory {
            Memory::Ordinary => Ok(MemoryMode::Ordinary),
            _ if free >= needed => Ok(MemoryMode::Hugepages),
            Memory::Auto => Ok(MemoryMode::Ordinary),
            Memory::Hugepages => Err(EalError::NoHugepages { needed, free, total }),
        }
    }

    fn arguments(&self, mode: MemoryMode, cpu: Option<usize>) -> Vec<String> {
        let mut arguments = vec!["warpline".to_owned()];
        match mode {
            MemoryMode::Hugepages => arguments.push("--in-memory".to_owned()),
            // EAL refuses --in-memory together with --no-huge; without shared configuration it leaves no
            // files either.
            MemoryMode::Ordinary => arguments.extend(["--no-huge".to_owned(), "--no-shconf".to_owned()]),
        }
        arguments.extend(["-m".to_owned(), self.memory_mib.to_string()]);
        let prefix = self.file_prefix.clone().unwrap_or_else(|| format!("warpline-{}", process::id()));
        arguments.push(format!("--file-prefix={prefix}"));
        // An lcore number of its own for the CPU: those beyond DPDK's largest lcore would be refused.
        let lcores = self.lcores.clone().or_else(|| cpu.map(|cpu| format!("0@{cpu}")));
        arguments.extend(lcores.map(|lcores| format!("--lcores={lcores}")));
        match &self.pci {
            // No device needs physical addresses, and virtual ones make every region contiguous for devices.
            Pci::None => arguments.extend(["--no-pci".to_owned(), "--iova-mode=va".to_owned()]),
            Pci::Allow(devices) => {
                for device in devices {
                    arguments.extend(["-a".to_owned(), device.clone()]);
                }
            }
            Pci::All => {}
        }
        arguments.extend(self.vdevs.iter().map(|device| format!("--vdev={device}")));
        arguments.push(format!("--log-level=*:{}", self.log_level.unwrap_or_default().name()));
        if !self.telemetry {
            arguments.push("--no-telemetry".to_owned());
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }
}

impl Default for EalBuilder {
    fn default() -> Self {
        Self {
            memory: Memory::default(),
            memory_mib: 256,
            lcores: None,
            vdevs: Vec::new(),
            pci: Pci::default(),
            file_prefix: None,
            log_level: None,
            telemetry: false,
            arguments: Vec::new(),
        }
    }
}

impl Eal {
    /// Returns a builder that starts the EAL.
    pub fn builder() -> EalBuilder {
        EalBuilder::default()
    }

    /// Returns the EAL of this process, if it runs.
    pub fn current() -> Option<Self> {
        match *STATE.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Running(eal) => Some(eal),
            State::Fresh | State::Failed => None,
        }
    }

    /// Returns the kind of memory in use.
    pub const fn memory_mode(self) -> MemoryMode {
        self.mode
    }

    /// Returns true if it looks at the PCI bus, so that [`probe_pci`](Self::probe_pci) finds devices.
    pub const fn has_pci(self) -> bool {
        self.pci
    }
}

/// Says that nobody adds, closes or removes a device beside the holder: only [`control`] lends it.
pub(crate) struct InControl(());

/// Runs `call`, and no other such call meanwhile: DPDK leaves it to programs that devices are not added, set
/// up or closed by two threads at a time. Bursts, pools and memory need no such care. What DPDK prints
/// meanwhile is kept like its log.
pub(crate) fn control<T>(call: impl FnOnce(&InControl) -> T) -> T {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    log::forget();
    let _diversion = log::divert();
    call(&InControl(()))
}

/// As [`control`], for a call that adds, sets up, stops or takes away the device with this name or driver.
pub(crate) fn control_of<T>(name: &[u8], call: impl FnOnce(&InControl) -> T) -> T {
    control(|alone| if interrupts::race_with(name) { interrupts::held(|| call(alone)) } else { call(alone) })
}

const HUGEPAGE_MIB: usize = 2;

/// Hugepages of 2 MiB.
struct Hugepages {
    /// Those that no process has, or has reserved.
    free: usize,
    total: usize,
}

impl Hugepages {
    fn count() -> Self {
        let read = |name| {
            let path = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").join(name);
            fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        let free = read("free_hugepages").saturating_sub(read("resv_hugepages"));
        Self { free, total: read("nr_hugepages") }
    }
}

/// Removes the directory that EAL makes for every file prefix and never removes. Ours is empty: memory is
/// private and telemetry off.
fn remove_runtime_directory() {
    // SAFETY: returns a string that never changes after `rte_eal_init`, empty if that did not come far.
    let directory = unsafe { CStr::from_ptr(sys::rte_eal_get_runtime_dir()) };
    if let Ok(directory) = directory.to_str() {
        // It may hold files after all when extra arguments asked for them: then it stays.
        let _ = fs::remove_dir(directory);
    }
}

/// The CPUs a thread may run on.
struct Affinity(libc::cpu_set_t);

impl Affinity {
    fn of_this_thread() -> Option<Self> {
        // SAFETY: a `cpu_set_t` is an array of bits, for which zeros are a value.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: `set` is writable and of the size given; 0 is the calling thread.
        let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        (result == 0).then_some(Self(set))
    }

    fn first(&self) -> Option<usize> {
        // SAFETY: the index is below the size of the set.
        (0..libc::CPU_SETSIZE as usize).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) })
    }

    fn apply(&self) {
        // SAFETY: `self.0` is readable and of the size given; 0 is the calling thread. It was this thread's
        // own affinity, so a failure could only come from a change by other code, whose choice is then kept.
        let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
    }
}
