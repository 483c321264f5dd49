//! How queue pairs come to be connected: by MPA startup, through the engines of both hosts.

use std::net::SocketAddr;

use warpline_dataplane::limits::TIME_WAIT_REST_NS;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::ring::ConnectionId;

use super::host::{MPA_PORT, PATIENCE_NS, address, patience, terms};
use super::memory_oracle::stack::World;
use super::world::{Connection, Swarm};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Arrival, NewQueuePair, Request};
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Revision, SocketPair};
use crate::vocabulary::startup::ReadsWanted;

/// Attempts to connect before a seed gives up: each may meet a stalled host.
const ATTEMPTS: usize = 20;

impl Swarm {
    /// Connects two hosts, and returns the number of the connection. The Initiator is at the first.
    pub(super) fn connect(&mut self, hosts: [usize; 2]) -> usize {
        let markers = self.rng.bool();
        let shares = [self.rng.u8(..3) == 0, self.rng.u8(..3) == 0];
        for _ in 0..ATTEMPTS {
            let qps = [0, 1].map(|side| {
                let created = self.hosts[hosts[side]].create_qp(self.now, &self.draw, shares[side]);
                self.await_reply(&created).expect("there is room")
            });
            let number = self.connections.len();
            for (side, host) in hosts.into_iter().enumerate() {
                self.hosts[host].ends.insert(qps[side].shared.number, (number, side));
            }
            self.spare_payload(true);
            let up = self.start_up(hosts, &qps, markers);
            self.spare_payload(false);
            if let Some(responder) = up {
                let (destroyed, revoked) = ([false; 2], [Vec::new(), Vec::new()]);
                self.connections.push(Connection { hosts, qps, responder, markers, destroyed, revoked });
                return number;
            }
            for (side, host) in hosts.into_iter().enumerate() {
                if self.rng.bool() {
                    self.end_without_connection(host, &qps[side]);
                }
                let qp = qps[side].shared.number;
                self.ask(host, |reply| Request::DestroyQp { qp, fence: false, reply });
            }
        }
        panic!("no connection in {ATTEMPTS} attempts: {:#?}", self.draw);
    }

    /// Aborts a queue pair whose connection did not come about at both ends, and waits for its end.
    fn end_without_connection(&mut self, host: usize, qp: &NewQueuePair) {
        self.hosts[host].send(self.now, Request::Abort { qp: qp.shared.number });
        let give_up = self.now + PATIENCE_NS;
        while qp.status.close_state().reason.is_none() {
            assert!(self.now < give_up, "{:?} is not over", qp.shared.number);
            self.step();
        }
        assert_eq!(qp.shared.state(), QpState::Error);
    }

    /// Runs MPA startup. Returns the addresses of the Responder's end if both ends came to Full Operation.
    fn start_up(&mut self, hosts: [usize; 2], qps: &[NewQueuePair; 2], markers: bool) -> Option<SocketPair> {
        let revision = [Revision::One, Revision::Two, Revision::TwoThenOne][self.rng.usize(..3)];
        let private_data: Vec<u8> = (0..self.rng.usize(8..64)).map(|_| self.rng.u8(..)).collect();
        // One in two names the address that it would have anyway.
        let own = SocketAddr::new(address(&self.draw, hosts[0]), 0);
        let config = ConnectConfig {
            local: self.connections.len().is_multiple_of(2).then_some(own),
            private_data: private_data.clone(),
            markers,
            revision,
            nudges: self.rng.bool(),
            terms: terms(&self.draw),
            timeout: patience(),
            ..ConnectConfig::default()
        };
        let remote = SocketAddr::new(address(&self.draw, hosts[1]), MPA_PORT);
        let (reply, connected) = Reply::new();
        let qp = qps[0].shared.clone();
        self.hosts[hosts[0]].send(self.now, Request::Connect { qp, remote, config, reply });
        let answer: Vec<u8> = (0..self.rng.usize(..64)).map(|_| self.rng.u8(..)).collect();
        // On clear paths each connection comes about.
        let rejects = !self.draw.clean && self.rng.u8(..12) == 0;
        let mut accepted = None;
        let mut result = None;
        while result.is_none() || accepted.is_none() {
            if let Ok(arrival) = self.hosts[hosts[1]].arrivals.try_recv()
                && let Arrival::Request { connection, pair, request } = arrival
            {
                if *request.private_data != *private_data {
                    // Of an attempt before.
                    let (reply, _) = Reply::new();
                    let private_data = Box::default();
                    self.hosts[hosts[1]].send(self.now, Request::Reject { connection, private_data, reply });
                    continue;
                }
                if rejects {
                    self.reject(hosts[1], connection, &answer);
                    accepted = Some(None);
                    continue;
                }
                let (reply, receiver) = Reply::new();
                let reads = ReadsWanted { depths: None, ord_needed: 0 };
                let (qp, private_data) = (qps[1].shared.clone(), answer.clone().into());
                let accept = Request::Accept { connection, qp, reads, private_data, reply };
                self.hosts[hosts[1]].send(self.now, accept);
                let answered = self.await_reply(&receiver);
                self.reported.add_octets(format!("{pair:?} {request:?} {answered:?}").as_bytes());
                accepted = Some(answered.is_ok().then_some(pair));
            }
            result = result.or_else(|| connected.try_recv().ok());
            if let Some(Err(error)) = &result
                && accepted.is_none()
            {
                if *error == ConnectError::NoPort {
                    self.outlast_time_waits();
                }
                return None;
            }
            self.step();
        }
        self.reported.add_octets(format!("{result:?}").as_bytes());
        let connected = match result {
            Some(Ok(connected)) => connected,
            Some(Err(ConnectError::Rejected { private_data, .. })) => {
                assert!(rejects && *private_data == *answer, "the Private Data of a rejection");
                return None;
            }
            _ => return None,
        };
        assert_eq!(*connected.private_data, *answer, "the Private Data of the Reply");
        accepted.flatten()
    }

    /// Lets the connections that are in TIME-WAIT end (RFC 9293 §3.6): each holds a port.
    fn outlast_time_waits(&mut self) {
        let end = self.now + TIME_WAIT_REST_NS;
        while self.now < end {
            self.step();
        }
    }

    fn reject(&mut self, host: usize, connection: ConnectionId, private_data: &[u8]) {
        let private_data = private_data.into();
        let rejected = self.ask(host, |reply| Request::Reject { connection, private_data, reply });
        self.reported.add_octets(format!("{rejected:?}").as_bytes());
    }
}
