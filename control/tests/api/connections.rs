//! Tests of connections that are opened, accepted, rejected and refused.

use std::net::{Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, eventually, eventually_unused};
use warpline::{
    AcceptError, AnswerError, ConnectConfig, ConnectError, CrcPolicy, Device, DeviceConfig, ListenConfig,
    ListenError, PollThread, QpState, QueuePairControl, Route, StartError, StartupFault, Status,
};
use warpline_dataplane::device::sim::{self, End as LinkEnd, EndConfig, Impairments};

// Requirements: MPA-7.1-02, MPA-7.1.1-18, MPA-7.1.2-02, MPA-7.1.2-11, MPA-7.1.4-01, D08-7.1.1-02
#[test]
fn private_data_goes_both_ways() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    // Private Data too long for an enhanced Request is sent with revision 1.
    for (octets, revision) in [(0, 2), (1, 2), (508, 2), (509, 1), (512, 1)] {
        let (there, back) = (vec![0xa5; octets], vec![0x5a; octets]);
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        let connected = thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(&there));
            let request = listener.accept(PATIENCE).unwrap();
            assert_eq!(request.private_data(), there);
            assert_eq!((request.remote().ip(), request.revision()), (NEAR.into(), revision));
            request.accept(&far.qp, &back).unwrap();
            connecting.join().unwrap().unwrap()
        });
        assert_eq!((&*connected.private_data, connected.peer.revision), (&*back, revision));
        assert_eq!((near.qp.state(), far.qp.state()), (QpState::ReadyToSend, QpState::ReadyToSend));
    }
}

// Requirements: MPA-7.1.1-18
#[test]
fn too_much_private_data_is_refused_before_anything_is_sent() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    assert!(matches!(near.connect(&[0; 513]), Err(ConnectError::PrivateDataTooLong(_))));
    assert_eq!(listener.accept(Duration::ZERO).unwrap_err(), AcceptError::TimedOut);
    // At the Responder the request is rejected instead.
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        let request = listener.accept(PATIENCE).unwrap();
        assert!(matches!(request.accept(&far.qp, &[0; 513]), Err(AnswerError::PrivateDataTooLong(_))));
        assert!(matches!(connecting.join().unwrap(), Err(ConnectError::Rejected { .. })));
    });
}

/// A peer that refuses is asked again for as long as the application says, unless that gives up before.
#[test]
fn a_peer_may_begin_to_listen_later() {
    let pair = Pair::new();
    let patient = ConnectConfig { refused_patience: PATIENCE, timeout: PATIENCE, ..ConnectConfig::default() };
    let remote = SocketAddr::from((FAR, PORT));
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    let refusals = || pair.far.statistics().unwrap().frames_received;
    let listener = thread::scope(|scope| {
        let (qp, patient) = (near.control(), &patient);
        let connecting = scope.spawn(move || qp.connect(remote, patient));
        let before = refusals();
        eventually("it asks some times", || refusals() > before + 10);
        let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
        listener
    });
    drop(listener);
    // With its patience at an end it is refused; and its queue pair may go while it waits.
    let hasty = ConnectConfig { refused_patience: Duration::from_millis(50), ..ConnectConfig::default() };
    assert_eq!(End::new(&pair.near).control().connect(remote, &hasty), Err(ConnectError::Refused));
    let gone = End::new(&pair.near);
    thread::scope(|scope| {
        let before = refusals();
        let (qp, patient) = (gone.control(), &patient);
        scope.spawn(move || assert!(qp.connect(remote, patient).is_err()));
        eventually("it asks", || refusals() > before + 4);
        gone.control().abort();
    });
    drop((near, far, gone));
    eventually_unused(&pair.near);
}

/// The Initiator receives the reason, and its queue pair may try again.
// Requirements: MPA-7.1.2-05, MPA-7.1.2-06, MPA-7.1.2-13, MPA-7.1.2-18
#[test]
fn a_rejected_queue_pair_may_try_again() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    for reason in [&[7; 508][..], b"full", b""] {
        thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b"please"));
            listener.accept(PATIENCE).unwrap().reject(reason).unwrap();
            let error = connecting.join().unwrap().unwrap_err();
            assert!(matches!(error, ConnectError::Rejected { private_data, .. } if *private_data == *reason));
        });
        assert_eq!(near.qp.state(), QpState::Idle);
    }
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b"please"));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        assert!(connecting.join().unwrap().is_ok());
    });
}

