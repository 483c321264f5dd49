//! Tests that no poll looks at all connections or all queue pairs, whatever happens: a core of many counts
//! how many it looks at, which needs no clock.
//!
//! `WARPLINE_CONNECTIONS` sets how many connections there are; the bounds stay. This prints how long the
//! longest poll of each step takes with 100,000:
//!
//! ```text
//! WARPLINE_CONNECTIONS=100000 cargo test --release -p warpline-dataplane --test stack -- --nocapture \
//!     no_poll_looks_at_all_connections
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::common::{PD, TestCore, address, address_v6, core_on};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::testing::visits;
use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::{self, End, EndConfig, Network};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::net::addresses::Cidr;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, QpNumber, SendRequest, Slice};
use warpline_dataplane::ring::{Command, ConnectError, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

const FIRST_PORT: u16 = 10_000;
const PEER_PORT: u16 = 7000;
const MEMORY: STag = STag::new(7, 0x7777);
/// Connections of the tests.
const MANY: usize = 4000;
/// What a core may look at in one poll: half of the connections there are. Each that is served, or whose
/// timer is due, is looked at a few times.
const VISITS_MAX: u64 = MANY as u64 / 2;

fn connections() -> usize {
    std::env::var("WARPLINE_CONNECTIONS").map_or(MANY, |count| count.parse().expect("a number"))
}

/// The longest poll of a step: the most that one looked at, and the most time that one took, with the frames
/// that it has received and sent.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    visits: u64,
    nanos: u128,
    received: u64,
    sent: u64,
}

/// A core with many connections to another.
struct Crowd {
    core: TestCore,
    rings: Rings,
    peer: TestCore,
    peer_rings: Rings,
    network: Network,
    /// The peer is there.
    peer_polls: bool,
    remote: IpAddr,
    now: Instant,
    events: Vec<Event>,
    connections: Vec<ConnectionId>,
    qps: Vec<Arc<SharedQp>>,
    /// The longest poll since the last [`Crowd::report`].
    longest: Longest,
    /// The steps and their longest polls.
    steps: Vec<(&'static str, Longest)>,
}

impl Crowd {
    /// Opens `connections` to a peer that is silent at first.
    fn new(connections: usize, over_ipv6: bool) -> Self {
        // Connections to one port of the peer: as many as there are local ports.
        let ports = connections.min(50_000);
        let tables = Tables {
            connections: connections + 8,
            time_waits: connections,
            queue_pairs: limits::QPS_PER_CORE,
            ..Tables::default()
        };
        let core = |device, host: u8, rings: &Rings| {
            let mut config = Config {
                ports: (FIRST_PORT, FIRST_PORT + (ports - 1) as u16),
                // The address of the other is there at once.
                duplicate_address_detection: host == 1,
                ..Config::new(address(host).into(), 24, [3, u64::from(host)])
            };
            config.addresses.push(Cidr::new(address_v6(host).into(), 64));
            core_on(device, CoreSetup::new(config, rings.clone()).with_tables(tables))
        };
        let (rings, peer_rings) = (Rings::new(), Rings::new());
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let network = near.network();
        let remote = if over_ipv6 { address_v6(2).into() } else { IpAddr::from(address(2)) };
        let mut crowd = Self {
            core: core(near, 1, &rings),
            rings,
            peer: core(far, 2, &peer_rings),
            peer_rings,
            network,
            peer_polls: false,
            remote,
            now: Instant::from_nanos(1),
            events: Vec::new(),
            connections: Vec::new(),
            qps: Vec::new(),
            longest: Longest::default(),
            steps: Vec::new(),
        };
        for port in 0..connections.div_ceil(ports) as u16 {
            let port = PEER_PORT + port;
            let listen = Command::Listen { address: None, port, backlog: u32::MAX, tcp: None };
            assert!(crowd.peer_rings.commands.push(listen).is_ok());
        }
        for token in 0..connections as u64 {
            crowd.command(crowd.connect(token, token as usize / ports));
        }
        crowd
    }

    fn connect(&self, token: u64, port: usize) -> Command {
        let remote = SocketAddr::new(self.remote, PEER_PORT + port as u16);
        let (timeout_ns, octets) = (600 * SECOND, Box::default());
        Command::Connect { token, local: None, remote, timeout_ns, tcp: None, octets }
    }

    /// Gives the core a command, as soon as there is room.
    fn command(&mut self, command: Command) {
        let mut command = Some(command);
        while let Some(refused) = command.take().and_then(|command| self.rings.commands.push(command).err()) {
            command = Some(refused);
            self.poll();
        }
    }

