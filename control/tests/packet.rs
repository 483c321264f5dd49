//! Tests of devices on packet sockets, over veth pairs in network namespaces of their own. Needs root.
#![allow(missing_docs)]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::poll_thread::{cpu_ticks, in_a_second, sleeps};
use common::{End, FAR, NEAR, PATIENCE, PORT, eventually, exchange, statistics_of_cores, two_cpus};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use warpline::cm::{EventChannel, EventKind, Id};
use warpline::{
    Cidr, ConnectConfig, ConnectError, Device, DeviceConfig, DeviceName, DropCause, ListenConfig,
    ListenError, PollThread, Presence, Status, TcpListenConfig, open,
};
use warpline_dataplane::device::packet::{
    Filter, Filtering, PacketConfig, PacketDevice, PacketQueue, PacketShape,
};
use warpline_dataplane::device::{self, Device as _, Frame};
use warpline_dataplane::time::Instant as Moment;

/// Network namespaces with a veth pair between them, `near` and `far`; or one with both ends.
struct Veth {
    near: String,
    far: String,
}

impl Veth {
    fn in_one() -> Self {
        let name = namespace();
        ip(&["-n", &name, "link", "add", "near", "type", "veth", "peer", "name", "far"]);
        Self::up(name.clone(), name)
    }

    fn in_two() -> Self {
        let (near, far) = (namespace(), namespace());
        ip(&["-n", &near, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &far]);
        Self::up(near, far)
    }

