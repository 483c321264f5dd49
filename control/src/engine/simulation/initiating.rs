//! Applications that connect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::time::{MILLISECOND, SECOND};

use super::play::{Play, address, variant};
use super::records::{Attempt, CLOSED_PORT, Decision, MPA_PORT, STREAM_PORT};
use crate::engine::interface::request::{NewQueuePair, Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected, Revision};
use crate::vocabulary::duration::nanos;
use crate::vocabulary::startup::{RtrKinds, Terms};

impl Play {
    /// Terms by chance.
    pub(super) fn terms(&mut self) -> Terms {
        let depths = ReadDepths { ird: self.rng.u16(..8), ord: self.rng.u16(..8) };
        Terms { depths, negotiated: self.rng.bool(), rtr: RtrKinds::from_bits_truncate(self.rng.u8(..)) }
    }

    /// Returns a time limit: usually long, sometimes too short for anything.
    pub(super) fn time_limit(&mut self) -> Duration {
        let limit_ns = match self.rng.u8(..4) {
            0 => self.rng.u64(MILLISECOND..200 * MILLISECOND),
            _ => self.rng.u64(5 * SECOND..20 * SECOND),
        };
        Duration::from_nanos(limit_ns)
    }

    /// Returns a random configuration to connect with. Its Private Data begin with the number of the attempt.
    fn connect_config(&mut self) -> ConnectConfig {
        let revisions = [Revision::Zero, Revision::One, Revision::Two, Revision::TwoThenOne];
        let octets = [4, 5, 64, 80, 256, 508, 508, 509, 512, 512, 512, 513][self.rng.usize(..12)];
        let mut private_data = (self.attempts.len() as u32).to_be_bytes().to_vec();
        private_data.resize_with(octets, || self.rng.u8(..));
        let patience = [0, 0, 50 * MILLISECOND, 2 * SECOND][self.attempts.len() % 4];
        let config = ConnectConfig {
            private_data,
            markers: self.rng.bool(),
            revision: revisions[self.rng.usize(..4)],
            terms: self.terms(),
            permissive: self.rng.bool(),
            nudges: self.rng.bool(),
            timeout: self.time_limit(),
            refused_patience: Duration::from_nanos(patience),
            tcp: None,
            local: None,
            core: None,
        };
        self.attempts.push(Attempt { config: config.clone() });
        config
    }

    /// Returns an address to connect to: usually that of the other host.
    pub(super) fn remote(&mut self, side: usize, port: u16) -> SocketAddr {
        match self.rng.u8(..12) {
            // No host has this address.
            0 => SocketAddr::from(([198, 18, 0, 99], port)),
            1 => SocketAddr::from((address(side), port)),
            2 => SocketAddr::from((address(1 - side), CLOSED_PORT)),
            _ => SocketAddr::from((address(1 - side), port)),
        }
    }

    /// Connects a queue pair from `side`.
    pub(super) fn connect(&mut self, side: usize) {
        let Some(qp) = self.create_qp(side) else { return };
        let port = if self.rng.u8(..5) == 0 { STREAM_PORT } else { MPA_PORT };
        let (remote, config) = (self.remote(side, port), self.connect_config());
        self.begin_connect(side, &qp, remote, config);
        if self.rng.u8(..16) == 0 {
            // A queue pair serves one connection.
            let config = self.connect_config();
            self.begin_connect(side, &qp, remote, config);
        }
        if self.rng.u8(..10) == 0 {
            // The queue pair goes while its connection is being opened.
            let delay_ns = self.rng.u64(..100 * MILLISECOND);
            self.after(delay_ns, move |play| play.drop_qp(side, &qp));
        }
    }

    fn begin_connect(
        &mut self,
        side: usize,
        qp: &Arc<NewQueuePair>,
        remote: SocketAddr,
        config: ConnectConfig,
    ) {
        let attempt = config.clone();
        let request = |reply| Request::Connect { qp: qp.shared.clone(), remote, config, reply };
        let reply = self.ask(side, request);
        let (qp, within_ns) = (qp.clone(), nanos(attempt.timeout));
        self.expect("connect", within_ns, reply, move |play, result| {
            play.on_connect_result(side, &qp, &attempt, result);
        });
    }

    /// Starts MPA as the Initiator on a connection in streaming mode.
    pub(super) fn initiate(&mut self, side: usize, stream: &Arc<SharedStream>) {
        let Some(qp) = self.create_qp(side) else { return };
        let (connection, remote): (ConnectionId, _) = (stream.connection, stream.pair.remote);
        let config = self.connect_config();
        let (shared, attempt) = (qp.shared.clone(), config.clone());
        let reply = self.ask(side, |reply| {
            Request::Stream(StreamRequest::Initiate { connection, qp: shared, remote, config, reply })
        });
        self.expect("initiate", nanos(attempt.timeout), reply, move |play, result| {
            play.on_connect_result(side, &qp, &attempt, result);
        });
    }

    fn on_connect_result(
        &mut self,
        side: usize,
        qp: &Arc<NewQueuePair>,
        attempt: &ConnectConfig,
        result: Result<Connected, ConnectError>,
    ) {
        match result {
            Ok(connected) => self.on_connected(side, qp, attempt, &connected),
            Err(error) => {
                self.record(format!("connect: {}", variant(&error)));
                if let ConnectError::Rejected { private_data, .. } = &error {
                    // What an application said when it rejected, or nothing when the engine rejected for it.
                    let said = |decision: &Decision| decision.private_data() == &private_data[..];
                    assert!(private_data.is_empty() || self.decisions.values().any(said), "{error:?}");
                }
                // After every failure but this one the queue pair may try again.
                if !matches!(error, ConnectError::QueuePairInUse) && !self.ending && self.rng.u8(..4) == 0 {
                    let remote = SocketAddr::from((address(1 - side), MPA_PORT));
                    let config = self.connect_config();
                    self.begin_connect(side, qp, remote, config);
                }
            }
        }
    }

    fn on_connected(
        &mut self,
        side: usize,
        qp: &Arc<NewQueuePair>,
        attempt: &ConnectConfig,
        connected: &Connected,
    ) {
        let asked = attempt.revision.first(attempt.terms, attempt.private_data.len());
        let revision = connected.peer.revision;
        self.record(format!("connect: revision {revision}"));
        if revision != asked {
            assert!(
                attempt.permissive || attempt.revision == Revision::TwoThenOne,
                "{attempt:?} {connected:?}"
            );
            if asked == 2 {
                self.record("connect: fell back to revision 1");
            }
        }
        assert_eq!(connected.version, u8::from(revision > 0));
        let pair = qp.status.pair().expect("the addresses of a connection in Full Operation");
        let Some(Decision::Accept(private_data)) = self.decisions.get(&(pair.local, pair.remote)) else {
            panic!("connected, but the peer did not accept")
        };
        assert_eq!(*private_data, connected.private_data, "the Private Data of the Reply");
        self.on_established(side, (pair.local, pair.remote), true, qp, connected.version);
    }
}
