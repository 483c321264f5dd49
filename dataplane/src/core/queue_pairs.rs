//! The queue pairs of a core, by number, and the names that connections have for them.

use super::QueuePair;
use super::ring::ConnectionId;
use crate::qp::work::QpNumber;

/// Names the stream of a queue pair. When the stream ends or the queue pair is destroyed the name is void, so
/// that an old connection never reaches a queue pair that has its number by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpId {
    /// The queue pair's number.
    pub(super) number: QpNumber,
    /// How many streams, and queue pairs without one, the number has served before.
    pub(super) generation: u32,
}

/// A place for a queue pair. The generation outlives it.
struct Place {
    generation: u32,
    qp: Option<QueuePair>,
}

/// The queue pairs of a core. A queue pair and its connection name each other, both with a generation.
pub(super) struct QueuePairs {
    places: Vec<Place>,
}

impl QueuePairs {
    /// Room for `count` queue pairs.
    pub(super) fn new(count: usize) -> Self {
        Self { places: (0..count).map(|_| Place { generation: 0, qp: None }).collect() }
    }

    /// The queue pair whose stream `id` names, if that stream has not ended.
    #[inline]
    pub(super) fn get(&self, id: QpId) -> Option<&QueuePair> {
        let place = self.places.get(id.number.0 as usize)?;
        if place.generation == id.generation { place.qp.as_ref() } else { None }
    }

    /// As [`get`](Self::get), to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, id: QpId) -> Option<&mut QueuePair> {
        let place = self.places.get_mut(id.number.0 as usize)?;
        if place.generation == id.generation { place.qp.as_mut() } else { None }
    }

    /// The queue pair that has this number now.
    pub(super) fn numbered(&mut self, number: QpNumber) -> Option<&mut QueuePair> {
        self.places.get_mut(number.0 as usize)?.qp.as_mut()
    }

    /// Makes `connection` the connection of queue pair `number`, whose stream begins. Returns `None` if there
    /// is no such queue pair, or if it serves or has served a connection.
    pub(super) fn bind(
        &mut self,
        number: QpNumber,
        connection: ConnectionId,
    ) -> Option<(QpId, &mut QueuePair)> {
        let place = self.places.get_mut(number.0 as usize)?;
        let qp = place.qp.as_mut()?;
        if !qp.is_unbound() {
            return None;
        }
        qp.connection = Some(connection);
        Some((QpId { number, generation: place.generation }, qp))
    }

    /// Ends the stream that `id` names: the queue pair has no connection any more, and `id` names nothing.
    pub(super) fn unbind(&mut self, id: QpId) -> Option<&mut QueuePair> {
        let place = self.places.get_mut(id.number.0 as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let qp = place.qp.as_mut()?;
        place.generation = place.generation.wrapping_add(1);
        qp.connection = None;
        Some(qp)
    }

    /// Puts a queue pair at its number; `false` when there is no such number or another has it.
    pub(super) fn insert(&mut self, qp: QueuePair) -> bool {
        match self.places.get_mut(qp.shared.number.0 as usize) {
            Some(place) if place.qp.is_none() => {
                place.qp = Some(qp);
                true
            }
            _ => false,
        }
    }

    /// Takes the queue pair of this number out. No name of it finds the next that has the number.
    pub(super) fn remove(&mut self, number: QpNumber) -> Option<QueuePair> {
        let place = self.places.get_mut(number.0 as usize)?;
        let qp = place.qp.take()?;
        place.generation = place.generation.wrapping_add(1);
        Some(qp)
    }

    /// All queue pairs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuePair> {
        self.places.iter().filter_map(|place| place.qp.as_ref())
    }

    /// All queue pairs, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuePair> {
        self.places.iter_mut().filter_map(|place| place.qp.as_mut())
    }
}
