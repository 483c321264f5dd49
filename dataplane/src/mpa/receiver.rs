//! Finds FPDUs in a stream of octets and verifies them before anybody looks inside (RFC 5044 §6).
//!
//! The octets lie in the frames they came in. They are walked where they are: nothing is copied but headers
//! and what the caller copies to its place.

use super::MpaError;
use super::fpdu::{CRC_LEN, Framing, LENGTH_LEN, MULPDU_MAX, Markers};
use crate::crc32c::Digest;
use crate::memory::Target;
use crate::wire::mpa::Marker;

/// Octets of the stream that are in order, from the receiver's position on, in any number of slices: where
/// segments begin and end makes no difference (MPA-5.1-05, MPA-A.4-01, C00-7.4.1-01).
pub trait Octets {
    /// Calls `f` on the slices that make up `len` octets from `start` on, in order. The range lies within
    /// [`available`](Self::available).
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8]));

    /// How many octets there are.
    fn available(&self) -> usize;
}

impl Octets for &[u8] {
    fn for_each_slice(&self, start: usize, len: usize, mut f: impl FnMut(&[u8])) {
        if let Some(slice) = self.get(start..).and_then(|rest| rest.get(..len)) {
            f(slice);
        }
    }

    fn available(&self) -> usize {
        self.len()
    }
}

/// `N` octets from `start` on.
pub(super) fn array_at<const N: usize>(octets: &impl Octets, start: usize) -> [u8; N] {
    let mut array = [0; N];
    let mut gather = Gather { out: &mut array, filled: 0 };
    octets.for_each_slice(start, N, |slice| gather.push(slice));
    array
}

/// Collects slices in one place, as much of them as fits.
struct Gather<'a> {
    out: &'a mut [u8],
    filled: usize,
}

impl Gather<'_> {
    fn push(&mut self, slice: &[u8]) {
        let end = self.out.len().min(self.filled + slice.len());
        if let Some(out) = self.out.get_mut(self.filled..end) {
            out.copy_from_slice(&slice[..out.len()]);
        }
        self.filled = end;
    }
}

/// A ULPDU, the DDP Segment of an FPDU that is complete and verified, wherever its octets lie.
pub trait Ulpdu {
    /// How many octets it has, without Markers.
    fn octets(&self) -> usize;

    /// Copies its first `N` octets; `None` if it has fewer.
    fn first_octets<const N: usize>(&self) -> Option<[u8; N]>;

    /// Returns its octets from octet `skip` on, if they lie in one piece.
    fn contiguous(&self, skip: usize) -> Option<&[u8]>;

    /// Calls `f` on its octets from octet `skip` on, in order, in as many pieces as they lie in, each with
    /// its offset from `skip`.
    fn for_each_piece(&self, skip: usize, f: impl FnMut(usize, &[u8]));

    /// Copies its octets from octet `skip` on to `target`, which has as many. Returns false if that cannot be
    /// written.
    #[must_use]
    fn write_to(&self, skip: usize, target: &Target<'_>) -> bool {
        let mut is_written = true;
        self.for_each_piece(skip, |at, piece| is_written &= target.write(at, piece));
        is_written
    }

    /// Copies its first octets, as many as there are and fit `prefix`. Returns their number.
    fn copy_prefix(&self, prefix: &mut [u8]) -> usize {
        let mut gather = Gather { out: prefix, filled: 0 };
        self.for_each_piece(0, |_, piece| gather.push(piece));
        gather.filled
    }
}

/// The ULPDU of an FPDU that lies in any number of pieces.
#[derive(Clone, Copy, Debug)]
pub struct SplitUlpdu<'o, O> {
    octets: &'o O,
    located: Located,
}

