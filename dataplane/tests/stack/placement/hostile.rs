//! Tests of hostile peers and of paths that damage: nothing is placed that was not verified, errors are
//! reported in the order of the stream, and placed octets stay unchanged.

use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::mpa::enhanced::{ReadyToReceive, RtrKinds};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::ring::{Event, FullOperation};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::wire::tcp::Flags;

use super::receiver::{BUFFER_OCTETS, Receiver, Run, Ulpdu};
use super::{play, take_deliveries};
use crate::reference::mpa::Crc;

const MARKER: StreamError = StreamError::Mpa(MpaError::Marker);

fn write(to: usize, octets: usize) -> Ulpdu {
    Ulpdu::Write { to, octets }
}

/// A Write to an STag that does not exist.
fn to_nowhere() -> Ulpdu {
    let mut ulpdu = vec![0xc1, 0x40, 0, 9, 0, 9];
    ulpdu.extend([0; 8]);
    ulpdu.extend([1; 600]);
    Ulpdu::Raw(ulpdu)
}

/// FPDU `n` of `run` arrives in a segment of its own.
fn arrive(receiver: &mut Receiver, run: &Run, n: usize) {
    receiver.arrive(run, run.fpdus[n].start, run.fpdus[n].end);
}

/// Writes the CRC of FPDU `n` again, after a change in it.
fn sign(run: &mut Run, n: usize) {
    let fpdu = &run.fpdus[n];
    let mut crc = Crc::NOTHING;
    for octet in &run.octets[fpdu.start..fpdu.end - 4] {
        crc.take(*octet);
    }
    run.octets[fpdu.end - 4..fpdu.end].copy_from_slice(&crc.field());
}

/// A retransmission with other octets over placed and held ones changes nothing; only the gap is filled from
/// it.
// Requirements: MPA-A.3-02, C00-5.1-04, C00-5.1-05, DDP-3-12, DDP-5.3-05
#[test]
fn altered_copies_overwrite_nothing() {
    for markers in [true, false] {
        let mut receiver = Receiver::new(markers);
        let run = receiver.begin(&[write(0, 900), write(900, 1000), write(1900, 400)]);
        arrive(&mut receiver, &run, 1);
        assert_eq!(
            (receiver.usage().placed_runs, receiver.usage().held_frames),
            if markers { (1, 0) } else { (0, 1) }
        );
        let altered: Vec<u8> = run.octets.iter().map(|octet| octet ^ 0x55).collect();
        let [second, third] = [1, 2].map(|n| run.fpdus[n].start);
        // All of it again, a part of it, and more than it to both sides, where the octets are right.
        receiver.arrive_as(second, &altered[second..third]);
        receiver.arrive_as(second + 100, &altered[second + 100..second + 500]);
        receiver.expect_memory(&run, |fpdu| markers && fpdu.start == second);
        receiver
            .arrive_as(second + 7, &[&altered[second + 7..third], &run.octets[third..third + 100]].concat());
        receiver.arrive_as(0, &[&run.octets[..second], &altered[second..second + 300]].concat());
        receiver.expect_memory(&run, |fpdu| fpdu.end <= third);
        receiver.arrive(&run, third, run.octets.len());
        receiver.expect_memory(&run, |_| true);
        assert_eq!(receiver.statistics().bytes_copied_rx, 2300, "each octet once");
        assert_eq!(receiver.error(), None);
    }
}

/// Beyond a gap a wrong CRC only means that nothing is placed. In its turn it is taken for a loss.
// Requirements: MPA-6-01, MPA-6-03, MPA-8-08, C00-7.4-01, C00-7.4-02
#[test]
fn a_wrong_crc_beyond_a_gap_is_silent() {
    let mut receiver = Receiver::new(true);
    let run = receiver.begin(&[write(0, 700), write(700, 1200), write(1900, 1100)]);
    let mut damaged = run.clone();
    damaged.octets[run.fpdus[1].start + 300] ^= 1;
    arrive(&mut receiver, &damaged, 1);
    arrive(&mut receiver, &run, 2);
    receiver.expect_memory(&run, |fpdu| fpdu.start == run.fpdus[2].start);
    assert_eq!((receiver.usage().held_frames, receiver.statistics().dropped(DropCause::FpduCrc)), (1, 0));
    arrive(&mut receiver, &run, 0);
    assert_eq!((receiver.usage().held_frames, receiver.statistics().dropped(DropCause::FpduCrc)), (0, 1));
    assert_eq!(receiver.usage().placed_runs, 1, "what was placed stays");
    arrive(&mut receiver, &run, 1);
    receiver.expect_memory(&run, |_| true);
    assert_eq!((receiver.error(), receiver.usage().placed_runs), (None, 0));
    assert_eq!(receiver.statistics().bytes_copied_rx, 3000);
}

