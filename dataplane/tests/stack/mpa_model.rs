//! Tests of framing against an oracle, octet for octet: every Marker phase with every ULPDU length, the
//! lengths at the limits, whole streams, the freedoms of senders and their violations. The oracle is
//! `reference::mpa`, written from the RFC's text alone.

use std::collections::BTreeSet;
use std::thread;

use crate::reference::mpa::{Fault, Liberties, Received, Receiver, Sender, Shape, Stream};
use warpline_dataplane::mpa::contiguous::{ContiguousFpdu, InFrame, Marked, Unmarked};
use warpline_dataplane::mpa::fpdu::{self, MULPDU_MAX, mulpdu};
use warpline_dataplane::mpa::receiver::{FpduReceiver, Ulpdu};
use warpline_dataplane::mpa::{Framing, MpaError};
use warpline_dataplane::wire::mpa::Marker;

/// Positions from one Marker to the next at which an FPDU can begin.
const PHASES: u64 = 128;
/// Octets of stream before the Marker interval the FPDU begins in: at its start, later, and more than
/// sequence numbers count.
const INTERVALS: [u64; 4] = [0, 512, 3 * 512, (1 << 32) + 7 * 512];

/// Shapes that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    fpdus: u64,
    /// By their number of Markers: none, one, to four; more.
    markers: [u64; 6],
    most_markers: u32,
    /// A Marker between two FPDUs.
    leading: u64,
    /// A Marker right before the CRC.
    before_crc: u64,
    /// A Marker in an FPDU whose ULPDU is shorter than any DDP header.
    tiny: u64,
    /// Sequence numbers wrap inside the FPDU, and inside one of its Markers.
    wraps: u64,
    marker_wraps: u64,
    pad: [u64; 4],
}

impl Seen {
    fn note(&mut self, shape: &Shape, ulpdu_octets: usize) {
        self.fpdus += 1;
        self.markers[shape.markers.min(5) as usize] += 1;
        self.most_markers = self.most_markers.max(shape.markers);
        self.leading += u64::from(shape.leading);
        self.before_crc += u64::from(shape.before_crc);
        self.tiny += u64::from(shape.markers > 0 && ulpdu_octets < 14);
        self.wraps += u64::from(shape.wraps);
        self.marker_wraps += u64::from(shape.marker_wraps);
        self.pad[shape.pad as usize] += 1;
    }

    fn add(&mut self, other: &Self) {
        self.fpdus += other.fpdus;
        self.most_markers = self.most_markers.max(other.most_markers);
        self.leading += other.leading;
        self.before_crc += other.before_crc;
        self.tiny += other.tiny;
        self.wraps += other.wraps;
        self.marker_wraps += other.marker_wraps;
        for (sum, count) in
            self.markers.iter_mut().zip(other.markers).chain(self.pad.iter_mut().zip(other.pad))
        {
            *sum += count;
        }
    }
}

/// Both implementations of both directions, and room for an FPDU of each.
struct Bench {
    pattern: Vec<u8>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
    ulpdu: Vec<u8>,
    seen: Seen,
}

impl Bench {
    fn new() -> Self {
        let mut rng = fastrand::Rng::with_seed(5044);
        let mut pattern = vec![0; 70_000];
        rng.fill(&mut pattern);
        Self { pattern, ours: Vec::new(), theirs: Vec::new(), ulpdu: Vec::new(), seen: Seen::default() }
    }

    /// Frames a ULPDU of `len` octets at `position` of a stream that begins at sequence number `start`, with
    /// both implementations, and lets each read the other's octets.
    fn both_ways(&mut self, stream: Stream, position: u64, len: usize) {
        let what = (stream, position, len);
        let at = stream.start.wrapping_add(position as u32);
        let ulpdu = &self.pattern[len % 61..][..len];

        self.theirs.clear();
        let mut sender = Sender::new(stream);
        sender.seq = at;
        sender.frame(ulpdu, &mut self.theirs);

        self.ours.clear();
        self.ours.resize(fpdu::wire_len(position, len, stream.markers), 0xee);
        let (header, payload) = ulpdu.split_at(len.min(14));
        let fill = |at: usize, out: &mut [u8]| {
            out.copy_from_slice(&payload[at..at + out.len()]);
            true
        };
        let done = fpdu::encode(
            &mut self.ours,
            position,
            Framing { markers: stream.markers, crc: stream.crc },
            header,
            payload.len(),
            fill,
        );
        assert!(done && self.ours == self.theirs, "{what:?}");

        let shape = self.judge_ours(stream, at, len);
        self.judge_theirs(stream, position, len, &shape);
        self.seen.note(&shape, len);
    }

