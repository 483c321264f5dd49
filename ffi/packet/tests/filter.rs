//! Tests of the filter, which the kernel runs, on frames that arrive at a tap. They need root and
//! `/dev/net/tun`.
#![allow(missing_docs)]
#![expect(unsafe_code, reason = "namespaces and taps have no safe interface")]

mod common;

use std::net::IpAddr;

use common::frames::{UDP, ethernet, ip, pattern, tagged};
use common::tap::{Tap, in_namespace};
use common::{config, next_octets, open, send};
use packet::{Config, Filter, PacketSocket};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn to(destination: &str) -> Vec<u8> {
    let destination = address(destination);
    let source = address(if destination.is_ipv6() { "fd00::99" } else { "198.18.0.99" });
    ip(source, destination, UDP, &pattern(30, 0))
}

/// An ARP packet, as far as a filter looks.
fn arp() -> Vec<u8> {
    ethernet(0x0806, &pattern(46, 1))
}

/// Has all frames arrive and checks that those pass of which the test says so.
fn check(tap: &mut Tap, socket: &mut PacketSocket, frames: &[(Vec<u8>, bool)]) {
    // Ends what is expected.
    let last = (to("255.255.255.255"), true);
    let is_tagged = frames.iter().all(|(frame, passes)| !passes || frame[12..14] == [0x81, 0x00]);
    let last = if is_tagged { (tagged(&last.0, 0x8100, 5), true) } else { last };
    for (frame, passes) in frames.iter().chain([&last]) {
        tap.inject(frame);
        if *passes {
            let mut expected = frame.clone();
            if expected[12..14] == [0x81, 0x00] {
                expected.drain(12..16);
            }
            assert_eq!(next_octets(socket), expected);
        }
    }
    assert!(!socket.has_frames());
}

#[test]
fn own_addresses_and_groups_pass() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let own = [address("198.18.0.2"), address("fd00::2"), address("10.0.0.1"), address("fd00::1:2")];
        let filter = Filter::addresses(&own, None);
        let mut socket = open(&Config { filter: Some(&filter), ..config("tap") });
        let frames = [
            (arp(), true),
            (to("198.18.0.2"), true),
            (to("10.0.0.1"), true),
            (to("198.18.0.3"), false),
            (to("10.0.0.2"), false),
            (to("0.0.0.0"), false),
            (to("223.255.255.255"), false),
            (to("224.0.0.0"), true),
            (to("239.255.255.255"), true),
            (to("240.0.0.0"), false),
            (to("255.255.255.254"), false),
            (to("fd00::2"), true),
            (to("fd00::1:2"), true),
            (to("fd00::3"), false),
            (to("fd01::2"), false),
            (to("fd00:0:1::2"), false),
            (to("fd00::1:0:0:2"), false),
            (to("fd00::2:2"), false),
            (to("::"), false),
            (to("ff02::1:ff00:2"), true),
            (to("fe80::2"), false),
            (ethernet(0x88b5, &pattern(60, 0)), false),
            (ethernet(0x88cc, &pattern(60, 0)), false),
            // Too short for the address that the filter looks at.
            (ethernet(0x0800, &[]), false),
            (ethernet(0x0800, &pattern(19, 0)), false),
            (ethernet(0x86dd, &pattern(24, 0)), false),
            (to("198.18.0.2"), true),
        ];
        check(&mut tap, &mut socket, &frames);
        let statistics = socket.statistics();
        assert_eq!(statistics.received_frames, 10, "kept from the ring");
        assert_eq!(statistics.dropped_frames, 0);
    });
}

/// What says that it comes from the machine that has the addresses is not accepted from the link.
#[test]
fn own_sources_are_kept_out() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let own = [address("198.18.0.2"), address("fd00::2"), address("198.18.0.4"), address("fd00::4")];
        let filter = Filter::addresses_of_this_machine(&own, None);
        let mut socket = open(&Config { filter: Some(&filter), ..config("tap") });
        let between =
            |source: &str, destination: &str| ip(address(source), address(destination), UDP, &pattern(30, 0));
        let frames = [
            (arp(), true),
            (between("198.18.0.99", "198.18.0.2"), true),
            (between("198.18.0.2", "198.18.0.2"), false),
            (between("198.18.0.4", "198.18.0.2"), false),
            (between("198.18.0.5", "198.18.0.4"), true),
            (between("198.18.0.4", "224.0.0.1"), false),
            (between("fd00::99", "fd00::2"), true),
            (between("fd00::2", "fd00::2"), false),
            (between("fd00::4", "fd00::2"), false),
            (between("fd00::5", "fd00::4"), true),
            (between("fd00::99", "fd00::5"), false),
            (between("fd00::2", "ff02::1"), false),
        ];
        check(&mut tap, &mut socket, &frames);
    });
}

