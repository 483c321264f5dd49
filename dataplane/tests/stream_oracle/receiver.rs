//! An application that expects transfers, reads what it is told, cancels, and compares everything with the
//! stream; and the buffer of a transfer that is complete with all of its octets.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::bell::Bell;
use super::plan::{Kind, MOST_OCTETS, Plan, Transfer as Planned};
use super::rid;
use warpline_dataplane::byte_stream::{Buffer, ByteReader, ByteStreamConfig, ReadItem, UnsolicitedPool};
use warpline_dataplane::memory::Region;

/// Octets outside of buffers.
const GUARD: u8 = 0xa5;
/// Octets of buffers that are the application's again.
const OWN: u8 = 0xc3;
const GUARD_OCTETS: usize = 64;

/// Memory with buffers and guards between them.
pub(crate) struct Arena {
    memory: Region,
    /// Where the buffer of each transfer is, if it is expected.
    buffers: Vec<Range<usize>>,
    pool: Option<(UnsolicitedPool, Region, usize)>,
    reader: Bell,
    /// Of the writer of the same end.
    pub(crate) writer: Bell,
}

impl Arena {
    pub(crate) fn new(rng: &mut fastrand::Rng, plan: &Plan) -> Self {
        let (mut buffers, mut at) = (Vec::new(), GUARD_OCTETS);
        for transfer in &plan.transfers {
            // Room for more than is sent, or just enough.
            let room = transfer.octets + rng.usize(0..2) * rng.usize(0..100);
            buffers.push(at..at + room);
            at += room + GUARD_OCTETS;
        }
        let memory = filled(at);
        let pool = (rng.u8(..4) > 0).then(|| {
            // Longer than any transfer.
            let (count, octets) = (rng.usize(1..6), MOST_OCTETS + GUARD_OCTETS);
            let memory = filled(count * octets + GUARD_OCTETS);
            (UnsolicitedPool::new(memory.clone(), octets).expect("room"), memory, count * octets)
        });
        Self { memory, buffers, pool, reader: Bell::default(), writer: Bell::default() }
    }

    pub(crate) fn config(&self, rng: &mut fastrand::Rng) -> ByteStreamConfig {
        let ring =
            |rng: &mut fastrand::Rng| [rng.usize(16..100), rng.usize(100..3000), 100_000][rng.usize(..3)];
        let unsolicited = self.pool.as_ref().map(|(pool, ..)| pool.clone());
        let early_ring = rng.bool().then(|| Region::heap(ring(rng)).unwrap());
        let [send, receive] = [ring(rng), ring(rng)].map(|octets| Region::heap(octets).expect("memory"));
        let rings = ByteStreamConfig::new(send, receive);
        let [reader, writer] = [&self.reader, &self.writer].map(|bell| Some(bell.notify()));
        ByteStreamConfig { unsolicited, early_ring, reader, writer, ..rings }
    }
}

fn filled(octets: usize) -> Region {
    let region = Region::heap(octets).unwrap();
    assert!(region.write(0, &vec![GUARD; octets]));
    region
}

/// Returns true if all of `octets` are `octet`.
fn is_all(octets: &[u8], octet: u8) -> bool {
    octets == vec![octet; octets.len()]
}

fn octets_of(memory: &Region, range: Range<usize>) -> Vec<u8> {
    let mut octets = vec![0; range.len()];
    assert!(memory.read(range.start, &mut octets));
    octets
}

/// What both ends of a stream see: which transfers may begin, and where their octets are.
#[derive(Default)]
pub(crate) struct Gates {
    wanted: Option<usize>,
    ready: Vec<bool>,
    /// Octets of the stream that are of a transfer, and the offset of the first.
    sections: Vec<(usize, Range<usize>, usize)>,
    pub end_of_stream: Option<usize>,
}

impl Gates {
    pub(crate) fn may_begin(&mut self, transfer: usize) -> bool {
        self.wanted = Some(transfer);
        self.ready[transfer]
    }

