//! Placement beyond gaps (RFC 5044 §6, appendices A.3, A.4 and B; RFC 5041 §5.3): with Markers, whole FPDUs go to their
//! buffers as soon as they are there, whatever is missing before them. Delivery follows the left edge of the stream.
//!
//! Where an FPDU begins is known from a Marker, or from the end of one that is valid (MPA-6-04). A receiver without Markers
//! places nothing out of order (ambiguity A-21).

use crate::device::Frame;
use crate::limits;
use crate::mpa::receiver::{FpduReceiver, Octets};
use crate::mpa::{Framing, MpaError};
use crate::qp::receiver::{OutOfOrder, ReceiveContext};
use crate::tcp::receive_queue::{Stretch, StretchView};
use crate::wire::mpa::Marker;
use crate::wire::tcp::SeqNumber;

use super::rdmap_stream::RdmapStream;
use super::receive::Step;

const INTERVAL: u64 = Marker::INTERVAL as u64;
const MARKER: u64 = Marker::LEN as u64;

impl<F: Frame> Octets for StretchView<'_, F> {
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
        Self::for_each_slice(self, start, len, f);
    }

    fn available(&self) -> usize {
        self.octets()
    }
}

/// A connection's stream: places in it, counted as MPA and as TCP count them. They are the sender's order
/// (MPA-1.2-01, MPA-3-09).
#[derive(Clone, Copy)]
struct Places {
    unread: SeqNumber,
    position: u64,
}

impl Places {
    /// The position of `seq`, which is not consumed.
    fn position(self, seq: SeqNumber) -> u64 {
        self.position + u64::from((seq - self.unread).max(0).cast_unsigned())
    }

    /// The sequence number at `position`, which is not consumed.
    fn seq(self, position: u64) -> SeqNumber {
        self.unread + (position - self.position) as u32
    }
}

/// FPDUs in a row that may be placed, and whether one behind them did not check out, now or earlier.
struct Chain {
    end: u64,
    refused: bool,
}

