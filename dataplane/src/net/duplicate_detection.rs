//! The beginning and the defence of the host's own addresses: probes, announcements, and what the host does
//! when another station uses an address of its own (RFC 5227 §2.4).

use std::net::{IpAddr, Ipv6Addr};

use super::addresses::Presence;
use super::interface::Interface;
use super::neighbourhood::Neighbourhood;
use super::own_addresses::Ipv6Addresses;
use super::{arp, neighbor_discovery};
use crate::device::Device;
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;
use crate::wire::icmpv6::NeighborSolicitation;

impl Neighbourhood {
    /// Brings the host's addresses into use: announces them, probes for them. Returns those that are its own
    /// from now on, for which connections may wait, or `None` if nothing was due.
    #[inline]
    pub(super) fn detect_duplicates<D: Device>(
        &mut self,
        now: Instant,
        interface: &mut Interface<D>,
    ) -> Option<Ipv6Addresses> {
        if now < self.own.next_due() { None } else { Some(self.bring_into_use(now, interface)) }
    }

    #[cold]
    fn bring_into_use<D: Device>(&mut self, now: Instant, interface: &mut Interface<D>) -> Ipv6Addresses {
        self.update_replicas(interface.cores());
        for own in self.own.start(now, self.duplicate_address_detection) {
            self.announce(interface, own.address);
        }
        let due = self.own.dequeue_due(now);
        for target in due.to_probe {
            let nonce = Some(self.own.nonce());
            let probe = NeighborSolicitation { target, source_mac: None, nonce };
            neighbor_discovery::send_solicitation(interface, Ipv6Addr::UNSPECIFIED, &probe, None);
        }
        for address in &due.assigned {
            self.announce(interface, (*address).into());
        }
        due.assigned
    }

    /// Sends the host's hardware address to all stations, unsolicited. The other owner of a shared address
    /// does that itself.
    fn announce<D: Device>(&self, interface: &mut Interface<D>, own: IpAddr) {
        match own {
            _ if self.presence == Presence::Shared => {}
            IpAddr::V4(own) => arp::announce(interface, own),
            IpAddr::V6(own) => self.advertise_to_all(interface, own),
        }
    }

    /// Handles another station, `mac`, that advertises a tentative address, or probes for it with this nonce:
    /// the host abandons the address.
    pub(super) fn on_rival<D: Device>(
        &mut self,
        interface: &mut Interface<D>,
        address: Ipv6Addr,
        nonce: Option<[u8; 6]>,
        mac: MacAddress,
    ) -> DropCause {
        if nonce == Some(self.own.nonce()) {
            // RFC 7527 §4: the host's own probe, looped back by the link.
            return DropCause::OtherAddress;
        }
        self.own.give_up(address);
        interface.notices.record_conflict(address.into(), mac, true);
        self.update_replicas(interface.cores());
        DropCause::AddressConflict
    }

    /// Handles another station's claim to an address of the host. The host announces the address again, at a
    /// bounded rate. Returns the cause to count.
    pub(super) fn on_conflict<D: Device>(
        &mut self,
        now: Instant,
        interface: &mut Interface<D>,
        address: IpAddr,
        mac: MacAddress,
    ) -> DropCause {
        if mac == interface.link.mac {
            // The host's own packet, looped back by the link.
            return DropCause::OtherAddress;
        }
        if self.own.may_defend(now) {
            self.announce(interface, address);
            interface.notices.record_conflict(address, mac, false);
        }
        DropCause::AddressConflict
    }
}
