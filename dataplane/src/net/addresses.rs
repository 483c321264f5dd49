//! Addresses with their networks, routes, and the choice of next hop and source address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use arrayvec::ArrayVec;

use crate::limits;

/// Whose the addresses of a host are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Presence {
    /// The host's own: it speaks for them on the link.
    #[default]
    Own,
    /// Those of a station at the same hardware address, the kernel of this machine, which speaks for them.
    /// The host is silent: it answers no request for its hardware address and no echo, neither probes for an
    /// address nor announces nor defends one, and sends no RST to a segment of a port that is not its own.
    Shared,
}

/// An address and the length of its network's prefix, written `198.18.0.1/24` or `fd00::1/64` (RFC 4632 §3.1,
/// RFC 4291 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The address. For a network, any address of it.
    pub address: IpAddr,
    /// Leading bits that all addresses of the network share: at most 32 for IPv4, 128 for IPv6.
    pub prefix_bits: u8,
}

impl Cidr {
    /// Returns `address` in a network with a prefix of `prefix_bits`.
    pub const fn new(address: IpAddr, prefix_bits: u8) -> Self {
        Self { address, prefix_bits }
    }

    /// Bits of an address of this family: no prefix is longer.
    pub const fn address_bits(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Returns true if `address` is in the same network. Addresses of the other family never are.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && common_bits(self.address, address) >= self.prefix_bits
    }

    /// Returns the network: its prefix, with zeros for the address after it.
    #[must_use]
    pub fn network(&self) -> Self {
        let bits = u32::from(self.address_bits().saturating_sub(self.prefix_bits));
        let address = match self.address {
            IpAddr::V4(address) => {
                IpAddr::from((u32::MAX.checked_shl(bits).unwrap_or(0) & u32::from(address)).to_be_bytes())
            }
            IpAddr::V6(address) => {
                IpAddr::from((u128::MAX.checked_shl(bits).unwrap_or(0) & u128::from(address)).to_be_bytes())
            }
        };
        Self { address, ..*self }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// The text is not an address with a prefix.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an address with its prefix: write it like 198.18.0.1/24 or fd00::1/64")]
pub struct NotCidr(String);

impl FromStr for Cidr {
    type Err = NotCidr;

    fn from_str(text: &str) -> Result<Self, NotCidr> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let cidr = Self::new(address.parse().ok()?, prefix.parse().ok()?);
            (cidr.prefix_bits <= cidr.address_bits()).then_some(cidr)
        });
        parsed.ok_or_else(|| NotCidr(text.into()))
    }
}

/// Returns the number of leading bits that two addresses of one family share; 0 for addresses of different
/// families.
fn common_bits(one: IpAddr, other: IpAddr) -> u8 {
    let common = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (u128::from(one) ^ u128::from(other)).leading_zeros(),
        _ => 0,
    };
    common as u8
}

/// A network that is reached through a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network; of prefix 0, everything: the gateway is the default gateway.
    pub destination: Cidr,
    /// The neighbour that forwards to it.
    pub gateway: IpAddr,
}

impl Route {
    /// Returns the default route of the family of `gateway`.
    pub const fn default_by(gateway: IpAddr) -> Self {
        Self { destination: Cidr::new(gateway, 0), gateway }
    }
}

/// The addresses of a core.
pub type Addresses = ArrayVec<Cidr, { limits::ADDRESSES_PER_CORE }>;
/// The routes of a core, beside the networks its addresses are on.
pub type Routes = ArrayVec<Route, { limits::ROUTES_PER_CORE }>;

/// Returns true if a host can have `address` (RFC 9293 §3.9.2.3, MUST-63; RFC 1122 §3.2.1.3; RFC 4291 §2.5,
/// §2.7).
pub fn is_host_address(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || broadcast)
}

/// Returns true if `address` is the broadcast address of an IPv4 network of `addresses`: all bits after the
/// prefix are set (RFC 1122 §3.2.1.3 (d)). Networks of one or two addresses have none (RFC 3021 §2.1).
pub fn is_directed_broadcast(addresses: &[Cidr], address: IpAddr) -> bool {
    let IpAddr::V4(v4) = address else { return false };
    addresses.iter().any(|own| {
        let host_bits = u32::MAX.checked_shr(own.prefix_bits.into()).unwrap_or(0);
        own.prefix_bits <= 30 && own.contains(address) && v4.to_bits() & host_bits == host_bits
    })
}

