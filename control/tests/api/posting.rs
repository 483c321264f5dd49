//! Tests of work posted and completions polled from many threads, and by an application that polls the core
//! itself.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, config, link};
use warpline::{
    Access, BadRequest, Completion, CompletionKind, CompletionQueue, Device, ListenConfig, MemoryRegion,
    Operation, PostError, QpConfig, QpState, RnrPolicy, SendBatch, SendRequest, SharedQueuePair, Status,
    StreamError,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};

const THREADS: u64 = 4;
const WRITES: u64 = 500;
const OCTETS: u64 = 1000;

/// Every thread writes to places of its own, through the same queue pair, in turn; one thread polls.
#[test]
fn threads_share_a_queue_pair() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let End { qp, completions, memory, .. } = near;
    let qp = SharedQueuePair::new(qp);
    let octets = (THREADS * OCTETS) as usize;
    let pattern: Vec<u8> = (0..octets).map(|index| (index / OCTETS as usize + 1) as u8).collect();
    assert!(memory.write(0, &pattern));
    let target = far.memory.advertisement(0, octets as u32).unwrap();
    let mut seen = vec![0; (THREADS * WRITES) as usize];
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (qp, source) = (qp.clone(), memory.slice((number * OCTETS) as usize, OCTETS as u32));
            scope.spawn(move || {
                for write in 0..WRITES {
                    let (id, at) = (number * WRITES + write, number * OCTETS);
                    while qp.lock().post_write(id, source, &target, at).is_err() {
                        assert_eq!(qp.state(), QpState::ReadyToSend);
                        thread::yield_now();
                    }
                }
            });
        }
        let mut batch = Vec::with_capacity(16);
        let mut left = seen.len();
        while left > 0 {
            let first = completions.wait(PATIENCE).expect("every Write completes");
            completions.poll_into(&mut batch);
            assert!(batch.capacity() == 16, "polling allocates nothing");
            for completion in batch.drain(..).chain([first]) {
                assert_eq!((completion.status, completion.byte_len), (Status::Success, OCTETS as u32));
                seen[completion.id as usize] += 1;
                left -= 1;
            }
        }
    });
    assert!(seen.iter().all(|times| *times == 1), "each completion once");
    assert_eq!(far.memory.to_vec(0, octets).unwrap(), pattern);
}

/// Sends arrive in the order of posting, in the buffers in their order; each completion carries its length
/// (DDP-5.4-02).
#[test]
fn sends_arrive_in_order_both_ways() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let place = |id: u64| 4096 + id as usize * 64;
    for id in 0..100 {
        for end in [&near, &far] {
            end.qp.post_receive(id, end.memory.slice(place(id), 64)).unwrap();
        }
    }
    let received = |end: &End| -> Vec<(u64, u32)> {
        let mut receives = Vec::new();
        while receives.len() < 100 {
            let completion = end.completion();
            assert_eq!(completion.status, Status::Success);
            if completion.kind == CompletionKind::Receive {
                receives.push((completion.id, completion.byte_len));
            }
        }
        receives
    };
    let lengths: Vec<(u64, u32)> = (0..100).map(|id| (id, (id % 65) as u32)).collect();
    for (from, to, value) in [(&near, &far, 1), (&far, &near, 2)] {
        assert!(from.memory.write(0, &[value; 64]));
        for (id, octets) in &lengths {
            from.qp.post_send(1000 + id, from.memory.slice(0, *octets)).unwrap();
        }
        assert_eq!(received(to), lengths);
        assert_eq!(to.memory.to_vec(place(64), 64).unwrap(), [value; 64]);
        assert_eq!(to.memory.to_vec(place(3), 4).unwrap(), [value, value, value, 0]);
    }
}

/// A request beyond the capacity is refused, and polling frees places.
// Requirements: RDMAP-8.1.1-05, RDMAP-8.1.2-02
#[test]
fn queues_are_bounded() {
    let pair = Pair::new();
    let end = End::with(&pair.near, &QpConfig { receive_depth: 2, ..QpConfig::default() });
    let small = CompletionQueue::new(1);
    let other = end.domain.queue_pair(&QpConfig::default(), &small, &small).unwrap();
    let slice = end.memory.slice(0, 16);
    assert_eq!(end.qp.post_receive(1, slice), Ok(()));
    assert_eq!(end.qp.post_receive(2, slice), Ok(()));
    assert_eq!(end.qp.post_receive(3, slice), Err(PostError::QueueFull));
    assert_eq!(other.post_receive(1, slice), Ok(()));
    assert_eq!(other.post_receive(2, slice), Err(PostError::CompletionQueueFull));
    let early = end.qp.post_send(4, slice);
    assert_eq!(early, Err(PostError::WrongState(QpState::Idle)));
    // They are flushed when the queue pair is destroyed.
    drop(other);
    let flushed = small.wait(PATIENCE).unwrap();
    assert_eq!((flushed.id, flushed.status), (1, Status::Flushed));
}

