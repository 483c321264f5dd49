//! Tests of the connection manager in rdma_cm's terms: one thread, one channel, many ids.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::common::raw::RawPeer;
use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, config, eventually, eventually_unused, link};
use warpline::cm::{CmError, Event, EventChannel, EventKind, Id, IdNumber};
use warpline::{
    AsyncEvent, CloseError, CloseReason, CompletionQueue, ConnectConfig, ConnectError, ConnectionRequest,
    Device, ListenConfig, ListenError, Listener, PollThread, QpConfig, QpState, QueuePair, ReadDepths,
    ReadsWanted, Status, StreamError,
};

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn at(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::from((address, port))
}

fn next(channel: &EventChannel) -> Event {
    channel.wait(PATIENCE).expect("an event")
}

/// The next event, which must be `expected` of `id`.
macro_rules! expect {
    ($channel:expr, $id:expr, $expected:pat $(=> $value:expr)?) => {{
        let event = next($channel);
        assert_eq!(event.id, $id, "{event:?}");
        match event.kind {
            $expected => { $($value)? }
            other => panic!("{other:?}"),
        }
    }};
}

/// An id that listens at the far device.
fn listening(channel: &EventChannel) -> Id {
    let id = channel.create_id();
    id.bind_addr(at(FAR, PORT)).unwrap();
    id.listen(&ListenConfig::default()).unwrap();
    id
}

/// An id that may connect to `remote`.
fn resolved(channel: &EventChannel, remote: SocketAddr) -> Id {
    let id = channel.create_id();
    id.resolve_addr(remote).unwrap();
    expect!(channel, id.number(), EventKind::AddressResolved);
    id.resolve_route().unwrap();
    expect!(channel, id.number(), EventKind::RouteResolved);
    id
}

fn with(private_data: &[u8]) -> ConnectConfig {
    ConnectConfig { private_data: private_data.into(), ..ConnectConfig::default() }
}

/// A connection from the first event to the last, Private Data and depths both ways.
#[test]
fn a_connection_in_events() {
    let pair = Pair::new();
    let near = EventChannel::new([pair.near.clone()]).unwrap();
    let far = EventChannel::new([pair.far.clone()]).unwrap();
    let listener = listening(&far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));

    let id = resolved(&near, at(FAR, PORT));
    assert_eq!(id.device().unwrap().config().addresses, pair.near.config().addresses);
    id.connect(&near_end.qp, &with(b"let me in")).unwrap();
    let asked = expect!(&far, listener.number(), EventKind::ConnectRequest(asked) => asked);
    assert_eq!(asked.private_data(), b"let me in");
    assert_eq!(asked.remote().unwrap().ip(), NEAR);
    assert!(asked.peer_depths().is_some());
    let depths = ReadDepths { ird: 3, ord: 5 };
    let reads = ReadsWanted { depths: Some(depths), ..ReadsWanted::default() };
    asked.accept(&far_end.qp, reads, b"come in").unwrap();
    expect!(&far, asked.number(), EventKind::Established { depths: agreed, .. } => {
        assert!(agreed.ird <= 3 && agreed.ord <= 5, "{agreed:?}");
    });
    expect!(&near, id.number(), EventKind::Established { private_data, depths: agreed } => {
        assert_eq!(&private_data[..], b"come in");
        assert_eq!(agreed.ord, 3, "the peer takes no more Reads at a time");
    });
    assert!(near.poll().is_none() && far.poll().is_none());

    near_end.memory.fill(9);
    near_end.write(1, &far_end, 5000);
    assert_eq!(near_end.completion().status, Status::Success);
    assert_eq!(far_end.memory.to_vec(0, 5000).unwrap(), [9; 5000]);

    id.disconnect().unwrap();
    for (channel, id) in [(&far, &asked), (&near, &id)] {
        expect!(channel, id.number(), EventKind::Disconnected);
        expect!(channel, id.number(), EventKind::TimewaitExit);
        id.disconnect().unwrap();
    }
    assert!(near.poll().is_none() && far.poll().is_none());
    drop((near_end, far_end, listener));
    eventually_unused(&pair.far);
    eventually_unused(&pair.near);
}

