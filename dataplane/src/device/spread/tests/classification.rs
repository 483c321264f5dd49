//! Frames of each kind, and octets that are no frame.

use proptest::prelude::*;

use super::super::classify::{Content, classify, has_ipv4_options};
use super::frames::{self, flow, frame, packet, segment_packet};
use crate::wire::ethernet::EtherType;
use crate::wire::ipv4::Protocol;

#[test]
fn a_segment_is_classified_by_its_flow() {
    for v6 in [false, true] {
        let flow = flow(2, 1234, v6);
        for vlan in [None, Some(0), Some(5)] {
            for words in 0..if v6 { 1 } else { 11 } {
                let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
                let octets = frame(vlan, ethertype, &segment_packet(&flow, 9, words));
                assert_eq!(classify(&octets), Content::Segment(flow), "{vlan:?}, {words} words of options");
                assert_eq!(has_ipv4_options(&octets), words > 0);
            }
        }
    }
}

#[test]
fn an_error_is_classified_by_the_segment_that_it_quotes() {
    for v6 in [false, true] {
        let flow = flow(2, 1234, v6);
        let octets = frames::error_about(&flow, 9);
        assert_eq!(classify(&octets), Content::QuotedSegment(flow));
        // Ports and sequence number are the last that is needed.
        assert_eq!(classify(&octets[..octets.len() - 1]), Content::Other);
    }
}

#[test]
fn anything_else_is_the_host_cores() {
    let (v4, v6) = (flow(2, 1234, false), flow(2, 1234, true));
    let segment = segment_packet(&v4, 9, 0);
    let changed = |at: usize, octet: u8| {
        let mut packet = segment.clone();
        packet[at] = octet;
        frame(None, EtherType::IPV4, &packet)
    };
    // An IPv6 extension header before the segment.
    let mut extension = vec![Protocol::TCP.0, 0, 1, 4, 0, 0, 0, 0];
    extension.extend(&segment_packet(&v6, 9, 0)[40..]);
    let options = packet(v6.source(), v6.destination(), Protocol::DESTINATION_OPTIONS, 0, &extension);
    let double_tag = frame(Some(3), EtherType::VLAN, &frame(Some(4), EtherType::IPV4, &segment)[14..]);
    let others = [
        ("ARP", frame(None, EtherType::ARP, &[0; 46])),
        ("echo", frames::echo_request(&v4, 1)),
        ("echo over IPv6", frames::echo_request(&v6, 1)),
        ("UDP", packet_of(Protocol(17))),
        ("first fragment", frames::fragment(&v4, 9, true)),
        ("later fragment", frames::fragment(&v4, 9, false)),
        ("extension header", frame(None, EtherType::IPV6, &options)),
        ("two tags", double_tag),
    ];
    for (what, octets) in others {
        assert_eq!(classify(&octets), Content::Other, "{what}");
    }
    // What only a closer look shows.
    for (what, octets) in [
        ("version", changed(0, 0x65)),
        ("header of four words", changed(0, 0x44)),
        ("header beyond the frame", changed(0, 0x4f)[..60].to_vec()),
    ] {
        assert_eq!(classify(&octets), Content::Other, "{what}");
    }
}

fn packet_of(protocol: Protocol) -> Vec<u8> {
    let flow = flow(2, 1234, false);
    frame(None, EtherType::IPV4, &packet(flow.source(), flow.destination(), protocol, 0, &[0; 40]))
}

proptest! {
    /// Any octets, and any change and cut of a frame: nothing panics, and the short look finds each segment.
    #[test]
    fn any_octets_are_classified(
        kind in 0u32..5,
        v6 in any::<bool>(),
        vlan in proptest::option::of(0u16..3),
        changes in proptest::collection::vec((0usize..110, any::<u8>()), 0..4),
        octets in 0usize..130,
    ) {
        let flow = flow(2, 1234, v6);
        let mut frame = match kind {
            0 => frame(vlan, frames::ethertype_of(flow.source()), &segment_packet(&flow, 9, 0)),
            1 => frame(vlan, EtherType::IPV4, &segment_packet(&frames::flow(2, 1234, false), 9, 3)),
            2 => frames::error_about(&flow, 9),
            3 => frames::echo_request(&flow, 9),
            _ => vec![0x81; 110],
        };
        for (at, octet) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = octet;
            }
        }
        frame.truncate(octets);
        if let Content::Segment(_) = classify(&frame) {
        }
    }
}
