//! Tests with many connections: no step looks at others than its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crossbeam::channel::Receiver;
use warpline_dataplane::limits;
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::net::addresses::{Addresses, Cidr};
use warpline_dataplane::net::notice::Notice;
use warpline_dataplane::qp::async_event::{AsyncEvent, AsyncEvents};
use warpline_dataplane::qp::completion_queue::CompletionRing;
use warpline_dataplane::qp::payload::Slice;
use warpline_dataplane::qp::shared::{CompletionRings, PostError, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, QpNumber, ReceiveRequest, SendRequest};
use warpline_dataplane::ring::{
    Command, ConnectError, ConnectionId, Event, FlowKey, ListenAddress, Rings, Scope,
};
use warpline_dataplane::steering::Steering;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, SECOND};

use crate::engine::interface::connection_status::CloseState;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Arrival, NewQueuePair, Request, StreamRequest, arrival_queue};
use crate::engine::names::KeyedSequence;
use crate::engine::placement::Placement;
use crate::engine::queue_pairs::FENCE_NS;
use crate::engine::startup::{Initiator, Offer, Proposal, ReadsWanted, Terms};
use crate::engine::{Engine, EngineConfig};
use crate::vocabulary::capacity::Capacity;
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::listen::{Accepted, AnswerError, ListenConfig, ListenError};
use crate::vocabulary::queue_pair::QpConfig;
use crate::vocabulary::quota::Quotas;
use crate::vocabulary::stream::StreamConfig;

const CONNECTIONS: u64 = 100_000;
const PORT: u16 = 7;
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));

/// Returns an engine of one core that listens, and where its Requests arrive.
fn engine() -> (Engine, Receiver<Arrival>) {
    let mut engine = engine_with(Placement::new(None, Addresses::new()));
    let (_, arrived) = listen(&mut engine, PORT, None);
    (engine, arrived)
}

/// Returns the placement of a device of two cores.
fn two_cores() -> Placement {
    let mut rng = fastrand::Rng::with_seed(7);
    let steering = Arc::new(Steering::new(2, 128, |key| rng.fill(key)));
    Placement::new(Some(steering), [Cidr::new(OURS, 24)].into_iter().collect())
}

fn engine_with(placement: Placement) -> Engine {
    Engine::new(EngineConfig {
        crc: CrcPolicy::Always,
        capacity: Capacity::of(CONNECTIONS as usize),
        quotas: Quotas {
            queue_pairs_per_domain: usize::MAX,
            connections_per_peer: usize::MAX,
            ..Quotas::default()
        },
        doorbells: Rings::new().doorbells.into(),
        placement,
        claims: None,
        events: Arc::new(AsyncEvents::new(None)),
        random: KeyedSequence::new([1; 16]),
    })
}

/// Listens at a port, at one core or at all. Returns the engine's answer, and where Requests arrive.
fn listen(engine: &mut Engine, port: u16, core: Option<u8>) -> (Result<u16, ListenError>, Receiver<Arrival>) {
    let (at, config) = (ListenAddress::everywhere(port), ListenConfig { core, ..ListenConfig::default() });
    let (reply, answer) = Reply::new();
    let arrivals = arrival_queue(&config);
    let arrived = arrivals.1.clone();
    engine.on_request(Instant::ZERO, Request::Listen { at, config, arrivals, notify: None, reply });
    deliver(engine);
    (answer.try_recv().expect("a reply"), arrived)
}

/// Returns the commands of the engine, and delivers its replies.
fn deliver(engine: &mut Engine) -> Vec<Command> {
    let commands = std::iter::from_fn(|| engine.next_command(0)).collect();
    while let Some(deliver) = engine.next_reply() {
        deliver();
    }
    commands
}

/// Returns the event of the peer number `number`, which has connected.
fn accepted(number: u64) -> Event {
    let remote = IpAddr::V4(Ipv4Addr::from_bits(0xc613_0000 + number as u32));
    let flow = FlowKey { local: OURS, remote, remote_port: 40_000, local_port: PORT };
    Event::Accepted {
        connection: ConnectionId::from_bits(number),
        flow,
        scope: Scope::All,
        rdma_option: false,
    }
}

