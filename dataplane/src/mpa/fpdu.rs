//! FPDUs: their size, and where Markers fall into them (RFC 5044 §4).
//!
//! A position is a number of octets since the first octet of Full Operation in its direction, Markers
//! included. Markers stand at the multiples of 512 and FPDUs begin at multiples of four, so no Marker splits
//! a field (MPA-4.3-11).

mod construction;

use core::ops::Range;

use crate::wire::mpa::Marker;

pub use construction::{Filled, Passes, Payload, encode, encode_head, encode_marked, encode_unmarked, tail};

/// The least MULPDU, however small the segments (MPA-3-04, MPA-4.5-06, C00-5.2-02).
pub const MULPDU_MIN: usize = 128;

/// The greatest MULPDU, and the longest ULPDU there may be (MPA-3-04, MPA-3-05, C00-5.2-02, C00-5.2-03).
pub const MULPDU_MAX: usize = 64768;

/// Octets of the ULPDU_Length field.
pub const LENGTH_LEN: usize = 2;

/// Octets of the CRC field.
pub const CRC_LEN: usize = 4;

/// FPDU octets between two Markers.
const BETWEEN_MARKERS: usize = Marker::INTERVAL - Marker::LEN;

const INTERVAL: u32 = Marker::INTERVAL as u32;

/// The largest ULPDU whose FPDU fits a segment of `emss` octets, wherever Markers fall, clamped to
/// 128..=64768. Below 140 octets of EMSS the clamp wins and FPDUs no longer fit (ambiguity A-04).
// MPA-4.5-01, MPA-4.5-02, MPA-4.5-06, MPA-4.5-07, C00-7.3.1-01, C00-7.3.1-03
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers { Marker::LEN * emss.div_ceil(Marker::INTERVAL) } else { 0 };
    let overhead = LENGTH_LEN + CRC_LEN + markers + emss % 4;
    match emss.saturating_sub(overhead) {
        ..MULPDU_MIN => MULPDU_MIN,
        MULPDU_MAX.. => MULPDU_MAX,
        mulpdu => mulpdu,
    }
}

/// The MULPDU of an FPDU that begins a segment of `emss` octets at `position`. With Markers it is up to four
/// octets less than [`mulpdu`], where more Markers fall into the FPDU than elsewhere: so that the segments of
/// a message are equally long. Devices that cut super-frames need that, and what describes one segment
/// describes those after it.
///
/// Example: with an EMSS of 1448 octets MULPDU is 1430, whose FPDU has 1444 octets with two Markers, and
/// 1448 with three. In a place where three fall into it, it is 1426.
// MPA-4.5-03, MPA-4.5-05
#[inline]
pub const fn mulpdu_at(position: u64, emss: usize, markers: bool) -> usize {
    let most = mulpdu(emss, markers);
    if !markers {
        return most;
    }
    match mulpdu_within(position, full_octets(emss), true) {
        Some(mulpdu) if mulpdu < most => mulpdu,
        _ => most,
    }
}

/// The octets of a segment of up to `emss` octets that the longest FPDU with Markers fills: those that it
/// takes with [`mulpdu_at`], unless it would end with a Marker.
#[inline]
pub const fn full_octets(emss: usize) -> usize {
    let unmarked = unmarked_len(mulpdu(emss, true));
    unmarked + Marker::LEN * (unmarked / BETWEEN_MARKERS)
}

/// The largest ULPDU whose FPDU at `position` takes no more than the `octets` that are left of a segment: the
/// MULPDU of that place. `None` when it would be below 128; then the next segment is the place (MPA-4.5-07).
// MPA-4.5-03, MPA-4.5-04
pub const fn mulpdu_within(position: u64, octets: usize, markers: bool) -> Option<usize> {
    let first = Markers::of(position, markers).first();
    let count = if first < octets { 1 + (octets - 1 - first) / Marker::INTERVAL } else { 0 };
    let unmarked = octets.saturating_sub(count * Marker::LEN);
    match (unmarked - unmarked % 4).saturating_sub(LENGTH_LEN + CRC_LEN) {
        ..MULPDU_MIN => None,
        MULPDU_MAX.. => Some(MULPDU_MAX),
        mulpdu => Some(mulpdu),
    }
}

