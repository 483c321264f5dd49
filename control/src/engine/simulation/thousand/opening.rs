//! How the thousand are connected, among attempts that are refused or given up.

use std::time::Duration;

use crossbeam::channel::Receiver;
use warpline_dataplane::ring::{ConnectionId, ListenAddress};
use warpline_dataplane::time::{MILLISECOND, SECOND};

use super::super::play::address;
use super::super::records::{CLOSED_PORT, MPA_PORT};
use super::{CONNECTIONS, Crowd, PD};
use crate::engine::interface::request::{Arrival, NewQueuePair, Request, arrival_queue};
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected, Revision};
use crate::vocabulary::listen::{Accepted, AnswerError, ListenConfig};
use crate::vocabulary::queue_pair::QpConfig;
use crate::vocabulary::startup::ReadsWanted;

/// Attempts of each kind beside those that are served.
const OF_EACH_FATE: usize = 30;
/// Attempts beside those that are served.
pub(super) const OTHERS: usize = 4 * OF_EACH_FATE;
/// When the last attempt begins: many are under way at once.
const OPENING_NS: u64 = SECOND / 2;
/// An attempt is given up before or after it has led to a connection.
const GIVE_UP_NS: u64 = 20 * MILLISECOND;
/// Longer than any SYN or startup frame takes that is lost a few times.
const TIMEOUT: Duration = Duration::from_mins(2);
/// What an application says that rejects.
const REJECTION: &[u8] = b"no";

/// How an attempt to connect ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Both applications want it.
    Served,
    /// The Responder's application rejects it.
    Rejected,
    /// Nothing listens at the port.
    Refused,
    /// The Initiator's application drops its queue pair.
    GivenUp,
    /// It was served, and has failed since.
    Failed,
    /// The Responder's application accepts it, and drops its queue pair at once.
    Dropped,
}

/// What an application does at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timed {
    Connect,
    GiveUp,
}

/// An attempt to connect.
pub(super) struct Attempt {
    pub(super) fate: Fate,
    /// The host of the Initiator.
    pub(super) initiator: usize,
    /// The queue pairs of Initiator and Responder, until they are destroyed.
    pub(super) ends: [Option<NewQueuePair>; 2],
    connected: Option<Receiver<Result<Connected, ConnectError>>>,
    accepted: Option<Receiver<Result<Accepted, AnswerError>>>,
    private_data: Vec<u8>,
}

impl Attempt {
    /// Returns the host of an end.
    pub(super) const fn host_of(&self, end: usize) -> usize {
        if end == 0 { self.initiator } else { 1 - self.initiator }
    }
}

impl Crowd {
    /// Connects the thousand, and lets every other attempt end.
    pub(super) fn open(&mut self) {
        for side in 0..2 {
            self.listen(side);
        }
        let mut fates = vec![Fate::Served; CONNECTIONS];
        for fate in [Fate::Rejected, Fate::Refused, Fate::GivenUp, Fate::Dropped] {
            fates.extend([fate; OF_EACH_FATE]);
        }
        self.rng.shuffle(&mut fates);
        for (number, fate) in fates.into_iter().enumerate() {
            let mut private_data = (number as u32).to_be_bytes().to_vec();
            private_data.resize_with(4 + self.rng.usize(..100), || self.rng.u8(..));
            self.attempts.push(Attempt {
                fate,
                initiator: self.rng.usize(..2),
                ends: [None, None],
                connected: None,
                accepted: None,
                private_data,
            });
            let at = self.now + self.rng.u64(..OPENING_NS);
            self.agenda.insert((at, number, Timed::Connect));
            if fate == Fate::GivenUp {
                self.agenda.insert((at + self.rng.u64(1..GIVE_UP_NS), number, Timed::GiveUp));
            }
        }
        self.until("all attempts begin", |crowd| crowd.agenda.is_empty());
        let mut next = 0;
        self.until("all replies come", |crowd| {
            while next < crowd.attempts.len() && crowd.take_replies(next) {
                next += 1;
            }
            next == crowd.attempts.len()
        });
        self.until("the others end", |crowd| {
            crowd.drop_others();
            let open = |side: usize| {
                let host = &crowd.hosts[side];
                let (core, engine) = (host.core_usage(), host.engine.usage());
                [core.connections, core.queue_pairs, engine.connections, engine.queue_pairs]
            };
            [0, 1].map(open) == [[CONNECTIONS; 4]; 2]
        });
        assert!(self.given_up.iter().all(|count| *count > 0), "{:?}", self.given_up);
        assert!(self.faults <= OF_EACH_FATE, "only those whose Initiator has gone fail at startup");
    }

    fn listen(&mut self, side: usize) {
        let config = ListenConfig {
            backlog: 4096,
            startup_timeout: TIMEOUT,
            first_fpdu_timeout: None,
            ..ListenConfig::default()
        };
        let (at, queue) = (ListenAddress::everywhere(MPA_PORT), arrival_queue(&config));
        self.arrivals[side] = queue.1.clone();
        let listen = |reply| Request::Listen { at, config, arrivals: queue, notify: None, reply };
        assert_eq!(self.hosts[side].ask(self.now, listen), Ok(MPA_PORT));
    }