/// A port at which one listens is chosen for no other: who asked for it by number may still have it when the
/// one for whom it was chosen goes.
#[test]
fn a_port_that_has_a_listener_is_not_chosen() {
    let mut engine = engine_with(two_cores());
    assert_eq!(engine.check_port(PORT + 1, None), Ok(()));
    assert_eq!(listen(&mut engine, PORT + 1, None).0, Ok(PORT + 1));
    assert_eq!(engine.check_port(PORT + 1, None), Err(ListenError::PortInUse(PORT + 1)));
    assert_eq!(engine.check_port(PORT + 2, None), Ok(()));
}

/// A deadline comes alone, one after the other, and what is due is found without a look at what is not. The
/// steps of this test are 10^5; with a look at all connections they were 10^10.
#[test]
fn what_is_due_is_found_among_a_hundred_thousand_connections() {
    let (mut engine, _arrived) = engine();
    let mut waiting = Vec::new();
    for number in 0..CONNECTIONS {
        let now = Instant::from_nanos(number + 1);
        engine.on_event(now, 0, accepted(number));
        let (reply, receiver) = Reply::new();
        let connect =
            StreamRequest::Connect { remote: (OURS, PORT).into(), config: StreamConfig::default(), reply };
        engine.on_request(now, Request::Stream(connect));
        waiting.push(receiver);
    }
    let opened = deliver(&mut engine).len() as u64;
    assert_eq!(opened, CONNECTIONS);
    let (mut aborted, mut given_up) = (0, 0);
    while engine.next_deadline() != Instant::NEVER {
        let now = engine.next_deadline();
        engine.on_time(now);
        for command in deliver(&mut engine) {
            match command {
                Command::Abort { connection } => {
                    assert_eq!(connection.to_bits(), aborted, "in the order of their deadlines");
                    aborted += 1;
                }
                Command::GiveUp { token } => {
                    assert_eq!(token, given_up, "in the order of their deadlines");
                    given_up += 1;
                }
                _ => panic!("another command"),
            }
        }
    }
    assert_eq!((aborted, given_up), (CONNECTIONS, CONNECTIONS));
    assert!(waiting.iter().all(|receiver| receiver.try_recv().is_ok()), "each has its reply");
}

/// Connects a queue pair with the peer number `number`.
fn operate(
    engine: &mut Engine,
    arrived: &Receiver<Arrival>,
    completions: &CompletionRings,
    number: u64,
    request: &[u8],
) -> NewQueuePair {
    let (new, accepted) = accept(engine, arrived, completions, number, request);
    let connection = ConnectionId::from_bits(number);
    engine.on_event(Instant::from_nanos(1), 0, Event::Operating { connection });
    deliver(engine);
    accepted.try_recv().expect("a reply").expect("accepted");
    new
}

/// Accepts the peer number `number` with a new queue pair: the core is yet to begin Full Operation.
fn accept(
    engine: &mut Engine,
    arrived: &Receiver<Arrival>,
    completions: &CompletionRings,
    number: u64,
    request: &[u8],
) -> (NewQueuePair, Receiver<Result<Accepted, AnswerError>>) {
    let now = Instant::from_nanos(1);
    let (reply, created) = Reply::new();
    let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
    let (pd, completions) = (ProtectionDomainId(1), completions.clone());
    engine.on_request(now, Request::CreateQp { pd, config, completions, receives: None, reply });
    deliver(engine);
    let new = created.try_recv().expect("a reply").expect("room for a queue pair");
    let accepted = accept_with(engine, arrived, &new.shared, number, request);
    (new, accepted)
}

/// Accepts the peer number `number` with the queue pair `qp`: the core is yet to begin Full Operation.
fn accept_with(
    engine: &mut Engine,
    arrived: &Receiver<Arrival>,
    qp: &Arc<SharedQp>,
    number: u64,
    request: &[u8],
) -> Receiver<Result<Accepted, AnswerError>> {
    let now = Instant::from_nanos(1);
    let connection = ConnectionId::from_bits(number);
    engine.on_event(now, connection.core(), accepted(number));
    engine.on_event(now, connection.core(), Event::Stream { connection, octets: request.into() });
    assert!(matches!(arrived.try_recv(), Ok(Arrival::Request { .. })));
    let (reply, accepted) = Reply::new();
    let (qp, private_data) = (qp.clone(), Box::default());
    let reads = ReadsWanted::default();
    engine.on_request(now, Request::Accept { connection, qp, reads, private_data, reply });
    accepted
}

