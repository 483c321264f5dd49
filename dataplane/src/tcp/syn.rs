//! Opening: the SYNs of both ends and what they agree on (RFC 9293 §3.5, RFC 7323 §2, RFC 2018 §2, RFC 3168 §6.1.1).

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options};

use super::congestion::{Congestion, CongestionControl};
use super::timers::Timer;
use super::{Changes, Connection, Disposition, Outgoing, Refusal, State};

/// Octets that timestamps take in each segment, padding included.
const TIMESTAMPS_OCTETS: u16 = 12;

impl Connection {
    pub(super) fn on_segment_in_syn_sent(&mut self, now: Instant, header: &Header) -> Disposition {
        let acknowledges = header.flags.contains(Flags::ACK);
        if acknowledges && header.ack != self.iss + 1 {
            // The caller answers with a RST (RFC 9293 §3.10.7.3).
            return Disposition::refused(Refusal::BadAck);
        }
        if header.flags.contains(Flags::RST) {
            if acknowledges {
                self.enter_closed(super::CloseReason::Refused);
                return Disposition::changed(Changes::CLOSED);
            }
            return Disposition::refused(Refusal::BadAck);
        }
        if !header.flags.contains(Flags::SYN) {
            return Disposition::refused(Refusal::WrongState);
        }
        self.take_syn(now, header);
        if !acknowledges {
            // Simultaneous open: our SYN goes out again, now with an acknowledgement.
            self.state = State::SynReceived;
            self.syn_owed = true;
            return Disposition::changed(Changes::empty());
        }
        self.take_window(header);
        self.establish(now);
        self.acks_owed = 1;
        Disposition::changed(Changes::ESTABLISHED)
    }

    /// Takes what the peer's SYN says: where its stream begins and what its options ask for.
    pub(super) fn take_syn(&mut self, now: Instant, syn: &Header) {
        self.irs = syn.seq;
        self.receive = super::ReceiveQueue::new(syn.seq + 1);
        self.last_ack_sent = syn.seq + 1;
        self.rcv_edge = syn.seq + 1;
        self.snd_wl = (syn.seq, self.iss);
        self.heard_at = now;
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        self.snd_wnd = u32::from(syn.window);
        self.snd_wnd_max = self.snd_wnd;
        if let Some(scale) = syn.options.window_scale {
            // A shift above 14 is taken as 14 (RFC 7323 §2.3).
            self.snd_scale = scale.min(14);
        } else {
            (self.snd_scale, self.rcv_scale) = (0, 0);
            // What the field cannot say is not offered, and what was not offered is not taken.
            self.config.window_octets = self.config.window_octets.min(0xffff);
        }
        // MPA-A.3-04.
        self.sack = syn.options.sack_permitted && self.config.behaviour.sack;
        if let Some(clock) = syn.options.timestamps.filter(|_| self.config.behaviour.timestamps) {
            self.clocks.start(now, clock.value);
        }
        self.take_ecn(syn.flags);
        let peer_mss = syn.options.mss.unwrap_or(limits::DEFAULT_MSS_OCTETS);
        let mss = peer_mss.min(self.config.mss_octets).max(limits::MIN_MSS_OCTETS);
        self.emss_octets = mss - self.option_octets();
        self.emss_negotiated_octets = self.emss_octets;
        self.congestion = Congestion::new(self.config.behaviour.congestion, u32::from(self.emss_octets));
    }

    /// Octets of options in each segment with data (RFC 6691: the MSS does not count them, the EMSS must).
    pub(super) const fn option_octets(&self) -> u16 {
        if self.clocks.negotiated { TIMESTAMPS_OCTETS } else { 0 }
    }

    /// RFC 3168 §6.1.1: a SYN asks with ECE and CWR, the answer agrees with ECE alone.
    fn take_ecn(&mut self, flags: Flags) {
        let asked = flags & (Flags::ECE | Flags::CWR);
        self.ecn.negotiated = if flags.contains(Flags::ACK) {
            asked == Flags::ECE && self.asks_for_ecn()
        } else {
            asked == Flags::ECE | Flags::CWR && self.config.behaviour.accepts_ecn()
        };
    }

    /// A SYN that got no answer is sent again without, for the sake of old middleboxes (§6.1.1.1).
    fn asks_for_ecn(&self) -> bool {
        self.config.behaviour.requests_ecn() && self.syn_transmissions <= 1
    }

    pub(super) fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.snd_una = self.iss + 1;
        self.timers.clear(Timer::Retransmit);
        self.syn_owed = false;
        let timed_out = self.rtt.timeouts_in_a_row() > 0;
        // A connection made from a cookie was not there when its SYN was answered.
        if self.syn_transmissions == 1 && now > self.sent_at {
            self.rtt.sample(now, now - self.sent_at);
        } else {
            self.rtt.progress();
        }
        if timed_out {
            // RFC 6298 §5.7, RFC 5681 §3.1.
            self.rtt.on_lost_syn();
            self.congestion.on_syn_timeout();
        }
        self.progress_at = now;
        self.arm_keepalive(now);
    }

    pub(super) fn poll_syn<P>(&mut self, now: Instant) -> Option<Outgoing<P>> {
        if !core::mem::take(&mut self.syn_owed) {
            return None;
        }
        self.syn_transmissions = self.syn_transmissions.saturating_add(1);
        if self.syn_transmissions == 1 {
            self.progress_at = now;
        }
        self.sent_at = now;
        self.arm_retransmit(now);
        let answers = self.state == State::SynReceived;
        let mut flags = if answers { Flags::SYN | Flags::ACK } else { Flags::SYN };
        if answers && self.ecn.negotiated {
            flags |= Flags::ECE;
        } else if !answers && self.asks_for_ecn() {
            flags |= Flags::ECE | Flags::CWR;
        }
        let mut header = self.header(now, self.iss, flags);
        // A SYN's window is not scaled (RFC 7323 §2.2).
        let window = self.config.window_octets.min(0xffff);
        header.window = window as u16;
        self.rcv_edge = self.rcv_edge.later(self.receive.nxt() + window);
        header.options = self.syn_options(now, answers);
        Some(Outgoing::control(header))
    }

    /// An answer offers only what was offered (RFC 7323 §2.2, §3.2, RFC 2018 §2).
    fn syn_options(&self, now: Instant, answers: bool) -> Options {
        let behaviour = &self.config.behaviour;
        let scales = !answers || self.rcv_scale > 0 || self.snd_scale > 0;
        let clocks = if answers { self.clocks.negotiated } else { behaviour.timestamps };
        Options {
            mss: Some(self.config.mss_octets),
            window_scale: scales.then_some(self.rcv_scale),
            sack_permitted: if answers { self.sack } else { behaviour.sack },
            timestamps: clocks.then(|| self.clocks.option(now)),
            ..Options::default()
        }
    }
}
