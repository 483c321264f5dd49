//! Any number of connections from one core to another through one bottleneck, in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::{self, End, EndConfig, Impairments, Network, SimDevice};
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{
    Completion, Operation, QpNumber, ReceiveRequest, SendRequest, Slice, Status,
};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::tcp::EcnPolicy;
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::time::{Instant, SECOND};

use crate::common::{PD, PORT, REPLY, REQUEST, TestCore, address, core_on, region_of};

/// The STags of the sender's source and of the receiver's memory.
pub const SOURCE: STag = STag::new(1, 11);
pub const SINK: STag = STag::new(2, 22);
pub const INBOX: STag = STag::new(3, 33);

/// Room for the largest product of rate and round trip here, and its queue.
const WINDOW_OCTETS: u32 = 1 << 20;

/// A path with one bottleneck in the direction of the data. Acknowledgements return without loss or queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub rate_bits_per_second: u64,
    /// Without any queue.
    pub rtt_ns: u64,
    pub queue_octets: u64,
    pub mark_octets: Option<u64>,
    /// Probabilities per frame of data.
    pub loss: f64,
    pub reorder: f64,
    pub mtu_octets: usize,
}

impl Line {
    /// A line whose queue holds one bandwidth-delay product, without loss or reordering.
    pub fn new(rate_bits_per_second: u64, rtt_ns: u64, mtu_octets: usize) -> Self {
        let mut line = Self {
            rate_bits_per_second,
            rtt_ns,
            queue_octets: 0,
            mark_octets: None,
            loss: 0.0,
            reorder: 0.0,
            mtu_octets,
        };
        line.queue_octets = line.on_its_way_octets();
        line
    }

    /// Octets in flight when the line is full and the queue is empty: rate times round trip.
    pub fn on_its_way_octets(&self) -> u64 {
        (u128::from(self.rate_bits_per_second) * u128::from(self.rtt_ns) / u128::from(8 * SECOND)) as u64
    }

    /// The longest round trip: the queue is full, and a frame is held back for the maximum time.
    pub fn longest_rtt_ns(&self) -> u64 {
        let frame = self.mtu_octets as u64;
        let queue = u128::from(self.queue_octets + frame) * u128::from(8 * SECOND);
        self.rtt_ns + (queue / u128::from(self.rate_bits_per_second)) as u64 + self.held_back_ns()
    }

    /// A frame that is held back is overtaken by frames that follow within an eighth of the round trip.
    fn held_back_ns(&self) -> u64 {
        if self.reorder > 0.0 { self.rtt_ns / 8 } else { 0 }
    }

    fn forth(&self) -> Impairments {
        Impairments {
            rate_bits_per_second: Some(self.rate_bits_per_second),
            queue_octets: self.queue_octets,
            mark_octets: self.mark_octets,
            loss: self.loss,
            reorder: self.reorder,
            reorder_delay_ns: self.held_back_ns().max(1),
            ..self.back()
        }
    }

    fn back(&self) -> Impairments {
        let delay_ns = self.rtt_ns / 2;
        Impairments { delay_min_ns: delay_ns, delay_max_ns: delay_ns, ..Impairments::default() }
    }
}

/// A core with the resources that control would hold.
pub struct Side {
    pub core: TestCore,
    rings: Rings,
    events: Vec<Event>,
}

impl Side {
    fn new(device: SimDevice, host: u8, seed: u64, algorithm: Algorithm) -> Self {
        let rings = Rings::new();
        let mut config = Config::new(address(host).into(), 24, [seed, u64::from(host)]);
        config.window_bytes = WINDOW_OCTETS;
        behave(&mut config, algorithm);
        let tables = Tables {
            connections: 32,
            send_descriptors: 16_384,
            held_frames: 8192,
            queue_pairs: 32,
            regions: 64,
            ..Tables::default()
        };
        Self {
            core: core_on(device, CoreSetup::new(config, rings.clone()).with_tables(tables)),
            rings,
            events: Vec::new(),
        }
    }

