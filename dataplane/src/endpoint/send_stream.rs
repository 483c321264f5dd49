//! Streaming octets to the peer, before Full Operation.

use std::collections::VecDeque;

use crate::limits;
use crate::wire::tcp::SeqNumber;

/// Streaming octets that the peer has not acknowledged yet, one piece for each command. A retransmission is
/// built from them; each piece is freed when all of it is acknowledged. A connection in Full Operation keeps
/// nothing of its startup, so all that is left of this is a pointer.
#[derive(Debug, Default)]
pub struct SendStream(Option<Box<Kept>>);

/// The octets that are kept, of which there is at least one.
#[derive(Debug)]
struct Kept {
    pieces: VecDeque<Box<[u8]>>,
    /// The place of the first octet kept.
    start: SeqNumber,
    /// Octets kept.
    octets: u32,
    /// Octets of those that TCP has in its queue.
    queued: u32,
    /// Octets of those, the first, whose acknowledgement is not reported.
    unreported: u32,
}

impl SendStream {
    /// Returns no octets.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns `octets`, of which the first is at `start` and TCP has the first `queued` in its queue.
    pub fn resumed(octets: Box<[u8]>, start: SeqNumber, queued: u32) -> Self {
        debug_assert!(queued as usize <= octets.len(), "more queued than there is");
        let kept = octets.len() as u32;
        Self(Some(Box::new(Kept {
            pieces: VecDeque::from([octets]),
            start,
            octets: kept,
            queued,
            unreported: 0,
        })))
    }

    /// Returns how many octets are kept.
    pub fn octets(&self) -> u32 {
        self.0.as_ref().map_or(0, |kept| kept.octets)
    }

    /// Keeps `octets`. `end` is the place after everything that TCP has queued. Returns false, and keeps
    /// nothing, if that would be more than [`STREAM_SEND_BYTES`](limits::STREAM_SEND_BYTES).
    pub fn push(&mut self, octets: Box<[u8]>, end: SeqNumber) -> bool {
        if octets.len() + self.octets() as usize > limits::STREAM_SEND_BYTES {
            return false;
        }
        if octets.is_empty() {
            return true;
        }
        let none =
            || Box::new(Kept { pieces: VecDeque::new(), start: end, octets: 0, queued: 0, unreported: 0 });
        let kept = self.0.get_or_insert_with(none);
        kept.octets += octets.len() as u32;
        kept.pieces.push_back(octets);
        true
    }

    /// Keeps `octets` as [`push`](Self::push) does, the first of a connection. Their release is not reported.
    pub fn begin(&mut self, octets: Box<[u8]>, end: SeqNumber) -> bool {
        debug_assert!(self.0.is_none(), "the first octets of a connection");
        let unreported = octets.len() as u32;
        let fits = self.push(octets, end);
        if let Some(kept) = &mut self.0 {
            kept.unreported = unreported;
        }
        fits
    }

    /// Returns how many octets TCP has not queued yet.
    #[inline]
    pub fn unqueued_octets(&self) -> u32 {
        self.0.as_ref().map_or(0, |kept| kept.octets - kept.queued)
    }

    /// Records that TCP has queued the next `octets` octets.
    pub fn on_queued(&mut self, octets: u32) {
        debug_assert!(octets <= self.unqueued_octets(), "more queued than there is");
        if let Some(kept) = &mut self.0 {
            kept.queued += octets;
        }
    }

    /// Copies the octets at `place` to `out`. Returns false if some of them are not kept.
    pub fn copy(&self, place: SeqNumber, out: &mut [u8]) -> bool {
        self.0.as_ref().map_or(out.is_empty(), |kept| kept.copy(place, out))
    }

    /// Frees the pieces of which all is acknowledged. Returns how many octets of them are reported.
    #[inline]
    pub fn release(&mut self, acknowledged: SeqNumber) -> u32 {
        let Some(kept) = &mut self.0 else { return 0 };
        let freed = kept.release(acknowledged);
        if kept.pieces.is_empty() {
            self.0 = None;
        }
        freed
    }
}

