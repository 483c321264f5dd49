//! Where connections are taken: a port at one local address, or at all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Listener;

/// Where a listener takes connections. The same port may be listened on at several addresses; a SYN belongs
/// to the listener that names its destination most exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// The local address. `0.0.0.0` stands for every IPv4 address of the core, `None` for every address of
    /// either family.
    pub address: Option<IpAddr>,
    /// The local TCP port.
    pub port: u16,
}

/// How exactly a listener names the addresses at which it takes connections, the least exact first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Every address of either family.
    All,
    /// Every address of the family.
    Family,
    /// The address itself.
    Address,
}

impl ListenAddress {
    /// The listener of `scope` that takes connections to `port` at `local`. A connection keeps the scope
    /// alone: its own address and port say the rest.
    pub const fn of(scope: Scope, local: IpAddr, port: u16) -> Self {
        let address = match (scope, local) {
            (Scope::All, _) => None,
            (Scope::Family, IpAddr::V4(_)) => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            (Scope::Family, IpAddr::V6(_)) => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            (Scope::Address, local) => Some(local),
        };
        Self { address, port }
    }

    /// `port` at every address of the core.
    pub const fn everywhere(port: u16) -> Self {
        Self { address: None, port }
    }

    /// Whether a SYN could belong to either.
    pub fn overlaps(&self, other: &Self) -> bool {
        let names = |one: &Self, another: &Self| match another.address {
            Some(address) => one.scope(address).is_some(),
            None => true,
        };
        self.port == other.port && (names(self, other) || names(other, self))
    }

    /// How exactly this names `local`; `None` if it does not.
    pub fn scope(&self, local: IpAddr) -> Option<Scope> {
        match self.address {
            Some(address) if address == local => Some(Scope::Address),
            Some(address) if address.is_unspecified() && address.is_ipv4() == local.is_ipv4() => {
                Some(Scope::Family)
            }
            Some(_) => None,
            None => Some(Scope::All),
        }
    }
}

/// The place of the listener that takes connections to `port` at `local`.
///
/// Of a listener at 198.18.0.1 port 80 and one at every address port 80, the first has SYNs to 198.18.0.1
/// port 80 and the second those to the core's other addresses.
pub(super) fn listener_for(listeners: &[Listener], local: IpAddr, port: u16) -> Option<usize> {
    let candidates = listeners.iter().enumerate().filter(|(_, listener)| listener.at.port == port);
    candidates
        .filter_map(|(place, listener)| Some((listener.at.scope(local)?, place)))
        .max_by_key(|(scope, _)| *scope)
        .map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Behaviour;

    #[test]
    fn listeners_overlap_where_a_syn_could_belong_to_either() {
        let at = |address: &str| ListenAddress { address: address.parse().ok(), port: 80 };
        let (all, v4, one, other, v6) =
            (at("all"), at("0.0.0.0"), at("198.18.0.1"), at("198.18.0.2"), at("fd00::1"));
        for (left, right) in [(all, v4), (all, one), (all, v6), (v4, one), (v4, other), (one, one)] {
            assert!(left.overlaps(&right) && right.overlaps(&left), "{left:?} {right:?}");
        }
        for (left, right) in [(v4, v6), (one, other), (one, v6)] {
            assert!(!left.overlaps(&right) && !right.overlaps(&left), "{left:?} {right:?}");
        }
        assert!(!all.overlaps(&ListenAddress { port: 81, ..all }));
    }

    #[test]
    fn a_syn_belongs_to_the_listener_that_names_its_destination_most_exactly() {
        let at = |address: Option<&str>, port| {
            let address = address.map(|address| address.parse().unwrap());
            Listener::new(ListenAddress { address, port }, 1, Behaviour::default())
        };
        let listeners = [
            at(None, 80),
            at(Some("198.18.0.1"), 80),
            at(Some("0.0.0.0"), 80),
            at(Some("fd00::1"), 80),
            at(Some("198.18.0.1"), 81),
            at(Some("0.0.0.0"), 82),
        ];
        for (local, port, expected) in [
            ("198.18.0.1", 80, Some(1)),
            ("198.18.0.2", 80, Some(2)),
            ("fd00::1", 80, Some(3)),
            ("fd00::2", 80, Some(0)),
            ("198.18.0.1", 81, Some(4)),
            ("198.18.0.2", 81, None),
            ("198.18.0.2", 82, Some(5)),
            ("fd00::1", 82, None),
            ("198.18.0.1", 83, None),
        ] {
            let local = local.parse().unwrap();
            assert_eq!(listener_for(&listeners, local, port), expected, "{local} {port}");
            if let Some(at) = expected.map(|place: usize| listeners[place].at) {
                assert_eq!(ListenAddress::of(at.scope(local).unwrap(), local, port), at);
            }
        }
    }
}
