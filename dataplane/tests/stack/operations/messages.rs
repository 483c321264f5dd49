//! Tests of Sends of every kind, of Immediate Data (RFC 7306 §6), and of the allowed sources and sinks of
//! their octets.

use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::PostError;
use warpline_dataplane::qp::work::{
    CompletionKind, InlineData, Operation, ReceiveRequest, SendRequest, Slice, SliceList, Status,
};

use super::bench::{Bench, SETUPS, SHARED, octets_of, own};
use crate::common::holds;

fn list(slices: &[Slice]) -> SliceList {
    SliceList::try_from(slices).unwrap()
}

/// Octets gathered from several ranges are scattered over others, across segments, in order.
// Requirements: DDP-5.2-03, DDP-5.2-04
#[test]
fn lists_gather_and_scatter() {
    for setup in SETUPS {
        let mut bench = Bench::new(0, setup);
        let from = [own(10, 3), own(0, 0), own(5000, 4000), Slice { stag: SHARED, to: 77, len: 900 }];
        let into = [own(100, 1), own(9000, 2500), own(200, 7), own(20_000, 5000)];
        let expected = [
            octets_of(&bench.a[1], 10, 3),
            octets_of(&bench.a[1], 5000, 4000),
            octets_of(&bench.a[0], 77, 900),
        ]
        .concat();
        bench.pair.b.qp.post_receive(ReceiveRequest::new(9, list(&into))).unwrap();
        bench.pair.a.post(1, Operation::SEND, list(&from));
        let received = bench.completions_of_b(1)[0];
        assert_eq!((received.id, received.byte_len as usize), (9, expected.len()));
        let mut at = 0;
        for slice in into {
            let octets = (slice.len as usize).min(expected.len() - at);
            assert!(holds(&bench.b[1], slice.to as usize, &expected[at..at + octets]), "{slice:?}");
            at += octets;
        }
        // The same octets by a Write.
        bench.pair.a.post(2, Operation::Write { stag: SHARED, to: 50_001 }, list(&from));
        assert_eq!(bench.completions_of_a(2)[1].byte_len as usize, expected.len());
        assert!(holds(&bench.b[0], 50_001, &expected));
    }
}

/// Inline octets need no registration, and are as they were when they were posted.
#[test]
fn inline_octets_travel_in_the_request() {
    let mut bench = Bench::new(0, SETUPS[1]);
    bench.pair.b.receive(1, own(0, 64));
    let mut octets = *b"sixteen octets !";
    bench.pair.a.post(1, Operation::SEND, InlineData::try_from(&octets[..]).unwrap());
    bench.pair.a.post(
        2,
        Operation::Write { stag: SHARED, to: 3 },
        InlineData::try_from(&octets[..]).unwrap(),
    );
    octets.fill(0);
    assert_eq!(bench.completions_of_b(1)[0].byte_len, 16);
    bench.completions_of_a(2);
    assert!(holds(&bench.b[1], 0, b"sixteen octets !"));
    assert!(holds(&bench.b[0], 3, b"sixteen octets !"));
}

/// Sends of every kind, and the receiver's completion of each.
// Requirements: RDMAP-5.3-03, RDMAP-5.5-02, DDP-4.3-03, DDP-4.3-04, DDP-5.4-03
#[test]
fn sends_of_every_kind() {
    let mut bench = Bench::new(0, SETUPS[0]);
    for id in 0..2 {
        bench.pair.b.receive(id, own(id * 100, 100));
    }
    for (id, solicited) in [(0, false), (1, true)] {
        bench.pair.a.post(id, Operation::Send { invalidate: None, solicited }, own(0, 10));
    }
    let received = bench.completions_of_b(2);
    for (id, solicited) in [(0, false), (1, true)] {
        let done = received[id];
        assert_eq!((done.id, done.kind, done.status), (id as u64, CompletionKind::Receive, Status::Success));
        assert_eq!(
            (done.solicited, done.invalidated, done.immediate, done.byte_len),
            (solicited, None, None, 10)
        );
    }
}

