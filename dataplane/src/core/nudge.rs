//! Nudges: messages without meaning for a peer that may have overlooked our first FPDU.
//!
//! Linux siw sends its Reply before its socket is its queue pair's. A first FPDU that comes in between lies there unread until
//! more octets come; an Initiator that waits for the answer waits for ever. An RDMA Write without payload, which is lawful between
//! any two messages (RDMAP-5.1-03), brings those octets. It looks like an indication (RFC 6581 §9.2), is sent only to peers that
//! negotiate indications, and only while no FPDU of theirs has come.

use super::Core;
use super::connection::Mode;
use crate::device::Device;
use crate::limits;
use crate::time::Instant;

/// When the next one is due, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Nudges {
    left: u8,
    interval_ns: u64,
    at: Instant,
}

impl Nudges {
    /// Those of a connection that begins, if there are to be any.
    pub const fn new(wanted: bool) -> Self {
        let left = if wanted { limits::NUDGES } else { 0 };
        Self { left, interval_ns: limits::FIRST_NUDGE_NS, at: Instant::NEVER }
    }

    /// The first FPDU is on its way.
    pub fn begin(&mut self, now: Instant) {
        if self.left > 0 && self.at == Instant::NEVER {
            self.at = now + self.interval_ns;
        }
    }

    /// When the next one is due.
    pub const fn due(&self) -> Instant {
        self.at
    }

    /// One is due and is spent, whether it could be sent or not; the next has twice the time.
    fn spend(&mut self, now: Instant) {
        self.left = self.left.saturating_sub(1);
        self.interval_ns *= 2;
        self.at = if self.left > 0 { now + self.interval_ns } else { Instant::NEVER };
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
        operating.nudges.spend(now);
        let qp = self.qps.get_mut(operating.qp.0 as usize).and_then(Option::as_mut);
        if qp.is_some_and(|qp| qp.sender.nudge()) {
            self.statistics.nudges_sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_become_rarer_and_end() {
        let mut nudges = Nudges::new(true);
        assert_eq!(nudges.due(), Instant::NEVER, "nothing was sent");
        let mut now = Instant::from_nanos(1_000);
        nudges.begin(now);
        for n in 0..limits::NUDGES {
            let wait = limits::FIRST_NUDGE_NS << n;
            assert_eq!(nudges.due(), now + wait);
            nudges.begin(now + 1);
            assert_eq!(nudges.due(), now + wait, "later FPDUs change nothing");
            now = nudges.due();
            nudges.spend(now);
        }
        assert_eq!(nudges.due(), Instant::NEVER);
        nudges.begin(now);
        assert_eq!(nudges.due(), Instant::NEVER, "they are used up");
    }

    #[test]
    fn there_are_none_where_none_are_wanted() {
        let mut nudges = Nudges::new(false);
        nudges.begin(Instant::from_nanos(1));
        assert_eq!(nudges.due(), Instant::NEVER);
    }
}
