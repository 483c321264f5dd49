//! Tests of connections that control gives up while they are opened.

use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer};
use crate::common::{PORT, address};
use warpline_dataplane::ring::{Command, ConnectError, Event};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::tcp::Flags;

/// A connection that is being opened can be given up: it is gone at once, and says so. Nobody else is
/// affected.
#[test]
fn an_opening_connection_can_be_given_up() {
    let mut peer = RawPeer::new();
    let remote = (address(2), PEER_PORT).into();
    for token in [1, 2] {
        let timeout_ns = 600 * SECOND;
        peer.command(Command::Connect {
            token,
            local: None,
            remote,
            timeout_ns,
            tcp: None,
            octets: Box::default(),
        });
    }
    peer.settle();
    assert_eq!((peer.sent.len(), peer.core.usage().connections), (2, 2));
    peer.sent.clear();
    peer.command(Command::GiveUp { token: 2 });
    peer.settle();
    assert_eq!(peer.core.usage().connections, 1);
    let failed = peer.events.pop();
    let expected = ConnectError::Closed(CloseReason::TimedOut);
    assert!(
        matches!(failed, Some(Event::ConnectFailed { token: 2, error }) if error == expected),
        "{failed:?}"
    );
    peer.expect_nothing();
    // The other one is still tried, and one that is not there changes nothing.
    peer.command(Command::GiveUp { token: 2 });
    peer.pass_ms(1100);
    assert_eq!(peer.expect_one().header.flags & Flags::SYN, Flags::SYN);
    assert_eq!(peer.core.usage().connections, 1);
}

/// A connection that is open is not given up: an event has said so.
#[test]
fn an_open_connection_is_not_given_up() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    peer.send(Flags::SYN | Flags::ACK, PEER_ISS, syn.header.seq + 1, &[]);
    let opened = peer.events.pop();
    let Some(Event::Connected { token, .. }) = opened else { panic!("{opened:?}") };
    peer.sent.clear();
    peer.command(Command::GiveUp { token });
    peer.settle();
    peer.expect_nothing();
    assert_eq!((peer.events.len(), peer.core.usage().connections), (0, 1));
    assert!(peer.now.as_nanos() < 10 * MILLISECOND && peer.core_port != PORT, "nothing else has happened");
}
