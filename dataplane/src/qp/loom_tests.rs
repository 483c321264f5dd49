//! What an application and a core do at the same time, in every order that memory allows. `scripts/test` runs
//! them, with `RUSTFLAGS="--cfg loom"`.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::completion_queue::{CompletionRing, CoreEnd, Notice};
use super::doorbells::{CoreDoorbells, Doorbells};
use super::error::StreamError;
use super::post_error::PostError;
use super::shared::{CompletionRings, Home, QpState, QueueDepths, SharedQp};
use super::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use super::work::{
    Completion, CompletionKind, InlineData, Operation, QpNumber, ReceiveRequest, SendRequest, Slice,
    SliceList, Status,
};
use super::wqe::Wqe;
use crate::locked::Locked;
use crate::memory::{Access, Accessor, Grant, ProtectionDomainId, Region, RemoveError, STag, StagTable};
use crate::notify::Notify;
use crate::ring::{Command, Event};
use crate::sync::{ArrayQueue, AtomicU32, Ordering};
use crate::waker::Waker;

const QP: QpNumber = QpNumber(3);
const PD: ProtectionDomainId = ProtectionDomainId(1);
/// The slot of the queue pair at its core.
const SLOT: u32 = 0;
const HOME: Home = Home { core: 0, slot: SLOT };

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // More switches between threads than any of these protocols has steps that matter.
    builder.preemption_bound = Some(4);
    builder.check(f);
}

struct Shared {
    qp: SharedQp,
    completions: Arc<CompletionRing>,
    bells: Arc<Doorbells>,
}

fn shared(state: QpState) -> Arc<Shared> {
    deep(2, state)
}

/// One with queues of `depth`.
fn deep(depth: usize, state: QpState) -> Arc<Shared> {
    let completions = Arc::new(CompletionRing::new(2));
    let bells = Arc::new(Doorbells::new(1));
    let rings = CompletionRings::shared(completions.clone());
    let qp = SharedQp::new(QP, PD, QueueDepths { send: depth, receive: depth }, rings, bells.clone());
    qp.set_home(HOME);
    qp.set_state(state);
    Arc::new(Shared { qp, completions, bells })
}

/// The end of a completion queue of a core.
fn core_of(ring: &Arc<CompletionRing>) -> CoreEnd {
    CoreEnd::new(ring.clone(), &Arc::new(Doorbells::new(1)))
}

fn send(id: u64) -> SendRequest {
    SendRequest::new(id, Operation::SEND, Slice::default())
}

fn completion(id: u64, status: Status) -> Completion {
    Completion::new(QP, id, CompletionKind::Send, status, 0)
}

/// What a core does with its doorbells: hears them, and dequeues what is posted.
fn answer(shared: &Shared, mut f: impl FnMut(u64)) {
    while let Some(slot) = shared.bells.dequeue() {
        assert_eq!(slot, SLOT);
        while let Some(request) = shared.qp.dequeue_send() {
            f(request.id());
        }
        while let Some(request) = shared.qp.dequeue_receive() {
            f(request.id);
        }
    }
}

/// Whatever is posted while the core hears an earlier bell, a bell rings for it: nothing lies in a queue
/// unheard.
#[test]
fn every_post_is_heard() {
    model(|| {
        let shared = shared(QpState::ReadyToSend);
        let poster = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.qp.post_send(send(1)).unwrap();
                shared.qp.post_send(send(2)).unwrap();
            })
        };
        let mut taken = Vec::new();
        answer(&shared, |id| taken.push(id));
        poster.join().unwrap();
        answer(&shared, |id| taken.push(id));
        assert_eq!(taken, [1, 2]);
        assert!(shared.bells.is_empty());
    });
}

