//! The receive half of a connection: the receive sequence variables of RFC 9293 §3.3.1, the frames received,
//! the window that this end has offered, and the peer's FIN.

use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::config::Config;
use super::rdma_option::RdmaOptionUse;
use super::receive_queue::{HeldPool, ReceiveQueue};

/// How far the peer's FIN has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerFin {
    /// It has not come.
    NotSeen,
    /// It has not come, and the user accepts no text before it.
    NotSeenNoText,
    /// It has come with this sequence number; octets before it are missing.
    Seen(SeqNumber),
    /// It is in order, and counts in RCV.NXT.
    InOrder,
}

/// The receive half of one connection.
///
/// Example: with an IRS of 5000, octets 5001 to 5100 in order and a window of 1000 octets offered with the
/// acknowledgement number 5001, [`next`](Self::next) is 5101 and `edge` is 6001. The edge moves only forward,
/// however much waits unread.
#[derive(Debug)]
pub(super) struct ReceiveState {
    /// When an acceptable segment last came from the peer; [`Instant::ZERO`] before the first.
    pub(super) last_arrival: Instant,
    /// The largest window to offer, in octets.
    window_max_octets: u32,
    /// The largest segment that this end accepts, in octets: the least by which the window is moved.
    pub(super) mss_octets: u16,
    /// The most frames that were held at a time, of [`Counters`](super::Counters).
    pub(super) held_frames_peak: u32,
    /// IRS: the sequence number of the peer's SYN.
    pub(super) irs: SeqNumber,
    /// The octets received and not consumed.
    pub(super) queue: ReceiveQueue,
    /// The right edge of the window that was offered; it never moves back.
    // Requirements: DDP-A-04
    pub(super) edge: SeqNumber,
    /// Rcv.Wind.Shift: the shift of our window fields (RFC 7323 §2.3).
    pub(super) scale: u8,
    /// Both ends use the TCP RDMA option: those of the peer count, and ours are sent.
    pub(super) rdma_option: RdmaOptionUse,
    fin: PeerFin,
}

impl ReceiveState {
    /// The state before the peer's SYN has come, with the window of `config`.
    pub(super) fn new(config: &Config) -> Self {
        let start = SeqNumber(0);
        Self {
            last_arrival: Instant::ZERO,
            window_max_octets: config.window_octets,
            mss_octets: config.mss_octets,
            held_frames_peak: 0,
            irs: start,
            queue: ReceiveQueue::new(start),
            edge: start,
            scale: scale_for(config.window_octets),
            rdma_option: RdmaOptionUse::default(),
            fin: PeerFin::NotSeen,
        }
    }

    /// Offers windows of at most `octets` octets from now on. What was offered stays so.
    #[inline]
    pub(super) const fn set_window(&mut self, octets: u32) {
        self.window_max_octets = octets;
    }

    /// Octets between the first one that is not consumed and the right edge of the window.
    #[inline]
    pub(super) fn offered_octets(&self) -> u32 {
        (self.edge - self.queue.unread()).max(0).cast_unsigned()
    }

    /// Limits the window to offer to `octets` octets.
    pub(super) fn limit_window(&mut self, octets: u32) {
        self.window_max_octets = self.window_max_octets.min(octets);
    }

    /// The peer's SYN has come with the sequence number `irs`.
    pub(super) fn begin(&mut self, irs: SeqNumber) {
        self.irs = irs;
        self.queue.restart(irs + 1);
        self.edge = irs + 1;
    }

    /// RCV.NXT, with the peer's FIN counted once it is in order: what is acknowledged.
    pub(super) fn next(&self) -> SeqNumber {
        self.queue.nxt() + u32::from(self.peer_finished())
    }

    /// Whether everything that has come is in order and consumed, and no FIN has come.
    #[inline]
    pub(super) const fn is_drained(&self) -> bool {
        matches!(self.fin, PeerFin::NotSeen) && self.queue.is_drained()
    }

    /// Whether octets up to `end` that are next in order may be consumed in their frame: nothing waits before
    /// or among them, and no FIN has come.
    #[inline]
    pub(super) fn accepts_in_place<F>(&self, pool: &HeldPool<F>, end: SeqNumber) -> bool {
        self.is_drained() || self.awaits_fin() && self.queue.lacks_up_to(pool, end)
    }

    /// Octets that are next in order and may be consumed in their frames: those up to the right edge of the
    /// window, or up to what waits beyond a gap. Everything in order is consumed.
    #[inline]
    pub(super) fn octets_in_place<F>(&self, pool: &HeldPool<F>) -> usize {
        let kept = if self.queue.is_drained() { None } else { self.queue.first_kept(pool) };
        (kept.unwrap_or(self.edge) - self.queue.nxt()).max(0) as usize
    }

    /// Whether no FIN has come, and the user accepts text.
    pub(super) const fn awaits_fin(&self) -> bool {
        matches!(self.fin, PeerFin::NotSeen)
    }

    /// The user accepts no more text.
    pub(super) const fn refuse_text(&mut self) {
        if !self.peer_finished() {
            self.fin = PeerFin::NotSeenNoText;
        }
    }