/// Eight octets, with the completion of a receive whose buffer stays unchanged; in order with Sends. A Write
/// with Immediate Data is one request with one completion at each end.
// Requirements: RDMAPX-6-01
#[test]
fn immediate_data() {
    let mut bench = Bench::new(0, SETUPS[1]);
    let before = octets_of(&bench.b[1], 0, 100);
    bench.pair.b.qp.post_receive(ReceiveRequest::new(0, SliceList::default())).unwrap();
    for id in 1..4 {
        bench.pair.b.receive(id, own(id * 10, 10));
    }
    let data = octets_of(&bench.a[1], 300, 5000);
    bench.pair.a.post(
        10,
        Operation::Immediate { immediate: 0x0102_0304_0506_0708, solicited: false },
        own(0, 0),
    );
    let write = Operation::WriteWithImmediate { stag: SHARED, to: 40, immediate: u64::MAX, solicited: true };
    bench.pair.a.post(11, write, own(300, 5000));
    bench.pair.a.post(12, Operation::SEND, own(0, 10));
    let silent = SendRequest { signaled: false, ..SendRequest::new(13, write, own(300, 5000)) };
    bench.pair.a.qp.post_send(silent).unwrap();
    let received: Vec<_> = bench
        .completions_of_b(4)
        .iter()
        .map(|done| (done.id, done.immediate, done.solicited, done.byte_len))
        .collect();
    let expected = [
        (0, Some(0x0102_0304_0506_0708), false, 0),
        (1, Some(u64::MAX), true, 0),
        (2, None, false, 10),
        (3, Some(u64::MAX), true, 0),
    ];
    assert_eq!(received, expected);
    assert!(holds(&bench.b[0], 40, &data));
    assert!(holds(&bench.b[1], 0, &before[..20]), "the buffers of Immediate Data are as they were");
    let sent: Vec<_> =
        bench.completions_of_a(3).iter().map(|done| (done.id, done.kind, done.byte_len)).collect();
    let kinds = [CompletionKind::Send, CompletionKind::Write, CompletionKind::Send];
    assert_eq!(sent, [(10, kinds[0], 0), (11, kinds[1], 5000), (12, kinds[2], 10)]);
    bench.pair.run_for(1);
    assert_eq!(bench.pair.a.poll_completions(), [], "a silent one is silent");
}

/// More than a message can have. The ranges are real; together they are too long.
// Requirements: DDP-5.2-02
#[test]
fn a_message_has_an_end() {
    let mut bench = Bench::new(0, SETUPS[0]);
    let half = own(0, 1 << 31);
    let refused = bench.pair.a.qp.post_send(SendRequest::new(1, Operation::SEND, list(&[half, half])));
    assert_eq!(refused, Err(PostError::TooLong));
    bench.pair.b.receive(1, own(0, 64));
    bench.pair.a.post(2, Operation::SEND, own(0, 64));
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success, "nothing suffers from it");
}

/// A buffer that the application may not write is an error of the application, and is reported as such; the
/// peer receives a local error.
#[test]
fn a_bad_buffer_is_the_receivers_fault() {
    for bad in [Slice { stag: STag::new(9, 9), to: 0, len: 64 }, own(1 << 40, 64)] {
        let mut bench = Bench::new(0, SETUPS[0]);
        bench.pair.b.receive(1, bad);
        bench.pair.b.receive(2, own(0, 64));
        bench.pair.a.post(1, Operation::SEND, own(0, 10));
        let statuses: Vec<_> = bench.completions_of_b(2).iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(statuses, [(1, Status::LocalProtection), (2, Status::Flushed)]);
        assert!(bench.pair.run_until(5, |pair| pair.a.qp.error().is_some()));
        let told = StreamError::Terminated { layer: 1, error_type: 0, code: 0 };
        assert_eq!(bench.pair.a.qp.error(), Some(told));
    }
}
