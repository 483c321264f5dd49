//! A peer that breaks the rules of MPA, DDP and RDMAP: each fault gives the documented error to the application and the
//! documented Terminate to the peer, closes the connection, and writes no octet outside what was granted.

mod common;

use std::sync::Arc;

use common::raw::{PEER_ISS, RawPeer};
use common::{PD, QP, holds, region_of};
use warpline_dataplane::core::ring::{AfterStream, Command, ConnectionId, Event, FullOperation};
use warpline_dataplane::core::statistics::DropCause;
use warpline_dataplane::crc32c;
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, QpState, SharedQp};
use warpline_dataplane::qp::work::{ReceiveRequest, Slice, Status};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::wire::ddp::{Header as DdpHeader, Tagged, Untagged};
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

const WRITABLE: STag = STag::new(2, 0x2222);
const READABLE: STag = STag::new(3, 0x3333);
const FOREIGN: STag = STag::new(4, 0x4444);
const INBOX: STag = STag::new(5, 0x5555);
const REGION_OCTETS: usize = 256;
const BASE_TO: u64 = 0x1000;
const INBOX_OCTETS: u32 = 16;

/// A core in Full Operation as Responder, with memory whose contents are known.
struct Target {
    peer: RawPeer,
    connection: ConnectionId,
    qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    regions: Vec<(Region, Vec<u8>)>,
    /// Where the peer's next octet goes, and what it acknowledges.
    seq: SeqNumber,
    ack: SeqNumber,
}

impl Target {
    fn new() -> Self {
        Self::with(FullOperation::new(QP, false))
    }

    /// In Full Operation as `operation` says.
    fn with(operation: FullOperation) -> Self {
        let mut peer = RawPeer::new();
        let next = peer.accept(Options::default());
        let completions = Arc::new(CompletionRing::new(64));
        let rings = (completions.clone(), completions.clone());
        let qp = Arc::new(SharedQp::new(QP, PD, (8, 8), rings, peer.rings.doorbells.clone()));
        peer.command(Command::CreateQp(qp.clone()));
        let mut regions = Vec::new();
        let grants = [
            (WRITABLE, PD, Access::REMOTE_WRITE, BASE_TO),
            (READABLE, PD, Access::REMOTE_READ, BASE_TO),
            (FOREIGN, ProtectionDomainId(9), Access::REMOTE_WRITE, BASE_TO),
            (INBOX, PD, Access::LOCAL_WRITE, 0),
        ];
        for (stag, pd, access, base_to) in grants {
            let octets = vec![0xa5; REGION_OCTETS];
            let region = region_of(&octets);
            peer.command(Command::Register { stag, grant: Grant::new(region.clone(), pd, base_to, access) });
            regions.push((region, octets));
        }
        let local = Slice { stag: INBOX, to: 0, octets: INBOX_OCTETS };
        qp.post_receive(ReceiveRequest::new(1, local)).unwrap();
        let connection = peer.accepted.unwrap();
        peer.command(Command::Stream {
            connection,
            octets: Box::new([]),
            then: AfterStream::FullOperation(operation),
        });
        peer.settle();
        Self { peer, connection, qp, completions, regions, seq: PEER_ISS + 1, ack: next }
    }

    fn send(&mut self, octets: &[u8]) {
        for part in octets.chunks(1460) {
            self.peer.send(Flags::ACK, self.seq, self.ack, part);
            self.seq += part.len() as u32;
        }
    }

    /// A valid FPDU first, so that this end may send (MPA-7.1.2-15): an empty Write.
    fn open(&mut self) {
        self.send(&fpdu(&write(STag(0), 0, b"")));
        assert_eq!(self.qp.state(), QpState::ReadyToSend);
        self.peer.sent.clear();
    }

    /// The data the core has sent since the last look, and whether a FIN came with it.
    fn sent(&mut self) -> (Vec<u8>, bool) {
        let mut data = Vec::new();
        let mut fin = false;
        for sent in self.peer.sent.drain(..) {
            assert!(!sent.header.flags.contains(Flags::RST), "closed, not reset");
            fin |= sent.header.flags.contains(Flags::FIN);
            data.extend_from_slice(&sent.payload);
        }
        (data, fin)
    }

