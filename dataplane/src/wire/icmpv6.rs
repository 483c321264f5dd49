//! The Internet Control Message Protocol for IPv6 (RFC 4443) and Neighbor Discovery (RFC 4861): what a
//! host with configured addresses and routes needs of them. Router Advertisements are not read.

use core::net::Ipv6Addr;

use super::ethernet::MacAddress;
use super::ipv4::Protocol;
use super::{Malformed, Reader, Writer, checksum};

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
const NONCE: u8 = 14;

/// Octets before the payload of every message.
pub const HEADER_LEN: usize = 8;

/// Hop limit of Neighbor Discovery packets, sent and received: none with it has passed a router (RFC 4861
/// §3.1).
pub const DISCOVERY_HOP_LIMIT: u8 = 255;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Requests an [`EchoReply`](Self::EchoReply) with the same contents.
    EchoRequest {
        /// Names the asker.
        id: u16,
        /// Names the question.
        seq: u16,
        /// The data that the reply returns.
        payload: &'a [u8],
    },
    /// Answers an [`EchoRequest`](Self::EchoRequest).
    EchoReply {
        /// As in the request.
        id: u16,
        /// As in the request.
        seq: u16,
        /// As in the request.
        payload: &'a [u8],
    },
    /// A packet did not arrive (RFC 4443 §3.1).
    DestinationUnreachable {
        /// Why.
        code: u8,
        /// The start of the packet, as much of it as fits.
        original: &'a [u8],
    },
    /// A packet was larger than the next link carries (RFC 4443 §3.2). Anybody may have sent this: the MTU
    /// must be range checked.
    // Requirements: MPA-9.1-01
    PacketTooBig {
        /// The link's MTU, in octets.
        mtu: u32,
        /// The start of the packet, as much of it as fits.
        original: &'a [u8],
    },
    /// A Neighbor Solicitation (RFC 4861 §4.3).
    NeighborSolicitation(NeighborSolicitation),
    /// I have this address (RFC 4861 §4.4).
    NeighborAdvertisement(NeighborAdvertisement),
    /// Anything else.
    Other {
        /// The type.
        kind: u8,
        /// The code.
        code: u8,
    },
}

/// A Neighbor Solicitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborSolicitation {
    /// The address that is resolved.
    pub target: Ipv6Addr,
    /// The asker's hardware address.
    pub source_mac: Option<MacAddress>,
    /// A nonce that distinguishes a looped-back probe of this host from one of another host (RFC 7527 §4).
    pub nonce: Option<[u8; 6]>,
}

/// A Neighbor Advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborAdvertisement {
    /// The sender is a router.
    pub router: bool,
    /// It answers a solicitation of the receiver.
    pub solicited: bool,
    /// It replaces the receiver's entry.
    pub overriding: bool,
    /// The address that is advertised.
    pub target: Ipv6Addr,
    /// Its hardware address.
    pub target_mac: Option<MacAddress>,
}

impl<'a> Message<'a> {
    /// Parses a message that fills all of `octets`, and verifies its checksum for a packet from `source` to
    /// `destination`. The hop limit and what the addresses must be is left to the caller.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`], [`Malformed::Checksum`]; [`Malformed::Field`] for what RFC 4861 §7.1
    /// refuses: a multicast target, an option of length 0.
    pub fn parse(octets: &'a [u8], source: Ipv6Addr, destination: Ipv6Addr) -> Result<Self, Malformed> {
        let (header, payload) = octets.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        let mut sum =
            checksum::ipv6_pseudo_header(source, destination, Protocol::ICMPV6.0, octets.len() as u32);
        sum.add(octets);
        if sum.finish() != 0 {
            return Err(Malformed::Checksum);
        }
        let [kind, code, _, _, word @ ..] = *header;
        let (id, seq) = (u16::from_be_bytes([word[0], word[1]]), u16::from_be_bytes([word[2], word[3]]));
        Ok(match (kind, code) {
            (ECHO_REQUEST, 0) => Self::EchoRequest { id, seq, payload },
            (ECHO_REPLY, 0) => Self::EchoReply { id, seq, payload },
            (DESTINATION_UNREACHABLE, code) => Self::DestinationUnreachable { code, original: payload },
            // RFC 4443 §3.2: the code is ignored.
            (PACKET_TOO_BIG, _) => Self::PacketTooBig { mtu: u32::from_be_bytes(word), original: payload },
            (NEIGHBOR_SOLICITATION, 0) => Self::NeighborSolicitation(NeighborSolicitation::parse(payload)?),
            (NEIGHBOR_ADVERTISEMENT, 0) => {
                Self::NeighborAdvertisement(NeighborAdvertisement::parse(word[0], payload)?)
            }
            (kind, code) => Self::Other { kind, code },
        })
    }
}

/// The options of Neighbor Discovery that count here.
#[derive(Default)]
struct Options {
    source_mac: Option<MacAddress>,
    target_mac: Option<MacAddress>,
    nonce: Option<[u8; 6]>,
}

