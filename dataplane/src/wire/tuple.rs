//! The addresses and ports of a TCP segment, as its headers have them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ipv4, ipv6};

/// The addresses and ports of a segment over IPv4, as its headers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple4 {
    /// Source and destination address.
    pub addresses: [u8; 8],
    /// Source and destination port.
    pub ports: [u8; 4],
}

/// The addresses and ports of a segment over IPv6, as its headers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple6 {
    /// Source and destination address.
    pub addresses: [u8; 32],
    /// Source and destination port.
    pub ports: [u8; 4],
}

/// The addresses and ports of a segment of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuple {
    /// Over IPv4.
    V4(Tuple4),
    /// Over IPv6.
    V6(Tuple6),
}

impl Tuple4 {
    /// Returns the tuple of segments between two addresses and ports.
    pub const fn new(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Self {
        let addresses = (source.0.to_bits() as u64) << 32 | destination.0.to_bits() as u64;
        Self { addresses: addresses.to_be_bytes(), ports: ports(source.1, destination.1) }
    }

    /// Returns the source address.
    pub const fn source(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.addresses;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the destination address.
    pub const fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = self.addresses;
        Ipv4Addr::new(a, b, c, d)
    }
}

impl Tuple6 {
    /// Returns the tuple of segments between two addresses and ports.
    pub fn new(source: (Ipv6Addr, u16), destination: (Ipv6Addr, u16)) -> Self {
        let mut addresses = [0; 32];
        let (first, second) = addresses.split_at_mut(16);
        first.copy_from_slice(&source.0.octets());
        second.copy_from_slice(&destination.0.octets());
        Self { addresses, ports: ports(source.1, destination.1) }
    }

    /// Returns the source address.
    pub fn source(&self) -> Ipv6Addr {
        self.address(0)
    }

    /// Returns the destination address.
    pub fn destination(&self) -> Ipv6Addr {
        self.address(1)
    }

    fn address(&self, index: usize) -> Ipv6Addr {
        self.addresses.as_chunks::<16>().0[index].into()
    }
}

impl Tuple {
    /// Returns the tuple of segments between two addresses and ports; `None` if these are not of one family.
    pub fn new(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Option<Self> {
        match (source.0, destination.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Some(Self::V4(Tuple4::new((from, source.1), (to, destination.1))))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Some(Self::V6(Tuple6::new((from, source.1), (to, destination.1))))
            }
            _ => None,
        }
    }

    /// Returns the source address.
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(tuple) => tuple.source().into(),
            Self::V6(tuple) => tuple.source().into(),
        }
    }

    /// Returns the destination address.
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(tuple) => tuple.destination().into(),
            Self::V6(tuple) => tuple.destination().into(),
        }
    }

    /// Returns the source port.
    pub const fn source_port(&self) -> u16 {
        let [high, low, ..] = self.ports();
        u16::from_be_bytes([high, low])
    }

    /// Returns the destination port.
    pub const fn destination_port(&self) -> u16 {
        let [.., high, low] = self.ports();
        u16::from_be_bytes([high, low])
    }

    /// Returns the octets of an IP header without options or extension headers.
    #[inline]
    pub const fn network_octets(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::Header::LEN,
            Self::V6(_) => ipv6::Header::LEN,
        }
    }

    const fn ports(&self) -> [u8; 4] {
        match self {
            Self::V4(tuple) => tuple.ports,
            Self::V6(tuple) => tuple.ports,
        }
    }
}

const fn ports(source: u16, destination: u16) -> [u8; 4] {
    ((source as u32) << 16 | destination as u32).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_returns_what_it_was_made_of() {
        for (source, destination) in [("198.18.0.1", "198.18.0.2"), ("fd00::1", "fd00:0:0:1::2")] {
            let [source, destination]: [IpAddr; 2] = [source, destination].map(|text| text.parse().unwrap());
            let tuple = Tuple::new((source, 7471), (destination, 50_000)).expect("one family");
            assert_eq!((tuple.source(), tuple.source_port()), (source, 7471));
            assert_eq!((tuple.destination(), tuple.destination_port()), (destination, 50_000));
            let (Ok(other), true) = ("::1".parse::<IpAddr>(), source.is_ipv4()) else { continue };
            assert_eq!(Tuple::new((source, 1), (other, 2)), None, "two families");
        }
    }
}
