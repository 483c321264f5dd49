//! The TCP RDMA option on a connection (draft-csapuntz-tcprdma-00): whether both ends use it, which options
//! of the peer count, and the room that ours need in segments.
//!
//! TCP does not know transfers. The layer above says for each part of a payload which option it needs
//! ([`SendPayload::rdma_option`]); TCP cuts segments so that the option fits beside the others, and puts it
//! into the header of each of them, the retransmitted ones included.

use crate::wire::tcp::{Flags, Header};
use crate::wire::tcp_rdma::RdmaOption;

use super::Connection;
use super::send_queue::{Segment, SendPayload};

impl Connection {
    /// Returns true if both ends have offered the TCP RDMA option in their SYNs.
    pub const fn rdma_option_negotiated(&self) -> bool {
        self.receive.rdma_option
    }

    /// Returns the RDMA option of a segment that has arrived, if it counts: the ends have agreed on the
    /// option, the segment is neither a SYN nor a RST, and the option is not the offer of a SYN. Otherwise
    /// the segment is like one without it. Whether it describes octets of the payload is left to the stream,
    /// which counts those that do not.
    // Requirements: TRO-3.2-01
    pub fn received_rdma_option(&self, header: &Header) -> Option<RdmaOption> {
        if !self.receive.rdma_option || header.flags.intersects(Flags::SYN | Flags::RST) {
            return None;
        }
        header.options.rdma.filter(|option| *option != RdmaOption::Permitted)
    }

    /// Accepts the offer of the peer's SYN. The draft says only that the form of two octets may be used; it
    /// is the offer here, as SACK-permitted is: each end uses the option if both have sent it. Every other
    /// form on a SYN is ignored.
    // Requirements: TRO-3.2-01
    pub(super) fn negotiate_rdma_option(&mut self, syn: &Header) {
        let offered = syn.options.rdma == Some(RdmaOption::Permitted);
        self.receive.rdma_option = offered && self.config.behaviour.rdma_option;
    }

    /// Returns the option of a SYN, or of a SYN-ACK, which `answers` one.
    pub(super) fn rdma_offer(&self, answers: bool) -> Option<RdmaOption> {
        let offers = if answers { self.receive.rdma_option } else { self.config.behaviour.rdma_option };
        offers.then_some(RdmaOption::Permitted)
    }

    /// Returns the octets of option space that segments with data of `payload` need beside the options of
    /// each segment.
    #[inline]
    pub(super) fn payload_option_octets<P: SendPayload>(&self, payload: &P) -> u32 {
        let octets = if self.receive.rdma_option { payload.option_octets() } else { 0 };
        debug_assert!(octets <= RdmaOption::MAX_LEN as u32, "no RDMA option takes {octets} octets");
        octets
    }

    /// Returns the octets of the largest segment with data of `payload`: the EMSS less the octets of its
    /// option. The smallest EMSS leaves room: 52 octets.
    ///
    /// Example: of an EMSS of 1448 octets, beside timestamps, a segment that needs an option of 20 octets has
    /// 1428 octets of data.
    // Requirements: TRO-3.1.8-03
    #[inline]
    pub(super) fn emss_beside_options<P: SendPayload>(&self, payload: &P) -> u32 {
        self.path.emss_octets() - self.payload_option_octets(payload)
    }

    /// Returns true unless it is known that a segment has [no option](Self::rdma_option_of).
    #[inline]
    pub fn may_have_rdma_option<P: SendPayload>(&self, segment: &Segment<P>) -> bool {
        self.receive.rdma_option && segment.payload.option_octets() > 0
    }

    /// Returns the option of a segment: whenever its octets are sent, however they are cut. A segment has one
    /// at most, so a receiver that looks at the first only misses none (§3.3).
    // Requirements: TRO-3.1.8-01, TRO-3.3-02
    #[inline]
    pub fn rdma_option_of<P: SendPayload>(&self, segment: &Segment<P>) -> Option<RdmaOption> {
        if !self.receive.rdma_option {
            return None;
        }
        let option = segment.payload.rdma_option(segment.skip, segment.octets)?;
        debug_assert!(option != RdmaOption::Permitted, "the offer is for SYNs");
        debug_assert!(
            option.len() as u32 <= segment.payload.option_octets(),
            "an option of {} octets in {}",
            option.len(),
            segment.payload.option_octets()
        );
        Some(option)
    }
}

#[cfg(test)]
mod tests;
