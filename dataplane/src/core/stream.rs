//! What the octets of a connection lead to: events for control before Full Operation, placed data and completions in it.

use std::net::SocketAddr;

use super::connection::{Mode, Operating, Origin};
use super::listeners::ListenAddress;
use super::ring::{ConnectError, ConnectionId, Event};
use super::statistics::DropCause;
use super::{Core, QueuePair};
use crate::device::{Device, Frame};
use crate::limits;
use crate::memory::StagTable;
use crate::mpa::MpaError;
use crate::mpa::receiver::Octets;
use crate::ordered::OrderedPool;
use crate::qp::error::StreamError;
use crate::qp::receiver::{Fault, PlacedSegment, ReceiveContext, Received};
use crate::qp::shared::QpState;
use crate::qp::terminate;
use crate::tcp;
use crate::tcp::CloseReason;
use crate::tcp::receive_queue::{HeldPool, ReceiveQueue};
use crate::time::Instant;

/// The octets of a connection that are in order and not consumed, as MPA looks at them.
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

/// What taking one FPDU led to.
pub(super) enum Step {
    /// It is placed; there may be another.
    Next,
    /// Nothing more for now.
    Wait,
    /// The stream has failed.
    Failed(StreamError, Option<Fault>),
    /// The peer has terminated the stream.
    Terminated(StreamError),
}

impl<D: Device> Core<D> {
    pub(super) fn id(&self, index: u32) -> ConnectionId {
        ConnectionId { index, generation: self.slots[index as usize].generation }
    }