/// Verbs' `bad_wr`: a list is posted up to the first refused request, and the error names that request. A
/// batch that is dropped is not posted at all.
#[test]
fn lists_are_posted_together() {
    let pair = Pair::new();
    let near = End::with(&pair.near, &QpConfig { send_depth: 4, ..QpConfig::default() });
    let far = pair.accept(&near.qp);
    near.memory.fill(1);
    let target = far.memory.advertisement(0, 4000).unwrap();
    let slice = near.memory.slice(0, 1000);

    let mut batch = near.qp.batch();
    batch.write(1, slice, &target, 0).unwrap();
    drop(batch);
    let mut batch = near.qp.batch();
    assert!(batch.is_empty());
    for id in 0..4 {
        batch.write(10 + id, slice, &target, id * 1000).unwrap();
    }
    let outside = batch.write(14, slice, &target, 3001);
    assert_eq!(outside, Err(PostError::OutsideAdvertisement { advertised: 4000 }));
    assert_eq!(batch.len(), 4);
    batch.commit().unwrap();
    for id in 10..14 {
        let completion = near.completion();
        assert_eq!((completion.id, completion.status), (id, Status::Success));
    }
    assert_eq!(far.memory.to_vec(0, 4000).unwrap(), [1; 4000]);

    // Acknowledgements are blocked for a while, so that the posted requests stay queued.
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    let mut batch = near.qp.batch();
    for id in 0..SendBatch::CAPACITY as u64 {
        batch.write(20 + id, slice, &target, 0).unwrap();
    }
    let full = Err(PostError::BatchFull);
    assert_eq!(batch.send(99, slice), full);
    let bad = BadRequest { posted: 4, error: PostError::QueueFull };
    assert_eq!(batch.commit(), Err(bad));
    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    for id in 20..24 {
        assert_eq!(near.completion().id, id);
    }
    near.write(30, &far, 10);
    assert_eq!(near.completion().id, 30, "those after it were not posted");
    near.qp.abort();
    crate::common::eventually("it is over", || near.qp.state() == QpState::Error);
    // Verbs' way to drain a queue pair: a marker request is accepted, and its flush follows all requests that
    // were posted before.
    let mut batch = near.qp.batch();
    batch.send(40, slice).unwrap();
    batch.commit().unwrap();
    let flushed = near.completion();
    assert_eq!((flushed.id, flushed.status), (40, Status::Flushed));
}

/// Verbs' `rnr`: if the queue pair enables it, a Send without a receive waits for one, and the stream ends if
/// none is posted in time. The sender's completion only means that TCP has the data (DDP-5.4-04).
#[test]
fn a_send_may_wait_for_its_receive() {
    let pair = Pair::new();
    for timeout in [PATIENCE, Duration::from_millis(200)] {
        let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
        let near = End::new(&pair.near);
        let rnr = RnrPolicy::Wait { timeout };
        let far = End::with(&pair.far, &QpConfig { rnr, ..QpConfig::default() });
        thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        near.memory.fill(8);
        near.qp.post_send(1, near.memory.slice(0, 100)).unwrap();
        assert_eq!(near.completion().status, Status::Success);
        if timeout == PATIENCE {
            assert_eq!((far.completions.poll(), far.qp.error()), (None, None));
            far.qp.post_receive(2, far.memory.slice(0, 100)).unwrap();
            let received = far.completion();
            assert_eq!((received.id, received.status, received.byte_len), (2, Status::Success, 100));
            assert_eq!(far.memory.to_vec(0, 100).unwrap(), [8; 100]);
        } else {
            crate::common::eventually("the stream has ended", || near.qp.error().is_some());
            let told = StreamError::Terminated { layer: 1, error_type: 2, code: 2 };
            assert_eq!(near.qp.error(), Some(told));
            assert_eq!(far.qp.error(), Some(StreamError::Ddp(DdpError::NoBuffer)));
        }
    }
}

