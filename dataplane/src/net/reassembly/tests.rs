//! Tests of IPv4 reassembly.

use super::*;
use crate::device::{ChecksumRequest, ReceivedChecksums};
use crate::time::SECOND;

/// A frame in two pieces, so that copies have to cross from one to the other.
struct TwoPieces(Vec<u8>);

impl Frame for TwoPieces {
    fn piece(&self, index: usize) -> Option<&[u8]> {
        let (first, second) = self.0.split_at(self.0.len() / 2);
        [first, second].get(index).copied()
    }

    fn first_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn append(&mut self, _: usize) -> Option<&mut [u8]> {
        None
    }

    fn checksums(&self) -> ReceivedChecksums {
        ReceivedChecksums::default()
    }

    fn request_checksums(&mut self, _: ChecksumRequest) {}
}

const HEADERS: usize = 34;
const OCTETS: usize = 1480;

struct Fixture {
    reassembly: Reassembly,
    drops: Drops,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        let (drops, now) = (Drops::default(), Instant::from_nanos(1));
        Self { reassembly: Reassembly::new(OCTETS), drops, now }
    }

    fn accept_with(
        &mut self,
        identification: u32,
        octets: &[u8],
        range: std::ops::Range<usize>,
        more: bool,
        ecn: u8,
    ) -> Result<Option<(Vec<u8>, u8)>, DropCause> {
        let mut frame = vec![0xee; HEADERS];
        frame.extend_from_slice(&octets[range.clone()]);
        let id = DatagramId {
            source: [198, 18, 0, 2].into(),
            destination: [198, 18, 0, 1].into(),
            protocol: 6,
            identification,
        };
        let fragment =
            Fragment { id, offset: range.start, octets: range.len(), more, ecn, first_octets_min: 20 };
        let frame = TwoPieces(frame);
        let accepted = self.reassembly.accept(self.now, &fragment, &frame, HEADERS, &mut self.drops)?;
        Ok(accepted.map(|datagram| (datagram.payload.to_vec(), datagram.ecn)))
    }

    fn accept(
        &mut self,
        identification: u32,
        octets: &[u8],
        range: std::ops::Range<usize>,
    ) -> Result<Option<Vec<u8>>, DropCause> {
        let more = range.end != octets.len();
        self.accept_with(identification, octets, range, more, 0)
            .map(|datagram| datagram.map(|(octets, _)| octets))
    }
}

fn payload(octets: usize) -> Vec<u8> {
    (0..octets).map(|n| (n * 7 + n / 256) as u8).collect()
}

#[test]
fn fragments_come_in_any_order() {
    let octets = payload(1000);
    let cuts = [0..400, 400..408, 408..800, 800..1000];
    for seed in 0..50 {
        let mut f = Fixture::new();
        let mut order: Vec<_> = cuts.to_vec();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        let last = order.pop().unwrap();
        for range in order {
            assert_eq!(f.accept(7, &octets, range), Ok(None), "seed {seed}");
        }
        assert_eq!(f.accept(7, &octets, last), Ok(Some(octets.clone())), "seed {seed}");
        assert_eq!(f.drops, Drops::default());
    }
}

/// RFC 815: datagrams whose fragments are interleaved do not mix.
#[test]
fn datagrams_do_not_mix() {
    let mut f = Fixture::new();
    let (a, b) = (vec![1; 100], vec![2; 100]);
    f.accept(1, &a, 0..48).unwrap();
    f.accept(2, &b, 0..48).unwrap();
    assert_eq!(f.accept(2, &b, 48..100), Ok(Some(b)));
    assert_eq!(f.accept(1, &a, 48..100), Ok(Some(a)));
}

#[test]
fn an_exact_duplicate_is_no_overlap() {
    let mut f = Fixture::new();
    let octets = payload(100);
    f.accept(1, &octets, 0..48).unwrap();
    let altered = vec![0; 100];
    assert_eq!(f.accept(1, &altered, 0..48), Err(DropCause::Duplicate));
    assert_eq!(f.accept(1, &octets, 48..100), Ok(Some(octets)), "what came first stays");
}

/// RFC 5722 §4: all of the datagram is dropped, including fragments that arrive later.
#[test]
fn an_overlap_drops_the_datagram() {
    let octets = payload(1000);
    let overlaps = [0..48, 0..88, 40..88, 48..72, 72..160];
    for overlap in overlaps {
        let mut f = Fixture::new();
        f.accept(1, &octets, 0..40).unwrap();
        f.accept(1, &octets, 64..80).unwrap();
        assert_eq!(f.accept(1, &octets, overlap.clone()), Err(DropCause::FragmentOverlap), "{overlap:?}");
        assert_eq!(f.accept(1, &octets, 40..64), Err(DropCause::FragmentOverlap));
        assert_eq!(f.accept(1, &octets, 80..1000), Err(DropCause::FragmentOverlap));
        // Its name is free again after its time.
        f.now += limits::REASSEMBLY_NS;
        assert_eq!(f.accept(1, &octets, 0..40), Ok(None));
        assert_eq!(f.drops, Drops::default(), "the datagram was counted when it was dropped");
    }
}

