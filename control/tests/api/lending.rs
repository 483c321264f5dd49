//! Tests of memory lent to work requests: nothing can access it meanwhile, and each loan is returned. The
//! module's documentation shows the uses that the compiler rejects.

use std::sync::Arc;

use crate::common::{End, PATIENCE, Pair};
use warpline::{
    Access, Buffer, CompletionKind, CompletionQueue, LendError, Lender, Loan, PostError, QpConfig, QpState,
    QueuePair, Slice, Status,
};
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};

/// A queue pair whose completions are read by a lender, with a region of its own, connected to an ordinary
/// end.
struct Lending {
    lender: Lender,
    qp: QueuePair,
    buffer: Buffer,
    peer: End,
}

const OCTETS: usize = 64 << 10;

fn lending(pair: &Pair) -> Lending {
    let domain = pair.near.protection_domain();
    let lender = Lender::new(CompletionQueue::with_events(16).unwrap());
    let config = QpConfig { send_depth: 8, receive_depth: 8, ..QpConfig::default() };
    let qp = domain.queue_pair(&config, lender.completions(), lender.completions()).unwrap();
    let buffer = domain.allocate(OCTETS, Access::LOCAL_WRITE).unwrap().into();
    let peer = pair.accept(&qp);
    Lending { lender, qp, buffer, peer }
}

/// Sends the peer something: before that, as the Responder, it may not send (RFC 5044 §7.1.2).
fn say_hello(Lending { lender, qp, peer, .. }: &mut Lending) {
    peer.qp.post_receive(0, Slice::default()).unwrap();
    qp.post_send(0, Slice::default()).unwrap();
    assert!(lender.wait(PATIENCE).unwrap().loan.is_none());
}

/// A buffer is returned with its completion, and contains the data that the peer has sent.
#[test]
fn buffers_come_back_with_their_completions() {
    let pair = Pair::new();
    let Lending { mut lender, qp, buffer, peer } = lending(&pair);
    let (mut source, sink) = buffer.split_at(100);
    assert!(source.write(0, &[3; 100]));
    assert!(!source.write(1, &[3; 100]), "a buffer ends where it was cut");
    peer.qp.post_receive(1, peer.memory.slice(0, 200)).unwrap();
    let (sink, rest) = sink.split_at(50);
    lender.receive(&qp, 70, sink).unwrap();
    lender.send(&qp, 71, source).unwrap();
    assert_eq!(lender.lent(), 2);
    let sent = lender.wait(PATIENCE).unwrap();
    assert_eq!((sent.completion.id, sent.completion.kind), (71, CompletionKind::Send));
    let source = sent.loan.and_then(Loan::into_buffer).unwrap();
    assert_eq!((source.offset(), source.len()), (0, 100));
    assert_eq!(peer.completion().byte_len, 100);
    assert_eq!(peer.memory.to_vec(0, 100).unwrap(), [3; 100]);

    peer.memory.fill(8);
    peer.qp.post_send(2, peer.memory.slice(0, 50)).unwrap();
    let received = lender.wait(PATIENCE).unwrap();
    assert_eq!((received.completion.id, received.completion.byte_len), (70, 50));
    let sink = received.loan.and_then(Loan::into_buffer).unwrap();
    assert_eq!(sink.to_vec(0, 50).unwrap(), [8; 50]);
    assert_eq!(lender.lent(), 0);

    // The target of a Read is returned the same way.
    let target = peer.memory.advertisement(0, 1000).unwrap();
    let (mut near, rest) = rest.split_at(300);
    assert!(near.write(0, &[1; 300]));
    lender.read(&qp, 72, near, &target, 700).unwrap();
    let read = lender.wait(PATIENCE).unwrap();
    assert_eq!((read.completion.id, read.completion.kind), (72, CompletionKind::Read));
    let near = read.loan.and_then(Loan::into_buffer).unwrap();
    assert_eq!(near.to_vec(0, 300).unwrap(), [8; 300]);
    let outside = lender.read(&qp, 73, near, &target, 701).unwrap_err();
    assert_eq!(outside.error, LendError::Post(PostError::OutsideAdvertisement { advertised: 1000 }));
    let rest = outside.loan.into_buffer().unwrap().join(rest).unwrap();

    // In order and side by side, or not at all.
    let (sink, source) = sink.join(source).unwrap_err();
    let source = source.into_region().unwrap_err();
    let whole = source.join(sink).unwrap().join(rest).unwrap();
    assert_eq!(whole.len(), OCTETS);
    whole.into_region().unwrap().deregister(PATIENCE).unwrap();
}

