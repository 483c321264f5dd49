//! FPDUs beyond gaps (RFC 5044 §6, appendices A.3, A.4 and B): where they begin, and whether they are
//! complete and valid.
//!
//! The beginning of an FPDU beyond a gap is known from a Marker, or from the end of a valid FPDU before it. A
//! receiver without Markers therefore looks for none (ambiguity A-21).
//!
//! An example: octets 1000 to 3000 of a stream have arrived, those before them are missing. The Marker at
//! 1024 says that its FPDU began 424 octets before it, at 600: too early. The Marker at 1536 points to 1500,
//! so an FPDU begins there. Its length says that it ends at 2400. If its CRC holds, the next FPDU begins at
//! 2400, and so on to the first that is incomplete.

use core::ops::Range;

use super::Framing;
use super::receiver::{FpduReceiver, Located, Octets, array_at};
use crate::wire::mpa::Marker;
use crate::wire::tcp::SeqNumber;

const INTERVAL: u64 = Marker::INTERVAL as u64;
const MARKER: u64 = Marker::LEN as u64;

/// Octets of a stream that are read from front to back.
pub trait Cursor: Octets {
    /// Moves past `octets` octets, which must be available.
    fn advance(&mut self, octets: usize);
}

impl Cursor for &[u8] {
    fn advance(&mut self, octets: usize) {
        *self = &self[octets..];
    }
}

/// Octets that have arrived beyond a gap, without a gap between them. Positions are those of the stream of
/// Full Operation.
pub trait Stretch {
    /// The octets from some position on.
    type Octets<'s>: Cursor
    where
        Self: 's;

    /// The positions of the first octet and after the last.
    fn positions(&self) -> Range<u64>;

    /// Returns true if an FPDU begins with the first octet: octets placed earlier come right before it.
    fn begins_fpdu(&self) -> bool;

    /// The octets from `position` on.
    fn octets_at(&self, position: u64) -> Self::Octets<'_>;

    /// Returns true if an FPDU at `position`, or after it in the same frame, was refused earlier.
    fn is_refused(&self, position: u64) -> bool;
}

/// Maps sequence numbers of TCP to positions of MPA. Both follow the order in which the peer sent the octets.
// Requirements: MPA-1.2-01, MPA-3-09
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPositions {
    /// The first octet that is not consumed.
    pub unread: SeqNumber,
    /// Its position.
    pub position: u64,
}

impl StreamPositions {
    /// The position of `seq`, which is not consumed.
    pub fn position(self, seq: SeqNumber) -> u64 {
        self.position + u64::from((seq - self.unread).max(0).cast_unsigned())
    }

    /// The sequence number at `position`, which is not consumed.
    pub fn seq(self, position: u64) -> SeqNumber {
        self.unread + (position - self.position) as u32
    }
}

/// Consecutive FPDUs that may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The position after the last.
    pub end: u64,
    /// Whether a complete FPDU begins at [`end`](Self::end) and may not be placed: it is not valid, or
    /// the caller refused it, now or earlier.
    pub refused: bool,
    /// Octets of all FPDUs that were verified, the refused one included.
    pub octets_verified: usize,
}

/// The FPDUs of a stretch, in a stream with Markers.
#[derive(Clone, Copy, Debug)]
pub struct OutOfOrderFpdus<'s, S> {
    stretch: &'s S,
    crc: bool,
}

impl<'s, S: Stretch> OutOfOrderFpdus<'s, S> {
    /// Looks at `stretch`, whose FPDUs have CRCs if `crc` is true.
    pub const fn new(stretch: &'s S, crc: bool) -> Self {
        Self { stretch, crc }
    }

    /// Returns where the first FPDU begins, at `not_before` or later, that can be located and was not
    /// refused: with the stretch, or where a Marker in or next to `arrived` points. Earlier calls have
    /// followed the Markers of other octets.
    // Requirements: MPA-6-02, MPA-6-04, C00-7.4-03
    pub fn locate(&self, arrived: Range<u64>, not_before: u64) -> Option<u64> {
        let Range { start, end } = self.stretch.positions();
        let is_new = |at: &u64| *at >= start && *at >= not_before && !self.stretch.is_refused(*at);
        if self.stretch.begins_fpdu() && is_new(&start) {
            return Some(start);
        }
        let last = arrived.end.next_multiple_of(INTERVAL).min(end.checked_sub(MARKER)?);
        let mut marker_at = arrived.start / INTERVAL * INTERVAL;
        if marker_at < start {
            marker_at += INTERVAL;
        }
        if marker_at > last {
            return None;
        }
        let mut octets = self.stretch.octets_at(marker_at);
        loop {
            let fpdu = FpduReceiver::at_marker(marker_at, Marker::parse(array_at(&octets, 0)), self.crc);
            let found = fpdu.map(|fpdu| fpdu.position()).filter(&is_new);
            marker_at += INTERVAL;
            if found.is_some() || marker_at > last {
                return found;
            }
            octets.advance(Marker::INTERVAL);
        }
    }

