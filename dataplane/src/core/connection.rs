//! A connection of a core: TCP, and what its octets mean.

use crate::limits;
use crate::mpa::Framing;
use crate::mpa::receiver::FpduReceiver;
use crate::net::flow::FlowKey;
use crate::qp::async_event::AsyncEvent;
use crate::qp::run::{FpduRun, SegmentRoom};
use crate::qp::shared::SharedQp;
use crate::tcp;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::listeners::{ListenAddress, Scope};
use super::nudge::Nudges;
use super::queue_pairs::QpId;
use super::ring::{Direction, FullOperation};
use super::send_stream::SendStream;
use super::shortage::Standstill;

/// What a TCP segment's octets are built from.
#[derive(Clone, Copy, Debug)]
pub enum Chunk {
    /// Streaming octets: those that [`Connection::stream`] keeps for the segment's place.
    Stream,
    /// FPDUs, whole ones.
    Fpdus(FpduRun),
}

/// What the octets of a connection mean.
#[derive(Debug)]
pub enum Mode {
    /// Streaming octets, handed to control.
    Streaming,
    /// FPDUs of a queue pair, in one direction at least.
    FullOperation(Operating),
    /// The queue pair is gone. What comes is dropped; what is sent is kept in [`Connection::stream`].
    Lingering {
        /// Octets that were kept at first.
        kept_octets: usize,
    },
}

/// A connection in Full Operation.
#[derive(Debug)]
pub struct Operating {
    /// The queue pair's stream.
    pub qp: QpId,
    /// What we send are FPDUs; streaming octets otherwise (C00-8.1-02).
    pub sends: bool,
    /// What we receive are FPDUs; streaming octets otherwise (C00-8.1-02).
    pub receives: bool,
    /// Finds FPDUs in what arrives.
    pub fpdus: FpduReceiver,
    /// Where Full Operation began in the stream we send: the place of the first Marker (MPA-4.3-06).
    pub send_start: SeqNumber,
    /// We insert Markers.
    pub markers_sent: bool,
    /// CRCs are in use.
    pub crc: bool,
    /// Small FPDUs may share a segment.
    pub packing: bool,
    /// FPDUs may be sent: at once for the Initiator, after the first valid FPDU for the Responder (MPA-7.1.2-15).
    pub may_send: bool,
    /// FPDUs dropped in a row at the same place because of their CRC.
    pub crc_retries: u8,
    /// How often that may be, before it is an error (MPA-8-08).
    pub crc_retries_max: u8,
    /// When something is done about a peer of which no FPDU has come: while this end may not send, the stream fails
    /// (MPA-7.1.2-26); while it may, the peer is nudged.
    pub silent_until: Instant,
    /// What such a peer is sent.
    pub nudges: Nudges,
    /// A message waits for a receive, and is not looked at before something has changed for it.
    pub awaits_receive: bool,
    /// It is in the list of those that wait for a shared receive queue.
    pub awaits_shared_receive: bool,
    /// The stream has failed: what still comes is dropped (DDP-3-08, DDP-7.1-17, MPA-8-09), and nothing but a Terminate is sent.
    pub failed: bool,
}

impl Operating {
    /// Full Operation from here on, in both directions.
    pub fn new(operation: FullOperation, qp: QpId, send_start: SeqNumber) -> Self {
        Self {
            qp,
            sends: true,
            receives: true,
            fpdus: FpduReceiver::new(Framing { markers: operation.markers_received, crc: operation.crc }),
            send_start,
            markers_sent: operation.markers_sent,
            crc: operation.crc,
            packing: operation.packing,
            may_send: operation.initiator,
            crc_retries: 0,
            crc_retries_max: operation.crc_retries,
            silent_until: Instant::NEVER,
            nudges: Nudges::new(operation.nudges && operation.initiator),
            awaits_receive: false,
            awaits_shared_receive: false,
            failed: false,
        }
    }