impl Options {
    /// RFC 4861 §4.6: type, length in units of eight octets, contents. Unknown ones are skipped.
    fn parse(mut octets: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        while let [kind, units, ..] = octets {
            if *units == 0 {
                return Err(Malformed::Field);
            }
            let (option, rest) =
                octets.split_at_checked(8 * usize::from(*units)).ok_or(Malformed::Truncated)?;
            let contents: Option<[u8; 6]> = option.get(2..).and_then(|contents| contents.try_into().ok());
            match *kind {
                SOURCE_LINK_LAYER_ADDRESS => options.source_mac = contents.map(MacAddress),
                TARGET_LINK_LAYER_ADDRESS => options.target_mac = contents.map(MacAddress),
                NONCE => options.nonce = contents,
                _ => {}
            }
            octets = rest;
        }
        if octets.is_empty() { Ok(options) } else { Err(Malformed::Truncated) }
    }
}

/// The target and the options after it.
fn target_and_options(payload: &[u8]) -> Result<(Ipv6Addr, Options), Malformed> {
    let mut rest = Reader(payload);
    let target = Ipv6Addr::from(rest.take::<16>().ok_or(Malformed::Truncated)?);
    if target.is_multicast() {
        return Err(Malformed::Field);
    }
    Ok((target, Options::parse(rest.0)?))
}

/// Writes kind, flags, target, and up to two options of eight octets. Returns the length of the message.
fn emit(kind: u8, flags: u8, target: Ipv6Addr, options: &[Option<(u8, [u8; 6])>], out: &mut [u8]) -> usize {
    let options = options.iter().flatten();
    let octets = HEADER_LEN + 16 + 8 * options.clone().count();
    debug_assert!(out.len() >= octets, "{} octets are no room for {octets}", out.len());
    let mut out = Writer(out);
    out.put([kind, 0, 0, 0, flags, 0, 0, 0]);
    out.put(target.octets());
    for (kind, contents) in options {
        out.put([*kind, 1]);
        out.put(*contents);
    }
    octets
}

impl NeighborSolicitation {
    /// Octets of the longest one emitted.
    pub const MAX_LEN: usize = HEADER_LEN + 16 + 8 + 8;

    fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let (target, Options { source_mac, nonce, .. }) = target_and_options(payload)?;
        Ok(Self { target, source_mac, nonce })
    }

    /// Writes the message, its checksum zero, to the front of `out`. Returns its length.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let source_mac = self.source_mac.map(|mac| (SOURCE_LINK_LAYER_ADDRESS, mac.0));
        let nonce = self.nonce.map(|nonce| (NONCE, nonce));
        emit(NEIGHBOR_SOLICITATION, 0, self.target, &[source_mac, nonce], out)
    }
}

impl NeighborAdvertisement {
    const ROUTER: u8 = 0x80;
    const SOLICITED: u8 = 0x40;
    const OVERRIDE: u8 = 0x20;

    /// Octets of the longest one emitted.
    pub const MAX_LEN: usize = HEADER_LEN + 16 + 8;

    fn parse(flags: u8, payload: &[u8]) -> Result<Self, Malformed> {
        let (target, Options { target_mac, .. }) = target_and_options(payload)?;
        Ok(Self {
            router: flags & Self::ROUTER != 0,
            solicited: flags & Self::SOLICITED != 0,
            overriding: flags & Self::OVERRIDE != 0,
            target,
            target_mac,
        })
    }

    /// Writes the message, its checksum zero, to the front of `out`. Returns its length.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.router, Self::ROUTER)
            | flag(self.solicited, Self::SOLICITED)
            | flag(self.overriding, Self::OVERRIDE);
        let target_mac = self.target_mac.map(|mac| (TARGET_LINK_LAYER_ADDRESS, mac.0));
        emit(NEIGHBOR_ADVERTISEMENT, flags, self.target, &[target_mac], out)
    }
}

