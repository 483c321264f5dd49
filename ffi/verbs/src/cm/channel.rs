//! Event channels: what happened to ids, and the descriptor that is readable while something did.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpline::cm::EventKind;

use super::id::IdState;
use crate::abi::rdma_event_channel;
use crate::errno::{Errno, guarded, pointer};
use crate::object::{Kind, Object};
use crate::tokens::Tokens;

/// An event channel of a program, or of an id that waits.
pub(crate) struct Channel {
    pub(crate) queue: Arc<EventQueue>,
}

impl Kind for Channel {
    type Public = rdma_event_channel;
    const MARK: u64 = 0x7761_7270_6368_3030;
}

/// The events of a channel, oldest first.
pub(crate) struct EventQueue {
    pub(crate) tokens: Tokens,
    waiting: Mutex<VecDeque<Waiting>>,
}

/// An event that the program has not taken.
pub(crate) struct Waiting {
    /// The id; for a connection request that of the listener.
    pub(crate) id: Arc<IdState>,
    pub(crate) kind: EventKind,
}

impl EventQueue {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { tokens: Tokens::new()?, waiting: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub(crate) fn push(&self, waiting: Waiting) {
        self.lock().push_back(waiting);
        self.tokens.add();
    }

    /// Takes the oldest event; `None` if it was withdrawn. From here on its id waits for an acknowledgement
    /// before it is destroyed.
    pub(crate) fn pop(&self) -> Option<Waiting> {
        let mut waiting = self.lock();
        let oldest = waiting.pop_front()?;
        oldest.id.acks.taken();
        Some(oldest)
    }

    /// Takes the events of `id` out.
    pub(crate) fn withdraw(&self, id: &Arc<IdState>) -> Vec<Waiting> {
        let mut waiting = self.lock();
        let (of_id, others) =
            waiting.drain(..).partition::<Vec<_>, _>(|waiting| Arc::ptr_eq(&waiting.id, id));
        waiting.extend(others);
        for _ in &of_id {
            self.tokens.take_back();
        }
        of_id
    }
}

/// Makes a channel.
pub(crate) fn create() -> Result<*mut rdma_event_channel, Errno> {
    let queue = Arc::new(EventQueue::new()?);
    let public = rdma_event_channel { fd: queue.tokens.fd() };
    Ok(Object::hand_out(public, Channel { queue }))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(|| {
        crate::adapter::adapter().ok_or(Errno::NO_DEVICE)?;
        create()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller keeps the contract of the ABI.
    let _ = guarded(|| unsafe { Object::<Channel>::take_back(channel) }.map(drop));
}