    /// As draft-culley-iwarp-mpa-00 has it: Markers and CRCs always, and no half in Full Operation before
    /// [`start`](Self::start) (C00-7.1-01, C00-7.2-01, C00-8.1-02).
    pub fn unnegotiated(operation: FullOperation, qp: QpId, send_start: SeqNumber) -> Self {
        Self { sends: false, receives: false, may_send: false, ..Self::new(operation, qp, send_start) }
    }

    /// Full Operation from here on in `direction`. Either end may send first (C00-8.1-06).
    pub fn start(&mut self, direction: Direction, send_start: SeqNumber) {
        if direction.sends() && !self.sends {
            (self.sends, self.may_send, self.send_start) = (true, true, send_start);
        }
        self.receives |= direction.receives();
    }

    /// The segment of up to `emss_octets` that begins at `begin` of the stream we send, on a device that takes payload by
    /// reference or does not.
    pub fn segment_room(&self, begin: SeqNumber, emss_octets: usize, by_reference: bool) -> SegmentRoom {
        SegmentRoom {
            position: u64::from((begin - self.send_start) as u32),
            emss_octets,
            markers: self.markers_sent,
            packing: self.packing,
            alone_from: if by_reference && !self.markers_sent {
                limits::BY_REFERENCE_MIN_OCTETS
            } else {
                u32::MAX
            },
        }
    }
}

impl Operating {
    /// An FPDU has come that is valid for MPA. A-08: whatever DDP says of it, it lets us send.
    pub fn on_fpdu(&mut self, qp: &SharedQp) {
        self.silent_until = Instant::NEVER;
        self.nudges = Nudges::NONE;
        if self.sends && !core::mem::replace(&mut self.may_send, true) {
            qp.report(AsyncEvent::CommunicationEstablished { qp: qp.number });
        }
    }
}

/// Who asked for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A peer, at the listener that names the local address and port like that.
    Accepted(Scope),
    /// Control, with this token.
    Connect(u64),
}

/// One connection of a core.
#[derive(Debug)]
pub struct Connection {
    /// Its four numbers.
    pub key: FlowKey,
    /// The flow label of its IPv6 packets; 0 for IPv4.
    pub flow_label: u32,
    /// Who asked for it.
    pub origin: Origin,
    /// The TCP connection.
    pub tcp: tcp::Connection,
    /// What its octets mean.
    pub mode: Mode,
    /// Streaming octets that the peer has not acknowledged.
    pub stream: SendStream,
    /// Streaming octets that control has a copy of and has not taken: the first of those that TCP has.
    pub lent_octets: u32,
    /// How long it has held frames without progress.
    pub standstill: Standstill,
    /// Control was told that the peer has finished.
    pub told_finished: bool,
    /// Control knows of the connection: it was told of its opening.
    pub announced: bool,
    /// It is in the list of connections that may have something to send.
    pub dirty: bool,
    /// An ICMP error says that its SYN cannot arrive.
    pub unreachable: bool,
    /// It counts in the backlog of its [`listener`](Connection::listener).
    pub in_backlog: bool,
    /// An orderly close was asked for; the FIN follows what was posted before.
    pub closing: bool,
    /// Control was told that the connection is over, and its queue pair is free of it.
    pub told_closed: bool,
    /// When the connection is reset if it is not closed by then.
    pub abort_at: Instant,
    /// The time that a disconnect gives the peer, in nanoseconds, counted anew with each sign of progress:
    /// [`abort_at`](Self::abort_at) is its end. 0 without a disconnect or a limit.
    pub close_within_ns: u64,
}

impl Connection {
    /// A connection at its beginning.
    pub fn new(key: FlowKey, flow_label: u32, origin: Origin, tcp: tcp::Connection) -> Self {
        Self {
            key,
            flow_label,
            origin,
            tcp,
            mode: Mode::Streaming,
            stream: SendStream::new(),
            lent_octets: 0,
            standstill: Standstill::new(),
            told_finished: false,
            announced: false,
            dirty: false,
            unreachable: false,
            in_backlog: matches!(origin, Origin::Accepted(_)),
            closing: false,
            told_closed: false,
            abort_at: Instant::NEVER,
            close_within_ns: 0,
        }
    }