/// The Marker at the place of `octets`.
fn marker_in<F: Frame>(octets: &StretchView<'_, F>) -> Marker {
    let mut marker = [0; Marker::LEN];
    let mut filled = 0;
    octets.for_each_slice(0, Marker::LEN, |slice| {
        marker[filled..filled + slice.len()].copy_from_slice(slice);
        filled += slice.len();
    });
    Marker::parse(marker)
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Places what can be placed now that the octets `kept` have arrived beyond a gap. TCP keeps them from now on, and says
    /// so to the peer.
    // Requirements: MPA-3-08, MPA-A.4-02, C00-5.1-03, C00-5.1-04, C00-5.2-06, D08-A.3-01
    pub(super) fn place_out_of_order(&mut self, kept: (SeqNumber, SeqNumber)) {
        let operating = &*self.operating;
        if !operating.receives || !operating.fpdus.has_markers() || operating.failed {
            return;
        }
        let mut from = kept.0;
        // FPDUs that begin before this position have been looked at.
        let mut not_before = 0;
        for _ in 0..limits::PLACEMENT_ATTEMPTS {
            let Some(refused) = self.place_around((from, kept.1), not_before) else { return };
            if refused >= kept.1 {
                return;
            }
            // One that begins after the one that was refused may be valid.
            from = refused;
            not_before = self.places().position(refused) + 1;
        }
    }

    fn places(&self) -> Places {
        Places { unread: self.tcp.received().unread(), position: self.operating.fpdus.position() }
    }

    /// Places the first FPDUs that begin at or after `not_before` around `from..to`. Returns where an FPDU begins that is
    /// not valid; `None` when there is nothing more to look for.
    fn place_around(&mut self, (from, to): (SeqNumber, SeqNumber), not_before: u64) -> Option<SeqNumber> {
        let places = self.places();
        let held = &self.context.pools.held;
        let received = self.tcp.received();
        let stretch = received.stretch_around(held, from)?;
        let start = self.fpdu_start(places, &stretch, (from, to), not_before)?;
        if !received.may_place_at(held, &stretch, places.seq(start))
            || !self.leaves_its_frame(places, &stretch, start)
        {
            // FPDUs that cannot be placed are not verified: they would be again with each segment.
            return None;
        }
        let chain = self.verify_chain(places, &stretch, start);
        let (first, end) = (places.seq(start), places.seq(chain.end));
        let received = self.tcp.received();
        if chain.refused {
            received.judge(&mut self.context.pools.held, end);
        }
        if chain.end > start && received.may_place(&self.context.pools.held, first, end) {
            self.place_chain(places, &stretch, (start, chain.end));
        }
        chain.refused.then_some(end)
    }

    /// Returns true if the FPDUs of `stretch` from `start` on, by their lengths, are whole beyond the end of the
    /// frame that `start` lies in, if the frame does not begin with it: others leave a remainder on both sides of it
    /// and stay in place.
    fn leaves_its_frame(&self, places: Places, stretch: &Stretch, start: u64) -> bool {
        let (received, held) = (self.tcp.received(), &self.context.pools.held);
        let Some(frame_end) = received.frame_cut_at(held, places.seq(start)) else { return true };
        let mut octets = received.view(held, stretch, places.seq(start));
        let mut fpdus = FpduReceiver::at(start, Framing { markers: true, crc: self.operating.crc });
        while places.seq(fpdus.position()) < frame_end {
            let Some(located) = fpdus.whole(&octets) else { return false };
            octets.advance(located.wire_len());
            fpdus.advance(&located);
        }
        true
    }

    /// Returns where the first FPDU begins that can be located in `stretch`: after placed ones, or where a Marker in or next
    /// to `from..to` points. Those of other octets were followed when they arrived.
    // Requirements: MPA-6-02, MPA-6-04, C00-7.4-03
    fn fpdu_start(
        &self,
        places: Places,
        stretch: &Stretch,
        (from, to): (SeqNumber, SeqNumber),
        not_before: u64,
    ) -> Option<u64> {
        let (start, end) = (places.position(stretch.start), places.position(stretch.end));
        let (received, held) = (self.tcp.received(), &self.context.pools.held);
        let to_be_judged =
            |at: &u64| *at >= start && *at >= not_before && !received.is_judged(held, places.seq(*at));
        if stretch.after_placed && to_be_judged(&start) {
            return Some(start);
        }
        let last = places.position(to).next_multiple_of(INTERVAL).min(end.checked_sub(MARKER)?);
        let mut marker_at = places.position(from) / INTERVAL * INTERVAL;
        if marker_at < start {
            marker_at += INTERVAL;
        }
        if marker_at > last {
            return None;
        }
        let mut octets = received.view(held, stretch, places.seq(marker_at));
        loop {
            let fpdu = FpduReceiver::at_marker(marker_at, marker_in(&octets), self.operating.crc);
            let found = fpdu.map(|fpdu| fpdu.position()).filter(&to_be_judged);
            marker_at += INTERVAL;
            if found.is_some() || marker_at > last {
                return found;
            }
            octets.advance(Marker::INTERVAL);
        }
    }

    /// Follows the FPDUs of `stretch` from `start` on by their lengths, as far as they are whole, valid and may be placed.
    // Requirements: MPA-6-01, MPA-6-03, MPA-6-05
    fn verify_chain(&mut self, places: Places, stretch: &Stretch, start: u64) -> Chain {
        let Self { tcp, operating, qp, context, .. } = self;
        let (received, held) = (tcp.received(), &context.pools.held);
        let mut octets = received.view(held, stretch, places.seq(start));
        let mut fpdus = FpduReceiver::at(start, Framing { markers: true, crc: operating.crc });
        let mut placement_room = qp.receiver.placement_room(&context.placed_sends);
        let refused = loop {
            if received.is_judged(held, places.seq(fpdus.position())) {
                break true;
            }
            let Some(whole) = fpdus.whole(&octets) else { break false };
            context.statistics.octets_verified += whole.wire_len() as u64;
            let Ok(Some(located)) = fpdus.next(&octets) else { break true };
            let (shared, outbound) = (&qp.shared, &qp.reads.outbound);
            match qp.receiver.check_out_of_order(shared, &context.stags, outbound, &octets, &located) {
                Some(OutOfOrder::Complete) => {}
                Some(OutOfOrder::AwaitsDelivery) if placement_room > 0 => placement_room -= 1,
                _ => break true,
            }
            octets.advance(located.wire_len());
            fpdus.advance(&located);
        };
        Chain { end: fpdus.position(), refused }
    }

    /// Places the FPDUs of `stretch` from `start` to `end`, which are verified, and frees their frames.
    // Requirements: MPA-B.1-01, DDP-3-05, DDP-5.3-01, DDP-5.3-04, DDP-5.3-05, RDMAP-5.5-01
    fn place_chain(&mut self, places: Places, stretch: &Stretch, (start, end): (u64, u64)) {
        let Self { tcp, operating, qp, context, .. } = self;
        let mut octets = tcp.received().view(&context.pools.held, stretch, places.seq(start));
        let mut fpdus = FpduReceiver::at(start, Framing { markers: true, crc: operating.crc });
        while fpdus.position() < end {
            let Some(located) = fpdus.whole(&octets) else {
                debug_assert!(false, "an FPDU that was verified is whole");
                break;
            };
            let position = fpdus.position();
            let copied = qp.receiver.place_out_of_order(
                &ReceiveContext { shared: &qp.shared, stags: &mut context.stags, reads: &mut qp.reads },
                &mut context.placed_sends,
                position,
                &octets,
                &located,
            );
            context.statistics.octets_copied_rx += copied as u64;
            context.statistics.fpdus_received += 1;
            context.statistics.fpdus_placed_out_of_order += 1;
            octets.advance(located.wire_len());
            fpdus.advance(&located);
        }
        tcp.place(&mut context.pools, places.seq(start), places.seq(end));
    }

    /// Delivers octets placed beyond a gap that are next in order, if the FPDUs before them end where they begin; if a
    /// length reaches into them, it contradicts the Markers that led there.
    // Requirements: MPA-1.2-01, MPA-3-10, MPA-8-03, MPA-8-04, C00-9-02
    pub(super) fn deliver_placed(&mut self) -> Step {
        let Self { tcp, operating, qp, context, .. } = self;
        let Some(octets) = tcp.received().placed_next(&context.pools.held) else {
            let before = tcp.received().readable(&context.pools.held);
            // Its CRC cannot be verified any more: its length may be damaged, so it may be lost like one whose CRC is wrong.
            return self.drop_or_fail(before, MpaError::Marker);
        };
        operating.fpdus.pass(octets);
        operating.crc_retries = 0;
        operating.on_fpdu(&qp.shared);
        tcp.consume(&mut context.pools, octets);
        let end = operating.fpdus.position();
        let reach =
            &mut ReceiveContext { shared: &qp.shared, stags: &mut context.stags, reads: &mut qp.reads };
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
