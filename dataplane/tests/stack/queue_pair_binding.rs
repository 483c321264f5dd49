//! Tests that a queue pair and its connection refer to each other alone: not to the next connection in the
//! same slot, and not to the next queue pair of the same number.

use std::sync::Arc;

use crate::common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, PEER_PORT, RawPeer};
use crate::common::{PD, PORT, TABLES, address};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::{End, EndConfig};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{ProtectionDomainId, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, QpNumber, ReceiveRequest, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, ConnectionId, Direction, Event, FullOperation};
use warpline_dataplane::tcp::{self, CloseReason};
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::arp;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::tcp::{Flags, Header, SeqNumber};

const OTHER_PD: ProtectionDomainId = ProtectionDomainId(2);

/// A core with a listener and peers, and the queue pairs made so far.
struct World {
    peer: RawPeer,
    completions: Arc<CompletionRing>,
}

/// A peer's connection.
struct Remote {
    port: u16,
    id: ConnectionId,
    /// The core's next sequence number.
    next: SeqNumber,
}

impl World {
    fn new() -> Self {
        Self::with(TABLES)
    }

    fn with(tables: Tables) -> Self {
        let mut peer = RawPeer::with_tables(RawPeer::config(), EndConfig::a().mtu_bytes, tables);
        peer.command(Command::Listen { address: None, port: PORT, backlog: 16, tcp: None });
        peer.settle();
        Self { peer, completions: Arc::new(CompletionRing::new(64)) }
    }

    fn create(&mut self, number: u32, pd: ProtectionDomainId) -> Arc<SharedQp> {
        let rings = CompletionRings::shared(self.completions.clone());
        let doorbells = self.peer.rings.doorbells.clone();
        let qp = Arc::new(SharedQp::new(
            QpNumber(number),
            pd,
            QueueDepths { send: 4, receive: 4 },
            rings,
            doorbells,
        ));
        self.peer.settle();
        qp
    }

    fn inject(&mut self, port: u16, header: Header) {
        let header = Header { source_port: port, destination_port: PORT, ..header };
        self.peer.inject(&RawPeer::segment(&header, &[]));
        self.peer.settle();
    }

    fn open(&mut self, port: u16) -> Remote {
        self.peer.sent.clear();
        self.inject(port, self.peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)));
        let next = self.peer.sent.pop_back().expect("a SYN in answer").header.seq + 1;
        self.inject(port, self.peer.header(Flags::ACK, PEER_ISS + 1, next));
        match self.peer.events.pop() {
            Some(Event::Accepted { connection, .. }) => Remote { port, id: connection, next },
            event => panic!("not accepted: {event:?}"),
        }
    }

    fn start(&mut self, remote: &Remote, qp: &Arc<SharedQp>, initiator: bool) {
        let operation = FullOperation::new(initiator);
        self.peer.command(Command::Start { connection: remote.id, qp: qp.clone(), operation });
        self.peer.settle();
    }

    /// The device accepts no frames any more, and so many frames wait for it that no connection has a turn.
    fn stall(&mut self) {
        self.peer.network().set_transmit_credit(End::A, Some(0));
        let mut request = vec![0; ethernet::Header::LEN + arp::Packet::LEN];
        ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::ARP }
            .emit(&mut request);
        arp::Packet {
            operation: arp::Operation::Request,
            sender_mac: PEER_MAC,
            sender_ip: address(2),
            target_mac: MacAddress::default(),
            target_ip: address(1),
        }
        .emit(&mut request[ethernet::Header::LEN..]);
        for _ in 0..limits::TRANSMIT_QUEUE_FRAMES {
            self.peer.inject(&request);
            self.peer.settle();
        }
    }

    fn resume(&mut self) {
        self.peer.network().set_transmit_credit(End::A, None);
        self.peer.settle();
    }

    fn closed(&mut self, remote: &Remote) -> bool {
        let closed = |event| matches!(event, Event::Closed { connection, .. } if connection == remote.id);
        self.peer.events.drain(..).any(closed)
    }

    fn is_open(&self, remote: &Remote) -> bool {
        let tcp = self.peer.core.tcp(remote.id);
        tcp.is_some_and(|tcp| tcp.state() == tcp::State::Established)
    }
}

