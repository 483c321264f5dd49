//! The cases of RFC 5044 appendix A.4, and other cases of a segment that arrives out of order.

use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::ring::FullOperation;
use warpline_dataplane::wire::tcp::Flags;

use super::receiver::{Receiver, Run, Ulpdu};
use super::{has_marker, play};
use crate::common::raw::RawPeer;

/// Three Writes and a Send, each a FPDU of its own.
fn four() -> Vec<Ulpdu> {
    vec![
        Ulpdu::Write { to: 0, octets: 1000 },
        Ulpdu::Write { to: 1000, octets: 1100 },
        Ulpdu::Write { to: 2100, octets: 900 },
        Ulpdu::Send { message: 0, mo: 0, octets: 700, last: true },
    ]
}

/// The segments of `run` that begin at `starts`.
fn cut(run: &Run, starts: &[usize]) -> Vec<(usize, usize)> {
    let ends = starts.iter().copied().skip(1).chain([run.octets.len()]);
    starts.iter().copied().zip(ends).collect()
}

/// Plays a case of A.4: in order, in the opposite order, and with the first segment last; with Markers and
/// without.
fn case(ulpdus: &[Ulpdu], starts: impl Fn(&Run) -> Vec<usize>) {
    for markers in [true, false] {
        let mut receiver = Receiver::new(markers);
        for order in 0..3 {
            let run = receiver.begin(ulpdus);
            let mut segments = cut(&run, &starts(&run));
            match order {
                0 => {}
                1 => segments.reverse(),
                _ => segments.rotate_left(1),
            }
            play(&mut receiver, &run, &segments);
        }
        let placed = receiver.snapshot().counters.placed_bytes;
        assert_eq!(placed > 0, markers, "{placed} octets placed beyond gaps");
    }
}

/// MPA-A.4-02, the first case: a segment is one FPDU.
#[test]
fn segments_of_one_aligned_fpdu() {
    case(&four(), |run| run.fpdus.iter().map(|fpdu| fpdu.start).collect());
}

/// MPA-A.4-02, the second case: a segment is several FPDUs.
#[test]
fn segments_of_several_aligned_fpdus() {
    let ulpdus: Vec<_> = (0..12).map(|n| Ulpdu::Write { to: 320 * n, octets: 320 }).collect();
    case(&ulpdus, |run| run.fpdus.iter().step_by(4).map(|fpdu| fpdu.start).collect());
}

/// MPA-A.4-02, the third case: a segment begins with an FPDU that it does not hold whole.
#[test]
fn segments_of_incomplete_fpdus() {
    let long = Ulpdu::Send { message: 0, mo: 0, octets: 3500, last: true };
    case(&[Ulpdu::Write { to: 7, octets: 1200 }, long, Ulpdu::Write { to: 2000, octets: 1000 }], |run| {
        let long = &run.fpdus[1];
        vec![0, long.start, long.start + 1300, long.start + 2600, long.end]
    });
}

/// MPA-A.4-02, the fourth case: a segment begins inside an FPDU.
#[test]
fn segments_that_begin_inside_an_fpdu() {
    case(&four(), |run| [0].into_iter().chain(run.fpdus[..3].iter().map(|fpdu| fpdu.end - 301)).collect());
}

/// MPA-A.4-02, the fifth case: all of these in one stream.
#[test]
fn segments_of_every_kind() {
    let mut ulpdus = four();
    ulpdus.extend((0..6).map(|n| Ulpdu::Write { to: 4000 + 200 * n, octets: 200 }));
    case(&ulpdus, |run| {
        let [b, c, d] = [1, 2, 4].map(|n| run.fpdus[n].start);
        vec![0, b, b + 400, c, c + 800, d - 100, d + 333]
    });
}