/// Returns a Request of the plainest kind.
fn request() -> Box<[u8]> {
    let offer = Offer { markers: false, crc: true };
    let proposal = Proposal { offer, revision: 2, terms: Terms::initiator(), permissive: false };
    let (_, request) = Initiator::new(proposal, &[], Instant::NEVER).expect("no Private Data");
    request
}

/// Returns the octets of what a queue pair shares with the core.
fn octets_of_shared(completions: &CompletionRings) -> u64 {
    let doorbells = Rings::new().doorbells;
    let new = || {
        let depths = QueueDepths { send: 1, receive: 1 };
        let pd = ProtectionDomainId(1);
        Arc::new(SharedQp::new(QpNumber(0), pd, depths, completions.clone(), doorbells.clone()))
    };
    // The first also makes the place of the core in the completion ring.
    let (_first, mut second) = (new(), None);
    let counted = allocation_counter::measure(|| second = Some(new()));
    counted.bytes_current as u64
}

/// Control's share of an idle connection and its queue pair, with what the application shares with control,
/// and without what it shares with the core: by the allocator, so that no structure is forgotten. So many
/// connections fill half of each table, which is the least.
#[test]
fn an_idle_connection_costs_control_at_most_half_a_kibibyte() {
    const CONNECTIONS: u64 = limits::QPS_PER_CORE as u64;
    const OCTETS_MAX: u64 = 512;
    let (mut engine, arrived) = engine();
    let completions = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
    let request = request();
    let mut queue_pairs = Vec::with_capacity(CONNECTIONS as usize);
    let all = allocation_counter::measure(|| {
        for number in 0..CONNECTIONS {
            queue_pairs.push(operate(&mut engine, &arrived, &completions, number, &request));
        }
    });
    let each = all.bytes_current as u64 / CONNECTIONS - octets_of_shared(&completions);
    println!("an idle connection: {each} bytes of control");
    assert!(each <= OCTETS_MAX, "{each}");
}

/// A connection from a port that is given keeps the port from a listener of another core while it is being
/// opened, and while it is open, but no longer.
#[test]
fn a_connection_holds_its_port_while_it_lasts() {
    const LOCAL: u16 = 5000;
    let mut engine = engine_with(two_cores());
    let (local, remote) = ((OURS, LOCAL).into(), ([198, 18, 0, 2], PORT).into());
    let now = Instant::from_nanos(1);
    let config = StreamConfig { local: Some(local), ..StreamConfig::default() };
    let open = |engine: &mut Engine| {
        let (reply, opened) = Reply::new();
        let connect = StreamRequest::Connect { remote, config, reply };
        engine.on_request(now, Request::Stream(connect));
        let command = (0..2).find_map(|core| Some((core, engine.next_command(core)?)));
        let Some((core, Command::Connect { token, .. })) = command else { panic!("a core opens it") };
        (core, token, opened)
    };
    let refused = Err(ListenError::OtherCore(LOCAL));

    let (core, token, _opened) = open(&mut engine);
    assert_eq!(listen(&mut engine, LOCAL, Some(0)).0, refused);
    let error = ConnectError::Closed(CloseReason::Refused);
    engine.on_event(now, core, Event::ConnectFailed { token, error });
    deliver(&mut engine);

    let (core, token, opened) = open(&mut engine);
    let connection = ConnectionId::from_bits(u64::from(core) << 24);
    engine.on_event(now, core, Event::Connected { token, connection, local, rdma_option: false });
    deliver(&mut engine);
    assert!(matches!(opened.try_recv(), Ok(Ok(_))));
    assert_eq!(listen(&mut engine, LOCAL, Some(1)).0, refused);
    engine.on_event(now, core, Event::Closed { connection, reason: CloseReason::Finished });
    assert_eq!(listen(&mut engine, LOCAL, Some(1)).0, Ok(LOCAL));
}

