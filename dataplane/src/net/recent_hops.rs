//! The next hops of recent flows, so that a turn to send needs neither the list of addresses nor the routes.

use std::net::IpAddr;

use super::addresses::last_octet;

/// Entries: a flow's place is that of its remote address.
const ENTRIES: usize = 16;

/// The first station that packets of a flow are handed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// The host itself.
    Loopback,
    /// The neighbour with this address.
    Neighbour(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    local: IpAddr,
    remote: IpAddr,
    hop: Hop,
}

/// The next hops of recent flows, as the host's addresses and routes have led to them.
#[derive(Debug, Default)]
pub(super) struct RecentHops([Option<Entry>; ENTRIES]);

impl RecentHops {
    /// Returns the next hop from `local`, which is an address of the host, to `remote`.
    #[inline]
    pub fn find(&self, local: IpAddr, remote: IpAddr) -> Option<Hop> {
        let entry = self.0[place(remote)].as_ref()?;
        (entry.remote == remote && entry.local == local).then_some(entry.hop)
    }

    /// Returns the next hop to `remote` from any address of the host.
    #[inline]
    pub fn to(&self, remote: IpAddr) -> Option<Hop> {
        let entry = self.0[place(remote)].as_ref()?;
        (entry.remote == remote).then_some(entry.hop)
    }

    /// Remembers a next hop.
    pub fn remember(&mut self, local: IpAddr, remote: IpAddr, hop: Hop) {
        self.0[place(remote)] = Some(Entry { local, remote, hop });
    }

    /// Forgets all of them: the host's addresses have changed.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[inline]
const fn place(remote: IpAddr) -> usize {
    last_octet(remote) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(host: u8) -> IpAddr {
        [198, 18, 0, host].into()
    }

    #[test]
    fn a_hop_is_found_by_both_addresses_until_another_takes_its_place() {
        let mut hops = RecentHops::default();
        let hop = Hop::Neighbour(ip(254));
        hops.remember(ip(1), ip(2), hop);
        assert_eq!(hops.find(ip(1), ip(2)), Some(hop));
        assert_eq!((hops.find(ip(9), ip(2)), hops.find(ip(1), ip(3))), (None, None));
        assert_eq!((hops.to(ip(2)), hops.to(ip(18))), (Some(hop), None));
        hops.remember(ip(1), ip(18), Hop::Loopback);
        assert_eq!((hops.to(ip(2)), hops.to(ip(18))), (None, Some(Hop::Loopback)));
        hops.forget();
        assert_eq!(hops.to(ip(18)), None);
    }
}
