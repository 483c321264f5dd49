//! DPDK's names for the devices that users name: ports and the arguments that make them.

use std::fmt;

use crate::host::interfaces;
use crate::host::offloads::Ethtool;
use crate::host::survey::HostWarning;
use crate::vocabulary::device_name::{DeviceKind, DeviceName};

/// How DPDK opens a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortArguments {
    /// The name of the port.
    pub(crate) port: String,
    /// The virtual device to add, in the notation of EAL's `--vdev`; `None` if the bus has the device.
    pub(crate) vdev: Option<String>,
}

/// Bytes of a frame in the ring of a packet socket beside the IP packet: the headers of kernel and link, and
/// a spare. The frame must fit a receive buffer, which has 256 bytes more than an IP packet, and 32 bytes of
/// kernel's header.
const AF_PACKET_SPARE_BYTES: u32 = 200;
/// Frames are a multiple of a cache line, and large enough for an MTU of 1500.
const AF_PACKET_ALIGN_BYTES: u32 = 64;
const AF_PACKET_SMALL_BYTES: u32 = 2048;
/// Frames of a ring with small frames: what arrives in the tens of milliseconds in which another process has
/// the CPU.
const AF_PACKET_SMALL_FRAMES: u32 = 4096;
/// Frames of a ring with larger frames, which then is about as long in bytes.
const AF_PACKET_LARGE_FRAMES: u32 = 512;
/// Bytes of a frame that holds the largest segment that Linux hands to a device, of 64 KiB with its headers,
/// and that fits the largest receive buffer.
const AF_PACKET_SUPER_FRAME_BYTES: u32 = 65_408;
/// Frames of a ring with these, in blocks of nearly 2 MiB.
const AF_PACKET_SUPER_FRAMES: u32 = 256;
const PAGE_BYTES: u32 = 4096;
/// Entries of a queue of `net_virtio_user`.
const VIRTIO_QUEUE_ENTRIES: u16 = 256;

/// Returns how many queues the port of `device` is asked to have for `cores` cores.
fn queues(device: &DeviceName, cores: usize) -> usize {
    if device.has_queue_each() { cores } else { 1 }
}

/// Returns how DPDK opens `device` for `cores` cores; `number` makes the name of a virtual device unique. A
/// ring and a packet socket of our own have no port.
pub(crate) fn port_arguments(device: &DeviceName, number: u32, cores: usize) -> Option<PortArguments> {
    let (target, queues) = (device.target(), queues(device, cores));
    let virtual_device = |driver: &str, arguments: String| {
        let port = format!("{driver}{number}");
        let vdev = format!("{port},{arguments}{}", driver_options(device));
        Some(PortArguments { port, vdev: Some(vdev) })
    };
    match device.kind() {
        DeviceKind::Ring | DeviceKind::Packet => None,
        DeviceKind::Tap => virtual_device("net_tap", format!("iface={target}")),
        DeviceKind::AfPacket => {
            let port = format!("net_af_packet{number}");
            let ring = af_packet_ring(device);
            let vdev = format!("{port},iface={target},{ring},qpairs={queues}");
            Some(PortArguments { vdev: Some(vdev), port })
        }
        DeviceKind::AfXdp => {
            // The driver takes no more queues than the interface has channels.
            let first = option(device, "start_queue").and_then(|value| value.parse().ok()).unwrap_or(0);
            let queues = if first + queues <= channels(target) { queues } else { 1 };
            virtual_device("net_af_xdp", format!("iface={target},queue_count={queues}"))
        }
        // An abstract socket, the driver's default, has no owner: any user could be first.
        DeviceKind::Memif => {
            let role = if option(device, "role").is_none() { ",role=server" } else { "" };
            virtual_device("net_memif", format!("socket={target},socket-abstract=no{role}"))
        }
        // Without `tso=1` the driver keeps its peer from sending super-frames.
        DeviceKind::Vhost => {
            let tso = device.has_super_frames() && option(device, "tso").is_none();
            let tso = if tso { ",tso=1" } else { "" };
            virtual_device("net_vhost", format!("iface={target},queues={queues}{tso}"))
        }
        DeviceKind::VirtioUser => virtual_device("net_virtio_user", format!("path={target},queues={queues}")),
        DeviceKind::Pci => Some(PortArguments { port: target.into(), vdev: None }),
        DeviceKind::Eal => {
            let vdev = target.starts_with("net_").then(|| format!("{target}{}", driver_options(device)));
            Some(PortArguments { port: target.into(), vdev })
        }
    }
}

