//! Which connection a frame belongs to. The table holds the numbers of slots only; a connection's own key stands in its
//! slot, once.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::Slot;
use crate::keyed_hash::KeyedHash;
use crate::net::flow::FlowKey;

/// The connections of a core by their four numbers.
pub(super) struct Flows {
    table: HashTable<u32>,
    hasher: KeyedHash,
}

impl Flows {
    /// An empty table with room for `connections`, hashed under `key`.
    pub(super) fn new(connections: usize, key: [u64; 2]) -> Self {
        Self { table: HashTable::with_capacity(connections), hasher: KeyedHash::new(key) }
    }

    /// The slot of the connection `key`.
    #[inline]
    pub(super) fn get(&self, slots: &[Slot], key: &FlowKey) -> Option<u32> {
        self.table.find(self.hasher.hash_one(key), |index| key_of(slots, *index) == Some(key)).copied()
    }

    /// The connection `key`, not in the table yet, stands in slot `index`.
    pub(super) fn insert(&mut self, slots: &[Slot], key: &FlowKey, index: u32) {
        let hasher = &self.hasher;
        self.table.insert_unique(hasher.hash_one(key), index, |index| {
            key_of(slots, *index).map_or(0, |key| hasher.hash_one(key))
        });
    }

    /// Forgets the connection `key` of slot `index`.
    pub(super) fn remove(&mut self, key: &FlowKey, index: u32) {
        let hash = self.hasher.hash_one(key);
        if let Ok(entry) = self.table.find_entry(hash, |entry| *entry == index) {
            entry.remove();
        }
    }
}

fn key_of(slots: &[Slot], index: u32) -> Option<&FlowKey> {
    Some(&slots.get(index as usize)?.connection.as_ref()?.key)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    fn key(n: u32) -> FlowKey {
        FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: std::net::Ipv4Addr::from(198 << 24 | 18 << 16 | n >> 16).into(),
            remote_port: n as u16,
            local_port: 7471,
        }
    }

    /// Tuples that all go to one place of a table are chosen with its key in hand. Under another key they go
    /// everywhere, so that knowing them is knowing the key.
    #[test]
    fn tuples_collide_under_one_key_only() {
        let [one, same, other] = [[1, 2], [1, 2], [1, 3]].map(|secret| Flows::new(16, secret).hasher);
        let place = |hasher: &KeyedHash, key: &FlowKey| hasher.hash_one(key) % 1024;
        let colliding: Vec<FlowKey> = (0..100_000).map(key).filter(|key| place(&one, key) == 0).collect();
        assert!(colliding.len() > 50, "{}", colliding.len());
        assert!(colliding.iter().all(|key| place(&same, key) == 0), "the key says where a flow goes");
        let still = colliding.iter().filter(|key| place(&other, key) == 0).count();
        assert!(still <= 3, "{still} of {}", colliding.len());
    }
}
