//! Connections that applications have left: they still send what was written before, and wait for the peer's
//! FIN. Only so many may be in this state, of all connections, of those to a network and of those to an
//! address, so that peers who do not let them end leave room for others.
//!
//! The counters are an array under a keyed hash: nothing is allocated, and no peer can choose a counter. Two
//! peers with the same counter have one share together.

use std::hash::BuildHasher;
use std::net::IpAddr;

use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::net::addresses::network_of;

/// The connections of a core that applications have left, counted by peer.
#[derive(Debug)]
pub(crate) struct Orphans {
    hasher: KeyedHash,
    held: Box<[u32]>,
    all: usize,
    connections: usize,
}

/// A holder of such connections.
#[derive(Hash)]
enum Holder {
    Address(IpAddr),
    Network(u64),
}

impl Orphans {
    /// Returns counters at 0 for a core with room for `connections` connections, found under a hash with
    /// `key`.
    pub(crate) fn new(connections: usize, key: [u64; 2]) -> Self {
        let connections = connections.max(1);
        Self { hasher: KeyedHash::new(key), held: vec![0; connections].into(), all: 0, connections }
    }

    /// Returns how many there are.
    pub(crate) const fn len(&self) -> usize {
        self.all
    }

    /// Counts another one, of `peer`. Returns false, and counts nothing, if it, or all together, would be
    /// more than there may be.
    pub(crate) fn enter(&mut self, peer: IpAddr) -> bool {
        let room = self.all < self.most(limits::ORPHAN_PART)
            && self.counters(peer).all(|(counter, most)| (self.held[counter] as usize) < most);
        if room {
            self.all += 1;
            for (counter, _) in self.counters(peer) {
                self.held[counter] += 1;
            }
        }
        room
    }

    /// Counts one of `peer` no longer.
    pub(crate) fn leave(&mut self, peer: IpAddr) {
        debug_assert!(self.all > 0, "a connection leaves once");
        self.all = self.all.saturating_sub(1);
        for (counter, _) in self.counters(peer) {
            self.held[counter] = self.held[counter].saturating_sub(1);
        }
    }

    /// One in `part` of the connections there may be, and one at least.
    fn most(&self, part: usize) -> usize {
        (self.connections / part).max(1)
    }

    /// Returns the counter of the peer's address, and of its network in IPv6, each with the most that it may
    /// reach.
    fn counters(&self, peer: IpAddr) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (hasher, counters) = (self.hasher, self.held.len());
        let counter = move |holder: Holder| hasher.hash_one(holder) as usize % counters;
        let address = (counter(Holder::Address(peer)), self.most(limits::ORPHAN_PART_OF_ADDRESS));
        let most = self.most(limits::ORPHAN_PART_OF_NETWORK);
        let network = network_of(peer).map(|network| (counter(Holder::Network(network)), most));
        core::iter::once(address).chain(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: usize = 4096;

    fn v4(host: u16) -> IpAddr {
        let [high, low] = host.to_be_bytes();
        [198, 18, high, low].into()
    }

    fn v6(network: u16, host: u16) -> IpAddr {
        [0xfd00, 0, 0, network, 0, 0, 0, host].into()
    }

    /// How many of `peers` may enter, one after the other.
    fn enter(orphans: &mut Orphans, peers: impl Iterator<Item = IpAddr>) -> usize {
        peers.filter(|peer| orphans.enter(*peer)).count()
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let mut orphans = Orphans::new(CONNECTIONS, [1, 2]);
        assert_eq!(enter(&mut orphans, std::iter::repeat_n(v4(1), CONNECTIONS)), 256);
        assert!(orphans.enter(v4(2)) && !orphans.enter(v4(1)));
        orphans.leave(v4(1));
        assert!(orphans.enter(v4(1)) && !orphans.enter(v4(1)));
        assert_eq!(orphans.len(), 257);
    }

    #[test]
    fn one_network_of_ipv6_leaves_room_for_others() {
        let mut orphans = Orphans::new(CONNECTIONS, [1, 2]);
        let of_network = (0..4096).map(|host| v6(1, host));
        assert_eq!(enter(&mut orphans, of_network), 1024, "whatever addresses it has");
        assert!(orphans.enter(v6(2, 1)));
    }

    #[test]
    fn all_together_leave_room_for_applications() {
        let mut orphans = Orphans::new(CONNECTIONS, [1, 2]);
        assert_eq!(enter(&mut orphans, (0..4096).map(v4)), CONNECTIONS / 2);
        for peer in (0..4096).map(v4).take(CONNECTIONS / 2) {
            orphans.leave(peer);
        }
        assert_eq!(orphans.len(), 0);
        assert_eq!(orphans.held.iter().sum::<u32>(), 0);
    }

    #[test]
    fn the_smallest_core_has_room_for_one() {
        let mut orphans = Orphans::new(1, [1, 2]);
        assert!(orphans.enter(v4(1)) && !orphans.enter(v4(2)));
    }
}
