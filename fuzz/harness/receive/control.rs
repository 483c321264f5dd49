//! The parts of a control thread and of an application that the core needs: it follows control's rules, so
//! that every fault is the core's, and checks the core's events and completions.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::shared::{
    CompletionRing, CompletionRings, Doorbells, QpState, QueueDepths, SharedQp,
};
use warpline_dataplane::qp::work::{
    CompletionKind, Operation, QpNumber, ReceiveRequest, SendRequest, Slice, Status,
};
use warpline_dataplane::ring::{Command, ConnectionId, Event, Rings};

use super::memory::{Memory, PD, PURPOSES};

/// Queue pairs of a run.
pub const QUEUE_PAIRS: usize = 3;
const COMMANDS: usize = 32;
const EVENTS: usize = 16;
const DEPTH: usize = 8;

/// A queue pair and the requests posted to it.
struct Qp {
    shared: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    /// Sends and receives not completed, by name; whether success is reported.
    outstanding: HashMap<u64, (bool, CompletionKind)>,
    /// It serves, or has served, a connection.
    bound: bool,
    destroyed: bool,
}

/// Control and application.
pub struct Control {
    pub rings: Rings,
    qps: Vec<Option<Qp>>,
    registered: HashSet<u32>,
    /// Connections that are open, by name.
    pub open: HashMap<ConnectionId, SocketAddr>,
    closed: HashSet<ConnectionId>,
    /// Control does not read its events.
    pub deaf: bool,
    next_id: u64,
    pub commands: usize,
    pub events: usize,
}

impl Control {
    pub fn new() -> Self {
        let rings = Rings {
            commands: Arc::new(ArrayQueue::new(COMMANDS)),
            events: Arc::new(ArrayQueue::new(EVENTS)),
            doorbells: Arc::new(Doorbells::new(QUEUE_PAIRS)),
        };
        Self {
            rings,
            qps: (0..QUEUE_PAIRS).map(|_| None).collect(),
            registered: HashSet::new(),
            open: HashMap::new(),
            closed: HashSet::new(),
            deaf: false,
            next_id: 0,
            commands: 0,
            events: 0,
        }
    }

    /// Passes `command` to the core; returns `false` if the ring is full and control would have to wait.
    pub fn command(&mut self, command: Command) -> bool {
        self.commands += 1;
        self.rings.commands.push(command).is_ok()
    }

    pub fn register(&mut self, memory: &Memory, slot: usize) {
        let stag = Memory::stag(slot);
        let new = slot < PURPOSES.len() && !self.registered.contains(&stag.0);
        if new && self.command(Command::Register { stag, grant: memory.grant(slot) }) {
            self.registered.insert(stag.0);
        }
    }

    pub fn deregister(&mut self, slot: usize) -> bool {
        self.command(Command::Deregister { stag: Memory::stag(slot) })
    }

    pub fn has_registered(&self) -> bool {
        !self.registered.is_empty()
    }

    pub fn create_qp(&mut self, number: usize) {
        if self.qps[number].is_some() {
            return;
        }
        let completions = Arc::new(CompletionRing::new(2 * DEPTH));
        let shared = Arc::new(SharedQp::new(
            QpNumber(number as u32),
            PD,
            QueueDepths { send: DEPTH, receive: DEPTH },
            CompletionRings::shared(completions.clone()),
            self.rings.doorbells.clone(),
        ));
        let outstanding = HashMap::new();
        self.qps[number] = Some(Qp { shared, completions, outstanding, bound: false, destroyed: false });
    }

    /// Creates the queue pair, or ends it if it is there and serves no connection.
    pub fn create_or_end_qp(&mut self, number: usize) {
        match self.qps[number].as_ref().filter(|qp| !qp.bound && !qp.destroyed) {
            Some(qp) => {
                let done = self.command(Command::EndQp(qp.shared.clone()));
                if let Some(qp) = self.qps[number].as_mut() {
                    qp.bound |= done;
                }
            }
            None => self.create_qp(number),
        }
    }

    pub fn destroy_qp(&mut self, number: usize) -> bool {
        let Some(qp) = self.qps[number].as_ref().filter(|qp| !qp.destroyed) else { return true };
        let shared = qp.shared.clone();
        let done = self.command(Command::DestroyQp(shared));
        if let Some(qp) = self.qps[number].as_mut() {
            qp.destroyed |= done;
        }
        done
    }

