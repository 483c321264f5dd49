//! Which connection a frame belongs to. The table holds the numbers of slots only; a connection's own key stands in its
//! slot, once.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::Slot;
use super::connection::FlowKey;

/// The connections of a core by their four numbers.
pub(super) struct Flows {
    table: HashTable<u32>,
    hasher: foldhash::quality::RandomState,
}

impl Flows {
    /// An empty table with room for `connections`.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            table: HashTable::with_capacity(connections),
            hasher: foldhash::quality::RandomState::default(),
        }
    }

    /// A number for the flow that nobody can guess.
    #[inline]
    pub(super) fn hash(&self, key: &FlowKey) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The slot of the connection `key`.
    #[inline]
    pub(super) fn get(&self, slots: &[Slot], key: &FlowKey) -> Option<u32> {
        self.table.find(self.hash(key), |index| key_of(slots, *index) == Some(key)).copied()
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
        let hash = self.hash(key);
        if let Ok(entry) = self.table.find_entry(hash, |entry| *entry == index) {
            entry.remove();
        }
    }
}

fn key_of(slots: &[Slot], index: u32) -> Option<&FlowKey> {
    Some(&slots.get(index as usize)?.connection.as_ref()?.key)
}