/// The peer's reason arrives; the id that was asked and dropped without an answer is a rejection too.
// Requirements: MPA-7.1.2-18
#[test]
fn rejections_arrive() {
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone(), pair.far.clone()]).unwrap();
    let listener = listening(&channel);
    for answer in [Some(&b"not today"[..]), None] {
        let end = End::new(&pair.near);
        let id = resolved(&channel, at(FAR, PORT));
        id.connect(&end.qp, &with(b"")).unwrap();
        let asked = expect!(&channel, listener.number(), EventKind::ConnectRequest(asked) => asked);
        match answer {
            Some(words) => {
                asked.reject(words).unwrap();
                assert!(matches!(asked.reject(words), Err(CmError::WrongState("over"))));
            }
            None => drop(asked),
        }
        expect!(&channel, id.number(), EventKind::Rejected { private_data, peer } => {
            assert_eq!(&private_data[..], answer.unwrap_or_default());
            assert!(peer.is_some());
        });
    }
    // No listener is at this port.
    let end = End::new(&pair.near);
    let id = resolved(&channel, at(FAR, PORT + 1));
    id.connect(&end.qp, &with(b"")).unwrap();
    expect!(&channel, id.number(), EventKind::Rejected { peer: None, .. });
    // The queue pair has had no connection by that: another id may try with it.
    let id = resolved(&channel, at(FAR, PORT));
    id.connect(&end.qp, &with(b"")).unwrap();
    let asked = expect!(&channel, listener.number(), EventKind::ConnectRequest(asked) => asked);
    let far_end = End::new(&pair.far);
    asked.accept(&far_end.qp, ReadsWanted::default(), b"").unwrap();
    let numbers = [next(&channel), next(&channel)].map(|event| event.id);
    assert!(numbers.contains(&id.number()) && numbers.contains(&asked.number()));
}

#[test]
fn peers_that_are_not_there() {
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone()]).unwrap();
    // No device has a network or a route there.
    let id = channel.create_id();
    id.resolve_addr(at(Ipv4Addr::new(198, 19, 0, 1), PORT)).unwrap();
    expect!(&channel, id.number(), EventKind::AddressError);
    assert!(id.device().is_none());
    // After that it may try another address; no host has this one.
    id.resolve_addr(at(Ipv4Addr::new(198, 18, 0, 77), PORT)).unwrap();
    expect!(&channel, id.number(), EventKind::AddressResolved);
    id.resolve_route().unwrap();
    expect!(&channel, id.number(), EventKind::RouteResolved);
    let end = End::new(&pair.near);
    let config = ConnectConfig { timeout: Duration::from_millis(200), ..ConnectConfig::default() };
    id.connect(&end.qp, &config).unwrap();
    expect!(
        &channel,
        id.number(),
        EventKind::Unreachable(ConnectError::TimedOut | ConnectError::Unreachable)
    );
}

/// A queue pair that is dropped, or reset, while its connection is opened takes the connection with it: the
/// peer's time to answer, here an hour, is not waited for.
#[test]
fn an_attempt_ends_with_its_queue_pair() {
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone()]).unwrap();
    let config = ConnectConfig { timeout: Duration::from_hours(1), ..ConnectConfig::default() };
    for drops in [true, false] {
        // No host has this address.
        let id = resolved(&channel, at(Ipv4Addr::new(198, 18, 0, 77), PORT));
        let end = End::new(&pair.near);
        id.connect(&end.qp, &config).unwrap();
        eventually("it is tried", || pair.near.usage().unwrap().connections == 1);
        let kept = if drops {
            drop(end);
            None
        } else {
            end.qp.abort();
            Some(end)
        };
        let error = expect!(&channel, id.number(), EventKind::ConnectError(error) => error);
        assert!(matches!(error, ConnectError::Closed(CloseReason::Aborted)), "{error}");
        eventually("it is gone", || pair.near.usage().unwrap().connections == 0);
        drop(kept);
    }
    eventually_unused(&pair.near);
}

