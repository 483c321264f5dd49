//! Bad options from a peer made of frames: each has its documented result, is counted under its cause, writes
//! nothing out of bounds, and leaves the stream whole (draft-csapuntz-tcprdma-00 §3.1, §6.1).

use super::receiver::{
    ACK, AT, BUFFER, GUARD, NAME, Receiver, accept, complete, guarded, octets_of, placed, whole,
};
use super::{attach, config, rid};
use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::byte_stream::{
    Buffer, ByteStreamConfig, ReadItem, TransferCounters, UnsolicitedPool,
};
use warpline_dataplane::limits;
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::wire::tcp::{Flags, Header, Options};
use warpline_dataplane::wire::tcp_rdma::{RdmaOption, RidFormat, Transfer};

/// What is inside of the payload is placed, and nothing else.
// Requirements: TRO-3.1.2-01, TRO-3.1.3-01, TRO-3.1.3-02
#[test]
fn octets_outside_of_the_payload_do_not_exist() {
    for (data_offset, data_octets, outside) in [
        (0, 100, false),
        (0, 101, true),
        (100, 0, false),
        (101, 0, true),
        (60, 40, false),
        (60, 41, true),
        (0xffff, 1, true),
        (1, 0xffff, true),
        (0xffff, 0xffff, true),
    ] {
        let mut receiver = Receiver::expecting();
        receiver.send_next(100, Transfer { data_offset, data_octets, ..whole(0) });
        let counters = receiver.counters();
        assert_eq!(counters.outside_payload, u64::from(outside), "{data_offset} {data_octets}");
        assert_eq!(counters.segments_placed, u64::from(!outside));
        if outside {
            receiver.nothing_is_placed();
        } else {
            let octets = u32::from(data_octets);
            assert_eq!(receiver.read(), if octets > 0 { vec![placed(0, octets)] } else { vec![] });
            receiver.is_entire();
        }
    }
}

/// One octet over, far over, and offsets that wrap.
// Requirements: TRO-6.1-01
#[test]
fn offsets_are_checked_against_the_buffer() {
    const LAST: u32 = BUFFER as u32 - 100;
    for (buffer_offset, total_octets, inside) in [
        (LAST, None, true),
        (LAST + 1, None, false),
        (BUFFER as u32, None, false),
        (u32::MAX, None, false),
        (u32::MAX - 98, None, false),
        (u32::MAX - 99, None, false),
        (0_u32.wrapping_sub(AT as u32), None, false),
        (LAST, Some(BUFFER as u32), true),
        (0, Some(BUFFER as u32 + 1), false),
        (0, Some(u32::MAX), false),
        // Beyond the total, though in the buffer.
        (101, Some(200), false),
        (0, Some(99), false),
        (0, Some(0), false),
    ] {
        let mut receiver = Receiver::expecting();
        receiver.send_next(100, Transfer { buffer_offset, total_octets, ..whole(100) });
        let counters = receiver.counters();
        let counted = [counters.out_of_bounds, counters.octets_placed, counters.octets_refused];
        assert_eq!(
            counted,
            if inside { [0, 100, 0] } else { [1, 0, 100] },
            "{buffer_offset} {total_octets:?}"
        );
        if inside {
            assert_eq!(receiver.read(), [placed(buffer_offset, 100)]);
            receiver.is_entire();
        } else {
            receiver.nothing_is_placed();
        }
    }
}

/// A buffer of no octets takes a transfer of nothing, and no other.
// Requirements: TRO-6.1-01, TRO-3.1.4-03
#[test]
fn a_buffer_of_nothing_takes_nothing() {
    let mut receiver = Receiver::new();
    assert!(receiver.reader.expect(rid(NAME), &receiver.memory, AT, 0));
    receiver.peer.settle();
    receiver.send_next(10, Transfer { data_octets: 1, ..whole(0) });
    assert_eq!(receiver.counters().out_of_bounds, 1);
    receiver.nothing_is_placed();
    receiver.send_next(10, Transfer { total_octets: Some(0), ..whole(0) });
    assert_eq!(receiver.read(), [complete(0)]);
    receiver.is_entire();
}

