//! The Address Resolution Protocol (RFC 826) for IPv4 over Ethernet.

use core::net::Ipv4Addr;

use super::ethernet::{EtherType, MacAddress};
use super::{Malformed, Reader, Writer, room};

/// The operation of an ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A request for the hardware address of the target.
    Request,
    /// The sender has the sender address.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Question or answer.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: MacAddress,
    /// The sender's protocol address.
    pub sender_ip: Ipv4Addr,
    /// The target's hardware address; means nothing in a request.
    pub target_mac: MacAddress,
    /// The target's protocol address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Octets of a packet.
    pub const LEN: usize = 28;

    /// Ethernet (1), IPv4, and the octets of an address of each.
    const SPACES: [u8; 6] = {
        let [high, low] = EtherType::IPV4.0.to_be_bytes();
        [0, 1, high, low, 6, 4]
    };

    /// Parses the packet at the start of `octets`; padding after it is ignored.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`], or [`Malformed::Field`] for other address spaces and operations.
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        Self::fields(octets).ok_or(Malformed::Truncated)?
    }

    /// `None` when there are too few octets.
    fn fields(octets: &[u8]) -> Option<Result<Self, Malformed>> {
        let mut octets = Reader(octets);
        let spaces = octets.take()?;
        let operation = u16::from_be_bytes(octets.take()?);
        let sender_mac = MacAddress(octets.take()?);
        let sender_ip = Ipv4Addr::from(octets.take::<4>()?);
        let target_mac = MacAddress(octets.take()?);
        let target_ip = Ipv4Addr::from(octets.take::<4>()?);
        let operation = match operation {
            1 if spaces == Self::SPACES => Operation::Request,
            2 if spaces == Self::SPACES => Operation::Reply,
            _ => return Some(Err(Malformed::Field)),
        };
        Some(Ok(Self { operation, sender_mac, sender_ip, target_mac, target_ip }))
    }

    /// Writes the packet to the first [`LEN`](Self::LEN) octets of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put(Self::SPACES);
            out.put(operation.to_be_bytes());
            out.put(self.sender_mac.0);
            out.put(self.sender_ip.octets());
            out.put(self.target_mac.0);
            out.put(self.target_ip.octets());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OCTETS: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    const PACKET: Packet = Packet {
        operation: Operation::Request,
        sender_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: MacAddress([0; 6]),
        target_ip: Ipv4Addr::new(10, 0, 0, 2),
    };

    #[test]
    fn a_request_and_a_reply() {
        let mut out = [0; Packet::LEN];
        PACKET.emit(&mut out);
        assert_eq!(out, OCTETS);
        assert_eq!(Packet::parse(&OCTETS), Ok(PACKET));
        let reply = Packet { operation: Operation::Reply, ..PACKET };
        reply.emit(&mut out);
        assert_eq!(out[7], 2);
        let mut padded = [0; 46];
        padded[..28].copy_from_slice(&out);
        assert_eq!(Packet::parse(&padded), Ok(reply));
    }

    #[test]
    fn other_spaces_and_operations_are_refused() {
        for (at, value) in [(1, 6), (2, 9), (4, 8), (5, 16), (7, 0), (7, 3), (6, 1)] {
            let mut octets = OCTETS;
            octets[at] = value;
            assert_eq!(Packet::parse(&octets), Err(Malformed::Field));
        }
        for len in 0..OCTETS.len() {
            assert_eq!(Packet::parse(&OCTETS[..len]), Err(Malformed::Truncated));
        }
    }
}
