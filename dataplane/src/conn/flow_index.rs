//! An index of flows: a hash table that never moves its entries at once.
//!
//! A table that grows, or that cleans up after removals, visits all its entries in one call: with 100,000
//! connections that takes milliseconds, in which a core polls nothing. This one has its final size from the
//! beginning, and a removal moves back only the entries that lie after the removed one in a row: one or two
//! in the mean.
//!
//! Example: of 8 buckets, flows A, B and C have the homes 2, 2 and 3, and lie in buckets 2, 3 and 4. Without
//! A, B moves to bucket 2 and C to bucket 3, each nearer to its home, and bucket 4 is empty.

use std::hash::BuildHasher;

use crate::keyed_hash::KeyedHash;
use crate::net::flow::FlowKey;

/// Slots of flows by the flows' addresses and ports. It holds slot numbers only: the caller has the keys.
#[derive(Debug)]
pub(super) struct FlowIndex {
    /// Each is 0, or holds the low half of a flow's hash above one more than its slot. A power of two.
    buckets: Box<[u64]>,
    len: usize,
    hasher: KeyedHash,
}

impl FlowIndex {
    /// Returns an empty index with room for `flows`, hashed under `key`.
    pub(super) fn new(flows: usize, key: [u64; 2]) -> Self {
        // Zeros of the system: no bucket takes memory before it is used.
        Self { buckets: vec![0; Self::buckets(flows)].into(), len: 0, hasher: KeyedHash::new(key) }
    }

    /// Returns how many buckets `flows` flows have: at most four of five are used.
    const fn buckets(flows: usize) -> usize {
        (flows + flows / 4 + 1).next_power_of_two()
    }

    /// Returns the address space of an index for `flows` flows, in bytes.
    pub(super) const fn bytes(flows: usize) -> usize {
        size_of::<u64>() * Self::buckets(flows)
    }

    /// Returns how many flows there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the hasher.
    #[cfg(test)]
    pub(super) const fn hasher(&self) -> &KeyedHash {
        &self.hasher
    }

    /// Returns the slot of the flow `key`. `is_key_of` returns true if the flow in a slot has that key.
    #[inline]
    pub(super) fn find(&self, key: &FlowKey, is_key_of: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = self.hash_of(key);
        let mut place = self.home(hash);
        loop {
            let bucket = self.buckets[place];
            if bucket == 0 {
                return None;
            }
            if hash_in(bucket) == hash && is_key_of(slot_in(bucket)) {
                return Some(slot_in(bucket));
            }
            place = self.after(place);
        }
    }

    /// Adds the flow `key`, which is not in the index, as that of `slot`.
    pub(super) fn insert(&mut self, key: &FlowKey, slot: u32) {
        assert!(self.len + 1 < self.buckets.len(), "a search ends at an empty bucket");
        self.len += 1;
        let hash = self.hash_of(key);
        let mut place = self.home(hash);
        while self.buckets[place] != 0 {
            place = self.after(place);
        }
        self.buckets[place] = u64::from(hash) << 32 | (u64::from(slot) + 1);
    }

    /// Removes the flow `key` of `slot`. Returns true if it was there.
    pub(super) fn remove(&mut self, key: &FlowKey, slot: u32) -> bool {
        let hash = self.hash_of(key);
        let sought = u64::from(hash) << 32 | (u64::from(slot) + 1);
        let mut place = self.home(hash);
        while self.buckets[place] != sought {
            if self.buckets[place] == 0 {
                return false;
            }
            place = self.after(place);
        }
        self.close_gap(place);
        self.len -= 1;
        true
    }

    /// Empties the bucket at `gap`: each entry after it in the row moves back, but not to before its home.
    fn close_gap(&mut self, mut gap: usize) {
        let mut place = self.after(gap);
        while self.buckets[place] != 0 {
            // How far it lies from its home, and from the gap.
            let home = self.home(hash_in(self.buckets[place]));
            if self.distance(home, place) >= self.distance(gap, place) {
                self.buckets[gap] = self.buckets[place];
                gap = place;
            }
            place = self.after(place);
        }
        self.buckets[gap] = 0;
    }

    #[inline]
    fn hash_of(&self, key: &FlowKey) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    #[inline]
    const fn home(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    const fn after(&self, place: usize) -> usize {
        (place + 1) & (self.buckets.len() - 1)
    }

    /// Buckets from one place to another, at or after it.
    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

#[inline]
const fn hash_in(bucket: u64) -> u32 {
    (bucket >> 32) as u32
}

/// Of a bucket that is not empty.
#[inline]
const fn slot_in(bucket: u64) -> u32 {
    (bucket as u32).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn key(n: u16) -> FlowKey {
        FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: [198, 18, 0, 2].into(),
            remote_port: n,
            local_port: 7471,
        }
    }

    /// The index against a map, over random insertions, removals and look-ups. Rows of buckets wrap.
    #[test]
    fn finds_what_a_map_finds() {
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut index = FlowIndex::new(24, [seed, 2]);
            let mut keys = [None; 24];
            let mut model: HashMap<u16, u32> = HashMap::new();
            for step in 0..20_000 {
                let port = rng.u16(..64);
                let found = index.find(&key(port), |slot| keys[slot as usize] == Some(port));
                assert_eq!(found, model.get(&port).copied(), "seed {seed}, step {step}");
                if let Some(slot) = found {
                    assert!(index.remove(&key(port), slot) && !index.remove(&key(port), slot));
                    keys[slot as usize] = None;
                    model.remove(&port);
                } else if let Some(slot) = keys.iter().position(Option::is_none) {
                    keys[slot] = Some(port);
                    index.insert(&key(port), slot as u32);
                    model.insert(port, slot as u32);
                }
            }
            let entries = index.buckets.iter().filter(|bucket| **bucket != 0).count();
            assert!(entries == model.len() && index.len() == entries && entries > 5, "seed {seed}");
        }
    }
}