impl Kept {
    fn copy(&self, place: SeqNumber, out: &mut [u8]) -> bool {
        let Ok(mut skip) = usize::try_from(place - self.start) else { return false };
        let mut filled = 0;
        for piece in &self.pieces {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let octets = (piece.len() - skip).min(out.len() - filled);
            out[filled..filled + octets].copy_from_slice(&piece[skip..skip + octets]);
            (filled, skip) = (filled + octets, 0);
            if filled == out.len() {
                return true;
            }
        }
        filled == out.len()
    }

    fn release(&mut self, acknowledged: SeqNumber) -> u32 {
        let mut freed = 0;
        while let Some(piece) = self.pieces.front() {
            let octets = piece.len() as u32;
            // A piece that is not completely queued ends after everything that can be acknowledged.
            if self.start + octets > acknowledged || octets > self.queued {
                break;
            }
            self.pieces.pop_front();
            self.start += octets;
            self.octets -= octets;
            self.queued -= octets;
            freed += octets;
        }
        let unreported = freed.min(self.unreported);
        self.unreported -= unreported;
        freed - unreported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Close to the wrap.
    const END: SeqNumber = SeqNumber(u32::MAX - 2);

    fn filled() -> SendStream {
        let mut stream = SendStream::new();
        for piece in [&b"abc"[..], b"", b"defgh", b"i"] {
            assert!(stream.push(piece.into(), END));
        }
        stream
    }

    #[test]
    fn every_range_can_be_copied_again() {
        let stream = filled();
        for start in 0..9_u32 {
            for end in start..=9 {
                let mut out = vec![0; (end - start) as usize];
                assert!(stream.copy(END + start, &mut out));
                assert_eq!(out, b"abcdefghi"[start as usize..end as usize]);
            }
        }
        assert!(!stream.copy(END + 9, &mut [0]), "beyond the end");
        assert!(!stream.copy(END - 1, &mut [0]), "before the start");
    }

    #[test]
    fn pieces_are_freed_when_all_of_them_is_acknowledged() {
        let mut stream = filled();
        assert_eq!((stream.unqueued_octets(), stream.release(END)), (9, 0));
        stream.on_queued(7);
        assert_eq!(stream.release(END + 2), 0);
        assert_eq!(stream.release(END + 7), 3, "neither all of the second is queued nor acknowledged");
        let mut out = [0; 6];
        assert!(stream.copy(END + 3, &mut out));
        assert_eq!(&out, b"defghi");
        assert!(!stream.copy(END + 2, &mut [0]), "freed");
        stream.on_queued(2);
        assert_eq!((stream.release(END + 9), stream.unqueued_octets()), (6, 0));
        assert!(stream.0.is_none(), "nothing is kept");
        // The next octets begin where TCP's queue ends.
        assert!(stream.push(b"j".as_slice().into(), END + 20));
        assert!(stream.copy(END + 20, &mut [0]));
    }

    #[test]
    fn the_release_of_the_first_octets_is_not_reported() {
        let mut stream = SendStream::new();
        assert!(stream.begin(b"request".as_slice().into(), END));
        assert!(stream.push(b"more".as_slice().into(), END));
        stream.on_queued(11);
        assert_eq!((stream.release(END + 7), stream.octets()), (0, 4));
        assert_eq!((stream.release(END + 11), stream.octets()), (4, 0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut stream = SendStream::new();
        assert!(stream.push(vec![0; limits::STREAM_SEND_BYTES].into(), END));
        assert!(!stream.push([0].into(), END));
        stream.on_queued(stream.unqueued_octets());
        stream.release(END + limits::STREAM_SEND_BYTES as u32);
        assert!(stream.push([0].into(), END));
    }
}
