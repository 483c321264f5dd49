//! Tests of the shared part of a queue pair: posting, doorbells, completions and flushing.

use core::cell::Cell;

use super::*;
use crate::ddp::DdpError;
use crate::limits;
use crate::memory::STag;
use crate::qp::cqe::ReceivedMessage;
use crate::qp::shared_receive_queue::SrqNumber;
use crate::qp::work::{
    Completion, CompletionKind, InlineData, Operation, ReceiveRequest, SendRequest, Slice, Status,
};
use crate::qp::work_queue::Portion;

fn qp(depth: usize, completions: usize) -> (SharedQp, Arc<CompletionRing>, Arc<Doorbells>) {
    qp_with(depth, CompletionRing::new(completions))
}

fn qp_with(depth: usize, ring: CompletionRing) -> (SharedQp, Arc<CompletionRing>, Arc<Doorbells>) {
    let ring = Arc::new(ring);
    let bells = Arc::new(Doorbells::new(1));
    let shared = SharedQp::new(
        QpNumber(7),
        ProtectionDomainId(1),
        QueueDepths { send: depth, receive: depth },
        CompletionRings::shared(ring.clone()),
        bells.clone(),
    );
    shared.set_home(Home { core: 0, slot: 0 });
    (shared, ring, bells)
}

fn send(id: u64) -> SendRequest {
    SendRequest::new(id, Operation::SEND, Slice::default())
}

fn completion(id: u64) -> Completion {
    Completion::new(QpNumber(7), id, CompletionKind::Send, Status::Success, 0)
}

#[test]
fn sends_wait_for_the_connection() {
    let (qp, _, bells) = qp(2, 4);
    assert_eq!(qp.post_send(send(1)), Err(PostError::WrongState(QpState::Idle)));
    assert!(qp.post_receive(ReceiveRequest::new(1, Slice::default())).is_ok());
    assert!(bells.is_empty(), "no core to ring at yet");
}

#[test]
fn depth_counts_until_completion() {
    let (qp, ring, bells) = qp(2, 4);
    qp.set_state(QpState::ReadyToSend);
    qp.post_send(send(1)).unwrap();
    qp.post_send(send(2)).unwrap();
    assert_eq!(bells.dequeue(), Some(0));
    assert_eq!(bells.dequeue(), None, "one bell for many posts");
    assert_eq!(qp.dequeue_send().unwrap().id(), 1);
    assert_eq!(qp.post_send(send(3)), Err(PostError::QueueFull), "taken is not completed");
    qp.complete_send(completion(1));
    qp.post_send(send(3)).unwrap();
    assert_eq!(ring.poll().unwrap().id, 1);
}

/// A full completion queue that is not polled refuses work instead of losing completions.
// Requirements: RDMAP-8.1.1-05
#[test]
fn completions_have_reserved_places() {
    let (qp, ring, _) = qp(4, 2);
    qp.set_state(QpState::ReadyToSend);
    qp.post_send(send(1)).unwrap();
    qp.post_send(send(2)).unwrap();
    qp.complete_send(completion(1));
    assert_eq!(qp.post_send(send(3)), Err(PostError::CompletionQueueFull));
    assert!(ring.poll().is_some());
    qp.post_send(send(3)).unwrap();
    assert_eq!(qp.post_send(send(4)), Err(PostError::CompletionQueueFull));
}

