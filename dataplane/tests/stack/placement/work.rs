//! Tests of the work that a peer can cause beyond gaps, measured by the core's counters: each octet is
//! verified once there and once more in its turn, and each segment visits only a few nodes, whatever arrived
//! before it and in which order.

use warpline_dataplane::core::Config;
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::ring::FullOperation;
use warpline_dataplane::statistics::DropCause;

use super::receiver::{Receiver, Run, Ulpdu};
use super::{has_marker, take_deliveries};
use crate::common::raw::RawPeer;

/// Maximum number of nodes visited for one segment: some forty searches of the segments that one connection
/// may hold.
const NODES_PER_SEGMENT_MAX: u64 = 600;

/// A receiver with Markers and the window of 64 KiB of a peer that does not scale it.
fn receiver() -> Receiver {
    let operation = FullOperation { markers_received: true, ..FullOperation::new(false) };
    Receiver::at(RawPeer::with(Config { window_bytes: 0xffff, ..RawPeer::config() }, 1500), operation)
}

/// A Write of `octets` octets to an STag that does not exist.
fn to_nowhere(octets: usize) -> Ulpdu {
    let mut ulpdu = vec![0xc1, 0x40, 0, 9, 0, 9];
    ulpdu.extend([0; 8]);
    ulpdu.resize(14 + octets, 1);
    Ulpdu::Raw(ulpdu)
}

/// `from..to` of the run arrives in segments of `octets` octets.
fn arrive_in(receiver: &mut Receiver, run: &Run, (from, to): (usize, usize), octets: usize) {
    for at in (from..to).step_by(octets) {
        receiver.arrive(run, at, to.min(at + octets));
    }
}

fn verified(receiver: &Receiver) -> u64 {
    receiver.statistics().bytes_verified
}

/// An FPDU of 60 000 octets beyond a gap, and octets after it in segments of one octet each.
struct Trailed {
    receiver: Receiver,
    run: Run,
}

impl Trailed {
    /// Applies `change` to the large FPDU. If `behind_placed`, the octets directly before it are placed, so
    /// that its beginning is known without a Marker.
    fn new(behind_placed: bool, large: Ulpdu, change: impl Fn(&mut [u8])) -> Self {
        let mut receiver = receiver();
        let ulpdus = [
            Ulpdu::Write { to: 0, octets: 700 },
            Ulpdu::Write { to: 700, octets: 600 },
            large,
            to_nowhere(900),
        ];
        let mut run = receiver.begin(&ulpdus);
        let [_, second, large, trail] = [0, 1, 2, 3].map(|n| (run.fpdus[n].start, run.fpdus[n].end));
        let good = run.octets.clone();
        change(&mut run.octets[large.0..large.1]);
        if behind_placed {
            receiver.arrive(&run, second.0, second.1);
            assert_eq!(receiver.usage().placed_runs, 1);
        }
        let before = verified(&receiver);
        arrive_in(&mut receiver, &run, large, 1400);
        let octets = (large.1 - large.0) as u64;
        assert_eq!(verified(&receiver) - before, octets, "once, when it is whole");
        arrive_in(&mut receiver, &run, (trail.0, trail.1 - 100), 1);
        assert_eq!(verified(&receiver) - before, octets, "not again for what comes behind it");
        assert_eq!((receiver.error(), receiver.statistics().dropped(DropCause::FpduCrc)), (None, 0));
        run.octets = good;
        Self { receiver, run }
    }

    /// The octets before the large FPDU arrive.
    fn close_gap(&mut self, behind_placed: bool) {
        let end = self.run.fpdus[usize::from(!behind_placed)].end;
        self.receiver.arrive(&self.run, 0, end);
    }
}

/// A damaged FPDU beyond a gap is known as damaged from then on, and is taken for a loss in its turn.
// Requirements: MPA-8-08, MPA-6-03
#[test]
fn a_damaged_fpdu_beyond_a_gap_is_verified_once() {
    for behind_placed in [true, false] {
        let mut trailed = Trailed::new(behind_placed, to_nowhere(60_000), |fpdu| fpdu[30_000] ^= 8);
        trailed.close_gap(behind_placed);
        let Trailed { mut receiver, run } = trailed;
        assert_eq!((receiver.error(), receiver.statistics().dropped(DropCause::FpduCrc)), (None, 1));
        let large = &run.fpdus[2];
        assert_eq!(receiver.next_expected(), receiver.seq + large.start as u32, "it comes again");
        // Undamaged, it is a Write to an unknown STag. Nothing of it was ever placed.
        receiver.expect_memory(&run, |fpdu| fpdu.start < large.start);
        arrive_in(&mut receiver, &run, (large.start, large.end), 1400);
        assert_eq!(receiver.error(), Some(StreamError::Ddp(DdpError::InvalidStag)));
    }
}

/// So is one that is not damaged and may not be placed before its turn. In its turn it is the error it is.
// Requirements: DDP-7.1-09
#[test]
fn an_fpdu_that_waits_for_its_turn_is_verified_once() {
    for behind_placed in [true, false] {
        let mut trailed = Trailed::new(behind_placed, to_nowhere(60_000), |_| {});
        assert_eq!(trailed.receiver.error(), None);
        trailed.close_gap(behind_placed);
        assert_eq!(trailed.receiver.error(), Some(StreamError::Ddp(DdpError::InvalidStag)));
    }
}

