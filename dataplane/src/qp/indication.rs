//! Ready-to-receive (RTR) indications in Full Operation (RFC 6581 §9.2): messages that the provider sends and
//! consumes by itself, and that neither ULP sees.

use crate::ddp::segmentation::Message;
use crate::memory::STag;
use crate::mpa::enhanced::{ReadyToReceive, Rtr, RtrKinds};
use crate::mpa::receiver::Ulpdu;
use crate::qp::receiver::Received;
use crate::rdmap::message::{self, READ_REQUEST_QUEUE, SEND_QUEUE};
use crate::wire::ddp::{Header, Untagged};
use crate::wire::rdmap::{Control, Opcode, ReadRequest};

/// The STag that an indication names. It need not exist, since no octets are transferred; but some adapters
/// refuse any tagged message to STag 0.
const STAG: STag = STag(1);

/// The payload of the Read Request that is an indication: no octets, from STag 1 to STag 1.
pub const READ_REQUEST: [u8; ReadRequest::LEN] = {
    let mut octets = [0; ReadRequest::LEN];
    let [sink, source] = [3, 19];
    (octets[sink], octets[source]) = (STAG.0 as u8, STAG.0 as u8);
    octets
};

/// A message of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderMessage {
    /// The Initiator's indication.
    Indication(Rtr),
    /// The Responder's response to an indication that is an RDMA Read.
    Response {
        /// The Initiator's buffer.
        stag: STag,
        /// The Tagged Offset in that buffer.
        to: u64,
    },
}

/// The message that `provided` is.
// Requirements: MPAv2-9.2-10
pub const fn message(version: u8, provided: ProviderMessage) -> Message {
    match provided {
        ProviderMessage::Indication(Rtr::Write) => message::write(version, STAG, 0, 0),
        ProviderMessage::Indication(Rtr::Read) => message::read_request(version, 1),
        ProviderMessage::Indication(Rtr::Send) => message::send(version, Opcode::Send, STag(0), 1, 0),
        ProviderMessage::Response { stag, to } => message::read_response(version, stag, to, 0),
    }
}

/// The ready-to-receive indications that a receiver expects of its peer.
///
/// If the peer sends another message instead, that message is handled as usual. A Write without payload is
/// valid at any time, so it needs no attention here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Indications {
    /// The kinds that the first FPDU of the peer may be, until it has come.
    first: RtrKinds,
    /// The response to this end's RDMA Read has not come yet.
    response_due: bool,
}

impl Indications {
    /// The indications of a connection that begins.
    pub const fn of(ready: ReadyToReceive) -> Self {
        match ready {
            ReadyToReceive::None => Self { first: RtrKinds::empty(), response_due: false },
            ReadyToReceive::Send(rtr) => {
                Self { first: RtrKinds::empty(), response_due: matches!(rtr, Rtr::Read) }
            }
            ReadyToReceive::Expect(kinds) => Self { first: kinds, response_due: false },
        }
    }

    /// Whether an indication may still come.
    #[inline]
    pub const fn are_due(&self) -> bool {
        !self.first.is_empty() || self.response_due
    }

    /// Consumes the next FPDU of the peer if it is an indication, or the response to ours. Returns `None` for
    /// any other.
    pub fn consume(&mut self, version: u8, header: &Header, ulpdu: &impl Ulpdu) -> Option<Received> {
        if !self.are_due() {
            return None;
        }
        let first = core::mem::replace(&mut self.first, RtrKinds::empty());
        let payload_octets = ulpdu.octets() - header.header_len();
        let own = |opcode| {
            let control = Control::from_octet(header.ulp_control());
            header.last() && header.version() == version && control == Control { version, opcode }
        };
        match *header {
            // Responses come in the order of the requests, and the indication was the first request. STag and
            // TO of an empty segment are ignored: no document says which of the two STags of a Read Request
            // for no octets an adapter puts there.
            // Requirements: DDP-5.2-09
            Header::Tagged(_) if self.response_due && payload_octets == 0 && own(Opcode::ReadResponse) => {
                self.response_due = false;
                Some(Received::RtrReceived)
            }
            Header::Untagged(Untagged { queue: SEND_QUEUE, msn: 1, mo: 0, .. })
                if first.contains(RtrKinds::SEND) && payload_octets == 0 && own(Opcode::Send) =>
            {
                Some(Received::RtrReceived)
            }
            Header::Untagged(Untagged { queue: READ_REQUEST_QUEUE, msn: 1, mo: 0, .. })
                if first.contains(RtrKinds::READ)
                    && payload_octets == ReadRequest::LEN
                    && own(Opcode::ReadRequest) =>
            {
                requested_rtr_read(ulpdu)
            }
            _ => None,
        }
    }
}

/// Consumes a Read Request that asks for no octets as an indication. Returns `None` for one that asks for
/// octets.
fn requested_rtr_read(ulpdu: &impl Ulpdu) -> Option<Received> {
    let octets: [u8; Untagged::LEN + ReadRequest::LEN] = ulpdu.first_octets()?;
    let request = ReadRequest::parse(&octets[Untagged::LEN..]).ok()?;
    // RFC 5040 §5.2: without octets there is no buffer to check.
    (request.size == 0).then_some(Received::RtrReadReceived { stag: request.sink_stag, to: request.sink_to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_read_request_asks_for_nothing() {
        let mut octets = [0; ReadRequest::LEN];
        ReadRequest { sink_stag: STAG, sink_to: 0, size: 0, source_stag: STAG, source_to: 0 }
            .emit(&mut octets);
        assert_eq!(READ_REQUEST, octets);
    }
}
