//! Two cores with several connections between them, in virtual time, and the resources that an application
//! holds.

use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::{self, End, EndConfig, Impairments, Network, SimDevice};
use warpline_dataplane::memory::{Grant, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use warpline_dataplane::qp::work::{Completion, QpNumber};
use warpline_dataplane::ring::{Command, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use crate::common::{PORT, TABLES, TestCore, WINDOW_OCTETS, address, core_on};
use crate::memory_oracle::play::Play;
use crate::memory_oracle::stack::{DEPTH, Damage, World};
use crate::memory_oracle::{PD, SLOTS};

/// Places of a completion queue: for all that can be posted on all queue pairs that report to it.
const COMPLETIONS: usize = 1024;

/// How the connections run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub connections: usize,
    pub markers: bool,
    pub packing: bool,
    pub mtu_octets: usize,
    /// For each host: the number of Reads it may have outstanding, which the other accepts.
    pub read_depth: [u16; 2],
    /// All queue pairs of a host report to one queue.
    pub one_queue: bool,
    /// For each host: the queue pairs that take their receives from a shared queue, one bit for each.
    pub sharing: [u8; 2],
    pub impairments: Impairments,
    /// Sends without a receive wait for one, before they fail as they do without waiting.
    pub waiting: bool,
}

impl Setup {
    pub fn choose(rng: &mut Rng) -> Self {
        let mut probability = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let impairments = Impairments {
            loss: probability(0.05),
            reorder: probability(0.1),
            duplicate: probability(0.05),
            ..Impairments::default()
        };
        Self {
            connections: rng.usize(1..=3),
            markers: rng.bool(),
            packing: rng.bool(),
            mtu_octets: if rng.bool() { 1500 } else { 9000 },
            read_depth: [rng.u16(1..=5), rng.u16(1..=5)],
            one_queue: rng.bool(),
            sharing: [0, 1].map(|_| if rng.bool() { rng.u8(..) } else { 0 }),
            impairments,
            waiting: rng.bool(),
        }
    }
}

impl Setup {
    /// The same over a path that damages frames, cuts segments and joins them, too, in three of four seeds.
    /// What a TCP checksum does not see, the CRC does; since a damaged length is found too late to be sent
    /// again, such damage is done only where each segment is one FPDU, and to what follows its length.
    #[must_use]
    pub fn over_a_bad_path(self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed);
        let mut impairments = self.impairments;
        if rng.bool() {
            impairments.corrupt_bits = rng.f64() * 0.03;
        }
        match (rng.bool(), self.packing) {
            (true, false) => {
                impairments.corrupt_payload = rng.f64() * 0.01;
                impairments.corrupt_payload_spares = 8;
            }
            (true, true) => impairments.resegment = rng.f64() * 0.2,
            (false, _) => {}
        }
        Self { impairments, ..self }
    }
}

/// A core, its queue pairs and their completion queues.
pub struct Host {
    core: TestCore,
    rings: Rings,
    qps: Vec<Arc<SharedQp>>,
    shared_receives: Arc<SharedReceiveQueue>,
    queues: Vec<Arc<CompletionRing>>,
    connections: Vec<Option<ConnectionId>>,
}

