//! Devices: sources and sinks of frames. DPDK ports, packet sockets and the simulated network are devices,
//! and so are the capture tap and the fault injector, which wrap another device, and devices behind a
//! [pointer](boxed).
//!
//! # Super-frames
//!
//! A super-frame is one frame of up to 64 KiB with the segments of a burst: headers once, then the FPDUs of
//! each segment as they are without it. The device cuts it into these segments (TSO), or hands it whole to a
//! peer in software that takes it (LRO); so the MTU still governs each FPDU, and a capture of what was cut is
//! the same to the octet. `Capabilities::super_frame_bytes` says how large one may be. Segments of one length
//! share one, and after them one that is shorter, because a device cuts at one length.
//!
//! | device | with `super_frames=on` |
//! |---|---|
//! | `ring` | crosses whole |
//! | `vhost`, `virtio_user` | crosses whole, both ways, in buffers of 64 KiB: four for each entry of a queue, 67 MB with 256 entries |
//! | `pci`, `eal` | the port's TSO (`RTE_ETH_TX_OFFLOAD_TCP_TSO`) and LRO, where it has them; buffers of 9 KB, of which a frame takes several; untested with adapters |
//! | `af_packet` | received whole, in a ring of 256 frames of 64 KiB and as many buffers as make 64 MiB: what a kernel hands to a veth pair with TSO; not sent |
//! | `packet` | the kernel's segmentation, and what it has joined; on unless the name says `super_frames=off` |
//! | `tap`, `af_xdp`, `memif` | not to be had: only `net_tap` has TSO, in software of its own (`librte_gso`), which knows IPv4 alone, and hands the kernel single segments |
//!
//! Elsewhere it is off by default: it takes memory, at MTU 9000 it gains nothing, and what drivers say of it
//! is not always so. A port is asked for TSO, LRO and scattered receive when it is configured, each only if
//! it offers it, and a frame to send has no more pieces than the port takes (`nb_seg_max`), a quarter of its
//! queue, or 64. No segment lies in two buffers. A received frame in several buffers takes the general way,
//! whose pieces end anywhere; one in a single buffer the short one. A core holds back only so many frames as
//! the buffers suffice for if each is of the largest kind.
//!
//! Of DPDK 22.11's drivers:
//!
//! - `net_vhost` does not report TSO or LRO, but passes on what the mbuf asks for, whether or not the peer
//!   has negotiated it. So the device's name decides, and both ends have to say `super_frames=on`. The
//!   argument `tso=1`, which `super_frames=on` adds, only lets the *peer* send super-frames.
//! - virtio fills in TCP checksums and no IPv4 ones. `Capabilities` has both apart, and the host fills in the
//!   header's where the port does not. For a super-frame both drivers do it themselves: they write to the
//!   headers in the frame, `net_virtio_user` in `tx_prepare`, `net_vhost` as it copies.
//! - The receive queue of `net_virtio_user` takes a buffer for each entry as it starts, so a pool with fewer
//!   buffers than entries leaves none to send.
//! - `max_lro_pkt_size` must be 0, or no more than the port's, if the port has one.
//! - With a peer in the kernel (vhost-net, `path=/dev/vhost-net`) the kernel's TCP would send and receive
//!   super-frames. No kernel with vhost-net was at hand.
//!
//! Payload by reference and super-frames meet where a frame has several buffers anyway
//! (`Capabilities::super_frame_pieces`). A buffer of 64 KiB that held only a reference, or the octets between
//! two, would be wasted: there super-frames are copied.

pub mod boxed;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod fault;
pub mod packet;
pub(crate) mod partial_checksum;
pub mod path;
pub mod pcapng;
pub mod sim;
pub mod spread;
pub mod tap;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::memory::Region;
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;

/// The largest IP packet of a super-frame, in bytes: a little less than an IP packet can have, so that a
/// buffer takes it with all that comes before it.
pub const SUPER_FRAME_MAX_BYTES: usize = 65_024;

/// The result of a checksum check by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ChecksumStatus {
    /// Not checked: software verifies it.
    #[default]
    Unknown,
    /// Checked, and correct.
    Good,
    /// Checked, and wrong.
    Bad,
}

/// Checksum state of a received frame, per header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReceivedChecksums {
    /// The IPv4 header checksum.
    pub ip: ChecksumStatus,
    /// The TCP checksum.
    pub tcp: ChecksumStatus,
}

/// The IP header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4, whose header has a checksum.
    V4,
    /// IPv6, whose header has none.
    V6,
}

/// The checksums that a device has to fill in on transmit. Only for devices whose [`Capabilities`] include
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumRequest {
    /// The IP header.
    pub ip: IpVersion,
    /// Whether the checksum of an IPv4 header is to be filled in as well; else it is there already. IPv6 has
    /// none.
    pub ip_checksum: bool,
    /// Octets before the IP header (14 without VLAN tag).
    pub l2_octets: u8,
    /// Octets of the IP header.
    pub l3_octets: u8,
    /// Octets of the TCP header.
    pub l4_octets: u8,
}

