//! Tests of shared receive queues: buffers for the messages of many peers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{End, FAR, PATIENCE, PORT, Pair};
use warpline::{
    Access, AsyncEvent, BadRequest, CompletionQueue, ConnectConfig, CreateError, ListenConfig, MemoryRegion,
    PostError, ProtectionDomain, QpConfig, QueuePair, QueuePairControl, RnrPolicy, SharedReceiveQueue,
    Status, StreamError,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};

const SLOT: usize = 2048;

/// A shared receive queue at the far device, and the resources that its queue pairs share.
struct Sharing {
    domain: ProtectionDomain,
    queue: SharedReceiveQueue,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Sharing {
    fn new(pair: &Pair, depth: usize, completions: usize) -> Self {
        let domain = pair.far.protection_domain();
        Self {
            queue: domain.shared_receive_queue(depth),
            completions: CompletionQueue::new(completions),
            memory: domain.allocate(256 * SLOT, Access::LOCAL_WRITE).unwrap(),
            domain,
        }
    }

    /// Posts the slots named.
    fn post(&self, slots: core::ops::Range<u64>) {
        for slot in slots {
            self.queue.post(slot, self.memory.slice(slot as usize * SLOT, SLOT as u32)).unwrap();
        }
    }

    /// A queue pair that shares the queue, connected to an end at the near device.
    fn connect(&self, pair: &Pair, config: &QpConfig, connect: &ConnectConfig) -> (End, QueuePair) {
        let listener =
            pair.far.listen(PORT, &ListenConfig { markers: true, ..ListenConfig::default() }).unwrap();
        let sends = CompletionQueue::new(256);
        let qp = self.domain.queue_pair_sharing(&self.queue, config, &sends, &self.completions).unwrap();
        let near = End::new(&pair.near);
        thread::scope(|scope| {
            let initiator: &QueuePairControl = &near.qp;
            let connecting = scope.spawn(move || initiator.connect((FAR, PORT).into(), connect));
            listener.accept(PATIENCE).unwrap().accept(&qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        (near, qp)
    }
}

/// Posts a Send that the peer refuses with `told`. It may be acknowledged before that.
fn send_and_be_told(end: &End, told: StreamError) {
    end.qp.post_send(99, end.memory.slice(0, 16)).unwrap();
    crate::common::eventually("the peer ends the stream", || end.qp.error().is_some());
    assert_eq!(end.qp.error(), Some(told));
}

/// Queue pairs take buffers as messages arrive, under loss and reordering too. Every message has a buffer of
/// its own, the completion names its queue pair, and each queue pair counts the buffers that it has used.
// Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
#[test]
fn many_peers_share_buffers() {
    const PEERS: usize = 6;
    const MESSAGES: usize = 150;
    let pair = Pair::new();
    let sharing = Sharing::new(&pair, 64, 512);
    sharing.post(0..64);
    let config = QpConfig::default();
    let peers: Vec<_> =
        (0..PEERS).map(|_| sharing.connect(&pair, &config, &ConnectConfig::default())).collect();
    let impairments = Impairments { loss: 0.01, reorder: 0.05, duplicate: 0.01, ..Impairments::default() };
    pair.network.set_impairments(LinkEnd::A, impairments);
    let place: HashMap<_, _> = peers.iter().enumerate().map(|(peer, (_, qp))| (qp.number(), peer)).collect();
    let taken = [const { AtomicUsize::new(0) }; PEERS];
    let (nears, qps): (Vec<End>, Vec<QueuePair>) = peers.into_iter().unzip();
    thread::scope(|scope| {
        let mut senders = Vec::new();
        for (peer, near) in nears.into_iter().enumerate() {
            let taken = &taken[peer];
            senders.push(scope.spawn(move || {
                for message in 0..MESSAGES {
                    // The peers stay within their allowance: no more than eight messages in flight each.
                    while message >= taken.load(Ordering::Acquire) + 8 {
                        thread::yield_now();
                    }
                    let octets = 16 + (peer * 311 + message * 97) % (SLOT - 16);
                    // A message that is taken has been sent: its place is free.
                    let slot = message % 8 * SLOT;
                    let text = [peer as u8, message as u8, 0xa5].repeat(octets).into_iter().take(octets);
                    assert!(near.memory.write(slot, &text.collect::<Vec<_>>()));
                    near.qp.post_send(message as u64, near.memory.slice(slot, octets as u32)).unwrap();
                }
                // Its connection stays until all has arrived.
                near
            }));
        }
        let mut seen = [0_usize; PEERS];
        for _ in 0..PEERS * MESSAGES {
            let completion = sharing.completions.wait(PATIENCE).expect("every message arrives");
            assert_eq!(completion.status, Status::Success);
            let peer = place[&completion.qp];
            let message = seen[peer];
            let octets = 16 + (peer * 311 + message * 97) % (SLOT - 16);
            assert_eq!(completion.byte_len as usize, octets, "in the order of each peer");
            let text = sharing.memory.to_vec(completion.id as usize * SLOT, octets).unwrap();
            let expected = [peer as u8, message as u8, 0xa5];
            assert!(text.chunks(3).all(|part| part == &expected[..part.len()]), "peer {peer}, {message}");
            seen[peer] += 1;
            sharing.post(completion.id..completion.id + 1);
            taken[peer].store(seen[peer], Ordering::Release);
        }
        assert_eq!(seen, [MESSAGES; PEERS]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
    assert!(qps.iter().all(|qp| qp.receives_consumed() == MESSAGES as u64));
    assert_eq!(sharing.queue.len(), 64, "all have come back");
}

/// An empty queue ends the stream of the peer that sends more, and no other; the limit event arrives in time.
#[test]
fn an_empty_queue_ends_one_stream() {
    let pair = Pair::new();
    let sharing = Sharing::new(&pair, 8, 64);
    let config = QpConfig::default();
    let (greedy, greedy_qp) = sharing.connect(&pair, &config, &ConnectConfig::default());
    let (modest, modest_qp) = sharing.connect(&pair, &config, &ConnectConfig::default());
    let refused = greedy_qp.post_receive(1, sharing.memory.slice(0, 8));
    assert_eq!(refused, Err(PostError::SharedReceives));
    sharing.post(0..3);
    sharing.queue.arm_limit(2);
    let send = |end: &End, id| {
        end.qp.post_send(id, end.memory.slice(0, 16)).unwrap();
        end.completion().status
    };
    assert_eq!(send(&greedy, 1), Status::Success);
    assert_eq!(send(&greedy, 2), Status::Success);
    let greedy_number = greedy_qp.number();
    let expected = [
        AsyncEvent::CommunicationEstablished { qp: greedy_number },
        AsyncEvent::SharedReceiveLimit { srq: sharing.queue.number() },
    ];
    let mut events = [pair.far.wait_event(PATIENCE).unwrap(), pair.far.wait_event(PATIENCE).unwrap()];
    if events[0] != expected[0] {
        events.swap(0, 1);
    }
    assert_eq!(events, expected);
    assert_eq!(send(&greedy, 3), Status::Success);
    let told = StreamError::Terminated { layer: 1, error_type: 2, code: 2 };
    send_and_be_told(&greedy, told);
    let error = StreamError::Ddp(DdpError::NoBuffer);
    assert_eq!(pair.far.wait_event(PATIENCE), Some(AsyncEvent::QpRequestError { qp: greedy_number, error }));
    assert_eq!(pair.far.wait_event(PATIENCE), Some(AsyncEvent::LastReceiveReached { qp: greedy_number }));
    assert_eq!((greedy_qp.receives_consumed(), modest_qp.receives_consumed()), (3, 0));
    // The other one has its buffer as soon as there is one again.
    sharing.post(3..4);
    assert_eq!(send(&modest, 5), Status::Success);
    let mut ids = Vec::new();
    while ids.len() < 4 {
        ids.push(sharing.completions.wait(PATIENCE).unwrap().id);
    }
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(modest_qp.receives_consumed(), 1);
}

/// A full completion queue ends the stream that needed a place. Nothing is lost, the buffer stays with the
/// queue, and the other stream continues.
// Requirements: RDMAP-8.1.1-05
#[test]
fn an_overflow_ends_one_stream() {
    let pair = Pair::new();
    let sharing = Sharing::new(&pair, 8, 2);
    sharing.post(0..4);
    let config = QpConfig::default();
    let (first, first_qp) = sharing.connect(&pair, &config, &ConnectConfig::default());
    let (second, second_qp) = sharing.connect(&pair, &config, &ConnectConfig::default());
    let send = |end: &End, id| {
        end.qp.post_send(id, end.memory.slice(0, 16)).unwrap();
        end.completion().status
    };
    assert_eq!(send(&first, 1), Status::Success);
    assert_eq!(send(&second, 2), Status::Success);
    assert!(!sharing.completions.has_overflowed());
    // Two completions wait, and there is no third place.
    let told = StreamError::Terminated { layer: 0, error_type: 2, code: 7 };
    send_and_be_told(&first, told);
    assert!(sharing.completions.has_overflowed());
    assert_eq!(first_qp.error(), Some(StreamError::CompletionQueueOverflow));
    assert_eq!((first_qp.receives_consumed(), sharing.queue.len()), (1, 2));
    let (cq, qp) = (sharing.completions.number(), first_qp.number());
    let error = StreamError::CompletionQueueOverflow;
    let expected = [
        AsyncEvent::CommunicationEstablished { qp },
        AsyncEvent::CommunicationEstablished { qp: second_qp.number() },
        AsyncEvent::CompletionQueueOverflow { cq },
        AsyncEvent::QpFatal { qp, error },
        AsyncEvent::LastReceiveReached { qp },
    ];
    assert_eq!(expected.map(|_| pair.far.wait_event(PATIENCE).unwrap()), expected);
    let polled = [(); 2].map(|()| sharing.completions.poll().unwrap());
    assert_eq!(polled.map(|completion| (completion.id, completion.qp)), [(0, qp), (1, second_qp.number())]);
    assert_eq!(send(&second, 4), Status::Success);
    assert_eq!(sharing.completions.wait(PATIENCE).unwrap().id, 2);
}

/// Peers whose messages wait for receives of one queue: each posted receive serves one message, each peer's
/// messages arrive in order, and every message is served while receives are posted.
#[test]
fn many_peers_wait_for_shared_receives() {
    const PEERS: usize = 5;
    const MESSAGES: u64 = 40;
    let pair = Pair::new();
    let sharing = Sharing::new(&pair, 4, 512);
    let rnr = RnrPolicy::Wait { timeout: PATIENCE };
    let config = QpConfig { rnr, ..QpConfig::default() };
    let peers: Vec<_> =
        (0..PEERS).map(|_| sharing.connect(&pair, &config, &ConnectConfig::default())).collect();
    for (peer, (near, _)) in peers.iter().enumerate() {
        near.memory.fill(peer as u8);
        for id in 0..MESSAGES {
            near.qp.post_send(id, near.memory.slice(0, 1 + id as u32)).unwrap();
        }
    }
    let waits = || pair.far.statistics().unwrap().receives_awaited;
    crate::common::eventually("all wait", || waits() >= PEERS as u64);
    assert_eq!(sharing.completions.poll(), None);
    let mut next = HashMap::new();
    for slot in 0..PEERS as u64 * MESSAGES {
        let place = slot as usize % 256 * SLOT;
        sharing.queue.post(slot, sharing.memory.slice(place, SLOT as u32)).unwrap();
        let done = sharing.completions.wait(PATIENCE).expect("a message");
        assert_eq!((done.id, done.status), (slot, Status::Success));
        let peer = peers.iter().position(|(_, qp)| qp.number() == done.qp).unwrap();
        let octets = next.entry(peer).or_insert(0);
        *octets += 1;
        assert_eq!(done.byte_len, *octets, "in order");
        assert_eq!(
            sharing.memory.to_vec(place, done.byte_len as usize).unwrap(),
            vec![peer as u8; done.byte_len as usize]
        );
    }
    assert!(peers.iter().all(|(near, qp)| near.qp.error().is_none() && qp.error().is_none()));
    assert!(sharing.queue.is_empty());
}

/// Receives that a queue pair has taken and not used are returned when it is destroyed. It never holds more
/// than its configured share.
#[test]
fn what_a_queue_pair_holds_comes_back() {
    let pair = Pair::new();
    let sharing = Sharing::new(&pair, 64, 512);
    sharing.post(0..64);
    let config = QpConfig { receive_depth: 3, ..QpConfig::default() };
    let markers = ConnectConfig { markers: true, ..ConnectConfig::default() };
    let (near, qp) = sharing.connect(&pair, &config, &markers);
    near.qp.post_send(1, near.memory.slice(0, 16)).unwrap();
    assert_eq!(near.completion().status, Status::Success);
    // A part of a message arrives, and octets after it; then the peer vanishes.
    let impairments = Impairments { loss: 0.5, ..Impairments::default() };
    pair.network.set_impairments(LinkEnd::A, impairments);
    for id in 2..60 {
        near.qp.post_send(id, near.memory.slice(0, 2000)).unwrap();
    }
    crate::common::eventually("some have arrived", || qp.receives_consumed() >= 6);
    let held = qp.receives_consumed() as usize;
    pair.network.set_impairments(LinkEnd::A, Impairments::default());
    near.qp.abort();
    assert!(held <= 64);
    crate::common::eventually("it is over", || qp.error().is_some());
    crate::common::eventually("everything comes back", || {
        sharing.completions.drain().count();
        pair.far.poll_event() == Some(AsyncEvent::LastReceiveReached { qp: qp.number() })
    });
    let taken = qp.receives_consumed() as usize;
    assert_eq!(sharing.queue.len(), 64 - taken, "what was not taken is there");
}

#[test]
fn shared_queues_have_a_domain_and_a_depth() {
    let pair = Pair::new();
    let sharing = Sharing::new(&pair, 2, 4);
    let completions = CompletionQueue::new(4);
    let config = QpConfig::default();
    for domain in [pair.far.protection_domain(), pair.near.protection_domain()] {
        let refused = domain.queue_pair_sharing(&sharing.queue, &config, &completions, &completions);
        assert_eq!(refused.unwrap_err(), CreateError::OtherDomain);
    }
    sharing.post(0..2);
    let slice = sharing.memory.slice(0, 8);
    assert_eq!(sharing.queue.post(3, slice), Err(PostError::QueueFull));
    let other = sharing.domain.shared_receive_queue(3);
    let request = warpline::ReceiveRequest::new(1, slice);
    let bad = BadRequest { posted: 3, error: PostError::QueueFull };
    assert_eq!(other.post_many(&[request; 5]), Err(bad));
    assert_ne!(other.number(), sharing.queue.number());
}
