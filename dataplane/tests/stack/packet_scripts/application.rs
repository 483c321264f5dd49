//! The layers above the core: control's commands and events, and an application with a queue pair and memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::ring::{AfterStream, Command, ConnectError, ConnectionId, Event, FullOperation};
use warpline_dataplane::tcp::CloseReason;

use super::flow::{Flow, core_octet};
use super::script::Octets;
use crate::common::raw::RawPeer;
use crate::common::{PD, QP, region_of};

/// The source of the core's Writes.
const SOURCE: STag = STag::new(1, 0x1111);
/// Where the peer's Writes go.
pub const TARGET: STag = STag::new(2, 0x2222);
const REGION_OCTETS: usize = 1 << 20;

/// Payload octets of an FPDU of an RDMA Write that fills a segment of `emss` octets without Markers (RFC 5044
/// §4.5): the last multiple of four, less ULPDU_Length, DDP header and CRC.
pub const fn write_payload(emss: usize) -> usize {
    emss - emss % 4 - (2 + 14 + 4)
}

pub struct Application {
    qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    pub target: Region,
    /// Events that no line has taken, in words.
    pub events: VecDeque<String>,
    /// Octets that were posted.
    posted: u64,
    requests: u64,
}

impl Application {
    pub fn new(peer: &RawPeer) -> Self {
        let completions = Arc::new(CompletionRing::new(1024));
        let rings = CompletionRings::shared(completions.clone());
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 1024, receive: 8 },
            rings,
            peer.rings.doorbells.clone(),
        ));
        let octets: Vec<u8> = (0..REGION_OCTETS).map(core_octet).collect();
        let (source, target) = (region_of(&octets), region_of(&vec![0; REGION_OCTETS]));
        for (stag, region, access) in
            [(SOURCE, source, Access::LOCAL_WRITE), (TARGET, target.clone(), Access::REMOTE_WRITE)]
        {
            let grant = Grant::new(region, PD, 0, access);
            peer.command(Command::Register { stag, grant });
        }
        Self { qp, completions, target, events: VecDeque::new(), posted: 0, requests: 0 }
    }

    /// Enters Full Operation as Initiator, so that FPDUs may go at once.
    pub fn operate(&self, peer: &RawPeer, flow: &Flow, markers: bool) -> Result<(), String> {
        let operation =
            FullOperation { markers_sent: markers, markers_received: markers, ..FullOperation::new(true) };
        let (connection, qp) = (connection(flow)?, self.qp.clone());
        peer.command(Command::Start { connection, qp, operation });
        Ok(())
    }

    /// Posts an RDMA Write of `octets` octets; each octet depends on its place in all octets posted so far.
    pub fn write(&mut self, octets: u32) -> Result<(), String> {
        let to = self.posted;
        self.posted += u64::from(octets);
        self.requests += 1;
        let operation = Operation::Write { stag: STag(0x99), to };
        let request = SendRequest::new(self.requests, operation, Slice { stag: SOURCE, to, len: octets });
        self.qp.post_send(request).map_err(|error| format!("not posted: {error:?}"))
    }

    /// The next completion, in words.
    pub fn completion(&self) -> Option<String> {
        self.completions.poll().map(|completion| match completion.status {
            Status::Success => "ok".to_owned(),
            Status::Flushed => "flushed".to_owned(),
            Status::Failed(error) => format!("failed:{error:?}"),
            status => format!("{status:?}"),
        })
    }

    /// Takes the core's events for control since the last call.
    pub fn take_events(&mut self, peer: &mut RawPeer, flows: &mut BTreeMap<u32, Flow>) {
        for event in peer.events.drain(..) {
            match &event {
                Event::Accepted { connection, flow: ends, .. } => {
                    // Of flows that share their ports, the last that the core has answered.
                    let opened = |flow: &&mut Flow| {
                        flow.peer_port == ends.remote_port
                            && flow.core_iss.is_some()
                            && flow.connection.is_none()
                    };
                    if let Some(flow) = flows.values_mut().rfind(opened) {
                        flow.connection = Some(*connection);
                    }
                }
                Event::Connected { token, connection, .. } => {
                    if let Some(flow) = flows.get_mut(&(*token as u32)) {
                        flow.connection = Some(*connection);
                    }
                }
                Event::Stream { connection, octets } => {
                    if let Some(flow) = flows.values_mut().find(|flow| flow.connection == Some(*connection)) {
                        flow.received.extend_from_slice(octets);
                    }
                    continue;
                }
                Event::Operating { .. } | Event::Registered { .. } => continue,
                _ => {}
            }
            self.events.push_back(words(&event, flows));
        }
    }
}

/// Queues streaming octets.
pub fn send(peer: &RawPeer, flow: &mut Flow, octets: &Octets) -> Result<(), String> {
    let connection = connection(flow)?;
    let start = flow.queued.len();
    match octets {
        Octets::Pattern(octets) => flow.queued.extend((start..start + octets).map(core_octet)),
        Octets::Literal(octets) => flow.queued.extend_from_slice(octets),
    }
    let octets = flow.queued[start..].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    Ok(())
}

pub fn connection(flow: &Flow) -> Result<ConnectionId, String> {
    flow.connection.ok_or_else(|| format!("flow {} has no connection that control knows of", flow.number))
}

/// An event in the syntax of `event` lines; the flow is included unless it is the first.
fn words(event: &Event, flows: &BTreeMap<u32, Flow>) -> String {
    let of = |text: &str, connection: &ConnectionId| {
        let flow = flows.values().find(|flow| flow.connection == Some(*connection));
        match flow.map(|flow| flow.number) {
            Some(1) => text.to_owned(),
            Some(number) => format!("{text} flow {number}"),
            None => format!("{text} of an unknown flow"),
        }
    };
    match event {
        Event::Accepted { connection, .. } => of("accepted", connection),
        Event::Connected { connection, .. } => of("connected", connection),
        Event::ConnectFailed { token, error } => {
            let why = match error {
                ConnectError::Closed(reason) => reason_word(*reason),
                error => format!("{error:?}"),
            };
            if *token == 1 { format!("failed {why}") } else { format!("failed {why} flow {token}") }
        }
        Event::PeerFinished { connection } => of("peer-finished", connection),
        Event::Closed { connection, reason } => of(&format!("closed {}", reason_word(*reason)), connection),
        Event::StreamFailed { connection, error, .. } => of(&format!("stream-failed {error:?}"), connection),
        event => format!("{event:?}"),
    }
}

fn reason_word(reason: CloseReason) -> String {
    match reason {
        CloseReason::Finished => "finished".to_owned(),
        CloseReason::Refused => "refused".to_owned(),
        CloseReason::Reset => "reset".to_owned(),
        CloseReason::TimedOut => "timed-out".to_owned(),
        CloseReason::Aborted => "aborted".to_owned(),
        other => panic!("no script has a word for {other:?}"),
    }
}
