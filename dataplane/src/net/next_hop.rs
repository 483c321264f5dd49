//! Where packets leave the host: the next hop of a destination, and its hardware address.

use std::net::IpAddr;

use super::Host;
use super::addresses::{self, Cidr};
use super::flow::FlowKey;
use super::neighbours::{Resolution, Solicitation};
use crate::device::{Device, Frame, THIS_MACHINE};
use crate::time::Instant;
use crate::wire::ethernet::{self, MacAddress};
use crate::wire::icmpv6::NeighborSolicitation;

/// Where a frame leaves the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Through the device, to the station with this hardware address.
    Wire(MacAddress),
    /// To the host itself. The hardware address does not say so: the kernel's end of a net_tap has that
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

impl<D: Device> Host<D> {
    /// Returns the addresses of the host, tentative ones included.
    pub(crate) fn addresses(&self) -> &[Cidr] {
        self.own.as_slice()
    }

    /// Returns the neighbour that a packet to `remote` is handed to: `remote` itself on a network of the
    /// host, else a gateway. `None` without a route.
    pub(crate) fn next_hop(&self, remote: IpAddr) -> Option<IpAddr> {
        addresses::next_hop(self.own.as_slice(), &self.routes, remote)
    }

    /// Returns the egress of a connection's packets. `None` while they cannot leave: the local address is
    /// tentative or was given up, there is no route, or the hardware address of the next hop is not known and
    /// is asked for.
    pub(crate) fn resolve(&mut self, key: &FlowKey, now: Instant) -> Option<Egress> {
        if !self.own.contains(key.local) {
            // RFC 4862 §5.4: a tentative address may not be used, and one that another station has never.
            return None;
        }
        if self.own.contains(key.remote) {
            return Some(self.egress_to_own(key.remote_port));
        }
        match self.neighbours.resolve(self.next_hop(key.remote)?, now) {
            Resolution::Known(mac) => Some(Egress::Wire(mac)),
            Resolution::Wait => None,
        }
    }

    /// Returns where packets to `port` of an address of the host's own go: to the host itself, or to another
    /// program of this machine that has the port, where both have the address from the kernel.
    #[inline]
    fn egress_to_own(&self, port: u16) -> Egress {
        if self.reaches_programs && !self.own_ports.contains(port) {
            Egress::Wire(THIS_MACHINE)
        } else {
            Egress::Loopback
        }
    }

    /// Returns the same as [`resolve`](Self::resolve), without asking for an unknown hardware address.
    pub(crate) fn known_egress(&self, remote: IpAddr, remote_port: u16) -> Option<Egress> {
        if self.own.contains(remote) {
            return Some(self.egress_to_own(remote_port));
        }
        self.neighbours.known(self.next_hop(remote)?).map(Egress::Wire)
    }

    /// Returns true if `address` is one of the host's own that it may use: not a tentative one.
    pub(crate) fn may_use(&self, address: IpAddr) -> bool {
        self.own.contains(address)
    }

    /// Returns true if the packets of a connection can leave, without asking for an unknown hardware address.
    pub(crate) fn has_path(&self, key: &FlowKey) -> bool {
        self.own.contains(key.local) && self.known_egress(key.remote, key.remote_port).is_some()
    }

    /// Returns where a reply to `frame`, which came from the peer of `key`, leaves the host: to the known
    /// next hop, else back to the station that sent the frame. No hardware address is asked for.
    pub(crate) fn egress_of_reply(&self, key: &FlowKey, frame: &D::Frame) -> Option<Egress> {
        self.known_egress(key.remote, key.remote_port).or_else(|| source_mac(frame).map(Egress::Wire))
    }

    /// Returns the hardware address of frames that leave by `egress`.
    pub(super) const fn destination_mac(&self, egress: Egress) -> MacAddress {
        match egress {
            Egress::Wire(mac) => mac,
            Egress::Loopback => self.mac,
        }
    }

    /// Returns true if the hardware address of a neighbour is known.
    pub(crate) fn knows_neighbour(&self, neighbour: IpAddr) -> bool {
        self.neighbours.known(neighbour).is_some()
    }

    /// Returns true if packets to `remote` wait for the hardware address of their next hop.
    pub(crate) fn is_unresolved(&self, remote: IpAddr) -> bool {
        self.next_hop(remote).is_some_and(|next_hop| self.neighbours.is_waiting(next_hop))
    }

    /// Tells the neighbour cache that the next hop of packets to `remote` is reachable.
    #[inline(never)]
    pub(super) fn confirm_next_hop(&mut self, remote: IpAddr, now: Instant) {
        if !self.own.contains(remote)
            && let Some(next_hop) = self.next_hop(remote)
        {
            self.neighbours.confirm(next_hop, now);
        }
    }

    /// Returns true if solicitations are due.
    #[inline]
    pub(crate) fn has_to_solicit(&self, now: Instant) -> bool {
        now >= self.neighbours.next_due()
    }

    /// Sends the solicitations that are due.
    pub(crate) fn solicit_neighbours(&mut self, now: Instant) {
        for Solicitation { address, to } in self.neighbours.dequeue_due(now) {
            let Some(own) = addresses::source_for(self.own.as_slice(), address) else { continue };
            match (own, address) {
                (IpAddr::V4(own), IpAddr::V4(target)) => self.send_arp_request(own, target, to),
                (IpAddr::V6(own), IpAddr::V6(target)) if !self.own.is_tentative(own) => {
                    let source_mac = Some(self.mac);
                    let solicitation = NeighborSolicitation { target, source_mac, nonce: None };
                    self.send_solicitation(own, &solicitation, to);
                }
                _ => {}
            }
        }
    }

    /// Returns true if `sender` can be a neighbour: a station on a network of the host.
    pub(super) fn is_neighbour(&self, sender: IpAddr) -> bool {
        addresses::is_host_address(sender) && self.next_hop(sender) == Some(sender)
    }
}

/// Returns the hardware address that a frame came from.
fn source_mac(frame: &impl Frame) -> Option<MacAddress> {
    let (header, _) = ethernet::Header::parse(frame.piece(0)?).ok()?;
    (!header.source.is_multicast()).then_some(header.source)
}
