//! The addresses and ports of a TCP segment, as its headers have them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{ipv4, ipv6};

/// The addresses and ports of a segment over IPv4, as its headers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowV4 {
    /// Source and destination address.
    pub addresses: [u8; 8],
    /// Source and destination port.
    pub ports: [u8; 4],
}

/// The addresses and ports of a segment over IPv6, as its headers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowV6 {
    /// Source and destination address.
    pub addresses: [u8; 32],
    /// Source and destination port.
    pub ports: [u8; 4],
}

/// The addresses and ports of a segment of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Over IPv4.
    V4(FlowV4),
    /// Over IPv6.
    V6(FlowV6),
}

impl FlowV4 {
    /// Returns the flow of segments between two addresses and ports.
    pub const fn new(source: SocketAddrV4, destination: SocketAddrV4) -> Self {
        let addresses = (source.ip().to_bits() as u64) << 32 | destination.ip().to_bits() as u64;
        Self { addresses: addresses.to_be_bytes(), ports: ports(source.port(), destination.port()) }
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

impl FlowV6 {
    /// Returns the flow of segments between two addresses and ports.
    pub fn new(source: SocketAddrV6, destination: SocketAddrV6) -> Self {
        let mut addresses = [0; 32];
        let (first, second) = addresses.split_at_mut(16);
        first.copy_from_slice(&source.ip().octets());
        second.copy_from_slice(&destination.ip().octets());
        Self { addresses, ports: ports(source.port(), destination.port()) }
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

impl Flow {
    /// Returns the flow of segments between two addresses and ports; `None` if these are not of one family.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        match (source, destination) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => Some(Self::V4(FlowV4::new(from, to))),
            (SocketAddr::V6(from), SocketAddr::V6(to)) => Some(Self::V6(FlowV6::new(from, to))),
            _ => None,
        }
    }

    /// Returns the flow of the segment in an IPv4 packet without options, of which nothing is checked.
    #[inline]
    pub fn at_ipv4(packet: &[u8]) -> Option<Self> {
        let (network, transport) = packet.split_at_checked(ipv4::Header::LEN)?;
        Some(Self::V4(FlowV4 { addresses: *network.last_chunk()?, ports: *transport.first_chunk()? }))
    }

    /// Returns the flow of the segment in an IPv6 packet without extension headers, of which nothing is
    /// checked.
    #[inline]
    pub fn at_ipv6(packet: &[u8]) -> Option<Self> {
        let (network, transport) = packet.split_at_checked(ipv6::Header::LEN)?;
        Some(Self::V6(FlowV6 { addresses: *network.last_chunk()?, ports: *transport.first_chunk()? }))
    }

    /// Returns the source address.
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(flow) => flow.source().into(),
            Self::V6(flow) => flow.source().into(),
        }
    }

    /// Returns the destination address.
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(flow) => flow.destination().into(),
            Self::V6(flow) => flow.destination().into(),
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
            Self::V4(flow) => flow.ports,
            Self::V6(flow) => flow.ports,
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
    fn a_flow_returns_what_it_was_made_of() {
        for (source, destination) in [("198.18.0.1", "198.18.0.2"), ("fd00::1", "fd00:0:0:1::2")] {
            let [source, destination]: [IpAddr; 2] = [source, destination].map(|text| text.parse().unwrap());
            let flow = Flow::new((source, 7471).into(), (destination, 50_000).into()).expect("one family");
            assert_eq!((flow.source(), flow.source_port()), (source, 7471));
            assert_eq!((flow.destination(), flow.destination_port()), (destination, 50_000));
            let (Ok(other), true) = ("::1".parse::<IpAddr>(), source.is_ipv4()) else { continue };
            assert_eq!(Flow::new((source, 1).into(), (other, 2).into()), None, "two families");
        }
    }
}