impl<O: Octets> Ulpdu for SplitUlpdu<'_, O> {
    fn octets(&self) -> usize {
        self.located.ulpdu_len
    }

    fn first_octets<const N: usize>(&self) -> Option<[u8; N]> {
        let mut array = [0; N];
        (self.copy_prefix(&mut array) == N).then_some(array)
    }

    fn contiguous(&self, _skip: usize) -> Option<&[u8]> {
        None
    }

    fn for_each_piece(&self, skip: usize, mut f: impl FnMut(usize, &[u8])) {
        let (mut offset, octets) = (0, self.octets().saturating_sub(skip));
        self.located.walk(self.octets, skip, octets, |piece| {
            f(offset, piece);
            offset += piece.len();
        });
    }

    fn copy_prefix(&self, prefix: &mut [u8]) -> usize {
        let len = prefix.len().min(self.octets());
        let mut gather = Gather { out: prefix, filled: 0 };
        self.located.walk(self.octets, 0, len, |piece| gather.push(piece));
        len
    }
}

/// An FPDU that is complete and verified. Offsets and octets are as in [`Markers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub(super) markers: Markers,
    pub(super) ulpdu_len: usize,
}

impl Located {
    /// Octets of the FPDU in the stream, Markers included.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        self.markers.wire_len(self.ulpdu_len)
    }

    /// Octets of the ULPDU. MPA-3-07, MPA-4.3-10, C00-5.2-05, DDP-3-07
    #[inline]
    pub const fn ulpdu_len(&self) -> usize {
        self.ulpdu_len
    }

    /// Whether a Marker opens the FPDU.
    #[inline]
    pub const fn leading_marker(&self) -> bool {
        self.markers.has_marker_at(0)
    }

    /// How many Markers the FPDU has, a leading one included.
    #[inline]
    pub fn marker_count(&self) -> usize {
        self.markers.offsets(self.ulpdu_len).count()
    }

    /// Its ULPDU. `octets` are those the FPDU was located in.
    #[inline]
    pub const fn ulpdu<'o, O: Octets>(&self, octets: &'o O) -> SplitUlpdu<'o, O> {
        SplitUlpdu { octets, located: *self }
    }

    /// Calls `f` on `len` octets of the ULPDU from `start` on, in pieces that no Marker separates.
    // MPA-4.1-05, MPA-4.3-09, MPA-4.3-10, C00-7.1-08, C00-7.1-09
    #[inline]
    fn walk(&self, octets: &impl Octets, start: usize, len: usize, mut f: impl FnMut(&[u8])) {
        let mut octet = LENGTH_LEN + start;
        let end = octet + len;
        while octet < end {
            let piece = self.markers.run_at(octet).min(end - octet);
            octets.for_each_slice(self.markers.offset_of(octet), piece, &mut f);
            octet += piece;
        }
    }

    // MPA-4.4-12, MPA-4.4-13, MPA-4.4-15, C00-7.2-04
    fn crc_holds(&self, octets: &impl Octets) -> bool {
        let covered = self.wire_len() - CRC_LEN;
        let mut digest = Digest::new();
        octets.for_each_slice(0, covered, |slice| digest.update(slice));
        array_at(octets, covered) == digest.finish().to_le_bytes()
    }

    /// Whether every Marker points to the ULPDU_Length that was used. All are looked at: RFC 5044 §8 lets
    /// receivers skip some, and this costs four octets in 512.
    // MPA-4.3-07, MPA-5.2-02, MPA-8-05, C00-9-03
    fn markers_agree(&self, octets: &impl Octets) -> bool {
        self.markers
            .offsets(self.ulpdu_len)
            .all(|at| Marker::parse(array_at(octets, at)) == self.markers.marker_at(at))
    }
}

/// Follows one half connection from FPDU to FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduReceiver {
    position: u64,
    pub(super) framing: Framing,
}

impl FpduReceiver {
    /// A receiver at the first octet of Full Operation, with Markers if this end asked for them and CRCs if
    /// either did.
    pub const fn new(framing: Framing) -> Self {
        Self::at(0, framing)
    }