    /// Sends `octets`, which must end the stream with `error` and the Terminate whose control word is `control`; with the
    /// faulty segment's header in it when `named` says so. The error is the application's to see (DDP-7-01, RDMAP-7.1-01), the
    /// one message that may still go out is the Terminate (DDP-6.2-01, DDP-6.2.2-03, DDP-6.2.2-04, DDP-7.1-18), and RDMAP then
    /// closes the connection, whose only stream this was (DDP-3-11, DDP-6.2-02, RDMAP-6.2.1-03).
    fn expect(mut self, octets: &[u8], error: StreamError, control: [u8; 4], named: Option<&[u8]>) {
        self.send(octets);
        assert_eq!(self.qp.error(), Some(error));
        assert_eq!(self.qp.state(), QpState::Error);
        let failed =
            self.peer.events.iter().any(
                |event| matches!(event, Event::StreamFailed { qp: QP, error: told, .. } if *told == error),
            );
        assert!(failed, "control was not told: {:?}", self.peer.events);
        let (data, fin) = self.sent();
        assert!(fin, "the connection closes");
        // RDMAP-5.4-01, RDMAP-4.8-01: a Terminate on queue 2 with MSN 1, and nothing after it (RDMAP-5.4-04). DDP-7.1-16: with
        // the header and length of the segment.
        let mut payload = control.to_vec();
        if let Some(segment) = named {
            let header_octets = if segment[0] & 0x80 != 0 { 14 } else { 18 };
            payload.extend((segment.len() as u16).to_be_bytes());
            payload.extend(&segment[..header_octets]);
        }
        let mut terminate = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        terminate.extend(payload);
        assert_eq!(data, fpdu(&terminate), "{error}");
        self.expect_untouched();
        // MPA-8-09, C00-9-05, DDP-3-08, DDP-7.1-15, DDP-7.1-17, RDMAP-7-01: what comes after the error goes nowhere.
        let before = self.peer.core.statistics().fpdus_received;
        self.send(&fpdu(&write(WRITABLE, BASE_TO, b"too late")));
        assert_eq!(self.peer.core.statistics().fpdus_received, before);
        self.expect_untouched();
        let status = self.completions.poll().map(|completion| completion.status);
        assert_eq!(status, Some(Status::Flushed), "the posted receive is flushed");
    }

    fn expect_untouched(&self) {
        for (region, octets) in &self.regions {
            assert!(holds(region, 0, octets), "memory was written");
        }
    }
}

/// Frames a ULPDU by the document alone: length, ULPDU, pad, CRC.
fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend_from_slice(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    let crc = crc32c::checksum(&octets);
    octets.extend(crc.to_le_bytes());
    octets
}

fn tagged(stag: STag, to: u64, control: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; Tagged::LEN];
    DdpHeader::Tagged(Tagged { last: true, version: 1, rsvd_ulp: control[1], stag, to }).emit(&mut ulpdu);
    ulpdu[0] = control[0];
    ulpdu.extend_from_slice(payload);
    ulpdu
}

fn write(stag: STag, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(stag, to, [0xc1, 0x40], payload)
}

fn untagged(control: [u8; 2], queue: u32, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; Untagged::LEN];
    let header = Untagged { last: true, version: 1, rsvd_ulp: [control[1], 0, 0, 0, 0], queue, msn, mo };
    DdpHeader::Untagged(header).emit(&mut ulpdu);
    ulpdu[0] = control[0];
    ulpdu.extend_from_slice(payload);
    ulpdu
}

fn send(msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    untagged([0x41, 0x43], 0, msn, mo, payload)
}

/// The rule of the test itself: what is right is placed (DDP-5.2-04).
#[test]
fn what_is_right_is_placed() {
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&write(WRITABLE, BASE_TO + 240, b"0123456789abcdef")));
    target.send(&fpdu(&send(1, 0, b"a message")));
    assert_eq!(target.qp.error(), None);
    assert!(holds(&target.regions[0].0, 240, b"0123456789abcdef"), "to the last octet of the registration");
    assert!(holds(&target.regions[3].0, 0, b"a message"));
    let completion = target.completions.poll().unwrap();
    assert_eq!((completion.id, completion.status, completion.octets), (1, Status::Success, 9));
}

