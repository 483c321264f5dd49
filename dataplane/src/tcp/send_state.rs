//! The send half of a connection: the send sequence variables of RFC 9293 §3.3.1, the peer's window, the
//! queue of segments, and how far the FIN has come.

use crate::wire::tcp::{Header, SeqNumber};

use super::send_queue::{SegmentPool, SendPayload, SendQueue};

/// How far the FIN of this end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fin {
    /// The user has not closed.
    NotQueued,
    /// To be sent after the last segment of the queue.
    Queued,
    /// Sent.
    Sent,
    /// Sent, and to be sent again: the retransmission timer has expired since.
    Lost,
}

impl Fin {
    /// Whether the user has closed: nothing more is queued.
    pub(super) const fn is_queued(self) -> bool {
        !matches!(self, Self::NotQueued)
    }

    /// Whether the FIN was sent at least once, so that it counts in SND.NXT.
    pub(super) const fn is_sent(self) -> bool {
        matches!(self, Self::Sent | Self::Lost)
    }

    /// Whether the FIN is to be sent as soon as the queue has no unsent segment.
    pub(super) const fn is_due(self) -> bool {
        matches!(self, Self::Queued | Self::Lost)
    }

    /// The retransmission timer has expired: a FIN that was sent is sent again.
    pub(super) const fn on_timeout(&mut self) {
        if self.is_sent() {
            *self = Self::Lost;
        }
    }
}

/// The send half of one connection.
///
/// Example: with an ISS of 1000, a queue that holds octets 1001 to 1500 of which 1001 to 1400 are sent, and a
/// FIN that is queued, `una` is 1001, `queue.nxt()` is 1401, `queue.end()` is 1501, and [`next`](Self::next)
/// is 1401 until the FIN has left under number 1501; then it is 1502.
#[derive(Debug)]
pub(super) struct SendState {
    /// ISS: the sequence number of this end's SYN.
    pub(super) iss: SeqNumber,
    /// SND.UNA: the oldest sequence number that is not acknowledged.
    pub(super) una: SeqNumber,
    /// SND.WND: octets that the peer accepts from `una` on.
    pub(super) window_octets: u32,
    /// The largest `window_octets` so far.
    pub(super) max_window_octets: u32,
    /// SND.WL1: the sequence number of the segment that last updated the window.
    wl1: SeqNumber,
    /// SND.WL2: the acknowledgement number of that segment.
    wl2: SeqNumber,
    /// Snd.Wind.Shift: the shift of the peer's window fields (RFC 7323 §2.3).
    pub(super) scale: u8,
    pub(super) handshake: Handshake,
    pub(super) fin: Fin,
    /// The segments queued, or sent and not completely acknowledged. The first may begin before `una`: a
    /// segment that is acknowledged in part stays as it is.
    pub(super) queue: SendQueue,
    /// Octets up to here were sent, or held back, while the congestion window was full.
    pub(super) cwnd_limited_until: SeqNumber,
}

impl SendState {
    pub(super) const fn new(iss: SeqNumber, start: SeqNumber) -> Self {
        Self {
            iss,
            una: iss,
            window_octets: 0,
            max_window_octets: 0,
            wl1: SeqNumber(0),
            wl2: iss,
            scale: 0,
            handshake: Handshake::new(),
            fin: Fin::NotQueued,
            queue: SendQueue::new(start),
            cwnd_limited_until: iss,
        }
    }

    /// SND.NXT, with the FIN counted once it was sent: the sequence number of a segment without data.
    pub(super) fn next(&self) -> SeqNumber {
        self.queue.nxt() + u32::from(self.fin.is_sent())
    }

    /// Octets sent and not acknowledged.
    pub(super) fn flight_octets(&self) -> u32 {
        (self.queue.nxt() - self.una).max(0) as u32
    }

    /// The sequence number after the peer's window.
    pub(super) fn window_end(&self) -> SeqNumber {
        self.una + self.window_octets
    }

    /// Whether the acknowledgement number `ack` acknowledges something new, where the FIN is not queued.
    #[inline]
    pub(super) fn advances(&self, ack: SeqNumber) -> bool {
        ack > self.una && ack <= self.queue.nxt()
    }

    /// Whether there is a segment never sent that the peer's window has room for.
    pub(super) fn may_send_new<P: SendPayload>(&self, segments: &SegmentPool<P>) -> bool {
        let room = (self.window_end() - self.queue.nxt()).max(0).cast_unsigned();
        self.queue.peek(segments).is_some_and(|next| next.octets <= room)
    }

    /// RFC 5961 §5: an acknowledgement is of something sent, and not older than a window. By distances, so
    /// that a number just opposite on the circle, which is neither before nor after, is refused.
    pub(super) fn is_acceptable_ack(&self, ack: SeqNumber) -> bool {
        let advance = ack - self.una;
        advance <= self.next() - self.una && i64::from(advance) >= -i64::from(self.max_window_octets)
    }

    /// Whether `ack` acknowledges the FIN.
    pub(super) fn acknowledges_fin(&self, ack: SeqNumber) -> bool {
        self.fin.is_sent() && ack == self.queue.nxt() + 1
    }

    /// The window that the field of a segment other than a SYN names.
    pub(super) fn scaled(&self, field: u16) -> u32 {
        u32::from(field) << self.scale
    }

    /// Accepts the window of the peer's SYN, which is never scaled (RFC 7323 §2.2).
    pub(super) fn begin(&mut self, syn: &Header) {
        (self.wl1, self.wl2) = (syn.seq, self.iss);
        self.window_octets = u32::from(syn.window);
        self.max_window_octets = self.window_octets;
    }

    /// Returns true if the last update of the window was of `window_octets` with the acknowledgement number
    /// `ack`: others that say the same change no more than which was the last.
    #[inline]
    pub(super) fn has_window(&self, ack: SeqNumber, window_octets: u32) -> bool {
        self.wl2 == ack && self.window_octets == window_octets
    }

    /// Takes the same window and acknowledgement number as those that [updated the window
    /// last](Self::has_window), of a segment that begins at `seq`.
    #[inline]
    pub(super) fn repeat_window(&mut self, seq: SeqNumber) {
        self.wl1 = self.wl1.later(seq);
    }

    /// Accepts the window of a segment with these numbers, unless it is older than the last that updated it.
    /// Returns true if the window has grown.
    ///
    /// One that acknowledges more was sent later, whatever its sequence number: a retransmission. The window
    /// counts from what it acknowledges, so the one before would reach further than the peer has offered.
    /// Example: with 1 to 100 sent and a window of 500 from number 11 on, a retransmission from number 1 on
    /// that acknowledges 101 has a window of 400; 500 after 101 would be 100 too far.
    #[inline]
    pub(super) fn update_window(&mut self, seq: SeqNumber, ack: SeqNumber, window_octets: u32) -> bool {
        let is_older = self.wl1 > seq || (self.wl1 == seq && self.wl2 > ack);
        if is_older && ack <= self.una {
            return false;
        }
        let grown = window_octets > self.window_octets;
        self.window_octets = window_octets;
        self.max_window_octets = self.max_window_octets.max(window_octets);
        (self.wl1, self.wl2) = (self.wl1.later(seq), ack);
        grown
    }
}

/// The SYNs of this end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// SYNs sent.
    pub(super) syn_transmissions: u8,
    /// A SYN is to be sent.
    pub(super) syn_owed: bool,
}

impl Handshake {
    pub(super) const fn new() -> Self {
        Self { syn_transmissions: 0, syn_owed: true }
    }
}