    fn up(near: String, far: String) -> Self {
        let pair = Self { near, far };
        for (namespace, interface) in [(&pair.near, "near"), (&pair.far, "far")] {
            ip(&["-n", namespace, "link", "set", interface, "mtu", "9000", "up"]);
        }
        pair
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// Makes a network namespace, and returns its name.
fn namespace() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("warpline-packet-{}-{}", id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    ip(&["netns", "add", &name]);
    name
}

/// Calls `call` on a thread in a network namespace.
fn within<T: Send>(namespace: &str, call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let call = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
            call()
        });
        call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ip(arguments: &[&str]) {
    let output: Output = Command::new("ip").args(arguments).output().expect("ip of iproute2");
    assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
}

/// Returns the turn of a test, one at a time: a test looks at the threads of the process. `None` without
/// root.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root {
        eprintln!("skipped: needs root");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn opened(namespace: &str, name: &str) -> Device {
    within(namespace, || Device::open(&name.parse().expect("a device name")).expect(name))
}

/// Returns octets that differ from place to place.
fn pattern(octets: usize) -> Vec<u8> {
    (0..octets).map(|place| (place ^ place >> 8 ^ place >> 16) as u8).collect()
}

#[test]
fn writes_cross_a_veth_pair_whole() {
    const OCTETS: u32 = 1 << 20;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_one();
    let v4 = (format!("address={NEAR}/24"), format!("address={FAR}/24"), SocketAddr::from((FAR, PORT)));
    let far = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    let v6 = ("address=fd00::1/64".into(), format!("address={far}/64"), SocketAddr::from((far, PORT)));
    for (options, (near, far, remote)) in [
        ("", &v4),
        (",mtu=9000", &v4),
        (",super_frames=off", &v4),
        (",super_frames=off,mtu=9000", &v4),
        (",vlan=7", &v4),
        (",vlan=7,super_frames=off", &v6),
        ("", &v6),
        (",mtu=9000", &v6),
    ] {
        let near = opened(&veth.near, &format!("packet:near,{near}{options}"));
        let far = opened(&veth.far, &format!("packet:far,{far}{options}"));
        let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
        let (one, other) = (End::new(&near), End::new(&far));
        thread::scope(|scope| {
            let qp = one.control();
            let connecting = scope.spawn(move || qp.connect(*remote, &ConnectConfig::default()));
            listener.accept(PATIENCE).unwrap().accept(&other.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        let octets = pattern(OCTETS as usize);
        assert!(one.memory.write(0, &octets));
        one.write(1, &other, OCTETS);
        assert_eq!(one.completion().status, Status::Success, "{options}");
        assert_eq!(other.memory.to_vec(0, octets.len()).unwrap(), octets, "{options}");
        let frames = far.statistics().unwrap().frames_received;
        let is_joined = !options.contains("super_frames=off");
        let mtu = if options.contains("mtu=9000") { 9000 } else { 1500 };
        let segments = u64::from(OCTETS) / mtu;
        assert_eq!(frames < segments, is_joined, "{options}: {frames} frames of {segments} segments or more");
    }
}

/// Threads of the application share devices with one of warpline: at the near end a thread takes turns, at
/// the far one none does, and warpline's thread sleeps while nothing arrives.
#[test]
fn threads_take_turns_at_packet_sockets() {
    const OCTETS: u32 = 1 << 16;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_one();
    let shared = |end, address| {
        let name = format!("packet:{end},address={address}/24");
        within(&veth.near, || Device::open_shared(&name.parse().expect("a device name")).expect(&name))
    };
    let (far, _) = shared("far", FAR);
    let other = End::new(&far);
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    // The thread of the far device is the only one.
    eventually("it sleeps", || in_a_second(sleeps) < 100.0);
    let (near, turns) = shared("near", NEAR);
    let one = End::new(&near);
    thread::scope(|scope| {
        let connecting = scope.spawn(one.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&other.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    for number in 1..100 {
        one.memory.fill(number as u8);
        one.write(number, &other, OCTETS);
        let start = Instant::now();
        let completion = loop {
            if let Some(completion) = one.completions.poll() {
                break completion;
            }
            turns.turn();
            assert!(start.elapsed() < PATIENCE, "no completion of {number}");
        };
        assert_eq!((completion.id, completion.status), (number, Status::Success));
        assert_eq!(other.memory.to_vec(0, OCTETS as usize).unwrap(), vec![number as u8; OCTETS as usize]);
    }
    drop((one, near));
    assert!(!turns.turn(), "the device has ended");
    let two_cores = format!("packet:near,address={NEAR}/24,cores=0-1").parse().unwrap();
    let refused = within(&veth.near, || Device::open_shared(&two_cores).map(drop).unwrap_err());
    assert!(matches!(refused, open::OpenError::SharedCores { cpus: 2, .. }), "{refused}");
}

/// The kernel spreads flows among the sockets of a device; each core hands over what is not its own. With one
/// socket the first core does for all.
#[test]
fn flows_reach_the_core_that_owns_them() {
    let Some(_turn) = turn() else { return };
    let Some(cpus) = two_cpus() else { return };
    let veth = Veth::in_one();
    for queues in ["each", "one"] {
        let name = |end, address| format!("packet:{end},address={address}/24,queues={queues},cores={cpus}");
        let near = opened(&veth.near, &name("near", NEAR));
        let far = opened(&veth.far, &name("far", FAR));
        assert_eq!(near.warnings().len(), usize::from(queues == "one"), "{:?}", near.warnings());
        let each_has_received = || {
            let cores = statistics_of_cores(&far);
            assert_eq!(cores.len(), 2);
            cores.iter().all(|core| core.frames_received > 0)
        };
        // How the kernel spreads flows, and who owns one, is drawn: the eight of an exchange may all be one
        // core's.
        let mut exchanges = iter::repeat_with(|| exchange(&near, &far)).take(20);
        assert!(exchanges.any(|()| each_has_received()), "queues={queues}");
    }
}

/// The kernel at the other end leaves checksums and segmentation to devices, and gets segments as they are on
/// the wire.
#[test]
fn the_kernel_exchanges_a_stream_with_a_device() {
    const OCTETS: usize = 8 << 20;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.far, "address", "add", &format!("{FAR}/24"), "dev", "far"]);
    for options in ["", ",mtu=9000", ",super_frames=off"] {
        // A packet socket alone would cut what the kernel leaves to the device.
        let tso = if options.contains("off") { "off" } else { "on" };
        let ethtool = ["netns", "exec", &veth.far, "ethtool", "-K", "far", "tso", tso, "gso", tso];
        ip(&ethtool);
        let device = opened(&veth.near, &format!("packet:near,address={NEAR}/24{options}"));
        let listener = device.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
        let octets = pattern(OCTETS);
        let echoed = thread::scope(|scope| {
            let kernel = scope.spawn(|| within(&veth.far, || echo_of(&octets)));
            let stream = listener.accept(PATIENCE).unwrap();
            let mut received = vec![0; OCTETS];
            stream.read_exact(&mut received, PATIENCE).unwrap();
            assert!(received == octets, "{options}: what the kernel sent has arrived otherwise");
            stream.write_all(&received, PATIENCE).unwrap();
            stream.finish();
            kernel.join().unwrap()
        });
        assert!(echoed == octets, "{options}: what the kernel received is something else");
    }
}

/// A peer that leaves segmentation to its device sends frames that are longer than a packet may be: they are
/// counted by their cause.
#[test]
fn frames_that_are_too_long_are_counted() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.far, "address", "add", &format!("{FAR}/24"), "dev", "far"]);
    let device = opened(&veth.near, &format!("packet:near,address={NEAR}/24,super_frames=off"));
    let listener = device.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let mut peer = within(&veth.far, || TcpStream::connect((NEAR, PORT)).expect("the device listens"));
    let _stream = listener.accept(PATIENCE).unwrap();
    peer.write_all(&vec![7; 100_000]).unwrap();
    let is_counted =
        || statistics_of_cores(&device).iter().any(|core| core.dropped(DropCause::OversizedPacket) > 0);
    eventually("a frame that is too long", is_counted);
}

/// Sends `octets` to the device by the kernel's TCP, and returns what comes back.
fn echo_of(octets: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect((NEAR, PORT)).expect("the device listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(octets).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    back
}

/// A refusal to open says why, and what to do.
#[test]
fn a_refusal_names_its_remedy() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.near, "address", "add", &format!("{NEAR}/24"), "dev", "near"]);
    ip(&["-n", &veth.near, "link", "set", "near", "mtu", "1500"]);
    let refusal = |name: String| {
        let error = within(&veth.near, || Device::open(&name.parse().unwrap()).map(drop).unwrap_err());
        error.to_string()
    };
    let expected = [
        (format!("packet:near,address={NEAR}/24"), "the kernel has 198.18.0.1 too, on 'near'"),
        (format!("packet:near,address={FAR}/24,mtu=9000"), "carries packets of 1500 bytes, not 9000"),
        (format!("packet:none,address={FAR}/24"), "there is no interface 'none'; there are lo, near"),
        (format!("packet:lo,address={FAR}/24"), "'lo' reaches no other station"),
    ];
    for (name, expected) in expected {
        let refusal = refusal(name);
        assert!(refusal.contains(expected), "{refusal}");
    }
    let name = format!("packet:near,address={FAR}/24");
    let holder = opened(&veth.near, &name);
    assert!(
        refusal(name.clone()).contains("another device of this process has 198.18.0.2 on 'near' already")
    );
    drop(holder);
    let without_privilege = within(&veth.near, || {
        let mut sets = capabilities(None).unwrap();
        sets.effective = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets).unwrap();
        open::packet(&name.parse().unwrap()).map(drop).unwrap_err().to_string()
    });
    let expected = "this process lacks CAP_NET_RAW: run it as root, or grant it: sudo setcap cap_net_raw+ep";
    assert!(without_privilege.contains(expected), "{without_privilege}");
}