/// Two threads that post to one queue pair in turn, by a lock: the core finds what each has posted.
#[test]
fn two_posters_share_a_bell() {
    model(|| {
        let shared = shared(QpState::ReadyToSend);
        let locked = Arc::new(Locked::new(shared.clone()));
        let post = |id| {
            let locked = locked.clone();
            thread::spawn(move || {
                locked.lock().qp.post_receive(ReceiveRequest::new(id, Slice::default())).unwrap();
            })
        };
        let posters = [post(1), post(2)];
        for poster in posters {
            poster.join().unwrap();
        }
        let mut taken = Vec::new();
        answer(&shared, |id| taken.push(id));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

/// Work that is posted while the core ends the queue pair is refused or flushed, and its completion has a
/// place.
#[test]
fn nothing_posted_at_the_end_is_forgotten() {
    ends_while_posting(QpState::ReadyToSend);
}

/// The same before the stream has begun, when no bell rings for what is received into.
#[test]
fn nothing_posted_before_the_stream_is_forgotten() {
    ends_while_posting(QpState::Idle);
}

fn ends_while_posting(state: QpState) {
    model(move || {
        let shared = shared(state);
        let poster = {
            let shared = shared.clone();
            thread::spawn(move || {
                let receive = shared.qp.post_receive(ReceiveRequest::new(2, Slice::default()));
                u32::from(shared.qp.post_send(send(1)).is_ok()) + u32::from(receive.is_ok())
            })
        };
        let flush = |shared: &Shared| {
            while let Some(request) = shared.qp.dequeue_send() {
                shared.qp.complete_send(completion(request.id(), Status::Flushed));
            }
            while let Some(request) = shared.qp.dequeue_receive() {
                shared.qp.complete_receive(completion(request.id, Status::Flushed));
            }
        };
        shared.qp.set_state(QpState::Error);
        flush(&shared);
        let posted = poster.join().unwrap();
        if shared.bells.dequeue().is_some() {
            flush(&shared);
        }
        assert_eq!(shared.completions.drain().count() as u32, posted);
    });
}

/// A core that flushes what is not signaled and one who posts what is want the last place: the core gets it
/// only while it is free, and what was accepted has its own.
#[test]
fn an_unsignaled_flush_uses_no_reserved_place() {
    model(|| {
        let completions = Arc::new(CompletionRing::new(1));
        let bells = Arc::new(Doorbells::new(1));
        let rings = CompletionRings::shared(completions.clone());
        let qp = Arc::new(SharedQp::new(QP, PD, QueueDepths { send: 2, receive: 1 }, rings, bells));
        qp.set_state(QpState::ReadyToSend);
        qp.post_send(SendRequest { signaled: false, ..send(1) }).unwrap();
        let poster = {
            let qp = qp.clone();
            thread::spawn(move || qp.post_send(send(2)).is_ok())
        };
        qp.recycle(qp.dequeue_send().unwrap());
        qp.report_unsignaled(completion(1, Status::Flushed));
        let accepted = poster.join().unwrap();
        if accepted {
            qp.recycle(qp.dequeue_send().unwrap());
            qp.complete_send(completion(2, Status::Flushed));
        }
        let reported: Vec<u64> = completions.drain().map(|completion| completion.id).collect();
        assert_eq!(reported, [if accepted { 2 } else { 1 }]);
        assert_eq!(completions.has_overflowed(), accepted);
        assert_eq!(completions.reserve(2), 1, "no place is lost");
    });
}

/// A core that begins to wait for a shared receive queue while a receive is posted to it finds the receive,
/// or is rung for.
#[test]
fn a_shared_receive_does_not_slip_past_who_waits() {
    model(|| {
        let bells = Arc::new(Doorbells::new(1));
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || queue.post(&[ReceiveRequest::new(1, Slice::default())]).unwrap())
        };
        let found = !queue.is_empty();
        if !found {
            queue.await_post(0, &bells.clone().into());
        }
        poster.join().unwrap();
        assert!(found || bells.clear_shared_receives(), "it waits for ever");
        assert!(!bells.clear_shared_receives(), "rung for once");
    });
}

/// The ranges of a receive that lie beside its slot are handed over with the slot, and written over only when
/// the core has read them.
#[test]
fn ranges_beside_a_slot_are_handed_over_with_it() {
    model(|| {
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
        let receive = |id: u64| {
            let ranges = [1, 2, 3, 4].map(|n| Slice { stag: STag(0), to: 10 * id + n, len: 1 });
            ReceiveRequest::new(id, SliceList::try_from(&ranges[..]).unwrap())
        };
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || [1, 2].map(|id| queue.post(&[receive(id)]).is_ok()))
        };
        let dequeue = || {
            let request = take_from(&queue)?;
            assert_eq!(request, receive(request.id));
            Some(request.id)
        };
        let mut dequeued: Vec<u64> = dequeue().into_iter().collect();
        let accepted = poster.join().unwrap();
        dequeued.extend(core::iter::from_fn(dequeue));
        let expected = [1, 2].into_iter().zip(accepted).filter_map(|(id, accepted)| accepted.then_some(id));
        assert_eq!(dequeued, expected.collect::<Vec<u64>>());
    });
}

