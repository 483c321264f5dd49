//! Tests of RDMA Reads (RFC 5040 §5.2).

use warpline_dataplane::device::sim::Impairments;
use warpline_dataplane::memory::{RemoveError, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{BadRequest, PostError, QpState};
use warpline_dataplane::qp::work::{CompletionKind, InlineData, Operation, SendRequest, SliceList, Status};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::ring::{Command, Event};

use super::bench::{Bench, OWN, REGION_OCTETS, SETUPS, SHARED, octets_of, own};
use crate::common::holds;

const WRITE: Operation = Operation::Write { stag: SHARED, to: 0 };

fn read(to: u64) -> Operation {
    Operation::Read { stag: SHARED, to }
}

/// A Read of every length is complete, in the order of posting, and writes only the requested octets.
// Requirements: RDMAP-5.2-01, RDMAP-5.2.1-03, RDMAP-5.2.1-04, RDMAP-5.2.1-06, RDMAP-5.2.1-09, RDMAP-5.2.2-03
#[test]
fn every_length_comes_whole() {
    for setup in SETUPS {
        let mut bench = Bench::new(4, setup);
        let source = octets_of(&bench.b[0], 0, REGION_OCTETS);
        let mut expected = octets_of(&bench.a[1], 0, REGION_OCTETS);
        let lengths = [0, 1, 2, 3, 4, 1427, 1428, 1429, 1460, 4096, 20_000, 100_000_u32];
        let mut to = 7;
        for (id, &octets) in lengths.iter().enumerate() {
            bench.pair.a.post(id as u64, read(to), own(to + 11, octets));
            let (from, at) = (to as usize, to as usize + 11);
            expected[at..at + octets as usize].copy_from_slice(&source[from..from + octets as usize]);
            to += u64::from(octets) + 5;
        }
        let completions = bench.completions_of_a(lengths.len());
        for (id, (completion, octets)) in completions.iter().zip(lengths).enumerate() {
            assert_eq!((completion.id, completion.status), (id as u64, Status::Success));
            assert_eq!((completion.kind, completion.byte_len), (CompletionKind::Read, octets));
        }
        assert!(holds(&bench.a[1], 0, &expected));
        // The other end's application has no completion.
        // Requirements: RDMAP-5.2.1-02
        assert_eq!(bench.pair.b.poll_completions(), []);
        assert_eq!(bench.pair.b.qp.error(), None);
    }
}

/// Both ends read at once, more than may be outstanding, with other work between, over a link that loses,
/// reorders and duplicates.
// Requirements: RDMAP-5.5-03, RDMAP-5.5-11, RDMAP-5.2.2-05, RDMAP-5.5-07, RDMAP-6.1-03
#[test]
fn reads_both_ways_under_loss() {
    for (seed, setup) in (0..8).zip(SETUPS.iter().cycle()) {
        let impairments =
            Impairments { loss: 0.02, reorder: 0.05, duplicate: 0.01, ..Impairments::default() };
        let mut bench = Bench::with(seed, impairments, 3, *setup);
        for host in [&bench.pair.a, &bench.pair.b] {
            for id in 0..40 {
                host.receive(1000 + id, own(200_000 + id * 64, 64));
            }
            for id in 0..40 {
                match id % 4 {
                    0 => host.post(id, Operation::SEND, own(id, 40)),
                    1 => host.write(id, own(0, 3000), SHARED, 150_000),
                    _ => host.post(id, read(id * 3000), own(id * 3000, 2999)),
                }
            }
        }
        for (completions, sink, source) in [
            (bench.completions_of_a(50), bench.a[1].clone(), bench.b[0].clone()),
            (bench.completions_of_b(50), bench.b[1].clone(), bench.a[0].clone()),
        ] {
            let sent: Vec<_> = completions.iter().filter(|done| done.id < 1000).map(|done| done.id).collect();
            let received: Vec<_> =
                completions.iter().filter(|done| done.id >= 1000).map(|done| done.id).collect();
            assert_eq!(sent, (0..40).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(received, (1000..1010).collect::<Vec<_>>(), "seed {seed}");
            assert!(completions.iter().all(|done| done.status == Status::Success));
            for id in (0..40).filter(|id| id % 4 > 1) {
                let expected = octets_of(&source, id * 3000, 2999);
                assert!(holds(&sink, id * 3000, &expected), "seed {seed}, Read {id}");
            }
        }
    }
}

/// RFC 5040 §5.5: without a fence a Send overtakes the response to a Read; with one it waits, and later
/// requests too.
#[test]
fn a_fence_waits_for_answers() {
    for fenced in [false, true] {
        let mut bench = Bench::new(2, SETUPS[0]);
        bench.pair.b.receive(77, own(0, 64));
        bench.pair.a.post(1, read(0), own(0, 200_000));
        bench
            .pair
            .a
            .qp
            .post_send(SendRequest { fenced, ..SendRequest::new(2, Operation::SEND, own(5, 8)) })
            .unwrap();
        assert_eq!(bench.completions_of_b(1)[0].id, 77);
        let done = octets_of(&bench.a[1], 199_999, 1) == octets_of(&bench.b[0], 199_999, 1);
        assert_eq!(done, fenced, "the last octet of the Read was there when the Send came");
        let ids: Vec<_> = bench.completions_of_a(2).iter().map(|done| done.id).collect();
        assert_eq!(ids, [1, 2]);
    }
}

/// An end that closes with Reads in flight receives their responses first.
// Requirements: DDP-6.2.1-01
#[test]
fn a_close_waits_for_answers() {
    let mut bench = Bench::new(2, SETUPS[0]);
    for id in 0..6 {
        bench.pair.a.post(id, read(id * 20_000), own(id * 20_000, 20_000));
    }
    bench.pair.step();
    let connection = bench.pair.a.connection.unwrap();
    bench.pair.a.command(Command::Close { connection });
    let completions = bench.completions_of_a(6);
    assert!(completions.iter().all(|done| done.status == Status::Success), "{completions:?}");
    assert_eq!(bench.pair.a.qp.error(), None);
}

/// A Read that the ends agreed on none of, or that has not one place to go to, is not taken, and nothing
/// suffers from it.
#[test]
fn a_read_that_cannot_be_is_not_taken() {
    let two = SliceList::try_from(&[own(0, 8), own(8, 8)][..]).unwrap();
    let inline = InlineData::try_from(&[1_u8; 8][..]).unwrap();
    let cases = [
        (0, own(0, 8).into(), PostError::NoReads),
        (4, two.into(), PostError::LocalShape),
        (4, inline.into(), PostError::LocalShape),
    ];
    for (reads, local, error) in cases {
        let mut bench = Bench::new(reads, SETUPS[0]);
        let list = [
            SendRequest::new(4, WRITE, own(0, 8)),
            SendRequest { local, ..SendRequest::new(5, read(0), own(0, 0)) },
            SendRequest::new(6, WRITE, own(0, 8)),
        ];
        assert_eq!(bench.pair.a.qp.post_sends(&list), Err(BadRequest { posted: 1, error }));
        bench.pair.a.post(7, WRITE, own(0, 8));
        let statuses: Vec<_> = bench.completions_of_a(2).iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(statuses, [(4, Status::Success), (7, Status::Success)]);
        assert_eq!(bench.pair.a.qp.error(), None);
    }
}

/// A Read into memory that this end may not write is a local error, and no part of it is sent.
#[test]
fn a_read_to_nowhere_is_refused_here() {
    let mut bench = Bench::new(4, SETUPS[0]);
    bench.pair.a.post(5, read(0), own(REGION_OCTETS as u64 - 7, 8));
    bench.pair.a.post(6, Operation::SEND, own(0, 8));
    let statuses: Vec<_> = bench.completions_of_a(2).iter().map(|done| (done.id, done.status)).collect();
    assert_eq!(statuses, [(5, Status::LocalProtection), (6, Status::Flushed)]);
    assert_eq!(bench.pair.a.qp.error(), Some(StreamError::Rdmap(RdmapError::LocalCatastrophic)));
    let told = StreamError::Terminated { layer: 0, error_type: 0, code: 0 };
    assert!(bench.pair.run_until(5, |pair| pair.b.qp.error().is_some()));
    assert_eq!(bench.pair.b.qp.error(), Some(told));
}

/// A Read of memory that is not granted is refused, and the reader receives the reason.
// Requirements: RDMAP-7.2-05 to RDMAP-7.2-08, RDMAP-5.2.1-08
#[test]
fn what_may_not_be_read_is_refused_there() {
    let end = REGION_OCTETS as u64;
    let stale = STag::new(1, 0x1110);
    let cases = [
        (Operation::Read { stag: OWN, to: 0 }, 0x02),
        (Operation::Read { stag: stale, to: 0 }, 0x00),
        (Operation::Read { stag: SHARED, to: end - 7 }, 0x01),
        (Operation::Read { stag: SHARED, to: u64::MAX - 6 }, 0x04),
    ];
    for (operation, code) in cases {
        let mut bench = Bench::new(4, SETUPS[1]);
        let before = octets_of(&bench.a[1], 0, 64);
        bench.pair.a.post(1, operation, own(0, 8));
        bench.pair.a.post(2, read(0), own(8, 8));
        let completions = bench.completions_of_a(2);
        let told = StreamError::Terminated { layer: 0, error_type: 1, code };
        let statuses: Vec<_> = completions.iter().map(|done| done.status).collect();
        assert_eq!(statuses, [Status::Failed(told), Status::Flushed]);
        assert!(holds(&bench.a[1], 0, &before), "nothing was answered");
        assert_ne!(bench.pair.b.qp.state(), QpState::ReadyToSend);
    }
    // Of nothing, nothing is checked.
    let mut bench = Bench::new(4, SETUPS[0]);
    bench.pair.a.post(1, Operation::Read { stag: stale, to: u64::MAX }, own(0, 0));
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
}

/// The sink need not be open to peers, and the memory of a Read is not given up while its answer may still
/// come.
#[test]
fn memory_stays_while_it_is_read_into() {
    let mut bench = Bench::new(2, SETUPS[0]);
    bench.pair.a.post(1, read(0), own(0, 100_000));
    bench.pair.step();
    bench.pair.a.command(Command::Deregister { stag: OWN });
    bench.pair.step();
    let refused = |events: &[Event]| {
        events
            .iter()
            .any(|event| matches!(event, Event::Deregistered { stag: OWN, result: Err(RemoveError::InUse) }))
    };
    assert!(refused(&bench.pair.a.events));
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
}

/// A Read from a peer that has finished does not wait: the stream fails, and both ends become idle.
// Requirements: RDMAP-5.5-08
#[test]
fn a_read_behind_the_peers_end_fails() {
    let mut bench = Bench::new(1, SETUPS[0]);
    let connection = bench.pair.b.connection.unwrap();
    bench.pair.b.command(Command::Close { connection });
    bench.pair.run_for(1);
    bench.pair.a.post(1, read(0), own(0, 100));
    let connection = bench.pair.a.connection.unwrap();
    bench.pair.a.command(Command::Close { connection });
    bench.pair.run_for(600);
    let completions = bench.pair.a.poll_completions();
    assert_eq!(completions.len(), 1, "{:?} {:?}", bench.pair.a.qp.state(), bench.pair.b.qp.state());
    assert_ne!(completions[0].status, Status::Success);
    assert_eq!(bench.pair.a.qp.state(), QpState::Error);
    assert_eq!(bench.pair.b.qp.state(), QpState::Error);
}
