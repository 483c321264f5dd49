//! Buffers for transfers that nobody expects, of one connection: their number and size are its quota.

use std::collections::VecDeque;

use crate::limits;
use crate::memory::Region;

/// Buffers of one size for unsolicited transfers (draft-csapuntz-tcprdma-00 §3.1.7, §6.1). What a peer can
/// occupy of its receiver is all of them, and no more.
// Requirements: TRO-6.1-03
#[derive(Clone, Debug)]
pub struct UnsolicitedPool {
    memory: Region,
    buffer_octets: usize,
}

impl UnsolicitedPool {
    /// As many buffers of `buffer_octets` octets as `memory` has room for, at most
    /// [`UNSOLICITED_BUFFERS_PER_STREAM`](limits::UNSOLICITED_BUFFERS_PER_STREAM). `None` if it has room for
    /// none.
    pub fn new(memory: Region, buffer_octets: usize) -> Option<Self> {
        (buffer_octets > 0 && buffer_octets <= memory.len()).then_some(Self { memory, buffer_octets })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        (self.memory.len() / self.buffer_octets).min(limits::UNSOLICITED_BUFFERS_PER_STREAM)
    }

    /// Octets of each.
    pub const fn buffer_octets(&self) -> usize {
        self.buffer_octets
    }

    /// The memory of all, and where buffer `index` begins in it.
    pub fn buffer(&self, index: u16) -> Option<(&Region, usize)> {
        (usize::from(index) < self.count()).then(|| (&self.memory, usize::from(index) * self.buffer_octets))
    }

    /// The numbers of all buffers.
    pub(super) fn all(&self) -> VecDeque<u16> {
        (0..self.count() as u16).collect()
    }
}
