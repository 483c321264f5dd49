//! FPDUs: their size, where Markers fall into them, and their construction (RFC 5044 §4).
//!
//! A position is a number of octets since the first octet of Full Operation in its direction, Markers
//! included. Markers stand at the multiples of 512 and FPDUs begin at multiples of four, so no Marker splits
//! a field (MPA-4.3-11).

use core::ops::Range;

use crate::crc32c::{Digest, Engine, checksum};
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::mpa::Marker;

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

/// The largest ULPDU whose FPDU at `position` takes no more than the `octets` that are left of a segment: the
/// MULPDU of that place. `None` when it would be below 128; then the next segment is the place (MPA-4.5-07).
// MPA-4.5-03, MPA-4.5-04
pub const fn mulpdu_within(position: u64, octets: usize, markers: bool) -> Option<usize> {
    let first = Markers::of(position, markers).first;
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
    /// Octets before the first Marker; `usize::MAX` without Markers, more than any FPDU has.
    first: usize,
}

impl Markers {
    /// The Markers of an FPDU at `position` of a stream that has Markers or has none.
    // MPA-4.3-02, MPA-4.3-06, MPA-7.1.2-19, C00-7.1-01, C00-7.1-05
    #[inline]
    pub const fn of(position: u64, markers: bool) -> Self {
        if !markers {
            return Self { first: usize::MAX };
        }
        let since_marker = (position % Marker::INTERVAL as u64) as usize;
        Self { first: (Marker::INTERVAL - since_marker) % Marker::INTERVAL }
    }

    /// Markers that stand before `octet`.
    #[inline]
    pub const fn before(self, octet: usize) -> usize {
        if octet < self.first { 0 } else { 1 + (octet - self.first) / BETWEEN_MARKERS }
    }

    /// The offset of `octet`.
    #[inline]
    pub const fn offset_of(self, octet: usize) -> usize {
        octet + Marker::LEN * self.before(octet)
    }

