//! Which slots belong to one stream, so that they can be found when it is no more.

use crate::tally;

/// The stream of a slot, and its neighbours in the ring of slots whose streams have the same bucket. Zeros
/// where the slot is for no stream.
#[derive(Clone, Copy, Debug, Default)]
struct Membership {
    /// One more than the number of the stream.
    stream: u32,
    next: u16,
    previous: u16,
}

/// The streams of slots: of each the one that it was granted to last, whether or not the grant was
/// invalidated since. A slot with one is in the ring of its stream's bucket. There are as many buckets as
/// slots, so that few streams share one: with 8 slots, streams 3 and 11.
#[derive(Debug)]
pub(super) struct Streams {
    /// By slot.
    of_slot: Vec<Membership>,
    /// By bucket: one more than a slot of the ring; 0 without any.
    rings: Vec<u32>,
}

impl Streams {
    /// No streams, for at most 65,536 slots.
    pub(super) fn new(slots: usize) -> Self {
        assert!(slots <= 1 << 16, "an STag names a slot by 16 bits");
        Self { of_slot: vec![Membership::default(); slots], rings: vec![0; slots.next_power_of_two()] }
    }

    pub(super) fn set(&mut self, index: usize, stream: Option<u32>) {
        let Some(place) = self.of_slot.get(index) else { return };
        // No queue pair has the number that becomes 0.
        let (old, new) = (place.stream, stream.map_or(0, |stream| stream.wrapping_add(1)));
        if old == new {
            return;
        }
        if old != 0 {
            self.unlink(index, old);
        }
        if new != 0 {
            self.link(index, new);
        }
    }

    /// The first slot of `stream`.
    pub(super) fn find(&self, stream: u32) -> Option<usize> {
        tally::record_visits(1);
        let first = self.first_of_ring(stream)?;
        if self.is_of(first, stream) { Some(first) } else { self.after(first, stream) }
    }

    /// The slot of `stream` after `index`, which is in its ring.
    pub(super) fn after(&self, index: usize, stream: u32) -> Option<usize> {
        let first = self.first_of_ring(stream);
        let mut at = index;
        loop {
            at = usize::from(self.of_slot[at].next);
            tally::record_visits(1);
            if Some(at) == first {
                return None;
            }
            if self.is_of(at, stream) {
                return Some(at);
            }
        }
    }

    fn is_of(&self, index: usize, stream: u32) -> bool {
        self.of_slot[index].stream == stream.wrapping_add(1)
    }

    /// The first slot of the ring that those of `stream` are in.
    fn first_of_ring(&self, stream: u32) -> Option<usize> {
        self.rings[self.bucket(stream.wrapping_add(1))].checked_sub(1).map(|first| first as usize)
    }

    const fn bucket(&self, stream: u32) -> usize {
        stream as usize & (self.rings.len() - 1)
    }

    fn link(&mut self, index: usize, stream: u32) {
        let bucket = self.bucket(stream);
        let this = index as u16;
        // Alone, it is its own neighbour.
        let (mut next, mut previous) = (this, this);
        if let Some(first) = self.rings[bucket].checked_sub(1) {
            next = first as u16;
            previous = core::mem::replace(&mut self.of_slot[usize::from(next)].previous, this);
            self.of_slot[usize::from(previous)].next = this;
        }
        self.of_slot[index] = Membership { stream, next, previous };
        self.rings[bucket] = index as u32 + 1;
    }

    fn unlink(&mut self, index: usize, stream: u32) {
        let Membership { next, previous, .. } = core::mem::take(&mut self.of_slot[index]);
        let bucket = self.bucket(stream);
        if usize::from(next) == index {
            self.rings[bucket] = 0;
            return;
        }
        self.of_slot[usize::from(previous)].next = next;
        self.of_slot[usize::from(next)].previous = previous;
        if self.rings[bucket] == index as u32 + 1 {
            self.rings[bucket] = u32::from(next) + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rings against a list, over random changes of a few slots and more streams, some of which share a
    /// bucket.
    #[test]
    fn slots_are_found_by_their_streams() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut streams = Streams::new(12);
        let mut model = [None; 12];
        for step in 0..20_000 {
            let index = rng.usize(..model.len());
            let stream = rng.bool().then(|| rng.u32(..40));
            streams.set(index, stream);
            model[index] = stream;
            let sought = rng.u32(..40);
            let first = streams.find(sought);
            let mut found: Vec<usize> =
                core::iter::successors(first, |index| streams.after(*index, sought)).collect();
            found.sort_unstable();
            let expected: Vec<usize> =
                (0..model.len()).filter(|index| model[*index] == Some(sought)).collect();
            assert_eq!(found, expected, "step {step}");
        }
        for stream in 0..40 {
            while let Some(index) = streams.find(stream) {
                assert_eq!(model[index].take(), Some(stream));
                streams.set(index, None);
            }
        }
        assert_eq!((model, streams.rings), ([None; 12], vec![0; 16]));
    }
}