impl Host {
    fn new(device: SimDevice, host: u8, seed: u64, setup: &Setup) -> Self {
        let rings = Rings::new();
        let config = Config {
            window_bytes: WINDOW_OCTETS,
            duplicate_address_detection: false,
            ..Config::new(address(host).into(), 24, [seed, u64::from(host)])
        };
        let core = core_on(device, CoreSetup::new(config, rings.clone()).with_tables(TABLES));
        let queues: Vec<_> = (0..if setup.one_queue { 1 } else { 2 * setup.connections })
            .map(|_| Arc::new(CompletionRing::new(COMPLETIONS)))
            .collect();
        let shared_receives = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, SLOTS, None));
        let connections = vec![None; setup.connections];
        let mut this = Self { core, rings, qps: Vec::new(), shared_receives, queues, connections };
        for number in 0..setup.connections {
            let queue = |which: usize| this.queues[(2 * number + which) % this.queues.len()].clone();
            let completions = CompletionRings { send: queue(0), receive: queue(1) };
            let (qp, depths) = (QpNumber(number as u32), QueueDepths { send: DEPTH, receive: DEPTH });
            let qp = SharedQp::new(qp, PD, depths, completions, this.rings.doorbells.clone());
            let shares = setup.sharing[usize::from(host) - 1] >> number & 1 == 1;
            let qp = if shares { qp.with_shared_receives(this.shared_receives.clone()) } else { qp };
            let qp = Arc::new(qp);
            this.qps.push(qp);
        }
        this
    }

    fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok(), "command ring full");
    }
}

/// Both hosts, and the network between them.
pub struct Link {
    setup: Setup,
    hosts: [Host; 2],
    next_stag: u16,
    now: Instant,
    network: Network,
    /// The cores are polled as by an application that works between the polls.
    run_to_completion: bool,
}

impl Link {
    /// Both hosts with their connections in Full Operation; the first is the Initiator of all. `watch` is
    /// called with the network before the first frame.
    pub fn new(seed: u64, setup: &Setup, watch: impl FnOnce(&Network)) -> Self {
        let end = |config: EndConfig| EndConfig { mtu_bytes: setup.mtu_octets, ..config };
        let (a, b) = sim::link(seed, end(EndConfig::a()), end(EndConfig::b()));
        let network = a.network();
        watch(&network);
        let hosts = [Host::new(a, 1, seed, setup), Host::new(b, 2, seed, setup)];
        let mut this = Self {
            setup: *setup,
            hosts,
            next_stag: 1,
            now: Instant::from_nanos(1),
            network,
            run_to_completion: false,
        };
        for number in 0..setup.connections {
            this.connect(number, setup);
        }
        this.network.set_impairments(End::A, setup.impairments);
        this.network.set_impairments(End::B, setup.impairments);
        this
    }

