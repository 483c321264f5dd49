//! Packet sockets of Linux as devices (packet(7)): frames of an interface that the kernel has, without DPDK.
//!
//! A received frame is copied from a ring that the kernel maps into this process to a buffer of the device,
//! without a system call. A burst to send takes one, in which the kernel copies the frames. The kernel fills
//! in TCP checksums, cuts super-frames, and hands over what it has joined (GRO) or what a peer in this
//! machine has left to a device (TSO) as it is, with its checksum partial: such a frame never left memory, so
//! it counts as intact.
//!
//! [`PacketDevice`] keeps its frames in memory of the process. In a build with DPDK a
//! `DpdkDevice` may have a packet socket too, with frames in DPDK's buffers.

mod frame;
mod heard_ports;
mod socket;

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};

use ::packet::{Config, Offload, PacketSocket, SLOT_SPARE_OCTETS, Segmentation};
pub use ::packet::{FRAME_MAX_OCTETS, Fanout, Filter, PacketError, PortShadow, hold_row};

use super::{
    Capabilities, ChecksumRequest, Device, Frame, IpVersion, RxInterrupt, RxTrigger, SUPER_FRAME_MAX_BYTES,
    THIS_MACHINE,
};
use crate::time::Instant;
use crate::wire::ethernet::{self, MacAddress};
use frame::FrameBuffers;
pub use frame::PacketFrame;
use heard_ports::ALL_PORTS;
pub use heard_ports::{HeardPorts, SharedAddresses};
use socket::Socket;

/// Octets of an Ethernet header, with a VLAN tag.
const HEADER_OCTETS: usize = 18;
/// Octets of a hardware address that are those of [`THIS_MACHINE`] in the addresses of its programs.
const PROGRAM_PREFIX: usize = 3;
/// Where the checksum lies in a TCP header.
const TCP_CHECKSUM: u16 = 16;

/// Slots of the ring of received frames: what arrives while another process has the CPU. Fewer where each
/// takes 64 KiB.
const RECEIVE_SLOTS: usize = 4096;
const RECEIVE_SLOTS_JOINED: usize = 256;
/// Frames that may be on their way to the interface at the same time. Others wait in the core, and for it in
/// their connections.
const TRANSMIT_FRAMES: usize = 256;
const TRANSMIT_FRAMES_JOINED: usize = 64;

/// What a packet socket is opened with.
#[derive(Clone, Copy, Debug)]
pub struct PacketConfig<'a> {
    /// The interface of the kernel.
    pub interface: &'a str,
    /// The largest IP packet, in bytes.
    pub mtu_bytes: usize,
    /// Whether super-frames pass, both ways: with the octets of the largest, no more than
    /// [`FRAME_MAX_OCTETS`]. Buffers take [some more](BUFFER_SPARE_OCTETS). Without super-frames a packet
    /// that is longer than the MTU is cut.
    pub super_frame_octets: Option<usize>,
    /// A group of sockets on which the kernel spreads flows.
    pub fanout: Option<Fanout>,
    /// Which frames are received.
    pub filtering: Filtering<'a>,
}

/// Which frames a packet socket receives.
#[derive(Clone, Copy, Debug)]
pub enum Filtering<'a> {
    /// Those that pass this filter.
    Own(&'a Filter),
    /// Those to addresses that the device shares with the kernel and other programs of this machine, and to
    /// the ports that it [has](HeardPorts). These programs reach each other on the loopback interface, by a
    /// hardware address for each.
    Shared(SharedAddresses<'a>),
}

/// What a device is asked to do as it sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitRequest {
    /// Where the headers are.
    pub headers: ChecksumRequest,
    /// Octets of payload in each segment of a super-frame.
    pub segment_octets: Option<u16>,
}

impl TransmitRequest {
    /// Returns the request as the kernel takes it.
    fn offload(&self) -> Offload {
        let ChecksumRequest { ip, l2_octets, l3_octets, l4_octets, .. } = self.headers;
        let checksum_start = u16::from(l2_octets) + u16::from(l3_octets);
        let segmentation = self.segment_octets.map(|segment_octets| Segmentation {
            segment_octets,
            header_octets: checksum_start + u16::from(l4_octets),
            ipv6: ip == IpVersion::V6,
        });
        Offload { checksum_start, checksum_offset: TCP_CHECKSUM, segmentation }
    }
}

