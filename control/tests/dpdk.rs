//! Tests of DPDK devices that are opened by name.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{End, FAR, NEAR, PATIENCE, PORT, config};
use warpline::open::{self, Eal, ExternalPieces, OpenError, WireConfig};
use warpline::{Access, Addressing, Device, DeviceConfig, ListenConfig, PollThread, Status};

/// The largest IP packet of the wire.
const MTU_BYTES: u64 = 9000;

/// One test: the EAL starts once per process.
#[test]
fn a_wire_between_two_devices_carries_a_write() {
    for arguments in ["-m", "-m many", "--vdev", "--lcores=0@0 -a"] {
        let error = open::eal(&[], arguments).unwrap_err();
        assert!(matches!(error, OpenError::Argument(_)), "{arguments}: {error}");
    }
    let sockets = std::env::temp_dir().join(format!("warpline-dpdk-{}", std::process::id()));
    std::fs::create_dir(&sockets).unwrap();
    let taken = format!("net_memif0,socket={}/a,socket-abstract=no,role=server", sockets.display());
    let eal = open::eal(&[], &format!("-m 300 --vdev {taken}")).unwrap();
    let port = |name: &str| open::port(eal, &name.parse().unwrap()).map(drop);
    // The first name that a virtual device gets is taken, by one with another socket.
    let own = format!("memif:{}/b", sockets.display()).parse().unwrap();
    let opened = open::port(eal, &own).unwrap();
    assert!(sockets.join("b").exists(), "the device is not the other one");
    drop(opened);
    std::fs::remove_dir_all(&sockets).unwrap();
    assert!(matches!(open::eal(&[], "-m 8"), Err(OpenError::Eal(_))), "a second EAL");
    let error = port("eal:no_driver7").unwrap_err().to_string();
    assert!(error.contains("no_driver7"), "{error}");
    let error = port("eal:net_none7,size=64").unwrap_err().to_string();
    assert!(error.contains("device 'eal:net_none7,size=64': DPDK has no driver for"), "{error}");
    assert!(matches!(port("ring"), Err(OpenError::RingIsAPair)));
    port("eal:net_null7,size=64").unwrap();
    port("eal:net_null7,size=64").unwrap();
    // A running EAL serves every device except those that must be named when it starts.
    assert!(open::eal(&[&"tap:t".parse().unwrap()], "").is_ok());
    let late = "pci:0000:01:00.0".parse().unwrap();
    assert!(matches!(open::eal(&[&late], ""), Err(OpenError::StartedWithout(name)) if *name == late));

    carry_a_write(eal, ExternalPieces::Copied);
    carry_a_write(eal, ExternalPieces::Shared);
}

/// A Write over a wire, by copy and by reference.
fn carry_a_write(eal: Eal, external_pieces: ExternalPieces) {
    let wire = WireConfig { mtu_bytes: MTU_BYTES as usize, external_pieces, ..WireConfig::default() };
    let (near, far) = open::ring_pair(eal, &wire).unwrap();
    let start = |device, address| {
        let config = DeviceConfig { memory: open::hugepages(eal), ..config(address) };
        Device::start(device, &config, PollThread::default()).unwrap()
    };
    let (near, far) = (start(near, NEAR), start(far, FAR));
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near_end, far_end) = (End::new(&near), End::new(&far));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(near_end.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far_end.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    let octets: Vec<u8> = (0..End::OCTETS).map(|index| ((index * 31) >> 8) as u8).collect();
    let region = open::hugepages(eal).allocate(octets.len()).unwrap();
    assert!(region.write(0, &octets));
    let region = region.freeze().unwrap();
    let constant = near_end.domain.register(region, Access::empty(), Addressing::Address).unwrap();
    assert_eq!(constant.is_copied(), external_pieces == ExternalPieces::Copied);
    assert!(near_end.memory.is_copied() && near_end.memory.write(0, &octets));
    for (id, source) in [(1, &near_end.memory), (2, &constant)] {
        far_end.memory.fill(0);
        let target = far_end.memory.advertisement(0, octets.len() as u32).unwrap();
        near_end.qp.post_write(id, source.slice(0, octets.len() as u32), &target, 0).unwrap();
        assert_eq!(near_end.completion().status, Status::Success);
        assert_eq!(far_end.memory.to_vec(0, octets.len()).unwrap(), octets);
    }
    // The poll threads fall asleep, and are woken by a doorbell and by frames.
    for id in 3..7 {
        std::thread::sleep(Duration::from_millis(5));
        near_end.write(id, &far_end, 8);
        assert_eq!(near_end.completion().status, Status::Success);
    }
    near_end.qp.disconnect();
    far_end.qp.wait_closed(PATIENCE).unwrap();
    // In copy mode each octet is copied once to send; by reference only the small end of the message is
    // copied, and what finds no second buffer because the other end has not run for a while.
    let slept = 4 * 8;
    let statistics = near.statistics().unwrap();
    let copied = statistics.bytes_copied_tx - slept;
    let from_memory = octets.len() as u64;
    // A core that did not run for a while is probed: what is sent again is copied again.
    let again = statistics.tcp.retransmitted_segments * MTU_BYTES;
    match external_pieces {
        ExternalPieces::Copied => {
            assert!((2 * from_memory..=2 * from_memory + again).contains(&copied), "{copied}, {again} again");
        }
        ExternalPieces::Shared => {
            let most = from_memory / 4 + again;
            assert!((from_memory..from_memory + most).contains(&copied), "{copied} copied, {again} again");
        }
    }
    assert_eq!(far.statistics().unwrap().bytes_copied_rx, 2 * from_memory + slept);
}