/// DDP-4.2-05, DDP-7.1-10 to DDP-7.1-14, DDP-7.2-01, DDP-8.2-01, DDP-8.1-01, RDMAP-7.1-02, RDMAP-7.2-01 to RDMAP-7.2-03: tagged
/// segments.
#[test]
fn bad_tagged_segments() {
    let ddp = |error| StreamError::Ddp(error);
    let cases = [
        (write(STag(0xdead_0002), BASE_TO, b"x"), ddp(DdpError::InvalidStag), [0x11, 0, 0xc0, 0]),
        (write(STag(0xdead_beef), BASE_TO, b"x"), ddp(DdpError::InvalidStag), [0x11, 0, 0xc0, 0]),
        (write(WRITABLE, BASE_TO + 256, b"x"), ddp(DdpError::BaseOrBounds), [0x11, 1, 0xc0, 0]),
        (write(WRITABLE, BASE_TO + 250, b"1234567"), ddp(DdpError::BaseOrBounds), [0x11, 1, 0xc0, 0]),
        (write(WRITABLE, BASE_TO - 1, b"xy"), ddp(DdpError::BaseOrBounds), [0x11, 1, 0xc0, 0]),
        (write(WRITABLE, 0, b"x"), ddp(DdpError::BaseOrBounds), [0x11, 1, 0xc0, 0]),
        (write(FOREIGN, BASE_TO, b"x"), ddp(DdpError::NotAssociated), [0x11, 2, 0xc0, 0]),
        (write(WRITABLE, u64::MAX, b"xy"), ddp(DdpError::ToWrap), [0x11, 3, 0xc0, 0]),
        (write(WRITABLE, u64::MAX, b"x"), ddp(DdpError::ToWrap), [0x11, 3, 0xc0, 0]),
        (tagged(WRITABLE, BASE_TO, [0xc0, 0x40], b"x"), ddp(DdpError::TaggedVersion), [0x11, 4, 0xc0, 0]),
        (tagged(WRITABLE, BASE_TO, [0xc2, 0x40], b""), ddp(DdpError::TaggedVersion), [0x11, 4, 0xc0, 0]),
        (write(READABLE, BASE_TO, b"x"), StreamError::Rdmap(RdmapError::AccessRights), [0x01, 2, 0xc0, 0]),
        (
            tagged(WRITABLE, BASE_TO, [0xc1, 0x80], b"x"),
            StreamError::Rdmap(RdmapError::InvalidVersion),
            [0x02, 5, 0xc0, 0],
        ),
        (
            tagged(WRITABLE, BASE_TO, [0xc1, 0x42], b"x"),
            StreamError::Rdmap(RdmapError::UnexpectedOpcode),
            [0x02, 6, 0xc0, 0],
        ),
        (
            tagged(WRITABLE, BASE_TO, [0xc1, 0x43], b"x"),
            StreamError::Rdmap(RdmapError::UnexpectedOpcode),
            [0x02, 6, 0xc0, 0],
        ),
    ];
    for (ulpdu, error, control) in cases {
        let mut target = Target::new();
        target.open();
        target.expect(&fpdu(&ulpdu), error, control, Some(&ulpdu));
    }
}

