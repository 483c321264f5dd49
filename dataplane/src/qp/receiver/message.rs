//! The message that is being received on the queue of Sends, and its receive.
//!
//! A receive stays in the slot where it was posted, or in the shared receive queue, until the first segment
//! of its message is placed. One of a shared receive queue is moved to the queue pair before that only for a
//! message beyond a gap, or one that is refused.

use arrayvec::ArrayVec;

use crate::limits;
use crate::memory::{Access, StagTable, Target};
use crate::qp::shared::SharedQp;
use crate::qp::work::{ReceiveRequest, Slice, SliceList};

/// The next message on the queue of Sends.
#[derive(Debug)]
pub(super) struct Message {
    /// Its receive, once it has begun.
    pub request: ReceiveRequest,
    /// Octets placed: the offset at which the next segment must begin.
    pub placed: u32,
    /// Octets of the range `range` that are placed. If that range is full, the next segment begins in one
    /// after it.
    placed_in_range: u32,
    range: u8,
    /// Its first segment is placed, so the receive is its own.
    pub begun: bool,
}

impl Message {
    pub(super) fn new() -> Self {
        let request = ReceiveRequest::new(0, SliceList::default());
        Self { request, placed: 0, placed_in_range: 0, range: 0, begun: false }
    }

    /// Returns the memory of the next `octets` octets if they lie in the range that was written last; `None`
    /// if they do not, or there are none.
    #[inline]
    pub(super) fn in_one_range(&self, octets: usize) -> Option<Slice> {
        let range = self.request.local.as_slice().get(usize::from(self.range))?;
        let left = (range.len - self.placed_in_range) as usize;
        let to = range.to.wrapping_add(u64::from(self.placed_in_range));
        (1..=left).contains(&octets).then_some(Slice { stag: range.stag, to, len: octets as u32 })
    }

    /// Adds the ranges of the next `octets` octets to `memory`, which is empty. Returns false if its receive
    /// has no room for them, or the application may not write one of the ranges.
    #[inline]
    pub(super) fn add_next<'t>(
        &self,
        memory: &mut Memory<'t>,
        octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> bool {
        let (mut at, mut skip) = (0, self.placed_in_range);
        for range in self.request.local.as_slice().get(usize::from(self.range)..).unwrap_or_default() {
            let len = ((range.len - skip) as usize).min(octets - at) as u32;
            if len > 0 {
                let part = Slice { stag: range.stag, to: range.to.wrapping_add(u64::from(skip)), len };
                let Some(target) = writable(&part, shared, stags) else { return false };
                if memory.0.try_push((at, target)).is_err() {
                    return false;
                }
                at += len as usize;
            }
            if at == octets {
                break;
            }
            skip = 0;
        }
        at == octets
    }

    /// Counts `octets` octets that are placed.
    #[inline]
    pub(super) fn advance(&mut self, octets: usize) {
        let mut octets = octets as u32;
        self.placed += octets;
        // To the range that the last of them is in, or the last one.
        let ranges = self.request.local.as_slice();
        while let Some(range) = ranges.get(usize::from(self.range))
            && octets > range.len - self.placed_in_range
        {
            octets -= range.len - self.placed_in_range;
            self.placed_in_range = 0;
            self.range += 1;
        }
        self.placed_in_range += octets;
    }

    /// Ends: the next message has no receive yet.
    #[inline]
    pub(super) const fn end(&mut self) {
        (self.placed, self.placed_in_range, self.range, self.begun) = (0, 0, 0, false);
    }
}

/// Checked ranges that the payload of one segment is placed in, in order, each with the offset in the payload
/// at which it begins.
pub(super) struct Memory<'t>(ArrayVec<(usize, Target<'t>), { limits::SCATTER_GATHER_ELEMENTS }>);

impl<'t> Memory<'t> {
    /// No ranges.
    #[inline]
    pub(super) const fn none() -> Self {
        Self(ArrayVec::new_const())
    }

    /// One range for all of the payload, or none for an empty one.
    pub(super) fn of_target(target: Option<Target<'t>>) -> Self {
        Self(target.into_iter().map(|target| (0, target)).collect())
    }