    /// Octets from `octet` on that no Marker separates.
    #[inline]
    pub const fn run_at(self, octet: usize) -> usize {
        if octet < self.first {
            self.first - octet
        } else {
            BETWEEN_MARKERS - (octet - self.first) % BETWEEN_MARKERS
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
        octet >= self.first && (octet - self.first).is_multiple_of(BETWEEN_MARKERS)
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
        (0..count).map(move |index| self.first + index * Marker::INTERVAL)
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

/// Writes the FPDU of the ULPDU made of `header` and `payload_len` octets of payload to the front of `out`,
/// where it takes [`wire_len`] octets. `fill` is called for the payload in order, with the offset in it and
/// the octets to fill, as many times as Markers cut it; this is the only copy, and the CRC runs over octets
/// just written.
///
/// `false`, and `out` unspecified, when `fill` says `false`, `out` is too short, or the ULPDU is longer than
/// [`MULPDU_MAX`].
// MPA-3-01, MPA-3-05, MPA-4.1-01, MPA-4.3-01, C00-6-01, C00-7.3-01
#[must_use]
pub fn encode(
    out: &mut [u8],
    position: u64,
    framing: Framing,
    header: &[u8],
    payload_len: usize,
    mut fill: impl FnMut(usize, &mut [u8]) -> bool,
) -> bool {
    encode_in_passes(out, position, framing, header, payload_len, false, |at, out, _| fill(at, out))
}

/// Writes an FPDU as [`encode`] does. If `fill` is called with a digest, it must add what it writes: that is
/// so if `one_pass` is true and there are no Markers. Otherwise the CRC is computed at last.
#[inline]
fn encode_in_passes(
    out: &mut [u8],
    position: u64,
    framing: Framing,
    header: &[u8],
    payload_len: usize,
    one_pass: bool,
    mut fill: impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> bool,
) -> bool {
    if framing.markers {
        let fill = |at, out: &mut [u8]| fill(at, out, None);
        return encode_marked(out, position, framing.crc, header, payload_len, fill);
    }
    let passes = Passes { crc: framing.crc, one: one_pass };
    let put_header = |room: &mut [u8]| copy_header(room, header);
    encode_unmarked(out, passes, header.len(), payload_len, put_header, |payload, digest| {
        payload.is_empty() || fill(0, payload, digest)
    })
}

/// How the CRC of an FPDU is computed.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// There is a CRC.
    pub(super) crc: bool,
    /// The payload is summed as it is copied; otherwise all that the CRC covers is summed at last. Has no
    /// meaning without a CRC.
    pub(super) one: bool,
}

impl Passes {
    /// Returns the passes that take the least time with the engine in use.
    #[inline]
    pub fn summed(crc: bool, payload_len: usize) -> Self {
        Self { crc, one: crc && Engine::best().prefers_one_pass(payload_len) }
    }
}

/// Does what [`encode`] does in a stream without Markers, where every field lies in one piece.
/// `put_header` and `fill` are called once each; `fill` must add what it writes to the digest, if it is
/// called with one.
#[inline]
#[must_use]
pub fn encode_unmarked(
    out: &mut [u8],
    passes: Passes,
    header_len: usize,
    payload_len: usize,
    put_header: impl FnOnce(&mut [u8]),
    fill: impl FnOnce(&mut [u8], Option<&mut Digest>) -> bool,
) -> bool {
    let ulpdu_len = header_len.saturating_add(payload_len);
    if ulpdu_len > MULPDU_MAX {
        return false;
    }
    let Some(out) = out.get_mut(..unmarked_len(ulpdu_len)) else { return false };
    let Some((covered, field)) = out.split_last_chunk_mut() else { return false };
    let Some((head, rest)) = covered.split_at_mut_checked(LENGTH_LEN + header_len) else { return false };
    let Some((length, header)) = head.split_first_chunk_mut() else { return false };
    *length = (ulpdu_len as u16).to_be_bytes();
    put_header(header);
    let Some((payload, pad)) = rest.split_at_mut_checked(payload_len) else { return false };
    // MPA-4.1-04, C00-6-02
    for octet in &mut *pad {
        *octet = 0;
    }
    let mut digest = Digest::new();
    if passes.one {
        digest.update(head);
        if !fill(payload, Some(&mut digest)) {
            return false;
        }
        digest.update(pad);
    } else {
        if !fill(payload, None) {
            return false;
        }
        if passes.crc {
            digest.update(covered);
        }
    }
    *field = if passes.crc { digest.finish().to_le_bytes() } else { [0; CRC_LEN] };
    true
}

/// Copies a header to `out`, which is as long. A copy of a length that the compiler knows takes few
/// instructions, and DDP's headers have one of two.
#[inline]
fn copy_header(out: &mut [u8], header: &[u8]) {
    if header.len() == Tagged::LEN {
        out[..Tagged::LEN].copy_from_slice(&header[..Tagged::LEN]);
    } else if header.len() == Untagged::LEN {
        out[..Untagged::LEN].copy_from_slice(&header[..Untagged::LEN]);
    } else {
        out.copy_from_slice(header);
    }
}

/// The octets that the CRC of an FPDU covers, in a stream with Markers, as they are written.
struct MarkedRoom<'o> {
    out: &'o mut [u8],
    /// The offset of the next octet, and that of ULPDU_Length.
    at: usize,
    start: usize,
    /// Octets before the next Marker.
    to_marker: usize,
}

impl MarkedRoom<'_> {
    /// Returns the room of the next octets up to a Marker, at most `octets`. A Marker right before them is
    /// written.
    #[inline]
    fn piece(&mut self, octets: usize) -> Option<&mut [u8]> {
        if self.to_marker == 0 {
            self.put_marker()?;
        }
        let octets = octets.min(self.to_marker);
        let from = self.at;
        self.at += octets;
        self.to_marker -= octets;
        self.out.get_mut(from..self.at)
    }

