//! Two hosts, at least one of eight cores, with connections between them, and the memory that they must end
//! with.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::core::Config;
use warpline_dataplane::core::testing::shared_writes;
use warpline_dataplane::device::sim::{self, End, EndConfig, Impairments, Network};
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{
    CompletionKind, Operation, QpNumber, ReceiveRequest, SendRequest, Slice, Status,
};
use warpline_dataplane::ring::{Command, ConnectionId, Event, FullOperation};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;

use crate::common::multicore::{Host, Port, Scheduler};
use crate::common::{PD, PORT, WINDOW_OCTETS, address, address_v6, holds, pattern, region_of};
use warpline_dataplane::net::addresses::Cidr;

/// Octets of the memory of each side of a connection that is written to, and that is sent from.
const MEMORY: usize = 16_384;
/// Requests of a queue pair.
const DEPTH: usize = 32;
/// The most octets of a message.
const LONGEST: usize = 4000;
/// Octets of each receive.
const RECEIVE: usize = LONGEST;

/// What a number of seeds did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    operations: u64,
    connections: u64,
    stalls: u64,
    not_handed_over: u64,
    lost: u64,
    /// Frames received by each core of hosts of eight.
    frames: [u64; 8],
    /// Runs with each port of the host that accepts.
    ports: [u64; Port::COUNT],
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.connections += other.connections;
        self.stalls += other.stalls;
        self.not_handed_over += other.not_handed_over;
        self.lost += other.lost;
        for (sum, more) in self.frames.iter_mut().zip(other.frames) {
            *sum += more;
        }
        for (sum, more) in self.ports.iter_mut().zip(other.ports) {
            *sum += more;
        }
    }

    /// Checks that chance has done everything it can.
    pub fn expect_everything(&self) {
        let Self { operations, connections, stalls, not_handed_over, lost, frames, ports } = self;
        assert!(
            [operations, connections, stalls, not_handed_over, lost].iter().all(|count| **count > 0),
            "{self:?}"
        );
        assert!(frames.iter().all(|count| *count > 0), "{self:?}");
        assert!(ports[1..].iter().all(|count| *count > 0), "{self:?}");
    }
}

/// One side of a connection, and what it expects.
struct Side {
    /// Its core, once it is open.
    opened: Option<(usize, ConnectionId)>,
    qp: Option<Arc<SharedQp>>,
    completions: Arc<CompletionRing>,
    /// What it sends from.
    source: Vec<u8>,
    source_region: Region,
    /// What the other side writes to, and what is expected there.
    sink: Region,
    model: Vec<u8>,
    /// Where messages are received, one after another.
    inbox: Region,
    /// Messages on their way to this side.
    messages: VecDeque<Vec<u8>>,
    /// Messages that this side has sent, and receives that it has posted.
    sent: usize,
    receives: usize,
    received: usize,
    outstanding: usize,
    left: usize,
}

impl Side {
    fn new(seed: u64, left: usize) -> Self {
        let source = pattern(seed, MEMORY);
        Self {
            opened: None,
            qp: None,
            completions: Arc::new(CompletionRing::new(4 * DEPTH)),
            source_region: region_of(&source),
            source,
            sink: Region::heap(MEMORY).expect("memory"),
            model: vec![0; MEMORY],
            inbox: Region::heap(DEPTH * RECEIVE).expect("memory"),
            messages: VecDeque::new(),
            sent: 0,
            receives: 0,
            received: 0,
            outstanding: 0,
            left,
        }
    }

    /// Posts receives until the queue is full.
    fn post_receives(&mut self, inbox: STag) {
        let Some(qp) = &self.qp else { return };
        while self.receives < self.received + DEPTH {
            let to = (self.receives % DEPTH * RECEIVE) as u64;
            let local = Slice { stag: inbox, to, len: RECEIVE as u32 };
            qp.post_receive(ReceiveRequest::new(self.receives as u64, local)).expect("room");
            self.receives += 1;
        }
    }

