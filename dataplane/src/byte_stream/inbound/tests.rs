//! Tests of placements that wait for their turn.

use proptest::prelude::*;

use super::super::{Buffer, ByteReader, ByteStreamConfig, ReadItem, UnsolicitedPool};
use super::*;
use crate::memory::Region;
use crate::ring::Rings;
use crate::wire::tcp_rdma::Rid;

const RID: Rid = Rid::new(5).expect("46 bits");
/// Octets of a segment: small ones, of which more than there may be placements lie in a window.
const SEGMENT: usize = 10;
const SEGMENTS: usize = 2 * limits::PLACEMENTS_PER_STREAM;

fn octet(position: usize) -> u8 {
    (position ^ (position >> 8)) as u8
}

/// Places segment `number` of a transfer that begins with octet 0.
fn place(inbound: &mut Inbound, number: usize, in_order: bool) {
    let begin = number * SEGMENT;
    let option = Transfer {
        rid: RID,
        message_aligned: false,
        unsolicited: false,
        buffer_offset: begin as u32,
        data_offset: 0,
        data_octets: SEGMENT as u16,
        total_octets: Some((SEGMENTS * SEGMENT) as u32),
    };
    let payload = begin as u64;
    let kept = (payload, payload + SEGMENT as u64);
    let arrived = Arrived { payload, payload_octets: SEGMENT, kept, in_order };
    inbound.place(&option, &arrived, |at, octets, write| {
        let octets: Vec<u8> = (at as usize..at as usize + octets).map(octet).collect();
        write(&octets);
    });
}

/// Segments beyond a gap, from the first on, from the last on, and every second first: as they continue each
/// other, they are one placement, however many they are.
#[test]
fn segments_that_continue_each_other_are_one_placement() {
    // All but the first segment, which is missing. Every second first is as many pieces as there may be.
    let ascending: Vec<usize> = (1..SEGMENTS).collect();
    let descending = ascending.iter().rev().copied().collect();
    let few = limits::TRANSFER_INTERVALS;
    let (odd, even): (Vec<usize>, Vec<usize>) = (1..2 * few).partition(|number| number % 2 == 1);
    let alternating = odd.into_iter().chain(even).chain(2 * few..SEGMENTS).collect();
    for order in [ascending, descending, alternating] {
        let ring = || Region::heap(64).expect("memory");
        let shared =
            Arc::new(SharedByteStream::new(0, Rings::new().doorbells, ByteStreamConfig::new(ring(), ring())));
        let (mut inbound, mut reader) = (Inbound::new(shared.clone()), ByteReader::new(shared));
        let memory = Region::heap(SEGMENTS * SEGMENT).expect("memory");
        assert!(reader.expect(RID, &memory, 0, memory.len()));
        inbound.receive_commands();
        for number in order {
            place(&mut inbound, number, false);
        }
        assert_eq!(inbound.placing.placements.len(), 1);
        place(&mut inbound, 0, true);
        assert_eq!(inbound.placing.placements.len(), 2);
        let octets = SEGMENTS * SEGMENT;
        assert_eq!(inbound.hand_over(octets, true, |_, _, _| panic!("octets are copied")), octets);
        let placed = |offset: usize, octets: usize| ReadItem::Placed {
            rid: RID,
            buffer: Buffer::Expected,
            offset: offset as u32,
            octets: octets as u32,
        };
        let mut read = || reader.read(&mut [], usize::MAX);
        // The one that came in order stays whatever comes: it is a placement for itself, but the application
        // sees both at once.
        assert_eq!(read(), placed(0, octets));
        let complete = ReadItem::Complete { rid: RID, buffer: Buffer::Expected, total_octets: octets as u32 };
        assert_eq!((read(), read()), (complete, ReadItem::Nothing));
        assert_eq!(inbound.counters().too_scattered, 0);
        let mut written = vec![0; octets];
        assert!(memory.read(0, &mut written));
        assert!(written.iter().enumerate().all(|(at, value)| *value == octet(at)));
    }
}