/// Threads that post to a shared receive queue at the same time, and the core that dequeues from it: every
/// receive that was accepted is dequeued once, also from a slot that is used again.
#[test]
fn receives_of_two_posters_are_dequeued_once() {
    model(|| {
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
        let post = |id| {
            let queue = queue.clone();
            thread::spawn(move || queue.post(&[ReceiveRequest::new(id, Slice::default())]).is_ok())
        };
        let posters = [post(1), post(2)];
        let take = || take_from(&queue).map(|request| request.id);
        let mut taken: Vec<u64> = take().into_iter().collect();
        let accepted = posters.map(|poster| poster.join().unwrap());
        taken.extend(core::iter::from_fn(take));
        taken.sort_unstable();
        let expected = [1, 2].into_iter().zip(accepted).filter_map(|(id, accepted)| accepted.then_some(id));
        assert_eq!(taken, expected.collect::<Vec<u64>>());
        assert!(!taken.is_empty() && queue.is_empty());
    });
}

/// Dequeues the oldest receive of a shared receive queue, for a core.
fn take_from(queue: &SharedReceiveQueue) -> Option<ReceiveRequest> {
    let mut request = ReceiveRequest::new(0, SliceList::default());
    queue.dequeue(&mut request, || true).expect("there are entries").then_some(request)
}

/// What two queue pairs of two cores get of a shared receive queue at the same time. One completion queue of
/// one entry serves both, and `poster` runs beside them.
fn both_take(
    queue: &Arc<SharedReceiveQueue>,
    completions: &Arc<CompletionRing>,
    poster: impl FnOnce() + Send + 'static,
) -> [Result<Option<ReceiveRequest>, StreamError>; 2] {
    let cores = [(); 2].map(|()| Arc::new(Doorbells::new(1)));
    let qp = |core: u8| {
        let (depths, rings) =
            (QueueDepths { send: 1, receive: 1 }, CompletionRings::shared(completions.clone()));
        let doorbells = CoreDoorbells::from_iter(cores.iter().cloned());
        let qp = SharedQp::new(QP, PD, depths, rings, doorbells).with_shared_receives(queue.clone());
        qp.set_home(Home { core, slot: SLOT });
        qp
    };
    let (own, other) = (qp(0), qp(1));
    let other = thread::spawn(move || other.dequeue_shared_receive());
    let poster = thread::spawn(poster);
    let own = own.dequeue_shared_receive();
    poster.join().unwrap();
    [own, other.join().unwrap()]
}

/// Two cores want the last shared receive, and the completion queue has one entry: one core has both, and
/// the other finds no receive. It lacks no entry.
// Requirements: RDMAP-8.1.1-05
#[test]
fn the_last_entry_belongs_to_the_last_shared_receive() {
    model(|| {
        let completions = Arc::new(CompletionRing::new(1));
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
        let receive = ReceiveRequest::new(1, Slice::default());
        queue.post(&[receive]).unwrap();
        let mut taken = both_take(&queue, &completions, || {});
        taken.sort_by_key(|taken| *taken == Ok(Some(receive)));
        assert_eq!(taken, [Ok(None), Ok(Some(receive))]);
        assert_eq!((completions.reserve(1), completions.has_overflowed()), (0, false));
    });
}

/// With two receives and one entry, one core lacks the entry. Its receive is in the queue again, unless a
/// thread has filled the queue meanwhile: then it is lost, and the overflow reported.
// Requirements: RDMAP-8.1.1-05
#[test]
fn a_shared_receive_without_an_entry_is_put_back() {
    model(|| {
        let completions = Arc::new(CompletionRing::new(1));
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 2, None));
        let receive = |id| ReceiveRequest::new(id, Slice::default());
        queue.post(&[receive(1), receive(2)]).unwrap();
        let taken = {
            let posted = queue.clone();
            both_take(&queue, &completions, move || {
                // It may be full.
                let _ = posted.post(&[receive(3)]);
            })
        };
        let overflows = taken.iter().filter(|taken| **taken == Err(StreamError::CompletionQueueOverflow));
        let taken = taken.iter().filter_map(|taken| *taken.as_ref().ok()?);
        assert_eq!((overflows.count(), taken.clone().count()), (1, 1));
        let left = core::iter::from_fn(|| take_from(&queue));
        let mut ids: Vec<u64> = taken.chain(left).map(|request| request.id).collect();
        ids.sort_unstable();
        let lost = (1..=2).filter(|id| !ids.contains(id)).count();
        assert_eq!(lost, usize::from(completions.has_overflowed()), "{ids:?}");
        assert!(lost == 0 || ids.contains(&3), "there was room for it: {ids:?}");
    });
}

