//! Completion channels: descriptors on which programs sleep for completions.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpline::Notify;

use super::context::{self, Context};
use super::cq::{self, CqEvents};
use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::adapter::{hand_over, turn};
use crate::errno::{descriptor, guarded, number, pointer};
use crate::object::{Kind, Object, Use};
use crate::tokens::{self, Tokens};

/// A completion channel.
pub(crate) struct CompletionChannel {
    pub(crate) tokens: Arc<Tokens>,
    queues: Mutex<Queues>,
    _context: Use<Context>,
}

/// The queues of a channel, which are asked in turn.
#[derive(Default)]
struct Queues {
    /// With the program's pointers.
    all: Vec<(usize, Arc<CqEvents>)>,
    next: usize,
}

impl Kind for CompletionChannel {
    type Public = ibv_comp_channel;
    const MARK: u64 = 0x7761_7270_6363_3030;
}

/// Counts the events of one queue, and brings each to the channel: the core calls it, so it neither waits
/// nor allocates.
pub(crate) struct Bell {
    tokens: Arc<Tokens>,
    pending: AtomicU32,
}

impl Bell {
    pub(crate) const fn new(tokens: Arc<Tokens>) -> Self {
        Self { tokens, pending: AtomicU32::new(0) }
    }

    /// Returns true if there is an event.
    fn has_event(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Takes an event, if there is one.
    fn take(&self) -> bool {
        let less = |pending: u32| pending.checked_sub(1);
        self.pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Takes back all events that the program has not taken.
    fn withdraw(&self) {
        while self.take() {
            self.tokens.take_back();
        }
    }
}

impl Notify for Bell {
    fn notify(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.tokens.add();
    }
}

impl CompletionChannel {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue, the program's `cq`.
    pub(crate) fn add(&self, cq: *mut ibv_cq, events: &Arc<CqEvents>) {
        self.lock().all.push((cq.expose_provenance(), events.clone()));
    }

    /// Removes a queue, with those of its events that the program has not taken.
    pub(crate) fn remove(&self, cq: *mut ibv_cq) {
        let mut queues = self.lock();
        if let Some(place) = queues.all.iter().position(|(other, _)| *other == cq.addr()) {
            let (_, events) = queues.all.swap_remove(place);
            if let Some(bell) = &events.bell {
                bell.withdraw();
            }
        }
    }

    /// Returns true if a queue has an event.
    fn has_event(&self) -> bool {
        self.lock().all.iter().any(|(_, events)| events.bell.as_ref().is_some_and(|bell| bell.has_event()))
    }

    /// Takes an event; `None` if it was withdrawn.
    fn take(&self) -> Option<*mut ibv_cq> {
        let mut queues = self.lock();
        let (count, first) = (queues.all.len(), queues.next);
        for place in (first..first + count).map(|place| place % count) {
            let (cq, events) = &queues.all[place];
            if events.bell.as_ref().is_some_and(|bell| bell.take()) {
                events.acks.taken();
                let cq = std::ptr::with_exposed_provenance_mut(*cq);
                queues.next = place + 1;
                return Some(cq);
            }
        }
        None
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { context::context(context)? };
        let tokens = Arc::new(Tokens::new()?);
        let public = ibv_comp_channel { context, fd: tokens.fd(), refcnt: 0 };
        let inner = CompletionChannel { tokens, queues: Mutex::default(), _context: object.used() };
        Ok(Object::hand_out(public, inner))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    number(|| unsafe { Object::<CompletionChannel>::take_back(channel) }.map(drop))
}

/// How long a thread that waits takes turns at the device before it sleeps: longer than a peer on the same
/// network takes to answer.
const TURNS_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Turns between two looks at the descriptor, each of which is a system call.
const TURNS_PER_LOOK: usize = 64;

/// Waits for an event of a queue of the channel; -1 if there is none and the descriptor does not wait.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    if unsafe { take_event_soon(channel, cq, cq_context) } {
        return 0;
    }
    loop {
        // SAFETY: as above: the channel, with its descriptor, stays.
        unsafe {
            let fd = descriptor(|| Ok(Object::<CompletionChannel>::of(channel)?.inner().tokens.fd()));
            hand_over();
            if fd < 0 || !tokens::wait(fd) {
                return -1;
            }
            if take_event(channel, cq, cq_context) {
                return 0;
            }
        }
    }
}

/// Takes turns at the device until there is an event, for a while, and writes it as [`take_event`] does;
/// false if there was none.
unsafe fn take_event_soon(
    channel: *mut ibv_comp_channel,
    target: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> bool {
    guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { Object::<CompletionChannel>::of(channel)? };
        let start = Instant::now();
        let waits = object.inner().tokens.waits();
        loop {
            if object.inner().tokens.take_back() {
                // SAFETY: as above.
                return Ok(unsafe { take_event(channel, target, cq_context) });
            }
            if !waits {
                return Ok(false);
            }
            let mut busy = false;
            for _ in 0..TURNS_PER_LOOK {
                busy |= turn();
                if object.inner().has_event() {
                    break;
                }
            }
            if !busy && start.elapsed() >= TURNS_BEFORE_SLEEP {
                return Ok(false);
            }
        }
    })
    .unwrap_or(false)
}

/// Writes the queue that has an event, and its context; false if the event was withdrawn.
unsafe fn take_event(
    channel: *mut ibv_comp_channel,
    target: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> bool {
    guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let channel = unsafe { Object::<CompletionChannel>::of(channel)? };
        let Some(cq) = channel.inner().take() else { return Ok(false) };
        // SAFETY: the caller has room for both; the queue is there until its event is acknowledged.
        unsafe {
            target.write(cq);
            cq_context.write((*cq).cq_context);
        }
        Ok(true)
    })
    .unwrap_or(true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, events: u32) {
    let _ = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { cq::of(queue)? }.inner().events.acks.acknowledged(events);
        Ok(())
    });
}
