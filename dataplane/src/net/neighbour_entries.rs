//! A table by IP address whose recent entries are found without a hash.

use std::collections::HashMap;
use std::net::IpAddr;

use super::addresses::last_octet;
use crate::keyed_hash::KeyedHash;

/// Places that are remembered, by the last octet of the address.
const RECENT: usize = 16;

/// A table by IP address.
#[derive(Debug)]
pub(super) struct Entries<T> {
    places: HashMap<IpAddr, u32, KeyedHash>,
    /// In no order.
    values: Vec<(IpAddr, T)>,
    /// Where entries were found last. A place may have another entry by now, or none.
    recent: [u32; RECENT],
}

impl<T> Entries<T> {
    /// Returns an empty table with room for `capacity` entries.
    pub(super) fn with_capacity(capacity: usize, hasher: KeyedHash) -> Self {
        Self {
            places: HashMap::with_capacity_and_hasher(capacity, hasher),
            values: Vec::with_capacity(capacity),
            recent: [0; RECENT],
        }
    }

    /// Returns how many entries there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the entry of `address`.
    pub(super) fn get(&self, address: IpAddr) -> Option<&T> {
        let place = *self.places.get(&address)?;
        self.values.get(place as usize).map(|(_, entry)| entry)
    }

    /// Returns the entry of `address`, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, address: IpAddr) -> Option<&mut T> {
        let recent = &mut self.recent[last_octet(address) as usize % RECENT];
        if self.values.get(*recent as usize).is_none_or(|(found, _)| *found != address) {
            *recent = *self.places.get(&address)?;
        }
        self.values.get_mut(*recent as usize).map(|(_, entry)| entry)
    }

    /// Adds an entry for `address`, which has none.
    pub(super) fn insert(&mut self, address: IpAddr, entry: T) {
        let before = self.places.insert(address, self.values.len() as u32);
        debug_assert!(before.is_none(), "{address} has two entries");
        self.values.push((address, entry));
    }

    /// Removes the entry of `address`.
    pub(super) fn remove(&mut self, address: IpAddr) {
        let Some(place) = self.places.remove(&address) else { return };
        self.values.swap_remove(place as usize);
        if let Some((moved, _)) = self.values.get(place as usize) {
            self.places.insert(*moved, place);
        }
    }

    /// Returns all entries, in the order of the hash.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, &T)> {
        self.places
            .iter()
            .filter_map(|(address, place)| self.values.get(*place as usize).map(|found| (*address, &found.1)))
    }

    /// Calls `f` for all entries, in the order of the hash.
    pub(super) fn for_each_mut(&mut self, mut f: impl FnMut(IpAddr, &mut T)) {
        for (address, place) in &self.places {
            if let Some((_, entry)) = self.values.get_mut(*place as usize) {
                f(*address, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(host: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0xc612_0000 + host).into()
    }

    /// The table against a map, over random insertions, removals and look-ups.
    #[test]
    fn finds_what_a_map_finds() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut table = Entries::with_capacity(64, KeyedHash::new([1, 2]));
        let mut model = HashMap::new();
        for step in 0..20_000u32 {
            let address = ip(rng.u32(..64));
            match rng.u8(..4) {
                0 if !model.contains_key(&address) => {
                    table.insert(address, step);
                    model.insert(address, step);
                }
                1 => {
                    table.remove(address);
                    model.remove(&address);
                }
                _ => assert_eq!(table.get_mut(address).copied(), model.get(&address).copied(), "{step}"),
            }
            assert_eq!((table.get(address), table.len()), (model.get(&address), model.len()), "{step}");
        }
        let mut seen = 0;
        table.for_each_mut(|address, entry| {
            assert_eq!(model.get(&address), Some(&*entry));
            seen += 1;
        });
        assert!(seen == model.len() && table.iter().count() == seen && seen > 5);
    }
}