/// A buffer that is only sent can be lent to many requests at the same time. While one of them holds it, it
/// cannot be written.
#[test]
fn what_is_sent_is_shared() {
    let pair = Pair::new();
    let Lending { mut lender, qp, mut buffer, peer } = lending(&pair);
    buffer.write(0, b"the same for all").then_some(()).unwrap();
    let target = peer.memory.advertisement(0, 8 * OCTETS as u32).unwrap();
    let mut shared = Arc::new(buffer);
    for id in 0..8 {
        lender.write(&qp, id, shared.clone(), &target, id * OCTETS as u64).unwrap();
    }
    assert!(Arc::get_mut(&mut shared).is_none(), "it is lent");
    assert_eq!(shared.to_vec(4, 4).unwrap(), b"same", "it can be read");
    for id in 0..8 {
        let returned = lender.wait(PATIENCE).unwrap();
        assert_eq!((returned.completion.id, returned.completion.status), (id, Status::Success));
        assert!(matches!(returned.loan, Some(Loan::Shared(_))));
        assert_eq!(peer.memory.to_vec(id as usize * OCTETS, 16).unwrap(), b"the same for all");
    }
    assert!(Arc::get_mut(&mut shared).unwrap().write(0, b"again"), "all have given it back");
}

/// A refused request leaves the buffer with its owner: full queues, no place for the loan, another completion
/// queue, no connection.
#[test]
fn what_is_refused_is_given_back() {
    let pair = Pair::new();
    let Lending { mut lender, qp, buffer, peer } = lending(&pair);
    let refused = LendError::Post;
    let (part, mut rest) = buffer.split_at(1000);
    let outside = peer.memory.advertisement(0, 999).unwrap();
    let not_lent = lender.write(&qp, 1, part, &outside, 0).unwrap_err();
    assert_eq!(not_lent.error, LendError::Post(PostError::OutsideAdvertisement { advertised: 999 }));
    let part = not_lent.loan.into_buffer().unwrap();
    assert_eq!(part.len(), 1000);

    // Eight receives, then the queue is full; with no more than eight loans the lender would be too.
    for id in 0..8 {
        let (piece, left) = rest.split_at(10);
        rest = left;
        lender.receive(&qp, id, piece).unwrap();
    }
    let not_lent = lender.receive(&qp, 8, part).unwrap_err();
    assert_eq!(not_lent.error, refused(PostError::QueueFull));
    let part = not_lent.loan.into_buffer().unwrap();

    let mut other = Lender::new(CompletionQueue::new(4));
    let not_lent = other.send(&qp, 9, part).unwrap_err();
    assert_eq!((not_lent.error, other.lent()), (LendError::OtherCompletionQueue, 0));
    let part = not_lent.loan.into_buffer().unwrap();
    let not_lent = other.receive(&qp, 9, part).unwrap_err();
    assert_eq!(not_lent.error, LendError::OtherCompletionQueue);
    let part = not_lent.loan.into_buffer().unwrap();

    let idle = {
        let domain = pair.near.protection_domain();
        domain.queue_pair(&QpConfig::default(), other.completions(), other.completions()).unwrap()
    };
    let not_lent = other.send(&idle, 9, part).unwrap_err();
    assert_eq!(not_lent.error, refused(PostError::WrongState(QpState::Idle)));
    let mut part = not_lent.loan.into_buffer().unwrap();
    for id in 0..4 {
        let (piece, left) = part.split_at(10);
        part = left;
        other.receive(&idle, id, piece).unwrap();
    }
    let not_lent = other.receive(&idle, 4, part).unwrap_err();
    assert_eq!(not_lent.error, LendError::TooManyLoans);

    // When the queue pair is destroyed, all loans are returned, in the order of posting.
    drop((qp, idle));
    for id in 0..8 {
        let returned = lender.wait(PATIENCE).unwrap();
        assert_eq!((returned.completion.id, returned.completion.status), (id, Status::Flushed));
        assert_eq!(returned.loan.and_then(Loan::into_buffer).unwrap().offset(), 1000 + id as usize * 10);
    }
    assert_eq!(lender.lent(), 0);
    drop(peer);
}

/// While a part is lent, the region can be neither reclaimed nor deregistered. Memory that the stack reads
/// stays registered even after the lender is dropped.
#[test]
fn a_region_stays_while_a_part_is_lent() {
    let pair = Pair::new();
    let Lending { mut lender, qp, buffer, peer } = lending(&pair);
    let before = pair.near.usage().unwrap().regions;
    let (part, rest) = buffer.split_at(1000);
    // Acknowledgements are lost for a while, so the Send stays outstanding.
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    peer.qp.post_receive(5, peer.memory.slice(0, 1000)).unwrap();
    lender.send(&qp, 1, part).unwrap();
    let rest = rest.into_region().unwrap_err();
    let (rest, after) = rest.split_at(10);
    let rest = rest.join(after).unwrap().into_region().unwrap_err();
    assert!(lender.poll().is_none());
    drop((lender, rest));
    // No handle refers to it any more, and the Send still reads from it.
    assert_eq!(pair.near.usage().unwrap().regions, before);
    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    assert_eq!(peer.completion().byte_len, 1000);
    crate::common::eventually("the region is gone", || pair.near.usage().unwrap().regions == before - 1);
}