/// A device that waits for frames uses no CPU, also once its interface is gone; and ends when it is dropped.
#[test]
fn an_idle_device_sleeps_until_frames_come() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.far, "address", "add", &format!("{FAR}/24"), "dev", "far"]);
    let device = opened(&veth.near, &format!("packet:near,address={NEAR}/24"));
    let _listener = device.listen(PORT, &ListenConfig::default()).unwrap();
    for _ in 0..3 {
        within(&veth.far, || TcpStream::connect((NEAR, PORT)).expect("the device is woken"));
    }
    let asleep = in_a_second(sleeps);
    // To look for frames every millisecond would be a thousand times; the kernel's own frames on a new link
    // are few.
    assert!(asleep < 200.0, "went to sleep {asleep} times in a second");
    ip(&["-n", &veth.near, "link", "delete", "near"]);
    let ticks = in_a_second(cpu_ticks);
    assert!(ticks < 20.0, "{ticks} hundredths of a second");
    assert!(device.statistics().is_ok());
}

/// Two devices share the kernels' addresses at both ends; the kernels answer what is theirs, and connections
/// of their own go on beside. What is closed or refused is so by the device, and no kernel sends a RST.
#[test]
fn devices_and_kernels_share_addresses() {
    const OCTETS: u32 = 1 << 20;
    const KERNELS: u16 = 4712;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    for (namespace, interface, address) in [(&veth.near, "near", NEAR), (&veth.far, "far", FAR)] {
        ip(&["-n", namespace, "address", "add", &format!("{address}/24"), "dev", interface]);
    }
    let cores = two_cpus().map_or_else(String::new, |cpus| format!(",cores={cpus}"));
    let near = opened(&veth.near, &format!("packet:near{cores}"));
    let far = opened(&veth.far, "packet:far");
    assert_eq!(near.config().addresses, [Cidr::new(NEAR.into(), 24)]);
    assert_eq!(near.config().presence, Presence::Shared);
    let kernel = within(&veth.far, || TcpListener::bind((FAR, KERNELS)).unwrap());
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let taken = far.listen(KERNELS, &ListenConfig::default()).unwrap_err();
    assert_eq!(taken, ListenError::PortOfKernel(KERNELS));
    let taken = within(&veth.far, || TcpListener::bind((FAR, PORT)).unwrap_err());
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    let stream = within(&veth.near, || TcpStream::connect((FAR, KERNELS)).unwrap());
    let (mut accepted, _) = kernel.accept().unwrap();
    for round in 0..3 {
        let (one, other) = (End::new(&near), End::new(&far));
        thread::scope(|scope| {
            let connecting = scope.spawn(one.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(&other.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        let octets = pattern(OCTETS as usize);
        assert!(one.memory.write(0, &octets));
        one.write(1, &other, OCTETS);
        assert_eq!(one.completion().status, Status::Success);
        assert_eq!(other.memory.to_vec(0, octets.len()).unwrap(), octets);
        let sent = vec![round; 100_000];
        (&stream).write_all(&sent).unwrap();
        let mut received = vec![0; sent.len()];
        accepted.read_exact(&mut received).unwrap();
        assert_eq!(received, sent);
        one.qp.disconnect();
        other.qp.wait_closed(PATIENCE).unwrap();
        one.qp.wait_closed(PATIENCE).unwrap();
    }
    // The kernels' connection and datagrams are nothing that the devices hear of.
    within(&veth.near, || UdpSocket::bind((NEAR, 0)).unwrap().send_to(b"to nobody", (FAR, PORT)).unwrap());
    for device in [&near, &far] {
        let statistics = device.statistics().unwrap();
        for cause in [DropCause::NoConnection, DropCause::OtherProtocol] {
            assert_eq!(statistics.dropped(cause), 0, "{cause:?}");
        }
    }
    ip(&["netns", "exec", &veth.near, "ping", "-n", "-c", "2", "-i", "0.2", "-W", "60", &FAR.to_string()]);
    // A port that nobody has is the kernel's to refuse, and the device's one that it listens at no more.
    let own = near.listen(0, &ListenConfig::default()).unwrap().port();
    assert!(near.statistics().is_ok(), "the core has heard of it");
    let refused = within(&veth.far, || TcpStream::connect((NEAR, own)).unwrap_err());
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let resets = |namespace| within(namespace, || kernel_counter("OutRsts"));
    assert_eq!((resets(&veth.near), resets(&veth.far)), (0, 0), "RSTs of the kernels");
    let refused = End::new(&near);
    let refused = refused.control().connect((FAR, 4713).into(), &ConnectConfig::default());
    assert_eq!(refused.unwrap_err(), ConnectError::Refused);
    assert_eq!(resets(&veth.far), 1, "at a port that nobody has");
}

/// A port that an id has found at an address of the kernel is given back once: to look for a peer that no
/// device leads to gives it back, and the id that has it then keeps it, whatever becomes of the first.
#[test]
fn a_port_that_was_found_is_given_back_once() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.near, "address", "add", &format!("{NEAR}/24"), "dev", "near"]);
    let device = opened(&veth.near, "packet:near");
    let channel = EventChannel::new([device]).unwrap();
    let found = |id: &Id| {
        id.bind_port((NEAR, 0).into(), false).unwrap();
        id.local().unwrap().port()
    };
    let ids = [(); 3].map(|()| channel.create_id());
    let [first, second, third] = ids;
    let port = found(&first);
    first.resolve_addr(([203, 0, 113, 1], PORT).into()).unwrap();
    let event = channel.wait(PATIENCE).unwrap();
    assert!(matches!(event.kind, EventKind::AddressError), "{event:?}");
    assert_eq!(found(&second), port, "it was given back");
    drop(first);
    assert_ne!(found(&third), port, "the second id has it");
}

/// Frames for which the ring has no room are counted.
#[test]
fn frames_that_a_ring_misses_are_counted() {
    const DATAGRAMS: u64 = 1000;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.far, "address", "add", &format!("{FAR}/24"), "dev", "far"]);
    let name: DeviceName = format!("packet:near,address={NEAR}/24").parse().unwrap();
    let device = within(&veth.near, || open::packet(&name).unwrap());
    let mac = warpline::link::Device::mac(&device).to_string();
    ip(&["-n", &veth.far, "neighbour", "add", &NEAR.to_string(), "lladdr", &mac, "dev", "far"]);
    let (device, mut driver) = Device::start_manual(device, &DeviceConfig::new(NEAR, 24)).unwrap();
    let sender = within(&veth.far, || UdpSocket::bind((FAR, 0)).unwrap());
    for _ in 0..DATAGRAMS {
        sender.send_to(b"too many", (NEAR, PORT)).unwrap();
    }
    let missed = driver.run(|| device.statistics().unwrap().dropped(DropCause::Missed));
    assert!((1..DATAGRAMS).contains(&missed), "{missed}");
}