    /// A receiver at an FPDU that begins at `position`, its leading Marker included.
    pub const fn at(position: u64, framing: Framing) -> Self {
        Self { position, framing }
    }

    /// A receiver at the FPDU that `marker`, which stands at `position`, says it belongs to. Only a valid CRC
    /// makes the FPDU found so an FPDU (MPA-6-04). `None` when no FPDU of this stream can begin there.
    // MPA-4.3-04, MPA-6-02, C00-7.4-03
    pub fn at_marker(position: u64, marker: Marker, crc: bool) -> Option<Self> {
        let length = match marker.fpdu_ptr {
            0 => {
                return position
                    .is_multiple_of(Marker::INTERVAL as u64)
                    .then_some(Self::at(position, Framing { markers: true, crc }));
            }
            distance => position.checked_sub(u64::from(distance))?,
        };
        let leading = length.checked_sub(Marker::LEN as u64)?;
        let start = if leading.is_multiple_of(Marker::INTERVAL as u64) { leading } else { length };
        // Where a Marker stands, no ULPDU_Length does; and the pointer must be one that the FPDU's own layout
        // gives.
        let markers = Markers::of(start, true);
        let at = usize::try_from(position - start).ok()?;
        (length % Marker::INTERVAL as u64 != 0 && markers.marker_at(at) == marker)
            .then_some(Self::at(start, Framing { markers: true, crc }))
    }

    /// Whether the stream has Markers.
    pub const fn has_markers(&self) -> bool {
        self.framing.markers
    }

    /// Octets of stream before the FPDU that is next.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The next FPDU, once all of it is there and verified: first its CRC, then its Markers. `None` while
    /// octets are missing; [`needed`](Self::needed) says how many there must be.
    ///
    /// # Errors
    ///
    /// [`MpaError::Crc`]; [`MpaError::Marker`] when Markers and ULPDU_Length disagree, or the length is above
    /// 64768: then there is no boundary to trust (ambiguity A-05), and nothing is waited for. After an error
    /// nothing more is to be passed on.
    // Requirements: MPA-4.4-16, MPA-5.2-01, C00-7.2-05, C00-7.4-01, C00-7.4-02, C00-7.4-04
    #[inline]
    pub fn next(&self, octets: &impl Octets) -> Result<Option<Located>, MpaError> {
        let Some(located) = self.locate(octets) else {
            return Ok(None);
        };
        let possible = located.ulpdu_len <= MULPDU_MAX;
        if octets.available() < located.wire_len() {
            return if possible { Ok(None) } else { Err(MpaError::Marker) };
        }
        // MPA-4.1-06, MPA-7.1.1-09, A-10: a CRC that is not in use counts as valid.
        if self.framing.crc && !located.crc_holds(octets) {
            return Err(MpaError::Crc);
        }
        if !possible || !located.markers_agree(octets) {
            return Err(MpaError::Marker);
        }
        Ok(Some(located))
    }

    /// Whether what [`next`](Self::next) gave `error` for may have been damaged on the path, so that another
    /// copy may be good: its CRC is wrong, or its length is none and no CRC says that it was sent so.
    // MPA-8-02, MPA-8-03, MPA-8-08
    pub fn may_be_damage(&self, octets: &impl Octets, error: MpaError) -> bool {
        error == MpaError::Crc
            || self.locate(octets).is_some_and(|located| {
                let verified = self.framing.crc && octets.available() >= located.wire_len();
                located.ulpdu_len > MULPDU_MAX && !verified
            })
    }

    /// Returns the next FPDU by its ULPDU_Length, once all of it is there. It is not verified here: only
    /// [`next`](Self::next), called with the same octets at the same position, says whether it is valid.
    pub fn complete(&self, octets: &impl Octets) -> Option<Located> {
        self.locate(octets).filter(|located| octets.available() >= located.wire_len())
    }

