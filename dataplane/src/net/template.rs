//! The headers of segments out: Ethernet, perhaps with a VLAN tag, IPv4 or IPv6, and TCP with its timestamps.
//!
//! The host keeps a template for each path, a pair of addresses: an image of headers, and what was summed of
//! them. A connection that is served gets a copy of it, with the ports of its connection ([`super::output`]).
//! The headers of a segment are a copy of the image with few fields patched. All segments are sent so,
//! whether they have data or not, by the device or to the host itself. Only options other than timestamps are
//! written for each segment, after the same copy.
//!
//! A template is valid as long as the paths of the host stay as they are: each change of an own address, or
//! of the hardware address of a neighbour, begins a new generation. Once in a [tick](TICK_NS_LOG2) it is
//! renewed in any case, so that the neighbour cache knows which neighbours are in use, and once in a tick the
//! cache learns that segments arrive.
//!
//! Example: 66 octets of headers over IPv4, with timestamps. For the next segment of the same length the
//! fields at offsets 38 (sequence number), 42 (acknowledgement), 47 (flags), 48 (window), 58 and 62
//! (timestamps) are patched. A segment of another length patches offsets 16 (length), 24 and 50 (checksums),
//! too.

use std::net::{IpAddr, Ipv4Addr};

use super::addresses::last_octet;
use super::flow::FlowKey;
use crate::device::{ChecksumRequest, Frame};
use crate::time::Instant;
use crate::wire::checksum::{self, Sum};
use crate::wire::tcp::{self, Flags, Header, SegmentHeader, SeqNumber};
use crate::wire::tcp_rdma::RdmaOption;
use crate::wire::{ethernet, ipv4, ipv6};

/// Octets of the longest headers of an image.
const LONGEST: usize =
    ethernet::Header::LEN + ethernet::Tag::LEN + ipv6::Header::LEN + Header::WITH_TIMESTAMPS_LEN;

/// Octets of the shortest.
const SHORTEST: usize = ethernet::Header::LEN + ipv4::Header::LEN + Header::MIN_LEN;

/// Half of an image. Two copies of this length, of the first octets and of the last, make any headers.
const HALF: usize = 48;
const _: () = assert!(HALF <= SHORTEST && LONGEST <= 2 * HALF);

/// The binary logarithm of a tick in nanoseconds: it is 1.07 seconds.
const TICK_NS_LOG2: u32 = 30;

/// No tick of the next hundred years.
pub(super) const NEVER: u32 = u32::MAX;

/// Returns the tick that `now` is in.
#[inline]
pub(super) const fn tick(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_NS_LOG2) as u32
}

/// Who computes the TCP checksum of segments out.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChecksumBy {
    /// Nobody: no other station gets the octets, and the host does not verify the checksums of frames to
    /// itself.
    Nobody,
    /// The device.
    Device(ChecksumRequest),
    /// The host. All of the segment lies in the first piece of the frame: payload goes by reference only with
    /// the device's checksums.
    Host,
}

/// The headers of segments between two ends.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct HeaderTemplate {
    /// The generation of the host's paths that it is of; 0 of none.
    pub(super) generation: u32,
    /// The tick in which it was renewed.
    pub(super) renewed: u32,
    /// Octets of payload that the lengths and checksums of the image are for.
    pub(super) payload_octets: u32,
    /// The sum of the pseudo-header without the length, and of the IPv4 header without length and ECN.
    pub(super) pseudo_header: u16,
    pub(super) ip_header: u16,
    /// Octets of the image, and those before the IP header and before the TCP header.
    pub(super) octets: u8,
    pub(super) network_at: u8,
    pub(super) tcp_at: u8,
    /// The ECN bits of the image.
    pub(super) ecn: u8,
    pub(super) is_ipv4: bool,
    /// The host computes the checksum of IPv4.
    pub(super) computes_ip: bool,
    pub(super) by: ChecksumBy,
    /// The headers, without PSH.
    pub(super) image: [u8; 2 * HALF],
}

// Few instructions copy it.
const _: () = assert!(size_of::<HeaderTemplate>() <= 128);

/// The path between an address of the host and another, as it was used last.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    /// The tick in which segments were last known to arrive.
    pub(super) confirmed: u32,
    pub(super) template: HeaderTemplate,
}

/// The paths that a host keeps: a path's place is that of its remote address, and another one that needs the
/// place has it then.
pub(super) const PATHS: usize = 64;

#[inline]
pub(super) const fn place(remote: IpAddr) -> usize {
    last_octet(remote) as usize % PATHS
}

/// Names one of the [`Paths`] of a host, as long as no other path is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathId(pub(super) usize);

/// The paths that a host used last.
#[derive(Debug)]
pub(super) struct Paths(pub(super) Box<[Path; PATHS]>);

impl Paths {
    /// Returns no paths.
    pub(super) fn new() -> Self {
        let none = |_| Path {
            local: Ipv4Addr::UNSPECIFIED.into(),
            remote: Ipv4Addr::UNSPECIFIED.into(),
            confirmed: NEVER,
            template: HeaderTemplate::invalid(),
        };
        Self(Box::new(core::array::from_fn(none)))
    }
}

