//! Where frames come from and go to, and how much room their headers leave.

use std::net::IpAddr;

use super::Host;
use crate::device::Device;
use crate::wire::ethernet::MacAddress;
use crate::wire::tcp::Header;
use crate::wire::{ipv4, ipv6};

/// Where a frame leaves the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Through the device, to the station with this hardware address.
    Wire(MacAddress),
    /// To the host itself. The hardware address alone does not say so: the kernel's end of a net_tap has that
    /// of the port.
    Loopback,
}

impl Egress {
    /// Returns true for [`Loopback`](Self::Loopback).
    #[inline]
    pub(crate) const fn is_loopback(self) -> bool {
        matches!(self, Self::Loopback)
    }
}

/// Returns the octets of the IP header and of a TCP header without options.
pub(crate) const fn min_headers_octets(remote: IpAddr) -> u16 {
    (network_octets(remote) + Header::MIN_LEN) as u16
}

/// Returns the octets of the IP header of packets to `remote`.
pub(super) const fn network_octets(remote: IpAddr) -> usize {
    if remote.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN }
}

impl<D: Device> Host<D> {
    /// Returns the MSS of segments to `remote` on the host's link, which leaves room for the headers without
    /// options (RFC 9293 §3.7.1, RFC 8200 §8.3).
    pub(crate) fn mss_octets(&self, remote: IpAddr) -> u16 {
        let mss_octets = self.capabilities.mtu_bytes.saturating_sub(min_headers_octets(remote).into());
        mss_octets.min(usize::from(u16::MAX)) as u16
    }

    /// Returns the hardware address of frames that leave by `egress`.
    pub(super) const fn destination_mac(&self, egress: Egress) -> MacAddress {
        match egress {
            Egress::Wire(mac) => mac,
            Egress::Loopback => self.mac,
        }
    }
}