    /// Tells control that the connection is open.
    pub(super) fn announce(&mut self, index: u32) {
        let id = self.id(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        connection.announced = true;
        connection.abort_at = Instant::NEVER;
        self.statistics.connections_opened += 1;
        let (key, origin) = (connection.key, connection.origin);
        let listener = connection.listener();
        if let Some(listener) = listener.filter(|_| connection.in_backlog) {
            self.opened(listener, key.remote);
        }
        self.events.push(match origin {
            Origin::Accepted(scope) => Event::Accepted {
                connection: id,
                listener: ListenAddress::of(scope, key.local, key.local_port),
                local: SocketAddr::new(key.local, key.local_port),
                remote: SocketAddr::new(key.remote, key.remote_port),
            },
            Origin::Connect(token) => {
                Event::Connected { token, connection: id, local: SocketAddr::new(key.local, key.local_port) }
            }
        });
    }

    /// Takes what is in order.
    pub(super) fn take_octets(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        match &connection.mode {
            _ if connection.receives_stream() => self.hand_up_stream(index),
            Mode::Streaming => {}
            Mode::FullOperation(Operating { failed: true, .. }) | Mode::Lingering { .. } => {
                let octets = connection.tcp.received().available();
                connection.tcp.consume(&mut self.pools, octets);
                self.statistics.count(DropCause::AfterError);
            }
            // It is looked at when a receive is posted, or its time is over.
            Mode::FullOperation(operating) if operating.awaits_receive => {}
            Mode::FullOperation(_) => self.take_fpdus(now, index),
        }
    }

    /// Takes what is in order and could not be taken earlier, and the end that came behind it.
    pub(super) fn take_again(&mut self, now: Instant, index: u32) {
        let connection = self.slots[index as usize].connection.as_ref();
        let finished = connection.is_some_and(|connection| connection.tcp.peer_finished());
        let end = if finished { tcp::Changes::PEER_FINISHED } else { tcp::Changes::empty() };
        self.on_progress(now, index, tcp::Changes::DATA | end);
    }

    fn take_fpdus(&mut self, now: Instant, index: u32) {
        loop {
            match self.take_fpdu(now, index) {
                Step::Next => {}
                Step::Wait => return,
                Step::Failed(error, fault) => return self.fail_stream(now, index, error, fault.as_ref()),
                Step::Terminated(error) => return self.on_terminated(now, index, error),
            }
        }
    }

    /// Takes the next FPDU in order, however the segments it lies in are cut.
    // MPA-A.4-01, C00-7.4.1-01, DDP-3-04
    fn take_fpdu(&mut self, now: Instant, index: u32) -> Step {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return Step::Wait };
        let Mode::FullOperation(operating) = &mut connection.mode else { return Step::Wait };
        let Some(qp) = self.qps.get_mut(operating.qp) else { return Step::Wait };
        let octets = InOrder { queue: connection.tcp.received(), held: &self.pools.held };
        let located = match operating.fpdus.next(&octets) {
            Ok(Some(located)) => {
                self.statistics.octets_verified += located.wire_len() as u64;
                located
            }
            // Octets placed beyond a gap are next, unless an FPDU before them is not whole.
            Ok(None) if octets.available() < octets.queue.available() => return self.take_placed(index),
            Ok(None) => return Step::Wait,
            Err(error) => {
                let bad_octets = operating.fpdus.needed(&octets);
                let may_be_damage = operating.fpdus.may_be_damage(&octets, error);
                if bad_octets <= octets.available() {
                    self.statistics.octets_verified += bad_octets as u64;
                }
                if may_be_damage {
                    return self.drop_or_fail(index, bad_octets, error);
                }
                return Step::Failed(StreamError::Mpa(error), None);
            }
        };
        if qp.receive_wait.is_allowed() {
            if qp.receiver.lacks_receive(&qp.shared, &octets, &located)
                && let Some(begins) = qp.receive_wait.wait(now)
            {
                self.statistics.receives_awaited += u64::from(begins);
                return self.await_receive(index);
            }
            qp.receive_wait.served();
        }
        // The peer may ask again as soon as it has an answer, so what it acknowledges with the request counts.
        qp.reads.inbound.complete(&mut self.stags, connection.tcp.acknowledged());
        let context =
            &mut ReceiveContext { shared: &qp.shared, stags: &mut self.stags, reads: &mut qp.reads };
        let received = qp.receiver.on_ulpdu(context, &octets, &located);
        operating.fpdus.advance(&located);
        operating.crc_retries = 0;
        operating.on_fpdu(&qp.shared);
        connection.tcp.consume(&mut self.pools, located.wire_len());
        self.statistics.fpdus_received += 1;
        match received {
            Ok(Received::Placed { octets }) => {
                self.statistics.octets_copied_rx += octets as u64;
                Step::Next
            }
            Ok(Received::RtrReceived | Received::RequestAccepted) => Step::Next,
            Ok(Received::RtrReadReceived { stag, to }) => {
                qp.sender.respond(stag, to);
                Step::Next
            }
            Ok(Received::ResponseCompleted { octets }) => {
                self.statistics.octets_copied_rx += octets as u64;
                let acknowledged = connection.tcp.acknowledged();
                qp.sender.complete(&qp.shared, &mut self.stags, &mut qp.reads, acknowledged);
                self.mark_dirty(index);
                Step::Next
            }
            Ok(Received::Terminated(error)) => Step::Terminated(error),
            Err(fault) => Step::Failed(fault.error, Some(fault)),
        }
    }

    /// An FPDU of `bad_octets` octets, as far as they are there, is wrong. MPA-8-08, C00-9-04: while TCP has
    /// not acknowledged it, it may simply be lost.
    pub(super) fn drop_or_fail(&mut self, index: u32, bad_octets: usize, error: MpaError) -> Step {
        if let Some(connection) = self.slots[index as usize].connection.as_mut()
            && let Mode::FullOperation(operating) = &mut connection.mode
            && operating.crc_retries < operating.crc_retries_max
            && connection.tcp.forget(&mut self.pools, 0, bad_octets)
        {
            operating.crc_retries += 1;
            self.statistics.count(DropCause::FpduCrc);
            return Step::Wait;
        }
        Step::Failed(StreamError::Mpa(error), None)
    }

