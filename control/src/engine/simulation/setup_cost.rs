//! Counts what one connection costs from its request to connect until nothing is left of it: commands,
//! events, frames and allocations, at both ends.

use crossbeam::channel::Receiver;
use fastrand::Rng;
use warpline_dataplane::device::sim::{self, EndConfig};
use warpline_dataplane::ring::{ConnectionId, ListenAddress};
use warpline_dataplane::time::{Instant, SECOND};

use super::host::{Cost, Host};
use super::play::address;
use super::records::MPA_PORT;
use crate::engine::interface::request::{Arrival, NewQueuePair, Request, arrival_queue};
use crate::vocabulary::connect::ConnectConfig;
use crate::vocabulary::listen::ListenConfig;
use crate::vocabulary::queue_pair::QpConfig;
use crate::vocabulary::startup::ReadsWanted;

/// What a connection may cost at the end that opens it.
const INITIATOR: Cost =
    Cost { commands: 5, events: 6, frames: 5, core_allocations: 6, engine_allocations: 19 };
/// What it may cost at the other end.
const RESPONDER: Cost =
    Cost { commands: 4, events: 6, frames: 5, core_allocations: 6, engine_allocations: 20 };

/// Two hosts, of which the second listens.
pub(super) struct Pair {
    pub(super) hosts: [Host; 2],
    pub(super) now: Instant,
    arrivals: Receiver<Arrival>,
}

impl Pair {
    pub(super) fn new() -> Self {
        let (a, b) = sim::link(1, EndConfig::a(), EndConfig::b());
        let mut rng = Rng::with_seed(1);
        let now = Instant::from_nanos(1);
        let [a, mut b] = [(a, 0), (b, 1)].map(|(device, side)| Host::new(device, address(side), &mut rng));
        let (at, config) = (ListenAddress::everywhere(MPA_PORT), ListenConfig::default());
        let queue = arrival_queue(&config);
        let arrivals = queue.1.clone();
        let listen = |reply| Request::Listen { at, config, arrivals: queue, notify: None, reply };
        assert_eq!(b.ask(now, listen), Ok(MPA_PORT));
        Self { hosts: [a, b], now, arrivals }
    }

    /// Polls until `found` returns something.
    pub(super) fn until<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.now + 100 * SECOND;
        loop {
            let busy = self.hosts.iter_mut().fold(false, |busy, host| busy | host.poll(self.now));
            if let Some(found) = found(self) {
                return found;
            }
            if !busy {
                let next = self.hosts.iter().map(Host::next_deadline).min().unwrap_or(Instant::NEVER);
                self.now = next.max(self.now + 1);
                assert!(self.now < end, "it does not come");
            }
        }
    }

    pub(super) fn create_qp(&mut self, side: usize) -> NewQueuePair {
        let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
        self.hosts[side].create_qp(self.now, config).expect("room for a queue pair")
    }

    /// Connects a queue pair of each host.
    fn connect(&mut self) -> [NewQueuePair; 2] {
        let [near, far] = [0, 1].map(|side| self.create_qp(side));
        let (qp, config) = (near.shared.clone(), ConnectConfig::default());
        let remote = (address(1), MPA_PORT).into();
        let connect = |reply| Request::Connect { qp, remote, config, reply };
        let connected = self.hosts[0].begin(self.now, connect);
        let connection: ConnectionId = self.until(|pair| match pair.arrivals.try_recv().ok()? {
            Arrival::Request { connection, .. } => Some(connection),
            Arrival::Fault { fault, .. } => panic!("{fault}"),
        });
        let (qp, reads, private_data) = (far.shared.clone(), ReadsWanted::default(), Box::default());
        let accept = |reply| Request::Accept { connection, qp, reads, private_data, reply };
        let accepted = self.hosts[1].begin(self.now, accept);
        self.until(|_| accepted.try_recv().ok()).expect("accepted");
        self.until(|_| connected.try_recv().ok()).expect("connected");
        [near, far]
    }

    /// Closes the connection of both queue pairs, and destroys them.
    fn close(&mut self, queue_pairs: &[NewQueuePair; 2]) {
        let qp = queue_pairs[0].shared.clone();
        self.hosts[0].send(self.now, Request::Disconnect { qp });
        self.until(|_| {
            let closed = |qp: &NewQueuePair| qp.status.close_state().reason.is_some();
            queue_pairs.iter().all(closed).then_some(())
        });
        for (side, qp) in queue_pairs.iter().map(|qp| qp.shared.number).enumerate() {
            let destroyed =
                self.hosts[side].begin(self.now, |reply| Request::DestroyQp { qp, fence: false, reply });
            self.until(|_| destroyed.try_recv().ok());
        }
    }
}

/// A connection costs no more than it did: each command and each event is a hand-over between two threads,
/// and an allocation is often freed by the other.
#[test]
fn a_connect_with_its_close_stays_cheap() {
    const WARM_UP: u64 = 40;
    const CONNECTIONS: u64 = 64;
    let mut pair = Pair::new();
    let mut before = [Cost::default(); 2];
    for round in 0..WARM_UP + CONNECTIONS {
        if round == WARM_UP {
            before = [0, 1].map(|side| pair.hosts[side].cost());
        }
        let queue_pairs = pair.connect();
        pair.close(&queue_pairs);
    }
    for (side, most) in [INITIATOR, RESPONDER].into_iter().enumerate() {
        let cost = pair.hosts[side].cost() - before[side];
        let each = Cost {
            commands: cost.commands.div_ceil(CONNECTIONS),
            events: cost.events.div_ceil(CONNECTIONS),
            frames: cost.frames.div_ceil(CONNECTIONS),
            core_allocations: cost.core_allocations.div_ceil(CONNECTIONS),
            engine_allocations: cost.engine_allocations.div_ceil(CONNECTIONS),
        };
        println!("host {side}: {each:?}");
        assert!(
            each.commands <= most.commands
                && each.events <= most.events
                && each.frames <= most.frames
                && each.core_allocations <= most.core_allocations
                && each.engine_allocations <= most.engine_allocations,
            "host {side}: {each:?}, {most:?} before"
        );
    }
}