    /// Takes completions, and checks them against what was posted.
    fn take_completions(&mut self) {
        while let Some(completion) = self.completions.poll() {
            assert_eq!(completion.status, Status::Success, "{completion:?}");
            if completion.kind == CompletionKind::Receive {
                let message = self.messages.pop_front().expect("a message was sent");
                assert_eq!(completion.id, self.received as u64, "in order");
                assert_eq!(completion.byte_len as usize, message.len());
                assert!(holds(&self.inbox, self.received % DEPTH * RECEIVE, &message), "the message differs");
                self.received += 1;
            } else {
                self.outstanding -= 1;
            }
        }
    }
}

/// Returns the name of memory of a side: those that it sends from, that is written to, and that it receives
/// into.
fn names(number: usize, side: usize) -> [STag; 3] {
    core::array::from_fn(|which| STag::new((1 + (number * 2 + side) * 3 + which) as u16, 7))
}

/// The hosts and their connections: side 0 of each has opened it, and belongs to the first host.
pub struct World {
    rng: Rng,
    scheduler: Scheduler,
    hosts: [Host; 2],
    ports: [Port; 2],
    network: Network,
    /// The network loses, delays and repeats frames.
    is_disturbed: bool,
    connections: Vec<[Side; 2]>,
    tally: Tally,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let several = [Port::Rss, Port::OtherRss, Port::Unsorted, Port::OneQueue];
        let accepting = several[seed as usize % several.len()];
        let opening = if rng.bool() { Port::Plain } else { several[rng.usize(0..several.len())] };
        let stall = if rng.bool() { 0.001 } else { 0.02 };
        let (connections, work) = (rng.usize(1..=12), rng.usize(1..60));
        Self::between([opening, accepting], seed, stall, connections, work)
    }

    /// Returns two hosts of eight cores with such ports, on a network that does nothing to frames.
    pub fn undisturbed(port: Port, seed: u64) -> Self {
        let mut world = Self::between([port, port], seed, 0.0, 24, 400);
        world.is_disturbed = false;
        world
    }

    fn between(
        [opening, accepting]: [Port; 2],
        seed: u64,
        stall: f64,
        connections: usize,
        work: usize,
    ) -> Self {
        let mut rng = Rng::with_seed(!seed);
        let mtu_bytes = if rng.bool() { 1500 } else { 9000 };
        // With few frames, the rings between cores are short.
        let frame_limit = if rng.bool() { usize::MAX } else { 4096 };
        let ends = [EndConfig::a(), EndConfig::b()].map(|end| EndConfig { mtu_bytes, frame_limit, ..end });
        let (a, b) = sim::link(seed, ends[0], ends[1]);
        let network = a.network();
        let config = |host: u8| {
            let mut config = Config {
                window_bytes: WINDOW_OCTETS,
                duplicate_address_detection: false,
                ..Config::new(address(host).into(), 24, [seed, host.into()])
            };
            config.addresses.push(Cidr::new(address_v6(host).into(), 64));
            config
        };
        let count = |port| if port == Port::Plain { 1 } else { 8 };
        let hosts = [
            Host::new(a, opening, count(opening), seed, &config(1)),
            Host::new(b, accepting, count(accepting), seed ^ 0x5555, &config(2)),
        ];
        let sides = |number: usize| [0, 1].map(|side| Side::new(seed ^ (number * 2 + side) as u64, work));
        Self {
            scheduler: Scheduler::new(seed, stall),
            rng,
            hosts,
            ports: [opening, accepting],
            network,
            is_disturbed: true,
            connections: (0..connections).map(sides).collect(),
            tally: Tally::default(),
        }
    }

    /// Runs until all work is done, and compares the memory.
    pub fn run(mut self) -> Tally {
        self.begin();
        self.work_while(|left| left > 0);
        self.compare();
        self.into_tally()
    }

    /// Runs until all work is done. Returns how many requests were posted in the middle of that, when all
    /// have something to do and no time passes idly, and how often cores wrote to lines that others use then.
    pub fn count_shared_writes(mut self) -> (u64, u64) {
        self.begin();
        let quarter = self.left() / 4;
        self.work_while(|left| left > 3 * quarter);
        let (posted, written) = (self.tally.operations, shared_writes());
        self.work_while(|left| left > quarter);
        let counts = (self.tally.operations - posted, shared_writes() - written);
        self.work_while(|left| left > 0);
        self.compare();
        assert!(self.into_tally().frames.iter().all(|frames| *frames > 0), "each core has had a part of it");
        counts
    }

    /// Listens at all cores, and opens all connections.
    fn begin(&mut self) {
        for core in 0..self.hosts[1].cores.len() {
            for number in 0..self.connections.len() {
                let port = PORT + number as u16;
                self.hosts[1].command(core, Command::Listen { address: None, port, backlog: 4, tcp: None });
                while !self.hosts[1].has_obeyed() {
                    self.step();
                }
            }
        }
        let impairments = if self.is_disturbed { self.impairments() } else { Impairments::default() };
        for end in [End::A, End::B] {
            self.network.set_impairments(end, impairments);
        }
        for number in 0..self.connections.len() {
            self.open(number);
        }
    }

    /// Returns how much is left to do: requests to post and to complete, and messages to arrive.
    fn left(&self) -> usize {
        let sides = self.connections.iter().flatten();
        sides.map(|side| side.left + side.outstanding + side.messages.len()).sum()
    }

    /// Posts and polls while there is as much left to do as `goes_on` says.
    fn work_while(&mut self, goes_on: impl Fn(usize) -> bool) {
        while goes_on(self.left()) {
            self.post();
            self.step();
        }
    }

    fn compare(&self) {
        for (number, side) in self.connections.iter().flat_map(|sides| sides.iter().enumerate()) {
            assert!(holds(&side.sink, 0, &side.model), "the memory of side {number} differs");
        }
    }

    fn impairments(&mut self) -> Impairments {
        let mut probability = |most: f64| if self.rng.bool() { self.rng.f64() * most } else { 0.0 };
        Impairments {
            loss: probability(0.04),
            reorder: probability(0.1),
            duplicate: probability(0.05),
            delay_min_ns: 2000,
            delay_max_ns: 2000,
            ..Impairments::default()
        }
    }

    /// Polls, and takes what that has led to.
    fn step(&mut self) {
        self.scheduler.step(&mut self.hosts);
        assert!(self.scheduler.now.as_nanos() < 3000 * SECOND, "it comes to an end");
        for (core, event) in self.hosts[1].take_events() {
            if let Event::Accepted { connection, flow, .. } = event {
                self.connections[usize::from(flow.local_port - PORT)][1].opened = Some((core, connection));
            }
        }
        for (core, event) in self.hosts[0].take_events() {
            if let Event::Connected { token, connection, .. } = event {
                self.connections[token as usize][0].opened = Some((core, connection));
            }
        }
        for (number, sides) in self.connections.iter_mut().enumerate() {
            for (index, side) in sides.iter_mut().enumerate() {
                side.take_completions();
                side.post_receives(names(number, index)[2]);
            }
        }
    }

    /// Opens a connection, on which Full Operation begins at both ends.
    fn open(&mut self, number: usize) {
        let host = if self.rng.bool() { address_v6(2).into() } else { address(2).into() };
        let remote = SocketAddr::new(host, PORT + number as u16);
        let core = self.rng.usize(0..self.hosts[0].cores.len());
        let (token, timeout_ns, octets) = (number as u64, 600 * SECOND, Box::default());
        let connect = Command::Connect { token, local: None, remote, timeout_ns, tcp: None, octets };
        self.hosts[0].command(core, connect);
        while self.connections[number].iter().any(|side| side.opened.is_none()) {
            self.step();
        }
        // The Responder starts first, so that it is ready for every FPDU.
        for side in [1, 0] {
            self.start(number, side);
            while !self.hosts[side].has_obeyed() {
                self.step();
            }
        }
        // The Responder may send once it has an FPDU (MPA-7.1.2-15).
        self.write(number, 0);
        self.tally.connections += 1;
    }

    /// Begins Full Operation at one side.
    fn start(&mut self, number: usize, index: usize) {
        let (host, side) = (&self.hosts[index], &mut self.connections[number][index]);
        let (core, connection) = side.opened.expect("it is open");
        let rings = CompletionRings::shared(side.completions.clone());
        let depths = QueueDepths { send: DEPTH, receive: DEPTH };
        let qp = SharedQp::new(QpNumber(number as u32), PD, depths, rings, host.doorbells());
        let qp = Arc::new(qp);
        side.qp = Some(qp.clone());
        let [source, sink, inbox] = names(number, index);
        for (stag, region, access) in [
            (source, &side.source_region, Access::empty()),
            (sink, &side.sink, Access::REMOTE_WRITE),
            (inbox, &side.inbox, Access::LOCAL_WRITE),
        ] {
            let grant = Grant::new(region.clone(), PD, 0, access);
            host.command(core, Command::Register { stag, grant });
        }
        side.post_receives(inbox);
        host.command(core, Command::Start { connection, qp, operation: FullOperation::new(index == 0) });
    }

    /// Posts something at a random side that has work left.
    fn post(&mut self) {
        let (number, side) = (self.rng.usize(0..self.connections.len()), self.rng.usize(0..2));
        let [mine, other] = self.connections[number].each_ref().map(|side| (side.left, side.outstanding));
        let (left, outstanding) = if side == 0 { mine } else { other };
        if left == 0 || outstanding == DEPTH {
            return;
        }
        self.connections[number][side].left -= 1;
        // A message needs a receive.
        let has_receive = self.connections[number][1 - side].messages.len() < DEPTH / 2;
        if self.rng.bool() || !has_receive { self.write(number, side) } else { self.send(number, side) }
    }

    /// Returns a random range of a side's own memory.
    fn range(&mut self) -> (usize, usize) {
        let len = if self.rng.bool() { self.rng.usize(0..200) } else { self.rng.usize(0..LONGEST) };
        (self.rng.usize(0..=MEMORY - len), len)
    }

    fn write(&mut self, number: usize, side: usize) {
        let (from, len) = self.range();
        let to = self.rng.usize(0..=MEMORY - len);
        let octets = self.connections[number][side].source[from..from + len].to_vec();
        self.connections[number][1 - side].model[to..to + len].copy_from_slice(&octets);
        let stag = names(number, 1 - side)[1];
        self.request(number, side, Operation::Write { stag, to: to as u64 }, (from, len));
    }

    fn send(&mut self, number: usize, side: usize) {
        let (from, len) = self.range();
        let octets = self.connections[number][side].source[from..from + len].to_vec();
        self.connections[number][1 - side].messages.push_back(octets);
        self.connections[number][side].sent += 1;
        self.request(number, side, Operation::SEND, (from, len));
    }

    fn request(&mut self, number: usize, index: usize, operation: Operation, (from, len): (usize, usize)) {
        let side = &mut self.connections[number][index];
        let local = Slice { stag: names(number, index)[0], to: from as u64, len: len as u32 };
        let request = SendRequest::new(side.sent as u64, operation, local);
        side.qp.as_ref().expect("it is open").post_send(request).expect("room");
        side.outstanding += 1;
        self.tally.operations += 1;
    }

    fn into_tally(mut self) -> Tally {
        self.tally.stalls = self.scheduler.stalls;
        self.tally.lost = [End::A, End::B].iter().map(|end| self.network.statistics(*end).lost).sum();
        self.tally.ports[self.ports[1] as usize] = 1;
        for host in &self.hosts {
            let statistics = host.statistics();
            for (core, counters) in statistics.iter().enumerate() {
                self.tally.not_handed_over += counters.dropped(DropCause::NotHandedOver);
                assert_eq!(counters.dropped(DropCause::NoConnection), 0, "core {core} gets its own segments");
                if statistics.len() == 8 {
                    self.tally.frames[core] += counters.frames_received;
                }
            }
        }
        self.tally
    }
}
