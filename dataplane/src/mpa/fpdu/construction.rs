//! The construction of FPDUs (RFC 5044 §4): ULPDU_Length, the ULPDU, PAD, CRC and Markers are written to
//! their places, and the payload is copied once.

use super::{CRC_LEN, Framing, LENGTH_LEN, MULPDU_MAX, Markers, Runs, unmarked_len};
use crate::crc32c::{Digest, Engine, checksum};
use crate::memory::Target;
use crate::wire::ddp::{Header, Tagged, Untagged};
use crate::wire::mpa::Marker;

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
/// where it takes [`wire_len`](super::wire_len) octets. `fill` is called for the payload as in [`Filled`], as
/// many times as Markers cut it; this is the only copy, and the CRC runs over octets just written.
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
    pub(in crate::mpa) engine: Option<Engine>,
    /// The payload is summed as it is copied; otherwise all that the CRC covers is summed at last. Has no
    /// meaning without a CRC.
    pub(in crate::mpa) one: bool,
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