/// Two cores dequeue from a shared receive queue of one slot, which a thread posts to: each receive that was
/// accepted is dequeued by one of them, as it was posted.
#[test]
fn a_shared_receive_is_dequeued_by_one_core() {
    model(|| {
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
        let receive = |id: u64| {
            let ranges = [1, 2, 3].map(|n| Slice { stag: STag(0), to: 10 * id + n, len: 1 });
            ReceiveRequest::new(id, SliceList::try_from(&ranges[..]).unwrap())
        };
        queue.post(&[receive(1)]).unwrap();
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || queue.post(&[receive(2)]).is_ok())
        };
        let other = {
            let queue = queue.clone();
            thread::spawn(move || take_from(&queue))
        };
        let own = take_from(&queue);
        let accepted = poster.join().unwrap();
        let mut taken: Vec<ReceiveRequest> = own.into_iter().chain(other.join().unwrap()).collect();
        taken.extend(core::iter::from_fn(|| take_from(&queue)));
        taken.sort_unstable_by_key(|request| request.id);
        let posted = if accepted { vec![receive(1), receive(2)] } else { vec![receive(1)] };
        assert_eq!(taken, posted);
        assert_eq!((queue.dequeued(), queue.len()), (posted.len() as u64, 0));
    });
}

/// Two cores that find a shared receive queue empty wait while a receive is posted: a core that is not rung
/// for has found it, and one that wakes dequeues it.
#[test]
fn a_shared_receive_slips_past_no_core() {
    model(|| {
        let cores = [(); 2].map(|()| Arc::new(Doorbells::new(1)));
        let doorbells = CoreDoorbells::from_iter(cores.iter().cloned());
        let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || queue.post(&[ReceiveRequest::new(1, Slice::default())]).unwrap())
        };
        let serve = |core: u8, queue: &SharedReceiveQueue, doorbells: &CoreDoorbells| {
            let taken = take_from(queue);
            if taken.is_none() {
                queue.await_post(core, doorbells);
            }
            taken.is_some()
        };
        let other = {
            let (queue, doorbells) = (queue.clone(), doorbells.clone());
            thread::spawn(move || serve(1, &queue, &doorbells))
        };
        let has_taken = [serve(0, &queue, &doorbells), other.join().unwrap()];
        poster.join().unwrap();
        let is_rung = cores.each_ref().map(|core| core.clear_shared_receives());
        let has_woken = [0, 1].map(|core| is_rung[core] && take_from(&queue).is_some());
        let takers = has_taken.into_iter().chain(has_woken).filter(|taken| *taken).count();
        assert_eq!(takers, 1, "{has_taken:?}, {is_rung:?}: it lies in the queue, and cores wait");
    });
}

/// What is posted to a queue pair in error while the core flushes it is flushed too: by this flush, or at the
/// next bell.
#[test]
fn what_is_posted_in_error_is_flushed() {
    model(|| {
        let shared = shared(QpState::Error);
        let poster = {
            let shared = shared.clone();
            thread::spawn(move || shared.qp.post_send(send(1)).unwrap())
        };
        let flush = |shared: &Shared| {
            while let Some(request) = shared.qp.dequeue_send() {
                shared.qp.complete_send(completion(request.id(), Status::Flushed));
            }
        };
        if shared.bells.dequeue().is_some() {
            flush(&shared);
        }
        poster.join().unwrap();
        if shared.bells.dequeue().is_some() {
            flush(&shared);
        }
        assert_eq!(shared.completions.poll().map(|completion| completion.id), Some(1));
    });
}

#[derive(Default)]
struct Bell(AtomicU32);

