//! Completion queues.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpline::{CompletionQueue, Notice, SharedCompletionQueue, limits};

use super::channel::{Bell, CompletionChannel};
use super::context::{self, Context, Events};
use super::section::Section;
use crate::abi::{IBV_EVENT_CQ_ERR, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};
use crate::acks::Acks;
use crate::adapter::{running, started};
use crate::errno::{Errno, number, pointer, unsupported};
use crate::object::{Kind, Object, Use, zeroed};
use crate::polled::PolledQueue;
use crate::registry::Reports;

/// Places of the smallest queue.
const PLACES_MIN: usize = 64;

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) queue: SharedCompletionQueue,
    pub(crate) polled: Arc<PolledQueue>,
    pub(crate) events: Arc<CqEvents>,
    pub(crate) polling: Polling,
    channel: Option<Use<CompletionChannel>>,
    _context: Use<Context>,
}

/// The completion that a program looks at, and the section of the thread that does.
pub(crate) struct Polling {
    pub(crate) section: Section,
    current: Mutex<ibv_wc>,
}

impl Polling {
    fn new() -> Self {
        // SAFETY: a structure of C's, of numbers.
        Self { section: Section::default(), current: Mutex::new(unsafe { zeroed() }) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ibv_wc> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind for Cq {
    /// The larger structure, of which programs see the first part.
    type Public = ibv_cq_ex;
    const MARK: u64 = 0x7761_7270_6371_3030;
}

/// What of a queue takes part in events.
pub(crate) struct CqEvents {
    pub(crate) bell: Option<Arc<Bell>>,
    /// Events of completions and asynchronous ones.
    pub(crate) acks: Arc<Acks>,
    context: Arc<Events>,
    /// The program's pointer.
    pointer: OnceLock<usize>,
}

impl Reports for CqEvents {
    fn report(&self, kind: u32) {
        if let Some(pointer) = self.pointer.get() {
            self.context.report_of(*pointer, kind, &self.acks);
        }
    }
}

/// Borrows a completion queue of a program.
///
/// # Safety
///
/// As for [`Object::of`].
pub(crate) unsafe fn of<'a>(cq: *mut ibv_cq) -> Result<&'a Object<Cq>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Object::of(cq.cast()) }
}

/// Makes a completion queue of `cqe` places.
///
/// # Safety
///
/// As for [`Object::of`], of both pointers.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> Result<*mut ibv_cq, Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { context::context(context)? };
    let channel = if channel.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        Some(unsafe { Object::<CompletionChannel>::of(channel)? })
    };
    let places = usize::try_from(cqe).ok().filter(|places| *places > 0).ok_or(Errno::INVALID)?;
    if places > limits::COMPLETIONS_PER_QUEUE / 2 {
        return Err(Errno::INVALID);
    }
    let running = running()?;
    object.listed();
    let bell = channel.map(|channel| Arc::new(Bell::new(channel.inner().tokens.clone())));
    // As many for receives as for sends.
    let capacity = 2 * places.max(PLACES_MIN);
    let queue = match &bell {
        Some(bell) => CompletionQueue::with_notify(capacity, bell.clone()),
        None => CompletionQueue::new(capacity),
    };
    let queue = SharedCompletionQueue::new(queue.may_overflow());
    let context_events = object.inner().events.clone();
    let events = CqEvents { bell, acks: Arc::default(), context: context_events, pointer: OnceLock::new() };
    let events = Arc::new(events);
    // SAFETY: a structure of C's, of pointers, numbers, optional functions and POSIX locks.
    let mut public: ibv_cq_ex = unsafe { zeroed() };
    public.context = context;
    public.channel = channel.map_or(std::ptr::null_mut(), Object::pointer);
    public.cq_context = cq_context;
    public.handle = queue.number().0;
    public.cqe = cqe;
    let number = queue.number();
    let inner = Cq {
        polled: Arc::new(PolledQueue::new(queue.clone(), {
            let events = events.clone();
            move || events.report(IBV_EVENT_CQ_ERR)
        })),
        queue,
        events: events.clone(),
        polling: Polling::new(),
        channel: channel.map(Object::used),
        _context: object.used(),
    };
    let cq: *mut ibv_cq = Object::hand_out(public, inner).cast();
    let _ = events.pointer.set(cq.expose_provenance());
    if let Some(channel) = channel {
        channel.inner().add(cq, &events);
    }
    running.registry.lock().completion_queues.insert(number, events);
    Ok(cq)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer(|| {
        if comp_vector != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { create(context, cqe, cq_context, channel) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let queue = unsafe { of(cq)? };
        // Half of the queue is for receives: see `create`.
        let places = queue.inner().queue.capacity() / 2;
        if !usize::try_from(cqe).is_ok_and(|cqe| 0 < cqe && cqe <= places) {
            return Err(unsupported!(
                "a completion queue does not grow: make it as large as it is to become"
            ));
        }
        // SAFETY: as above.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { of(cq)? };
        if object.is_used() {
            return Err(Errno::BUSY);
        }
        let Cq { queue, events, channel, .. } = object.inner();
        if let Some(running) = started() {
            running.registry.lock().completion_queues.remove(&queue.number());
        }
        if let Some(channel) = channel {
            channel.inner().remove(cq);
        }
        events.context.withdraw(cq.addr());
        events.acks.wait();
        // SAFETY: as above, once.
        unsafe { Object::<Cq>::take_back(cq.cast()) }.map(drop)
    })
}

/// Asks for one event, at the next completion, or the next that the peer wants to be seen.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    number(|| {
        let notice = if solicited_only == 0 { Notice::Next } else { Notice::Solicited };
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { of(cq)? }.inner().queue.lock().arm(notice);
        Ok(())
    })
}