/// An unsignaled Write has no completion; the completion of the next one covers both.
#[test]
fn silent_writes_are_silent() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    near.memory.fill(4);
    let operation = |offset| Operation::Write { stag: far.memory.stag(), to: far.memory.to(offset) };
    let write = |id, signaled| SendRequest {
        signaled,
        ..SendRequest::new(id, operation(id as usize * 100), near.memory.slice(0, 100))
    };
    for id in 0..10 {
        near.qp.post(write(id, id == 9)).unwrap();
    }
    assert_eq!(near.completion().id, 9);
    assert_eq!(near.completions.poll(), None);
    assert_eq!(far.memory.to_vec(0, 1000).unwrap(), [4; 1000]);
}

/// One thread does everything: it polls both cores, posts, and takes completions.
#[test]
fn an_application_polls_the_cores_itself() {
    let (near, far) = link();
    let (near, mut near_driver) = Device::start_manual(near, &config(NEAR)).unwrap();
    let (far, mut far_driver) = Device::start_manual(far, &config(FAR)).unwrap();
    // Setting up waits for the cores, so it happens elsewhere.
    let (near_end, far_end) = near_driver.run(|| {
        far_driver.run(|| {
            let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
            let (near, far) = (End::new(&near), End::new(&far));
            thread::scope(|scope| {
                let connecting = scope.spawn(near.connecting(b""));
                listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
                connecting.join().unwrap().unwrap();
            });
            (near, far)
        })
    });
    near_end.memory.fill(6);
    let mut poll_until = |completions: &CompletionQueue| -> Completion {
        let start = Instant::now();
        loop {
            near_driver.poll_once();
            far_driver.poll_once();
            if let Some(completion) = completions.poll() {
                return completion;
            }
            assert!(start.elapsed() < PATIENCE);
        }
    };
    for id in 0..50 {
        near_end.write(id, &far_end, 10_000);
        let completion = poll_until(&near_end.completions);
        assert_eq!((completion.id, completion.status), (id, Status::Success));
    }
    assert_eq!(far_end.memory.to_vec(0, 10_000).unwrap(), [6; 10_000]);
    let statistics = near_driver.statistics();
    assert!(statistics.bytes_copied_tx >= 500_000);
    assert!(near_driver.time_to_next_deadline() > Duration::ZERO);
}

/// Atomic Operations and Immediate Data have their own calls, which check the bounds of the advertisement
/// (RFC 7306 §5.1, §6).
#[test]
fn atomics_and_immediate_data_keep_within_the_advertisement() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let memory = far.domain.allocate(24, all).unwrap();
    let remote = memory.advertisement(8, 16).unwrap();
    let found = near.memory.slice(0, 8);
    let number = |memory: &MemoryRegion, offset| {
        u64::from_ne_bytes(memory.to_vec(offset, 8).unwrap().try_into().unwrap())
    };

    near.qp.post_fetch_add(1, found, &remote, 8, 5).unwrap();
    assert_eq!((near.completion().kind, number(&near.memory, 0)), (CompletionKind::FetchAdd, 0));
    for (id, expected, becomes) in [(2, 4, 5), (3, 5, 9)] {
        near.qp.post_compare_swap(id, found, &remote, 8, expected, 9).unwrap();
        assert_eq!((near.completion().id, number(&near.memory, 0)), (id, 5), "what was there before");
        assert_eq!(number(&memory, 16), becomes);
    }

    far.qp.post_receive(7, far.memory.slice(0, 0)).unwrap();
    assert!(near.memory.write(0, &[3; 16]));
    near.qp
        .post_write_with_immediate(4, near.memory.slice(0, 16), &remote, 0, 0x0102_0304_0506_0708)
        .unwrap();
    assert_eq!(near.completion().status, Status::Success);
    let told = far.completion();
    assert_eq!((told.id, told.immediate), (7, Some(0x0102_0304_0506_0708)));
    assert_eq!(memory.to_vec(0, 24).unwrap(), [[0; 8], [3; 8], [3; 8]].concat());

    let outside = Err(PostError::OutsideAdvertisement { advertised: 16 });
    assert_eq!(near.qp.post_fetch_add(5, found, &remote, 9, 1), outside);
    assert_eq!(near.qp.post_compare_swap(5, found, &remote, u64::MAX, 0, 1), outside);
    assert_eq!(near.qp.post_write_with_immediate(5, near.memory.slice(0, 16), &remote, 1, 0), outside);
}