impl Notify for Bell {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that arms a queue and then sleeps is woken by a completion that came meanwhile, or has seen it.
// Requirements: RDMAP-5.3-03
#[test]
fn no_completion_slips_past_arming() {
    model(|| {
        let bell = Arc::new(Bell::default());
        let ring = Arc::new(CompletionRing::with_notify(2, bell.clone()));
        assert_eq!(ring.reserve(1), 1);
        let core = {
            let core = core_of(&ring);
            thread::spawn(move || core.push(completion(1, Status::Success)))
        };
        let seen = ring.arm(Notice::Next);
        core.join().unwrap();
        assert!(seen || bell.0.load(Ordering::Relaxed) == 1, "asleep for ever");
        assert_eq!(ring.poll().map(|completion| completion.id), Some(1));
    });
}

/// Two cores fill a queue, each a ring of its own, while a thread polls it, arms it and sleeps: the thread
/// has seen each completion, or was notified after the last look.
#[test]
fn no_completion_of_two_cores_slips_past_arming() {
    model(|| {
        let bell = Arc::new(Bell::default());
        let ring = Arc::new(CompletionRing::with_notify(2, bell.clone()));
        assert_eq!(ring.reserve(2), 2);
        let bells = [(); 2].map(|()| Arc::new(Doorbells::new(1)));
        let cores = bells.each_ref().map(|bells| CoreEnd::new(ring.clone(), bells));
        let mut id = 0;
        let cores = cores.map(|core| {
            id += 1;
            let completion = completion(id, Status::Success);
            thread::spawn(move || core.push(completion))
        });
        let mut polled: Vec<u64> = ring.poll().into_iter().map(|completion| completion.id).collect();
        let is_there = ring.arm(Notice::Next);
        cores.into_iter().for_each(|core| core.join().unwrap());
        let rung = bell.0.load(Ordering::Relaxed);
        let left: Vec<u64> = ring.drain().map(|completion| completion.id).collect();
        assert!(is_there || left.is_empty() || rung == 1, "asleep for ever");
        assert!(rung <= 1, "armed once");
        polled.extend(left);
        polled.sort_unstable();
        assert_eq!(polled, [1, 2]);
    });
}

/// A core's thread that has nothing to do arms its waker, polls once more and sleeps: work that is posted
/// meanwhile is seen, or wakes it.
#[test]
fn no_doorbell_slips_past_sleep() {
    model(|| {
        let bell = Arc::new(Bell::default());
        let waker = Arc::new(Waker::new(bell.clone()));
        let bells = Arc::new(Doorbells::new(1).with_waker(waker.clone()));
        let completions = Arc::new(CompletionRing::new(1));
        let rings = CompletionRings::shared(completions);
        // The core has it too, for as long as it serves its doorbell.
        let qp = Arc::new(SharedQp::new(QP, PD, QueueDepths { send: 1, receive: 1 }, rings, bells.clone()));
        qp.set_home(HOME);
        qp.set_state(QpState::ReadyToSend);
        let poster = {
            let qp = qp.clone();
            thread::spawn(move || qp.post_send(send(1)).unwrap())
        };
        waker.arm();
        let seen = bells.dequeue().is_some();
        poster.join().unwrap();
        let rung = bell.0.load(Ordering::Relaxed);
        assert!(seen || rung == 1, "asleep for ever");
        assert!(rung <= 1);
    });
}

/// A receive that is posted while the stream of its queue pair begins at one of two cores is found there, or
/// rung for at the home that the queue pair got.
#[test]
fn a_receive_does_not_slip_past_the_beginning() {
    model(|| {
        let cores = [(); 2].map(|()| Arc::new(Doorbells::new(1)));
        let bells = CoreDoorbells::from_iter(cores.iter().cloned());
        let rings = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
        let qp = Arc::new(SharedQp::new(QP, PD, QueueDepths { send: 1, receive: 1 }, rings, bells));
        let poster = {
            let qp = qp.clone();
            thread::spawn(move || qp.post_receive(ReceiveRequest::new(1, Slice::default())).unwrap())
        };
        qp.set_home(Home { core: 1, slot: SLOT });
        qp.set_state(QpState::ReadyToSend);
        let found = qp.has_posted_receives();
        poster.join().unwrap();
        assert!(found || cores[1].dequeue() == Some(SLOT), "it lies in a queue that nobody looks at");
        assert!(cores[0].is_empty(), "the queue pair is not there");
    });
}

/// Two queue pairs of a later group ring while the core dequeues: what it finds, and what it finds when both
/// have rung, are both of them, each once.
#[test]
fn no_bell_of_a_later_group_is_lost() {
    model(|| {
        const SLOTS: [u32; 2] = [600, 601];
        let bells = Arc::new(Doorbells::new(1024));
        bells.use_queue_pair(SLOTS[1]);
        let ringers = SLOTS.map(|slot| {
            let bells = bells.clone();
            thread::spawn(move || bells.ring_queue_pair(slot))
        });
        let mut rung: Vec<u32> = core::iter::from_fn(|| bells.dequeue()).collect();
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        rung.extend(core::iter::from_fn(|| bells.dequeue()));
        for slot in SLOTS {
            assert_eq!(rung.iter().filter(|each| **each == slot).count(), 1, "{slot}");
        }
        assert!(bells.is_empty());
    });
}

/// The same for commands, which have no bell of their own; and of two that bring work at the same time one
/// notifies.
#[test]
fn no_command_slips_past_sleep() {
    model(|| {
        let bell = Arc::new(Bell::default());
        let waker = Arc::new(Waker::new(bell.clone()));
        let commands = Arc::new(ArrayQueue::new(1));
        let control = {
            let (waker, commands) = (waker.clone(), commands.clone());
            thread::spawn(move || {
                assert!(commands.push(1).is_ok());
                waker.wake();
            })
        };
        let other = {
            let waker = waker.clone();
            thread::spawn(move || waker.wake())
        };
        waker.arm();
        let seen = commands.pop().is_some();
        control.join().unwrap();
        other.join().unwrap();
        let rung = bell.0.load(Ordering::Relaxed);
        assert!(seen || rung == 1, "asleep for ever");
        assert!(rung <= 1);
    });
}

/// Of two that want the last place one has it, and the completion finds it free.
// Requirements: RDMAP-8.1.1-05
#[test]
fn the_last_place_is_given_once() {
    model(|| {
        let ring = Arc::new(CompletionRing::new(1));
        let other = {
            let ring = ring.clone();
            thread::spawn(move || ring.reserve(1))
        };
        let granted = ring.reserve(1) + other.join().unwrap();
        assert_eq!(granted, 1);
        core_of(&ring).push(completion(1, Status::Success));
        assert!(ring.poll().is_some());
        assert_eq!(ring.reserve(2), 1);
    });
}

/// Two that post to one queue each find the entry free whose completion was polled, whatever the other
/// reserves meanwhile.
// Requirements: RDMAP-8.1.1-05
#[test]
fn who_posts_for_what_was_polled_finds_an_entry() {
    model(|| {
        let ring = Arc::new(CompletionRing::new(2));
        assert_eq!(ring.reserve(2), 2);
        let core = core_of(&ring);
        core.push(completion(1, Status::Success));
        core.push(completion(2, Status::Success));
        let polled = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let poster = |index: usize| {
            let (ring, polled) = (ring.clone(), polled.clone());
            move || {
                if polled[index].load(Ordering::Acquire) == 1 {
                    assert_eq!(ring.reserve(1), 1);
                }
            }
        };
        let posters = [0, 1].map(|index| thread::spawn(poster(index)));
        for polled in polled.iter() {
            assert!(ring.poll().is_some());
            polled.store(1, Ordering::Release);
        }
        for poster in posters {
            poster.join().unwrap();
        }
    });
}

/// A list that cannot be posted whole, because its queue or the completion queue has no room for all, keeps
/// no entry from a core that needs one for a shared receive of another queue pair.
// Requirements: RDMAP-8.1.1-05
#[test]
fn a_list_that_is_refused_whole_keeps_no_entry() {
    for (depth, error) in [(2, PostError::QueueFull), (4, PostError::CompletionQueueFull)] {
        model(move || {
            let posted = deep(depth, QpState::ReadyToSend);
            let queue = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 1, None));
            queue.post(&[ReceiveRequest::new(1, Slice::default())]).unwrap();
            let (depths, rings) =
                (QueueDepths { send: 1, receive: 1 }, CompletionRings::shared(posted.completions.clone()));
            let other = SharedQp::new(QP, PD, depths, rings, posted.bells.clone());
            let other = other.with_shared_receives(queue);
            let poster = thread::spawn(move || posted.qp.post_all(&[send(1), send(2), send(3)]));
            assert!(matches!(other.dequeue_shared_receive(), Ok(Some(_))));
            assert_eq!(poster.join().unwrap(), Err(error));
        });
    }
}