/// A queue as verbs have them takes any number of receives. One that is complete is left out only if it finds
/// no entry, which is reported once; a send always has one, of the half that receives do not need.
// Requirements: RDMAP-8.1.1-05
#[test]
fn a_queue_that_may_overflow_reserves_nothing_for_receives() {
    let overflowing = || {
        let mut ring = CompletionRing::new(4);
        ring.set_may_overflow();
        qp_with(8, ring)
    };
    let message = ReceivedMessage { byte_len: 0, solicited: false, invalidated: None, immediate: None };
    let request = |id| ReceiveRequest::new(id, Slice::default());
    let (qp, ring, _) = overflowing();
    let events = Arc::new(AsyncEvents::new(None));
    let qp = qp.with_events(events.clone());
    qp.set_state(QpState::ReadyToSend);
    let polled = || ring.drain().map(|completion| completion.id).collect::<Vec<_>>();
    for round in 0..3 {
        // Sends have half of the entries, however many receives there are.
        qp.post_receives(&[request(7); 8]).unwrap();
        let refused = Err(BadRequest { posted: 2, error: PostError::CompletionQueueFull });
        assert_eq!(qp.post_sends(&[send(1), unsignaled(2), send(3)]), Ok(()));
        assert_eq!(qp.post_sends(&[unsignaled(4), unsignaled(5), send(6)]), refused);
        let taken: Vec<u64> = core::iter::from_fn(|| qp.dequeue_send()).map(|posted| posted.id()).collect();
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        qp.retire_sends(3);
        qp.complete_send(completion(1));
        for ids in [[8, 9], [10, 11]] {
            for id in ids {
                qp.receives().advance();
                qp.complete_message(&request(id), &message);
            }
            let expected = if ids[0] == 8 { vec![1, 8, 9] } else { vec![10, 11] };
            assert_eq!(polled(), expected, "round {round}");
        }
        qp.complete_send(completion(3));
        for id in 12..15 {
            qp.receives().advance();
            qp.complete_receive(request(id).completion(QpNumber(7), Status::Flushed, 0));
        }
        assert_eq!(polled(), [3, 12, 13, 14]);
        qp.receives().advance();
        qp.complete_message(&request(15), &message);
        assert_eq!(polled(), [15]);
    }
    assert_eq!((ring.has_overflowed(), events.dequeue()), (false, None));
    // A send that is posted keeps its entry; of four receives one finds none.
    qp.post_receives(&[request(7); 8]).unwrap();
    qp.post_send(send(1)).unwrap();
    assert!(qp.dequeue_send().is_some());
    for id in 20..25 {
        qp.receives().advance();
        qp.complete_message(&request(id), &message);
    }
    assert_eq!(events.dequeue(), Some(AsyncEvent::CompletionQueueOverflow { cq: ring.number() }));
    qp.complete_send(completion(1));
    assert_eq!((polled(), ring.has_overflowed(), events.dequeue()), (vec![20, 21, 22, 1], true, None));
    // Receives of a shared queue need no entry before they are complete.
    let (qp, ring, _) = overflowing();
    let srq = Arc::new(SharedReceiveQueue::new(SrqNumber(1), ProtectionDomainId(1), 8, None));
    let qp = qp.with_shared_receives(srq.clone());
    qp.set_state(QpState::ReadyToSend);
    srq.post(&[request(5); 6]).unwrap();
    let dequeued = core::iter::from_fn(|| qp.dequeue_shared_receive().unwrap()).count();
    assert_eq!(dequeued, 6);
    (0..6).for_each(|_| qp.complete_message(&request(5), &message));
    assert_eq!((ring.drain().count(), ring.has_overflowed()), (4, true));
}

fn unsignaled(id: u64) -> SendRequest {
    SendRequest { signaled: false, ..send(id) }
}

/// Verbs: the success of a request that is not signaled is not reported, so any number of them go through a
/// completion queue of one place. A list that mixes both kinds ends at the first that needs a place and finds
/// none.
#[test]
fn unsignaled_work_needs_no_place() {
    let (qp, ring, _) = qp(8, 1);
    qp.set_state(QpState::ReadyToSend);
    for id in 0..100 {
        qp.post_send(unsignaled(id)).unwrap();
        assert_eq!(qp.dequeue_send().unwrap().id(), id);
        qp.retire_send();
    }
    let list = [unsignaled(0), send(1), unsignaled(2), unsignaled(3), send(4), unsignaled(5)];
    let refused = Err(BadRequest { posted: 4, error: PostError::CompletionQueueFull });
    assert_eq!(qp.post_sends(&list), refused);
    let taken: Vec<u64> = core::iter::from_fn(|| qp.dequeue_send()).map(|posted| posted.id()).collect();
    assert_eq!(taken, [0, 1, 2, 3]);
    qp.retire_send();
    qp.complete_send(completion(1));
    qp.retire_send();
    qp.retire_send();
    assert_eq!(ring.poll().map(|completion| completion.id), Some(1));
    // The depth counts them as any other.
    assert_eq!(
        qp.post_sends(&[unsignaled(6); 9]),
        Err(BadRequest { posted: 8, error: PostError::QueueFull })
    );
}

