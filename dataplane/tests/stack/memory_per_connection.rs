//! Measures the memory of an idle connection: its share of every table made for connections, and its heap
//! memory in Full Operation. The allocator counts it, so that no structure is forgotten.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{PD, PORT, address};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, Core};
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{AfterStream, Command, Event, FullOperation, Rings};
use warpline_dataplane::tcp;
use warpline_dataplane::testing::Connection;
use warpline_dataplane::time::{Instant, SECOND};

/// Most octets of TCP and MPA state that an idle connection may cost.
const IDLE_OCTETS_MAX: u64 = 1024;

fn config(host: u8) -> Config {
    Config { window_bytes: 1 << 18, ..Config::new(address(host).into(), 24, [3, 4]) }
}

/// Octets that a core with room for `connections` keeps allocated, everything else being equal.
fn octets_of_core(connections: usize) -> u64 {
    let (device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
    let rings = Rings::new();
    let mut core = None;
    let tables = Tables { connections, ..Tables::default() };
    let counted = allocation_counter::measure(|| {
        core = Some(Core::<SimDevice>::with_tables(device, config(1), rings, tables));
    });
    u64::try_from(counted.bytes_current).expect("a core keeps what it allocates")
}

#[test]
fn an_idle_connection_costs_at_most_a_kibibyte() {
    // A power of two, so that the flow table has its lowest load, as it has for the bound in use.
    let connections = 2048;
    let (once, twice) = (octets_of_core(connections), octets_of_core(2 * connections));
    let share = (twice - once).div_ceil(connections as u64);
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
    peer: Core<SimDevice>,
    peer_rings: Rings,
    core: Core<SimDevice>,
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
            peer: Core::new(a, config(1), peer_rings.clone()),
            peer_rings,
            core: Core::new(b, config(2), rings.clone()),
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

    /// Opens a connection to `core` and brings it into Full Operation there, with a startup frame of
    /// `reply_octets` or without one. Returns how many octets `core` has kept since.
    fn open(&mut self, qp: Arc<SharedQp>, reply_octets: u16) -> i64 {
        let remote = SocketAddr::new(address(2).into(), PORT);
        let token = u64::from(qp.number.0);
        self.kept_octets = 0;
        Self::command(
            &self.peer_rings,
            Command::Connect { token, local: None, remote, timeout_ns: 10 * SECOND, tcp: None },
        );
        self.run_for(SECOND / 10);
        let Some(Event::Accepted { connection, .. }) = self.rings.events.pop() else {
            panic!("not accepted")
        };
        let operation = FullOperation { markers_received: true, ..FullOperation::new(false) };
        let command = if reply_octets > 0 {
            let octets = vec![7; reply_octets.into()].into_boxed_slice();
            Command::Stream { connection, octets, then: AfterStream::FullOperation { qp, operation } }
        } else {
            Command::Start { connection, qp, operation }
        };
        Self::command(&self.rings, command);
        self.run_for(SECOND / 10);
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
    let doorbells = counted.rings.doorbells.clone();
    let mut queue_pairs = (0..).map(|number| {
        let rings = CompletionRings::shared(completions.clone());
        let depths = QueueDepths { send: 1, receive: 1 };
        Arc::new(SharedQp::new(QpNumber(number), PD, depths, rings, doorbells.clone()))
    });
    Counted::command(&counted.rings, Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    counted.run_for(SECOND);
    let mut open = |connections: usize, reply_octets| -> Vec<i64> {
        let qps = queue_pairs.by_ref().take(connections);
        qps.map(|qp| counted.open(qp, reply_octets)).collect()
    };
    // The simulated network makes its buffers when they are first needed.
    open(WARM_UP, 532);
    let (with_startup, without) = (open(CONNECTIONS, 532), open(CONNECTIONS, 0));
    assert_eq!(counted.core.usage().connections, 2 * CONNECTIONS + WARM_UP, "all are open");
    assert_eq!(counted.core.usage().send_descriptors, 0, "all is acknowledged");
    // What a queue pair has at its core: its entries for work requests.
    let queue_pair = without[0];
    assert!((0..512).contains(&queue_pair), "{queue_pair} octets");
    assert_eq!(without, [queue_pair; CONNECTIONS]);
    assert_eq!(with_startup, [queue_pair; CONNECTIONS]);
}