    /// The listener that took it.
    pub const fn listener(&self) -> Option<ListenAddress> {
        match self.origin {
            Origin::Accepted(scope) => Some(ListenAddress::of(scope, self.key.local, self.key.local_port)),
            Origin::Connect(_) => None,
        }
    }

    /// A disconnect was asked for: the connection is reset unless it closes, or something moves, within that
    /// time. A stream that has failed keeps its own deadline.
    pub fn close_within(&mut self, now: Instant, within_ns: Option<u64>) {
        if self.abort_at == Instant::NEVER
            && let Some(within_ns) = within_ns
        {
            self.close_within_ns = within_ns.max(1);
            self.abort_at = now + self.close_within_ns;
        }
    }

    /// The connection is reset `within_ns` from `now`, whatever moves until then.
    pub fn abort_within(&mut self, now: Instant, within_ns: u64) {
        self.close_within_ns = 0;
        self.abort_at = now + within_ns;
    }

    /// The time of [`abort_at`](Self::abort_at) has come. Returns what that leads to: a disconnect times out
    /// unless both ends have closed by now, anything else is reset.
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

    /// Notes what a segment of the peer led to: one that still sends, or still acknowledges what we sent, is
    /// not given up. Its answers to our probes are no progress.
    #[inline]
    pub fn note_progress(&mut self, now: Instant, progress: tcp::Changes) {
        if self.close_within_ns > 0 && !progress.is_empty() {
            self.abort_at = now + self.close_within_ns;
        }
    }

    /// When the stream fails if no FPDU has come by then. A peer that owes none is not waited for.
    pub const fn fpdu_due(&self) -> Instant {
        match &self.mode {
            Mode::FullOperation(operating) if !operating.may_send && !self.closing && !self.told_finished => {
                operating.silent_until
            }
            _ => Instant::NEVER,
        }
    }

    /// Begins to wait for the peer's first FPDU if ours is on its way.
    pub fn expect_answer(&mut self, now: Instant) {
        let end = self.tcp.queued_end();
        if let Mode::FullOperation(operating) = &mut self.mode
            && end != operating.send_start
        {
            operating.expect_answer(now);
        }
    }

    /// When a peer that is silent is to be nudged. One that has finished has nothing to say.
    pub const fn nudge_due(&self) -> Instant {
        match &self.mode {
            Mode::FullOperation(operating) if !self.closing && !self.told_finished && !operating.failed => {
                operating.nudge_due()
            }
            _ => Instant::NEVER,
        }
    }

    /// Whether what we send are streaming octets.
    pub const fn sends_stream(&self) -> bool {
        match &self.mode {
            Mode::Streaming | Mode::Lingering { .. } => true,
            Mode::FullOperation(operating) => !operating.sends,
        }
    }

    /// Whether what we receive are streaming octets.
    pub const fn receives_stream(&self) -> bool {
        match &self.mode {
            Mode::Streaming => true,
            Mode::FullOperation(operating) => !operating.receives,
            Mode::Lingering { .. } => false,
        }
    }

    /// The place after everything that is to be sent so far.
    pub fn send_end(&self) -> SeqNumber {
        self.tcp.queued_end() + self.stream.unqueued_octets()
    }

    /// Streaming octets that control has no copy of.
    pub fn unlent_octets(&self) -> usize {
        if self.receives_stream() {
            self.tcp.received().available().saturating_sub(self.lent_octets as usize)
        } else {
            0
        }
    }

    /// Whether it has octets in order that are for its users and not theirs yet: its end comes to them behind
    /// those.
    pub fn holds_back(&self) -> bool {
        self.unlent_octets() > 0 || self.awaits_receive()
    }

    /// The stream of the queue pair it serves, or served.
    pub fn qp(&self) -> Option<QpId> {
        match &self.mode {
            Mode::FullOperation(operating) => Some(operating.qp),
            Mode::Streaming | Mode::Lingering { .. } => None,
        }
    }
}
