//! Tests of a connection's local address: listeners at one address, active opens from one, and connections to
//! ourselves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use warpline_dataplane::core::Config;
use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::Cidr;
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::ring::{AfterStream, Command, ConnectError, ConnectionId, Event};
use warpline_dataplane::statistics::{DropCause, Drops};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{self, EtherType};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Flags, Header, SeqNumber};

use crate::common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, PEER_PORT, RawPeer};
use crate::common::{PORT, address, address_v6};

const SECOND_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 11);

/// A core with two IPv4 addresses and one IPv6 address.
fn core() -> RawPeer {
    let mut config = Config { duplicate_address_detection: false, ..RawPeer::config() };
    config.addresses.push(Cidr::new(SECOND_ADDRESS.into(), 24));
    config.addresses.push(Cidr::new(address_v6(1).into(), 64));
    let mut peer = RawPeer::with(config, 1500);
    peer.settle();
    peer.other.clear();
    peer
}

/// A segment from `source` to `destination`, in a frame.
fn segment(source: Ipv4Addr, destination: Ipv4Addr, header: &Header) -> Vec<u8> {
    let mut segment = vec![0; header.header_len()];
    header.emit(&mut segment);
    let mut sum = checksum::ipv4_pseudo_header(source, destination, Protocol::TCP.0, segment.len() as u16);
    sum.add(&segment);
    tcp::set_checksum(&mut segment, sum.finish());
    let mut frame = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::IPV4 }.emit(&mut frame);
    ipv4::Header {
        source,
        destination,
        protocol: Protocol::TCP,
        ttl: 64,
        total_len: (ipv4::Header::LEN + segment.len()) as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 7,
        ecn: 0,
        dscp: 0,
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    frame.extend_from_slice(&segment);
    frame
}

fn listen(peer: &RawPeer, address: Option<IpAddr>) {
    peer.command(Command::Listen { address, port: PORT, backlog: 4, tcp: None });
}