    /// Reads our octets with the oracle.
    fn judge_ours(&self, stream: Stream, at: u32, len: usize) -> Shape {
        let mut receiver = Receiver::at(stream, at);
        let (last, before) = self.ours.split_last().unwrap();
        for octet in before {
            assert_eq!(receiver.take(*octet), Ok(None));
        }
        let Ok(Some(Received { ulpdu, shape })) = receiver.take(*last) else {
            panic!("{stream:?} {at} {len}");
        };
        assert_eq!(ulpdu, self.pattern[len % 61..][..len]);
        shape
    }

    /// Reads the oracle's octets with our receiver.
    fn judge_theirs(&mut self, stream: Stream, position: u64, len: usize, shape: &Shape) {
        let what = (stream, position, len);
        let octets = &self.theirs[..];
        let receiver = FpduReceiver::at(position, Framing { markers: stream.markers, crc: stream.crc });
        assert_eq!(receiver.next(&&octets[..octets.len() - 1]), Ok(None), "{what:?}");
        let located = receiver.next(&octets).unwrap().expect("complete");
        assert_eq!((located.wire_len(), located.ulpdu_len()), (octets.len(), len), "{what:?}");
        assert_eq!(located.leading_marker(), shape.leading, "{what:?}");
        assert_eq!(located.marker_count(), shape.markers as usize, "{what:?}");
        self.ulpdu.clear();
        self.ulpdu.resize(len, 0xee);
        located
            .ulpdu(&octets)
            .for_each_piece(0, |at, slice| self.ulpdu[at..at + slice.len()].copy_from_slice(slice));
        assert_eq!(self.ulpdu, self.pattern[len % 61..][..len], "{what:?}");
        let in_frame = in_frame(&receiver, octets);
        assert_eq!(in_frame, Some((octets.len(), self.ulpdu.clone())), "{what:?}");
        assert_eq!(self::in_frame(&receiver, &octets[..octets.len() - 1]), None, "{what:?}");
        // Behind a Marker begins no FPDU of a whole stream: that Marker would be its own.
        if stream.markers && position % 512 != 4 {
            let first = (position.next_multiple_of(512) - position) as usize;
            for at in (first..octets.len()).step_by(512) {
                let marker = Marker::parse(octets[at..at + 4].try_into().unwrap());
                let found = FpduReceiver::at_marker(position + at as u64, marker, stream.crc);
                assert_eq!(found, Some(receiver), "{what:?}");
            }
        }
    }
}

/// A stream with Markers and CRCs in which the octet `wrap_at` of the FPDU at `position` has sequence number
/// zero.
fn wrapping(position: u64, wrap_at: usize) -> Stream {
    let start = 0_u32.wrapping_sub(position as u32).wrapping_sub(wrap_at as u32);
    Stream { start, markers: true, crc: true }
}

/// Where sequence numbers wrap for each length: anywhere in the FPDU, over all of the lengths.
fn wrap_at(phase: u64, len: usize) -> usize {
    (len * 7 + phase as usize * 13) % (len + 9)
}

/// Runs `each` for every phase, shared out to as many threads as there are CPUs.
fn every_phase(each: impl Fn(&mut Bench, u64) + Sync) -> Seen {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut seen = Seen::default();
    thread::scope(|scope| {
        let each = &each;
        let run = |first: u64| {
            move || {
                let mut bench = Bench::new();
                (first..PHASES).step_by(threads as usize).for_each(|phase| each(&mut bench, phase));
                bench.seen
            }
        };
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(run(first))).collect();
        for thread in running {
            seen.add(&thread.join().unwrap());
        }
    });
    seen
}

/// How many of the ULPDU lengths `lengths` put a Marker right before the CRC, over all phases: the octets
/// before the CRC, PAD included, end where one is due.
fn before_crc(lengths: std::ops::Range<u64>) -> u64 {
    let due = |phase: u64, len: u64| {
        let to_first = (512 - phase * 4) % 512;
        let content = (len + 2).div_ceil(4) * 4;
        content >= to_first && (content - to_first).is_multiple_of(508)
    };
    (0..PHASES).map(|phase| lengths.clone().filter(|len| due(phase, *len)).count() as u64).sum()
}

