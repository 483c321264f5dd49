//! Tests of a peer that breaks the rules of MPA, DDP and RDMAP: each fault reports the documented error to
//! the application, sends the documented Terminate to the peer, closes the connection, and writes no octet
//! outside the granted memory.

mod endings;
mod lingering;
mod not_ready;
mod requests;
mod responses;
pub mod target;

use crate::common::holds;
use target::{
    BASE_TO, FOREIGN, INBOX_OCTETS, READABLE, Target, WRITABLE, fpdu, send, tagged, untagged, write,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::STag;
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::work::{ReceiveRequest, Slice, Status};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::ring::{Event, FullOperation};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::wire::tcp::{Flags, SeqNumber};

/// The control case of these tests: valid segments are placed (DDP-5.2-04).
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
    assert_eq!((completion.id, completion.status, completion.byte_len), (1, Status::Success, 9));
}

/// Tagged segments.
// Requirements: DDP-7.1-10 to DDP-7.1-14, DDP-7.2-01
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
        // RFC 5040 figure 10 has no protection error of RDMAP for a Write.
        // Requirements: A-31
        (write(READABLE, BASE_TO, b"x"), ddp(DdpError::AccessRights), [0x11, 0, 0xc0, 0]),
        // Which right is needed depends on the opcode, so everything else is checked before it.
        // Requirements: A-30
        (write(READABLE, BASE_TO + 256, b"x"), ddp(DdpError::BaseOrBounds), [0x11, 1, 0xc0, 0]),
        (
            tagged(READABLE, BASE_TO, [0xc1, 0x80], b"x"),
            StreamError::Rdmap(RdmapError::InvalidVersion),
            [0x02, 5, 0xc0, 0],
        ),
        (
            tagged(READABLE, BASE_TO, [0xc1, 0x43], b"x"),
            StreamError::Rdmap(RdmapError::UnexpectedOpcode),
            [0x02, 6, 0xc0, 0],
        ),
        (
            tagged(READABLE, BASE_TO, [0xc1, 0x42], b"x"),
            StreamError::Rdmap(RdmapError::UnexpectedOpcode),
            [0x02, 6, 0xc0, 0],
        ),
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

/// Untagged segments. A message with a part missing is refused, too.
// Requirements: DDP-4.1-10, DDP-5.2-11, DDP-7.1-01, DDP-7.1-04, RDMAP-5.3-02, RDMAP-7.2-01
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

/// A second message, and no buffer for it. The first stays Delivered.
// Requirements: DDP-7.1-02, DDP-7.1-06, DDP-7.1-09
#[test]
fn a_send_without_a_buffer() {
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&send(1, 0, b"")));
    let delivered = target.completions.poll().unwrap();
    assert_eq!(
        (delivered.status, delivered.byte_len),
        (Status::Success, 0),
        "RDMAP-5.3-06: an empty Send has a buffer"
    );
    target.send(&fpdu(&send(2, 0, b"x")));
    assert_eq!(target.qp.error(), Some(StreamError::Ddp(DdpError::NoBuffer)));
    // At most once a stream, and counted.
    // Requirements: DDP-7.1-08
    assert_eq!(target.peer.core.statistics().streams_failed, 1);
}

/// Bits and fields that a receiver must ignore: reserved bits of DDP's and RDMAP's control octets, the
/// Invalidate STag of a Send that does not invalidate, the ULP's fields in the later segments of one message,
/// and the address of an empty tagged segment.
// Requirements: DDP-4.1-08, DDP-4.3-05, DDP-5.2-09, DDP-5.2-10, RDMAP-4.1-08, RDMAP-4.1-09
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
    assert_eq!((completion.status, completion.byte_len), (Status::Success, 11), "DDP-5.4-02");
}

/// A ULPDU too short for its header.
// Requirements: A-06, DDP-6.2.2-01
#[test]
fn ulpdus_without_a_header() {
    for ulpdu in [&b""[..], b"\xc1", &[0xc1; 13], &[0x41; 17]] {
        let mut target = Target::new();
        target.open();
        target.expect(&fpdu(ulpdu), StreamError::Ddp(DdpError::LocalCatastrophic), [0x10, 0, 0, 0], None);
    }
}

/// A wrong CRC is treated as loss while TCP may still bring the FPDU again; the same octets wrong again and
/// again are error 2. TCP carries the Terminate, and is then closed, not reset.
// Requirements: MPA-8-02, MPA-8-08, MPA-8-10, MPA-4.4-15, C00-9-06
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

