//! Nudges: messages without effect for a peer that may not have read our first FPDU.
//!
//! Linux siw sends its Reply before its queue pair has the socket. A first FPDU that arrives in between stays
//! unread until more octets arrive; an Initiator that waits for the response waits for ever. An RDMA Write
//! without payload, which may follow any message (RDMAP-5.1-03), is those octets. It looks like a
//! ready-to-receive indication (RFC 6581 §9.2), is sent only to peers that negotiate indications, and only
//! while none of their FPDUs has arrived.

use crate::device::Frame;
use crate::time::Instant;

use super::Endpoint;
use super::operating::Operating;

impl Operating {
    /// Begins to wait for the peer's first FPDU: ours was sent. Later ones change nothing.
    pub(super) fn await_first_fpdu(&mut self, now: Instant) {
        if self.nudge_due() == Instant::NEVER {
            self.await_until_nudge(now);
        }
    }

    /// Returns when the next nudge is due.
    pub(super) const fn nudge_due(&self) -> Instant {
        if self.may_send && self.nudges.left > 0 { self.silent_until } else { Instant::NEVER }
    }

    /// Counts a nudge that is due, whether it can be sent or not.
    fn spend_nudge(&mut self, now: Instant) {
        self.nudges.left = self.nudges.left.saturating_sub(1);
        self.await_until_nudge(now);
    }

    fn await_until_nudge(&mut self, now: Instant) {
        if self.may_send {
            self.silent_until = self.nudges.wait_ns().map_or(Instant::NEVER, |wait_ns| now + wait_ns);
        }
    }
}

impl<F: Frame> Endpoint<'_, F> {
    /// Sends a nudge, if one is due.
    pub(super) fn nudge_if_due(&mut self) {
        if self.connection.nudge_due() > self.now {
            return;
        }
        let Some(stream) = self.rdmap() else {
            debug_assert!(self.connection.close_notified, "only a peer in Full Operation is nudged");
            return;
        };
        stream.operating.spend_nudge(stream.now);
        if stream.qp.sender.nudge() {
            stream.context.statistics.nudges_sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use crate::ring::FullOperation;
    use crate::wire::tcp::SeqNumber;

    fn operating(nudges: bool, initiator: bool) -> Operating {
        let operation = FullOperation { nudges, ..FullOperation::new(initiator) };
        Operating::new(0, operation, SeqNumber(0))
    }

    #[test]
    fn they_become_rarer_and_end() {
        let mut operating = operating(true, true);
        assert_eq!(operating.nudge_due(), Instant::NEVER, "nothing was sent");
        let mut now = Instant::from_nanos(1_000);
        operating.await_first_fpdu(now);
        for n in 0..limits::NUDGES {
            let wait = limits::FIRST_NUDGE_NS << n;
            assert_eq!(operating.nudge_due(), now + wait);
            operating.await_first_fpdu(now + 1);
            assert_eq!(operating.nudge_due(), now + wait, "later FPDUs change nothing");
            now = operating.nudge_due();
            operating.spend_nudge(now);
        }
        assert_eq!(operating.nudge_due(), Instant::NEVER);
        operating.await_first_fpdu(now);
        assert_eq!(operating.nudge_due(), Instant::NEVER, "they are used up");
    }

    #[test]
    fn there_are_none_where_none_are_wanted() {
        for (nudges, initiator) in [(false, true), (true, false)] {
            let mut operating = operating(nudges, initiator);
            operating.await_first_fpdu(Instant::from_nanos(1));
            assert_eq!(operating.nudge_due(), Instant::NEVER);
        }
    }
}