/// A port is known before the id listens. One that another id listens at is refused, and the id may be bound
/// to another port.
#[test]
fn a_port_is_found_before_the_id_listens() {
    let pair = Pair::new();
    let far = EventChannel::new([pair.far.clone()]).unwrap();
    let id = far.create_id();
    id.bind_port(at(FAR, 0), false).unwrap();
    let found = id.local().unwrap();
    assert_ne!(found.port(), 0);
    assert!(matches!(id.bind_port(at(FAR, 0), false), Err(CmError::WrongState(_))));
    id.listen(&ListenConfig::default()).unwrap();
    assert_eq!(id.local(), Some(found));
    // Another finds another, and this one is taken.
    let other = far.create_id();
    let taken = CmError::Listen(ListenError::PortInUse(found.port()));
    assert_eq!(other.bind_port(found, false), Err(taken));
    assert_eq!(other.local(), None);
    other.bind_port(at(ANY, 0), false).unwrap();
    let free = other.local().unwrap();
    assert!(free.port() != 0 && free.port() != found.port());
    // One that connects after all has a port of active opens.
    other.resolve_addr(at(NEAR, PORT)).unwrap();
    expect!(&far, other.number(), EventKind::AddressResolved);
    assert_eq!(other.local().map(|local| (local.ip(), local.port())), Some((FAR.into(), 0)));
}

/// An id that looks for a peer gives the port back that was found for it to listen at, also if no device
/// leads to the peer. It may listen at another one.
#[test]
fn a_port_that_was_found_is_given_back_to_connect() {
    let pair = Pair::new();
    let far = EventChannel::new([pair.far.clone()]).unwrap();
    let id = far.create_id();
    id.bind_port(at(FAR, 0), false).unwrap();
    for _ in 0..2 {
        id.resolve_addr(at(Ipv4Addr::new(203, 0, 113, 1), PORT)).unwrap();
        expect!(&far, id.number(), EventKind::AddressError);
        assert_eq!(id.local(), Some(at(FAR, 0)));
    }
    id.listen(&ListenConfig::default()).unwrap();
    assert_ne!(id.local().map(|local| local.port()), Some(0));
}

/// Each call has its time; one that comes at another changes nothing.
#[test]
fn calls_out_of_order_are_refused() {
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone(), pair.far.clone()]).unwrap();
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    let id = channel.create_id();
    let idle = Err(CmError::WrongState("idle"));
    assert_eq!(id.resolve_route(), idle);
    assert_eq!(id.connect(&near_end.qp, &with(b"")), idle);
    assert_eq!(id.listen(&ListenConfig::default()), idle);
    assert_eq!(id.accept(&near_end.qp, ReadsWanted::default(), b""), idle);
    assert_eq!(id.reject(b""), idle);
    assert_eq!(id.disconnect(), idle);
    assert_eq!(id.bind_addr(at(Ipv4Addr::new(198, 18, 0, 9), PORT)), Err(CmError::NoDevice));
    id.bind_addr(at(NEAR, 0)).unwrap();
    id.resolve_addr(at(FAR, PORT)).unwrap();
    expect!(&channel, id.number(), EventKind::AddressResolved);
    assert_eq!(id.device().unwrap().config().addresses, pair.near.config().addresses, "it is bound to it");
    id.resolve_route().unwrap();
    expect!(&channel, id.number(), EventKind::RouteResolved);
    assert_eq!(id.connect(&far_end.qp, &with(b"")), Err(CmError::OtherDevice));
    assert!(matches!(id.connect(&near_end.qp, &with(&[0; 513])), Err(CmError::PrivateDataTooLong(_))));

    // Two ids cannot listen at the same port, and one that failed listens nowhere.
    let listener = listening(&channel);
    let other = channel.create_id();
    other.bind_addr(at(ANY, PORT)).unwrap();
    let in_use = Err(CmError::Listen(ListenError::PortInUse(PORT)));
    assert_eq!(other.listen(&ListenConfig::default()), in_use);
    assert_eq!((pair.near.usage().unwrap().listeners, pair.far.usage().unwrap().listeners), (0, 1));

    id.connect(&near_end.qp, &with(b"")).unwrap();
    let asked = expect!(&channel, listener.number(), EventKind::ConnectRequest(asked) => asked);
    assert_eq!(asked.accept(&near_end.qp, ReadsWanted::default(), b""), Err(CmError::OtherDevice));
    let too_long = asked.accept(&far_end.qp, ReadsWanted::default(), &[0; 509]);
    assert!(matches!(too_long, Err(CmError::PrivateDataTooLong(_))));
    // It still waits for its answer.
    asked.accept(&far_end.qp, ReadsWanted::default(), &[7; 508]).unwrap();
    let mut established = 0;
    for event in [next(&channel), next(&channel)] {
        if let EventKind::Established { private_data, .. } = event.kind {
            established += 1;
            assert_eq!(private_data.len(), if event.id == id.number() { 508 } else { 0 });
        }
    }
    assert_eq!(established, 2);
}

