//! Tests of completion queues that threads sleep on, and of asynchronous events.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{End, PATIENCE, PORT, Pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use warpline::{
    AsyncEvent, CloseReason, CompletionQueue, ConnectConfig, ListenConfig, Notice, QpConfig, SendRequest,
    SharedCompletionQueue, SharedQueuePair, Status, StreamError,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::qp::work::Operation;

fn is_readable(fd: impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

/// Processor time of this thread.
fn busy() -> Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says it");
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

/// A connection whose far end reports to a queue of `capacity` with events.
fn connected(pair: &Pair, capacity: usize) -> (End, End) {
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let near = End::new(&pair.near);
    let far =
        End::reporting(&pair.far, &QpConfig::default(), CompletionQueue::with_events(capacity).unwrap());
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    (near, far)
}

/// A thread that waits sleeps: in most of a second it uses next to no processor time, where one that polls
/// uses as much as it gets. A completion wakes it.
#[test]
fn a_thread_that_waits_sleeps() {
    const QUIET: Duration = Duration::from_millis(700);
    let pair = Pair::new();
    let (near, far) = connected(&pair, 16);
    let End { qp: far_qp, completions, memory, .. } = far;
    far_qp.post_receive(5, memory.slice(0, 16)).unwrap();
    let completions = thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let (start, before) = (Instant::now(), busy());
            let completion = completions.wait(PATIENCE);
            (completion, start.elapsed(), busy().saturating_sub(before), completions)
        });
        thread::sleep(QUIET);
        near.qp.post_send(1, near.memory.slice(0, 16)).unwrap();
        let (completion, slept, spent, completions) = waiting.join().unwrap();
        assert_eq!(completion.unwrap().id, 5);
        assert!(spent < slept / 20, "{spent:?} of {slept:?} spent");
        completions
    });
    let (start, before) = (Instant::now(), busy());
    assert_eq!(completions.wait(Duration::from_millis(50)), None);
    assert!(
        start.elapsed() >= Duration::from_millis(50)
            && busy().saturating_sub(before) < Duration::from_millis(25)
    );
}

/// Verbs' steps: arm, look again, sleep until the descriptor is readable, clear it, poll.
#[test]
fn an_armed_queue_becomes_readable_once() {
    let pair = Pair::new();
    let (near, far) = connected(&pair, 16);
    let completions = &far.completions;
    let events = completions.events().unwrap();
    for id in 0..3 {
        far.qp.post_receive(id, far.memory.slice(0, 16)).unwrap();
    }
    let send = |id| {
        near.qp.post_send(id, near.memory.slice(0, 16)).unwrap();
        assert_eq!(near.completion().status, Status::Success);
    };
    send(0);
    assert!(!is_readable(events, Duration::ZERO), "nobody has armed it");
    assert!(completions.arm(Notice::Next), "there is one already");
    assert_eq!(completions.poll().map(|completion| completion.id), Some(0));
    assert!(!completions.arm(Notice::Next));
    send(1);
    assert!(is_readable(events, PATIENCE) && events.clear());
    send(2);
    assert!(!is_readable(events, Duration::ZERO), "it tells once");
    assert_eq!(completions.drain().map(|completion| completion.id).collect::<Vec<_>>(), [1, 2]);
}

/// A thread that waits for Solicited Events sleeps through other messages. A Solicited Event or an error
/// wakes it.
// Requirements: RDMAP-5.3-04
#[test]
fn solicited_events_wake() {
    let pair = Pair::new();
    let (near, far) = connected(&pair, 16);
    let completions = &far.completions;
    let events = completions.events().unwrap();
    for id in 0..4 {
        far.qp.post_receive(id, far.memory.slice(0, 16)).unwrap();
    }
    let send = |id, solicited| {
        let operation = Operation::Send { invalidate: None, solicited };
        near.qp.post(SendRequest::new(id, operation, near.memory.slice(0, 16))).unwrap();
        assert_eq!(near.completion().status, Status::Success);
    };
    assert!(!completions.arm(Notice::Solicited));
    send(0, false);
    send(1, false);
    // Both have been acknowledged, and so Delivered.
    assert!(!is_readable(events, Duration::ZERO));
    send(2, true);
    assert!(is_readable(events, PATIENCE) && events.clear());
    let solicited: Vec<_> = completions.drain().map(|completion| completion.solicited).collect();
    assert_eq!(solicited, [false, false, true]);
    assert!(!completions.arm(Notice::Solicited));
    near.qp.abort();
    assert!(is_readable(events, PATIENCE));
    assert_ne!(completions.poll().unwrap().status, Status::Success);
}

