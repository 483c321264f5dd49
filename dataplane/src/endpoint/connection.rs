//! A connection of a core: TCP, the meaning of its octets, and the notifications that control has received.

use crate::byte_stream::TransferCounters;
use crate::conn::{Keyed, ListenAddress, Scope, Stage};
use crate::net::flow::FlowKey;
use crate::tcp::{self, Unusual};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::holding_tracker::HoldingTracker;
use super::operating::Operating;
use super::send_stream::SendStream;
use super::stream_halves::StreamHalves;
use super::unconsumed::UnconsumedOctets;

/// The meaning of a connection's octets.
#[derive(Debug)]
pub enum Mode {
    /// Streaming octets, which control sends and receives.
    Streaming,
    /// FPDUs of a queue pair, in one direction at least.
    FullOperation(Operating),
    /// Octets of an application's byte stream.
    Bytes(Box<StreamHalves>),
    /// The queue pair is destroyed. Octets that arrive are dropped; those still to be sent are in
    /// [`Connection::stream`].
    Lingering {
        /// Octets that were kept at first.
        kept_octets: usize,
    },
}

/// Which end opened a connection (RFC 9293 §3.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenKind {
    /// The peer: a passive open, at the listener that names the local address with this scope.
    Passive(Scope),
    /// Control: an active open.
    Active {
        /// From the command; the event that reports the result carries it.
        token: u64,
    },
}

/// One connection of a core. The fields are in the order in which they are used in steady operation, so that
/// a segment, or serving the connection, needs the first cache lines only: with the eight octets before it in
/// the [table](crate::conn::Table), the first two lines end where TCP begins, whose first lines are hot
/// again.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    /// The meaning of its octets.
    pub mode: Mode,
    /// The time at which the connection is reset if it is not closed.
    pub abort_at: Instant,
    /// The time in which a disconnect expects progress, in nanoseconds: [`abort_at`](Self::abort_at) is its
    /// end, and each sign of progress restarts it unless the stream has failed. 0 without a disconnect or a
    /// limit, and if the deadline of a failed stream is the earlier one.
    pub close_within_ns: u64,
    /// Streaming octets that the peer has not acknowledged.
    pub stream: SendStream,
    /// The flow label of its IPv6 packets; 0 for IPv4.
    pub flow_label: u32,
    /// Its addresses and ports.
    pub key: FlowKey,
    /// Control was notified that the peer has finished, or that end was an error.
    pub finish_notified: bool,
    /// Control was notified that the connection is open.
    pub open_notified: bool,
    /// An ICMP error says that its SYN cannot arrive.
    pub unreachable: bool,
    /// It counts in the backlog of its [`listener`](Connection::listener).
    pub in_backlog: bool,
    /// An orderly close was requested; the FIN follows the work posted before.
    pub closing: bool,
    /// Control was notified that the connection is closed, and its queue pair has no connection any more.
    pub close_notified: bool,
    /// The TCP connection.
    pub tcp: tcp::Connection,
    /// How long it has held its fair share of the frames, or more.
    pub holding: HoldingTracker,
    /// Which end opened it.
    pub open_kind: OpenKind,
    /// Streaming octets that control has a copy of and has not consumed: the first of those in TCP's receive
    /// queue.
    pub unconsumed: UnconsumedOctets,
}

// The table has eight octets before it. Its size is an odd number of cache lines with them, so that the hot
// lines of many connections use all sets of a cache.
const _: () = {
    let before = size_of::<u64>();
    assert!((before + core::mem::offset_of!(Connection, tcp)).is_multiple_of(64));
    assert!((before + size_of::<Connection>()).div_ceil(64) % 2 == 1);
};

impl Keyed for Connection {
    #[inline]
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

impl Connection {
    /// Returns a connection whose handshake begins.
    pub fn new(key: FlowKey, flow_label: u32, open_kind: OpenKind, mut tcp: tcp::Connection) -> Self {
        tcp.enter_startup();
        Self {
            key,
            flow_label,
            open_kind,
            tcp,
            mode: Mode::Streaming,
            stream: SendStream::new(),
            unconsumed: UnconsumedOctets::NONE,
            holding: HoldingTracker::new(),
            finish_notified: false,
            open_notified: false,
            unreachable: false,
            in_backlog: matches!(open_kind, OpenKind::Passive(_)),
            closing: false,
            close_notified: false,
            abort_at: Instant::NEVER,
            close_within_ns: 0,
        }
    }

    /// Returns the address of the listener that accepted it.
    pub const fn listener(&self) -> Option<ListenAddress> {
        match self.open_kind {
            OpenKind::Passive(scope) => Some(ListenAddress::of(scope, self.key.local, self.key.local_port)),
            OpenKind::Active { .. } => None,
        }
    }