/// Of two that post in turn one has the last place, and who is refused has not kept it from the next.
#[test]
fn the_depth_is_kept_by_two_posters() {
    model(|| {
        let shared = deep(1, QpState::ReadyToSend);
        let locked = Arc::new(Locked::new(shared.clone()));
        let other = {
            let locked = locked.clone();
            thread::spawn(move || locked.lock().qp.post_send(send(1)).is_ok())
        };
        let posted = locked.lock().qp.post_send(send(2)).is_ok();
        assert!(posted != other.join().unwrap(), "one of the two");
        shared.qp.recycle(shared.qp.dequeue_send().unwrap());
        assert!(shared.qp.dequeue_send().is_none());
        shared.qp.complete_send(completion(1, Status::Success));
        shared.qp.post_send(send(3)).unwrap();
    });
}

/// A thread that posts when a request has just been completed finds room for another, and the place
/// that the request lay in.
#[test]
fn a_request_lies_where_the_last_one_lay() {
    model(|| {
        let shared = deep(1, QpState::ReadyToSend);
        let inline = |id| SendRequest::new(id, Operation::SEND, InlineData::try_from(&[1][..]).unwrap());
        let place = |posted: &Wqe| core::ptr::from_ref(posted.full().unwrap()) as usize;
        shared.qp.post_send(inline(1)).unwrap();
        let poster = {
            let shared = shared.clone();
            thread::spawn(move || shared.qp.post_send(inline(2)).is_ok())
        };
        let first = shared.qp.dequeue_send().unwrap();
        assert_eq!(first.id(), 1);
        let before = place(&first);
        shared.qp.recycle(first);
        shared.qp.complete_send(completion(1, Status::Success));
        let second = poster.join().unwrap().then(|| shared.qp.dequeue_send().unwrap());
        assert!(second.is_none_or(|posted| posted.id() == 2 && place(&posted) == before));
    });
}

