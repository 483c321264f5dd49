//! The queue pairs of a core, by slot.

use std::sync::Arc;

use crate::conn::ConnectionId;
use crate::memory::prefetch;
use crate::qp::shared::{Home, QpState, SharedQp};
use crate::tally;

use super::queue_pair::QueuePair;

/// The queue pairs of a core: each is here from the beginning of its stream, or its end without one, until it
/// is destroyed. While a queue pair carries a stream, its connection holds its slot, and it holds the
/// [`ConnectionId`] of the connection. The slot of a destroyed queue pair is soon another's, but a
/// `ConnectionId` is not used again for a long time: an old connection does not reach a queue pair that has
/// got the slot later.
///
/// Room for all slots is reserved at once, and none is touched before it is first needed: those that were
/// used last are used next.
pub(crate) struct QueuePairs {
    /// The slots that were ever used.
    slots: Vec<Option<QueuePair>>,
    capacity: usize,
    free: Vec<u32>,
}

impl QueuePairs {
    /// Returns no queue pairs, and room for `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), capacity, free: Vec::with_capacity(capacity) }
    }

    /// Returns the address space for `capacity` queue pairs, in bytes.
    pub(crate) const fn bytes(capacity: usize) -> usize {
        (size_of::<Option<QueuePair>>() + size_of::<u32>()) * capacity
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the queue pair in `slot` if `connection` carries its stream.
    #[inline]
    pub(crate) fn bound_to(&mut self, connection: ConnectionId, slot: u32) -> Option<&mut QueuePair> {
        self.at_mut(slot).filter(|qp| qp.connection == Some(connection))
    }

    /// Returns how many slots were ever used.
    pub(crate) const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the queue pair that is in `slot` now.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut QueuePair> {
        tally::record_visits(1);
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Has the processor fetch the queue pair in `slot`, if there is such a slot.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(place) = self.slots.get(slot as usize) {
            prefetch(place);
        }
    }

    /// Returns the queue pair in `slot`, to see what to fetch for it.
    #[inline]
    pub(crate) fn peek(&self, slot: u32) -> Option<&QueuePair> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Adds the queue pair that shares `shared` with its application: `connection` carries its stream, which
    /// begins. Returns `None` if it serves or has served a connection, or if there is no room.
    pub(crate) fn bind(&mut self, shared: Arc<SharedQp>, connection: ConnectionId) -> Option<&mut QueuePair> {
        let qp = self.add(shared, connection.core())?;
        qp.connection = Some(connection);
        Some(qp)
    }

    /// Adds a queue pair without a connection: its home is this core, `core`, from now on. Returns `None` as
    /// [`bind`](Self::bind) does.
    pub(crate) fn add(&mut self, shared: Arc<SharedQp>, core: u8) -> Option<&mut QueuePair> {
        if shared.home().is_some() || shared.state() != QpState::Idle {
            return None;
        }
        let slot = self.free.pop().or_else(|| self.add_slot())?;
        shared.set_home(Home { core, slot });
        Some(self.slots[slot as usize].insert(QueuePair::new(shared)))
    }

    /// Adds a slot that was never used, if there is another.
    fn add_slot(&mut self) -> Option<u32> {
        let slot = (self.slots.len() < self.capacity).then_some(self.slots.len() as u32)?;
        self.slots.push(None);
        Some(slot)
    }

    /// Removes the queue pair with this shared part, and returns it; `None` if it is not here.
    pub(crate) fn remove(&mut self, shared: &Arc<SharedQp>) -> Option<QueuePair> {
        let Home { slot, .. } = shared.home()?;
        let place = self.slots.get_mut(slot as usize)?;
        let qp = place.take_if(|qp| Arc::ptr_eq(&qp.shared, shared))?;
        self.free.push(slot);
        Some(qp)
    }

    /// Returns all queue pairs, to change them.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuePair> {
        self.slots.iter_mut().flatten()
    }
}

/// The queue pairs with posted requests that could not be accepted yet, by slot; others may be among them.
///
/// A request is accepted when the doorbell of its queue pair is served, and from then on counts as a reader
/// of its memory. It may have to wait for a request before it that changes what this end grants. So a posted
/// request is accepted, or its queue pair is here, or its doorbell still rings: a deregistration, which asks
/// for all requests that may use some memory, looks at these queue pairs and at no other.
#[derive(Debug, Default)]
pub(crate) struct Unaccepted {
    /// Bit `n % 64` of word `n / 64` is that of the queue pair in slot `n`.
    words: Vec<u64>,
}

impl Unaccepted {
    /// Adds the queue pair in `slot`.
    #[cold]
    pub(super) fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    /// Removes the queue pair in `slot`.
    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Returns a word of the set, in which slot `64 * index` has the lowest bit.
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }
}
