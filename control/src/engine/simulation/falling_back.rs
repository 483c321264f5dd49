//! A second connection by revision 1 of MPA, from a local port that the application has given: the port is
//! that of the first connection.

use std::net::SocketAddr;
use std::time::Duration;

use warpline_dataplane::ring::ListenAddress;

use super::play::address;
use super::records::STREAM_PORT;
use super::setup_cost::Pair;
use crate::engine::interface::request::{NewStreamListener, Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::connect::{ConnectConfig, Revision};
use crate::vocabulary::stream::TcpListenConfig;

/// A Reply of revision 1 that accepts, with CRCs and without Markers (RFC 5044 §7.1).
const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

/// What a peer that has only revision 1 does about an enhanced Request (RFC 6581 §10).
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Finish,
    Reply,
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
}

/// RFC 6581 §10: the second connection is made although it has the addresses and ports of the first.
// Requirements: MPAv2-10-05
#[test]
fn a_given_port_serves_the_second_connection() {
    for reaction in [Reaction::Finish, Reaction::Reply] {
        let mut pair = Pair::new();
        let (at, config) = (ListenAddress::everywhere(STREAM_PORT), TcpListenConfig::default());
        let listen = |reply| Request::Stream(StreamRequest::Listen { at, config, reply });
        let NewStreamListener { streams, .. } = pair.hosts[1].ask(pair.now, listen).expect("a listener");
        let local: SocketAddr = (address(0), 5000).into();
        let (qp, remote) = (pair.create_qp(0), (address(1), STREAM_PORT).into());
        let config =
            ConnectConfig { local: Some(local), revision: Revision::TwoThenOne, ..ConnectConfig::default() };
        let shared = qp.shared.clone();
        let connect = |reply| Request::Connect { qp: shared, remote, config, reply };
        let connected = pair.hosts[0].begin(pair.now, connect);
        let first = pair.until(|_| streams.try_recv().ok());
        match reaction {
            Reaction::Finish => pair.finish(&first),
            Reaction::Reply => pair.write_reply(&first),
        }
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
