//! FPDUs: their size, where Markers fall into them, and their construction (RFC 5044 §4).
//!
//! A position is a number of octets since the first octet of Full Operation in its direction, Markers
//! included. Markers stand at the multiples of 512 and FPDUs begin at multiples of four, so no Marker splits
//! a field (MPA-4.3-11).

use core::ops::Range;

use crate::crc32c::{Digest, Engine, checksum};
use crate::memory::Target;
use crate::wire::ddp::{Header, Tagged, Untagged};
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

/// The payload of an FPDU, wherever its octets are.
pub trait Payload {
    /// Returns the octets of it.
    fn octets(&self) -> usize;

    /// Copies it to `out` from octet `at` on, as many octets as `out` has. Returns false, and `out` is
    /// unspecified, if it cannot be had.
    #[must_use]
    fn read(&mut self, at: usize, out: &mut [u8]) -> bool;

    /// Copies all of it to `out`, which is as long, and adds the copy to `digest`. Returns false as
    /// [`read`](Self::read) does.
    #[must_use]
    #[inline]
    fn read_summed(&mut self, out: &mut [u8], digest: &mut Digest) -> bool {
        let is_read = self.read(0, out);
        digest.update(out);
        is_read
    }

    /// Copies all of it to the front of `out`, except where Markers stand: after the first `to_marker`
    /// octets, and after each 508 more. Returns false as [`read`](Self::read) does.
    #[must_use]
    fn read_marked(&mut self, out: &mut [u8], to_marker: usize) -> bool {
        let mut at = 0;
        let mut pieces = Runs { offset: 0, run: to_marker, left: self.octets() };
        pieces.all(|range| {
            let from = at;
            at += range.len();
            out.get_mut(range).is_some_and(|piece| self.read(from, piece))
        })
    }
}

impl Payload for Target<'_> {
    #[inline]
    fn octets(&self) -> usize {
        Target::octets(self)
    }

    #[inline]
    fn read(&mut self, at: usize, out: &mut [u8]) -> bool {
        Target::read(self, at, out)
    }

    #[inline]
    fn read_summed(&mut self, out: &mut [u8], digest: &mut Digest) -> bool {
        Target::read_summed(self, 0, out, digest)
    }

    #[inline]
    fn read_marked(&mut self, out: &mut [u8], to_marker: usize) -> bool {
        Target::read_marked(self, out, to_marker)
    }
}

/// A payload that a function writes: it is called for the octets in order, with the offset of the first and
/// the room for them, and returns false if they cannot be had.
#[derive(Clone, Copy, Debug)]
pub struct Filled<F> {
    /// Octets of the payload.
    pub octets: usize,
    /// The function.
    pub fill: F,
}

impl<F: FnMut(usize, &mut [u8]) -> bool> Payload for Filled<F> {
    #[inline]
    fn octets(&self) -> usize {
        self.octets
    }

    #[inline]
    fn read(&mut self, at: usize, out: &mut [u8]) -> bool {
        (self.fill)(at, out)
    }
}

/// Writes the FPDU of the ULPDU made of `header` and `payload_len` octets of payload to the front of `out`,
/// where it takes [`wire_len`] octets. `fill` is called for the payload as in [`Filled`], as many times as
/// Markers cut it; this is the only copy, and the CRC runs over octets just written.
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
    // A header may be of any length here, so it is a part of what Markers cut.
    let fill_ulpdu = |at: usize, out: &mut [u8]| {
        let left = header.get(at..).unwrap_or_default();
        let (to_header, rest) = out.split_at_mut(left.len().min(out.len()));
        to_header.copy_from_slice(&left[..to_header.len()]);
        rest.is_empty() || fill(at + to_header.len() - header.len(), rest)
    };
    let ulpdu = Filled { octets: header.len().saturating_add(payload_len), fill: fill_ulpdu };
    if framing.markers {
        return encode_marked(out, Markers::of(position, true), framing.crc, &[], ulpdu);
    }
    let passes = Passes { engine: framing.crc.then(Engine::best), one: false };
    encode_unmarked(out, passes, 0, |_| {}, ulpdu)
}

