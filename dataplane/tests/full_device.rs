//! A device that takes no frames: what waits for it is bounded, whatever arrives.

mod common;

use common::address;
use common::raw::{OUR_MAC, PEER_MAC, RawPeer};
use warpline_dataplane::core::statistics::DropCause;
use warpline_dataplane::device::sim::End;
use warpline_dataplane::limits;
use warpline_dataplane::wire::arp;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};

fn arp_request() -> Vec<u8> {
    let mut frame = vec![0; ethernet::Header::LEN + arp::Packet::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::ARP }.emit(&mut frame);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: PEER_MAC,
        sender_ip: address(2),
        target_mac: MacAddress::default(),
        target_ip: address(1),
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    frame
}

#[test]
fn answers_wait_up_to_a_bound() {
    const REQUESTS: usize = 1000;
    let most = limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES;
    let mut peer = RawPeer::new();
    peer.settle();
    peer.core.device().network().set_transmit_credit(End::A, Some(0));
    for _ in 0..REQUESTS {
        peer.inject(&arp_request());
        peer.settle();
    }
    assert_eq!(peer.core.usage().frames_to_send, most);
    let dropped = peer.core.statistics().dropped(DropCause::NoTransmitBuffer);
    assert_eq!(dropped, (REQUESTS - most) as u64, "every answer waits or is counted");
    peer.core.device().network().set_transmit_credit(End::A, None);
    peer.settle();
    assert_eq!(peer.core.usage().frames_to_send, 0);
}