/// The EtherType of ARP.
const ARP: [u8; 2] = [0x08, 0x06];
/// Octets of a frame after others.
const LAST_OCTETS: usize = 100;

/// Opens a packet socket for ARP and frames to `own`.
fn socket(namespace: &str, own: Ipv4Addr, config: PacketConfig<'_>) -> PacketQueue {
    let filter = Filter::addresses(&[own.into()], None);
    let config = PacketConfig { filtering: Filtering::Own(&filter), ..config };
    within(namespace, || PacketQueue::open(&config).unwrap())
}

/// Sends everybody frames of so many octets each, in which the kernel sees ARP packets, and the short one
/// that [`lengths`] waits for.
fn broadcast(device: &mut PacketDevice, octets: &[usize]) {
    let mut frames = Vec::new();
    for octets in octets.iter().chain([&LAST_OCTETS]) {
        let mut frame = device.allocate().expect("a buffer");
        let room = frame.append(*octets).expect("a buffer that large");
        room[..6].fill(0xff);
        room[12..14].copy_from_slice(&ARP);
        frames.push(frame);
    }
    eventually("the kernel takes the frames", || {
        device.transmit(Moment::ZERO, &mut frames);
        frames.is_empty()
    });
}

/// Returns the octets of the ARP packets that arrive before a short one.
fn lengths(device: &mut impl device::Device) -> Vec<usize> {
    let mut lengths = Vec::new();
    eventually("the last frame", || {
        let mut frames = Vec::new();
        device.receive(Moment::ZERO, &mut frames, 32);
        let arp = frames.iter().filter(|frame| frame.piece(0).is_some_and(|octets| octets[12..14] == ARP));
        lengths.extend(arp.map(Frame::len));
        lengths.pop_if(|octets| *octets == LAST_OCTETS).is_some()
    });
    lengths
}