/// DDP-7.1-01 to DDP-7.1-05, DDP-4.1-10, RDMAP-5.3-02, RDMAP-7.2-01 to RDMAP-7.2-03: untagged segments.
#[test]
fn bad_untagged_segments() {
    let ddp = |error| StreamError::Ddp(error);
    let cases = [
        (untagged([0x41, 0x43], 4, 1, 0, b"x"), ddp(DdpError::InvalidQueue), [0x12, 1, 0xc0, 0]),
        (untagged([0x41, 0x4b], 3, 1, 0, &[0; 12]), ddp(DdpError::NoBuffer), [0x12, 2, 0xc0, 0]),
        (untagged([0x41, 0x41], 1, 1, 0, &[0; 28]), ddp(DdpError::NoBuffer), [0x12, 2, 0xc0, 0]),
        (send(2, 0, b"x"), ddp(DdpError::MsnRange), [0x12, 3, 0xc0, 0]),
        (send(0, 0, b"x"), ddp(DdpError::MsnRange), [0x12, 3, 0xc0, 0]),
        (send(1, 17, b"x"), ddp(DdpError::InvalidOffset), [0x12, 4, 0xc0, 0]),
        (send(1, 1, b"x"), ddp(DdpError::InvalidOffset), [0x12, 4, 0xc0, 0]),
        (send(1, 0, &[7; 17]), ddp(DdpError::TooLong), [0x12, 5, 0xc0, 0]),
        (untagged([0x40, 0x43], 0, 1, 0, b"x"), ddp(DdpError::UntaggedVersion), [0x12, 6, 0xc0, 0]),
        (
            untagged([0x41, 0x49], 0, 1, 0, b"not eight"),
            StreamError::Rdmap(RdmapError::UnspecifiedOperation),
            [0x02, 0xff, 0xc0, 0],
        ),
        (
            untagged([0x41, 0x41], 0, 1, 0, b"x"),
            StreamError::Rdmap(RdmapError::UnexpectedOpcode),
            [0x02, 6, 0xc0, 0],
        ),
        (
            untagged([0x41, 0x03], 0, 1, 0, b"x"),
            StreamError::Rdmap(RdmapError::InvalidVersion),
            [0x02, 5, 0xc0, 0],
        ),
    ];
    for (ulpdu, error, control) in cases {
        let mut target = Target::new();
        target.open();
        target.expect(&fpdu(&ulpdu), error, control, Some(&ulpdu));
    }
}

/// DDP-7.1-02, DDP-7.1-06, DDP-7.1-09: a second message, and no buffer for it. The first stays Delivered.
#[test]
fn a_send_without_a_buffer() {
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&send(1, 0, b"")));
    let delivered = target.completions.poll().unwrap();
    assert_eq!(
        (delivered.status, delivered.octets),
        (Status::Success, 0),
        "RDMAP-5.3-06: an empty Send has a buffer"
    );
    target.send(&fpdu(&send(2, 0, b"x")));
    assert_eq!(target.qp.error(), Some(StreamError::Ddp(DdpError::NoBuffer)));
    // DDP-7.1-08: at most once a stream, and counted.
    assert_eq!(target.peer.core.statistics().streams_failed, 1);
}

/// Bits and fields that nobody may look at: reserved bits of DDP's and RDMAP's control octets, the Invalidate STag of a Send
/// that does not invalidate, what the ULP's fields say in the segments of one message, and where an empty tagged segment
/// would go. DDP-4.1-08, DDP-4.3-05, DDP-5.2-09, DDP-5.2-10, RDMAP-4.1-08, RDMAP-4.1-09
#[test]
fn what_is_not_looked_at() {
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&tagged(WRITABLE, BASE_TO, [0xc1 | 0x3c, 0x40 | 0x30], b"tagged")));
    target.send(&fpdu(&tagged(STag(0xdead_beef), u64::MAX, [0xc1, 0x40], b"")));
    let mut first = untagged([0x01 | 0x3c, 0x43 | 0x30], 0, 1, 0, b"one ");
    first[2..6].copy_from_slice(&[1, 2, 3, 4]);
    let mut second = untagged([0x41, 0x43], 0, 1, 4, b"message");
    second[2..6].copy_from_slice(&[5, 6, 7, 8]);
    target.send(&fpdu(&first));
    target.send(&fpdu(&second));
    assert_eq!(target.qp.error(), None);
    assert!(holds(&target.regions[0].0, 0, b"tagged"));
    assert!(holds(&target.regions[3].0, 0, b"one message"));
    let completion = target.completions.poll().unwrap();
    assert_eq!((completion.status, completion.octets), (Status::Success, 11), "DDP-5.4-02");
}

/// A-06, DDP-6.2.2-01: a ULPDU too short for its header.
#[test]
fn ulpdus_without_a_header() {
    for ulpdu in [&b""[..], b"\xc1", &[0xc1; 13], &[0x41; 17]] {
        let mut target = Target::new();
        target.open();
        target.expect(&fpdu(ulpdu), StreamError::Ddp(DdpError::LocalCatastrophic), [0x10, 0, 0, 0], None);
    }
}

