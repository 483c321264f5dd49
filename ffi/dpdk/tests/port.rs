//! Tests of Ethernet ports, over drivers that need no hardware.
#![allow(missing_docs)]

mod common;

use common::{eal, frame, pool};
use dpdk::{Mtu, Multicast, Port, PortConfig, PortError, VdevError};

#[test]
fn bursts_over_a_null_port() {
    eal().add_vdev("net_null0,size=60").unwrap();
    assert!(Port::names(eal()).contains(&"net_null0".to_owned()));
    let pool = pool(1023, 2048);
    let port = Port::open(eal(), "net_null0").unwrap();
    assert!(matches!(Port::open(eal(), "net_null0"), Err(PortError::InUse(_))));
    assert!(port.capabilities().unwrap().queues >= 1);
    let config = PortConfig { receive_descriptors: 128, transmit_descriptors: 128, ..PortConfig::default() };
    let (running, mut pairs) = port.start(&config, std::slice::from_ref(&pool)).unwrap();
    assert_eq!(running.capabilities().mtu_octets, 1500);
    assert!(running.link().unwrap().up);

    let pair = &mut pairs[0];
    let mut frames = Vec::new();
    assert_eq!(pair.receive.receive(&mut frames, 32), 32);
    assert!(frames.iter().all(|frame| frame.len() == 60));
    frames.extend((0..8).map(|n| frame(&pool, &[n; 60])));
    assert_eq!(pair.transmit.transmit(&mut frames), 40);
    assert!(frames.is_empty());
    let counted = running.statistics().unwrap();
    assert_eq!((counted.received_frames, counted.sent_frames), (32, 40));
    assert_eq!(pair.transmit.rejected_frames(), 0);

    // Queues keep the port open; it closes with the last of them.
    drop(running);
    assert_eq!(pair.receive.receive(&mut Vec::new(), 1), 1);
    drop(pairs);
    assert!(matches!(Port::open(eal(), "net_null0"), Err(PortError::NotFound { .. })));
    assert_eq!(pool.available(), pool.capacity());
}

/// The number of a port that closes can at once be that of a port which another thread adds and opens.
#[test]
fn ports_open_while_others_close() {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let pool = pool(255, 2048);
                let device = format!("net_null2{thread}");
                let config =
                    PortConfig { receive_descriptors: 64, transmit_descriptors: 64, ..PortConfig::default() };
                for _ in 0..150 {
                    eal().add_vdev(&device).unwrap();
                    let port = Port::open(eal(), &device).unwrap();
                    drop(port.start(&config, std::slice::from_ref(&pool)).unwrap());
                    eal().remove_vdev(&device).unwrap();
                }
            });
        }
    });
}

/// A port that was closed has left its device behind: that is opened again. A port that is there stays,
/// whether it is open or not: another thread may poll it.
#[test]
fn a_device_is_opened_again_only_without_a_port() {
    let (pool, device) = (pool(255, 2048), "net_null30,size=60");
    let config = PortConfig { receive_descriptors: 64, transmit_descriptors: 64, ..PortConfig::default() };
    let open = || Port::open(eal(), "net_null30");
    eal().probe_vdev(device).unwrap();
    let mut pairs = open().unwrap().start(&config, std::slice::from_ref(&pool)).unwrap().1;
    for _ in 0..2 {
        eal().probe_vdev(device).unwrap();
        assert!(matches!(open(), Err(PortError::InUse(_))));
        let error = eal().remove_vdev("net_null30").unwrap_err();
        assert!(matches!(&error, VdevError::InUse { device } if device == "net_null30"), "{error}");
        let mut frames = Vec::new();
        assert_eq!(pairs[0].receive.receive(&mut frames, 8), 8);
    }
    drop(pairs);
    assert!(matches!(open(), Err(PortError::NotFound { .. })));
    eal().add_vdev(device).unwrap();
    assert!(matches!(open(), Err(PortError::NotFound { .. })), "the device is there, and has no port");

    eal().probe_vdev(device).unwrap();
    let claimed = open().expect("a port again");
    eal().probe_vdev(device).unwrap();
    assert!(eal().remove_vdev("net_null30").is_err(), "it is claimed, though not started");
    drop(claimed);
    eal().probe_vdev(device).unwrap();
    open().expect("the same port");
    eal().remove_vdev("net_null30").unwrap();
    assert!(matches!(open(), Err(PortError::NotFound { .. })));
}

