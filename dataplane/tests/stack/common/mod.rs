//! Two cores on a simulated link, in virtual time, with the parts of a control thread that a test needs.

pub mod cores;
pub mod hosts;
pub mod link;
pub mod multicore;
pub mod raw;

use core::num::NonZeroU32;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, PollLoop};
use warpline_dataplane::device::Device;
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::sim::{self, EndConfig, Network, SimDevice, SimFrame};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::net::addresses::Cidr;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{
    Completion, Operation, Payload, QpNumber, ReceiveRequest, SendRequest, Slice, Status,
};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::time::{Instant, SECOND};

pub const PORT: u16 = 7471;
pub const PD: ProtectionDomainId = ProtectionDomainId(1);
pub const QP: QpNumber = QpNumber(3);
pub const WINDOW_OCTETS: u32 = 256 * 1024;

/// MPA Request and Reply, Rev 1, with CRC (RFC 5044 figure 8).
pub const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\x00\x00";
pub const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

/// Tables of a core of a test: to create those of a real size takes longer than most tests.
pub const TABLES: Tables = Tables {
    connections: 4096,
    time_waits: 1024,
    send_descriptors: limits::SEND_DESCRIPTORS_PER_CORE,
    held_frames: limits::HELD_FRAMES_PER_CORE,
    placed_runs: limits::PLACED_RUNS_PER_CORE,
    placed_sends: limits::PLACED_SENDS_PER_CORE,
    queue_pairs: 1024,
    listeners: limits::LISTENERS_PER_CORE,
    regions: 1024,
    cut_octets: limits::CUT_BYTES_PER_CORE,
};

pub fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, host)
}

/// The same host's address in IPv6.
pub fn address_v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())
}

/// A core on one of the devices of the tests, all of which are on simulated links: its poll loop is compiled
/// in the data plane.
pub type TestCore = Box<dyn PollLoop>;

/// Returns a core on `device`.
pub fn core_on(
    device: impl Device<Frame = SimFrame> + Send + 'static,
    setup: CoreSetup<SimFrame>,
) -> TestCore {
    SimFrame::poll_loop(boxed(device), setup)
}

/// A core with one queue pair, and the resources that control and an application would hold.
pub struct Host {
    pub core: TestCore,
    pub rings: Rings,
    pub qp: Arc<SharedQp>,
    pub completions: Arc<CompletionRing>,
    pub events: Vec<Event>,
    pub connection: Option<ConnectionId>,
}