#[test]
fn a_dropped_request_is_rejected() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let near = End::new(&pair.near);
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        drop(listener.accept(PATIENCE).unwrap());
        assert!(matches!(connecting.join().unwrap(), Err(ConnectError::Rejected { .. })));
    });
}

#[test]
fn a_dropped_listener_rejects_who_waits_and_frees_the_port() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let busy = pair.far.listen(PORT, &ListenConfig::default());
    assert_eq!(busy.unwrap_err(), ListenError::PortInUse(PORT));
    let near = End::new(&pair.near);
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        eventually("the request waits", || pair.far.usage().unwrap().connections == 1);
        drop(listener);
        // Before its Request was complete the connection is just closed.
        let error = connecting.join().unwrap().unwrap_err();
        assert!(
            matches!(error, ConnectError::Rejected { .. } | ConnectError::Startup(_) | ConnectError::Refused),
            "{error}"
        );
    });
    assert_eq!(near.connect(b""), Err(ConnectError::Refused));
    pair.far.listen(PORT, &ListenConfig::default()).unwrap();
}

#[test]
fn nobody_there_is_told_apart() {
    let pair = Pair::new();
    let near = End::new(&pair.near);
    assert_eq!(near.connect(b""), Err(ConnectError::Refused));
    let short = ConnectConfig { timeout: Duration::from_millis(50), ..ConnectConfig::default() };
    let elsewhere = |address: &str| near.qp.connect(address.parse().unwrap(), &short);
    assert_eq!(elsewhere("198.18.0.99:1"), Err(ConnectError::TimedOut));
    assert_eq!(elsewhere("192.0.2.1:1"), Err(ConnectError::NoRoute));
    assert_eq!(elsewhere("[2001:db8::1]:1"), Err(ConnectError::NoRoute));
}

/// The time covers TCP's handshake and the startup frames together.
// Requirements: MPA-7.1.2-25
#[test]
fn a_silent_application_times_the_initiator_out() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    let mut timeout = Duration::from_millis(100);
    let request = loop {
        let short = ConnectConfig { timeout, ..ConnectConfig::default() };
        let error = near.connect_with(&short).unwrap_err();
        let asked = error == ConnectError::Startup(StartupFault::TimedOut);
        assert!(asked || error == ConnectError::TimedOut, "{error}");
        // The request is stale by the time the application looks at it.
        if let Ok(request) = listener.accept(Duration::ZERO)
            && asked
        {
            break request;
        }
        // A slow machine needs more time for the Request to arrive.
        assert!(timeout < PATIENCE, "no Request");
        timeout *= 2;
    };
    eventually("the far end has heard of it", || pair.near.usage().unwrap().connections == 0);
    let error = request.accept(&far.qp, b"").unwrap_err();
    assert!(matches!(error, AnswerError::Startup(_) | AnswerError::Closed(_)), "{error}");
    assert_eq!(far.qp.state(), QpState::Idle);
}

#[test]
fn a_link_that_loses_everything_times_out() {
    let dead = Impairments { loss: 1.0, ..Impairments::default() };
    let (near, _far) = sim::link(7, EndConfig { outbound: dead, ..EndConfig::a() }, EndConfig::b());
    let near = Device::start(near, &DeviceConfig::new(NEAR, 24), PollThread::default()).unwrap();
    let end = End::new(&near);
    let short = ConnectConfig { timeout: Duration::from_millis(50), ..ConnectConfig::default() };
    assert_eq!(end.connect_with(&short), Err(ConnectError::TimedOut));
}