    /// Returns true if the FPDUs from `start` on, by their lengths, are complete up to `end` at least.
    pub fn are_entire(&self, start: u64, end: u64) -> bool {
        let (mut octets, mut fpdus) = self.from(start);
        while fpdus.position() < end {
            let Some(located) = fpdus.complete(&octets) else { return false };
            octets.advance(located.wire_len());
            fpdus.advance(&located);
        }
        true
    }

    /// Follows the FPDUs from `start` on by their lengths, as long as they are complete and valid, and
    /// `may_place` accepts them.
    // Requirements: MPA-6-01, MPA-6-03, MPA-6-05
    pub fn verify(&self, start: u64, mut may_place: impl FnMut(&S::Octets<'s>, &Located) -> bool) -> Chain {
        let (mut octets, mut fpdus) = self.from(start);
        let mut octets_verified = 0;
        let refused = loop {
            if self.stretch.is_refused(fpdus.position()) {
                break true;
            }
            let Some(complete) = fpdus.complete(&octets) else { break false };
            octets_verified += complete.wire_len();
            let Ok(Some(located)) = fpdus.next(&octets) else { break true };
            if !may_place(&octets, &located) {
                break true;
            }
            octets.advance(located.wire_len());
            fpdus.advance(&located);
        };
        Chain { end: fpdus.position(), refused, octets_verified }
    }

    /// Calls `f` on the FPDUs from `start` to `end`, which [`verify`](Self::verify) accepted, with the
    /// position of each.
    pub fn for_each(&self, start: u64, end: u64, mut f: impl FnMut(u64, &S::Octets<'s>, &Located)) {
        let (mut octets, mut fpdus) = self.from(start);
        while fpdus.position() < end {
            let Some(located) = fpdus.complete(&octets) else {
                debug_assert!(false, "a verified FPDU is complete");
                break;
            };
            f(fpdus.position(), &octets, &located);
            octets.advance(located.wire_len());
            fpdus.advance(&located);
        }
    }

    /// The octets from `start` on, and the receiver of the FPDU that begins there.
    fn from(&self, start: u64) -> (S::Octets<'s>, FpduReceiver) {
        let framing = Framing { markers: true, crc: self.crc };
        (self.stretch.octets_at(start), FpduReceiver::at(start, framing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpa::fpdu;
    use crate::mpa::receiver::Ulpdu;

    const FRAMING: Framing = Framing { markers: true, crc: true };

    /// A stream of FPDUs with ULPDUs of these lengths, and where they begin.
    fn stream(ulpdu_lens: &[usize]) -> (Vec<u8>, Vec<u64>) {
        let (mut octets, mut starts) = (Vec::new(), Vec::new());
        for &len in ulpdu_lens {
            let position = octets.len() as u64;
            starts.push(position);
            let mut fpdu = vec![0; fpdu::wire_len(position, len, true)];
            assert!(fpdu::encode(&mut fpdu, position, FRAMING, &[], len, |_, out| {
                out.fill(len as u8);
                true
            }));
            octets.extend(fpdu);
        }
        (octets, starts)
    }

    /// The octets of a stream from a position on.
    struct Arrived<'o> {
        octets: &'o [u8],
        start: u64,
        begins_fpdu: bool,
        refused: Vec<u64>,
    }

    impl<'o> Arrived<'o> {
        fn new(stream: &'o [u8], positions: Range<u64>) -> Self {
            let octets = &stream[positions.start as usize..positions.end as usize];
            Self { octets, start: positions.start, begins_fpdu: false, refused: Vec::new() }
        }

        fn locate(&self, not_before: u64) -> Option<u64> {
            OutOfOrderFpdus::new(self, true).locate(self.positions(), not_before)
        }

        fn verify(&self, start: u64) -> Chain {
            OutOfOrderFpdus::new(self, true).verify(start, |_, _| true)
        }
    }

    impl Stretch for Arrived<'_> {
        type Octets<'s>
            = &'s [u8]
        where
            Self: 's;

        fn positions(&self) -> Range<u64> {
            self.start..self.start + self.octets.len() as u64
        }

        fn begins_fpdu(&self) -> bool {
            self.begins_fpdu
        }

        fn octets_at(&self, position: u64) -> &[u8] {
            &self.octets[(position - self.start) as usize..]
        }

        fn is_refused(&self, position: u64) -> bool {
            self.refused.contains(&position)
        }
    }

    /// Wherever the octets begin, the first FPDU located is the first that a Marker in them points to.
    // Requirements: MPA-6-02, MPA-6-04
    #[test]
    fn a_marker_leads_to_the_first_fpdu_that_begins_after_it_can_be_located() {
        let (octets, starts) = stream(&[700, 90, 400, 1442, 36, 60, 2000]);
        let end = octets.len() as u64;
        for from in 0..end {
            let arrived = Arrived::new(&octets, from..end);
            let found = arrived.locate(0);
            if let Some(start) = found {
                assert!(starts.contains(&start) && start >= from, "{start} from {from}");
            }
            // Each FPDU of more than 512 octets contains a Marker.
            let long = starts.windows(2).find(|pair| pair[0] >= from && pair[1] - pair[0] > INTERVAL);
            if let Some(long) = long {
                assert!(found.is_some_and(|start| start <= long[0]), "from {from}");
            }
        }
    }

    /// After an FPDU that was placed, no Marker is needed.
    // Requirements: MPA-6-04
    #[test]
    fn the_end_of_a_placed_fpdu_is_the_beginning_of_the_next() {
        let (octets, starts) = stream(&[100, 80, 80, 80]);
        let mut arrived = Arrived::new(&octets, starts[1]..starts[3]);
        assert_eq!(arrived.locate(0), None, "there is no Marker");
        arrived.begins_fpdu = true;
        assert_eq!(arrived.locate(0), Some(starts[1]));
        assert_eq!(arrived.locate(starts[1] + 1), None, "it was looked at");
        arrived.refused.push(starts[1]);
        assert_eq!(arrived.locate(0), None, "it was refused");
    }

    /// An incomplete FPDU ends the chain and is not refused.
    // Requirements: MPA-6-05
    #[test]
    fn a_chain_ends_before_the_first_fpdu_that_is_not_whole() {
        let (octets, starts) = stream(&[700, 300, 300, 700]);
        for missing in [1, 4, 500] {
            let end = octets.len() as u64 - missing;
            let chain = Arrived::new(&octets, starts[1]..end).verify(starts[1]);
            let octets_verified = (starts[3] - starts[1]) as usize;
            assert_eq!(chain, Chain { end: starts[3], refused: false, octets_verified });
        }
        let arrived = Arrived::new(&octets, starts[1]..starts[3] + 100);
        let fpdus = OutOfOrderFpdus::new(&arrived, true);
        assert!(fpdus.are_entire(starts[1], starts[3]) && !fpdus.are_entire(starts[1], starts[3] + 1));
    }

    /// An FPDU with a wrong CRC is refused, and so is one that the caller rejects.
    // Requirements: MPA-6-01, MPA-6-03
    #[test]
    fn a_chain_ends_before_the_first_fpdu_that_is_refused() {
        let (mut octets, starts) = stream(&[700, 300, 300, 700]);
        let end = octets.len() as u64;
        let chain = |octets: &[u8], may_place: fn(usize) -> bool| {
            let arrived = Arrived::new(octets, starts[1]..end);
            let chain = OutOfOrderFpdus::new(&arrived, true)
                .verify(starts[1], |_, located| may_place(located.ulpdu_len()));
            (chain.end, chain.refused)
        };
        assert_eq!(chain(&octets, |_| true), (end, false));
        assert_eq!(chain(&octets, |len| len != 700), (starts[3], true));
        octets[starts[2] as usize + 50] ^= 1;
        assert_eq!(chain(&octets, |_| true), (starts[2], true));
        let mut arrived = Arrived::new(&octets, starts[1]..end);
        arrived.refused.push(starts[1]);
        let expected = Chain { end: starts[1], refused: true, octets_verified: 0 };
        assert_eq!(arrived.verify(starts[1]), expected, "a refused FPDU is not verified again");
    }

    #[test]
    fn every_fpdu_of_a_chain_is_visited_once() {
        let (octets, starts) = stream(&[700, 300, 36, 700]);
        let arrived = Arrived::new(&octets, starts[1]..octets.len() as u64);
        let mut visited = Vec::new();
        OutOfOrderFpdus::new(&arrived, true).for_each(starts[1], starts[3], |position, octets, located| {
            let mut header = [0; 1];
            located.ulpdu(octets).copy_prefix(&mut header);
            visited.push((position, located.ulpdu_len(), usize::from(header[0])));
        });
        assert_eq!(visited, [(starts[1], 300, 44), (starts[2], 36, 36)]);
    }

    #[test]
    fn positions_and_sequence_numbers_agree_across_the_wrap() {
        let map = StreamPositions { unread: SeqNumber(u32::MAX - 9), position: 1 << 33 };
        for octets in [0, 9, 10, 1 << 20] {
            let position = (1 << 33) + u64::from(octets);
            assert_eq!(map.seq(position), map.unread + octets);
            assert_eq!(map.position(map.unread + octets), position);
        }
        assert_eq!(map.position(map.unread - 1), 1 << 33, "a consumed octet has no position");
    }
}
