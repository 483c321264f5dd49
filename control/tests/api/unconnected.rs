//! Tests of queue pairs that end without a connection.

use std::thread;

use crate::common::{End, PATIENCE, PORT, Pair, eventually, eventually_unused};
use warpline::{
    Access, AnswerError, AsyncEvent, CloseError, CloseReason, CompletionQueue, ConnectError, ListenConfig,
    QpConfig, QpState, Status, StreamError,
};
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};

const ABORTED: Result<(), CloseError> = Err(CloseError::Failed(StreamError::Tcp(CloseReason::Aborted)));

fn post_receives(end: &End, ids: core::ops::Range<u64>) {
    for id in ids {
        end.qp.post_receive(id, end.memory.slice(0, 16)).unwrap();
    }
}

fn expect_flushed(end: &End, ids: core::ops::Range<u64>) {
    for id in ids {
        let completion = end.completion();
        assert_eq!((completion.id, completion.status), (id, Status::Flushed));
    }
    assert!(end.completions.poll().is_none());
}

/// What is posted before and after the abort is flushed, each request once, and no connection takes the queue
/// pair.
// Requirements: DDP-6.2.2-02
#[test]
fn one_without_a_connection_is_flushed() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    for end in [&near, &far] {
        post_receives(end, 0..3);
        end.qp.abort();
        assert_eq!(end.qp.wait_closed(PATIENCE), ABORTED);
        assert_eq!(end.qp.state(), QpState::Error);
        expect_flushed(end, 0..3);
        post_receives(end, 3..5);
        expect_flushed(end, 3..5);
        end.qp.post_send(5, end.memory.slice(0, 16)).unwrap();
        expect_flushed(end, 5..6);
        // Once more, after its end.
        end.qp.abort();
    }
    assert_eq!(near.connect(b""), Err(ConnectError::QueuePairInUse));
    let other = End::new(&pair.near);
    thread::scope(|scope| {
        let connecting = scope.spawn(other.connecting(b""));
        let refused = listener.accept(PATIENCE).unwrap().accept(&far.qp, b"");
        assert_eq!(refused.unwrap_err(), AnswerError::QueuePairInUse);
        assert!(connecting.join().unwrap().is_err());
    });
    drop((near, far, other, listener));
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// The attempt is given up at once, whether the peer's TCP does not answer or its application does not.
#[test]
fn an_attempt_is_given_up_with_its_queue_pair() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    for answers in [false, true] {
        let loss = if answers { 0.0 } else { 1.0 };
        pair.network.set_impairments(LinkEnd::B, Impairments { loss, ..Impairments::default() });
        let near = End::new(&pair.near);
        post_receives(&near, 0..3);
        let frames = || pair.far.statistics().unwrap().frames_received;
        let before = frames();
        let request = thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b""));
            eventually("the peer is asked", || frames() > before);
            let request = answers.then(|| listener.accept(PATIENCE).unwrap());
            let before = frames();
            near.control().abort();
            assert_eq!(connecting.join().unwrap(), Err(ConnectError::Closed(CloseReason::Aborted)));
            // There is nothing else that it sends.
            eventually("the peer is told", || !answers || frames() > before);
            request
        });
        assert_eq!(near.qp.wait_closed(PATIENCE), ABORTED);
        expect_flushed(&near, 0..3);
        assert_eq!(near.connect(b""), Err(ConnectError::QueuePairInUse));
        if let Some(request) = request {
            let far = End::new(&pair.far);
            let gone = request.accept(&far.qp, b"").unwrap_err();
            assert_eq!(gone, AnswerError::Closed(CloseReason::Reset));
        }
        drop(near);
        eventually_unused(&pair.near);
    }
}

/// It takes none of the receives that it shares, and never will.
#[test]
fn shared_receives_stay_with_the_others() {
    let pair = Pair::new();
    let domain = pair.near.protection_domain();
    let (shared, completions) = (domain.shared_receive_queue(8), CompletionQueue::new(8));
    let memory = domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    for id in 0..3 {
        shared.post(id, memory.slice(0, 16)).unwrap();
    }
    let qp = domain.queue_pair_sharing(&shared, &QpConfig::default(), &completions, &completions).unwrap();
    qp.abort();
    assert_eq!(qp.wait_closed(PATIENCE), ABORTED);
    eventually("its last receive is reported", || {
        pair.near.poll_event() == Some(AsyncEvent::LastReceiveReached { qp: qp.number() })
    });
    assert!(completions.poll().is_none());
    assert_eq!((shared.len(), qp.receives_consumed()), (3, 0));
}
