//! Tests of DPDK devices that are opened for several cores.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

mod common;

use std::os::unix::fs::MetadataExt;
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, iter, thread};

use common::{End, FAR, NEAR, PATIENCE, PORT, config, eventually, exchange, statistics_of_cores, two_cpus};
use warpline::open::{self, DpdkDevice, Eal, HostWarning, OpenError};
use warpline::{
    ConnectConfig, Device as Rnic, DeviceConfig, DeviceName, DropCause, ListenConfig, PollThread, Statistics,
    Status,
};
use warpline_dataplane::device::spread::{Queues, Spread};
use warpline_dataplane::device::{Capabilities, Device};
use warpline_dataplane::time::Instant;
use warpline_dataplane::waker::Waker;
use warpline_dataplane::wire::ethernet::MacAddress;

/// Buffers of the first core of a port.
const PORT_MBUFS: usize = 16_383;

fn name(text: &str) -> DeviceName {
    text.parse().unwrap()
}

fn frames(devices: &[Spread<DpdkDevice>]) -> Vec<usize> {
    devices.iter().map(|device| device.capabilities().frames).collect()
}

/// Returns how many frames each device has received at once.
fn received(devices: &mut [Spread<DpdkDevice>]) -> Vec<usize> {
    devices.iter_mut().map(|device| device.receive(Instant::ZERO, &mut Vec::new(), 8)).collect()
}

/// One test: the EAL starts once per process.
#[test]
fn devices_open_for_several_cores() {
    let eal = open::eal(&[], "-m 300").unwrap();
    for cores in [0, 65] {
        let error = open::ports(eal, &name("eal:net_null2"), cores).unwrap_err();
        assert!(matches!(error, OpenError::CoreCount(count) if count == cores), "{error}");
    }
    assert!(matches!(open::ports(eal, &name("ring"), 2), Err(OpenError::RingIsAPair)));
    a_port_with_a_queue_for_each_core(eal);
    a_port_with_one_queue(eal);
    a_single_core(eal);
    buffers_are_near_a_port_that_is_added_late(eal);
    wires_between_cores(eal);
    let error = Rnic::open(&name("eal:net_null5,address=198.18.0.9,cores=0+900")).unwrap_err().to_string();
    assert!(error.contains("CPU 900 cannot be used"), "{error}");
    a_device_says_that_its_port_has_one_queue();
    cores_of_a_ring_exchange_data(eal);
    a_core_without_buffers_stops_no_other(eal);
    cores_of_a_packet_socket_exchange_data();
}

/// Each core receives and sends for itself.
fn a_port_with_a_queue_for_each_core(eal: Eal) {
    let opened = open::ports(eal, &name("eal:net_null3,size=64"), 3).unwrap();
    assert!(opened.queues() == Queues::PerCore && opened.warning().is_none());
    let (mut devices, steering) = opened.into_parts();
    assert_eq!((steering.cores(), steering.table().len()), (3, 128), "as the adapter has it");
    assert_eq!(frames(&devices), [PORT_MBUFS, 8191, 8191], "all of what the core receives is its own");
    // What is no segment goes to the first core, whatever queue it comes to.
    assert_eq!(received(&mut devices[1..]), [0, 0]);
    assert_eq!(received(&mut devices[..1]), [8]);
    for device in &mut devices {
        let mut sent = vec![device.allocate().unwrap()];
        sent[0].append(60).unwrap().fill(0);
        assert_eq!(device.transmit(Instant::ZERO, &mut sent), 1);
    }
    drop(devices);
    let opened = open::ports(eal, &name("eal:net_null3,size=64"), 3).unwrap();
    let mut wrapped = 0;
    let refused = opened.into_parts_in(|device| {
        wrapped += 1;
        if wrapped < 2 { Ok(device) } else { Err("no second one") }
    });
    assert_eq!(refused.err(), Some("no second one"));
}

/// The first core receives for all. The others have buffers of their own to send, and each may keep its part
/// of what the first one receives. The port closes with the last of them, and can be opened again.
fn a_port_with_one_queue(eal: Eal) {
    let directory = std::env::temp_dir().join(format!("warpline-cores-{}", process::id()));
    fs::create_dir(&directory).unwrap();
    let socket = directory.join("s");
    let memif = name(&format!("memif:{}", socket.display()));
    for cores in [2, 3] {
        let opened = open::ports(eal, &memif, cores).unwrap();
        assert_eq!(opened.queues(), Queues::One);
        let warning = opened.warning().unwrap().to_string();
        assert!(warning.contains("net_memif") && warning.contains(&format!("{cores} cores")), "{warning}");
        let (mut devices, steering) = opened.into_parts();
        assert_eq!((usize::from(steering.cores()), devices.len()), (cores, cores));
        assert!(devices[0].may_have_frames() && !devices[1].may_have_frames());
        assert_eq!(frames(&devices), vec![PORT_MBUFS / cores; cores]);
        let mut sent: Vec<_> = devices.iter_mut().map(|device| device.allocate().unwrap()).collect();
        assert_eq!(devices[1].transmit(Instant::ZERO, &mut sent), cores, "to the core with the queue");
        assert_eq!(received(&mut devices), vec![0; cores]);
        let first = devices.remove(0);
        drop(devices);
        assert!(socket.exists());
        drop(first);
        assert!(!socket.exists(), "the port is closed");
    }
    fs::remove_dir_all(&directory).unwrap();
}

