//! Tests that the hot path allocates nothing: once a transfer runs, neither end allocates memory.

use crate::common::{Pair, Setup, pattern, region_of};
use warpline_dataplane::device::sim::{End, EndConfig, Impairments};
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{InlineData, Operation, ReceiveRequest, SendRequest, Slice, SliceList};

const SOURCE: STag = STag::new(1, 1);
const SINK: STag = STag::new(2, 2);
const MESSAGE_OCTETS: u32 = 64 * 1024;

/// Writes `messages` messages and polls until all are completed. Only the code under test could allocate
/// here.
fn transfer(pair: &mut Pair, messages: u64) {
    for id in 0..messages {
        let local = Slice { stag: SOURCE, to: 0, len: MESSAGE_OCTETS };
        pair.a.write(id, local, SINK, 0);
    }
    let mut completed = 0;
    while completed < messages {
        pair.step();
        while pair.a.completions.poll().is_some() {
            completed += 1;
        }
    }
}

#[test]
fn a_running_transfer_allocates_nothing() {
    for setup in [Setup { markers: false, crc: true }, Setup { markers: true, crc: true }] {
        let mut pair = Pair::new(1, EndConfig::a(), EndConfig::b());
        let source = region_of(&pattern(1, MESSAGE_OCTETS as usize));
        let sink = Region::heap(MESSAGE_OCTETS as usize).unwrap();
        pair.a.register(SOURCE, &source, Access::empty());
        pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
        pair.establish(setup);
        // The simulated network makes its buffers when they are first needed: until the windows are open.
        transfer(&mut pair, 500);
        let sent = pair.a.statistics().frames_sent;
        let allocated = allocation_counter::measure(|| transfer(&mut pair, 64));
        let frames = pair.a.statistics().frames_sent - sent;
        assert!(frames > 2800, "{frames} frames");
        assert_eq!(allocated.count_total, 0, "{allocated:?} for {frames} frames");
    }
}

/// No allocation under loss and reordering either: octets that are held or placed beyond gaps use memory
/// reserved beforehand.
#[test]
fn gaps_allocate_nothing() {
    for setup in [Setup { markers: false, crc: true }, Setup { markers: true, crc: true }] {
        let mut pair = Pair::new(3, EndConfig::a(), EndConfig::b());
        let source = region_of(&pattern(1, MESSAGE_OCTETS as usize));
        let sink = Region::heap(MESSAGE_OCTETS as usize).unwrap();
        pair.a.register(SOURCE, &source, Access::empty());
        pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
        pair.establish(setup);
        transfer(&mut pair, 500);
        pair.network
            .set_impairments(End::A, Impairments { loss: 0.01, reorder: 0.05, ..Impairments::default() });
        transfer(&mut pair, 500);
        let before = pair.b.statistics();
        let allocated = allocation_counter::measure(|| transfer(&mut pair, 64));
        let after = pair.b.statistics();
        let placed = after.fpdus_placed_out_of_order - before.fpdus_placed_out_of_order;
        assert_eq!(placed > 100, setup.markers, "{placed} FPDUs placed beyond gaps");
        assert!(after.tcp.out_of_order_segments - before.tcp.out_of_order_segments > 100);
        assert_eq!(allocated.count_total, 0, "{allocated:?}");
    }
}

/// No other operation allocates either: Reads and Atomic Operations both ways, Sends gathered, scattered,
/// inline, with Immediate Data, posted one by one.
#[test]
fn no_operation_allocates() {
    let mut pair = Pair::new(5, EndConfig::a(), EndConfig::b());
    pair.reads = 8;
    let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    for host in [&pair.a, &pair.b] {
        host.register(SOURCE, &Region::heap(MESSAGE_OCTETS as usize).unwrap(), open);
    }
    pair.establish(Setup { markers: true, crc: true });
    let slice = |to, octets| Slice { stag: SOURCE, to, len: octets };
    let two = SliceList::try_from(&[slice(0, 700), slice(9000, 2000)][..]).unwrap();
    let inline = InlineData::try_from(&[7; 40][..]).unwrap();
    let (stag, to) = (SOURCE, 4096);
    let round = |pair: &mut Pair| {
        for host in [&pair.a, &pair.b] {
            for id in 0..3 {
                host.qp.post_receive(ReceiveRequest::new(id, two)).unwrap();
            }
            host.post(10, Operation::Read { stag, to: 0 }, slice(16, 20_000));
            host.post(11, Operation::FetchAdd { stag, to, add: 1, mask: 0 }, slice(8, 8));
            host.post(12, Operation::SEND, two);
            host.post(13, Operation::Send { invalidate: None, solicited: true }, inline);
            let write = Operation::WriteWithImmediate { stag, to: 0, immediate: 5, solicited: false };
            host.post(14, write, two);
        }
        let mut completed = 0;
        while completed < 16 {
            pair.step();
            completed += u32::from(pair.a.completions.poll().is_some());
            completed += u32::from(pair.b.completions.poll().is_some());
            assert_eq!((pair.a.qp.error(), pair.b.qp.error()), (None, None));
        }
    };
    // Twice around the send queue, so that each slot has held a request that does not fit it: four of five
    // are such.
    for _ in 0..450 {
        round(&mut pair);
    }
    let allocated = allocation_counter::measure(|| (0..64).for_each(|_| round(&mut pair)));
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

/// The memory of Reads grows with the number that are outstanding: both ends allocate when that is larger
/// than ever before, and never for as many again.
#[test]
fn only_more_outstanding_reads_than_before_allocate() {
    const READ_OCTETS: u32 = 500;
    let mut pair = Pair::new(6, EndConfig::a(), EndConfig::b());
    pair.reads = 32;
    let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    for host in [&pair.a, &pair.b] {
        host.register(SOURCE, &Region::heap(MESSAGE_OCTETS as usize).unwrap(), open);
    }
    pair.establish(Setup { markers: false, crc: true });
    let allocations = |pair: &mut Pair, outstanding| {
        allocation_counter::measure(|| {
            for id in 0..outstanding {
                let local = Slice { stag: SOURCE, to: 0, len: READ_OCTETS };
                pair.a.post(id, Operation::Read { stag: SOURCE, to: 0 }, local);
            }
            let mut completed = 0;
            while completed < outstanding {
                pair.step();
                completed += std::iter::from_fn(|| pair.a.completions.poll()).count() as u64;
                assert_eq!((pair.a.qp.error(), pair.b.qp.error()), (None, None));
            }
        })
        .count_total
    };
    // The simulated network makes its buffers when they are first needed: until the windows are open.
    let local = Slice { stag: SOURCE, to: 0, len: MESSAGE_OCTETS };
    // The Initiator sends first.
    pair.a.write(0, local, SOURCE, 0);
    let mut written = 0;
    while written < 500 {
        while pair
            .b
            .qp
            .post_send(SendRequest::new(0, Operation::Write { stag: SOURCE, to: 0 }, local))
            .is_ok()
        {}
        pair.step();
        written += std::iter::from_fn(|| pair.b.completions.poll()).count();
    }
    pair.run_for(1);
    assert!(pair.a.completions.poll().is_some(), "the Write is complete");
    while pair.b.completions.poll().is_some() {}
    // Each end has places for four Reads, then for 8, 16 and 32.
    for (outstanding, grown) in [(1, 2), (4, 0), (8, 2), (13, 2), (32, 2), (20, 0)] {
        assert_eq!(allocations(&mut pair, outstanding), grown, "{outstanding} Reads");
        assert_eq!(allocations(&mut pair, outstanding), 0, "{outstanding} Reads again");
    }
}
