//! DPDK ports, and wires in memory, as devices.

mod core_wires;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use dpdk::{
    ExternalPieces, Headers, Mbuf, Mempool, PortCapabilities, QueuePair, RunningPort, WireConfig, WireEnd,
};

use super::packet::{Buffers, HeardPorts, PacketQueue, PacketShape, TransmitRequest};
use super::partial_checksum::is_partial;
use super::{
    Capabilities, ChecksumRequest, ChecksumStatus, Device, Frame, IpVersion, ReceivedChecksums, RxInterrupt,
    RxTrigger, SUPER_FRAME_MAX_BYTES,
};
use crate::memory::{HugeBacking, Region};
use crate::steering::Steering;
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;
use core_wires::CoreWires;
pub use core_wires::{CoreWiresError, core_wires};

/// Octets an Ethernet header takes, with a VLAN tag.
const HEADER_OCTETS: usize = 18;

/// The pool's buffers do not take a full frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frames of {frame_bytes} bytes are sent from one buffer, but the pool's take {data_bytes}")]
pub struct PoolTooSmall {
    /// Octets of the largest frame.
    pub frame_bytes: usize,
    /// Octets a buffer takes.
    pub data_bytes: usize,
}

/// A queue pair of a port, or one end of a wire in memory, with the pool that its frames are made from. A
/// device of several cores is one for each core: on a port with one queue, all but the first have a pool
/// alone.
pub struct DpdkDevice {
    link: Link,
    pool: Mempool,
    mac: MacAddress,
    capabilities: Capabilities,
    /// See [`accepting_partial_checksums`](Self::accepting_partial_checksums).
    partial_checksums: bool,
    /// Whether its packet socket reaches programs of this machine.
    reaches_programs: bool,
    /// Dropped after the port is closed.
    kept: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for DpdkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpdkDevice").field("link", &self.link).field("mac", &self.mac).finish_non_exhaustive()
    }
}

/// Returns the largest IP packet of a super-frame that a port with buffers of `data_octets` octets takes; the
/// MTU if it takes none.
fn super_frame_bytes(offered: &PortCapabilities, data_octets: usize) -> usize {
    let mtu_bytes = usize::from(offered.mtu_octets);
    if !offered.segmentation || !offered.transmit_checksums {
        return mtu_bytes;
    }
    let in_one_buffer = data_octets.saturating_sub(HEADER_OCTETS);
    // No segment is in two buffers, so that at least half of each is filled, headers apart.
    let in_all =
        if offered.gather { usize::from(offered.pieces.saturating_sub(1)) * data_octets / 2 } else { 0 };
    in_one_buffer.max(in_all).min(SUPER_FRAME_MAX_BYTES).max(mtu_bytes)
}

/// Returns the most pieces of a super-frame at a port with buffers of `data_octets` octets. A buffer that
/// takes all of one is too precious for a reference to a segment, or for what stands between two.
fn super_frame_pieces(offered: &PortCapabilities, data_octets: usize) -> usize {
    if data_octets >= SUPER_FRAME_MAX_BYTES + HEADER_OCTETS { 1 } else { offered.pieces.into() }
}

/// Returns how many buffers of `data_octets` octets the largest received frame takes.
fn buffers_of_received_frame(offered: &PortCapabilities, data_octets: usize) -> usize {
    let largest =
        if offered.joins_received { SUPER_FRAME_MAX_BYTES } else { usize::from(offered.mtu_octets) };
    (largest + HEADER_OCTETS).div_ceil(data_octets.max(1))
}

/// All in one type, so that a program chooses at run time and the poll loop is compiled once: a branch per
/// burst.
#[derive(Debug)]
enum Link {
    Port(QueuePair),
    Wire(WireEnd),
    /// To and from several cores.
    Wires(CoreWires),
    /// A packet socket of Linux.
    Packet(Box<PacketQueue>),
    /// Another core has the queue.
    None,
}

impl DpdkDevice {
    /// Returns a device over `queues`, a queue pair of `port`.
    ///
    /// # Errors
    ///
    /// [`PoolTooSmall`].
    pub fn port(port: &RunningPort, queues: QueuePair, pool: Mempool) -> Result<Self, PoolTooSmall> {
        let received = pool.clone();
        Self::at_port(port, Link::Port(queues), pool, &received)
    }

