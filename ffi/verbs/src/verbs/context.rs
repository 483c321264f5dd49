//! Contexts: an open device, through which objects are made, and where its asynchronous events arrive.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::{ibv_context, verbs_context};
use crate::acks::Acks;
use crate::adapter::started;
use crate::errno::Errno;
use crate::object::{Kind, Object, TO_PUBLIC};
use crate::registry::Reports;
use crate::tokens::Tokens;

/// An open device.
pub(crate) struct Context {
    pub(crate) events: Arc<Events>,
    /// The registry knows its events: once the device runs.
    listed: AtomicBool,
}

impl Context {
    pub(crate) fn new(events: Arc<Events>) -> Self {
        Self { events, listed: AtomicBool::new(false) }
    }
}

impl Kind for Context {
    type Public = verbs_context;
    const MARK: u64 = 0x7761_7270_6374_7830;
}

/// The asynchronous events of a context that were not taken yet.
pub(crate) struct Events {
    tokens: Tokens,
    queue: Mutex<VecDeque<Pending>>,
}

/// An asynchronous event on its way to the program.
pub(crate) struct Pending {
    /// The object it is about, or the number of the port.
    pub(crate) element: usize,
    pub(crate) kind: u32,
    /// Those of the object; of the port there are none.
    pub(crate) acks: Option<Arc<Acks>>,
}

/// The only port.
pub(crate) const PORT: u8 = 1;

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { tokens: Tokens::new()?, queue: Mutex::default() })
    }

    /// Returns the descriptor that is readable while there are events.
    pub(crate) fn fd(&self) -> i32 {
        self.tokens.fd()
    }

    /// Takes the oldest event; `None` if it was withdrawn. From here on its object waits for an
    /// acknowledgement before it is destroyed.
    pub(crate) fn pop(&self) -> Option<Pending> {
        let mut queue = self.lock();
        let oldest = queue.pop_front()?;
        // Under the lock: a thread that destroys the object either withdraws the event or waits for it.
        if let Some(acks) = &oldest.acks {
            acks.taken();
        }
        Some(oldest)
    }

    /// Reports an event of the object at `element`.
    pub(crate) fn report_of(&self, element: usize, kind: u32, acks: &Arc<Acks>) {
        self.push(Pending { element, kind, acks: Some(acks.clone()) });
    }

    fn push(&self, pending: Pending) {
        self.lock().push_back(pending);
        self.tokens.add();
    }

    /// Takes back what was reported of the object at `element`, which is to be destroyed.
    pub(crate) fn withdraw(&self, element: usize) {
        let mut queue = self.lock();
        let before = queue.len();
        queue.retain(|pending| pending.acks.is_none() || pending.element != element);
        for _ in queue.len()..before {
            self.tokens.take_back();
        }
    }
}

impl Reports for Events {
    /// Reports an event of the port.
    fn report(&self, kind: u32) {
        self.push(Pending { element: PORT.into(), kind, acks: None });
    }
}

/// From the allocation's structure to what programs hold.
pub(crate) const TO_CONTEXT: usize = offset_of!(verbs_context, context);
/// From a field of the larger structure that nobody uses to what programs hold. It has the mark again: as far
/// in front as the marks of all other kinds are, so nothing else is read of a pointer to another kind.
const MARK_TO_CONTEXT: usize = TO_CONTEXT - offset_of!(verbs_context, _ABI_placeholder3);
const _: () = assert!(MARK_TO_CONTEXT == TO_PUBLIC);

/// Makes a context, and returns what a program gets.
pub(crate) fn hand_out(mut public: verbs_context, context: Context) -> *mut ibv_context {
    public._ABI_placeholder3 = Context::MARK;
    Object::hand_out(public, context).wrapping_byte_add(TO_CONTEXT).cast()
}

/// Borrows a context of a program.
///
/// # Safety
///
/// As for [`Object::of`].
pub(crate) unsafe fn context<'a>(public: *mut ibv_context) -> Result<&'a Object<Context>, Errno> {
    if public.is_null() || !public.is_aligned() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise: every object has a mark there.
    if unsafe { public.wrapping_byte_sub(MARK_TO_CONTEXT).cast::<u64>().read() } != Context::MARK {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above.
    unsafe { Object::of(public.wrapping_byte_sub(TO_CONTEXT).cast()) }
}

impl Object<Context> {
    /// Returns the program's pointer.
    pub(crate) const fn context_pointer(&self) -> *mut ibv_context {
        self.pointer().wrapping_byte_add(TO_CONTEXT).cast()
    }

    /// Has the events of the device come here: it runs now.
    pub(crate) fn listed(&self) {
        if !self.inner().listed.swap(true, Ordering::AcqRel)
            && let Some(running) = started()
        {
            running.registry.lock().contexts.push(self.inner().events.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event is either withdrawn or owed by the time its object is destroyed: one that was in between
    /// would name an object that is gone.
    #[test]
    fn an_event_that_is_taken_is_owed_at_once() {
        let (events, acks) = (Events::new().unwrap(), Arc::new(Acks::default()));
        for _ in 0..2 {
            events.report_of(8, 1, &acks);
        }
        assert_eq!(acks.owed(), 0);
        let taken = events.pop().expect("an event");
        assert_eq!((taken.element, acks.owed()), (8, 1));
        events.withdraw(8);
        assert!(events.pop().is_none());
        assert_eq!(acks.owed(), 1, "what is withdrawn is not owed");
        acks.acknowledged(1);
        acks.wait();
        // The port is not destroyed.
        events.report(2);
        assert!(events.pop().is_some_and(|pending| pending.acks.is_none()));
    }
}