/// Returns the argument of EAL's `-a` that takes a PCI device: its address and the options of its driver.
pub(crate) fn pci_argument(device: &DeviceName) -> Option<String> {
    (device.kind() == DeviceKind::Pci).then(|| format!("{}{}", device.target(), driver_options(device)))
}

/// Returns the options of the driver, each after a comma.
fn driver_options(device: &DeviceName) -> String {
    let is_ours =
        |option: &str| option == "super_frames" || (option == "queues" && device.kind() != DeviceKind::Eal);
    let options = device.driver_options().iter().filter(|(option, _)| !is_ours(option));
    options.fold(String::new(), |before, (option, value)| format!("{before},{option}={value}"))
}

/// Returns the entries of a queue of virtio: the option `queue_size`, or the driver's default.
pub(crate) fn queue_size(device: &DeviceName) -> u16 {
    option(device, "queue_size").and_then(|value| value.parse().ok()).unwrap_or(VIRTIO_QUEUE_ENTRIES)
}

fn option<'d>(device: &'d DeviceName, wanted: &str) -> Option<&'d str> {
    device.driver_options().iter().find(|(option, _)| option == wanted).map(|(_, value)| value.as_str())
}

/// The geometry of the rings of a packet socket.
struct AfPacketRing {
    frame_bytes: u32,
    block_bytes: u32,
    frames: u32,
}

impl fmt::Display for AfPacketRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frame_bytes, block_bytes, frames } = self;
        write!(f, "framesz={frame_bytes},blocksz={block_bytes},framecnt={frames}")
    }
}

/// Returns what `device`, an AF_XDP socket for each of `queues` channels of an interface, does without. One
/// that is given its first channel has the frames that are steered there.
pub(crate) fn other_channels(device: &DeviceName, queues: usize) -> Option<HostWarning> {
    beyond(device, channels(device.target()), queues)
}

fn beyond(device: &DeviceName, channels: usize, queues: usize) -> Option<HostWarning> {
    let is_lacking = channels > queues && option(device, "start_queue").is_none();
    let interface = device.target().to_owned();
    is_lacking.then_some(HostWarning::OtherChannels { interface, channels, queues })
}

/// Returns how many channels the interface `name` of the kernel has; 0 if the kernel does not say.
fn channels(name: &str) -> usize {
    let interfaces = interfaces::list().unwrap_or_default();
    let interface = interfaces.iter().find(|interface| interface.name == name);
    interface.map_or(0, |interface| {
        let channels = Ethtool::open().and_then(|ethtool| ethtool.channels(interface.index));
        channels.map_or(0, |channels| channels as usize)
    })
}

/// Returns the memory that the sockets of `device` lock for `cores` cores, in KiB: of a packet socket two
/// rings, one each way.
pub(crate) fn locked_kib(device: &DeviceName, cores: usize) -> u64 {
    let number =
        |wanted, default| option(device, wanted).and_then(|value| value.parse().ok()).unwrap_or(default);
    let (frame_bytes, frames): (u64, u64) = match device.kind() {
        DeviceKind::AfPacket => {
            let ring = af_packet_ring(device);
            (ring.frame_bytes.into(), u64::from(ring.frames).saturating_mul(queues(device, cores) as u64))
        }
        // Without our sizes the driver has its own.
        DeviceKind::Eal if device.target().starts_with("net_af_packet") => {
            (number("framesz", 2048), number("framecnt", 512).saturating_mul(number("qpairs", 1)))
        }
        _ => return 0,
    };
    frame_bytes.saturating_mul(frames).saturating_mul(2) / 1024
}

