//! What one end sends: messages with transfers in them.

use super::rid;
use warpline_dataplane::byte_stream::Section;

/// What the receiver does about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It names a buffer before the transfer begins.
    Expected = 0,
    /// It does not, and the sender does not call the transfer unsolicited.
    Unknown = 1,
    /// It has buffers for such.
    Unsolicited = 2,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub kind: Kind,
    pub rid: u64,
    pub octets: usize,
    pub total_known: bool,
}

impl Transfer {
    pub(crate) fn section(&self) -> Section {
        Section {
            rid: rid(self.rid),
            unsolicited: self.kind == Kind::Unsolicited,
            total_octets: self.total_known.then_some(self.octets as u32),
        }
    }
}

/// What is written next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The transfer of this number may begin once the receiver is ready for it.
    Begin(usize),
    /// So many octets of the transfer, from this offset on; 0 for a transfer of nothing.
    Section { transfer: usize, offset: usize, octets: usize },
    /// Octets of no transfer.
    Plain { octets: usize, starts_message: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub transfers: Vec<Transfer>,
    pub steps: Vec<Step>,
    /// The sender finishes after so many of them.
    pub finishes_after: usize,
}

/// The longest transfer.
pub(crate) const MOST_OCTETS: usize = 20_000;

impl Plan {
    pub(crate) fn random(rng: &mut fastrand::Rng) -> Self {
        let mut plan = Self { transfers: Vec::new(), steps: Vec::new(), finishes_after: usize::MAX };
        for _ in 0..rng.usize(1..14) {
            plan.add_message(rng);
        }
        if rng.u8(..8) == 0 {
            plan.finishes_after = rng.usize(..plan.steps.len());
        }
        plan
    }

    fn add_message(&mut self, rng: &mut fastrand::Rng) {
        // Several transfers, pipelined: their sections alternate.
        let first = self.transfers.len();
        for number in 0..[0, 1, 1, 2, 3][rng.usize(..5)] {
            let octets = match rng.u8(..5) {
                0 => 0,
                1 => rng.usize(1..10),
                2 => rng.usize(1..MOST_OCTETS),
                _ => rng.usize(1..4000),
            };
            let kind = [Kind::Expected, Kind::Expected, Kind::Unknown, Kind::Unsolicited][rng.usize(..4)];
            let total_known = octets == 0 || rng.u8(..4) > 0;
            // A few names, which other messages use again.
            self.transfers.push(Transfer {
                kind,
                rid: (rng.u64(0..3) * 3 + number) << 38 | 5,
                octets,
                total_known,
            });
        }
        let transfers = first..self.transfers.len();
        let starts_message = rng.u8(..4) > 0;
        self.add_plain(rng, starts_message);
        for transfer in transfers.clone() {
            self.steps.push(Step::Begin(transfer));
        }
        let mut sent = vec![0; transfers.len()];
        let mut left: Vec<usize> = transfers.collect();
        while !left.is_empty() {
            let index = rng.usize(..left.len());
            let transfer = left[index];
            let (offset, all) = (sent[transfer - first], self.transfers[transfer].octets);
            let octets = if rng.bool() { all - offset } else { rng.usize(..=all - offset) };
            if octets > 0 || all == 0 {
                self.steps.push(Step::Section { transfer, offset, octets });
            }
            sent[transfer - first] += octets;
            if sent[transfer - first] == all {
                left.swap_remove(index);
            }
            if rng.bool() || all == 0 {
                self.add_plain(rng, false);
            }
        }
    }

    fn add_plain(&mut self, rng: &mut fastrand::Rng, starts_message: bool) {
        let octets = [rng.usize(1..5), rng.usize(1..300), rng.usize(1..3000)][rng.usize(..3)];
        self.steps.push(Step::Plain { octets, starts_message });
    }
}
