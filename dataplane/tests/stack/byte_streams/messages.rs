//! Messages, which the A bit bounds (draft-csapuntz-tcprdma-00 §3.1.6): where they begin is told in stream
//! order, and whole ones beyond a gap are handed out before their turn.

use super::config;
use super::receiver::{ACK, Receiver, Told, complete, placed, whole};
use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::byte_stream::{ByteStreamConfig, ReadItem};
use warpline_dataplane::limits;
use warpline_dataplane::memory::Region;
use warpline_dataplane::wire::tcp::Flags;
use warpline_dataplane::wire::tcp_rdma::{RdmaOption, Transfer};

/// The A bit reaches a reader that asks for it: on segments in order, beyond gaps, sent twice, with a
/// transfer or without, and also where placed octets continue each other.
// Requirements: TRO-3.1.6-01, TRO-3.1.6-02
#[test]
fn message_starts_are_told_in_stream_order() {
    let starts = ByteStreamConfig { message_starts: true, ..config(4096, 65_536) };
    let mut receiver = Receiver::with(true, starts);
    receiver.expect();
    let aligned = |unsolicited| RdmaOption::Aligned { message_aligned: true, unsolicited };
    let section = |buffer_offset| {
        RdmaOption::Transfer(Transfer {
            message_aligned: true,
            buffer_offset,
            total_octets: Some(60),
            ..whole(30)
        })
    };
    receiver.send(0, 10, Some(aligned(false)));
    // A segment whose bits are all clear begins none, nor does one without the option.
    let clear = RdmaOption::Aligned { message_aligned: false, unsolicited: true };
    receiver.send(10, 10, Some(clear));
    receiver.send(20, 10, None);
    assert_eq!(receiver.read_with_octets(), [Told::Start, Told::Octets(30)]);
    // Beyond a gap, twice, and two placements that continue each other.
    for _ in 0..2 {
        receiver.send(40, 30, Some(section(0)));
        receiver.send(70, 30, Some(section(30)));
        receiver.send(100, 10, Some(aligned(true)));
    }
    assert_eq!(receiver.read_with_octets(), []);
    receiver.send(30, 10, Some(aligned(false)));
    let told = receiver.read_with_octets();
    let expected = [
        Told::Start,
        Told::Octets(10),
        Told::Start,
        Told::Item(placed(0, 30)),
        Told::Start,
        Told::Item(placed(30, 30)),
        Told::Item(complete(60)),
        Told::Start,
        Told::Octets(10),
    ];
    assert_eq!(told, expected);
    receiver.is_entire();
    // A reader that does not ask is not told; neither is one that reads plainly.
    let mut receiver = Receiver::expecting();
    receiver.send(0, 10, Some(aligned(false)));
    assert_eq!(receiver.read(), []);
    let mut receiver =
        Receiver::with(true, ByteStreamConfig { message_starts: true, ..config(4096, 65_536) });
    for at in 0..5 {
        receiver.send(10 * at, 10, Some(aligned(false)));
    }
    let mut out = [0; 100];
    assert_eq!(receiver.reader.read_octets(&mut out), 50);
    assert!(out[..50] == receiver.stream[..]);
}

/// A copy of a segment whose octets wait for room, and more after them: the beginning is told once.
#[test]
fn a_message_that_waits_for_room_begins_once() {
    let narrow = ByteStreamConfig { message_starts: true, ..config(4096, 10) };
    let mut receiver = Receiver::with(true, narrow);
    let aligned = RdmaOption::Aligned { message_aligned: true, unsolicited: false };
    receiver.send(0, 10, None);
    receiver.send(10, 10, Some(aligned));
    receiver.send(10, 20, Some(aligned));
    let mut told = Vec::new();
    while receiver.position < 30 {
        told.extend(receiver.read_with_octets());
        receiver.peer.settle();
    }
    let expected = [Told::Octets(10), Told::Start, Told::Octets(10), Told::Octets(10)];
    assert_eq!(told, expected);
    receiver.is_entire();
}

/// More messages than records wait for a reader that is slow: it is told of all of them.
#[test]
fn message_starts_wait_for_the_reader() {
    let mut receiver =
        Receiver::with(true, ByteStreamConfig { message_starts: true, ..config(4096, 65_536) });
    let aligned = RdmaOption::Aligned { message_aligned: true, unsolicited: false };
    let messages = 2 * limits::BYTE_STREAM_RECORDS;
    let mut starts = 0;
    let mut count = |receiver: &mut Receiver| {
        let told = receiver.read_with_octets();
        starts += told.iter().filter(|told| **told == Told::Start).count();
    };
    for message in 0..messages {
        receiver.send(2 * message, 2, Some(aligned));
        if message % 1000 == 999 {
            count(&mut receiver);
            receiver.peer.settle();
        }
    }
    for _ in 0..4 {
        count(&mut receiver);
        receiver.peer.settle();
    }
    assert_eq!(starts, messages);
    receiver.is_entire();
}

