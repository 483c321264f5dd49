//! What a connection sends next.

use arrayvec::ArrayVec;

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNumber};

use super::send_queue::Segment;
use super::timers::Timer;
use super::{Connection, Pools, State};

/// A segment to send. Ports and checksum are the caller's.
#[derive(Clone, Debug)]
pub struct Outgoing<P> {
    /// The header, ports zero.
    pub header: Header,
    /// The data, if any: a range of what a descriptor stands for.
    pub segment: Option<Segment<P>>,
}

/// The window shift that lets 16 bits name a window of `octets`.
pub(super) fn scale_for(octets: u32) -> u8 {
    (0..14).find(|shift| octets >> shift <= 0xffff).unwrap_or(14)
}

impl Connection {
    /// The next segment to send at `now`; `None` when there is none for now. To be called until it gives `None`.
    pub fn poll_transmit<P: Copy, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
    ) -> Option<Outgoing<P>> {
        if core::mem::take(&mut self.reset_owed) {
            let flags = Flags::RST | Flags::ACK;
            return Some(Outgoing { header: self.header(self.send.nxt(), flags), segment: None });
        }
        if self.state == State::Closed {
            return None;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.poll_syn(now);
        }
        if core::mem::take(&mut self.resend_owed)
            && let Some(segment) = self.send.resend_oldest(&mut pools.segments, now)
        {
            self.arm_retransmit(now);
            return Some(self.data(segment));
        }
        if let Some(segment) = self.next_data(now, pools) {
            return Some(self.data(segment));
        }
        if self.fin_queued && !self.fin_sent && !self.has_unsent() {
            self.fin_sent = true;
            self.arm_retransmit(now);
            let header = self.header(self.send.end(), Flags::FIN | Flags::ACK);
            self.note_ack_sent();
            return Some(Outgoing { header, segment: None });
        }
        if core::mem::take(&mut self.probe_owed) {
            self.counters.window_probes += 1;
            // One place before the window: the peer answers with its window, and no FPDU is cut.
            return Some(Outgoing { header: self.header(self.snd_una - 1, Flags::ACK), segment: None });
        }
        if self.acks_owed > 0 {
            self.acks_owed -= 1;
            let header = self.header(self.next_seq(), Flags::ACK);
            self.note_ack_sent();
            return Some(Outgoing { header, segment: None });
        }
        None
    }

    fn poll_syn<P>(&mut self, now: Instant) -> Option<Outgoing<P>> {
        if !core::mem::take(&mut self.syn_owed) {
            return None;
        }
        self.arm_retransmit(now);
        let flags = if self.state == State::SynReceived { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let mut header = self.header(self.iss, flags);
        // A SYN's window is not scaled (RFC 7323 §2.2).
        let window = self.config.window_octets.min(0xffff);
        header.window = window as u16;
        self.rcv_edge = self.rcv_edge.later(self.receive.nxt() + window);
        // An answer offers scaling only if it was offered (RFC 7323 §2.2).
        let scales = self.state == State::SynSent || self.rcv_scale > 0 || self.snd_scale > 0;
        header.options = Options {
            mss: Some(self.config.mss_octets),
            window_scale: scales.then_some(self.rcv_scale),
            sack_permitted: false,
            timestamps: None,
            sack: ArrayVec::new(),
        };
        Some(Outgoing { header, segment: None })
    }

    /// The next segment of data that the windows let out.
    fn next_data<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Option<Segment<P>> {
        let next = self.send.peek(&pools.segments)?;
        if next.octets > u32::from(self.emss_octets)
            && self.send.split(&mut pools.segments, u32::from(self.emss_octets))
        {
            self.counters.cut_segments += 1;
        }
        let next = self.send.peek(&pools.segments)?;
        let flight = self.flight_octets();
        if flight > 0 && flight + next.octets > self.congestion.window_octets() {
            return None;
        }
        let window_end = self.snd_una + self.snd_wnd;
        if next.end() > window_end {
            if flight > 0 {
                return None;
            }
            if !self.use_small_window(now, window_end, pools) {
                return None;
            }
        }
        let segment = self.send.advance(&mut pools.segments, now)?;
        self.counters.data_segments_sent += 1;
        if segment.transmissions > 1 {
            self.counters.retransmitted_segments += 1;
        }
        self.timers.clear(Timer::Persist);
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        Some(segment)
    }

    /// The window is too small for the next segment and nothing is in flight. A window that data has filled to a small
    /// rest is probed as a closed one is, so that no FPDU is cut; one that stays small, or was never much larger, is used
    /// by cutting the segment (RFC 9293 §3.8.6.2.1).
    fn use_small_window<P: Copy, F>(
        &mut self,
        now: Instant,
        window_end: SeqNumber,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let room = (window_end - self.send.nxt()).max(0) as u32;
        let stays_small = self.rtt.timeouts_in_a_row() >= limits::SMALL_WINDOW_PROBES;
        let use_it = room > 0 && (stays_small || room >= self.snd_wnd_max / 2);
        if self.probe_owed && use_it && self.send.split(&mut pools.segments, room) {
            self.probe_owed = false;
            self.counters.cut_segments += 1;
            return true;
        }
        if !self.timers.is_set(Timer::Persist) {
            self.timers.set(Timer::Persist, now + self.rtt.rto_ns());
        }
        false
    }

    fn data<P>(&mut self, segment: Segment<P>) -> Outgoing<P> {
        let mut flags = Flags::ACK;
        if segment.end() == self.send.end() {
            flags |= Flags::PSH;
        }
        let header = self.header(segment.seq, flags);
        self.note_ack_sent();
        Outgoing { header, segment: Some(segment) }
    }

    /// The sequence number of a segment without data.
    fn next_seq(&self) -> SeqNumber {
        self.send.max() + u32::from(self.fin_sent)
    }

    /// The next place expected from the peer, its FIN included.
    pub(super) fn receive_next(&self) -> SeqNumber {
        self.receive.nxt() + u32::from(self.peer_finished)
    }

    fn header(&mut self, seq: SeqNumber, flags: Flags) -> Header {
        let acknowledges = flags.contains(Flags::ACK);
        Header {
            source_port: 0,
            destination_port: 0,
            seq,
            ack: if acknowledges { self.receive_next() } else { SeqNumber(0) },
            flags,
            window: if acknowledges { self.offer_window() } else { 0 },
            urgent: 0,
            options: Options::default(),
        }
    }

    /// Every segment acknowledges all that is in order. Beyond a gap the peer counts acknowledgements without data
    /// (RFC 5681 §2), so those stay owed.
    fn note_ack_sent(&mut self) {
        self.last_ack_sent = self.receive_next();
        self.unacknowledged_segments = 0;
        if !self.receive.has_gap() {
            self.acks_owed = 0;
        }
        self.timers.clear(Timer::DelayedAck);
    }

    /// Octets we could take beyond RCV.NXT. What waits beyond a gap lies inside the window already.
    fn room(&self) -> u32 {
        self.config.window_octets.saturating_sub(self.receive.available() as u32)
    }

    /// Moves the right edge as far as silly-window avoidance allows (RFC 9293 §3.8.6.2.2) and gives the window field.
    fn offer_window(&mut self) -> u16 {
        let nxt = self.receive_next();
        let edge = nxt + self.room();
        let gain = (edge - self.rcv_edge).max(0) as u32;
        if gain >= u32::from(self.config.mss_octets).min(self.config.window_octets / 2) {
            self.rcv_edge = edge;
        }
        let window = (self.rcv_edge - nxt).max(0) as u32;
        // Rounded up, and the edge with it, so that scaling never pulls it back (DDP-A-04).
        let field = window.div_ceil(1 << self.rcv_scale).min(0xffff);
        self.rcv_edge = self.rcv_edge.later(nxt + (field << self.rcv_scale));
        field as u16
    }

    /// Whether the window could be offered much larger than the peer knows.
    pub(super) fn window_grows_enough(&self) -> bool {
        let known = (self.rcv_edge - self.receive_next()).max(0) as u32;
        known < self.config.window_octets / 2 && self.room() >= known + self.config.window_octets / 4
    }
}