/// The capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest IP packet, in bytes (1500 on plain Ethernet).
    pub mtu_bytes: usize,
    /// Fills in TCP checksums on transmit, over both IP versions. The TCP field then holds the pseudo-header
    /// sum when handed over.
    pub transmit_checksums: bool,
    /// Fills in the checksums of IPv4 headers on transmit too. A device that fills in these fills in TCP's.
    /// virtio fills in TCP's alone.
    pub transmit_ip_checksums: bool,
    /// Takes payload by reference ([`Frame::append_region`]).
    pub gather: bool,
    /// The largest IP packet that the device takes as a *super-frame*
    /// ([`Frame::request_segmentation`]), in bytes; `mtu_bytes` if it takes none. A device that takes some
    /// fills in checksums.
    pub super_frame_bytes: usize,
    /// The most pieces that a super-frame is to have; 1 if all of it is to be copied.
    pub super_frame_pieces: usize,
    /// The number of frame buffers, for received frames and frames to send: a core that keeps received ones
    /// must leave some.
    pub frames: usize,
    /// Bytes that a buffer of received frames has room for.
    pub frame_bytes: usize,
}

impl Capabilities {
    /// Returns those of a device between this one and the core that looks into the frames: they are complete,
    /// in one piece, and as long as on the wire.
    #[must_use]
    pub const fn without_offloads(self) -> Self {
        let super_frame_bytes = self.mtu_bytes;
        Self {
            transmit_checksums: false,
            transmit_ip_checksums: false,
            gather: false,
            super_frame_bytes,
            ..self
        }
    }
}

/// One Ethernet frame in a buffer of a device. Dropping it returns the buffer.
///
/// The octets lie in one or more pieces; the Ethernet, IP and TCP headers always lie whole in the first.
pub trait Frame: Send + 'static {
    /// Returns the octets of piece `index`, or `None` past the last piece. Piece 0 exists, though it may be
    /// empty.
    fn piece(&self, index: usize) -> Option<&[u8]>;

    /// Returns the octets of the first piece, to write to.
    fn first_mut(&mut self) -> &mut [u8];

    /// Returns the octets in all pieces.
    fn len(&self) -> usize {
        let mut index = 0;
        let mut octets = 0;
        while let Some(piece) = self.piece(index) {
            octets += piece.len();
            index += 1;
        }
        octets
    }

    /// Returns true if the frame holds no octet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lengthens the frame by `octets` at its end and returns the new octets, contents unspecified; `None` if
    /// there is no room. A device that takes payload by reference may start a new piece for them, if the last
    /// one that is there has no room.
    fn append(&mut self, octets: usize) -> Option<&mut [u8]>;

    /// Appends `octets` octets of `region`, which is [constant](Region::freeze), from `offset` by reference:
    /// the device reads them when it sends the frame. Returns false and leaves the frame unchanged if the
    /// device cannot do this, or the range is not inside the region. The memory stays valid until the frame
    /// is dropped. After this, [`append`](Self::append) starts a new piece.
    fn append_region(&mut self, region: &Region, offset: usize, octets: usize) -> bool {
        let _ = (region, offset, octets);
        false
    }

    /// Returns another frame of the device with a copy of the `octets` octets from `offset` on, which the
    /// frame has, and nothing before them; `None` if none is free, or the device makes none so.
    fn copy_part(&self, offset: usize, octets: usize) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = (offset, octets);
        None
    }

    /// Has the processor fetch what is written first to an empty frame, which will be needed soon.
    fn prefetch_empty(&mut self) {}

    /// Frees frames together, which may cost less than to drop each. Afterwards there are none in `frames`.
    fn free_all(frames: &mut Vec<Self>)
    where
        Self: Sized,
    {
        frames.clear();
    }

    /// Returns the device's results for the checksums of a received frame.
    fn checksums(&self) -> ReceivedChecksums;

    /// Asks the device to fill in the checksums on transmit.
    fn request_checksums(&mut self, request: ChecksumRequest);

    /// Has the device send the frame as TCP segments of `segment_octets` octets of payload each, the last one
    /// perhaps shorter, and fill in their checksums; or hand it as it is to a peer in software. The frame
    /// has the headers of the first segment, with PSH if the last has it, and lengths as if it were one; its
    /// TCP field holds the pseudo-header sum without the length, which the device adds for each segment. Only
    /// for devices whose [`Capabilities`] include it.
    fn request_segmentation(&mut self, request: ChecksumRequest, segment_octets: u16) {
        debug_assert!(false, "the device takes no super-frames");
        let _ = segment_octets;
        self.request_checksums(request);
    }
}

/// When the descriptor of an [`RxInterrupt`] is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxTrigger {
    /// As long as frames wait in the device.
    Level,
    /// From an interrupt on, for ever: its edges count (`EPOLLET` of epoll(7)).
    Edge,
}

/// The receive interrupt of a device, for a thread that waits for frames. Nothing may be read from the
/// descriptor.
#[derive(Clone, Copy, Debug)]
pub struct RxInterrupt<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// When it is readable.
    pub trigger: RxTrigger,
}