/// A transfer of nothing on a segment without payload is no part of the stream: it is ignored. On one with
/// payload it ends the transfer, once, also where other placements begin.
// Requirements: TRO-3.1.3-03, TRO-3.1.4-03
#[test]
fn a_transfer_of_nothing_needs_payload() {
    let mut receiver = Receiver::expecting();
    let nothing = Transfer { total_octets: Some(0), ..whole(0) };
    for _ in 0..2 {
        receiver.send_next(0, nothing);
    }
    assert_eq!(receiver.counters(), TransferCounters::default());
    receiver.nothing_is_placed();
    // Beyond a gap: the end of this segment is the place of two others.
    let other = rid(NAME + 1);
    assert!(receiver.reader.expect(other, &receiver.memory, AT, BUFFER));
    receiver.peer.settle();
    receiver.send(10, 10, Some(RdmaOption::Transfer(Transfer { data_offset: 10, ..nothing })));
    receiver.send(20, 10, Some(RdmaOption::Transfer(Transfer { rid: other, ..whole(10) })));
    receiver.send(0, 10, None);
    let in_buffer = ReadItem::Placed { rid: other, buffer: Buffer::Expected, offset: 0, octets: 10 };
    assert_eq!(receiver.read(), [complete(0), in_buffer]);
    receiver.send_next(10, nothing);
    assert_eq!(receiver.counters().unknown_rid, 1, "its name is free");
    receiver.read();
    receiver.is_entire();
}

// Requirements: TRO-3.1.7-01
#[test]
fn unknown_names_are_read_from_the_stream() {
    let mut receiver = Receiver::expecting();
    receiver.send_next(100, Transfer { rid: rid(NAME - 1), ..whole(100) });
    assert_eq!(receiver.counters().unknown_rid, 1);
    receiver.nothing_is_placed();
    // Unsolicited, and there are no buffers for such.
    receiver.send_next(100, Transfer { rid: rid(NAME - 1), unsolicited: true, ..whole(100) });
    assert_eq!(receiver.counters().over_quota, 1);
    receiver.nothing_is_placed();
}

/// A peer that contradicts itself about the total: nothing more is placed.
// Requirements: TRO-3.1.4-01
#[test]
fn a_total_that_changes_ends_placing() {
    let mut receiver = Receiver::expecting();
    let option = |buffer_offset, total| Transfer { buffer_offset, total_octets: total, ..whole(50) };
    receiver.send_next(50, option(0, Some(200)));
    // The shorter form says nothing about it.
    receiver.send_next(50, option(50, None));
    receiver.send_next(50, option(100, Some(201)));
    receiver.send_next(50, option(150, Some(200)));
    receiver.send_next(50, option(100, None));
    receiver.send_next(50, option(150, None));
    assert_eq!(receiver.counters().total_changed, 4);
    assert_eq!(receiver.read(), [placed(0, 50), placed(50, 50)]);
    receiver.is_entire();
    // Another transfer may have the name.
    assert!(receiver.reader.cancel(rid(NAME)));
    receiver.peer.settle();
    receiver.reader.save_placed(rid(NAME));
    receiver.expect();
    receiver.send_next(50, option(0, Some(50)));
    assert_eq!(receiver.read(), [placed(0, 50), complete(50)]);
    receiver.is_entire();
}

/// A total that is less than what the form of 16 octets has placed before: the transfer never is complete,
/// however many octets were placed. As many as the total would not be all of it.
// Requirements: TRO-3.1.4-01
#[test]
fn a_total_below_what_is_placed_completes_nothing() {
    for (first, total, contradicts) in [(200, 100, true), (200, 249, true), (51, 100, true), (50, 100, false)]
    {
        let mut receiver = Receiver::expecting();
        receiver.send_next(50, Transfer { buffer_offset: first, ..whole(50) });
        let option = Transfer { total_octets: Some(total), ..whole(50) };
        receiver.send_next(50, option);
        assert_eq!(receiver.counters().total_changed, u64::from(contradicts), "{first} {total}");
        let mut expected = vec![placed(first, 50)];
        if !contradicts {
            expected.extend([placed(0, 50), complete(100)]);
        }
        assert_eq!(receiver.read(), expected, "{first} {total}");
        receiver.is_entire();
        // Nothing more is placed for the name.
        receiver.send_next(10, Transfer { buffer_offset: 100, ..whole(10) });
        assert_eq!(receiver.read(), []);
        receiver.is_entire();
    }
}