    /// Returns how far it has come in the backlog of its listener.
    pub const fn backlog_stage(&self) -> Stage {
        if self.open_notified { Stage::Starting } else { Stage::Opening }
    }

    /// Has the connection reset unless it closes, or something moves, within that time. An earlier deadline,
    /// of a stream that has failed, stays.
    pub fn close_within(&mut self, now: Instant, within_ns: Option<u64>) {
        let Some(within_ns) = within_ns.map(|within_ns| within_ns.max(1)) else { return };
        let deadline = now + within_ns;
        if deadline < self.abort_at {
            (self.abort_at, self.close_within_ns) = (deadline, within_ns);
        }
    }

    /// Has the connection reset `within_ns` from `now`, because its stream has failed. An earlier deadline,
    /// of a disconnect, stays. Nothing that moves until then changes the deadline.
    pub fn abort_within(&mut self, now: Instant, within_ns: u64) {
        let deadline = now + within_ns;
        if deadline <= self.abort_at {
            (self.abort_at, self.close_within_ns) = (deadline, 0);
        }
    }

    /// Handles the time of [`abort_at`](Self::abort_at): a disconnect times out unless both ends have closed
    /// by now, any other connection is reset. Returns what changes.
    pub fn end_in_time(&mut self) -> tcp::Changes {
        self.abort_at = Instant::NEVER;
        match self.tcp.state() {
            tcp::State::Closed => return tcp::Changes::empty(),
            tcp::State::TimeWait if self.close_within_ns > 0 => return tcp::Changes::empty(),
            _ if self.close_within_ns > 0 => self.tcp.give_up(),
            _ => self.tcp.abort(),
        }
        tcp::Changes::CLOSED
    }

    /// Records what a segment of the peer changed: a peer that still sends, or still acknowledges what we
    /// sent, is not abandoned. Its replies to our probes change nothing.
    #[inline]
    pub fn record_changes(&mut self, now: Instant, changes: tcp::Changes) {
        if self.close_within_ns > 0 && !changes.is_empty() && !self.has_fixed_deadline() {
            self.abort_at = (now + self.close_within_ns).min(self.orphan_until());
        }
    }

    /// Returns when the connection is reset, whatever moves, because the application of its byte stream has
    /// left.
    const fn orphan_until(&self) -> Instant {
        match &self.mode {
            Mode::Bytes(stream) => stream.orphan_until,
            Mode::Streaming | Mode::FullOperation(_) | Mode::Lingering { .. } => Instant::NEVER,
        }
    }

    /// Returns true if the application of its byte stream has left, and it is still counted.
    pub(super) fn is_orphan(&self) -> bool {
        self.orphan_until() != Instant::NEVER
    }

    /// Returns true if the connection is only open for the Terminate of a stream that has failed.
    const fn has_fixed_deadline(&self) -> bool {
        match &self.mode {
            Mode::Streaming | Mode::Bytes(_) => false,
            Mode::FullOperation(operating) => operating.failed && operating.sends,
            Mode::Lingering { .. } => true,
        }
    }

    /// Returns the time at which the stream fails if no FPDU has arrived. A peer that sends no more FPDUs is
    /// not waited for.
    pub const fn fpdu_due(&self) -> Instant {
        match &self.mode {
            Mode::FullOperation(operating)
                if !operating.may_send && !self.closing && !self.finish_notified =>
            {
                operating.silent_until
            }
            _ => Instant::NEVER,
        }
    }

    /// Begins to wait for the peer's first FPDU if ours was sent.
    pub fn await_first_fpdu(&mut self, now: Instant) {
        let end = self.tcp.queued_end();
        if let Mode::FullOperation(operating) = &mut self.mode
            && end != operating.send_start
        {
            operating.await_first_fpdu(now);
        }
    }

    /// Returns when a peer that is silent is to be nudged. One that has finished sends nothing any more.
    pub const fn nudge_due(&self) -> Instant {
        match &self.mode {
            Mode::FullOperation(operating) if !self.closing && !self.finish_notified && !operating.failed => {
                operating.nudge_due()
            }
            _ => Instant::NEVER,
        }
    }

    /// Returns true if what we send are streaming octets.
    pub const fn sends_stream(&self) -> bool {
        match &self.mode {
            Mode::Streaming | Mode::Lingering { .. } => true,
            Mode::FullOperation(operating) => !operating.sends,
            Mode::Bytes(_) => false,
        }
    }

