//! FPDUs that lie in one piece of memory, the frame that they came in: they are found and verified in few
//! steps.
//!
//! The result is that of [`FpduReceiver::next`], which reads octets in any number of pieces. What is not
//! valid here is left to it, because it says why.

use super::fpdu::{self, LENGTH_LEN, MULPDU_MAX, Markers};
use super::receiver::{FpduReceiver, Ulpdu};
use crate::crc32c::checksum;
use crate::memory::Target;
use crate::wire::mpa::Marker;

/// An FPDU that is complete and verified, and lies in one piece.
#[derive(Clone, Copy, Debug)]
pub struct ContiguousFpdu<U> {
    /// Its octets, Markers included.
    pub wire_len: usize,
    /// Its ULPDU.
    pub ulpdu: U,
}

/// How the FPDUs of a stream are framed, which is the same for all of them.
pub trait InFrame {
    /// The ULPDU of one whose octets live as long as `'o`.
    type Ulpdu<'o>: Ulpdu + Copy;

    /// Returns the next FPDU if all of it lies in `octets` and it is valid, as [`FpduReceiver::next`] does;
    /// `None` otherwise.
    fn next<'o>(fpdus: &FpduReceiver, octets: &'o [u8]) -> Option<ContiguousFpdu<Self::Ulpdu<'o>>>;
}

/// Without Markers.
#[derive(Debug)]
pub struct Unmarked;

impl InFrame for Unmarked {
    type Ulpdu<'o> = &'o [u8];

    #[expect(clippy::inline_always, reason = "each FPDU of a burst is located by it")]
    #[inline(always)]
    fn next<'o>(fpdus: &FpduReceiver, octets: &'o [u8]) -> Option<ContiguousFpdu<&'o [u8]>> {
        let ulpdu_len = usize::from(u16::from_be_bytes(*octets.first_chunk()?));
        let wire_len = fpdu::unmarked_len(ulpdu_len);
        let (covered, crc) = octets.get(..wire_len)?.split_last_chunk()?;
        // MPA-4.4-12, MPA-4.4-13, MPA-4.4-15, MPA-4.1-06
        if ulpdu_len > MULPDU_MAX || fpdus.framing.crc && checksum(covered).to_le_bytes() != *crc {
            return None;
        }
        let ulpdu = covered.get(LENGTH_LEN..LENGTH_LEN + ulpdu_len)?;
        Some(ContiguousFpdu { wire_len, ulpdu })
    }
}

/// With Markers.
#[derive(Debug)]
pub struct Marked;

impl InFrame for Marked {
    type Ulpdu<'o> = MarkedUlpdu<'o>;

    /// The CRC covers the Markers, so it is computed over the octets as they lie; then each Marker is
    /// verified.
    ///
    /// Example: at position 492 an FPDU whose ULPDU has 36 octets takes 48. Its Marker, at offset 20, says
    /// 20, and cuts the ULPDU into 18 octets at offset 2 and 18 at offset 24.
    // MPA-4.3-07, MPA-5.2-02, MPA-8-05, C00-9-03
    #[inline]
    fn next<'o>(fpdus: &FpduReceiver, octets: &'o [u8]) -> Option<ContiguousFpdu<MarkedUlpdu<'o>>> {
        let markers = Markers::of(fpdus.position(), true);
        let ulpdu_len = usize::from(u16::from_be_bytes(*octets.get(markers.start()..)?.first_chunk()?));
        let wire_len = markers.wire_len(ulpdu_len);
        let (covered, crc) = octets.get(..wire_len)?.split_last_chunk()?;
        if ulpdu_len > MULPDU_MAX || fpdus.framing.crc && checksum(covered).to_le_bytes() != *crc {
            return None;
        }
        let (leading, fpdu) = covered.split_at_checked(markers.start())?;
        let markers = markers.after_leading();
        let leads = leading.first_chunk().is_none_or(|leading| Marker::parse(*leading).fpdu_ptr == 0);
        if !leads || !fpdu::markers_agree(fpdu, markers.first()) {
            return None;
        }
        let ulpdu = MarkedUlpdu { fpdu, markers, octets: ulpdu_len };
        Some(ContiguousFpdu { wire_len, ulpdu })
    }
}

impl Ulpdu for &[u8] {
    #[inline]
    fn octets(&self) -> usize {
        self.len()
    }

    #[inline]
    fn first_octets<const N: usize>(&self) -> Option<[u8; N]> {
        self.first_chunk().copied()
    }

    #[inline]
    fn contiguous(&self, skip: usize) -> Option<&[u8]> {
        self.get(skip..)
    }

    #[inline]
    fn for_each_piece(&self, skip: usize, mut f: impl FnMut(usize, &[u8])) {
        f(0, self.get(skip..).unwrap_or_default());
    }