/// Octets of PAD after a ULPDU: what makes length field, ULPDU and PAD a multiple of four. MPA-4.1-03
#[inline]
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() % 4
}

/// Octets of an FPDU without its Markers: ULPDU_Length, ULPDU, PAD and CRC. MPA-4.1-01, MPA-4.1-02,
/// MPA-4.1-07
#[inline]
pub const fn unmarked_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len) + CRC_LEN
}

/// Octets that the FPDU of a ULPDU of `ulpdu_len` octets takes at `position`, Markers included. A Marker
/// right before it belongs to it, one right after it to the next (MPA-4.3-05).
#[inline]
pub fn wire_len(position: u64, ulpdu_len: usize, markers: bool) -> usize {
    Markers::of(position, markers).wire_len(ulpdu_len)
}

/// How one direction of a connection frames its FPDUs, as the startup frames have agreed on (RFC 5044 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Whether the stream has Markers: the receiver's choice.
    pub markers: bool,
    /// Whether the CRC field is filled in and checked; otherwise it is zero and ignored.
    pub crc: bool,
}

/// Where Markers fall into an FPDU that begins at some position.
///
/// The octets of an FPDU are counted without Markers here: octet 0 is the first of ULPDU_Length. An octet's
/// offset counts Markers in: it is the distance from the first octet on the wire, which may be that of a
/// Marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Markers {
    /// Octets before the first Marker; `u32::MAX` without Markers, more than any FPDU has.
    first: u32,
}

impl Markers {
    /// No Markers.
    pub const NONE: Self = Self { first: u32::MAX };

    /// The Markers of an FPDU at `position` of a stream that has Markers or has none.
    // MPA-4.3-02, MPA-4.3-06, MPA-7.1.2-19, C00-7.1-01, C00-7.1-05
    #[inline]
    pub const fn of(position: u64, markers: bool) -> Self {
        if markers { Self { first: (position as u32).wrapping_neg() % INTERVAL } } else { Self::NONE }
    }

    /// Whether the stream has none.
    #[inline]
    pub const fn are_none(self) -> bool {
        self.first == u32::MAX
    }

    /// Octets before the first Marker.
    #[inline]
    pub(super) const fn first(self) -> usize {
        self.first as usize
    }

    /// The offset of ULPDU_Length: a Marker may open the FPDU.
    #[inline]
    pub const fn start(self) -> usize {
        if self.first == 0 { Marker::LEN } else { 0 }
    }

    /// The Markers after ULPDU_Length, where octets and offsets are counted from there.
    #[inline]
    pub(super) const fn after_leading(self) -> Self {
        if self.first == 0 { Self { first: BETWEEN_MARKERS as u32 } } else { self }
    }

    /// The Markers of what begins `octets` octets further in a stream that has Markers.
    #[inline]
    #[must_use]
    pub const fn after(self, octets: u32) -> Self {
        debug_assert!(!self.are_none(), "it is the same everywhere");
        Self { first: self.first.wrapping_sub(octets) % INTERVAL }
    }

    /// Markers in the next `octets` octets of a stream that has Markers, these included.
    #[inline]
    pub const fn within(self, octets: u32) -> u32 {
        debug_assert!(!self.are_none(), "there are none");
        (octets + (INTERVAL - 1) - self.first) / INTERVAL
    }

    /// Whether an FPDU can take just `octets` octets, a multiple of four, in a stream that has Markers: none
    /// ends with a Marker.
    #[inline]
    pub const fn may_end_after(self, octets: u32) -> bool {
        self.first != octets.wrapping_sub(Marker::LEN as u32) % INTERVAL
    }

    /// Markers that stand before `octet`.
    #[inline]
    pub const fn before(self, octet: usize) -> usize {
        if octet < self.first() { 0 } else { 1 + (octet - self.first()) / BETWEEN_MARKERS }
    }

