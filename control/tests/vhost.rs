//! Tests of devices on a vhost-user socket: payload by reference, super-frames, and several queues.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

mod common;

use std::path::Path;
use std::{iter, thread};

use common::{End, FAR, NEAR, PATIENCE, PORT, config, exchange, statistics_of_cores, two_cpus};
use dpdk::MemoryMode;
use warpline::open::{self, Eal, HostWarning};
use warpline::{
    Access, Addressing, Device, DeviceConfig, DeviceName, ListenConfig, MemoryRegion, PollThread, Status,
};

/// The largest payload of a TCP segment.
const SEGMENT: usize = 1460;
/// Segments of an RDMA Write of all that an end has.
const SEGMENTS: usize = End::OCTETS / SEGMENT;

/// One test: the EAL starts once per process.
#[test]
fn devices_exchange_data_over_a_socket() {
    let sockets = std::env::temp_dir().join(format!("warpline-vhost-{}", std::process::id()));
    std::fs::create_dir(&sockets).unwrap();
    let eal = open::eal(&[&name(&sockets, 0, "virtio_user", "off")], "-m 300");
    match eal {
        Ok(eal) if eal.memory_mode() == MemoryMode::Hugepages => {
            for (number, super_frames) in ["off", "on"].into_iter().enumerate() {
                carry(eal, &sockets, number, super_frames);
            }
            each_core_has_a_queue(&sockets.join("queues"));
        }
        _ => eprintln!("skipped: needs hugepages, the only memory that a peer of vhost-user may share"),
    }
    std::fs::remove_dir_all(&sockets).unwrap();
}

fn name(sockets: &Path, number: usize, kind: &str, super_frames: &str) -> DeviceName {
    let socket = sockets.join(number.to_string());
    format!("{kind}:{},super_frames={super_frames}", socket.display()).parse().unwrap()
}

/// RDMA Writes and Reads in both directions.
fn carry(eal: Eal, sockets: &Path, number: usize, super_frames: &str) {
    let start = |kind, address| {
        let device = open::port(eal, &name(sockets, number, kind, super_frames)).unwrap();
        let config = DeviceConfig { memory: open::hugepages(eal), ..config(address) };
        Device::start(device, &config, PollThread::default()).unwrap()
    };
    // The socket is the vhost device's.
    let far = start("vhost", FAR);
    let near = start("virtio_user", NEAR);
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near_end, far_end) = (End::new(&near), End::new(&far));
    thread::scope(|scope| {
        let connecting = scope.spawn(near_end.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far_end.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    for (from, to, device) in [(&near_end, &far_end, &near), (&far_end, &near_end, &far)] {
        let octets: Vec<u8> = (0..End::OCTETS).map(|index| ((index * 31) >> 8) as u8).collect();
        assert!(from.memory.write(0, &octets));
        let constant = constant(eal, from, &octets);
        assert!(!constant.is_copied(), "the port gathers");
        // A super-frame is in one buffer.
        let of_constant = if super_frames == "on" { octets.len() } else { 0 };
        for (id, source, copied) in [(1, &from.memory, octets.len()), (2, &constant, of_constant)] {
            to.memory.fill(0);
            let before = device.statistics().unwrap();
            let target = to.memory.advertisement(0, octets.len() as u32).unwrap();
            from.qp.post_write(id, source.slice(0, octets.len() as u32), &target, 0).unwrap();
            assert_eq!(from.completion().status, Status::Success);
            assert_eq!(to.memory.to_vec(0, octets.len()).unwrap(), octets);
            let after = device.statistics().unwrap();
            let frames = (after.frames_sent - before.frames_sent) as usize;
            // An end that did not run for a while is probed, and what was on its way is sent again.
            let again = (after.tcp.retransmitted_segments - before.tcp.retransmitted_segments) as usize;
            let by_copy = (after.bytes_copied_tx - before.bytes_copied_tx) as usize;
            let least = if super_frames == "on" {
                assert!(frames < SEGMENTS / 4 + again, "{id}: {frames} frames for {SEGMENTS} segments");
                // A segment that the window lets go alone is no super-frame, and goes by reference.
                copied.saturating_sub(frames * SEGMENT)
            } else {
                assert!(frames >= SEGMENTS, "{id}: {frames} frames for {SEGMENTS} segments");
                copied
            };
            // Without a second buffer, because the other end has not run for a while, a segment is copied.
            let most = copied + octets.len() / 4 + again * SEGMENT;
            assert!(
                (least..most).contains(&by_copy),
                "{id}: {by_copy} octets copied, {again} segments again"
            );
        }
    }
    near_end.qp.disconnect();
    far_end.qp.wait_closed(PATIENCE).unwrap();
}

/// Returns constant memory of `end` with these octets.
fn constant(eal: Eal, end: &End, octets: &[u8]) -> MemoryRegion {
    let region = open::hugepages(eal).allocate(octets.len()).unwrap();
    assert!(region.write(0, octets));
    end.domain.register(region.freeze().unwrap(), Access::empty(), Addressing::Address).unwrap()
}

/// Both ends have as many queues as they have cores, if both names say so. What comes to which queue is for
/// the other end to decide, so each core sorts what it receives.
fn each_core_has_a_queue(socket: &Path) {
    let Some(cpus) = two_cpus() else { return };
    let open = |kind: &str, address| {
        let text = format!("{kind}:{},queues=each,address={address},cores={cpus}", socket.display());
        let device = Device::open(&text.parse().unwrap()).unwrap();
        assert!(device.warnings().iter().all(|it| !matches!(it, HostWarning::OneQueue { .. })), "{kind}");
        device
    };
    let (far, near) = (open("vhost", FAR), open("virtio_user", NEAR));
    let is_at_work = |device: &Device| {
        let cores = statistics_of_cores(device);
        assert_eq!(cores.len(), 2);
        cores.iter().all(|core| core.frames_received > 0 && core.frames_sent > 0)
    };
    // Who owns a flow is drawn: the eight of one exchange may all be one core's.
    let mut exchanges = iter::repeat_with(|| exchange(&near, &far)).take(20);
    assert!(exchanges.any(|()| is_at_work(&near) && is_at_work(&far)), "each core sends and receives");
}