    #[inline]
    fn write_to(&self, skip: usize, target: &Target<'_>) -> bool {
        self.get(skip..).is_some_and(|octets| target.write(0, octets))
    }
}

/// The ULPDU of an FPDU that lies in one piece, and that Markers may cut.
#[derive(Clone, Copy, Debug)]
pub struct MarkedUlpdu<'o> {
    /// The FPDU from ULPDU_Length on, but for its CRC field, and the Markers in it.
    fpdu: &'o [u8],
    markers: Markers,
    octets: usize,
}

impl MarkedUlpdu<'_> {
    /// [`first_octets`](Ulpdu::first_octets) that a Marker may cut.
    #[cold]
    fn cut_first_octets<const N: usize>(&self) -> Option<[u8; N]> {
        let mut array = [0; N];
        (self.copy_prefix(&mut array) == N).then_some(array)
    }

    /// [`write_to`](Ulpdu::write_to) of octets that Markers cut.
    // Not inlined: small messages are seldom cut.
    #[inline(never)]
    fn write_cut_to(&self, skip: usize, target: &Target<'_>) -> bool {
        let octet = LENGTH_LEN + skip;
        let octets = self.fpdu.get(self.markers.offset_of(octet)..);
        octets.is_some_and(|octets| target.write_marked(octets, self.markers.run_at(octet)))
    }
}