/// Requests that are posted whole: one that is bad, one too many for the queue or one without a place for its
/// completion keeps all others out, and takes no place from those that come later.
#[test]
fn all_requests_are_posted_or_none() {
    let (qp, _, bells) = qp(4, 2);
    assert_eq!(qp.post_all(&[send(1)]), Err(PostError::WrongState(QpState::Idle)));
    qp.set_state(QpState::ReadyToSend);
    let read = SendRequest::new(2, Operation::Read { stag: STag(1), to: 0 }, Slice::default());
    assert_eq!(qp.post_all(&[send(1), read]), Err(PostError::NoReads));
    assert_eq!(qp.post_all(&[unsignaled(1); 5]), Err(PostError::QueueFull));
    assert_eq!(qp.post_all(&[send(1), unsignaled(2), send(3), send(4)]), Err(PostError::CompletionQueueFull));
    assert_eq!((qp.sends_free(), bells.dequeue()), (4, None));
    assert!(qp.post_all(&[]).is_ok() && bells.is_empty());
    qp.post_all(&[send(1), unsignaled(2), send(3)]).unwrap();
    assert_eq!((qp.sends_free(), bells.dequeue()), (1, Some(0)));
    let taken: Vec<u64> = core::iter::from_fn(|| qp.dequeue_send()).map(|posted| posted.id()).collect();
    assert_eq!(taken, [1, 2, 3]);
    // What is refused takes no places, whether or not the queue reserves any.
    for may_overflow in [false, true] {
        let mut ring = CompletionRing::new(if may_overflow { 8 } else { 4 });
        if may_overflow {
            ring.set_may_overflow();
        }
        let (qp, ring, _) = qp_with(4, ring);
        qp.set_state(QpState::ReadyToSend);
        for _ in 0..3 {
            assert_eq!(qp.post_all(&[send(1); 5]), Err(PostError::QueueFull));
        }
        qp.post_all(&[send(1); 4]).unwrap();
        assert_eq!(core::iter::from_fn(|| qp.dequeue_send()).count(), 4);
        (0..4).for_each(|id| qp.complete_send(completion(id)));
        assert_eq!((ring.drain().count(), ring.has_overflowed()), (4, false));
    }
}

/// While a list is refused that cannot be posted whole, the core of another queue pair finds the entries free
/// that the list would need: a message there needs one, and would end its stream.
// Requirements: RDMAP-8.1.1-05
#[test]
fn a_list_that_is_refused_whole_reserves_nothing_meanwhile() {
    let (qp, ring, bells) = qp(8, 3);
    let srq = Arc::new(SharedReceiveQueue::new(SrqNumber(1), ProtectionDomainId(1), 1, None));
    let (depths, rings) = (QueueDepths { send: 1, receive: 1 }, CompletionRings::shared(ring.clone()));
    let other = SharedQp::new(QpNumber(8), ProtectionDomainId(1), depths, rings, bells);
    let other = other.with_shared_receives(srq.clone());
    let request = ReceiveRequest::new(5, Slice::default());
    srq.post(&[request]).unwrap();
    let looks = Cell::new(0);
    let signaled = |requests: &[SendRequest]| {
        looks.set(looks.get() + 1);
        // The first look is to know how many entries are needed.
        if looks.get() == 2 {
            assert_eq!(other.dequeue_shared_receive(), Ok(Some(request)));
        }
        requests.len() as u32
    };
    let refused = qp.sends().post(&[send(1); 4], Portion::Whole, &ring, signaled, |_, _, _| {});
    assert_eq!(refused, (0, Some(PostError::CompletionQueueFull)));
    assert_eq!((srq.len(), ring.reserve(3)), (0, 2));
}