/// A frame that a slot of the ring has room for, but no buffer, is counted.
#[test]
fn frames_that_fit_no_buffer_are_counted() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    let filter = Filter::nothing();
    let config = |interface| PacketConfig {
        interface,
        mtu_bytes: 1500,
        super_frame_octets: None,
        fanout: None,
        filtering: Filtering::Own(&filter),
    };
    let near = socket(&veth.near, NEAR, config("near"));
    // Its slots hold frames of 1518 octets and some more, its buffers fewer.
    let shape = PacketShape { frame_octets: 1000, ..near.shape() };
    let mut near = PacketDevice::new(Some(near), shape);
    let far = socket(&veth.far, FAR, PacketConfig { mtu_bytes: 2000, ..config("far") });
    let shape = far.shape();
    let mut far = PacketDevice::new(Some(far), shape);
    broadcast(&mut far, &[900, 1560, 1000]);
    assert_eq!((lengths(&mut near), near.missed_frames()), (vec![900, 1000], 1));
}

/// What the ring has room for, DPDK's buffers have too, with the tag that the kernel has taken out.
#[cfg(feature = "dpdk")]
#[test]
fn the_largest_frames_fit_the_buffers_of_dpdk() {
    use warpline_dataplane::device::packet::FRAME_MAX_OCTETS;

    /// More than the kernel sends at a time, with the longest headers.
    const WHOLE_OCTETS: usize = 65_376;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    for (namespace, interface) in [(&veth.near, "near"), (&veth.far, "far")] {
        ip(&["-n", namespace, "link", "set", interface, "mtu", "65535"]);
    }
    let filter = Filter::nothing();
    let config = PacketConfig {
        interface: "far",
        mtu_bytes: 9000,
        super_frame_octets: Some(FRAME_MAX_OCTETS),
        fanout: None,
        filtering: Filtering::Own(&filter),
    };
    let far = socket(&veth.far, FAR, config);
    let shape = far.shape();
    let mut far = PacketDevice::new(Some(far), shape);
    let name: DeviceName = format!("packet:near,address={NEAR}/24,super_frames=on").parse().unwrap();
    let eal = open::eal(&[&name], "-m 128").unwrap();
    let mut near = within(&veth.near, || open::port(eal, &name).unwrap());
    for octets in
        (WHOLE_OCTETS - 50..WHOLE_OCTETS + 100).step_by(3).chain([WHOLE_OCTETS, FRAME_MAX_OCTETS - 4])
    {
        broadcast(&mut far, &[octets]);
        let lengths = lengths(&mut near);
        assert_eq!((lengths.len(), near.missed_frames()), (1, 0), "{octets} octets");
        // The longest are cut to the slot.
        assert!(
            lengths[0] == octets || (WHOLE_OCTETS..octets).contains(&lengths[0]),
            "{octets}: {lengths:?}"
        );
    }
}

