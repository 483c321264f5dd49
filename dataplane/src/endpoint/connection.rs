//! A connection of a core: TCP, the meaning of its octets, and the notifications that control has received.

use crate::byte_stream::TransferCounters;
use crate::conn::{Keyed, ListenAddress, Scope, Stage};
use crate::net::flow::FlowKey;
use crate::statistics::Statistics;
use crate::tcp::send_queue::Segment;
use crate::tcp::{self, Unusual};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::abort_timer::AbortTimer;
use super::chunk::Chunk;
use super::holding_tracker::HoldingTracker;
use super::mode::Mode;
use super::send_stream::SendStream;
use super::unconsumed::UnconsumedOctets;

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
    /// When the connection is reset if it is not closed.
    pub abort_timer: AbortTimer,
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
            abort_timer: AbortTimer::STOPPED,
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

    /// Records what a segment of the peer changed: a peer that still sends, or still acknowledges what we
    /// sent, is not abandoned. Its replies to our probes change nothing.
    #[inline]
    pub fn record_changes(&mut self, now: Instant, changes: tcp::Changes) {
        if self.abort_timer.awaits_progress() && !changes.is_empty() && !self.mode.has_fixed_deadline() {
            self.abort_timer.restart(now, self.mode.orphan_until());
        }
    }

    /// Returns the time at which the stream fails, once, if no FPDU has arrived. A peer that sends no more
    /// FPDUs is not waited for, nor one for which this end has nothing more than its FIN.
    pub const fn fpdu_due(&self) -> Instant {
        match &self.mode {
            Mode::FullOperation(operating)
                if !operating.may_send
                    && !operating.failed
                    && !self.finish_notified
                    && (!self.closing || self.tcp.may_send()) =>
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

    /// Returns the place after everything that is to be sent so far.
    pub fn send_end(&self) -> SeqNumber {
        self.tcp.queued_end() + self.stream.unqueued_octets()
    }

    /// Copies the octets of `segment`, which are no FPDUs, to `out`. Returns false if they cannot be had.
    #[inline]
    pub(super) fn copy_octets(
        &self,
        segment: &Segment<Chunk>,
        out: &mut [u8],
        statistics: &mut Statistics,
    ) -> bool {
        match (&segment.payload, &self.mode) {
            (Chunk::Stream, _) => self.stream.copy(segment.seq, out),
            (Chunk::Bytes(_), Mode::Bytes(halves)) => {
                statistics.bytes_copied_tx += out.len() as u64;
                halves.outbound.copy(segment.seq, out)
            }
            _ => false,
        }
    }

    /// Returns how many streaming octets have arrived in order of which control has no copy.
    pub fn uncopied_octets(&self) -> usize {
        if self.mode.receives_stream() {
            self.unconsumed.uncopied(self.tcp.received().available())
        } else {
            0
        }
    }

    /// Returns how many streaming octets control may have a copy of now, if there is room for events.
    pub fn octets_for_control(&self) -> usize {
        if self.mode.receives_stream() {
            self.unconsumed.copyable(self.tcp.received().available())
        } else {
            0
        }
    }

    /// Returns true if octets have arrived in order that its user has not got yet. The user is notified of
    /// the peer's FIN after those octets.
    pub fn has_pending_octets(&self) -> bool {
        self.uncopied_octets() > 0 || self.mode.awaits_receive() || self.has_pending_bytes()
    }

    /// Returns true if octets have arrived in order that its byte stream has no room for yet.
    fn has_pending_bytes(&self) -> bool {
        self.mode.carries_bytes() && self.tcp.received().available() > 0
    }

    /// Returns what became of the segments with the TCP RDMA option that it has received.
    pub fn transfer_counters(&self) -> TransferCounters {
        match &self.mode {
            Mode::Bytes(stream) => *stream.inbound.counters(),
            _ => TransferCounters::default(),
        }
    }

    /// Returns true if it has no rare condition, and its queue pair has nothing to send.
    #[inline]
    pub(super) fn has_no_work(&self) -> bool {
        self.tcp.unusual.is_empty() && !self.may_have_work()
    }

    /// Has it ask its queue pair for something to send when it is served next: requests were posted.
    #[inline]
    pub(crate) const fn expect_work(&mut self) {
        if let Mode::FullOperation(operating) = &mut self.mode {
            operating.may_have_work = true;
        }
    }

    /// Returns false if nothing has come to its queue pair since all of that was queued to TCP.
    #[inline]
    pub(super) fn may_have_work(&self) -> bool {
        !matches!(&self.mode, Mode::FullOperation(operating) if !operating.may_have_work)
    }

    /// Returns true if its application has written octets that TCP does not have yet.
    pub(super) fn has_unqueued_bytes(&self) -> bool {
        matches!(&self.mode, Mode::Bytes(stream) if stream.outbound.has_unqueued())
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
        let streams =
            self.mode.sends_stream() || self.mode.receives_stream() || self.stream.unqueued_octets() > 0;
        let ends = self.closing || self.abort_timer.is_running();
        let mut found = Unusual::of(&self.tcp)
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