/// MPA-8-02, MPA-8-08, MPA-8-10, MPA-4.4-15, C00-9-06: a wrong CRC is taken as loss while TCP may still bring the FPDU
/// again; the same octets wrong again and again are error 2. TCP carries the Terminate, and is closed behind it, not reset.
#[test]
fn a_wrong_crc_is_loss_first_and_then_an_error() {
    let mut target = Target::new();
    target.open();
    let mut wrong = fpdu(&write(WRITABLE, BASE_TO, b"bad"));
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    for attempt in 1..=u64::from(limits::CRC_RETRIES) {
        target.peer.send(Flags::ACK, target.seq, target.ack, &wrong);
        assert_eq!(target.qp.error(), None);
        assert_eq!(target.peer.core.statistics().dropped(DropCause::FpduCrc), attempt);
        target.peer.sent.clear();
    }
    target.expect(&wrong, StreamError::Mpa(MpaError::Crc), [0x20, 2, 0, 0], None);
}

/// MPA-8-02, MPA-8-08, C00-9-04: the silence is a choice. Without, the first is an error.
#[test]
fn a_wrong_crc_may_be_an_error_at_once() {
    let mut target = Target::with(FullOperation { crc_retries: 0, ..FullOperation::new(QP, false) });
    target.open();
    let mut wrong = fpdu(&write(WRITABLE, BASE_TO, b"bad"));
    wrong[16] ^= 1;
    target.expect(&wrong, StreamError::Mpa(MpaError::Crc), [0x20, 2, 0, 0], None);
}

/// The FPDU comes right the second time: nothing is reported.
#[test]
fn a_wrong_crc_once_is_not_seen() {
    let mut target = Target::new();
    target.open();
    let right = fpdu(&write(WRITABLE, BASE_TO, b"good"));
    let mut wrong = right.clone();
    wrong[16] ^= 0x40;
    target.peer.send(Flags::ACK, target.seq, target.ack, &wrong);
    target.expect_untouched();
    assert_eq!(target.peer.sent.back().unwrap().header.ack, target.seq, "not acknowledged");
    target.send(&right);
    assert_eq!(target.qp.error(), None);
    assert!(holds(&target.regions[0].0, 0, b"good"));
}

/// MPA-8-02: when the first octets of an FPDU are acknowledged, TCP cannot bring it again.
#[test]
fn a_wrong_crc_across_acknowledged_segments() {
    let mut target = Target::new();
    target.open();
    let mut wrong = fpdu(&write(WRITABLE, BASE_TO, &[7; 100]));
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    target.send(&wrong[..40]);
    target.peer.pass_ms(60);
    target.peer.sent.clear();
    target.expect(&wrong[40..], StreamError::Mpa(MpaError::Crc), [0x20, 2, 0, 0], None);
}

/// a length that no sender may use.
#[test]
fn an_impossible_length() {
    let mut target = Target::new();
    target.open();
    target.send(&[0xff, 0xff]);
    target.send(&vec![0; 65_600]);
    assert!(matches!(target.qp.error(), Some(StreamError::Mpa(_))), "{:?}", target.qp.error());
    target.expect_untouched();
}

/// MPA-7.1.2-15, A-07: a Responder that has received no valid FPDU sends none, not even a Terminate.
#[test]
fn no_terminate_before_the_first_fpdu() {
    let mut target = Target::new();
    let mut wrong = fpdu(&write(WRITABLE, BASE_TO, b"bad"));
    wrong[0] = 0xff;
    wrong[1] = 0xff;
    wrong.resize(65_600, 0);
    target.send(&wrong);
    assert!(target.qp.error().is_some());
    let (data, fin) = target.sent();
    assert!(data.is_empty(), "{data:02x?}");
    assert!(fin);
}

/// A-09, MPA-8-01, DDP-3-09, DDP-3-10: a FIN inside an FPDU is error 1; on a boundary it is a graceful close.
#[test]
fn fins_inside_and_between_fpdus() {
    let mut target = Target::new();
    target.open();
    let whole = fpdu(&write(WRITABLE, BASE_TO, b"cut short"));
    target.send(&whole[..10]);
    target.peer.send(Flags::FIN | Flags::ACK, target.seq, target.ack, &[]);
    assert_eq!(target.qp.error(), Some(StreamError::Mpa(MpaError::TcpClosed)));
    target.expect_untouched();

    let mut target = Target::new();
    target.open();
    target.peer.send(Flags::FIN | Flags::ACK, target.seq, target.ack, &[]);
    assert_eq!(target.qp.error(), None);
    assert!(target.peer.events.iter().any(|event| matches!(event, Event::PeerFinished { .. })));
}