impl HeaderTemplate {
    /// Returns a template that is not valid.
    pub(super) const fn invalid() -> Self {
        Self {
            generation: 0,
            renewed: 0,
            payload_octets: 0,
            pseudo_header: 0,
            ip_header: 0,
            octets: 0,
            network_at: 0,
            tcp_at: 0,
            ecn: 0,
            is_ipv4: true,
            computes_ip: false,
            by: ChecksumBy::Nobody,
            image: [0; 2 * HALF],
        }
    }

    /// Makes it the template of segments of `key`, which has its addresses, with this flow label over IPv6.
    #[inline]
    pub(super) fn set_flow(&mut self, key: &FlowKey, flow_label: u32) {
        if let Some(segment) = self.image.get_mut(usize::from(self.tcp_at)..) {
            tcp::set_ports(segment, key.local_port, key.remote_port);
        }
        if !self.is_ipv4
            && let Some(ip) = self.image.get_mut(usize::from(self.network_at)..)
        {
            ipv6::set_flow_label(ip, flow_label);
        }
    }

    /// Returns the IP header of the segments and what follows it.
    pub(super) fn packet(&self) -> &[u8] {
        self.image.get(usize::from(self.network_at)..).unwrap_or_default()
    }

    /// Returns true if the segments go to the host itself.
    #[inline]
    pub(crate) const fn is_loopback(&self) -> bool {
        matches!(self.by, ChecksumBy::Nobody)
    }

    /// Returns the octets of all headers of a segment.
    #[inline]
    pub(crate) fn octets_with(&self, header: &Header) -> usize {
        usize::from(self.tcp_at) + header.header_len()
    }

    /// Returns the octets of the headers written last, which had no options but timestamps.
    #[inline]
    pub(crate) fn octets(&self) -> usize {
        usize::from(self.octets)
    }

    /// Makes it the template of segments with the fields of `header`, with `payload_octets` of payload, and
    /// with the two ECN bits `ecn` in the IP header.
    #[inline]
    pub(crate) fn set(&mut self, header: &SegmentHeader, payload_octets: usize, ecn: u8) {
        let Some(segment) = self.image.get_mut(usize::from(self.tcp_at)..) else { return };
        let octets = self.tcp_at + header.emit(segment) as u8;
        if (octets, ecn) != (self.octets, self.ecn) || payload_octets != self.payload_octets as usize {
            (self.octets, self.ecn) = (octets, ecn);
            self.resize(payload_octets);
        }
    }

    /// Makes it the template of segments with `payload_octets` of payload.
    #[inline]
    pub(crate) fn fit(&mut self, payload_octets: usize) {
        if payload_octets != self.payload_octets as usize {
            self.resize(payload_octets);
        }
    }

    // Not inlined: most segments of a burst are equally long.
    #[inline(never)]
    fn resize(&mut self, payload_octets: usize) {
        self.payload_octets = payload_octets as u32;
        let (network_at, tcp_at) = (usize::from(self.network_at), usize::from(self.tcp_at));
        let segment_octets = (usize::from(self.octets) - tcp_at + payload_octets) as u16;
        let Some((before, segment)) = self.image.split_at_mut_checked(tcp_at) else { return };
        let Some(ip) = before.get_mut(network_at..) else { return };
        if self.is_ipv4 {
            let total_len = ipv4::Header::LEN as u16 + segment_octets;
            let sum = checksum::add(checksum::add(self.ip_header, total_len), self.ecn.into());
            ipv4::patch(ip, total_len, self.ecn, self.computes_ip.then_some(!sum));
        } else {
            ipv6::patch(ip, segment_octets, self.ecn);
        }
        let field = match self.by {
            ChecksumBy::Host => 0,
            // A device completes the sum of the pseudo-header over the segment.
            ChecksumBy::Device(_) | ChecksumBy::Nobody => checksum::add(self.pseudo_header, segment_octets),
        };
        tcp::set_checksum(segment, field);
    }

    /// Writes the headers of the next segment, which begins at `seq`, of the length that the template
    /// [fits](Self::fit), to the front of `frame`. The caller [finishes](Self::finish) the frame.
    #[inline]
    pub(crate) fn begin(&self, frame: &mut [u8], seq: SeqNumber, push: bool) {
        self.copy_to(frame, usize::from(self.octets));
        if let Some(segment) = frame.get_mut(usize::from(self.tcp_at)..) {
            tcp::patch(segment, seq, if push { Flags::PSH } else { Flags::empty() });
        }
    }

    /// Copies the first `octets` octets of the image to the front of `frame`.
    // A copy of a length that the compiler knows costs few instructions.
    #[inline]
    fn copy_to(&self, frame: &mut [u8], octets: usize) {
        let Some((to, from)) = frame.get_mut(..octets).zip(self.image.get(..octets)) else { return };
        if let Some((to, from)) = to.first_chunk_mut::<HALF>().zip(from.first_chunk::<HALF>()) {
            *to = *from;
        }
        if let Some((to, from)) = to.last_chunk_mut::<HALF>().zip(from.last_chunk::<HALF>()) {
            *to = *from;
        }
    }

