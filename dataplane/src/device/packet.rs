//! Packet sockets of Linux as devices (packet(7)): frames of an interface that the kernel has, without DPDK.
//!
//! A frame is copied once each way, between a ring that the kernel maps into this process and a buffer of the
//! device. Receiving takes no system call; a burst to send takes one. The kernel fills in TCP checksums, cuts
//! super-frames, and hands over what it has joined (GRO) or what a peer in this machine has left to a device
//! (TSO) as it is, with its checksum partial: such a frame never left memory, so it counts as intact.
//!
//! [`PacketDevice`] keeps its frames in memory of the process. In a build with DPDK a
//! `DpdkDevice` may have a packet socket too, with frames in DPDK's buffers.

mod frame;

use std::any::Any;
use std::os::fd::AsFd;

use ::packet::{Checksum, Config, Flushed, Offload, PacketSocket, Segmentation};
pub use ::packet::{FRAME_MAX_OCTETS, Fanout, Filter, PacketError, PortShadow, hold_row};

use super::{
    Capabilities, ChecksumRequest, Device, Frame, IpVersion, RxInterrupt, RxTrigger, SUPER_FRAME_MAX_BYTES,
};
use crate::time::Instant;
use crate::wire::checksum;
use crate::wire::ethernet::{self, MacAddress};
use frame::FrameBuffers;
pub use frame::PacketFrame;

/// Octets of an Ethernet header, with a VLAN tag.
const HEADER_OCTETS: usize = 18;
/// Octets of the two addresses, after which a tag stands.
const ADDRESSES_OCTETS: usize = 12;
/// The number of the VLAN in a tag (IEEE 802.1Q).
const VLAN_ID: u16 = 0x0fff;
/// Where the checksum lies in a TCP header.
const TCP_CHECKSUM: u16 = 16;

/// Slots of the ring of received frames: what arrives while another process has the CPU. Fewer where each
/// takes 64 KiB.
const RECEIVE_SLOTS: usize = 4096;
const RECEIVE_SLOTS_JOINED: usize = 256;
/// Slots of the ring of frames to send. What finds none waits in its connection.
const TRANSMIT_SLOTS: usize = 256;
const TRANSMIT_SLOTS_JOINED: usize = 64;

/// What a packet socket is opened with.
#[derive(Clone, Copy, Debug)]
pub struct PacketConfig<'a> {
    /// The interface of the kernel.
    pub interface: &'a str,
    /// The largest IP packet, in bytes.
    pub mtu_bytes: usize,
    /// Whether super-frames pass, both ways: with the octets of the largest buffer for one, no more than
    /// [`FRAME_MAX_OCTETS`]. Without them a packet that is longer than the MTU is cut.
    pub super_frame_octets: Option<usize>,
    /// A group of sockets on which the kernel spreads flows.
    pub fanout: Option<Fanout>,
    /// Which frames are received; all, if there is none.
    pub filter: Option<&'a Filter>,
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
    /// Octets of the largest frame, for which the buffers that frames are received into and sent from have
    /// room.
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