/// A segment that begins a message.
const START: RdmaOption = RdmaOption::Aligned { message_aligned: true, unsolicited: false };

/// A reader that takes whole messages early, of up to `ring` octets together.
fn taking_early(ring: usize) -> Receiver {
    let early_ring = Some(Region::heap(ring).unwrap());
    Receiver::with(true, ByteStreamConfig { early_ring, ..config(4096, 65_536) })
}

const fn early(position: u64, octets: u32) -> Told {
    Told::Item(ReadItem::EarlyMessage { position, octets })
}

const fn handed_out(position: u64, octets: u32) -> Told {
    Told::Item(ReadItem::HandedOut { position, octets })
}

/// Messages behind a lost segment come at once, each whole, and are passed over in their turn. The last one
/// waits for the beginning of the next.
// Requirements: TRO-3.1.6-03, A-43
#[test]
fn whole_messages_beyond_a_gap_come_early() {
    let mut receiver = taking_early(1000);
    receiver.send(0, 30, Some(START));
    assert_eq!(receiver.read_with_octets(), [Told::Start, Told::Octets(30)]);
    receiver.send(60, 40, Some(START));
    receiver.send(100, 50, Some(START));
    // Of the message at 100 more may come.
    assert_eq!(receiver.read_with_octets(), [early(60, 40), Told::Early(40)]);
    receiver.send(150, 10, Some(START));
    receiver.send(160, 7, None);
    assert_eq!(receiver.read_with_octets(), [early(100, 50), Told::Early(50)]);
    let counters = receiver.counters();
    assert_eq!((counters.messages_early, counters.messages_early_refused), (2, 0));
    // The lost segment.
    receiver.send(30, 30, None);
    assert_eq!(
        receiver.read_with_octets(),
        [
            Told::Octets(30),
            Told::Start,
            handed_out(60, 40),
            Told::Start,
            handed_out(100, 50),
            Told::Start,
            Told::Octets(17),
        ]
    );
    receiver.is_entire();
}