/// IPv6 from the bottom up: the neighbour is resolved by Neighbor Discovery, also in a VLAN and also where
/// the device fills in checksums.
#[test]
fn a_connection_over_ipv6_carries_data() {
    let [near_address, far_address] = [1, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host));
    for (vlan, transmit_checksums) in [(None, false), (Some(7), true)] {
        let [a, b] = [EndConfig::a(), EndConfig::b()].map(|end| EndConfig { transmit_checksums, ..end });
        let (near, far) = sim::link(7, a, b);
        let start = |device, address: Ipv6Addr| {
            let config = DeviceConfig { vlan, ..DeviceConfig::new(address, 64) };
            Device::start(device, &config, PollThread::default()).unwrap()
        };
        let devices = (start(near, near_address), start(far, far_address));
        let listener = devices.1.listen(PORT, &ListenConfig::default()).unwrap();
        let (near, far) = (End::new(&devices.0), End::new(&devices.1));
        let config = ConnectConfig::default();
        thread::scope(|scope| {
            let qp: &QueuePairControl = &near.qp;
            let connecting = scope.spawn(move || qp.connect((far_address, PORT).into(), &config));
            let request = listener.accept(PATIENCE).unwrap();
            assert_eq!(request.remote().ip(), near_address);
            request.accept(&far.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        let octets: Vec<u8> = (0..100_000_u32).map(|octet| (octet % 251) as u8).collect();
        assert!(near.memory.write(0, &octets));
        near.write(1, &far, 100_000);
        assert_eq!(near.completion().status, Status::Success);
        let mut arrived = vec![0; octets.len()];
        assert!(far.memory.read(0, &mut arrived));
        assert!(arrived == octets, "VLAN {vlan:?}, checksums by the device: {transmit_checksums}");
    }
}

#[test]
fn a_queue_pair_serves_one_connection() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    assert_eq!(near.connect(b""), Err(ConnectError::QueuePairInUse));
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let (other, foreign) = (End::new(&pair.near), End::new(&pair.near));
    let mut attempts = [Some(AnswerError::QueuePairInUse), Some(AnswerError::OtherDevice)].into_iter();
    for qp in [&far.qp, &foreign.qp] {
        thread::scope(|scope| {
            let connecting = scope.spawn(other.connecting(b""));
            let error = listener.accept(PATIENCE).unwrap().accept(qp, b"").err();
            assert_eq!(Some(error), attempts.next());
            assert!(matches!(connecting.join().unwrap(), Err(ConnectError::Rejected { .. })));
        });
    }
    near.write(1, &far, 100);
    assert_eq!(near.completion().status, Status::Success, "the first connection is unharmed");
}

/// A peer beyond the backlog gets no answer; it is served once there is room.
#[test]
fn the_backlog_is_bounded() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig { backlog: 1, ..ListenConfig::default() }).unwrap();
    let ends: Vec<End> = (0..3).map(|_| End::new(&pair.near)).collect();
    thread::scope(|scope| {
        let connecting: Vec<_> = ends.iter().map(|end| scope.spawn(end.connecting(b""))).collect();
        for _ in &ends {
            let request = listener.accept(PATIENCE).unwrap();
            assert!(pair.far.usage().unwrap().connections <= 2, "one waits, one may be closing");
            request.reject(b"").unwrap();
        }
        for end in connecting {
            assert!(matches!(end.join().unwrap(), Err(ConnectError::Rejected { .. })));
        }
    });
}

/// Octets arrive with every choice of both ends, and the calls are the same.
// Requirements: MPA-7.1.1-05 to MPA-7.1.1-08, MPA-7.1.2-10, MPA-7.1.2-14
#[test]
fn octets_arrive_with_and_without_markers_and_crcs() {
    for bits in 0..16 {
        let bit = |index: u32| bits >> index & 1 == 1;
        let policy = |on| if on { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees };
        let pair =
            Pair::with(|config| config.crc = policy(bit(u32::from(config.addresses[0].address == FAR))));
        let listener =
            pair.far.listen(PORT, &ListenConfig { markers: bit(2), ..ListenConfig::default() }).unwrap();
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        thread::scope(|scope| {
            let config = ConnectConfig { markers: bit(3), ..ConnectConfig::default() };
            let connecting = scope.spawn(near.connecting_with(&config));
            listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        let octets: Vec<u8> = (0..100_000_u32).map(|index| (index * 7 + bits) as u8).collect();
        assert!(near.memory.write(0, &octets));
        near.write(1, &far, 100_000);
        assert_eq!(near.completion().status, Status::Success);
        assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), octets);
        far.write(2, &near, 100_000);
        assert_eq!(far.completion().status, Status::Success);
        assert_eq!(near.memory.to_vec(0, 100_000).unwrap(), octets);
    }
}