/// After its lender is dropped, a buffer that is being sent stays read-only: the stack may retransmit it, and
/// no completion reports its end. It is dropped with its last reference.
#[test]
fn what_is_shared_stays_unwritable_without_its_lender() {
    let pair = Pair::new();
    let Lending { mut lender, qp, buffer, peer } = lending(&pair);
    let before = pair.near.usage().unwrap().regions;
    let mut shared = Arc::new(buffer);
    // Acknowledgements are lost for a while, so the requests stay outstanding.
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    for id in 0..2 {
        peer.qp.post_receive(id, peer.memory.slice(0, OCTETS as u32)).unwrap();
        lender.send(&qp, id, shared.clone()).unwrap();
    }
    assert!(lender.poll().is_none());
    drop(lender);
    assert!(Arc::get_mut(&mut shared).is_none(), "it may be sent again");
    let mut shared = Arc::try_unwrap(shared).unwrap_err();
    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    for _ in 0..2 {
        assert_eq!(peer.completion().byte_len, OCTETS as u32);
    }
    // Other lenders come and go, and it stays so.
    drop(Lender::new(CompletionQueue::new(1)));
    assert!(Arc::get_mut(&mut shared).is_none(), "nobody has learnt of the completions");
    assert_eq!(pair.near.usage().unwrap().regions, before);
    drop(shared);
    drop(Lender::new(CompletionQueue::new(1)));
    crate::common::eventually("the region is gone", || pair.near.usage().unwrap().regions == before - 1);
}

/// Completions of requests that were posted without the lender pass unchanged and release no loan, even if
/// their `wr_id` equals one that the stack uses for the lender's requests.
#[test]
fn names_of_others_find_nothing() {
    let pair = Pair::new();
    let mut connected = lending(&pair);
    say_hello(&mut connected);
    let Lending { mut lender, qp, buffer, peer } = connected;
    let (first, rest) = buffer.split_at(10);
    lender.receive(&qp, 0, first).unwrap();
    peer.qp.post_send(1, Slice::default()).unwrap();
    // The first request's name there; polled past the lender, it stays lent, and the next one has the next
    // place.
    let name = lender.completions().wait(PATIENCE).unwrap().id;
    qp.post_receive(name + 1, Slice::default()).unwrap();
    let (second, _rest) = rest.split_at(10);
    lender.receive(&qp, 7, second).unwrap();
    for id in [0, 1, 1 << 32, (1 << 32) + 1, name, name + 1] {
        peer.qp.post_receive(3, peer.memory.slice(0, 10)).unwrap();
        qp.post_send(id, Slice::default()).unwrap();
        let returned = lender.wait(PATIENCE).unwrap();
        assert_eq!((returned.completion.id, returned.completion.kind), (id, CompletionKind::Send));
        assert!(returned.loan.is_none(), "{id:#x}");
    }
    peer.qp.post_send(2, Slice::default()).unwrap();
    let returned = lender.wait(PATIENCE).unwrap();
    assert_eq!((returned.completion.id, returned.completion.kind), (name + 1, CompletionKind::Receive));
    assert!(returned.loan.is_none());
    assert_eq!(lender.lent(), 2);

    peer.memory.fill(6);
    peer.qp.post_send(4, peer.memory.slice(0, 10)).unwrap();
    let returned = lender.wait(PATIENCE).unwrap();
    assert_eq!((returned.completion.id, returned.completion.byte_len), (7, 10));
    let second = returned.loan.and_then(Loan::into_buffer).unwrap();
    assert_eq!((second.offset(), second.to_vec(0, 10).unwrap()), (10, vec![6; 10]));
}

/// With two lenders on one completion queue, neither returns the loans of the other: the stack may still
/// write to the buffer in the same slot of the other lender.
#[test]
fn a_lender_takes_back_only_what_it_has_lent() {
    let pair = Pair::new();
    let mut connected = lending(&pair);
    say_hello(&mut connected);
    let Lending { mut lender, qp, buffer, peer } = connected;
    let mut other = Lender::new(lender.completions().clone());
    let (first, rest) = buffer.split_at(10);
    let (second, _rest) = rest.split_at(10);
    lender.receive(&qp, 1, first).unwrap();
    other.receive(&qp, 2, second).unwrap();
    peer.memory.fill(5);
    peer.qp.post_send(3, peer.memory.slice(0, 10)).unwrap();
    let returned = other.wait(PATIENCE).unwrap();
    assert_eq!(returned.completion.byte_len, 10);
    assert!(returned.loan.is_none(), "it is the other's, and what this one has lent is still posted");
    assert_eq!((lender.lent(), other.lent()), (1, 1));
    peer.qp.post_send(4, peer.memory.slice(0, 10)).unwrap();
    let returned = other.wait(PATIENCE).unwrap();
    assert_eq!(returned.completion.id, 2);
    assert_eq!(returned.loan.and_then(Loan::into_buffer).unwrap().to_vec(0, 10).unwrap(), [5; 10]);
}
