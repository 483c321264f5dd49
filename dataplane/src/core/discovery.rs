//! ARP (RFC 826, RFC 5227) and Neighbor Discovery (RFC 4861 §7.2): questions and answers, in and out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Core;
use super::statistics::DropCause;
use crate::device::{Device, Frame};
use crate::net::addresses::{self, is_host_address};
use crate::net::flow::FlowKey;
use crate::net::neighbours::{Resolution, Solicitation};
use crate::time::Instant;
use crate::wire::arp::{self, Operation};
use crate::wire::ethernet::{EtherType, MacAddress};
use crate::wire::icmpv6::{self, DISCOVERY_HOP_LIMIT, NeighborAdvertisement, NeighborSolicitation};
use crate::wire::ipv4::Protocol;
use crate::wire::ipv6;

impl<D: Device> Core<D> {
    /// The hardware address for packets of a connection, our own for one to ourselves; a neighbour's is asked
    /// for when it is not known.
    pub(super) fn resolve(&mut self, key: FlowKey, now: Instant) -> Option<MacAddress> {
        if matches!(key.local, IpAddr::V6(local) if self.is_tentative(local)) {
            // RFC 4862 §5.4: not ours yet.
            return None;
        }
        if self.is_own(key.remote) {
            return Some(self.mac);
        }
        let next_hop = self.next_hop(key.remote)?;
        match self.neighbours.resolve(next_hop, now) {
            Resolution::Known(mac) => Some(mac),
            Resolution::Wait => None,
        }
    }

    /// The hardware address behind `remote`, if it is known. Our own for an address of ours.
    pub(super) fn known_mac(&self, remote: IpAddr) -> Option<MacAddress> {
        if self.is_own(remote) {
            return Some(self.mac);
        }
        self.neighbours.known(self.next_hop(remote)?)
    }

    /// Packets of ours have reached `remote`: so its neighbour, or the router before it, is there.
    pub(super) fn confirm_reachable(&mut self, remote: IpAddr, now: Instant) {
        if let Some(next_hop) = self.next_hop(remote) {
            self.neighbours.confirm(next_hop, now);
        }
    }

    /// Asks whoever is to be asked by now.
    pub(super) fn solicit_neighbours(&mut self, now: Instant) {
        for Solicitation { address, to } in self.neighbours.due(now) {
            let Some(own) = addresses::source_for(&self.config.addresses, address) else { continue };
            match (own, address) {
                (IpAddr::V4(own), IpAddr::V4(target)) => self.ask_by_arp(own, target, to),
                (IpAddr::V6(own), IpAddr::V6(target)) if !self.is_tentative(own) => {
                    let source_mac = Some(self.mac);
                    self.send_solicitation(
                        own,
                        &NeighborSolicitation { target, source_mac, nonce: None },
                        to,
                    );
                }
                _ => {}
            }
        }
    }

    /// Connections that wait for a hardware address have something to send again.
    fn wake_waiting_for(&mut self, neighbour: IpAddr) {
        self.wake_where(|core, key| core.next_hop(key.remote) == Some(neighbour));
    }

    /// Gives a turn to connections that wait for something else than TCP.
    pub(super) fn wake_where(&mut self, wakes: impl Fn(&Self, FlowKey) -> bool) {
        for index in 0..self.slots.len() as u32 {
            let key = self.slots[index as usize].connection.as_ref().map(|connection| connection.key);
            if key.is_some_and(|key| wakes(self, key)) {
                self.mark_dirty(index);
            }
        }
    }

    /// Whether a packet of `sender` may tell us something of it: it is a station on a network of ours.
    fn is_neighbour(&self, sender: IpAddr) -> bool {
        is_host_address(sender) && self.next_hop(sender) == Some(sender)
    }

