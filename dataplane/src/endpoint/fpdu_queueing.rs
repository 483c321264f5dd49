//! FPDUs on their way from the queue pair to TCP's send queue.

use crate::qp::reads::Reads;
use crate::qp::run::{FpduRun, SegmentRoom};
use crate::qp::sender::Sender;
use crate::tcp::{self, Pools};
use crate::wire::tcp::SeqNumber;

use super::chunk::Chunk;
use super::operating::Operating;

/// What FPDUs are queued with, for a device that does or does not accept payload by reference.
pub(super) struct FpduQueueing<'e, F> {
    pub(super) tcp: &'e mut tcp::Connection,
    pub(super) pools: &'e mut Pools<Chunk, F>,
    pub(super) operating: &'e Operating,
    pub(super) sender: &'e mut Sender,
    pub(super) reads: &'e mut Reads,
    pub(super) by_reference: bool,
}

impl<F> FpduQueueing<'_, F> {
    /// Moves FPDUs from the queue pair to TCP: those that can be sent at once, and one more, so that TCP has
    /// data waiting. Each FPDU is cut for the EMSS at that moment. Queued FPDUs go out, whatever happens to
    /// EMSS and window.
    // Requirements: MPA-4.5-03, DDP-3-02, MPA-A.1-03, C00-7.3-05, C00-7.3-06
    #[inline]
    pub(super) fn queue(mut self) {
        if self.operating.packing {
            self.extend_last();
        }
        let mut segment = self.segment_room(self.tcp.queued_end());
        let Some(mut run) = self.sender.peek(&segment, self.reads) else { return };
        let mut room = self.tcp.send_room();
        loop {
            if self.tcp.has_unsent() && room < run.octets as usize {
                return;
            }
            if !self.tcp.queue(self.pools, Chunk::Fpdus(run), 0, run.octets) {
                return;
            }
            self.sender.advance(&run, 0, self.tcp.queued_end(), self.reads);
            room = room.saturating_sub(run.octets as usize);
            debug_assert_eq!(room, self.tcp.send_room(), "both windows take as much less");
            let continuations = self.sender.count_equal(&run, &segment, self.reads);
            if continuations > 0 {
                if !self.queue_equal(&run, continuations) {
                    return;
                }
                room = self.tcp.send_room();
            }
            segment.position = self.operating.position_of(self.tcp.queued_end());
            let Some(next) = self.sender.peek(&segment, self.reads) else { return };
            run = next;
        }
    }

    /// Adds small FPDUs to the last segment that TCP has not sent yet, if that is a run of FPDUs.
    #[inline]
    fn extend_last(&mut self) {
        if self.tcp.has_unsent()
            && let Some((Chunk::Fpdus(run), octets)) = self.tcp.last_unsent(self.pools)
        {
            let room = self.segment_room(self.tcp.queued_end() - octets);
            if let Some(longer) = self.sender.extend(run, &room, self.reads) {
                self.tcp.extend_last(self.pools, Chunk::Fpdus(longer), longer.octets);
                self.sender.advance(&longer, run.fpdus(), self.tcp.queued_end(), self.reads);
            }
        }
    }

    /// Queues the `continuations` of `run`, the last one queued, which are like it: those that can be sent at
    /// once, in a group of equal segments. Returns false if there are more of them.
    #[inline]
    fn queue_equal(&mut self, run: &FpduRun, continuations: u32) -> bool {
        debug_assert!(self.tcp.has_unsent(), "the part before was just queued");
        let fit = (self.tcp.send_room() / run.octets as usize).min(continuations as usize) as u32;
        let end = self.tcp.queued_end();
        let queued = self.tcp.queue_more(self.pools, fit);
        self.sender.advance_equal(run, queued, end, self.reads);
        queued == continuations
    }

    /// Returns the room for FPDUs in the segment that begins at `begin`.
    #[inline]
    fn segment_room(&self, begin: SeqNumber) -> SegmentRoom {
        self.operating.segment_room(begin, self.tcp.emss_octets(), self.by_reference)
    }
}