/// The device that is opened by its name says so: the port of `net_ring` does not spread. With one core there
/// is nothing to say.
fn a_device_says_that_its_port_has_one_queue() {
    let Some(cpus) = two_cpus() else { return };
    let open = |port: &str, cores: &str| {
        Rnic::open(&name(&format!("eal:{port},address={NEAR},cores={cores}"))).unwrap()
    };
    let device = open("net_ring7", &cpus);
    let [HostWarning::OneQueue { port, cores: 2 }] = device.warnings() else {
        panic!("{:?}", device.warnings())
    };
    assert_eq!(port, "net_ring7");
    drop(device);
    let first = cpus.split('+').next().unwrap();
    assert!(open("net_ring8", first).warnings().is_empty());
}

/// One core has what a device for one core has.
fn a_single_core(eal: Eal) {
    let device = name("eal:net_null4,size=64");
    let expected = open::port(eal, &device).unwrap().capabilities();
    let opened = open::ports(eal, &device, 1).unwrap();
    assert!(opened.queues() == Queues::PerCore && opened.cores() == 1 && opened.warning().is_none());
    assert_eq!(opened.into_parts().0[0].capabilities(), expected);

    let ring = name("ring,mtu=9000");
    let config = open::wire_config(&ring);
    let expected = open::ring_pair(eal, &config).unwrap().0.capabilities();
    let [near, far] = open::ring_pair_of(eal, &config, [1, 1]).unwrap();
    for end in [near, far] {
        assert_eq!(end.into_parts().0[0].capabilities(), expected);
    }
}

/// `net_null` puts its port at the node of the thread that adds it: as with an adapter, that is known when
/// the port is there, and not before.
fn buffers_are_near_a_port_that_is_added_late(eal: Eal) {
    for cores in [1, 2] {
        let opened = open::ports(eal, &name("eal:net_null6,size=64"), cores).unwrap();
        let node = opened.node();
        assert!(node.is_some(), "the main lcore is at a node");
        let (devices, _) = opened.into_parts();
        assert!(devices.iter().all(|device| device.inner().node() == node));
    }
}

/// What a core sends comes to the cores of the other end, which have as many buffers in all as it.
fn wires_between_cores(eal: Eal) {
    let config = open::wire_config(&name("ring"));
    let [near, far] = open::ring_pair_of(eal, &config, [1, 2]).unwrap();
    assert!(near.queues() == Queues::PerCore && far.queues() == Queues::PerCore && far.cores() == 2);
    let ((mut near, _), (mut far, steering)) = (near.into_parts(), far.into_parts());
    assert_eq!((frames(&near), frames(&far)), (vec![1023], vec![511, 511]));
    let mut owned = [0, 0];
    let mut sent = Vec::new();
    for port in 0..16_u16 {
        let mut frame = near[0].allocate().unwrap();
        let octets = frame.append(60).unwrap();
        octets.fill(0);
        octets[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        octets[16..18].copy_from_slice(&46_u16.to_be_bytes());
        octets[23] = 6;
        octets[34..36].copy_from_slice(&port.to_be_bytes());
        owned[usize::from(steering.owner_of_frame(octets).unwrap())] += 1;
        sent.push(frame);
    }
    assert_eq!(near[0].transmit(Instant::ZERO, &mut sent), 16);
    let counts = far.iter_mut().map(|device| device.receive(Instant::ZERO, &mut Vec::new(), 32));
    assert_eq!(counts.collect::<Vec<_>>(), owned);
}

fn cores_of_a_ring_exchange_data(eal: Eal) {
    for cores in [[2, 2], [1, 2]] {
        let opened = open::ring_pair_of(eal, &open::wire_config(&name("ring,mtu=9000")), cores).unwrap();
        let start = |opened: open::OpenedPorts, address| {
            let config = DeviceConfig { memory: open::hugepages(eal), ..config(address) };
            let polls = vec![PollThread::default(); opened.cores()];
            let (devices, steering) = opened.into_parts();
            Rnic::start_cores(devices, &steering, &config, &polls).unwrap()
        };
        let [near, far] = opened;
        exchange(&start(near, NEAR), &start(far, FAR));
    }
}

/// A device that keeps all buffers of its pool for itself while `starves` is set.
struct Starving<D: Device> {
    device: D,
    starves: Arc<AtomicBool>,
    /// What somebody else has of the pool.
    taken: Vec<D::Frame>,
}

impl<D: Device> Device for Starving<D> {
    type Frame = D::Frame;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.device.mac()
    }

    fn may_have_frames(&self) -> bool {
        self.device.may_have_frames()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        self.device.receive(now, frames, limit)
    }

    fn allocate(&mut self) -> Option<D::Frame> {
        if self.starves.load(Ordering::Relaxed) {
            // Those too that come back from the other end from now on.
            self.taken.extend(iter::from_fn(|| self.device.allocate()));
            return None;
        }
        self.taken.clear();
        self.device.allocate()
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<D::Frame>) -> usize {
        self.device.transmit(now, frames)
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.device.wake_on_arrival(waker)
    }
}