    /// Writes the headers of the next segment as [`begin`](Self::begin) does, of any length, before its
    /// payload, which is in the frame, and finishes it.
    #[inline]
    pub(crate) fn write<F: Frame>(
        &mut self,
        frame: &mut F,
        seq: SeqNumber,
        push: bool,
        payload_octets: usize,
    ) {
        self.fit(payload_octets);
        self.begin(frame.first_mut(), seq, push);
        self.finish(frame);
    }

    /// Writes the headers of the next segment as [`write`](Self::write) does, with `option` of the kind
    /// `kind` after the others.
    #[inline]
    pub(crate) fn write_with_option<F: Frame>(
        &mut self,
        frame: &mut F,
        seq: SeqNumber,
        push: bool,
        payload_octets: usize,
        option: &RdmaOption,
        kind: u8,
    ) {
        // The image does not have it: it is counted as payload.
        self.fit(option.len() + payload_octets);
        let room = frame.first_mut();
        self.begin(room, seq, push);
        if let Some(segment) = room.get_mut(usize::from(self.tcp_at)..) {
            let tcp_octets = usize::from(self.octets - self.tcp_at);
            tcp::append_option(segment, tcp_octets, option, kind);
        }
        self.finish_with(frame, self.octets - self.tcp_at + option.len() as u8);
    }

    /// Writes the headers of a super-frame of `payload_octets`, which is to be sent in segments of
    /// `segment_octets`, as [`write`](Self::write) does for a segment.
    pub(crate) fn write_super_frame<F: Frame>(
        &mut self,
        frame: &mut F,
        seq: SeqNumber,
        push: bool,
        payload_octets: usize,
        segment_octets: u16,
    ) {
        self.fit(payload_octets);
        let room = frame.first_mut();
        self.begin(room, seq, push);
        if let Some(segment) = room.get_mut(usize::from(self.tcp_at)..) {
            // Each segment has another length, which the device adds to the sum of the pseudo-header.
            tcp::set_checksum(segment, self.pseudo_header);
        }
        if let ChecksumBy::Device(request) = self.by {
            let request = ChecksumRequest { l4_octets: self.octets - self.tcp_at, ..request };
            frame.request_segmentation(request, segment_octets);
        }
    }

    /// Has the checksum of the segment in `frame`, headers and payload, filled in.
    #[inline]
    pub(crate) fn finish<F: Frame>(&self, frame: &mut F) {
        self.finish_with(frame, self.octets - self.tcp_at);
    }

    /// Finishes as [`finish`](Self::finish) does, after a TCP header of `tcp_octets`.
    #[inline]
    fn finish_with<F: Frame>(&self, frame: &mut F, tcp_octets: u8) {
        match self.by {
            ChecksumBy::Nobody => {}
            ChecksumBy::Device(request) => {
                frame.request_checksums(ChecksumRequest { l4_octets: tcp_octets, ..request });
            }
            ChecksumBy::Host => {
                if let Some(segment) = frame.first_mut().get_mut(usize::from(self.tcp_at)..) {
                    self.compute(segment);
                }
            }
        }
    }

    // Not inlined: most devices compute it.
    #[inline(never)]
    fn compute(&self, segment: &mut [u8]) {
        let mut sum = Sum::from_folded(checksum::add(self.pseudo_header, segment.len() as u16));
        sum.add(segment);
        tcp::set_checksum(segment, sum.finish());
    }

    /// Writes the headers of a segment with `header` before its payload, which is already in the frame. The
    /// ports are those of the template, whatever `header` has; `ecn` are the two ECN bits of the IP header.
    /// An RDMA option has the kind `rdma_option_kind`.
    pub(crate) fn write_header<F: Frame>(
        &mut self,
        frame: &mut F,
        header: &Header,
        payload_octets: usize,
        ecn: u8,
        rdma_option_kind: u8,
    ) {
        if let Some(usual) = SegmentHeader::of(header) {
            self.set(&usual, payload_octets, ecn);
            self.begin(frame.first_mut(), header.seq, header.flags.contains(Flags::PSH));
            return self.finish(frame);
        }
        let (tcp_at, tcp_octets) = (usize::from(self.tcp_at), header.header_len());
        // The image then has no options: they are counted as payload.
        (self.octets, self.ecn) = (self.tcp_at + Header::MIN_LEN as u8, ecn);
        self.resize(tcp_octets - Header::MIN_LEN + payload_octets);
        let room = frame.first_mut();
        self.copy_to(room, self.octets());
        if let Some((segment, image)) = room.get_mut(tcp_at..).zip(self.image.get(tcp_at..)) {
            header.emit_with(segment, rdma_option_kind);
            tcp::copy_ports_and_checksum(image, segment);
        }
        self.finish_with(frame, tcp_octets as u8);
    }
}
