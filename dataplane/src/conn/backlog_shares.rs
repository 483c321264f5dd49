//! What each peer holds of the backlogs of listening ports: none may hold all of one.
//!
//! A share is not a fixed part. A peer may have another connection in a backlog while it holds fewer places
//! than are left free, so that a single one has half of it, the next a quarter, and later peers find some
//! places left. An address proves little in IPv6, where a host has 2^64 of them; the addresses of a network
//! of 64 bits together therefore have a share too, four times as many places as are left free. Example: of a
//! backlog of 128, one address holds 64 at most, and all addresses of its network 103.
//!
//! The counters are an array under a keyed hash: nothing is allocated, and no peer can choose a counter. Two
//! peers with the same counter, one pair in four thousand, have one share together.

use std::hash::BuildHasher;
use std::net::IpAddr;

use super::listen_address::ListenAddress;
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::net::addresses::network_of;

/// How far a connection in a backlog has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its handshake is not complete: its address may be forged.
    Opening,
    /// It is open, and waits for its startup or for the application.
    Starting,
}

/// Connections in a backlog, by stage.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    opening: u32,
    starting: u32,
}

impl Held {
    const fn at(self, stage: Stage) -> u32 {
        match stage {
            Stage::Opening => self.opening,
            Stage::Starting => self.starting,
        }
    }

    const fn at_mut(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Opening => &mut self.opening,
            Stage::Starting => &mut self.starting,
        }
    }
}

/// The counters of a core.
#[derive(Debug)]
pub(super) struct BacklogShares {
    hasher: KeyedHash,
    held: Box<[Held]>,
}

impl BacklogShares {
    /// Returns counters at 0, found under a hash with `key`.
    pub(super) fn new(key: [u64; 2]) -> Self {
        let held = vec![Held::default(); limits::BACKLOG_COUNTERS].into();
        Self { hasher: KeyedHash::new(key), held }
    }

    /// Returns true if `peer` may have another connection at `stage` in the backlog of the listener at `at`,
    /// of which `free` places are left.
    pub(super) fn has_room(&self, at: ListenAddress, peer: IpAddr, stage: Stage, free: u32) -> bool {
        self.counters(at, peer)
            .all(|(counter, share)| self.held[counter].at(stage) < share.saturating_mul(free))
    }

    /// Counts another connection of `peer` at `stage` in the backlog of the listener at `at`.
    pub(super) fn add(&mut self, at: ListenAddress, peer: IpAddr, stage: Stage) {
        for (counter, _) in self.counters(at, peer) {
            *self.held[counter].at_mut(stage) += 1;
        }
    }

    /// Counts a connection of `peer` at `stage` no longer.
    pub(super) fn remove(&mut self, at: ListenAddress, peer: IpAddr, stage: Stage) {
        for (counter, _) in self.counters(at, peer) {
            let held = self.held[counter].at_mut(stage);
            debug_assert!(*held > 0, "a connection leaves the backlog once");
            *held = held.saturating_sub(1);
        }
    }

    /// Returns the counter of the peer's address, and of its network in IPv6, each with how many times the
    /// free places it may reach.
    fn counters(&self, at: ListenAddress, peer: IpAddr) -> impl Iterator<Item = (usize, u32)> + use<> {
        let hasher = self.hasher;
        let counter = move |holder: Holder| hasher.hash_one((at, holder)) as usize % limits::BACKLOG_COUNTERS;
        let address = (counter(Holder::Address(peer)), limits::BACKLOG_SHARE_OF_ADDRESS);
        let network = network_of(peer).map(Holder::Network);
        let network = network.map(|network| (counter(network), limits::BACKLOG_SHARE_OF_NETWORK));
        core::iter::once(address).chain(network)
    }
}

/// A holder of places in a backlog.
#[derive(Hash)]
enum Holder {
    Address(IpAddr),
    Network(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: ListenAddress = ListenAddress::everywhere(7471);

    /// Adds connections of `peer` until it has its share of the free places of `backlog`; returns how many.
    fn fill(shares: &mut BacklogShares, peer: &str, backlog: u32, taken: &mut u32) -> u32 {
        let peer: IpAddr = peer.parse().unwrap();
        let before = *taken;
        while shares.has_room(AT, peer, Stage::Starting, backlog - *taken) {
            shares.add(AT, peer, Stage::Starting);
            *taken += 1;
        }
        *taken - before
    }

    #[test]
    fn one_address_has_half_and_the_next_half_of_the_rest() {
        let mut shares = BacklogShares::new([1, 2]);
        let mut taken = 0;
        let peers = ["198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.4", "198.18.0.5", "198.18.0.6"];
        let filled = peers.map(|peer| fill(&mut shares, peer, 128, &mut taken));
        assert_eq!(filled, [64, 32, 16, 8, 4, 2]);
        let peer = "198.18.0.1".parse().unwrap();
        assert!(shares.has_room(AT, peer, Stage::Opening, 64), "another stage has its own places");
        assert!(shares.has_room(ListenAddress::everywhere(7472), peer, Stage::Starting, 64), "so has a port");
        shares.remove(AT, peer, Stage::Starting);
        assert!(shares.has_room(AT, peer, Stage::Starting, 64));
    }

    #[test]
    fn addresses_of_one_network_leave_a_fifth() {
        let mut shares = BacklogShares::new([1, 2]);
        let mut taken = 0;
        for host in 1..1000 {
            fill(&mut shares, &format!("2001:db8::{host:x}"), 128, &mut taken);
        }
        assert_eq!(taken, 103);
        assert!(fill(&mut shares, "2001:db8:0:1::1", 128, &mut taken) > 0);
    }

    #[test]
    fn a_backlog_of_one_is_for_whoever_comes_first() {
        let shares = BacklogShares::new([1, 2]);
        for peer in ["198.18.0.1", "2001:db8::1"] {
            assert!(shares.has_room(AT, peer.parse().unwrap(), Stage::Opening, 1));
            assert!(!shares.has_room(AT, peer.parse().unwrap(), Stage::Opening, 0));
        }
    }
}