/// Threads open and close the port of one device, and each probes it before: none loses the port that it
/// polls.
#[test]
fn probes_leave_ports_alone_that_other_threads_poll() {
    let polled: usize = std::thread::scope(|scope| {
        let opens_and_closes = || {
            let pool = pool(255, 2048);
            let config =
                PortConfig { receive_descriptors: 64, transmit_descriptors: 64, ..PortConfig::default() };
            let mut opened = 0;
            for _ in 0..100 {
                eal().probe_vdev("net_null31").unwrap();
                // Another thread has it, or has closed it since.
                let Ok(port) = Port::open(eal(), "net_null31") else { continue };
                let mut pairs = port.start(&config, std::slice::from_ref(&pool)).unwrap().1;
                let mut frames = Vec::new();
                assert_eq!(pairs[0].receive.receive(&mut frames, 4), 4);
                opened += 1;
            }
            opened
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(opens_and_closes)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(polled > 0);
}

#[test]
fn what_a_port_cannot_do_is_refused_with_numbers() {
    eal().add_vdev("net_null1").unwrap();
    let small = pool(63, 256);
    let start = |config: &PortConfig| {
        let port = Port::open(eal(), "net_null1").unwrap();
        port.start(config, std::slice::from_ref(&small)).map(drop).unwrap_err()
    };
    let error = start(&PortConfig { queues: 0, ..PortConfig::default() });
    assert!(matches!(error, PortError::Queues { asked: 0, .. }), "{error}");
    let error = start(&PortConfig::default());
    assert!(matches!(error, PortError::DataOctets { frame_octets: 1518, data_octets: 256, .. }), "{error}");
    let error = start(&PortConfig { mtu: Mtu::Set(45), ..PortConfig::default() });
    assert!(matches!(error, PortError::Mtu { asked: 45, least: 46, .. }), "{error}");
    let error = start(&PortConfig { queues: 2, ..PortConfig::default() });
    assert!(matches!(error, PortError::Queues { .. } | PortError::Pools { .. }), "{error}");
}

/// Some drivers have a limit on the frame and none on the MTU: `net_memif`, and those of Intel's adapters of
/// 1 Gb/s.
#[test]
fn a_limit_on_the_frame_is_one_on_the_mtu() {
    let own =
        format!("net_memif1,role=server,socket-abstract=yes,socket=warpline-mtu-{}", std::process::id());
    eal().add_vdev(&own).unwrap();
    let port = Port::open(eal(), "net_memif1").unwrap();
    assert_eq!(port.capabilities().unwrap().mtu_octets, 1500);
    let config = PortConfig { mtu: Mtu::Set(1501), ..PortConfig::default() };
    let error = port.start(&config, &[pool(63, 2048)]).map(drop).unwrap_err();
    assert!(matches!(error, PortError::Mtu { asked: 1501, most: 1500, .. }), "{error}");
}

/// `scripts/interop/adapters` has devices that can be probed.
#[test]
fn a_pci_device_that_is_not_there_is_not_probed() {
    assert!(!eal().has_pci(), "it was not asked to look at the bus");
    let error = eal().probe_pci("0000:ff:1f.7,key=value").unwrap_err();
    assert!(error.to_string().contains("0000:ff:1f.7"), "{error}");
    assert!(!Port::names(eal()).contains(&"0000:ff:1f.7".to_owned()));
}

/// Drivers differ in their filters: `net_memif` cannot select group addresses, but supports promiscuous mode.
#[test]
fn frames_for_groups_are_asked_for_as_narrowly_as_the_driver_allows() {
    let pool = pool(255, 2048);
    let start = |name: &str, options: &str, multicast| {
        eal().add_vdev(&format!("{name}{options}")).unwrap();
        let config = PortConfig {
            receive_descriptors: 32,
            transmit_descriptors: 32,
            multicast,
            ..PortConfig::default()
        };
        let port = Port::open(eal(), name).unwrap();
        port.start(&config, std::slice::from_ref(&pool)).unwrap().0.multicast()
    };
    assert_eq!(start("net_ring0", "", true), Multicast::All);
    assert_eq!(start("net_ring1", "", false), Multicast::AsItIs);
    let nobody_else = format!(",role=server,socket-abstract=yes,socket=warpline-{}", std::process::id());
    assert_eq!(start("net_memif0", &nobody_else, true), Multicast::Promiscuous);
}

#[test]
fn wrong_names_are_told_clearly() {
    let error = eal().add_vdev("net_nonesuch0").unwrap_err().to_string();
    assert!(error.contains("net_nonesuch0") && error.contains("driver"), "{error}");
    let error = Port::open(eal(), "net_nonesuch0").unwrap_err().to_string();
    assert!(error.contains("there is no port `net_nonesuch0`"), "{error}");
}

/// `net_vhost` takes a second try for a port that is set up, though its socket could not be made.
#[test]
fn a_port_whose_socket_cannot_be_made_does_not_start() {
    eal().add_vdev("net_vhost3,iface=/nonexistent/socket,queues=1").unwrap();
    let pool = pool(1023, 2048);
    let port = Port::open(eal(), "net_vhost3").unwrap();
    let error = port.start(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap_err();
    let PortError::Refused { said, .. } = &error else { panic!("{error}") };
    assert!(said.to_string().contains("/nonexistent/socket"), "{error}");
}
