//! Who has which hardware address on the local network (RFC 826).

use std::net::IpAddr;

use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    address: IpAddr,
    mac: Option<MacAddress>,
    /// When the address was last heard of; before that, when it was first asked for.
    heard: Instant,
    /// When it was last asked for.
    asked: Instant,
    /// Requests sent without an answer.
    requests: u8,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Its hardware address.
    Known(MacAddress),
    /// A request is to be sent now. An address that was known is used until it is clear that nobody answers.
    Ask(Option<MacAddress>),
    /// Nothing yet; a request is on its way.
    Wait,
}

/// The neighbour table of a core. Small and searched in order of age: a host talks to few neighbours.
#[derive(Debug, Default)]
pub struct Neighbours {
    entries: Vec<Neighbour>,
}

impl Neighbours {
    /// An empty table.
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(limits::NEIGHBOURS_PER_CORE) }
    }

    /// Looks `address` up, and notes that it was asked for when a request is due.
    pub fn resolve(&mut self, address: IpAddr, now: Instant) -> Resolution {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.address == address) {
            if let Some(mac) = entry.mac
                && now - entry.heard < limits::NEIGHBOUR_LIFETIME_NS
            {
                return Resolution::Known(mac);
            }
            if entry.requests > 0 && now - entry.asked < limits::NEIGHBOUR_REQUEST_INTERVAL_NS {
                // While a known address is asked for anew, it is still used.
                return entry.mac.map_or(Resolution::Wait, Resolution::Known);
            }
            if entry.requests >= limits::NEIGHBOUR_REQUESTS {
                entry.mac = None;
            }
            entry.requests = entry.requests.saturating_add(1);
            entry.asked = now;
            return Resolution::Ask(entry.mac);
        }
        self.insert(Neighbour { address, mac: None, heard: now, asked: now, requests: 1 });
        Resolution::Ask(None)
    }

    /// The hardware address of `address`, if known.
    pub fn known(&self, address: IpAddr) -> Option<MacAddress> {
        self.entries.iter().find(|entry| entry.address == address)?.mac
    }

    /// Whether `address` is asked for and not known.
    pub fn is_waiting(&self, address: Option<IpAddr>) -> bool {
        self.entries.iter().any(|entry| Some(entry.address) == address && entry.mac.is_none())
    }

    /// Learns from a packet of `address` itself. Only addresses asked for, or that ask for us (`solicited`), are taken
    /// up anew; others are refreshed if known. `true` when somebody may have waited for it.
    pub fn learn(&mut self, address: IpAddr, mac: MacAddress, now: Instant, solicited: bool) -> bool {
        if mac.is_multicast() {
            return false;
        }
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.address == address) {
            let waited = entry.mac.is_none();
            *entry = Neighbour { address, mac: Some(mac), heard: now, asked: now, requests: 0 };
            return waited;
        }
        if solicited {
            self.insert(Neighbour { address, mac: Some(mac), heard: now, asked: now, requests: 0 });
        }
        false
    }

    fn insert(&mut self, neighbour: Neighbour) {
        if self.entries.len() >= limits::NEIGHBOURS_PER_CORE {
            let oldest = (0..self.entries.len()).min_by_key(|index| self.entries[*index].heard);
            if let Some(oldest) = oldest {
                self.entries.swap_remove(oldest);
            }
        }
        self.entries.push(neighbour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn asks_once_in_a_while_until_answered() {
        let mut table = Neighbours::new();
        assert_eq!(table.resolve(PEER, at(0)), Resolution::Ask(None));
        assert_eq!(table.resolve(PEER, at(1)), Resolution::Wait);
        assert_eq!(table.resolve(PEER, at(limits::NEIGHBOUR_REQUEST_INTERVAL_NS)), Resolution::Ask(None));
        assert!(table.learn(PEER, MAC, at(5), false), "somebody waited");
        assert!(!table.learn(PEER, MAC, at(5), true), "nobody waits any more");
        assert_eq!(table.resolve(PEER, at(6)), Resolution::Known(MAC));
    }

    #[test]
    fn an_old_entry_is_used_while_it_is_asked_for() {
        let mut table = Neighbours::new();
        table.learn(PEER, MAC, at(0), true);
        let later = at(limits::NEIGHBOUR_LIFETIME_NS);
        assert_eq!(table.resolve(PEER, later), Resolution::Ask(Some(MAC)));
        assert_eq!(table.resolve(PEER, later + 1), Resolution::Known(MAC));
        for n in 1..u64::from(limits::NEIGHBOUR_REQUESTS) {
            let at = later + n * limits::NEIGHBOUR_REQUEST_INTERVAL_NS;
            assert_eq!(table.resolve(PEER, at), Resolution::Ask(Some(MAC)));
        }
        assert_eq!(
            table.resolve(PEER, later + 100 * limits::NEIGHBOUR_REQUEST_INTERVAL_NS),
            Resolution::Ask(None)
        );
    }

    #[test]
    fn strangers_do_not_fill_the_table() {
        let mut table = Neighbours::new();
        assert!(!table.learn(PEER, MAC, at(0), false));
        assert!(!table.learn(PEER, MacAddress([1; 6]), at(0), true), "a multicast address is nobody's");
        for n in 0..10_000u32 {
            table.learn(std::net::Ipv4Addr::from(n).into(), MAC, at(u64::from(n)), true);
        }
        assert_eq!(table.entries.len(), limits::NEIGHBOURS_PER_CORE);
    }
}
