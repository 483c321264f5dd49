//! The receive ring, and the frame in its head slot.

use libc::{
    TP_STATUS_CSUM_VALID, TP_STATUS_CSUMNOTREADY, TP_STATUS_KERNEL, TP_STATUS_USER,
    TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID, TPACKET_ALIGNMENT, TPACKET2_HDRLEN,
};

use crate::offload::{self, OFFLOAD_HEADER_OCTETS};
use crate::ring::{Arrival, SLOT_ALIGNMENT, Slot};

/// The most octets of a slot before the frame: the header of the slot with an address, up to 16 octets of
/// link header, aligned, and the header of the offloads. The link header belongs to the frame, so that 14
/// octets more remain than are needed.
pub(crate) const RECEIVE_HEADROOM_OCTETS: usize =
    (TPACKET2_HDRLEN + 16).next_multiple_of(TPACKET_ALIGNMENT) + OFFLOAD_HEADER_OCTETS;

/// Octets that a slot may hold of a longer frame, beyond the [`frame_octets`](crate::Config::frame_octets) of
/// the socket: those of a link header, which are counted twice, and what fills a cache line.
pub const SLOT_SPARE_OCTETS: usize = 14 + SLOT_ALIGNMENT - 1;

const TPID_8021Q: u16 = 0x8100;

/// The receive ring.
pub(crate) struct ReceiveRing {
    slots: Box<[Slot]>,
    /// The slot of the next frame: the kernel fills them in their order.
    head: usize,
    /// Frames longer than their slots.
    pub(crate) cut_frames: u64,
}

impl ReceiveRing {
    pub(crate) const fn new(slots: Box<[Slot]>) -> Self {
        Self { slots, head: 0, cut_frames: 0 }
    }

    pub(crate) const fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.slots[self.head].status() & TP_STATUS_USER != 0
    }

    #[inline]
    pub(crate) fn receive(&mut self) -> Option<Received<'_>> {
        let slot = &self.slots[self.head];
        let status = slot.status();
        if status & TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: with this status the kernel has passed the slot on.
        let arrival = unsafe { slot.arrival() };
        Some(Received { ring: self, status, arrival })
    }
}

/// What is known of the TCP or UDP checksum of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: the receiver computes it.
    Unknown,
    /// The NIC or the kernel has found it good.
    Good,
    /// The sender is on this machine and has left it to a NIC which the frame does not pass. The frame is
    /// intact, and the field holds the sum of the pseudo-header.
    Partial,
}

impl Checksum {
    /// Returns what the status of a slot and the header before the frame say together.
    ///
    /// `TP_STATUS_CSUM_VALID` alone does not say that the checksum is good: kernels before Linux 6.1 set it,
    /// too, where the NIC has summed up the frame and nobody has compared the sum with anything
    /// (`CHECKSUM_COMPLETE`). The header says so only of what was compared (`CHECKSUM_UNNECESSARY`).
    #[inline]
    const fn of(status: u32, header: &[u8; OFFLOAD_HEADER_OCTETS]) -> Self {
        if status & TP_STATUS_CSUMNOTREADY != 0 || offload::is_checksum_partial(header) {
            Self::Partial
        } else if status & TP_STATUS_CSUM_VALID != 0 && offload::is_checksum_good(header) {
            Self::Good
        } else {
            Self::Unknown
        }
    }
}

/// A frame in the head slot of the receive ring. The slot goes back to the kernel when this is dropped.
pub struct Received<'a> {
    ring: &'a mut ReceiveRing,
    status: u32,
    arrival: Arrival,
}