    /// Octets that must be there from the position on for the next FPDU to be complete, as far as is known:
    /// without its ULPDU_Length, those up to and including that.
    pub fn needed(&self, octets: &impl Octets) -> usize {
        self.locate(octets).map_or(self.length_end(), |located| located.wire_len())
    }

    /// Moves past `located`, which [`next`](Self::next) gave.
    pub const fn advance(&mut self, located: &Located) {
        self.pass(located.wire_len());
    }

    /// Moves past `octets` octets of FPDUs that were verified before.
    pub const fn pass(&mut self, octets: usize) {
        self.position += octets as u64;
    }

    /// The FPDU its ULPDU_Length describes, not yet verified; `None` without that field.
    #[inline]
    fn locate(&self, octets: &impl Octets) -> Option<Located> {
        let length_end = self.length_end();
        (octets.available() >= length_end).then(|| Located {
            markers: Markers::of(self.position, self.framing.markers),
            ulpdu_len: usize::from(u16::from_be_bytes(array_at(octets, length_end - LENGTH_LEN))),
        })
    }

    /// The offset after ULPDU_Length.
    #[inline]
    const fn length_end(&self) -> usize {
        Markers::of(self.position, self.framing.markers).offset_of(0) + LENGTH_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c::checksum;
    use crate::mpa::fpdu;
    use crate::wire::tcp::SeqNumber;

    /// Octets cut into slices of `slice_len`.
    struct Cut<'a>(&'a [u8], usize);

