//! Trains of segments that arrive: those after a [predicted](super::prediction) one whose headers differ from
//! its headers in sequence number, length and PSH alone.
//!
//! Nothing is sent while a burst is taken, so what the first of them has changed holds for the others: the
//! acknowledgement number is that of before and acknowledges nothing new, the peer's window and clock are the
//! same, and so are the ECN marks. Each of them moves RCV.NXT and counts as a segment to acknowledge. The
//! fields of the connection are written once, when the train ends: they are what they would be if each
//! segment had been taken by [`take_predicted`](super::Connection::take_predicted).

use crate::limits;
use crate::wire::plain_segment::PlainSegment;
use crate::wire::tcp::SeqNumber;

use super::{Connection, Pools, State};

// Each segment after the first is then acknowledged at once (RFC 5681 §4.2): none starts the timer of a
// delayed ACK.
const _: () = assert!(limits::DELAYED_ACK_SEGMENTS <= 2);

/// The segments of a train that have arrived after its first, and are not noted in the connection yet.
#[derive(Debug)]
pub struct Arrivals {
    /// The sequence number of the next one.
    next: SeqNumber,
    /// Octets that the window takes.
    window_octets: usize,
    segments: u32,
    octets: usize,
    /// The sequence number of the last one, and the acknowledgement number and window field of all.
    last_seq: SeqNumber,
    ack: SeqNumber,
    window: u16,
}

impl Arrivals {
    /// Returns the sequence number at which the next segment begins.
    #[inline]
    pub const fn next(&self) -> SeqNumber {
        self.next
    }

    /// Returns true if a segment of `payload_octets` has payload, and fits the window.
    #[inline]
    pub fn fits(&self, payload_octets: usize) -> bool {
        (1..=self.window_octets).contains(&payload_octets)
    }

    /// Takes the next segment, which has `payload_octets` and [fits](Self::fits).
    #[inline]
    pub fn take(&mut self, payload_octets: usize) {
        debug_assert!(self.fits(payload_octets), "beyond the window");
        self.last_seq = self.next;
        self.next += payload_octets as u32;
        self.window_octets -= payload_octets;
        self.octets += payload_octets;
        self.segments += 1;
    }
}

impl Connection {
    /// Returns the train that `first` leads, a predicted segment whose payload is consumed; `None` if each
    /// segment after it is to be looked at on its own, because this end has to see to a loss.
    #[inline]
    pub fn arrivals_after<P, F>(&self, first: &PlainSegment, pools: &Pools<P, F>) -> Option<Arrivals> {
        let next = first.seq + first.payload_octets as u32;
        let leads = self.state == State::Established
            && self.receive.is_drained()
            && self.receive.queue.nxt() == next
            && self.repeats_plainly(first.ack, &pools.segments)
            && pools.held.free_frames() > 0;
        leads.then(|| Arrivals {
            next,
            window_octets: (self.receive.edge - next).max(0) as usize,
            segments: 0,
            octets: 0,
            last_seq: first.seq,
            ack: first.ack,
            window: first.window,
        })
    }

    /// Notes the segments of a train, of whose octets the first `consumed` are consumed. The rest, if there
    /// is one, lies in the frame of the last segment: [`keep`](Self::keep) keeps it.
    #[inline]
    pub fn end_arrivals(&mut self, arrivals: &Arrivals, consumed: usize) {
        if arrivals.segments == 0 {
            return;
        }
        self.note_window(arrivals.last_seq, arrivals.ack, self.send.scaled(arrivals.window));
        self.receive.queue.advance(arrivals.octets);
        self.ack.on_in_order(self.receive.queue.nxt());
        self.ack.on_more_data(arrivals.segments);
        self.pass(consumed);
    }
}