/// A damaged length that reaches into placed octets is treated as a loss too, while TCP may bring the FPDU
/// again.
// Requirements: MPA-8-08, MPA-8-04
#[test]
fn a_damaged_length_before_placed_octets_is_a_loss() {
    let mut receiver = Receiver::new(true);
    let run = receiver.begin(&[
        write(0, 700),
        write(700, 1200),
        Ulpdu::Send { message: 0, mo: 0, octets: 1000, last: true },
    ]);
    arrive(&mut receiver, &run, 2);
    arrive(&mut receiver, &run, 1);
    let mut damaged = run.clone();
    // Behind the Marker that opens the stream.
    damaged.octets[4] ^= 4;
    arrive(&mut receiver, &damaged, 0);
    assert_eq!((receiver.error(), receiver.statistics().dropped(DropCause::FpduCrc)), (None, 1));
    assert_eq!(take_deliveries(&receiver, &run, 0), 0);
    arrive(&mut receiver, &run, 0);
    receiver.expect_memory(&run, |_| true);
    assert_eq!((take_deliveries(&receiver, &run, 0), receiver.error()), (1, None));
}

/// An error beyond a gap is not reported yet. FPDUs before it are placed and delivered first.
// Requirements: MPA-8-09, DDP-5.4-01
#[test]
fn errors_come_in_stream_order() {
    let send = Ulpdu::Send { message: 0, mo: 0, octets: 600, last: true };
    let mut receiver = Receiver::new(true);
    let run = receiver.begin(&[write(0, 700), send, to_nowhere(), write(700, 900)]);
    for n in [3, 2, 1] {
        arrive(&mut receiver, &run, n);
        assert_eq!((receiver.error(), take_deliveries(&receiver, &run, 0)), (None, 0));
    }
    assert_eq!((receiver.usage().held_frames, receiver.usage().placed_runs), (1, 2));
    arrive(&mut receiver, &run, 0);
    assert_eq!(receiver.error(), Some(StreamError::Ddp(DdpError::InvalidStag)));
    assert_eq!(receiver.polled().len(), 1, "the Send before it");
    receiver.expect_memory(&run, |_| true);
    let usage = receiver.usage();
    assert_eq!((usage.held_frames, usage.placed_runs, usage.placed_sends), (0, 0, 0));
}

/// After an error nothing is placed, beyond a gap or not.
// Requirements: MPA-8-09, DDP-7.1-17
#[test]
fn nothing_is_placed_after_an_error() {
    let mut receiver = Receiver::new(true);
    let run = receiver.begin(&[write(0, 700), to_nowhere(), write(700, 900), write(1600, 700)]);
    for n in [0, 1, 3, 2] {
        arrive(&mut receiver, &run, n);
    }
    assert_eq!(receiver.error(), Some(StreamError::Ddp(DdpError::InvalidStag)));
    receiver.expect_memory(&run, |fpdu| fpdu.start == 0);
}

/// Sends whose numbers or offsets do not match their position. They lie inside a posted buffer, so they may
/// be placed; in their turn they are refused, and the Terminate names their header.
// Requirements: DDP-7.1-03, DDP-7.1-05
#[test]
fn sends_are_judged_in_their_turn() {
    let send = |message, mo| Ulpdu::Send { message, mo, octets: 600, last: true };
    for (placed, error) in [(send(0, 100), DdpError::InvalidOffset), (send(1, 0), DdpError::MsnRange)] {
        let mut receiver = Receiver::new(true);
        receiver.post(0);
        receiver.post(1);
        let run = receiver.framed(&[write(0, 700), placed.clone()]);
        arrive(&mut receiver, &run, 1);
        assert_eq!((receiver.usage().placed_sends, receiver.usage().held_frames), (1, 0));
        receiver.peer.sent.clear();
        receiver.peer.send(Flags::ACK, receiver.seq, receiver.ack(), &run.octets[..run.fpdus[0].end]);
        assert_eq!(receiver.error(), Some(StreamError::Ddp(error)));
        let said: Vec<u8> = receiver.peer.sent.iter().flat_map(|sent| sent.payload.clone()).collect();
        let ulpdu = placed.octets(0, 1);
        assert!(said.windows(18).any(|octets| octets == &ulpdu[..18]), "{said:02x?}");
        assert!(receiver.polled().iter().all(|completion| completion.byte_len == 0), "none was delivered");
        assert_eq!(receiver.usage().placed_sends, 0);
    }
}

