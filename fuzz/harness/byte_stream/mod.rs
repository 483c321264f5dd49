//! The receiver of a byte stream (draft-csapuntz-tcprdma-00): segments with any option arrive in any order,
//! while the application expects, cancels, releases and reads.
//!
//! The stream is known, so every octet that the reader reports is compared with it, wherever it was placed.
//! When a transfer is complete, each octet of its buffer is one that the reader has reported.
//! Octets outside of buffers, and in buffers whose transfers are over, do not change.
//!
//! [`run`] takes one input; libFuzzer drives it from `fuzz/`, the tests replay seeds and regressions.
#![allow(dead_code, reason = "the input is used in part")]

mod arrivals;
#[path = "../receive/input.rs"]
mod input;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrivals::Arrivals;
use input::Input;
use warpline_dataplane::byte_stream::{
    Buffer, ByteReader, ByteStreamConfig, Inbound, ReadItem, SharedByteStream, TransferCounters,
    UnsolicitedPool,
};
use warpline_dataplane::memory::Region;
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::ring::Rings;
use warpline_dataplane::wire::tcp_rdma::{Rid, Transfer};

/// Octets of the stream.
const STREAM: usize = 1500;
/// Octets of each buffer, and of the guards between them.
const BUFFER: usize = 256;
const GUARD_OCTETS: usize = 32;
const BUFFERS: usize = 4;
/// Names that transfers have.
const NAMES: usize = 5;
/// Octets outside of buffers.
const GUARD: u8 = 0xa5;
/// Octets of a buffer that is the application's.
const OWN: u8 = 0xc3;

thread_local! {
    /// Those of all runs: nobody serves them.
    static DOORBELLS: Arc<Doorbells> = Rings::new().doorbells;
}

/// What happened in a run, for tests that check the coverage of inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub counters: TransferCounters,
    pub complete: u64,
    pub saved: u64,
    pub not_expected: u64,
    pub message_starts: u64,
    pub handed_out: u64,
}