/// A stream with one unsolicited buffer, of 100 octets.
fn with_one_buffer() -> (Inbound, ByteReader) {
    let region = |octets: usize| Region::heap(octets).expect("memory");
    let unsolicited = UnsolicitedPool::new(region(100), 100);
    let config = ByteStreamConfig { unsolicited, ..ByteStreamConfig::new(region(64), region(64)) };
    let shared = Arc::new(SharedByteStream::new(0, Rings::new().doorbells, config));
    (Inbound::new(shared.clone()), ByteReader::new(shared))
}

/// Places `octets` octets from position `begin` of the stream on, all of transfer `name`, whose total is not
/// known. It is unsolicited, and they are its first, unless it is [`RID`].
fn place_of(inbound: &mut Inbound, name: Rid, begin: u64, octets: u32, in_order: bool) {
    let option = Transfer {
        rid: name,
        message_aligned: false,
        unsolicited: name != RID,
        buffer_offset: if name == RID { begin as u32 } else { 0 },
        data_offset: 0,
        data_octets: octets as u16,
        total_octets: None,
    };
    let kept = (begin, begin + u64::from(octets));
    let arrived = Arrived { payload: begin, payload_octets: octets as usize, kept, in_order };
    inbound.place(&option, &arrived, |_, octets, write| write(&vec![7; octets]));
}

/// An unsolicited transfer whose octets beyond a gap come again in another one gives its buffer back: its
/// application saw nothing of it, and could not.
// Requirements: TRO-6.1-03
#[test]
fn a_transfer_that_nobody_is_told_of_gives_its_buffer_back() {
    let (mut inbound, mut reader) = with_one_buffer();
    assert!(reader.expect(RID, &Region::heap(200).expect("memory"), 0, 200));
    inbound.receive_commands();
    for round in 0..10 {
        let (begin, name) = (20 * round, Rid::new(100 + round).expect("46 bits"));
        place_of(&mut inbound, name, begin + 10, 10, false);
        place_of(&mut inbound, RID, begin, 20, true);
        assert_eq!(inbound.hand_over(20, true, |_, _, _| panic!("octets are copied")), 20);
        assert!(matches!(reader.read(&mut [], usize::MAX), ReadItem::Placed { rid: RID, octets: 20, .. }));
        assert_eq!(reader.read(&mut [], usize::MAX), ReadItem::Nothing);
        assert_eq!(inbound.counters().segments_placed, 2 * round + 2, "there was a buffer");
    }
    assert_eq!(inbound.counters().over_quota, 0);
}

/// So does one that its application cancels by its name, before it is told of any octets.
// Requirements: TRO-6.1-03
#[test]
fn a_transfer_that_is_cancelled_before_its_turn_gives_its_buffer_back() {
    let (mut inbound, mut reader) = with_one_buffer();
    for round in 0..3 {
        let (begin, name) = (20 * round, Rid::new(100 + round).expect("46 bits"));
        place_of(&mut inbound, name, begin + 10, 10, false);
        assert!(reader.cancel(name));
        inbound.receive_commands();
        assert!(reader.has_settled());
        assert_eq!(inbound.hand_over(20, true, |_, octets, write| write(&vec![7; octets])), 20);
        assert_eq!(reader.read(&mut [0; 100], usize::MAX), ReadItem::Octets(20));
        assert_eq!(inbound.counters().segments_placed, round + 1, "there was a buffer");
    }
    assert_eq!(inbound.counters().over_quota, 0);
}

