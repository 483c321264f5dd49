//! The neighbourhood of a host: the addresses that are its own, the neighbours that it hands packets to, and
//! the routes beyond them.

use std::net::IpAddr;

use super::addresses::{self, Addresses, Cidr, Presence, Routes, is_directed_broadcast, is_host_address};
use super::flow::FlowKey;
use super::input::Ingress;
use super::link::Egress;
use super::neighbour_cache::NeighbourCache;
use super::neighbours::{Resolution, StaticNeighbour};
use super::notes::AddressNews;
use super::own_addresses::OwnAddresses;
use super::port_set::PortSet;
use crate::device::{Frame, THIS_MACHINE};
use crate::drops::DropCause;
use crate::secret::{Purpose, Secret};
use crate::time::Instant;
use crate::wire::ethernet::{self, MacAddress};
use crate::wire::flow::Flow;

/// How the neighbourhood of a host begins.
pub(super) struct Surroundings<'c> {
    pub(super) addresses: Addresses,
    pub(super) routes: Routes,
    pub(super) neighbours: &'c [StaticNeighbour],
    pub(super) presence: Presence,
    pub(super) duplicate_address_detection: bool,
    /// Whether the host is a replica.
    pub(super) is_replica: bool,
    /// Whether the device reaches the other programs of this machine.
    pub(super) reaches_programs: bool,
}

/// The own addresses of a host, its neighbours and its routes.
pub(crate) struct Neighbourhood {
    pub(super) own: OwnAddresses,
    pub(crate) presence: Presence,
    /// Whether the addresses are those of other programs of this machine too, which the device reaches.
    pub(super) reaches_programs: bool,
    /// Where the addresses are shared, the ports of active opens and those that commands have named: this
    /// core answers for them, and no other program has them.
    own_ports: PortSet,
    /// Changes with the own addresses.
    pub(super) own_generation: u32,
    pub(super) duplicate_address_detection: bool,
    routes: Routes,
    pub(super) neighbours: NeighbourCache,
    /// What the replicas are still to be sent of the own addresses.
    pub(super) address_news: AddressNews,
}

impl Neighbourhood {
    /// Returns a neighbourhood whose random numbers come from `secret`.
    pub(super) fn new(surroundings: Surroundings<'_>, secret: &Secret) -> Self {
        let Surroundings {
            addresses,
            routes,
            neighbours,
            presence,
            duplicate_address_detection,
            is_replica,
            reaches_programs,
        } = surroundings;
        let mut own = OwnAddresses::new(addresses, secret.random(Purpose::DuplicateDetection));
        if is_replica {
            own.start_as_replica(duplicate_address_detection);
        }
        Self {
            own,
            presence,
            reaches_programs: presence == Presence::Shared && reaches_programs,
            own_ports: PortSet::default(),
            own_generation: 0,
            duplicate_address_detection,
            routes,
            neighbours: NeighbourCache::new(neighbours, &mut secret.random(Purpose::Neighbours), is_replica),
            address_news: AddressNews::default(),
        }
    }

    /// Returns when something is due even if nothing arrives and nothing is sent.
    pub(super) fn next_due(&self) -> Instant {
        self.own.next_due().min(self.neighbours.next_due())
    }

    /// Returns the generation of paths: each change of an own address, or of the hardware address of a
    /// neighbour, begins another.
    #[inline]
    pub(super) const fn generation(&self) -> u32 {
        self.own_generation.wrapping_add(self.neighbours.generation())
    }

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

    /// Returns true if packets to `remote` leave by an egress that depends on the port: the address is one of
    /// the host's own, which other programs of this machine have too.
    pub(super) fn egress_depends_on_port(&self, remote: IpAddr) -> bool {
        self.reaches_programs && self.own.contains(remote)
    }

    /// Returns the same as [`resolve`](Self::resolve), without asking for an unknown hardware address.
    pub(crate) fn known_egress(&self, remote: IpAddr, remote_port: u16) -> Option<Egress> {
        if self.own.contains(remote) {
            return Some(self.egress_to_own(remote_port));
        }
        self.neighbours.known(self.next_hop(remote)?).map(Egress::Wire)
    }

    /// Has this core answer from now on for `port`, unless it is 0, where it shares its addresses.
    pub(crate) fn answer_for(&mut self, port: u16) {
        if self.presence == Presence::Shared && port != 0 {
            self.own_ports.insert(port);
        }
    }

    /// Returns true if `port` is this core's to answer for: where it shares its addresses, one that was
    /// listened at, or of connections that it opens.
    pub(crate) fn answers_for(&self, port: u16) -> bool {
        self.presence == Presence::Own || self.own_ports.contains(port)
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
    pub(crate) fn egress_of_reply(&self, key: &FlowKey, frame: &impl Frame) -> Option<Egress> {
        self.known_egress(key.remote, key.remote_port).or_else(|| source_mac(frame).map(Egress::Wire))
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

    /// Returns true if `sender` can be a neighbour: a station on a network of the host.
    pub(super) fn is_neighbour(&self, sender: IpAddr) -> bool {
        is_host_address(sender) && self.next_hop(sender) == Some(sender)
    }

    /// Returns true if a segment from `ingress` may come from and to these addresses, as
    /// [`Host::receive`](super::Host::receive) checks it. They are checked once for a connection: of the
    /// host's addresses only a tentative one can become its own or be given up (RFC 4862 §5.4), and this
    /// returns false for those.
    pub(crate) fn may_have_connection(&self, flow: &Flow, ingress: Ingress) -> bool {
        let source = flow.source();
        let tentative = matches!(source, IpAddr::V6(source) if self.own.is_tentative(source));
        self.own.contains(flow.destination()) && !tentative && self.check_ingress(ingress, source).is_ok()
    }

    /// Checks the source of a packet: an address of the host's own is valid in a frame from the host itself,
    /// and only there.
    pub(super) fn check_ingress(&self, ingress: Ingress, source: IpAddr) -> Result<(), DropCause> {
        match ingress {
            Ingress::Wire | Ingress::Verified => self.check_source(source),
            Ingress::Loopback if self.own.contains(source) => Ok(()),
            Ingress::Loopback => Err(DropCause::BadSource),
        }
    }

    /// Checks that the source is no group, broadcast, loopback or unspecified address, and none of the host's
    /// own (RFC 9293 §3.9.2.3 MUST-63, RFC 1122 §3.2.1.3, RFC 4291 §2.7). A device that reaches the programs
    /// of this machine, which have the same addresses, lets nobody else use them.
    pub(super) fn check_source(&self, source: IpAddr) -> Result<(), DropCause> {
        let broadcast = is_directed_broadcast(self.own.as_slice(), source);
        let others = !self.own.contains(source) || self.reaches_programs;
        let valid = is_host_address(source) && !broadcast && others;
        if valid { Ok(()) } else { Err(DropCause::BadSource) }
    }
}

/// Returns the hardware address that a frame came from.
fn source_mac(frame: &impl Frame) -> Option<MacAddress> {
    let (header, _) = ethernet::Header::parse(frame.piece(0)?).ok()?;
    (!header.source.is_multicast()).then_some(header.source)
}
