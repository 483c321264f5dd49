//! The inputs of a connection besides segments: control's commands, the bells of its queue pair or byte
//! stream, its timer, and ICMP errors about its segments. [`super::close`] has those that end it.
//!
//! Anybody may have sent an ICMP error: the connection believes only what can be true of a segment that is
//! outstanding (RFC 5927; RFC 5044 §9.1).

use std::sync::Arc;

use crate::byte_stream::SharedByteStream;
use crate::device::Frame;
use crate::qp::error::StreamError;
use crate::qp::shared::SharedQp;
use crate::ring::{Direction, Event, FullOperation};
use crate::tcp::{self, Changes, CloseReason, PathMtu};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::connection::{Connection, OpenKind};
use super::mode::Mode;
use super::operating::Operating;
use super::stream_halves::StreamHalves;
use super::unconsumed::UnconsumedOctets;
use super::{Endpoint, Outcome};

/// What refused a segment, as an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// The path, or a host on it, for now: a soft error.
    ForNow,
    /// The peer's host, which has no TCP: a hard error.
    Protocol,
    /// The peer's host, which has nobody at the port: a hard error.
    Port,
}

impl<F: Frame> Endpoint<'_, F> {
    /// Handles that the timer of the connection is due.
    pub(crate) fn on_timer(&mut self) -> Outcome {
        let mut changes = self.connection.tcp.on_timer(self.now, &mut self.context.pools);
        if self.connection.abort_timer.at() <= self.now {
            changes |= self.connection.abort_timer.expire(&mut self.connection.tcp);
        }
        let fpdu_overdue = self.connection.fpdu_due() <= self.now;
        let receive_overdue = self.receive_due() <= self.now;
        if self.connection.nudge_due() <= self.now {
            self.nudge();
        }
        self.on_changes(changes);
        if receive_overdue {
            self.expire_receive_wait();
        }
        if fpdu_overdue {
            // Before the first FPDU there is no Terminate.
            // Requirements: A-07
            self.fail_stream(StreamError::NoFpdu, None);
        }
        Outcome::SCHEDULE
    }

    /// Sends a nudge, which is due.
    fn nudge(&mut self) {
        let Some(mut stream) = self.rdmap() else {
            debug_assert!(self.connection.close_notified, "only a peer in Full Operation is nudged");
            return;
        };
        stream.nudge();
    }

    /// Handles the doorbell of the queue pair: work was posted, or receives.
    pub(crate) fn on_doorbell(&mut self) -> Outcome {
        if let Some(qp) = self.queue_pair.as_deref_mut() {
            qp.accept_posted(&mut self.context.stags, &mut self.context.unaccepted);
        }
        self.connection.expect_work();
        if self.connection.tcp.unusual.is_empty() {
            return Outcome::SCHEDULE;
        }
        if let Some(qp) = self.queue_pair.as_deref_mut()
            && qp.shared.state().is_over()
        {
            // Requests that TCP has still have their buffers: those posted after them are flushed
            // after them.
            qp.receiver.flush(&qp.shared, &mut self.context.placed_sends, None);
            qp.sender.flush_after_close(&qp.shared);
        }
        self.resume_if_ready();
        Outcome::SCHEDULE
    }

    /// Begins Full Operation in both directions, if the core has just [bound](super::Endpoints::bind) the
    /// queue pair to the connection. Else the connection is reset: without a bound endpoint there is no Full
    /// Operation.
    ///
    /// The place is fixed by the order of the streams, not by time: TCP may still have to repair what was
    /// sent before.
    // Requirements: MPA-7.1-04, MPA-7.1.5-03, MPA-7.1.5-04, MPA-7.1-01, C00-8.1-01
    pub(crate) fn start(&mut self, operation: FullOperation) -> Outcome {
        if let Some(qp_slot) = self.newly_bound() {
            let startup_octets = operation.startup_octets.min(self.connection.unconsumed.octets());
            self.connection.tcp.consume(&mut self.context.pools, startup_octets as usize);
            let send_start = self.connection.send_end();
            let mut operating = Operating::new(qp_slot, operation, send_start);
            operating.expect_fpdu(self.now, operation.first_fpdu_ns);
            self.begin(operating, &operation);
            self.receive_for_user();
            self.leave_backlog();
        } else {
            self.refuse_start();
        }
        // The peer may have been quick: its octets wait in order, and perhaps its FIN after them.
        self.resume_receive();
        Outcome::SCHEDULE
    }

    /// Begins Full Operation of draft-culley-iwarp-mpa-00 in `direction`: the first, if the core has just
    /// [bound](super::Endpoints::bind) the queue pair with `shared` to the connection, or the other one.
    /// Without that queue pair the connection is reset.
    // Requirements: MPA-7.1-04, C00-8.1-01, C00-8.1-02
    pub(crate) fn start_unnegotiated(
        &mut self,
        shared: &Arc<SharedQp>,
        operation: FullOperation,
        direction: Direction,
    ) -> Outcome {
        let send_start = self.connection.send_end();
        if let Some(qp_slot) = self.newly_bound() {
            self.begin(Operating::unnegotiated(qp_slot, operation, send_start), &operation);
        }
        let is_bound = self.queue_pair.as_ref().is_some_and(|qp| Arc::ptr_eq(&qp.shared, shared));
        let sends_after_failure = match &mut self.connection.mode {
            Mode::FullOperation(operating) if is_bound => {
                operating.start(direction, send_start) && operating.failed
            }
            _ => {
                self.refuse_start();
                return Outcome::SCHEDULE;
            }
        };
        if sends_after_failure {
            // The other half has failed before, and nothing follows the streaming octets.
            self.close_after_failure();
        }
        if direction.receives() {
            self.receive_for_user();
        }
        self.leave_backlog();
        self.resume_receive();
        Outcome::SCHEDULE
    }

    /// Returns the slot of the queue pair that the core has bound to the connection for this input, if it
    /// has: Full Operation has not begun yet.
    fn newly_bound(&self) -> Option<u32> {
        let is_streaming = matches!(self.connection.mode, Mode::Streaming);
        let home = self.queue_pair.as_ref().filter(|_| is_streaming)?.shared.home()?;
        debug_assert_eq!(home.core, self.id.core(), "a queue pair is at the core of its connection");
        Some(home.slot)
    }

    fn begin(&mut self, operating: Operating, operation: &FullOperation) {
        debug_assert!(matches!(self.connection.mode, Mode::Streaming), "each connection begins once");
        debug_assert!(self.queue_pair.is_some(), "the core has bound the queue pair");
        self.connection.mode = Mode::FullOperation(operating);
        self.connection.tcp.set_peer_timeouts(self.now, operation.peer_timeouts);
        if operation.rate_limit_kbps.is_some() {
            self.connection.tcp.set_rate_limit(operation.rate_limit_kbps);
        }
        if let Some(qp) = self.queue_pair.as_deref_mut() {
            qp.begin(operation);
        }
        self.context.events.push(Event::Operating { connection: self.id });
    }

    /// Has what arrives reach the user of the connection from now on, and no longer control. The peer's end
    /// comes after the octets that control has not consumed, and means something else after FPDUs: it is
    /// handled again, if it has come already.
    // Requirements: A-09
    fn receive_for_user(&mut self) {
        self.connection.tcp.leave_startup(&mut self.context.pools);
        self.connection.unconsumed = UnconsumedOctets::NONE;
        self.connection.finish_notified = false;
    }

    fn refuse_start(&mut self) {
        self.context.statistics.starts_refused += 1;
        self.connection.tcp.abort();
    }

    /// Limits segments to `mss_octets`: a path to the peer was found to be narrow before.
    pub(crate) fn limit_mss(&mut self, mss_octets: u16) {
        PathMtu::of(&mut self.connection.tcp).limit_mss(self.now, mss_octets);
    }

    /// Resets the connection at `deadline` unless it is open by then.
    pub(crate) fn open_until(&mut self, deadline: Instant) {
        self.connection.abort_timer.set(deadline);
    }

    /// Gives the octets of the connection, which is in streaming mode, to the application of `shared`.
    pub(crate) fn attach(&mut self, shared: Arc<SharedByteStream>) -> Outcome {
        let connection = &mut *self.connection;
        if !matches!(connection.mode, Mode::Streaming) || connection.close_notified {
            shared.set_end(CloseReason::Aborted);
            return Outcome::NONE;
        }
        let annotates = connection.tcp.rdma_option().is_agreed();
        shared.set_rdma_option(annotates);
        let start = connection.send_end();
        connection.mode = Mode::Bytes(Box::new(StreamHalves::new(shared, start, annotates)));
        self.receive_for_user();
        let connection = &mut *self.connection;
        if let Mode::Bytes(stream) = &mut connection.mode {
            stream.renew_window(&mut connection.tcp, &mut self.context.pools);
        }
        self.leave_backlog();
        self.on_byte_stream_bell()
    }

    /// Handles the bell of the byte stream: there are octets to be sent, commands, or room.
    pub(crate) fn on_byte_stream_bell(&mut self) -> Outcome {
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else {
            return Outcome::NONE;
        };
        stream.shared.clear_bell();
        if stream.inbound.receive_commands() {
            stream.renew_window(tcp, &mut self.context.pools);
        }
        if self.connection.has_pending_octets() || self.connection.has_unnotified_finish() {
            self.resume_receive();
        }
        Outcome::SCHEDULE
    }

    /// Appends `octets` to the streaming octets to be sent. Returns false, and resets the connection, if that
    /// is not possible: the rest of the command is then not carried out.
    // Requirements: RDMAP-6.1-01
    pub(crate) fn send_stream(&mut self, octets: Box<[u8]>) -> bool {
        let end = self.connection.send_end();
        if self.connection.mode.sends_stream() && self.connection.stream.push(octets, end) {
            return true;
        }
        // Control sends more than the limit, or after Full Operation has begun: it cannot know what the peer
        // receives.
        self.connection.tcp.abort();
        false
    }

    /// Keeps `octets`, which are sent as soon as the connection is open.
    pub(crate) fn send_first(&mut self, octets: Box<[u8]>) {
        let connection = &mut *self.connection;
        let end = connection.send_end();
        if !connection.stream.begin(octets, end) {
            connection.tcp.abort();
        }
    }

    /// Handles that control has consumed the first `octets` of those it has a copy of: the window opens by as
    /// many.
    pub(crate) fn consume_stream(&mut self, octets: u32) -> Outcome {
        self.streaming().consume(octets);
        let pending = self.connection.uncopied_octets() > 0 || self.connection.has_unnotified_finish();
        if pending && !self.connection.close_notified {
            self.resume_receive();
        }
        Outcome::SCHEDULE
    }

    /// Resumes a message that waits for a receive, if there may be one now. The wait keeps its deadline.
    fn resume_if_ready(&mut self) {
        if self.rdmap().is_some_and(|mut stream| stream.end_wait_if_ready()) {
            self.resume_receive();
        }
    }

    /// Returns true if the shared receive queue has a receive for a message that waits; `None` if none waits
    /// any more. Without a receive, the queue's next post rings again.
    pub(crate) fn has_shared_receive(&mut self) -> Option<bool> {
        self.rdmap()?.has_shared_receive()
    }

    /// Handles that the connection is out of the list of those that wait for a shared receive queue: a
    /// message that waits is resumed. If another core has dequeued the receive that was seen, the message
    /// waits on, and its connection is in the list again.
    pub(crate) fn on_unlisted(&mut self) -> Outcome {
        if let Mode::FullOperation(operating) = &mut self.connection.mode {
            operating.awaits_shared_receive = false;
        }
        if self.rdmap().is_some_and(|mut stream| stream.end_wait()) {
            self.resume_receive();
        }
        Outcome::SCHEDULE
    }

    /// Ends the wait of a message for a receive: it finds one now, or the stream fails.
    pub(super) fn expire_receive_wait(&mut self) {
        if self.rdmap().is_some_and(|mut stream| stream.expire_wait()) {
            self.resume_receive();
        }
    }

    /// Handles that the path carries segments of at most `mss_octets` of payload, from an error about the
    /// segment at `seq`. Returns `None` if that segment is not outstanding (RFC 5927 §7).
    // Requirements: MPA-9.1-01
    pub(crate) fn on_packet_too_big(&mut self, seq: SeqNumber, mss_octets: u16) -> Option<Outcome> {
        let outstanding = PathMtu::of(&mut self.connection.tcp).on_packet_too_big(
            self.now,
            seq,
            mss_octets,
            &mut self.context.pools,
        );
        outstanding.then_some(Outcome::SCHEDULE)
    }

    /// Handles that the segment at `seq` did not reach the peer. A connection that the peer has never
    /// answered ends with a hard error about its SYN: an unreachable port refuses it, as a RST does. With a
    /// soft one it keeps trying (RFC 1122 §4.2.3.9, RFC 5927 §5.2). Returns `None` for any other segment, or
    /// in any other state.
    pub(crate) fn on_unreachable(&mut self, seq: SeqNumber, what: Unreachable) -> Option<Outcome> {
        let connection = &mut *self.connection;
        let about_syn = connection.tcp.state() == tcp::State::SynSent
            && matches!(connection.open_kind, OpenKind::Active { .. })
            // Only the SYN is outstanding.
            && connection.tcp.acknowledged() == seq;
        if !about_syn {
            return None;
        }
        connection.unreachable = true;
        match what {
            Unreachable::ForNow => return Some(Outcome::NONE),
            Unreachable::Protocol => connection.tcp.abort(),
            Unreachable::Port => connection.tcp.refuse(),
        }
        self.on_changes(Changes::CLOSED);
        Some(Outcome::SCHEDULE)
    }
}