/// A buffer that the application was told of is its own, whatever ends the transfer: it gives it back.
// Requirements: TRO-6.1-03
#[test]
fn a_buffer_that_was_told_of_is_given_back_by_its_reader() {
    let (mut inbound, mut reader) = with_one_buffer();
    let [first, second, third] = [101, 102, 103].map(|name| Rid::new(name).expect("46 bits"));
    let buffer = Buffer::Unsolicited(0);
    let placed = |rid| ReadItem::Placed { rid, buffer, offset: 0, octets: 10 };
    place_of(&mut inbound, first, 0, 10, true);
    inbound.hand_over(10, true, |_, _, _| panic!("octets are copied"));
    assert!(reader.cancel(first));
    inbound.receive_commands();
    place_of(&mut inbound, second, 10, 10, true);
    assert_eq!(inbound.counters().over_quota, 1);
    inbound.hand_over(10, true, |_, octets, write| write(&vec![7; octets]));
    assert_eq!(reader.read(&mut [0; 100], usize::MAX), placed(first));
    assert_eq!(reader.read(&mut [0; 100], usize::MAX), ReadItem::Octets(10));
    assert!(reader.release(0));
    inbound.receive_commands();
    place_of(&mut inbound, third, 20, 10, true);
    inbound.hand_over(10, true, |_, _, _| panic!("octets are copied"));
    assert_eq!(reader.read(&mut [0; 100], usize::MAX), placed(third));
}

/// A reader without room for octets is told that they are next, and takes none; what is not copied it reads.
/// One that wants no octets is told nothing of them.
#[test]
fn octets_are_told_to_a_reader_without_room() {
    let mut end = End::new(true);
    let placed = Transfer {
        rid: Rid::new(1).expect("46 bits"),
        message_aligned: false,
        unsolicited: false,
        buffer_offset: 0,
        data_offset: 0,
        data_octets: 10,
        total_octets: None,
    };
    end.inbound.receive(&[7; 10], &[]);
    end.inbound.receive(&[7; 10], &Said { octets: 10, option: Some(placed) }.option_octets());
    end.inbound.tell();
    for most in [usize::MAX, 1] {
        assert_eq!(end.reader.read(&mut [], most), ReadItem::Octets(0));
        assert_eq!(end.reader.read(&mut [0; 100], 0), ReadItem::Nothing, "no octets are wanted");
    }
    assert_eq!(end.reader.read(&mut [0; 100], 100), ReadItem::Octets(10));
    assert_eq!(end.reader.read(&mut [], 0), ReadItem::Nothing);
    assert!(matches!(end.reader.read(&mut [], usize::MAX), ReadItem::Placed { octets: 10, .. }));
    assert_eq!(end.reader.read(&mut [], usize::MAX), ReadItem::Nothing);
}

/// What a segment says of its octets.
#[derive(Clone, Copy, Debug)]
struct Said {
    octets: usize,
    option: Option<Transfer>,
}

impl Said {
    /// The octets of its option, as they lie in a header.
    fn option_octets(&self) -> Vec<u8> {
        let option = self.option.map(RdmaOption::Transfer);
        let mut octets = vec![0; option.as_ref().map_or(0, RdmaOption::len)];
        if let Some(option) = option {
            option.emit(25, &mut octets);
        }
        octets
    }
}

const BUFFER: usize = 4000;
/// Names that are expected, and one that is not.
const NAMES: u64 = 4;