    /// Returns a device for a core of `port` that has no queue: it allocates frames of `pool`, which the
    /// device of another core sends, and receives none itself; what that core receives is of `received`. Both
    /// are among the pools that the port keeps until it is closed ([`dpdk::Port::start_spread`]).
    ///
    /// # Errors
    ///
    /// [`PoolTooSmall`].
    pub fn without_queue(
        port: &RunningPort,
        pool: Mempool,
        received: &Mempool,
    ) -> Result<Self, PoolTooSmall> {
        Self::at_port(port, Link::None, pool, received)
    }

    fn at_port(
        port: &RunningPort,
        link: Link,
        pool: Mempool,
        received: &Mempool,
    ) -> Result<Self, PoolTooSmall> {
        let offered = port.capabilities();
        let capabilities = Capabilities {
            mtu_bytes: offered.mtu_octets.into(),
            transmit_checksums: offered.transmit_checksums,
            transmit_ip_checksums: offered.transmit_ip_checksums,
            gather: offered.gather,
            super_frame_bytes: super_frame_bytes(&offered, pool.data_octets()),
            super_frame_pieces: super_frame_pieces(&offered, pool.data_octets()),
            frames: received.capacity() / buffers_of_received_frame(&offered, received.data_octets()),
            frame_bytes: received.data_octets(),
        };
        let frame_octets = capabilities.mtu_bytes + HEADER_OCTETS;
        Self::new(link, pool, port.mac(), capabilities, frame_octets)
    }

    /// Returns a device over one end of a wire in memory.
    ///
    /// # Errors
    ///
    /// [`PoolTooSmall`].
    pub fn wire(end: WireEnd, pool: Mempool) -> Result<Self, PoolTooSmall> {
        let (config, mac) = (*end.config(), end.mac());
        Self::at_wire(&config, mac, Link::Wire(end), pool)
    }

    /// Returns a device over the wires of one core to each core of the other end, whose flows are where
    /// `there` says.
    fn wires(
        config: &WireConfig,
        mac: [u8; 6],
        ends: Vec<WireEnd>,
        there: Arc<Steering>,
        pool: Mempool,
    ) -> Result<Self, PoolTooSmall> {
        let link = match <[WireEnd; 1]>::try_from(ends) {
            Ok([only]) => Link::Wire(only),
            Err(several) => Link::Wires(CoreWires::new(several, there)),
        };
        Self::at_wire(config, mac, link, pool)
    }

    fn at_wire(config: &WireConfig, mac: [u8; 6], link: Link, pool: Mempool) -> Result<Self, PoolTooSmall> {
        let capabilities = Capabilities {
            mtu_bytes: config.mtu_bytes,
            transmit_checksums: config.checksum_offload,
            transmit_ip_checksums: config.checksum_offload,
            // A wire that copies what it carries by reference saves nothing.
            gather: config.external_pieces == ExternalPieces::Shared,
            super_frame_bytes: config.super_frame_bytes.max(config.mtu_bytes),
            super_frame_pieces: 1,
            frames: pool.capacity(),
            frame_bytes: pool.data_octets(),
        };
        let frame_octets = capabilities.super_frame_bytes + HEADER_OCTETS;
        Self::new(link, pool, mac, capabilities, frame_octets)
    }

    /// Returns a device over `queue`, a packet socket, or of a core without one, whose frames are received
    /// and sent as `shape` says.
    ///
    /// # Errors
    ///
    /// [`PoolTooSmall`].
    pub fn packet(
        queue: Option<PacketQueue>,
        shape: PacketShape,
        pool: Mempool,
    ) -> Result<Self, PoolTooSmall> {
        let link = queue.map_or(Link::None, |queue| Link::Packet(Box::new(queue)));
        let capabilities = shape.capabilities(pool.capacity());
        let mut device = Self::new(link, pool, shape.mac.0, capabilities, shape.frame_octets)?;
        device.reaches_programs = shape.reaches_programs;
        Ok(device)
    }

    fn new(
        link: Link,
        pool: Mempool,
        mac: [u8; 6],
        capabilities: Capabilities,
        frame_octets: usize,
    ) -> Result<Self, PoolTooSmall> {
        let data_octets = pool.data_octets();
        if data_octets < frame_octets {
            return Err(PoolTooSmall { frame_bytes: frame_octets, data_bytes: data_octets });
        }
        Ok(Self {
            link,
            pool,
            mac: MacAddress(mac),
            capabilities,
            partial_checksums: false,
            reaches_programs: false,
            kept: Vec::new(),
        })
    }

    /// Takes TCP segments whose checksum is partial, the sum of the pseudo-header alone, as intact: for a
    /// port whose frames never leave this machine's memory. Linux leaves the checksums of what it sends
    /// through a veth pair to a device that is not there, and DPDK 22.11's `net_af_packet` and `net_af_xdp`
    /// do not pass on that it did (`TP_STATUS_CSUMNOTREADY` of packet(7)).
    #[must_use]
    pub fn accepting_partial_checksums(mut self, accept: bool) -> Self {
        self.partial_checksums = accept;
        self
    }

