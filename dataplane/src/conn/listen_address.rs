//! Where a listener accepts connections: a port at one local address, or at all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a listener accepts connections. Several addresses may have listeners on the same port; a SYN belongs
/// to the listener whose address matches its destination most specifically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// The local address. `0.0.0.0` means every IPv4 address of the core, `None` every address of either
    /// family.
    pub address: Option<IpAddr>,
    /// The local TCP port.
    pub port: u16,
}

/// How specifically a listener names the addresses at which it accepts connections, the least specific first.
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
    /// Returns the address of the listener with `scope` that accepts connections to `port` at `local`. A
    /// connection stores only the scope: its own address and port are the rest.
    pub const fn of(scope: Scope, local: IpAddr, port: u16) -> Self {
        let address = match (scope, local) {
            (Scope::All, _) => None,
            (Scope::Family, IpAddr::V4(_)) => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            (Scope::Family, IpAddr::V6(_)) => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            (Scope::Address, local) => Some(local),
        };
        Self { address, port }
    }

    /// Returns `port` at every address of the core.
    pub const fn everywhere(port: u16) -> Self {
        Self { address: None, port }
    }

    /// Returns true if there is an address at which both accept connections.
    pub fn overlaps(&self, other: &Self) -> bool {
        let names = |one: &Self, another: &Self| match another.address {
            Some(address) => one.scope(address).is_some(),
            None => true,
        };
        self.port == other.port && (names(self, other) || names(other, self))
    }

    /// Returns how specifically this names `local`; `None` if it does not accept connections there.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
