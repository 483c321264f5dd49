//! Tests of cores with more connections and queue pairs than one group of doorbells has.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{PD, PORT, address, holds, pattern, region_of};
use warpline_dataplane::core::{Config, Core};
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice};
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, QpNumber, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::time::{Instant, SECOND};

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
/// Octets that each queue pair writes.
const OCTETS: usize = 16;

/// A core, and the queue pairs that it serves or is to serve.
struct Host {
    core: Core<SimDevice>,
    rings: Rings,
    completions: Arc<CompletionRing>,
    qps: Vec<Arc<SharedQp>>,
}

impl Host {
    fn new(device: SimDevice, host: u8, queue_pairs: u32) -> Self {
        let rings = Rings::new();
        let core = Core::new(device, Config::new(address(host).into(), 24, [3, host.into()]), rings.clone());
        let completions = Arc::new(CompletionRing::new(queue_pairs as usize));
        let qp = |number| {
            let rings_of_qp = CompletionRings::shared(completions.clone());
            let depths = QueueDepths { send: 1, receive: 1 };
            Arc::new(SharedQp::new(QpNumber(number), PD, depths, rings_of_qp, rings.doorbells.clone()))
        };
        let qps = (0..queue_pairs).map(qp).collect();
        Self { core, rings, completions, qps }
    }

    fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok(), "command ring full");
    }

    fn register(&self, stag: STag, region: Region, access: Access) {
        self.command(Command::Register { stag, grant: Grant::new(region, PD, 0, access) });
    }
}

/// Two hosts on a link.
struct Hosts {
    ends: [Host; 2],
    now: Instant,
}

impl Hosts {
    fn settle(&mut self) {
        let end = self.now + SECOND / 1000;
        while self.now < end {
            let now = self.now;
            let busy = self.ends.iter_mut().fold(false, |busy, end| busy | end.core.poll_once(now));
            if !busy {
                let next = self.ends.iter().map(|end| end.core.next_deadline()).min().unwrap();
                self.now = next.max(self.now + 1).min(end);
            }
        }
    }

    /// Returns the connection that was opened at an end since the last call.
    fn opened(&self, end: usize) -> ConnectionId {
        let events = core::iter::from_fn(|| self.ends[end].rings.events.pop());
        let opened = events.filter_map(|event| match event {
            Event::Accepted { connection, .. } | Event::Connected { connection, .. } => Some(connection),
            _ => None,
        });
        opened.last().expect("one has opened")
    }

    /// Opens a connection, on which Full Operation begins at both ends, for the queue pairs `number`.
    fn open(&mut self, number: usize) {
        let remote = SocketAddr::new(address(2).into(), PORT);
        let (token, timeout_ns) = (number as u64, SECOND);
        let octets = Box::default();
        self.ends[0].command(Command::Connect { token, local: None, remote, timeout_ns, tcp: None, octets });
        self.settle();
        for end in [1, 0] {
            let (connection, qp) = (self.opened(end), self.ends[end].qps[number].clone());
            let operation = FullOperation::new(end == 0);
            self.ends[end].command(Command::Start { connection, qp, operation });
            self.settle();
        }
    }
}

/// Queue pairs in three groups of doorbells: each that rings is served, in an order that is not that of the
/// slots, and one that is destroyed leaves its slot to the next.
#[test]
fn every_queue_pair_of_many_is_served() {
    const CONNECTIONS: usize = 1100;
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let spare = CONNECTIONS as u32 + 1;
    let ends = [Host::new(near, 1, spare), Host::new(far, 2, spare)];
    let mut hosts = Hosts { ends, now: Instant::from_nanos(1) };
    let data = pattern(7, CONNECTIONS * OCTETS);
    let sink = Region::heap(CONNECTIONS * OCTETS).unwrap();
    hosts.ends[0].register(SOURCE, region_of(&data), Access::empty());
    hosts.ends[1].register(SINK, sink.clone(), Access::REMOTE_WRITE);
    hosts.ends[1].command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    hosts.settle();
    (0..CONNECTIONS).for_each(|number| hosts.open(number));
    let write = |hosts: &Hosts, number: usize, at: usize| {
        let to = (at * OCTETS) as u64;
        let local = Slice { stag: SOURCE, to, len: OCTETS as u32 };
        let operation = Operation::Write { stag: SINK, to };
        hosts.ends[0].qps[number].post_send(SendRequest::new(number as u64, operation, local)).unwrap();
    };
    for number in (0..CONNECTIONS).rev().step_by(2).chain((0..CONNECTIONS - 1).step_by(2)) {
        write(&hosts, number, number);
    }
    hosts.settle();
    let mut done: Vec<_> = hosts.ends[0].completions.drain().collect();
    done.sort_by_key(|completion| completion.id);
    assert!(done.iter().all(|completion| completion.status == Status::Success), "{done:?}");
    assert!(done.iter().map(|completion| completion.id).eq(0..CONNECTIONS as u64), "{done:?}");
    assert!(holds(&sink, 0, &data));

    let last = hosts.ends[0].qps[CONNECTIONS - 1].clone();
    hosts.ends[0].command(Command::DestroyQp(last));
    hosts.settle();
    assert_eq!(hosts.ends[0].core.usage().queue_pairs, CONNECTIONS - 1);
    hosts.open(CONNECTIONS);
    write(&hosts, CONNECTIONS, 0);
    hosts.settle();
    assert_eq!(hosts.ends[0].completions.poll().map(|done| done.id), Some(CONNECTIONS as u64));
    assert_eq!(hosts.ends[0].core.usage().queue_pairs, CONNECTIONS);
}
