//! A wire between two ends in the memory of one process.

use std::sync::{Arc, OnceLock};

use dpdk_sys as sys;

use crate::eal::Eal;
use crate::errno::Errno;
use crate::frame_ring::{FrameReceiver, FrameSender, frame_ring};
use crate::mbuf::Mbuf;
use crate::mempool::Mempool;

/// The treatment of pieces that a frame carries by reference ([`Mbuf::append_external`]) when it crosses the
/// wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ExternalPieces {
    /// The frame is copied into the receiver's pool as it leaves, as a NIC reads it by DMA: what the sender
    /// does with its memory afterwards is not seen at the other end, and its references are gone when
    /// `transmit` returns.
    #[default]
    Copied,
    /// The receiver gets the references. Their owner is kept alive until the receiver drops the frame, so no
    /// octet is ever read after it was freed, and no code may write to the memory for as long
    /// ([`ExternalBuffer`](crate::ExternalBuffer)). It saves one copy per octet, which real hardware does not
    /// cost the CPU either.
    Shared,
}

/// How a wire is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireConfig {
    /// Largest IP packet, in bytes, with or without a VLAN tag before it. Larger frames are dropped and
    /// counted.
    pub mtu_bytes: usize,
    /// The largest IP packet of a super-frame ([`Mbuf::request_segmentation`]), in bytes: it crosses whole. 0
    /// for a wire that takes none.
    pub super_frame_bytes: usize,
    /// Frames on their way in each direction before `transmit` leaves the rest.
    pub frames: u32,
    /// Whether the ends take checksum requests. The wire computes none: nothing between the ends can change
    /// an octet, so the receiver learns that the checksum is good while the field is not filled in, as with
    /// virtio.
    pub checksum_offload: bool,
    /// The treatment of pieces carried by reference.
    pub external_pieces: ExternalPieces,
    /// The hardware addresses of the ends.
    pub macs: [[u8; 6]; 2],
}

impl Default for WireConfig {
    /// Returns 1500 octets, 1024 frames, with checksum offload, pieces copied, and two locally administered
    /// addresses.
    fn default() -> Self {
        Self {
            mtu_bytes: 1500,
            super_frame_bytes: 0,
            frames: 1024,
            checksum_offload: true,
            external_pieces: ExternalPieces::default(),
            macs: [[0x02, 0, 0, 0, 0, 1], [0x02, 0, 0, 0, 0, 2]],
        }
    }
}

/// A wire could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No memory for the rings.
    #[error("no ring for {frames} frames: {errno}; fewer frames may help")]
    Ring {
        /// Frames asked for.
        frames: u32,
        /// The reason.
        errno: Errno,
    },
}

/// The counters of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WireStatistics {
    /// Frames put on the wire.
    pub sent_frames: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Frames taken from the wire.
    pub received_frames: u64,
    /// Frames dropped on sending: larger than the MTU allows.
    pub oversize_frames: u64,
    /// Frames dropped on sending: they had to be copied, and the receiver's pool had no buffer.
    pub no_buffer_frames: u64,
}

impl WireStatistics {
    /// Frames that were dropped on sending.
    pub const fn unsent_frames(&self) -> u64 {
        self.oversize_frames + self.no_buffer_frames
    }
}

/// One end of a wire. One thread at a time owns it.
///
/// A frame arrives as if from a NIC: without anything its sender noted on it, and in memory that no other
/// code writes to ([`ExternalPieces::Shared`] apart). Frames whose buffers have no other reference cross as
/// they are, so a receiver that keeps frames keeps buffers of the *sender's* pool: the pools of both ends
/// want the size of what both may hold.
#[derive(Debug)]
pub struct WireEnd {
    outgoing: FrameSender,
    incoming: FrameReceiver,
    /// Called after frames were sent.
    departure: Arc<OnceLock<Hook>>,
    /// Called by the other end after it has sent frames.
    arrival: Arc<OnceLock<Hook>>,
    /// Where frames are copied to when they must be.
    receiver_pool: Mempool,
    config: WireConfig,
    mac: [u8; 6],
    statistics: WireStatistics,
}

/// Makes a wire and returns its ends. `pools` are those of the ends, in order: a frame that must be copied
/// ends up in the pool of its receiver.
///
/// # Errors
///
/// [`WireError`] when memory is short.
pub fn wire(_: Eal, config: &WireConfig, pools: [&Mempool; 2]) -> Result<(WireEnd, WireEnd), WireError> {
    let frames = config.frames;
    let ring =
        || frame_ring(frames as usize).map_err(|_| WireError::Ring { frames, errno: Errno::OUT_OF_MEMORY });
    let (there, back) = (ring()?, ring()?);
    let hooks: [Arc<OnceLock<Hook>>; 2] = Default::default();
    let end = |outgoing, incoming, receiver_pool: &Mempool, own: usize| WireEnd {
        outgoing,
        incoming,
        departure: Arc::clone(&hooks[1 - own]),
        arrival: Arc::clone(&hooks[own]),
        receiver_pool: receiver_pool.clone(),
        config: *config,
        mac: config.macs[own],
        statistics: WireStatistics::default(),
    };
    Ok((end(there.0, back.1, pools[1], 0), end(back.0, there.1, pools[0], 1)))
}

