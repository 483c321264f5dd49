//! Tests of peers whose hardware address is never resolved: their connection attempts end nevertheless.

use crate::common::PORT;
use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::ring::Command;
use warpline_dataplane::wire::tcp::{Flags, SeqNumber};

/// SYNs from an address that answers no ARP request must not hold places in the backlog forever.
#[test]
fn a_half_open_connection_ends_though_no_syn_can_be_sent() {
    let mut peer = RawPeer::new();
    peer.answers_arp = false;
    peer.command(Command::Listen { address: None, port: PORT, backlog: 1, tcp: None });
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    peer.expect_nothing();
    assert_eq!(peer.core.usage().half_open, 1);
    peer.pass_s(80);
    peer.expect_nothing();
    assert_eq!((peer.core.usage().half_open, peer.core.usage().connections), (0, 0));
}
