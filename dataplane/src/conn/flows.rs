//! Finds the connection of a segment. The table holds slot numbers only; each connection's key is stored
//! once, in its slot.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::keyed_hash::KeyedHash;
use crate::net::flow::FlowKey;

/// The slots of a core's connections, by the connections' addresses and ports.
pub(super) struct Flows {
    slots: HashTable<u32>,
    hasher: KeyedHash,
}

impl Flows {
    /// Returns an empty table with room for `connections`, hashed under `key`.
    pub(super) fn new(connections: usize, key: [u64; 2]) -> Self {
        Self { slots: HashTable::with_capacity(connections), hasher: KeyedHash::new(key) }
    }

    /// Returns the slot of the connection `key`. `is_key_of` returns true if a slot's connection has that
    /// key.
    #[inline]
    pub(super) fn find(&self, key: &FlowKey, is_key_of: impl Fn(u32) -> bool) -> Option<u32> {
        self.slots.find(self.hasher.hash_one(key), |slot| is_key_of(*slot)).copied()
    }

    /// Adds the connection `key`, which is not in the table, as that of `slot`. `key_of` returns the key of a
    /// slot's connection.
    pub(super) fn insert<'k>(
        &mut self,
        key: &FlowKey,
        slot: u32,
        key_of: impl Fn(u32) -> Option<&'k FlowKey>,
    ) {
        let hasher = &self.hasher;
        self.slots.insert_unique(hasher.hash_one(key), slot, |slot| {
            let key = key_of(*slot);
            debug_assert!(key.is_some(), "slot {slot} is in the table without a connection");
            key.map_or(0, |key| hasher.hash_one(key))
        });
    }

    /// Removes the connection `key` of `slot`.
    pub(super) fn remove(&mut self, key: &FlowKey, slot: u32) {
        let entry = self.slots.find_entry(self.hasher.hash_one(key), |entry| *entry == slot);
        debug_assert!(entry.is_ok(), "a connection is in the table from its insertion to its removal");
        if let Ok(entry) = entry {
            entry.remove();
        }
    }
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
