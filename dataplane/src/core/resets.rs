//! RSTs for segments that belong to no connection.

use crate::device::Device;
use crate::net::Host;
use crate::rate_limit::RateLimit;
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, Header};

/// The RSTs that a core sends for segments that belong to no connection.
pub(super) struct Resets {
    /// How many a second.
    limit: RateLimit,
}

impl Resets {
    /// Returns those that are bounded by `limit`.
    pub(super) const fn new(limit: RateLimit) -> Self {
        Self { limit }
    }

    /// Returns the RST that answers a segment that belongs to no connection (RFC 9293 §3.5.2, group 1);
    /// `None` if none does.
    pub(super) fn reply_to<D: Device>(
        &mut self,
        now: Instant,
        segment: &Segment,
        host: &Host<D>,
    ) -> Option<Header> {
        if segment.flags.contains(Flags::RST)
            || !host.neighbourhood.answers_for(segment.flow.destination_port())
            || !self.limit.admit(now)
        {
            return None;
        }
        let mut reset = Header { flags: Flags::RST, ..Header::default() };
        if segment.flags.contains(Flags::ACK) {
            reset.seq = segment.ack;
        } else {
            let control = segment.flags & (Flags::SYN | Flags::FIN);
            reset.flags |= Flags::ACK;
            reset.ack = segment.seq + segment.payload_octets as u32 + control.bits().count_ones();
        }
        Some(reset)
    }
}