/// How frames are received and sent by a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketShape {
    /// The hardware address of the interface.
    pub mac: MacAddress,
    /// The largest IP packet, in bytes.
    pub mtu_bytes: usize,
    /// Whether super-frames pass.
    pub super_frames: bool,
    /// Whether programs of this machine are reached.
    pub reaches_programs: bool,
    /// Octets of the largest frame, for which the buffers that frames are received into and sent from have
    /// room, and for [some more](BUFFER_SPARE_OCTETS).
    pub frame_octets: usize,
}

impl PacketShape {
    /// Returns the capabilities of a device with so many buffers.
    pub(super) const fn capabilities(&self, frames: usize) -> Capabilities {
        Capabilities {
            mtu_bytes: self.mtu_bytes,
            transmit_checksums: true,
            transmit_ip_checksums: false,
            gather: false,
            super_frame_bytes: if self.super_frames { SUPER_FRAME_MAX_BYTES } else { self.mtu_bytes },
            super_frame_pieces: 1,
            frames,
            frame_bytes: self.frame_octets,
        }
    }
}

/// The frames of a device as its packet socket needs them.
pub(super) trait Buffers {
    type Frame: Frame;

    /// Returns an empty frame; `None` if no buffer is free.
    fn allocate(&mut self) -> Option<Self::Frame>;

    /// Has a received frame pass as one whose TCP checksum was verified.
    fn set_intact(frame: &mut Self::Frame);

    /// Returns what is asked of the device that sends a frame.
    fn request(frame: &Self::Frame) -> Option<TransmitRequest>;
}

/// A packet socket on an interface, and one on the loopback interface if it is to reach programs of this
/// machine.
pub struct PacketQueue {
    wire: Socket,
    programs: Option<ToPrograms>,
    shape: PacketShape,
    /// Until control takes them.
    heard_ports: Option<HeardPorts>,
    /// Dropped after the sockets are closed.
    kept: Option<Box<dyn Any + Send>>,
}

/// The way to programs of this machine.
struct ToPrograms {
    socket: Socket,
    /// The hardware address of this program.
    source: MacAddress,
    /// Readable while a frame has arrived on either socket.
    either: OwnedFd,
}