    pub(super) fn carry_out(&mut self, number: usize, timed: Timed) {
        match timed {
            Timed::Connect => self.connect(number),
            Timed::GiveUp => self.destroy(number, 0),
        }
    }

    fn create_qp(&mut self, side: usize) -> NewQueuePair {
        let config = QpConfig { send_depth: 2, receive_depth: 1, ..QpConfig::default() };
        let completions = super::exchange::rings(&self.completions[side]);
        let create = |reply| Request::CreateQp { pd: PD, config, completions, receives: None, reply };
        self.hosts[side].ask(self.now, create).expect("room for a queue pair")
    }

    fn connect(&mut self, number: usize) {
        let Attempt { fate, initiator, .. } = self.attempts[number];
        let qp = self.create_qp(initiator);
        let port = if fate == Fate::Refused { CLOSED_PORT } else { MPA_PORT };
        let remote = (address(1 - initiator), port).into();
        let config = ConnectConfig {
            private_data: self.attempts[number].private_data.clone(),
            markers: self.rng.bool(),
            // Neither falls back to another on a new connection: each attempt has one Request.
            revision: [Revision::One, Revision::Two][self.rng.usize(..2)],
            timeout: TIMEOUT,
            ..ConnectConfig::default()
        };
        let shared = qp.shared.clone();
        let connect = |reply| Request::Connect { qp: shared, remote, config, reply };
        let connected = self.hosts[initiator].begin(self.now, connect);
        let attempt = &mut self.attempts[number];
        (attempt.ends[0], attempt.connected) = (Some(qp), Some(connected));
    }

    /// Has the applications answer the Requests that have arrived. Returns true if there were any.
    pub(super) fn take_arrivals(&mut self) -> bool {
        let mut busy = false;
        for side in 0..2 {
            while let Ok(arrival) = self.arrivals[side].try_recv() {
                busy = true;
                match arrival {
                    Arrival::Request { connection, request, .. } => {
                        let number = request.private_data.first_chunk().map(|of| u32::from_be_bytes(*of));
                        let number = number.expect("every Request has its number") as usize;
                        assert_eq!(*request.private_data, *self.attempts[number].private_data);
                        self.answer(number, connection);
                    }
                    Arrival::Fault { .. } => self.faults += 1,
                }
            }
        }
        busy
    }

    fn answer(&mut self, number: usize, connection: ConnectionId) {
        let (fate, side) = (self.attempts[number].fate, self.attempts[number].host_of(1));
        if fate == Fate::Rejected {
            let reject = |reply| Request::Reject { connection, private_data: REJECTION.into(), reply };
            assert_eq!(self.hosts[side].ask(self.now, reject), Ok(()));
            return;
        }
        let qp = self.create_qp(side);
        let (shared, reads) = (qp.shared.clone(), ReadsWanted::default());
        let private_data = self.attempts[number].private_data.clone().into();
        let accept = |reply| Request::Accept { connection, qp: shared, reads, private_data, reply };
        let accepted = self.hosts[side].begin(self.now, accept);
        let attempt = &mut self.attempts[number];
        assert!(attempt.accepted.is_none(), "one Request of each attempt");
        (attempt.ends[1], attempt.accepted) = (Some(qp), Some(accepted));
        if fate == Fate::Dropped {
            self.destroy(number, 1);
        }
    }

    /// Returns true if the Initiator has its reply by now, which must be the one that its fate implies.
    fn take_replies(&mut self, number: usize) -> bool {
        let attempt = &self.attempts[number];
        let Some(Ok(reply)) = attempt.connected.as_ref().map(Receiver::try_recv) else { return false };
        match (attempt.fate, reply) {
            (Fate::Served, Ok(connected)) => {
                assert_eq!(*connected.private_data, *attempt.private_data, "the Private Data of the Reply");
                let accepted = attempt.accepted.as_ref().expect("it was accepted").try_recv();
                assert!(matches!(accepted, Ok(Ok(_))), "attempt {number}: {accepted:?}");
            }
            (Fate::Rejected, Err(ConnectError::Rejected { private_data, .. })) => {
                assert_eq!(*private_data, *REJECTION);
            }
            (Fate::Refused, Err(ConnectError::Refused)) | (Fate::Dropped, _) => {}
            (Fate::GivenUp, reply) => self.given_up[usize::from(reply.is_ok())] += 1,
            (fate, reply) => panic!("attempt {number}, {fate:?}: {reply:?}"),
        }
        true
    }

    /// Drops the queue pairs of attempts that are not served.
    fn drop_others(&mut self) {
        for number in 0..self.attempts.len() {
            if self.attempts[number].fate != Fate::Served {
                self.destroy(number, 0);
                self.destroy(number, 1);
            }
        }
    }

    /// Destroys the queue pair at one end of an attempt, if it has one.
    pub(super) fn destroy(&mut self, number: usize, end: usize) {
        let attempt = &mut self.attempts[number];
        let side = attempt.host_of(end);
        if let Some(qp) = attempt.ends[end].take() {
            let destroy = |reply| Request::DestroyQp { qp: qp.shared.number, fence: false, reply };
            self.destroyed.push(self.hosts[side].begin(self.now, destroy));
            self.dropped.push(qp);
        }
    }
}