/// As many octets as the total, but not all of them, and beyond a gap: a transfer is complete when its
/// octets are, and not before all of them are in stream order.
#[test]
fn a_transfer_is_complete_when_all_octets_are_placed() {
    let mut receiver = Receiver::expecting();
    let option = |buffer_offset| Transfer { buffer_offset, total_octets: Some(150), ..whole(50) };
    receiver.send(50, 50, Some(RdmaOption::Transfer(option(50))));
    receiver.send(100, 50, Some(RdmaOption::Transfer(option(100))));
    assert_eq!(receiver.counters().octets_placed, 100);
    assert_eq!(receiver.read(), []);
    receiver.send(0, 50, Some(RdmaOption::Transfer(option(0))));
    // Those that continue each other are one part.
    assert_eq!(receiver.read(), [placed(0, 150), complete(150)]);
    receiver.is_entire();
}

/// A segment that contradicts a transfer which is whole, and waits to be read, takes nothing from it: what
/// becomes of the transfer does not depend on when the application reads.
#[test]
fn a_transfer_that_is_whole_stays_so() {
    // The ring is full, so nothing is handed over.
    let mut receiver = Receiver::with(true, config(4096, 10));
    receiver.expect();
    receiver.send_next(20, whole(0));
    receiver.send_next(50, Transfer { total_octets: Some(50), ..whole(50) });
    receiver.send_next(50, Transfer { buffer_offset: 50, total_octets: Some(100), ..whole(50) });
    assert_eq!(receiver.counters().total_changed, 1);
    let mut items = Vec::new();
    while receiver.position < receiver.stream.len() {
        items.extend(receiver.read());
        receiver.peer.settle();
    }
    assert_eq!(items, [placed(0, 50), complete(50)]);
    receiver.is_entire();
}

/// The name of a transfer that is under way: what it places anew is read from the stream, and what it adds
/// belongs to the same transfer.
// Requirements: TRO-3.1.1-01
#[test]
fn a_name_used_again_is_the_same_transfer() {
    let mut receiver = Receiver::expecting();
    receiver.send_next(100, Transfer { total_octets: Some(150), ..whole(100) });
    receiver.send_next(100, Transfer { total_octets: Some(150), ..whole(100) });
    assert_eq!(receiver.counters().overlapping, 1);
    assert_eq!(receiver.read(), [placed(0, 100)]);
    assert!(!receiver.reader.expect(rid(NAME), &receiver.memory, AT, BUFFER), "it is expected already");
    receiver.send_next(50, Transfer { buffer_offset: 100, total_octets: Some(150), ..whole(50) });
    assert_eq!(receiver.read(), [placed(100, 50), complete(150)]);
    receiver.is_entire();
    // After that the name is nobody's.
    receiver.send_next(50, whole(50));
    assert_eq!(receiver.counters().unknown_rid, 1);
    assert_eq!(receiver.read(), []);
    receiver.is_entire();
}

/// Overlapping placements in order: the first in the stream has the octets of the buffer.
// Requirements: A-25
#[test]
fn overlapping_placements_do_not_overwrite() {
    for (second, octets) in [(0, 100), (99, 1), (50, 100), (0, 1)] {
        let mut receiver = Receiver::expecting();
        receiver.send_next(100, whole(100));
        receiver.send_next(octets as usize, Transfer { buffer_offset: second, ..whole(octets as usize) });
        assert_eq!(receiver.counters().overlapping, 1, "{second} {octets}");
        assert_eq!(receiver.read(), [placed(0, 100)]);
        receiver.is_entire();
    }
}

