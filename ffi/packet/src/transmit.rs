//! The transmit ring: slots to fill, and the system call that has the kernel take the filled ones.
//!
//! The kernel takes slots strictly in their order, and only during that call. If it returns early, the slots
//! after that keep their status, and the next call continues with them. A slot that the kernel has taken is
//! free again when the frame has left the interface.

use core::ptr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use libc::{TP_STATUS_AVAILABLE, TP_STATUS_SEND_REQUEST, TPACKET2_HDRLEN};

use crate::offload::{self, OFFLOAD_HEADER_OCTETS, Offload};
use crate::ring::Slot;

/// Octets of a slot before the header of the offloads, which the frame follows.
const DATA_OFFSET: usize = TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();

/// Octets of a slot before the frame.
pub(crate) const TRANSMIT_HEADROOM_OCTETS: usize = DATA_OFFSET + OFFLOAD_HEADER_OCTETS;

/// The shortest frame: an Ethernet header.
pub(crate) const FRAME_LEAST_OCTETS: usize = 14;

/// Times in a row that the interface may refuse one frame before the frame is given up. A full queue has
/// room sooner or later. A veth pair without a carrier, or whose other end has a smaller MTU, and a rule that
/// drops the frame refuse it each time, and all frames after it would wait.
const REFUSALS_MAX: u32 = 256;

/// The shortest time for so many refusals.
const REFUSAL_TIME: Duration = Duration::from_millis(100);

/// What became of the frames in the transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flushed {
    /// The kernel has taken all frames, or there were none. That does not mean that they arrive: without a
    /// carrier, most interfaces take frames and drop them.
    All,
    /// Some frames wait in their slots, because the interface is busy; nothing is lost. The next flush offers
    /// them again, and should come soon. A frame that the interface refuses 256 times in a row, and for a
    /// tenth of a second, is given up and counted ([`Statistics::refused_octets`]).
    ///
    /// [`Statistics::refused_octets`]: crate::Statistics::refused_octets
    Waiting,
    /// The interface is down, or has been since the last flush. The frames wait in their slots for a flush
    /// after it is up again. Returned once, then [`Waiting`](Self::Waiting) until the kernel takes frames
    /// again.
    Down,
    /// The interface is gone for good from this network namespace, and another of its name would be a
    /// different one: nothing will be sent or received. Returned once, then [`Waiting`](Self::Waiting).
    Gone,
}

/// The transmit ring.
pub(crate) struct TransmitRing {
    slots: Box<[Slot]>,
    frame_octets: usize,
    /// The slot to fill next.
    next: usize,
    /// Slots before `next` that are filled and which the kernel has not taken.
    owed_slots: usize,
    /// Octets of the frames in them.
    owed_octets: u64,
    /// Times in a row that the interface has refused the first of them.
    refusals: u32,
    /// The time of the first of these refusals.
    refused_since: Option<Instant>,
    /// The caller has been told that the interface is down.
    down_reported: bool,
    gone: bool,
    pub(crate) sent_frames: u64,
    pub(crate) refused_octets: u64,
}

impl TransmitRing {
    pub(crate) const fn new(slots: Box<[Slot]>, frame_octets: usize) -> Self {
        Self {
            slots,
            frame_octets,
            next: 0,
            owed_slots: 0,
            owed_octets: 0,
            refusals: 0,
            refused_since: None,
            down_reported: false,
            gone: false,
            sent_frames: 0,
            refused_octets: 0,
        }
    }

