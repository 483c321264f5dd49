//! Receives as they lie in the slots of a receive queue or of a shared receive queue: one cache line each.
//!
//! A slot has room for [two ranges](RANGES_IN_SLOT). The others of a longer receive lie beside the slots, in
//! memory that is allocated when the first such receive is posted to the queue. A queue of 16 takes 1,024
//! octets, and 512 more from then on.

use core::num::NonZeroU32;
use std::sync::OnceLock;

use super::payload::{Slice, SliceList};
use super::slot::{Slot, Slots};
use super::work::ReceiveRequest;
use crate::limits;
use crate::memory::STag;
use crate::sync::Words;

/// Ranges of a receive that lie in its slot.
const RANGES_IN_SLOT: usize = 2;

/// The words of a slot: the identifier; the number of ranges, and the lender; two for each range.
pub(super) const RECEIVE_WORDS: usize = 2 + 2 * RANGES_IN_SLOT;

// With the turn of its slot, a receive takes one cache line.
const _: () = assert!(RECEIVE_WORDS <= 7);

/// The words of the ranges that do not lie in the slot.
const MORE_WORDS: usize = 2 * (limits::SCATTER_GATHER_ELEMENTS - RANGES_IN_SLOT);

/// The ranges of receives that do not lie in their slots, beside each slot of a queue.
#[derive(Debug, Default)]
pub(super) struct MoreRanges {
    /// Not there until a receive is posted that has such ranges.
    places: OnceLock<Box<[Words<MORE_WORDS>]>>,
}

impl MoreRanges {
    /// The place beside the slot at `index` of as many as `slots`, for the thread that posts.
    fn place(&self, index: usize, slots: usize) -> Option<&Words<MORE_WORDS>> {
        self.places.get_or_init(|| (0..slots).map(|_| Words::new()).collect()).get(index)
    }

    /// The words beside the slot of `position`, which was posted.
    fn words(&self, position: u64) -> Option<[u64; MORE_WORDS]> {
        let places = self.places.get()?;
        // There are as many as slots, a power of two.
        Some(places.get(position as usize & (places.len() - 1))?.copy())
    }
}

/// The words of a range.
#[inline]
fn range_words(slice: &Slice) -> [u64; 2] {
    [slice.to, u64::from(slice.stag.0) | u64::from(slice.len) << 32]
}

/// The range that has these words.
#[inline]
const fn range(to: u64, stag_len: u64) -> Slice {
    Slice { stag: STag(stag_len as u32), to, len: (stag_len >> 32) as u32 }
}

impl ReceiveRequest {
    /// Writes the request to the slot of `position`, no more words than count, and beside it.
    #[inline]
    pub(super) fn write_to(&self, slots: &Slots<RECEIVE_WORDS>, position: u64, more: &MoreRanges) {
        let slices = self.local.as_slice();
        let lender = u64::from(self.local.lender.map_or(0, NonZeroU32::get));
        let ranges_lender = slices.len() as u64 | lender << 32;
        if slices.len() > 1 {
            return self.write_ranges_to(slots, position, ranges_lender, more);
        }
        let [to, stag_len] = range_words(&slices.first().copied().unwrap_or_default());
        slots.slot(position).write(position, &[self.id, ranges_lender, to, stag_len]);
    }

    /// Writes a request that has several ranges.
    #[inline(never)]
    fn write_ranges_to(
        &self,
        slots: &Slots<RECEIVE_WORDS>,
        position: u64,
        ranges_lender: u64,
        more: &MoreRanges,
    ) {
        let [first, second, others @ ..] = self.local.as_slice() else { return };
        if !others.is_empty()
            && let Some(place) = more.place(slots.index(position), slots.len())
        {
            write_others(others, place);
        }
        let ([to, stag_len], [second_to, second_stag_len]) = (range_words(first), range_words(second));
        let words = [self.id, ranges_lender, to, stag_len, second_to, second_stag_len];
        // The slot hands over what is beside it, too.
        slots.slot(position).write(position, &words);
    }

    /// Reads the request in `slot`, of which only the words that count are written, and beside it. Where
    /// several cores read, it may be another's, and partly written over: its reader finds out later.
    #[inline]
    pub(super) fn read_from(&mut self, slot: &Slot<RECEIVE_WORDS>, more: &MoreRanges) {
        let [id, ranges_lender, to, stag_len] = slot.copy();
        self.id = id;
        let lender = NonZeroU32::new((ranges_lender >> 32) as u32);
        let ranges = ranges_lender as u32;
        // One without ranges has an empty one.
        self.local.restart(lender, range(to, stag_len), ranges.min(1) as u8);
        if ranges > 1 {
            let [.., second_to, second_stag_len]: [u64; RECEIVE_WORDS] = slot.copy();
            self.local.push(range(second_to, second_stag_len));
        }
        if ranges > RANGES_IN_SLOT as u32 {
            self.read_others(slot, ranges as usize - RANGES_IN_SLOT, more);
        }
    }

    /// Reads the ranges beside `slot`.
    #[cold]
    fn read_others(&mut self, slot: &Slot<RECEIVE_WORDS>, ranges: usize, more: &MoreRanges) {
        for pair in more.words(slot.position()).unwrap_or_default().chunks_exact(2).take(ranges) {
            self.local.push(range(pair[0], pair[1]));
        }
    }

    /// The request in `slot`, and beside it.
    pub(super) fn read(slot: &Slot<RECEIVE_WORDS>, more: &MoreRanges) -> Self {
        let mut request = Self::new(0, SliceList::default());
        request.read_from(slot, more);
        request
    }
}

/// Writes ranges to their place beside a slot.
#[cold]
fn write_others(ranges: &[Slice], place: &Words<MORE_WORDS>) {
    let mut words = [0; MORE_WORDS];
    for (pair, slice) in words.chunks_exact_mut(2).zip(ranges) {
        pair.copy_from_slice(&range_words(slice));
    }
    place.write(&words);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A receive is read as it was posted, whatever its slot has held before, and only those that do not fit
    /// their slots make the queue allocate.
    #[test]
    fn receives_of_any_length_are_read_as_they_were_posted() {
        let slots: Slots<RECEIVE_WORDS> = Slots::new(4);
        let more = MoreRanges::default();
        let slice = |n: u64| Slice { stag: STag(!(n as u32)), to: !n, len: u32::MAX - n as u32 };
        let mut request = ReceiveRequest::new(0, SliceList::default());
        let lens = (0..=limits::SCATTER_GATHER_ELEMENTS).cycle().take(100);
        for (position, ranges) in (0_u64..).zip(lens) {
            let slices: Vec<Slice> = (0..ranges as u64).map(|n| slice(10 * position + n)).collect();
            let mut local = SliceList::try_from(&slices[..]).unwrap();
            local.lender = NonZeroU32::new(position as u32 % 3);
            let posted = ReceiveRequest::new(u64::MAX - position, local);
            posted.write_to(&slots, position, &more);
            request.read_from(slots.written(position).unwrap(), &more);
            assert_eq!((request, request.local.lender), (posted, local.lender));
            assert_eq!(ReceiveRequest::read(slots.slot(position), &more), posted);
            assert_eq!(more.places.get().is_some(), position >= 3, "three ranges come first at position 3");
        }
    }
}