/// Every phase with every length from 0 to 2048, as both ends write it and as both ends read it.
// Requirements: MPA-4.1-02, MPA-4.3-10, C00-7.1-06, C00-7.1-07, C00-7.2-03, C00-7.2-04
#[test]
fn every_phase_and_every_length() {
    const LENGTHS: std::ops::RangeInclusive<usize> = 0..=2048;
    let seen = every_phase(|bench, phase| {
        for len in LENGTHS {
            let position = phase * 4 + INTERVALS[len % INTERVALS.len()];
            bench.both_ways(wrapping(position, wrap_at(phase, len)), position, len);
        }
    });
    let fpdus = PHASES * 2049;
    assert_eq!(seen.fpdus, fpdus);
    assert_eq!(seen.leading, 2049, "every length behind a Marker");
    assert_eq!(seen.before_crc, before_crc(0..2049));
    assert!(seen.before_crc > 2000, "{seen:?}");
    // 0 to 11 octets make FPDUs of 8 to 20 octets, 12 and 13 of 24 (PAD included): as many phases have a
    // Marker in them as they have places that begin at a multiple of four, and the one in front.
    assert_eq!(seen.tiny, (0..14_u64).map(|len| (len + 2).div_ceil(4) + 1).sum::<u64>());
    assert_eq!(seen.markers.iter().sum::<u64>(), fpdus);
    assert!(seen.markers[..5].iter().all(|count| *count > 20_000), "{seen:?}");
    assert!(seen.markers[5] > 20, "five Markers: {seen:?}");
    assert!(seen.wraps > fpdus * 9 / 10, "{seen:?}");
    assert!(seen.marker_wraps > 500, "{seen:?}");
    assert!(seen.pad.iter().all(|count| *count > 65_000), "{seen:?}");
}

/// Lengths around every multiple of 512, around every MULPDU from 128 to 64768, and the last 256 lengths.
/// Each length uses some phases in turn; the longest ULPDU uses all.
// Requirements: MPA-3-04, MPA-3-05, MPA-4.5-01, MPA-4.5-02, MPA-4.5-06
#[test]
fn lengths_at_the_limits() {
    let multiples = (2048..=MULPDU_MAX).step_by(512 * 13).flat_map(|len| len - 5..=len + 5);
    let segments = [2048, 4052, 4312, 8948, 8960, 9000, 16384, 32768, 65415, 65535];
    let edges = segments.iter().flat_map(|emss| {
        [true, false].map(|markers| mulpdu(*emss, markers)).into_iter().flat_map(|most| most - 2..=most + 2)
    });
    let lengths: BTreeSet<usize> = multiples
        .chain(edges)
        .chain(MULPDU_MAX - 255..=MULPDU_MAX)
        .filter(|len| *len <= MULPDU_MAX)
        .collect();
    assert!(lengths.len() > 400, "{}", lengths.len());
    assert_eq!(lengths.last(), Some(&64768));
    let seen = every_phase(|bench, phase| {
        for (index, len) in lengths.iter().enumerate() {
            if *len == MULPDU_MAX || index as u64 % 32 == phase % 32 {
                let position = phase * 4 + INTERVALS[index % INTERVALS.len()];
                bench.both_ways(wrapping(position, wrap_at(phase, *len)), position, *len);
            }
        }
    });
    assert!(seen.fpdus >= 4 * (lengths.len() as u64 - 1) + PHASES, "{seen:?}");
    assert!(seen.leading > 10 && seen.before_crc > 10, "{seen:?}");
    assert!(seen.wraps > seen.fpdus * 9 / 10 && seen.pad.iter().all(|count| *count > 100), "{seen:?}");
    assert_eq!(seen.most_markers, 128, "64768 octets, PAD, length and CRC, 508 between two Markers");
}

/// Without Markers the position has no effect, and without CRCs the field is still there.
// Requirements: MPA-4.3-12, MPA-4.4-09, MPA-4.4-10, MPA-7.1.1-09
#[test]
fn without_markers_and_without_crcs() {
    let seen = every_phase(|bench, phase| {
        for len in (0..=2048).step_by(8).map(|len| len + phase as usize % 8) {
            let position = phase * 4 + INTERVALS[len % INTERVALS.len()];
            for (markers, crc) in [(false, true), (true, false), (false, false)] {
                let stream = Stream { markers, crc, ..wrapping(position, wrap_at(phase, len)) };
                bench.both_ways(stream, position, len);
            }
        }
    });
    assert_eq!(seen.fpdus, 3 * PHASES * 257);
    assert!(
        seen.markers[0] > 2 * PHASES * 257 && seen.markers[3] > 1000 && seen.before_crc > 100,
        "{seen:?}"
    );
}

