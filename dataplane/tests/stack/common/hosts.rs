//! Two hosts with any number of queue pairs each.

use core::num::NonZeroU8;
use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::SimDevice;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{Command, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::time::{Instant, SECOND};

use super::{PD, PORT, TestCore, address, core_on};

/// A core, and the queue pairs that it serves or is to serve.
pub struct Host {
    pub core: TestCore,
    pub rings: Rings,
    pub completions: Arc<CompletionRing>,
    pub qps: Vec<Arc<SharedQp>>,
}

impl Host {
    /// Returns a core on `device`, and queue pairs for it with room for `depth` requests each.
    pub fn new(device: SimDevice, host: u8, queue_pairs: u32, depth: usize) -> Self {
        let rings = Rings::new();
        let config = Config::new(address(host).into(), 24, [3, host.into()]);
        let core = core_on(device, CoreSetup::new(config, rings.clone()));
        let completions = Arc::new(CompletionRing::new(queue_pairs as usize * depth));
        let qp = |number| {
            let rings_of_qp = CompletionRings::shared(completions.clone());
            let depths = QueueDepths { send: depth, receive: 1 };
            Arc::new(SharedQp::new(QpNumber(number), PD, depths, rings_of_qp, rings.doorbells.clone()))
        };
        let qps = (0..queue_pairs).map(qp).collect();
        Self { core, rings, completions, qps }
    }

    pub fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok(), "command ring full");
    }

    pub fn register(&self, stag: STag, region: Region, access: Access) {
        self.command(Command::Register { stag, grant: Grant::new(region, PD, 0, access) });
    }
}

/// Two hosts on a link.
pub struct Hosts {
    pub ends: [Host; 2],
    pub now: Instant,
}

impl Hosts {
    /// Returns two hosts, the second of which listens.
    pub fn listening(ends: [Host; 2]) -> Self {
        let mut hosts = Self { ends, now: Instant::from_nanos(1) };
        hosts.ends[1].command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
        hosts.settle();
        hosts
    }

    /// Lets a millisecond pass.
    pub fn settle(&mut self) {
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
    pub fn open(&mut self, number: usize) {
        self.open_with(number, limits::WEIGHT_USUAL);
    }

    /// Does as [`open`](Self::open) does; the end that connects has this weight.
    pub fn open_with(&mut self, number: usize, weight: NonZeroU8) {
        let remote = SocketAddr::new(address(2).into(), PORT);
        let (token, timeout_ns) = (number as u64, SECOND);
        let octets = Box::default();
        self.ends[0].command(Command::Connect { token, local: None, remote, timeout_ns, tcp: None, octets });
        self.settle();
        for end in [1, 0] {
            let (connection, qp) = (self.opened(end), self.ends[end].qps[number].clone());
            let operation = FullOperation { weight, ..FullOperation::new(end == 0) };
            self.ends[end].command(Command::Start { connection, qp, operation });
            self.settle();
        }
    }
}
