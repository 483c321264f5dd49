//! Tests of the limited send descriptors: a peer that acknowledges nothing keeps those of its connection.

use crate::common::PORT;
use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event};
use warpline_dataplane::wire::tcp::{Flags, SeqNumber};

const FEW: Tables = Tables {
    connections: 16,
    time_waits: 16,
    send_descriptors: 8,
    held_frames: 128,
    placed_runs: 64,
    placed_sends: 64,
    queue_pairs: 8,
    listeners: 4,
    regions: 8,
    cut_octets: 1024,
};

/// Opens a connection in streaming mode from `port`, and has the core send `octets` octets on it.
fn told(peer: &mut RawPeer, port: u16, octets: usize) -> ConnectionId {
    let inject = |peer: &mut RawPeer, flags, seq, ack| {
        let mut header = peer.header(flags, seq, ack);
        (header.source_port, header.destination_port) = (port, PORT);
        peer.inject(&RawPeer::segment(&header, &[]));
        peer.come_to_rest();
    };
    inject(peer, Flags::SYN, PEER_ISS, SeqNumber(0));
    let ack = peer.sent.drain(..).next_back().expect("a SYN in answer").header.seq + 1;
    inject(peer, Flags::ACK, PEER_ISS + 1, ack);
    let accepted = peer.events.drain(..).find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(connection),
        _ => None,
    });
    let connection = accepted.expect("a connection");
    let octets = vec![7; octets].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.come_to_rest();
    connection
}

fn octets_to(peer: &mut RawPeer, port: u16) -> usize {
    let to_it = peer.sent.drain(..).filter(|sent| sent.header.destination_port == port);
    to_it.map(|sent| sent.payload.len()).sum()
}

/// A connection that holds most of the descriptors leaves some to another. When none are left, a third
/// connection, with nothing in flight that could be acknowledged, continues as soon as some are free again.
#[test]
fn descriptors_are_shared() {
    let mut peer = RawPeer::with_tables(RawPeer::config(), 1500, FEW);
    peer.command(Command::Listen { address: None, port: PORT, backlog: u32::MAX, tcp: None });
    let greedy = told(&mut peer, 10_001, 60_000);
    assert_eq!(peer.core.usage().send_descriptors, 7, "not all");
    told(&mut peer, 10_002, 100);
    assert_eq!(octets_to(&mut peer, 10_002), 100);
    assert_eq!(peer.core.usage().send_descriptors, 8);
    told(&mut peer, 10_003, 100);
    assert_eq!(octets_to(&mut peer, 10_003), 0, "there is none for it");
    peer.command(Command::Abort { connection: greedy });
    peer.pass_ms(5);
    assert_eq!(octets_to(&mut peer, 10_003), 100);
}
