//! The state of a connection in Full Operation for its stream of FPDUs, besides TCP and its queue pair.

use crate::limits;
use crate::mpa::Framing;
use crate::mpa::receiver::FpduReceiver;
use crate::qp::async_event::AsyncEvent;
use crate::qp::run::SegmentRoom;
use crate::qp::shared::SharedQp;
use crate::ring::{Direction, FullOperation};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::nudge::Nudges;

/// The state of a connection in Full Operation.
#[derive(Debug)]
pub struct Operating {
    /// The slot of the queue pair whose stream it carries.
    pub qp_slot: u32,
    /// What we send are FPDUs; streaming octets otherwise.
    // Requirements: C00-8.1-02
    pub sends: bool,
    /// What we receive are FPDUs; streaming octets otherwise.
    // Requirements: C00-8.1-02
    pub receives: bool,
    /// Locates FPDUs in the octets that arrive.
    pub fpdus: FpduReceiver,
    /// Where Full Operation began in the stream we send: the place of the first Marker.
    // Requirements: MPA-4.3-06
    pub send_start: SeqNumber,
    /// We insert Markers.
    pub markers_sent: bool,
    /// CRCs are in use.
    pub crc: bool,
    /// Small FPDUs may share a segment.
    pub packing: bool,
    /// Its queue pair may have something to send. Without it a connection that is served, for an
    /// acknowledgement that it owes, does not touch the queue pair. Set with whatever gives it work.
    pub may_have_work: bool,
    /// FPDUs may be sent: at once for the Initiator, after the first valid FPDU for the Responder.
    // Requirements: MPA-7.1.2-15
    pub may_send: bool,
    /// How many FPDUs in a row were dropped at the same place because of their CRC.
    pub crc_retries: u8,
    /// How many may be, before that is an error.
    // Requirements: MPA-8-08
    pub crc_retries_max: u8,
    /// The end of the time in which the peer's first FPDU is expected; `NEVER` without a limit, and once it
    /// has arrived. The stream then fails if this end may not send before that FPDU; otherwise the next nudge
    /// is sent.
    // Requirements: MPA-7.1.2-26
    pub silent_until: Instant,
    /// The nudges that such a peer is sent.
    pub nudges: Nudges,
    /// A message waits for a receive; nothing after it is consumed before one is posted or the wait expires.
    pub awaits_receive: bool,
    /// The connection is in the list of those that wait for a shared receive queue.
    pub awaits_shared_receive: bool,
    /// The stream has failed: octets that still arrive are dropped, and only a Terminate is sent.
    // Requirements: DDP-3-08, DDP-7.1-17, MPA-8-09
    pub failed: bool,
}

impl Operating {
    /// Returns Full Operation of the queue pair in `qp_slot` in both directions, from `send_start` on in the
    /// stream we send.
    pub fn new(qp_slot: u32, operation: FullOperation, send_start: SeqNumber) -> Self {
        Self {
            qp_slot,
            sends: true,
            receives: true,
            fpdus: FpduReceiver::new(Framing { markers: operation.markers_received, crc: operation.crc }),
            send_start,
            markers_sent: operation.markers_sent,
            crc: operation.crc,
            packing: operation.packing,
            may_have_work: true,
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

    /// Returns Full Operation of draft-culley-iwarp-mpa-00, which has begun in no direction yet:
    /// [`start`](Self::start) begins it. `operation` is [`FullOperation::unnegotiated`], with Markers and
    /// CRCs.
    // Requirements: C00-7.1-01, C00-7.2-01, C00-8.1-02
    pub fn unnegotiated(qp_slot: u32, operation: FullOperation, send_start: SeqNumber) -> Self {
        Self { sends: false, receives: false, may_send: false, ..Self::new(qp_slot, operation, send_start) }
    }

    /// Begins Full Operation in `direction`. Either end may send first, but no FPDU of a stream that has
    /// failed (RFC 5040 §5.4, RFC 5041 §7.1). Returns true if this end begins to send.
    // Requirements: C00-8.1-06, DDP-7.1-17, RDMAP-5.4-05
    pub fn start(&mut self, direction: Direction, send_start: SeqNumber) -> bool {
        let begins_to_send = direction.sends() && !self.sends;
        if begins_to_send {
            (self.sends, self.may_send, self.send_start) = (true, !self.failed, send_start);
        }
        self.receives |= direction.receives();
        begins_to_send
    }

    /// Has the stream fail unless an FPDU arrives within `within_ns`, if this end may not send before it.
    pub fn expect_fpdu(&mut self, now: Instant, within_ns: Option<u64>) {
        if let Some(within_ns) = within_ns.filter(|_| !self.may_send) {
            self.silent_until = now + within_ns;
        }
    }

    /// Returns where in the stream of Full Operation that we send `seq` lies, modulo 2^32: Markers need it
    /// modulo 512.
    #[inline]
    pub fn position_of(&self, seq: SeqNumber) -> u64 {
        u64::from((seq - self.send_start) as u32)
    }

    /// Returns the framing of the FPDUs that we send.
    pub const fn send_framing(&self) -> Framing {
        Framing { markers: self.markers_sent, crc: self.crc }
    }

    /// Returns the room for FPDUs in the segment of up to `emss_octets` that begins at `begin`, on a device
    /// that does or does not accept payload by reference.
    pub fn segment_room(&self, begin: SeqNumber, emss_octets: usize, by_reference: bool) -> SegmentRoom {
        SegmentRoom {
            position: self.position_of(begin),
            emss_octets,
            markers: self.markers_sent,
            packing: self.packing,
            single_from: if by_reference && !self.markers_sent {
                limits::BY_REFERENCE_MIN_BYTES
            } else {
                u32::MAX
            },
        }
    }

    /// Returns true if our FPDUs wait for the peer's first one, which may still come.
    pub(super) const fn awaits_peer(&self) -> bool {
        self.sends && self.receives && !self.may_send && !self.failed
    }

    /// Returns true if our FPDUs wait for the peer's first one, or the wait for it is to begin with our first
    /// one.
    pub(super) fn awaits_first_fpdu(&self) -> bool {
        !self.may_send || (!self.nudges.are_over() && self.silent_until == Instant::NEVER)
    }

    /// Records an FPDU that is valid for MPA. It lets us send, whether or not it is valid for DDP.
    pub fn on_fpdu(&mut self, qp: &SharedQp) {
        self.silent_until = Instant::NEVER;
        self.nudges = Nudges::NONE;
        if self.sends && !core::mem::replace(&mut self.may_send, true) {
            qp.report(AsyncEvent::CommunicationEstablished { qp: qp.number });
        }
    }
}