    /// Writes the Marker that is next. Its pointer counts from ULPDU_Length, also when it stands before that
    /// (ambiguity A-02).
    #[inline]
    fn put_marker(&mut self) -> Option<()> {
        let marker = Marker { fpdu_ptr: self.at.saturating_sub(self.start) as u16 };
        *self.out.get_mut(self.at..)?.first_chunk_mut()? = marker.emit();
        self.at += Marker::LEN;
        self.to_marker = BETWEEN_MARKERS;
        Some(())
    }

    /// Writes ULPDU_Length and a header; in nearly all FPDUs no Marker falls between them.
    #[inline]
    fn put_head(&mut self, length: [u8; LENGTH_LEN], header: &[u8]) -> Option<()> {
        let head_len = LENGTH_LEN + header.len();
        if head_len > self.to_marker {
            return self.put(&length).and_then(|()| self.put(header));
        }
        let (to_length, to_header) = self.piece(head_len)?.split_first_chunk_mut()?;
        *to_length = length;
        copy_header(to_header, header);
        Some(())
    }

    /// Has `fill` write the next `octets` octets, the first right after a Marker: all pieces but the last are
    /// equally long.
    #[inline]
    fn fill_after_marker(&mut self, octets: usize, mut fill: impl FnMut(usize, &mut [u8]) -> bool) -> bool {
        debug_assert!(self.to_marker == 0 && octets > 0, "a Marker is next");
        let end = self.at + octets + Marker::LEN * octets.div_ceil(BETWEEN_MARKERS);
        let Some(room) = self.out.get_mut(self.at..end) else { return false };
        let (mut pointer, mut filled) = (self.at.saturating_sub(self.start), 0);
        for part in room.chunks_mut(Marker::INTERVAL) {
            let Some((marker, piece)) = part.split_first_chunk_mut() else { return false };
            *marker = Marker { fpdu_ptr: pointer as u16 }.emit();
            if !fill(filled, piece) {
                return false;
            }
            pointer += Marker::INTERVAL;
            filled += piece.len();
        }
        self.at = end;
        self.to_marker = BETWEEN_MARKERS - 1 - (octets - 1) % BETWEEN_MARKERS;
        true
    }

    /// Writes octets in pieces.
    #[cold]
    fn put(&mut self, mut octets: &[u8]) -> Option<()> {
        while !octets.is_empty() {
            let room = self.piece(octets.len())?;
            let part = octets.split_off(..room.len())?;
            room.copy_from_slice(part);
        }
        Some(())
    }
}

/// Does what [`encode`] does in a stream with Markers, in one walk: each Marker goes between the octets
/// before and after it, of which there are 508 but for the first and the last piece. The CRC is computed at
/// last, in one pass over all of it: pieces of 508 octets take longer if each is summed as it is copied.
///
/// The CRC covers a leading Marker, and one between PAD and CRC. Its field is there even if it is not in use.
// Requirements: DDP-3-06, MPA-4.4-01, MPA-4.4-09, MPA-4.4-10, MPA-4.4-14, C00-7.2-03
#[inline]
#[must_use]
pub fn encode_marked(
    out: &mut [u8],
    position: u64,
    crc: bool,
    header: &[u8],
    payload_len: usize,
    mut fill: impl FnMut(usize, &mut [u8]) -> bool,
) -> bool {
    debug_assert!(position.is_multiple_of(4), "FPDUs begin at multiples of four");
    let markers = Markers::of(position, true);
    let ulpdu_len = header.len().saturating_add(payload_len);
    if ulpdu_len > MULPDU_MAX {
        return false;
    }
    let Some(out) = out.get_mut(..markers.wire_len(ulpdu_len)) else { return false };
    let Some((covered, field)) = out.split_last_chunk_mut::<CRC_LEN>() else { return false };
    let (start, to_marker) = (markers.offset_of(0), markers.first);
    let mut room = MarkedRoom { out: covered, at: 0, start, to_marker };
    if room.put_head((ulpdu_len as u16).to_be_bytes(), header).is_none() {
        return false;
    }
    let first = payload_len.min(room.to_marker);
    if first > 0 && !room.piece(first).is_some_and(|piece| fill(0, piece)) {
        return false;
    }
    if first < payload_len && !room.fill_after_marker(payload_len - first, |at, out| fill(first + at, out)) {
        return false;
    }
    // PAD ends at a multiple of four, so that no Marker cuts it.
    // MPA-4.1-04, C00-6-02
    let pad = pad_len(ulpdu_len);
    if pad > 0 && room.put(&[0; 3][..pad]).is_none() {
        return false;
    }
    if room.to_marker == 0 && room.put_marker().is_none() {
        return false;
    }
    debug_assert_eq!(room.at, covered.len(), "the FPDU has another length");
    *field = if crc { checksum(covered).to_le_bytes() } else { [0; CRC_LEN] };
    true
}