    pub fn has_qps(&self) -> bool {
        self.qps.iter().any(Option::is_some)
    }

    /// A queue pair that serves no connection yet; it is taken to serve one now.
    pub fn bind(&mut self, number: usize) -> Option<Arc<SharedQp>> {
        self.create_qp(number);
        let qp = self.qps[number].as_mut().filter(|qp| !qp.bound && !qp.destroyed)?;
        qp.bound = true;
        Some(qp.shared.clone())
    }

    pub fn post_send(&mut self, number: usize, operation: Operation, local: Slice, signaled: bool) {
        self.next_id += 1;
        let request = SendRequest { signaled, ..SendRequest::new(self.next_id, operation, local) };
        let kind = operation.kind();
        if let Some(qp) = &mut self.qps[number]
            && qp.shared.post_send(request).is_ok()
        {
            qp.outstanding.insert(request.id, (signaled, kind));
        }
    }

    pub fn post_receive(&mut self, number: usize, local: Slice) {
        self.next_id += 1;
        let request = ReceiveRequest::new(self.next_id, local);
        if let Some(qp) = &mut self.qps[number]
            && qp.shared.post_receive(request).is_ok()
        {
            qp.outstanding.insert(request.id, (true, CompletionKind::Receive));
        }
    }

    pub fn poll_completions(&mut self) {
        for qp in self.qps.iter_mut().flatten() {
            while let Some(completion) = qp.completions.poll() {
                let (signaled, kind) =
                    qp.outstanding.remove(&completion.id).expect("work completes once, and was posted");
                assert_eq!(kind, completion.kind);
                assert!(signaled || completion.status != Status::Success, "success that nobody asked for");
            }
        }
    }

    /// Takes one event; returns it for the peers.
    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.rings.events.pop()?;
        self.events += 1;
        match &event {
            Event::Accepted { connection, flow, .. } => self.on_open(*connection, flow.remote_end()),
            Event::Connected { connection, local, .. } => self.on_open(*connection, *local),
            Event::Stream { connection, .. }
            | Event::Operating { connection }
            | Event::PeerFinished { connection } => {
                assert!(self.open.contains_key(connection), "{event:?} of a connection that is not open");
            }
            Event::StreamFailed { connection, qp, .. } => {
                assert!(self.open.contains_key(connection), "{event:?} of a connection that is not open");
                let qp = self.qps[qp.0 as usize].as_ref();
                assert!(qp.is_none_or(|qp| qp.bound), "{event:?} of a queue pair that serves none");
            }
            Event::Closed { connection, .. } => {
                assert!(self.open.remove(connection).is_some(), "closed, but not open");
                assert!(self.closed.insert(*connection), "closed twice");
            }
            Event::QpEnded(number) => {
                let qp = self.qps[number.0 as usize].as_ref();
                assert!(qp.is_some_and(|qp| qp.shared.state() == QpState::Error), "{event:?}");
            }
            Event::QpDestroyed(number) => self.on_destroyed(*number),
            Event::Registered { stag, result } => assert_eq!(*result, Ok(()), "{stag:?} was free"),
            Event::Deregistered { stag, result } => self.on_deregistered(*stag, result.is_ok()),
            Event::Probed { .. } | Event::GrantChanged(_) | Event::Followed { .. } => {
                panic!("{event:?}, which nobody has asked for")
            }
            Event::ConnectFailed { .. }
            | Event::StreamAcknowledged { .. }
            | Event::Notice(_)
            | Event::Statistics(_)
            | Event::ConnectionReport(_) => {}
        }
        Some(event)
    }

    fn on_open(&mut self, connection: ConnectionId, address: SocketAddr) {
        assert!(!self.closed.contains(&connection), "a name used twice");
        assert!(self.open.insert(connection, address).is_none(), "opened twice");
    }

    fn on_destroyed(&mut self, number: QpNumber) {
        self.poll_completions();
        let qp = self.qps[number.0 as usize].take().expect("there was one");
        assert!(qp.destroyed, "destroyed unasked");
        // A successful unsignaled Send has no completion.
        let lost = qp.outstanding.values().filter(|(signaled, _)| *signaled).count();
        assert_eq!(lost, 0, "work requests without a completion");
    }

    fn on_deregistered(&mut self, stag: STag, done: bool) {
        if done {
            assert!(self.registered.remove(&stag.0), "{stag:?} was not registered");
        }
    }
}
