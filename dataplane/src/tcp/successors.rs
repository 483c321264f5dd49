//! The segments of a burst after one that TCP has accepted: they are counted together.

use crate::cold;
use crate::limits;
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, SeqNumber};

use super::text::Text;
use super::unusual::Unusual;
use super::{Connection, Pools};

// Each segment after the first of a burst is then acknowledged at once (RFC 5681 §4.2): none starts the timer
// of a delayed ACK.
const _: () = assert!(limits::DELAYED_ACK_SEGMENTS <= 2);

/// Segments of a burst that follow one that TCP has accepted, one after the other in order, with the same
/// acknowledgement, window, clock and ECN bits. They are counted together: TCP's state lags behind them until
/// that is [done](Self::count).
///
/// Example: after a segment that ends at 1000 of a window up to 5000, `next` is 1000 and `window_octets`
/// 4000; after two of 1400 octets `next` is 3800, `last` 2400, `segments` 2 and `window_octets` 1200. Where
/// octets from 3800 on wait beyond a gap, `window_octets` is 2800 at first.
#[derive(Clone, Copy, Debug)]
pub struct Successors {
    /// Where the last of them begins, or without any the segment before them.
    last: SeqNumber,
    /// Where the next one begins.
    next: SeqNumber,
    /// Octets from there to the right edge of the window, or to those that wait beyond a gap.
    window_octets: usize,
    segments: u32,
    ecn: u8,
}

impl Successors {
    /// Returns the successors of `segment`, which was [accepted](Connection::accept_expected) and consumed,
    /// or [kept](Connection::accept_beyond_gap) beyond a gap: none yet. Nothing is sent while a burst is
    /// accepted, so what holds for the acknowledgement and the clock of `segment` holds for theirs. Returns
    /// `None` if they need another look.
    #[inline]
    pub fn after<P, F>(tcp: &Connection, segment: &Segment, pools: &Pools<P, F>) -> Option<Self> {
        let may_follow = !tcp.unusual.intersects(Unusual::RECEIVE)
            && tcp.receive.awaits_fin()
            && tcp.send.has_window(segment.ack, tcp.send.scaled(segment.window))
            && tcp.repeats(segment.ack, false, &pools.segments)
            && pools.held.free_frames() > 0
            && !cold::is_forced();
        may_follow.then(|| Self::none_after(tcp, segment, pools)).filter(|found| found.window_octets > 0)
    }

    /// Returns that no segment was counted yet after `segment`, the last one.
    #[inline]
    fn none_after<P, F>(tcp: &Connection, segment: &Segment, pools: &Pools<P, F>) -> Self {
        Self {
            last: segment.seq,
            next: tcp.receive.queue.nxt(),
            window_octets: tcp.receive.octets_in_place(&pools.held),
            segments: 0,
            ecn: segment.ecn,
        }
    }

    /// Returns true if `segment`, which is in the same burst and has the same acknowledgement, window and
    /// clock, is next in order, and all of its payload, at least one octet, fits the window.
    #[inline]
    pub fn expect(&self, segment: &Segment) -> bool {
        segment.seq == self.next && segment.payload_octets.wrapping_sub(1) < self.window_octets
    }

    /// Adds `segment`, which they [expect](Self::expect). Returns false, and adds nothing, if it has other
    /// ECN bits, or CWR: [`count_with_marks`](Self::count_with_marks) counts it then.
    #[inline]
    pub fn add(&mut self, segment: &Segment) -> bool {
        if segment.ecn != self.ecn || segment.flags.contains(Flags::CWR) {
            return false;
        }
        self.last = segment.seq;
        self.next = segment.seq + segment.payload_octets as u32;
        self.window_octets -= segment.payload_octets;
        self.segments += 1;
        true
    }

    /// Counts them in `tcp`. They are consumed or [passed](Connection::pass) after this.
    #[inline]
    pub fn count(&self, tcp: &mut Connection) {
        if self.segments > 0 {
            let frames = tcp.receive.queue.frames() as u32 + 1;
            tcp.receive.held_frames_peak = tcp.receive.held_frames_peak.max(frames);
            tcp.send.repeat_window(self.last);
            tcp.receive.queue.advance_to(self.next);
            tcp.ack.on_in_order(self.next, tcp.receive.queue.has_gap());
            tcp.ack.on_successors(self.segments);
        }
    }

    /// Counts them, and `segment` after them, which is next in order but says something new of congestion.
    #[inline(never)]
    pub fn count_with_marks<P, F>(
        &mut self,
        tcp: &mut Connection,
        now: Instant,
        segment: &Segment,
        pools: &Pools<P, F>,
    ) {
        self.count(tcp);
        tcp.send.repeat_window(segment.seq);
        Text::of(tcp).pass_in_place(now, segment);
        *self = Self::none_after(tcp, segment, pools);
    }
}
