//! The IP host of a core: a device, the host's addresses on its link, and the frames in between.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use arrayvec::ArrayVec;

use super::addresses::{Addresses, Presence, Routes, source_for};
use super::between_cores::News;
use super::flow::FlowKey;
use super::inbound::Inbound;
use super::input::{Ingress, SegmentParser};
use super::interface::Interface;
use super::neighbourhood::{Neighbourhood, Surroundings};
use super::neighbours::{Solicitation, StaticNeighbour};
use super::own_addresses::Ipv6Addresses;
use super::path_mtu::PathMtus;
use super::place::Place;
use super::reassembly::Reassembly;
use super::template::Paths;
use super::{arp, neighbor_discovery};
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::rate_limit::RateLimit;
use crate::secret::{Purpose, Secret};
use crate::time::Instant;
use crate::wire::ethernet::EtherType;
use crate::wire::icmpv6::NeighborSolicitation;
use crate::wire::tcp_rdma;

/// How an IP host is set up.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Its addresses, IPv4 and IPv6, each with the prefix of its network.
    pub addresses: Addresses,
    /// Its routes to other networks.
    pub routes: Routes,
    /// Neighbours whose hardware address is configured.
    pub neighbours: ArrayVec<StaticNeighbour, { limits::STATIC_NEIGHBOURS_PER_CORE }>,
    /// Whose the addresses are.
    pub presence: Presence,
    /// Whether the host probes for other stations that have its IPv6 addresses before it uses them (RFC 4862
    /// §5.4): for one to two seconds after the start. Without it, the host uses the addresses at once.
    pub duplicate_address_detection: bool,
    /// The VLAN that all frames belong to, 1 to 4094, by an IEEE 802.1Q tag; `None` for frames without one.
    pub vlan: Option<u16>,
    /// The kind of the TCP RDMA option (draft-csapuntz-tcprdma-00), which [no other option
    /// has](tcp_rdma::is_free_kind).
    pub rdma_option_kind: u8,
}

/// An IP host on a device.
pub(crate) struct Host<D: Device> {
    pub(crate) neighbourhood: Neighbourhood,
    pub(crate) parser: SegmentParser,
    pub(super) paths: Paths,
    pub(super) path_mtus: PathMtus,
    pub(super) reassembly: Reassembly,
    /// Hashes flows to IPv6 flow labels.
    flow_labels: KeyedHash,
    /// Bounds the replies to echo requests.
    pub(super) echo_replies: RateLimit,
    /// Dropped last: its device is.
    pub(crate) interface: Interface<D>,
}

impl<D: Device> Host<D> {
    /// Returns a host on `device`, whose random numbers come from `secret`, for the core at `place` or the
    /// only one. Allocates everything it needs.
    pub(crate) fn new(device: D, config: Config, secret: Secret, place: Option<Place<D::Frame>>) -> Self {
        let Config {
            addresses,
            routes,
            neighbours,
            presence,
            duplicate_address_detection,
            vlan,
            rdma_option_kind,
        } = config;
        assert!(
            tcp_rdma::is_free_kind(rdma_option_kind),
            "option kind {rdma_option_kind} has another meaning"
        );
        let interface = Interface::new(device, vlan, place);
        let surroundings = Surroundings {
            addresses,
            routes,
            neighbours: &neighbours,
            presence,
            duplicate_address_detection,
            is_replica: interface.is_replica(),
            reaches_programs: interface.device.reaches_programs(),
        };
        let mtu_bytes = interface.capabilities.mtu_bytes;
        Self {
            neighbourhood: Neighbourhood::new(surroundings, &secret),
            parser: SegmentParser::new(interface.link, rdma_option_kind),
            paths: Paths::new(),
            path_mtus: PathMtus::new(),
            reassembly: Reassembly::new(mtu_bytes.max(limits::REASSEMBLY_MIN_BYTES)),
            flow_labels: KeyedHash::new(secret.derive(Purpose::FlowLabels)),
            echo_replies: RateLimit::new(
                limits::ECHO_REPLIES_PER_SECOND,
                secret.derive(Purpose::EchoReplies),
            ),
            interface,
        }
    }