/// On the loopback interface programs hear each other, not themselves, and not what the kernel sends itself.
#[test]
fn programs_hear_each_other() {
    in_namespace(|| {
        common::run("ip", "link set lo up");
        common::run("ip", "address add 198.18.0.2/32 dev lo");
        let own = [address("198.18.0.2"), address("fd00::2")];
        let macs = [[2, 0x77, 0x61, 1, 2, 3], [2, 0x77, 0x61, 9, 2, 3]];
        let mut sockets = macs.map(|mac| {
            let filter = Filter::programs_of_this_machine(&own, mac);
            PacketSocket::open_on_loopback(&Config { filter: Some(&filter), ..config("any") }).unwrap()
        });
        let from = |source: [u8; 6], destination: &str| {
            let mut frame = to(destination);
            frame[..6].fill(0);
            frame[6..12].copy_from_slice(&source);
            frame
        };
        let [first, second] = &mut sockets;
        // Not to the address, not of such a program, and what the kernel sends itself.
        send(first, &from(macs[0], "198.18.0.3"), None);
        send(first, &from([2, 0x77, 0x62, 9, 9, 9], "198.18.0.2"), None);
        send(first, &from([2, 0x78, 0x61, 9, 9, 9], "198.18.0.2"), None);
        let kernel = std::net::UdpSocket::bind("198.18.0.2:0").unwrap();
        kernel.send_to(b"to itself", kernel.local_addr().unwrap()).unwrap();
        for destination in ["198.18.0.2", "fd00::2"] {
            let frame = from(macs[0], destination);
            send(first, &frame, None);
            assert_eq!(next_octets(second), frame);
        }
        let frame = from(macs[1], "198.18.0.2");
        send(second, &frame, None);
        assert_eq!(next_octets(first), frame);
        assert!(!first.has_frames() && !second.has_frames());
    });
}

#[test]
fn each_of_many_addresses_passes() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let own: Vec<_> = (0..128_u32)
            .flat_map(|number| {
                let last = number.wrapping_mul(2_654_435_761);
                let ipv4 = std::net::Ipv4Addr::from_bits(0x0a00_0000 | last >> 8);
                let ipv6 = std::net::Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(last) << (number % 80));
                [IpAddr::from(ipv4), ipv6.into()]
            })
            .collect();
        let filter = Filter::addresses(&own, None);
        let mut socket = open(&Config { filter: Some(&filter), ..config("tap") });
        let mut frames = Vec::new();
        for address in &own {
            frames.push((to(&address.to_string()), true));
            // With one bit of the address inverted.
            for octet in 0..if address.is_ipv6() { 16 } else { 4 } {
                let mut other = to(&address.to_string());
                let at = if address.is_ipv6() { 14 + 24 } else { 14 + 16 } + octet;
                other[at] ^= 1 << (octet % 8);
                let destination = common::frames::parse_destination(&other);
                let passes = own.contains(&destination) || destination.is_multicast();
                frames.push((other, passes));
            }
        }
        check(&mut tap, &mut socket, &frames);
    });
}

#[test]
fn only_frames_of_the_vlan_pass() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let own = [address("198.18.0.2"), address("fd00::2")];
        let untagged = Filter::addresses(&own, None);
        let mut socket = open(&Config { filter: Some(&untagged), ..config("tap") });
        let [ours, ours6, other] = ["198.18.0.2", "fd00::2", "198.18.0.3"].map(to);
        let with = |frame: &[u8], tci| tagged(frame, 0x8100, tci);
        let frames = [
            (ours.clone(), true),
            (with(&ours, 5), false),
            // Priority tags.
            (with(&ours, 0), true),
            (with(&ours6, 0xe000), true),
            (with(&other, 0), false),
            (with(&arp(), 5), false),
            (tagged(&ours, 0x88a8, 5), false),
            (ours.clone(), true),
        ];
        check(&mut tap, &mut socket, &frames);

        socket.set_filter(&Filter::addresses(&own, Some(5))).unwrap();
        let frames = [
            (ours.clone(), false),
            (arp(), false),
            (with(&ours, 5), true),
            (with(&ours6, 0xf005), true),
            (with(&arp(), 5), true),
            (with(&other, 5), false),
            (with(&ours, 0), false),
            (with(&ours, 6), false),
            (with(&ours, 0x105), false),
            (tagged(&ours, 0x88a8, 5), false),
            // A tag in a tag.
            (with(&with(&ours, 5), 5), false),
        ];
        check(&mut tap, &mut socket, &frames);

        socket.set_filter(&Filter::nothing()).unwrap();
        tap.inject(&ours);
        socket.set_filter(&untagged).unwrap();
        check(&mut tap, &mut socket, &[(ours6, true)]);
    });
}