impl Host {
    fn new(device: SimDevice, host: u8, seed: u64, tables: Tables, change: impl Fn(&mut Config)) -> Self {
        let rings = Rings::new();
        let mut config = Config {
            window_bytes: WINDOW_OCTETS,
            duplicate_address_detection: false,
            ..Config::new(address(host).into(), 24, [seed, u64::from(host)])
        };
        config.addresses.push(Cidr::new(address_v6(host).into(), 64));
        change(&mut config);
        let core = core_on(device, CoreSetup::new(config, rings.clone()).with_tables(tables));
        let completions = Arc::new(CompletionRing::new(4096));
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 1024, receive: 1024 },
            CompletionRings::shared(completions.clone()),
            rings.doorbells.clone(),
        ));
        Self { core, rings, qp, completions, events: Vec::new(), connection: None }
    }

    pub fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok(), "command ring full");
    }

    /// Registers `region` with Tagged Offset 0 for its first octet.
    pub fn register(&self, stag: STag, region: &Region, access: Access) {
        let grant = Grant::new(region.clone(), PD, 0, access);
        self.command(Command::Register { stag, grant });
    }

    pub fn send(&self, id: u64, local: Slice) {
        let request = SendRequest::new(id, Operation::SEND, local);
        self.qp.post_send(request).unwrap();
    }

    pub fn write(&self, id: u64, local: Slice, stag: STag, to: u64) {
        let request = SendRequest::new(id, Operation::Write { stag, to }, local);
        self.qp.post_send(request).unwrap();
    }

    /// Posts `operation` with `local`.
    pub fn post(&self, id: u64, operation: Operation, local: impl Into<Payload>) {
        self.qp.post_send(SendRequest::new(id, operation, local)).unwrap();
    }

    pub fn receive(&self, id: u64, local: Slice) {
        self.qp.post_receive(ReceiveRequest::new(id, local)).unwrap();
    }

    pub fn poll_completions(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.completions.poll()).collect()
    }

    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    fn take_events(&mut self) {
        while let Some(event) = self.rings.events.pop() {
            match &event {
                Event::Accepted { connection, .. } | Event::Connected { connection, .. } => {
                    self.connection = Some(*connection);
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    /// The streaming octets received so far.
    pub fn streamed(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        for event in &self.events {
            if let Event::Stream { octets: more, .. } = event {
                octets.extend_from_slice(more);
            }
        }
        octets
    }
}

/// How the connection of a [`Pair`] runs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub markers: bool,
    pub crc: bool,
}

/// Two hosts and the time they live in.
pub struct Pair {
    pub a: Host,
    pub b: Host,
    pub now: Instant,
    pub network: Network,
    /// Connections are opened to the IPv6 address.
    pub over_ipv6: bool,
    /// RDMA Reads that may be outstanding in each direction.
    pub reads: u16,
    /// Time that a Send without a receive waits.
    pub receive_wait_ns: Option<u64>,
    /// Kilobytes of payload that each end may send in a second.
    pub rate_limit_kbps: Option<NonZeroU32>,
}

impl Pair {
    pub fn new(seed: u64, a: EndConfig, b: EndConfig) -> Self {
        Self::with_tables(seed, a, b, TABLES)
    }

    /// Two hosts with tables of other sizes.
    pub fn with_tables(seed: u64, a: EndConfig, b: EndConfig, tables: Tables) -> Self {
        Self::with_config(seed, a, b, tables, |_| ())
    }

    /// The same, with cores whose usual configuration `change` changes.
    pub fn with_config(
        seed: u64,
        a: EndConfig,
        b: EndConfig,
        tables: Tables,
        change: impl Fn(&mut Config),
    ) -> Self {
        let (device_a, device_b) = sim::link(seed, a, b);
        let network = device_a.network();
        Self {
            a: Host::new(device_a, 1, seed, tables, &change),
            b: Host::new(device_b, 2, seed, tables, &change),
            now: Instant::from_nanos(1),
            network,
            over_ipv6: false,
            reads: 0,
            receive_wait_ns: None,
            rate_limit_kbps: None,
        }
    }

    /// Polls both ends once; when neither has anything to do, time moves on to the next thing that happens.
    pub fn step(&mut self) {
        let busy = self.a.core.poll_once(self.now) | self.b.core.poll_once(self.now);
        self.a.take_events();
        self.b.take_events();
        if !busy {
            let next = self.a.core.next_deadline().min(self.b.core.next_deadline());
            self.now = next.max(self.now + 1).min(self.now + SECOND);
        }
    }

    /// Steps until `done`, for at most `seconds` of virtual time; returns true if `done` became true.
    pub fn run_until(&mut self, seconds: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + seconds * SECOND;
        while !done(self) {
            if self.now > end {
                return false;
            }
            self.step();
        }
        true
    }

    /// Lets `seconds` of virtual time pass.
    pub fn run_for(&mut self, seconds: u64) {
        self.run_until(seconds, |_| false);
    }

    /// Opens a TCP connection from `a` to `b`.
    pub fn connect(&mut self) {
        self.b.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
        self.a.command(Command::Connect {
            token: 1,
            local: None,
            remote: if self.over_ipv6 {
                SocketAddr::new(address_v6(2).into(), PORT)
            } else {
                SocketAddr::new(address(2).into(), PORT)
            },
            timeout_ns: 600 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
        let open = self.run_until(700, |pair| pair.a.connection.is_some() && pair.b.connection.is_some());
        assert!(open, "no connection: {:?}", self.a.events);
    }

    /// Opens a connection and brings it into Full Operation, `a` being the Initiator.
    pub fn establish(&mut self, setup: Setup) {
        self.connect();
        let (a, b) = (self.a.connection.unwrap(), self.b.connection.unwrap());
        let (reads, receive_wait_ns, rate_limit_kbps) =
            (self.reads, self.receive_wait_ns, self.rate_limit_kbps);
        let operation = |initiator| FullOperation {
            markers_sent: setup.markers,
            markers_received: setup.markers,
            crc: setup.crc,
            depths: ReadDepths { ird: reads, ord: reads },
            receive_wait_ns,
            rate_limit_kbps,
            ..FullOperation::new(initiator)
        };
        self.a.command(Command::Stream {
            connection: a,
            octets: Box::new(*REQUEST),
            then: AfterStream::Stay,
        });
        assert!(self.run_until(600, |pair| pair.b.streamed() == REQUEST), "no Request");
        self.b.command(Command::Stream {
            connection: b,
            octets: Box::new(*REPLY),
            then: AfterStream::FullOperation { qp: self.b.qp.clone(), operation: operation(false) },
        });
        assert!(self.run_until(600, |pair| pair.a.streamed() == REPLY), "no Reply");
        let qp = self.a.qp.clone();
        self.a.command(Command::Start { connection: a, qp, operation: operation(true) });
        self.step();
    }
}

/// Octets that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, octets: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut pattern = vec![0; octets];
    rng.fill(&mut pattern);
    pattern
}

/// A region that holds `octets`.
pub fn region_of(octets: &[u8]) -> Region {
    let region = Region::heap(octets.len()).unwrap();
    assert!(region.write(0, octets));
    region
}

/// Whether `region` holds `octets` from `offset` on.
pub fn holds(region: &Region, offset: usize, octets: &[u8]) -> bool {
    let mut chunk = vec![0; 65_536.min(octets.len())];
    octets.chunks(chunk.len().max(1)).enumerate().all(|(n, expected)| {
        let chunk = &mut chunk[..expected.len()];
        region.read(offset + n * 65_536, chunk) && chunk == expected
    })
}

/// Whether every completion is a success.
pub fn all_succeeded(completions: &[Completion]) -> bool {
    completions.iter().all(|completion| completion.status == Status::Success)
}

/// An ICMP message to the sender of `frame`: the next link takes packets of `mtu` octets (RFC 1191 §4).
pub fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    let sum = |octets: &[u8]| {
        let words =
            octets.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    };
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(&frame[14..14 + 28]);
    let checksum = sum(&icmp);
    icmp[2..4].copy_from_slice(&checksum);
    let mut packet = vec![0x45, 0, 0, (20 + icmp.len()) as u8, 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend(&frame[14 + 16..14 + 20]);
    packet.extend(&frame[14 + 12..14 + 16]);
    let checksum = sum(&packet);
    packet[10..12].copy_from_slice(&checksum);
    let mut answer = [&frame[6..12], &frame[..6], &[8, 0]].concat();
    answer.extend(packet);
    answer.extend(icmp);
    answer
}