    /// The stream has failed at this end: nothing more is placed or delivered, the peer gets one Terminate if
    /// it may. MPA leaves TCP open: it is RDMAP, whose stream is over, that closes the connection behind its
    /// Terminate.
    // Requirements: DDP-3-08, DDP-7.1-09, DDP-7.1-17, MPA-8-09, C00-9-05, RDMAP-7-01
    pub(super) fn fail_stream(
        &mut self,
        now: Instant,
        index: u32,
        error: StreamError,
        fault: Option<&Fault>,
    ) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if connection.told_closed {
            // Its queue pair is flushed, and control has had its last event of the connection.
            return;
        }
        let Mode::FullOperation(operating) = &mut connection.mode else { return };
        operating.failed = true;
        let octets = connection.tcp.received().available();
        connection.tcp.consume(&mut self.pools, octets);
        // Requirements: DDP-6.2.2-03, DDP-7.1-18, RDMAP-6.2.1-01
        let may_send = operating.may_send && connection.tcp.may_send();
        if let Some(qp) = self.qps.get_mut(operating.qp)
            && may_send
            && let Some(message) = terminate::message(error, fault)
        {
            qp.sender.terminate(message);
        }
        self.end_stream(now, index, error);
    }

    /// The peer's Terminate: what is outstanding has failed (RDMAP-6.2.1-02), and the connection closes gracefully.
    fn on_terminated(&mut self, now: Instant, index: u32, error: StreamError) {
        if let Some(connection) = self.slots[index as usize].connection.as_mut()
            && let Mode::FullOperation(operating) = &mut connection.mode
        {
            operating.failed = true;
            // RDMAP-5.4-05: we stop sending.
            operating.may_send = false;
        }
        self.end_stream(now, index, error);
    }

    /// MPA leaves TCP open after its errors, and DDP after its own. RDMAP, their ULP, closes it behind the
    /// Terminate, gracefully.
    // Requirements: C00-9-06, DDP-3-11, DDP-6.2-01, DDP-6.2-02, DDP-6.2.2-04, MPA-8-10
    fn end_stream(&mut self, now: Instant, index: u32, error: StreamError) {
        let id = self.id(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        let Some(qp_id) = connection.qp() else { return };
        if !connection.sends_stream() {
            connection.closing = true;
            connection.abort_within(now, limits::TERMINATE_LINGER_NS);
        }
        // Requirements: DDP-6.2.2-01, DDP-7-01, RDMAP-6.2.1-03, RDMAP-7.1-01
        self.statistics.streams_failed += 1;
        if let Some(qp) = self.qps.get_mut(qp_id) {
            qp.shared.set_error(error);
            qp.shared.set_state(QpState::Terminate);
            // Sends that are on their way keep their buffers until TCP is done with them.
            qp.receiver.flush(&qp.shared, &mut self.placed_sends, Some(error));
        }
        self.events.push(Event::StreamFailed { connection: id, qp: qp_id.number, error });
        self.mark_dirty(index);
    }

    /// The peer's FIN is in order, and its user is told. A-09: on an FPDU boundary a graceful half-close,
    /// inside an FPDU error 1.
    // Requirements: MPA-3-11, MPA-7.2-01, MPA-7.2-02, C00-8.2-01, DDP-3-09, DDP-3-10
    pub(super) fn on_peer_finished(&mut self, now: Instant, index: u32) {
        let id = self.id(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if connection.told_closed || core::mem::replace(&mut connection.told_finished, true) {
            return;
        }
        if let Mode::FullOperation(operating) = &connection.mode
            && operating.receives
            && !operating.failed
            && connection.tcp.received().available() > 0
        {
            return self.fail_stream(now, index, StreamError::Mpa(MpaError::TcpClosed), None);
        }
        if self.waits_for_answers(index) {
            // Nothing more comes, and so no answer.
            return self.fail_stream(now, index, StreamError::Mpa(MpaError::TcpClosed), None);
        }
        self.events.push(Event::PeerFinished { connection: id });
    }

    /// Whether this end waits for answers of a peer that sends nothing any more: it asked after the peer had finished.
    pub(super) fn asks_in_vain(&self, index: u32) -> bool {
        let connection = self.slots[index as usize].connection.as_ref();
        connection.is_some_and(|connection| connection.told_finished) && self.waits_for_answers(index)
    }

    /// Whether Reads or Atomic Operations of this end are not answered, on a stream that has not failed.
    fn waits_for_answers(&self, index: u32) -> bool {
        let Some(connection) = self.slots[index as usize].connection.as_ref() else { return false };
        let Mode::FullOperation(operating) = &connection.mode else { return false };
        let Some(qp) = self.qps.get(operating.qp) else { return false };
        operating.receives && !operating.failed && !qp.reads.outbound.is_empty()
    }

    /// Completes what TCP has acknowledged.
    pub(super) fn complete_sends(&mut self, index: u32) {
        self.release_stream(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if let Some(qp) = connection.qp().and_then(|id| self.qps.get_mut(id)) {
            let acknowledged = connection.tcp.acknowledged();
            qp.sender.complete(&qp.shared, &mut self.stags, &mut qp.reads, acknowledged);
        }
    }

    /// The connection is over for its users: the queue pair is freed of it and control is told, once.
    pub(super) fn on_closed(&mut self, index: u32) {
        let id = self.id(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if core::mem::replace(&mut connection.told_closed, true) {
            return;
        }
        if connection.receives_stream() {
            // Control has a copy of all it is to have.
            let octets = connection.tcp.received().available();
            connection.tcp.consume(&mut self.pools, octets);
            connection.lent_octets = 0;
        }
        let in_backlog = core::mem::take(&mut connection.in_backlog);
        let (listener, peer) = (connection.listener().filter(|_| in_backlog), connection.key.remote);
        let announced = connection.announced;
        let reason = match connection.tcp.state() {
            tcp::State::Closed => connection.tcp.close_reason(),
            tcp::State::TimeWait => CloseReason::Finished,
            // Its queue pair is destroyed, and it lingers for a Terminate.
            _ => CloseReason::Aborted,
        };
        if connection.awaits_receive() {
            // Nobody will post a receive for them.
            let octets = connection.tcp.received().available();
            connection.tcp.consume(&mut self.pools, octets);
        }
        // From here on neither names the other, whatever becomes of the slot and of the queue pair's number.
        if let Some(qp) = connection.qp().and_then(|id| self.qps.unbind(id)) {
            end_queue_pair(qp, &mut self.stags, &mut self.placed_sends, reason);
        }
        if announced {
            self.events.push(Event::Closed { connection: id, reason });
        } else if let Origin::Connect(token) = connection.origin {
            let error = match reason {
                CloseReason::Aborted | CloseReason::TimedOut if connection.unreachable => {
                    ConnectError::Unreachable
                }
                // What this end gave up before it was open has timed out.
                CloseReason::Aborted => ConnectError::Closed(CloseReason::TimedOut),
                reason => ConnectError::Closed(reason),
            };
            self.events.push(Event::ConnectFailed { token, error });
        }
        if let Some(listener) = listener {
            // What is left of it in TIME-WAIT is no reason to turn others away.
            self.no_longer_in_backlog(listener, peer, announced);
        }
    }
}

/// Flushes what is left. A connection that ended before it was closed by both ends is an error (MPA-8-01, DDP-6.2.2-01), and
/// each request that was posted is reported once (DDP-3-03, DDP-6.2.2-02).
fn end_queue_pair(
    qp: &mut QueuePair,
    stags: &mut StagTable,
    placed_sends: &mut OrderedPool<PlacedSegment>,
    reason: CloseReason,
) {
    let error = match reason {
        CloseReason::Finished => None,
        reason => Some(StreamError::Tcp(reason)),
    };
    if let Some(error) = error {
        qp.shared.set_error(error);
    }
    qp.shared.set_state(QpState::Error);
    let error = qp.shared.error().or(error);
    qp.flush(stags, placed_sends, error);
}