/// Segments in order: most continue the one before, or begin another transfer.
fn segments() -> impl Strategy<Value = Vec<Said>> {
    let change = prop_oneof![20 => Just(0), 1 => 1_u8..10];
    let rounds = (change, 0..NAMES, prop_oneof![Just(90_usize), Just(100), 1_usize..120], 0..BUFFER as u32);
    proptest::collection::vec(rounds, 1..150).prop_map(|rounds| {
        let mut all: Vec<Said> = Vec::new();
        let first = Transfer {
            rid: Rid::new(0).expect("46 bits"),
            message_aligned: false,
            unsolicited: false,
            buffer_offset: 0,
            data_offset: 0,
            data_octets: 100,
            total_octets: Some(BUFFER as u32),
        };
        let mut next = first;
        for (change, name, octets, offset) in rounds {
            let mut said = Said { octets: next.data_octets.into(), option: Some(next) };
            match (change, &mut said.option) {
                (1, option) => *option = None,
                (2, Some(option)) => option.rid = Rid::new(name).expect("46 bits"),
                (3, Some(option)) => option.buffer_offset = offset,
                (4, Some(option)) => option.total_octets = Some(offset),
                (5, Some(option)) => option.total_octets = None,
                (6, Some(option)) => (said.octets, option.data_octets) = (octets, octets as u16),
                (7, Some(option)) => (option.data_offset, option.data_octets) = (1, octets as u16),
                (8, Some(option)) => option.message_aligned = true,
                (9, _) => said.octets = octets,
                _ => {}
            }
            all.push(said);
            let placed = said.option.unwrap_or(next);
            let buffer_offset = placed.buffer_offset + u32::from(placed.data_octets);
            next = Transfer { buffer_offset, data_offset: 0, message_aligned: false, ..placed };
            if next.total_octets.is_some_and(|total| buffer_offset >= total) {
                next = Transfer { rid: Rid::new(name).expect("46 bits"), ..first };
            }
        }
        all
    })
}

/// A stream that expects transfers 1 to 3, and may tell where messages begin.
struct End {
    inbound: Inbound,
    reader: ByteReader,
    memory: Region,
    items: Vec<ReadItem>,
    octets: Vec<u8>,
}

impl End {
    fn new(message_starts: bool) -> Self {
        let ring = || Region::heap(1 << 15).expect("memory");
        let config = ByteStreamConfig { message_starts, ..ByteStreamConfig::new(ring(), ring()) };
        let shared = Arc::new(SharedByteStream::new(0, Rings::new().doorbells, config));
        let (inbound, reader) = (Inbound::new(shared.clone()), ByteReader::new(shared));
        let memory = Region::heap(NAMES as usize * BUFFER).expect("memory");
        let mut end = Self { inbound, reader, memory, items: Vec::new(), octets: Vec::new() };
        end.expect();
        end
    }

    /// Expects all transfers that have ended again.
    fn expect(&mut self) {
        for name in 1..NAMES {
            let at = name as usize * BUFFER;
            self.reader.expect(Rid::new(name).expect("46 bits"), &self.memory, at, BUFFER);
        }
        self.inbound.receive_commands();
    }

    /// Reads all there is; parts of a buffer that continue each other are one.
    fn read(&mut self) {
        let mut out = vec![0; 1 << 15];
        loop {
            let item = self.reader.read(&mut out, usize::MAX);
            match (item, self.items.last_mut()) {
                (ReadItem::Nothing, _) => return,
                (ReadItem::Octets(octets), last) => {
                    self.octets.extend_from_slice(&out[..octets]);
                    match last {
                        Some(ReadItem::Octets(before)) => *before += octets,
                        _ => self.items.push(item),
                    }
                }
                (
                    ReadItem::Placed { rid, offset, octets, .. },
                    Some(ReadItem::Placed { rid: before, offset: at, octets: more, .. }),
                ) if rid == *before && offset == *at + *more => *more += octets,
                _ => self.items.push(item),
            }
        }
    }
}

