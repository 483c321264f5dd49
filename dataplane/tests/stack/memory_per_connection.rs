//! Measures the memory of an idle connection and of its queue pair: their share of every table made for them,
//! and their heap memory in Full Operation. The allocator counts it, so that no structure is forgotten.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{PD, PORT, TestCore, address, core_on};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::{self, EndConfig};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{AfterStream, Command, Event, FullOperation, Rings};
use warpline_dataplane::tcp;
use warpline_dataplane::testing::Connection;
use warpline_dataplane::time::{Instant, SECOND};

/// Most octets of TCP and MPA state that an idle connection may cost.
const IDLE_OCTETS_MAX: u64 = 1024;

/// Most octets that a connected queue pair may cost which has queues of [`DEPTH`] and [`READS`] both ways:
/// what it shares with its application, its state at its core, and its connection.
const CONNECTED_QP_OCTETS_MAX: u64 = 8 * 1024;

/// Of the send queue and of the receive queue.
const DEPTH: usize = 16;

/// IRD and ORD.
const READS: ReadDepths = ReadDepths { ird: 32, ord: 32 };

fn config(host: u8) -> Config {
    Config { window_bytes: 1 << 18, ..Config::new(address(host).into(), 24, [3, 4]) }
}

/// Calls `make`, and returns what it returns, with the octets that it keeps allocated.
fn kept<T>(make: impl FnOnce() -> T) -> (T, u64) {
    let mut made = None;
    let counted = allocation_counter::measure(|| made = Some(make()));
    let octets = u64::try_from(counted.bytes_current).expect("it keeps what it allocates");
    (made.expect("it was called"), octets)
}

/// Octets that a core with these tables keeps allocated, everything else being equal.
fn octets_of_core(tables: Tables) -> u64 {
    let (device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
    let rings = Rings::new();
    kept(|| core_on(device, CoreSetup::new(config(1), rings).with_tables(tables))).1
}

/// Returns the share of a connection in the tables of a core.
fn connection_share() -> u64 {
    // A power of two, so that the flow table has its lowest load, as it has for the bound in use.
    let connections = 2048;
    let octets = |connections| octets_of_core(Tables { connections, ..Tables::default() });
    (octets(2 * connections) - octets(connections)).div_ceil(connections as u64)
}

/// Returns the share of a queue pair in the tables of a core.
fn queue_pair_share() -> u64 {
    let queue_pairs = 2048;
    let octets = |queue_pairs| octets_of_core(Tables { queue_pairs, ..Tables::default() });
    (octets(2 * queue_pairs) - octets(queue_pairs)).div_ceil(queue_pairs as u64)
}

#[test]
fn an_idle_connection_costs_at_most_a_kibibyte() {
    let share = connection_share();
    println!(
        "an idle connection: {share} octets of a core's tables, of which {} are its own, {} of them TCP's",
        size_of::<Connection>(),
        size_of::<tcp::Connection>()
    );
    assert!(share > size_of::<Connection>() as u64, "the tables hold connections by value: {share} octets");
    assert!(share <= IDLE_OCTETS_MAX, "{share} octets");
}

/// Two cores; the allocations of one of them are counted.
struct Counted {
    peer: TestCore,
    peer_rings: Rings,
    core: TestCore,
    rings: Rings,
    now: Instant,
    /// Octets that the polls of `core` allocated and did not free.
    kept_octets: i64,
}

impl Counted {
    fn new() -> Self {
        let (a, b) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (peer_rings, rings) = (Rings::new(), Rings::new());
        Self {
            peer: core_on(a, CoreSetup::new(config(1), peer_rings.clone())),
            peer_rings,
            core: core_on(b, CoreSetup::new(config(2), rings.clone())),
            rings,
            now: Instant::from_nanos(1),
            kept_octets: 0,
        }
    }

    fn command(rings: &Rings, command: Command) {
        assert!(rings.commands.push(command).is_ok(), "command ring full");
    }

    fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            let mut busy = self.peer.poll_once(self.now);
            let counted = allocation_counter::measure(|| busy |= self.core.poll_once(self.now));
            self.kept_octets += counted.bytes_current;
            while self.peer_rings.events.pop().is_some() {}
            if !busy {
                let next = self.peer.next_deadline().min(self.core.next_deadline());
                self.now = next.max(self.now + 1).min(end);
            }
        }
    }

    /// Returns a queue pair for `core` that reports to `completions`.
    fn queue_pair(
        &self,
        number: QpNumber,
        depths: QueueDepths,
        completions: &Arc<CompletionRing>,
    ) -> SharedQp {
        let rings = CompletionRings::shared(completions.clone());
        SharedQp::new(number, PD, depths, rings, self.rings.doorbells.clone())
    }

    /// Has `core` accept connections.
    fn listen(&mut self) {
        let listen = Command::Listen { address: None, port: PORT, backlog: 4, tcp: None };
        Self::command(&self.rings, listen);
        self.run_for(SECOND);
    }

    /// Opens a connection to `core` and brings it into Full Operation there, with a startup frame of
    /// `reply_octets` or without one. Returns how many octets `core` has kept since.
    fn open(&mut self, qp: Arc<SharedQp>, reply_octets: u16, depths: ReadDepths) -> i64 {
        let remote = SocketAddr::new(address(2).into(), PORT);
        let token = u64::from(qp.number.0);
        self.kept_octets = 0;
        Self::command(
            &self.peer_rings,
            Command::Connect {
                token,
                local: None,
                remote,
                timeout_ns: 10 * SECOND,
                tcp: None,
                octets: Box::default(),
            },
        );
        self.run_for(SECOND / 10);
        let Some(Event::Accepted { connection, .. }) = self.rings.events.pop() else {
            panic!("not accepted")
        };
        let operation = FullOperation { markers_received: true, depths, ..FullOperation::new(false) };
        let command = if reply_octets > 0 {
            let octets = vec![7; reply_octets.into()].into_boxed_slice();
            Command::Stream { connection, octets, then: AfterStream::FullOperation { qp, operation } }
        } else {
            Command::Start { connection, qp, operation }
        };
        Self::command(&self.rings, command);
        self.run_for(SECOND / 10);
        assert!(matches!(self.rings.events.pop(), Some(Event::Operating { .. })), "in Full Operation");
        // The command's octets were allocated here and freed by the core.
        self.kept_octets + i64::from(reply_octets)
    }
}