/// Writes what comes before a payload sent by reference, without Markers: ULPDU_Length and `header`. Returns
/// its octets; `None` when `out` is too short, the ULPDU would be longer than [`MULPDU_MAX`], or `header`
/// does not leave the payload at a multiple of four, as both DDP headers do and [`tail`] relies on.
#[must_use]
pub fn encode_head(out: &mut [u8], header: &[u8], payload_len: usize) -> Option<usize> {
    let ulpdu_len = header.len().checked_add(payload_len)?;
    let head_len = LENGTH_LEN + header.len();
    if ulpdu_len > MULPDU_MAX || !head_len.is_multiple_of(4) {
        return None;
    }
    let (length, rest) = out.get_mut(..head_len)?.split_first_chunk_mut()?;
    *length = (ulpdu_len as u16).to_be_bytes();
    rest.copy_from_slice(header);
    Some(head_len)
}

/// What comes after a payload of `payload_len` octets sent by reference: PAD and CRC, and how many octets
/// they are. `crc` has seen what [`encode_head`] wrote and the payload; `None` when CRCs are not in use.
#[must_use]
pub fn tail(crc: Option<Digest>, payload_len: usize) -> ([u8; 7], usize) {
    // The head is a multiple of four.
    let pad = payload_len.wrapping_neg() % 4;
    let mut octets = [0; 7];
    let field = crc.map_or([0; CRC_LEN], |mut digest| {
        digest.update(&octets[..pad]);
        digest.finish().to_le_bytes()
    });
    octets[pad..pad + CRC_LEN].copy_from_slice(&field);
    (octets, pad + CRC_LEN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: Framing = Framing { markers: true, crc: true };

    /// An FPDU that is summed as it is copied is the same as one that is summed at last.
    #[test]
    fn one_pass_writes_the_same_fpdu() {
        let payload: Vec<u8> = (0..9000_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for (markers, one_pass) in [(false, true), (true, true), (false, false), (true, false)] {
            for (position, len) in [(0, 0), (4, 511), (8, 512), (12, 1411), (100, 1412), (508, 8999)] {
                let payload = &payload[..len];
                let mut out = vec![0xee; wire_len(position, 18 + len, markers)];
                let framing = Framing { markers, crc: true };
                let mut summed = 0;
                let fill = |at: usize, out: &mut [u8], digest: Option<&mut Digest>| {
                    let payload = &payload[at..at + out.len()];
                    match digest {
                        Some(digest) => {
                            summed += out.len();
                            digest.copy(payload, out);
                        }
                        None => out.copy_from_slice(payload),
                    }
                    true
                };
                assert!(encode_in_passes(&mut out, position, framing, &[1; 18], len, one_pass, fill));
                assert_eq!(out, encoded(position, markers, true, &[1; 18], payload), "{framing:?}, {len}");
                assert_eq!(summed, if one_pass && !markers { len } else { 0 }, "{framing:?}, {len}");
            }
        }
    }

    fn encoded(position: u64, markers: bool, crc: bool, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0xee; wire_len(position, header.len() + payload.len(), markers)];
        assert!(encode(&mut out, position, Framing { markers, crc }, header, payload.len(), |at, out| {
            out.copy_from_slice(&payload[at..at + out.len()]);
            true
        }));
        out
    }

    /// At every phase the FPDU of a MULPDU fits its segment. One octet more does not fit at some phase,
    /// except for the three sizes where the formula itself leaves four octets unused.
    // Requirements: MPA-4.5-01, MPA-4.5-02
    #[test]
    fn mulpdu_fits_at_every_phase() {
        let worst =
            |ulpdu_len, markers| (0..128).map(|phase| wire_len(phase * 4, ulpdu_len, markers)).max().unwrap();
        for emss in (140..1600).chain([2048, 4052, 4312, 8948, 8960, 9000]) {
            assert!(worst(mulpdu(emss, true), true) <= emss, "{emss}");
            assert!(worst(mulpdu(emss, false), false) <= emss, "{emss}");
            assert!(worst(mulpdu(emss, false) + 1, false) > emss, "{emss}");
            if !matches!(emss % 512, 1..=3) {
                assert!(worst(mulpdu(emss, true) + 1, true) > emss, "{emss}");
            }
        }
    }

    /// The rest of a segment is used if an FPDU of 128 octets fits. It is never exceeded, and is filled up to
    /// a few octets that rounding and a Marker need.
    // Requirements: MPA-4.5-04, MPA-4.5-07
    #[test]
    fn what_is_left_of_a_segment_has_a_mulpdu_of_its_own() {
        for markers in [false, true] {
            for position in (0..512).step_by(4) {
                for octets in 0..1600 {
                    let Some(mulpdu) = mulpdu_within(position, octets, markers) else {
                        assert!(octets < 128 + 6 + 4 + 3 + 4, "{octets} at {position}");
                        continue;
                    };
                    assert!(mulpdu >= MULPDU_MIN);
                    assert!(wire_len(position, mulpdu, markers) <= octets, "{octets} at {position}");
                    assert!(wire_len(position, mulpdu + 8, markers) > octets, "{octets} at {position}");
                }
            }
        }
        assert_eq!(mulpdu_within(0, 1448, false), Some(mulpdu(1448, false)));
        assert_eq!(mulpdu_within(0, usize::MAX, false), Some(MULPDU_MAX));
    }

    // Requirements: MPA-3-04, MPA-4.5-06, C00-5.2-02, D08-X-03
    #[test]
    fn mulpdu_stays_within_its_bounds() {
        for emss in (0..=65535).chain([usize::MAX]) {
            for markers in [false, true] {
                assert!((128..=64768).contains(&mulpdu(emss, markers)));
            }
        }
        for emss in 0..140 {
            assert_eq!(mulpdu(emss, true), 128);
        }
    }

    // Requirements: MPA-3-13
    #[test]
    fn the_greatest_mulpdu_is_derived() {
        let segment = 65535 - 60 - 60;
        let ulpdu = segment - (6 + Marker::LEN * 128 + 3);
        assert_eq!(MULPDU_MAX, ulpdu / 128 * 128);
    }

    /// Both encoders refuse a longer one.
    // Requirements: MPA-3-05, MPA-3-06, C00-5.2-03, C00-5.2-04
    #[test]
    fn no_ulpdu_is_longer_than_64768_octets() {
        let mut out = vec![0; 70000];
        let mut fits = |payload_len| encode(&mut out, 0, BOTH, &[0; 18], payload_len, |_, _| true);
        assert!(fits(64768 - 18));
        assert!(!fits(64769 - 18));
        assert!(!fits(usize::MAX));
        assert_eq!(encode_head(&mut [0; 20], &[0; 18], 64769 - 18), None);
        assert_eq!(encode_head(&mut [0; 20], &[0; 18], usize::MAX), None);
    }

    #[test]
    fn short_output_and_failing_sources_are_reported() {
        let mut out = [0; 51];
        assert!(!encode(&mut out, 0, BOTH, &[0; 18], 24, |_, _| true));
        assert!(!encode(&mut [0; 52], 0, BOTH, &[0; 18], 24, |_, _| false));
        assert_eq!(encode_head(&mut out[..19], &[0; 18], 1), None);
        assert_eq!(encode_head(&mut out, &[0; 17], 1), None, "the payload would not be aligned");
    }

    /// SeqStart 11 puts Markers at 11, 523, 1035; and MPA-4.3-03 their pointers.
    // Requirements: MPA-4.3-06
    #[test]
    fn markers_stand_512_apart() {
        let markers = Markers::of(0, true);
        let offsets: Vec<_> = markers.offsets(1442).collect();
        assert_eq!(offsets, [0, 512, 1024]);
        let pointers: Vec<_> = offsets.iter().map(|at| markers.marker_at(*at).fpdu_ptr).collect();
        assert_eq!(pointers, [0, 508, 1020]);
        assert_eq!(Markers::of(492, true).offsets(42).collect::<Vec<_>>(), [20]);
        assert_eq!(Markers::of(492, false).offsets(42).count(), 0);
    }

    /// Runs are those between the Markers, and all octets lie in one, from whichever octet on.
    #[test]
    fn runs_are_what_markers_leave() {
        let runs: Vec<_> = Markers::of(492, true).runs(2, 600).collect();
        assert_eq!(runs, [2..20, 24..532, 536..608]);
        assert_eq!(Markers::of(492, false).runs(2, 600).next(), Some(2..600));
        assert_eq!(Markers::of(0, true).runs(5, 5).count(), 0);
        for position in (0..1024).step_by(4) {
            let markers = Markers::of(position, true);
            for (first, end) in [(0, 1200), (2, 3), (16, 1100), (507, 508), (508, 509), (511, 1500)] {
                let offsets: Vec<_> = markers.runs(first, end).flatten().collect();
                let expected: Vec<_> = (first..end).map(|octet| markers.offset_of(octet)).collect();
                assert_eq!(offsets, expected, "{first} to {end} at {position}");
            }
        }
    }

    /// The pointer of the last Marker of the longest FPDU fits its field.
    #[test]
    fn pointers_fit_sixteen_bits() {
        for phase in 0..128 {
            let markers = Markers::of(phase * 4, true);
            let last = markers.offsets(MULPDU_MAX).last().unwrap();
            assert_eq!(usize::from(markers.marker_at(last).fpdu_ptr), last - markers.offset_of(0));
        }
    }

    proptest! {
        // Requirements: MPA-4.1-03, MPA-4.1-07
        #[test]
        fn fpdus_are_multiples_of_four(ulpdu_len in 0usize..=MULPDU_MAX, phase in 0u64..128, markers: bool) {
            prop_assert_eq!((2 + ulpdu_len + pad_len(ulpdu_len)) % 4, 0);
            prop_assert!(pad_len(ulpdu_len) < 4);
            prop_assert_eq!(wire_len(phase * 4, ulpdu_len, markers) % 4, 0);
        }

        /// A payload by reference produces the same octets as a copied payload.
        #[test]
        fn both_ways_of_sending_agree(
            payload in proptest::collection::vec(any::<u8>(), 0..3000), tagged: bool, crc: bool
        ) {
            let header = &[0xc1; 18][..if tagged { 14 } else { 18 }];
            let mut pieces = vec![0; 20];
            let head_len = encode_head(&mut pieces, header, payload.len()).unwrap();
            pieces.truncate(head_len);
            pieces.extend(&payload);
            let digest = crc.then(|| {
                let mut digest = Digest::new();
                digest.update(&pieces);
                digest
            });
            let (tail, tail_len) = tail(digest, payload.len());
            pieces.extend(&tail[..tail_len]);
            prop_assert_eq!(pieces, encoded(4, false, crc, header, &payload));
        }
    }
}
