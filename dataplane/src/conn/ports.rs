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

/// Chooses local ports.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    /// How many ports there are, at least one.
    count: u32,
    /// Of the first port to a peer, and of the choice of its counter.
    secrets: [[u64; 2]; 2],
    /// Below `count`, so that the order of the ports goes on where a counter begins anew.
    counters: [u16; limits::PORT_COUNTERS],
}

impl Ports {
    /// Returns the ports from `first` to `last`.
    pub(crate) const fn new(first: u16, last: u16, secrets: [[u64; 2]; 2]) -> Self {
        let count = last.saturating_sub(first) as u32 + 1;
        Self { first, count, secrets, counters: [0; limits::PORT_COUNTERS] }
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
        let [offset, counter] = self.secrets.map(|[key0, key1]| {
            let mut hasher = SipHasher24::new_with_keys(key0, key1);
            (local, remote).hash(&mut hasher);
            hasher.finish()
        });
        let counter = &mut self.counters[counter as usize % limits::PORT_COUNTERS];
        (0..most).find_map(|_| {
            let place = (offset as u32 % self.count + u32::from(*counter)) % self.count;
            // At most 65535: 65536 ports have the places 0 to 65535.
            *counter = ((u32::from(*counter) + 1) % self.count) as u16;
            let port = self.first + place as u16;
            usable(port).then_some(port)
        })
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