/// An octet of the stream.
fn octet(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn name(index: usize) -> Rid {
    Rid::new((index as u64 + 1) << 38 | 3).expect("46 bits")
}

fn filled(octets: usize) -> Region {
    let region = Region::heap(octets).expect("memory");
    assert!(region.write(0, &vec![GUARD; octets]));
    region
}

struct World {
    inbound: Inbound,
    reader: ByteReader,
    arrivals: Arrivals,
    memory: Region,
    pool: Option<Region>,
    /// Which buffer a name has that is expected, and where it begins in the memory.
    expected: BTreeMap<Rid, (usize, usize)>,
    /// Whether each buffer may change.
    in_use: [bool; BUFFERS],
    cancelled: Vec<Rid>,
    /// For each buffer with octets of a transfer: the position of the octet that was reported for each
    /// offset.
    reported: BTreeMap<(Rid, Option<u16>), BTreeMap<u32, u64>>,
    /// Where messages begin that the reader has not reported.
    starts: BTreeSet<u64>,
    /// Octets were read without a report of where they were placed.
    reads_plainly: bool,
    /// Octets of the stream that were read.
    position: u64,
    /// Messages that were taken early: where each begins, and its octets.
    early: BTreeMap<u64, u64>,
    /// The place of the next octet of such a message.
    early_at: u64,
    /// The end of one that is passed over.
    passed_to: u64,
    outcome: Outcome,
}

/// Runs one input.
///
/// # Panics
///
/// If the reader reports anything but the stream, or octets change that must not.
pub fn run(octets: &[u8]) -> Outcome {
    let mut input = Input::new(octets);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.step(&mut input);
    }
    world.finish();
    DOORBELLS.with(|doorbells| while doorbells.dequeue_byte_stream().is_some() {});
    world.outcome.counters = *world.inbound.counters();
    world.outcome
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let ring = 1 + [0, 7, 99, 2047][input.below(4)];
        // Some inputs have a reader that takes messages early.
        let shape = input.octet();
        let early_ring = [0, 1, 60, 500][usize::from(shape >> 6)];
        let early_ring = (early_ring > 0).then(|| Region::heap(early_ring).expect("memory"));
        let (count, octets) = (usize::from(shape & 3), 1 + input.below(BUFFER));
        let pool = (count > 0).then(|| filled(count * octets + GUARD_OCTETS.min(octets - 1)));
        let unsolicited = pool.clone().and_then(|memory| UnsolicitedPool::new(memory, octets));
        let receive_ring = Region::heap(ring).expect("memory");
        let config = ByteStreamConfig {
            unsolicited,
            message_starts: true,
            early_ring,
            ..ByteStreamConfig::new(Region::heap(1).expect("memory"), receive_ring)
        };
        let shared = Arc::new(SharedByteStream::new(0, DOORBELLS.with(Arc::clone), config));
        Self {
            inbound: Inbound::new(shared.clone()),
            reader: ByteReader::new(shared),
            arrivals: Arrivals::new(STREAM),
            memory: filled(BUFFERS * (BUFFER + GUARD_OCTETS) + GUARD_OCTETS),
            pool,
            expected: BTreeMap::new(),
            in_use: [false; BUFFERS],
            cancelled: Vec::new(),
            reported: BTreeMap::new(),
            starts: BTreeSet::new(),
            reads_plainly: false,
            position: 0,
            early: BTreeMap::new(),
            early_at: 0,
            passed_to: 0,
            outcome: Outcome::default(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(10) {
            0..4 => self.segment(input),
            4 => self.expect(input),
            5 => {
                let rid = name(input.below(NAMES));
                if self.reader.cancel(rid) {
                    self.cancelled.push(rid);
                }
            }
            6 => self.receive_commands(),
            7 => self.hand_over(),
            8 => self.read(input),
            _ => self.read_octets(input),
        }
    }

    fn segment(&mut self, input: &mut Input<'_>) {
        let from = self.arrivals.next().saturating_add_signed(i64::from(input.i16() % 700));
        let octets = 1 + usize::from(input.octet());
        let shape = input.octet();
        let number = |input: &mut Input<'_>, wide: bool| {
            if wide { input.u32() } else { u32::from(input.octet()) }
        };
        let option = (shape & 1 != 0).then(|| Transfer {
            rid: name(input.below(NAMES)),
            message_aligned: false,
            unsolicited: shape & 2 != 0,
            buffer_offset: number(input, shape & 4 != 0),
            data_offset: number(input, shape & 8 != 0) as u16,
            data_octets: if shape & 16 != 0 { octets as u16 } else { number(input, shape & 32 != 0) as u16 },
            total_octets: (shape & 64 != 0).then(|| number(input, shape & 128 != 0)),
        });
        let Some(arrived) = self.arrivals.arrive(from, octets, self.inbound.position()) else { return };
        if octets.is_multiple_of(5) {
            // It may have come before: one that was reported is reported again only if it is still to come.
            self.starts.insert(arrived.payload);
            self.inbound.record_message_start(&arrived);
        }
        if let Some(option) = option {
            self.inbound.place(&option, &arrived, |at, octets, write| slices(at, octets, write));
        }
        if !arrived.in_order {
            let segment = arrived.payload..arrived.payload + arrived.payload_octets as u64;
            let arrivals = &self.arrivals;
            self.inbound.hand_out_early(
                segment,
                |from, end| from > arrivals.next() && arrivals.has(from, end),
                |at, octets, write| slices(at, octets, write),
            );
        }
        self.check_memory();
    }

    fn expect(&mut self, input: &mut Input<'_>) {
        let (rid, buffer, octets) = (name(input.below(NAMES)), input.below(BUFFERS), input.below(BUFFER + 1));
        // A guard follows right after it.
        let at = begin(buffer) + BUFFER - octets;
        let free = !self.in_use[buffer] && !self.cancelled.contains(&rid);
        if free && self.reader.expect(rid, &self.memory, at, octets) {
            self.in_use[buffer] = true;
            self.expected.insert(rid, (buffer, at));
        }
    }

    fn receive_commands(&mut self) {
        self.inbound.receive_commands();
        if !self.reader.has_settled() {
            return;
        }
        for rid in core::mem::take(&mut self.cancelled) {
            self.reader.save_placed(rid);
            self.reported.remove(&(rid, None));
            self.outcome.saved += 1;
            if let Some((buffer, _)) = self.expected.remove(&rid) {
                self.own(buffer);
            }
        }
    }

    /// The buffer is the application's, which writes something else into it.
    fn own(&mut self, buffer: usize) {
        self.in_use[buffer] = false;
        assert!(self.memory.write(begin(buffer), &[OWN; BUFFER]));
    }

    fn hand_over(&mut self) {
        let next = self.inbound.position();
        let available = (self.arrivals.next() - next) as usize;
        let may_wait = next.is_multiple_of(2);
        let taken = self.inbound.hand_over(available, may_wait, |skip, octets, write| {
            slices(next + skip as u64, octets, write);
        });
        assert!(taken <= available);
        assert_eq!(self.inbound.position(), next + taken as u64);
        self.check_memory();
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let mut out = vec![0; input.below(200)];
        let most = usize::from(input.octet());
        self.read_item(&mut out, most);
    }

    /// Returns false if there was nothing.
    fn read_item(&mut self, out: &mut [u8], most: usize) -> bool {
        let item = self.reader.read(out, most);
        self.pass_over(match item {
            ReadItem::Octets(octets) => octets as u64,
            ReadItem::Placed { octets, .. } => octets.into(),
            _ => 0,
        });
        match item {
            ReadItem::Octets(octets) => {
                assert_eq!(octets == 0, out.is_empty(), "{octets} octets");
                self.compare(&out[..octets]);
            }
            ReadItem::EarlyMessage { position, octets } => {
                assert!(position > self.position, "its turn has come");
                let before = self.early.insert(position, octets.into());
                assert!(octets > 0 && before.is_none(), "reported twice");
                self.early_at = position;
            }
            ReadItem::EarlyOctets(octets) => {
                let expected = (0..octets as u64).map(|at| octet(self.early_at + at));
                assert_eq!(octets == 0, out.is_empty(), "{octets} octets early");
                assert!(out[..octets].iter().copied().eq(expected), "other octets early");
                self.early_at += octets as u64;
            }
            ReadItem::HandedOut { position, octets } => {
                assert_eq!((position, self.early.remove(&position)), (self.position, Some(octets.into())));
                self.passed_to = position + u64::from(octets);
                self.outcome.handed_out += 1;
            }
            ReadItem::Placed { rid, buffer, offset, octets } => {
                let (memory, at) = self.reader.buffer(rid, buffer).expect("a buffer");
                let mut placed = vec![0; octets as usize];
                assert!(memory.read(at + offset as usize, &mut placed));
                let reported = self.reported.entry((rid, number(buffer))).or_default();
                reported.extend((0..octets).map(|skip| (offset + skip, self.position + u64::from(skip))));
                self.compare(&placed);
            }
            ReadItem::Complete { rid, buffer, total_octets } => {
                self.check_complete(rid, buffer, total_octets);
                self.end(rid, buffer);
            }
            ReadItem::MessageStart => {
                assert!(self.starts.remove(&self.position), "no message begins here, or it was reported");
                self.outcome.message_starts += 1;
            }
            ReadItem::NotExpected { rid } => {
                self.outcome.not_expected += 1;
                if !self.cancelled.contains(&rid)
                    && let Some((buffer, _)) = self.expected.remove(&rid)
                {
                    self.own(buffer);
                }
            }
            ReadItem::Finished | ReadItem::Nothing => return false,
            other => panic!("nothing is known of {other:?}"),
        }
        true
    }

    /// Follows the reader to where the `octets` octets begin that it has read: it may have passed over some
    /// that it had taken early.
    fn pass_over(&mut self, octets: u64) {
        let begin = self.reader.position() - octets;
        let may_pass = self.position..=self.passed_to.max(self.position);
        assert!(may_pass.contains(&begin), "from {} to {begin}", self.position);
        self.position = begin;
    }

    /// All octets of the transfer were reported, no other, and they are in its buffer now.
    fn check_complete(&mut self, rid: Rid, buffer: Buffer, total_octets: u32) {
        let reported = self.reported.remove(&(rid, number(buffer))).unwrap_or_default();
        if self.reads_plainly || self.cancelled.contains(&rid) {
            return;
        }
        assert!(
            reported.keys().copied().eq(0..total_octets),
            "complete with {total_octets}: {:?}",
            reported.keys()
        );
        let (memory, at) = self.reader.buffer(rid, buffer).or_else(|| self.memory_of(rid)).expect("a buffer");
        let mut octets = vec![0; total_octets as usize];
        assert!(memory.read(at, &mut octets));
        let stream = reported.values().map(|position| octet(*position));
        assert!(octets.into_iter().eq(stream), "complete, and other octets than the stream's");
    }

    /// The buffer of a transfer that the reader expects no more.
    fn memory_of(&self, rid: Rid) -> Option<(&Region, usize)> {
        self.expected.get(&rid).map(|(_, at)| (&self.memory, *at))
    }

    fn end(&mut self, rid: Rid, buffer: Buffer) {
        self.outcome.complete += 1;
        match buffer {
            Buffer::Expected => {
                if !self.cancelled.contains(&rid)
                    && let Some((buffer, _)) = self.expected.remove(&rid)
                {
                    self.own(buffer);
                }
            }
            // More than the core takes at once is forgotten here.
            Buffer::Unsolicited(index) => {
                self.reader.release(index);
            }
        }
    }

    fn read_octets(&mut self, input: &mut Input<'_>) {
        let mut out = vec![0; usize::from(input.octet())];
        let peeked = self.reader.peek(&mut out);
        self.pass_over(0);
        let expected = (0..peeked as u64).map(|at| octet(self.position + at));
        assert!(out[..peeked].iter().copied().eq(expected), "other octets ahead");
        let octets = self.reader.read_octets(&mut out);
        self.pass_over(octets as u64);
        self.reads_plainly |= octets > 0;
        self.compare(&out[..octets]);
    }

    fn compare(&mut self, octets: &[u8]) {
        let expected = (0..octets.len() as u64).map(|at| octet(self.position + at));
        assert!(octets.iter().copied().eq(expected), "other octets than the stream's at {}", self.position);
        self.position += octets.len() as u64;
        assert!(self.position <= self.inbound.position(), "octets that are not handed over");
    }

    /// Octets outside of buffers are as before, and so are those of buffers that are not in use.
    fn check_memory(&self) {
        let mut octets = vec![0; self.memory.len()];
        assert!(self.memory.read(0, &mut octets));
        let mut at = 0;
        for (buffer, in_use) in self.in_use.iter().enumerate() {
            let begin = begin(buffer);
            assert!(octets[at..begin].iter().all(|octet| *octet == GUARD), "written before buffer {buffer}");
            at = begin + BUFFER;
            let own = |octet: u8| octets[begin..at].iter().all(|other| *other == octet);
            assert!(*in_use || own(OWN) || own(GUARD), "written after its end: buffer {buffer}");
        }
        assert!(octets[at..].iter().all(|octet| *octet == GUARD), "written after the last buffer");
    }

    /// Everything arrives, and everything is read.
    fn finish(&mut self) {
        let mut out = vec![0; 500];
        for _ in 0..3 * STREAM {
            while let Some(arrived) = self.arrivals.fill(self.inbound.position()) {
                assert!(arrived.in_order);
            }
            self.receive_commands();
            self.hand_over();
            let mut any = false;
            while self.read_item(&mut out, usize::MAX) {
                any = true;
            }
            if self.position == STREAM as u64 && !any {
                break;
            }
        }
        assert_eq!(self.position, STREAM as u64, "all of the stream was read");
        if let (Some(pool), Some(memory)) = (self.reader.unsolicited(), &self.pool) {
            let end = pool.count() * pool.buffer_octets();
            let mut guard = vec![0; memory.len() - end];
            assert!(memory.read(end, &mut guard));
            assert!(guard.iter().all(|octet| *octet == GUARD), "written after the last unsolicited buffer");
        }
    }
}

/// The number of an unsolicited buffer.
fn number(buffer: Buffer) -> Option<u16> {
    match buffer {
        Buffer::Expected => None,
        Buffer::Unsolicited(index) => Some(index),
    }
}

/// Where a buffer begins.
fn begin(buffer: usize) -> usize {
    GUARD_OCTETS + buffer * (BUFFER + GUARD_OCTETS)
}

/// Octets of the stream, in slices of a few.
fn slices(at: u64, octets: usize, write: &mut dyn FnMut(&[u8])) {
    let all: Vec<u8> = (0..octets as u64).map(|skip| octet(at + skip)).collect();
    all.chunks(37).for_each(write);
}