/// A packet socket.
pub struct PacketQueue {
    socket: PacketSocket,
    shape: PacketShape,
    /// Frames wait in the ring for which the interface was busy: they are offered again by the next poll.
    is_waiting: bool,
    /// The interface was down when frames were sent last. They wait for others to be sent, of which there
    /// will be some, for nobody acknowledges them.
    is_down: bool,
    /// Dropped after the socket is closed.
    kept: Option<Box<dyn Any + Send>>,
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
        let PacketConfig { interface, mtu_bytes, super_frame_octets, fanout, filter } = *config;
        let super_frames = super_frame_octets.is_some();
        let frame_octets = super_frame_octets.unwrap_or(mtu_bytes + HEADER_OCTETS);
        let (receive_frames, transmit_frames) = if super_frames {
            (RECEIVE_SLOTS_JOINED, TRANSMIT_SLOTS_JOINED)
        } else {
            (RECEIVE_SLOTS, TRANSMIT_SLOTS)
        };
        let socket = PacketSocket::open(&Config {
            interface,
            frame_octets,
            receive_frames,
            transmit_frames,
            fanout,
            filter,
        })?;
        let shape = PacketShape { mac: MacAddress(socket.mac()), mtu_bytes, super_frames, frame_octets };
        Ok(Self { socket, shape, is_waiting: false, is_down: false, kept: None })
    }

    /// Keeps `right`, such as a claim to an address, as long as the socket is open.
    #[must_use]
    pub fn keeping(mut self, right: impl Any + Send) -> Self {
        self.kept = Some(Box::new(right));
        self
    }

    /// Returns the number of the group that the socket has joined.
    pub fn fanout_group(&self) -> Option<u16> {
        self.socket.fanout_group()
    }

    /// Returns how frames are received and sent.
    pub const fn shape(&self) -> PacketShape {
        self.shape
    }

    /// Returns true if a frame has arrived, or some to send wait.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.is_waiting || self.socket.has_frames()
    }

    /// Returns true if frames to send wait for the next poll.
    pub(super) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Has the kernel send what is in the ring.
    fn flush(&mut self) {
        match self.socket.flush() {
            Flushed::All => (self.is_waiting, self.is_down) = (false, false),
            Flushed::Waiting => self.is_waiting = !self.is_down,
            Flushed::Down | Flushed::Gone => (self.is_waiting, self.is_down) = (false, true),
        }
    }

    /// Takes up to `limit` frames, as [`Device::receive`] does, into buffers of `buffers`. While there is
    /// none, frames stay in the ring.
    pub(super) fn receive<B: Buffers>(
        &mut self,
        buffers: &mut B,
        frames: &mut Vec<B::Frame>,
        limit: usize,
    ) -> usize {
        if self.is_waiting {
            self.flush();
        }
        let before = frames.len();
        for _ in 0..limit {
            if !self.socket.has_frames() {
                break;
            }
            let Some(mut frame) = buffers.allocate() else { break };
            let Some(received) = self.socket.receive() else { break };
            if copy_received(received.octets(), received.vlan_tci(), &mut frame).is_none() {
                continue;
            }
            if received.checksum() != Checksum::Unknown {
                B::set_intact(&mut frame);
            }
            frames.push(frame);
        }
        frames.len() - before
    }

    /// Takes frames from the front of `frames`, as [`Device::transmit`] does.
    pub(super) fn transmit<B: Buffers>(&mut self, frames: &mut Vec<B::Frame>) -> usize {
        let mut taken = 0;
        for frame in frames.iter() {
            let Some(mut slot) = self.socket.slot() else { break };
            let request = B::request(frame);
            if let Some(octets) = copy_to_send(frame, request.as_ref(), slot.room()) {
                slot.send(octets, request.map(|request| request.offload()));
            }
            taken += 1;
        }
        if taken == frames.len() {
            B::Frame::free_all(frames);
        } else {
            frames.drain(..taken);
        }
        self.flush();
        taken
    }

    pub(super) fn rx_interrupt(&self) -> RxInterrupt<'_> {
        RxInterrupt { fd: self.socket.as_fd(), trigger: RxTrigger::Level }
    }

    /// Prepares to wait for the descriptor, which an error of the interface would have ready for ever.
    pub(super) fn enable_rx_interrupt(&mut self) {
        let _ = self.socket.take_error();
    }
}

/// Copies a frame out of the ring, with its tag, which the kernel keeps beside it: a tag of no VLAN, for a
/// priority alone, is left out. `None` if the frame has no room for it.
#[inline]
fn copy_received(octets: &[u8], vlan_tci: Option<u16>, frame: &mut impl Frame) -> Option<()> {
    match vlan_tci.filter(|tci| tci & VLAN_ID != 0) {
        None => frame.append(octets.len())?.copy_from_slice(octets),
        Some(tci) => {
            let (addresses, rest) = octets.split_at_checked(ADDRESSES_OCTETS)?;
            let room = frame.append(octets.len() + ethernet::Tag::LEN)?;
            room[..ADDRESSES_OCTETS].copy_from_slice(addresses);
            let tag = &mut room[ADDRESSES_OCTETS..][..ethernet::Tag::LEN];
            tag[..2].copy_from_slice(&ethernet::EtherType::VLAN.0.to_be_bytes());
            tag[2..].copy_from_slice(&tci.to_be_bytes());
            room[ADDRESSES_OCTETS + ethernet::Tag::LEN..].copy_from_slice(rest);
        }
    }
    Some(())
}

