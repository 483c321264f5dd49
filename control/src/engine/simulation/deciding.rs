//! Applications that listen, and decide about the peers that ask.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::ring::{ConnectionId, ListenAddress};
use warpline_dataplane::time::{MILLISECOND, SECOND};

use super::play::{Play, variant};
use super::records::{Decision, Listening, MPA_PORT, Queue, STREAM_PORT};
use crate::engine::interface::request::{
    Arrival, NewQueuePair, NewStreamListener, PeerRequest, Request, StreamRequest, arrival_queue,
};
use crate::vocabulary::connect::SocketPair;
use crate::vocabulary::listen::{AnswerError, ListenConfig};
use crate::vocabulary::startup::ReadsWanted;
use crate::vocabulary::stream::TcpListenConfig;

impl Play {
    /// Listens at both ports of `side`.
    pub(super) fn listen(&mut self, side: usize) {
        let at = ListenAddress::everywhere(MPA_PORT);
        let config = self.listen_config();
        let arrivals = arrival_queue(&config);
        let queue = Queue::Mpa(arrivals.1.clone());
        let port = self.ask(side, |reply| Request::Listen { at, config, arrivals, notify: None, reply });
        assert_eq!(port.try_recv(), Ok(Ok(MPA_PORT)));
        self.listening.push(Listening { side, at, queue });

        let at = ListenAddress::everywhere(STREAM_PORT);
        let config = TcpListenConfig { backlog: self.rng.u32(1..8), ..TcpListenConfig::default() };
        let listener = self.ask(side, |reply| Request::Stream(StreamRequest::Listen { at, config, reply }));
        let Ok(Ok(NewStreamListener { port: STREAM_PORT, streams, .. })) = listener.try_recv() else {
            panic!("the port is free")
        };
        self.listening.push(Listening { side, at, queue: Queue::Streams(streams) });
    }

    pub(super) fn listen_config(&mut self) -> ListenConfig {
        ListenConfig {
            backlog: self.rng.u32(1..8),
            markers: self.rng.bool(),
            terms: self.terms(),
            permissive: self.rng.bool(),
            startup_timeout: self.time_limit(),
            decision_timeout: Some(self.time_limit()),
            first_fpdu_timeout: self.rng.bool().then(|| Duration::from_secs(20)),
            ..ListenConfig::default()
        }
    }

    /// Drops the listeners of `side`, and makes them again.
    pub(super) fn relisten(&mut self, side: usize) {
        let (gone, stay) = std::mem::take(&mut self.listening).into_iter().partition(|at| at.side == side);
        self.listening = stay;
        for listening in gone {
            self.unlisten(listening);
        }
        self.listen(side);
    }

    pub(super) fn unlisten(&mut self, listening: Listening) {
        self.send(listening.side, Request::Unlisten { at: listening.at });
        // The engine has taken back everything that waited there.
        match listening.queue {
            Queue::Mpa(arrivals) => assert!(arrivals.is_empty()),
            Queue::Streams(streams) => assert!(streams.is_empty()),
        }
    }

    /// Takes what has arrived at the listeners.
    pub(super) fn poll_listening(&mut self) {
        for index in 0..self.listening.len() {
            let (side, queue) = (self.listening[index].side, self.listening[index].queue.clone());
            match queue {
                Queue::Mpa(arrivals) => {
                    for arrival in arrivals.try_iter() {
                        self.on_arrival(side, arrival);
                    }
                }
                Queue::Streams(streams) => {
                    for stream in streams.try_iter() {
                        let connection = stream.connection;
                        self.send(side, Request::Stream(StreamRequest::Admit { connection }));
                        if self.rng.bool() {
                            self.respond(side, &stream);
                        }
                        self.use_stream(side, stream);
                    }
                }
            }
        }
    }

    fn on_arrival(&mut self, side: usize, arrival: Arrival) {
        match arrival {
            Arrival::Request { connection, pair, request } => {
                self.on_request(side, connection, pair, request);
            }
            Arrival::Fault { fault, .. } => self.record(format!("peer: {}", variant(&fault))),
        }
    }