const NOTHING: Slice = Slice { stag: STag(0), to: 0, len: 0 };

/// A peer resets its connection while the device is stalled, so that the connection keeps its slot; control,
/// which has not processed the event yet, starts a queue pair on it. The queue pair stays idle and can serve
/// another connection. When it is destroyed, the next connection in the slot, of another Protection Domain,
/// is not affected.
#[test]
fn a_closed_connection_takes_no_queue_pair() {
    for unnegotiated in [false, true] {
        let mut world = World::new();
        let (mine, theirs) = (world.create(1, PD), world.create(2, OTHER_PD));
        let first = world.open(PEER_PORT);
        world.stall();
        world.inject(PEER_PORT, world.peer.header(Flags::RST, PEER_ISS + 1, SeqNumber(0)));
        assert!(world.closed(&first) && world.peer.core.tcp(first.id).is_some(), "over, in its slot");
        if unnegotiated {
            let operation = FullOperation::unnegotiated(1, FullOperation::new(true).depths);
            let direction = Direction::Both;
            let connection = first.id;
            let qp = mine.clone();
            world.peer.command(Command::StartUnnegotiated { connection, qp, operation, direction });
            world.peer.settle();
        } else {
            world.start(&first, &mine, true);
        }
        assert_eq!(mine.state(), QpState::Idle, "not ready for what can never be sent");
        assert!(mine.post_send(SendRequest::new(1, Operation::SEND, NOTHING)).is_err());
        assert_eq!(world.peer.core.statistics().starts_refused, 1);
        world.resume();
        assert!(world.peer.core.tcp(first.id).is_none(), "the slot is free");

        let second = world.open(PEER_PORT + 1);
        world.start(&second, &theirs, true);
        let id = mine.number;
        world.peer.command(Command::DestroyQp(mine.clone()));
        world.peer.settle();
        assert!(world.peer.events.iter().any(|event| matches!(event, Event::QpDestroyed(qp) if *qp == id)));
        assert_eq!(mine.state(), QpState::Error);
        let receive = ReceiveRequest::new(2, NOTHING);
        assert!(mine.post_receive(receive).is_err(), "nobody would flush it");
        assert!(mine.post_send(SendRequest::new(3, Operation::SEND, NOTHING)).is_err());
        assert_eq!(theirs.state(), QpState::ReadyToSend);
        assert!(world.is_open(&second) && !world.closed(&second));
    }
}

/// A queue pair that was refused, while its connection was in its slot and after the slot was reused by
/// another, can still serve its next connection.
#[test]
fn a_queue_pair_refused_can_serve_another_connection() {
    let mut world = World::new();
    let (mine, theirs) = (world.create(1, PD), world.create(2, OTHER_PD));
    let first = world.open(PEER_PORT);
    world.stall();
    world.inject(PEER_PORT, world.peer.header(Flags::RST, PEER_ISS + 1, SeqNumber(0)));
    world.start(&first, &mine, true);
    world.resume();
    let second = world.open(PEER_PORT + 1);
    world.start(&second, &theirs, true);
    world.start(&first, &mine, true);
    assert_eq!((mine.state(), world.peer.core.statistics().starts_refused), (QpState::Idle, 2));
    let third = world.open(PEER_PORT + 2);
    world.start(&third, &mine, true);
    assert_eq!((mine.state(), theirs.state()), (QpState::ReadyToSend, QpState::ReadyToSend));
    world.inject(third.port, world.peer.header(Flags::RST, PEER_ISS + 1, third.next));
    assert_eq!((mine.state(), theirs.state()), (QpState::Error, QpState::ReadyToSend));
}

