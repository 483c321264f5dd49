//! The receives that queue pairs of one host share.

use std::collections::VecDeque;
use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::memory::{Access, Grant};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;

use super::memory::{Memory, PD, region_of};
use super::receives::{Receive, pieces};
use super::stack::World;

/// Least size of each receive in octets: which message uses which receive is not predictable.
pub(crate) const LEAST_OCTETS: usize = 2500;
const SLOT_OCTETS: usize = 3000;
/// As many as may be posted.
pub(crate) const SLOTS: usize = 24;

/// A shared receive queue, and the memory of its receives.
pub(crate) struct Pool {
    queue: Arc<SharedReceiveQueue>,
    pub memory: Memory,
    /// Posted and not reported, in order; they are named by it.
    pub posted: VecDeque<Receive>,
    free_slots: Vec<usize>,
    next_id: u64,
}

impl Pool {
    pub(crate) fn new(rng: &mut Rng, world: &mut impl World, host: usize) -> Self {
        let mut content = vec![0; SLOTS * SLOT_OCTETS];
        rng.fill(&mut content);
        let region = region_of(&content);
        let stag = world.register(rng, host, Grant::new(region.clone(), PD, 0, Access::LOCAL_WRITE));
        Self {
            queue: world.shared_receives(host).clone(),
            memory: Memory::new(stag, region, content),
            posted: VecDeque::new(),
            free_slots: (0..SLOTS).collect(),
            next_id: 1 << 40,
        }
    }

    /// Posts one more, unless all memory is in use.
    pub(crate) fn post(&mut self, rng: &mut Rng) {
        if self.free_slots.is_empty() {
            return;
        }
        let slot = self.free_slots.swap_remove(rng.usize(..self.free_slots.len()));
        let start = slot * SLOT_OCTETS;
        self.next_id += 1;
        let pieces = pieces(rng, start..start + SLOT_OCTETS, LEAST_OCTETS);
        let receive = Receive { id: self.next_id, slot, pieces };
        self.queue.post(&[receive.request(self.memory.stag)]).expect("there is room");
        self.posted.push_back(receive);
    }

    /// The receive of that name, which has been used, and how many older ones have not.
    pub(crate) fn take(&mut self, id: u64) -> Option<(Receive, usize)> {
        let older = self.posted.iter().position(|receive| receive.id == id)?;
        Some((self.posted.remove(older)?, older))
    }

    /// A message has arrived in `receive`.
    pub(crate) fn fill(&mut self, receive: &Receive, octets: &[u8]) {
        self.memory.scatter(&receive.pieces, octets);
    }

    /// The memory of a receive that is complete may be used again.
    pub(crate) fn release(&mut self, receive: &Receive) {
        self.free_slots.push(receive.slot);
    }
}
