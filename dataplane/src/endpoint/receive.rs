//! Octets in: a segment goes to TCP, and what it brings into order to control or, FPDU by FPDU, to the queue
//! pair.

use crate::cold;
use crate::device::Frame;
use crate::drops::DropCause;
use crate::mpa::MpaError;
use crate::mpa::contiguous::{ContiguousFpdu, InFrame, Marked, Unmarked};
use crate::mpa::receiver::{Octets, Ulpdu};
use crate::qp::error::StreamError;
use crate::qp::receiver::{Fault, Placed, ReceiveContext, Received, Receiver};
use crate::tcp::receive_queue::{HeldPool, ReceiveQueue};
use crate::tcp::{self, Changes, Payload, Refusal};
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::Header;

use super::burst::{Burst, BurstOutcome};
use super::connection::{Connection, Mode};
use super::consume::{FpduCounts, handle_rare};
use super::rdmap_stream::RdmapStream;
use super::receive_wait::ReceiveWait;
use super::unconsumed::UnconsumedOctets;
use super::{Endpoint, Outcome};

/// The octets of a connection that are in order and not consumed, as MPA reads them.
struct InOrder<'q, F> {
    queue: &'q ReceiveQueue,
    held: &'q HeldPool<F>,
}

impl<F: Frame> Octets for InOrder<'_, F> {
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
        self.queue.for_each_slice(self.held, start, len, f);
    }

    fn available(&self) -> usize {
        self.queue.readable(self.held)
    }
}

/// The result of one FPDU.
pub(super) enum Step {
    /// It is placed; there may be another.
    Next,
    /// There is nothing more to consume for now.
    Wait,
    /// The stream has failed.
    Failed(StreamError, Option<Fault>),
    /// The peer has terminated the stream.
    Terminated(StreamError),
}