impl core::fmt::Debug for PacketQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PacketQueue").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl PacketQueue {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// [`PacketError`].
    pub fn open(config: &PacketConfig<'_>) -> Result<Self, PacketError> {
        let PacketConfig { interface, mtu_bytes, super_frame_octets, fanout, filtering } = *config;
        let super_frames = super_frame_octets.is_some();
        let frame_octets = super_frame_octets.unwrap_or(mtu_bytes + HEADER_OCTETS);
        let (receive_frames, transmit_frames) = if super_frames {
            (RECEIVE_SLOTS_JOINED, TRANSMIT_FRAMES_JOINED)
        } else {
            (RECEIVE_SLOTS, TRANSMIT_FRAMES)
        };
        let config =
            Config { interface, frame_octets, receive_frames, transmit_frames, fanout, filter: None };
        let (wire, shared) = match filtering {
            Filtering::Own(filter) => (PacketSocket::open(&Config { filter: Some(filter), ..config })?, None),
            Filtering::Shared(shared) => {
                let [on_wire, among_programs] = [shared.on_wire(ALL_PORTS), shared.among_programs(ALL_PORTS)];
                let wire = PacketSocket::open(&Config { filter: Some(&on_wire), ..config })?;
                let programs = Config { fanout: None, filter: Some(&among_programs), ..config };
                let programs = PacketSocket::open_on_loopback(&programs)?;
                let heard_ports = HeardPorts::new(&shared, &wire, &programs)?;
                let either = ::packet::watch(&[&wire, &programs])?;
                let programs = ToPrograms { socket: Socket::new(programs), source: shared.source, either };
                (wire, Some((programs, heard_ports)))
            }
        };
        let reaches_programs = shared.is_some();
        let mac = MacAddress(wire.mac());
        let shape = PacketShape { mac, mtu_bytes, super_frames, reaches_programs, frame_octets };
        let (programs, heard_ports) = shared.unzip();
        Ok(Self { wire: Socket::new(wire), programs, shape, heard_ports, kept: None })
    }

    /// Returns the handle by which the sockets learn the ports that the device has, once, if it shares its
    /// addresses.
    pub(super) const fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        self.heard_ports.take()
    }

    /// Returns how many frames were dropped because there was no room in a ring or in a buffer.
    pub(super) fn missed_frames(&self) -> u64 {
        self.wire.missed_frames() + self.programs.as_ref().map_or(0, |to| to.socket.missed_frames())
    }

    /// Returns how many frames the kernel would not send.
    pub(super) fn unsent_frames(&self) -> u64 {
        self.wire.unsent_frames() + self.programs.as_ref().map_or(0, |to| to.socket.unsent_frames())
    }

    /// Keeps `right`, such as a claim to an address, as long as the socket is open.
    #[must_use]
    pub fn keeping(mut self, right: impl Any + Send) -> Self {
        self.kept = Some(Box::new(right));
        self
    }

    /// Returns the number of the group that the socket has joined.
    pub fn fanout_group(&self) -> Option<u16> {
        self.wire.fanout_group()
    }

    /// Returns how frames are received and sent.
    pub const fn shape(&self) -> PacketShape {
        self.shape
    }

    /// Returns true if a frame has arrived.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.wire.has_frames() || self.programs.as_ref().is_some_and(|to| to.socket.has_frames())
    }

    /// Takes up to `limit` frames, as [`Device::receive`] does, into buffers of `buffers`. While there is
    /// none, frames stay in the ring.
    pub(super) fn receive<B: Buffers>(
        &mut self,
        buffers: &mut B,
        frames: &mut Vec<B::Frame>,
        limit: usize,
    ) -> usize {
        let Some(to) = &mut self.programs else { return self.wire.receive(buffers, frames, limit, None) };
        // Half of them from each, if both have as many.
        let from_programs = to.socket.receive(buffers, frames, limit.div_ceil(2), Some(self.shape.mac));
        from_programs + self.wire.receive(buffers, frames, limit - from_programs, None)
    }

    /// Takes frames from the front of `frames`, as [`Device::transmit`] does.
    pub(super) fn transmit<B: Buffers>(&mut self, frames: &mut Vec<B::Frame>) -> usize {
        let taken = match &mut self.programs {
            None => self.wire.send::<B>(frames, None),
            Some(to) => to.send_beside::<B>(&mut self.wire, frames),
        };
        if taken == frames.len() {
            B::Frame::free_all(frames);
        } else {
            frames.drain(..taken);
        }
        taken
    }

    pub(super) fn rx_interrupt(&self) -> RxInterrupt<'_> {
        let fd = self.programs.as_ref().map_or(self.wire.as_fd(), |to| to.either.as_fd());
        RxInterrupt { fd, trigger: RxTrigger::Level }
    }

    /// Prepares to wait for the descriptor, which an error of the interface would have ready for ever.
    pub(super) fn enable_rx_interrupt(&mut self) {
        self.wire.clear_error();
        if let Some(to) = &mut self.programs {
            to.socket.clear_error();
        }
    }
}

impl ToPrograms {
    /// Takes frames from the front of `frames` that are for programs of this machine, or for `wire`.
    fn send_beside<B: Buffers>(&mut self, wire: &mut Socket, frames: &[B::Frame]) -> usize {
        let mut taken = 0;
        for group in frames.chunk_by(|one, next| is_for_program(one) == is_for_program(next)) {
            let sent = if is_for_program(&group[0]) {
                self.socket.send::<B>(group, Some((MacAddress([0; 6]), self.source)))
            } else {
                wire.send::<B>(group, None)
            };
            taken += sent;
            if sent < group.len() {
                break;
            }
        }
        taken
    }
}

/// Returns true if a frame is for a program of this machine.
#[inline]
fn is_for_program(frame: &impl Frame) -> bool {
    frame.piece(0).is_some_and(|octets| octets.starts_with(&THIS_MACHINE.0[..PROGRAM_PREFIX]))
}

/// A device on a packet socket, with frames in memory of this process; or that of a core without a socket,
/// for which another one sends and receives.
pub struct PacketDevice {
    queue: Option<PacketQueue>,
    buffers: FrameBuffers,
    shape: PacketShape,
    /// Cores among which the buffers' frames are handed out.
    sharing: usize,
}

impl core::fmt::Debug for PacketDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PacketDevice").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// Buffers of a device, and of one whose frames may have 64 KiB.
const BUFFERS: usize = 4096;
const BUFFERS_JOINED: usize = 1024;
/// Octets of a buffer beyond the longest frame. A slot of the ring holds some more, and a tag is put back, so
/// that a frame that is cut to its slot still fits, and is counted as what it is.
pub const BUFFER_SPARE_OCTETS: usize = SLOT_SPARE_OCTETS + ethernet::Tag::LEN;

