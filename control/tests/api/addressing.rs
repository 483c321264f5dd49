//! Tests of local addresses in the API: listeners at one address, ports that are chosen automatically, and
//! connections of a device to itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, eventually_unused};
use warpline::cm::{CmError, EventChannel, EventKind, Id};
use warpline::{
    Cidr, ConnectConfig, ConnectError, Device, ListenConfig, ListenError, QueuePairControl, ReadsWanted,
    Status, StreamConfig, TcpListenConfig,
};
use warpline_dataplane::limits;

/// A second address of the far device, and one of each family of both.
const FAR_TOO: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 12);
const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

fn pair() -> Pair {
    Pair::with(|config| {
        let far = config.addresses[0].address == IpAddr::from(FAR);
        config.duplicate_address_detection = false;
        config.addresses.push(Cidr::new(if far { FAR_V6 } else { NEAR_V6 }.into(), 64));
        if far {
            config.addresses.push(Cidr::new(FAR_TOO.into(), 24));
        }
    })
}

fn to(address: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

/// Connects `near` to `remote`, where `listener` accepts the connection with `far`.
fn connect(near: &End, far: &End, listener: &warpline::Listener, remote: SocketAddr, config: &ConnectConfig) {
    thread::scope(|scope| {
        let qp: &QueuePairControl = &near.qp;
        let connecting = scope.spawn(move || qp.connect(remote, config));
        let request = listener.accept(PATIENCE).unwrap();
        assert_eq!(request.local(), remote);
        let peer = request.remote();
        request.accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
        assert_eq!((near.qp.local_addr(), near.qp.peer_addr()), (Some(peer), Some(remote)));
        assert_eq!((far.qp.local_addr(), far.qp.peer_addr()), (Some(remote), Some(peer)));
    });
}

/// Writes from one end to the other and compares the result.
fn carries(from: &End, to: &End) {
    let octets: Vec<u8> = (0..100_000_u32).map(|octet| (octet % 251) as u8).collect();
    assert!(from.memory.write(0, &octets));
    from.write(1, to, 100_000);
    assert_eq!(from.completion().status, Status::Success);
    assert!(to.memory.to_vec(0, 100_000).unwrap() == octets);
}

#[test]
fn a_listener_takes_connections_to_its_address_only() {
    let pair = pair();
    let config = ListenConfig::default();
    let first = pair.far.listen_at(to(FAR, PORT), &config).unwrap();
    assert_eq!((first.local(), first.port()), (to(FAR, PORT), PORT));
    let near = End::new(&pair.near);
    let usual = ConnectConfig::default();
    for other in [to(FAR_TOO, PORT), to(FAR_V6, PORT)] {
        assert_eq!(near.qp.connect(other, &usual), Err(ConnectError::Refused), "{other}");
    }
    // The same port at another address is another listener's.
    let second = pair.far.listen_at(to(FAR_TOO, PORT), &config).unwrap();
    for (listener, address) in [(&second, FAR_TOO), (&first, FAR)] {
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        connect(&near, &far, listener, to(address, PORT), &usual);
        assert_eq!(near.qp.local_addr().unwrap().ip(), NEAR);
    }
    drop(second);
    assert_eq!(near.qp.connect(to(FAR_TOO, PORT), &usual), Err(ConnectError::Refused));
    assert_eq!(pair.far.listen_at(to(NEAR, PORT), &config).unwrap_err(), ListenError::NoAddress(NEAR.into()));
}

/// As with sockets: an address and port has one listener, and all addresses are an address; with
/// `SO_REUSEADDR` on both, the listener that names the address more exactly has its connections.
#[test]
fn listeners_share_a_port_only_if_both_say_so() {
    let pair = pair();
    let (alone, sharing) =
        (ListenConfig::default(), ListenConfig { reuse_address: true, ..ListenConfig::default() });
    let in_use = ListenError::PortInUse(PORT);
    let everywhere = pair.far.listen(PORT, &sharing).unwrap();
    assert_eq!(everywhere.local(), to(Ipv6Addr::UNSPECIFIED, PORT));
    for address in [IpAddr::from(FAR), FAR_V6.into(), Ipv4Addr::UNSPECIFIED.into()] {
        assert_eq!(pair.far.listen_at(to(address, PORT), &alone).unwrap_err(), in_use, "{address}");
    }
    let streams = TcpListenConfig::default();
    assert_eq!(pair.far.listen_streams_at(to(FAR, PORT), &streams).unwrap_err(), in_use);
    assert_eq!(pair.far.listen(PORT, &sharing).unwrap_err(), in_use, "twice the same");
    let exact = pair.far.listen_at(to(FAR, PORT), &sharing).unwrap();
    let v4 = pair.far.listen_at(to(Ipv4Addr::UNSPECIFIED, PORT), &sharing).unwrap();
    for (listener, address) in
        [(&everywhere, IpAddr::from(FAR_V6)), (&exact, FAR.into()), (&v4, FAR_TOO.into())]
    {
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        connect(&near, &far, listener, to(address, PORT), &ConnectConfig::default());
    }
}

#[test]
fn port_0_is_one_that_is_free() {
    let pair = pair();
    let listeners: Vec<_> =
        (0..10).map(|_| pair.far.listen_at(to(FAR, 0), &ListenConfig::default()).unwrap()).collect();
    let streams = pair.far.listen_streams(0, &TcpListenConfig::default()).unwrap();
    let mut ports: Vec<u16> = listeners.iter().map(warpline::Listener::port).collect();
    ports.push(streams.port());
    let (first, last) = limits::EPHEMERAL_PORTS;
    assert!(ports.iter().all(|port| (first..=last).contains(port)), "{ports:?}");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 11, "{ports:?}");
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    let listener = &listeners[3];
    connect(&near, &far, listener, listener.local(), &ConnectConfig::default());
    carries(&near, &far);
}

