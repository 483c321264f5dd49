//! Tests of the sender: accepting, queueing, completing and flushing requests.

use std::sync::Arc;

use super::*;
use crate::memory::{
    Access, Accessor, BindError, Binding, ChangeId, Claims, FastRegistration, Grant, ProtectionDomainId,
    Region, StagTable,
};
use crate::mpa::enhanced::ReadDepths;
use crate::qp::completion_queue::CompletionRing;
use crate::qp::doorbells::Doorbells;
use crate::qp::error::StreamError;
use crate::qp::payload::{InlineData, Slice};
use crate::qp::shared::{CompletionRings, QpState, QueueDepths};
use crate::qp::work::{Operation, QpNumber, SendRequest};
use crate::wire::tcp::SeqNumber;

type World = (SharedQp, Arc<CompletionRing>, StagTable, Reads, Sender);

/// A queue pair with `depth` requests whose STag 1:1 names 200 000 octets of this end.
fn world(depth: usize) -> World {
    let ring = Arc::new(CompletionRing::new(64));
    let qp = SharedQp::new(
        QpNumber(7),
        ProtectionDomainId(1),
        QueueDepths { send: depth, receive: depth },
        CompletionRings::shared(ring.clone()),
        Arc::new(Doorbells::new(1)),
    );
    qp.set_state(QpState::ReadyToSend);
    qp.set_ord(4);
    let mut stags = StagTable::with_slots(8);
    let region = Region::heap(200_000).unwrap();
    stags.insert(STag::new(1, 1), Grant::new(region, ProtectionDomainId(1), 0, Access::LOCAL_WRITE)).unwrap();
    let mut reads = Reads::default();
    reads.begin(ReadDepths { ird: 4, ord: 4 }, ReadyToReceive::None);
    let mut sender = Sender::new(depth);
    sender.begin(1, ReadyToReceive::None, 4);
    (qp, ring, stags, reads, sender)
}

fn room(emss_octets: usize) -> SegmentRoom {
    SegmentRoom { position: 0, emss_octets, markers: false, packing: true, single_from: u32::MAX }
}

fn inline(id: u64) -> SendRequest {
    SendRequest::new(id, Operation::SEND, InlineData::try_from(&[1; 8][..]).unwrap())
}

/// A Read completes though TCP's numbers came half round before its answer.
// Requirements: RDMAP-5.5-08, RDMAP-5.5-10
#[test]
fn a_read_outlives_half_the_circle() {
    let (qp, ring, mut stags, mut reads, mut sender) = world(4);
    let read = Operation::Read { stag: STag::new(2, 2), to: 0 };
    qp.post_send(SendRequest::new(1, read, Slice::default())).unwrap();
    sender.accept_posted(&qp, &mut stags);
    let run = sender.peek(&room(1460), &reads).unwrap();
    sender.advance(&run, 0, SeqNumber(100), &mut reads);
    for acknowledged in [100, 1 << 30, 2 << 30, 3 << 30] {
        sender.complete(&qp, &mut stags, &mut reads, SeqNumber(acknowledged));
    }
    reads.outbound.deliver(true, 0);
    sender.complete(&qp, &mut stags, &mut reads, SeqNumber(3 << 30));
    assert_eq!(ring.poll().map(|completion| completion.id), Some(1));
}

/// A message longer than one FPDU can be is not cut short between two that are packed.
// Requirements: DDP-5.2-03
#[test]
fn packing_leaves_nothing_out() {
    let (qp, _ring, mut stags, mut reads, mut sender) = world(4);
    qp.post_send(inline(1)).unwrap();
    let long = Slice { stag: STag::new(1, 1), to: 0, len: 100_000 };
    qp.post_send(SendRequest::new(2, Operation::SEND, long)).unwrap();
    qp.post_send(inline(3)).unwrap();
    sender.accept_posted(&qp, &mut stags);
    let mut sent = 0;
    while let Some(run) = sender.peek(&room(65495), &reads) {
        sent += sender.fpdus(run, &reads).map(|fpdu| fpdu.octets).sum::<u32>();
        sender.advance(&run, 0, SeqNumber(run.octets), &mut reads);
    }
    assert_eq!(sent, 100_016);
}