    pub fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok(), "command ring full");
    }

    pub fn register(&self, stag: STag, region: &Region, access: Access) {
        let grant = Grant::new(region.clone(), PD, 0, access);
        self.command(Command::Register { stag, grant });
    }

    fn take_events(&mut self) {
        while let Some(event) = self.rings.events.pop() {
            self.events.push(event);
        }
    }

    /// The connection that was opened last.
    fn opened(&self) -> Option<ConnectionId> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Accepted { connection, .. } | Event::Connected { connection, .. } => Some(*connection),
            _ => None,
        })
    }

    fn streamed(&self, expected: &[u8]) -> bool {
        let of = |event: &Event| match event {
            Event::Stream { octets, .. } => octets.to_vec(),
            _ => Vec::new(),
        };
        self.events.iter().flat_map(of).eq(expected.iter().copied())
    }
}

/// One end of a connection.
pub struct Port {
    pub qp: Arc<SharedQp>,
    pub completions: Arc<CompletionRing>,
}

impl Port {
    fn new(side: &Side, number: u32) -> Self {
        let completions = Arc::new(CompletionRing::new(256));
        let rings = CompletionRings::shared(completions.clone());
        let doorbells = side.rings.doorbells.clone();
        let qp = Arc::new(SharedQp::new(
            QpNumber(number),
            PD,
            QueueDepths { send: 128, receive: 16 },
            rings,
            doorbells,
        ));
        Self { qp, completions }
    }

    pub fn write(&self, id: u64, local: Slice, to: u64) {
        let operation = Operation::Write { stag: SINK, to };
        self.qp.post_send(SendRequest::new(id, operation, local)).unwrap();
    }

    pub fn send(&self, id: u64, local: Slice) {
        self.qp.post_send(SendRequest::new(id, Operation::SEND, local)).unwrap();
    }

    pub fn receive(&self, id: u64, local: Slice) {
        self.qp.post_receive(ReceiveRequest::new(id, local)).unwrap();
    }
}

/// One connection, from `a` to `b`.
pub struct Flow {
    pub a: Port,
    pub b: Port,
    /// Writes of [`Flows::keep_busy`] in flight, and octets of those that were acknowledged.
    under_way: u64,
    pub acknowledged_octets: u64,
}

/// Two cores, the bottleneck between them, and the connections through it.
pub struct Flows {
    pub a: Side,
    pub b: Side,
    pub connections: Vec<Flow>,
    pub network: Network,
    pub now: Instant,
    line: Line,
}

/// Writes that a busy connection has posted, and octets of each: more than any window here holds.
const BUSY_WRITES: u64 = 100;
const BUSY_OCTETS: u32 = 16_384;

impl Flows {
    /// Nothing is lost, overtaken or marked before [`impair`](Self::impair).
    pub fn new(seed: u64, line: Line, algorithm: Algorithm) -> Self {
        let end =
            |config: EndConfig| EndConfig { mtu_bytes: line.mtu_octets, outbound: line.back(), ..config };
        let (device_a, device_b) = sim::link(seed, end(EndConfig::a()), end(EndConfig::b()));
        let network = device_a.network();
        let clear = Line { loss: 0.0, reorder: 0.0, mark_octets: None, ..line };
        network.set_impairments(End::A, clear.forth());
        let a = Side::new(device_a, 1, seed, algorithm);
        let b = Side::new(device_b, 2, seed, algorithm);
        b.command(Command::Listen { address: None, port: PORT, backlog: 32, tcp: None });
        Self { a, b, connections: Vec::new(), network, now: Instant::from_nanos(1), line }
    }

    /// From now on the line loses, reorders and marks.
    pub fn impair(&mut self) {
        self.network.set_impairments(End::A, self.line.forth());
    }

    /// Polls both ends once; when neither has anything to do, time moves on to the next thing that happens.
    pub fn step(&mut self) {
        let busy = self.a.core.poll_once(self.now) | self.b.core.poll_once(self.now);
        if !busy {
            let next = self.a.core.next_deadline().min(self.b.core.next_deadline());
            self.now = next.max(self.now + 1).min(self.now + SECOND);
        }
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.now + 60 * SECOND;
        while !done(self) {
            assert!(self.now < end, "{what}: {:?} {:?}", self.a.events, self.b.events);
            self.step();
            self.a.take_events();
            self.b.take_events();
        }
    }