/// A flushed request that is not signaled is reported where a place is free, and never in one that is
/// reserved.
#[test]
fn a_flushed_unsignaled_request_uses_no_place_of_others() {
    let (qp, srq_events) = {
        let (qp, _, events) = sharing(4, 2);
        (qp, events)
    };
    let ring = qp.send_completions.queue().clone();
    qp.set_state(QpState::ReadyToSend);
    qp.post_sends(&[unsignaled(1), unsignaled(2), send(3)]).unwrap();
    assert_eq!(core::iter::from_fn(|| qp.dequeue_send()).count(), 3);
    let flushed = |id| Completion { status: Status::Flushed, ..completion(id) };
    qp.report_unsignaled(flushed(1));
    assert!(!ring.has_overflowed());
    qp.report_unsignaled(flushed(2));
    assert!(ring.has_overflowed(), "one place was free, one is reserved");
    assert_eq!(srq_events.dequeue(), Some(AsyncEvent::CompletionQueueOverflow { cq: ring.number() }));
    qp.complete_send(flushed(3));
    let reported: Vec<u64> = ring.drain().map(|completion| completion.id).collect();
    assert_eq!(reported, [1, 3]);
    assert_eq!(qp.post_sends(&[send(4), send(5), send(6)]).map_err(|bad| bad.posted), Err(2));
}

/// Where a queue may overflow, sends that are posted leave half of it to receives. A request that is not
/// signaled and has failed takes any entry that is free.
#[test]
fn a_failed_unsignaled_request_uses_an_entry_of_receives() {
    let mut ring = CompletionRing::new(4);
    ring.set_may_overflow();
    let (qp, ring, _) = qp_with(4, ring);
    qp.set_state(QpState::ReadyToSend);
    qp.post_receives(&[ReceiveRequest::new(7, Slice::default()); 2]).unwrap();
    qp.post_sends(&[unsignaled(1), unsignaled(2), unsignaled(3)]).unwrap();
    assert_eq!(core::iter::from_fn(|| qp.dequeue_send()).count(), 3);
    let flushed = |id| Completion { status: Status::Flushed, ..completion(id) };
    for id in [8, 9] {
        qp.receives().advance();
        qp.complete_receive(flushed(id));
    }
    qp.report_unsignaled(flushed(1));
    qp.report_unsignaled(flushed(2));
    assert!(!ring.has_overflowed());
    qp.report_unsignaled(flushed(3));
    assert!(ring.has_overflowed(), "four entries are in use");
    assert_eq!(ring.drain().map(|completion| completion.id).collect::<Vec<_>>(), [8, 9, 1, 2]);
}

/// Verbs: after this end has closed, or in error, requests are accepted and flushed. A queue pair refuses
/// only if its core is no longer polled: no request would ever complete.
#[test]
fn posting_in_error_is_accepted() {
    for state in [QpState::Closing, QpState::Terminate, QpState::Error] {
        let (qp, _, bells) = qp(4, 8);
        qp.set_state(QpState::ReadyToSend);
        qp.post_send(send(1)).unwrap();
        qp.set_state(state);
        qp.post_send(send(2)).unwrap();
        qp.post_receive(ReceiveRequest::new(3, Slice::default())).unwrap();
        assert_eq!(bells.dequeue(), Some(0));
        let late: Vec<bool> =
            core::iter::from_fn(|| qp.dequeue_send()).map(|posted| posted.posted_after_close()).collect();
        assert_eq!(late, [false, true]);
        qp.abandon();
        let refused = PostError::WrongState(QpState::Error);
        assert_eq!(qp.post_send(send(4)), Err(refused));
        assert_eq!(qp.post_receive(ReceiveRequest::new(5, Slice::default())), Err(refused));
        let own = StreamError::Tcp(CloseReason::Aborted);
        assert_eq!((qp.state(), qp.error()), (QpState::Error, Some(own)));
    }
}

