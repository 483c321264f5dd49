//! ICMP errors about segments that the host sent: their content, if it is plausible.

use std::net::IpAddr;

use super::inbound::IcmpError;
use super::path_mtu::plateau_below;
use crate::drops::DropCause;
use crate::limits;
use crate::wire::icmp;
use crate::wire::quoted::Segment;

/// The kind of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpErrorKind {
    /// The packet is too large for a link on its path.
    PacketTooBig {
        /// The largest packet that the link carries, in octets; 0 from an old router, which does not say.
        mtu_octets: u16,
    },
    /// The destination has nobody at the port: it refuses the segment (RFC 1122 §4.2.3.9), as a host with a
    /// TCP does with a RST. This ends an attempt to open a connection. Once the peer has answered, it is a
    /// passing failure or a forgery (RFC 5927 §5.2).
    Refused,
    /// The destination will never accept the segment, because it has no TCP. This is handled as
    /// [`Refused`](Self::Refused).
    Hard,
    /// The condition may pass.
    Soft,
}

impl IcmpErrorKind {
    /// Returns the kind of a Destination Unreachable of IPv4 (RFC 792, RFC 1122 §4.2.3.9).
    pub(crate) const fn of_icmp(code: u8, next_hop_mtu: u16) -> Self {
        match code {
            icmp::FRAGMENTATION_NEEDED => Self::PacketTooBig { mtu_octets: next_hop_mtu },
            // Protocol.
            2 => Self::Hard,
            // Port.
            3 => Self::Refused,
            _ => Self::Soft,
        }
    }

    /// Returns the kind of a Destination Unreachable of IPv6 (RFC 4443 §3.1).
    pub(crate) const fn of_icmpv6(code: u8) -> Self {
        match code {
            // Port.
            4 => Self::Refused,
            _ => Self::Soft,
        }
    }

    /// Returns the error about `segment`, with an MTU that can be true.
    fn about(self, segment: Segment) -> Result<IcmpError, DropCause> {
        let kind = match self {
            Self::PacketTooBig { mtu_octets } => {
                Self::PacketTooBig { mtu_octets: plausible_mtu(&segment, mtu_octets)? }
            }
            Self::Refused | Self::Hard | Self::Soft => self,
        };
        Ok(IcmpError { segment, kind })
    }
}

/// Checks an MTU: that of a path lies between the least that exists and the length of the packet that did not
/// fit (RFC 5927 §7). Returns the next plateau below that length for a router that does not state its MTU.
fn plausible_mtu(segment: &Segment, mtu_octets: u16) -> Result<u16, DropCause> {
    let remote = segment.destination.ip();
    let mtu_octets = match mtu_octets {
        0 if remote.is_ipv4() => plateau_below(segment.packet_octets).ok_or(DropCause::IcmpRefused)?,
        mtu_octets => mtu_octets,
    };
    let plausible = mtu_octets >= least_mtu(remote) && u32::from(mtu_octets) < segment.packet_octets;
    if plausible { Ok(mtu_octets) } else { Err(DropCause::IcmpRefused) }
}

/// Returns the least MTU that a path to `remote` can have.
const fn least_mtu(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { limits::PATH_MTU_MIN_IPV4_BYTES } else { limits::PATH_MTU_MIN_IPV6_BYTES }
}

/// Returns the error in an ICMP message that is no echo request.
pub(super) fn of_icmp(message: &icmp::Message<'_>) -> Result<IcmpError, DropCause> {
    let icmp::Message::DestinationUnreachable { code, next_hop_mtu, original } = *message else {
        return Err(DropCause::OtherProtocol);
    };
    let segment = Segment::in_ipv4(original).ok_or(DropCause::IcmpRefused)?;
    IcmpErrorKind::of_icmp(code, next_hop_mtu).about(segment)
}

/// Returns the error in an ICMPv6 Packet Too Big message that quotes `original`.
pub(super) fn packet_too_big(original: &[u8], mtu: u32) -> Result<IcmpError, DropCause> {
    let segment = Segment::in_ipv6(original).ok_or(DropCause::IcmpRefused)?;
    let mtu_octets = u16::try_from(mtu).map_err(|_| DropCause::IcmpRefused)?;
    IcmpErrorKind::PacketTooBig { mtu_octets }.about(segment)
}

/// Returns the error in an ICMPv6 Destination Unreachable message that quotes `original`.
pub(super) fn unreachable_v6(original: &[u8], code: u8) -> Result<IcmpError, DropCause> {
    let segment = Segment::in_ipv6(original).ok_or(DropCause::IcmpRefused)?;
    IcmpErrorKind::of_icmpv6(code).about(segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tcp::SeqNumber;

    #[test]
    fn errors_that_may_pass_are_soft() {
        for code in [0, 1, 5, 13] {
            assert_eq!(IcmpErrorKind::of_icmp(code, 0), IcmpErrorKind::Soft);
        }
        assert_eq!(IcmpErrorKind::of_icmp(2, 0), IcmpErrorKind::Hard);
        assert_eq!(IcmpErrorKind::of_icmp(3, 0), IcmpErrorKind::Refused);
        for code in 0..=7 {
            let expected = if code == 4 { IcmpErrorKind::Refused } else { IcmpErrorKind::Soft };
            assert_eq!(IcmpErrorKind::of_icmpv6(code), expected);
        }
        assert_eq!(IcmpErrorKind::of_icmp(4, 1400), IcmpErrorKind::PacketTooBig { mtu_octets: 1400 });
    }

    /// RFC 5927 §7.
    #[test]
    fn an_mtu_lies_between_the_least_and_the_packet() {
        let segment = |remote: &str, packet_octets| Segment {
            source: remote.parse().expect("an address"),
            destination: remote.parse().expect("an address"),
            seq: SeqNumber(0),
            packet_octets,
        };
        let (v4, v6) = (segment("198.18.0.2:1", 1500), segment("[fd00::2]:1", 1500));
        for (segment, mtu_octets, expected) in [
            (v4, 1400, Some(1400)),
            (v4, 1500, None),
            (v4, limits::PATH_MTU_MIN_IPV4_BYTES, Some(limits::PATH_MTU_MIN_IPV4_BYTES)),
            (v4, limits::PATH_MTU_MIN_IPV4_BYTES - 1, None),
            (v4, 0, Some(1492)),
            (v6, 1499, Some(1499)),
            (v6, limits::PATH_MTU_MIN_IPV6_BYTES - 1, None),
            (v6, 0, None),
        ] {
            assert_eq!(plausible_mtu(&segment, mtu_octets).ok(), expected, "{mtu_octets} for {segment:?}");
        }
    }
}
