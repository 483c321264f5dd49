//! Applications of connections in streaming mode: some start MPA, some send octets that are no startup frame,
//! some do nothing.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::ring::Direction;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::play::{Play, variant};
use super::records::{MPA_PORT, STREAM_PORT};
use crate::engine::interface::request::{Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::startup::{Initiator, Offer, Proposal};
use crate::vocabulary::duration::nanos;
use crate::vocabulary::stream::{StreamConfig, UnnegotiatedConfig};

impl Play {
    /// Opens a connection in streaming mode, to a port for it or to one that expects a Request.
    pub(super) fn open_stream(&mut self, side: usize) {
        let port = if self.rng.bool() { STREAM_PORT } else { MPA_PORT };
        let (remote, timeout) = (self.remote(side, port), self.time_limit());
        let config = StreamConfig { timeout, ..StreamConfig::default() };
        let reply = self.ask(side, |reply| Request::Stream(StreamRequest::Connect { remote, config, reply }));
        let within_ns = nanos(timeout);
        self.expect("open a stream", within_ns, reply, move |play, result| match result {
            Ok(stream) => {
                if play.rng.bool() {
                    play.initiate(side, &stream);
                }
                play.use_stream(side, stream);
            }
            Err(error) => play.record(format!("stream: {}", variant(&error))),
        });
    }

    /// Uses a connection that the application has in streaming mode.
    pub(super) fn use_stream(&mut self, side: usize, stream: Arc<SharedStream>) {
        self.streams.push((side, stream.clone()));
        for _ in 0..self.rng.u8(..3) {
            let (delay_ns, stream) = (self.rng.u64(..500 * MILLISECOND), stream.clone());
            self.after(delay_ns, move |play| play.use_stream_once(side, &stream));
        }
        if self.rng.bool() {
            let delay_ns = self.rng.u64(..10 * SECOND);
            self.after(delay_ns, move |play| play.drop_stream(side, &stream));
        }
    }

    fn use_stream_once(&mut self, side: usize, stream: &Arc<SharedStream>) {
        if self.ending || !self.streams.iter().any(|(_, other)| Arc::ptr_eq(other, stream)) {
            return;
        }
        let connection = stream.connection;
        match self.rng.u8(..12) {
            0..=2 => self.initiate(side, stream),
            3..=4 => self.respond(side, stream),
            5..=6 => self.start_unnegotiated(side, stream),
            7..=8 => {
                let octets = self.octets();
                // It is refused when the connection has ended or MPA has started.
                let mut write = None;
                let _ = stream.write(&octets, Duration::ZERO, |octets| {
                    write = Some(StreamRequest::Write { connection, octets });
                    Ok(())
                });
                self.send_some(side, write);
            }
            9 => self.read(side, stream),
            10 => {
                let mut finish = None;
                stream.finish(|| finish = Some(StreamRequest::Finish { connection }));
                self.send_some(side, finish);
            }
            _ => self.send(side, Request::Stream(StreamRequest::Abort { connection })),
        }
    }

    /// Returns octets to write in streaming mode: noise, or a Request, whole, cut short, or with an octet
    /// after it.
    fn octets(&mut self) -> Vec<u8> {
        if self.rng.bool() {
            return (0..self.rng.usize(1..64)).map(|_| self.rng.u8(..)).collect();
        }
        let offer = Offer { markers: self.rng.bool(), crc: self.rng.bool() };
        let proposal = Proposal { offer, revision: self.rng.u8(..3), terms: self.terms(), permissive: true };
        let Ok((_, request)) = Initiator::new(proposal, &[0xff; 8], Instant::NEVER) else {
            return Vec::new();
        };
        let mut octets = request.into_vec();
        match self.rng.u8(..3) {
            0 => octets.truncate(self.rng.usize(1..octets.len())),
            1 => octets.push(0),
            _ => {}
        }
        octets
    }

    fn read(&mut self, side: usize, stream: &Arc<SharedStream>) {
        let (connection, mut take) = (stream.connection, None);
        let _ = stream.read(&mut [0; 256], Duration::ZERO, |octets| {
            take = Some(StreamRequest::Take { connection, octets });
            Ok(())
        });
        self.send_some(side, take);
    }

    /// Sends what a stream asks for under its lock, once that is free: the engine locks the stream too.
    fn send_some(&mut self, side: usize, request: Option<StreamRequest>) {
        if let Some(request) = request {
            self.send(side, Request::Stream(request));
        }
    }

    /// Starts MPA as the Responder.
    pub(super) fn respond(&mut self, side: usize, stream: &Arc<SharedStream>) {
        let config = self.listen_config();
        let octets = if self.rng.bool() { 0 } else { self.rng.usize(1..100) };
        let (connection, pair) = (stream.connection, stream.pair);
        let last_message = vec![7; octets].into();
        let reply = self.ask(side, |reply| {
            Request::Stream(StreamRequest::Respond { connection, last_message, config, reply })
        });
        let within_ns = nanos(config.startup_timeout);
        self.expect("respond", within_ns, reply, move |play, result| match result {
            Ok(request) => {
                play.record("respond: Request");
                play.on_request(side, connection, pair, request);
            }
            Err(error) => {
                let error = variant(&error);
                play.record(format!("respond: {}", error.split('(').next().unwrap_or_default()));
            }
        });
    }

    fn start_unnegotiated(&mut self, side: usize, stream: &Arc<SharedStream>) {
        let Some(qp) = self.create_qp(side) else { return };
        let connection = stream.connection;
        let direction = [Direction::Send, Direction::Receive, Direction::Both][self.rng.usize(..3)];
        let config = UnnegotiatedConfig::default();
        let shared = qp.shared.clone();
        let reply = self.ask(side, |reply| {
            Request::Stream(StreamRequest::Start { connection, qp: shared, direction, config, reply })
        });
        self.expect("start", 0, reply, move |play, result| match result {
            Ok(()) => {
                play.record("start: done");
                let delay_ns = play.rng.u64(..2 * SECOND);
                play.after(delay_ns, move |play| play.drop_qp(side, &qp));
            }
            Err(error) => play.record(format!("start: {}", variant(&error))),
        });
    }

    fn drop_stream(&mut self, side: usize, stream: &Arc<SharedStream>) {
        let place = self.streams.iter().position(|(_, other)| Arc::ptr_eq(other, stream));
        if let Some(place) = place {
            self.streams.remove(place);
            self.abandon(side, stream);
        }
    }

    /// Drops the handle of a connection in streaming mode.
    pub(super) fn abandon(&mut self, side: usize, stream: &Arc<SharedStream>) {
        stream.abandon();
        self.send(side, Request::Stream(StreamRequest::Abandon { connection: stream.connection }));
    }
}