/// The same beyond a gap: what comes first in the stream has the octets, whatever arrives first.
// Requirements: A-25
#[test]
fn earlier_octets_take_the_place_of_later_ones() {
    for second in [0, 50, 99] {
        let mut receiver = Receiver::expecting();
        receiver.send(100, 100, Some(RdmaOption::Transfer(Transfer { buffer_offset: second, ..whole(100) })));
        assert_eq!(receiver.counters().segments_placed_out_of_order, 1);
        assert_eq!(receiver.read(), [], "its turn has not come");
        receiver.send(0, 100, Some(RdmaOption::Transfer(whole(100))));
        let counters = receiver.counters();
        assert_eq!((counters.placements_revoked, counters.overlapping), (1, 0), "{second}");
        assert_eq!(receiver.read(), [placed(0, 100)]);
        receiver.is_entire();
    }
    // Two beyond the gap: the first to arrive has them.
    let mut receiver = Receiver::expecting();
    receiver.send(200, 100, Some(RdmaOption::Transfer(whole(100))));
    receiver.send(100, 100, Some(RdmaOption::Transfer(whole(100))));
    assert_eq!(receiver.counters().overlapping, 1);
    receiver.send(0, 100, None);
    assert_eq!(receiver.read(), [placed(0, 100)]);
    receiver.is_entire();
}

/// A sender that cuts its segments anew sends octets again that wait beyond gaps, with those that are
/// missing. The former keep their place in the buffer, the latter get theirs: the transfer is whole.
// Requirements: A-25
#[test]
fn octets_that_come_again_with_others_do_not_revoke() {
    let option = |offset: usize, octets: usize| {
        let transfer = Transfer { buffer_offset: offset as u32, ..whole(octets) };
        Some(RdmaOption::Transfer(Transfer { total_octets: Some(BUFFER as u32), ..transfer }))
    };
    // What waits beyond a gap, then the rest: over all of it, a part of it, or several runs of it.
    let orders: [&[(usize, usize)]; 6] = [
        &[(50, 100), (150, 200), (20, 260), (0, 20), (260, 300)],
        &[(100, 200), (0, 300)],
        &[(100, 200), (0, 150), (200, 300)],
        &[(50, 100), (150, 200), (0, 300)],
        &[(50, 100), (150, 200), (0, 160), (190, 300)],
        &[(200, 300), (150, 250), (0, 200)],
    ];
    for order in orders {
        let mut receiver = Receiver::expecting();
        for &(from, to) in order {
            receiver.send(from, to - from, option(from, to - from));
        }
        let counters = receiver.counters();
        assert_eq!((counters.placements_revoked, counters.octets_placed), (0, 300), "{order:?}");
        let items = receiver.read();
        assert_eq!(items.last(), Some(&complete(300)), "{order:?}: {items:?}");
        receiver.is_entire();
    }
}

/// A segment that repeats octets which were placed beyond a gap, at another place: the stream stays whole.
#[test]
fn octets_sent_twice_are_told_once() {
    for (at, octets, buffer_offset) in [(0, 300, 0), (50, 150, 150), (0, 150, 100), (150, 150, 100)] {
        let mut receiver = Receiver::expecting();
        let first = Transfer { buffer_offset: 100, ..whole(100) };
        receiver.send(100, 100, Some(RdmaOption::Transfer(first)));
        let again = Transfer { buffer_offset, ..whole(octets) };
        receiver.send(at, octets, Some(RdmaOption::Transfer(again)));
        receiver.send(0, 100, None);
        receiver.send(200, 100, None);
        receiver.read();
        receiver.is_entire();
    }
}

/// A name counts on its own connection only.
// Requirements: TRO-6.1-02
#[test]
fn names_of_another_connection_have_no_effect() {
    let mut receiver = Receiver::expecting();
    let port = crate::common::raw::PEER_PORT + 1;
    let (connection, ack) = accept(&mut receiver.peer, true, port);
    let (_writer, mut reader) = attach(&receiver.peer.rings, connection, config(4096, 4096));
    receiver.peer.settle();
    let options = Options { rdma: Some(RdmaOption::Transfer(whole(100))), ..Options::default() };
    let header = Header { source_port: port, options, ..receiver.peer.header(ACK, PEER_ISS + 1, ack) };
    receiver.peer.inject(&RawPeer::segment(&header, &[7; 100]));
    receiver.peer.settle();
    assert_eq!(receiver.peer.core.transfer_counters().unknown_rid, 1);
    let mut out = [0; 200];
    assert_eq!(reader.read(&mut out, usize::MAX), ReadItem::Octets(100));
    assert_eq!(out[..100], [7; 100]);
    receiver.nothing_is_placed();
}

