//! Nudges: messages without effect for a peer that may not have read our first FPDU.
//!
//! Linux siw sends its Reply before its queue pair has the socket. A first FPDU that arrives in between stays
//! unread until more octets arrive; an Initiator that waits for the response waits for ever. An RDMA Write
//! without payload, which may follow any message (RDMAP-5.1-03), is those octets. It looks like a
//! ready-to-receive indication (RFC 6581 §9.2), is sent only to peers that negotiate indications, and only
//! while none of their FPDUs has arrived.

use crate::limits;
use crate::time::Instant;

use super::operating::Operating;

/// How many more nudges a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nudges {
    left: u8,
}

impl Nudges {
    /// No nudges.
    pub const NONE: Self = Self { left: 0 };

    /// Returns the nudges of a connection that begins, if it may send any.
    pub const fn new(wanted: bool) -> Self {
        if wanted { Self { left: limits::NUDGES } } else { Self::NONE }
    }

    /// Returns true if no more is sent.
    pub(super) const fn are_over(self) -> bool {
        self.left == 0
    }

    /// Returns how long to wait for the peer before the next nudge; twice as long each time.
    const fn wait_ns(self) -> Option<u64> {
        if self.left == 0 { None } else { Some(limits::FIRST_NUDGE_NS << (limits::NUDGES - self.left)) }
    }
}

impl Operating {
    /// Begins to wait for the peer's first FPDU: ours was sent. Later ones change nothing.
    pub(super) fn await_first_fpdu(&mut self, now: Instant) {
        if self.nudge_due() == Instant::NEVER {
            self.await_until_nudge(now);
        }
    }

    /// Returns when the next nudge is due.
    pub(super) const fn nudge_due(&self) -> Instant {
        if self.may_send && !self.nudges.are_over() { self.silent_until } else { Instant::NEVER }
    }

    /// Counts a nudge that is due, whether it can be sent or not.
    pub(super) fn spend_nudge(&mut self, now: Instant) {
        self.nudges.left = self.nudges.left.saturating_sub(1);
        self.await_until_nudge(now);
    }

    fn await_until_nudge(&mut self, now: Instant) {
        if self.may_send {
            self.silent_until = self.nudges.wait_ns().map_or(Instant::NEVER, |wait_ns| now + wait_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