/// Writes the checksum of the message that fills all of `message`, in a packet from `source` to
/// `destination`.
pub fn set_checksum(message: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr) {
    let octets = message.len() as u32;
    debug_assert!(message.len() >= HEADER_LEN, "{octets} octets are no message");
    if let Some([_, _, high, low, ..]) = message.first_chunk_mut::<HEADER_LEN>() {
        (*high, *low) = (0, 0);
        let mut sum = checksum::ipv6_pseudo_header(source, destination, Protocol::ICMPV6.0, octets);
        sum.add(message);
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// Turns an echo request into its reply, in place; `false`, and nothing changed, when `message` is none. The
/// checksum is adjusted, not recomputed: a damaged request makes a damaged reply. Exchanging the addresses
/// does not change it.
pub fn echo_request_into_reply(message: &mut [u8]) -> bool {
    match message.first_chunk_mut::<HEADER_LEN>() {
        Some([kind @ ECHO_REQUEST, 0, high, low, ..]) => {
            *kind = ECHO_REPLY;
            // RFC 1624 equation 3, with the first word going from 0x8000 to 0x8100.
            let adjusted =
                u32::from(!u16::from_be_bytes([*high, *low])) + u32::from(!0x8000u16) + u32::from(0x8100u16);
            let folded = (adjusted & 0xffff) + (adjusted >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            [*high, *low] = (!(folded as u16)).to_be_bytes();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ipv6;
    use super::*;

    macro_rules! frame {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/vectors/frames/", $name, ".bin"))
        };
    }

    const ONE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const TWO: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    fn parsed(frame: &[u8]) -> Result<Message<'_>, Malformed> {
        let header = ipv6::Header::parse(&frame[14..]).unwrap();
        Message::parse(&frame[54..], header.source, header.destination)
    }

    #[test]
    fn solicitations_as_linux_sends_them() {
        let solicitation = NeighborSolicitation {
            target: TWO,
            source_mac: Some(MacAddress([2, 0, 0, 0, 0, 1])),
            nonce: None,
        };
        let frame = frame!("solicitation");
        assert_eq!(parsed(frame), Ok(Message::NeighborSolicitation(solicitation)));
        let mut out = [0xff; NeighborSolicitation::MAX_LEN];
        let octets = solicitation.emit(&mut out);
        set_checksum(&mut out[..octets], ONE, ipv6::solicited_node(TWO));
        assert_eq!(out[..octets], frame[54..]);
    }

    #[test]
    fn a_probe_for_duplicates_as_linux_sends_it() {
        let nonce = Some([0x74, 0x07, 0xbf, 0xaf, 0xd6, 0xad]);
        let probe = NeighborSolicitation { target: TWO, source_mac: None, nonce };
        assert_eq!(parsed(frame!("dad_solicitation")), Ok(Message::NeighborSolicitation(probe)));
        let mut out = [0; NeighborSolicitation::MAX_LEN];
        let octets = probe.emit(&mut out);
        set_checksum(&mut out[..octets], Ipv6Addr::UNSPECIFIED, ipv6::solicited_node(TWO));
        assert_eq!(out[..octets], frame!("dad_solicitation")[54..]);
    }

    #[test]
    fn advertisements_as_linux_sends_them() {
        let advertisement = NeighborAdvertisement {
            router: true,
            solicited: true,
            overriding: true,
            target: TWO,
            target_mac: Some(MacAddress([2, 0, 0, 0, 0, 2])),
        };
        let frame = frame!("advertisement");
        assert_eq!(parsed(frame), Ok(Message::NeighborAdvertisement(advertisement)));
        let mut out = [0xff; NeighborAdvertisement::MAX_LEN];
        let octets = advertisement.emit(&mut out);
        set_checksum(&mut out[..octets], TWO, ONE);
        assert_eq!(out[..octets], frame[54..]);
    }

    #[test]
    fn a_reply_is_the_one_that_linux_gives() {
        let mut message = frame!("echo_request")[54..].to_vec();
        assert!(matches!(parsed(frame!("echo_request")), Ok(Message::EchoRequest { seq: 1, .. })));
        assert!(echo_request_into_reply(&mut message));
        assert_eq!(message, frame!("echo_reply")[54..]);
        assert!(!echo_request_into_reply(&mut message), "a reply is no request");
    }

    #[test]
    fn errors_as_linux_reports_them() {
        let Ok(Message::PacketTooBig { mtu, original }) = parsed(frame!("packet_too_big")) else { panic!() };
        assert_eq!((mtu, original.len()), (1400, 1280 - 48));
        assert_eq!(ipv6::Header::parse_for(original, 1428).unwrap().source, ONE);
        let Ok(Message::DestinationUnreachable { code, original }) = parsed(frame!("port_unreachable"))
        else {
            panic!()
        };
        assert_eq!(code, 4);
        assert!(original.ends_with(b"unreachable"));
    }

    #[test]
    fn damage_and_nonsense_are_refused() {
        let frame = frame!("solicitation");
        for at in 54..frame.len() {
            let mut damaged = frame.to_vec();
            damaged[at] ^= 4;
            assert_eq!(parsed(&damaged), Err(Malformed::Checksum), "octet {at}");
        }
        let altered = |len: usize, alter: fn(&mut [u8])| {
            let mut message = frame[54..54 + len].to_vec();
            alter(&mut message);
            set_checksum(&mut message, ONE, TWO);
            Message::parse(&message, ONE, TWO).map(|_| ())
        };
        assert_eq!(altered(32, |_| ()), Ok(()));
        assert_eq!(altered(24, |_| ()), Ok(()), "without options");
        assert_eq!(altered(32, |message| message[8] = 0xff), Err(Malformed::Field), "a multicast target");
        assert_eq!(altered(32, |message| message[25] = 0), Err(Malformed::Field), "an option of no length");
        assert_eq!(altered(32, |message| message[25] = 2), Err(Malformed::Truncated));
        assert_eq!(altered(25, |_| ()), Err(Malformed::Truncated));
        assert_eq!(altered(23, |_| ()), Err(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn no_octets_do_harm(
            mut octets in proptest::collection::vec(any::<u8>(), 8..100),
            kind in 130u8..138
        ) {
            octets[0] = kind;
            octets[1] = 0;
            set_checksum(&mut octets, ONE, TWO);
            prop_assert_ne!(Message::parse(&octets, ONE, TWO), Err(Malformed::Checksum));
        }
    }
}
