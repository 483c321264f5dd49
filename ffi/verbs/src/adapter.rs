//! The one adapter of the process: a device of warpline, which starts when it is first needed.
//!
//! A program that only lists devices, or that forks before it uses RDMA, has no thread and no socket of it.

use std::ffi::c_char;
use std::fs;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warpline::open::OpenError;
use warpline::{Device, DeviceName, Keepalive, QpConfig, RnrPolicy, Turns};

use crate::abi::{IBV_NODE_RNIC, IBV_TRANSPORT_IWARP, ibv_device};
use crate::config;
use crate::errno::{Errno, explain};
use crate::events;
use crate::made_once::MadeOnce;
use crate::object::zeroed;
use crate::registry::Registry;
use crate::registry::Running;
use crate::testing;

/// The name by which programs see the adapter.
const NAME: &str = "warpline0";

/// How long a message of the peer waits for a receive: as long as verbs' `rnr_retry` of 7, "infinite", lasts
/// on adapters in practice.
const RECEIVE_WAIT: Duration = Duration::from_mins(1);
/// Silence after which a peer is asked whether it is there, and between the questions: the kernel of a peer
/// whose process was killed answers the next with a reset.
const PROBE_MS: u32 = 500;
/// Questions without an answer after which a peer is gone: half a minute.
const PROBES: u8 = 60;
/// How long nothing may move on a connection that a program ends, before it is reset: a peer that posts no
/// receives any more does not take what is left. Adapters drop it at once.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of the process waits for connections to close.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// The adapter, as it is configured.
pub(crate) struct Adapter {
    name: DeviceName,
    open: fn(&DeviceName) -> Result<(Device, Turns), OpenError>,
    /// What programs hold for it, for as long as the process lives.
    public: NonNull<ibv_device>,
}

// SAFETY: the structure behind the pointer does not change, and is never freed.
unsafe impl Send for Adapter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Adapter {}

/// Returns the adapter; `None` if no device is configured, or not as it must be, which is said once.
pub(crate) fn adapter() -> Option<&'static Adapter> {
    static ADAPTER: MadeOnce<Option<Adapter>> = MadeOnce::new();
    static SAID: Once = Once::new();
    let new = |name, open| {
        // Before there is anything that a child has to forget.
        // SAFETY: the function takes nothing, and does not unwind. It may be called twice.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        Adapter { name, open, public: structure() }
    };
    let make = || match testing::chosen() {
        Some(name) => Some(new(name, testing::open)),
        None => match config::device() {
            Ok(name) => name.map(|name| new(name, Device::open_shared)),
            Err(words) => {
                explain(&SAID, &words);
                None
            }
        },
    };
    ADAPTER.get_or_make(make).as_ref()
}

/// What each process has of its own. A child begins with another one: at the time of fork(2) other threads of
/// the parent may have locked this one, and none of them goes on in the child.
#[derive(Default)]
pub(crate) struct OfProcess {
    /// The device, once it runs. Locked while it starts.
    running: Mutex<Option<Arc<Running>>>,
    /// The program's pointer to the context of connections and of what their ids make.
    pub(crate) shared_context: OnceLock<usize>,
}

static OF_PROCESS: MadeOnce<OfProcess> = MadeOnce::new();

/// Returns what this process has of its own.
pub(crate) fn of_process() -> &'static OfProcess {
    OF_PROCESS.get_or_make(OfProcess::default)
}

/// Returns the device, which is started if it does not run yet.
///
/// # Errors
///
/// [`Errno::NO_DEVICE`] if none is configured, or as it fails to open, which is said once.
pub(crate) fn running() -> Result<Arc<Running>, Errno> {
    adapter().ok_or(Errno::NO_DEVICE)?.start()
}

/// The turns at the device, once it runs, for calls that come often.
static TURNS: MadeOnce<Turns> = MadeOnce::new();

/// Leaves the device to its own thread: this one is about to sleep.
pub(crate) fn hand_over() {
    if let Some(turns) = TURNS.get() {
        turns.hand_over();
    }
}

/// Takes a turn at the device, unless another thread has it. Returns true if there was anything to do.
pub(crate) fn turn() -> bool {
    TURNS.get().is_some_and(Turns::turn)
}

