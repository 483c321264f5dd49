//! FPDUs that lie whole in one piece of memory, the frame that they came in: they are found and verified in
//! few steps.
//!
//! The result is that of [`FpduReceiver::next`], which takes octets in any number of pieces. What is not
//! valid here is left to it, because it says why.

use super::fpdu::{self, LENGTH_LEN, MULPDU_MAX, Markers};
use super::receiver::{FpduReceiver, Located};
use crate::crc32c::checksum;
use crate::wire::mpa::Marker;

/// An FPDU that is complete and verified, and lies in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'o> {
    /// Where its ULPDU lies.
    pub located: Located,
    /// Octets it takes, Markers included.
    pub wire_len: usize,
    /// Its ULPDU.
    pub ulpdu: Ulpdu<'o>,
}

/// The ULPDU of an FPDU that lies in one piece.
#[derive(Clone, Copy, Debug)]
pub enum Ulpdu<'o> {
    /// No Marker falls into it.
    InOnePiece(&'o [u8]),
    /// It is cut by Markers.
    Cut(CutUlpdu<'o>),
}

/// A ULPDU that is cut by Markers.
#[derive(Clone, Copy, Debug)]
pub struct CutUlpdu<'o> {
    /// The FPDU but for its CRC field.
    fpdu: &'o [u8],
    located: Located,
}

impl<'o> CutUlpdu<'o> {
    /// Octets of the ULPDU, without Markers.
    #[inline]
    pub const fn octets(&self) -> usize {
        self.located.ulpdu_len
    }

    /// Copies its first `N` octets; `None` if it has fewer.
    #[inline]
    pub fn first_octets<const N: usize>(&self) -> Option<[u8; N]> {
        if self.octets() < N {
            return None;
        }
        let mut array = [0; N];
        let mut room = &mut array[..];
        for piece in self.pieces(0) {
            let len = piece.len().min(room.len());
            let (filled, rest) = room.split_at_mut(len);
            filled.copy_from_slice(&piece[..len]);
            room = rest;
            if room.is_empty() {
                break;
            }
        }
        Some(array)
    }

    /// Returns its octets from octet `skip` on, in pieces that no Marker separates.
    #[inline]
    pub fn pieces(&self, skip: usize) -> impl Iterator<Item = &'o [u8]> + use<'o> {
        let Self { fpdu, located } = *self;
        let runs = located.markers.runs(LENGTH_LEN + skip, LENGTH_LEN + located.ulpdu_len);
        runs.map(move |run| fpdu.get(run).unwrap_or_default())
    }
}