/// How the CRC of an FPDU is computed.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// What computes the CRC, if there is one.
    pub(super) engine: Option<Engine>,
    /// The payload is summed as it is copied; otherwise all that the CRC covers is summed at last. Has no
    /// meaning without a CRC.
    pub(super) one: bool,
}

impl Passes {
    /// Returns the passes that take the least time with the engine in use.
    #[inline]
    pub fn summed(crc: bool, payload_len: usize) -> Self {
        let engine = crc.then(Engine::best);
        Self { engine, one: engine.is_some_and(|engine| engine.prefers_one_pass(payload_len)) }
    }
}

/// Does what [`encode`] does in a stream without Markers, where every field lies in one piece. `put_header`
/// writes the header of `header_len` octets.
#[inline]
#[must_use]
pub fn encode_unmarked(
    out: &mut [u8],
    passes: Passes,
    header_len: usize,
    put_header: impl FnOnce(&mut [u8]),
    mut payload: impl Payload,
) -> bool {
    let payload_len = payload.octets();
    let ulpdu_len = header_len.saturating_add(payload_len);
    if ulpdu_len > MULPDU_MAX {
        return false;
    }
    let Some(out) = out.get_mut(..unmarked_len(ulpdu_len)) else { return false };
    let Some((covered, field)) = out.split_last_chunk_mut() else { return false };
    let Some((head, rest)) = covered.split_at_mut_checked(LENGTH_LEN + header_len) else { return false };
    put_head(head, ulpdu_len, put_header);
    let Some((room, pad)) = rest.split_at_mut_checked(payload_len) else { return false };
    // MPA-4.1-04, C00-6-02
    for octet in &mut *pad {
        *octet = 0;
    }
    match passes.engine {
        Some(engine) if passes.one => {
            let mut digest = Digest::with_engine(engine);
            digest.update(head);
            if !(payload_len == 0 || payload.read_summed(room, &mut digest)) {
                return false;
            }
            digest.update(pad);
            *field = digest.finish().to_le_bytes();
        }
        engine => {
            if !(payload_len == 0 || payload.read(0, room)) {
                return false;
            }
            *field = engine.map_or(0, |engine| engine.append(0, covered)).to_le_bytes();
        }
    }
    true
}

/// Writes ULPDU_Length and a header to `head`, which is as long as both.
#[inline]
fn put_head(head: &mut [u8], ulpdu_len: usize, put_header: impl FnOnce(&mut [u8])) {
    if let Some((length, header)) = head.split_first_chunk_mut() {
        *length = (ulpdu_len as u16).to_be_bytes();
        put_header(header);
    }
}