/// FPDUs without a Marker of their own are located by the lengths of those before them, from a valid one on,
/// also when that one came earlier and is placed already. Without such a one they wait.
// Requirements: MPA-6-04
#[test]
fn lengths_lead_on_from_what_is_placed() {
    let small = |n: usize| Ulpdu::Write { to: 2000 + 50 * n, octets: 50 };
    let ulpdus = [
        Ulpdu::Write { to: 0, octets: 700 },
        Ulpdu::Write { to: 700, octets: 500 },
        small(0),
        small(1),
        small(2),
    ];
    let mut receiver = Receiver::new(true);
    let run = receiver.begin(&ulpdus);
    assert!((2..5).all(|n| !has_marker(&run, &run.fpdus[n])), "none has a Marker");
    let arrive =
        |receiver: &mut Receiver, n: usize| receiver.arrive(&run, run.fpdus[n].start, run.fpdus[n].end);
    arrive(&mut receiver, 3);
    receiver.expect_memory(&run, |_| false);
    arrive(&mut receiver, 1);
    arrive(&mut receiver, 2);
    receiver.expect_memory(&run, |fpdu| (1..4).any(|n| run.fpdus[n].start == fpdu.start));
    arrive(&mut receiver, 4);
    receiver.expect_memory(&run, |fpdu| fpdu.start > 0);
    assert_eq!((receiver.usage().held_frames, receiver.usage().placed_runs), (0, 1));
    arrive(&mut receiver, 0);
    receiver.expect_memory(&run, |_| true);
    assert_eq!(receiver.statistics().fpdus_placed_out_of_order, 4);
}

/// Octets placed beyond a gap use no receive window: its right edge does not move.
// Requirements: DDP-A-02
#[test]
fn the_window_stays_open_under_placement() {
    const WINDOW: u32 = 8192;
    let config = Config { window_bytes: WINDOW, ..RawPeer::config() };
    let peer = RawPeer::with_tables(config, 1500, Tables::default());
    let operation = FullOperation { markers_received: true, ..FullOperation::new(false) };
    let mut receiver = Receiver::at(peer, operation);
    let run = receiver.begin(&four());
    let start = receiver.seq;
    for n in [3, 2, 1, 0] {
        let fpdu = &run.fpdus[n];
        let (seq, octets) = (start + fpdu.start as u32, &run.octets[fpdu.start..fpdu.end]);
        receiver.peer.send(Flags::ACK, seq, receiver.ack(), octets);
        receiver.peer.pass_ms(60);
        let sent = receiver.peer.sent.back().expect("an acknowledgement").header.clone();
        receiver.peer.sent.clear();
        let next = if n == 0 { run.octets.len() as u32 } else { 0 };
        assert_eq!((sent.ack, u32::from(sent.window)), (start + next, WINDOW), "FPDU {n}");
    }
    assert_eq!(receiver.statistics().fpdus_placed_out_of_order, 3);
}

/// The least window there can be, and few frames: an FPDU of the link's MTU still comes together, in segments
/// of the least size a path can force, in order and in the opposite one.
// Requirements: MPA-A.5-03, C00-13-01
#[test]
fn an_fpdu_of_the_mtu_fits_the_least_buffer() {
    for markers in [true, false] {
        let config = Config { window_bytes: 1, ..RawPeer::config() };
        let peer = RawPeer::with_tables(config, 1500, Tables { held_frames: 24, ..Tables::default() });
        let operation = FullOperation::new(false);
        let mut receiver = Receiver::at(peer, FullOperation { markers_received: markers, ..operation });
        for reversed in [false, true] {
            let payload = 1460 - 12 - 6 - 18 - 2;
            let run = receiver.begin(&[Ulpdu::Send { message: 0, mo: 0, octets: payload, last: true }]);
            assert!((1440..=1460).contains(&run.octets.len()), "{}", run.octets.len());
            let mut segments = cut(&run, &(0..run.octets.len()).step_by(140).collect::<Vec<_>>());
            if reversed {
                segments.reverse();
            }
            play(&mut receiver, &run, &segments);
        }
    }
}
