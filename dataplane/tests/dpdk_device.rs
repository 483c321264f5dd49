//! Tests of the DPDK device over a wire in memory.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

use std::sync::OnceLock;

use dpdk::{Eal, ExternalPieces, Mempool, MempoolConfig, WireConfig, wire};
use warpline_dataplane::device::dpdk::{DpdkDevice, PoolTooSmall};
use warpline_dataplane::device::{ChecksumRequest, ChecksumStatus, Device, Frame, IpVersion};
use warpline_dataplane::memory::Region;
use warpline_dataplane::time::Instant;

fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    *EAL.get_or_init(|| Eal::builder().memory_mib(64).init().unwrap())
}

fn pool() -> Mempool {
    Mempool::new(
        eal(),
        MempoolConfig { mbufs: 255, data_octets: 9216, cache_mbufs: 0, ..MempoolConfig::default() },
    )
    .unwrap()
}

fn devices(config: &WireConfig, pool: &Mempool) -> (DpdkDevice, DpdkDevice) {
    let (a, b) = wire(eal(), config, [pool, pool]).unwrap();
    (DpdkDevice::wire(a, pool.clone()).unwrap(), DpdkDevice::wire(b, pool.clone()).unwrap())
}

#[test]
fn a_region_travels_by_reference_and_outlives_its_last_handle() {
    for external_pieces in [ExternalPieces::Copied, ExternalPieces::Shared] {
        let pool = pool();
        let config = WireConfig { mtu_bytes: 9000, external_pieces, ..WireConfig::default() };
        let (mut a, mut b) = devices(&config, &pool);
        assert!(a.capabilities().transmit_checksums);
        // A wire that copies at the crossing saves nothing by references, so it does not ask for them.
        assert_eq!(a.capabilities().gather, external_pieces == ExternalPieces::Shared);
        assert_eq!(a.capabilities().mtu_bytes, 9000);
        assert_ne!(a.mac(), b.mac());

        let region = Region::huge(eal(), 1 << 20).unwrap();
        assert!(region.write(5000, &[7; 8000]));
        let mut frame = a.allocate().unwrap();
        frame.append(54).unwrap().fill(1);
        assert!(region.is_copied() && !frame.append_region(&region, 5000, 8000), "it may change");
        let region = region.freeze().unwrap();
        assert!(!region.is_copied());
        assert!(frame.append_region(&region, 5000, 8000));
        frame.append(4).unwrap().fill(2);
        assert!(!frame.append_region(&region, (1 << 20) - 1, 2), "past the end");
        Frame::request_checksums(&mut frame, request(IpVersion::V4));
        assert_eq!(Frame::len(&frame), 8058);
        let mut frames = vec![frame];
        assert_eq!(a.transmit(Instant::ZERO, &mut frames), 1);
        drop(region);

        let mut received = Vec::new();
        assert_eq!(b.receive(Instant::ZERO, &mut received, 32), 1);
        let frame = received.pop().unwrap();
        let octets: Vec<u8> = frame.pieces().flatten().copied().collect();
        assert_eq!(octets[..54], [1; 54]);
        assert_eq!(octets[54..8054], [7; 8000]);
        assert_eq!(octets[8054..], [2; 4]);
        assert_eq!(frame.checksums().tcp, ChecksumStatus::Good);
        drop(frame);
        assert_eq!(pool.available(), pool.capacity());
    }
}

fn request(ip: IpVersion) -> ChecksumRequest {
    let l3_octets = if ip == IpVersion::V4 { 20 } else { 40 };
    ChecksumRequest { ip, ip_checksum: true, l2_octets: 14, l3_octets, l4_octets: 20 }
}

/// IPv6 has no header checksum to ask for, and none that could be found good; TCP's is asked for over both.
/// Frames that the wire takes and cannot deliver are counted: too long ones, and those that must be copied to
/// a receiver without buffers.
#[test]
fn frames_that_are_not_sent_are_counted() {
    let (ours, theirs) = (pool(), pool());
    let config = WireConfig { external_pieces: ExternalPieces::Copied, ..WireConfig::default() };
    let (a, b) = wire(eal(), &config, [&ours, &theirs]).unwrap();
    let (mut a, mut b) = (DpdkDevice::wire(a, ours).unwrap(), DpdkDevice::wire(b, theirs).unwrap());
    let mut taken = Vec::new();
    b.allocate_burst(&mut taken, 255);
    assert!(b.allocate().is_none());
    let region = Region::huge(eal(), 4096).unwrap().freeze().unwrap();
    let mut by_reference = a.allocate().unwrap();
    by_reference.append(54).unwrap().fill(1);
    assert!(by_reference.append_region(&region, 0, 1000));
    let mut too_long = a.allocate().unwrap();
    too_long.append(5000).unwrap().fill(1);
    assert_eq!(a.transmit(Instant::ZERO, &mut vec![by_reference, too_long]), 2);
    assert_eq!((a.unsent_frames(), b.unsent_frames()), (2, 0));
}

#[test]
fn checksums_are_asked_for_by_the_version_of_ip() {
    let pool = pool();
    let (mut a, mut b) = devices(&WireConfig::default(), &pool);
    for (ip, header) in [(IpVersion::V4, ChecksumStatus::Good), (IpVersion::V6, ChecksumStatus::Unknown)] {
        let mut frame = a.allocate().unwrap();
        frame.append(74).unwrap().fill(1);
        Frame::request_checksums(&mut frame, request(ip));
        assert_eq!(a.transmit(Instant::ZERO, &mut vec![frame]), 1);
        let mut received = Vec::new();
        assert_eq!(b.receive(Instant::ZERO, &mut received, 1), 1);
        let checksums = received[0].checksums();
        assert_eq!((checksums.ip, checksums.tcp), (header, ChecksumStatus::Good), "{ip:?}");
    }
}

#[test]
fn ordinary_regions_are_not_carried() {
    let pool = pool();
    let (mut a, _b) = devices(&WireConfig::default(), &pool);
    let mut frame = a.allocate().unwrap();
    let part = Region::huge(eal(), 4096).unwrap().freeze().unwrap().part(0, 1024).unwrap();
    let constant = Region::owned(vec![7; 4096]).unwrap().freeze().unwrap();
    for region in [Region::heap(4096).unwrap(), constant, part] {
        assert!(region.is_copied() && !frame.append_region(&region, 0, 100));
    }
    assert!(frame.is_empty());
}

#[test]
fn a_device_offers_what_its_wire_does() {
    let pool = pool();
    let (a, _b) = devices(&WireConfig { checksum_offload: false, ..WireConfig::default() }, &pool);
    assert!(!a.capabilities().transmit_checksums);
    let (end, _other) =
        wire(eal(), &WireConfig { mtu_bytes: 9500, ..WireConfig::default() }, [&pool, &pool]).unwrap();
    let error = DpdkDevice::wire(end, pool).unwrap_err();
    assert_eq!(error, PoolTooSmall { frame_bytes: 9518, data_bytes: 9216 });
}
