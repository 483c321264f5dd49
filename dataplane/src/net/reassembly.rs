//! Reassembly of IP datagrams from fragments (RFC 791 §3.2, RFC 8200 §4.5), within a bound.
//!
//! A sender of TCP keeps to the MSS and discovers smaller path MTUs (RFC 5044 §A.5), so fragments are rare,
//! and their datagrams are no longer than the MTU of the link. Each slot for a datagram therefore has a
//! buffer of that length, allocated once. A fragment is copied to the buffer and its frame is freed, so that
//! incomplete datagrams hold no frames of the device.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::drops::{DropCause, Drops};
use crate::limits;
use crate::time::Instant;

/// What the fragments of a datagram have in common (RFC 6864 §4, RFC 8200 §4.5). For IPv6 the protocol is
/// that of the first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatagramId {
    /// The address that it came from.
    pub source: IpAddr,
    /// The address of the host that it is for.
    pub destination: IpAddr,
    /// The protocol that it carries.
    pub protocol: u8,
    /// The sender's number of it.
    pub identification: u32,
}

/// One fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// The datagram it belongs to.
    pub id: DatagramId,
    /// Where its octets begin in the payload of the datagram.
    pub offset: usize,
    /// Its octets of payload.
    pub octets: usize,
    /// Whether more fragments follow it.
    pub more: bool,
    /// Its ECN bits.
    pub ecn: u8,
    /// Least octets that a first fragment must have: those of the header that filters look at (RFC 1858
    /// §3.2.1).
    pub first_octets_min: usize,
}

/// A datagram of which every octet has arrived.
#[derive(Debug)]
pub(super) struct Reassembled<'r> {
    /// Its payload.
    pub payload: &'r [u8],
    /// Its ECN bits.
    pub ecn: u8,
}

/// First octet and the octet after the last.
type Range = (u16, u16);

/// A datagram of which octets are missing.
#[derive(Debug)]
struct Datagram {
    id: DatagramId,
    /// When its first fragment arrived.
    began: Instant,
    /// The octets that have arrived, in order and without overlap.
    ranges: ArrayVec<Range, { limits::FRAGMENTS_PER_DATAGRAM }>,
    /// Octets in all, once the last fragment has arrived.
    total: Option<u16>,
    /// The ECN values of its fragments, one bit each.
    ecn_seen: u8,
    /// Fragments contradict each other: those that still arrive are dropped too (RFC 5722 §4).
    refused: bool,
}

/// How a fragment fits to those that arrived before it.
enum Fit {
    /// It goes before the range of this index.
    At(usize),
    /// It has arrived before.
    Duplicate,
    /// It contradicts an earlier fragment.
    Overlap,
}

impl Datagram {
    fn new(id: DatagramId, now: Instant) -> Self {
        Self { id, began: now, ranges: ArrayVec::new(), total: None, ecn_seen: 0, refused: false }
    }

    fn fit(&self, (start, end): Range, more: bool) -> Fit {
        let reached = self.ranges.last().map_or(0, |range| range.1);
        let contradicts = match self.total {
            Some(total) => end > total || (!more && end != total) || (more && end == total),
            None => !more && end < reached,
        };
        if contradicts {
            return Fit::Overlap;
        }
        let at = self.ranges.partition_point(|range| range.1 <= start);
        match self.ranges.get(at) {
            Some(range) if *range == (start, end) => Fit::Duplicate,
            Some(range) if range.0 < end => Fit::Overlap,
            _ => Fit::At(at),
        }
    }

    fn is_entire(&self) -> bool {
        let mut next = 0;
        for (start, end) in &self.ranges {
            if *start != next {
                return false;
            }
            next = *end;
        }
        self.total == Some(next)
    }

    /// Returns the ECN bits of the datagram. RFC 3168 §5.3: congestion marked on one fragment marks the
    /// datagram; beside a fragment of a transport without ECN, a mark is invalid.
    fn ecn(&self) -> Option<u8> {
        const NOT_ECT: u8 = 1 << 0;
        const CE: u8 = 1 << 3;
        match self.ecn_seen {
            seen if seen & (CE | NOT_ECT) == CE | NOT_ECT => None,
            seen if seen & CE != 0 => Some(3),
            seen => Some(seen.trailing_zeros() as u8 & 3),
        }
    }
}

/// The incomplete datagrams of a host.
#[derive(Debug)]
pub(super) struct Reassembly {
    /// By slot; a free slot has none.
    datagrams: Vec<Option<Datagram>>,
    /// The buffers of the slots, one after the other.
    buffer: Vec<u8>,
    /// Octets of each buffer.
    datagram_octets: usize,
}

impl Reassembly {
    /// Returns room for [`limits::DATAGRAMS_IN_REASSEMBLY`] datagrams of up to `datagram_octets` octets of
    /// payload each.
    pub(super) fn new(datagram_octets: usize) -> Self {
        let datagram_octets = datagram_octets.min(usize::from(u16::MAX));
        let slots = limits::DATAGRAMS_IN_REASSEMBLY;
        Self {
            datagrams: (0..slots).map(|_| None).collect(),
            buffer: vec![0; slots * datagram_octets],
            datagram_octets,
        }
    }