/// MPA-8-01, DDP-6.2.2-01, DDP-6.2.2-02: a RST in Full Operation is reported, and the work flushed.
#[test]
fn a_reset_is_reported() {
    let mut target = Target::new();
    target.open();
    target.peer.send(Flags::RST, target.seq, SeqNumber(0), &[]);
    assert_eq!(target.qp.error(), Some(StreamError::Tcp(CloseReason::Reset)));
    assert_eq!(target.qp.state(), QpState::Error);
    assert_eq!(target.completions.poll().unwrap().status, Status::Flushed);
    assert!(target.qp.post_receive(ReceiveRequest::new(2, Slice::default())).is_err());
}

/// RDMAP-5.4-03, RDMAP-6.2.1-02: the peer's Terminate is told to the application, and answered by closing alone.
#[test]
fn a_terminate_is_reported() {
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&untagged([0x41, 0x47], 2, 1, 0, &[0x11, 0x01, 0, 0])));
    let error = StreamError::Terminated { layer: 1, error_type: 1, code: 1 };
    assert_eq!(target.qp.error(), Some(error));
    let (data, fin) = target.sent();
    assert!(data.is_empty() && fin);
}

/// A peer that does not take the Terminate is reset after a while.
#[test]
fn a_failed_stream_does_not_linger() {
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&send(7, 0, b"")));
    target.peer.sent.clear();
    target.peer.pass_s(10);
    let reset = target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST));
    assert!(reset, "{:?}", target.peer.sent);
    assert!(
        target.peer.events.iter().any(
            |event| matches!(event, Event::Closed { connection, .. } if *connection == target.connection)
        )
    );
}

/// MPA-5.1-05, MPA-A.4-02, MPA-A.5-03, C00-13-01: FPDUs in segments of one octet, and many in one segment.
#[test]
fn alignment_does_not_matter() {
    let mut target = Target::new();
    target.open();
    let long: Vec<u8> = (0..140).collect();
    for octet in fpdu(&write(WRITABLE, BASE_TO, &long)) {
        target.send(&[octet]);
    }
    assert!(holds(&target.regions[0].0, 0, &long));
    let mut many = Vec::new();
    for n in 0..20u8 {
        many.extend(fpdu(&write(WRITABLE, BASE_TO + 100 + u64::from(n), &[n])));
    }
    target.send(&many);
    let expected: Vec<u8> = (0..20).collect();
    assert!(holds(&target.regions[0].0, 100, &expected));
    assert_eq!(target.qp.error(), None);
}

/// Random FPDUs with right CRCs, and random octets: no panic, and never an octet outside the one writable region.
#[test]
fn garbage_stays_inside() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut target = Target::new();
        target.open();
        for _ in 0..20 {
            let mut ulpdu = match rng.u32(..4) {
                0 => write(WRITABLE, BASE_TO + rng.u64(..300), &vec![9; rng.usize(..40)]),
                1 => send(rng.u32(..3), rng.u32(..20), &vec![9; rng.usize(..20)]),
                2 => tagged(
                    STag(rng.u32(..)),
                    rng.u64(..),
                    [rng.u8(..) | 0x80, rng.u8(..)],
                    &vec![9; rng.usize(..1000)],
                ),
                _ => (0..rng.usize(..60)).map(|_| rng.u8(..)).collect(),
            };
            if rng.u32(..3) == 0 && !ulpdu.is_empty() {
                let at = rng.usize(..ulpdu.len().min(20));
                ulpdu[at] ^= 1 << rng.u32(..8);
            }
            target.send(&fpdu(&ulpdu));
        }
        for (region, octets) in &target.regions[1..3] {
            assert!(holds(region, 0, octets), "a region without the right to write was written");
        }
        let (inbox, octets) = &target.regions[3];
        assert!(
            holds(inbox, INBOX_OCTETS as usize, &octets[INBOX_OCTETS as usize..]),
            "past the posted buffer"
        );
    }
}