    pub(super) fn on_arp(&mut self, now: Instant, frame: &D::Frame, network: usize) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let packet = arp::Packet::parse(octets).map_err(|_| DropCause::Malformed)?;
        let sender = IpAddr::from(packet.sender_ip);
        if self.is_own(sender) {
            return Err(self.on_conflict(now, sender, packet.sender_mac));
        }
        let for_us = self.is_own(packet.target_ip.into());
        if self.is_neighbour(sender) {
            let wake = match packet.operation {
                Operation::Reply if for_us => self.neighbours.answered(sender, Some(packet.sender_mac), now),
                // What others tell each other is heard, and so is who announces itself (RFC 5227 §2.3).
                _ => self.neighbours.claimed(sender, packet.sender_mac, now, for_us),
            };
            if wake {
                self.wake_waiting_for(sender);
            }
        } else if !packet.sender_ip.is_unspecified() {
            return Err(DropCause::BadSource);
        }
        if !for_us {
            return Err(DropCause::OtherAddress);
        }
        // A sender without an address probes whether ours is free (RFC 5227 §2.1.1): it is told.
        if packet.operation == Operation::Request {
            self.send_arp(
                packet.sender_mac,
                &arp::Packet {
                    operation: Operation::Reply,
                    sender_mac: self.mac,
                    sender_ip: packet.target_ip,
                    target_mac: packet.sender_mac,
                    target_ip: packet.sender_ip,
                },
            );
        }
        Ok(())
    }

    fn ask_by_arp(&mut self, own: Ipv4Addr, target_ip: Ipv4Addr, to: Option<MacAddress>) {
        let request = arp::Packet {
            operation: Operation::Request,
            sender_mac: self.mac,
            sender_ip: own,
            target_mac: MacAddress::default(),
            target_ip,
        };
        self.send_arp(to.unwrap_or(MacAddress::BROADCAST), &request);
    }

    /// Tells everybody our hardware address (RFC 5227 §2.3).
    pub(super) fn announce_by_arp(&mut self, own: Ipv4Addr) {
        self.ask_by_arp(own, own, None);
    }

    fn send_arp(&mut self, destination: MacAddress, packet: &arp::Packet) {
        if !destination.is_multicast() || destination == MacAddress::BROADCAST {
            self.send_frame(destination, EtherType::ARP, arp::Packet::LEN, |out| packet.emit(out));
        }
    }

    /// RFC 4861 §7.2.3. The frame came from `link_source`.
    pub(super) fn on_solicitation(
        &mut self,
        now: Instant,
        solicitation: &NeighborSolicitation,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        link_source: MacAddress,
    ) -> Result<(), DropCause> {
        let target = solicitation.target;
        let probe = source.is_unspecified();
        // RFC 4861 §7.1.1.
        if probe && (solicitation.source_mac.is_some() || destination != ipv6::solicited_node(target)) {
            return Err(DropCause::Malformed);
        }
        if probe && self.is_tentative(target) {
            return self.on_rival(target, solicitation.nonce);
        }
        // Who only looks for a tentative address gets no answer from us (RFC 4862 §5.4.3).
        if !self.is_own(target.into()) {
            return Err(DropCause::OtherAddress);
        }
        if probe {
            // RFC 4861 §7.2.4: nobody to answer to but all.
            let answer = self.advertisement(target, false);
            self.send_advertisement(&answer, ipv6::ALL_NODES, ipv6::multicast_mac(ipv6::ALL_NODES));
            return Ok(());
        }
        if let Some(mac) = solicitation.source_mac
            && self.is_neighbour(source.into())
            && self.neighbours.claimed(source.into(), mac, now, true)
        {
            self.wake_waiting_for(source.into());
        }
        let mac = solicitation.source_mac.or_else(|| self.known_mac(source.into())).unwrap_or(link_source);
        if !mac.is_multicast() {
            let answer = self.advertisement(target, true);
            self.send_advertisement(&answer, source, mac);
        }
        Ok(())
    }

    /// RFC 4861 §7.2.5.
    pub(super) fn on_advertisement(
        &mut self,
        now: Instant,
        advertisement: &NeighborAdvertisement,
        destination: Ipv6Addr,
    ) -> Result<(), DropCause> {
        let NeighborAdvertisement { target, target_mac, solicited, overriding, .. } = *advertisement;
        // RFC 4861 §7.1.2.
        if destination.is_multicast() && solicited {
            return Err(DropCause::Malformed);
        }
        if self.is_tentative(target) {
            return self.on_rival(target, None);
        }
        let address = IpAddr::from(target);
        if self.is_own(address) {
            return Err(self.on_conflict(now, address, target_mac.unwrap_or_default()));
        }
        if !self.is_neighbour(address) {
            return Err(DropCause::OtherAddress);
        }
        let wake = match target_mac {
            _ if solicited => self.neighbours.answered(address, target_mac, now),
            // Without the flag it is not to replace what is known.
            Some(mac) if overriding || self.neighbours.is_waiting(address) => {
                self.neighbours.claimed(address, mac, now, false)
            }
            _ => false,
        };
        if wake {
            self.wake_waiting_for(address);
        }
        Ok(())
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

    /// Tells everybody our hardware address, unasked (RFC 4861 §7.2.6).
    pub(super) fn announce_by_advertisement(&mut self, own: Ipv6Addr) {
        let announcement = self.advertisement(own, false);
        self.send_advertisement(&announcement, ipv6::ALL_NODES, ipv6::multicast_mac(ipv6::ALL_NODES));
    }

    fn send_advertisement(&mut self, answer: &NeighborAdvertisement, to: Ipv6Addr, mac: MacAddress) {
        let mut message = [0; NeighborAdvertisement::MAX_LEN];
        let octets = answer.emit(&mut message);
        self.send_discovery(answer.target, to, mac, &mut message[..octets]);
    }

    /// Asks `to`, or everybody whose address may be the target.
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