    /// Returns true if what we receive are streaming octets.
    pub const fn receives_stream(&self) -> bool {
        match &self.mode {
            Mode::Streaming => true,
            Mode::FullOperation(operating) => !operating.receives,
            Mode::Bytes(_) | Mode::Lingering { .. } => false,
        }
    }

    /// Returns the place after everything that is to be sent so far.
    pub fn send_end(&self) -> SeqNumber {
        self.tcp.queued_end() + self.stream.unqueued_octets()
    }

    /// Returns how many streaming octets have arrived in order of which control has no copy.
    pub fn uncopied_octets(&self) -> usize {
        if self.receives_stream() { self.unconsumed.uncopied(self.tcp.received().available()) } else { 0 }
    }

    /// Returns how many streaming octets control may have a copy of now, if there is room for events.
    pub fn octets_for_control(&self) -> usize {
        if self.receives_stream() { self.unconsumed.room_for(self.tcp.received().available()) } else { 0 }
    }

    /// Returns true if octets have arrived in order that its user has not got yet. The user is notified of
    /// the peer's FIN after those octets.
    pub fn has_pending_octets(&self) -> bool {
        self.uncopied_octets() > 0 || self.awaits_receive() || self.has_pending_bytes()
    }

    /// Returns true if octets have arrived in order that its byte stream has no room for yet.
    fn has_pending_bytes(&self) -> bool {
        matches!(self.mode, Mode::Bytes(_)) && self.tcp.received().available() > 0
    }

    /// Returns true if its octets are those of an application's byte stream.
    pub const fn carries_bytes(&self) -> bool {
        matches!(self.mode, Mode::Bytes(_))
    }

    /// Returns what became of the segments with the TCP RDMA option that it has received.
    pub fn transfer_counters(&self) -> TransferCounters {
        match &self.mode {
            Mode::Bytes(stream) => *stream.inbound.counters(),
            _ => TransferCounters::default(),
        }
    }

    /// Returns true if its application has written octets that TCP does not have yet.
    pub(super) fn has_unqueued_bytes(&self) -> bool {
        matches!(&self.mode, Mode::Bytes(stream) if stream.outbound.unqueued_octets() > 0)
    }

    /// Returns true if the peer has finished and control has not been notified of that.
    pub const fn has_unnotified_finish(&self) -> bool {
        self.tcp.peer_finished() && !self.finish_notified
    }

    /// Returns true if TCP is closed because both ends have finished.
    pub fn has_finished(&self) -> bool {
        self.tcp.state() == tcp::State::Closed && self.tcp.close_reason() == tcp::CloseReason::Finished
    }

    /// Returns true if the handshake is not complete.
    pub fn is_opening(&self) -> bool {
        matches!(self.tcp.state(), tcp::State::SynSent | tcp::State::SynReceived)
    }

    /// Returns true if the connection is over but for TIME-WAIT.
    pub fn is_only_in_time_wait(&self) -> bool {
        self.tcp.state() == tcp::State::TimeWait
            && self.close_notified
            && self.tcp.received().available() == 0
    }

    /// Returns true if a message waits for a receive.
    pub const fn awaits_receive(&self) -> bool {
        match &self.mode {
            Mode::FullOperation(operating) => operating.awaits_receive && !operating.failed,
            Mode::Streaming | Mode::Bytes(_) | Mode::Lingering { .. } => false,
        }
    }

    /// Computes the rare conditions of the connection anew, after a step that may have ended some.
    #[inline(never)]
    pub fn review(&mut self) {
        self.tcp.unusual = self.unusual_recomputed();
    }

    /// Returns true if no condition is missing in the word: debug builds ask whenever it is served.
    pub fn has_all_conditions(&self) -> bool {
        self.tcp.unusual.contains(self.unusual_recomputed())
    }

    fn unusual_recomputed(&self) -> Unusual {
        let bit = |bit: Unusual, holds: bool| if holds { bit } else { Unusual::empty() };
        let streams = self.sends_stream() || self.receives_stream() || self.stream.unqueued_octets() > 0;
        let ends = self.closing || self.abort_at != Instant::NEVER;
        let mut found = self.tcp.unusual_recomputed()
            | bit(Unusual::STREAMING, streams)
            | bit(Unusual::FAILED, self.close_notified)
            | bit(Unusual::CLOSING, ends);
        if let Mode::FullOperation(operating) = &self.mode {
            found |= bit(Unusual::FAILED, operating.failed)
                | bit(Unusual::SILENT_PEER, operating.awaits_first_fpdu())
                | bit(Unusual::AWAITS_RECEIVE, operating.awaits_receive);
        }
        found
    }
}