/// The silence is a choice. Without, the first is an error.
// Requirements: MPA-8-02, MPA-8-08, C00-9-04
#[test]
fn a_wrong_crc_may_be_an_error_at_once() {
    let mut target = Target::with(FullOperation { crc_retries: 0, ..FullOperation::new(false) });
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

/// Damage is like loss before a FIN, too, that comes in the same segment or has waited beyond a gap: the FIN
/// is in order again once the octets before it have come right.
// Requirements: MPA-8-08
#[test]
fn a_wrong_crc_before_a_fin_is_not_seen() {
    for waits in [false, true] {
        let mut target = Target::new();
        target.open();
        let right = fpdu(&write(WRITABLE, BASE_TO, b"good"));
        let mut wrong = right.clone();
        wrong[16] ^= 0x40;
        let (seq, ack) = (target.seq, target.ack);
        let fin = if waits { Flags::empty() } else { Flags::FIN };
        if waits {
            target.peer.send(Flags::FIN | Flags::ACK, seq + right.len() as u32, ack, &[]);
        }
        target.peer.send(fin | Flags::ACK, seq, ack, &wrong);
        target.expect_untouched();
        assert_eq!(target.qp.error(), None);
        assert_eq!(target.peer.sent.back().unwrap().header.ack, seq, "not acknowledged");
        let finished = |event: &Event| matches!(event, Event::PeerFinished { .. });
        assert!(!target.peer.events.iter().any(finished));
        target.peer.send(fin | Flags::ACK, seq, ack, &right);
        assert!(holds(&target.regions[0].0, 0, b"good"));
        assert_eq!(target.qp.error(), None);
        let end = seq + right.len() as u32 + 1;
        assert_eq!(target.peer.sent.back().unwrap().header.ack, end, "with the FIN");
        assert_eq!(target.peer.events.iter().filter(|event| finished(event)).count(), 1);
    }
}

/// RFC 5044 §8, MPA-8-03, MPA-8-08, A-05: a length above 64768 is first treated as damage, with CRCs and
/// without. The same length again and again is error 3, and the receiver does not wait for octets that no
/// sender may send.
#[test]
fn a_length_that_cannot_be_is_loss_first_and_then_an_error() {
    for crc in [true, false] {
        let mut target = Target::with(FullOperation { crc, ..FullOperation::new(false) });
        target.open();
        let right = fpdu(&write(WRITABLE, BASE_TO, b"good"));
        let mut wrong = right.clone();
        wrong[0] = 0xfd;
        wrong[1] = 0x01;
        target.peer.send(Flags::ACK, target.seq, target.ack, &wrong);
        target.expect_untouched();
        assert_eq!(target.qp.error(), None);
        assert_eq!(target.peer.core.statistics().dropped(DropCause::FpduCrc), 1);
        assert_eq!(target.peer.sent.back().unwrap().header.ack, target.seq, "not acknowledged");
        target.send(&right);
        assert_eq!(target.qp.error(), None);
        assert!(holds(&target.regions[0].0, 0, b"good"));
        for attempt in 1..=u64::from(limits::CRC_RETRIES) {
            target.peer.send(Flags::ACK, target.seq, target.ack, &wrong);
            assert_eq!(target.qp.error(), None);
            assert_eq!(target.peer.core.statistics().dropped(DropCause::FpduCrc), 1 + attempt);
            target.peer.sent.clear();
        }
        target.peer.send(Flags::ACK, target.seq, target.ack, &wrong);
        assert_eq!(target.qp.error(), Some(StreamError::Mpa(MpaError::Marker)), "CRC {crc}");
    }
}

/// The silence about it is a choice too.
// Requirements: MPA-8-08
#[test]
fn a_length_that_cannot_be_may_be_an_error_at_once() {
    let mut target = Target::with(FullOperation { crc_retries: 0, ..FullOperation::new(false) });
    target.open();
    let mut wrong = fpdu(&write(WRITABLE, BASE_TO, b"bad"));
    wrong[0] = 0xff;
    target.expect(&wrong, StreamError::Mpa(MpaError::Marker), [0x20, 3, 0, 0], None);
}

/// When the first octets of an FPDU are acknowledged, TCP cannot bring it again.
// Requirements: MPA-8-02
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

/// A length that no sender may use, where nothing is taken for a loss.
// Requirements: A-05
#[test]
fn an_impossible_length() {
    let mut target = Target::with(FullOperation { crc_retries: 0, ..FullOperation::new(false) });
    target.open();
    target.send(&[0xff, 0xff]);
    target.send(&vec![0; 65_600]);
    assert!(matches!(target.qp.error(), Some(StreamError::Mpa(_))), "{:?}", target.qp.error());
    target.expect_untouched();
}

/// A Responder that has received no valid FPDU sends none, not even a Terminate.
// Requirements: MPA-7.1.2-15, A-07
#[test]
fn no_terminate_before_the_first_fpdu() {
    let mut target = Target::with(FullOperation { crc_retries: 0, ..FullOperation::new(false) });
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

/// A FIN inside an FPDU is error 1; on a boundary it is a graceful close.
// Requirements: A-09, MPA-8-01, DDP-3-09, DDP-3-10
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

/// A RST in Full Operation is reported, and the work flushed.
// Requirements: MPA-8-01, DDP-6.2.2-01, DDP-6.2.2-02
#[test]
fn a_reset_is_reported() {
    let mut target = Target::new();
    target.open();
    target.peer.send(Flags::RST, target.seq, SeqNumber(0), &[]);
    assert_eq!(target.qp.error(), Some(StreamError::Tcp(CloseReason::Reset)));
    assert_eq!(target.qp.state(), QpState::Error);
    assert_eq!(target.completions.poll().unwrap().status, Status::Flushed);
    target.qp.post_receive(ReceiveRequest::new(2, Slice::default())).unwrap();
    target.peer.settle();
    let flushed = target.completions.poll().map(|done| (done.id, done.status));
    assert_eq!(flushed, Some((2, Status::Flushed)), "what is posted later too");
}

/// The peer's Terminate is reported to the application, and the only answer is a close.
// Requirements: RDMAP-5.4-03, RDMAP-5.4-05, RDMAP-6.2.1-02
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

/// A Terminate is checked as any Untagged message before it is believed. Its queue has one buffer, for one
/// message as long as the longest Terminate.
// Requirements: DDP-7.1-03 to DDP-7.1-05, RDMAP-7.2-01 to RDMAP-7.2-03
#[test]
fn a_terminate_is_checked() {
    let header = [0x11, 1, 0, 0];
    let longest = [&header[..], &[0; 48]].concat();
    let longer = [&longest[..], &[0]].concat();
    let ddp = StreamError::Ddp;
    let rdmap = StreamError::Rdmap;
    let cases = [
        (untagged([0x41, 0x47], 2, 0, 0, &header), ddp(DdpError::MsnRange), [0x12, 3, 0xc0, 0]),
        (untagged([0x41, 0x47], 2, 2, 0, &header), ddp(DdpError::MsnRange), [0x12, 3, 0xc0, 0]),
        (untagged([0x41, 0x47], 2, 1, 4, &header), ddp(DdpError::InvalidOffset), [0x12, 4, 0xc0, 0]),
        (untagged([0x41, 0x47], 2, 1, 0, &longer), ddp(DdpError::TooLong), [0x12, 5, 0xc0, 0]),
        (untagged([0x40, 0x47], 2, 1, 0, &header), ddp(DdpError::UntaggedVersion), [0x12, 6, 0xc0, 0]),
        (untagged([0x41, 0x07], 2, 1, 0, &header), rdmap(RdmapError::InvalidVersion), [0x02, 5, 0xc0, 0]),
        (untagged([0x41, 0x43], 2, 1, 0, &header), rdmap(RdmapError::UnexpectedOpcode), [0x02, 6, 0xc0, 0]),
        // A first segment of several, and one without the whole Terminate Control.
        (
            untagged([0x01, 0x47], 2, 1, 0, &header),
            rdmap(RdmapError::UnspecifiedOperation),
            [0x02, 0xff, 0xc0, 0],
        ),
        (
            untagged([0x41, 0x47], 2, 1, 0, &header[..3]),
            rdmap(RdmapError::UnspecifiedOperation),
            [0x02, 0xff, 0xc0, 0],
        ),
    ];
    for (ulpdu, error, control) in cases {
        let mut target = Target::new();
        target.open();
        target.expect(&fpdu(&ulpdu), error, control, Some(&ulpdu));
    }
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&untagged([0x41, 0x47], 2, 1, 0, &longest)));
    assert_eq!(
        target.qp.error(),
        Some(StreamError::Terminated { layer: 1, error_type: 1, code: 1 }),
        "A-18: what no flag announces is ignored"
    );
}

/// The Terminate of Linux siw is believed, and reserved bits of another peer's are not taken for it.
#[test]
fn a_terminate_of_siw_is_reported() {
    for (control, layer, error_type, code) in
        [([0x21, 2, 0x03, 0], 1, 2, 2), ([0x12, 2, 0xc0, 0], 1, 2, 2), ([0x10, 0, 0x05, 0], 1, 0, 0)]
    {
        let mut target = Target::new();
        target.open();
        let payload = [&control[..], &[0, 1], &send(2, 0, b"")].concat();
        target.send(&fpdu(&untagged([0x41, 0x47], 2, 1, 0, &payload)));
        assert_eq!(target.qp.error(), Some(StreamError::Terminated { layer, error_type, code }));
    }
}

/// A peer that does not acknowledge the Terminate is reset after a while.
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

/// FPDUs in segments of one octet, and many in one segment.
// Requirements: MPA-5.1-05, MPA-A.4-02, MPA-A.5-03, C00-13-01
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

/// Random FPDUs with right CRCs, and random octets: no panic, and never an octet outside the one writable
/// region.
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