impl WireEnd {
    /// Octets a frame has beyond the IP packet: the Ethernet header.
    const HEADER_OCTETS: usize = sys::RTE_ETHER_HDR_LEN as usize;
    /// Octets of a VLAN tag.
    const TAG_OCTETS: usize = 4;

    /// Returns true if frames have arrived.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Takes up to `limit` frames off the wire, appending them to `frames`; returns how many.
    // Never inlined: what a wire takes is counted apart from what its users do.
    #[inline(never)]
    pub fn receive(&mut self, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        let count = self.incoming.receive(frames, limit);
        if count > 0 {
            self.statistics.received_frames += count as u64;
            // Those after it come in time while it is looked at.
            if let Some(first) = frames.len().checked_sub(count).and_then(|first| frames.get(first)) {
                first.prefetch_arrived();
            }
        }
        count
    }

    /// Returns how many of `frames` frames the wire has room for. This end is the only sender, so that no
    /// less is left when it transmits.
    #[inline]
    pub fn room(&self, frames: usize) -> usize {
        self.outgoing.room(frames)
    }

    /// Takes frames from the front of `frames` and leaves those for which the wire has no room; returns how
    /// many it took. Frames that cannot cross are taken too, dropped and counted.
    #[inline(never)]
    pub fn transmit(&mut self, frames: &mut Vec<Mbuf>) -> usize {
        // This end is the only sender, so room can only grow until the frames are sent.
        let taken = self.outgoing.room(frames.len());
        if taken == 0 {
            return 0;
        }
        let (mut crossing, mut octets) = (taken, 0);
        let mut index = 0;
        while index < crossing {
            if let Some(len) = self.cross(&mut frames[index]) {
                octets += len as u64;
                index += 1;
            } else {
                frames.remove(index);
                crossing -= 1;
            }
        }
        self.statistics.sent_frames += crossing as u64;
        self.statistics.sent_bytes += octets;
        self.outgoing.send(frames, crossing);
        if let Some(Hook(hook)) = self.departure.get() {
            hook();
        }
        taken
    }

    /// Returns true if the frame has a VLAN tag and is too long by no more than that.
    #[cold]
    fn fits_with_tag(&self, frame: &Mbuf) -> bool {
        let is_tagged = frame.first().get(12..14) == Some(&[0x81, 0x00]);
        is_tagged && frame.len() <= self.config.mtu_bytes + Self::HEADER_OCTETS + Self::TAG_OCTETS
    }

    /// Makes the frame what its receiver will find. Returns its octets; `None` if it cannot cross.
    #[inline]
    fn cross(&mut self, frame: &mut Mbuf) -> Option<usize> {
        let octets = frame.len();
        let most = self.config.mtu_bytes + Self::HEADER_OCTETS;
        if octets > most && !self.fits_with_tag(frame) && !self.is_super_frame(frame) {
            self.statistics.oversize_frames += 1;
            return None;
        }
        let received = if self.config.checksum_offload { received_flags(frame.flags()) } else { 0 };
        if !self.may_pass(frame) {
            *frame = self.copied(frame)?;
        }
        frame.forget_sender(received);
        Some(octets)
    }

    #[cold]
    #[inline(never)]
    fn is_super_frame(&self, frame: &Mbuf) -> bool {
        frame.flags() & sys::constant_RTE_MBUF_F_TX_TCP_SEG != 0
            && frame.len() <= self.config.super_frame_bytes + Self::HEADER_OCTETS + Self::TAG_OCTETS
    }

    /// Returns a copy of the frame in the receiver's pool.
    #[cold]
    #[inline(never)]
    fn copied(&mut self, frame: &Mbuf) -> Option<Mbuf> {
        let copy = frame.copy(&self.receiver_pool);
        self.statistics.no_buffer_frames += u64::from(copy.is_none());
        copy
    }

    #[inline]
    fn may_pass(&self, frame: &Mbuf) -> bool {
        frame.is_private(self.config.external_pieces == ExternalPieces::Shared)
    }

    /// Has `hook` called by the other end whenever frames have arrived at this one, on the thread that sends
    /// them: it must not wait. The first hook stays.
    pub fn on_arrival(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.arrival.set(Hook(Box::new(hook)));
    }

    /// Returns the configuration of the wire.
    pub const fn config(&self) -> &WireConfig {
        &self.config
    }

    /// Returns the hardware address of this end.
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the counters of this end.
    pub const fn statistics(&self) -> WireStatistics {
        self.statistics
    }
}

/// Returns the receive flags of a frame from the checksums that the sender requested.
#[inline]
const fn received_flags(sent: u64) -> u64 {
    let mut flags = 0;
    if sent & sys::constant_RTE_MBUF_F_TX_IP_CKSUM != 0 {
        flags |= sys::constant_RTE_MBUF_F_RX_IP_CKSUM_NONE;
    }
    if sent & sys::constant_RTE_MBUF_F_TX_L4_MASK == sys::constant_RTE_MBUF_F_TX_TCP_CKSUM {
        flags |= sys::constant_RTE_MBUF_F_RX_L4_CKSUM_NONE;
    }
    flags
}

/// The function that the receiving end wants to have called.
struct Hook(Box<dyn Fn() + Send + Sync>);

impl core::fmt::Debug for Hook {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Hook")
    }
}