/// A core that is not polled does not keep an application waiting that has accepted: the error names the
/// core. If it is polled again, the connection ends.
#[test]
fn a_core_that_does_not_begin_is_waited_for_for_a_while() {
    let mut engine = engine_with(two_cores());
    let (_, arrived) = listen(&mut engine, PORT, None);
    let completions = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
    let number = 1 << 24;
    let connection = ConnectionId::from_bits(number);
    let (new, accepted) = accept(&mut engine, &arrived, &completions, number, &request());
    deliver(&mut engine);
    assert!(accepted.try_recv().is_err(), "it is waited for");
    let due = engine.next_deadline();
    assert!(due - Instant::from_nanos(1) >= SECOND, "it may be slow");
    engine.on_time(due);
    deliver(&mut engine);
    assert_eq!(accepted.try_recv().unwrap(), Err(AnswerError::Unanswered { core: 1 }));
    assert_eq!(engine.next_deadline(), Instant::NEVER, "once");
    let last = std::iter::from_fn(|| engine.next_command(1)).last();
    assert!(matches!(last, Some(Command::Abort { connection: aborted }) if aborted == connection));

    engine.on_event(due, 1, Event::Operating { connection });
    engine.on_event(due, 1, Event::Closed { connection, reason: CloseReason::Aborted });
    deliver(&mut engine);
    assert_eq!(new.status.close_state().reason, Some(CloseReason::Aborted));
    // One that begins in time is waited for no more.
    let (_new, accepted) = accept(&mut engine, &arrived, &completions, number + 1, &request());
    engine.on_event(due, 1, Event::Operating { connection: ConnectionId::from_bits(number + 1) });
    deliver(&mut engine);
    assert!(accepted.try_recv().unwrap().is_ok());
    assert_eq!(engine.next_deadline(), Instant::NEVER);
}

/// A queue pair that a core may have begun, and not said so before it ended, takes no more work: no core
/// would flush it.
#[test]
fn a_core_that_ends_takes_with_it_what_it_may_have_begun() {
    let mut engine = engine_with(two_cores());
    let (_, arrived) = listen(&mut engine, PORT, None);
    let completions = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
    let number = 1 << 24;
    let (new, accepted) = accept(&mut engine, &arrived, &completions, number, &request());
    assert_eq!(new.shared.state(), QpState::Idle);
    engine.on_core_ended(Instant::from_nanos(2), 1);
    deliver(&mut engine);
    assert_eq!(accepted.try_recv().unwrap(), Err(AnswerError::Closed(CloseReason::Aborted)));
    assert_eq!(new.shared.state(), QpState::Error);
    assert_eq!(new.status.close_state().reason, Some(CloseReason::Aborted));
    let receive = ReceiveRequest::new(1, Slice::default());
    assert_eq!(new.shared.post_receive(receive), Err(PostError::WrongState(QpState::Error)));
}

/// A queue pair has nothing of a connection whose peer has finished before the core could begin: the next one
/// is open.
#[test]
fn a_start_that_fails_leaves_nothing_to_the_next() {
    let (mut engine, arrived) = engine();
    let completions = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
    let (request, now) = (request(), Instant::from_nanos(1));
    let (new, accepted) = accept(&mut engine, &arrived, &completions, 1, &request);
    let connection = ConnectionId::from_bits(1);
    engine.on_event(now, 0, Event::PeerFinished { connection });
    engine.on_event(now, 0, Event::Closed { connection, reason: CloseReason::Reset });
    deliver(&mut engine);
    assert_eq!(accepted.try_recv().unwrap(), Err(AnswerError::Closed(CloseReason::Reset)));
    assert_eq!((new.status.pair(), new.status.close_state()), (None, CloseState::default()));

    let accepted = accept_with(&mut engine, &arrived, &new.shared, 2, &request);
    engine.on_event(now, 0, Event::Operating { connection: ConnectionId::from_bits(2) });
    deliver(&mut engine);
    assert!(accepted.try_recv().unwrap().is_ok());
    assert!(new.status.pair().is_some());
    assert_eq!(new.status.close_state(), CloseState::default());
}

