//! ARP (RFC 826) with the rules of RFC 5227 for address conflicts.

use std::net::{IpAddr, Ipv4Addr};

use super::addresses::Presence;
use super::interface::Interface;
use super::neighbourhood::Neighbourhood;
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::arp::{self, Operation};
use crate::wire::ethernet::{EtherType, MacAddress};

impl Neighbourhood {
    /// Handles the ARP packet in `frame`. Returns the neighbour whose hardware address, which packets wait
    /// for, is known now.
    pub(super) fn on_arp<D: Device>(
        &mut self,
        now: Instant,
        interface: &mut Interface<D>,
        frame: &D::Frame,
        network: usize,
    ) -> Result<Option<IpAddr>, DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let packet = arp::Packet::parse(octets).map_err(|_| DropCause::Malformed)?;
        let sender = IpAddr::from(packet.sender_ip);
        if self.own.contains(sender) {
            return Err(self.on_conflict(now, interface, sender, packet.sender_mac));
        }
        let for_us = self.own.contains(packet.target_ip.into());
        let mut known = None;
        if self.is_neighbour(sender) {
            let resolved = match packet.operation {
                Operation::Reply if for_us => self.neighbours.answered(sender, Some(packet.sender_mac), now),
                // The sender's address also counts in packets between other stations and in announcements
                // (RFC 5227 §2.3).
                _ => self.neighbours.claimed(sender, packet.sender_mac, now, for_us),
            };
            if resolved {
                known = Some(sender);
            }
        } else if !packet.sender_ip.is_unspecified() {
            return Err(DropCause::BadSource);
        }
        if !for_us {
            interface.counters.drops.count(DropCause::OtherAddress);
            return Ok(known);
        }
        // A shared address is for its other owner to answer for.
        //
        // A request without a sender address probes whether the target address is free (RFC 5227 §2.1.1). The
        // reply says that it is not.
        if packet.operation == Operation::Request && self.presence == Presence::Own {
            send(
                interface,
                packet.sender_mac,
                &arp::Packet {
                    operation: Operation::Reply,
                    sender_mac: interface.link.mac,
                    sender_ip: packet.target_ip,
                    target_mac: packet.sender_mac,
                    target_ip: packet.sender_ip,
                },
            );
        }
        Ok(known)
    }
}

/// Asks `to`, or every station, for the hardware address of `target_ip`.
pub(super) fn send_request<D: Device>(
    interface: &mut Interface<D>,
    own: Ipv4Addr,
    target_ip: Ipv4Addr,
    to: Option<MacAddress>,
) {
    let request = arp::Packet {
        operation: Operation::Request,
        sender_mac: interface.link.mac,
        sender_ip: own,
        target_mac: MacAddress::default(),
        target_ip,
    };
    send(interface, to.unwrap_or(MacAddress::BROADCAST), &request);
}

/// Sends the hardware address of `own` to every station (RFC 5227 §2.3).
pub(super) fn announce<D: Device>(interface: &mut Interface<D>, own: Ipv4Addr) {
    send_request(interface, own, own, None);
}

fn send<D: Device>(interface: &mut Interface<D>, destination: MacAddress, packet: &arp::Packet) {
    if !destination.is_multicast() || destination == MacAddress::BROADCAST {
        interface.send_frame(destination, EtherType::ARP, arp::Packet::LEN, |out| packet.emit(out));
    }
}