/// The tables, and the queue pair, are the only memory: a connection in Full Operation keeps nothing of its
/// startup.
#[test]
fn an_idle_connection_keeps_nothing_on_the_heap() {
    const CONNECTIONS: usize = 32;
    const WARM_UP: usize = 4;
    let mut counted = Counted::new();
    let completions = Arc::new(CompletionRing::new(1));
    let mut numbers = 0..;
    let mut open = |counted: &mut Counted, connections: usize, reply_octets| -> Vec<i64> {
        let depths = QueueDepths { send: 1, receive: 1 };
        let numbers = numbers.by_ref().take(connections);
        let each = numbers.map(|number| {
            let qp = Arc::new(counted.queue_pair(QpNumber(number), depths, &completions));
            counted.open(qp, reply_octets, ReadDepths::default())
        });
        each.collect()
    };
    counted.listen();
    // The simulated network makes its buffers when they are first needed.
    open(&mut counted, WARM_UP, 532);
    let with_startup = open(&mut counted, CONNECTIONS, 532);
    let without = open(&mut counted, CONNECTIONS, 0);
    assert_eq!(counted.core.usage().connections, 2 * CONNECTIONS + WARM_UP, "all are open");
    assert_eq!(counted.core.usage().send_descriptors, 0, "all is acknowledged");
    // What a queue pair has at its core: its entries for work requests.
    let queue_pair = without[0];
    assert!((0..512).contains(&queue_pair), "{queue_pair} octets");
    assert_eq!(without, [queue_pair; CONNECTIONS]);
    assert_eq!(with_startup, [queue_pair; CONNECTIONS]);
}

/// Octets of a connected queue pair, by part.
struct ByPart {
    /// Each with the octets that are counted, and what they are for.
    parts: Vec<(u64, &'static str)>,
}

impl ByPart {
    fn total(&self) -> u64 {
        self.parts.iter().map(|(octets, _)| octets).sum()
    }

    fn print(&self, of: &str) {
        println!("{of}: {} octets", self.total());
        for (octets, part) in &self.parts {
            println!("{octets:8}  {part}");
        }
    }
}

/// Queue pairs are made and connected, as control does it. What one costs is counted:
/// nothing but the completion queue, which any number of queue pairs may share, is left out.
#[test]
fn a_connected_queue_pair_costs_at_most_eight_kibibytes() {
    const QUEUE_PAIRS: u32 = 32;
    const WARM_UP: u32 = 4;
    let mut counted = Counted::new();
    let completions = Arc::new(CompletionRing::new(1));
    let depths = |send, receive| QueueDepths { send, receive };
    // What a slot costs, from queue pairs that differ in nothing else.
    let shared_octets = |depths| kept(|| Arc::new(counted.queue_pair(QpNumber(0), depths, &completions))).1;
    let one_each = shared_octets(depths(1, 1));
    let slots = |octets: u64| (octets - one_each) / (DEPTH as u64 - 1) * DEPTH as u64;
    let send_slots = slots(shared_octets(depths(DEPTH, 1)));
    let receive_slots = slots(shared_octets(depths(1, DEPTH)));

    counted.listen();
    let (mut shared, mut at_core) = (0, Vec::new());
    for number in 0..QUEUE_PAIRS + WARM_UP {
        let qp = || Arc::new(counted.queue_pair(QpNumber(number), depths(DEPTH, DEPTH), &completions));
        let (qp, octets) = kept(qp);
        shared = octets;
        at_core.push(counted.open(qp, 20, READS));
    }
    // The simulated network makes its buffers when they are first needed.
    let at_core = &at_core[WARM_UP as usize..];
    assert!(at_core.iter().all(|octets| *octets == at_core[0]), "each costs the same: {at_core:?}");
    let at_core = u64::try_from(at_core[0]).expect("they keep what they allocate");
    assert_eq!(counted.core.usage().connections, (QUEUE_PAIRS + WARM_UP) as usize, "all are open");
    let by_part = ByPart {
        parts: vec![
            (
                shared - send_slots - receive_slots,
                "shared with its application: counters, completions, state",
            ),
            (send_slots, "shared: the send queue"),
            (receive_slots, "shared: the receive queue"),
            (queue_pair_share(), "its place at its core"),
            (at_core, "at its core: the send queue, Reads and Atomic Operations, both ways"),
            (connection_share(), "the place of its connection"),
        ],
    };
    by_part.print("a connected queue pair");
    assert!(by_part.total() <= CONNECTED_QP_OCTETS_MAX, "{} octets", by_part.total());
}
