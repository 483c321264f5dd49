//! Nudges: messages without meaning for a peer that may have overlooked our first FPDU.
//!
//! Linux siw sends its Reply before its socket is its queue pair's. A first FPDU that comes in between lies there unread until
//! more octets come; an Initiator that waits for the answer waits for ever. An RDMA Write without payload, which is lawful between
//! any two messages (RDMAP-5.1-03), brings those octets. It looks like an indication (RFC 6581 §9.2), is sent only to peers that
//! negotiate indications, and only while no FPDU of theirs has come.

use super::Core;
use super::connection::{Mode, Operating};
use crate::device::Device;
use crate::limits;
use crate::time::Instant;

/// How many more a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nudges {
    left: u8,
}

impl Nudges {
    /// Not one.
    pub const NONE: Self = Self { left: 0 };

    /// Those of a connection that begins, if there are to be any.
    pub const fn new(wanted: bool) -> Self {
        if wanted { Self { left: limits::NUDGES } } else { Self::NONE }
    }

    /// How long to wait for the peer before the next one; twice as long each time.
    const fn wait_ns(self) -> Option<u64> {
        if self.left == 0 { None } else { Some(limits::FIRST_NUDGE_NS << (limits::NUDGES - self.left)) }
    }
}

impl Operating {
    /// Our first FPDU is on its way: the peer's is awaited. Later ones change nothing.
    pub(super) fn expect_answer(&mut self, now: Instant) {
        if self.nudge_due() == Instant::NEVER {
            self.await_until_nudge(now);
        }
    }

    /// When the next one is due.
    pub(super) const fn nudge_due(&self) -> Instant {
        if self.may_send && self.nudges.left > 0 { self.silent_until } else { Instant::NEVER }
    }

    /// One is due and is spent, whether it could be sent or not.
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

impl<D: Device> Core<D> {
    /// Has a nudge sent on a connection, if one is due.
    pub(super) fn nudge(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if connection.nudge_due() > now {
            return;
        }
        let Mode::FullOperation(operating) = &mut connection.mode else { return };
        operating.spend_nudge(now);
        if self.qps.get_mut(operating.qp).is_some_and(|qp| qp.sender.nudge()) {
            self.statistics.nudges_sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::queue_pairs::QpId;
    use crate::core::ring::FullOperation;
    use crate::qp::work::QpNumber;
    use crate::wire::tcp::SeqNumber;

    fn operating(nudges: bool, initiator: bool) -> Operating {
        let operation = FullOperation { nudges, ..FullOperation::new(QpNumber(1), initiator) };
        let qp = QpId { number: operation.qp, generation: 0 };
        Operating::new(operation, qp, SeqNumber(0))
    }

    #[test]
    fn they_become_rarer_and_end() {
        let mut operating = operating(true, true);
        assert_eq!(operating.nudge_due(), Instant::NEVER, "nothing was sent");
        let mut now = Instant::from_nanos(1_000);
        operating.expect_answer(now);
        for n in 0..limits::NUDGES {
            let wait = limits::FIRST_NUDGE_NS << n;
            assert_eq!(operating.nudge_due(), now + wait);
            operating.expect_answer(now + 1);
            assert_eq!(operating.nudge_due(), now + wait, "later FPDUs change nothing");
            now = operating.nudge_due();
            operating.spend_nudge(now);
        }
        assert_eq!(operating.nudge_due(), Instant::NEVER);
        operating.expect_answer(now);
        assert_eq!(operating.nudge_due(), Instant::NEVER, "they are used up");
    }

    #[test]
    fn there_are_none_where_none_are_wanted() {
        for (nudges, initiator) in [(false, true), (true, false)] {
            let mut operating = operating(nudges, initiator);
            operating.expect_answer(Instant::from_nanos(1));
            assert_eq!(operating.nudge_due(), Instant::NEVER);
        }
    }
}