/// Bits that a protocol has as zero are received as zeros: a peer that sets them means the same transfer.
/// Where the name has all 46 bits, it means another.
// Requirements: TRO-5.1.1-04, TRO-5.3.1-02
#[test]
fn reserved_bits_of_names_are_received_as_zeros() {
    for (format, bits) in
        [(RidFormat::Nfs, 40), (RidFormat::Cifs, 40), (RidFormat::Http, 32), (RidFormat::Opaque, 46)]
    {
        let mut receiver =
            Receiver::with(true, ByteStreamConfig { rid_format: format, ..config(4096, 65_536) });
        let name = rid(0xccdd_eeff);
        assert!(receiver.reader.expect(name, &receiver.memory, AT, BUFFER));
        receiver.peer.settle();
        for bit in 32..46 {
            let option = Transfer { rid: rid(name.get() | 1 << bit), total_octets: Some(10), ..whole(10) };
            let unknown = receiver.counters().unknown_rid;
            receiver.send_next(10, option);
            let is_unknown = receiver.counters().unknown_rid - unknown;
            assert_eq!(is_unknown, u64::from(bit < bits), "{format:?} {bit}");
            let items = receiver.read();
            let named = ReadItem::Complete { rid: name, buffer: Buffer::Expected, total_octets: 10 };
            assert_eq!(items.last(), (bit >= bits).then_some(&named), "{format:?} {bit}");
            if bit >= bits {
                assert!(receiver.reader.expect(name, &receiver.memory, AT, BUFFER));
                receiver.peer.settle();
            }
        }
        receiver.is_entire();
    }
}

/// The U bit does not move a transfer: octets of a name that is expected go to the buffer that the
/// application has named, also where there are buffers for unsolicited ones, and the other way round.
// Requirements: TRO-3.1.7-01
#[test]
fn the_u_bit_does_not_decide_where_a_known_name_goes() {
    let pool = UnsolicitedPool::new(guarded(200), 100);
    let mut receiver = Receiver::with(true, ByteStreamConfig { unsolicited: pool, ..config(4096, 65_536) });
    receiver.expect();
    let option = |name, unsolicited, buffer_offset| Transfer {
        rid: rid(name),
        unsolicited,
        buffer_offset,
        total_octets: Some(20),
        ..whole(10)
    };
    receiver.send_next(10, option(NAME, true, 0));
    receiver.send_next(10, option(NAME, false, 10));
    assert_eq!(receiver.read(), [placed(0, 10), placed(10, 10), complete(20)]);
    // A transfer that has begun as an unsolicited one stays where it is.
    let (name, buffer) = (rid(NAME + 1), Buffer::Unsolicited(0));
    receiver.send_next(10, option(NAME + 1, true, 0));
    receiver.send_next(10, option(NAME + 1, false, 10));
    let expected = [
        ReadItem::Placed { rid: name, buffer, offset: 0, octets: 10 },
        ReadItem::Placed { rid: name, buffer, offset: 10, octets: 10 },
        ReadItem::Complete { rid: name, buffer, total_octets: 20 },
    ];
    assert_eq!(receiver.read(), expected);
    receiver.is_entire();
}

