//! Packets of stations that are no hosts, in frames for one: written by the documents alone, with good
//! checksums.

use super::draw::Draw;
use super::wire::checksum;

pub(super) const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const ICMPV6: u8 = 58;
const HOPS: u8 = 64;

/// From a station to a host.
#[derive(Clone, Copy)]
pub(super) struct Link<'d> {
    pub(super) draw: &'d Draw,
    /// The hardware address of the station.
    pub(super) station: [u8; 6],
    pub(super) host: usize,
}

/// The IP header before a message, of the version whose addresses these are.
#[derive(Clone, Copy)]
pub(super) struct Ip<'a> {
    pub(super) source: &'a [u8],
    pub(super) destination: &'a [u8],
    pub(super) protocol: u8,
}

impl Link<'_> {
    /// Returns the Ethernet header, in the VLAN of the hosts.
    pub(super) fn header(self, ether_type: [u8; 2]) -> Vec<u8> {
        let mut header = vec![0x02, 0, 0, 0, 1, self.host as u8];
        header.extend(self.station);
        if let Some(vlan) = self.draw.vlan {
            header.extend([0x81, 0]);
            header.extend(vlan.to_be_bytes());
        }
        header.extend(ether_type);
        header
    }

    /// Returns the frame of a message, with its checksum, which covers a pseudo-header but in ICMP for IPv4
    /// (RFC 792).
    pub(super) fn frame(self, ip: Ip<'_>, mut message: Vec<u8>) -> Vec<u8> {
        let octets = message.len() as u16;
        let pseudo = match ip.protocol {
            ICMP => Vec::new(),
            _ => [ip.source, ip.destination, &[0, ip.protocol], &octets.to_be_bytes()].concat(),
        };
        let sum = checksum(&[&pseudo[..], &message].concat());
        let at = if ip.protocol == TCP { 16 } else { 2 };
        message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let ether_type = if ip.is_v6() { IPV6 } else { IPV4 };
        [self.header(ether_type), ip.header(octets), message].concat()
    }
}

impl Ip<'_> {
    const fn is_v6(self) -> bool {
        self.source.len() == 16
    }

    /// Returns the header before a message of so many octets (RFC 791 §3.1, RFC 8200 §3).
    pub(super) fn header(self, octets: u16) -> Vec<u8> {
        let Self { source, destination, protocol } = self;
        if self.is_v6() {
            let fixed = [&[0x60, 0, 0, 0], &octets.to_be_bytes()[..], &[protocol, HOPS]].concat();
            return [&fixed[..], source, destination].concat();
        }
        let total = (20 + octets).to_be_bytes();
        let fixed = [&[0x45, 0], &total[..], &[0, 0, 0x40, 0, HOPS, protocol, 0, 0]].concat();
        let mut header = [&fixed[..], source, destination].concat();
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }
}
