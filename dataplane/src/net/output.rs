//! The headers of segments out, as the host has them: the [template](super::template) of a path is made and
//! renewed, and written to frames; and how much room headers leave.

use std::net::IpAddr;

use super::Host;
use super::flow::FlowKey;
use super::link::Egress;
use super::template::{ChecksumBy, HeaderTemplate, NEVER, PATHS, Path, PathId, place, tick};
use crate::device::{Capabilities, ChecksumRequest, Device, Frame, IpVersion};
use crate::limits;
use crate::time::Instant;
use crate::wire::checksum;
use crate::wire::ethernet::EtherType;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6;
use crate::wire::tcp::Header;

/// The payload that a super-frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SuperFrameRoom {
    /// Octets of payload.
    pub octets: usize,
    /// Segments whose payload may go by reference.
    pub references: usize,
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
    /// Returns the path of a connection, whose template is then that of the connection's segments. `None`
    /// while these cannot leave, see [`Neighbourhood::resolve`].
    ///
    /// [`Neighbourhood::resolve`]: super::neighbourhood::Neighbourhood::resolve
    #[inline]
    pub(crate) fn path(&mut self, key: &FlowKey, flow_label: u32, now: Instant) -> Option<PathId> {
        let generation = self.neighbourhood.generation();
        let id = PathId(place(key.remote));
        let path = &self.paths.0[id.0];
        let valid = path.template.generation == generation
            && path.template.renewed == tick(now)
            && path.remote == key.remote
            && path.local == key.local;
        if !valid && !self.renew(key, now) {
            return None;
        }
        self.template_mut(id).set_flow(key, flow_label);
        Some(id)
    }

    /// Returns the template of a path.
    #[inline]
    pub(crate) fn template(&self, path: PathId) -> &HeaderTemplate {
        &self.paths.0[path.0 % PATHS].template
    }

    /// Returns the template of a path, to change it.
    #[inline]
    pub(crate) fn template_mut(&mut self, path: PathId) -> &mut HeaderTemplate {
        &mut self.paths.0[path.0 % PATHS].template
    }

    /// Renews the template of the path of `key`. Returns false if segments cannot leave.
    #[inline(never)]
    fn renew(&mut self, key: &FlowKey, now: Instant) -> bool {
        let Some(egress) = self.neighbourhood.resolve(key, now) else { return false };
        let mut template = self.new_template(key, egress);
        let is_of_address = !self.neighbourhood.egress_depends_on_port(key.remote);
        template.generation = self.neighbourhood.generation();
        template.renewed = if is_of_address { tick(now) } else { NEVER };
        let path = &mut self.paths.0[place(key.remote)];
        let confirmed = if path.remote == key.remote { path.confirmed } else { NEVER };
        *path = Path { local: key.local, remote: key.remote, confirmed, template };
        true
    }

    /// Records that packets of the host have reached `remote`: its next hop is reachable (RFC 4861 §7.3.1).
    /// The neighbour cache learns it once in a tick.
    #[inline]
    pub(crate) fn confirm_reachable(&mut self, remote: IpAddr, now: Instant) {
        let path = &mut self.paths.0[place(remote)];
        let is_confirmed = path.remote == remote && path.confirmed == tick(now);
        if !is_confirmed {
            path.confirmed = tick(now);
            self.neighbourhood.confirm_next_hop(remote, now);
        }
    }

    /// Returns a template of segments of `key` that leave by `egress`.
    pub(crate) fn new_template(&self, key: &FlowKey, egress: Egress) -> HeaderTemplate {
        let mut template = HeaderTemplate::invalid();
        let link = self.interface.link.octets();
        let tcp_at = link + network_octets(key.remote);
        let is_ipv4 = key.remote.is_ipv4();
        let ethertype = if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let before = &mut template.image[..tcp_at];
        let (link_header, ip) = before.split_at_mut(link);
        self.interface.link.write(link_header, self.interface.link.destination(egress), ethertype);
        Self::write_network(ip, key);
        if is_ipv4 {
            template.ip_header = checksum::sum(ip).folded();
        }
        template.pseudo_header = checksum::pseudo_header(key.local, key.remote, Protocol::TCP.0, 0).folded();
        (template.network_at, template.tcp_at) = (link as u8, tcp_at as u8);
        template.is_ipv4 = is_ipv4;
        template.computes_ip = !self.interface.capabilities.transmit_ip_checksums;
        template.by = if egress.is_loopback() {
            ChecksumBy::Nobody
        } else if self.interface.capabilities.transmit_checksums {
            ChecksumBy::Device(self.checksum_request(key.remote))
        } else {
            ChecksumBy::Host
        };
        template.set_flow(key, self.flow_label(key));
        template
    }

    /// Returns the MSS of segments to `remote` on the host's link, which leaves room for the headers without
    /// options (RFC 9293 §3.7.1, RFC 8200 §8.3).
    pub(crate) fn mss_octets(&self, remote: IpAddr) -> u16 {
        let mss_octets =
            self.interface.capabilities.mtu_bytes.saturating_sub(min_headers_octets(remote).into());
        mss_octets.min(usize::from(u16::MAX)) as u16
    }

    /// Returns the request to complete the checksums of segments to `remote`.
    fn checksum_request(&self, remote: IpAddr) -> ChecksumRequest {
        ChecksumRequest {
            ip: if remote.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 },
            ip_checksum: self.interface.capabilities.transmit_ip_checksums,
            l2_octets: self.interface.link.octets() as u8,
            l3_octets: network_octets(remote) as u8,
            l4_octets: 0,
        }
    }

    /// Writes the IP header of segments of `key`, without length, ECN and checksum.
    // Requirements: MPA-A.5-01
    fn write_network(out: &mut [u8], key: &FlowKey) {
        match (key.local, key.remote) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Header {
                source,
                destination,
                protocol: Protocol::TCP,
                ttl: limits::TIME_TO_LIVE,
                total_len: 0,
                // RFC 5044 §A.5: segments are not fragmented.
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                // RFC 6864 §4.1: a datagram that is never fragmented may have any identification. A counter
                // would show strangers how much the host sends. Zero needs no state, receivers coalesce
                // segments that have it (Linux's GRO), and no path refuses it: Linux answers every SYN with
                // it.
                identification: 0,
                ecn: 0,
                dscp: 0,
            }
            .emit_without_checksum(out),
            (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
                source,
                destination,
                next_header: Protocol::TCP,
                hop_limit: limits::TIME_TO_LIVE,
                payload_len: 0,
                flow_label: 0,
                ecn: 0,
                dscp: 0,
            }
            .emit(out),
            _ => debug_assert!(false, "a flow between two families: {key:?}"),
        }
    }

    /// Writes the headers of a segment as [`HeaderTemplate::write_header`] does with the template of a path.
    pub(crate) fn write_headers(
        &mut self,
        frame: &mut D::Frame,
        path: PathId,
        header: &Header,
        payload_octets: usize,
        ecn: u8,
    ) {
        let kind = self.parser.rdma_option_kind;
        self.template_mut(path).write_header(frame, header, payload_octets, ecn, kind);
    }

    /// Returns true if payload may go by reference: only where the device computes the TCP checksum, because
    /// nothing else reads the octets then.
    pub(crate) fn allows_references(&self, path: PathId) -> bool {
        let offloads = self.interface.capabilities.gather && self.interface.capabilities.transmit_checksums;
        offloads && !self.template(path).is_loopback()
    }

    /// Returns true if the device accepts super-frames on a path.
    pub(crate) fn allows_super_frames(&self, path: PathId) -> bool {
        let Capabilities { super_frame_bytes, transmit_checksums, mtu_bytes, .. } =
            self.interface.capabilities;
        super_frame_bytes > mtu_bytes && transmit_checksums && !self.template(path).is_loopback()
    }

    /// Returns the room for payload in a super-frame on a path.
    pub(crate) fn super_frame_room(&self, path: PathId) -> SuperFrameRoom {
        let Capabilities { super_frame_bytes, super_frame_pieces, .. } = self.interface.capabilities;
        let most = super_frame_bytes.min(usize::from(u16::MAX)) + self.interface.link.octets();
        let octets = most.saturating_sub(self.template(path).octets());
        // The headers are in the first piece, and each FPDU by reference adds its payload and what follows.
        let references = super_frame_pieces.saturating_sub(1) / 2;
        SuperFrameRoom { octets, references }
    }

    /// Returns how many more frames a connection may send on its path, see [`Interface::room`].
    ///
    /// [`Interface::room`]: super::interface::Interface::room
    #[inline]
    pub(crate) fn room(&self, path: PathId) -> usize {
        self.interface.room(self.template(path))
    }

    /// Sends the frame of a segment on a path.
    #[inline]
    pub(crate) fn send(&mut self, now: Instant, path: PathId, frame: D::Frame) {
        let is_loopback = self.template(path).is_loopback();
        self.interface.send(now, is_loopback, frame);
    }

    /// Sends up to `count` segments on a path, see [`Interface::send_filled`].
    ///
    /// [`Interface::send_filled`]: super::interface::Interface::send_filled
    #[inline]
    pub(crate) fn send_filled(
        &mut self,
        now: Instant,
        path: PathId,
        count: usize,
        fill: impl FnMut(&HeaderTemplate, &mut D::Frame) -> bool,
    ) -> usize {
        let template = &self.paths.0[path.0 % PATHS].template;
        self.interface.send_filled(now, template, count, fill)
    }

    /// Sends a segment that belongs to no connection, such as a RST. The peer's hardware address is not asked
    /// for: without it, nothing is sent.
    pub(crate) fn send_bare(&mut self, key: FlowKey, header: &Header) {
        if let Some(egress) = self.neighbourhood.known_egress(key.remote, key.remote_port) {
            self.send_bare_by(egress, key, header);
        }
    }

    /// Sends as [`send_bare`](Self::send_bare) does, in reply to a segment in `frame`. A replica does not
    /// have the neighbours that nobody has asked for there: then the reply goes back to the station that
    /// sent the frame.
    pub(crate) fn send_bare_reply(&mut self, key: FlowKey, header: &Header, frame: &D::Frame) {
        if !self.interface.is_replica() {
            return self.send_bare(key, header);
        }
        if let Some(egress) = self.neighbourhood.egress_of_reply(&key, frame) {
            self.send_bare_by(egress, key, header);
        }
    }

    /// Sends as [`send_bare`](Self::send_bare) does, by `egress`.
    pub(crate) fn send_bare_by(&mut self, egress: Egress, key: FlowKey, header: &Header) {
        let Some(mut frame) = self.interface.empty_frame() else { return };
        let mut template = self.new_template(&key, egress);
        if frame.append(template.octets_with(header)).is_some() {
            template.write_header(&mut frame, header, 0, 0, self.parser.rdma_option_kind);
            match egress {
                Egress::Wire(_) => self.interface.queue_reply(frame),
                Egress::Loopback => self.interface.loop_back(frame),
            }
        }
    }
}
