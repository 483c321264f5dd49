//! Neighbor Discovery (RFC 4861 §7.2): solicitations and advertisements, in and out.

use std::net::{IpAddr, Ipv6Addr};

use super::addresses::Presence;
use super::interface::Interface;
use super::neighbourhood::Neighbourhood;
use crate::device::Device;
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::ethernet::{EtherType, MacAddress};
use crate::wire::icmpv6::{self, DISCOVERY_HOP_LIMIT, NeighborAdvertisement, NeighborSolicitation};
use crate::wire::ipv4::Protocol;
use crate::wire::ipv6;

/// A solicitation that has arrived, and what the headers before it say.
pub(super) struct Solicited<'m> {
    pub(super) solicitation: &'m NeighborSolicitation,
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    /// The hardware address that the frame came from.
    pub(super) link_source: MacAddress,
}

impl Neighbourhood {
    /// Handles a solicitation (RFC 4861 §7.2.3). Returns the neighbour whose hardware address, which packets
    /// wait for, is known now.
    pub(super) fn on_solicitation<D: Device>(
        &mut self,
        now: Instant,
        interface: &mut Interface<D>,
        solicited: &Solicited<'_>,
    ) -> Result<Option<IpAddr>, DropCause> {
        let Solicited { solicitation, source, destination, link_source } = *solicited;
        let target = solicitation.target;
        let probe = source.is_unspecified();
        // RFC 4861 §7.1.1.
        if probe && (solicitation.source_mac.is_some() || destination != ipv6::solicited_node(target)) {
            return Err(DropCause::Malformed);
        }
        if probe && self.own.is_tentative(target) {
            return Err(self.on_rival(interface, target, solicitation.nonce, link_source));
        }
        // RFC 4862 §5.4.3: a solicitation for a tentative address gets no advertisement.
        if !self.own.contains(target.into()) {
            return Err(DropCause::OtherAddress);
        }
        if probe {
            // RFC 4861 §7.2.4: a probe has no source to answer to, so the advertisement goes to all nodes.
            self.advertise_to_all(interface, target);
            return Ok(None);
        }
        let mut known = None;
        if let Some(mac) = solicitation.source_mac
            && self.is_neighbour(source.into())
            && self.neighbours.claimed(source.into(), mac, now, true)
        {
            known = Some(source.into());
        }
        let known_mac =
            || self.known_egress(source.into(), 0).map(|egress| interface.link.destination(egress));
        let mac = solicitation.source_mac.or_else(known_mac).unwrap_or(link_source);
        if !mac.is_multicast() {
            let advertisement = advertisement(interface.link.mac, target, true);
            self.advertise(interface, &advertisement, source, mac);
        }
        Ok(known)
    }

    /// Handles an advertisement (RFC 4861 §7.2.5). Returns as [`on_solicitation`](Self::on_solicitation).
    pub(super) fn on_advertisement<D: Device>(
        &mut self,
        now: Instant,
        interface: &mut Interface<D>,
        advertisement: &NeighborAdvertisement,
        destination: Ipv6Addr,
    ) -> Result<Option<IpAddr>, DropCause> {
        let NeighborAdvertisement { target, target_mac, solicited, overriding, .. } = *advertisement;
        // RFC 4861 §7.1.2.
        if destination.is_multicast() && solicited {
            return Err(DropCause::Malformed);
        }
        if self.own.is_tentative(target) {
            return Err(self.on_rival(interface, target, None, target_mac.unwrap_or_default()));
        }
        let address = IpAddr::from(target);
        if self.own.contains(address) {
            return Err(self.on_conflict(now, interface, address, target_mac.unwrap_or_default()));
        }
        if !self.is_neighbour(address) {
            return Err(DropCause::OtherAddress);
        }
        let resolved = match target_mac {
            _ if solicited => self.neighbours.answered(address, target_mac, now),
            // RFC 4861 §7.2.5: without the Override flag it does not replace a known hardware address.
            Some(mac) if overriding || self.neighbours.is_waiting(address) => {
                self.neighbours.claimed(address, mac, now, false)
            }
            _ => false,
        };
        Ok(resolved.then_some(address))
    }

    /// Sends the hardware address of `own` to all nodes, unsolicited (RFC 4861 §7.2.6).
    pub(super) fn advertise_to_all<D: Device>(&self, interface: &mut Interface<D>, own: Ipv6Addr) {
        let announcement = advertisement(interface.link.mac, own, false);
        self.advertise(interface, &announcement, ipv6::ALL_NODES, ipv6::multicast_mac(ipv6::ALL_NODES));
    }

    /// Sends an advertisement, unless the address is shared: its other owner does.
    fn advertise<D: Device>(
        &self,
        interface: &mut Interface<D>,
        advertisement: &NeighborAdvertisement,
        to: Ipv6Addr,
        mac: MacAddress,
    ) {
        if self.presence == Presence::Shared {
            return;
        }
        let mut message = [0; NeighborAdvertisement::MAX_LEN];
        let octets = advertisement.emit(&mut message);
        send(interface, advertisement.target, to, mac, &mut message[..octets]);
    }
}

const fn advertisement(mac: MacAddress, target: Ipv6Addr, solicited: bool) -> NeighborAdvertisement {
    NeighborAdvertisement { router: false, solicited, overriding: true, target, target_mac: Some(mac) }
}

/// Solicits `to`, or the solicited-node group of the target.
pub(super) fn send_solicitation<D: Device>(
    interface: &mut Interface<D>,
    source: Ipv6Addr,
    solicitation: &NeighborSolicitation,
    to: Option<MacAddress>,
) {
    let mut message = [0; NeighborSolicitation::MAX_LEN];
    let octets = solicitation.emit(&mut message);
    let group = ipv6::solicited_node(solicitation.target);
    let (destination, mac) = to.map_or((group, ipv6::multicast_mac(group)), |mac| (solicitation.target, mac));
    send(interface, source, destination, mac, &mut message[..octets]);
}

fn send<D: Device>(
    interface: &mut Interface<D>,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    mac: MacAddress,
    message: &mut [u8],
) {
    icmpv6::set_checksum(message, source, destination);
    let header = ipv6::Header {
        source,
        destination,
        next_header: Protocol::ICMPV6,
        hop_limit: DISCOVERY_HOP_LIMIT,
        payload_len: message.len() as u16,
        flow_label: 0,
        ecn: 0,
        dscp: 0,
    };
    interface.send_frame(mac, EtherType::IPV6, ipv6::Header::LEN + message.len(), |out| {
        let (ip, rest) = out.split_at_mut(ipv6::Header::LEN);
        header.emit(ip);
        rest.copy_from_slice(message);
    });
}