/// Returns true if `own` is its network's own address: all bits after the prefix are zero. In IPv4 that is
/// the broadcast address of old hosts (RFC 1122 §3.3.6), in IPv6 the anycast address of all routers (RFC
/// 4291 §2.6.1). Networks of one or two addresses have none (RFC 3021 §2.1, RFC 6164 §5.1).
pub fn is_network_address(own: Cidr) -> bool {
    own.address_bits().saturating_sub(own.prefix_bits) >= 2 && own.network() == own
}

/// Returns the upper 64 bits of an IPv6 address: the network that one site, and often one host, has (RFC 4291
/// §2.5.4, RFC 6177). `None` for IPv4, where each address costs its holder something.
pub fn network_of(address: IpAddr) -> Option<u64> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some((address.to_bits() >> 64) as u64),
    }
}

/// Returns the neighbour that a packet to `remote` goes to: `remote` itself on a network of `addresses`, else
/// the gateway of the route with the longest prefix. `None` without a route, and for an address that no host
/// can have.
pub fn next_hop(addresses: &[Cidr], routes: &[Route], remote: IpAddr) -> Option<IpAddr> {
    if !is_host_address(remote) || is_directed_broadcast(addresses, remote) {
        return None;
    }
    let on_link = addresses.iter().filter(|own| own.contains(remote));
    let on_link = on_link.map(|own| (own.prefix_bits, remote));
    let routed = routes.iter().filter(|route| route.destination.contains(remote));
    let routed = routed.map(|route| (route.destination.prefix_bits, route.gateway));
    // Of equal prefixes the last one wins: a network of the host before a route to it.
    routed.chain(on_link).max_by_key(|(prefix_bits, _)| *prefix_bits).map(|(_, next_hop)| next_hop)
}

/// Returns the source address of packets to `remote`: `remote` itself if it is one of `addresses` (RFC 6724
/// §5 rule 1), else one of the same scope if there is one (rule 2), then the one that shares the longest
/// prefix with it (rule 8), then the first.
pub fn source_for(addresses: &[Cidr], remote: IpAddr) -> Option<IpAddr> {
    let same_family = addresses.iter().filter(|own| own.address.is_ipv4() == remote.is_ipv4());
    // `max_by_key` returns the last of equals.
    same_family
        .rev()
        .max_by_key(|own| {
            let same_scope = is_link_local(own.address) == is_link_local(remote);
            (own.address == remote, same_scope, common_bits(own.address, remote).min(own.prefix_bits))
        })
        .map(|own| own.address)
}