/// A thread posts to a queue of one slot while the core works on it: each request is read as it was posted,
/// before another is written over it.
#[test]
fn no_request_is_written_over_before_it_is_read() {
    model(|| {
        let shared = deep(1, QpState::ReadyToSend);
        let poster = {
            let shared = shared.clone();
            thread::spawn(move || (1..=3).filter(|id| shared.qp.post_send(send(*id)).is_ok()).collect())
        };
        works_on(&shared, poster);
    });
}

/// The same with two threads that post in turn, by a lock.
#[test]
fn no_request_of_two_threads_is_written_over_before_it_is_read() {
    model(|| {
        let shared = deep(1, QpState::ReadyToSend);
        let locked = Arc::new(Locked::new(shared.clone()));
        let first = {
            let locked = locked.clone();
            thread::spawn(move || locked.lock().qp.post_send(send(1)).is_ok())
        };
        let second = thread::spawn(move || {
            let own = locked.lock().qp.post_send(send(2)).is_ok();
            let others = first.join().unwrap();
            [(others, 1), (own, 2)].into_iter().filter(|(posted, _)| *posted).map(|(_, id)| id).collect()
        });
        works_on(&shared, second);
    });
}

/// A core that dequeues a request and completes it while another thread posts, and then the rest. It dequeues
/// what was posted, each once.
fn works_on(shared: &Shared, poster: thread::JoinHandle<Vec<u64>>) {
    let mut taken = Vec::new();
    let mut take = || {
        while let Some(request) = shared.qp.dequeue_send() {
            taken.push(request.id());
            shared.qp.complete_send(completion(request.id(), Status::Success));
        }
    };
    take();
    let posted = poster.join().unwrap();
    take();
    taken.sort_unstable();
    assert!(!posted.is_empty());
    assert_eq!(taken, posted);
}

/// Two threads that poll in turn, by a lock, while a core completes work have each completion once, complete,
/// in order.
#[test]
fn a_completion_is_polled_once() {
    model(|| {
        let ring = Arc::new(CompletionRing::new(2));
        assert_eq!(ring.reserve(2), 2);
        let core = core_of(&ring);
        let core = thread::spawn(move || {
            let mut both = core.batch(2);
            both.push(completion(1, Status::Success));
            both.push(completion(2, Status::Flushed));
        });
        let locked = Arc::new(Locked::new(ring.clone()));
        let other = {
            let locked = locked.clone();
            thread::spawn(move || locked.lock().poll())
        };
        let own = locked.lock().poll();
        core.join().unwrap();
        let mut polled: Vec<Completion> = own.into_iter().chain(other.join().unwrap()).collect();
        polled.extend(ring.drain());
        polled.sort_unstable_by_key(|completion| completion.id);
        assert_eq!(polled, [completion(1, Status::Success), completion(2, Status::Flushed)]);
        assert_eq!(ring.reserve(3), 2, "no place is lost");
    });
}

/// A core completes work in an entry that another thread has just freed: it is written to after it was read.
#[test]
fn an_entry_is_read_before_it_is_used_again() {
    model(|| {
        let ring = Arc::new(CompletionRing::new(1));
        let core = core_of(&ring);
        assert_eq!(ring.reserve(1), 1);
        core.push(completion(1, Status::Success));
        let poller = {
            let ring = ring.clone();
            thread::spawn(move || ring.poll().map(|completion| completion.id))
        };
        let again = ring.reserve(1) == 1;
        if again {
            core.push(completion(2, Status::Success));
        }
        assert_eq!(poller.join().unwrap(), Some(1));
        assert_eq!(ring.poll().map(|completion| completion.id), again.then_some(2));
    });
}

