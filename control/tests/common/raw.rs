//! A peer that follows the rules of TCP and sends arbitrary octets as MPA.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, PollLoop};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::sim::{SimDevice, SimFrame};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, Rings};
use warpline_dataplane::tcp::CloseReason;

use super::PATIENCE;

/// A bare core with one connection that never leaves streaming mode.
pub struct RawPeer {
    core: Box<dyn PollLoop>,
    rings: Rings,
    connection: Option<ConnectionId>,
    /// Events of connections other than its current one.
    others: Vec<Event>,
    /// Octets received.
    pub received: Vec<u8>,
    /// Octets sent that the other end has not acknowledged, as last reported.
    outstanding: Option<u32>,
    /// The other end sends nothing more.
    pub finished: bool,
    pub closed: Option<CloseReason>,
}

impl RawPeer {
    pub fn new(device: SimDevice, address: Ipv4Addr) -> Self {
        let rings = Rings::new();
        let config = Config { window_bytes: 1 << 16, ..Config::new(address.into(), 24, [1, 2]) };
        let core = SimFrame::poll_loop(boxed(device), CoreSetup::new(config, rings.clone()));
        Self {
            core,
            rings,
            connection: None,
            others: Vec::new(),
            received: Vec::new(),
            outstanding: None,
            finished: false,
            closed: None,
        }
    }

    fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok(), "the ring is empty between polls");
    }

    /// Connects, and turns to that connection.
    pub fn connect(&mut self, remote: SocketAddr) {
        self.connection = None;
        (self.finished, self.closed) = (false, None);
        let timeout_ns = PATIENCE.as_nanos() as u64;
        self.command(Command::Connect {
            token: 0,
            local: None,
            remote,
            timeout_ns,
            tcp: None,
            octets: Box::default(),
        });
        self.until("connected", |peer| peer.connection.is_some());
    }

    pub fn listen(&mut self, port: u16) {
        self.command(Command::Listen { address: None, port, backlog: 4, tcp: None });
        self.step();
    }

    pub fn accept(&mut self) {
        self.until("accepted", |peer| peer.connection.is_some());
    }

    pub fn send(&mut self, octets: &[u8]) {
        let connection = self.connection.expect("a connection");
        self.command(Command::Stream { connection, octets: octets.into(), then: AfterStream::Stay });
        self.step();
    }

    /// Polls until the other end has acknowledged all that was sent.
    pub fn until_acknowledged(&mut self) {
        let start = Instant::now();
        self.outstanding = None;
        while self.outstanding != Some(0) {
            assert!(start.elapsed() < PATIENCE, "acknowledged: not in {PATIENCE:?}");
            self.command(Command::ReportConnection { connection: self.connection.expect("a connection") });
            self.step();
            thread::yield_now();
        }
    }

    pub fn finish(&mut self) {
        self.command(Command::Close { connection: self.connection.expect("a connection") });
        self.step();
    }

    pub fn abort(&mut self) {
        self.command(Command::Abort { connection: self.connection.expect("a connection") });
        self.step();
    }

    /// Closes the connection, unless the other end has reset it, and switches to the next one; returns the
    /// octets received before.
    pub fn turn_to_next(&mut self) -> Vec<u8> {
        self.until("the other end closes", |peer| peer.finished || peer.closed.is_some());
        if self.closed.is_none() {
            self.finish();
            self.until("closed", |peer| peer.closed.is_some());
        }
        self.connection = None;
        (self.finished, self.closed) = (false, None);
        let received = core::mem::take(&mut self.received);
        for event in core::mem::take(&mut self.others) {
            self.on_event(event);
        }
        self.accept();
        received
    }

    fn on_event(&mut self, event: Event) {
        if let Event::ConnectionReport(report) = event {
            self.outstanding = report.map(|tcp| tcp.outstanding_bytes + tcp.unsent_bytes);
            return;
        }
        let of = match &event {
            Event::Accepted { connection, .. }
            | Event::Connected { connection, .. }
            | Event::Stream { connection, .. }
            | Event::PeerFinished { connection }
            | Event::Closed { connection, .. } => *connection,
            event => panic!("{event:?}"),
        };
        if *self.connection.get_or_insert(of) != of {
            self.others.push(event);
            return;
        }
        match event {
            Event::Stream { octets, .. } => self.received.extend_from_slice(&octets),
            Event::PeerFinished { .. } => self.finished = true,
            Event::Closed { reason, .. } => self.closed = Some(reason),
            _ => {}
        }
    }

    /// Polls once.
    pub fn step(&mut self) {
        self.core.poll_once(warpline::now());
        while let Some(event) = self.rings.events.pop() {
            self.on_event(event);
        }
    }

    /// Polls until `condition` holds.
    pub fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
            self.step();
            thread::yield_now();
        }
    }

    /// Polls for `time`.
    pub fn rest(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.step();
            thread::yield_now();
        }
    }
}