/// Posted requests that the core has not accepted yet precede the FIN, too.
// Requirements: DDP-6.2.1-01
#[test]
fn all_that_is_posted_is_work() {
    let (qp, _ring, mut stags, mut reads, mut sender) = world(4);
    let operation =
        Operation::WriteWithImmediate { stag: STag::new(2, 2), to: 0, immediate: 1, solicited: false };
    for id in 0..4 {
        qp.post_send(SendRequest::new(id, operation, Slice::default())).unwrap();
    }
    sender.accept_posted(&qp, &mut stags);
    while let Some(run) = sender.peek(&room(1460), &reads) {
        sender.advance(&run, 0, SeqNumber(run.octets), &mut reads);
    }
    assert!(sender.has_work(&qp, &reads), "a FIN would go now");
    sender.complete(&qp, &mut stags, &mut reads, SeqNumber(1000));
    sender.accept_posted(&qp, &mut stags);
    while let Some(run) = sender.peek(&room(1460), &reads) {
        sender.advance(&run, 0, SeqNumber(2000), &mut reads);
    }
    assert!(!sender.has_work(&qp, &reads));
}

/// The reason is that of the request, though its first message has no completion.
#[test]
fn a_write_with_immediate_fails_with_the_reason() {
    let (qp, ring, mut stags, _reads, mut sender) = world(4);
    let operation =
        Operation::WriteWithImmediate { stag: STag::new(2, 2), to: 0, immediate: 1, solicited: false };
    qp.post_send(SendRequest::new(1, operation, Slice::default())).unwrap();
    sender.accept_posted(&qp, &mut stags);
    let error = StreamError::Tcp(crate::tcp::CloseReason::TimedOut);
    sender.flush(&qp, &mut stags, Some(error));
    assert_eq!(ring.poll().unwrap().status, Status::Failed(error));
}

/// A request may use an STag that the request before it registers, though both are posted at once.
#[test]
fn what_is_behind_a_registration_comes_after_it() {
    let (qp, _ring, mut stags, reads, mut sender) = world(4);
    let anew = FastRegistration {
        stag: STag::new(1, 2),
        offset: 0,
        len: 4096,
        base_to: 0,
        access: Access::LOCAL_WRITE,
        all_streams: true,
    };
    let invalidate = Operation::LocalInvalidate { stag: STag::new(1, 1) };
    qp.post_send(SendRequest::new(1, invalidate, Slice::default())).unwrap();
    qp.post_send(SendRequest::new(2, Operation::Register(anew), Slice::default())).unwrap();
    let new = Slice { stag: STag::new(1, 2), to: 0, len: 10 };
    qp.post_send(SendRequest::new(3, Operation::SEND, new)).unwrap();
    sender.accept_posted(&qp, &mut stags);
    while matches!(sender.carry_out(&qp, &mut stags, &reads), CarriedOut::Done) {
        sender.accept_posted(&qp, &mut stags);
    }
    assert!(!sender.has_failed());
    assert!(sender.peek(&room(1460), &reads).is_some(), "the Send goes");
}

/// Returns a queue pair at core 0 of two that have the memory of STag 1:1, and the name of its change: it has
/// posted an invalidation of that, and a Send after it.
fn invalidating() -> (World, ChangeId) {
    let (qp, ring, _, reads, mut sender) = world(4);
    let claims = Arc::new(Claims::new(8));
    let [mut stags, mut other] = [0, 1].map(|core| StagTable::with_claims(8, claims.clone(), core));
    for table in [&mut stags, &mut other] {
        let region = Region::heap(8).unwrap();
        table.insert(STag::new(1, 1), Grant::new(region, ProtectionDomainId(1), 0, Access::empty())).unwrap();
    }
    let invalidate = Operation::LocalInvalidate { stag: STag::new(1, 1) };
    qp.post_send(SendRequest::new(1, invalidate, Slice::default())).unwrap();
    qp.post_send(inline(2)).unwrap();
    sender.accept_posted(&qp, &mut stags);
    let CarriedOut::Elsewhere(change) = sender.carry_out(&qp, &mut stags, &reads) else {
        panic!("core 1 has the memory too");
    };
    assert_eq!(other.follow(&change), Ok(()));
    ((qp, ring, stags, reads, sender), change.id)
}