/// One thread and one channel serve two devices that both listen, and many connections between them at the
/// same time.
#[test]
fn one_thread_serves_many() {
    const EACH_WAY: usize = 24;
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone(), pair.far.clone()]).unwrap();
    let listener = channel.create_id();
    listener.bind_addr(at(ANY, PORT)).unwrap();
    listener.listen(&ListenConfig::default()).unwrap();
    let mut ends: HashMap<IdNumber, (Id, End, bool)> = HashMap::new();
    for (device, local, remote) in [(&pair.near, NEAR, FAR), (&pair.far, FAR, NEAR)] {
        for _ in 0..EACH_WAY {
            let id = channel.create_id();
            id.bind_addr(at(local, 0)).unwrap();
            id.resolve_addr(at(remote, PORT)).unwrap();
            ends.insert(id.number(), (id, End::new(device), false));
        }
    }
    let (mut established, mut over) = (0, 0);
    while over < 4 * EACH_WAY {
        let event = next(&channel);
        match event.kind {
            EventKind::AddressResolved => ends[&event.id].0.resolve_route().unwrap(),
            EventKind::RouteResolved => {
                let (id, end, _) = &ends[&event.id];
                let name = event.id.0.to_be_bytes();
                id.connect(&end.qp, &with(&name)).unwrap();
            }
            EventKind::ConnectRequest(asked) => {
                assert_eq!(event.id, listener.number());
                let end = End::new(asked.device().unwrap());
                asked.accept(&end.qp, ReadsWanted::default(), asked.private_data()).unwrap();
                ends.insert(asked.number(), (asked, end, true));
            }
            EventKind::Established { private_data, .. } => {
                established += 1;
                let (_, _, accepted) = ends[&event.id];
                let name = event.id.0.to_be_bytes();
                assert_eq!(&private_data[..], if accepted { &[][..] } else { &name[..] });
                if established == 4 * EACH_WAY {
                    ends.values().filter(|(_, _, accepted)| *accepted).for_each(|(id, ..)| {
                        id.disconnect().unwrap();
                    });
                }
            }
            EventKind::Disconnected => {}
            EventKind::TimewaitExit => over += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(channel.poll().is_none());
    drop((ends, listener));
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// If a peer gives up before it is answered, its attempt ends in time, and the late answer returns that
/// error. The queue pair of the attempt is then free for another connection.
#[test]
fn an_answer_may_come_too_late() {
    let pair = Pair::new();
    let near = EventChannel::new([pair.near.clone()]).unwrap();
    let far = EventChannel::new([pair.far.clone()]).unwrap();
    let listener = listening(&far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    // As much time as the machine needs for the Request to arrive.
    let mut timeout = Duration::from_millis(50);
    let asked = loop {
        let id = resolved(&near, at(FAR, PORT));
        id.connect(&near_end.qp, &ConnectConfig { timeout, ..ConnectConfig::default() }).unwrap();
        expect!(&near, id.number(), EventKind::Unreachable(_));
        if let Some(Event { kind: EventKind::ConnectRequest(asked), .. }) = far.poll() {
            break asked;
        }
        timeout *= 2;
    };
    // Both ends have closed it: the far end has received the close.
    eventually("the attempt is over", || pair.near.usage().unwrap().connections == 0);
    asked.accept(&far_end.qp, ReadsWanted::default(), b"").unwrap();
    expect!(&far, asked.number(), EventKind::AcceptError(_));
    let id = resolved(&near, at(FAR, PORT));
    id.connect(&near_end.qp, &with(b"")).unwrap();
    let asked = expect!(&far, listener.number(), EventKind::ConnectRequest(asked) => asked);
    asked.accept(&far_end.qp, ReadsWanted::default(), b"").unwrap();
    expect!(&far, asked.number(), EventKind::Established { .. });
    expect!(&near, id.number(), EventKind::Established { .. });
}

/// The channel is readable while there are events, so that it goes into an epoll set.
#[test]
fn the_channel_is_readable_while_there_are_events() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone()]).unwrap();
    let readable = || {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&now)).unwrap() == 1
    };
    assert!(!readable());
    let ids = [channel.create_id(), channel.create_id()];
    for id in &ids {
        id.resolve_addr(at(FAR, PORT)).unwrap();
    }
    assert!(readable());
    assert!(channel.poll().is_some() && readable());
    assert!(channel.poll().is_some() && !readable());
}