    /// Adds the ranges of `request` for `octets` octets from offset `mo` on. Returns false if the application
    /// may not write one of them.
    #[inline]
    pub(super) fn add_receive(
        &mut self,
        request: &ReceiveRequest,
        mo: u32,
        octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> bool {
        request.local.pieces(u64::from(mo), octets).all(|(at, part)| {
            let target = writable(&part, shared, stags);
            target.is_some_and(|target| self.0.try_push((at, target)).is_ok())
        })
    }

    /// Writes `payload`, which the ranges are for.
    #[inline]
    pub(super) fn write_all(&self, payload: &[u8]) {
        for (begin, target) in &self.0 {
            let part = payload.get(*begin..begin + target.octets());
            let is_written = part.is_some_and(|part| target.write(0, part));
            debug_assert!(is_written, "all of the segment was checked before");
        }
    }

    /// Writes `octets`, which are at `at` of the payload.
    pub(super) fn write(&self, at: usize, octets: &[u8]) -> bool {
        let mut written = 0;
        for (begin, target) in &self.0 {
            // The offset in this range of the next octet; none if the range begins later.
            let Some(place) = (at + written).checked_sub(*begin) else { break };
            let Some(room) = target.octets().checked_sub(place) else { continue };
            let part = &octets[written..(written + room).min(octets.len())];
            if !target.write(place, part) {
                return false;
            }
            written += part.len();
        }
        written == octets.len()
    }
}

/// Returns a range of a receive if the application may write it.
#[inline]
pub(super) fn writable<'t>(range: &Slice, shared: &SharedQp, stags: &'t StagTable) -> Option<Target<'t>> {
    stags.check(range.stag, shared.accessor(), Access::LOCAL_WRITE, range.to, range.len as usize).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::STag;

    fn message(lens: &[u32]) -> Message {
        let slices: Vec<Slice> =
            lens.iter().zip(1..).map(|(&len, n)| Slice { stag: STag::new(n, 0), to: 100, len }).collect();
        let request = ReceiveRequest::new(7, SliceList::try_from(&slices[..]).unwrap());
        Message { request, begun: true, ..Message::new() }
    }

    /// Where the next octets lie follows from those before, however they were cut.
    #[test]
    fn the_next_octets_lie_after_those_placed() {
        let in_one = |message: &Message, octets| {
            message.in_one_range(octets).map(|slice| (slice.stag.index(), slice.to - 100, slice.len))
        };
        let mut message = message(&[10, 0, 20, 30]);
        assert_eq!(in_one(&message, 10), Some((1, 0, 10)));
        assert_eq!((in_one(&message, 11), in_one(&message, 0)), (None, None));
        message.advance(4);
        assert_eq!((in_one(&message, 6), in_one(&message, 7)), (Some((1, 4, 6)), None));
        message.advance(6);
        assert_eq!(in_one(&message, 1), None, "the range is full");
        message.advance(1);
        assert_eq!((in_one(&message, 19), in_one(&message, 20)), (Some((3, 1, 19)), None));
        message.advance(30);
        assert_eq!((in_one(&message, 19), in_one(&message, 20)), (Some((4, 11, 19)), None));
        assert_eq!(message.placed, 41);
        message.end();
        assert_eq!((in_one(&message, 10), message.begun), (Some((1, 0, 10)), false));
    }

    /// A segment that ends in the next range may begin at the end of one of 2^32 - 1 octets.
    #[test]
    fn a_range_may_be_as_long_as_a_message() {
        let mut message = message(&[u32::MAX, 20]);
        message.placed_in_range = u32::MAX - 4;
        message.advance(10);
        assert_eq!((message.range, message.placed_in_range), (1, 6));
    }

    #[test]
    fn a_receive_without_ranges_has_no_memory() {
        let mut message = message(&[]);
        assert_eq!((message.in_one_range(0), message.in_one_range(1)), (None, None));
        message.advance(0);
        assert_eq!(message.placed, 0);
    }
}