    /// Whether text that is new ends the connection.
    pub(super) const fn refuses_text(&self) -> bool {
        matches!(self.fin, PeerFin::NotSeenNoText)
    }

    /// Whether the peer's FIN is in order.
    pub(super) const fn peer_finished(&self) -> bool {
        matches!(self.fin, PeerFin::InOrder)
    }

    /// The peer's FIN has come with sequence number `seq`.
    pub(super) const fn on_fin(&mut self, seq: SeqNumber) {
        if !self.peer_finished() {
            self.fin = PeerFin::Seen(seq);
        }
    }

    /// Accepts the peer's FIN if everything before it is in order. Returns true if it did.
    pub(super) fn accept_fin(&mut self) -> bool {
        let due = self.fin == PeerFin::Seen(self.queue.nxt());
        if due {
            self.fin = PeerFin::InOrder;
        }
        due
    }

    /// Octets before the peer's FIN are about to be dropped: it is not in order any more. Returns true if it
    /// was.
    pub(super) fn give_back_fin(&mut self) -> bool {
        let was_in_order = self.peer_finished();
        if was_in_order {
            self.fin = PeerFin::Seen(self.queue.nxt());
        }
        was_in_order
    }

    /// RFC 9293 §3.10.7.4: whether a segment of `length` sequence numbers from `seq` on lies in the window.
    pub(super) fn in_window(&self, seq: SeqNumber, length: u32) -> bool {
        let nxt = self.next();
        let window = (self.edge - nxt).max(0) as u32;
        let inside = |at: SeqNumber| at >= nxt && ((at - nxt) as u32) < window;
        match (length, window) {
            (0, 0) => seq == nxt,
            (0, _) => inside(seq),
            // Nothing fits, but the acknowledgement of the segment is accepted; its data is trimmed away.
            (_, 0) => seq == nxt,
            (_, _) => inside(seq) || inside(seq + (length - 1)),
        }
    }

    /// Octets that could be accepted beyond RCV.NXT. What waits beyond a gap, or is placed there, lies inside
    /// the window already; what is in order and not consumed makes it smaller.
    // Requirements: DDP-A-02, DDP-A-03
    fn room_octets(&self) -> u32 {
        self.window_max_octets.saturating_sub(self.queue.available() as u32)
    }

    /// Moves the right edge as far as silly-window avoidance allows (RFC 9293 §3.8.6.2.2). Returns the window
    /// field.
    pub(super) fn offer_window(&mut self) -> u16 {
        let nxt = self.next();
        let edge = nxt + self.room_octets();
        let gain = (edge - self.edge).max(0) as u32;
        if gain >= self.least_gain_octets() {
            self.edge = edge;
        }
        self.window_from(nxt)
    }

    /// The least by which the window is moved.
    fn least_gain_octets(&self) -> u32 {
        u32::from(self.mss_octets).min(self.window_max_octets / 2)
    }

    /// The window field that goes with the acknowledgement number `ack`. It is rounded up, and the edge with
    /// it, so that scaling never moves the edge back.
    // Requirements: DDP-A-04
    pub(super) fn window_from(&mut self, ack: SeqNumber) -> u16 {
        let window = (self.edge - ack).max(0) as u32;
        let field = window.div_ceil(1 << self.scale).min(0xffff);
        self.edge = self.edge.later(ack + (field << self.scale));
        field as u16
    }

    /// Whether the window could be offered much larger than the peer has it: an acknowledgement then moves
    /// its edge. One that does not would be a duplicate, of which a few make the peer repair a loss (RFC 5681
    /// §3.2).
    pub(super) fn may_grow_window(&self) -> bool {
        let offered = (self.edge - self.next()).max(0) as u32;
        let most = self.window_max_octets;
        offered < most / 2 && self.room_octets() >= offered + self.least_gain_octets().max(most / 4)
    }
}

/// The window shift that lets 16 bits name a window of `octets` octets.
fn scale_for(octets: u32) -> u8 {
    (0..14).find(|shift| octets >> shift <= 0xffff).unwrap_or(14)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Behaviour;

    /// An acknowledgement that is owed for the window only moves it, whatever is offered.
    #[test]
    fn an_update_of_the_window_moves_it() {
        for (window_octets, mss_octets) in [(24_576, 8960), (24_576, 1460), (10_000, 8960), (100_000, 8960)] {
            let behaviour = Behaviour::default();
            let config = Config { mss_octets, window_octets, timestamp_offset: 0, behaviour };
            let mut grown = 0;
            let places = (0..window_octets).step_by(500);
            for (waiting, offered) in
                places.clone().flat_map(|one| places.clone().map(move |other| (one, other)))
            {
                let mut receive = ReceiveState::new(&config);
                receive.begin(SeqNumber(0));
                receive.queue.advance_to(receive.queue.nxt() + waiting);
                receive.edge = receive.next() + offered;
                let before = receive.edge;
                if receive.may_grow_window() {
                    grown += 1;
                    receive.offer_window();
                    assert!(receive.edge > before, "{offered} of {window_octets}, MSS {mss_octets}");
                }
            }
            assert!(grown > 0);
        }
    }
}
