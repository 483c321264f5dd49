//! Tests of ports that are held against the kernel that has them. They need root.
#![allow(missing_docs)]
#![expect(unsafe_code, reason = "namespaces and taps have no safe interface")]

mod common;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use common::frames::{Segment, TCP, parse_ip};
use common::{config, in_namespace, make_veth, next, open, send};
use packet::{PacketError, PacketSocket, PortShadow, hold_row};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};

const NEAR: [&str; 2] = ["198.18.0.2", "fd00::2"];
const FAR: [&str; 2] = ["198.18.0.1", "fd00::1"];
const HELD: u16 = 7471;
const FREE: u16 = 7472;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Sends the kernel a segment to its port `port`, with the TTL `hops`.
fn segment_to(socket: &mut PacketSocket, near: IpAddr, far: IpAddr, port: u16, flags: u8, hops: u8) {
    let segment = Segment {
        source: (near, 40_000),
        destination: (far, port),
        sequence: 1000,
        acknowledgment: if flags & ACK == 0 { 0 } else { 2000 },
        flags,
        payload: if flags & SYN == 0 { b"data".to_vec() } else { Vec::new() },
    };
    let mut frame = segment.frame();
    if near.is_ipv6() {
        frame[21] = hops;
    } else {
        // The checksum with another TTL (RFC 1624).
        let sum = u32::from(!u16::from_be_bytes([frame[24], frame[25]]))
            + u32::from(!(u16::from(frame[22]) << 8))
            + (u32::from(hops) << 8);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        frame[22] = hops;
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    send(socket, &frame, Some(segment.offload(0, 0)));
}

/// Returns the port and the flags of the kernel's next segment.
fn answer(socket: &mut PacketSocket) -> (u16, u8) {
    loop {
        let found = next(socket, |received| {
            let (_, _, protocol, transport) = parse_ip(received.octets())?;
            (protocol == TCP).then(|| (u16::from_be_bytes([transport[0], transport[1]]), transport[13]))
        });
        if let Some(found) = found {
            return found;
        }
    }
}

/// Whatever is sent to a port that is held, no answer comes: the next one is that of another port, which is
/// asked afterwards.
#[test]
fn the_kernel_does_not_answer_for_a_port_that_is_held() {
    in_namespace(|| {
        make_veth();
        let mut socket = open(&config("near"));
        for (near, far) in NEAR.into_iter().zip(FAR) {
            let (near, far): (IpAddr, IpAddr) = (near.parse().unwrap(), far.parse().unwrap());
            let shadow = PortShadow::hold((far, HELD).into()).unwrap();
            assert_eq!(shadow.address(), SocketAddr::from((far, HELD)));
            for hops in [1, 64, 254, 255] {
                for flags in [SYN, SYN | ACK, ACK, FIN | ACK] {
                    segment_to(&mut socket, near, far, HELD, flags, hops);
                    segment_to(&mut socket, near, far, FREE, flags, hops);
                    let (port, flags) = answer(&mut socket);
                    assert_eq!((port, flags & RST), (FREE, RST), "{far} TTL {hops}");
                }
            }
            drop(shadow);
            segment_to(&mut socket, near, far, HELD, SYN, 64);
            let (port, flags) = answer(&mut socket);
            assert_eq!((port, flags & RST), (HELD, RST), "it is the kernel's again");
        }
    });
}

#[test]
fn a_port_that_is_held_is_in_use() {
    in_namespace(|| {
        make_veth();
        for far in FAR {
            let far: IpAddr = far.parse().unwrap();
            let shadow = PortShadow::hold((far, 0).into()).unwrap();
            assert_ne!(shadow.address().port(), 0);
            let error = TcpListener::bind(shadow.address()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            let error = PortShadow::hold(shadow.address()).unwrap_err();
            assert!(
                matches!(error, PacketError::PortInUse { address } if address == shadow.address()),
                "{error}"
            );
            let listener = TcpListener::bind((far, 0)).unwrap();
            let error = PortShadow::hold(listener.local_addr().unwrap()).unwrap_err();
            assert!(matches!(error, PacketError::PortInUse { .. }), "{error}");
        }
        let error = PortShadow::hold("198.18.0.99:1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("cannot hold a port"), "{error}");
    });
}

/// A port that a program has bound and shares is in use, though nothing listens there.
#[test]
fn a_port_that_others_keep_is_in_use() {
    in_namespace(|| {
        make_veth();
        for far in FAR {
            let far = SocketAddr::new(far.parse().unwrap(), HELD);
            let family = if far.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = socket(family, SocketType::STREAM, None).unwrap();
            set_socket_reuseaddr(&socket, true).unwrap();
            bind(&socket, &far).unwrap();
            let error = PortShadow::hold(far).unwrap_err();
            assert!(matches!(error, PacketError::PortInUse { address } if address == far), "{error}");
        }
    });
}

/// A row begins after what others have, at whichever of the addresses.
#[test]
fn ports_in_a_row_are_held_at_all_addresses() {
    in_namespace(|| {
        make_veth();
        let far = FAR.map(|address| address.parse::<IpAddr>().unwrap());
        let _others =
            [TcpListener::bind((far[0], 61_003)).unwrap(), TcpListener::bind((far[1], 61_010)).unwrap()];
        let (first, held) = hold_row(&far, 8, 61_000).unwrap();
        assert_eq!((first, held.len()), (61_011, 16));
        let (next, _held) = hold_row(&far, 4, 61_000).unwrap();
        assert_eq!(next, 61_004);
        drop(held);
        // Processes that other tests start have copies of the sockets until they run their program.
        let start = Instant::now();
        while hold_row(&far, 8, 61_000).unwrap().0 != 61_011 {
            assert!(start.elapsed() < Duration::from_secs(30), "the ports are free");
            thread::sleep(Duration::from_millis(1));
        }
        let _last = TcpListener::bind((far[0], u16::MAX)).unwrap();
        let error = hold_row(&far, 2, 65_534).unwrap_err();
        assert_eq!(error.to_string(), "no 2 ports in a row from 65534 on are free");
    });
}