    pub(crate) fn mark_sent(&mut self, transfer: usize, range: Range<usize>, offset: usize) {
        self.sections.push((transfer, range, offset));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The core was asked to expect it.
    Asked,
    /// It may be sent.
    Open,
    /// It was cancelled, and the core may not have seen that.
    Cancelled,
    Over,
}

#[derive(Debug)]
pub(crate) struct Transfer {
    pub plan: Planned,
    state: State,
    /// How often it was reported complete.
    pub complete: usize,
    /// Octets of it that were not placed.
    pub copied: usize,
    /// The core expected it before it began.
    pub was_ready: bool,
    pub cancelled: bool,
    /// All of it was sent.
    pub was_sent: bool,
    /// All of it was read.
    was_read: bool,
}

pub(crate) struct Receiver {
    reader: Option<ByteReader>,
    arena: Arena,
    pub gates: Gates,
    pub transfers: Vec<Transfer>,
    /// For each buffer with octets of a transfer: the place in the stream of the octet at each offset.
    told: BTreeMap<(u64, Option<u16>), BTreeMap<usize, usize>>,
    /// Octets of the stream that were read.
    position: usize,
    /// Messages that were taken early: where each begins, and its octets.
    early: BTreeMap<usize, usize>,
    /// The place of the next octet of such a message.
    early_at: usize,
    /// The end of one that is passed over.
    passed_to: usize,
    pub handed_out: usize,
    finished: bool,
    /// It reads as one that does not know the option.
    pub plain: bool,
    /// Options arrive as they were sent.
    pub is_faithful: bool,
    /// It drops its end after so many octets.
    drops_at: usize,
    /// Unsolicited buffers to be released.
    to_release: VecDeque<u16>,
    pub cancelled: usize,
    pub octets_placed: u64,
}

impl Receiver {
    pub(crate) fn new(plan: Plan, reader: ByteReader, arena: Arena) -> Self {
        let transfer = |plan| Transfer {
            plan,
            state: State::Waiting,
            complete: 0,
            copied: 0,
            was_ready: false,
            cancelled: false,
            was_sent: false,
            was_read: false,
        };
        let seed = plan.steps.len() + plan.transfers.len() * 31;
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        Self {
            reader: Some(reader),
            arena,
            gates: Gates { ready: vec![false; plan.transfers.len()], ..Gates::default() },
            transfers: plan.transfers.into_iter().map(transfer).collect(),
            told: BTreeMap::new(),
            position: 0,
            early: BTreeMap::new(),
            early_at: 0,
            passed_to: 0,
            handed_out: 0,
            finished: false,
            is_faithful: false,
            plain: rng.u8(..4) == 0,
            drops_at: if rng.u8(..10) == 0 { rng.usize(..10_000) } else { usize::MAX },
            to_release: VecDeque::new(),
            cancelled: 0,
            octets_placed: 0,
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.reader.is_none()
    }

    /// Drops its end.
    pub(crate) fn abandon(&mut self) {
        self.reader = None;
    }

    pub(crate) fn is_finished(&self, written: usize) -> bool {
        assert!(!self.finished || self.position == written, "{} of {written} octets", self.position);
        self.finished || self.is_dropped()
    }

    /// Returns what its application has seen.
    pub(crate) fn facts(&self) -> impl Iterator<Item = u64> {
        let own = [self.position as u64, self.octets_placed, self.handed_out as u64, self.cancelled as u64];
        let transfers = self.transfers.iter();
        let of_transfers = transfers.flat_map(|transfer| [transfer.complete as u64, transfer.copied as u64]);
        own.into_iter().chain(of_transfers)
    }

    pub(crate) fn state(&self) -> String {
        let open: Vec<_> = self.transfers.iter().filter(|transfer| transfer.state != State::Over).collect();
        let readable = self.reader.as_ref().map(|reader| format!("{reader:?} {:?}", reader.shared().end()));
        format!(
            "plain {} {readable:?} read {} wanted {:?} {open:?}",
            self.plain, self.position, self.gates.wanted
        )
    }

    /// Does some of what it wants to do. `stream` is what was written so far.
    pub(crate) fn act(&mut self, rng: &mut fastrand::Rng, stream: &[u8]) {
        if let Some(reader) = &mut self.reader {
            self.arena.reader.expect_rung(reader.is_readable(), "what is to be read");
        }
        self.open_wanted();
        if self.is_dropped() || self.finished {
            return;
        }
        self.read_some(rng, stream);
        if let Some(reader) = &mut self.reader
            && !reader.is_readable()
        {
            self.arena.reader.wait();
            assert!(reader.arm(), "it has a bell");
        }
    }

    fn read_some(&mut self, rng: &mut fastrand::Rng, stream: &[u8]) {
        if self.position >= self.drops_at {
            self.reader = None;
            return;
        }
        self.settle();
        for _ in 0..rng.usize(0..6) {
            let before = self.position;
            let item = if self.plain { self.read_octets(rng, stream) } else { self.read(rng, stream) };
            match item {
                ReadItem::Complete { .. } => continue,
                ReadItem::Finished => {
                    let why = self.reader.as_ref().and_then(|reader| reader.shared().end());
                    assert_eq!(
                        Some(self.position),
                        self.gates.end_of_stream,
                        "all of the stream was read: {why:?}"
                    );
                    self.finished = true;
                }
                _ => {}
            }
            self.close_those_before(before);
            if matches!(item, ReadItem::Nothing | ReadItem::Finished) {
                break;
            }
        }
        if rng.u8(..40) == 0 {
            let open: Vec<usize> = (0..self.transfers.len())
                .filter(|at| {
                    self.transfers[*at].state == State::Open
                        && self.transfers[*at].plan.kind == Kind::Expected
                })
                .collect();
            if !open.is_empty() {
                let transfer = open[rng.usize(..open.len())];
                if self.cancel(transfer) {
                    self.transfers[transfer].cancelled = true;
                    self.cancelled += 1;
                }
            }
        }
    }

    /// Lets the transfer begin that the sender waits with, once its name is free and the core has its buffer.
    fn open_wanted(&mut self) {
        let Some(wanted) = self.gates.wanted else { return };
        if self.gates.ready[wanted] {
            return;
        }
        let plan = self.transfers[wanted].plan;
        let Some(reader) = self.reader.as_mut().filter(|_| !self.plain) else {
            self.gates.ready[wanted] = true;
            return;
        };
        // Octets of one that was cancelled may still be on their way.
        let is_in_use = |other: &Transfer| {
            let over = other.state == State::Over && (other.was_read || other.complete > 0);
            other.plan.rid == plan.rid && other.state != State::Waiting && !over
        };
        let in_use = self.transfers.iter().enumerate().any(|(at, other)| at != wanted && is_in_use(other));
        let transfer = &mut self.transfers[wanted];
        match transfer.state {
            State::Waiting if in_use => {}
            State::Waiting if plan.kind == Kind::Expected => {
                let buffer = &self.arena.buffers[wanted];
                if reader.expect(rid(plan.rid), &self.arena.memory, buffer.start, buffer.len()) {
                    transfer.state = State::Asked;
                }
            }
            State::Waiting => {
                transfer.state = State::Open;
                self.gates.ready[wanted] = true;
            }
            State::Asked if reader.has_settled() => {
                transfer.state = State::Open;
                transfer.was_ready = true;
                self.gates.ready[wanted] = true;
            }
            _ => {}
        }
    }

    /// Finishes what was cancelled, as soon as the core has seen it: from then on the buffer does not change.
    fn settle(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        while let Some(buffer) = self.to_release.front()
            && reader.release(*buffer)
        {
            self.to_release.pop_front();
        }
        if !reader.has_settled() {
            return;
        }
        for (at, transfer) in self.transfers.iter_mut().enumerate() {
            if transfer.state == State::Cancelled {
                transfer.state = State::Over;
                if transfer.plan.kind == Kind::Expected {
                    reader.save_placed(rid(transfer.plan.rid));
                    self.told.remove(&(transfer.plan.rid, None));
                    own(&self.arena, at);
                }
            }
        }
    }

    fn cancel(&mut self, transfer: usize) -> bool {
        let Some(reader) = &mut self.reader else { return false };
        let cancelled = reader.cancel(rid(self.transfers[transfer].plan.rid));
        if cancelled {
            self.transfers[transfer].state = State::Cancelled;
        }
        cancelled
    }

    /// Ends the transfers whose octets were all read, and that are not complete.
    fn close_those_before(&mut self, position: usize) {
        for transfer in 0..self.transfers.len() {
            let (state, octets) = (self.transfers[transfer].state, self.transfers[transfer].plan.octets);
            let mut sent = 0;
            let mut end = 0;
            for (of, range, _) in &self.gates.sections {
                if *of == transfer {
                    sent += range.len();
                    end = end.max(range.end);
                }
            }
            let begun = self.gates.sections.iter().any(|(of, ..)| *of == transfer);
            // A transfer of nothing goes with the octets after it at the latest.
            let was_sent = begun && sent == octets && (octets > 0 || end < position);
            self.transfers[transfer].was_sent = was_sent;
            self.transfers[transfer].was_read = was_sent && end < position;
            if state == State::Open && was_sent && end < position {
                self.cancel(transfer);
            }
        }
    }

    fn read_octets(&mut self, rng: &mut fastrand::Rng, stream: &[u8]) -> ReadItem {
        let Some(reader) = &mut self.reader else { return ReadItem::Nothing };
        let mut out = vec![0; rng.usize(1..6000)];
        if rng.u8(..4) == 0 {
            let peeked = reader.peek(&mut out);
            assert!(out[..peeked] == stream[self.position..self.position + peeked], "other octets ahead");
        }
        let octets = reader.read_octets(&mut out);
        let expected = stream.get(self.position..self.position + octets).expect("no octets that nobody sent");
        assert!(out[..octets] == *expected, "other octets at {}", self.position);
        self.position += octets;
        match octets {
            0 if reader.is_finished() => ReadItem::Finished,
            0 => ReadItem::Nothing,
            _ => ReadItem::Octets(octets),
        }
    }

    fn read(&mut self, rng: &mut fastrand::Rng, stream: &[u8]) -> ReadItem {
        let Some(reader) = &mut self.reader else { return ReadItem::Nothing };
        let mut out = vec![0; rng.usize(0..6000)];
        let most = if rng.bool() { usize::MAX } else { rng.usize(0..3000) };
        let is_readable = reader.is_readable();
        let item = reader.read(&mut out, most);
        if most == 0 {
            assert!(is_readable || item == ReadItem::Nothing, "read, and not readable: {item:?}");
        } else {
            assert_eq!(is_readable, item != ReadItem::Nothing, "{item:?}");
        }
        // It passes over octets that it had taken early, and that were not placed.
        let end = reader.position() as usize;
        let begin = match item {
            ReadItem::Octets(octets) => end - octets,
            ReadItem::Placed { octets, .. } => end - octets as usize,
            _ => end,
        };
        assert!((self.position..=self.passed_to.max(self.position)).contains(&begin), "passes to {begin}");
        self.position = begin;
        match item {
            ReadItem::EarlyMessage { position, octets } => {
                let (position, octets) = (position as usize, octets as usize);
                assert!(octets > 0 && position > self.position, "its turn has come");
                assert_eq!(self.early.insert(position, octets), None, "told twice");
                self.early_at = position;
            }
            ReadItem::EarlyOctets(octets) => {
                let expected = stream.get(self.early_at..self.early_at + octets);
                assert!(expected == Some(&out[..octets]), "other octets early, at {}", self.early_at);
                self.early_at += octets;
            }
            ReadItem::HandedOut { position, octets } => {
                let message = (position as usize, octets as usize);
                assert_eq!(self.early.remove_entry(&self.position), Some(message));
                self.passed_to = message.0 + message.1;
                self.handed_out += 1;
            }
            ReadItem::Octets(octets) => {
                self.compare(&out[..octets], stream);
                self.note_copied(octets);
                self.position += octets;
            }
            ReadItem::Placed { rid, buffer, offset, octets } => {
                let octets = octets as usize;
                let (memory, at) = reader.buffer(rid, buffer).expect("a buffer");
                let at = at + offset as usize;
                let inside = match buffer {
                    Buffer::Expected => self
                        .arena
                        .buffers
                        .iter()
                        .any(|buffer| buffer.start <= at && at + octets <= buffer.end),
                    Buffer::Unsolicited(_) => offset as usize + octets <= MOST_OCTETS + GUARD_OCTETS,
                };
                assert!(inside, "outside of a buffer: {item:?}");
                let placed = octets_of(memory, at..at + octets);
                if self.is_faithful {
                    let sections = &self.gates.sections;
                    let section = sections.iter().find(|(_, range, _)| range.contains(&self.position));
                    let (_, range, from) = section.expect("octets of a section");
                    assert_eq!(offset as usize, from + self.position - range.start, "another place");
                }
                self.compare(&placed, stream);
                let told = self.told.entry((rid.get(), number(buffer))).or_default();
                told.extend((0..octets).map(|skip| (offset as usize + skip, self.position + skip)));
                self.position += octets;
                self.octets_placed += octets as u64;
            }
            ReadItem::Complete { rid, buffer, total_octets } => {
                self.check_complete(rid.get(), buffer, total_octets, stream);
                self.note_complete(rid.get(), buffer, total_octets);
            }
            ReadItem::NotExpected { rid } => self.note_not_expected(rid.get()),
            ReadItem::MessageStart | ReadItem::Finished | ReadItem::Nothing => {}
            other => panic!("nothing is known of {other:?}"),
        }
        item
    }

    /// All octets of a transfer were told, no other, and they are in its buffer: if options arrive as they
    /// were sent, each at the place that the sender has named.
    fn check_complete(&mut self, name: u64, buffer: Buffer, total: u32, stream: &[u8]) {
        let told = self.told.remove(&(name, number(buffer))).unwrap_or_default();
        let is_cancelled =
            |transfer: &Transfer| transfer.plan.rid == name && transfer.state == State::Cancelled;
        if self.transfers.iter().any(is_cancelled) {
            return;
        }
        assert!(told.keys().copied().eq(0..total as usize), "complete with {total}: {:?}", told.keys());
        for (offset, position) in told.iter().filter(|_| self.is_faithful) {
            let is_there = |(transfer, range, from): &(usize, Range<usize>, usize)| {
                self.transfers[*transfer].plan.rid == name
                    && range.contains(position)
                    && from + position - range.start == *offset
            };
            assert!(self.gates.sections.iter().any(is_there), "{position} of the stream at {offset}");
        }
        // The buffer of an expected transfer is the reader's no more: the arena has it.
        let arena = &self.arena;
        let is_its = |transfer: &&Transfer| transfer.plan.rid == name && transfer.state == State::Open;
        let (memory, at) = match buffer {
            Buffer::Expected => {
                let transfer = self
                    .transfers
                    .iter()
                    .position(|transfer| is_its(&transfer) && transfer.plan.kind == Kind::Expected);
                (&arena.memory, arena.buffers[transfer.expect("one that is open")].start)
            }
            Buffer::Unsolicited(index) => {
                let (pool, ..) = arena.pool.as_ref().expect("a pool");
                pool.buffer(index).expect("a buffer")
            }
        };
        let octets = octets_of(memory, at..at + total as usize);
        assert!(
            octets.iter().eq(told.values().map(|position| &stream[*position])),
            "other octets in the buffer"
        );
    }

    fn compare(&self, octets: &[u8], stream: &[u8]) {
        let expected = stream.get(self.position..self.position + octets.len());
        let expected = expected.expect("no octets that nobody sent");
        assert!(octets == expected, "other octets at {}, of {}", self.position, octets.len());
    }

    fn note_copied(&mut self, octets: usize) {
        let read = self.position..self.position + octets;
        for (transfer, range, _) in &self.gates.sections {
            let common = range.end.min(read.end).saturating_sub(range.start.max(read.start));
            self.transfers[*transfer].copied += common;
        }
    }

    /// The buffer was never used: the transfer is read from the stream.
    fn note_not_expected(&mut self, name: u64) {
        for (at, transfer) in self.transfers.iter_mut().enumerate() {
            let asked = matches!(transfer.state, State::Asked | State::Open);
            if transfer.plan.rid == name && transfer.plan.kind == Kind::Expected && asked {
                transfer.was_ready = false;
                transfer.state = State::Over;
                self.gates.ready[at] = true;
                own(&self.arena, at);
            }
        }
    }

    fn note_complete(&mut self, rid: u64, buffer: Buffer, total: u32) {
        if let Buffer::Unsolicited(index) = buffer {
            self.to_release.push_back(index);
        }
        let expected = buffer == Buffer::Expected;
        let is_it = |transfer: &Transfer| {
            transfer.plan.rid == rid
                && !matches!(transfer.state, State::Waiting | State::Over)
                && (transfer.plan.kind == Kind::Expected) == expected
        };
        // One that a middlebox has made up is nobody's.
        let Some(at) = self.transfers.iter().position(is_it) else { return };
        let transfer = &mut self.transfers[at];
        transfer.complete += 1;
        if transfer.plan.octets as u32 == total || expected {
            if transfer.state == State::Cancelled {
                // Settled later: it is over then.
                return;
            }
            transfer.state = State::Over;
            if expected {
                own(&self.arena, at);
            }
        }
    }

    /// Nothing was written outside of buffers, nor into buffers that are the application's, nor beyond the
    /// octets of unsolicited transfers whose options arrived as they were sent.
    pub(crate) fn check_memory(&self, is_faithful: bool) {
        let arena = &self.arena;
        let mut at = 0;
        for (number, buffer) in arena.buffers.iter().enumerate() {
            let guard = octets_of(&arena.memory, at..buffer.start);
            assert!(is_all(&guard, GUARD), "written before buffer {number}");
            let transfer = &self.transfers[number];
            let octets = octets_of(&arena.memory, buffer.clone());
            if transfer.plan.kind != Kind::Expected || transfer.state == State::Waiting {
                assert!(is_all(&octets, GUARD), "nobody was told of buffer {number}");
            } else if transfer.state == State::Over {
                assert!(is_all(&octets, OWN), "written after its end: buffer {number}");
            }
            at = buffer.end;
        }
        let guard = octets_of(&arena.memory, at..arena.memory.len());
        assert!(is_all(&guard, GUARD), "written after the last buffer");
        if let Some((_, memory, end)) = &arena.pool {
            let guard = octets_of(memory, *end..memory.len());
            assert!(is_all(&guard, GUARD), "written after the last unsolicited buffer");
            for begin in (0..*end).step_by(MOST_OCTETS + GUARD_OCTETS).filter(|_| is_faithful) {
                let guard = octets_of(memory, begin + MOST_OCTETS..begin + MOST_OCTETS + GUARD_OCTETS);
                assert!(is_all(&guard, GUARD), "written between unsolicited buffers");
            }
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

/// The buffer of a transfer is the application's: it writes something else into it.
fn own(arena: &Arena, transfer: usize) {
    let buffer = &arena.buffers[transfer];
    assert!(arena.memory.write(buffer.start, &vec![OWN; buffer.len()]));
}
