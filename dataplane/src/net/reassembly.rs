//! IP datagrams that came in fragments (RFC 791 §3.2, RFC 8200 §4.5), put together within a bound.
//!
//! A sender of TCP keeps to the MSS and hears of smaller paths (RFC 5044 §A.5), so fragments are rare, and what they make
//! up is no longer than our MTU. Each datagram therefore has a buffer of that length, allocated once; a fragment is copied
//! to its place and its frame is free again, so that whoever sends halves of datagrams holds nothing of the device.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::drops::{DropCause, Drops};
use crate::limits;
use crate::time::Instant;

/// What the fragments of a datagram have in common (RFC 6864 §4, RFC 8200 §4.5; for IPv6 the protocol is that of the first
/// fragment, and the numbers alone name the datagram).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramId {
    /// Who sent it.
    pub source: IpAddr,
    /// Which of our addresses it is for.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: u8,
    /// The sender's name for it.
    pub identification: u32,
}

/// One fragment.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// The datagram it belongs to.
    pub id: DatagramId,
    /// Where its octets stand in the datagram's payload.
    pub offset: usize,
    /// How many there are.
    pub octets: usize,
    /// Others follow it.
    pub more: bool,
    /// Its ECN bits.
    pub ecn: u8,
    /// Least octets a first fragment must have: those of the header that says whom the datagram is for (RFC 1858 §3.2.1).
    pub first_octets_min: usize,
}

/// A datagram of which every octet is here.
#[derive(Debug)]
pub struct Whole<'r> {
    /// Its payload.
    pub payload: &'r [u8],
    /// Its ECN bits.
    pub ecn: u8,
}

/// First octet and the octet after the last.
type Range = (u16, u16);

/// A datagram that is not whole.
#[derive(Debug)]
struct Datagram {
    id: DatagramId,
    /// When its first fragment came.
    began: Instant,
    /// What has come, in order and without overlap.
    ranges: ArrayVec<Range, { limits::FRAGMENTS_PER_DATAGRAM }>,
    /// Octets in all, once the last fragment has come.
    total: Option<u16>,
    /// Which ECN values were seen, one bit each.
    ecn_seen: u8,
    /// Fragments contradicted each other: what still comes of it is dropped too (RFC 5722 §4).
    refused: bool,
}

/// How a fragment and those before it go together.
enum Fit {
    /// It goes before the range of this index.
    At(usize),
    /// It came before.
    Duplicate,
    /// It contradicts what came before.
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

    fn is_whole(&self) -> bool {
        let mut next = 0;
        for (start, end) in &self.ranges {
            if *start != next {
                return false;
            }
            next = *end;
        }
        self.total == Some(next)
    }

    /// RFC 3168 §5.3: congestion marked on one fragment marks the datagram; a mark beside a fragment of a transport
    /// without ECN is nobody's.
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

/// The datagrams of a core that are not whole.
#[derive(Debug)]
pub struct Reassembly {
    /// By place; a free place holds none.
    datagrams: Vec<Option<Datagram>>,
    /// A piece of this length for each place.
    buffer: Vec<u8>,
    datagram_octets: usize,
}

impl Reassembly {
    /// Room for [`limits::DATAGRAMS_IN_REASSEMBLY`] datagrams of up to `datagram_octets` octets of payload each.
    pub fn new(datagram_octets: usize) -> Self {
        let datagram_octets = datagram_octets.min(usize::from(u16::MAX));
        let places = limits::DATAGRAMS_IN_REASSEMBLY;
        Self {
            datagrams: (0..places).map(|_| None).collect(),
            buffer: vec![0; places * datagram_octets],
            datagram_octets,
        }
    }

    /// Takes a fragment whose octets begin `at` octets into `frame`. Gives the datagram when this was its last.
    ///
    /// # Errors
    ///
    /// Why the fragment was dropped: [`DropCause::Fragment`], [`DropCause::FragmentOverlap`], [`DropCause::Duplicate`].
    pub fn take<F: Frame>(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        frame: &F,
        at: usize,
        drops: &mut Drops,
    ) -> Result<Option<Whole<'_>>, DropCause> {
        self.expire(now, drops);
        let range = self.check(fragment)?;
        let place = self.place_of(fragment.id, now, drops);
        let Some(datagram) = self.datagrams[place].as_mut() else { return Err(DropCause::Fragment) };
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
        let start = place * self.datagram_octets;
        let buffer = &mut self.buffer[start..start + self.datagram_octets];
        copy(frame, at, &mut buffer[usize::from(range.0)..usize::from(range.1)]);
        self.finish(place)
    }

    /// The payload range of a fragment that can be one of a datagram we would take.
    fn check(&self, fragment: &Fragment) -> Result<Range, DropCause> {
        let end = fragment.offset + fragment.octets;
        let aligned = !fragment.more || fragment.octets.is_multiple_of(8);
        // RFC 1858: no first fragment without the ports, no second one that replaces the flags.
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

    /// The place of a datagram; that of the oldest one when it is new and there is no free one.
    fn place_of(&mut self, id: DatagramId, now: Instant, drops: &mut Drops) -> usize {
        let mut best = (0, Instant::NEVER);
        for (place, datagram) in self.datagrams.iter().enumerate() {
            let age = match datagram {
                Some(datagram) if datagram.id == id => return place,
                Some(datagram) => datagram.began,
                // Older than any.
                None => Instant::ZERO,
            };
            if age < best.1 {
                best = (place, age);
            }
        }
        if self.datagrams[best.0].replace(Datagram::new(id, now)).is_some() {
            drops.count(DropCause::ReassemblyEvicted);
        }
        best.0
    }

    fn expire(&mut self, now: Instant, drops: &mut Drops) {
        for place in &mut self.datagrams {
            if let Some(datagram) = place
                && now - datagram.began >= limits::REASSEMBLY_NS
            {
                if !datagram.refused {
                    drops.count(DropCause::ReassemblyTimeout);
                }
                *place = None;
            }
        }
    }

    fn finish(&mut self, place: usize) -> Result<Option<Whole<'_>>, DropCause> {
        let Some(datagram) = self.datagrams[place].take_if(|datagram| datagram.is_whole()) else {
            return Ok(None);
        };
        let ecn = datagram.ecn().ok_or(DropCause::Fragment)?;
        let start = place * self.datagram_octets;
        let octets = usize::from(datagram.total.unwrap_or_default());
        Ok(Some(Whole { payload: &self.buffer[start..start + octets], ecn }))
    }
}

/// Copies octets of `frame` from `skip` on, as many as `out` holds. The caller has seen that they are there.
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
#[path = "reassembly_tests.rs"]
mod tests;