    /// Polls the core, and then the peer. Returns true if either did any work.
    fn poll(&mut self) -> bool {
        let received_before = self.network.statistics(End::B).delivered;
        let sent_before = self.network.statistics(End::A).sent;
        let (visits_before, began) = (visits(), std::time::Instant::now());
        let mut busy = self.core.poll_once(self.now);
        let (nanos, visits) = (began.elapsed().as_nanos(), visits() - visits_before);
        self.longest.visits = self.longest.visits.max(visits);
        if nanos > self.longest.nanos {
            let frames = |end| self.network.statistics(end);
            self.longest.nanos = nanos;
            self.longest.received = frames(End::B).delivered - received_before;
            self.longest.sent = frames(End::A).sent - sent_before;
        }
        // The peer keeps up: it dequeues as many frames as the core sends in a poll.
        for _ in 0..8 {
            let peer_busy = self.peer_polls && self.peer.poll_once(self.now);
            while self.peer_rings.events.pop().is_some() {}
            busy |= peer_busy;
            if !peer_busy {
                break;
            }
        }
        while let Some(event) = self.rings.events.pop() {
            if let Event::Connected { connection, .. } = &event {
                self.connections.push(*connection);
            } else {
                self.events.push(event);
            }
        }
        busy
    }

    /// Lets `nanos` of virtual time pass.
    fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            let busy = self.poll();
            if !busy {
                let mut next = self.core.next_deadline();
                if self.peer_polls {
                    next = next.min(self.peer.next_deadline());
                }
                if self.now >= end {
                    return;
                }
                self.now = next.max(self.now + 1).min(end);
            }
        }
    }

    /// Carries out a command, and all that follows from it at once.
    fn carry_out(&mut self, command: Command) {
        self.command(command);
        self.run_for(1);
    }

    /// Ends a step: its longest poll is over.
    fn report(&mut self, step: &'static str) {
        self.steps.push((step, core::mem::take(&mut self.longest)));
    }

    /// Brings connections into Full Operation, as many as there may be queue pairs.
    fn begin_full_operation(&mut self) {
        let completions = Arc::new(CompletionRing::new(2 * limits::QPS_PER_CORE));
        let count = self.connections.len().min(limits::QPS_PER_CORE);
        for (number, connection) in (0..count as u32).map(QpNumber).zip(self.connections.clone()) {
            let qp = Arc::new(SharedQp::new(
                number,
                PD,
                QueueDepths { send: 1, receive: 1 },
                CompletionRings::shared(completions.clone()),
                self.rings.doorbells.clone(),
            ));
            self.qps.push(qp.clone());
            self.command(Command::Start { connection, qp, operation: FullOperation::new(true) });
        }
        self.run_for(MILLISECOND);
    }

    fn deregister(&mut self) -> bool {
        self.events.clear();
        self.carry_out(Command::Deregister { stag: MEMORY });
        let result = self.events.iter().find_map(|event| match event {
            Event::Deregistered { result, .. } => Some(result.is_ok()),
            _ => None,
        });
        result.expect("an answer")
    }

    /// The core has reported its counters: each connection counts once. Returns how many segments with data
    /// it has sent.
    fn expect_report(&mut self) -> u64 {
        let reported = self.events.iter().find_map(|event| match event {
            Event::Statistics(statistics) => Some(statistics.clone()),
            _ => None,
        });
        let (reported, expected) = (reported.expect("a report"), self.core.statistics());
        assert_eq!((reported.tcp, reported.transfers), (expected.tcp, expected.transfers));
        self.events.clear();
        reported.tcp.data_segments_sent
    }

    /// Has the core revoke the memory; returns the readers that have lost their connections.
    fn revoke(&mut self) -> Vec<ConnectionId> {
        self.events.clear();
        self.carry_out(Command::Revoke { stag: MEMORY });
        let mut ended = Vec::new();
        for event in &self.events {
            match event {
                Event::Closed { connection, .. } => ended.push(*connection),
                Event::Deregistered { result, .. } => assert_eq!(*result, Ok(())),
                _ => {}
            }
        }
        assert!(self.events.iter().any(|event| matches!(event, Event::Deregistered { .. })), "an answer");
        ended
    }

    fn register(&mut self) {
        let region = Region::heap(4096).unwrap();
        self.carry_out(Command::Register { stag: MEMORY, grant: Grant::new(region, PD, 0, Access::empty()) });
    }
}