    /// Opens one more connection and brings it into Full Operation; returns its index in
    /// [`connections`](Self::connections).
    pub fn open(&mut self) -> usize {
        let index = self.connections.len();
        let number = index as u32 + 1;
        let (a, b) = (Port::new(&self.a, number), Port::new(&self.b, number));
        self.a.events.clear();
        self.b.events.clear();
        let remote = SocketAddr::new(address(2).into(), PORT);
        self.a.command(Command::Connect {
            token: 1,
            local: None,
            remote,
            timeout_ns: 60 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
        self.run_until("no connection", |flows| flows.a.opened().is_some() && flows.b.opened().is_some());
        let ends = (self.a.opened().unwrap(), self.b.opened().unwrap());
        let operation = |initiator| FullOperation::new(initiator);
        let stream =
            |connection, octets: &[u8], then| Command::Stream { connection, octets: octets.into(), then };
        self.a.command(stream(ends.0, REQUEST, AfterStream::Stay));
        self.run_until("no Request", |flows| flows.b.streamed(REQUEST));
        let full_operation = AfterStream::FullOperation { qp: b.qp.clone(), operation: operation(false) };
        self.b.command(stream(ends.1, REPLY, full_operation));
        self.run_until("no Reply", |flows| flows.a.streamed(REPLY));
        self.a.command(Command::Start { connection: ends.0, qp: a.qp.clone(), operation: operation(true) });
        self.step();
        self.connections.push(Flow { a, b, under_way: 0, acknowledged_octets: 0 });
        index
    }

    /// Registers the memory that [`keep_busy`](Self::keep_busy) transfers.
    pub fn register_busy(&self) {
        self.a.register(SOURCE, &region_of(&vec![0x5a; BUSY_OCTETS as usize]), Access::empty());
        self.b.register(SINK, &Region::heap(BUSY_OCTETS as usize).unwrap(), Access::REMOTE_WRITE);
    }

    /// Lets every connection send all it can until `end`. Returns the octets of each connection that were
    /// acknowledged in that time.
    pub fn keep_busy(&mut self, end: Instant) -> Vec<u64> {
        let before: Vec<u64> = self.connections.iter().map(|flow| flow.acknowledged_octets).collect();
        while self.now < end {
            for flow in &mut self.connections {
                while let Some(completion) = flow.a.completions.poll() {
                    assert_eq!(completion.status, Status::Success);
                    flow.under_way -= 1;
                    flow.acknowledged_octets += u64::from(BUSY_OCTETS);
                }
                while flow.under_way < BUSY_WRITES {
                    flow.a.write(0, Slice { stag: SOURCE, to: 0, len: BUSY_OCTETS }, 0);
                    flow.under_way += 1;
                }
            }
            self.step();
        }
        self.connections.iter().zip(before).map(|(flow, before)| flow.acknowledged_octets - before).collect()
    }

    /// Frames of data that the path has not delivered so far.
    pub fn lost_frames(&self) -> u64 {
        let statistics = self.network.statistics(End::A);
        statistics.lost + statistics.queue_full
    }

    pub fn sender(&self) -> Statistics {
        self.a.core.statistics()
    }

    /// Retransmission timeouts of the sender so far.
    pub fn timeouts(&self) -> u64 {
        u64::from(self.sender().tcp.timeouts)
    }
}

/// The next completion, which must be a success.
pub fn next(completions: &CompletionRing) -> Option<Completion> {
    let completion = completions.poll()?;
    assert_eq!(completion.status, Status::Success, "{completion:?}");
    Some(completion)
}

/// The algorithm of all connections of a core; ECN is asked for, and does nothing where nothing marks.
fn behave(config: &mut Config, algorithm: Algorithm) {
    config.tcp.congestion = algorithm;
    config.tcp.ecn = EcnPolicy::Request;
}