    /// Handles a peer that asks for a connection: the application decides in its own time.
    pub(super) fn on_request(
        &mut self,
        side: usize,
        connection: ConnectionId,
        pair: SocketPair,
        request: PeerRequest,
    ) {
        let delay_ns = match self.rng.u8(..8) {
            0 => self.rng.u64(..20 * SECOND),
            1..=3 => self.rng.u64(..300 * MILLISECOND),
            _ => 0,
        };
        let number = request.private_data.first_chunk().map(|number| u32::from_be_bytes(*number));
        if let Some(attempt) = number.and_then(|number| self.attempts.get(number as usize)) {
            let config = &attempt.config;
            assert_eq!(*request.private_data, *config.private_data, "the Private Data of the Request");
            let first = config.revision.first(config.terms, config.private_data.len());
            assert!([first, 1].contains(&request.peer.revision), "{config:?}: {:?}", request.peer);
        }
        self.after(delay_ns, move |play| match play.rng.u8(..8) {
            0 => play.reject(side, connection, pair),
            1 => play.reject_to_stream(side, connection, pair),
            _ => play.accept(side, connection, pair, &request),
        });
    }

    fn accept(&mut self, side: usize, connection: ConnectionId, pair: SocketPair, request: &PeerRequest) {
        let Some(qp) = self.usable_qp(side) else { return self.reject(side, connection, pair) };
        let ord_needed = if self.rng.u8(..4) == 0 { 6 } else { 0 };
        let reads = ReadsWanted { depths: None, ord_needed };
        let octets = self.rng.usize(..=request.private_data_max_octets);
        let private_data: Box<[u8]> = (0..octets).map(|_| self.rng.u8(..)).collect();
        self.decisions.insert((pair.remote, pair.local), Decision::Accept(private_data.clone()));
        let (shared, version) = (qp.shared.clone(), request.version);
        let reply =
            self.ask(side, |reply| Request::Accept { connection, qp: shared, reads, private_data, reply });
        // The core switches at once, or the connection is over.
        self.expect("accept", 0, reply, move |play, result| match result {
            Ok(accepted) => {
                assert_eq!(accepted.version, version);
                play.record(format!("accept: version {version}"));
                play.on_established(side, (pair.remote, pair.local), false, &qp, version);
            }
            Err(error) => play.record(format!("accept: {}", variant(&error))),
        });
    }

    /// Returns a queue pair to accept with: usually a new one, sometimes one that is in use.
    fn usable_qp(&mut self, side: usize) -> Option<Arc<NewQueuePair>> {
        if self.rng.u8(..12) == 0
            && let Some((_, qp)) = self.queue_pairs.iter().find(|(of, _)| *of == side)
        {
            return Some(qp.clone());
        }
        self.create_qp(side)
    }

    pub(super) fn reject(&mut self, side: usize, connection: ConnectionId, pair: SocketPair) {
        let private_data: Box<[u8]> = (0..self.rng.usize(..64)).map(|_| self.rng.u8(..)).collect();
        self.decisions.insert((pair.remote, pair.local), Decision::Reject(private_data.clone()));
        let reply = self.ask(side, |reply| Request::Reject { connection, private_data, reply });
        let outcome = match reply.try_recv().expect("an immediate reply") {
            Ok(()) => "reject: done",
            Err(AnswerError::TimedOut | AnswerError::Closed(_) | AnswerError::Startup(_)) => {
                "reject: too late"
            }
            // The listener was dropped, and its request with it.
            Err(AnswerError::Stopped) => "reject: gone",
            Err(error) => panic!("{error}"),
        };
        self.record(outcome);
    }

    fn reject_to_stream(&mut self, side: usize, connection: ConnectionId, pair: SocketPair) {
        let private_data: Box<[u8]> = (0..self.rng.usize(..64)).map(|_| self.rng.u8(..)).collect();
        self.decisions.insert((pair.remote, pair.local), Decision::Reject(private_data.clone()));
        let reply = self.ask(side, |reply| {
            Request::Stream(StreamRequest::RejectToStream { connection, pair, private_data, reply })
        });
        match reply.try_recv().expect("an immediate reply") {
            Ok(stream) => {
                self.record("reject to stream: done");
                self.use_stream(side, stream);
            }
            Err(error) => self.record(format!("reject to stream: {}", variant(&error))),
        }
    }
}