    /// Accepts a fragment whose octets begin `at` octets into `frame`. Returns the datagram if the fragment
    /// completes it.
    ///
    /// # Errors
    ///
    /// Why the fragment was dropped: [`DropCause::Fragment`], [`DropCause::FragmentOverlap`],
    /// [`DropCause::Duplicate`].
    pub(super) fn accept<F: Frame>(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        frame: &F,
        at: usize,
        drops: &mut Drops,
    ) -> Result<Option<Reassembled<'_>>, DropCause> {
        self.expire(now, drops);
        let range = self.check(fragment)?;
        let slot = self.slot_of(fragment.id, now, drops);
        let Some(datagram) = self.datagrams[slot].as_mut() else { return Err(DropCause::Fragment) };
        if datagram.refused {
            return Err(DropCause::FragmentOverlap);
        }
        let index = match datagram.fit(range, fragment.more) {
            Fit::At(index) => index,
            Fit::Duplicate => return Err(DropCause::Duplicate),
            Fit::Overlap => {
                datagram.refused = true;
                return Err(DropCause::FragmentOverlap);
            }
        };
        if datagram.ranges.try_insert(index, range).is_err() {
            datagram.refused = true;
            return Err(DropCause::Fragment);
        }
        if !fragment.more {
            datagram.total = Some(range.1);
        }
        datagram.ecn_seen |= 1 << (fragment.ecn & 3);
        let start = slot * self.datagram_octets;
        let buffer = &mut self.buffer[start..start + self.datagram_octets];
        copy(frame, at, &mut buffer[usize::from(range.0)..usize::from(range.1)]);
        self.finish(slot)
    }

    /// Returns the range of the payload that a valid fragment fills.
    fn check(&self, fragment: &Fragment) -> Result<Range, DropCause> {
        let end = fragment.offset + fragment.octets;
        let aligned = !fragment.more || fragment.octets.is_multiple_of(8);
        // RFC 1858 §3: a first fragment must hold the ports, and a later one must not replace the flags.
        let tiny = if fragment.offset == 0 {
            fragment.octets < fragment.first_octets_min
        } else {
            fragment.offset < fragment.first_octets_min
        };
        if fragment.octets == 0 || !aligned || tiny || end > self.datagram_octets {
            return Err(DropCause::Fragment);
        }
        Ok((fragment.offset as u16, end as u16))
    }

    /// Returns the slot of a datagram. A new datagram gets a free slot, or that of the oldest one.
    fn slot_of(&mut self, id: DatagramId, now: Instant, drops: &mut Drops) -> usize {
        let mut best = (0, Instant::NEVER);
        for (slot, datagram) in self.datagrams.iter().enumerate() {
            let age = match datagram {
                Some(datagram) if datagram.id == id => return slot,
                Some(datagram) => datagram.began,
                // A free slot counts as older than any datagram.
                None => Instant::ZERO,
            };
            if age < best.1 {
                best = (slot, age);
            }
        }
        if self.datagrams[best.0].replace(Datagram::new(id, now)).is_some() {
            drops.count(DropCause::ReassemblyEvicted);
        }
        best.0
    }

    fn expire(&mut self, now: Instant, drops: &mut Drops) {
        for slot in &mut self.datagrams {
            if let Some(datagram) = slot
                && now - datagram.began >= limits::REASSEMBLY_NS
            {
                if !datagram.refused {
                    drops.count(DropCause::ReassemblyTimeout);
                }
                *slot = None;
            }
        }
    }

    fn finish(&mut self, slot: usize) -> Result<Option<Reassembled<'_>>, DropCause> {
        let Some(datagram) = self.datagrams[slot].take_if(|datagram| datagram.is_entire()) else {
            return Ok(None);
        };
        let ecn = datagram.ecn().ok_or(DropCause::Fragment)?;
        let start = slot * self.datagram_octets;
        let octets = usize::from(datagram.total.unwrap_or_default());
        Ok(Some(Reassembled { payload: &self.buffer[start..start + octets], ecn }))
    }
}

/// Copies octets of `frame` from `skip` on, as many as `out` holds. The frame must have them.
fn copy(frame: &impl Frame, mut skip: usize, mut out: &mut [u8]) {
    let mut index = 0;
    while !out.is_empty() {
        let Some(piece) = frame.piece(index) else {
            debug_assert!(false, "frame shorter than its packet");
            return;
        };
        index += 1;
        let Some(piece) = piece.get(skip..).filter(|piece| !piece.is_empty()) else {
            skip -= piece.len();
            continue;
        };
        let octets = piece.len().min(out.len());
        let (here, rest) = out.split_at_mut(octets);
        here.copy_from_slice(&piece[..octets]);
        (out, skip) = (rest, 0);
    }
}

#[cfg(test)]
mod tests;
