//! A segment arrives (RFC 9293 §3.10.7): acceptance, acknowledgement, data, FIN.

use core::ops::Range;

use crate::cold;
use crate::device::Frame;
use crate::limits;
use crate::rate_limit::RateLimit;
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, Header, SeqNumber, Timestamps};

use super::acknowledgement::{Acknowledged, Acknowledgement};
use super::challenge::{Limit, limit_of};
use super::ecn::EcnField;
use super::send_queue::{SegmentPool, SendPayload};
use super::successors::Successors;
use super::text::Text;
use super::timers::Timer;
use super::unusual::Unusual;
use super::{Changes, CloseReason, Connection, Disposition, Pools, Refusal, State};

/// The payload of an arriving segment, in its frame.
#[derive(Debug)]
pub struct Payload<F> {
    /// The frame.
    pub frame: F,
    /// Where in the frame the payload begins.
    pub offset: usize,
    /// Octets of payload.
    pub octets: usize,
    /// The ECN field of the IP header.
    pub ecn: EcnField,
}

impl Connection {
    /// Returns true if a segment is what a connection without [rare conditions](Unusual::RECEIVE) expects
    /// (header prediction): the next one in order, of which all fits the window, with no control bits but
    /// ACK, PSH and CWR, a clock that is not old and no other options. It acknowledges something new, or
    /// nothing new and is no duplicate acknowledgement. If it has payload, nothing waits before that.
    #[inline]
    pub fn expects<P, F>(&self, now: Instant, segment: &Segment, pools: &Pools<P, F>) -> bool {
        let window = (self.receive.edge - segment.seq).max(0) as usize;
        !self.unusual.intersects(Unusual::RECEIVE)
            && segment.flags.difference(Flags::PSH.union(Flags::CWR)) == Flags::ACK
            && segment.seq == self.receive.queue.nxt()
            && segment.payload_octets <= window
            && !segment.has_other_options
            && self.is_clock_of(now, segment.timestamps)
            && (segment.payload_octets == 0
                || self.receive.accepts_in_place(&pools.held, segment.text_end())
                    && pools.held.free_frames() > 0)
            && (self.send.advances(segment.ack)
                || self.repeats(segment.ack, segment.payload_octets == 0, &pools.segments))
            && !cold::is_forced()
    }

    /// Returns true if a segment is what is [expected](Self::expects) but for its place: it lies beyond
    /// octets that are missing.
    #[inline(never)]
    pub fn expects_beyond_gap<P, F>(&self, now: Instant, segment: &Segment, pools: &Pools<P, F>) -> bool {
        !self.unusual.intersects(Unusual::RECEIVE)
            && segment.flags.difference(Flags::PSH.union(Flags::CWR)) == Flags::ACK
            && segment.seq > self.receive.queue.nxt()
            && segment.text_end() <= self.receive.edge
            && segment.payload_octets > 0
            && !segment.has_other_options
            && self.is_clock_of(now, segment.timestamps)
            && self.receive.awaits_fin()
            && (self.send.advances(segment.ack) || self.repeats(segment.ack, false, &pools.segments))
            && !cold::is_forced()
    }

    /// Returns true if the acknowledgement number `ack` of a connection without
    /// [rare conditions](Unusual::RECEIVE) acknowledges nothing new, and is
    /// no duplicate acknowledgement (RFC 5681 §2): it changes no more than the window.
    #[inline]
    pub(super) fn repeats<P>(
        &self,
        ack: SeqNumber,
        carries_nothing: bool,
        segments: &SegmentPool<P>,
    ) -> bool {
        ack == self.send.una
            && (self.send.queue.is_empty() && !self.timers.repairs()
                || !carries_nothing
                    && self.send.queue.outstanding_octets() > 0
                    && !self.may_have_lost(segments))
    }

    /// Returns false if the oldest segment in flight shows that RACK would find no loss: it was sent once,
    /// and after everything that was delivered, and so were those after it.
    #[inline]
    pub(super) fn may_have_lost<P>(&self, segments: &SegmentPool<P>) -> bool {
        self.ack.sack
            && self
                .send
                .queue
                .oldest(segments)
                .is_some_and(|oldest| oldest.retransmitted() || self.recovery.rack.has_overtaken(oldest))
    }

