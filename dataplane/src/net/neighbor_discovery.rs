//! Neighbor Discovery (RFC 4861 §7.2): solicitations and advertisements, in and out.

use std::net::{IpAddr, Ipv6Addr};

use super::Host;
use super::addresses::Presence;
use super::inbound::Inbound;
use crate::device::Device;
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::ethernet::{EtherType, MacAddress};
use crate::wire::icmpv6::{self, DISCOVERY_HOP_LIMIT, NeighborAdvertisement, NeighborSolicitation};
use crate::wire::ipv4::Protocol;
use crate::wire::ipv6;

impl<D: Device> Host<D> {
    /// Handles a solicitation in a frame from `link_source` (RFC 4861 §7.2.3).
    pub(super) fn on_solicitation(
        &mut self,
        now: Instant,
        solicitation: &NeighborSolicitation,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        link_source: MacAddress,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let target = solicitation.target;
        let probe = source.is_unspecified();
        // RFC 4861 §7.1.1.
        if probe && (solicitation.source_mac.is_some() || destination != ipv6::solicited_node(target)) {
            return Err(DropCause::Malformed);
        }
        if probe && self.own.is_tentative(target) {
            return Err(self.on_rival(target, solicitation.nonce, link_source));
        }
        // RFC 4862 §5.4.3: a solicitation for a tentative address gets no advertisement.
        if !self.own.contains(target.into()) {
            return Err(DropCause::OtherAddress);
        }
        if probe {
            // RFC 4861 §7.2.4: a probe has no source to answer to, so the advertisement goes to all nodes.
            let advertisement = self.advertisement(target, false);
            self.send_advertisement(&advertisement, ipv6::ALL_NODES, ipv6::multicast_mac(ipv6::ALL_NODES));
            return Ok(Inbound::Done);
        }
        let mut inbound = Inbound::Done;
        if let Some(mac) = solicitation.source_mac
            && self.is_neighbour(source.into())
            && self.neighbours.claimed(source.into(), mac, now, true)
        {
            inbound = Inbound::NeighbourResolved(source.into());
        }
        let known_mac = || self.known_egress(source.into(), 0).map(|egress| self.destination_mac(egress));
        let mac = solicitation.source_mac.or_else(known_mac).unwrap_or(link_source);
        if !mac.is_multicast() {
            let advertisement = self.advertisement(target, true);
            self.send_advertisement(&advertisement, source, mac);
        }
        Ok(inbound)
    }

    /// Handles an advertisement (RFC 4861 §7.2.5).
    pub(super) fn on_advertisement(
        &mut self,
        now: Instant,
        advertisement: &NeighborAdvertisement,
        destination: Ipv6Addr,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let NeighborAdvertisement { target, target_mac, solicited, overriding, .. } = *advertisement;
        // RFC 4861 §7.1.2.
        if destination.is_multicast() && solicited {
            return Err(DropCause::Malformed);
        }
        if self.own.is_tentative(target) {
            return Err(self.on_rival(target, None, target_mac.unwrap_or_default()));
        }
        let address = IpAddr::from(target);
        if self.own.contains(address) {
            return Err(self.on_conflict(now, address, target_mac.unwrap_or_default()));
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
        Ok(if resolved { Inbound::NeighbourResolved(address) } else { Inbound::Done })
    }

    const fn advertisement(&self, target: Ipv6Addr, solicited: bool) -> NeighborAdvertisement {
        NeighborAdvertisement {
            router: false,
            solicited,
            overriding: true,
            target,
            target_mac: Some(self.mac),
        }
    }

    /// Sends the hardware address of `own` to all nodes, unsolicited (RFC 4861 §7.2.6).
    pub(super) fn announce_by_advertisement(&mut self, own: Ipv6Addr) {
        let announcement = self.advertisement(own, false);
        self.send_advertisement(&announcement, ipv6::ALL_NODES, ipv6::multicast_mac(ipv6::ALL_NODES));
    }

    /// Sends an advertisement, unless the address is shared: its other owner does.
    fn send_advertisement(&mut self, advertisement: &NeighborAdvertisement, to: Ipv6Addr, mac: MacAddress) {
        if self.presence == Presence::Shared {
            return;
        }
        let mut message = [0; NeighborAdvertisement::MAX_LEN];
        let octets = advertisement.emit(&mut message);
        self.send_discovery(advertisement.target, to, mac, &mut message[..octets]);
    }

    /// Solicits `to`, or the solicited-node group of the target.
    pub(super) fn send_solicitation(
        &mut self,
        source: Ipv6Addr,
        solicitation: &NeighborSolicitation,
        to: Option<MacAddress>,
    ) {
        let mut message = [0; NeighborSolicitation::MAX_LEN];
        let octets = solicitation.emit(&mut message);
        let group = ipv6::solicited_node(solicitation.target);
        let (destination, mac) =
            to.map_or((group, ipv6::multicast_mac(group)), |mac| (solicitation.target, mac));
        self.send_discovery(source, destination, mac, &mut message[..octets]);
    }

    fn send_discovery(
        &mut self,
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
        self.send_frame(mac, EtherType::IPV6, ipv6::Header::LEN + message.len(), |out| {
            let (ip, rest) = out.split_at_mut(ipv6::Header::LEN);
            header.emit(ip);
            rest.copy_from_slice(message);
        });
    }
}
