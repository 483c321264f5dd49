//! The handshake: the SYNs of both ends and the options they agree on (RFC 9293 §3.5, RFC 7323 §2, RFC 2018
//! §2, RFC 3168 §6.1.1).

use crate::device::Frame;
use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options};

use super::congestion::{Algorithm, Congestion, CongestionControl};
use super::ecn::Ecn;
use super::path_mss::PathMss;
use super::rdma_option::RdmaOptionUse;
use super::timers::Timer;
use super::{Changes, Connection, Disposition, Outgoing, Payload, Pools, Refusal, State};

impl Connection {
    pub(super) fn on_segment_in_syn_sent<P, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        let acknowledges = header.flags.contains(Flags::ACK);
        if acknowledges && header.ack != self.send.iss + 1 {
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
        self.accept_syn(now, header);
        if !acknowledges {
            // Simultaneous open: our SYN is sent again, now with an acknowledgement.
            self.state = State::SynReceived;
            self.send.handshake.syn_owed = true;
            return Disposition::changed(Changes::empty());
        }
        self.accept_window(header);
        self.establish(now);
        self.ack.owed = 1;
        if payload.octets == 0 && !header.flags.contains(Flags::FIN) {
            return Disposition::changed(Changes::ESTABLISHED);
        }
        // RFC 9293 §3.10.7.3: text and FIN that come with the SYN-ACK count as in any other segment. Our SYN
        // has offered a window for them.
        self.receive.edge = self.receive.queue.nxt() + self.syn_window_octets();
        self.on_text(now, header, payload, pools, Changes::ESTABLISHED)
    }

    /// Accepts the peer's SYN: the start of its stream, its window and its options.
    pub(super) fn accept_syn(&mut self, now: Instant, syn: &Header) {
        self.receive.begin(syn.seq);
        self.send.begin(syn);
        self.ack.last_sent = syn.seq + 1;
        self.receive.last_arrival = now;
        if let Some(scale) = syn.options.window_scale {
            // A shift above 14 counts as 14 (RFC 7323 §2.3).
            self.send.scale = scale.min(14);
        } else {
            (self.send.scale, self.receive.scale) = (0, 0);
            // The unscaled window field limits the window that can be offered.
            self.receive.limit_window(0xffff);
        }
        // Requirements: MPA-A.3-04
        self.ack.sack = syn.options.sack_permitted && self.config.behaviour.sack;
        if let Some(clock) = syn.options.timestamps.filter(|_| self.config.behaviour.timestamps) {
            self.timestamps.start(now, clock.value);
        }
        self.negotiate_ecn(syn.flags);
        self.receive.rdma_option = RdmaOptionUse::negotiated(&self.config.behaviour, syn);
        let peer_mss = syn.options.mss.unwrap_or(limits::DEFAULT_MSS_BYTES);
        let mss = peer_mss.min(self.config.mss_octets).max(limits::MIN_MSS_BYTES);
        self.path = PathMss::new(mss - self.timestamps.option_octets());
        self.congestion = Congestion::new(self.config.behaviour.congestion, self.path.emss_octets());
    }

    /// RFC 3168 §6.1.1: a SYN requests ECN with ECE and CWR, the SYN-ACK accepts it with ECE only: a request
    /// of before, perhaps, whose answer is late or had to be sent again.
    fn negotiate_ecn(&mut self, flags: Flags) {
        let requested = flags & (Flags::ECE | Flags::CWR);
        let agreed = if flags.contains(Flags::ACK) {
            requested == Flags::ECE && self.config.behaviour.requests_ecn()
        } else {
            requested == Flags::ECE | Flags::CWR && self.config.behaviour.accepts_ecn()
        };
        self.ecn = if agreed {
            Ecn::negotiated(self.config.behaviour.congestion == Algorithm::Dctcp)
        } else {
            Ecn::off()
        };
        if flags.contains(Flags::ACK) && !self.requests_ecn() {
            self.ecn.echo_only();
        }
    }

    /// A retransmitted SYN does not request ECN, because old middleboxes drop such SYNs (§6.1.1.1).
    fn requests_ecn(&self) -> bool {
        self.config.behaviour.requests_ecn() && self.send.handshake.syn_transmissions <= 1
    }

    pub(super) fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.send.una = self.send.iss + 1;
        self.timers.clear(Timer::Retransmit);
        self.send.handshake.syn_owed = false;
        let timed_out = self.rtt.timeouts_in_a_row() > 0;
        // A connection made from a SYN cookie did not send its SYN-ACK itself.
        if self.send.handshake.syn_transmissions == 1 && now > self.activity.data_sent_at {
            self.rtt.sample(now, now - self.activity.data_sent_at);
        } else {
            self.rtt.progress();
        }
        if timed_out {
            // RFC 6298 §5.7, RFC 5681 §3.1.
            self.rtt.on_lost_syn();
            self.congestion.on_syn_timeout();
        }
        self.activity.last_progress = now;
        self.arm_keepalive(now);
    }

    pub(super) fn poll_syn<P>(&mut self, now: Instant) -> Option<Outgoing<P>> {
        if !core::mem::take(&mut self.send.handshake.syn_owed) {
            return None;
        }
        self.send.handshake.syn_transmissions = self.send.handshake.syn_transmissions.saturating_add(1);
        if self.send.handshake.syn_transmissions == 1 {
            self.activity.last_progress = now;
        }
        self.activity.data_sent_at = now;
        self.arm_retransmit(now);
        let answers = self.state == State::SynReceived;
        let mut flags = if answers { Flags::SYN | Flags::ACK } else { Flags::SYN };
        if answers && self.ecn.is_negotiated() {
            flags |= Flags::ECE;
        } else if !answers && self.requests_ecn() {
            flags |= Flags::ECE | Flags::CWR;
        }
        let mut header = self.header(now, self.send.iss, flags);
        let window = self.syn_window_octets();
        header.window = window as u16;
        self.receive.edge = self.receive.edge.later(self.receive.queue.nxt() + window);
        header.options = self.syn_options(now, answers);
        Some(Outgoing::control(header))
    }

    /// The window that a SYN offers: it is not scaled (RFC 7323 §2.2).
    fn syn_window_octets(&self) -> u32 {
        self.config.window_octets.min(0xffff)
    }

    /// A SYN-ACK offers only options that the SYN has offered (RFC 7323 §2.2, §3.2, RFC 2018 §2).
    fn syn_options(&self, now: Instant, answers: bool) -> Options {
        let behaviour = &self.config.behaviour;
        let scales = !answers || self.receive.scale > 0 || self.send.scale > 0;
        let clocks = if answers { self.timestamps.negotiated } else { behaviour.timestamps };
        Options {
            mss: Some(self.config.mss_octets),
            window_scale: scales.then_some(self.receive.scale),
            sack_permitted: if answers { self.ack.sack } else { behaviour.sack },
            timestamps: clocks.then(|| self.timestamps.option(now)),
            rdma: self.receive.rdma_option.offer(behaviour, answers),
            ..Options::default()
        }
    }
}