    fn connect(&mut self, number: usize, setup: &Setup) {
        let port = PORT + number as u16;
        self.hosts[1].command(Command::Listen { address: None, port, backlog: 4, tcp: None });
        self.hosts[0].command(Command::Connect {
            token: number as u64,
            local: None,
            remote: (address(2), port).into(),
            timeout_ns: 600 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
        while !self.hosts.iter().all(|host| host.connections[number].is_some()) {
            self.step();
        }
        // The Responder starts first, so that it is ready for every FPDU.
        for side in [1, 0] {
            let operation = FullOperation {
                markers_sent: setup.markers,
                markers_received: setup.markers,
                packing: setup.packing,
                receive_wait_ns: setup.waiting.then_some(20 * MILLISECOND),
                depths: ReadDepths { ird: setup.read_depth[1 - side], ord: setup.read_depth[side] },
                ..FullOperation::new(side == 0)
            };
            let connection = self.hosts[side].connections[number].unwrap();
            let qp = self.hosts[side].qps[number].clone();
            self.hosts[side].command(Command::Start { connection, qp, operation });
            self.step();
        }
    }

    /// Steps until the cores have carried out all commands.
    fn obey(&mut self) {
        while self.hosts.iter().any(|host| !host.rings.commands.is_empty()) {
            self.step();
        }
    }

    /// The name of the next slot.
    fn next_name(&mut self, rng: &mut Rng) -> STag {
        self.next_stag += 1;
        STag::new(self.next_stag, rng.u16(1..))
    }
}

impl World for Link {
    fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn host_of(&self, _: usize, side: usize) -> usize {
        side
    }

    fn qp(&self, number: usize, side: usize) -> &Arc<SharedQp> {
        &self.hosts[side].qps[number]
    }

    fn has_markers(&self, _: usize) -> bool {
        self.setup.markers
    }

    fn shared_receives(&self, host: usize) -> &Arc<SharedReceiveQueue> {
        &self.hosts[host].shared_receives
    }

    fn register(&mut self, rng: &mut Rng, host: usize, grant: Grant) -> STag {
        let stag = self.next_name(rng);
        self.hosts[host].command(Command::Register { stag, grant });
        stag
    }

    fn allocate_window(&mut self, rng: &mut Rng, host: usize) -> STag {
        let stag = self.next_name(rng);
        self.hosts[host].command(Command::AllocateWindow { stag, pd: PD });
        stag
    }

    fn poll_completions(&mut self, host: usize) -> Vec<((usize, usize), Completion)> {
        let queues = self.hosts[host].queues.iter();
        let all = queues.flat_map(|queue| std::iter::from_fn(|| queue.poll()));
        all.map(|completion| ((completion.qp.0 as usize, host), completion)).collect()
    }

    /// Polls both cores once; when neither has anything to do, time moves on to the next thing that happens.
    fn step(&mut self) {
        let mut busy = false;
        for host in &mut self.hosts {
            busy |= if self.run_to_completion {
                host.core.poll_run_to_completion(self.now)
            } else {
                host.core.poll_once(self.now)
            };
            while let Some(event) = host.rings.events.pop() {
                match event {
                    Event::Accepted { connection, flow, .. } => {
                        host.connections[usize::from(flow.local_port - PORT)] = Some(connection);
                    }
                    Event::Connected { token, connection, .. } => {
                        host.connections[token as usize] = Some(connection);
                    }
                    _ => {}
                }
            }
        }
        if !busy {
            let next = self.hosts[0].core.next_deadline().min(self.hosts[1].core.next_deadline());
            self.now = next.max(self.now + 1).min(self.now + SECOND);
        }
    }

    fn damage(&self) -> Damage {
        let mut damage = Damage::default();
        for path in [End::A, End::B].map(|end| self.network.statistics(end)) {
            damage.inverted_bits += path.corrupted_bits;
            damage.altered_payloads += path.corrupted_payload;
            damage.cut += path.split;
            damage.joined += path.merged;
        }
        for host in &self.hosts {
            let drops = host.core.statistics();
            let checksums = [DropCause::IpChecksum, DropCause::TcpChecksum];
            damage.wrong_checksums += checksums.map(|cause| drops.dropped(cause)).iter().sum::<u64>();
            damage.wrong_crcs += drops.dropped(DropCause::FpduCrc);
        }
        damage
    }

    fn seconds(&self) -> u64 {
        self.now.as_nanos() / SECOND
    }

    fn describe(&self) -> String {
        format!("{:?}", self.setup)
    }
}

/// Random work on two cores.
pub type Pair = Play<Link>;

impl Pair {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, |setup| setup.over_a_bad_path(seed), |_| {})
    }

    /// The same work over a path that loses and reorders, but leaves segments whole; `watch` is called with
    /// the network before the first frame.
    pub fn watched(seed: u64, watch: impl FnOnce(&Network)) -> Self {
        Self::with(seed, |setup| setup, watch)
    }

    fn with(seed: u64, path: impl FnOnce(Setup) -> Setup, watch: impl FnOnce(&Network)) -> Self {
        let mut rng = Rng::with_seed(seed);
        let setup = path(Setup::choose(&mut rng));
        let world = Link::new(seed, &setup, watch);
        let mut this = Self::on(seed, rng, world);
        for _ in 0..setup.connections {
            this.add_connection();
        }
        this.world.obey();
        for number in 0..setup.connections {
            // Rule 4: the Responder may send once it has an FPDU (MPA-7.1.2-15).
            this.post_empty(number, 0);
        }
        this
    }

    /// The same, with the cores polled as by an application that works between the polls.
    pub fn run_to_completion(mut self) -> Self {
        self.world.run_to_completion = true;
        self
    }
}