/// Listeners that are refused leave the ports that were chosen for them to others.
#[test]
fn refused_listeners_use_up_no_ports() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.near, "address", "add", &format!("{NEAR}/24"), "dev", "near"]);
    let device = within(&veth.near, || {
        let name = open::resolved(&"packet:near".parse().unwrap()).unwrap();
        let mut config = name.config();
        config.capacity.listeners = 1;
        Device::open_with(&name, config, PollThread::default()).unwrap()
    });
    let listen = || device.listen(0, &ListenConfig::default());
    let listener = listen().unwrap();
    for _ in 0..300 {
        assert_eq!(listen().unwrap_err(), ListenError::TooManyListeners);
    }
    drop(listener);
    listen().unwrap();
}

/// Connects a queue pair of `near` to one of `far`.
fn connected(near: &Device, far: &Device) -> (End, End) {
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let (one, other) = (End::new(near), End::new(far));
    thread::scope(|scope| {
        let connecting = scope.spawn(one.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&other.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    (one, other)
}

/// Frames that a busy interface does not take wait in the core, which offers them again.
#[test]
fn frames_wait_for_a_busy_interface() {
    const OCTETS: u32 = 1_000_000;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    let near = opened(&veth.near, &format!("packet:near,address={NEAR}/24"));
    let far = opened(&veth.far, &format!("packet:far,address={FAR}/24"));
    let (one, other) = connected(&near, &far);
    // A queue for some of a window's frames.
    let tbf = ["tbf", "rate", "200mbit", "burst", "70000", "limit", "140000"];
    ip(&[&["netns", "exec", &veth.near, "tc", "qdisc", "add", "dev", "near", "root"], &tbf[..]].concat());
    let octets = pattern(OCTETS as usize);
    assert!(one.memory.write(0, &octets));
    one.write(1, &other, OCTETS);
    assert_eq!(one.completion().status, Status::Success);
    assert_eq!(other.memory.to_vec(0, octets.len()).unwrap(), octets);
    // Nothing was lost, however long it waited: no octet came before those that it follows.
    assert_eq!(near.statistics().unwrap().dropped(DropCause::NotSent), 0);
    assert_eq!(far.statistics().unwrap().tcp.out_of_order_segments, 0);
}

/// What is sent while the interface is down is lost and counted, and sent again when it is up.
#[test]
fn frames_for_an_interface_that_is_down_are_counted() {
    const OCTETS: u32 = 100_000;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    let near = opened(&veth.near, &format!("packet:near,address={NEAR}/24"));
    let far = opened(&veth.far, &format!("packet:far,address={FAR}/24"));
    let (one, other) = connected(&near, &far);
    let unsent = || near.statistics().unwrap().dropped(DropCause::NotSent);
    assert_eq!(unsent(), 0);
    ip(&["-n", &veth.near, "link", "set", "near", "down"]);
    let octets = pattern(OCTETS as usize);
    assert!(one.memory.write(0, &octets));
    one.write(1, &other, OCTETS);
    let start = Instant::now();
    while unsent() == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing was counted");
        thread::sleep(Duration::from_millis(5));
    }
    ip(&["-n", &veth.near, "link", "set", "near", "up"]);
    assert_eq!(one.completion().status, Status::Success);
    assert_eq!(other.memory.to_vec(0, octets.len()).unwrap(), octets);
}

/// Several programs on one address have ports of their own each.
#[test]
fn devices_share_an_address_among_each_other() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.near, "address", "add", &format!("{NEAR}/24"), "dev", "near"]);
    let (one, other) = (opened(&veth.near, "packet:near"), opened(&veth.near, "packet:near"));
    let far = opened(&veth.far, &format!("packet:far,address={FAR}/24"));
    let first = one.listen(PORT, &ListenConfig::default()).unwrap();
    let taken = other.listen(PORT, &ListenConfig::default()).unwrap_err();
    assert_eq!(taken, ListenError::PortOfKernel(PORT));
    let second = other.listen(0, &ListenConfig::default()).unwrap();
    for (device, listener) in [(&one, &first), (&other, &second)] {
        let (from, to) = (End::new(&far), End::new(device));
        let remote = SocketAddr::from((NEAR, listener.port()));
        thread::scope(|scope| {
            let qp = from.control();
            let connecting = scope.spawn(move || qp.connect(remote, &ConnectConfig::default()));
            listener.accept(PATIENCE).unwrap().accept(&to.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        // And from its own port to another.
        from.memory.fill(9);
        from.write(1, &to, 1000);
        assert_eq!(from.completion().status, Status::Success);
    }
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    for device in [&one, &other] {
        let (from, to) = (End::new(device), End::new(&far));
        thread::scope(|scope| {
            let connecting = scope.spawn(from.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(&to.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        from.write(1, &to, 1000);
        assert_eq!(from.completion().status, Status::Success);
    }
    let refusal = within(&veth.far, || Device::open(&"packet:far".parse().unwrap()).map(drop).unwrap_err());
    assert!(refusal.to_string().contains("the kernel has no address on 'far' to share"), "{refusal}");
    let name = format!("packet:near,address={FAR}/24,presence=shared");
    let refusal = within(&veth.near, || Device::open(&name.parse().unwrap()).map(drop).unwrap_err());
    assert!(refusal.to_string().contains("the kernel does not have 198.18.0.2 on 'near'"), "{refusal}");
    // The interface's MTU, though it is less than the usual one of devices; not another one beyond it.
    ip(&["-n", &veth.near, "link", "set", "near", "mtu", "1400"]);
    let mtu =
        |name: &str| within(&veth.near, || open::resolved(&name.parse().unwrap()).map(|name| name.mtu()));
    assert_eq!(mtu("packet:near").unwrap(), 1400);
    assert_eq!(mtu("packet:near,mtu=1000").unwrap(), 1000);
    let refusal = mtu("packet:near,mtu=1500").unwrap_err().to_string();
    assert!(refusal.contains("carries packets of 1400 bytes, not 1500"), "{refusal}");
}

/// Programs of one machine reach each other at the address that they share, and each itself; a port that
/// nobody has refuses. The kernel, which drops what they send each other, resets nothing.
#[test]
fn devices_of_one_address_reach_each_other() {
    const OCTETS: u32 = 1 << 20;
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    ip(&["-n", &veth.near, "link", "set", "lo", "up"]);
    ip(&["-n", &veth.near, "address", "add", &format!("{NEAR}/24"), "dev", "near"]);
    ip(&["-n", &veth.near, "address", "add", "fd00::1/64", "dev", "near", "nodad"]);
    let cores = two_cpus().map_or_else(String::new, |cpus| format!(",cores={cpus}"));
    for name in
        ["packet:near".to_owned(), "packet:near,super_frames=off".into(), format!("packet:near{cores}")]
    {
        let (one, other) = (opened(&veth.near, &name), opened(&veth.near, "packet:near"));
        for (from, to) in [(&one, &other), (&other, &one), (&one, &one)] {
            let listener = to.listen(0, &ListenConfig::default()).unwrap();
            for address in [IpAddr::from(NEAR), v6.into()] {
                let (from, to) = (End::new(from), End::new(to));
                let remote = SocketAddr::from((address, listener.port()));
                thread::scope(|scope| {
                    let qp = from.control();
                    let connecting = scope.spawn(move || qp.connect(remote, &ConnectConfig::default()));
                    listener.accept(PATIENCE).unwrap().accept(&to.qp, b"").unwrap();
                    connecting.join().unwrap().unwrap();
                });
                let octets = pattern(OCTETS as usize);
                assert!(from.memory.write(0, &octets));
                from.write(1, &to, OCTETS);
                assert_eq!(from.completion().status, Status::Success, "{name}");
                assert_eq!(to.memory.to_vec(0, octets.len()).unwrap(), octets, "{name}");
                from.qp.disconnect();
                to.qp.wait_closed(PATIENCE).unwrap();
                from.qp.wait_closed(PATIENCE).unwrap();
            }
        }
        let refused = End::new(&one).control().connect((NEAR, 4713).into(), &ConnectConfig::default());
        assert_eq!(refused.unwrap_err(), ConnectError::Refused);
    }
    let resets = within(&veth.near, || kernel_counter("OutRsts"));
    assert_eq!(resets, 0, "RSTs of the kernel");
}

/// A port of this machine that no program has is asked again for as long as the application says.
#[test]
fn a_program_of_this_machine_may_begin_to_listen_later() {
    let Some(_turn) = turn() else { return };
    let veth = Veth::in_two();
    ip(&["-n", &veth.near, "link", "set", "lo", "up"]);
    ip(&["-n", &veth.near, "address", "add", &format!("{NEAR}/24"), "dev", "near"]);
    let (one, other) = (opened(&veth.near, "packet:near"), opened(&veth.near, "packet:near"));
    let (from, to) = (End::new(&one), End::new(&other));
    let patient = |refused_patience| ConnectConfig { refused_patience, ..ConnectConfig::default() };
    let (qp, remote) = (from.control(), SocketAddr::from((NEAR, PORT)));
    let hasty = qp.connect(remote, &patient(Duration::from_millis(50)));
    assert_eq!(hasty.unwrap_err(), ConnectError::Refused);
    thread::scope(|scope| {
        let connecting = scope.spawn(move || qp.connect(remote, &patient(PATIENCE)));
        // So that it is refused some times.
        thread::sleep(Duration::from_millis(100));
        let mut listener = None;
        eventually("it listens", || {
            // A look at the port takes it for a moment.
            listener = other.listen(PORT, &ListenConfig::default()).ok();
            listener.is_some()
        });
        listener.unwrap().accept(PATIENCE).unwrap().accept(&to.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
}

/// Returns a counter of TCP of the network namespace of this thread.
fn kernel_counter(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names.split(' ').zip(values.split(' ')).find(|(found, _)| *found == name);
    found.unwrap().1.parse().unwrap()
}