/// Frames lost, repeated and out of order around the switch to Full Operation.
// Requirements: MPA-7.1-01, MPA-7.1.5-03, MPA-7.1.5-04, DDP-6.1-01
#[test]
fn startup_survives_a_bad_link() {
    let bad = Impairments { loss: 0.05, duplicate: 0.1, reorder: 0.2, ..Impairments::default() };
    let pair = Pair::new();
    for end in [LinkEnd::A, LinkEnd::B] {
        pair.network.set_impairments(end, bad);
    }
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let ends: Vec<End> = (0..16).map(|_| End::new(&pair.near)).collect();
    let far_ends: Vec<End> = (0..16).map(|_| End::new(&pair.far)).collect();
    let config = ConnectConfig {
        private_data: vec![9; 508],
        markers: true,
        timeout: PATIENCE,
        ..ConnectConfig::default()
    };
    thread::scope(|scope| {
        for near in &ends {
            let connecting = near.connecting_with(&config);
            scope.spawn(|| connecting().unwrap());
        }
        for far in &far_ends {
            let request = listener.accept(PATIENCE).unwrap();
            assert_eq!(request.private_data(), [9; 508]);
            request.accept(&far.qp, &[8; 508]).unwrap();
            far.qp.disconnect();
        }
    });
    for end in ends.iter().chain(&far_ends) {
        end.qp.wait_closed(PATIENCE).unwrap();
    }
}

/// A hundred connections in a row leave no resource allocated.
#[test]
fn connections_do_not_leak() {
    let pair = Pair::new();
    for round in 0..100 {
        let (near, far) = pair.connect();
        near.write(round, &far, 10_000);
        assert_eq!(near.completion().status, Status::Success);
        near.qp.disconnect();
        near.qp.wait_closed(PATIENCE).unwrap();
        far.qp.wait_closed(PATIENCE).unwrap();
    }
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
    for device in [&pair.near, &pair.far] {
        assert_eq!(device.statistics().unwrap().connections_opened, 100);
        assert_eq!(device.statistics().unwrap().streams_failed, 0);
    }
}

#[test]
fn a_device_needs_an_address_of_a_host() {
    let start = |change: fn(&mut DeviceConfig)| {
        let mut config = DeviceConfig::new(NEAR, 24);
        change(&mut config);
        Device::start(crate::common::link().0, &config, PollThread::default()).unwrap_err()
    };
    let address = |text: &str| {
        let config = DeviceConfig { addresses: vec![text.parse().unwrap()], ..DeviceConfig::new(NEAR, 24) };
        Device::start(crate::common::link().0, &config, PollThread::default()).unwrap_err()
    };
    for wrong in
        ["224.0.0.1/24", "0.0.0.0/24", "255.255.255.255/24", "127.0.0.1/8", "ff02::1/64", "::/0", "::1/128"]
    {
        assert!(matches!(address(wrong), StartError::Address(_)), "{wrong}");
    }
    for (own, network) in [("198.18.0.0/24", true), ("198.18.1.255/23", false), ("fd00::/64", true)] {
        match address(own) {
            StartError::NetworkAddress(wrong) => assert!(network && wrong.to_string() == own),
            StartError::BroadcastAddress(wrong) => assert!(!network && wrong.to_string() == own),
            other => panic!("{own}: {other}"),
        }
    }
    assert!(matches!(start(|c| c.addresses.clear()), StartError::AddressCount(0)));
    assert!(matches!(start(|c| c.addresses = vec![c.addresses[0]; 9]), StartError::AddressCount(9)));
    assert!(matches!(start(|c| c.addresses[0].prefix_bits = 33), StartError::Prefix(_)));
    assert!(matches!(start(|c| c.vlan = Some(0)), StartError::Vlan(0)));
    assert!(matches!(start(|c| c.vlan = Some(4095)), StartError::Vlan(4095)));
    assert!(matches!(start(|c| c.rdma_option_kind = 0), StartError::RdmaOptionKind(0)));
    assert!(matches!(start(|c| c.rdma_option_kind = 8), StartError::RdmaOptionKind(8)));
    let route = |gateway: [u8; 4]| Route::default_by(gateway.into());
    let routes = |routes| {
        let config = DeviceConfig { routes, ..DeviceConfig::new(NEAR, 24) };
        Device::start(crate::common::link().0, &config, PollThread::default()).unwrap_err()
    };
    assert!(matches!(routes(vec![route([198, 18, 1, 1])]), StartError::Gateway(_)));
    assert!(
        matches!(routes(vec![route([198, 18, 0, 1])]), StartError::Gateway(_)),
        "we are no gateway of ours"
    );
    assert!(matches!(routes(vec![route([198, 18, 0, 9]); 17]), StartError::RouteCount(17)));
    let config = DeviceConfig::new(NEAR, 24);
    let poll = PollThread { lcore: Some(100_000), ..PollThread::default() };
    let pinned = Device::start(crate::common::link().0, &config, poll);
    assert!(matches!(pinned.unwrap_err(), StartError::PollThread(_)));
}