/// A destroyed queue pair's connection keeps its slot while the device is stalled, and its deadline for a
/// first FPDU passes. A queue pair made meanwhile has the same number, and is not affected.
#[test]
fn an_old_connection_does_not_reach_the_next_queue_pair_of_its_number() {
    let mut world = World::new();
    let old = world.create(1, PD);
    let first = world.open(PEER_PORT);
    let second = world.open(PEER_PORT + 1);
    let operation = FullOperation { first_fpdu_ns: Some(SECOND), ..FullOperation::new(false) };
    world.peer.command(Command::Start { connection: first.id, qp: old.clone(), operation });
    world.peer.settle();
    world.stall();
    world.peer.command(Command::DestroyQp(old.clone()));
    world.peer.settle();
    assert!(world.closed(&first) && world.peer.core.tcp(first.id).is_some(), "over, in its slot");
    let new = world.create(1, OTHER_PD);
    new.post_receive(ReceiveRequest::new(7, NOTHING)).unwrap();
    world.start(&second, &new, true);
    world.peer.pass_s(3);
    assert_eq!((new.state(), new.error()), (QpState::ReadyToSend, None));
    assert!(world.completions.poll().is_none(), "its receive is not flushed");
    world.resume();
    assert!(world.is_open(&second));
}

/// A queue pair that ends without a connection is flushed, also of what is posted later; one for which its
/// core has no slot takes nothing more. Neither serves a connection.
// Requirements: DDP-6.2.2-02
#[test]
fn a_queue_pair_ends_without_a_connection() {
    let mut world = World::with(Tables { queue_pairs: 1, ..TABLES });
    let (one, other) = (world.create(1, PD), world.create(2, OTHER_PD));
    let flushed = |world: &World, qp: &SharedQp, id| {
        let completion = world.completions.poll().expect("a completion");
        assert_eq!((completion.qp, completion.id, completion.status), (qp.number, id, Status::Flushed));
        assert!(world.completions.poll().is_none());
    };
    for qp in [&one, &other] {
        qp.post_receive(ReceiveRequest::new(1, NOTHING)).unwrap();
        world.peer.command(Command::EndQp(qp.clone()));
        world.peer.settle();
        assert!(matches!(world.peer.events.pop(), Some(Event::QpEnded(number)) if number == qp.number));
        assert_eq!(qp.error(), Some(StreamError::Tcp(CloseReason::Aborted)));
        assert_eq!(qp.state(), QpState::Error);
        flushed(&world, qp, 1);
    }
    one.post_receive(ReceiveRequest::new(2, NOTHING)).unwrap();
    world.peer.settle();
    flushed(&world, &one, 2);
    one.post_send(SendRequest::new(3, Operation::SEND, NOTHING)).unwrap();
    world.peer.settle();
    flushed(&world, &one, 3);
    assert!(other.post_receive(ReceiveRequest::new(2, NOTHING)).is_err());
    assert!(other.post_send(SendRequest::new(3, Operation::SEND, NOTHING)).is_err());
    for (qp, port) in [(&one, PEER_PORT), (&other, PEER_PORT + 1)] {
        let remote = world.open(port);
        world.start(&remote, qp, true);
        assert!(world.closed(&remote) && qp.state() == QpState::Error);
        world.peer.command(Command::DestroyQp(qp.clone()));
        world.peer.settle();
    }
    assert_eq!((world.peer.core.usage().queue_pairs, world.peer.core.statistics().starts_refused), (0, 2));
}

/// A queue pair that serves a connection keeps it, and a served connection keeps its queue pair. A request to
/// bind either one again closes the connection that the request names.
#[test]
fn one_queue_pair_serves_one_connection() {
    let mut world = World::new();
    let (one, other) = (world.create(1, PD), world.create(2, OTHER_PD));
    let first = world.open(PEER_PORT);
    let second = world.open(PEER_PORT + 1);
    world.start(&first, &one, true);
    world.start(&second, &one, true);
    assert!(world.is_open(&first) && world.closed(&second));
    assert_eq!(one.state(), QpState::ReadyToSend);

    world.start(&first, &other, true);
    assert_eq!((one.state(), other.state()), (QpState::Error, QpState::Idle));
    assert!(world.closed(&first));
    // One that has served a connection serves no other.
    let third = world.open(PEER_PORT + 2);
    world.start(&third, &one, true);
    assert!(world.closed(&third) && one.state() == QpState::Error);
    assert_eq!(world.peer.core.statistics().starts_refused, 3);
}