#[test]
fn a_connection_comes_from_the_address_and_port_that_were_asked_for() {
    let pair = pair();
    let listener = pair.near.listen(PORT, &ListenConfig::default()).unwrap();
    let from = |local| ConnectConfig { local: Some(local), ..ConnectConfig::default() };
    let (one, other) = (End::new(&pair.far), End::new(&pair.near));
    connect(&one, &other, &listener, to(NEAR, PORT), &from(to(FAR_TOO, 5000)));
    assert_eq!(one.qp.local_addr(), Some(to(FAR_TOO, 5000)));
    let end = End::new(&pair.far);
    assert_eq!(end.qp.connect(to(NEAR, PORT), &from(to(FAR_TOO, 5000))), Err(ConnectError::NoPort));
    assert_eq!(end.qp.connect(to(NEAR, PORT), &from(to(NEAR, 0))), Err(ConnectError::NoAddress));
    assert_eq!(end.qp.local_addr(), None);

    let streams = pair.near.listen_streams_at(to(NEAR_V6, 0), &TcpListenConfig::default()).unwrap();
    let config = StreamConfig { local: Some(to(Ipv6Addr::UNSPECIFIED, 6000)), ..StreamConfig::default() };
    let far = pair.far.connect_stream(streams.local(), &config).unwrap();
    let near = streams.accept(PATIENCE).unwrap();
    assert_eq!((far.local(), far.remote()), (to(FAR_V6, 6000), streams.local()));
    assert_eq!((near.local(), near.remote()), (streams.local(), to(FAR_V6, 6000)));
}

/// A device is its own neighbour: a packet to one of its own addresses arrives, and no frame of it appears on
/// the link.
#[test]
fn a_device_connects_to_itself() {
    let pair = pair();
    let sent = || pair.near.statistics().unwrap().frames_sent;
    let listener = pair.near.listen(PORT, &ListenConfig::default()).unwrap();
    // The device has sent its initial announcements of addresses by now.
    let before = sent();
    for own in [IpAddr::from(NEAR), NEAR_V6.into()] {
        let (near, far) = (End::new(&pair.near), End::new(&pair.near));
        connect(&near, &far, &listener, to(own, PORT), &ConnectConfig::default());
        assert_eq!(near.qp.local_addr().unwrap().ip(), own);
        carries(&near, &far);
        carries(&far, &near);
        near.qp.disconnect();
        assert_eq!((near.qp.wait_closed(PATIENCE), far.qp.wait_closed(PATIENCE)), (Ok(()), Ok(())));
    }
    let end = End::new(&pair.near);
    let nobody = end.qp.connect(to(NEAR, PORT + 1), &ConnectConfig::default());
    assert_eq!(nobody, Err(ConnectError::Refused));
    assert_eq!(sent(), before);
    assert!(pair.near.statistics().unwrap().frames_looped > 50);
    drop((end, listener));
    eventually_unused(&pair.near);
}