proptest! {
    /// Segments that continue each other in a burst come to the same as each of them by itself.
    #[test]
    fn bursts_come_to_the_same_as_segments(
        segments in segments(),
        bursts in proptest::collection::vec(1_usize..40, 1..20),
        message_starts in proptest::bool::weighted(0.2),
    ) {
        let (mut in_bursts, mut one_by_one) = (End::new(message_starts), End::new(message_starts));
        let mut left = segments.as_slice();
        for burst in bursts.iter().cycle() {
            let (now, later) = left.split_at((*burst).min(left.len()));
            for said in now {
                let begin = one_by_one.inbound.position();
                let payload: Vec<u8> = (begin as usize..begin as usize + said.octets).map(octet).collect();
                prop_assert!(in_bursts.inbound.has_room(payload.len()));
                in_bursts.inbound.receive(&payload, &said.option_octets());
                let inbound = &mut one_by_one.inbound;
                let kept = (begin, begin + payload.len() as u64);
                let arrived = Arrived { payload: begin, payload_octets: payload.len(), kept, in_order: true };
                if let Some(option) = &said.option {
                    if option.message_aligned {
                        inbound.record_message_start(&arrived);
                    }
                    inbound.place(option, &arrived, |at, octets, write| {
                        write(&payload[(at - begin) as usize..][..octets]);
                    });
                }
                let handed_over = inbound.hand_over(payload.len(), true, |skip, octets, write| {
                    write(&payload[skip..skip + octets]);
                });
                prop_assert_eq!(handed_over, payload.len());
            }
            in_bursts.inbound.tell();
            for end in [&mut in_bursts, &mut one_by_one] {
                end.read();
                end.expect();
            }
            prop_assert_eq!(in_bursts.inbound.position(), one_by_one.inbound.position());
            prop_assert_eq!(in_bursts.inbound.counters(), one_by_one.inbound.counters());
            left = later;
            if left.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&in_bursts.items, &one_by_one.items);
        prop_assert_eq!(&in_bursts.octets, &one_by_one.octets);
        let written = |end: &End| {
            let mut octets = vec![0; end.memory.len()];
            assert!(end.memory.read(0, &mut octets));
            octets
        };
        prop_assert!(written(&in_bursts) == written(&one_by_one));
    }
}

/// Where there is no room for records, octets that were placed wait, or are read from the stream if they may
/// not; and a stream that reports where messages begin waits in any case.
#[test]
fn octets_without_room_for_their_record_wait_or_go_to_the_ring() {
    for message_starts in [false, true] {
        let mut end = End::new(message_starts);
        let count = limits::BYTE_STREAM_RECORDS + 100;
        let hand_over = |end: &mut End, to: usize, may_wait: bool| {
            let next = end.inbound.position() as usize;
            end.inbound.hand_over(to - next, may_wait, |skip, octets, write| {
                let octets: Vec<u8> = (next + skip..next + skip + octets).map(octet).collect();
                write(&octets);
            })
        };
        for number in 0..count {
            // Of one transfer after the other, and of each what comes next.
            let option = Transfer {
                rid: Rid::new(1 + number as u64 % 2).expect("46 bits"),
                message_aligned: false,
                unsolicited: false,
                buffer_offset: number as u32 / 2,
                data_offset: 0,
                data_octets: 1,
                total_octets: None,
            };
            let payload = number as u64;
            let kept = (payload, payload + 1);
            let arrived = Arrived { payload, payload_octets: 1, kept, in_order: true };
            end.inbound.place(&option, &arrived, |at, _, write| write(&[octet(at as usize)]));
            hand_over(&mut end, number + 1, true);
        }
        let reported = end.inbound.position() as usize;
        let room = limits::BYTE_STREAM_RECORDS - 2..limits::BYTE_STREAM_RECORDS;
        assert!(room.contains(&reported), "{reported}");
        assert!(!end.inbound.has_many_records());
        let given_up = hand_over(&mut end, count, false);
        assert_eq!(given_up, if message_starts { 0 } else { count - reported });
        let counters = *end.inbound.counters();
        assert_eq!((counters.too_scattered, counters.octets_delivered), (given_up as u64, reported as u64));
        // The reader has all of the stream, in order.
        let mut out = vec![0; count];
        let mut read = end.reader.read_octets(&mut out);
        assert_eq!(read, reported + given_up);
        assert!(end.inbound.has_many_records());
        hand_over(&mut end, count, true);
        read += end.reader.read_octets(&mut out[read..]);
        assert!(read == count && out.iter().enumerate().all(|(at, value)| *value == octet(at)));
    }
}
