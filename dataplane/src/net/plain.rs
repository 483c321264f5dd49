//! Frames with a TCP segment in its usual form, recognized in one pass.

use super::Host;
use crate::device::{ChecksumStatus, Device, Frame, ReceivedChecksums};
use crate::wire::checksum;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::plain_segment::{PlainSegment, Tuple4};

impl<D: Device> Host<D> {
    /// Recognizes a frame to this host's hardware address with a TCP segment in its
    /// [usual form](PlainSegment), which lies whole in the first piece, and whose checksums hold. Returns
    /// `None` for any other frame, which [`receive`](Self::receive) takes apart. The addresses are not
    /// checked: they are those of a connection, or [`has_plain_addresses`](Self::has_plain_addresses).
    #[inline]
    pub fn recognize(&self, frame: &D::Frame) -> Option<PlainSegment> {
        let octets = frame.piece(0)?;
        let link: &[u8; LINK] = octets.first_chunk()?;
        if link.first_chunk() != Some(&self.mac.0) || link.last_chunk() != Some(&IPV4) || self.vlan.is_some()
        {
            return None;
        }
        let segment = PlainSegment::parse(octets, LINK)?;
        let checksums = frame.checksums();
        let good = checksums.ip == ChecksumStatus::Good && checksums.tcp == ChecksumStatus::Good;
        (good || checksums_hold(checksums, &segment, octets)).then_some(segment)
    }

    /// Returns true if a segment may come from and to these addresses, as [`receive`](Self::receive) checks
    /// it. They are checked once for a connection: the IPv4 addresses of a host do not change.
    pub fn has_plain_addresses(&self, tuple: &Tuple4) -> bool {
        self.own.contains(tuple.destination().into()) && self.check_source(tuple.source().into()).is_ok()
    }
}

/// Octets of the Ethernet header.
const LINK: usize = ethernet::Header::LEN;

/// The EtherType of IPv4, as a frame has it.
const IPV4: [u8; 2] = EtherType::IPV4.0.to_be_bytes();

/// Returns true if the checksums of the segment in `frame` that the device has not verified are correct, and
/// it has found none wrong.
#[inline(never)]
fn checksums_hold(device: ReceivedChecksums, segment: &PlainSegment, frame: &[u8]) -> bool {
    let transport = LINK + PlainSegment::IP_LEN;
    let (Some(ip), Some(octets)) = (frame.get(LINK..transport), frame.get(transport..segment.end())) else {
        return false;
    };
    let holds = |status, verify: &dyn Fn() -> bool| match status {
        ChecksumStatus::Good => true,
        ChecksumStatus::Unknown => verify(),
        ChecksumStatus::Bad => false,
    };
    let (source, destination) = (segment.tuple.source(), segment.tuple.destination());
    holds(device.ip, &|| ipv4::verify_checksum(ip))
        && holds(device.tcp, &|| {
            let length = octets.len() as u16;
            let mut sum = checksum::ipv4_pseudo_header(source, destination, Protocol::TCP.0, length);
            sum.add(octets);
            sum.finish() == 0
        })
}