    pub(crate) const fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn slot(&mut self) -> Option<TransmitSlot<'_>> {
        (self.slots[self.next].status() == TP_STATUS_AVAILABLE).then_some(TransmitSlot { ring: self })
    }

    #[inline]
    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> Flushed {
        if self.owed_slots == 0 { Flushed::All } else { self.kick(socket) }
    }

    fn kick(&mut self, socket: BorrowedFd<'_>) -> Flushed {
        if self.gone {
            return Flushed::Waiting;
        }
        // SAFETY: no data and no address: the kernel sends the ring.
        let result =
            unsafe { libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        let error = if result < 0 { io::Error::last_os_error().raw_os_error() } else { None };
        let taken_octets = self.settle();
        if result >= 0 {
            // The result is what of the taken was well-formed.
            self.refused_octets += taken_octets.saturating_sub(result as u64);
            self.down_reported = false;
        }
        match error {
            Some(libc::ENETDOWN) => {
                let is_known = core::mem::replace(&mut self.down_reported, true);
                return if is_known { Flushed::Waiting } else { Flushed::Down };
            }
            Some(libc::ENXIO | libc::ENODEV) => {
                self.gone = true;
                return Flushed::Gone;
            }
            // EAGAIN: the frames on their way have all the memory that the socket may have. As they leave,
            // there is room again.
            Some(libc::EAGAIN) | None => self.refusals = 0,
            Some(_) => self.count_refusal(taken_octets > 0),
        }
        if self.owed_slots == 0 { Flushed::All } else { Flushed::Waiting }
    }

    /// Finds out which slots the kernel has taken; returns the octets of the frames in them.
    fn settle(&mut self) -> u64 {
        let before = self.owed_octets;
        if self.slots[self.before_next(1)].status() != TP_STATUS_SEND_REQUEST {
            // The last one, so all of them.
            self.sent_frames += self.owed_slots as u64;
            (self.owed_slots, self.owed_octets) = (0, 0);
            return before;
        }
        while let Some(slot) = self.first_owed()
            && slot.status() != TP_STATUS_SEND_REQUEST
        {
            self.owed_octets -= frame_octets(slot) as u64;
            self.owed_slots -= 1;
            self.sent_frames += 1;
        }
        before - self.owed_octets
    }

    /// Counts a refusal of the first frame that waits, and gives the frame up after too many. `is_first` if
    /// the kernel has taken frames before this one with the same call.
    #[cold]
    fn count_refusal(&mut self, is_first: bool) {
        let now = Instant::now();
        if is_first || self.refusals == 0 {
            (self.refusals, self.refused_since) = (0, Some(now));
        }
        self.refusals += 1;
        let time = self.refused_since.map_or(Duration::ZERO, |since| now.duration_since(since));
        if self.refusals < REFUSALS_MAX || time < REFUSAL_TIME {
            return;
        }
        self.refusals = 0;
        let Some(slot) = self.first_owed() else {
            return;
        };
        let octets = frame_octets(slot) as u64;
        // A frame shorter than the header of the offloads is malformed: the kernel passes over the slot.
        // SAFETY: no call that sends is in progress, and the kernel has not taken the slot.
        unsafe { slot.set_sent_octets(0) };
        self.owed_octets -= octets;
        self.refused_octets += octets;
    }

    /// Returns the first slot that is filled and not taken.
    fn first_owed(&self) -> Option<&Slot> {
        (self.owed_slots > 0).then(|| &self.slots[self.before_next(self.owed_slots)])
    }

    /// Returns the slot `count` before the next one; `count` is no more than there are slots.
    #[inline]
    const fn before_next(&self, count: usize) -> usize {
        if self.next >= count { self.next - count } else { self.next + self.slots.len() - count }
    }
}

/// Returns the octets of the frame in a filled slot.
fn frame_octets(slot: &Slot) -> usize {
    // SAFETY: only `TransmitSlot::send` and `TransmitRing::count_refusal` write to it, which the ring's owner
    // runs, as it does this.
    unsafe { slot.sent_octets() }.saturating_sub(OFFLOAD_HEADER_OCTETS)
}

/// The next free slot of the transmit ring. Dropped without being sent, it stays free.
pub struct TransmitSlot<'a> {
    ring: &'a mut TransmitRing,
}

impl TransmitSlot<'_> {
    /// Returns the room for the frame, from the Ethernet header on, as long as the largest frame. It may hold
    /// an old frame.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        let octets = self.ring.frame_octets;
        // SAFETY: the slot is free, so it belongs to this process until it is filled, which takes `self`. The
        // result borrows `self`, so there is no other.
        unsafe { self.ring.slots[self.ring.next].octets_mut(TRANSMIT_HEADROOM_OCTETS, octets) }
    }

    /// Fills the slot with the first `octets` bytes of [`room`](Self::room). The next
    /// [`PacketSocket::flush`](crate::PacketSocket::flush) sends it.
    ///
    /// A frame with a VLAN tag has it in place. A frame without segmentation must not exceed the interface's
    /// MTU: the kernel does not compare the two, and whether the frame gets through depends on the driver.
    ///
    /// Returns false, sends nothing and counts the bytes as refused if `octets` is less than 14 or more than
    /// the room, or if `offload` refers to bytes outside the frame.
    #[inline]
    pub fn send(self, octets: usize, offload: Option<Offload>) -> bool {
        let ring = self.ring;
        let header = match offload::header(octets, offload.as_ref()) {
            Some(header) if (FRAME_LEAST_OCTETS..=ring.frame_octets).contains(&octets) => header,
            _ => {
                ring.refused_octets += octets as u64;
                return false;
            }
        };
        let slot = &ring.slots[ring.next];
        // SAFETY: as in `room`, whose result is not in use any more.
        unsafe {
            slot.octets_mut(DATA_OFFSET, OFFLOAD_HEADER_OCTETS).copy_from_slice(&header);
            slot.set_sent_octets(OFFLOAD_HEADER_OCTETS + octets);
        }
        slot.set_status(TP_STATUS_SEND_REQUEST);
        ring.owed_slots += 1;
        ring.owed_octets += octets as u64;
        ring.next = if ring.next + 1 == ring.slots.len() { 0 } else { ring.next + 1 };
        true
    }
}

impl core::fmt::Debug for TransmitSlot<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TransmitSlot")
    }
}