/// Does what [`encode`] does in a stream with Markers: the octets of the FPDU go to the places between the
/// Markers, then the Markers to theirs. Of a payload from memory this is one copy in steps of 508 octets. The
/// CRC is computed at last, in one pass over all of it.
///
/// The CRC covers a leading Marker, and one between PAD and CRC. Its field is there even if it is not in use.
// Requirements: DDP-3-06, MPA-4.4-01, MPA-4.4-09, MPA-4.4-10, MPA-4.4-14, C00-7.2-03
// Not inlined: streams with and without Markers pass the same callers.
#[inline(never)]
#[must_use]
pub fn encode_marked(
    out: &mut [u8],
    markers: Markers,
    crc: bool,
    header: &[u8],
    mut payload: impl Payload,
) -> bool {
    debug_assert!(markers.first.is_multiple_of(4), "FPDUs begin at multiples of four");
    let payload_len = payload.octets();
    let ulpdu_len = header.len().saturating_add(payload_len);
    if ulpdu_len > MULPDU_MAX {
        return false;
    }
    let Some(out) = out.get_mut(..markers.wire_len(ulpdu_len)) else { return false };
    let Some((covered, field)) = out.split_last_chunk_mut::<CRC_LEN>() else { return false };
    // PAD, if there is any, perhaps with a Marker after it. The payload goes over the rest.
    // MPA-4.1-04, C00-6-02
    match covered.last_chunk_mut::<{ 4 + Marker::LEN }>() {
        Some(last) => *last = [0; 4 + Marker::LEN],
        None => covered.fill(0),
    }
    let Some((leading, rest)) = covered.split_at_mut_checked(markers.start()) else { return false };
    if let Some(leading) = leading.first_chunk_mut() {
        *leading = Marker { fpdu_ptr: 0 }.emit();
    }
    let first = markers.after_leading().first();
    let mut at = LENGTH_LEN + header.len();
    let mut to_marker = first.wrapping_sub(at);
    if at <= first {
        let Some(head) = rest.get_mut(..at) else { return false };
        put_head(head, ulpdu_len, |room| copy_header(room, header));
    } else {
        if !put_cut_head(rest, first, ulpdu_len, header) {
            return false;
        }
        at += Marker::LEN;
        to_marker = first + Marker::INTERVAL - at;
    }
    let Some(room) = rest.get_mut(at..) else { return false };
    let is_read = if payload_len > to_marker {
        payload.read_marked(room, to_marker)
    } else {
        payload_len == 0 || room.get_mut(..payload_len).is_some_and(|room| payload.read(0, room))
    };
    if !is_read {
        return false;
    }
    put_markers(rest, first);
    *field = if crc { checksum(covered).to_le_bytes() } else { [0; CRC_LEN] };
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

/// Writes ULPDU_Length and `header` to the front of `out` but for the Marker after the first octets of them.
/// Returns false if there is no room, or the header is none of DDP.
#[cold]
fn put_cut_head(out: &mut [u8], octets_before: usize, ulpdu_len: usize, header: &[u8]) -> bool {
    let mut head = [0; LENGTH_LEN + Header::MAX_LEN];
    let Some(head) = head.get_mut(..LENGTH_LEN + header.len()) else { return false };
    put_head(head, ulpdu_len, |room| room.copy_from_slice(header));
    let Some((before, after)) = head.split_at_checked(octets_before) else { return false };
    let Some((to_before, rest)) = out.split_at_mut_checked(octets_before) else { return false };
    to_before.copy_from_slice(before);
    rest.get_mut(Marker::LEN..Marker::LEN + after.len()).is_some_and(|to_after| {
        to_after.copy_from_slice(after);
        true
    })
}

/// Writes the Markers of an FPDU after its ULPDU_Length, which begins `covered`: the first at `first`. A
/// Marker's pointer counts from ULPDU_Length.
// Requirements: MPA-4.3-03, MPA-4.3-08
#[inline]
fn put_markers(covered: &mut [u8], first: usize) {
    let Some(rest) = covered.get_mut(first..) else { return };
    let mut marker = Marker { fpdu_ptr: first as u16 };
    let (intervals, last) = rest.as_chunks_mut::<{ Marker::INTERVAL }>();
    for interval in intervals {
        if let Some(place) = interval.first_chunk_mut() {
            *place = marker.emit();
        }
        marker = marker.next();
    }
    if let Some(place) = last.first_chunk_mut() {
        *place = marker.emit();
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

    /// A payload that counts the octets that it is asked to sum.
    struct Counted<'p>(&'p [u8], &'p mut usize);

    impl Payload for Counted<'_> {
        fn octets(&self) -> usize {
            self.0.len()
        }

        fn read(&mut self, at: usize, out: &mut [u8]) -> bool {
            out.copy_from_slice(&self.0[at..at + out.len()]);
            true
        }

        fn read_summed(&mut self, out: &mut [u8], digest: &mut Digest) -> bool {
            *self.1 += out.len();
            digest.copy(self.0, out);
            true
        }
    }

    /// An FPDU that is summed as it is copied is the same as one that is summed at last.
    #[test]
    fn one_pass_writes_the_same_fpdu() {
        let payload: Vec<u8> = (0..9000_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for (one, len) in
            [false, true].into_iter().flat_map(|one| [0, 511, 512, 1411, 1412, 8999].map(|len| (one, len)))
        {
            let payload = &payload[..len];
            let mut out = vec![0xee; unmarked_len(18 + len)];
            let mut summed = 0;
            let put_header = |room: &mut [u8]| room.copy_from_slice(&[1; 18]);
            let passes = Passes { engine: Some(Engine::best()), one };
            assert!(encode_unmarked(&mut out, passes, 18, put_header, Counted(payload, &mut summed)));
            assert_eq!(out, encoded(0, false, true, &[1; 18], payload), "{one}, {len}");
            assert_eq!(summed, if one { len } else { 0 }, "{len}");
        }
    }

    /// At every phase an FPDU with Markers is what it is octet by octet: each Marker that is due, and between
    /// them length, header, payload, PAD and CRC.
    // Requirements: MPA-4.3-02, MPA-4.3-03, MPA-4.4-09
    #[test]
    fn markers_and_octets_have_their_places() {
        let pattern: Vec<u8> = (0..1600_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for (phase, len) in (0..128).flat_map(|phase| {
            (0..6).chain(470..500).chain([1000, 1411, 1600]).map(move |len| (phase * 4, len))
        }) {
            let header = [0xc1; 14];
            let mut plain = ((14 + len) as u16).to_be_bytes().to_vec();
            plain.extend(header);
            plain.extend(&pattern[..len]);
            plain.resize(plain.len().next_multiple_of(4), 0);
            let mut expected: Vec<u8> = Vec::new();
            let mut length_at = None;
            for four in plain.chunks(4).map(Some).chain([None]) {
                if (phase as usize + expected.len()).is_multiple_of(512) {
                    let pointer = length_at.map_or(0, |length_at| expected.len() - length_at);
                    expected.extend((pointer as u32).to_be_bytes());
                }
                length_at.get_or_insert(expected.len());
                expected.extend(four.unwrap_or_default());
            }
            expected.extend(crc32c::crc32c(&expected).to_le_bytes());
            assert_eq!(encoded(phase, true, true, &header, &pattern[..len]), expected, "{len} at {phase}");
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

    /// With Markers the segments of a message are as long as each other, wherever Markers fall, but where one
    /// would end with a Marker; and an FPDU is at most a Marker shorter than MULPDU.
    // Requirements: MPA-4.5-03, MPA-4.5-05
    #[test]
    fn segments_with_markers_are_equally_long() {
        for emss in (140..1600).chain([2048, 4052, 4312, 8948, 8960, 9000]) {
            let most = mulpdu(emss, true);
            assert_eq!(mulpdu_at(8, emss, false), mulpdu(emss, false));
            for position in (0..512).step_by(4) {
                let here = mulpdu_at(position, emss, true);
                assert!((MULPDU_MIN..=most).contains(&here) && most - here <= 4, "{emss} at {position}");
                let (octets, full) = (wire_len(position, here, true), full_octets(emss));
                assert!(octets <= emss && full <= emss, "{emss} at {position}");
                // Next to the least MULPDU, that counts more.
                if most >= MULPDU_MIN + 4 {
                    let ends_with_marker = !Markers::of(position, true).may_end_after(full as u32);
                    assert_eq!(octets, full - if ends_with_marker { 4 } else { 0 }, "{emss} at {position}");
                }
            }
        }
        assert_eq!((mulpdu(1448, true), full_octets(1448)), (1430, 1444));
        assert_eq!([496, 0, 4].map(|position| mulpdu_at(position, 1448, true)), [1426, 1426, 1430]);
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