impl PacketDevice {
    /// Returns a device over `queue`, or of a core without one, whose frames are received and sent as `shape`
    /// says.
    pub fn new(queue: Option<PacketQueue>, shape: PacketShape) -> Self {
        let frames = if shape.super_frames { BUFFERS_JOINED } else { BUFFERS };
        let buffers = FrameBuffers::new(frames, shape.frame_octets + BUFFER_SPARE_OCTETS);
        Self { queue, buffers, shape, sharing: 1 }
    }

    /// Counts the buffers as shared among `cores` cores, at least one: frames that they have received come to
    /// all of them, and each may keep no more than its part.
    #[must_use]
    pub const fn sharing_frames(mut self, cores: usize) -> Self {
        self.sharing = cores;
        self
    }
}

impl Buffers for FrameBuffers {
    type Frame = PacketFrame;

    #[inline]
    fn allocate(&mut self) -> Option<PacketFrame> {
        FrameBuffers::allocate(self)
    }

    #[inline]
    fn set_intact(frame: &mut PacketFrame) {
        frame.set_intact();
    }

    #[inline]
    fn request(frame: &PacketFrame) -> Option<TransmitRequest> {
        frame.request()
    }
}

impl Device for PacketDevice {
    type Frame = PacketFrame;

    fn capabilities(&self) -> Capabilities {
        self.shape.capabilities(self.buffers.len() / self.sharing)
    }

    fn mac(&self) -> MacAddress {
        self.shape.mac
    }

    fn reaches_programs(&self) -> bool {
        self.shape.reaches_programs
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        self.queue.as_mut().and_then(PacketQueue::take_heard_ports)
    }

    fn missed_frames(&self) -> u64 {
        self.queue.as_ref().map_or(0, PacketQueue::missed_frames)
    }

    fn unsent_frames(&self) -> u64 {
        self.queue.as_ref().map_or(0, PacketQueue::unsent_frames)
    }

    #[inline]
    fn may_have_frames(&self) -> bool {
        self.queue.as_ref().is_some_and(PacketQueue::has_frames)
    }

    fn receive(&mut self, _: Instant, frames: &mut Vec<PacketFrame>, limit: usize) -> usize {
        self.queue.as_mut().map_or(0, |queue| queue.receive(&mut self.buffers, frames, limit))
    }

    fn allocate(&mut self) -> Option<PacketFrame> {
        self.buffers.allocate()
    }

    fn transmit(&mut self, _: Instant, frames: &mut Vec<PacketFrame>) -> usize {
        self.queue.as_mut().map_or(0, |queue| queue.transmit::<FrameBuffers>(frames))
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.queue.as_ref().map(PacketQueue::rx_interrupt)
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        self.queue.as_mut().map(PacketQueue::enable_rx_interrupt).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device without super-frames offers none, and both leave checksums to the kernel.
    #[test]
    fn a_device_offers_what_its_socket_does() {
        let shape = PacketShape {
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            mtu_bytes: 1500,
            super_frames: false,
            reaches_programs: false,
            frame_octets: 1518,
        };
        let mut device = PacketDevice::new(None, shape).sharing_frames(2);
        let offered = device.capabilities();
        assert_eq!((offered.super_frame_bytes, offered.frames), (1500, BUFFERS / 2));
        assert!(offered.transmit_checksums && !offered.transmit_ip_checksums && !offered.gather);
        let joined = PacketShape { super_frames: true, frame_octets: FRAME_MAX_OCTETS, ..shape };
        assert_eq!(joined.capabilities(64).super_frame_bytes, SUPER_FRAME_MAX_BYTES);
        // A core without a socket has frames, and neither sends nor receives.
        let mut frames = vec![device.allocate().unwrap()];
        assert_eq!(device.transmit(Instant::ZERO, &mut frames), 0);
        assert_eq!(device.receive(Instant::ZERO, &mut frames, 32), 0);
        assert!(frames.len() == 1 && !device.may_have_frames() && device.rx_interrupt().is_none());
        assert!(!device.enable_rx_interrupt() && device.next_arrival().is_none());
        assert!(!device.reaches_programs());
        assert!(PacketDevice::new(None, PacketShape { reaches_programs: true, ..shape }).reaches_programs());
    }
}
