//! Atomic Operations (RFC 7306 §5).

use warpline_dataplane::memory::{Region, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::PostError;
use warpline_dataplane::qp::work::CompletionKind::{CompareSwap, FetchAdd, Read};
use warpline_dataplane::qp::work::{Operation, SendRequest, Status};

use super::bench::{Bench, OWN, SETUPS, SHARED, octets_of, own};
use crate::common::holds;

fn value(region: &Region, offset: usize) -> u64 {
    u64::from_ne_bytes(octets_of(region, offset, 8).try_into().unwrap())
}

fn set(region: &Region, offset: usize, value: u64) {
    assert!(region.write(offset, &value.to_ne_bytes()));
}

/// Each operation has the documented effect, in order, between Reads of the same octets, and returns the
/// value from before.
// Requirements: RDMAPX-5-01, RDMAPX-5-03, RDMAPX-5-04
#[test]
fn operations_in_their_order() {
    for setup in SETUPS {
        let mut bench = Bench::new(2, setup);
        let to = 1024;
        set(&bench.b[0], 1024, 100);
        let a = &bench.pair.a;
        a.post(0, Operation::FetchAdd { stag: SHARED, to, add: 11, mask: 0 }, own(0, 8));
        a.post(1, Operation::Read { stag: SHARED, to }, own(8, 8));
        let swap = |compare, swap| Operation::CompareSwap {
            stag: SHARED,
            to,
            compare,
            compare_mask: u64::MAX,
            swap,
            swap_mask: u64::MAX,
        };
        a.post(2, swap(110, 1), own(16, 8));
        a.post(3, swap(111, 2), own(24, 8));
        a.post(4, Operation::Swap { stag: SHARED, to, swap: 0xff00, mask: 0xff00 }, own(32, 8));
        a.post(5, Operation::FetchAdd { stag: SHARED, to, add: 0xff_00ff, mask: 0x80_0080 }, own(40, 8));
        let kinds: Vec<_> = bench
            .completions_of_a(6)
            .iter()
            .map(|done| {
                assert_eq!((done.status, done.byte_len), (Status::Success, 8));
                (done.id, done.kind)
            })
            .collect();
        let expected = [FetchAdd, Read, CompareSwap, CompareSwap, CompareSwap, FetchAdd];
        assert_eq!(kinds, (0..).zip(expected).collect::<Vec<_>>());
        let before: Vec<_> = (0..6).map(|n| value(&bench.a[1], n * 8)).collect();
        assert_eq!(before, [100, 111, 111, 111, 2, 0xff02]);
        // In fields of eight bits: 0x02 + 0xff without a carry, 0xff00 stays, 0x00 + 0xff.
        assert_eq!(value(&bench.b[0], 1024), 0xff_ff01);
    }
}

/// Additions from both ends and many at a time, none lost.
// Requirements: RDMAPX-5-01
#[test]
fn no_addition_is_lost() {
    let mut bench = Bench::new(8, SETUPS[0]);
    set(&bench.b[0], 0, 0);
    for id in 0..200 {
        bench.pair.a.post(id, Operation::FetchAdd { stag: SHARED, to: 0, add: 3, mask: 0 }, own(id * 8, 8));
    }
    bench.completions_of_a(200);
    let mut seen: Vec<_> = (0..200).map(|n| value(&bench.a[1], n * 8)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).map(|n| n * 3).collect::<Vec<_>>());
    assert_eq!(value(&bench.b[0], 0), 600);
}

/// An operation on memory that is unaligned, not registered or not granted changes nothing, and ends the
/// stream with the documented Terminate.
// Requirements: RDMAPX-5-02, RDMAPX-8-01
#[test]
fn what_may_not_be_changed_is_not() {
    let add = |stag, to| Operation::FetchAdd { stag, to, add: 1, mask: 0 };
    let stale = STag::new(1, 0x1110);
    let cases = [
        (add(SHARED, 4), 2, 0x07),
        (add(SHARED, 1), 2, 0x07),
        (add(stale, 0), 1, 0x00),
        (add(OWN, 0), 1, 0x02),
        (add(SHARED, (1 << 18) - 4), 1, 0x01),
        (add(SHARED, u64::MAX - 3), 1, 0x04),
    ];
    for (operation, error_type, code) in cases {
        let mut bench = Bench::new(2, SETUPS[0]);
        let before = [octets_of(&bench.b[0], 0, 1 << 18), octets_of(&bench.b[1], 0, 64)];
        bench.pair.a.post(1, operation, own(0, 8));
        let told = StreamError::Terminated { layer: 0, error_type, code };
        assert_eq!(bench.completions_of_a(1)[0].status, Status::Failed(told));
        assert!(holds(&bench.b[0], 0, &before[0]) && holds(&bench.b[1], 0, &before[1]));
    }
}

/// The value from before is eight octets.
#[test]
fn the_answer_has_eight_octets() {
    for octets in [0, 4, 16] {
        let mut bench = Bench::new(2, SETUPS[0]);
        let swap = Operation::Swap { stag: SHARED, to: 0, swap: 1, mask: 1 };
        let refused = bench.pair.a.qp.post_send(SendRequest::new(1, swap, own(0, octets)));
        assert_eq!(refused, Err(PostError::LocalShape));
        bench.pair.a.post(2, swap, own(0, 8));
        assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
    }
}