    /// Counts the buffers of a pool as shared among `cores` cores, at least one: frames that the pool has
    /// received come to all of them, and each may keep no more than its part.
    #[must_use]
    pub const fn sharing_frames(mut self, cores: usize) -> Self {
        self.capabilities.frames /= cores;
        self
    }

    /// Returns the NUMA node whose memory its frames are of; `None` if it may be of any.
    pub fn node(&self) -> Option<u32> {
        self.pool.node()
    }

    /// Keeps `right`, such as a claim to an address, as long as the device is open.
    #[must_use]
    pub fn keeping(mut self, right: impl Any + Send) -> Self {
        self.kept.push(Box::new(right));
        self
    }
}

/// Notes on those of `frames` whose TCP checksum is partial that their octets are intact.
#[cold]
fn vouch_for_partial(frames: &mut [Mbuf]) {
    for frame in frames {
        let first = frame.piece(0).unwrap_or_default();
        if frame.l4_checksum() == dpdk::ChecksumStatus::Unknown && is_partial(first, frame.len()) {
            frame.assume_l4_intact();
        }
    }
}

impl Device for DpdkDevice {
    type Frame = Mbuf;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> MacAddress {
        self.mac
    }

    fn reaches_programs(&self) -> bool {
        self.reaches_programs
    }

    #[inline]
    fn may_have_frames(&self) -> bool {
        match &self.link {
            Link::Port(_) => true,
            Link::Wire(end) => end.has_arrivals(),
            Link::Wires(wires) => wires.has_arrivals(),
            Link::Packet(queue) => queue.has_frames(),
            Link::None => false,
        }
    }

    #[inline]
    fn receive(&mut self, _: Instant, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        match &mut self.link {
            Link::Port(queues) => {
                let count = queues.receive.receive(frames, limit);
                if self.partial_checksums {
                    let before = frames.len() - count;
                    vouch_for_partial(&mut frames[before..]);
                }
                count
            }
            Link::Wire(end) => end.receive(frames, limit),
            Link::Wires(wires) => wires.receive(frames, limit),
            Link::Packet(queue) => queue.receive(&mut self.pool, frames, limit),
            Link::None => 0,
        }
    }

    #[inline]
    fn allocate(&mut self) -> Option<Mbuf> {
        self.pool.allocate()
    }

    #[inline]
    fn allocate_burst(&mut self, frames: &mut Vec<Mbuf>, limit: usize) {
        if !self.pool.allocate_many(frames, limit) {
            frames.extend(self.pool.allocate());
        }
    }

    #[inline]
    fn transmit(&mut self, now: Instant, frames: &mut Vec<Mbuf>) -> usize {
        match &mut self.link {
            Link::Port(queues) => queues.transmit.transmit(frames),
            Link::Wire(end) => end.transmit(frames),
            Link::Wires(wires) => wires.transmit(now, frames),
            Link::Packet(queue) => queue.transmit::<Mempool>(frames),
            Link::None => 0,
        }
    }

    fn stalled_frames(&self) -> u64 {
        match &self.link {
            Link::Wires(wires) => wires.stalled_frames(),
            Link::Port(_) | Link::Wire(_) | Link::Packet(_) | Link::None => 0,
        }
    }

    fn missed_frames(&self) -> u64 {
        match &self.link {
            Link::Packet(queue) => queue.missed_frames(),
            Link::Port(_) | Link::Wire(_) | Link::Wires(_) | Link::None => 0,
        }
    }

    fn unsent_frames(&self) -> u64 {
        match &self.link {
            Link::Packet(queue) => queue.unsent_frames(),
            Link::Port(queues) => queues.transmit.rejected_frames(),
            Link::Wire(end) => end.statistics().unsent_frames(),
            Link::Wires(wires) => wires.unsent_frames(),
            Link::None => 0,
        }
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        match &mut self.link {
            Link::Packet(queue) => queue.take_heard_ports(),
            Link::Port(_) | Link::Wire(_) | Link::Wires(_) | Link::None => None,
        }
    }