/// The application can read TCP's state of a connection: none before the connection is up, the effects of
/// loss while it runs, none once it is over.
#[test]
fn a_queue_pair_reports_on_its_connection() {
    let pair = Pair::new();
    assert_eq!(End::new(&pair.near).qp.tcp(), Ok(None));
    let (near, far) = pair.connect();
    let fresh = near.qp.tcp().unwrap().unwrap();
    assert_eq!(fresh.outstanding_bytes, 0);
    // None, unless the machine did not run an end for a while.
    let before = fresh.counters.retransmitted_segments;
    assert!(fresh.emss_bytes > 8900 && fresh.sack && fresh.timestamps, "{fresh:?}");
    pair.network.set_impairments(LinkEnd::A, Impairments { loss: 1.0, ..Impairments::default() });
    near.write(1, &far, 500_000);
    eventually("something is in flight", || {
        near.qp.tcp().unwrap().is_some_and(|tcp| tcp.outstanding_bytes > 0 && tcp.counters.timeouts > 0)
    });
    pair.network.set_impairments(LinkEnd::A, Impairments::default());
    assert_eq!(near.completion().status, Status::Success);
    let (sent, received) = (near.qp.tcp().unwrap().unwrap(), far.qp.tcp().unwrap().unwrap());
    assert_eq!((sent.outstanding_bytes, sent.unsent_bytes, received.held_frames), (0, 0, 0));
    assert!(sent.counters.data_segments_sent > 56, "{sent:?}");
    let counters = sent.counters;
    let again = counters.retransmitted_segments;
    assert!(again > before && again >= u64::from(counters.retransmitted_after_timeout), "{before}, {sent:?}");
    assert!(counters.retransmitted_after_timeout > 0, "{sent:?}");
    assert!(sent.smoothed_rtt_ns.is_some() && sent.threshold_bytes < u32::MAX, "{sent:?}");
    drop(near);
    eventually("the far end hears of it", || far.qp.tcp() == Ok(None));
}

/// One peer may fill a backlog alone, if the listener says so.
#[test]
fn a_peer_may_have_all_of_a_backlog() {
    const BACKLOG: usize = 8;
    let pair = Pair::new();
    let config = ListenConfig { backlog: BACKLOG as u32, peer_shares: false, ..ListenConfig::default() };
    let listener = pair.far.listen(PORT, &config).unwrap();
    let ends: Vec<_> = (0..BACKLOG).map(|_| (End::new(&pair.near), End::new(&pair.far))).collect();
    thread::scope(|scope| {
        let connecting: Vec<_> = ends.iter().map(|(near, _)| scope.spawn(near.connecting(b""))).collect();
        // None is answered before all have come.
        let requests: Vec<_> = (0..BACKLOG).map(|_| listener.accept(PATIENCE).unwrap()).collect();
        for (request, (_, far)) in requests.into_iter().zip(&ends) {
            request.accept(&far.qp, b"").unwrap();
        }
        for connecting in connecting {
            connecting.join().unwrap().unwrap();
        }
    });
}