/// A connection at a core of the far device.
fn connect(near: &Rnic, far: &Rnic, core: u8) -> (End, End) {
    let config = ListenConfig { core: Some(core), ..ListenConfig::default() };
    let port = PORT + u16::from(core);
    let listener = far.listen(port, &config).unwrap();
    let (near, far) = (End::new(near), End::new(far));
    let qp = near.control();
    thread::scope(|scope| {
        let connecting = scope.spawn(|| qp.connect((FAR, port).into(), &ConnectConfig::default()));
        let request = listener.accept(PATIENCE).unwrap();
        assert_eq!(request.core(), core);
        request.accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    (near, far)
}

/// A core whose pool is empty acknowledges nothing, and counts what it could not send. The other core has
/// buffers of its own, and goes on. Once there are buffers again, the peer's retransmissions are answered.
fn a_core_without_buffers_stops_no_other(eal: Eal) {
    const OCTETS: u32 = 100_000;
    let [near, far] = open::ring_pair_of(eal, &open::wire_config(&name("ring,mtu=9000")), [1, 2]).unwrap();
    let config = |address| DeviceConfig { memory: open::hugepages(eal), ..config(address) };
    let starving = [false, false].map(|starves| Arc::new(AtomicBool::new(starves)));
    let (devices, steering) = near.into_parts();
    let near = Rnic::start_cores(devices, &steering, &config(NEAR), &[PollThread::default()]).unwrap();
    let mut switches = starving.iter().cloned();
    let wrapped = far.into_parts_in(|device| {
        let starves = switches.next().ok_or("one of each core")?;
        Ok::<_, &str>(Starving { device, starves, taken: Vec::new() })
    });
    let (devices, steering) = wrapped.unwrap();
    let far = Rnic::start_cores(devices, &steering, &config(FAR), &[PollThread::default(); 2]).unwrap();

    let ends = [0, 1].map(|core| connect(&near, &far, core));
    for starved in [1, 0] {
        let [(one, other), (hungry, hungry_peer)] = [1 - starved, starved].map(|core| &ends[core]);
        let not_sent = || {
            let of_core = |core: &Statistics| core.dropped(DropCause::NoTransmitBuffer);
            statistics_of_cores(&far).iter().map(of_core).collect::<Vec<u64>>()
        };
        let before = not_sent();
        starving[starved].store(true, Ordering::Relaxed);
        // The core may have some at hand, which are enough for the acknowledgements of a few Writes.
        let (mut posted, mut completed) = (0, 0);
        eventually("the core counts", || {
            if posted - completed < 4 {
                hungry.write(posted, hungry_peer, OCTETS);
                posted += 1;
            }
            completed += iter::from_fn(|| hungry.completions.poll()).count() as u64;
            not_sent()[starved] > before[starved]
        });
        for (value, (from, to)) in (1..).zip([(one, other), (other, one)]) {
            from.memory.fill(value);
            from.write(2, to, OCTETS);
            assert_eq!(from.completion().status, Status::Success);
            assert_eq!(to.memory.to_vec(0, OCTETS as usize).unwrap(), vec![value; OCTETS as usize]);
        }
        assert_eq!(not_sent()[1 - starved], before[1 - starved]);
        starving[starved].store(false, Ordering::Relaxed);
        for _ in completed..posted {
            assert_eq!(hungry.completion().status, Status::Success);
        }
    }
}

/// An interface of the kernel, with another at its other end.
struct Veth(String);

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", &self.0]).status();
    }
}

/// Each device has two cores that its name puts on CPUs of their own, and a queue for each, which the kernel
/// fills by a hash of its own; or one queue. Needs root and two CPUs.
fn cores_of_a_packet_socket_exchange_data() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let Some(cpus) = two_cpus() else { return };
    let ends = ["a", "b"].map(|end| format!("wlc{}{end}", process::id()));
    let ip = |arguments: &[&str]| Command::new("ip").args(arguments).status().is_ok_and(|it| it.success());
    if !is_root || !ip(&["link", "add", &ends[0], "type", "veth", "peer", "name", &ends[1]]) {
        return;
    }
    let _veth = Veth(ends[0].clone());
    assert!(ends.iter().all(|end| ip(&["link", "set", end, "up"])));
    for queues in ["", ",queues=one"] {
        let [near, far] = [(&ends[0], NEAR), (&ends[1], FAR)].map(|(interface, address)| {
            let text = format!("af_packet:{interface},address={address},cores={cpus}{queues}");
            let device = Rnic::open(&name(&text)).unwrap();
            let one = device.warnings().iter().any(|it| matches!(it, HostWarning::OneQueue { .. }));
            assert_eq!(one, !queues.is_empty(), "{:?}", device.warnings());
            device
        });
        exchange(&near, &far);
    }
}