/// Returns an engine whose core 1 has not begun with a queue pair that was disconnected and dropped, and
/// whose connection has ended, and that queue pair.
fn dropped_before_it_began() -> (Engine, NewQueuePair) {
    let mut engine = engine_with(two_cores());
    let (_, arrived) = listen(&mut engine, PORT, None);
    let completions = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
    let number = 1 << 24;
    let connection = ConnectionId::from_bits(number);
    let (new, _accepted) = accept(&mut engine, &arrived, &completions, number, &request());
    let now = Instant::from_nanos(1);
    engine.on_request(now, Request::Disconnect { qp: new.shared.clone() });
    let (reply, destroyed) = Reply::new();
    engine.on_request(now, Request::DestroyQp { qp: new.shared.number, fence: false, reply });
    deliver(&mut engine);
    assert!(destroyed.try_recv().is_ok(), "the owner does not wait for the orderly close");
    assert_eq!(engine.usage().queue_pairs, 1);
    engine.on_event(now, 1, Event::Closed { connection, reason: CloseReason::Reset });
    deliver(&mut engine);
    (engine, new)
}

/// A queue pair whose owner has dropped it goes when its connection has ended, also if the core has not
/// begun: there is no orderly close left to wait for.
#[test]
fn a_dropped_queue_pair_goes_with_a_connection_that_did_not_begin() {
    let (mut engine, new) = dropped_before_it_began();
    let last = std::iter::from_fn(|| engine.next_command(1)).last();
    assert!(matches!(last, Some(Command::DestroyQp(qp)) if Arc::ptr_eq(&qp, &new.shared)));
    engine.on_event(Instant::from_nanos(2), 1, Event::QpDestroyed(new.shared.number));
    assert_eq!(engine.usage().queue_pairs, 0);
    assert_eq!(engine.next_deadline(), Instant::NEVER);
}

/// So it does with its core, which can destroy nothing any more.
#[test]
fn a_dropped_queue_pair_that_did_not_begin_goes_with_its_core() {
    let (mut engine, _new) = dropped_before_it_began();
    let now = Instant::from_nanos(2);
    engine.on_core_ended(now, 1);
    engine.on_time(now + 6 * SECOND);
    assert_eq!(engine.usage().queue_pairs, 0);
    assert_eq!(engine.next_deadline(), Instant::NEVER);
}

/// The owner of a queue pair that needs its memory has the reply when the core has destroyed the queue pair:
/// after the orderly end of the connection, or when the peer has had its time for that.
#[test]
fn an_owner_waits_for_the_end_of_its_work_requests() {
    for closes in [true, false] {
        let (mut engine, arrived) = engine();
        let completions = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
        let (new, _accepted) = accept(&mut engine, &arrived, &completions, 1, &request());
        let (connection, now) = (ConnectionId::from_bits(1), Instant::from_nanos(1));
        engine.on_event(now, 0, Event::Operating { connection });
        new.shared.set_state(QpState::ReadyToSend);
        new.shared.post_send(SendRequest::new(1, Operation::SEND, Slice::default())).unwrap();
        engine.on_request(now, Request::Disconnect { qp: new.shared.clone() });
        let (reply, destroyed) = Reply::new();
        engine.on_request(now, Request::DestroyQp { qp: new.shared.number, fence: true, reply });
        let commands = deliver(&mut engine);
        assert!(!commands.iter().any(|command| matches!(command, Command::DestroyQp(_))), "it may end");
        if closes {
            engine.on_event(now, 0, Event::Closed { connection, reason: CloseReason::Finished });
        } else {
            assert_eq!(engine.next_deadline(), now + FENCE_NS);
            engine.on_time(now + FENCE_NS);
        }
        let last = deliver(&mut engine).pop();
        assert!(matches!(last, Some(Command::DestroyQp(qp)) if Arc::ptr_eq(&qp, &new.shared)));
        assert!(destroyed.try_recv().is_err(), "the core may use its memory");
        engine.on_event(now, 0, Event::QpDestroyed(new.shared.number));
        deliver(&mut engine);
        assert!(destroyed.try_recv().is_ok());
        assert_eq!(engine.usage().queue_pairs, 0);
    }
}