/// Returns the core's answer to a SYN to `destination`.
fn answer_to_syn(peer: &mut RawPeer, destination: Ipv4Addr, source_port: u16) -> Header {
    let syn = Header { source_port, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    let syn = Header { destination_port: PORT, ..syn };
    peer.inject(&segment(address(2), destination, &syn));
    peer.settle();
    peer.expect_one().header
}

/// Opens a connection from the peer to `destination`; returns the event.
fn open(peer: &mut RawPeer, destination: Ipv4Addr, source_port: u16) -> Event {
    let answer = answer_to_syn(peer, destination, source_port);
    assert_eq!(answer.flags, Flags::SYN | Flags::ACK);
    let ack = Header { source_port, ..peer.header(Flags::ACK, PEER_ISS + 1, answer.seq + 1) };
    peer.inject(&segment(address(2), destination, &Header { destination_port: PORT, ..ack }));
    peer.settle();
    peer.events.pop().expect("accepted")
}

#[test]
fn a_listener_at_one_address_takes_connections_to_that_address_only() {
    let mut peer = core();
    listen(&peer, Some(SECOND_ADDRESS.into()));
    match open(&mut peer, SECOND_ADDRESS, 40_002) {
        Event::Accepted { flow, scope, .. } => {
            assert_eq!(flow.local_end(), SocketAddr::new(SECOND_ADDRESS.into(), PORT));
            assert_eq!(flow.remote_end(), SocketAddr::new(address(2).into(), 40_002));
            let listener = ListenAddress::of(scope, flow.local, flow.local_port);
            assert_eq!(listener, ListenAddress { address: Some(SECOND_ADDRESS.into()), port: PORT });
        }
        event => panic!("{event:?}"),
    }
    let refused = answer_to_syn(&mut peer, address(1), 40_001);
    assert_eq!(refused.flags, Flags::RST | Flags::ACK);
}

/// Two listeners share a port: each has its own connections and its own backlog, and removing one does not
/// affect the other.
#[test]
fn a_port_is_listened_on_at_an_address_and_everywhere_else() {
    let mut peer = core();
    listen(&peer, None);
    listen(&peer, Some(SECOND_ADDRESS.into()));
    let taken_by = |event| match event {
        Event::Accepted { flow, scope, .. } => {
            (ListenAddress::of(scope, flow.local, flow.local_port).address, flow.local)
        }
        event => panic!("{event:?}"),
    };
    let at_second = Some(IpAddr::from(SECOND_ADDRESS));
    assert_eq!(taken_by(open(&mut peer, SECOND_ADDRESS, 40_001)), (at_second, SECOND_ADDRESS.into()));
    assert_eq!(taken_by(open(&mut peer, address(1), 40_002)), (None, address(1).into()));
    assert_eq!(peer.core.usage().half_open, 2);
    peer.command(Command::Unlisten { address: at_second, port: PORT });
    assert_eq!(taken_by(open(&mut peer, SECOND_ADDRESS, 40_003)), (None, SECOND_ADDRESS.into()));
    peer.command(Command::Unlisten { address: None, port: PORT });
    assert_eq!(answer_to_syn(&mut peer, address(1), 40_004).flags, Flags::RST | Flags::ACK);
}

#[test]
fn an_active_open_has_the_local_address_and_port_that_were_asked_for() {
    let mut peer = core();
    let remote = SocketAddr::new(address(2).into(), PEER_PORT);
    let connect = |peer: &mut RawPeer, token, local| {
        peer.command(Command::Connect {
            token,
            local: Some(local),
            remote,
            timeout_ns: SECOND,
            tcp: None,
            octets: Box::default(),
        });
        peer.settle();
    };
    connect(&mut peer, 1, SocketAddr::new(SECOND_ADDRESS.into(), 5000));
    let syn = peer.expect_one().header;
    assert_eq!(syn.source_port, 5000);
    let answer = Header {
        source_port: PEER_PORT,
        destination_port: 5000,
        ..peer.header(Flags::SYN | Flags::ACK, PEER_ISS, syn.seq + 1)
    };
    peer.inject(&segment(address(2), SECOND_ADDRESS, &answer));
    peer.settle();
    let local = match peer.events.pop() {
        Some(Event::Connected { token: 1, local, .. }) => local,
        event => panic!("{event:?}"),
    };
    assert_eq!(local, SocketAddr::new(SECOND_ADDRESS.into(), 5000));
    peer.sent.clear();

    let mut failure = |token, local| {
        connect(&mut peer, token, local);
        peer.expect_nothing();
        match peer.events.pop() {
            Some(Event::ConnectFailed { error, .. }) => error,
            event => panic!("{event:?}"),
        }
    };
    assert_eq!(failure(2, SocketAddr::new(SECOND_ADDRESS.into(), 5000)), ConnectError::NoPort);
    assert_eq!(failure(3, SocketAddr::new(address(9).into(), 0)), ConnectError::NoAddress);
    assert_eq!(failure(4, SocketAddr::new(address_v6(1).into(), 0)), ConnectError::NoRoute);
}

/// The two ends of a connection from the core to `own`, an address of its own.
fn connect_to_self(peer: &mut RawPeer, own: IpAddr) -> (ConnectionId, ConnectionId) {
    let remote = SocketAddr::new(own, PORT);
    peer.command(Command::Connect {
        token: 1,
        local: None,
        remote,
        timeout_ns: SECOND,
        tcp: None,
        octets: Box::default(),
    });
    assert!(peer.come_to_rest());
    let (mut connected, mut accepted) = (None, None);
    for event in peer.events.drain(..) {
        match event {
            Event::Connected { connection, local, .. } => connected = Some((connection, local)),
            Event::Accepted { connection, flow, .. } => {
                assert_eq!(flow.local_end(), SocketAddr::new(own, PORT));
                accepted = Some((connection, flow.remote_end()));
            }
            event => panic!("{event:?}"),
        }
    }
    let ((connected, local), (accepted, remote)) = (connected.unwrap(), accepted.unwrap());
    // RFC 6724 §5 rule 1.
    assert_eq!((local, local.ip()), (remote, own));
    (connected, accepted)
}

/// Both ends of a connection are in one core: octets go both ways, and no frame leaves.
#[test]
fn a_connection_to_an_own_address_stays_inside() {
    for own in [IpAddr::from(address(1)), SECOND_ADDRESS.into(), address_v6(1).into()] {
        let mut peer = core();
        listen(&peer, None);
        let before = peer.core.statistics().frames_sent;
        let (near, far) = connect_to_self(&mut peer, own);
        let message: Vec<u8> = (0..40_000_u32).map(|octet| octet as u8).collect();
        for (from, to) in [(near, far), (far, near)] {
            let octets = message.clone().into_boxed_slice();
            peer.command(Command::Stream { connection: from, octets, then: AfterStream::Stay });
            assert!(peer.come_to_rest());
            let mut came = Vec::new();
            for event in peer.events.drain(..) {
                match event {
                    Event::Stream { connection, octets } if connection == to => {
                        came.extend_from_slice(&octets);
                    }
                    event => panic!("{event:?}"),
                }
            }
            assert!(came == message, "{} octets came", came.len());
        }
        for connection in [near, far] {
            peer.command(Command::Close { connection });
        }
        assert!(peer.come_to_rest());
        let ends = peer
            .events
            .iter()
            .filter(|event| matches!(event, Event::Closed { reason: CloseReason::Finished, .. }));
        assert_eq!(ends.count(), 2, "{:?}", peer.events);
        let statistics = peer.core.statistics();
        assert_eq!(statistics.frames_sent, before, "{own}: frames have left");
        assert!(peer.sent.is_empty() && peer.other.is_empty());
        assert!(statistics.frames_looped > 60);
        assert_eq!(statistics.tcp.retransmitted_segments, 0, "no frame was lost");
        assert_eq!(statistics.drops, Drops::default());
        assert_eq!(peer.core.usage().connections, 0);
    }
}

/// A connection to an own address needs no neighbour: a port without a listener refuses at once.
#[test]
fn a_connection_to_an_own_address_without_a_listener_is_refused() {
    let mut peer = core();
    for own in [IpAddr::from(address(1)), address_v6(1).into()] {
        let remote = SocketAddr::new(own, PORT);
        peer.command(Command::Connect {
            token: 1,
            local: None,
            remote,
            timeout_ns: SECOND,
            tcp: None,
            octets: Box::default(),
        });
        assert!(peer.come_to_rest());
        match peer.events.pop() {
            Some(Event::ConnectFailed { error, .. }) => {
                assert_eq!(error, ConnectError::Closed(CloseReason::Refused));
            }
            event => panic!("{event:?}"),
        }
        peer.expect_nothing();
    }
    // A port that connects to itself would have one end only.
    let own = SocketAddr::new(address(1).into(), 6000);
    peer.command(Command::Connect {
        token: 1,
        local: Some(own),
        remote: own,
        timeout_ns: SECOND,
        tcp: None,
        octets: Box::default(),
    });
    peer.settle();
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { error: ConnectError::NoPort, .. })));
}

