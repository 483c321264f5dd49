//! Placement beyond gaps (RFC 5044 §6, appendices A.3, A.4 and B; RFC 5041 §5.3): with Markers, complete
//! FPDUs are placed as soon as they have arrived, whatever is missing before them. Delivery follows the left
//! edge of the stream.
//!
//! [`OutOfOrderFpdus`] locates and verifies the FPDUs; here they meet TCP's receive queue and the queue pair.

use core::ops::Range;

use crate::device::Frame;
use crate::limits;
use crate::mpa::MpaError;
use crate::mpa::out_of_order::{Cursor, OutOfOrderFpdus, StreamPositions, Stretch};
use crate::mpa::receiver::Octets;
use crate::qp::receiver::{OutOfOrder, ReceiveContext};
use crate::tcp::receive_queue::{HeldPool, ReceiveQueue, Stretch as HeldStretch, StretchView};
use crate::wire::tcp::{SeqNumber, SeqRange};

use super::rdmap_stream::{RdmapStream, Step};

impl<F: Frame> Octets for StretchView<'_, F> {
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
        Self::for_each_slice(self, start, len, f);
    }

    fn available(&self) -> usize {
        self.octets()
    }
}

impl<F: Frame> Cursor for StretchView<'_, F> {
    fn advance(&mut self, octets: usize) {
        Self::advance(self, octets);
    }
}

/// A stretch of TCP's receive queue, by the positions of MPA.
struct StretchOfFpdus<'q, F> {
    queue: &'q ReceiveQueue,
    held: &'q HeldPool<F>,
    stretch: HeldStretch,
    positions: StreamPositions,
}