    /// Has the other end of a wire wake the thread; returns false for a port and a packet socket, which can
    /// only interrupt.
    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        match &self.link {
            Link::Port(_) | Link::Packet(_) | Link::None => false,
            Link::Wire(end) => {
                let waker = waker.clone();
                end.on_arrival(move || waker.wake());
                true
            }
            Link::Wires(wires) => {
                wires.wake_on_arrival(waker);
                true
            }
        }
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        let queues = match &self.link {
            Link::Port(queues) => queues,
            Link::Packet(queue) => return Some(queue.rx_interrupt()),
            Link::Wire(_) | Link::Wires(_) | Link::None => return None,
        };
        let interrupt = queues.receive.interrupt()?;
        let trigger = match interrupt.trigger {
            dpdk::RxTrigger::Level => RxTrigger::Level,
            dpdk::RxTrigger::Edge => RxTrigger::Edge,
        };
        Some(RxInterrupt { fd: interrupt.fd, trigger })
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        match &mut self.link {
            Link::Port(queues) => queues.receive.enable_interrupt().is_ok(),
            Link::Packet(queue) => {
                queue.enable_rx_interrupt();
                true
            }
            Link::Wire(_) | Link::Wires(_) | Link::None => false,
        }
    }

    fn disable_rx_interrupt(&mut self) {
        if let Link::Port(queues) = &mut self.link {
            queues.receive.disable_interrupt();
        }
    }
}

impl Buffers for Mempool {
    type Frame = Mbuf;

    #[inline]
    fn allocate(&mut self) -> Option<Mbuf> {
        Self::allocate(self)
    }

    #[inline]
    fn set_intact(frame: &mut Mbuf) {
        frame.assume_l4_intact();
    }

    #[inline]
    fn request(frame: &Mbuf) -> Option<TransmitRequest> {
        let (headers, segment_octets) = frame.transmit_request()?;
        let Headers { ip, ip_checksum, l2_octets, l3_octets, l4_octets } = headers;
        let ip = match ip {
            dpdk::IpVersion::V4 => IpVersion::V4,
            dpdk::IpVersion::V6 => IpVersion::V6,
        };
        let headers = ChecksumRequest { ip, ip_checksum, l2_octets, l3_octets, l4_octets };
        Some(TransmitRequest { headers, segment_octets })
    }
}

impl Frame for Mbuf {
    #[inline]
    fn piece(&self, index: usize) -> Option<&[u8]> {
        self.piece(index)
    }

    #[inline]
    fn first_mut(&mut self) -> &mut [u8] {
        self.first_mut()
    }

    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
        // The headers and what follows them lie in one piece; the next segment of a super-frame may not fit.
        self.append_or_chain(octets)
    }

    /// Attaches octets of `region` by reference if it is hugepage memory ([`Region::huge`]), which every port
    /// reaches, and constant: readers of the frame's pieces rely on octets that do not change.
    #[inline]
    fn append_region(&mut self, region: &Region, offset: usize, octets: usize) -> bool {
        let huge = region.backing().as_any().downcast_ref::<HugeBacking>();
        let huge = huge.filter(|_| region.is_constant());
        huge.is_some_and(|huge| self.append_external(huge.external_buffer(), offset, octets))
    }

    fn copy_part(&self, offset: usize, octets: usize) -> Option<Self> {
        self.copy_part(offset, octets)
    }

    #[inline]
    fn prefetch_empty(&mut self) {
        self.prefetch_empty();
    }

    #[inline]
    fn free_all(frames: &mut Vec<Self>) {
        if !frames.is_empty() {
            Self::free_all(frames);
        }
    }

    #[inline]
    fn checksums(&self) -> ReceivedChecksums {
        ReceivedChecksums { ip: status(self.ip_checksum()), tcp: status(self.l4_checksum()) }
    }

    #[inline]
    fn request_checksums(&mut self, request: ChecksumRequest) {
        self.request_checksums(headers(request));
    }

    #[inline]
    fn request_segmentation(&mut self, request: ChecksumRequest, segment_octets: u16) {
        self.request_segmentation(headers(request), segment_octets);
    }
}

#[inline]
const fn headers(request: ChecksumRequest) -> Headers {
    let ChecksumRequest { ip, ip_checksum, l2_octets, l3_octets, l4_octets } = request;
    let ip = match ip {
        IpVersion::V4 => dpdk::IpVersion::V4,
        IpVersion::V6 => dpdk::IpVersion::V6,
    };
    Headers { ip, ip_checksum, l2_octets, l3_octets, l4_octets }
}

const fn status(status: dpdk::ChecksumStatus) -> ChecksumStatus {
    match status {
        dpdk::ChecksumStatus::Unknown => ChecksumStatus::Unknown,
        dpdk::ChecksumStatus::Good => ChecksumStatus::Good,
        dpdk::ChecksumStatus::Bad => ChecksumStatus::Bad,
    }
}