impl<F: Frame> Endpoint<'_, F> {
    /// Handles the segment in `frame` if TCP [expects](tcp::Connection::expects) it, and its octets can be
    /// consumed in place, and the segments that follow it in `burst`; or if it lies beyond a gap. If the
    /// result has an unexpected frame, `segment` is the one in it then.
    /// [`drop_unacked_surplus`](Self::drop_unacked_surplus) comes next.
    #[inline]
    pub(crate) fn on_expected_segments(
        &mut self,
        segment: &mut Segment,
        frame: F,
        burst: &mut impl Burst<F>,
    ) -> BurstOutcome<F> {
        debug_assert!(frame.piece(0).is_some_and(|first| first.len() >= segment.end()), "it was found there");
        let has_payload = segment.payload_octets > 0;
        let is_expected = self.connection.tcp.expects(self.now, segment, &self.context.pools)
            && (!has_payload || self.accepts_in_place(segment));
        if !is_expected {
            return self.on_segment_beyond_gap(segment, frame);
        }
        let changes = self.connection.tcp.accept_expected(self.now, segment, &mut self.context.pools);
        self.connection.record_changes(self.now, changes);
        if changes.contains(Changes::ACKNOWLEDGED) {
            self.complete_sends();
        }
        if !has_payload {
            burst.recycle(frame);
            return BurstOutcome { changes, refusal: None, unexpected: None };
        }
        let (refusal, unexpected) = if self.connection.carries_bytes() {
            (None, self.consume_bytes(segment, frame, burst))
        } else {
            self.consume_fpdus(segment, frame, burst)
        };
        let Some(frame) = unexpected else { return BurstOutcome { changes, refusal, unexpected: None } };
        let outcome = self.on_segment_beyond_gap(segment, frame);
        BurstOutcome { changes: changes | outcome.changes, ..outcome }
    }

    /// Handles the segment in `frame` if it is what TCP [expects beyond a
    /// gap](tcp::Connection::accept_beyond_gap) and its connection carries FPDUs; else returns the frame.
    #[inline(never)]
    fn on_segment_beyond_gap(&mut self, segment: &Segment, frame: F) -> BurstOutcome<F> {
        let (connection, context) = (&mut *self.connection, &mut *self.context);
        if !matches!(connection.mode, Mode::FullOperation(_))
            || !connection.tcp.expects_beyond_gap(self.now, segment, &context.pools)
        {
            return BurstOutcome { changes: Changes::empty(), refusal: None, unexpected: Some(frame) };
        }
        let disposition = connection.tcp.accept_beyond_gap(self.now, segment, frame, &mut context.pools);
        connection.record_changes(self.now, disposition.changes);
        if disposition.changes.contains(Changes::ACKNOWLEDGED) {
            self.complete_sends();
        }
        if let Some(kept) = disposition.beyond_gap
            && let Some(mut stream) = self.rdmap()
        {
            stream.place_out_of_order(kept);
        }
        BurstOutcome { changes: disposition.changes, refusal: disposition.refusal, unexpected: None }
    }

    /// Handles a segment of the connection, with any header.
    #[inline(never)]
    pub(crate) fn on_segment(&mut self, header: &Header, payload: Payload<F>) -> Outcome {
        let promised_frames = self.promised_frames();
        let passes = self.octets_pass(payload.octets);
        let connection = &*self.connection;
        debug_assert_eq!(connection.receives_stream(), connection.tcp.received().is_in_startup());
        self.context.pools.held.expect_passing(passes);
        self.context.pools.held.expect_promised(promised_frames);
        let octets = payload.octets;
        let annotation = self.byte_stream().and_then(|bytes| bytes.annotation(header, octets));
        let disposition = self.connection.tcp.on_segment(self.now, header, payload, &mut self.context.pools);
        if let Some(annotation) = annotation
            && let Some(mut bytes) = self.byte_stream()
        {
            bytes.accept_annotation(&annotation, &disposition);
        }
        let connection = &mut *self.connection;
        connection.record_changes(self.now, disposition.changes);
        self.on_changes(disposition.changes);
        if let Some(kept) = disposition.beyond_gap {
            if let Some(mut stream) = self.rdmap() {
                stream.place_out_of_order(kept);
            } else if let Some(mut bytes) = self.byte_stream() {
                bytes.hand_out_early(header.seq, octets);
            }
        }
        Outcome {
            schedule: true,
            changes: disposition.changes,
            dropped_surplus: self.drop_unacked_surplus(),
            // RFC 9293 §3.10.7.3: a segment of an older connection between the same ports.
            reset: disposition.refusal == Some(Refusal::BadAck) && self.connection.is_opening(),
            refusal: disposition.refusal,
        }
    }

    /// Handles what a segment or a timer changed in TCP.
    pub(super) fn on_changes(&mut self, changes: Changes) {
        if changes.contains(Changes::ESTABLISHED) {
            self.notify_open();
        }
        if changes.contains(Changes::ACKNOWLEDGED) {
            self.complete_sends();
        }
        if changes.contains(Changes::DATA) {
            self.receive_in_order();
        }
        // Its user learns of the end after the octets before it. Damage among them has given the FIN back.
        let has_all = !self.connection.has_pending_octets();
        let finished = changes.contains(Changes::PEER_FINISHED) && self.connection.tcp.peer_finished();
        if finished && has_all {
            self.on_peer_finished();
        }
        let in_time_wait = has_all && self.connection.tcp.state() == tcp::State::TimeWait;
        // After an orderly end the acknowledged octets still reach control, however long that takes.
        let closed = changes.contains(Changes::CLOSED) && (has_all || !self.connection.has_finished());
        if closed || in_time_wait {
            self.on_closed();
        }
    }

    /// Consumes the octets that are in order.
    pub(super) fn receive_in_order(&mut self) {
        if self.connection.receives_stream() || self.connection.carries_bytes() {
            return self.hand_up();
        }
        match &self.connection.mode {
            // They are consumed when a receive is posted, or the wait expires.
            Mode::FullOperation(operating) if operating.awaits_receive && !operating.failed => {}
            Mode::FullOperation(operating) if !operating.failed => self.receive_fpdus(),
            _ => {
                self.discard_received();
                self.context.statistics.count(DropCause::AfterError);
            }
        }
    }

    /// Consumes the octets that are in order and could not be consumed earlier, and the peer's FIN after
    /// them.
    pub(super) fn resume_receive(&mut self) {
        let finished = self.connection.tcp.peer_finished();
        let finish = if finished { Changes::PEER_FINISHED } else { Changes::empty() };
        self.on_changes(Changes::DATA | finish);
    }

    /// Drops the octets that are in order.
    pub(super) fn discard_received(&mut self) {
        let octets = self.connection.tcp.received().available();
        self.connection.tcp.consume(&mut self.context.pools, octets);
    }

    /// Hands octets that are in order to the application of a byte stream, or else to control, as many as
    /// there is room for.
    fn hand_up(&mut self) {
        if self.connection.close_notified {
            // Its user has had the last event of the connection.
            self.discard_received();
            self.connection.unconsumed = UnconsumedOctets::NONE;
        } else if let Some(mut bytes) = self.byte_stream() {
            bytes.hand_over();
        } else {
            self.streaming().copy_to_control();
        }
    }

    /// Hands the octets of `segment`, which TCP [expected](tcp::Connection::accept_expected), from its
    /// `frame` to the application of a byte stream, and those of the segments that follow it in `burst`.
    /// Returns the frame of one that is to be handled in another way; `segment` is that one then.
    #[inline(never)]
    fn consume_bytes(&mut self, segment: &mut Segment, frame: F, burst: &mut impl Burst<F>) -> Option<F> {
        let Some(mut bytes) = self.byte_stream() else {
            debug_assert!(false, "a connection that carries bytes has halves of a stream");
            return Some(frame);
        };
        bytes.consume_in_place(segment, frame, burst)
    }

    fn receive_fpdus(&mut self) {
        let Some(mut stream) = self.rdmap() else {
            debug_assert!(false, "octets arrive in order on a connection that is closed for its users");
            return;
        };
        let last = loop {
            match stream.receive_fpdu() {
                Step::Next => {}
                last => break last,
            }
        };
        self.end_receive(&last);
    }

    /// Handles how the consumption of FPDUs has ended.
    pub(super) fn end_receive(&mut self, last: &Step) {
        match *last {
            Step::Next | Step::Wait => {}
            Step::Failed(error, ref fault) => self.fail_stream(error, fault.as_ref()),
            Step::Terminated(error) => self.on_terminated(error),
        }
    }

    /// Releases what TCP has acknowledged: streaming octets, and the requests of the queue pair.
    #[inline]
    pub(super) fn complete_sends(&mut self) {
        if self.connection.stream.octets() > 0 {
            self.release_stream();
        }
        match self.rdmap() {
            Some(mut stream) => stream.complete_sends(),
            None => self.release_bytes(),
        }
    }

    fn release_stream(&mut self) {
        let may_send = self.connection.sends_stream() && !self.connection.close_notified;
        self.streaming().release(may_send);
    }

    fn release_bytes(&mut self) {
        if let Connection { tcp, mode: Mode::Bytes(halves), .. } = &mut *self.connection {
            halves.release(tcp, &self.context.pools);
        }
    }
}