impl<F: Frame> Stretch for StretchOfFpdus<'_, F> {
    type Octets<'s>
        = StretchView<'s, F>
    where
        Self: 's;

    fn positions(&self) -> Range<u64> {
        self.positions.position(self.stretch.start)..self.positions.position(self.stretch.end)
    }

    fn begins_fpdu(&self) -> bool {
        self.stretch.after_placed
    }

    fn octets_at(&self, position: u64) -> StretchView<'_, F> {
        self.queue.view(self.held, &self.stretch, self.positions.seq(position))
    }

    fn is_refused(&self, position: u64) -> bool {
        self.queue.is_judged(self.held, self.positions.seq(position))
    }
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Places what can be placed now that the octets `kept` have arrived beyond a gap. TCP keeps them from
    /// now on, and says so to the peer.
    // Requirements: MPA-3-08, MPA-A.4-02, C00-5.1-03, C00-5.1-04, C00-5.2-06, D08-A.3-01
    pub(super) fn place_out_of_order(&mut self, kept: SeqRange) {
        let operating = &*self.operating;
        if !operating.receives || !operating.fpdus.has_markers() || operating.failed {
            return;
        }
        let mut from = kept.from;
        // FPDUs that begin before this position have been looked at.
        let mut not_before = 0;
        for _ in 0..limits::PLACEMENT_ATTEMPTS {
            let Some(refused) = self.place_around(from, kept.to, not_before) else { return };
            if refused >= kept.to {
                return;
            }
            // One that begins after the one that was refused may be valid.
            from = refused;
            not_before = self.positions().position(refused) + 1;
        }
    }

    fn positions(&self) -> StreamPositions {
        StreamPositions { unread: self.tcp.received().unread(), position: self.operating.fpdus.position() }
    }

    /// Places the first FPDUs that begin at or after `not_before` around `from..to`. Returns where an FPDU
    /// begins that is refused; `None` when there is nothing more to look for.
    // Requirements: MPA-B.1-01, DDP-3-05, DDP-5.3-01, DDP-5.3-04, DDP-5.3-05, RDMAP-5.5-01
    fn place_around(&mut self, from: SeqNumber, to: SeqNumber, not_before: u64) -> Option<SeqNumber> {
        let positions = self.positions();
        let Self { tcp, operating, qp, context, .. } = self;
        let (queue, held) = (tcp.received(), &context.pools.held);
        let stretch = queue.stretch_around(held, from)?;
        let stretch = StretchOfFpdus { queue, held, stretch, positions };
        let fpdus = OutOfOrderFpdus::new(&stretch, operating.crc);
        let start = fpdus.locate(positions.position(from)..positions.position(to), not_before)?;
        let first = positions.seq(start);
        // FPDUs that begin inside a frame and end there leave a remainder on both sides of them: they stay in
        // place.
        let leaves_its_frame = || match queue.frame_cut_at(held, first) {
            Some(frame_end) => fpdus.are_entire(start, positions.position(frame_end)),
            None => true,
        };
        if !queue.may_place_at(held, &stretch.stretch, first) || !leaves_its_frame() {
            // FPDUs that cannot be placed are not verified: they would be again with each segment.
            return None;
        }
        let mut placement_room = qp.receiver.placement_room(&context.placed_sends);
        let chain = fpdus.verify(start, |octets, located| {
            let (shared, outbound) = (&qp.shared, &qp.reads.outbound);
            match qp.receiver.check_out_of_order(shared, &context.stags, outbound, &located.ulpdu(octets)) {
                Some(OutOfOrder::Complete) => true,
                Some(OutOfOrder::AwaitsDelivery) if placement_room > 0 => {
                    placement_room -= 1;
                    true
                }
                _ => false,
            }
        });
        context.statistics.bytes_verified += chain.octets_verified as u64;
        let end = positions.seq(chain.end);
        let may_place = chain.end > start && queue.may_place(held, first, end);
        if may_place {
            let acknowledged = tcp.acknowledged();
            fpdus.for_each(start, chain.end, |position, octets, located| {
                let (shared, stags, reads) = (&qp.shared, &mut context.stags, &mut qp.reads);
                let reach = ReceiveContext { shared, stags, reads, acknowledged };
                let (placed, ulpdu) = (&mut context.placed_sends, located.ulpdu(octets));
                let copied = qp.receiver.place_out_of_order(&reach, placed, position, &ulpdu);
                context.statistics.bytes_copied_rx += copied as u64;
                context.statistics.fpdus_received += 1;
                context.statistics.fpdus_placed_out_of_order += 1;
            });
        }
        if chain.refused {
            queue.judge(&mut context.pools.held, end);
        }
        if may_place {
            tcp.place(&mut context.pools, first, end);
        }
        chain.refused.then_some(end)
    }

    /// Delivers octets placed beyond a gap that are next in order, if the FPDUs before them end where they
    /// begin; if a length reaches into them, it contradicts the Markers that led there.
    // Requirements: MPA-1.2-01, MPA-3-10, MPA-8-03, MPA-8-04, C00-9-02
    pub(super) fn deliver_placed(&mut self) -> Step {
        let Self { tcp, operating, qp, context, .. } = self;
        let Some(octets) = tcp.received().placed_next(&context.pools.held) else {
            let before = tcp.received().readable(&context.pools.held);
            // Its CRC cannot be verified any more: its length may be damaged, so it may be lost like one
            // whose CRC is wrong.
            return self.drop_or_fail(before, MpaError::Marker);
        };
        operating.fpdus.pass(octets);
        operating.crc_retries = 0;
        operating.on_fpdu(&qp.shared);
        tcp.consume(&mut context.pools, octets);
        let end = operating.fpdus.position();
        let acknowledged = tcp.acknowledged();
        let (shared, stags, reads) = (&*qp.shared, &mut context.stags, &mut qp.reads);
        let reach = &mut ReceiveContext { shared, stags, reads, acknowledged };
        match qp.receiver.deliver_placed(reach, &mut context.placed_sends, end) {
            Ok(()) => {
                // Responses to Reads may be among them.
                self.complete_sends();
                Step::Next
            }
            Err(fault) => Step::Failed(fault.error, Some(fault)),
        }
    }
}