/// One poll delivers a burst at most, and as many connections as there may be queue no more than the bound.
#[test]
fn what_is_on_its_way_to_ourselves_is_bounded() {
    let mut peer = core();
    peer.command(Command::Listen { address: None, port: PORT, backlog: 100, tcp: None });
    let remote = SocketAddr::new(address(1).into(), PORT);
    for token in 0..40 {
        peer.command(Command::Connect {
            token,
            local: None,
            remote,
            timeout_ns: SECOND,
            tcp: None,
            octets: Box::default(),
        });
    }
    assert!(peer.come_to_rest());
    let connected = peer.events.drain(..).filter_map(|event| match event {
        Event::Connected { connection, .. } => Some(connection),
        _ => None,
    });
    let connected: Vec<ConnectionId> = connected.collect();
    assert_eq!(connected.len(), 40);
    for connection in &connected {
        let octets = vec![7; 60_000].into_boxed_slice();
        peer.command(Command::Stream { connection: *connection, octets, then: AfterStream::Stay });
    }
    let (mut came, mut polls) = (0, 0);
    let mut looped = peer.core.statistics().frames_looped;
    while came < 40 * 60_000 {
        peer.now += 1000;
        peer.core.poll_once(peer.now);
        let now_looped = peer.core.statistics().frames_looped;
        assert!(now_looped - looped <= limits::RECEIVE_BURST_FRAMES as u64);
        looped = now_looped;
        while let Some(event) = peer.rings.events.pop() {
            if let Event::Stream { octets, .. } = event {
                came += octets.len();
            }
        }
        polls += 1;
        assert!(polls < 100_000, "{came} octets came");
    }
    let statistics = peer.core.statistics();
    assert_eq!(statistics.dropped(DropCause::NoTransmitBuffer), 0, "a full queue holds senders back");
    peer.expect_nothing();
}

/// RFC 1122 §3.2.1.3, RFC 9293 §3.9.2.3: with connections to ourselves open, frames from the wire with our
/// own or a loopback source address are still refused.
#[test]
fn the_wire_cannot_speak_for_ourselves() {
    let mut peer = core();
    listen(&peer, None);
    connect_to_self(&mut peer, address(1).into());
    let drops = |peer: &RawPeer| peer.core.statistics().dropped(DropCause::BadSource);
    for (count, source) in [address(1), SECOND_ADDRESS, Ipv4Addr::LOCALHOST].into_iter().enumerate() {
        let syn = Header {
            source_port: 40_001,
            destination_port: PORT,
            ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0))
        };
        peer.inject(&segment(source, address(1), &syn));
        peer.settle();
        assert_eq!(drops(&peer), count as u64 + 1, "{source}");
        peer.expect_nothing();
    }
    assert!(peer.events.is_empty());
    let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT);
    peer.command(Command::Connect {
        token: 2,
        local: None,
        remote: loopback,
        timeout_ns: 1,
        tcp: None,
        octets: Box::default(),
    });
    peer.settle();
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { error: ConnectError::NoRoute, .. })));
}