/// Octets without a buffer, octets beyond their buffer, and messages other than Sends wait in their frames.
#[test]
fn what_cannot_be_placed_yet_waits() {
    let mut receiver = Receiver::new(true);
    let send = Ulpdu::Send { message: 0, mo: 0, octets: 800, last: true };
    let beyond = Ulpdu::Send { message: 0, mo: BUFFER_OCTETS - 100, octets: 101, last: true };
    let mut terminate = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0, 0];
    terminate.resize(600, 0);
    for ulpdu in [send.clone(), Ulpdu::Raw(terminate), to_nowhere()] {
        let mut receiver = Receiver::new(true);
        let run = receiver.framed(&[write(0, 700), ulpdu]);
        arrive(&mut receiver, &run, 1);
        assert_eq!((receiver.usage().held_frames, receiver.error()), (1, None));
    }
    let run = receiver.framed(&[write(0, 700), send]);
    arrive(&mut receiver, &run, 1);
    receiver.post(0);
    arrive(&mut receiver, &run, 0);
    assert_eq!((take_deliveries(&receiver, &run, 0), receiver.error()), (1, None), "posted in time");
    receiver.finish(&run);
    let mut receiver = Receiver::new(true);
    receiver.post(0);
    let run = receiver.framed(&[write(0, 700), write(700, 600), beyond]);
    receiver.arrive(&run, run.fpdus[1].start, run.fpdus[2].end);
    assert_eq!((receiver.usage().held_frames, receiver.usage().placed_runs), (1, 1));
    arrive(&mut receiver, &run, 0);
    assert_eq!(receiver.error(), Some(StreamError::Ddp(DdpError::InvalidOffset)));
}

/// If one FPDU of a segment fails its check, a Marker leads to a later one that passes.
// Requirements: MPA-6-04
#[test]
fn good_fpdus_behind_a_bad_one_are_placed() {
    let mut receiver = Receiver::new(true);
    let run = receiver.begin(&[write(0, 700), to_nowhere(), write(700, 700)]);
    receiver.arrive(&run, run.fpdus[1].start, run.fpdus[2].end);
    receiver.expect_memory(&run, |fpdu| fpdu.start == run.fpdus[2].start);
    assert_eq!((receiver.usage().held_frames, receiver.usage().placed_runs), (1, 1));
    arrive(&mut receiver, &run, 0);
    assert_eq!(receiver.error(), Some(StreamError::Ddp(DdpError::InvalidStag)));
}

/// While the Initiator's ready-to-receive indication is due, which may be a Send, no Send is taken for
/// the owner of a buffer out of turn.
#[test]
fn no_send_overtakes_a_ready_to_receive_indication() {
    let mut receiver = Receiver::in_operation(FullOperation {
        markers_received: true,
        ready: ReadyToReceive::Expect(RtrKinds::SEND),
        ..FullOperation::new(false)
    });
    receiver.post(0);
    receiver.post(1);
    let indication = Ulpdu::Send { message: 0, mo: 0, octets: 0, last: true };
    let send = Ulpdu::Send { message: 1, mo: 0, octets: 700, last: true };
    let run = receiver.framed(&[indication, send]);
    arrive(&mut receiver, &run, 1);
    assert_eq!((receiver.usage().held_frames, receiver.usage().placed_sends), (1, 0));
    arrive(&mut receiver, &run, 0);
    let delivered: Vec<_> =
        receiver.polled().iter().map(|completion| (completion.id, completion.byte_len)).collect();
    assert_eq!((delivered, receiver.error()), (vec![(0, 700)], None));
}