/// The hardware address that stands for the programs of this machine, for a device that
/// [reaches](Device::reaches_programs) them: a locally administered one of no station.
pub const THIS_MACHINE: MacAddress = MacAddress([0x02, 0x77, 0x61, 0, 0, 0]);

/// A source and sink of Ethernet frames, owned by one core.
pub trait Device: 'static {
    /// The frames of this device.
    type Frame: Frame;

    /// Returns the capabilities of the device; constant over its life.
    fn capabilities(&self) -> Capabilities;

    /// Returns the device's own hardware address.
    fn mac(&self) -> MacAddress;

    /// Returns false if there is nothing to [receive](Self::receive), for devices that see this at a glance:
    /// most polls find nothing.
    #[inline]
    fn may_have_frames(&self) -> bool {
        true
    }

    /// Takes up to `limit` received frames and appends them to `frames`. Returns how many.
    fn receive(&mut self, now: Instant, frames: &mut Vec<Self::Frame>, limit: usize) -> usize;

    /// Allocates an empty frame to transmit, with room for a full frame of the device's MTU; `None` if no
    /// buffer is free (the caller counts it).
    fn allocate(&mut self) -> Option<Self::Frame>;

    /// Allocates up to `limit` empty frames like that of [`allocate`](Self::allocate), and appends them to
    /// `frames`: one, if several together cost no less.
    #[inline]
    fn allocate_burst(&mut self, frames: &mut Vec<Self::Frame>, limit: usize) {
        debug_assert!(limit > 0, "a burst of no frame");
        frames.extend(self.allocate());
    }

    /// Takes frames from the front of `frames` for transmission, as many as it has room for. Returns how
    /// many.
    fn transmit(&mut self, now: Instant, frames: &mut Vec<Self::Frame>) -> usize;

    /// Hands a received frame to another core of the device, as if the device had brought the frame there.
    /// The host core does so with datagrams that it has reassembled and with segments behind extension
    /// headers, whose flows the device did not see; the other cores with what the host core handles.
    ///
    /// # Errors
    ///
    /// `frame`, when there is no room on the way to that core, or the device has one core only (the caller
    /// counts it).
    fn hand_over(&mut self, core: u8, frame: Self::Frame) -> Result<(), Self::Frame> {
        let _ = core;
        Err(frame)
    }

    /// Returns how many received frames the device has dropped so far because there was no room on the way to
    /// the core that they were for. Those that [`hand_over`](Self::hand_over) returns are not counted.
    fn frames_not_handed_over(&self) -> u64 {
        0
    }

    /// Returns how many frames to send the device has dropped so far because the core of the other end that
    /// they were for has taken none for long.
    fn stalled_frames(&self) -> u64 {
        0
    }

    /// Returns how many frames that arrived the device is known to have had no room for so far.
    fn missed_frames(&self) -> u64 {
        0
    }

    /// Returns how many frames that it had taken for transmission the device could not send so far.
    fn unsent_frames(&self) -> u64 {
        0
    }

    /// Returns true once the adapter was found to bring flows to other cores than the steering says: the
    /// device sorts them in software from then on, which costs each of them a hash and half of them a ring.
    fn adapter_differs(&self) -> bool {
        false
    }

    /// Has the device [wake](Waker::wake) `waker` from now on whenever frames may have arrived, so that the
    /// polling thread may sleep. Returns false if the device cannot do this: the thread then waits for
    /// [`rx_interrupt`](Self::rx_interrupt), or polls from time to time.
    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        let _ = waker;
        false
    }

    /// Returns what becomes readable when frames arrive, for devices that do not
    /// [wake](Self::wake_on_arrival) but interrupt; `None` otherwise. Constant over the device's life.
    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        None
    }

    /// Has the next frame raise [`rx_interrupt`](Self::rx_interrupt), for a thread that is about to sleep. A
    /// frame that arrived before raises none, so the thread receives once more before it sleeps. Returns
    /// false if the device cannot do it now: the thread then has to poll from time to time.
    fn enable_rx_interrupt(&mut self) -> bool {
        false
    }

    /// Disables the interrupt: the thread is awake.
    fn disable_rx_interrupt(&mut self) {}

    /// Returns true if frames to [`THIS_MACHINE`] reach the programs of this machine that have their
    /// addresses from its kernel, as the user of the device does: their frames arrive as those of other
    /// stations, and nobody else's with such an address as the source. Constant over the device's life.
    fn reaches_programs(&self) -> bool {
        false
    }

    /// Takes the handle by which control sets the TCP ports of the device, once, for devices that share their
    /// addresses and receive frames to all ports until then; `None` for others.
    fn take_heard_ports(&mut self) -> Option<packet::HeardPorts> {
        None
    }

    /// Returns the time at which the next frame in flight arrives, for devices in virtual time; `None` for
    /// other devices, or if there is none.
    fn next_arrival(&self) -> Option<Instant> {
        None
    }
}
