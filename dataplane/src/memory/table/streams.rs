//! Which slots belong to one stream, so that they can be found when it is no more.

use crate::visits;

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

    /// A slot of `stream`.
    pub(super) fn find(&self, stream: u32) -> Option<usize> {
        self.of(stream).next()
    }

    /// The slots of `stream`.
    pub(super) fn of(&self, stream: u32) -> impl Iterator<Item = usize> {
        let stream = stream.wrapping_add(1);
        let first = self.rings[self.bucket(stream)].checked_sub(1).map(|first| first as usize);
        let ring = core::iter::successors(first, move |at| {
            let next = usize::from(self.of_slot[*at].next);
            (Some(next) != first).then_some(next)
        });
        ring.inspect(|_| visits::record(1)).filter(move |at| self.of_slot[*at].stream == stream)
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
            match streams.find(sought) {
                Some(found) => assert_eq!(model[found], Some(sought), "step {step}"),
                None => assert!(!model.contains(&Some(sought)), "step {step}"),
            }
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