/// Does with a crowd what once made a core look at all its connections.
fn work_of(connections: usize, over_ipv6: bool) -> Vec<(&'static str, Longest)> {
    let mut crowd = Crowd::new(connections, over_ipv6);
    crowd.run_for(MILLISECOND);
    crowd.report("open all");
    crowd.run_for(limits::NEIGHBOUR_RETRANSMIT_NS);
    crowd.report("ask again");
    crowd.carry_out(Command::GiveUp { token: 3 });
    assert!(crowd.events.iter().any(|event| matches!(event, Event::ConnectFailed { token: 3, .. })));
    crowd.report("give up");
    crowd.peer_polls = true;
    // The addresses are confirmed, if they are of IPv6, and the peer answers.
    crowd.run_for(5 * SECOND);
    assert_eq!(crowd.connections.len(), connections - 1, "all are open");
    crowd.report("resolve the neighbour");
    crowd.command(crowd.connect(3, 0));
    crowd.run_for(SECOND);
    assert_eq!(crowd.connections.len(), connections, "its port was free");
    crowd.events.clear();
    crowd.report("open another");
    crowd.carry_out(crowd.connect(4, 0));
    let no_port =
        |event: &Event| matches!(event, Event::ConnectFailed { token: 4, error: ConnectError::NoPort });
    assert!(crowd.events.iter().any(no_port), "all are in use");
    crowd.report("find no port");

    crowd.carry_out(Command::ReportStatistics);
    crowd.expect_report();
    crowd.report("report statistics");
    crowd.carry_out(Command::Listen { address: None, port: 80, backlog: 16, tcp: None });
    crowd.report("listen");

    crowd.begin_full_operation();
    crowd.report("begin Full Operation");
    crowd.register();
    assert!(crowd.deregister());
    crowd.report("deregister");
    crowd.register();
    for qp in &crowd.qps {
        let local = Slice { stag: MEMORY, to: 0, len: 16 };
        qp.post_send(SendRequest::new(1, Operation::SEND, local)).unwrap();
    }
    assert!(!crowd.deregister(), "it is in use");
    crowd.report("deregister while all doorbells ring");
    crowd.run_for(SECOND);
    assert!(crowd.deregister(), "it is in use no more");
    crowd.report("deregister again");
    crowd.carry_out(Command::DestroyQp(crowd.qps[5].clone()));
    crowd.report("destroy a queue pair");
    // The first and the last queue pair read from memory when it is revoked: the walk to the last takes
    // several polls.
    crowd.register();
    let readers = [0, crowd.qps.len() - 1];
    for reader in readers {
        let local = Slice { stag: MEMORY, to: 0, len: 16 };
        crowd.qps[reader].post_send(SendRequest::new(2, Operation::SEND, local)).unwrap();
    }
    crowd.peer_polls = false;
    crowd.run_for(1);
    let mut ended = crowd.revoke();
    crowd.peer_polls = true;
    let mut expected = readers.map(|reader| crowd.connections[reader]);
    ended.sort_unstable_by_key(|connection| connection.to_bits());
    expected.sort_unstable_by_key(|connection| connection.to_bits());
    assert_eq!(ended, expected);
    crowd.report("revoke");

    // Some connections end before the report has come to them, others after that.
    crowd.command(Command::ReportStatistics);
    for connection in crowd.connections.clone().into_iter().step_by(connections / 100) {
        crowd.command(Command::Abort { connection });
    }
    crowd.run_for(1);
    let segments = crowd.expect_report();
    assert!(segments >= crowd.qps.len() as u64, "{segments} segments with data");
    crowd.report("report while connections end");
    for connection in crowd.connections.clone() {
        crowd.command(Command::Disconnect { connection, within_ns: None });
    }
    crowd.run_for(SECOND);
    crowd.report("disconnect all");
    crowd.peer_polls = false;
    crowd.now += limits::LINGER_NS;
    crowd.run_for(SECOND);
    crowd.report("end TIME-WAIT");
    crowd.steps
}

#[track_caller]
fn expect_bounded(steps: &[(&'static str, Longest)]) {
    for (step, Longest { visits, nanos, received, sent }) in steps {
        let us = *nanos as f64 / 1000.0;
        println!("{us:>9.1} us, {received:>4} frames in, {sent:>4} out; {visits:>6} visits  {step}");
    }
    for (step, Longest { visits, .. }) in steps {
        assert!(*visits <= VISITS_MAX, "{step}: {visits} visits in one poll");
    }
}

#[test]
fn no_poll_looks_at_all_connections() {
    expect_bounded(&work_of(connections(), false));
}

/// Connections that wait for an address of their host to come into use.
#[test]
fn no_poll_looks_at_all_connections_over_ipv6() {
    expect_bounded(&work_of(connections(), true));
}