/// A reset is a disconnection as well. The end of a device is reported to every id that waits for an event of
/// it.
#[test]
fn failures_are_events() {
    let pair = Pair::new();
    let channel = EventChannel::new([pair.near.clone(), pair.far.clone()]).unwrap();
    let listener = listening(&channel);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    let id = resolved(&channel, at(FAR, PORT));
    id.connect(&near_end.qp, &with(b"")).unwrap();
    let asked = expect!(&channel, listener.number(), EventKind::ConnectRequest(asked) => asked);
    asked.accept(&far_end.qp, ReadsWanted::default(), b"").unwrap();
    for _ in 0..2 {
        assert!(matches!(next(&channel).kind, EventKind::Established { .. }));
    }
    near_end.qp.abort();
    let mut seen = HashMap::<IdNumber, Vec<EventKind>>::new();
    for _ in 0..4 {
        let event = next(&channel);
        seen.entry(event.id).or_default().push(event.kind);
    }
    for id in [&id, &asked] {
        assert!(matches!(seen[&id.number()][..], [EventKind::Disconnected, EventKind::TimewaitExit]));
    }

    // A device whose core is no longer polled.
    let (device, _other) = link();
    let (device, driver) = Device::start_manual(device, &config(NEAR)).unwrap();
    let channel = EventChannel::new([device.clone()]).unwrap();
    let mut driver = driver;
    let end = driver.run(|| End::new(&device));
    let id = resolved(&channel, at(FAR, PORT));
    id.connect(&end.qp, &with(b"")).unwrap();
    let listener = channel.create_id();
    listener.bind_addr(at(ANY, PORT)).unwrap();
    driver.run(|| listener.listen(&ListenConfig::default()).unwrap());
    assert_eq!(device.poll_event(), None);
    drop(driver);
    let mut removed = [next(&channel), next(&channel)].map(|event| {
        assert!(matches!(event.kind, EventKind::DeviceRemoval), "{event:?}");
        event.id
    });
    removed.sort();
    assert_eq!(removed, [id.number(), listener.number()]);
    assert_eq!(device.wait_event(PATIENCE), Some(AsyncEvent::DeviceFatal));
}

