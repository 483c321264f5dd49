//! The Internet Control Message Protocol (RFC 792): what a TCP host needs of it, echo and destination
//! unreachable.

use super::{Malformed, checksum};

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;

/// Octets before the payload of every message.
pub const HEADER_LEN: usize = 8;

/// The code of [`Message::DestinationUnreachable`] that reports the next hop's MTU (RFC 1191 §4).
pub const FRAGMENTATION_NEEDED: u8 = 4;

/// An ICMP message.
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
    /// A packet did not arrive.
    DestinationUnreachable {
        /// Why.
        code: u8,
        /// The MTU that stopped it, in octets, when the code is [`FRAGMENTATION_NEEDED`]. Anybody may have
        /// sent this: it must be range checked. Old routers put 0.
        // Requirements: MPA-9.1-01
        next_hop_mtu: u16,
        /// The start of the packet: its IP header and at least eight octets more, if the router follows the
        /// standard.
        original: &'a [u8],
    },
    /// Anything else.
    Other {
        /// The type.
        kind: u8,
        /// The code.
        code: u8,
    },
}

impl<'a> Message<'a> {
    /// Parses a message that fills all of `octets`, and verifies its checksum.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`], [`Malformed::Checksum`].
    pub fn parse(octets: &'a [u8]) -> Result<Self, Malformed> {
        let (header, payload) = octets.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
        if checksum::sum(octets).finish() != 0 {
            return Err(Malformed::Checksum);
        }
        let [kind, code, _, _, first_high, first_low, second_high, second_low] = *header;
        let first = u16::from_be_bytes([first_high, first_low]);
        let second = u16::from_be_bytes([second_high, second_low]);
        Ok(match (kind, code) {
            (ECHO_REQUEST, 0) => Self::EchoRequest { id: first, seq: second, payload },
            (ECHO_REPLY, 0) => Self::EchoReply { id: first, seq: second, payload },
            (DESTINATION_UNREACHABLE, code) => {
                Self::DestinationUnreachable { code, next_hop_mtu: second, original: payload }
            }
            (kind, code) => Self::Other { kind, code },
        })
    }
}

/// Turns an echo request into its reply, in place. `false`, and nothing changed, when `octets` do not start
/// with an echo request. The checksum is adjusted, not recomputed: a damaged request makes a damaged reply.
pub fn echo_request_into_reply(octets: &mut [u8]) -> bool {
    match octets.first_chunk_mut::<HEADER_LEN>() {
        Some([kind @ ECHO_REQUEST, 0, high, low, ..]) => {
            *kind = ECHO_REPLY;
            // RFC 1624 equation 3, with the first word going from 0x0800 to 0.
            let adjusted = u32::from(!u16::from_be_bytes([*high, *low])) + u32::from(!0x0800u16);
            let folded = (adjusted & 0xffff) + (adjusted >> 16);
            [*high, *low] = (!(folded as u16)).to_be_bytes();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut octets = vec![kind, code, 0, 0];
        octets.extend(rest);
        octets.extend(payload);
        let checksum = checksum::sum(&octets).finish();
        octets[2..4].copy_from_slice(&checksum.to_be_bytes());
        octets
    }

    #[test]
    fn path_mtu_reports_are_understood() {
        let octets = message(3, FRAGMENTATION_NEEDED, [0, 0, 0x05, 0x78], b"original");
        let expected = Message::DestinationUnreachable { code: 4, next_hop_mtu: 1400, original: b"original" };
        assert_eq!(Message::parse(&octets), Ok(expected));
        assert_eq!(Message::parse(&octets[..7]), Err(Malformed::Truncated));
        assert_eq!(Message::parse(&message(11, 1, [0; 4], b"")), Ok(Message::Other { kind: 11, code: 1 }));
    }

    #[test]
    fn damage_is_noticed() {
        let mut octets = message(8, 0, [0, 1, 0, 2], b"ping");
        octets[9] ^= 1;
        assert_eq!(Message::parse(&octets), Err(Malformed::Checksum));
    }

    #[test]
    fn only_requests_become_replies() {
        for kind in [0, 3, 11] {
            let mut octets = message(kind, 0, [0; 4], b"");
            let before = octets.clone();
            assert!(!echo_request_into_reply(&mut octets));
            assert_eq!(octets, before);
        }
        assert!(!echo_request_into_reply(&mut [8, 0, 0]));
    }

    proptest! {
        #[test]
        fn the_reply_carries_what_the_request_carried(
            id: u16, seq: u16, payload in proptest::collection::vec(any::<u8>(), 0..100)
        ) {
            let [a, b] = id.to_be_bytes();
            let [c, d] = seq.to_be_bytes();
            let mut octets = message(8, 0, [a, b, c, d], &payload);
            prop_assert_eq!(Message::parse(&octets), Ok(Message::EchoRequest { id, seq, payload: &payload }));
            prop_assert!(echo_request_into_reply(&mut octets));
            prop_assert_eq!(Message::parse(&octets), Ok(Message::EchoReply { id, seq, payload: &payload }));
        }
    }
}