/// A queue pair whose core has ended keeps no entry from others that report to its completion queue: neither
/// for sends that are signaled, in slots or in boxes, nor for receives, its own or those of a shared queue.
/// What completed before keeps its entry until it is polled.
// Requirements: RDMAP-8.1.1-05
#[test]
fn unfinished_work_of_a_core_that_has_ended_has_no_entries() {
    let request = |id| ReceiveRequest::new(id, Slice::default());
    let inline = InlineData::try_from(&[1; 8][..]).unwrap();
    let (qp, ring, _) = qp(8, 16);
    qp.set_state(QpState::ReadyToSend);
    let boxed = SendRequest::new(4, Operation::SEND, inline);
    qp.post_sends(&[send(1), unsignaled(2), send(3), boxed, unsignaled(5)]).unwrap();
    qp.post_receives(&[request(6), request(7), request(8)]).unwrap();
    // Two sends and a receive are dequeued, one of each is complete.
    assert!(qp.dequeue_send().is_some() && qp.dequeue_send().is_some());
    qp.complete_send(completion(1));
    qp.dequeue_receive().unwrap();
    qp.complete_receive(completion(6));
    qp.abandon();
    for _ in 0..2 {
        qp.release_entries();
        assert_eq!(qp.receives_outstanding(), 0);
        assert_eq!(ring.reserve(20), 14, "two wait to be polled");
        ring.unreserve(14);
    }
    // Threads that found the queue pair alive, and post now, do not keep their entries for ever either.
    let of_all = |requests: &[SendRequest]| requests.len() as u32;
    let write = |request: &SendRequest, slots: &Slots<WQE_WORDS>, position: u64| {
        let words = qp.boxes.words(slots.index(position), request, false);
        slots.slot(position).write(position, &words);
    };
    let posted = qp.sends().post(&[send(9), boxed], Portion::Prefix, &ring, of_all, write);
    assert_eq!((posted, ring.reserve(20)), ((2, None), 12));
    qp.release_entries();
    assert_eq!((ring.reserve(20), ring.drain().count()), (2, 2));

    let (qp, srq, _) = sharing(4, 8);
    let ring = qp.receive_completions.queue().clone();
    srq.post(&[request(1), request(2), request(3)]).unwrap();
    assert_eq!(core::iter::from_fn(|| qp.dequeue_shared_receive().unwrap()).count(), 3);
    qp.complete_receive(completion(1));
    qp.abandon();
    qp.release_entries();
    qp.release_entries();
    assert_eq!((ring.reserve(20), qp.receives_consumed()), (7, 3));

    // A queue that may overflow has reserved none for receives.
    let mut ring = CompletionRing::new(16);
    ring.set_may_overflow();
    let (qp, ring, _) = qp_with(4, ring);
    qp.set_state(QpState::ReadyToSend);
    qp.post_receives(&[request(1), request(2)]).unwrap();
    qp.post_send(send(3)).unwrap();
    qp.abandon();
    qp.release_entries();
    assert_eq!(ring.reserve(20), 8);
}

/// Posting allocates a box for the first full request of a slot, which later ones use again.
#[test]
fn places_are_used_again() {
    let (qp, ring, _) = qp(2, 64);
    qp.set_state(QpState::ReadyToSend);
    let inline = InlineData::try_from(&[1; 8][..]).unwrap();
    let mut places = std::collections::BTreeSet::new();
    for id in 0..7 {
        qp.post_send(SendRequest::new(id, Operation::SEND, inline)).unwrap();
        qp.post_send(SendRequest::new(id, Operation::SEND, inline)).unwrap();
        for _ in 0..2 {
            let posted = qp.dequeue_send().unwrap();
            places.insert(core::ptr::from_ref(posted.full().unwrap()) as usize);
            qp.recycle(posted);
            qp.complete_send(completion(id));
        }
        assert_eq!(core::iter::from_fn(|| ring.poll()).count(), 2);
    }
    assert_eq!(places.len(), 2);
    // A compact request needs none, and one that is refused gets none.
    qp.post_sends(&[send(1), send(2)]).unwrap();
    assert_eq!(qp.post_send(SendRequest::new(3, Operation::SEND, inline)), Err(PostError::QueueFull));
    assert_eq!([0, 1].map(|index| qp.boxes.take(index).is_some()), [true; 2]);
}

// Requirements: RDMAP-7.1-03
#[test]
fn the_first_error_stays() {
    let (qp, ..) = qp(1, 1);
    qp.set_error(StreamError::Tcp(CloseReason::Reset));
    qp.set_error(StreamError::Tcp(CloseReason::TimedOut));
    assert_eq!(qp.error(), Some(StreamError::Tcp(CloseReason::Reset)));
}

/// Verbs' `bad_wr`: those before the one that is refused are posted, with one bell for all.
#[test]
fn a_list_is_posted_as_far_as_it_goes() {
    let (qp, _, bells) = qp(4, 3);
    let list: Vec<_> = (0..6).map(send).collect();
    let idle = PostError::WrongState(QpState::Idle);
    assert_eq!(qp.post_sends(&list), Err(BadRequest { posted: 0, error: idle }));
    qp.set_state(QpState::ReadyToSend);
    let refused = Err(BadRequest { posted: 3, error: PostError::CompletionQueueFull });
    assert_eq!(qp.post_sends(&list), refused);
    assert_eq!((bells.dequeue(), bells.dequeue()), (Some(0), None));
    for id in 0..3 {
        assert_eq!(qp.dequeue_send().map(|request| request.id()), Some(id));
        qp.complete_send(completion(id));
    }
    assert!(qp.dequeue_send().is_none());
    assert_eq!(qp.send_completions.queue().drain().count(), 3);
    qp.post_sends(&list[..3]).unwrap();
    assert_eq!(qp.post_sends(&[]), Ok(()));
}