    impl Octets for Cut<'_> {
        fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
            self.0[start..start + len].chunks(self.1).for_each(f);
        }

        fn available(&self) -> usize {
            self.0.len()
        }
    }

    fn encoded(position: u64, markers: bool, ulpdu: &[u8]) -> Vec<u8> {
        let mut out = vec![0; fpdu::wire_len(position, ulpdu.len(), markers)];
        assert!(fpdu::encode(
            &mut out,
            position,
            Framing { markers, crc: true },
            &[],
            ulpdu.len(),
            |at, out| {
                out.copy_from_slice(&ulpdu[at..at + out.len()]);
                true
            }
        ));
        out
    }

    fn ulpdu(len: usize) -> Vec<u8> {
        (0..len).map(|octet| octet as u8).collect()
    }

    /// Without its last octet no FPDU is located, and the number of missing octets is known once the length
    /// has arrived.
    // Requirements: MPA-6-05, C00-7.4-04
    #[test]
    fn incomplete_fpdus_say_what_they_need() {
        let octets = encoded(0, true, &ulpdu(600));
        let receiver = FpduReceiver::new(Framing { markers: true, crc: true });
        for len in 0..octets.len() {
            assert_eq!(receiver.next(&&octets[..len]), Ok(None));
            assert_eq!(receiver.needed(&&octets[..len]), if len < 6 { 6 } else { octets.len() });
        }
        let located = receiver.next(&&octets[..]).unwrap().unwrap();
        assert_eq!((located.wire_len(), located.ulpdu_len()), (octets.len(), 600));
        assert!(located.leading_marker());
        assert_eq!(located.marker_count(), 2);
    }

    /// Slices of any length produce the same ULPDU.
    // Requirements: MPA-A.4-01, MPA-5.1-05
    #[test]
    fn slices_make_no_difference() {
        for (position, markers, len) in
            [(0, true, 2000), (508, true, 1200), (100, true, 500), (4, false, 1200)]
        {
            let ulpdu = ulpdu(len);
            let octets = encoded(position, markers, &ulpdu);
            for slice_len in [1, 2, 3, 5, 64, 511, 5000] {
                let cut = Cut(&octets, slice_len);
                let located =
                    FpduReceiver::at(position, Framing { markers, crc: true }).next(&cut).unwrap().unwrap();
                let mut header = [0; 18];
                assert_eq!(located.ulpdu(&cut).copy_prefix(&mut header), 18);
                assert_eq!(header, ulpdu[..18]);
                let mut payload = vec![0; len - 18];
                located.ulpdu(&cut).for_each_piece(18, |at, slice| {
                    payload[at..at + slice.len()].copy_from_slice(slice);
                });
                assert_eq!(payload, ulpdu[18..]);
            }
        }
    }

    /// In the common case the CRC passes over the octets once, and the payload is one slice.
    #[test]
    fn a_contiguous_fpdu_without_markers_is_one_slice() {
        let octets = encoded(40, false, &ulpdu(8942));
        let octets = &octets[..];
        let located =
            FpduReceiver::at(40, Framing { markers: false, crc: true }).next(&octets).unwrap().unwrap();
        let mut slices = Vec::new();
        located.ulpdu(&octets).for_each_piece(14, |at, slice| slices.push((at, slice.len())));
        assert_eq!(slices, [(0, 8928)]);
        located.ulpdu(&octets).for_each_piece(9000, |_, _| panic!("nothing is left"));
    }

    /// The CRC comes first, and no Marker goes unlooked at.
    // Requirements: MPA-6-01, C00-7.4-01, C00-7.4-02, MPA-4.4-15, MPA-8-02, MPA-8-03
    #[test]
    fn every_damage_is_found() {
        let octets = encoded(0, true, &ulpdu(1442));
        let receiver = FpduReceiver::new(Framing { markers: true, crc: true });
        for at in (0..octets.len()).filter(|at| !(4..6).contains(at)) {
            let mut damaged = octets.clone();
            damaged[at] ^= 4;
            assert_eq!(receiver.next(&&damaged[..]), Err(MpaError::Crc), "{at}");
        }
        for marker in [0, 512, 1024] {
            let mut damaged = octets.clone();
            damaged[marker + 3] ^= 4;
            let covered = damaged.len() - 4;
            let crc = checksum(&damaged[..covered]).to_le_bytes();
            damaged[covered..].copy_from_slice(&crc);
            assert_eq!(receiver.next(&&damaged[..]), Err(MpaError::Marker));
            // Without CRCs too.
            // Requirements: A-10
            assert_eq!(
                FpduReceiver::new(Framing { markers: true, crc: false }).next(&&damaged[..]),
                Err(MpaError::Marker)
            );
        }
    }

    /// PAD counts for the CRC only.
    // Requirements: MPA-4.1-05, C00-6-02
    #[test]
    fn pad_may_hold_anything() {
        let mut octets = encoded(0, false, &ulpdu(19));
        octets[21..24].fill(0xaa);
        assert_eq!(
            FpduReceiver::new(Framing { markers: false, crc: true }).next(&&octets[..]),
            Err(MpaError::Crc)
        );
        let crc = checksum(&octets[..24]).to_le_bytes();
        octets[24..].copy_from_slice(&crc);
        for crc in [true, false] {
            assert_eq!(
                FpduReceiver::new(Framing { markers: false, crc })
                    .next(&&octets[..])
                    .unwrap()
                    .unwrap()
                    .ulpdu_len(),
                19
            );
        }
    }

    /// No ULPDU at all is passed up; one too long is refused as soon as its length is there.
    // Requirements: A-05
    #[test]
    fn lengths_out_of_range() {
        let empty = encoded(0, false, &[]);
        let receiver = FpduReceiver::new(Framing { markers: false, crc: true });
        let located = receiver.next(&&empty[..]).unwrap().unwrap();
        assert_eq!((located.ulpdu_len(), located.wire_len()), (0, 8));
        assert_eq!(located.ulpdu(&&empty[..]).copy_prefix(&mut [0; 18]), 0);
        assert_eq!(receiver.next(&&[0xfd, 0x01][..]), Err(MpaError::Marker), "64769");
        assert_eq!(receiver.next(&&[0xfd, 0x00][..]), Ok(None), "64768");
    }

    /// A length above 64768 is error 3 if the CRC is right or cannot be checked, and error 2 if it is wrong.
    /// Only a right CRC shows that the peer sent this length.
    // Requirements: MPA-4.4-15, MPA-8-03, A-05
    #[test]
    fn a_length_out_of_range_is_judged_by_its_crc() {
        let mut octets = vec![0xff, 0xff];
        octets.extend(ulpdu(0xffff));
        octets.resize(octets.len().next_multiple_of(4), 0);
        let crc = checksum(&octets).to_le_bytes();
        octets.extend(crc);
        let receiver = FpduReceiver::new(Framing { markers: false, crc: true });
        let judged = |octets: &[u8]| {
            let error = receiver.next(&octets).unwrap_err();
            (error, receiver.may_be_damage(&octets, error))
        };
        assert_eq!(judged(&octets), (MpaError::Marker, false));
        assert_eq!(judged(&octets[..octets.len() - 1]), (MpaError::Marker, true));
        assert_eq!(judged(&octets[..2]), (MpaError::Marker, true));
        octets[1000] ^= 1;
        assert_eq!(judged(&octets), (MpaError::Crc, true));
        let without_crc = FpduReceiver::new(Framing { markers: false, crc: false });
        assert_eq!(without_crc.next(&&octets[..]), Err(MpaError::Marker));
        assert!(without_crc.may_be_damage(&&octets[..], MpaError::Marker));
        // A Marker that disagrees under a right CRC was sent so.
        let mut octets = encoded(0, true, &ulpdu(700));
        octets[3] ^= 4;
        let covered = octets.len() - 4;
        let crc = checksum(&octets[..covered]).to_le_bytes();
        octets[covered..].copy_from_slice(&crc);
        let receiver = FpduReceiver::new(Framing { markers: true, crc: true });
        assert_eq!(receiver.next(&&octets[..]), Err(MpaError::Marker));
        assert!(!receiver.may_be_damage(&&octets[..], MpaError::Marker));
    }

    /// The Marker positions of a stream, also where sequence numbers wrap.
    // Requirements: MPA-4.3-04, MPA-4.3-06
    #[test]
    fn markers_in_sequence_space() {
        for (start, positions) in [
            (11, [11, 523, 1035]),
            (0xffff_ff00, [0xffff_ff00, 0x0000_0100, 0x0000_0300]),
            (0xffff_fffc, [0xffff_fffc, 0x0000_01fc, 0x0000_03fc]),
            (0xffff_fffe, [0xffff_fffe, 0x0000_01fe, 0x0000_03fe]),
        ] {
            let found: Vec<_> =
                Markers::of(0, true).offsets(1400).map(|at| SeqNumber(start) + at as u32).collect();
            assert_eq!(found, positions.map(SeqNumber));
        }
        let marker = Marker { fpdu_ptr: 0x01fc };
        let length = SeqNumber(0x0000_0100) - u32::from(marker.fpdu_ptr);
        assert_eq!(length, SeqNumber(0xffff_ff04));
    }

    /// Every Marker of every FPDU leads to its receiver.
    // Requirements: MPA-6-04
    #[test]
    fn markers_lead_to_their_fpdu() {
        let mut position = 0;
        for len in [18, 42, 1442, 494, 486, 30, 500, 8000, 64768, 20] {
            let markers = Markers::of(position, true);
            for at in markers.offsets(len) {
                let found = FpduReceiver::at_marker(position + at as u64, markers.marker_at(at), true);
                assert_eq!(found, Some(FpduReceiver::at(position, Framing { markers: true, crc: true })));
            }
            position += fpdu::wire_len(position, len, true) as u64;
        }
        let marker = |fpdu_ptr| Marker { fpdu_ptr };
        assert_eq!(FpduReceiver::at_marker(512, marker(512), true), None, "a Marker stands there");
        assert_eq!(FpduReceiver::at_marker(512, marker(516), true), None, "before the stream");
        assert_eq!(FpduReceiver::at_marker(513, marker(0), true), None, "no Marker there");
    }
}