/// Any value that a sender may put into PAD, the reserved half of a Marker and the low bits of its pointer
/// changes the CRC and nothing else; our own sender leaves all of it zero.
// Requirements: MPA-4.1-05, MPA-4.2-02, MPA-4.2-03, MPA-4.2-04, C00-7.1-03, C00-7.1-04
#[test]
fn liberties_are_borne() {
    let bench = Bench::new();
    for phase in 0..PHASES {
        for len in (0..256).chain([494, 495, 500, 502, 1442, 2000]) {
            let stream = wrapping(phase * 4, 3);
            let at = stream.start.wrapping_add(phase as u32 * 4);
            let ulpdu = &bench.pattern[..len];
            let mut sender = Sender::new(stream);
            sender.seq = at;
            sender.liberties = Liberties { pad: 0xa5, reserved: 0xbeef, low_bits: 1 + (len % 3) as u8 };
            let mut octets = Vec::new();
            sender.frame(ulpdu, &mut octets);
            let mut receiver = Receiver::at(stream, at);
            let judged = octets.iter().find_map(|octet| receiver.take(*octet).unwrap());
            assert_eq!(judged.expect("complete").ulpdu, ulpdu);
            let located = FpduReceiver::at(phase * 4, Framing { markers: true, crc: true })
                .next(&&octets[..])
                .unwrap()
                .expect("complete");
            let mut found = Vec::new();
            located.ulpdu(&&octets[..]).for_each_piece(0, |_, slice| found.extend_from_slice(slice));
            assert_eq!(found, ulpdu, "{phase} {len}");
        }
    }
}

/// Returns the length of the FPDU at the front of a frame with `octets`, and its ULPDU.
fn in_frame(receiver: &FpduReceiver, octets: &[u8]) -> Option<(usize, Vec<u8>)> {
    fn shown<U: Ulpdu>(fpdu: &ContiguousFpdu<U>) -> (usize, Vec<u8>) {
        let mut ulpdu = Vec::new();
        fpdu.ulpdu.for_each_piece(0, |at, piece| {
            assert_eq!(at, ulpdu.len());
            ulpdu.extend_from_slice(piece);
        });
        assert_eq!(ulpdu.len(), fpdu.ulpdu.octets());
        (fpdu.wire_len, ulpdu)
    }
    if receiver.has_markers() {
        Marked::next(receiver, octets).as_ref().map(shown)
    } else {
        Unmarked::next(receiver, octets).as_ref().map(shown)
    }
}

/// Returns our receiver's result for `octets`, in the oracle's terms.
fn verdict(stream: Stream, position: u64, octets: &[u8]) -> Result<Option<Vec<u8>>, u8> {
    let receiver = FpduReceiver::at(position, Framing { markers: stream.markers, crc: stream.crc });
    let (located, in_frame) = (receiver.next(&octets), in_frame(&receiver, octets));
    assert_eq!(in_frame.is_some(), located.is_ok_and(|located| located.is_some()), "{stream:?} {position}");
    Ok(located.map_err(MpaError::code)?.map(|located| {
        let mut ulpdu = Vec::new();
        located.ulpdu(&octets).for_each_piece(0, |_, slice| ulpdu.extend_from_slice(slice));
        assert_eq!(in_frame, Some((located.wire_len(), ulpdu.clone())), "{stream:?} {position}");
        ulpdu
    }))
}

/// Returns the oracle's result. It reads the octets that are there: an FPDU that ends early leaves octets
/// over.
fn judged(stream: Stream, position: u64, octets: &[u8]) -> Result<Option<Vec<u8>>, u8> {
    let mut receiver = Receiver::at(stream, stream.start.wrapping_add(position as u32));
    for octet in octets {
        if let Some(received) = receiver.take(*octet).map_err(|fault: Fault| fault as u8)? {
            return Ok(Some(received.ulpdu));
        }
    }
    Ok(None)
}