/// Two ends, or octets after the end.
#[test]
fn a_datagram_has_one_length() {
    let octets = payload(400);
    let mut f = Fixture::new();
    f.accept_with(1, &octets, 200..300, false, 0).unwrap();
    assert_eq!(f.accept_with(1, &octets, 200..310, false, 0), Err(DropCause::FragmentOverlap));
    f.accept_with(2, &octets, 200..300, false, 0).unwrap();
    assert_eq!(f.accept_with(2, &octets, 304..400, true, 0), Err(DropCause::FragmentOverlap));
    f.accept_with(3, &octets, 200..400, true, 0).unwrap();
    assert_eq!(f.accept_with(3, &octets, 104..200, false, 0), Err(DropCause::FragmentOverlap));
}

#[test]
fn what_cannot_be_a_fragment_is_refused() {
    let octets = payload(4000);
    let mut f = Fixture::new();
    let cases = [
        // RFC 1858 §3: a TCP header cut in two.
        (0..16, true),
        (8..1000, true),
        (16..1000, false),
        // Not a multiple of eight, and others follow.
        (0..401, true),
        (400..400, false),
        // No datagram of ours is longer than the MTU.
        (1400..1481, false),
        (0..1488, true),
        (3992..4000, false),
    ];
    for (range, more) in cases {
        let refused = f.accept_with(1, &octets, range.clone(), more, 0);
        assert_eq!(refused, Err(DropCause::Fragment), "{range:?}");
    }
    assert!(f.reassembly.datagrams.iter().all(Option::is_none), "nothing is kept of them");
    assert_eq!(f.accept(1, &octets[..OCTETS], 0..1472), Ok(None));
    assert!(f.accept(1, &octets[..OCTETS], 1472..OCTETS).unwrap().is_some(), "the longest there is");
}

#[test]
fn more_fragments_than_any_path_makes_are_refused() {
    let octets = payload(OCTETS);
    let mut f = Fixture::new();
    f.accept(1, &octets, 0..24).unwrap();
    for n in 1..limits::FRAGMENTS_PER_DATAGRAM {
        f.accept(1, &octets, 16 + 8 * n..24 + 8 * n).unwrap();
    }
    assert_eq!(f.accept(1, &octets, 1472..1480), Err(DropCause::Fragment));
}

/// RFC 1122 §3.3.2: the timer runs from the first fragment, whatever arrives after it.
#[test]
fn what_is_not_whole_in_time_is_dropped() {
    let mut f = Fixture::new();
    let octets = payload(100);
    f.accept(1, &octets, 0..40).unwrap();
    f.now += limits::REASSEMBLY_NS - 1;
    f.accept(1, &octets, 40..80).unwrap();
    f.now += 1;
    assert_eq!(f.accept(1, &octets, 80..100), Ok(None));
    assert_eq!(f.drops.get(DropCause::ReassemblyTimeout), 1);
}

#[test]
fn the_oldest_makes_room() {
    let mut f = Fixture::new();
    let octets = payload(100);
    let many = limits::DATAGRAMS_IN_REASSEMBLY as u32 + 1;
    for name in 0..many {
        f.accept(name, &octets, 0..40).unwrap();
        f.now += SECOND / 100;
    }
    assert_eq!(f.drops.get(DropCause::ReassemblyEvicted), 1);
    assert_eq!(f.accept(0, &octets, 40..100), Ok(None), "it was the oldest");
    assert!(f.accept(2, &octets, 40..100).unwrap().is_some());
}

/// RFC 3168 §5.3.
#[test]
fn congestion_marks_survive() {
    let octets = payload(100);
    let cases = [
        ([0, 0], Ok(Some(0))),
        ([2, 2], Ok(Some(2))),
        ([1, 1], Ok(Some(1))),
        ([2, 3], Ok(Some(3))),
        ([0, 3], Err(DropCause::Fragment)),
    ];
    for (marks, expected) in cases {
        let mut f = Fixture::new();
        f.accept_with(1, &octets, 0..40, true, marks[0]).unwrap();
        let accepted = f.accept_with(1, &octets, 40..100, false, marks[1]);
        assert_eq!(accepted.map(|datagram| datagram.map(|(_, ecn)| ecn)), expected, "{marks:?}");
    }
}

/// Random fragments of a few datagrams against a map of the received octets: each datagram that is returned
/// equals the one sent, and none is returned while an octet is missing.
#[test]
fn only_what_was_sent_comes_out() {
    let octets = payload(200);
    let mut complete = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut f = Fixture::new();
        let mut come = [false; 200];
        let mut contradicted = false;
        for _ in 0..40 {
            let start = 24 * rng.usize(0..9);
            let slots = if rng.u32(..30) == 0 { rng.usize(1..4) } else { 1 };
            let end = (start + 24 * slots).min(200);
            if start >= end {
                continue;
            }
            let before = come[start..end].iter().filter(|come| **come).count();
            match f.accept(1, &octets, start..end) {
                Ok(None) => {
                    assert_eq!(before, 0, "seed {seed}");
                    come[start..end].fill(true);
                    assert!(come.contains(&false), "seed {seed}: complete, and not returned");
                }
                Ok(Some(datagram)) => {
                    come[start..end].fill(true);
                    assert!(!come.contains(&false) && !contradicted, "seed {seed}");
                    assert_eq!(datagram, octets);
                    (come, complete) = ([false; 200], complete + 1);
                }
                Err(DropCause::Duplicate) => assert_eq!(before, end - start, "seed {seed}"),
                Err(_) => {
                    assert!(before > 0 || contradicted, "seed {seed}");
                    contradicted = true;
                }
            }
        }
    }
    assert!(complete > 10, "{complete} datagrams became complete");
}
