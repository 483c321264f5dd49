//! The receiver: a core with a queue pair for each connection, all writing into one region.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use warpline::link::sim::{End, EndConfig, Network, SimDevice, SimFrame};
use warpline::time::Instant;
use warpline::{Access, QpNumber, Region, StaticNeighbour, Statistics, limits};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, PollLoop};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::memory::{Grant, ProtectionDomainId};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, Doorbells, QueueDepths, SharedQp};
use warpline_dataplane::ring::{AfterStream, Command, Event, FullOperation, Rings};
use warpline_tools::error::CommandError;

use super::scenario::{PORT, RECEIVER, SENDER, SINK};

/// Bytes of the region that all connections write to.
const SINK_BYTES: usize = 2048;

const PD: ProtectionDomainId = ProtectionDomainId(1);
/// An accepting Reply with Rev 1 and CRCs; M asks the sender for Markers (RFC 5044 §7.1.1).
const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

pub struct Receiver {
    core: Box<dyn PollLoop>,
    rings: Rings,
    markers: bool,
    /// Queue pairs that serve no connection yet.
    idle: Vec<Arc<SharedQp>>,
    network: Network,
    held_peak: usize,
}

impl Receiver {
    /// Returns a core with room for `connections`.
    pub fn new(device: SimDevice, connections: u32, markers: bool) -> Result<Self, CommandError> {
        let network = device.network();
        let rings = Rings {
            commands: Arc::new(ArrayQueue::new(limits::COMMANDS)),
            events: Arc::new(ArrayQueue::new(limits::EVENTS)),
            doorbells: Arc::new(Doorbells::new(connections as usize)),
        };
        let neighbour = StaticNeighbour { address: SENDER.into(), mac: EndConfig::b().mac };
        let config = Config {
            window_bytes: 1 << 16,
            neighbours: [neighbour].into_iter().collect(),
            ..Config::new(RECEIVER.into(), 24, [1, 2])
        };
        let count = connections as usize;
        let tables = Tables {
            connections: count,
            queue_pairs: count,
            // What is measured must not be bounded: a part of an FPDU for each connection, and what is beyond
            // gaps.
            held_frames: 4 * count + 8192,
            ..Tables::default()
        };
        let setup = CoreSetup::new(config, rings.clone()).with_tables(tables);
        let core = SimFrame::poll_loop(boxed(device), setup);
        let mut receiver = Self { core, rings, markers, idle: Vec::new(), network, held_peak: 0 };
        let region = Region::heap(SINK_BYTES)
            .ok_or_else(|| CommandError::Failed("no memory for the region".into()))?;
        let grant = Grant::new(region, PD, 0, Access::REMOTE_WRITE);
        receiver.command(Command::Register { stag: SINK, grant })?;
        receiver.command(Command::Listen {
            address: None,
            port: PORT,
            backlog: limits::HALF_OPEN_PER_CORE as u32,
            tcp: None,
        })?;
        let completions = Arc::new(CompletionRing::new(1));
        for number in 0..connections {
            let completions = CompletionRings::shared(completions.clone());
            let doorbells = receiver.rings.doorbells.clone();
            let qp = SharedQp::new(
                QpNumber(number),
                PD,
                QueueDepths { send: 1, receive: 1 },
                completions,
                doorbells,
            );
            receiver.idle.push(Arc::new(qp));
        }
        Ok(receiver)
    }

    fn command(&self, command: Command) -> Result<(), CommandError> {
        self.rings.commands.push(command).map_err(|_| CommandError::Failed("the command ring is full".into()))
    }

    /// Polls the core once, and does what control has to do after it. Returns true if there was anything to
    /// do.
    pub fn poll(&mut self, now: Instant) -> Result<bool, CommandError> {
        let busy = self.core.poll_once(now);
        self.held_peak = self.held_peak.max(self.network.held_frames(End::A));
        while let Some(event) = self.rings.events.pop() {
            match event {
                Event::Stream { connection, .. } => {
                    let mut reply = *REPLY;
                    reply[16] |= if self.markers { 0x80 } else { 0 };
                    let qp = self
                        .idle
                        .pop()
                        .ok_or_else(|| CommandError::Failed("more connections than queue pairs".into()))?;
                    let operation =
                        FullOperation { markers_received: self.markers, ..FullOperation::new(false) };
                    let then = AfterStream::FullOperation { qp, operation };
                    self.command(Command::Stream { connection, octets: Box::new(reply), then })?;
                }
                Event::StreamFailed { error, .. } => {
                    return Err(CommandError::Failed(format!("a stream has failed: {error}")));
                }
                Event::Closed { reason, .. } => {
                    return Err(CommandError::Failed(format!("a connection was closed: {reason}")));
                }
                _ => {}
            }
        }
        Ok(busy)
    }

    /// Returns the time at which the core needs its next poll.
    pub fn next_deadline(&self) -> Instant {
        self.core.next_deadline()
    }

    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    pub fn forget_peak(&mut self) {
        self.held_peak = 0;
    }

    /// Returns the most frames that were alive after any poll, but for the one the core keeps to answer with.
    pub fn held_peak(&self) -> usize {
        self.held_peak.saturating_sub(1)
    }
}