impl Ulpdu for MarkedUlpdu<'_> {
    #[inline]
    fn octets(&self) -> usize {
        self.octets
    }

    #[inline]
    fn first_octets<const N: usize>(&self) -> Option<[u8; N]> {
        if self.markers.run_at(LENGTH_LEN) < N || self.octets < N {
            return self.cut_first_octets();
        }
        self.fpdu.get(self.markers.offset_of(LENGTH_LEN)..)?.first_chunk().copied()
    }

    #[inline]
    fn contiguous(&self, skip: usize) -> Option<&[u8]> {
        if self.markers.run_at(LENGTH_LEN + skip) < self.octets - skip {
            return None;
        }
        self.fpdu.get(self.markers.offset_of(LENGTH_LEN + skip)..)?.get(..self.octets - skip)
    }

    #[inline]
    fn for_each_piece(&self, skip: usize, mut f: impl FnMut(usize, &[u8])) {
        let mut offset = 0;
        for range in self.markers.runs(LENGTH_LEN + skip, LENGTH_LEN + self.octets) {
            let piece = self.fpdu.get(range).unwrap_or_default();
            f(offset, piece);
            offset += piece.len();
        }
    }

    #[inline]
    fn write_to(&self, skip: usize, target: &Target<'_>) -> bool {
        debug_assert_eq!(target.octets(), self.octets - skip, "the place of another payload");
        match self.contiguous(skip) {
            Some(octets) => target.write(0, octets),
            None => self.write_cut_to(skip, target),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mpa::Framing;

    /// An FPDU at `position` whose ULPDU is `ulpdu`, and `after` octets of another.
    fn encoded(position: u64, framing: Framing, ulpdu: &[u8], after: usize) -> Vec<u8> {
        let mut out = vec![0; fpdu::wire_len(position, ulpdu.len(), framing.markers)];
        assert!(fpdu::encode(&mut out, position, framing, &[], ulpdu.len(), |at, out| {
            out.copy_from_slice(&ulpdu[at..at + out.len()]);
            true
        }));
        out.resize(out.len() + after, 0x5a);
        out
    }

    /// The pieces of a ULPDU from octet `skip` on. Each is named by its offset.
    fn pieces(ulpdu: &impl Ulpdu, skip: usize) -> Vec<Vec<u8>> {
        let mut pieces = Vec::<Vec<u8>>::new();
        ulpdu.for_each_piece(skip, |at, piece| {
            assert_eq!(at, pieces.iter().map(Vec::len).sum());
            pieces.push(piece.to_vec());
        });
        pieces
    }

    /// What a ULPDU says of itself: its octets, the first of them, and those from `skip` on.
    type Shown = (usize, Option<[u8; 14]>, Option<[u8; 18]>, Vec<u8>);

    fn shown(ulpdu: &impl Ulpdu, skip: usize) -> Shown {
        let mut prefix = [0; 14];
        let copied = ulpdu.copy_prefix(&mut prefix);
        assert_eq!(copied, ulpdu.octets().min(14));
        if let Some(first) = ulpdu.first_octets::<14>() {
            assert_eq!(first, prefix);
        }
        (ulpdu.octets(), ulpdu.first_octets(), ulpdu.first_octets(), pieces(ulpdu, skip).concat())
    }

    /// Returns true if the FPDU at the front of `octets` is valid: this is what [`FpduReceiver::next`] finds.
    fn both_agree(receiver: &FpduReceiver, octets: &[u8]) -> bool {
        let general = receiver.next(&octets).ok().flatten();
        let skips = |octets: usize| [0, 14, octets.saturating_sub(3)].map(|skip| skip.min(octets));
        let wire_len = if receiver.has_markers() {
            let fpdu = Marked::next(receiver, octets);
            fpdu.zip(general).inspect(|(fpdu, located)| {
                for skip in skips(located.ulpdu_len()) {
                    assert_eq!(shown(&fpdu.ulpdu, skip), shown(&located.ulpdu(&octets), skip));
                    let pieces = pieces(&fpdu.ulpdu, skip);
                    let contiguous = fpdu.ulpdu.contiguous(skip).map(<[u8]>::to_vec);
                    assert_eq!(contiguous, (pieces.len() <= 1).then(|| pieces.concat()));
                }
            });
            fpdu.map(|fpdu| fpdu.wire_len)
        } else {
            let fpdu = Unmarked::next(receiver, octets);
            fpdu.zip(general).inspect(|(fpdu, located)| {
                for skip in skips(located.ulpdu_len()) {
                    assert_eq!(shown(&fpdu.ulpdu, skip), shown(&located.ulpdu(&octets), skip));
                }
            });
            fpdu.map(|fpdu| fpdu.wire_len)
        };
        assert_eq!(wire_len, general.map(|located| located.wire_len()));
        if wire_len.is_none() {
            return false;
        }
        true
    }

    /// At every phase of the Markers an FPDU of the lengths around an interval is found and cut as
    /// [`FpduReceiver::next`] does, and with one octet less it is not found.
    #[test]
    fn an_fpdu_is_found_at_every_phase() {
        let pattern: Vec<u8> = (0..1600_usize).map(|octet| (octet * 7 + octet / 251) as u8).collect();
        for markers in [false, true] {
            let framing = Framing { markers, crc: true };
            for position in (0..512).step_by(4) {
                for len in (0..40).chain(480..540).chain([1000, 1500]) {
                    let receiver = FpduReceiver::at(position, framing);
                    let octets = encoded(position, framing, &pattern[..len], 3);
                    assert!(both_agree(&receiver, &octets), "{len} at {position}");
                    let wire_len = octets.len() - 3;
                    assert!(!both_agree(&receiver, &octets[..wire_len - 1]), "{len} at {position}");
                }
            }
        }
    }

    /// The Marker of the example at [`Marked::next`].
    #[test]
    fn a_marker_cuts_the_ulpdu_where_it_stands() {
        let framing = Framing { markers: true, crc: true };
        let octets = encoded(492, framing, &[7; 36], 0);
        assert_eq!((octets.len(), &octets[20..24]), (48, &[0, 0, 0, 20][..]));
        let receiver = FpduReceiver::at(492, framing);
        let ulpdu = Marked::next(&receiver, &octets).expect("valid").ulpdu;
        assert_eq!(pieces(&ulpdu, 0).iter().map(Vec::len).collect::<Vec<_>>(), [18, 18]);
    }

    /// With a valid CRC a Marker that points elsewhere is refused: a length that is wrong too would lead to
    /// another Marker.
    #[test]
    fn each_marker_must_point_to_the_length() {
        let framing = Framing { markers: true, crc: false };
        for position in [0, 4, 300, 508] {
            let octets = encoded(position, framing, &[7; 1500], 0);
            let receiver = FpduReceiver::at(position, framing);
            assert!(both_agree(&receiver, &octets));
            let markers = Markers::of(position, true);
            for at in markers.offsets(1500) {
                let mut octets = octets.clone();
                octets[at + 3] ^= 4;
                assert!(!both_agree(&receiver, &octets), "the Marker at {at}");
                octets[at + 3] ^= 4 | 3;
                assert!(both_agree(&receiver, &octets), "the low bits carry nothing");
            }
        }
    }

    proptest! {
        /// Whatever is changed, and wherever the octets end, both agree.
        #[test]
        fn damage_is_seen_by_both(
            phase in 0u64..128,
            len in 0usize..3000,
            (markers, crc) in any::<(bool, bool)>(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let framing = Framing { markers, crc };
            let mut octets = encoded(phase * 4, framing, &vec![0xa5; len], 700);
            for (at, value) in &damage {
                let at = at.index(octets.len());
                octets[at] ^= value;
            }
            let end = cut.map_or(octets.len(), |end| end.index(octets.len()));
            both_agree(&FpduReceiver::at(phase * 4, framing), &octets[..end]);
        }
    }
}
