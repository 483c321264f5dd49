//! Octets in: a segment goes to TCP, and what it brings into order to control or, FPDU by FPDU, to the queue
//! pair.

use crate::device::Frame;
use crate::drops::DropCause;
use crate::tcp::{self, Changes, Payload, Refusal};
use crate::wire::segment::Segment;
use crate::wire::tcp::Header;

use super::burst::{Burst, BurstOutcome};
use super::connection::Connection;
use super::consume::InPlace;
use super::mode::Mode;
use super::rdmap_stream::Step;
use super::unconsumed::UnconsumedOctets;
use super::{Endpoint, Outcome};

impl<F: Frame> Endpoint<'_, F> {
    /// Handles the segment in `frame` if TCP [expects](tcp::Connection::expects) it, and its octets can be
    /// consumed in place, and the segments that follow it in `burst`; or if it lies beyond a gap. If the
    /// result has an unexpected frame, `segment` is the one in it then.
    /// [`drop_unacked_surplus`](Connection::drop_unacked_surplus) comes next.
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
        let (refusal, unexpected) = if self.connection.mode.carries_bytes() {
            (None, self.consume_bytes(segment, frame, burst))
        } else {
            self.consume_fpdus(segment, frame, burst)
        };
        let Some(frame) = unexpected else { return BurstOutcome { changes, refusal, unexpected: None } };
        let outcome = self.on_segment_beyond_gap(segment, frame);
        BurstOutcome { changes: changes | outcome.changes, ..outcome }
    }

    /// Returns true if the octets of a segment, without a [rare condition](tcp::Unusual::RECEIVE), can
    /// be consumed in its frame, if they are next: its connection carries FPDUs, or its byte stream has room
    /// for them and waits for no octets before others.
    #[inline]
    fn accepts_in_place(&mut self, segment: &Segment) -> bool {
        if let Mode::FullOperation(_) = self.connection.mode { true } else { self.accepts_bytes(segment) }
    }

    #[inline(never)]
    fn accepts_bytes(&mut self, segment: &Segment) -> bool {
        self.byte_stream().is_some_and(|mut bytes| bytes.accepts_in_place(segment))
    }

    /// Consumes the FPDUs of `segment`, which TCP [expected](tcp::Connection::accept_expected), in its
    /// `frame`, and those of the segments that follow it in `burst`. What waited for one of them is consumed
    /// after it. Returns why TCP refused one, or the frame of one that is to be handled in another way;
    /// `segment` is that one then.
    #[inline(never)]
    fn consume_fpdus(
        &mut self,
        segment: &mut Segment,
        frame: F,
        burst: &mut impl Burst<F>,
    ) -> (Option<Refusal>, Option<F>) {
        let Some(mut stream) = self.rdmap() else {
            debug_assert!(false, "a connection that takes FPDUs has a queue pair");
            self.connection.tcp.keep(&mut self.context.pools, segment.payload_offset, frame);
            return (None, None);
        };
        match stream.consume_in_place(segment, frame, burst) {
            InPlace::Consumed(refusal) => {
                if !stream.tcp.received().is_drained() {
                    self.close_gap();
                }
                (refusal, None)
            }
            InPlace::Unexpected(frame) => (None, Some(frame)),
            InPlace::Rest { frame, offset, last } => {
                self.keep_rest(frame, offset, &last);
                (None, None)
            }
        }
    }

    /// Handles the octets that waited for a segment that was consumed in its frame, if there are any.
    #[inline(never)]
    fn close_gap(&mut self) {
        self.connection.tcp.close_gap(&self.context.pools);
        if self.connection.tcp.received().available() > 0 {
            self.receive_in_order();
            self.connection.review();
        }
    }

    /// Keeps the rest of a segment's payload, which begins at `rest` of its frame, if there is one, and does
    /// what follows from the `last` FPDU before it.
    #[cold]
    fn keep_rest(&mut self, frame: F, rest: Option<usize>, last: &Step) {
        if let Some(offset) = rest {
            self.connection.tcp.keep(&mut self.context.pools, offset, frame);
        }
        self.connection.tcp.close_gap(&self.context.pools);
        match last {
            Step::Next | Step::Wait => self.receive_in_order(),
            ended => self.end_receive(ended),
        }
        self.connection.review();
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
        let promised_frames = self.connection.promised_frames(&self.context.pools.held);
        let passes = self.connection.octets_pass(payload.octets);
        let connection = &*self.connection;
        debug_assert_eq!(connection.mode.receives_stream(), connection.tcp.received().is_in_startup());
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
            dropped_surplus: self.connection.drop_unacked_surplus(&mut self.context.pools),
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
        if self.connection.mode.receives_stream() || self.connection.mode.carries_bytes() {
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
        let last = stream.receive_fpdus();
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
        let may_send = self.connection.mode.sends_stream() && !self.connection.close_notified;
        self.streaming().release(may_send);
    }

    fn release_bytes(&mut self) {
        if let Connection { tcp, mode: Mode::Bytes(halves), .. } = &mut *self.connection {
            halves.release(tcp, &self.context.pools);
        }
    }
}