/// An FPDU of its own inside another one. Where the length of the outer one runs into it, the gap having
/// closed, Markers and lengths disagree: error 3, at once when TCP has acknowledged the length.
// Requirements: MPA-8-03, MPA-8-04, C00-9-02
#[test]
fn an_fpdu_inside_another_is_error_3() {
    for acknowledged in [true, false] {
        let mut receiver = Receiver::new(true);
        let outer = receiver.begin(&[write(0, 3000)]);
        receiver.seq += 1024;
        let inner = receiver.framed(&[write(9000, 600)]);
        receiver.seq += 0u32.wrapping_sub(1024);
        if acknowledged {
            receiver.arrive(&outer, 0, 512);
        }
        receiver.arrive_as(1024, &inner.octets);
        receiver.expect_memory(&inner, |_| true);
        let from = if acknowledged { 512 } else { 0 };
        for _ in 0..limits::CRC_RETRIES {
            assert_eq!(receiver.error(), None);
            receiver.arrive(&outer, from, 1024);
            if acknowledged {
                break;
            }
        }
        receiver.arrive(&outer, from, 1024);
        assert_eq!(receiver.error(), Some(MARKER), "acknowledged: {acknowledged}");
        receiver.expect_memory(&inner, |_| true);
        assert_eq!(receiver.usage().placed_runs, 0);
    }
}

/// Markers of every kind of wrong pointer in FPDUs whose CRC is right: into other FPDUs, into placed octets,
/// before the stream, out of range. Nothing is placed through them, and in its turn each is error 3.
// Requirements: MPA-4.3-04, MPA-6-02
#[test]
fn wrong_markers_lead_nowhere() {
    let right = {
        let mut receiver = Receiver::new(true);
        receiver.begin(&[write(0, 700), write(700, 600), write(1300, 800)])
    };
    let at = right.fpdus[2].start.next_multiple_of(512);
    let pointer = u16::from_be_bytes([right.octets[at + 2], right.octets[at + 3]]);
    assert_eq!(usize::from(pointer), at - right.fpdus[2].start);
    let near = (0..=2 * at as u16).step_by(4);
    let far = (0..=u16::MAX - 3).step_by(1020);
    for wrong in near.chain(far).filter(|wrong| *wrong != pointer && wrong % 4 == 0) {
        let mut receiver = Receiver::new(true);
        let mut run = receiver.begin(&[write(0, 700), write(700, 600), write(1300, 800)]);
        run.octets[at + 2..at + 4].copy_from_slice(&wrong.to_be_bytes());
        sign(&mut run, 2);
        arrive(&mut receiver, &run, 2);
        receiver.expect_memory(&run, |_| false);
        arrive(&mut receiver, &run, 1);
        receiver.expect_memory(&run, |fpdu| fpdu.start == run.fpdus[1].start);
        arrive(&mut receiver, &run, 0);
        assert_eq!(receiver.error(), Some(MARKER), "pointer {wrong}");
        receiver.expect_memory(&run, |fpdu| fpdu.start != run.fpdus[2].start);
        let usage = receiver.usage();
        assert_eq!((usage.held_frames, usage.placed_runs), (0, 0));
    }
}

/// Without CRCs the Markers must still agree.
// Requirements: A-10
#[test]
fn without_crcs_markers_are_believed_that_agree() {
    let mut receiver = Receiver::with(true, false);
    let ulpdus =
        [write(0, 700), write(700, 1300), Ulpdu::Send { message: 0, mo: 0, octets: 900, last: true }];
    let run = receiver.begin(&ulpdus);
    let segments: Vec<_> = run.fpdus.iter().rev().map(|fpdu| (fpdu.start, fpdu.end)).collect();
    play(&mut receiver, &run, &segments);
    assert_eq!(receiver.statistics().fpdus_placed_out_of_order, 2);
    let mut run = receiver.begin(&ulpdus);
    let at = (run.position + run.fpdus[1].start).next_multiple_of(512) - run.position;
    run.octets[at + 3] ^= 8;
    arrive(&mut receiver, &run, 1);
    receiver.expect_memory(&run, |_| false);
}

/// A FIN after placed octets ends the stream on a boundary; after a part of an FPDU it is error 1.
// Requirements: A-09
#[test]
fn a_fin_behind_placed_octets() {
    for (rest, error) in [(0, None), (10, Some(StreamError::Mpa(MpaError::TcpClosed)))] {
        let mut receiver = Receiver::new(true);
        let mut run = receiver.begin(&[write(0, 700), write(700, 900), write(1600, 400)]);
        run.octets.truncate(run.fpdus[2].start + rest);
        receiver.arrive_with_fin(&run, run.fpdus[1].start);
        assert_eq!(receiver.usage().placed_runs, 1);
        arrive(&mut receiver, &run, 0);
        assert_eq!(receiver.error(), error);
        let finished = receiver.peer.events.iter().any(|event| matches!(event, Event::PeerFinished { .. }));
        assert_eq!(finished, error.is_none(), "{:?}", receiver.peer.events);
        receiver.expect_memory(&run, |fpdu| fpdu.end <= run.octets.len());
    }
}