#[test]
fn a_list_stops_at_the_depth() {
    let (qp, ring, _) = qp(4, 64);
    let list: Vec<_> = (0..6).map(|id| ReceiveRequest::new(id, Slice::default())).collect();
    assert_eq!(qp.post_receives(&list), Err(BadRequest { posted: 4, error: PostError::QueueFull }));
    assert_eq!(qp.post_receives(&list), Err(BadRequest { posted: 0, error: PostError::QueueFull }));
    // Requests that were not posted hold no place in the completion queue.
    let free = ring.capacity() as u32 - 4;
    assert_eq!(ring.reserve(1000), free);
}

fn sharing(depth: usize, completions: usize) -> (SharedQp, Arc<SharedReceiveQueue>, Arc<AsyncEvents>) {
    let events = Arc::new(AsyncEvents::new(None));
    let srq = SharedReceiveQueue::new(SrqNumber(1), ProtectionDomainId(1), 8, Some(events.clone()));
    let srq = Arc::new(srq);
    let (qp, ..) = qp(depth, completions);
    (qp.with_events(events.clone()).with_shared_receives(srq.clone()), srq, events)
}

/// The receives that a queue pair dequeues are counted, and it holds at most its configured share.
// Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
#[test]
fn a_queue_pair_has_its_share_of_the_receives() {
    let (qp, srq, _) = sharing(2, 8);
    let request = ReceiveRequest::new(5, Slice::default());
    assert_eq!(qp.post_receive(request), Err(PostError::SharedReceives));
    srq.post(&[request; 4]).unwrap();
    assert_eq!(qp.dequeue_shared_receive(), Ok(Some(request)));
    assert_eq!(qp.dequeue_shared_receive(), Ok(Some(request)));
    assert_eq!(qp.dequeue_shared_receive(), Ok(None), "it holds two");
    assert_eq!((srq.len(), qp.receives_consumed(), qp.receives_outstanding()), (2, 2, 2));
    qp.complete_receive(completion(5));
    assert_eq!(qp.dequeue_shared_receive(), Ok(Some(request)));
    assert_eq!((srq.len(), qp.receives_consumed(), srq.dequeued()), (1, 3, 3));
}

/// Without a place for the completion nothing is dequeued, and nothing is lost.
// Requirements: RDMAP-8.1.1-05
#[test]
fn a_receive_without_a_place_for_its_completion_stays() {
    let (qp, srq, events) = sharing(4, 1);
    let request = ReceiveRequest::new(5, Slice::default());
    srq.post(&[request; 2]).unwrap();
    assert_eq!(qp.dequeue_shared_receive(), Ok(Some(request)));
    assert_eq!(qp.dequeue_shared_receive(), Err(StreamError::CompletionQueueOverflow));
    assert_eq!(qp.dequeue_shared_receive(), Err(StreamError::CompletionQueueOverflow));
    assert_eq!(srq.len(), 1);
    assert_eq!(events.dequeue(), None, "it may have one in its turn");
    qp.completions_overflow();
    qp.completions_overflow();
    let cq = qp.receive_completions.queue().number();
    assert_eq!(events.dequeue(), Some(AsyncEvent::CompletionQueueOverflow { cq }));
    assert_eq!(events.dequeue(), None);
    qp.complete_receive(completion(5));
    qp.receive_completions.queue().poll().unwrap();
    assert_eq!(qp.dequeue_shared_receive(), Ok(Some(request)));
    assert_eq!(qp.dequeue_shared_receive(), Ok(None), "it is a receive that is missing now");
}