/// Returns the geometry of the rings of a packet socket. A frame holds the largest packet; a block is whole
/// pages for the kernel and whole frames for the driver, which expects them one after the other.
fn af_packet_ring(device: &DeviceName) -> AfPacketRing {
    let number = |wanted| option(device, wanted).and_then(|value| value.parse::<u32>().ok());
    let frame_bytes = if device.has_super_frames() {
        AF_PACKET_SUPER_FRAME_BYTES
    } else {
        (u32::from(device.mtu()) + AF_PACKET_SPARE_BYTES).next_multiple_of(AF_PACKET_ALIGN_BYTES)
    };
    let frame_bytes = number("framesz").unwrap_or(frame_bytes.max(AF_PACKET_SMALL_BYTES));
    let small = frame_bytes <= AF_PACKET_SMALL_BYTES;
    // The power of two in a page that a frame does not have.
    let frames = PAGE_BYTES >> frame_bytes.trailing_zeros().min(PAGE_BYTES.trailing_zeros());
    let block_bytes = if small { 1 << 16 } else { frame_bytes.saturating_mul(frames) };
    let block_bytes = number("blocksz").unwrap_or(block_bytes);
    let frames = match frame_bytes {
        _ if small => AF_PACKET_SMALL_FRAMES,
        AF_PACKET_SUPER_FRAME_BYTES.. => AF_PACKET_SUPER_FRAMES,
        _ => AF_PACKET_LARGE_FRAMES,
    };
    let frames = number("framecnt").unwrap_or(frames);
    AfPacketRing { frame_bytes, block_bytes, frames }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(name: &str) -> (String, Option<String>) {
        arguments_for(name, 1)
    }

    fn arguments_for(name: &str, cores: usize) -> (String, Option<String>) {
        let arguments = port_arguments(&name.parse().unwrap(), 3, cores).unwrap();
        (arguments.port, arguments.vdev)
    }

    #[test]
    fn devices_are_virtual_or_on_a_bus() {
        for (name, port, vdev) in [
            ("tap:tap0,mac=fixed", "net_tap3", Some("net_tap3,iface=tap0,mac=fixed")),
            ("af_xdp:e1", "net_af_xdp3", Some("net_af_xdp3,iface=e1,queue_count=1")),
            ("memif:/s", "net_memif3", Some("net_memif3,socket=/s,socket-abstract=no,role=server")),
            (
                "memif:/s,role=client",
                "net_memif3",
                Some("net_memif3,socket=/s,socket-abstract=no,role=client"),
            ),
            ("vhost:/s", "net_vhost3", Some("net_vhost3,iface=/s,queues=1")),
            ("vhost:/s,super_frames=on", "net_vhost3", Some("net_vhost3,iface=/s,queues=1,tso=1")),
            ("vhost:/s,super_frames=on,tso=0", "net_vhost3", Some("net_vhost3,iface=/s,queues=1,tso=0")),
            ("virtio_user:/s", "net_virtio_user3", Some("net_virtio_user3,path=/s,queues=1")),
            (
                "virtio_user:/s,super_frames=on,queue_size=64",
                "net_virtio_user3",
                Some("net_virtio_user3,path=/s,queues=1,queue_size=64"),
            ),
            ("pci:01:00.0,address=198.18.0.1,x=1", "0000:01:00.0", None),
            ("eal:net_null0,size=64,mtu=9000", "net_null0", Some("net_null0,size=64")),
            ("eal:0000:01:00.0", "0000:01:00.0", None),
        ] {
            assert_eq!(arguments(name), (port.into(), vdev.map(str::to_owned)), "{name}");
        }
        assert_eq!(port_arguments(&"ring".parse().unwrap(), 0, 1), None);
        let pci = "pci:01:00.0,address=198.18.0.1,x=1,super_frames=on,queues=one".parse().unwrap();
        assert_eq!(pci_argument(&pci).as_deref(), Some("0000:01:00.0,x=1"));
    }

    /// Several cores have a queue each where that is for this end to decide, or the name says so.
    #[test]
    fn queues_are_as_many_as_the_cores() {
        for (name, expected) in [
            ("tap:t", "iface=t"),
            ("af_packet:e,framecnt=64", "qpairs=2"),
            ("af_packet:e,framecnt=64,queues=one", "qpairs=1"),
            // It has one, here as anywhere.
            ("af_xdp:lo", "queue_count=1"),
            ("af_xdp:none-such", "queue_count=1"),
            ("vhost:/s", "queues=1"),
            ("vhost:/s,queues=each", "queues=2"),
            ("virtio_user:/s,queues=one", "queues=1"),
            ("virtio_user:/s,queues=each", "queues=2"),
            ("eal:net_vhost0,iface=/s,queues=3", "queues=3"),
        ] {
            let vdev = arguments_for(name, 2).1.unwrap();
            assert_eq!(vdev.rsplit(',').next(), Some(expected), "{name}: {vdev}");
            assert_eq!(
                vdev.matches("queues=").count(),
                usize::from(expected.starts_with("queues=")),
                "{vdev}"
            );
        }
    }

    /// Channels without a queue are reported, with the command that does without them.
    #[test]
    fn channels_beyond_the_queues_are_reported() {
        let device = "af_xdp:e1".parse().unwrap();
        assert_eq!(beyond(&device, 0, 1), None, "the kernel does not say");
        assert_eq!(beyond(&device, 2, 2), None);
        let warning = beyond(&device, 8, 2).unwrap().to_string();
        assert!(warning.contains("'e1' has 8 channels") && warning.contains("ethtool -L e1 combined 2"));
        assert_eq!(beyond(&"af_xdp:e1,start_queue=1".parse().unwrap(), 8, 1), None, "what is steered there");
    }

    /// Options of the name override the sizes that follow from the MTU.
    #[test]
    fn the_ring_of_a_packet_socket_follows_the_mtu() {
        for (name, ring) in [
            ("af_packet:e", "framesz=2048,blocksz=65536,framecnt=4096"),
            ("af_packet:e,mtu=9000", "framesz=9216,blocksz=36864,framecnt=512"),
            ("af_packet:e,mtu=4000", "framesz=4224,blocksz=135168,framecnt=512"),
            ("af_packet:e,super_frames=on", "framesz=65408,blocksz=2093056,framecnt=256"),
            ("af_packet:e,framecnt=64", "framesz=2048,blocksz=65536,framecnt=64"),
            ("af_packet:e,framesz=4096,blocksz=8192", "framesz=4096,blocksz=8192,framecnt=512"),
        ] {
            assert_eq!(arguments(name).1, Some(format!("net_af_packet3,iface=e,{ring},qpairs=1")), "{name}");
        }
    }

    #[test]
    fn the_memory_of_a_packet_socket_is_that_of_both_rings() {
        for (name, kib) in [
            ("af_packet:e", 16_384),
            ("af_packet:e,framecnt=1024", 4096),
            ("eal:net_af_packet0,iface=e", 2048),
            ("eal:net_af_packet0,iface=e,framesz=4096,framecnt=64,qpairs=2", 1024),
            ("eal:net_af_packet0,iface=e,framesz=x", 2048),
            ("eal:net_null0", 0),
            ("tap:e", 0),
        ] {
            assert_eq!(locked_kib(&name.parse().unwrap(), 1), kib, "{name}");
        }
        assert_eq!(locked_kib(&"af_packet:e".parse().unwrap(), 2), 32_768);
    }

    /// For each MTU: a frame has room for the packet and fits a receive buffer; a block is whole pages and
    /// whole frames, and the ring is whole blocks.
    #[test]
    fn every_ring_suits_kernel_and_driver() {
        for mtu in 576..=9600 {
            let ring = af_packet_ring(&format!("af_packet:e,mtu={mtu}").parse().unwrap());
            let AfPacketRing { frame_bytes: frame, block_bytes: block, frames } = ring;
            assert!(frame >= mtu + 18 + 32 + 48 && frame - 32 <= (mtu + 256).max(2048), "{mtu}: {ring}");
            assert_eq!((block % 4096, block % frame, frames % (block / frame)), (0, 0, 0), "{mtu}: {ring}");
        }
    }
}
