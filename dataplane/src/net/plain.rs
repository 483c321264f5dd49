//! Frames with a TCP segment in its usual form, recognized in one pass.

use std::net::IpAddr;

use super::Host;
use crate::device::{ChecksumStatus, Device, Frame, ReceivedChecksums};
use crate::wire::checksum;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::plain_segment::PlainSegment;
use crate::wire::tcp::SeqNumber;
use crate::wire::tuple::Tuple;

impl<D: Device> Host<D> {
    /// Recognizes a frame to this host's hardware address with a TCP segment in its
    /// [usual form](PlainSegment), which lies whole in the first piece, and whose checksums hold. Returns
    /// `None` for any other frame, which [`receive`](Self::receive) takes apart. The addresses are not
    /// checked: they are those of a connection, or [`has_plain_addresses`](Self::has_plain_addresses).
    #[inline]
    pub fn recognize(&self, frame: &D::Frame) -> Option<PlainSegment> {
        let octets = frame.piece(0)?;
        let link: &[u8; LINK] = octets.first_chunk()?;
        if link.first_chunk() != Some(&self.mac.0) || self.vlan.is_some() {
            return None;
        }
        let segment = match *link.last_chunk()? {
            IPV4 => PlainSegment::parse_ipv4(octets, LINK)?,
            IPV6 => PlainSegment::parse_ipv6(octets, LINK)?,
            _ => return None,
        };
        checksums_hold(frame.checksums(), &segment.tuple, segment.end(), octets).then_some(segment)
    }

    /// Returns true if a segment may come from and to these addresses, as [`receive`](Self::receive) checks
    /// it. They are checked once for a connection: of the host's addresses only a tentative one can become
    /// its own or be given up (RFC 4862 §5.4), and this returns false for those.
    pub fn has_plain_addresses(&self, tuple: &Tuple) -> bool {
        let source = tuple.source();
        let tentative = matches!(source, IpAddr::V6(source) if self.own.is_tentative(source));
        self.own.contains(tuple.destination()) && !tentative && self.check_source(source).is_ok()
    }
}

/// Returns the octets of payload of the segment in `frame`, if its headers are those of `first`, which
/// [`recognize`](Host::recognize) has returned for the frame `leader`, but for what differs in the segments
/// of a train; it begins at `seq`, `fits` its payload, and its checksums hold. `recognize` then returns it,
/// too.
#[inline]
pub fn follower<F: Frame>(
    first: &PlainSegment,
    leader: &F,
    frame: &F,
    seq: SeqNumber,
    fits: impl Fn(usize) -> bool,
) -> Option<usize> {
    let (link, first_packet) = leader.piece(0)?.split_first_chunk::<LINK>()?;
    let octets = frame.piece(0)?;
    let packet = octets.strip_prefix(link)?;
    let payload_octets = first.follower(first_packet, packet, seq).filter(|octets| fits(*octets))?;
    let end = first.payload_offset + payload_octets;
    checksums_hold(frame.checksums(), &first.tuple, end, octets).then_some(payload_octets)
}

/// Octets of the Ethernet header.
const LINK: usize = ethernet::Header::LEN;

/// The EtherTypes of IP, as a frame has them.
const IPV4: [u8; 2] = EtherType::IPV4.0.to_be_bytes();
const IPV6: [u8; 2] = EtherType::IPV6.0.to_be_bytes();

/// Returns true if the checksums hold of the segment between `tuple` that ends at `end` in `frame`: the
/// device says so, or it does not know and they are correct.
#[inline]
fn checksums_hold(device: ReceivedChecksums, tuple: &Tuple, end: usize, frame: &[u8]) -> bool {
    // The header of IPv6 has no checksum.
    let good_ip = device.ip == ChecksumStatus::Good || matches!(tuple, Tuple::V6(_));
    (good_ip || ip_checksum_holds(device.ip, frame))
        && (device.tcp == ChecksumStatus::Good || tcp_checksum_holds(device.tcp, tuple, end, frame))
}

/// Returns true if the device has not found the checksum of the IPv4 header in `frame` wrong, and it is
/// correct.
#[inline(never)]
fn ip_checksum_holds(device: ChecksumStatus, frame: &[u8]) -> bool {
    let header = frame.get(LINK..LINK + ipv4::Header::LEN);
    device == ChecksumStatus::Unknown && header.is_some_and(ipv4::verify_checksum)
}