/// A flood of small transfers fills the buffers that there are, and no more; each is free again when the
/// application says so.
// Requirements: TRO-6.1-03
#[test]
fn unsolicited_transfers_have_a_quota() {
    const COUNT: u64 = 4;
    const OCTETS: usize = 64;
    let memory = guarded(COUNT as usize * OCTETS + 32);
    let pool = UnsolicitedPool::new(memory.clone(), OCTETS);
    let mut receiver = Receiver::with(true, ByteStreamConfig { unsolicited: pool, ..config(4096, 65_536) });
    let option =
        |number: u64| Transfer { rid: rid(number), unsolicited: true, total_octets: Some(10), ..whole(10) };
    for number in 0..100 {
        receiver.send_next(10, option(number));
    }
    assert_eq!(receiver.counters().over_quota, 100 - COUNT);
    assert_eq!(receiver.counters().segments_placed, COUNT);
    let items = receiver.read();
    assert_eq!(items.len() as u64, 2 * COUNT, "{items:?}");
    receiver.is_entire();
    assert!(receiver.reader.release(2));
    receiver.peer.settle();
    for number in 100..103 {
        receiver.send_next(10, option(number));
    }
    assert_eq!(receiver.counters().over_quota, 100 - COUNT + 2);
    let (name, buffer) = (rid(100), Buffer::Unsolicited(2));
    let expected = [
        ReadItem::Placed { rid: name, buffer, offset: 0, octets: 10 },
        ReadItem::Complete { rid: name, buffer, total_octets: 10 },
    ];
    assert_eq!(receiver.read(), expected);
    // Each has its own octets, and nothing beyond them.
    let octets = octets_of(&memory);
    for (index, buffer) in octets.chunks(OCTETS).enumerate() {
        let from = if index < COUNT as usize { 10 } else { 0 };
        assert!(buffer[from..].iter().all(|octet| *octet == GUARD), "buffer {index}");
    }
}

/// Unsolicited transfers take a name and a buffer with their first octet, or if they are of nothing: what the
/// application is never told of, it could not give back.
// Requirements: TRO-6.1-03
#[test]
fn unsolicited_transfers_that_nobody_is_told_of_take_nothing() {
    let pool = UnsolicitedPool::new(guarded(100), 100);
    let mut receiver = Receiver::with(true, ByteStreamConfig { unsolicited: pool, ..config(4096, 65_536) });
    let option = |number: u64, octets, total_octets| Transfer {
        rid: rid(number),
        unsolicited: true,
        total_octets,
        ..whole(octets)
    };
    let expected = |number, octets| {
        let (rid, buffer) = (rid(number), Buffer::Unsolicited(0));
        vec![
            ReadItem::Placed { rid, buffer, offset: 0, octets },
            ReadItem::Complete { rid, buffer, total_octets: octets },
        ]
    };
    for number in 0..20 {
        receiver.send_next(10, option(number, 0, None));
        receiver.send_next(10, option(20 + number, 0, Some(50)));
        assert_eq!(receiver.read(), []);
    }
    receiver.send_next(50, option(99, 50, Some(50)));
    assert_eq!(receiver.read(), expected(99, 50), "the only buffer: {:?}", receiver.counters());
    receiver.is_entire();
    assert!(receiver.reader.release(0));
    receiver.peer.settle();
    // One of nothing is reported, with a buffer to be given back.
    receiver.send_next(10, option(100, 0, Some(0)));
    assert_eq!(receiver.read(), expected(100, 0)[1..]);
    assert_eq!(receiver.counters().over_quota, 0);
}

/// A name that an unsolicited transfer has taken cannot be expected: the reader is told, nothing is placed in
/// the buffer, and the other transfer goes on.
#[test]
fn a_name_that_is_taken_is_not_expected() {
    let pool = UnsolicitedPool::new(guarded(100), 100);
    let mut receiver = Receiver::with(true, ByteStreamConfig { unsolicited: pool, ..config(4096, 65_536) });
    let option =
        |buffer_offset| Transfer { unsolicited: true, buffer_offset, total_octets: Some(20), ..whole(10) };
    receiver.send_next(10, option(0));
    receiver.expect();
    assert!(receiver.reader.is_readable());
    receiver.send_next(10, option(10));
    let buffer = Buffer::Unsolicited(0);
    let name = rid(NAME);
    let placed = |offset| ReadItem::Placed { rid: name, buffer, offset, octets: 10 };
    let complete = ReadItem::Complete { rid: name, buffer, total_octets: 20 };
    let told = [ReadItem::NotExpected { rid: name }, placed(0), placed(10), complete];
    assert_eq!(receiver.read(), told);
    receiver.is_entire();
    assert!(octets_of(&receiver.memory).iter().all(|octet| *octet == GUARD), "the buffer is as before");
    // Now the name is free.
    receiver.expect();
    receiver.send_next(10, Transfer { total_octets: Some(10), ..whole(10) });
    assert_eq!(receiver.read().len(), 2);
    // More names than there may be: those beyond are told.
    for number in 0..=limits::TRANSFERS_PER_STREAM as u64 {
        assert!(receiver.reader.expect(rid(number), &receiver.memory, AT, BUFFER));
        receiver.peer.settle();
    }
    let last = rid(limits::TRANSFERS_PER_STREAM as u64);
    assert_eq!(receiver.read(), [ReadItem::NotExpected { rid: last }]);
}