/// No thread reads the channel while many more peers than the backlog holds fail at a listener. The events
/// that wait on the channel stay bounded, and a peer that follows the protocol is accepted.
#[test]
fn failed_peers_take_no_room_of_others() {
    const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\x00\x00";
    let (near, far) = link();
    let far = Device::start(far, &config(FAR), PollThread::default()).unwrap();
    let channel = EventChannel::new([far.clone()]).unwrap();
    let listener = channel.create_id();
    listener.bind_addr(at(FAR, PORT)).unwrap();
    listener.listen(&ListenConfig { backlog: 2, ..ListenConfig::default() }).unwrap();
    let mut peer = RawPeer::new(near, NEAR);
    for _ in 0..20 {
        peer.connect(at(FAR, PORT));
        peer.send(b"GET / HTTP/1.1\r\nHost: rdma\r\n\r\n");
        peer.until("it is closed", |peer| peer.finished || peer.closed.is_some());
        if peer.closed.is_none() {
            peer.finish();
            peer.until("both ends are closed", |peer| peer.closed.is_some());
        }
    }
    assert_eq!(channel.waiting(), 2, "as many as the backlog");
    peer.connect(at(FAR, PORT));
    peer.send(REQUEST);
    let asked = loop {
        peer.step();
        match channel.poll() {
            Some(Event { kind: EventKind::ConnectRequest(asked), id, .. }) if id == listener.number() => {
                break asked;
            }
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    };
    assert_eq!(asked.remote().map(|remote| remote.ip()), Some(NEAR.into()));
    assert!(channel.poll().is_none());
}

/// A dropped id produces no further events.
#[test]
fn dropped_ids_are_silent() {
    let (near, _far) = link();
    let near = Device::start(near, &config(NEAR), PollThread::default()).unwrap();
    let channel = EventChannel::new([near.clone()]).unwrap();
    let end = End::new(&near);
    let id = resolved(&channel, at(FAR, PORT));
    let config = ConnectConfig { timeout: Duration::from_millis(50), ..ConnectConfig::default() };
    id.connect(&end.qp, &config).unwrap();
    drop(id);
    eventually("the attempt is over", || near.usage().unwrap().connections == 0);
    assert!(channel.poll().is_none());
}

/// A device whose queue pairs are all in use, and one of them that is about to be connected.
struct Crowded {
    pair: Pair,
    channel: EventChannel,
    listener: Listener,
    _others: Vec<QueuePair>,
}

impl Crowded {
    const QUEUE_PAIRS: usize = 100;

    fn new() -> Self {
        let pair = Pair::with(|config| {
            config.capacity.queue_pairs = Self::QUEUE_PAIRS;
            config.quotas.queue_pairs_per_domain = Self::QUEUE_PAIRS;
        });
        let channel = EventChannel::new([pair.near.clone()]).unwrap();
        let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
        let (domain, completions) = (pair.near.protection_domain(), CompletionQueue::new(1));
        let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
        let make = |_| domain.queue_pair(&config, &completions, &completions).unwrap();
        let others = (1..Self::QUEUE_PAIRS).map(make).collect();
        Self { pair, channel, listener, _others: others }
    }

    /// Asks for a connection, and before the answer arrives reassigns the queue pair's number to one of
    /// another Protection Domain.
    fn renumbered(&self) -> (Id, ConnectionRequest, End) {
        let end = End::new(&self.pair.near);
        let id = resolved(&self.channel, at(FAR, PORT));
        id.connect(&end.qp, &with(b"")).unwrap();
        let request = self.listener.accept(PATIENCE).unwrap();
        // The Request goes out with the handshake, so it may be there before control here knows that the
        // attempt is open; until then an attempt is given up with its queue pair. What the core answers comes
        // after its events.
        let _ = self.pair.near.statistics().unwrap();
        let number = end.qp.number();
        drop(end);
        eventually("the number is given back", || {
            self.pair.near.usage().unwrap().queue_pairs < Self::QUEUE_PAIRS
        });
        let fresh = End::new(&self.pair.near);
        assert_eq!(fresh.qp.number(), number, "there was no other");
        (id, request, fresh)
    }
}

/// A Reply that arrives after its queue pair is destroyed connects no other one, even if that has the same
/// number: it is of another Protection Domain, and its owner has not asked for a connection.
// Requirements: DDP-8.2-01, MPAv2-9.3-01
#[test]
fn a_late_reply_connects_no_other_queue_pair() {
    let crowded = Crowded::new();
    let (id, request, fresh) = crowded.renumbered();
    let far = End::new(&crowded.pair.far);
    request.accept(&far.qp, b"").unwrap();
    expect!(&crowded.channel, id.number(), EventKind::ConnectError(ConnectError::QueuePairInUse));
    let error = StreamError::Terminated { layer: 2, error_type: 0, code: 5 };
    assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
    assert_eq!(fresh.qp.state(), QpState::Idle);
    // It is free for a connection of its own.
    std::thread::scope(|scope| {
        let connecting = scope.spawn(fresh.connecting(b""));
        let far = End::new(&crowded.pair.far);
        crowded.listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
}

/// A rejection that arrives after its queue pair is destroyed does not take the connection of another queue
/// pair.
// Requirements: DDP-8.2-01
#[test]
fn a_late_rejection_frees_no_other_queue_pair() {
    let crowded = Crowded::new();
    let (id, request, fresh) = crowded.renumbered();
    let far = End::new(&crowded.pair.far);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(fresh.connecting(b""));
        crowded.listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    request.reject(b"").unwrap();
    expect!(&crowded.channel, id.number(), EventKind::Rejected { .. });
    assert_eq!(fresh.connect(b"").unwrap_err(), ConnectError::QueuePairInUse);
    fresh.qp.disconnect();
    assert_eq!(far.qp.wait_peer_closed(PATIENCE), Ok(()));
    assert_eq!(fresh.qp.wait_closed(PATIENCE), Ok(()));
}