impl Received<'_> {
    #[inline]
    fn slot(&self) -> &Slot {
        &self.ring.slots[self.ring.head]
    }

    /// Returns the frame from the Ethernet header on, without its VLAN tag
    /// ([`vlan_tci`](Self::vlan_tci)) and without its frame check sequence.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        // SAFETY: the slot belongs to this process until `self` is dropped, and nothing writes to a
        // slot that does.
        unsafe { self.slot().octets(self.arrival.offset, self.arrival.captured_octets) }
    }

    /// Returns the control information of the IEEE 802.1Q tag that the frame had: priority, DEI and, in the
    /// lower 12 bits, the VLAN identifier. `None` for a frame without a tag, or with one of another protocol
    /// (802.1ad).
    #[inline]
    pub fn vlan_tci(&self) -> Option<u16> {
        let has_tag = self.status & TP_STATUS_VLAN_VALID != 0;
        let is_other = self.status & TP_STATUS_VLAN_TPID_VALID != 0 && self.arrival.vlan_tpid != TPID_8021Q;
        (has_tag && !is_other).then_some(self.arrival.vlan_tci)
    }

    /// Returns what is known of the checksum.
    #[inline]
    pub fn checksum(&self) -> Checksum {
        Checksum::of(self.status, &self.offload_header())
    }

    /// Returns the bytes of payload in each segment but the last, if the frame is several segments in one: a
    /// super-frame of a sender on this machine, or segments that the kernel has joined. `None` otherwise.
    #[inline]
    pub fn segment_octets(&self) -> Option<u16> {
        offload::received_segment_octets(&self.offload_header())
    }

    /// Returns true if the frame was longer than its slot, and [`octets`](Self::octets) is the front of it.
    #[inline]
    pub const fn is_cut(&self) -> bool {
        self.arrival.frame_octets > self.arrival.captured_octets
    }

    /// Returns the header before the frame; zeros if there is no room for one.
    #[inline]
    fn offload_header(&self) -> [u8; OFFLOAD_HEADER_OCTETS] {
        let Some(offset) = self.arrival.offset.checked_sub(OFFLOAD_HEADER_OCTETS) else {
            return [0; OFFLOAD_HEADER_OCTETS];
        };
        // SAFETY: as in `octets`.
        let header = unsafe { self.slot().octets(offset, OFFLOAD_HEADER_OCTETS) };
        header.try_into().unwrap_or([0; OFFLOAD_HEADER_OCTETS])
    }
}

impl Drop for Received<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.cut_frames += u64::from(self.is_cut());
        self.slot().set_status(TP_STATUS_KERNEL);
        self.ring.head += 1;
        if self.ring.head == self.ring.slots.len() {
            self.ring.head = 0;
        }
    }
}

impl core::fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Received")
            .field("octets", &self.octets().len())
            .field("vlan_tci", &self.vlan_tci())
            .field("checksum", &self.checksum())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::{VIRTIO_NET_HDR_F_DATA_VALID, VIRTIO_NET_HDR_F_NEEDS_CSUM};

    /// A sum that the NIC has computed, and nobody has compared, is left to the receiver.
    #[test]
    fn a_checksum_is_good_only_if_it_was_compared() {
        let of = |status, flags| Checksum::of(status, &[flags, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        // `CHECKSUM_UNNECESSARY`; then `CHECKSUM_COMPLETE` of kernels before 6.1, and of those since.
        assert_eq!(of(TP_STATUS_CSUM_VALID, VIRTIO_NET_HDR_F_DATA_VALID), Checksum::Good);
        assert_eq!(of(TP_STATUS_CSUM_VALID, 0), Checksum::Unknown);
        assert_eq!(of(0, 0), Checksum::Unknown);
        // A frame that leaves through the interface says so in the header alone.
        assert_eq!(of(0, VIRTIO_NET_HDR_F_DATA_VALID), Checksum::Unknown);
        assert_eq!(of(TP_STATUS_CSUMNOTREADY, VIRTIO_NET_HDR_F_NEEDS_CSUM), Checksum::Partial);
        assert_eq!(of(0, VIRTIO_NET_HDR_F_NEEDS_CSUM), Checksum::Partial);
        assert_eq!(of(TP_STATUS_CSUMNOTREADY, 0), Checksum::Partial);
    }
}