/// Returns true if `address` is valid on its link only.
/// Returns the last octet of an address, which differs most from one station to the next.
#[inline]
pub(super) const fn last_octet(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => Ipv6Addr::is_unicast_link_local(&address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn text_is_an_address_with_a_prefix_that_fits_it() {
        assert_eq!(cidr("198.18.0.2/15"), Cidr::new(ip("198.18.0.2"), 15));
        assert_eq!(cidr("fd00::1/64").to_string(), "fd00::1/64");
        for wrong in ["198.18.0.2", "198.18.0/24", "198.18.0.2/33", "fd00::1/129", "host/24", "fd00::1/"] {
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_network_contains_its_own() {
        for (network, inside, outside) in [
            ("198.18.0.1/15", "198.19.255.255", "198.20.0.0"),
            ("198.18.0.1/32", "198.18.0.1", "198.18.0.0"),
            ("198.18.0.1/0", "0.0.0.0", "::"),
            ("fd00::1/64", "fd00::ffff:ffff:ffff:ffff", "fd00:0:0:1::"),
            ("fd00::1/128", "fd00::1", "fd00::"),
            ("fd00::1/0", "2001:db8::", "198.18.0.1"),
        ] {
            assert!(cidr(network).contains(ip(inside)), "{network} {inside}");
            assert!(!cidr(network).contains(ip(outside)), "{network} {outside}");
        }
    }

    #[test]
    fn a_network_of_three_or_more_has_an_address_of_its_own() {
        for (own, network, is_its_own) in [
            ("198.18.0.1/24", "198.18.0.0/24", false),
            ("198.18.0.0/24", "198.18.0.0/24", true),
            ("198.19.0.0/15", "198.18.0.0/15", false),
            ("198.18.0.0/31", "198.18.0.0/31", false),
            ("198.18.0.1/32", "198.18.0.1/32", false),
            ("198.18.0.1/0", "0.0.0.0/0", false),
            ("fd00::1/64", "fd00::/64", false),
            ("fd00::/64", "fd00::/64", true),
            ("fd00::/127", "fd00::/127", false),
            ("fd00::1/0", "::/0", false),
        ] {
            assert_eq!(cidr(own).network(), cidr(network), "{own}");
            assert_eq!(is_network_address(cidr(own)), is_its_own, "{own}");
        }
    }

    #[test]
    fn a_network_of_three_or_more_has_a_broadcast_address() {
        for (own, address, expected) in [
            ("198.18.0.1/24", "198.18.0.255", true),
            ("198.18.0.1/24", "198.18.0.254", false),
            ("198.18.0.1/24", "198.18.1.255", false),
            ("198.18.0.1/15", "198.19.255.255", true),
            ("198.18.0.1/15", "198.18.255.255", false),
            ("198.18.0.1/30", "198.18.0.3", true),
            ("198.18.0.1/31", "198.18.0.1", false),
            ("198.18.0.1/32", "198.18.0.1", false),
            ("fd00::1/64", "fd00::ffff:ffff:ffff:ffff", false),
        ] {
            let addresses = [cidr("203.0.113.1/24"), cidr(own)];
            assert_eq!(is_directed_broadcast(&addresses, ip(address)), expected, "{own} {address}");
            if expected {
                assert_eq!(next_hop(&addresses, &[], ip(address)), None);
            }
        }
    }

    #[test]
    fn addresses_of_one_network_of_64_bits_are_one_holders() {
        let network = |text| network_of(ip(text));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!((network("198.18.0.1"), network("::ffff:198.18.0.1")), (None, None));
    }

    #[test]
    fn the_longest_prefix_says_who_forwards() {
        let addresses = [cidr("198.18.0.1/24"), cidr("fd00::1/64")];
        let route = |destination, gateway| Route { destination: cidr(destination), gateway: ip(gateway) };
        let routes = [
            Route::default_by(ip("198.18.0.254")),
            route("198.19.0.0/16", "198.18.0.253"),
            route("198.19.7.0/24", "198.18.0.252"),
            // A route to our own network does not lead away from it; one to a part of it does.
            route("198.18.0.0/24", "198.18.0.251"),
            route("198.18.0.128/25", "198.18.0.2"),
            route("fd00:1::/32", "fd00::fe"),
        ];
        for (remote, expected) in [
            ("198.18.0.7", Some("198.18.0.7")),
            ("198.18.0.200", Some("198.18.0.2")),
            ("198.19.1.1", Some("198.18.0.253")),
            ("198.19.7.1", Some("198.18.0.252")),
            ("203.0.113.1", Some("198.18.0.254")),
            ("fd00::7", Some("fd00::7")),
            ("fd00:1::7", Some("fd00::fe")),
            ("2001:db8::1", None),
            ("224.0.0.1", None),
            ("255.255.255.255", None),
            ("ff02::1", None),
            ("::", None),
            ("::1", None),
        ] {
            assert_eq!(next_hop(&addresses, &routes, ip(remote)), expected.map(ip), "{remote}");
        }
    }

    #[test]
    fn the_source_is_the_address_nearest_to_the_destination() {
        let addresses = ["fe80::1/64", "198.18.0.1/24", "198.18.1.1/24", "fd00::1/64", "2001:db8::1/64"];
        let addresses = addresses.map(cidr);
        for (remote, expected) in [
            ("198.18.1.9", "198.18.1.1"),
            ("198.18.1.1", "198.18.1.1"),
            ("198.18.0.9", "198.18.0.1"),
            ("10.0.0.1", "198.18.0.1"),
            ("fe80::9", "fe80::1"),
            ("fd00:0:0:9::9", "fd00::1"),
            ("2001:db8:9::9", "2001:db8::1"),
        ] {
            assert_eq!(source_for(&addresses, ip(remote)), Some(ip(expected)), "{remote}");
        }
        assert_eq!(source_for(&addresses[1..3], ip("fd00::1")), None);
    }
}