/// An owner with nothing outstanding waits for the core only; of many owners whose peers are gone, one waits.
#[test]
fn few_owners_wait_for_the_end_of_their_work_requests() {
    let (mut engine, arrived) = engine();
    let completions = CompletionRings::shared(Arc::new(CompletionRing::new(8)));
    let destroy = |engine: &mut Engine, number: u64, now: Instant, posts: bool| {
        let (new, _accepted) = accept(engine, &arrived, &completions, number, &request());
        engine.on_event(now, 0, Event::Operating { connection: ConnectionId::from_bits(number) });
        if posts {
            new.shared.set_state(QpState::ReadyToSend);
            new.shared.post_send(SendRequest::new(1, Operation::SEND, Slice::default())).unwrap();
        }
        engine.on_request(now, Request::Disconnect { qp: new.shared.clone() });
        let (reply, _destroyed) = Reply::new();
        engine.on_request(now, Request::DestroyQp { qp: new.shared.number, fence: true, reply });
        matches!(deliver(engine).pop(), Some(Command::DestroyQp(_)))
    };
    let now = Instant::from_nanos(1);
    assert!(destroy(&mut engine, 1, now, false), "nothing is outstanding");
    assert!(!destroy(&mut engine, 2, now, true));
    let later = now + FENCE_NS;
    engine.on_time(later);
    assert!(matches!(deliver(&mut engine).pop(), Some(Command::DestroyQp(_))), "it has waited in vain");
    assert!(destroy(&mut engine, 3, later, true));
    assert!(!destroy(&mut engine, 4, later + SECOND, true), "others may have peers that answer");
}

/// All cores find out that their adapter differs; applications see it once.
#[test]
fn an_adapter_that_differs_is_reported_once() {
    let (mut engine, _arrived) = engine();
    for core in [1, 0, 1] {
        engine.on_event(Instant::ZERO, core, Event::Notice(Notice::AdapterDiffers));
    }
    assert_eq!(engine.events.dequeue(), Some(AsyncEvent::AdapterDiffers));
    assert_eq!(engine.events.dequeue(), None);
}

/// Connections to addresses of this end are found in order, some at a time, as long as they are open.
#[test]
fn local_peers_are_found_in_turns() {
    let mut engine = engine_with(Placement::new(None, [Cidr::new(OURS, 24)].into_iter().collect()));
    let _arrived = listen(&mut engine, PORT, None);
    let first = (SocketAddr::from(([0, 0, 0, 0], 0)), 0);
    engine.on_event(Instant::ZERO, 0, accepted(1));
    assert!(!engine.has_local_peers(), "that of another");
    for number in 2..10_u64 {
        let remote_port = 50_000 - number as u16 / 2;
        let flow = FlowKey { local: OURS, remote: OURS, remote_port, local_port: PORT };
        let connection = ConnectionId::from_bits(number);
        let accepted = Event::Accepted { connection, flow, scope: Scope::All, rdma_option: false };
        engine.on_event(Instant::ZERO, 0, accepted);
    }
    let expected = [(49_996, 8), (49_996, 9), (49_997, 6), (49_997, 7), (49_998, 4), (49_998, 5)];
    let mut found: Vec<_> = engine.local_peers_after(first).take(3).collect();
    found.extend(engine.local_peers_after(found[2]).take(3));
    assert_eq!(found, expected.map(|(port, number)| (SocketAddr::new(OURS, port), number)));
    deliver(&mut engine);
    engine.abort(found[1]);
    let aborted: Vec<u64> = deliver(&mut engine)
        .iter()
        .filter_map(|command| match command {
            Command::Abort { connection } => Some(connection.to_bits()),
            _ => None,
        })
        .collect();
    assert_eq!(aborted, [9]);
    for number in 1..10 {
        let reason = CloseReason::Aborted;
        engine.on_event(
            Instant::ZERO,
            0,
            Event::Closed { connection: ConnectionId::from_bits(number), reason },
        );
    }
    assert!(!engine.has_local_peers());
}