impl FpduReceiver {
    /// Returns the next FPDU if it lies whole in `octets` and is valid, as [`next`](Self::next) does; `None`
    /// otherwise.
    #[inline]
    pub fn next_in<'o>(&self, octets: &'o [u8]) -> Option<Whole<'o>> {
        if self.framing.markers { self.next_marked_in(octets) } else { self.next_unmarked_in(octets) }
    }

    #[inline]
    fn next_unmarked_in<'o>(&self, octets: &'o [u8]) -> Option<Whole<'o>> {
        let ulpdu_len = usize::from(u16::from_be_bytes(*octets.first_chunk()?));
        let wire_len = fpdu::unmarked_len(ulpdu_len);
        let (covered, crc) = octets.get(..wire_len)?.split_last_chunk()?;
        // MPA-4.4-12, MPA-4.4-13, MPA-4.4-15, MPA-4.1-06
        if ulpdu_len > MULPDU_MAX || self.framing.crc && checksum(covered).to_le_bytes() != *crc {
            return None;
        }
        let located = Located { markers: Markers::of(0, false), ulpdu_len };
        let ulpdu = Ulpdu::InOnePiece(covered.get(LENGTH_LEN..LENGTH_LEN + ulpdu_len)?);
        Some(Whole { located, wire_len, ulpdu })
    }

    /// [`next_in`](Self::next_in) of a stream with Markers. The CRC covers them, so it is computed over the
    /// octets as they lie; then each Marker is verified.
    ///
    /// Example: at position 492 an FPDU whose ULPDU has 36 octets takes 48. Its Marker, at offset 20, says
    /// 20, and cuts the ULPDU into 18 octets at offset 2 and 18 at offset 24.
    // MPA-4.3-07, MPA-5.2-02, MPA-8-05, C00-9-03
    #[inline(never)]
    fn next_marked_in<'o>(&self, octets: &'o [u8]) -> Option<Whole<'o>> {
        let markers = Markers::of(self.position(), true);
        let length_at = markers.offset_of(0);
        let ulpdu_len = usize::from(u16::from_be_bytes(*octets.get(length_at..)?.first_chunk()?));
        let wire_len = markers.wire_len(ulpdu_len);
        let (covered, crc) = octets.get(..wire_len)?.split_last_chunk()?;
        if ulpdu_len > MULPDU_MAX || self.framing.crc && checksum(covered).to_le_bytes() != *crc {
            return None;
        }
        for at in markers.offsets(ulpdu_len) {
            if Marker::parse(*covered.get(at..)?.first_chunk()?) != markers.marker_at(at) {
                return None;
            }
        }
        let located = Located { markers, ulpdu_len };
        let ulpdu = if markers.run_at(LENGTH_LEN) >= ulpdu_len {
            let at = length_at + LENGTH_LEN;
            Ulpdu::InOnePiece(covered.get(at..at + ulpdu_len)?)
        } else {
            Ulpdu::Cut(CutUlpdu { fpdu: covered, located })
        };
        Some(Whole { located, wire_len, ulpdu })
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

    /// The octets of a ULPDU, joined.
    fn joined(ulpdu: Ulpdu<'_>) -> Vec<u8> {
        match ulpdu {
            Ulpdu::InOnePiece(octets) => octets.to_vec(),
            Ulpdu::Cut(cut) => cut.pieces(0).flatten().copied().collect(),
        }
    }

    /// Returns true if the FPDU at the front of `octets` is valid: both ways of looking at it agree.
    fn both_agree(receiver: &FpduReceiver, octets: &[u8]) -> bool {
        let general = receiver.next(&octets).ok().flatten();
        let whole = receiver.next_in(octets);
        assert_eq!(whole.map(|whole| whole.located.wire_len()), general.map(|located| located.wire_len()));
        let (Some(whole), Some(located)) = (whole, general) else { return false };
        assert_eq!((whole.located.ulpdu_len(), whole.wire_len), (located.ulpdu_len(), located.wire_len()));
        for skip in [0, 14, located.ulpdu_len().saturating_sub(3)] {
            let mut payload = Vec::new();
            located.payload(&octets, skip, |_, slice| payload.extend_from_slice(slice));
            let rest = joined(whole.ulpdu).split_off(skip.min(located.ulpdu_len()));
            assert_eq!(rest, payload, "from octet {skip} on");
            if let Ulpdu::Cut(cut) = whole.ulpdu {
                assert_eq!(cut.pieces(skip).collect::<Vec<_>>().concat(), payload, "from octet {skip} on");
                let mut header = [0; 14];
                let has_header = located.header(&octets, &mut header) == 14;
                assert_eq!(cut.first_octets(), has_header.then_some(header));
            }
        }
        true
    }

    /// At every phase of the Markers an FPDU of the lengths around an interval is found and cut as the
    /// general way does, and with one octet less it is not found.
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

    /// The Marker of the example in [`FpduReceiver::next_marked_in`].
    #[test]
    fn a_marker_cuts_the_ulpdu_where_it_stands() {
        let framing = Framing { markers: true, crc: true };
        let octets = encoded(492, framing, &[7; 36], 0);
        assert_eq!((octets.len(), &octets[20..24]), (48, &[0, 0, 0, 20][..]));
        let receiver = FpduReceiver::at(492, framing);
        let Some(Ulpdu::Cut(cut)) = receiver.next_in(&octets).map(|whole| whole.ulpdu) else {
            panic!("a Marker cuts it");
        };
        assert_eq!(cut.pieces(0).map(<[u8]>::len).collect::<Vec<_>>(), [18, 18]);
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
        /// Whatever is changed, and wherever the octets end, both ways agree.
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
