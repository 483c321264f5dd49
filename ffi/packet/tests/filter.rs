//! Tests of the filter, which the kernel runs, on frames that arrive at a tap. They need root and
//! `/dev/net/tun`.
#![allow(missing_docs)]
#![expect(unsafe_code, reason = "namespaces and taps have no safe interface")]

mod common;

use std::net::IpAddr;

use common::frames::{TCP, UDP, ethernet, ip, pattern, tagged};
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
    let last = to("255.255.255.255");
    let is_tagged = frames.iter().all(|(frame, passes)| !passes || frame[12..14] == [0x81, 0x00]);
    let last = if is_tagged { tagged(&last, 0x8100, 5) } else { last };
    check_until(tap, socket, frames, &last);
}

/// As `check`, with the frame that passes after them.
fn check_until(tap: &mut Tap, socket: &mut PacketSocket, frames: &[(Vec<u8>, bool)], last: &[u8]) {
    let last = (last.to_vec(), true);
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

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A segment from port 7471 of `source` to `port` of `destination`, of which all but the ports is arbitrary.
fn segment(source: &str, destination: &str, port: u16) -> Vec<u8> {
    let mut header = pattern(20, 3);
    header[..2].copy_from_slice(&7471_u16.to_be_bytes());
    header[2..4].copy_from_slice(&port.to_be_bytes());
    ip(address(source), address(destination), TCP, &header)
}

fn between(source: &str, destination: &str, protocol: u8) -> Vec<u8> {
    ip(address(source), address(destination), protocol, &pattern(30, 0))
}

/// What says that it comes from the machine that has the addresses is not accepted from the link.
#[test]
fn own_sources_are_kept_out() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let own = [address("198.18.0.2"), address("fd00::2"), address("198.18.0.4"), address("fd00::4")];
        let filter = Filter::ports_of_this_machine(&own, None, &[0..=u16::MAX]);
        let mut socket = open(&Config { filter: Some(&filter), ..config("tap") });
        let frames = [
            (arp(), true),
            (segment("198.18.0.99", "198.18.0.2", 1), true),
            (segment("198.18.0.2", "198.18.0.2", 1), false),
            (segment("198.18.0.4", "198.18.0.2", 1), false),
            (segment("198.18.0.5", "198.18.0.4", 1), true),
            (segment("198.18.0.99", "198.18.0.5", 1), false),
            (segment("fd00::99", "fd00::2", 1), true),
            (segment("fd00::2", "fd00::2", 1), false),
            (segment("fd00::4", "fd00::2", 1), false),
            (segment("fd00::5", "fd00::4", 1), true),
            (segment("fd00::99", "fd00::5", 1), false),
            (between("fd00::2", "ff02::1", ICMPV6), false),
        ];
        check_until(&mut tap, &mut socket, &frames, &arp());
    });
}

/// Of what comes to addresses that are shared, TCP passes to the own ports, and what may concern its
/// connections; all else is for others.
#[test]
fn only_own_ports_pass() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let own = [address("198.18.0.2"), address("fd00::2"), address("198.18.0.4"), address("fd00::4")];
        let ports = |own_ports: &[_]| Filter::ports_of_this_machine(&own, None, own_ports);
        let mut socket = open(&Config { filter: Some(&ports(&[])), ..config("tap") });
        let mut last_fragment = segment("198.18.0.99", "198.18.0.2", 2);
        last_fragment[14 + 7] = 1;
        let mut first_fragment = segment("198.18.0.99", "198.18.0.2", 2);
        first_fragment[14 + 6] = 0x20;
        let mut with_option = ip(address("198.18.0.99"), address("198.18.0.2"), TCP, &pattern(24, 0));
        with_option[14] = 0x46;
        with_option[14 + 24..][2..4].copy_from_slice(&61_000_u16.to_be_bytes());
        let others = [
            (between("198.18.0.99", "198.18.0.4", ICMP), true),
            (between("198.18.0.99", "198.18.0.4", UDP), false),
            (between("198.18.0.99", "255.255.255.255", UDP), false),
            (between("198.18.0.99", "224.0.0.251", UDP), false),
            (last_fragment, true),
            (first_fragment, false),
            (between("fd00::99", "fd00::4", ICMPV6), true),
            (between("fd00::99", "fd00::4", UDP), false),
            (between("fd00::99", "fd00::4", 44), true),
            (between("fd00::99", "ff02::1:ff00:2", ICMPV6), true),
            (between("fd00::99", "ff02::fb", UDP), false),
        ];
        check_until(&mut tap, &mut socket, &others, &arp());
        let handle = socket.filter_handle().unwrap();
        // Sets of every length up to the largest that a device has, and beyond what is looked at in a row.
        for count in [0, 1, 3, 4, 5, 9, 64, 257] {
            let mut own_ports: Vec<_> = (0..count).map(|place| place * 200 + 7..=place * 200 + 7).collect();
            own_ports.push(61_000..=61_127);
            handle.set(&ports(&own_ports)).unwrap();
            let mut frames = vec![(with_option.clone(), true)];
            for range in &own_ports {
                for port in [range.start() - 1, *range.start(), *range.end(), range.end() + 1] {
                    let passes = own_ports.iter().any(|range| range.contains(&port));
                    frames.push((segment("198.18.0.99", "198.18.0.4", port), passes));
                    frames.push((segment("fd00::99", "fd00::2", port), passes));
                }
            }
            for port in [0, u16::MAX] {
                frames.push((segment("198.18.0.99", "198.18.0.2", port), false));
            }
            check_until(&mut tap, &mut socket, &frames, &arp());
        }
        handle.set(&ports(&[0..=0, u16::MAX..=u16::MAX])).unwrap();
        let ends = [(0, true), (1, false), (65_534, false), (65_535, true)];
        let ends = ends.map(|(port, passes)| (segment("fd00::99", "fd00::4", port), passes));
        check_until(&mut tap, &mut socket, &ends, &arp());
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
            let filter = Filter::programs_of_this_machine(&own, mac, &[7000..=7000]);
            PacketSocket::open_on_loopback(&Config { filter: Some(&filter), ..config("any") }).unwrap()
        });
        let from = |source: [u8; 6], destination: &str, port| {
            let of_family = if address(destination).is_ipv6() { "fd00::2" } else { "198.18.0.2" };
            let mut frame = segment(of_family, destination, port);
            frame[..6].fill(0);
            frame[6..12].copy_from_slice(&source);
            frame
        };
        let [first, second] = &mut sockets;
        // Not to the address or to the port, not of such a program, and what the kernel sends itself.
        send(first, &from(macs[0], "198.18.0.3", 7000), None);
        send(first, &from(macs[0], "198.18.0.2", 7001), None);
        send(first, &from([2, 0x77, 0x62, 9, 9, 9], "198.18.0.2", 7000), None);
        send(first, &from([2, 0x78, 0x61, 9, 9, 9], "198.18.0.2", 7000), None);
        let kernel = std::net::UdpSocket::bind("198.18.0.2:0").unwrap();
        kernel.send_to(b"to itself", kernel.local_addr().unwrap()).unwrap();
        for destination in ["198.18.0.2", "fd00::2"] {
            let frame = from(macs[0], destination, 7000);
            send(first, &frame, None);
            assert_eq!(next_octets(second), frame);
        }
        let frame = from(macs[1], "198.18.0.2", 7000);
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