/// Damage of every kind, with right and wrong CRCs: both reach the same verdict, and each verdict occurs.
/// Ambiguities.
// Requirements: MPA-4.4-16, MPA-5.2-02, MPA-6-03, C00-7.2-01, C00-7.2-05, C00-9-03
#[test]
fn damage_is_judged_alike() {
    let mut rng = fastrand::Rng::with_seed(8);
    let bench = Bench::new();
    let mut verdicts = [0; 4];
    for round in 0..60_000 {
        let position = rng.u64(..PHASES) * 4 + INTERVALS[rng.usize(..INTERVALS.len())];
        let len = if round % 8 == 0 { rng.usize(..2100) } else { rng.usize(..600) };
        let stream = Stream { markers: rng.bool(), crc: rng.bool(), ..wrapping(position, rng.usize(..600)) };
        let mut sender = Sender::new(stream);
        sender.seq = stream.start.wrapping_add(position as u32);
        let mut octets = Vec::new();
        sender.frame(&bench.pattern[..len], &mut octets);
        for _ in 0..rng.usize(..4) {
            // Most of them where they matter: in the length, or in a Marker.
            let at = match rng.usize(..3) {
                0 => rng.usize(..8),
                1 => (position.next_multiple_of(512) - position) as usize + rng.usize(..4),
                _ => rng.usize(..octets.len()),
            };
            if let Some(octet) = octets.get_mut(at) {
                *octet ^= 1 << rng.usize(..8);
            }
        }
        if rng.bool() {
            // A CRC that matches the damaged octets.
            let (covered, field) = octets.split_last_chunk_mut::<4>().unwrap();
            let mut crc = crate::reference::mpa::Crc::NOTHING;
            for octet in covered {
                crc.take(*octet);
            }
            *field = crc.field();
        }
        octets.truncate(octets.len() - if rng.usize(..8) == 0 { rng.usize(..octets.len()) } else { 0 });
        let ours = verdict(stream, position, &octets);
        assert_eq!(ours, judged(stream, position, &octets), "{round}: {stream:?} {position} {octets:02x?}");
        verdicts[match ours {
            Ok(Some(_)) => 0,
            Ok(None) => 1,
            Err(2) => 2,
            Err(_) => 3,
        }] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 2000), "{verdicts:?}");
}

/// Whole streams across the wrap of sequence numbers: FPDUs follow each other wherever Markers fall between
/// them, and the positions of one implementation are the sequence numbers of the other.
// Requirements: MPA-4.3-02, MPA-4.3-04, MPA-4.3-05, MPA-4.3-06, MPA-5.2-01, A-20
#[test]
fn streams_across_the_wrap() {
    let bench = Bench::new();
    let mut seen = Seen::default();
    for seed in 0..64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = [0xffff_ff00, 0xffff_fffc, 0xffff_fffe, 11, rng.u32(..)][seed as usize % 5];
        let stream = Stream { start, markers: seed % 8 != 7, crc: true };
        let lengths: Vec<usize> = (0..300)
            .map(|_| match rng.usize(..4) {
                0 => rng.usize(..16),
                1 => rng.usize(480..520),
                2 => rng.usize(..1500),
                _ => rng.usize(..64),
            })
            .collect();
        let mut sender = Sender::new(stream);
        let mut octets = Vec::new();
        let mut ours = FpduReceiver::new(Framing { markers: stream.markers, crc: true });
        for len in &lengths {
            sender.frame(&bench.pattern[*len..2 * len], &mut octets);
        }
        let mut judge = Receiver::new(stream);
        let mut taken = octets.iter();
        for len in &lengths {
            let rest = &octets[ours.position() as usize..];
            let located = ours.next(&rest).unwrap().expect("complete");
            let mut ulpdu = Vec::new();
            located.ulpdu(&rest).for_each_piece(0, |_, slice| ulpdu.extend_from_slice(slice));
            assert_eq!(ulpdu, bench.pattern[*len..2 * len]);
            ours.advance(&located);
            let judged = taken.by_ref().find_map(|octet| judge.take(*octet).unwrap()).expect("complete");
            assert_eq!(judged.ulpdu, ulpdu);
            seen.note(&judged.shape, *len);
            assert_eq!(judge.seq(), start.wrapping_add(ours.position() as u32), "seed {seed}");
        }
        assert_eq!(ours.position(), octets.len() as u64);
    }
    assert!(seen.leading > 30 && seen.before_crc > 30 && seen.tiny > 30 && seen.wraps > 30, "{seen:?}");
}