    /// The offset of `octet`.
    #[inline]
    pub const fn offset_of(self, octet: usize) -> usize {
        octet + Marker::LEN * self.before(octet)
    }

    /// Octets from `octet` on that no Marker separates.
    #[inline]
    pub const fn run_at(self, octet: usize) -> usize {
        if octet < self.first() {
            self.first() - octet
        } else {
            BETWEEN_MARKERS - (octet - self.first()) % BETWEEN_MARKERS
        }
    }

    /// Returns the runs of octets from `octet` to `end` that no Marker separates, by their offsets.
    ///
    /// Example: 20 octets before a Marker, the octets 2 to 600 have the offsets 2 to 20, 24 to 532 and 536 to
    /// 608.
    #[inline]
    pub fn runs(self, octet: usize, end: usize) -> Runs {
        Runs { offset: self.offset_of(octet), run: self.run_at(octet), left: end.saturating_sub(octet) }
    }

    /// Whether a Marker stands right before `octet`.
    #[inline]
    pub const fn has_marker_at(self, octet: usize) -> bool {
        octet >= self.first() && (octet - self.first()).is_multiple_of(BETWEEN_MARKERS)
    }

    /// The Marker at offset `at`. Its pointer counts from ULPDU_Length, also when a Marker stands before that
    /// (ambiguity A-02).
    // Requirements: MPA-4.3-03, MPA-4.3-08, C00-7.1-02, C00-7.1-03, C00-7.1-06, C00-7.1-07
    #[inline]
    pub const fn marker_at(self, at: usize) -> Marker {
        Marker { fpdu_ptr: at.saturating_sub(self.offset_of(0)) as u16 }
    }

    /// The offsets of the Markers of an FPDU whose ULPDU has `ulpdu_len` octets.
    #[inline]
    pub fn offsets(self, ulpdu_len: usize) -> impl Iterator<Item = usize> {
        let count = self.before(unmarked_len(ulpdu_len) - 1);
        (0..count).map(move |index| self.first() + index * Marker::INTERVAL)
    }

    /// Octets that the FPDU takes with its Markers.
    #[inline]
    pub const fn wire_len(self, ulpdu_len: usize) -> usize {
        // The octet after the last may have a Marker before it, which is no longer ours.
        self.offset_of(unmarked_len(ulpdu_len) - 1) + 1
    }
}

/// The iterator that [`Markers::runs`] returns.
#[derive(Clone, Debug)]
pub struct Runs {
    /// The offset of the next run, its octets if it is not the last, and all octets that are left.
    offset: usize,
    run: usize,
    left: usize,
}

impl Iterator for Runs {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if self.left == 0 {
            return None;
        }
        let octets = self.run.min(self.left);
        let begin = self.offset;
        self.offset = begin + octets + Marker::LEN;
        self.left -= octets;
        self.run = BETWEEN_MARKERS;
        Some(begin..begin + octets)
    }
}

/// Whether the Markers of an FPDU after its ULPDU_Length, which begins `covered`, point there: the first is
/// at `first`. All are looked at: RFC 5044 §8 lets receivers skip some.
// Requirements: MPA-4.3-07, MPA-5.2-02, MPA-8-05, C00-9-03
#[inline]
pub(super) fn markers_agree(covered: &[u8], first: usize) -> bool {
    let Some(rest) = covered.get(first..) else { return true };
    let (mut expected, mut differences) = (Marker { fpdu_ptr: first as u16 }, 0);
    let mut compare = |place: Option<&[u8; Marker::LEN]>| {
        if let Some(place) = place {
            differences |= Marker::parse(*place).fpdu_ptr ^ expected.fpdu_ptr;
            expected = expected.next();
        }
    };
    let (intervals, last) = rest.as_chunks::<{ Marker::INTERVAL }>();
    for interval in intervals {
        compare(interval.first_chunk());
    }
    compare(last.first_chunk());
    differences == 0
}

#[cfg(test)]
mod tests;