#[test]
fn events_say_what_ended_a_queue_pair() {
    let (qp, _, events) = sharing(1, 1);
    let error = StreamError::Ddp(DdpError::BaseOrBounds);
    qp.set_error(error);
    qp.set_error(StreamError::Tcp(CloseReason::Reset));
    qp.receives_are_flushed();
    qp.receives_are_flushed();
    assert_eq!(events.dequeue(), Some(AsyncEvent::QpAccessError { qp: QpNumber(7), error }));
    assert_eq!(events.dequeue(), Some(AsyncEvent::LastReceiveReached { qp: QpNumber(7) }));
    assert_eq!(events.dequeue(), None);
    let said = [AsyncEvent::QpAccessError { qp: QpNumber(7), error }, last_receive()];
    assert_eq!(qp.end_events().collect::<Vec<_>>(), said);
    // An end that resets its connection needs no event for it.
    let (qp, _, events) = sharing(1, 1);
    qp.set_error(StreamError::Tcp(CloseReason::Aborted));
    assert!(events.is_empty());
    assert_eq!(qp.end_events().count(), 0);
}

/// Queue pairs leave room for what only an event says; what they say themselves, they say still.
#[test]
fn events_beyond_the_bound_are_counted() {
    let (qp, srq, events) = sharing(1, 1);
    for _ in 0..limits::ASYNC_EVENTS_OF_QUEUE_PAIRS + 2 {
        qp.report(last_receive());
    }
    qp.receives_are_flushed();
    assert_eq!(events.lost(), 3);
    assert_eq!(qp.end_events().collect::<Vec<_>>(), [last_receive()]);
    let others = limits::ASYNC_EVENTS - limits::ASYNC_EVENTS_OF_QUEUE_PAIRS;
    for _ in 0..=others {
        srq.arm_limit(1);
    }
    assert_eq!(events.lost(), 4);
    let found: Vec<_> = core::iter::from_fn(|| events.dequeue()).collect();
    let (of_queue_pairs, of_queues) = found.split_at(limits::ASYNC_EVENTS_OF_QUEUE_PAIRS);
    assert!(of_queue_pairs.iter().all(|event| *event == last_receive()));
    assert_eq!(of_queues, vec![AsyncEvent::SharedReceiveLimit { srq: SrqNumber(1) }; others]);
}

fn last_receive() -> AsyncEvent {
    AsyncEvent::LastReceiveReached { qp: QpNumber(7) }
}

/// A queue pair of a device with several cores rings at its home, which also fills its completion queue; one
/// that was never at a core is ended by core 0, and rings nowhere.
#[test]
fn a_queue_pair_belongs_to_the_core_of_its_home() {
    let cores = [1, 1, 1].map(|slots| Arc::new(Doorbells::new(slots)));
    let ring = Arc::new(CompletionRing::new(8));
    let new = || {
        let (depths, rings) = (QueueDepths { send: 2, receive: 2 }, CompletionRings::shared(ring.clone()));
        let doorbells: CoreDoorbells = cores.iter().cloned().collect();
        SharedQp::new(QpNumber(7), ProtectionDomainId(1), depths, rings, doorbells)
    };
    let (unstarted, qp, other) = (new(), new(), new());
    let receive = ReceiveRequest::new(5, Slice::default());
    unstarted.post_receive(receive).unwrap();
    assert!(cores.iter().all(|core| core.is_empty()));
    unstarted.dequeue_receive().unwrap();
    unstarted.complete_receive(completion(5));
    // As soon as control commands it.
    qp.prepare_for(2);
    qp.set_home(Home { core: 2, slot: 0 });
    qp.set_state(QpState::ReadyToSend);
    other.set_home(Home { core: 1, slot: 0 });
    qp.post_receive(receive).unwrap();
    let rung = cores.each_ref().map(|core| core.dequeue());
    assert_eq!((qp.home(), rung), (Some(Home { core: 2, slot: 0 }), [None, None, Some(0)]));
    qp.dequeue_receive().unwrap();
    qp.complete_receive(completion(6));
    let core_of = |qp: &SharedQp| qp.receive_completions.core();
    assert_eq!(
        [&unstarted, &other, &qp].map(core_of),
        [0, 1, 2].map(|core: usize| Some(Arc::as_ptr(&cores[core])))
    );
    let mut polled: Vec<u64> = ring.drain().map(|completion| completion.id).collect();
    polled.sort_unstable();
    assert_eq!(polled, [5, 6]);
}