/// All orders of so many things.
fn orders(things: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..things {
        let longer = |order: &Vec<usize>| {
            let left = (0..things).filter(|at| !order.contains(at));
            left.map(|at| [&order[..], &[at]].concat()).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

/// The segments of a message, and the beginning of the next, come in any order; a copy of one hands nothing
/// out again.
// Requirements: TRO-3.1.6-03
#[test]
fn a_message_comes_early_in_any_order_of_its_segments() {
    let segments = [(10, 20, Some(START)), (30, 20, None), (50, 20, None), (70, 5, Some(START))];
    for order in orders(segments.len()) {
        let mut receiver = taking_early(60);
        receiver.grow(75);
        for (sent, at) in order.iter().enumerate() {
            assert_eq!(receiver.read_with_octets(), [], "{order:?}: {sent} of its segments are not all");
            let (at, octets, option) = segments[*at];
            receiver.send(at, octets, option);
        }
        for (at, octets, option) in segments {
            receiver.send(at, octets, option);
        }
        assert_eq!(receiver.read_with_octets(), [early(10, 60), Told::Early(60)], "{order:?}");
        receiver.send(0, 10, None);
        let told = [Told::Octets(10), Told::Start, handed_out(10, 60), Told::Start, Told::Octets(5)];
        assert_eq!(receiver.read_with_octets(), told, "{order:?}");
        receiver.is_entire();
    }
}

/// A message may be read a few octets at a time; octets in their turn wait meanwhile.
// Requirements: TRO-3.1.6-03
#[test]
fn an_early_message_is_read_in_parts() {
    let mut receiver = taking_early(100);
    receiver.send(10, 90, Some(START));
    receiver.send(100, 10, Some(START));
    let mut out = [0; 40];
    assert!(receiver.reader.is_readable());
    assert_eq!(receiver.reader.read(&mut out, 0), ReadItem::EarlyMessage { position: 10, octets: 90 });
    receiver.send(0, 10, None);
    assert_eq!(receiver.reader.read(&mut out, 0), ReadItem::Nothing);
    for (at, octets) in [(10, 40), (50, 40), (90, 10)] {
        assert_eq!(receiver.reader.read(&mut out, usize::MAX), ReadItem::EarlyOctets(octets));
        assert!(out[..octets] == receiver.stream[at..at + octets]);
    }
    let told = [Told::Octets(10), Told::Start, handed_out(10, 90), Told::Start, Told::Octets(10)];
    assert_eq!(receiver.read_with_octets(), told);
    receiver.is_entire();
}

/// Whoever reads the octets in their order gets all of them, also those that were taken early.
// Requirements: TRO-3.1.6-03, A-25
#[test]
fn readers_in_order_get_what_was_taken_early() {
    for plain in [false, true] {
        let mut receiver = taking_early(100);
        receiver.send(10, 90, Some(START));
        receiver.send(100, 10, Some(START));
        assert_eq!(receiver.read_with_octets(), [early(10, 90), Told::Early(90)]);
        receiver.send(0, 10, None);
        let (mut out, mut read) = ([0; 110], 0);
        while read < 50 {
            let out = &mut out[read..50];
            if plain {
                read += receiver.reader.read_octets(out);
            } else if let ReadItem::Octets(octets) = receiver.reader.read_in_order(out, usize::MAX) {
                read += octets;
            }
        }
        assert!(out[..50] == receiver.stream[..50]);
        receiver.position = 50;
        // In the midst of it, the rest comes as well.
        assert_eq!(receiver.read_with_octets(), [Told::Octets(50), Told::Start, Told::Octets(10)]);
        receiver.is_entire();
    }
}

/// A reader that looks only when the gap is closed is told of no message early.
#[test]
fn a_message_whose_turn_has_come_is_not_early() {
    let mut receiver = taking_early(100);
    for _ in 0..3 {
        let begin = receiver.stream.len();
        receiver.send(begin + 10, 90, Some(START));
        receiver.send(begin + 100, 10, Some(START));
        receiver.send(begin, 10, None);
        assert!(receiver.reader.is_readable());
        let mut out = [0; 10];
        assert_eq!(receiver.reader.read_octets(&mut out), 10);
        assert!(out == receiver.stream[begin..begin + 10]);
        receiver.position += 10;
        let told = [Told::Start, Told::Octets(90), Told::Start, Told::Octets(10)];
        assert_eq!(receiver.read_with_octets(), told);
    }
    assert_eq!(receiver.counters().messages_early, 3, "the ring has room again");
    receiver.is_entire();
}

/// A message that is longer than the ring, or finds it full, is read in its turn.
// Requirements: TRO-3.1.6-03
#[test]
fn messages_without_room_are_read_in_their_turn() {
    let mut receiver = taking_early(100);
    for (at, octets) in [(10, 101), (111, 60), (171, 41), (212, 40), (252, 1)] {
        receiver.send(at, octets, Some(START));
    }
    let told = [early(111, 60), Told::Early(60), early(212, 40), Told::Early(40)];
    assert_eq!(receiver.read_with_octets(), told);
    let counters = receiver.counters();
    assert_eq!(counters.messages_early, 2);
    assert!(counters.messages_early_refused >= 2, "{counters:?}");
    receiver.send(0, 10, None);
    let told = receiver.read_with_octets();
    assert!(told.contains(&Told::Octets(101)) && told.contains(&Told::Octets(41)), "{told:?}");
    assert!(told.contains(&handed_out(111, 60)) && told.contains(&handed_out(212, 40)), "{told:?}");
    receiver.is_entire();
}

/// Octets of transfers are placed as ever, and are part of the message: in its turn the reader is told where
/// they are, and that the transfer is complete.
// Requirements: TRO-3.1.6-03
#[test]
fn early_messages_have_the_octets_that_are_placed() {
    let section = Transfer { total_octets: Some(100), ..whole(100) };
    let mut receiver = taking_early(1000);
    receiver.expect();
    receiver.send(10, 20, Some(START));
    receiver.send(30, 100, Some(RdmaOption::Transfer(section)));
    receiver.send(130, 10, Some(START));
    assert_eq!(receiver.read_with_octets(), [early(10, 120), Told::Early(120)]);
    receiver.send(0, 10, None);
    assert_eq!(
        receiver.read_with_octets(),
        [
            Told::Octets(10),
            Told::Start,
            handed_out(10, 120),
            Told::Item(placed(0, 100)),
            Told::Item(complete(100)),
            Told::Start,
            Told::Octets(10),
        ]
    );
    assert_eq!(receiver.counters().octets_delivered, 100);
    receiver.is_entire();
    // Without an early taking the same octets are told as placed.
    let mut receiver = taking_early(1000);
    receiver.expect();
    receiver.send(0, 30, Some(START));
    receiver.send(30, 100, Some(RdmaOption::Transfer(section)));
    let told = [Told::Start, Told::Octets(30), Told::Item(placed(0, 100)), Told::Item(complete(100))];
    assert_eq!(receiver.read_with_octets(), told);
}

/// A connection that ends takes nothing back: what came early is told before the end.
#[test]
fn messages_come_early_before_an_end() {
    let mut receiver = taking_early(100);
    receiver.send(10, 20, Some(START));
    receiver.send(30, 20, Some(START));
    let header = receiver.peer.header(Flags::RST | ACK, PEER_ISS + 1, receiver.ack);
    receiver.peer.inject(&RawPeer::segment(&header, &[]));
    receiver.peer.settle();
    assert!(receiver.reader.has_ended());
    let mut out = [0; 40];
    assert_eq!(receiver.reader.read(&mut out, 40), ReadItem::EarlyMessage { position: 10, octets: 20 });
    assert_eq!(receiver.reader.read(&mut out, 40), ReadItem::EarlyOctets(20));
    assert_eq!(receiver.reader.read(&mut out, 40), ReadItem::Finished);
}

/// Beginnings in every other octet, whose messages one segment makes whole, keep the work for it within its
/// bound.
#[test]
fn a_segment_hands_out_few_messages() {
    let mut receiver = taking_early(1000);
    for message in 0..10 {
        receiver.send(10 + 2 * message, 1, Some(START));
    }
    receiver.send(10, 90, None);
    let told = receiver.read_with_octets();
    assert_eq!(told.len(), 2 * limits::EARLY_MESSAGES_PER_SEGMENT, "{told:?}");
    receiver.send(0, 10, None);
    let starts = receiver.read_with_octets().into_iter().filter(|told| *told == Told::Start).count();
    assert_eq!(starts, 10);
    receiver.is_entire();
}

/// A beginning that becomes known inside octets that were handed out hands nothing out again: they come once.
#[test]
fn a_late_beginning_hands_nothing_out_again() {
    let mut receiver = taking_early(1000);
    receiver.send(10, 40, Some(START));
    receiver.send(50, 40, None);
    receiver.send(90, 10, Some(START));
    assert_eq!(receiver.read_with_octets(), [early(10, 80), Told::Early(80)]);
    // The same octets again and more, in a segment that begins a message among them.
    receiver.send(50, 60, Some(START));
    receiver.send(70, 50, Some(START));
    receiver.send(120, 10, Some(START));
    assert_eq!(receiver.read_with_octets(), [early(90, 30), Told::Early(30)]);
    receiver.send(0, 10, None);
    assert_eq!(
        receiver.read_with_octets(),
        [
            Told::Octets(10),
            Told::Start,
            handed_out(10, 80),
            Told::Start,
            handed_out(90, 30),
            Told::Start,
            Told::Octets(10),
        ]
    );
    receiver.is_entire();
}

/// Neither does one inside of octets that were placed, of which the reader is not told: they come as placed.
#[test]
fn a_beginning_inside_of_a_placement_hands_nothing_out() {
    let mut receiver = taking_early(1000);
    receiver.expect();
    receiver.send(10, 60, Some(RdmaOption::Transfer(Transfer { total_octets: Some(60), ..whole(60) })));
    receiver.send(40, 60, Some(START));
    receiver.send(100, 10, Some(START));
    assert_eq!(receiver.read_with_octets(), []);
    receiver.send(0, 10, None);
    assert_eq!(
        receiver.read_with_octets(),
        [
            Told::Octets(10),
            Told::Item(placed(0, 60)),
            Told::Item(complete(60)),
            Told::Octets(30),
            Told::Start,
            Told::Octets(10),
        ]
    );
    receiver.is_entire();
}

/// So many messages wait for a reader that does not look, and no more; the others are read in their turn.
#[test]
fn early_messages_that_nobody_takes_are_bounded() {
    let most = limits::EARLY_MESSAGES_PER_STREAM;
    let mut receiver = taking_early(65_536);
    for message in 0..most + 10 {
        receiver.send(10 + 2 * message, 2, Some(START));
    }
    let counters = receiver.counters();
    assert_eq!(counters.messages_early as usize, most);
    assert!(counters.messages_early_refused > 0, "{counters:?}");
    assert_eq!(receiver.read_with_octets().len(), 2 * most);
    receiver.send(0, 10, None);
    let told = receiver.read_with_octets();
    let handed_out = |told: &&Told| matches!(told, Told::Item(ReadItem::HandedOut { .. }));
    assert_eq!(told.iter().filter(handed_out).count(), most);
    receiver.is_entire();
}