/// A transfer too long for an unsolicited buffer takes none, and none is lost to the application.
// Requirements: TRO-6.1-01, TRO-6.1-03
#[test]
fn transfers_that_do_not_fit_take_no_unsolicited_buffer() {
    let pool = UnsolicitedPool::new(guarded(100), 50);
    let mut receiver = Receiver::with(true, ByteStreamConfig { unsolicited: pool, ..config(4096, 65_536) });
    let option = |number: u64, octets, total_octets| Transfer {
        rid: rid(number),
        unsolicited: true,
        total_octets,
        ..whole(octets)
    };
    for number in 0..10 {
        receiver.send_next(51, option(number, 51, None));
        receiver.send_next(10, option(10 + number, 10, Some(51)));
    }
    assert_eq!(receiver.counters().out_of_bounds, 20);
    assert_eq!(receiver.read(), []);
    receiver.send_next(50, option(20, 50, Some(50)));
    assert_eq!(receiver.counters().segments_placed, 1);
    assert_eq!(receiver.read().len(), 2);
    receiver.is_entire();
}

/// More separate pieces than there may be intervals: for each one too many a gap is given up, whose octets
/// are read from the stream when they come. The transfer is not complete, as not all of it is in its buffer.
// Requirements: TRO-6.1-03
#[test]
fn scattered_pieces_are_bounded() {
    const PIECES: u32 = 100;
    const GIVEN_UP: u64 = PIECES as u64 - limits::TRANSFER_INTERVALS as u64;
    let mut receiver = Receiver::expecting();
    let octet = |buffer_offset| Transfer { buffer_offset, total_octets: Some(2 * PIECES - 1), ..whole(1) };
    // Every other octet, backwards, so that no two pieces are neighbours.
    for piece in (0..PIECES).rev() {
        receiver.send_next(1, octet(2 * piece));
    }
    assert_eq!(receiver.counters().segments_placed, PIECES.into());
    for gap in 0..PIECES - 1 {
        receiver.send_next(1, octet(2 * gap + 1));
    }
    let counters = receiver.counters();
    assert_eq!(counters.segments_placed, u64::from(2 * PIECES - 1) - GIVEN_UP, "{counters:?}");
    assert_eq!(counters.overlapping, GIVEN_UP, "{counters:?}");
    let items = receiver.read();
    assert!(!items.iter().any(|item| matches!(item, ReadItem::Complete { .. })), "{items:?}");
    receiver.is_entire();
}

/// Kind 25 with every length but the four of the draft is no option: its octets are skipped, or the segment
/// is malformed; nothing is placed.
// Requirements: TRO-3.1-01
#[test]
fn other_lengths_place_nothing() {
    for len in (0..=40_u8).filter(|len| ![16, 20].contains(len)) {
        let mut receiver = Receiver::expecting();
        receiver.grow(100);
        let header = receiver.peer.header(ACK | Flags::PSH, PEER_ISS + 1, receiver.ack);
        let mut segment = vec![0; header.header_len()];
        header.emit(&mut segment);
        let mut list = [0; 40];
        list[0] = 25;
        list[1] = len;
        // Two data octets: in the form of 16 octets these would be placed.
        list[15] = 2;
        segment.extend(list);
        segment[12] = 15 << 4;
        segment.extend(&receiver.stream);
        receiver.peer.inject(&sealed(&segment));
        receiver.peer.settle();
        assert_eq!(receiver.counters(), TransferCounters::default(), "{len}");
        receiver.read();
        if receiver.position == 0 {
            // The whole segment was malformed; it comes again.
            receiver.send(0, 100, None);
        }
        receiver.nothing_is_placed();
    }
    // The judge of the above: the form of 16 octets is placed.
    let mut receiver = Receiver::expecting();
    receiver.send_next(100, whole(2));
    assert_eq!(receiver.counters().octets_placed, 2);
}