/// The result of a ULPDU in the receive queue.
enum Consumed {
    /// It is handled.
    Received(Result<Received, Fault>),
    /// It waits for a receive.
    Waits {
        /// The wait begins with it.
        begins: bool,
    },
}

/// Handles a ULPDU, verified by MPA, that is next in order.
#[inline]
fn handle_next<U: Ulpdu>(
    receiver: &mut Receiver,
    context: &mut ReceiveContext<'_>,
    receive_wait: &mut ReceiveWait,
    now: Instant,
    ulpdu: &U,
) -> Consumed {
    if let Some(placed) = receiver.place(context, ulpdu) {
        return Consumed::Received(Ok(Received::First(placed)));
    }
    if let Some(received) = handle_rare(receiver, context, receive_wait, ulpdu) {
        return Consumed::Received(received);
    }
    match receive_wait.wait(now) {
        Some(begins) => Consumed::Waits { begins },
        // It has waited long enough: the fault is named now.
        None => Consumed::Received(receiver.on_rare(context, ulpdu)),
    }
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Consumes the next FPDU in order, however the segments it lies in are cut.
    // Requirements: MPA-A.4-01, C00-7.4.1-01, DDP-3-04
    fn receive_fpdu(&mut self) -> Step {
        let contiguous = if self.operating.fpdus.has_markers() {
            self.consume_contiguous::<Marked>()
        } else {
            self.consume_contiguous::<Unmarked>()
        };
        let (wire_len, consumed) = match contiguous {
            Some(fpdu) => fpdu,
            None => match self.consume_located() {
                Ok(fpdu) => fpdu,
                Err(step) => return step,
            },
        };
        self.context.statistics.bytes_verified += wire_len as u64;
        let received = match consumed {
            Consumed::Received(received) => received,
            Consumed::Waits { begins } => {
                self.context.statistics.receives_awaited += u64::from(begins);
                self.await_receive();
                return Step::Wait;
            }
        };
        self.operating.fpdus.pass(wire_len);
        self.tcp.consume(&mut self.context.pools, wire_len);
        self.account(&FpduCounts { fpdus: 1, ..FpduCounts::default() });
        self.step(received)
    }

    /// Handles the ULPDU of the next FPDU, if that is contiguous and valid for MPA.
    /// Returns the octets of the FPDU as well.
    #[inline]
    fn consume_contiguous<I: InFrame>(&mut self) -> Option<(usize, Consumed)> {
        let Self { now, tcp, operating, qp, context, .. } = self;
        if cold::is_forced() {
            return None;
        }
        let octets = tcp.received().front_octets(&context.pools.held)?;
        let ContiguousFpdu { wire_len, ulpdu } = I::next(&operating.fpdus, octets)?;
        let (shared, stags, reads) = (&*qp.shared, &mut context.stags, &mut qp.reads);
        let acknowledged = tcp.acknowledged();
        let reach = &mut ReceiveContext { shared, stags, reads, acknowledged };
        Some((wire_len, handle_next(&mut qp.receiver, reach, &mut qp.receive_wait, *now, &ulpdu)))
    }

    /// Handles the ULPDU of the next FPDU as [`consume_contiguous`](Self::consume_contiguous) does, wherever
    /// its octets lie.
    ///
    /// # Errors
    ///
    /// The result of the step, if there is no FPDU that is complete and valid.
    #[inline(never)]
    fn consume_located(&mut self) -> Result<(usize, Consumed), Step> {
        let Self { now, tcp, operating, qp, .. } = self;
        let context = &mut *self.context;
        let octets = InOrder { queue: tcp.received(), held: &context.pools.held };
        let located = match operating.fpdus.next(&octets) {
            Ok(Some(located)) => located,
            // Octets placed beyond a gap are next, unless an FPDU before them is incomplete.
            Ok(None) if octets.available() < octets.queue.available() => return Err(self.deliver_placed()),
            Ok(None) => return Err(Step::Wait),
            Err(error) => {
                let bad_octets = operating.fpdus.needed(&octets);
                let may_be_damage = operating.fpdus.may_be_damage(&octets, error);
                if bad_octets <= octets.available() {
                    context.statistics.bytes_verified += bad_octets as u64;
                }
                if may_be_damage {
                    return Err(self.drop_or_fail(bad_octets, error));
                }
                return Err(Step::Failed(StreamError::Mpa(error), None));
            }
        };
        let (shared, stags, reads) = (&*qp.shared, &mut context.stags, &mut qp.reads);
        let acknowledged = tcp.acknowledged();
        let ulpdu = located.ulpdu(&octets);
        let reach = &mut ReceiveContext { shared, stags, reads, acknowledged };
        let consumed = handle_next(&mut qp.receiver, reach, &mut qp.receive_wait, *now, &ulpdu);
        Ok((located.wire_len(), consumed))
    }

    /// Returns what the result of an FPDU means for the stream.
    pub(super) fn step(&mut self, received: Result<Received, Fault>) -> Step {
        match received {
            Ok(Received::First(Placed { octets, answers_read })) => {
                self.context.statistics.bytes_copied_rx += octets as u64;
                if answers_read {
                    self.complete_sends();
                }
                Step::Next
            }
            Ok(Received::RtrReceived | Received::RequestAccepted) => Step::Next,
            Ok(Received::RtrReadReceived { stag, to }) => {
                self.qp.sender.respond(stag, to);
                Step::Next
            }
            Ok(Received::AtomicAnswered { octets }) => {
                self.context.statistics.bytes_copied_rx += octets as u64;
                self.complete_sends();
                Step::Next
            }
            Ok(Received::Terminated(error)) => Step::Terminated(error),
            Err(fault) => Step::Failed(fault.error, Some(fault)),
        }
    }

    /// Handles an FPDU that is wrong, of which `bad_octets` octets have arrived. While TCP has not
    /// acknowledged the FPDU, it is dropped like a lost segment.
    // Requirements: MPA-8-08, C00-9-04
    pub(super) fn drop_or_fail(&mut self, bad_octets: usize, error: MpaError) -> Step {
        if self.operating.crc_retries < self.operating.crc_retries_max
            && self.tcp.forget(&mut self.context.pools, 0, bad_octets)
        {
            self.operating.crc_retries += 1;
            self.context.statistics.count(DropCause::FpduCrc);
            return Step::Wait;
        }
        Step::Failed(StreamError::Mpa(error), None)
    }
}