/// Octets that cannot be placed because they lie in the middle of a frame are not verified until the octets
/// after them can be placed.
#[test]
fn what_lies_in_the_middle_of_a_frame_is_verified_with_what_follows() {
    let mut receiver = receiver();
    let run = receiver.begin(&[
        Ulpdu::Write { to: 0, octets: 700 },
        Ulpdu::Write { to: 700, octets: 622 },
        Ulpdu::Write { to: 1322, octets: 300 },
        Ulpdu::Write { to: 1622, octets: 100 },
    ]);
    // Each octet of the fourth FPDU then causes a search for the third.
    assert!(has_marker(&run, &run.fpdus[2]) && !has_marker(&run, &run.fpdus[3]));
    let [third, fourth] = [2, 3].map(|n| (run.fpdus[n].start, run.fpdus[n].end));
    let before = verified(&receiver);
    receiver.arrive(&run, third.0 - 300, fourth.0 + 10);
    arrive_in(&mut receiver, &run, (fourth.0 + 10, fourth.1 - 1), 1);
    assert_eq!(verified(&receiver) - before, 0);
    receiver.arrive(&run, fourth.1 - 1, fourth.1);
    assert_eq!(verified(&receiver) - before, (fourth.1 - third.0) as u64);
    receiver.expect_memory(&run, |fpdu| fpdu.start >= third.0);
    receiver.arrive(&run, 0, third.0);
    receiver.expect_memory(&run, |_| true);
    assert_eq!(verified(&receiver) - before, run.octets.len() as u64);
}

/// Returns the largest number of nodes visited for one of the segments that `arrive` delivers one after the
/// other.
fn most_nodes(receiver: &mut Receiver, count: usize, mut arrive: impl FnMut(&mut Receiver, usize)) -> u64 {
    let mut one = |n| {
        let before = receiver.statistics().nodes_visited;
        arrive(receiver, n);
        receiver.statistics().nodes_visited - before
    };
    (0..count).map(&mut one).max().unwrap_or(0)
}

/// `count` segments of one octet with a hole between each two, and then one of them again and again.
fn with_holes(count: usize) -> (Receiver, Run) {
    let mut receiver = receiver();
    let ulpdus: Vec<Ulpdu> = (0..11).map(|n| Ulpdu::Write { to: 1000 * n, octets: 1000 }).collect();
    let run = receiver.begin(&ulpdus);
    let nodes = most_nodes(&mut receiver, count, |receiver, n| receiver.arrive(&run, 2 * n + 1, 2 * n + 2));
    assert!(nodes <= NODES_PER_SEGMENT_MAX, "{nodes} nodes for a new segment");
    assert_eq!(receiver.usage().held_frames, count);
    for n in [0, count / 2, count - 1] {
        let again = |receiver: &mut Receiver, _| receiver.arrive(&run, 2 * n + 1, 2 * n + 2);
        let nodes = most_nodes(&mut receiver, 10, again);
        assert!(nodes <= NODES_PER_SEGMENT_MAX, "{nodes} nodes for a duplicate");
    }
    assert_eq!(receiver.statistics().dropped(DropCause::Duplicate), 30);
    (receiver, run)
}

/// As many as are held beyond a gap.
#[test]
fn holes_do_not_make_segments_dear() {
    with_holes(limits::HELD_FRAMES_BEYOND_GAP - 1);
}

/// When the holes are filled, the stream continues as if there had been none.
#[test]
fn holes_are_filled_octet_by_octet() {
    let count = 1000;
    let (mut receiver, run) = with_holes(count);
    let nodes = most_nodes(&mut receiver, count, |receiver, n| receiver.arrive(&run, 2 * n, 2 * n + 1));
    assert!(
        nodes <= 100 * NODES_PER_SEGMENT_MAX,
        "{nodes} nodes for an octet that completes an FPDU of 1000"
    );
    arrive_in(&mut receiver, &run, (2 * count, run.octets.len()), 1400);
    receiver.expect_memory(&run, |_| true);
    assert_eq!((receiver.error(), receiver.usage().held_frames), (None, 0));
}

/// Small FPDUs of a Send, each in a segment of its own: the last first and then the others in order, or the
/// other way round. The state that their Delivery needs is stored without a walk over FPDUs placed before.
#[test]
fn small_fpdus_are_remembered_in_any_order() {
    for reverse in [false, true] {
        let mut receiver = receiver();
        let segment = |n: usize| Ulpdu::Send { message: 0, mo: 8 * n, octets: 8, last: n == 399 };
        let mut ulpdus = vec![Ulpdu::Write { to: 0, octets: 500 }];
        ulpdus.extend((0..400).map(segment));
        let run = receiver.begin(&ulpdus);
        let order = |n: usize| match (reverse, n) {
            (true, n) => 400 - n,
            (false, 0) => 400,
            (false, n) => n,
        };
        let nodes = most_nodes(&mut receiver, 400, |receiver, n| {
            let fpdu = &run.fpdus[order(n)];
            receiver.arrive(&run, fpdu.start, fpdu.end);
        });
        assert!(receiver.usage().placed_sends > 300, "{:?}", receiver.usage());
        // The last of a chain of sixteen brings them all.
        assert!(nodes <= 16 * NODES_PER_SEGMENT_MAX / 4, "{nodes} nodes");
        receiver.arrive(&run, 0, run.fpdus[0].end);
        receiver.expect_memory(&run, |_| true);
        assert_eq!((take_deliveries(&receiver, &run, 0), receiver.error()), (1, None));
    }
}