/// Many threads wait on one queue and post to one queue pair, in turn: each completion wakes one, and no
/// thread stays asleep while completions are pending.
#[test]
fn many_threads_wait_on_one_queue() {
    const MESSAGES: u64 = 2000;
    let pair = Pair::new();
    let (near, far) = connected(&pair, 64);
    let End { qp, completions, memory, .. } = far;
    let (qp, completions) = (SharedQueuePair::new(qp), SharedCompletionQueue::new(completions));
    let (seen, received) = (Mutex::new(HashSet::new()), AtomicUsize::new(0));
    for id in 0..64 {
        qp.lock().post_receive(id, memory.slice(0, 16)).unwrap();
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while received.load(Ordering::Relaxed) < MESSAGES as usize {
                    // The last message leaves the others asleep.
                    let Some(completion) = completions.wait(Duration::from_millis(500)) else { continue };
                    assert_eq!(completion.status, Status::Success);
                    assert!(seen.lock().unwrap().insert(completion.id), "each once");
                    let next = completion.id + 64;
                    if next < MESSAGES {
                        qp.lock().post_receive(next, memory.slice(0, 16)).unwrap();
                    }
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for id in 0..MESSAGES {
            // At most as many messages in flight as there are receives.
            while id >= received.load(Ordering::Relaxed) as u64 + 16 {
                thread::yield_now();
            }
            near.qp.post_send(id, near.memory.slice(0, 16)).unwrap();
            assert_eq!(near.completion().status, Status::Success);
        }
    });
    assert_eq!(seen.into_inner().unwrap().len(), MESSAGES as usize);
}

/// The accepting end reports the first message; both ends report the end of the connection, with the event
/// names of the verbs.
#[test]
fn devices_tell_what_happens_to_queue_pairs() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    assert!(!is_readable(pair.near.event_fd(), Duration::ZERO));
    let (near_qp, far_qp) = (near.qp.number(), far.qp.number());
    far.qp.post_receive(1, far.memory.slice(0, 16)).unwrap();
    near.qp.post_send(1, near.memory.slice(0, 16)).unwrap();
    assert_eq!(far.completion().status, Status::Success);
    assert!(is_readable(pair.far.event_fd(), PATIENCE));
    let established = AsyncEvent::CommunicationEstablished { qp: far_qp };
    assert_eq!(pair.far.wait_event(PATIENCE), Some(established));
    // There is no receive for this one.
    near.qp.post_send(2, near.memory.slice(0, 16)).unwrap();
    let error = StreamError::Ddp(DdpError::NoBuffer);
    assert_eq!(pair.far.wait_event(PATIENCE), Some(AsyncEvent::QpRequestError { qp: far_qp, error }));
    let error = StreamError::Terminated { layer: 1, error_type: 2, code: 2 };
    assert_eq!(pair.near.wait_event(PATIENCE), Some(AsyncEvent::QpRequestError { qp: near_qp, error }));
    assert_eq!((pair.near.poll_event(), pair.far.poll_event()), (None, None));
    assert_eq!(pair.near.wait_event(Duration::from_millis(1)), None);

    let (near, far) = pair.connect();
    near.write(1, &far, 10);
    assert_eq!(near.completion().status, Status::Success);
    let established = AsyncEvent::CommunicationEstablished { qp: far.qp.number() };
    assert_eq!(pair.far.wait_event(PATIENCE), Some(established));
    near.qp.abort();
    let error = StreamError::Tcp(CloseReason::Reset);
    let fatal = AsyncEvent::QpFatal { qp: far.qp.number(), error };
    assert_eq!(pair.far.wait_event(PATIENCE), Some(fatal));
    assert_eq!(pair.near.poll_event(), None, "who resets knows");
    assert_eq!(pair.far.events_lost(), 0);
    let _ = ConnectConfig::default();
}
