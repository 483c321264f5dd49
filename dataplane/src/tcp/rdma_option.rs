//! The TCP RDMA option on a connection (draft-csapuntz-tcprdma-00): whether both ends use it, which options
//! of the peer count, and the room that ours need in segments.
//!
//! TCP does not know transfers. The layer above says for each part of a payload which option it needs
//! ([`SendPayload::rdma_option`]); TCP cuts segments so that the option fits beside the others, and puts it
//! into the header of each of them, the retransmitted ones included.

use crate::wire::tcp::{Flags, Header};
use crate::wire::tcp_rdma::RdmaOption;

use super::config::Behaviour;
use super::send_queue::{Segment, SendPayload};

/// Whether the ends of a connection use the TCP RDMA option.
#[derive(Clone, Copy, Debug, Default)]
pub struct RdmaOptionUse {
    is_agreed: bool,
}

impl RdmaOptionUse {
    /// Accepts the offer of the peer's SYN. The draft says only that the form of two octets may be used; it
    /// is the offer here, as SACK-permitted is: each end uses the option if both have sent it. Every other
    /// form on a SYN is ignored.
    // Requirements: TRO-3.2-01
    pub(super) fn negotiated(behaviour: &Behaviour, syn: &Header) -> Self {
        let offered = syn.options.rdma == Some(RdmaOption::Permitted);
        Self { is_agreed: offered && behaviour.rdma_option }
    }

    /// Returns true if both ends have offered the option in their SYNs.
    #[inline]
    pub const fn is_agreed(self) -> bool {
        self.is_agreed
    }

    /// Returns the option of a SYN, or of a SYN-ACK, which `answers` one.
    pub(super) fn offer(self, behaviour: &Behaviour, answers: bool) -> Option<RdmaOption> {
        let offers = if answers { self.is_agreed } else { behaviour.rdma_option };
        offers.then_some(RdmaOption::Permitted)
    }

    /// Returns the option of a segment that has arrived, if it counts: the ends have agreed on the option,
    /// the segment is neither a SYN nor a RST, and the option is not the offer of a SYN. Otherwise the
    /// segment is like one without it. Whether it describes octets of the payload is left to the stream,
    /// which counts those that do not.
    // Requirements: TRO-3.2-01
    pub fn received(self, header: &Header) -> Option<RdmaOption> {
        if !self.is_agreed || header.flags.intersects(Flags::SYN | Flags::RST) {
            return None;
        }
        header.options.rdma.filter(|option| *option != RdmaOption::Permitted)
    }

    /// Returns the octets of option space that segments with data of `payload` need beside the options of
    /// each segment. The smallest EMSS leaves room for data: 52 octets.
    ///
    /// Example: of an EMSS of 1448 octets, beside timestamps, a segment that needs an option of 20 octets has
    /// 1428 octets of data.
    // Requirements: TRO-3.1.8-03
    #[inline]
    pub(super) fn octets_for<P: SendPayload>(self, payload: &P) -> u32 {
        let octets = if self.is_agreed { payload.option_octets() } else { 0 };
        debug_assert!(octets <= RdmaOption::MAX_LEN as u32, "no RDMA option takes {octets} octets");
        octets
    }

    /// Returns true unless it is known that a segment has [no option](Self::of).
    #[inline]
    pub fn may_be_in<P: SendPayload>(self, segment: &Segment<P>) -> bool {
        self.is_agreed && segment.payload.option_octets() > 0
    }

    /// Returns the option of a segment: whenever its octets are sent, however they are cut. A segment has one
    /// at most, so a receiver that looks at the first only misses none (§3.3).
    // Requirements: TRO-3.1.8-01, TRO-3.3-02
    #[inline]
    pub fn of<P: SendPayload>(self, segment: &Segment<P>) -> Option<RdmaOption> {
        if !self.is_agreed {
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
