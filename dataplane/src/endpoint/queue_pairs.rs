//! The queue pairs of a core, by number.

use crate::conn::ConnectionId;
use crate::qp::work::QpNumber;

use super::queue_pair::QueuePair;

/// The queue pairs of a core. While a queue pair carries a stream, its connection holds its number, and it
/// holds the [`ConnectionId`] of the connection. The number of a destroyed queue pair is soon another's, but
/// a `ConnectionId` is not used again for a long time: an old connection does not reach a queue pair that has
/// got the number later.
pub(crate) struct QueuePairs {
    by_number: Vec<Option<QueuePair>>,
}

impl QueuePairs {
    /// Returns no queue pairs, and room for `count`.
    pub(crate) fn new(count: usize) -> Self {
        Self { by_number: (0..count).map(|_| None).collect() }
    }

    /// Returns the queue pair of this number if `connection` carries its stream.
    #[inline]
    pub(crate) fn bound_to(&mut self, connection: ConnectionId, number: QpNumber) -> Option<&mut QueuePair> {
        self.numbered(number).filter(|qp| qp.connection == Some(connection))
    }

    /// Returns the queue pair that has this number now.
    #[inline]
    pub(crate) fn numbered(&mut self, number: QpNumber) -> Option<&mut QueuePair> {
        self.by_number.get_mut(number.0 as usize)?.as_mut()
    }

    /// Makes `connection` the connection of queue pair `number`, whose stream begins. Returns `None` if there
    /// is no such queue pair, or if it serves or has served a connection.
    pub(crate) fn bind(&mut self, number: QpNumber, connection: ConnectionId) -> Option<&mut QueuePair> {
        let qp = self.numbered(number).filter(|qp| qp.is_unbound())?;
        qp.connection = Some(connection);
        Some(qp)
    }

    /// Adds a queue pair. Control gives its number, which is less than the `count` of [`new`](Self::new), to
    /// no other queue pair until this one is destroyed.
    pub(crate) fn insert(&mut self, qp: QueuePair) {
        let place = self.by_number.get_mut(qp.shared.number.0 as usize);
        debug_assert!(place.as_ref().is_some_and(|place| place.is_none()), "control gave out a number twice");
        if let Some(place) = place {
            place.get_or_insert(qp);
        }
    }

    /// Removes the queue pair that has this number now, and returns it.
    pub(crate) fn remove(&mut self, number: QpNumber) -> Option<QueuePair> {
        self.by_number.get_mut(number.0 as usize)?.take()
    }

    /// Returns all queue pairs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuePair> {
        self.by_number.iter().flatten()
    }

    /// Returns all queue pairs, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuePair> {
        self.by_number.iter_mut().flatten()
    }
}