/// A TCP segment to the core in a frame, with its checksum.
fn sealed(segment: &[u8]) -> Vec<u8> {
    use crate::common::address;
    use warpline_dataplane::wire::{checksum, ipv4::Protocol, tcp};
    let mut segment = segment.to_vec();
    tcp::set_checksum(&mut segment, 0);
    let mut sum = checksum::ipv4_pseudo_header(address(2), address(1), Protocol::TCP.0, segment.len() as u16);
    sum.add(&segment);
    tcp::set_checksum(&mut segment, sum.finish());
    RawPeer::packet(Protocol::TCP, &segment)
}

/// On segments that TCP does not take: with SYN or RST, outside of the window, without acceptable
/// acknowledgement, and of octets that came before.
// Requirements: A-23, TRO-3.2-01
#[test]
fn segments_that_tcp_refuses_place_nothing() {
    let window = 256 << 10;
    let cases: [(Flags, i64, i64); 6] = [
        (Flags::SYN | ACK, 0, 0),
        (ACK, window + 4096, 0),
        (ACK, -200, 0),
        (ACK, 0, 1 << 30),
        (Flags::RST | ACK, 1000, 0),
        (Flags::SYN, 0, 0),
    ];
    for (flags, seq, ack) in cases {
        let mut receiver = Receiver::expecting();
        receiver.grow(100);
        let header = receiver.peer.header(flags, PEER_ISS + 1 + seq as u32, receiver.ack + ack as u32);
        let options = Options { rdma: Some(RdmaOption::Transfer(whole(100))), ..Options::default() };
        let frame = RawPeer::segment(&Header { options, ..header }, &receiver.stream);
        receiver.peer.inject(&frame);
        receiver.peer.settle();
        assert_eq!(receiver.counters().octets_placed, 0, "{flags:?} {seq} {ack}");
        receiver.send(0, 100, None);
        receiver.nothing_is_placed();
    }
}

/// A segment of which a part is beyond the window: that part is not placed.
#[test]
fn octets_beyond_the_window_are_not_placed() {
    let mut receiver = Receiver::expecting();
    receiver.send_next(100, Transfer { total_octets: Some(200), ..whole(100) });
    // Octets that came before, and more: only these are placed.
    let option = Transfer { buffer_offset: 50, total_octets: Some(200), ..whole(150) };
    receiver.send(50, 150, Some(RdmaOption::Transfer(option)));
    assert_eq!(receiver.counters().octets_placed, 200);
    assert_eq!(receiver.read(), [placed(0, 100), placed(100, 100), complete(200)]);
    receiver.is_entire();
}

/// Without the agreement of both SYNs the option means nothing.
// Requirements: A-23, TRO-3.2-01
#[test]
fn connections_without_agreement_place_nothing() {
    let mut receiver = Receiver::with(false, config(4096, 4096));
    assert!(!receiver.reader.shared().has_rdma_option());
    receiver.expect();
    receiver.send_next(100, Transfer { unsolicited: true, ..whole(100) });
    assert_eq!(receiver.counters(), TransferCounters::default());
    receiver.nothing_is_placed();
    assert!(!Behaviour::default().rdma_option, "it is off by default");
}

/// After the reader is gone, nothing is written any more.
#[test]
fn nothing_is_placed_for_a_reader_that_is_gone() {
    let Receiver { mut peer, reader, _writer, memory, ack, .. } = Receiver::expecting();
    drop(reader);
    peer.settle();
    let options = Options { rdma: Some(RdmaOption::Transfer(whole(100))), ..Options::default() };
    let header = Header { options, ..peer.header(ACK | Flags::PSH, PEER_ISS + 1, ack) };
    peer.inject(&RawPeer::segment(&header, &[7; 100]));
    peer.settle();
    assert_eq!(peer.sent.back().expect("an acknowledgement").header.ack, PEER_ISS + 101, "it is taken");
    assert!(octets_of(&memory).iter().all(|octet| *octet == GUARD), "and not placed");
}