/// Runs in a child of the process, before anything else: the device is its parent's. What the child has of it
/// fails with `ENODEV`, and it may open another. Nothing is locked here, and nothing dropped.
extern "C" fn in_child() {
    if let Some(turns) = TURNS.get() {
        turns.abandon();
    }
    TURNS.forget();
    OF_PROCESS.forget();
}

/// Returns the device if it runs.
pub(crate) fn started() -> Option<Arc<Running>> {
    OF_PROCESS.get()?.lock().clone()
}

impl OfProcess {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Adapter {
    /// Returns the program's pointer.
    pub(crate) const fn public(&self) -> *mut ibv_device {
        self.public.as_ptr()
    }

    fn start(&self) -> Result<Arc<Running>, Errno> {
        static SAID: Once = Once::new();
        static CLOSES_AT_EXIT: AtomicBool = AtomicBool::new(false);
        let mut place = of_process().lock();
        if let Some(running) = &*place {
            return Ok(running.clone());
        }
        let (device, turns) = (self.open)(&self.name).map_err(|error| {
            explain(&SAID, &error.to_string());
            Errno::from(&error)
        })?;
        let ids = warpline::cm::EventChannel::new([device.clone()])?;
        let running = Arc::new(Running {
            device,
            turns,
            ids,
            registry: Registry::default(),
            shared_domain: OnceLock::new(),
        });
        events::start(&running)?;
        *place = Some(running.clone());
        TURNS.get_or_make(|| running.turns.clone());
        // Relaxed: it changes under the lock. A child has the handlers of its parent.
        if !CLOSES_AT_EXIT.load(Ordering::Relaxed) {
            // SAFETY: the function takes nothing, and does not unwind.
            unsafe { libc::atexit(at_exit) };
            CLOSES_AT_EXIT.store(true, Ordering::Relaxed);
        }
        Ok(running)
    }

    /// Returns a property of the kernel's interface, as /sys/class/net has it.
    pub(crate) fn of_interface(&self, property: &str) -> Option<String> {
        let interface = self.name.target();
        let text = fs::read_to_string(format!("/sys/class/net/{interface}/{property}")).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns the hardware address of the interface; zero if it has none.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let text = self.of_interface("address").unwrap_or_default();
        let mut mac = [0; 6];
        for (octet, hex) in mac.iter_mut().zip(text.split(':')) {
            *octet = u8::from_str_radix(hex, 16).unwrap_or_default();
        }
        mac
    }
}

/// A device, with room behind it: the libraries of some adapters look there whether it is one of theirs, and
/// find zeros.
#[repr(C)]
struct Padded {
    public: ibv_device,
    behind: [usize; 64],
}

/// Makes the structure of the only device. It stays until the process ends.
fn structure() -> NonNull<ibv_device> {
    // SAFETY: a structure of C's, of pointers, numbers and arrays of characters.
    let mut padded: Padded = unsafe { zeroed() };
    let public = &mut padded.public;
    public.node_type = IBV_NODE_RNIC;
    public.transport_type = IBV_TRANSPORT_IWARP;
    for name in [&mut public.name, &mut public.dev_name] {
        for (target, octet) in name.iter_mut().zip(NAME.bytes()) {
            *target = octet as c_char;
        }
    }
    NonNull::from(Box::leak(Box::new(padded))).cast()
}

/// Returns how every queue pair is made, but for its depths.
pub(crate) fn queue_pair_config() -> QpConfig {
    let probes = Keepalive { idle_ms: PROBE_MS, interval_ms: PROBE_MS, probes: PROBES };
    QpConfig {
        rnr: RnrPolicy::Wait { timeout: RECEIVE_WAIT },
        keepalive: Some(probes),
        disconnect_timeout: Some(DISCONNECT_TIMEOUT),
        ..QpConfig::default()
    }
}

/// Closes what the program has left open, as the kernel closes the sockets of a process: peers learn of its
/// end. Acknowledgements that are on their way arrive.
extern "C" fn at_exit() {
    let Some(running) = started() else { return };
    let _ = crate::errno::guarded(|| {
        running.registry.disconnect_all();
        let start = Instant::now();
        while start.elapsed() < EXIT_WAIT && running.device.usage()?.connections > 0 {
            if !running.turns.turn() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    });
}