/// A request that other cores are to follow completes when they have, and what is posted after it waits.
#[test]
fn a_change_at_other_cores_is_waited_for() {
    let ((qp, ring, mut stags, reads, mut sender), id) = invalidating();
    for _ in 0..3 {
        assert!(matches!(sender.carry_out(&qp, &mut stags, &reads), CarriedOut::Nothing));
        assert!(!sender.accept_posted(&qp, &mut stags) && sender.peek(&room(1460), &reads).is_none());
        assert!(sender.has_work(&qp, &reads) && ring.poll().is_none());
    }
    // That of an earlier queue pair of the slot, or of another core.
    for other in [ChangeId::new(0, 77), ChangeId::new(1, 1)] {
        sender.end_change(other, Ok(()), &qp, &mut stags);
        assert!(ring.poll().is_none());
    }
    sender.end_change(id, Ok(()), &qp, &mut stags);
    let completion = ring.poll().unwrap();
    assert_eq!((completion.id, completion.status), (1, Status::Success));
    sender.accept_posted(&qp, &mut stags);
    assert!(sender.peek(&room(1460), &reads).is_some(), "the Send goes");
    // A second answer concerns nothing.
    sender.end_change(id, Ok(()), &qp, &mut stags);
    assert!(ring.poll().is_none());
}

/// A window that another core has bound is closed there first, and then bound here, by one request.
#[test]
fn a_window_of_another_core_is_bound_again_once_it_is_closed() {
    let (qp, ring, _, reads, mut sender) = world(4);
    let (pd, claims) = (ProtectionDomainId(1), Arc::new(Claims::new(8)));
    let (window, registration, access) = (STag::new(2, 1), STag::new(1, 1), Access::REMOTE_READ);
    let [mut stags, mut other] = [0, 1].map(|core| StagTable::with_claims(8, claims.clone(), core));
    for table in [&mut stags, &mut other] {
        let region = Region::heap(8).unwrap();
        table.insert(registration, Grant::new(region, pd, 0, Access::WINDOW_BIND)).unwrap();
        table.allocate_window(window, pd).unwrap();
    }
    let under =
        |key| Binding { window: window.with_key(key), registration, to: 0, len: 8, access, zero_based: true };
    let elsewhere = Accessor { pd, stream: 1 << 16 };
    other.bind(&under(2), elsewhere).unwrap();
    qp.post_send(SendRequest::new(1, Operation::Rebind(under(3)), Slice::default())).unwrap();
    sender.accept_posted(&qp, &mut stags);
    let CarriedOut::Elsewhere(change) = sender.carry_out(&qp, &mut stags, &reads) else {
        panic!("core 1 has it bound");
    };
    other.follow(&change).unwrap();
    assert!(other.check(window.with_key(2), elsewhere, access, 0, 8).is_err());
    sender.end_change(change.id, Ok(()), &qp, &mut stags);
    assert!(ring.poll().is_none(), "it is closed, and not bound yet");
    assert!(matches!(sender.carry_out(&qp, &mut stags, &reads), CarriedOut::Done));
    assert_eq!(ring.poll().unwrap().status, Status::Success);
    assert!(stags.check(window.with_key(3), qp.accessor(), access, 0, 8).is_ok());
}

/// A request that other cores could not follow fails as one that fails here.
#[test]
fn a_change_that_other_cores_refuse_fails() {
    let ((qp, ring, mut stags, _, mut sender), id) = invalidating();
    sender.end_change(id, Err(BindError::InUse), &qp, &mut stags);
    assert!(sender.has_failed());
    sender.flush(&qp, &mut stags, None);
    let statuses: Vec<Status> = core::iter::from_fn(|| ring.poll()).map(|done| done.status).collect();
    assert_eq!(statuses, [Status::LocalProtection, Status::Flushed]);
}

/// The answer of other cores concerns no request that was flushed meanwhile.
#[test]
fn a_change_of_a_flushed_request_ends_nothing() {
    let ((qp, ring, mut stags, _, mut sender), id) = invalidating();
    sender.flush(&qp, &mut stags, None);
    let statuses: Vec<Status> = core::iter::from_fn(|| ring.poll()).map(|done| done.status).collect();
    assert_eq!(statuses, [Status::Flushed, Status::Flushed]);
    sender.end_change(id, Ok(()), &qp, &mut stags);
    assert!(ring.poll().is_none() && sender.is_idle());
}