/// Two threads poll in turn, by a lock, and an entry is used again while the other waits: what comes out is
/// what was completed, each once, with its status.
#[test]
fn what_two_threads_poll_is_each_completion_once() {
    model(|| {
        let ring = Arc::new(CompletionRing::new(2));
        let core = core_of(&ring);
        assert_eq!(ring.reserve(2), 2);
        core.push(completion(1, Status::LocalLength));
        core.push(completion(2, Status::Success));
        let locked = Arc::new(Locked::new(ring.clone()));
        let poll = |locked: &Locked<Arc<CompletionRing>>| {
            locked.lock().poll().map(|completion| (completion.id, completion.status))
        };
        let poller = {
            let locked = locked.clone();
            thread::spawn(move || poll(&locked))
        };
        let here = poll(&locked);
        if ring.reserve(1) == 1 {
            core.push(completion(3, Status::Flushed));
        }
        let there = poller.join().unwrap();
        let mut seen: Vec<_> = [here, there].into_iter().flatten().collect();
        seen.extend(ring.drain().map(|completion| (completion.id, completion.status)));
        seen.sort_by_key(|(id, _)| *id);
        assert_eq!(seen, [(1, Status::LocalLength), (2, Status::Success), (3, Status::Flushed)]);
    });
}

/// A thread that arms a queue for solicited completions misses none of those that two cores add.
#[test]
fn a_completion_after_one_that_is_being_written_is_not_missed() {
    model(|| {
        let bell = Arc::new(Bell::default());
        let ring = Arc::new(CompletionRing::with_notify(2, bell.clone()));
        assert_eq!(ring.reserve(2), 2);
        let plain = {
            let core = core_of(&ring);
            thread::spawn(move || core.push(completion(1, Status::Success)))
        };
        let solicited = {
            let core = core_of(&ring);
            thread::spawn(move || {
                core.push(Completion { solicited: true, ..completion(2, Status::Success) });
            })
        };
        let is_there = ring.arm(Notice::Solicited);
        plain.join().unwrap();
        solicited.join().unwrap();
        let left = ring.drain().filter(|completion| completion.solicited).count();
        // What is left of solicited ones was announced after the arming, or the thread polls again.
        assert!(is_there || left == 0 || bell.0.load(Ordering::Relaxed) > 0, "asleep for ever");
    });
}

const STAG: STag = STag::new(1, 1);

/// What the handshake of a deregistration is made of: the table, the rings, and memory that tells of two that
/// touch it at the same time.
struct Handshake {
    commands: ArrayQueue<Command>,
    events: ArrayQueue<Event>,
    memory: UnsafeCell<u8>,
}

/// A core that may write to the memory in each step, and accepts a command in between.
fn run_core(shared: &Handshake, mut stags: StagTable, reads: bool) {
    let who = Accessor { pd: PD, stream: 0 };
    if reads {
        stags.retain(STAG);
    }
    for step in 0..3 {
        if let Some(Command::Deregister { stag }) = shared.commands.pop() {
            let result = stags.remove(stag);
            assert!(shared.events.push(Event::Deregistered { stag, result }).is_ok());
        }
        if stags.check(STAG, who, Access::REMOTE_WRITE, 0, 1).is_ok() {
            shared.memory.with_mut(|_| ());
        }
        if step == 1 && reads {
            stags.release(STAG);
        }
    }
}

fn handshake(reads: bool) {
    model(move || {
        let shared = Arc::new(Handshake {
            commands: ArrayQueue::new(1),
            events: ArrayQueue::new(1),
            memory: UnsafeCell::new(0),
        });
        let mut stags = StagTable::with_slots(2);
        let region = Region::heap(1).unwrap();
        stags.insert(STAG, Grant::new(region, PD, 0, Access::REMOTE_WRITE)).unwrap();
        let core = {
            let shared = shared.clone();
            thread::spawn(move || run_core(&shared, stags, reads))
        };
        assert!(shared.commands.push(Command::Deregister { stag: STAG }).is_ok());
        match shared.events.pop() {
            // The owner may do with it what they like.
            Some(Event::Deregistered { result: Ok(()), .. }) => shared.memory.with_mut(|_| ()),
            Some(Event::Deregistered { result: Err(error), .. }) => {
                assert!(reads && error == RemoveError::InUse, "{error}");
            }
            _ => {}
        }
        core.join().unwrap();
    });
}

/// Memory belongs to its owner only from the moment that the answer is there, not only by the clock: all that
/// the core wrote comes before it.
// Requirements: DDP-8.3.1-07
#[test]
fn deregistered_memory_is_its_owners() {
    handshake(false);
}

/// The same while a send still reads from it: the answer says so.
#[test]
fn memory_that_is_read_from_is_not_given_back() {
    handshake(true);
}
