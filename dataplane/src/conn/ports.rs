//! Local ports of active opens: algorithm 4 of RFC 6056 (§3.3.4, double-hash port selection).
//!
//! To one peer the ports go up one by one, so that a port is used again as late as possible: the peer may
//! still have the last connection from it in TIME-WAIT, which random ports would hit early. The first port is
//! a keyed hash of both addresses and the peer's port, which no third party can compute; and peers share a
//! counter only by chance, so that the ports a peer sees say little about connections to others.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use crate::limits;
use crate::time::Instant;

/// Chooses local ports.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    /// How many ports there are, at least one.
    count: u32,
    /// Of the first port to a peer, and of the choice of its counter.
    secrets: [[u64; 2]; 2],
    counters: Box<[Counter; limits::PORT_COUNTERS]>,
}

/// What peers share that have the same counter.
#[derive(Clone, Copy, Debug)]
struct Counter {
    /// Below `count`, so that the order of the ports goes on where a counter begins anew.
    next: u16,
    /// Until when a search need not look for a port that is unused: another has found none.
    exhausted_until: Instant,
}

impl Ports {
    /// Returns the ports from `first` to `last`.
    pub(crate) fn new(first: u16, last: u16, secrets: [[u64; 2]; 2]) -> Self {
        let count = last.saturating_sub(first) as u32 + 1;
        let counter = Counter { next: 0, exhausted_until: Instant::ZERO };
        Self { first, count, secrets, counters: Box::new([counter; limits::PORT_COUNTERS]) }
    }

    /// Returns how many ports there are.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the first port that is `usable` of the next `most` for a connection from `local` to `remote`;
    /// `None` if none is. Another call goes on after those.
    pub(crate) fn pick(
        &mut self,
        local: IpAddr,
        remote: (IpAddr, u16),
        most: u32,
        mut usable: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let (offset, counter) = self.place_of(local, remote);
        let next = &mut self.counters[counter].next;
        (0..most).find_map(|_| {
            let place = (offset as u32 % self.count + u32::from(*next)) % self.count;
            // At most 65535: 65536 ports have the places 0 to 65535.
            *next = ((u32::from(*next) + 1) % self.count) as u16;
            let port = self.first + place as u16;
            usable(port).then_some(port)
        })
    }

    /// Returns true if a search has found recently that no port is unused for a connection from `local` to
    /// `remote`: all are in use or in TIME-WAIT.
    pub(crate) fn are_exhausted(&self, now: Instant, local: IpAddr, remote: (IpAddr, u16)) -> bool {
        now < self.counters[self.place_of(local, remote).1].exhausted_until
    }

    /// Records that no port is unused for a connection from `local` to `remote`. It holds for a while: a port
    /// that becomes unused meanwhile is found all the same, when its turn comes.
    pub(crate) fn set_exhausted(&mut self, now: Instant, local: IpAddr, remote: (IpAddr, u16)) {
        let counter = self.place_of(local, remote).1;
        self.counters[counter].exhausted_until = now + limits::PORTS_EXHAUSTED_NS;
    }

    /// Returns where the ports to a peer begin, and the number of its counter.
    fn place_of(&self, local: IpAddr, remote: (IpAddr, u16)) -> (u64, usize) {
        let [offset, counter] = self.secrets.map(|[key0, key1]| {
            let mut hasher = SipHasher24::new_with_keys(key0, key1);
            (local, remote).hash(&mut hasher);
            hasher.finish()
        });
        (offset, counter as usize % limits::PORT_COUNTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
    const SECRETS: [[u64; 2]; 2] = [[1, 2], [3, 4]];
    const ALL: u32 = 1 << 16;

    fn peer(host: u8) -> (IpAddr, u16) {
        ([198, 18, 0, host].into(), 7471)
    }

    #[test]
    fn every_port_has_its_turn_before_one_comes_again() {
        let mut ports = Ports::new(1000, 1099, SECRETS);
        let mut picked: Vec<u16> =
            (0..100).map(|_| ports.pick(LOCAL, peer(2), ALL, |_| true).unwrap()).collect();
        picked.sort_unstable();
        assert_eq!(picked, (1000..1100).collect::<Vec<u16>>());
    }

    /// More picks than the counter has values, from a number of ports that does not divide it.
    #[test]
    fn ports_take_turns_when_the_counter_wraps() {
        let mut ports = Ports::new(1000, 1009, SECRETS);
        let mut next = || ports.pick(LOCAL, peer(2), ALL, |_| true).unwrap();
        let mut last = next();
        for _ in 0..70_000 {
            let port = next();
            assert_eq!(port, if last == 1009 { 1000 } else { last + 1 });
            last = port;
        }
    }

    #[test]
    fn a_port_in_use_is_passed_over_and_exhaustion_is_told() {
        let mut ports = Ports::new(1000, 1099, SECRETS);
        for _ in 0..10 {
            assert_eq!(ports.pick(LOCAL, peer(2), ALL, |port| port == 1042), Some(1042));
        }
        assert_eq!(ports.pick(LOCAL, peer(2), ALL, |_| false), None);
        assert_eq!(Ports::new(65_535, 65_535, SECRETS).pick(LOCAL, peer(2), ALL, |_| true), Some(65_535));
    }

    /// A search that is cut into pieces tries each port once, as one that is not.
    #[test]
    fn a_search_goes_on_where_it_was_cut() {
        let mut ports = Ports::new(1000, 1099, SECRETS);
        let mut tried = Vec::new();
        for _ in 0..10 {
            let try_one = |port| {
                tried.push(port);
                false
            };
            assert_eq!(ports.pick(LOCAL, peer(2), ports.count() / 10, try_one), None);
        }
        tried.sort_unstable();
        assert_eq!(tried, (1000..1100).collect::<Vec<u16>>());
    }

    /// That the ports to a peer are exhausted is known for a while, and not of most other peers.
    #[test]
    fn exhaustion_is_remembered_for_a_while() {
        let mut ports = Ports::new(1000, 1099, SECRETS);
        let now = Instant::from_nanos(5);
        assert!(!ports.are_exhausted(now, LOCAL, peer(2)));
        ports.set_exhausted(now, LOCAL, peer(2));
        let last = now + (limits::PORTS_EXHAUSTED_NS - 1);
        assert!(ports.are_exhausted(now, LOCAL, peer(2)) && ports.are_exhausted(last, LOCAL, peer(2)));
        assert!(!ports.are_exhausted(last + 1, LOCAL, peer(2)));
        let others = (3..=255).filter(|host| ports.are_exhausted(now, LOCAL, peer(*host))).count();
        assert!(others < 20, "{others} of 253");
    }

    /// Without the secret, the first port to one peer is unpredictable and does not reveal that of another.
    #[test]
    fn peers_begin_anywhere() {
        let (low, high) = limits::EPHEMERAL_PORTS;
        let first = |host, secrets| Ports::new(low, high, secrets).pick(LOCAL, peer(host), ALL, |_| true);
        let middle = high - 8192;
        let high = (0..=255).filter(|host| first(*host, SECRETS) > Some(middle)).count();
        assert!((90..=166).contains(&high), "{high} of 256 in the upper half");
        let same = (0..=255).filter(|host| first(*host, SECRETS) == first(*host, [[5, 6], [7, 8]])).count();
        assert!(same <= 2);
    }
}
