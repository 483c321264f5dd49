//! How a stream and its connection end: by an error, by the peer's Terminate or FIN, and for their users.

use std::collections::BTreeMap;

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::drops::DropCause;
use crate::limits;
use crate::mpa::MpaError;
use crate::qp::error::StreamError;
use crate::qp::receiver::Fault;
use crate::qp::shared::QpState;
use crate::qp::terminate;
use crate::ring::{ConnectError, Event};
use crate::tcp::{self, Changes, CloseReason, Unusual};

use super::chunk::Chunk;
use super::connection::{Connection, OpenKind};
use super::linger::OwedOctets;
use super::mode::Mode;
use super::send_stream::SendStream;
use super::unconsumed::UnconsumedOctets;
use super::{Endpoint, Outcome};

impl<F: Frame> Endpoint<'_, F> {
    /// Notifies control that the connection is open.
    pub(super) fn notify_open(&mut self) {
        let connection = &mut *self.connection;
        if let Some(listener) = connection.listener().filter(|_| connection.in_backlog) {
            self.context.listeners.complete_handshake(listener, connection.key.remote);
        }
        connection.open_notified = true;
        forget_opening(&mut self.context.opening, connection, self.id);
        connection.abort_timer.stop();
        self.context.statistics.connections_opened += 1;
        let rdma_option = connection.tcp.rdma_option().is_agreed();
        let (connection, flow) = (self.id, connection.key);
        self.context.events.push(match self.connection.open_kind {
            OpenKind::Passive(scope) => Event::Accepted { connection, flow, scope, rdma_option },
            OpenKind::Active { token } => {
                Event::Connected { token, connection, local: flow.local_end(), rdma_option }
            }
        });
    }

    /// Fails the stream at this end: nothing more is placed or delivered, and the peer gets one Terminate if
    /// this end may send it. MPA leaves TCP open; RDMAP, whose stream is over, closes the connection after
    /// its Terminate.
    // Requirements: DDP-3-08, DDP-7.1-09, DDP-7.1-17, MPA-8-09, C00-9-05, RDMAP-7-01
    pub(crate) fn fail_stream(&mut self, error: StreamError, fault: Option<&Fault>) {
        if self.connection.close_notified {
            // Its queue pair is flushed, and control has had its last event of the connection.
            return;
        }
        // Streaming octets are not of this stream, and control has copies of them.
        if !self.connection.mode.receives_stream() {
            self.discard_received();
        }
        let Some(stream) = self.rdmap() else {
            debug_assert!(false, "only a stream of FPDUs fails");
            return;
        };
        stream.operating.failed = true;
        // Requirements: DDP-6.2.2-03, DDP-7.1-18, RDMAP-6.2.1-01
        let may_send = stream.operating.may_send && stream.tcp.may_send();
        if may_send && let Some(message) = terminate::message(error, fault) {
            stream.qp.sender.terminate(message);
        }
        self.end_stream(error);
    }

    /// Handles the peer's Terminate: what is outstanding has failed, and the connection closes gracefully.
    // Requirements: RDMAP-6.2.1-02
    pub(super) fn on_terminated(&mut self, error: StreamError) {
        // Nothing follows a Terminate.
        self.discard_received();
        if let Some(stream) = self.rdmap() {
            stream.operating.failed = true;
            // This end stops sending.
            // Requirements: RDMAP-5.4-05
            stream.operating.may_send = false;
        }
        self.end_stream(error);
    }

    /// Ends the stream of the queue pair. MPA leaves TCP open after its errors, and DDP after its own. RDMAP,
    /// their ULP, closes it after the Terminate, gracefully.
    // Requirements: C00-9-06, DDP-3-11, DDP-6.2-01, DDP-6.2-02, DDP-6.2.2-04, MPA-8-10
    fn end_stream(&mut self, error: StreamError) {
        let connection = &mut *self.connection;
        // Straight steps find the fault, too.
        connection.tcp.unusual |= Unusual::FAILED | Unusual::CLOSING | Unusual::SILENT_PEER;
        if !connection.mode.sends_stream() {
            self.close_after_failure();
        }
        let Some(qp) = self.queue_pair.as_deref_mut() else {
            debug_assert!(false, "a stream of FPDUs has a queue pair until it ends");
            return;
        };
        // Requirements: DDP-6.2.2-01, DDP-7-01, RDMAP-6.2.1-03, RDMAP-7.1-01
        self.context.statistics.streams_failed += 1;
        qp.shared.set_error(error);
        qp.shared.set_state(QpState::Terminate);
        // Sends that TCP has keep their buffers until TCP has released them.
        qp.receiver.flush(&qp.shared, &mut self.context.placed_sends, Some(error));
        let qp = qp.shared.number;
        self.context.events.push(Event::StreamFailed { connection: self.id, qp, error });
    }

    /// Closes a connection that sends FPDUs of a stream that has failed, gracefully and in time.
    pub(super) fn close_after_failure(&mut self) {
        let connection = &mut *self.connection;
        connection.closing = true;
        connection.tcp.unusual |= Unusual::CLOSING;
        connection.abort_timer.abort_within(self.now, limits::TERMINATE_LINGER_NS);
    }

    /// Handles the peer's FIN, which is in order, and notifies control. On an FPDU boundary it is a graceful
    /// half-close, inside an FPDU error 1.
    // Requirements: MPA-3-11, MPA-7.2-01, MPA-7.2-02, C00-8.2-01, DDP-3-09, DDP-3-10
    pub(super) fn on_peer_finished(&mut self) {
        let connection = &mut *self.connection;
        if connection.close_notified || core::mem::replace(&mut connection.finish_notified, true) {
            return;
        }
        let inside_fpdu = matches!(&connection.mode, Mode::FullOperation(operating)
            if operating.receives && !operating.failed && connection.tcp.received().available() > 0);
        if let Some(mut stream) = self.rdmap() {
            stream.on_peer_finished();
        }
        // Nothing more arrives, and so no response.
        if inside_fpdu || self.awaits_response_after_finish() {
            return self.fail_stream(StreamError::Mpa(MpaError::TcpClosed), None);
        }
        if let Mode::Bytes(stream) = &self.connection.mode {
            stream.inbound.finish();
        }
        self.context.events.push(Event::PeerFinished { connection: self.id });
    }

    /// Returns true if this end waits for a response of a peer that has finished and sends nothing any more.
    pub(super) fn awaits_response_after_finish(&mut self) -> bool {
        self.connection.finish_notified && self.rdmap().is_some_and(|stream| stream.has_unanswered_requests())
    }

    /// Closes the connection gracefully, after everything that is posted. With `within_ns`, it is reset when
    /// nothing moves for that time; if its stream has failed, also when something does.
    pub(crate) fn close(&mut self, within_ns: Option<u64>) -> Outcome {
        self.connection.closing = true;
        if let Some(qp) = self.queue_pair.as_deref_mut() {
            // An application that closes rarely posts receives any more, and its peer may wait likewise.
            qp.receive_wait.shorten(self.now, limits::CLOSING_RECEIVE_WAIT_NS);
            if qp.shared.state() == QpState::ReadyToSend {
                qp.shared.set_state(QpState::Closing);
            }
        }
        self.connection.abort_timer.close_within(self.now, within_ns);
        Outcome::SCHEDULE
    }

    /// Resets the connection.
    pub(crate) fn abort(&mut self) -> Outcome {
        self.connection.tcp.abort();
        self.on_closed();
        Outcome::SCHEDULE
    }

    /// Gives the connection up because its queue pair is about to be destroyed: it lingers for a Terminate
    /// that the peer does not have yet, or for the FINs of an orderly end, or is reset.
    pub(crate) fn lose_queue_pair(&mut self) -> Outcome {
        let lingers = self.prepare_to_linger();
        if !lingers {
            self.connection.tcp.abort();
        }
        self.on_closed();
        if lingers {
            self.begin_to_linger();
        }
        Outcome::SCHEDULE
    }

    /// Handles that the application has left. What it has not read is lost: the peer learns that by a RST
    /// (RFC 9293 §3.6.1, RFC 2525 §2.17). Else what it has written is sent, and the connection closes, while
    /// something moves within each `within_ns`, and by [`limits::ORPHAN_NS`].
    pub(crate) fn abandon(&mut self, within_ns: u64) -> Outcome {
        let connection = &mut *self.connection;
        if connection.close_notified || connection.mode.is_orphan() {
            return Outcome::NONE;
        }
        let Mode::Bytes(stream) = &mut connection.mode else { return self.close(Some(within_ns)) };
        let all_read = !stream.inbound.has_unread() && connection.tcp.received().is_drained();
        if !all_read || !self.context.orphans.enter(connection.key.remote) {
            return self.abort();
        }
        stream.orphan_until = self.now + limits::ORPHAN_NS;
        connection.tcp.refuse_text();
        self.close(Some(within_ns.min(limits::ORPHAN_NS)))
    }

    /// Ends the connection for its users: unbinds the queue pair and notifies control, once.
    pub(super) fn on_closed(&mut self) {
        let connection = &mut *self.connection;
        if core::mem::replace(&mut connection.close_notified, true) {
            return;
        }
        let reason = match connection.tcp.state() {
            tcp::State::Closed => connection.tcp.close_reason(),
            tcp::State::TimeWait => CloseReason::Finished,
            // Its queue pair is destroyed, and the connection lingers for a Terminate.
            _ => CloseReason::Aborted,
        };
        if let Mode::Bytes(stream) = &connection.mode {
            stream.shared.set_end(reason);
        }
        if connection.mode.receives_stream()
            || connection.mode.awaits_receive()
            || connection.mode.carries_bytes()
        {
            // Control has a copy of all the octets it gets, and no receive will be posted for others.
            self.discard_received();
        }
        if let Some(mut stream) = self.rdmap() {
            stream.leave_waiters();
        }
        let connection = &mut *self.connection;
        connection.unconsumed = UnconsumedOctets::NONE;
        if let Mode::FullOperation(operating) = &mut connection.mode {
            operating.awaits_receive = false;
        }
        // From here on neither names the other, whatever happens to the slot and to the queue pair's number.
        if let Some(qp) = self.queue_pair.take() {
            qp.connection = None;
            qp.end(&mut self.context.stags, &mut self.context.placed_sends, reason);
        }
        let event = match connection.open_kind {
            _ if connection.open_notified => Some(Event::Closed { connection: self.id, reason }),
            OpenKind::Active { token } => {
                forget_opening(&mut self.context.opening, connection, self.id);
                Some(Event::ConnectFailed { token, error: connect_error(connection, reason) })
            }
            OpenKind::Passive(_) => None,
        };
        if let Some(event) = event {
            self.context.events.push(event);
        }
        // A connection that only waits in TIME-WAIT must not keep others out.
        self.leave_backlog();
    }

    /// Returns true if the connection is being closed in the orderly way, and the peer has everything of this
    /// end, or lacks nothing but the FIN.
    fn owes_only_fin(&mut self) -> bool {
        let Connection { tcp, stream, closing, .. } = &*self.connection;
        *closing
            && tcp.state() != tcp::State::Closed
            && !tcp.has_kept()
            && stream.octets() == 0
            && self.rdmap().is_some_and(|stream| !stream.operating.failed && !stream.has_work())
    }

    /// Makes a connection that owes the peer a Terminate, or no more than a FIN, independent of its queue
    /// pair, which is about to be destroyed. Returns false, and changes nothing that TCP sends, if it owes
    /// anything else, or has sent more octets than may be kept.
    ///
    /// [`begin_to_linger`](Self::begin_to_linger) completes this, once the queue pair is unbound.
    // Requirements: RDMAP-5.4-01, RDMAP-6.2.1-03
    pub(super) fn prepare_to_linger(&mut self) -> bool {
        if self.owes_only_fin() {
            self.connection.abort_timer.abort_within(self.now, limits::TERMINATE_LINGER_NS);
            return true;
        }
        let Some(owed) = self.rdmap().and_then(|stream| OwedOctets::of(&stream)) else { return false };
        let Some(octets) = owed.build(self.payload()) else { return false };
        let (connection, context) = (&mut *self.connection, &mut *self.context);
        let start = connection.tcp.oldest_kept(&context.pools);
        let queued = (connection.tcp.queued_end() - start).max(0) as u32;
        context.lingering_octets += octets.len();
        connection.stream = SendStream::resumed(octets.into_boxed_slice(), start, queued);
        connection.tcp.replace_payloads(&mut context.pools, Chunk::Stream);
        true
    }

    /// Drops what arrives from now on, and sends only the octets kept.
    pub(super) fn begin_to_linger(&mut self) {
        self.discard_received();
        self.connection.tcp.leave_startup(&mut self.context.pools);
        self.connection.closing = true;
        self.connection.mode = Mode::Lingering { kept_octets: self.connection.stream.octets() as usize };
    }

    /// Frees the frames of a connection, and the acknowledged octets in them: it is reset, and its users
    /// are notified. One that waits for a receive waits no longer, and sends its peer the reason.
    pub(crate) fn evict(&mut self) -> Outcome {
        if self.connection.mode.awaits_receive() {
            self.expire_receive_wait();
            return Outcome::SCHEDULE;
        }
        self.context.statistics.count(DropCause::HeldTooLong);
        if matches!(&self.connection.mode, Mode::FullOperation(operating) if !operating.failed) {
            self.fail_stream(StreamError::Mpa(MpaError::LocalCatastrophic), None);
        }
        if self.connection.has_pending_octets() {
            // Both ends may have finished: its user must not take what it has got for all.
            self.connection.tcp.lose_received();
        }
        self.connection.tcp.abort();
        self.connection.tcp.release_received(&mut self.context.pools);
        self.on_changes(Changes::CLOSED);
        Outcome::SCHEDULE
    }

    /// Counts the connection no longer in the backlog of its listener.
    pub(crate) fn leave_backlog(&mut self) {
        let connection = &mut *self.connection;
        if core::mem::take(&mut connection.in_backlog)
            && let Some(listener) = connection.listener()
        {
            let stage = connection.backlog_stage();
            self.context.listeners.leave(listener, connection.key.remote, stage);
        }
    }

    /// Frees all that the connection holds of what endpoints share. It is removed from the table after this.
    pub(crate) fn release(&mut self) {
        debug_assert!(
            self.connection.close_notified,
            "a connection is closed for its users before it is removed"
        );
        self.leave_backlog();
        if self.connection.mode.is_orphan() {
            self.context.orphans.leave(self.connection.key.remote);
        }
        self.connection.tcp.release(&mut self.context.pools);
        if let Mode::Bytes(stream) = &self.connection.mode {
            stream.promise.end(&mut self.context.pools.held);
        }
        self.context.cut_runs.remove(self.id);
        let (tcp, transfers) = (self.connection.tcp.counters(), self.connection.transfer_counters());
        self.context.statistics.tcp.add(&tcp);
        self.context.transfers.add(&transfers);
        if let Some(report) = &mut self.context.report {
            report.add_ended(self.id.slot(), &tcp, &transfers);
        }
        if let Mode::Lingering { kept_octets } = self.connection.mode {
            self.context.lingering_octets -= kept_octets;
        }
    }
}

/// Removes a connection from those that control opens, if it is one of them.
fn forget_opening(opening: &mut BTreeMap<u64, u32>, connection: &Connection, id: ConnectionId) {
    if let OpenKind::Active { token } = connection.open_kind
        && opening.get(&token) == Some(&id.slot())
    {
        opening.remove(&token);
    }
}

/// Returns why a connection could not be opened.
fn connect_error(connection: &Connection, reason: CloseReason) -> ConnectError {
    match reason {
        CloseReason::Aborted | CloseReason::TimedOut if connection.unreachable => ConnectError::Unreachable,
        // This end gave the connection up before it was open: its time was over.
        CloseReason::Aborted => ConnectError::Closed(CloseReason::TimedOut),
        reason => ConnectError::Closed(reason),
    }
}