/// Returns true if the device has not found the TCP checksum of the segment in `frame` wrong, which ends at
/// `end`, and it is correct.
#[inline(never)]
fn tcp_checksum_holds(device: ChecksumStatus, tuple: &Tuple, end: usize, frame: &[u8]) -> bool {
    let transport = LINK + tuple.network_octets();
    let Some(octets) = frame.get(transport..end) else { return false };
    let length = octets.len() as u16;
    let protocol = Protocol::TCP.0;
    let mut sum = match tuple {
        Tuple::V4(tuple) => {
            checksum::ipv4_pseudo_header(tuple.source(), tuple.destination(), protocol, length)
        }
        Tuple::V6(tuple) => {
            checksum::ipv6_pseudo_header(tuple.source(), tuple.destination(), protocol, length.into())
        }
    };
    device == ChecksumStatus::Unknown && {
        #[cfg(feature = "testing")]
        super::testing::note_sum();
        sum.add(octets);
        sum.finish() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use arrayvec::ArrayVec;

    use super::*;
    use crate::device::sim::{self, EndConfig, SimDevice};
    use crate::net::addresses::{Addresses, Cidr, Routes};
    use crate::net::flow::FlowKey;
    use crate::net::headers::{Egress, FlowPath};
    use crate::net::host::Config;
    use crate::net::inbound::Inbound;
    use crate::secret::Secret;
    use crate::time::Instant;
    use crate::wire::tcp::{Flags, Header, SeqNumber, Timestamps};
    use crate::wire::tcp_rdma::DEFAULT_KIND;
    use crate::wire::tuple::Tuple6;

    const NOW: Instant = Instant::from_nanos(1000);
    /// The second IPv6 address of each host, to which nothing is sent.
    const OTHER: u16 = 77;
    const PAYLOAD: &[u8] = b"octets";

    fn v6(host: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host)
    }

    fn host(device: SimDevice, number: u8, duplicate_address_detection: bool) -> Host<SimDevice> {
        let mut addresses: Addresses =
            [number.into(), OTHER].map(|host| Cidr::new(v6(host).into(), 64)).into_iter().collect();
        addresses.push(Cidr::new([198, 18, 0, number].into(), 24));
        let config = Config {
            addresses,
            routes: Routes::new(),
            neighbours: ArrayVec::new(),
            duplicate_address_detection,
            vlan: None,
            rdma_option_kind: DEFAULT_KIND,
        };
        Host::new(device, config, Secret::new([1, 2]))
    }

    fn keys() -> [FlowKey; 2] {
        let key = FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: [198, 18, 0, 2].into(),
            remote_port: 4791,
            local_port: 7471,
        };
        [key, FlowKey { local: v6(1).into(), remote: v6(2).into(), ..key }]
    }

    /// The octets of a frame with a segment of `key`, with checksums.
    fn segment(sender: &mut Host<SimDevice>, key: FlowKey, receiver: &SimDevice) -> Vec<u8> {
        let mut header =
            Header { flags: Flags::ACK | Flags::PSH, seq: SeqNumber(7), window: 9, ..Header::default() };
        header.options.timestamps = Some(Timestamps { value: 5, echo: 6 });
        let path = FlowPath { key, flow_label: 0x1_2345, egress: Egress::Wire(receiver.mac()) };
        let octets = sender.headers_octets(key, &header);
        let mut frame = sender.empty_frame().expect("a frame");
        frame.append(octets + PAYLOAD.len()).expect("room")[octets..].copy_from_slice(PAYLOAD);
        sender.write_headers(&mut frame, &path, &header, PAYLOAD.len(), 0b10);
        frame.piece(0).expect("octets").to_vec()
    }

    /// A segment is recognized over both versions of IP. Of segments with one octet damaged those that are
    /// recognized are those that the general path takes, with the same fields.
    #[test]
    fn what_is_recognized_is_received_as_the_same_segment() {
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (mut sender, mut receiver) = (host(near, 1, false), host(far, 2, false));
        assert!(receiver.detect_duplicates(NOW).is_some());
        for key in keys() {
            let octets = segment(&mut sender, key, receiver.device());
            // One beyond the end: nothing is damaged.
            for damaged in 0..=octets.len() {
                let frame = |host: &mut Host<SimDevice>| {
                    let mut frame = host.empty_frame().expect("a frame");
                    let room = frame.append(octets.len()).expect("room");
                    room.copy_from_slice(&octets);
                    if let Some(octet) = room.get_mut(damaged) {
                        *octet ^= 0x41;
                    }
                    frame
                };
                let mut copies = [0, 1].map(|_| frame(&mut receiver)).into_iter();
                let (first, second) = (copies.next().unwrap(), copies.next().unwrap());
                let recognized =
                    receiver.recognize(&first).filter(|segment| receiver.has_plain_addresses(&segment.tuple));
                assert!(recognized.is_some() || damaged < octets.len(), "{key:?}");
                let Some(plain) = recognized else { continue };
                let Ok(Inbound::Segment(received)) = receiver.receive(NOW, second) else {
                    panic!("octet {damaged} of {key:?}: no segment by the general path");
                };
                assert_eq!(FlowKey::of_received(&plain.tuple), received.key, "octet {damaged}");
                assert_eq!(plain.header(), received.header, "octet {damaged}");
                let place = (plain.payload_offset, plain.payload_octets, plain.ecn);
                assert_eq!(place, (received.payload_offset, received.payload_octets, received.ecn));
            }
        }
    }

    /// A tentative address is not plain, neither as destination nor as source: it may become the host's own,
    /// or never.
    #[test]
    fn tentative_addresses_are_not_plain() {
        let tuple =
            |source: u16, destination: u16| Tuple::V6(Tuple6::new((v6(source), 1), (v6(destination), 2)));
        let (_near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let mut host = host(far, 2, true);
        let plain = |host: &Host<SimDevice>| {
            assert!(
                !host.has_plain_addresses(&tuple(2, OTHER)) && !host.has_plain_addresses(&tuple(OTHER, 2))
            );
            [2, OTHER].map(|own| host.has_plain_addresses(&tuple(1, own)))
        };
        assert!(host.detect_duplicates(NOW).is_some());
        let mut seen = vec![plain(&host)];
        while host.own.next_due() != Instant::NEVER {
            host.detect_duplicates(host.own.next_due());
            seen.push(plain(&host));
        }
        seen.dedup();
        assert_eq!(seen.len(), 3, "one address after the other: {seen:?}");
        assert_eq!((seen[0], seen[2]), ([false; 2], [true; 2]));
    }
}