    /// Returns the host, to which these ports belong where it shares its addresses.
    pub(crate) fn with_ports(mut self, ports: RangeInclusive<u16>) -> Self {
        ports.for_each(|port| self.neighbourhood.answer_for(port));
        self
    }

    /// Parses a frame, whatever it carries. Returns what is for the layers above.
    ///
    /// # Errors
    ///
    /// Why the frame was dropped.
    #[inline(never)]
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        frame: D::Frame,
        ingress: Ingress,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let header = self.interface.link.parse(frame.piece(0).unwrap_or_default())?;
        match header.ethertype {
            EtherType::ARP if self.interface.is_replica() => self.interface.hand_to_host_core(frame),
            EtherType::ARP if !ingress.is_loopback() => self
                .neighbourhood
                .on_arp(now, &mut self.interface, &frame, header.network)
                .map(Inbound::resolved),
            EtherType::IPV4 if header.is_unicast => self.on_ipv4(now, frame, header.network, ingress),
            EtherType::IPV6 => self.on_ipv6(now, frame, header.network, false, ingress),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// Brings the host's addresses into use, see [`Neighbourhood::detect_duplicates`].
    #[inline]
    pub(crate) fn detect_duplicates(&mut self, now: Instant) -> Option<Ipv6Addresses> {
        self.neighbourhood.detect_duplicates(now, &mut self.interface)
    }

    /// Sends the solicitations that are due.
    pub(crate) fn solicit_neighbours(&mut self, now: Instant) {
        let Self { neighbourhood, interface, .. } = self;
        for Solicitation { address, to } in neighbourhood.neighbours.dequeue_due(now) {
            let Some(own) = source_for(neighbourhood.addresses(), address) else { continue };
            match (own, address) {
                (IpAddr::V4(own), IpAddr::V4(target)) => arp::send_request(interface, own, target, to),
                (IpAddr::V6(own), IpAddr::V6(target)) if !neighbourhood.own.is_tentative(own) => {
                    let source_mac = Some(interface.link.mac);
                    let solicitation = NeighborSolicitation { target, source_mac, nonce: None };
                    neighbor_discovery::send_solicitation(interface, own, &solicitation, to);
                }
                _ => {}
            }
        }
    }

    /// Serves the notes of other cores. Returns what they change for connections.
    pub(crate) fn receive_notes(&mut self, now: Instant) -> News {
        let place = self.interface.place.as_deref_mut();
        place.map(|place| self.neighbourhood.receive_notes(now, place)).unwrap_or_default()
    }

    /// Sends other cores the notes for them, and wakes those that were sent something in this poll.
    #[inline]
    pub(crate) fn end_poll(&mut self, now: Instant) {
        if let Some(place) = self.interface.place.as_deref_mut() {
            self.neighbourhood.end_poll(now, place);
        }
    }

    /// Returns the time at which the host has work even if nothing arrives and nothing is sent: at once if
    /// frames to itself wait.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.interface.next_due().min(self.neighbourhood.next_due())
    }

    /// Returns the flow label of a flow's IPv6 packets; 0 over IPv4.
    pub(crate) fn flow_label(&self, key: &FlowKey) -> u32 {
        key.flow_label(self.flow_labels)
    }

    /// Remembers that packets of more than `mtu_octets` do not reach `remote`.
    pub(crate) fn learn_path_mtu(&mut self, now: Instant, remote: IpAddr, mtu_octets: u16) {
        self.path_mtus.learn(now, remote, mtu_octets);
    }

    /// Returns the largest packet that reaches `remote`, in octets, if the path is known to be narrower than
    /// the link.
    pub(crate) fn path_mtu(&self, now: Instant, remote: IpAddr) -> Option<u16> {
        self.path_mtus.get(now, remote)
    }
}

#[cfg(test)]
mod tests;
