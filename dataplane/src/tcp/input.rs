//! A segment arrives (RFC 9293 §3.10.7).

use crate::device::Frame;
use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::congestion::{NewReno, Recovery};
use super::receive_queue::Insertion;
use super::timers::Timer;
use super::{CloseReason, Connection, Disposition, Pools, Progress, Refusal, State};

/// The payload of an arriving segment: where it lies in its frame.
#[derive(Debug)]
pub struct Payload<F> {
    /// The frame.
    pub frame: F,
    /// Where in the frame the payload begins.
    pub offset: usize,
    /// Octets of payload.
    pub octets: usize,
}

impl Disposition {
    const fn progress(progress: Progress) -> Self {
        Self { progress, refusal: None }
    }

    const fn refused(refusal: Refusal) -> Self {
        Self { progress: Progress::empty(), refusal: Some(refusal) }
    }
}

impl Connection {
    /// Takes a segment whose checksum holds.
    pub fn on_segment<P: Copy, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        match self.state {
            State::Closed => Disposition::refused(Refusal::WrongState),
            State::SynSent => self.on_segment_in_syn_sent(header),
            _ => match self.check(header, payload.octets) {
                Err(refusal) => Disposition::refused(refusal),
                Ok(Progress::CLOSED) => Disposition::progress(Progress::CLOSED),
                Ok(_) => self.on_acceptable_segment(now, header, payload, pools),
            },
        }
    }

    fn on_segment_in_syn_sent(&mut self, header: &Header) -> Disposition {
        let acknowledges = header.flags.contains(Flags::ACK);
        if acknowledges && header.ack != self.iss + 1 {
            // A segment of an older connection. The RST it deserves is the core's to send: it has no state of ours.
            return Disposition::refused(Refusal::BadAck);
        }
        if header.flags.contains(Flags::RST) {
            if acknowledges {
                self.enter_closed(CloseReason::Refused);
                return Disposition::progress(Progress::CLOSED);
            }
            return Disposition::refused(Refusal::BadAck);
        }
        if !header.flags.contains(Flags::SYN) {
            return Disposition::refused(Refusal::WrongState);
        }
        self.take_syn(header);
        if !acknowledges {
            // Simultaneous open: our SYN goes out again, now with an acknowledgement.
            self.state = State::SynReceived;
            self.syn_owed = true;
            return Disposition::progress(Progress::empty());
        }
        self.take_window(header);
        self.establish();
        self.acks_owed = 1;
        Disposition::progress(Progress::ESTABLISHED)
    }

    /// Takes what the peer's SYN says: where its stream begins and what its options ask for.
    pub(super) fn take_syn(&mut self, syn: &Header) {
        self.irs = syn.seq;
        self.receive = super::ReceiveQueue::new(syn.seq + 1);
        self.last_ack_sent = syn.seq + 1;
        self.rcv_edge = syn.seq + 1;
        self.snd_wl = (syn.seq, self.iss);
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        self.snd_wnd = u32::from(syn.window);
        self.snd_wnd_max = self.snd_wnd;
        if let Some(scale) = syn.options.window_scale {
            // A shift above 14 is taken as 14 (RFC 7323 §2.3).
            self.snd_scale = scale.min(14);
        } else {
            (self.snd_scale, self.rcv_scale) = (0, 0);
        }
        let peer_mss = syn.options.mss.unwrap_or(limits::DEFAULT_MSS_OCTETS);
        self.emss_octets = peer_mss.min(self.config.mss_octets).max(limits::MIN_MSS_OCTETS);
        self.congestion = NewReno::new(u32::from(self.emss_octets));
    }

    fn establish(&mut self) {
        self.state = State::Established;
        self.snd_una = self.iss + 1;
        self.timers.clear(Timer::Retransmit);
        self.syn_owed = false;
        self.rtt.progress();
    }

    /// Sequence, RST and SYN checks: RFC 9293 §3.10.7.4 with RFC 5961 §3, §4.
    fn check(&mut self, header: &Header, payload_octets: usize) -> Result<Progress, Refusal> {
        let nxt = self.receive_next();
        let length = payload_octets as u32
            + u32::from(header.flags.contains(Flags::SYN))
            + u32::from(header.flags.contains(Flags::FIN));
        if !self.in_window(header.seq, length) {
            if self.state == State::SynReceived && header.flags.contains(Flags::SYN) && header.seq == self.irs
            {
                // The peer did not get our SYN.
                self.syn_owed = true;
            } else if !header.flags.contains(Flags::RST) {
                self.owe_ack();
            }
            let old = header.seq < nxt;
            return Err(if old { Refusal::Duplicate } else { Refusal::OutsideWindow });
        }
        if header.flags.contains(Flags::RST) {
            if header.seq == nxt {
                let refused = self.state == State::SynReceived;
                self.enter_closed(if refused { CloseReason::Refused } else { CloseReason::Reset });
                return Ok(Progress::CLOSED);
            }
            self.owe_ack();
            return Err(Refusal::Challenged);
        }
        if header.flags.contains(Flags::SYN) {
            self.owe_ack();
            return Err(Refusal::Challenged);
        }
        if !header.flags.contains(Flags::ACK) {
            return Err(Refusal::WrongState);
        }
        Ok(Progress::empty())
    }

    fn on_acceptable_segment<P: Copy, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        let mut progress = Progress::empty();
        if self.state == State::SynReceived {
            if header.ack != self.iss + 1 {
                return Disposition::refused(Refusal::BadAck);
            }
            self.establish();
            self.take_window(header);
            progress |= Progress::ESTABLISHED;
        }
        let carries_nothing = payload.octets == 0 && !header.flags.contains(Flags::FIN);
        match self.on_ack(now, header, carries_nothing, pools) {
            Ok(acknowledged) => progress |= acknowledged,
            Err(refusal) => return Disposition { progress, refusal: Some(refusal) },
        }
        if progress.contains(Progress::CLOSED) {
            return Disposition::progress(progress);
        }
        let mut refusal = None;
        if payload.octets > 0 {
            refusal = self.on_data(now, header, payload, pools, &mut progress).err();
        } else if header.flags.contains(Flags::FIN) {
            self.peer_fin = Some(header.seq);
            self.owe_ack();
        }
        progress |= self.take_fin(now);
        Disposition { progress, refusal }
    }

    /// Takes the payload; the FIN behind it is noted if nothing before it is missing from this segment.
    fn on_data<P, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
        progress: &mut Progress,
    ) -> Result<(), Refusal> {
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) || self.peer_finished
        {
            return Err(Refusal::WrongState);
        }
        let room = (self.rcv_edge - header.seq).max(0) as usize;
        let octets = payload.octets.min(room);
        if octets == payload.octets && header.flags.contains(Flags::FIN) {
            self.peer_fin = Some(header.seq + octets as u32);
        }
        let insertion =
            self.receive.insert(&mut pools.held, header.seq, payload.offset, octets, payload.frame);
        self.counters.held_frames_peak = self.counters.held_frames_peak.max(self.receive.frames() as u64);
        match insertion {
            Insertion::InOrder { filled_gap } => {
                *progress |= Progress::DATA;
                self.unacknowledged_segments = self.unacknowledged_segments.saturating_add(1);
                // RFC 5681 §4.2: a segment that fills a gap, or leaves one, is acknowledged at once. So is one with PSH: its
                // sender has nothing more for now, and an RDMA Write, which nobody answers, completes with this ACK.
                if filled_gap
                    || self.receive.has_gap()
                    || header.flags.contains(Flags::PSH)
                    || self.unacknowledged_segments >= limits::DELAYED_ACK_SEGMENTS
                {
                    self.acks_owed = self.acks_owed.max(1);
                } else if !self.timers.is_set(Timer::DelayedAck) {
                    self.timers.set(Timer::DelayedAck, now + limits::DELAYED_ACK_NS);
                }
                Ok(())
            }
            Insertion::OutOfOrder => {
                self.counters.out_of_order_segments += 1;
                self.owe_ack();
                Ok(())
            }
            Insertion::Duplicate => {
                self.owe_ack();
                Err(Refusal::Duplicate)
            }
            Insertion::NoRoom => {
                self.owe_ack();
                Err(Refusal::NoRoom)
            }
        }
    }

    /// The peer's FIN counts once everything before it is in order.
    fn take_fin(&mut self, now: Instant) -> Progress {
        if self.peer_finished || self.peer_fin != Some(self.receive.nxt()) {
            return Progress::empty();
        }
        self.peer_finished = true;
        self.acks_owed = self.acks_owed.max(1);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
        Progress::PEER_FINISHED
    }

    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.clear_all();
        self.timers.set(Timer::Linger, now + limits::LINGER_NS);
    }

    /// RFC 9293 §3.10.7.4, fifth, with RFC 5961 §5 and RFC 5681.
    fn on_ack<P: Copy, F>(
        &mut self,
        now: Instant,
        header: &Header,
        carries_nothing: bool,
        pools: &mut Pools<P, F>,
    ) -> Result<Progress, Refusal> {
        let ack = header.ack;
        // A FIN once sent may be acknowledged even while it waits to be sent again.
        let highest = self.send.max() + u32::from(self.fin_queued && self.send.max() == self.send.end());
        if ack > highest || (self.snd_una - ack) as i64 > i64::from(self.snd_wnd_max) {
            self.owe_ack();
            return Err(Refusal::BadAck);
        }
        if self.state == State::TimeWait {
            // Only a FIN sent again arrives here: acknowledge it and wait anew.
            if header.flags.contains(Flags::FIN) {
                self.owe_ack();
                self.timers.set(Timer::Linger, now + limits::LINGER_NS);
            }
            return Ok(Progress::empty());
        }
        let same_window = self.scaled(header.window) == self.snd_wnd;
        if ack > self.snd_una {
            self.take_window(header);
            return Ok(self.on_new_ack(now, ack, pools));
        }
        if ack == self.snd_una && carries_nothing && same_window && self.flight_octets() > 0 {
            self.on_duplicate_ack();
        }
        if ack >= self.snd_una {
            self.take_window(header);
        }
        Ok(Progress::empty())
    }

    fn on_new_ack<P: Copy, F>(&mut self, now: Instant, ack: SeqNumber, pools: &mut Pools<P, F>) -> Progress {
        let flight = self.flight_octets();
        let data_end = self.send.end();
        let fin_acked = self.fin_queued && ack == data_end + 1;
        let data_ack = if fin_acked { data_end } else { ack };
        let octets = (data_ack - self.snd_una).max(0) as u32;
        let limited = flight + u32::from(self.emss_octets) >= self.congestion.window_octets() / 2;
        let acked = self.send.acknowledge(&mut pools.segments, data_ack);
        self.snd_una = ack;
        self.duplicate_acks = 0;
        match acked.sample {
            Some(sent_at) => self.rtt.sample(now - sent_at),
            None => self.rtt.progress(),
        }
        if self.congestion.on_ack(data_ack, octets, limited) == Recovery::Partial {
            self.resend_owed = true;
        }
        // RFC 6298 §5.2, §5.3.
        if self.flight_octets() == 0 && (!self.fin_sent || fin_acked) {
            self.timers.clear(Timer::Retransmit);
        } else {
            self.arm_retransmit(now);
        }
        let mut progress = Progress::ACKNOWLEDGED;
        if fin_acked {
            match self.state {
                State::FinWait1 => {
                    self.state = State::FinWait2;
                    self.timers.set(Timer::Linger, now + limits::LINGER_NS);
                }
                State::Closing => self.enter_time_wait(now),
                State::LastAck => {
                    self.enter_closed(CloseReason::Finished);
                    progress |= Progress::CLOSED;
                }
                _ => {}
            }
        }
        progress
    }

    fn on_duplicate_ack(&mut self) {
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        if self.duplicate_acks == 3 && !self.congestion.in_recovery() {
            self.congestion.on_fast_retransmit(self.flight_octets(), self.send.max());
            self.counters.fast_retransmits += 1;
            self.resend_owed = true;
        } else {
            self.congestion.on_duplicate_ack();
        }
    }

    fn scaled(&self, window: u16) -> u32 {
        u32::from(window) << self.snd_scale
    }

    /// Takes the window of a segment that is not older than the last that changed it.
    fn take_window(&mut self, header: &Header) {
        let (wl1, wl2) = self.snd_wl;
        if wl1 > header.seq || (wl1 == header.seq && wl2 > header.ack) {
            return;
        }
        let window = if header.flags.contains(Flags::SYN) {
            u32::from(header.window)
        } else {
            self.scaled(header.window)
        };
        if window > self.snd_wnd && self.timers.is_set(Timer::Persist) {
            // The peer took its window back up: what counted as timeouts were probes.
            self.timers.clear(Timer::Persist);
            self.rtt.progress();
        }
        self.snd_wnd = window;
        self.snd_wnd_max = self.snd_wnd_max.max(window);
        self.snd_wl = (header.seq, header.ack);
    }

    fn in_window(&self, seq: SeqNumber, length: u32) -> bool {
        let nxt = self.receive_next();
        let window = (self.rcv_edge - nxt).max(0) as u32;
        let inside = |at: SeqNumber| at >= nxt && ((at - nxt) as u32) < window;
        match (length, window) {
            (0, 0) => seq == nxt,
            (0, _) => inside(seq),
            // Nothing fits, but what the segment acknowledges does; its data is trimmed away.
            (_, 0) => false,
            (_, _) => inside(seq) || inside(seq + (length - 1)),
        }
    }

    fn owe_ack(&mut self) {
        self.acks_owed = (self.acks_owed + 1).min(limits::ACKS_OWED_MAX);
    }
}