fn resolved(channel: &EventChannel, bound: Option<SocketAddr>, remote: SocketAddr) -> Id {
    let id = channel.create_id();
    assert_eq!((id.local(), id.remote()), (None, None));
    if let Some(bound) = bound {
        id.bind_addr(bound).unwrap();
        assert_eq!(id.local(), Some(bound));
    }
    id.resolve_addr(remote).unwrap();
    assert!(matches!(channel.wait(PATIENCE).unwrap().kind, EventKind::AddressResolved));
    id.resolve_route().unwrap();
    assert!(matches!(channel.wait(PATIENCE).unwrap().kind, EventKind::RouteResolved));
    id
}

/// Accepts the next request of `channel` with `end`; returns the id of the connection.
fn accept(channel: &EventChannel, end: &End) -> Id {
    let EventKind::ConnectRequest(asked) = channel.wait(PATIENCE).unwrap().kind else { panic!("no request") };
    asked.accept(&end.qp, ReadsWanted::default(), b"").unwrap();
    asked
}

fn established(channel: &EventChannel) {
    for _ in 0..2 {
        let event = channel.wait(PATIENCE).unwrap();
        assert!(matches!(event.kind, EventKind::Established { .. }), "{event:?}");
    }
}

/// `rdma_get_local_addr`, `rdma_get_src_port` and their like at each step.
#[test]
fn ids_know_their_addresses() {
    let pair = pair();
    let channel = EventChannel::new([pair.near.clone(), pair.far.clone()]).unwrap();
    let listener = channel.create_id();
    listener.bind_addr(to(FAR_TOO, 0)).unwrap();
    assert_eq!(listener.local(), Some(to(FAR_TOO, 0)));
    listener.listen(&ListenConfig::default()).unwrap();
    let local = listener.local().unwrap();
    assert!(local.ip() == FAR_TOO && local.port() >= limits::EPHEMERAL_PORTS.0, "{local}");
    assert_eq!(listener.remote(), None);

    for (bound, port) in [
        (None, None),
        (Some(to(NEAR, 7000)), Some(7000)),
        (Some(to(Ipv4Addr::UNSPECIFIED, 7001)), Some(7001)),
    ] {
        let id = resolved(&channel, bound, local);
        let source = id.local().unwrap();
        assert_eq!((source.ip(), source.port(), id.remote()), (NEAR.into(), port.unwrap_or(0), Some(local)));
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        id.connect(&near.qp, &ConnectConfig::default()).unwrap();
        let asked = accept(&channel, &far);
        established(&channel);
        assert_eq!((id.local(), id.remote()), (asked.remote(), asked.local()));
        assert_eq!((id.local(), asked.local()), (near.qp.local_addr(), Some(local)));
        assert_eq!(
            port.unwrap_or(source.port()),
            if port.is_some() { id.local().unwrap().port() } else { 0 }
        );
        near.qp.disconnect();
        for _ in 0..4 {
            channel.wait(PATIENCE).unwrap();
        }
    }
}

/// A listener at all devices has one port at all of them, also one that is chosen.
#[test]
fn an_id_listens_at_the_same_port_of_all_devices() {
    let pair = pair();
    let channel = EventChannel::new([pair.near.clone(), pair.far.clone()]).unwrap();
    let listener = channel.create_id();
    listener.bind_addr(to(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listener.listen(&ListenConfig::default()).unwrap();
    let port = listener.local().unwrap().port();
    let usual = ConnectConfig::default();
    let refused = |device: &Device, remote| {
        let end = End::new(device);
        assert_eq!(end.qp.connect(remote, &usual), Err(ConnectError::Refused), "{remote}");
    };
    for (from, remote, on) in [(&pair.near, FAR, &pair.far), (&pair.far, NEAR, &pair.near)] {
        let (near, far) = (End::new(from), End::new(on));
        let (qp, remote) = (near.control(), to(remote, port));
        let asked = thread::scope(|scope| {
            let connecting = scope.spawn(|| qp.connect(remote, &usual));
            let asked = accept(&channel, &far);
            connecting.join().unwrap().unwrap();
            assert!(matches!(channel.wait(PATIENCE).unwrap().kind, EventKind::Established { .. }));
            asked
        });
        assert_eq!(asked.local(), Some(remote));
        qp.disconnect();
        assert!(matches!(channel.wait(PATIENCE).unwrap().kind, EventKind::Disconnected));
        assert!(matches!(channel.wait(PATIENCE).unwrap().kind, EventKind::TimewaitExit));
    }
    // 0.0.0.0 covers IPv4 only.
    refused(&pair.near, to(FAR_V6, port));
    let other = channel.create_id();
    other.bind_addr(to(FAR, port)).unwrap();
    let in_use = ListenError::PortInUse(port);
    assert_eq!(other.listen(&ListenConfig::default()), Err(CmError::Listen(in_use)));
}