    /// Returns true if no loss is known or suspected, and nothing that was done about one could still be
    /// undone.
    #[inline]
    fn suspects_no_loss(&self) -> bool {
        self.recovery.is_at_rest() && !self.send.queue.has_holes() && !self.timers.is_set(Timer::Reorder)
    }

    /// Returns true if a segment has the timestamps option exactly if the ends have agreed on it, and its
    /// timestamp is not old (RFC 7323 §3.2, §5.3).
    #[inline]
    fn is_clock_of(&self, now: Instant, timestamps: Option<Timestamps>) -> bool {
        match timestamps {
            Some(clock) => !self.timestamps.negotiated || !self.timestamps.is_old(now, clock.value),
            None => !self.timestamps.negotiated,
        }
    }

    /// Accepts a segment that is [expected](Self::expects): what [`on_segment`](Self::on_segment) would do
    /// with it, but for its payload. That is in order from now on, and lies in its frame:
    /// [`pass`](Self::pass) consumes it, or [`keep`](Self::keep) keeps it.
    #[inline]
    pub fn accept_expected<P: SendPayload, F>(
        &mut self,
        now: Instant,
        segment: &Segment,
        pools: &mut Pools<P, F>,
    ) -> Changes {
        debug_assert!(
            self.state == State::Established && self.suspects_no_loss(),
            "a rare condition began unnoticed"
        );
        let mut changes = self.accept_header(now, segment, pools);
        if segment.payload_octets > 0 {
            Text::of(self).pass_in_place(now, segment);
            changes |= Changes::DATA;
        }
        changes
    }

    /// Accepts a segment that is [expected beyond a gap](Self::expects_beyond_gap), and keeps its payload.
    #[inline(never)]
    pub fn accept_beyond_gap<P: SendPayload, F: Frame>(
        &mut self,
        now: Instant,
        segment: &Segment,
        frame: F,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        // Its octets pass through frames, once the gap has closed.
        pools.held.expect_passing(true);
        pools.held.expect_promised(0);
        let changes = self.accept_header(now, segment, pools);
        let payload = Payload {
            frame,
            offset: segment.payload_offset,
            octets: segment.payload_octets,
            ecn: EcnField::from_bits(segment.ecn),
        };
        let disposition = self.on_data(now, segment.seq, segment.flags, payload, pools);
        Disposition { changes: changes | disposition.changes, ..disposition }
    }

    /// Accepts the header of a segment that is expected, in order or beyond a gap.
    #[inline]
    fn accept_header<P: SendPayload, F>(
        &mut self,
        now: Instant,
        segment: &Segment,
        pools: &mut Pools<P, F>,
    ) -> Changes {
        let mut changes = Changes::empty();
        self.probe.on_ack();
        self.record_window(segment.seq, segment.ack, self.send.scaled(segment.window));
        if segment.ack != self.send.una {
            let echo = segment.timestamps.map(|clock| clock.echo);
            Acknowledgement::advance(self, now, Acknowledged { ack: segment.ack, echo }, pools);
            changes |= Changes::ACKNOWLEDGED;
        }
        self.record_arrival(now, segment.seq, segment.timestamps, segment.payload_octets);
        changes
    }

    /// Closes the gap that octets consumed in place have filled, if they have: those that waited for them are
    /// in order now.
    #[inline(never)]
    pub fn close_gap<P, F>(&mut self, pools: &Pools<P, F>) {
        if self.receive.queue.close_gap(&pools.held) {
            self.on_gap_filled();
        }
    }

    /// Takes the frame whose octets waited for those taken in place, all of which are consumed. They are the
    /// next in order, at this place of the frame: [`pass`](Self::pass) consumes them, or [`keep`](Self::keep)
    /// keeps them. Returns `None` if none waited for them, or they need another look.
    #[inline(never)]
    pub fn accept_held<P, F>(&mut self, pools: &mut Pools<P, F>) -> Option<(F, Range<usize>)> {
        if cold::is_forced() {
            return None;
        }
        // Those that segments of this burst brought beyond the gap are not counted yet.
        pools.held.record_peak();
        let held = self.receive.queue.pop_next(&mut pools.held)?;
        self.on_gap_filled();
        Some(held)
    }