/// Copies a frame to `room`, and returns its octets; `None` if there is no room for it. The kernel takes the
/// sum of a super-frame's pseudo-header with its length, which is not in it yet.
#[inline]
fn copy_to_send(frame: &impl Frame, request: Option<&TransmitRequest>, room: &mut [u8]) -> Option<usize> {
    let mut octets = 0;
    let mut index = 0;
    while let Some(piece) = frame.piece(index) {
        room.get_mut(octets..octets + piece.len())?.copy_from_slice(piece);
        octets += piece.len();
        index += 1;
    }
    if let Some(TransmitRequest { headers, segment_octets: Some(_) }) = request {
        let transport = usize::from(headers.l2_octets) + usize::from(headers.l3_octets);
        let field = transport + usize::from(TCP_CHECKSUM);
        let length = octets.checked_sub(transport)? as u16;
        let field = room.get_mut(field..field + 2)?.first_chunk_mut()?;
        *field = checksum::add(u16::from_be_bytes(*field), length).to_be_bytes();
    }
    Some(octets)
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

impl PacketDevice {
    /// Returns a device over `queue`, or of a core without one, whose frames are received and sent as `shape`
    /// says.
    pub fn new(queue: Option<PacketQueue>, shape: PacketShape) -> Self {
        let frames = if shape.super_frames { BUFFERS_JOINED } else { BUFFERS };
        Self { queue, buffers: FrameBuffers::new(frames, shape.frame_octets), shape, sharing: 1 }
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

    fn next_arrival(&self) -> Option<Instant> {
        self.queue.as_ref().is_some_and(PacketQueue::is_waiting).then_some(Instant::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: ChecksumRequest = ChecksumRequest {
        ip: IpVersion::V4,
        ip_checksum: false,
        l2_octets: 14,
        l3_octets: 20,
        l4_octets: 20,
    };

    /// The kernel goes on with a sum that has the length of what it cuts; what fits no slot is not sent.
    #[test]
    fn a_super_frame_has_the_length_in_its_sum() {
        let mut buffers = FrameBuffers::new(1, 4096);
        let mut frame = buffers.allocate().unwrap();
        frame.append(14 + 20 + 20 + 3000).unwrap().fill(0);
        frame.first_mut()[50..52].copy_from_slice(&[0xff, 0xf0]);
        frame.request_segmentation(HEADERS, 1460);
        let request = frame.request();
        let mut room = [0; 4096];
        assert_eq!(copy_to_send(&frame, request.as_ref(), &mut room), Some(3054));
        // 0xfff0 + 3020, with the carry added.
        assert_eq!(u16::from_be_bytes([room[50], room[51]]), 0x0bbd);
        assert!(room[..50] == frame.piece(0).unwrap()[..50] && room[52..3054] == [0; 3002]);
        let expected = Segmentation { segment_octets: 1460, header_octets: 54, ipv6: false };
        let offload = request.unwrap().offload();
        assert_eq!((offload.checksum_start, offload.checksum_offset), (34, 16));
        assert_eq!(offload.segmentation, Some(expected));
        assert_eq!(copy_to_send(&frame, request.as_ref(), &mut room[..3053]), None);
        // One segment's sum has its length already.
        frame.request_checksums(ChecksumRequest { ip: IpVersion::V6, l3_octets: 40, ..HEADERS });
        let request = frame.request();
        assert_eq!(copy_to_send(&frame, request.as_ref(), &mut room), Some(3054));
        assert_eq!(room[50..52], [0xff, 0xf0]);
        let offload = request.unwrap().offload();
        assert_eq!((offload.checksum_start, offload.segmentation), (54, None));
    }

    /// A tag goes back to where the kernel has taken it from, unless it names no VLAN.
    #[test]
    fn tags_are_put_back() {
        let received: Vec<u8> = (0..60).collect();
        for (tci, expected) in [(None, 60), (Some(0xe000), 60), (Some(0), 60), (Some(0xe007), 64)] {
            let mut buffers = FrameBuffers::new(1, 64);
            let mut frame = buffers.allocate().unwrap();
            assert_eq!(copy_received(&received, tci, &mut frame), Some(()));
            let octets = frame.piece(0).unwrap();
            assert_eq!((octets.len(), &octets[..12]), (expected, &received[..12]), "{tci:?}");
            assert_eq!(octets[octets.len() - 48..], received[12..]);
            assert!(expected == 60 || octets[12..16] == [0x81, 0, 0xe0, 7]);
        }
        // What fits no buffer, or has no addresses, is no frame.
        let mut buffers = FrameBuffers::new(1, 63);
        let mut frame = buffers.allocate().unwrap();
        assert_eq!(copy_received(&received, Some(7), &mut frame), None);
        assert_eq!(copy_received(&received[..11], Some(7), &mut frame), None);
    }

    /// A device without super-frames offers none, and both leave checksums to the kernel.
    #[test]
    fn a_device_offers_what_its_socket_does() {
        let shape = PacketShape {
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            mtu_bytes: 1500,
            super_frames: false,
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
    }
}
