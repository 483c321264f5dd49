//! ARP (RFC 826) with the rules of RFC 5227 for address conflicts.

use std::net::{IpAddr, Ipv4Addr};

use super::Host;
use super::addresses::Presence;
use super::inbound::Inbound;
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::arp::{self, Operation};
use crate::wire::ethernet::{EtherType, MacAddress};

impl<D: Device> Host<D> {
    pub(super) fn on_arp(
        &mut self,
        now: Instant,
        frame: &D::Frame,
        network: usize,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let packet = arp::Packet::parse(octets).map_err(|_| DropCause::Malformed)?;
        let sender = IpAddr::from(packet.sender_ip);
        if self.own.contains(sender) {
            return Err(self.on_conflict(now, sender, packet.sender_mac));
        }
        let for_us = self.own.contains(packet.target_ip.into());
        let mut inbound = Inbound::Done;
        if self.is_neighbour(sender) {
            let resolved = match packet.operation {
                Operation::Reply if for_us => self.neighbours.answered(sender, Some(packet.sender_mac), now),
                // The sender's address also counts in packets between other stations and in announcements
                // (RFC 5227 §2.3).
                _ => self.neighbours.claimed(sender, packet.sender_mac, now, for_us),
            };
            if resolved {
                inbound = Inbound::NeighbourResolved(sender);
            }
        } else if !packet.sender_ip.is_unspecified() {
            return Err(DropCause::BadSource);
        }
        if !for_us {
            self.counters.drops.count(DropCause::OtherAddress);
            return Ok(inbound);
        }
        // A shared address is for its other owner to answer for.
        //
        // A request without a sender address probes whether the target address is free (RFC 5227 §2.1.1). The
        // reply says that it is not.
        if packet.operation == Operation::Request && self.presence == Presence::Own {
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
        Ok(inbound)
    }

    /// Asks `to`, or every station, for the hardware address of `target_ip`.
    pub(super) fn send_arp_request(&mut self, own: Ipv4Addr, target_ip: Ipv4Addr, to: Option<MacAddress>) {
        let request = arp::Packet {
            operation: Operation::Request,
            sender_mac: self.mac,
            sender_ip: own,
            target_mac: MacAddress::default(),
            target_ip,
        };
        self.send_arp(to.unwrap_or(MacAddress::BROADCAST), &request);
    }

    /// Sends the hardware address of `own` to every station (RFC 5227 §2.3).
    pub(super) fn announce_by_arp(&mut self, own: Ipv4Addr) {
        self.send_arp_request(own, own, None);
    }

    fn send_arp(&mut self, destination: MacAddress, packet: &arp::Packet) {
        if !destination.is_multicast() || destination == MacAddress::BROADCAST {
            self.send_frame(destination, EtherType::ARP, arp::Packet::LEN, |out| packet.emit(out));
        }
    }
}