    fn on_gap_filled(&mut self) {
        self.ack.on_gap_filled();
        self.ack.on_in_order(self.receive.queue.nxt(), self.receive.queue.has_gap());
    }

    /// Counts `successors`, if there are any, and consumes the text that was taken in place, but for the last
    /// `left_octets` octets.
    #[inline(never)]
    pub fn accept_consumed(&mut self, successors: Option<Successors>, left_octets: usize) {
        if let Some(successors) = &successors {
            successors.count(self);
        }
        self.pass(self.receive.queue.available() - left_octets);
    }

    /// Accepts a segment whose checksum holds, with any header.
    pub fn on_segment<P: SendPayload, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        let (owed, payload_octets) = (self.ack.owed, payload.octets);
        let mut disposition = match self.state {
            State::Closed => Disposition::refused(Refusal::WrongState),
            State::SynSent => self.on_segment_in_syn_sent(now, header, payload, pools),
            _ => match self.check(now, header, payload.octets) {
                Err(refusal) => Disposition::refused(refusal),
                Ok(Changes::CLOSED) => Disposition::changed(Changes::CLOSED),
                Ok(_) => self.on_acceptable_segment(now, header, payload, pools),
            },
        };
        if let Some(refusal) = disposition.refusal {
            let refused =
                self.limit_answer(now, (refusal, owed), header, payload_octets, &mut pools.challenges);
            disposition.refusal = Some(refused);
        }
        disposition
    }

    /// Withdraws the answer to a segment that was refused, if the limit on such answers is reached. `before`
    /// are the reason, and the acknowledgements that were owed before it. Returns the reason that counts.
    #[cold]
    fn limit_answer(
        &mut self,
        now: Instant,
        before: (Refusal, u8),
        header: &Header,
        payload_octets: usize,
        challenges: &mut RateLimit,
    ) -> Refusal {
        let (refusal, owed) = before;
        // The address of a peer that has not completed the handshake is not proved: each answer to it counts.
        let limit = match self.state {
            State::SynReceived => Limit::Core,
            _ => limit_of(refusal, header, payload_octets, self.receive.next()),
        };
        if self.ack.owed > owed && !self.challenges.admit(now, limit, challenges) {
            self.ack.owed = owed;
            return Refusal::RateLimited;
        }
        refusal
    }

    fn on_acceptable_segment<P: SendPayload, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        let mut changes = Changes::empty();
        if self.state == State::SynReceived {
            if header.ack != self.send.iss + 1 {
                return Disposition::refused(Refusal::BadAck);
            }
            self.establish(now);
            self.accept_window(header);
            changes |= Changes::ESTABLISHED;
        }
        let carries_nothing = payload.octets == 0 && !header.flags.contains(Flags::FIN);
        match Acknowledgement::accept(self, now, header, carries_nothing, pools) {
            Ok(acknowledged) => changes |= acknowledged,
            Err(refusal) => return Disposition { changes, beyond_gap: None, refusal: Some(refusal) },
        }
        if changes.contains(Changes::CLOSED) {
            return Disposition::changed(changes);
        }
        self.record_arrival(now, header.seq, header.options.timestamps, payload.octets);
        self.on_text(now, header, payload, pools, changes)
    }

    /// Records when an acceptable segment has come, and the peer's clock.
    #[inline]
    fn record_arrival(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        timestamps: Option<Timestamps>,
        payload_octets: usize,
    ) {
        if payload_octets > 0 && now - self.receive.last_arrival >= limits::MIN_RTO_NS {
            // A peer that was silent for so long may have had a retransmission timeout: its congestion window
            // is one segment.
            self.ack.expect_small_window();
        }
        // Only after the checks the segment is certain to be the peer's (RFC 5961 §5). A forged timestamp
        // would make the connection refuse genuine segments.
        self.receive.last_arrival = now;
        if let Some(clock) = timestamps.filter(|_| self.timestamps.negotiated) {
            self.timestamps.update(now, clock.value, seq, self.ack.last_sent);
        }
    }

    /// Consumes `octets` octets of text that was accepted in place. [`owe_window`](Self::owe_window) follows,
    /// or [`promise_window`](Self::promise_window).
    #[inline]
    pub fn pass(&mut self, octets: usize) {
        self.receive.queue.pass(octets);
    }

    /// Keeps the rest of text that was accepted in place, which is at `offset` of `frame`, for later.
    pub fn keep<P, F: Frame>(&mut self, pools: &mut Pools<P, F>, offset: usize, frame: F) {
        self.receive.queue.keep(&mut pools.held, offset, frame);
    }

    /// Sequence, RST and SYN checks: RFC 9293 §3.10.7.4 with RFC 5961 §3, §4.
    fn check(&mut self, now: Instant, header: &Header, payload_octets: usize) -> Result<Changes, Refusal> {
        self.check_clock(now, header)?;
        let nxt = self.receive.next();
        let length = payload_octets as u32
            + u32::from(header.flags.contains(Flags::SYN))
            + u32::from(header.flags.contains(Flags::FIN));
        if self.state == State::SynReceived
            && header.flags.contains(Flags::SYN)
            && header.seq == self.receive.irs
        {
            return self.check_repeated_syn(header);
        }
        if !self.receive.in_window(header.seq, length) {
            if !header.flags.contains(Flags::RST) {
                self.owe_ack();
                if self.state == State::TimeWait
                    && header.flags.contains(Flags::FIN)
                    && header.seq + length == nxt
                {
                    // The FIN again: the wait begins anew (§3.10.7.4, eighth).
                    self.timers.set(Timer::Linger, now + limits::LINGER_NS);
                }
                // Only the part before RCV.NXT has come before; in SYN-RECEIVED none has.
                let received = (self.receive.queue.nxt() - header.seq).max(0).cast_unsigned();
                if self.state != State::SynReceived {
                    self.count_duplicate(header.seq, received.min(payload_octets as u32));
                }
            }
            let old = header.seq < nxt;
            return Err(if old { Refusal::Duplicate } else { Refusal::OutsideWindow });
        }
        if header.flags.contains(Flags::RST) {
            if self.state == State::TimeWait {
                // RFC 1337 §3, (F1): the wait goes on, and continues in the table of TIME-WAIT once the user
                // has all octets.
                return Err(Refusal::WrongState);
            }
            if header.seq == nxt {
                self.enter_closed(match self.state {
                    State::SynReceived => CloseReason::Refused,
                    // Both have closed, and the peer has all text.
                    State::Closing | State::LastAck if self.send.queue.is_empty() => CloseReason::Finished,
                    _ => CloseReason::Reset,
                });
                return Ok(Changes::CLOSED);
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
        Ok(Changes::empty())
    }

    /// The peer's SYN has come again, perhaps with text, which makes it reach into the window.
    fn check_repeated_syn(&mut self, header: &Header) -> Result<Changes, Refusal> {
        if header.flags.contains(Flags::RST) {
            return Err(Refusal::Duplicate);
        }
        if header.flags.contains(Flags::ACK) && header.ack == self.send.iss + 1 {
            // Simultaneous open (RFC 9293 §3.5, figure 7): another SYN-ACK in return would go on for ever.
            // The acknowledgement in this one completes the handshake.
            self.owe_ack();
            return Ok(Changes::empty());
        }
        if !header.flags.contains(Flags::ECE | Flags::CWR) {
            self.ecn.echo_only();
        }
        // The peer has not received our SYN.
        self.send.handshake.syn_owed = true;
        Err(Refusal::Duplicate)
    }

    /// RFC 7323 §3.2, §5.3: an old duplicate is recognized by its timestamp. A RST is checked by its sequence
    /// number only (§5.2).
    fn check_clock(&mut self, now: Instant, header: &Header) -> Result<(), Refusal> {
        if !self.timestamps.negotiated || header.flags.contains(Flags::RST) {
            return Ok(());
        }
        let Some(clock) = header.options.timestamps else { return Err(Refusal::OldTimestamp) };
        if self.timestamps.is_old(now, clock.value) {
            self.owe_ack();
            return Err(Refusal::OldTimestamp);
        }
        Ok(())
    }

    /// Octets have come that were there already: the next acknowledgement reports it (RFC 2883).
    fn count_duplicate(&mut self, seq: SeqNumber, octets: u32) {
        if octets > 0 {
            self.ack.on_duplicate((seq, seq + octets));
        }
    }

    /// RFC 9293 §3.10.7.4, seventh and eighth: accepts the payload and the FIN. Adds what they change to
    /// `changes`.
    pub(super) fn on_text<P, F: Frame>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
        changes: Changes,
    ) -> Disposition {
        if self.receive.refuses_text() {
            return self.on_refused_text(now, header, payload.octets, changes);
        }
        let mut disposition = if payload.octets > 0 {
            self.on_data(now, text_seq(header), header.flags, payload, pools)
        } else {
            if header.flags.contains(Flags::FIN) {
                self.receive.on_fin(text_seq(header));
                self.owe_ack();
            }
            Disposition::changed(Changes::empty())
        };
        disposition.changes |= changes | self.accept_fin(now);
        disposition
    }

    /// RFC 9293 §3.6.1: new text for a user who has left, also text that is missing before a FIN, resets the
    /// connection. What has come before, and a FIN in order, are accepted as ever.
    #[cold]
    fn on_refused_text(
        &mut self,
        now: Instant,
        header: &Header,
        octets: usize,
        changes: Changes,
    ) -> Disposition {
        let (seq, nxt) = (text_seq(header), self.receive.queue.nxt());
        let end = seq + octets as u32;
        if (octets > 0 || header.flags.contains(Flags::FIN)) && end > nxt {
            self.reset(CloseReason::Aborted);
            let changes = changes | Changes::CLOSED;
            return Disposition { changes, ..Disposition::refused(Refusal::AfterClose) };
        }
        if octets > 0 {
            self.ack.on_duplicate((seq, end));
            self.owe_ack();
        }
        if header.flags.contains(Flags::FIN) {
            self.receive.on_fin(end);
            self.owe_ack();
        }
        let refusal = (octets > 0).then_some(Refusal::Duplicate);
        Disposition { refusal, ..Disposition::changed(changes | self.accept_fin(now)) }
    }

    /// [Keeps](Text::keep) the payload, which begins at `seq`, in a state in which some may come.
    fn on_data<P, F: Frame>(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        flags: Flags,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2)
            || self.peer_finished()
        {
            return Disposition::refused(Refusal::WrongState);
        }
        Text::of(self).keep(now, seq, flags, payload, pools)
    }

    /// The peer's FIN counts once everything before it is in order.
    fn accept_fin(&mut self, now: Instant) -> Changes {
        if !self.receive.accept_fin() {
            return Changes::empty();
        }
        self.ack.owe_one();
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
        Changes::PEER_FINISHED
    }

    /// Handles that the peer has acknowledged our FIN.
    pub(super) fn on_fin_acknowledged(&mut self, now: Instant) -> Changes {
        match self.state {
            State::FinWait1 => {
                // The peer may send for as long as it likes; the layer above limits the wait.
                // Requirements: DDP-6.2.1-06
                self.state = State::FinWait2;
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => {
                self.enter_closed(CloseReason::Finished);
                return Changes::CLOSED;
            }
            _ => {}
        }
        Changes::empty()
    }

    pub(super) fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.clear_all();
        self.timers.set(Timer::Linger, now + limits::LINGER_NS);
    }

    /// Accepts the window of a segment that is not older than the last that changed it. That of a SYN is
    /// never scaled (RFC 7323 §2.2). Returns true if it has grown.
    pub(super) fn accept_window(&mut self, header: &Header) -> bool {
        let field = header.window;
        let syn = header.flags.contains(Flags::SYN);
        let octets = if syn { u32::from(field) } else { self.send.scaled(field) };
        self.record_window(header.seq, header.ack, octets)
    }

    /// Accepts a window of `octets` octets from a segment with these numbers. Returns true if it has grown.
    #[inline]
    pub(super) fn record_window(&mut self, seq: SeqNumber, ack: SeqNumber, octets: u32) -> bool {
        let grown = self.send.update_window(seq, ack, octets);
        if grown {
            self.timers.clear(Timer::Persist);
            self.probe.on_window_grown();
        }
        grown
    }

    /// Owes another acknowledgement at once.
    pub(super) fn owe_ack(&mut self) {
        self.ack.owe_another();
    }
}

/// The sequence number of a segment's text, or of its FIN if it has none: a SYN comes before them.
fn text_seq(header: &Header) -> SeqNumber {
    header.seq + u32::from(header.flags.contains(Flags::SYN))
}
