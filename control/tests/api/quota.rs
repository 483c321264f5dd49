//! Tests of the share that one peer may use of a device: an excess is refused and does not affect other
//! peers.

use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use crate::common::{End, FAR, PATIENCE, PORT, Pair, eventually, eventually_unused, link};
use warpline::{
    Access, CompletionQueue, ConnectConfig, CreateError, Device, DeviceConfig, ListenConfig, MemoryError,
    PollThread, QpConfig, QueuePairControl, Quotas, Status,
};

fn pair(quotas: Quotas) -> Pair {
    Pair::with(|config| config.quotas = quotas)
}

/// Registrations and windows of a domain together.
// Requirements: DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
#[test]
fn a_domain_has_its_share_of_registrations() {
    let pair = pair(Quotas { regions_per_domain: 2, ..Quotas::default() });
    let (greedy, modest) = (pair.near.protection_domain(), pair.near.protection_domain());
    let region = greedy.allocate(4096, Access::empty()).unwrap();
    let window = greedy.allocate_window().unwrap();
    assert_eq!(greedy.allocate(4096, Access::empty()).unwrap_err(), MemoryError::Quota);
    assert_eq!(greedy.allocate_window().unwrap_err(), MemoryError::Quota);
    assert!(modest.allocate(4096, Access::empty()).is_ok(), "another domain has its own");
    assert_eq!(pair.near.usage().unwrap().refused_by_quota, 2);
    window.deallocate(PATIENCE).unwrap();
    let again = greedy.allocate(4096, Access::empty()).unwrap();
    for region in [region, again] {
        region.deregister(PATIENCE).unwrap();
    }
    assert!(greedy.allocate_window().is_ok());
}

// Requirements: DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
#[test]
fn a_domain_has_its_share_of_queue_pairs() {
    let pair = pair(Quotas { queue_pairs_per_domain: 1, ..Quotas::default() });
    let (greedy, modest) = (pair.near.protection_domain(), pair.near.protection_domain());
    let completions = CompletionQueue::new(256);
    let make = |domain: &warpline::ProtectionDomain| {
        domain.queue_pair(&QpConfig::default(), &completions, &completions)
    };
    let first = make(&greedy).unwrap();
    assert_eq!(make(&greedy).unwrap_err(), CreateError::Quota);
    let other = make(&modest).unwrap();
    drop(first);
    eventually("the place is free again", || make(&greedy).is_ok());
    drop(other);
}

/// A peer that keeps opening connections is refused at its limit. Its existing connections continue, and a
/// place that it frees may be used again.
// Requirements: DDP-8.3.2-06
#[test]
fn a_peer_has_its_share_of_connections() {
    let pair = pair(Quotas { connections_per_peer: 2, ..Quotas::default() });
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let connect = || {
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        (near, far)
    };
    let (first, second) = (connect(), connect());
    let third = End::new(&pair.near);
    let config = ConnectConfig { timeout: PATIENCE, ..ConnectConfig::default() };
    assert!(third.qp.connect((FAR, PORT).into(), &config).is_err());
    // With an unenhanced Request it has tried once more.
    assert!(pair.far.usage().unwrap().refused_by_quota >= 1);
    assert!(listener.accept(Duration::ZERO).is_err(), "the application is not asked");
    for (near, far) in [&first, &second] {
        near.write(1, far, 1000);
        assert_eq!(near.completion().status, Status::Success);
    }
    drop(first);
    eventually("the connection is gone", || pair.far.usage().unwrap().connections == 1);
    let fourth = connect();
    drop((second, third, fourth, listener));
    eventually_unused(&pair.near);
}

/// In IPv6 all addresses of a 64-bit network share one limit, regardless of the number for each address.
#[test]
fn a_network_has_its_share_of_connections() {
    let (near, far) = link();
    let [near_address, far_address] = [1, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host));
    let start = |device, address: Ipv6Addr, quotas| {
        let config =
            DeviceConfig { duplicate_address_detection: false, quotas, ..DeviceConfig::new(address, 64) };
        Device::start(device, &config, PollThread::default()).unwrap()
    };
    let near = start(near, near_address, Quotas::default());
    let far = start(far, far_address, Quotas { connections_per_network: 1, ..Quotas::default() });
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let remote = (far_address, PORT).into();
    let config = ConnectConfig { timeout: PATIENCE, ..ConnectConfig::default() };
    let (first, second, end) = (End::new(&near), End::new(&near), End::new(&far));
    thread::scope(|scope| {
        let qp: &QueuePairControl = &first.qp;
        let connecting = scope.spawn(|| qp.connect(remote, &config));
        listener.accept(PATIENCE).unwrap().accept(&end.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    assert!(second.qp.connect(remote, &config).is_err());
    assert!(far.usage().unwrap().refused_by_quota >= 1);
    assert!(listener.accept(Duration::ZERO).is_err(), "the application is not asked");
    first.write(1, &end, 1000);
    assert_eq!(first.completion().status, Status::Success);
    drop((first, end));
    eventually("the connection is gone", || far.usage().unwrap().connections == 0);
    let end = End::new(&far);
    thread::scope(|scope| {
        let qp: &QueuePairControl = &second.qp;
        let connecting = scope.spawn(|| qp.connect(remote, &config));
        listener.accept(PATIENCE).unwrap().accept(&end.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
}
