//! A second connection by revision 1 of MPA, from a local port that the application has given: the port is
//! that of the first connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Receiver;
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::wire::mpa::StartupError;

use super::play::address;
use super::records::STREAM_PORT;
use super::setup_cost::Pair;
use crate::engine::interface::request::{NewQueuePair, NewStreamListener, Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected, Revision};
use crate::vocabulary::startup::StartupFault;
use crate::vocabulary::stream::TcpListenConfig;

/// A Reply of revision 1 that accepts, with CRCs and without Markers (RFC 5044 §7.1).
const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

/// What a peer that has only revision 1 does about an enhanced Request (RFC 6581 §10).
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Finish,
    Reply,
}

/// A queue pair that awaits the Reply of a peer that knows no MPA, from a port that was given.
struct Attempt {
    qp: NewQueuePair,
    local: SocketAddr,
    connected: Receiver<Result<Connected, ConnectError>>,
    /// The peer's end of the connection, and where another would arrive.
    first: Arc<SharedStream>,
    streams: Receiver<Arc<SharedStream>>,
}

impl Pair {
    fn write_reply(&mut self, stream: &SharedStream) {
        self.until(|_| (stream.pending_octets() > 0).then_some(()));
        let (connection, mut write) = (stream.connection, None);
        let send = |octets| {
            write = Some(StreamRequest::Write { connection, octets });
            Ok(())
        };
        stream.write(REPLY, Duration::ZERO, send).expect("room for a Reply");
        self.hosts[1].send(self.now, Request::Stream(write.expect("octets")));
    }

    fn finish(&mut self, stream: &SharedStream) {
        self.until(|_| (stream.pending_octets() > 0).then_some(()));
        let (connection, mut finish) = (stream.connection, None);
        stream.finish(|| finish = Some(StreamRequest::Finish { connection }));
        self.hosts[1].send(self.now, Request::Stream(finish.expect("it was not finished")));
    }
    /// Connects, with a second attempt by revision 1 if the peer reacts as to a Request that it does not
    /// know.
    fn attempt(&mut self) -> Attempt {
        let (at, config) = (ListenAddress::everywhere(STREAM_PORT), TcpListenConfig::default());
        let listen = |reply| Request::Stream(StreamRequest::Listen { at, config, reply });
        let NewStreamListener { streams, .. } = self.hosts[1].ask(self.now, listen).expect("a listener");
        let local: SocketAddr = (address(0), 5000).into();
        let (qp, remote) = (self.create_qp(0), (address(1), STREAM_PORT).into());
        let config =
            ConnectConfig { local: Some(local), revision: Revision::TwoThenOne, ..ConnectConfig::default() };
        let shared = qp.shared.clone();
        let connect = |reply| Request::Connect { qp: shared, remote, config, reply };
        let connected = self.hosts[0].begin(self.now, connect);
        let first = self.until(|_| streams.try_recv().ok());
        Attempt { qp, local, connected, first, streams }
    }

    fn react(&mut self, reaction: Reaction, stream: &SharedStream) {
        match reaction {
            Reaction::Finish => self.finish(stream),
            Reaction::Reply => self.write_reply(stream),
        }
    }
}

/// RFC 6581 §10: the second connection is made although it has the addresses and ports of the first.
// Requirements: MPAv2-10-05
#[test]
fn a_given_port_serves_the_second_connection() {
    for reaction in [Reaction::Finish, Reaction::Reply] {
        let mut pair = Pair::new();
        let Attempt { qp: _qp, local, connected, first, streams } = pair.attempt();
        pair.react(reaction, &first);
        let second = pair.until(|_| {
            if let Ok(result) = connected.try_recv() {
                panic!("{reaction:?}: {result:?}");
            }
            streams.try_recv().ok()
        });
        pair.write_reply(&second);
        let result = pair.until(|_| connected.try_recv().ok()).expect("connected");
        assert_eq!(result.peer.revision, 1, "{reaction:?}");
        assert_eq!([first.pair.remote, second.pair.remote], [local; 2], "{reaction:?}");
    }
}

/// A queue pair that was dropped while it awaited the Reply has no use for a second connection.
#[test]
fn a_queue_pair_that_is_gone_makes_no_second_attempt() {
    let faults = [StartupFault::Closed, StartupFault::Frame(StartupError::Revision(1))];
    for (reaction, fault) in [Reaction::Finish, Reaction::Reply].into_iter().zip(faults) {
        let mut pair = Pair::new();
        let Attempt { qp, connected, first, streams, .. } = pair.attempt();
        let qp = qp.shared.number;
        let destroyed = pair.hosts[0].begin(pair.now, |reply| Request::DestroyQp { qp, fence: false, reply });
        pair.until(|_| destroyed.try_recv().ok());
        assert!(connected.is_empty(), "{reaction:?}: the Reply is awaited");
        pair.react(reaction, &first);
        let result = pair.until(|_| {
            assert!(streams.is_empty(), "{reaction:?}: a second connection");
            connected.try_recv().ok()
        });
        assert_eq!(result, Err(ConnectError::Startup(fault)), "{reaction:?}");
        // Until nothing is left of the first.
        pair.until(|pair| {
            let usage = pair.hosts[0].ask(pair.now, |reply| Request::Usage { reply });
            (usage.connections == 0).then_some(())
        });
        assert!(streams.is_empty(), "{reaction:?}: a second connection");
    }
}
