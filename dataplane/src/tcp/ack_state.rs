//! Acknowledgements that this end sends: what is owed at once, what is delayed, and the selective blocks (RFC
//! 5681 §4.2, RFC 2018, RFC 8257 §3.2).

use crate::limits;
use crate::wire::tcp::SeqNumber;

use super::sack_blocks::{Block, Blocks, SackBlocks};

/// When an acknowledgement of data is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckTiming {
    /// At once: it is owed.
    AtOnce,
    /// With the next data, or when the delayed-ACK timer expires.
    Delayed,
}

/// The most changes of marks in a burst that are acknowledged one by one.
const CE_CHANGES: usize = 3;

/// The acknowledgements of one connection.
///
/// The blocks come first, and are not looked at while `has_blocks` is false: what each segment needs are the
/// last octets of this.
#[derive(Debug)]
#[repr(C)]
pub(super) struct AckState {
    /// The blocks to report: none unless `sack` is set.
    sack_blocks: SackBlocks,
    /// The acknowledgement numbers of those that are to be sent for changes of marks: the first
    /// `ce_changes`. Each has another echo than the one before.
    before_ce_changes: [SeqNumber; CE_CHANGES],
    ce_changes: u8,
    /// The first of them has ECE.
    echoes_before_ce_change: bool,
    /// There are blocks to report.
    has_blocks: bool,
    /// The acknowledgement number that was last sent.
    pub(super) last_sent: SeqNumber,
    /// Segments with data that have come since then.
    pub(super) unacknowledged_segments: u8,
    /// Segments with data that are still to be acknowledged at once: there was a loss, or a long silence.
    immediate_segments: u8,
    /// Acknowledgements to be sent now.
    pub(super) owed: u8,
    /// Both ends understand selective acknowledgements.
    pub(super) sack: bool,
}

/// An acknowledgement of what came before the marks have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierAck {
    /// The acknowledgement number.
    pub(super) ack: SeqNumber,
    /// It has ECE.
    pub(super) echoes: bool,
}

impl AckState {
    /// Where what each segment needs begins: it goes on to the end.
    #[cfg(test)]
    pub(super) const HOT_OFFSET: usize = core::mem::offset_of!(Self, has_blocks);

    pub(super) fn new() -> Self {
        Self {
            sack_blocks: SackBlocks::new(),
            before_ce_changes: [SeqNumber(0); CE_CHANGES],
            ce_changes: 0,
            echoes_before_ce_change: false,
            has_blocks: false,
            last_sent: SeqNumber(0),
            unacknowledged_segments: 0,
            immediate_segments: 0,
            owed: 0,
            sack: false,
        }
    }

    /// Owes one acknowledgement at least.
    pub(super) fn owe_one(&mut self) {
        self.owed = self.owed.max(1);
    }

    /// Owes another acknowledgement. A peer without selective acknowledgements counts duplicates, so it gets
    /// one for each segment; others learn everything from one.
    pub(super) fn owe_another(&mut self) {
        let limit = if self.sack { 1 } else { limits::ACKS_OWED_MAX };
        self.owed = (self.owed + 1).min(limit);
    }

    /// Records that the octets `block` are held beyond a gap. A peer without SACK-permitted gets no blocks
    /// (RFC 2018 §2).
    pub(super) fn on_held(&mut self, block: Block) {
        if self.sack {
            self.sack_blocks.on_held(block);
            self.has_blocks = true;
        }
    }

    /// Records that the octets `block` were received twice, for a peer that understands blocks (RFC 2883).
    pub(super) fn on_duplicate(&mut self, block: Block) {
        if self.sack {
            self.sack_blocks.on_duplicate(block);
            self.has_blocks = true;
        }
    }

    /// Octets at and after `end`, which were held beyond a gap, may have been dropped: no block reports them.
    #[cold]
    pub(super) fn on_dropped_after(&mut self, end: SeqNumber) {
        self.sack_blocks.on_dropped_after(end);
    }

    /// Removes the blocks before `next`, which are in order now; others are held if there is a gap.
    #[inline]
    pub(super) fn on_in_order(&mut self, next: SeqNumber, has_gap: bool) {
        if self.has_blocks {
            self.remove_blocks(next, has_gap);
        }
    }

    #[inline(never)]
    fn remove_blocks(&mut self, next: SeqNumber, has_gap: bool) {
        self.sack_blocks.on_in_order(next, has_gap);
        self.has_blocks = !self.sack_blocks.is_empty();
    }

    /// Replaces the blocks held beyond gaps by `held`, the first ones of all.
    pub(super) fn replace_held(&mut self, held: &Blocks) {
        self.sack_blocks.clear();
        self.has_blocks = !self.sack_blocks.is_empty();
        for block in held {
            self.on_held(*block);
        }
        if self.sack && held.is_full() {
            self.sack_blocks.set_incomplete();
        }
    }

    /// Whether octets are held beyond a gap that are in no block.
    pub(super) const fn has_incomplete_blocks(&self) -> bool {
        self.has_blocks && self.sack_blocks.is_incomplete()
    }

    /// Returns the blocks for an acknowledgement that is sent now.
    pub(super) fn report(&mut self) -> Blocks {
        if !self.has_blocks {
            return Blocks::new();
        }
        let blocks = self.sack_blocks.report();
        self.has_blocks = !self.sack_blocks.is_empty();
        blocks
    }

    /// Returns the blocks of what is held, for a segment that its peer answers and does not accept: octets
    /// received twice are reported by one that it does.
    pub(super) fn held(&self) -> Blocks {
        self.sack_blocks.held()
    }

    /// Acknowledges the next segments with data at once. The peer's congestion window is small after a loss
    /// or a long silence, and waiting for a second segment that it may not send keeps that window small.
    pub(super) const fn expect_small_window(&mut self) {
        self.immediate_segments = limits::PROMPT_ACKS;
    }

    /// The octets that a segment with data was missing before have come: the same, but that segment is one of
    /// those that are acknowledged at once.
    pub(super) const fn on_gap_filled(&mut self) {
        self.immediate_segments = limits::PROMPT_ACKS - 1;
    }

    /// A segment with data has come in order. RFC 5681 §4.2: one that fills a gap, or leaves one, is
    /// acknowledged at once (`at_once`, `has_gap`), and so is every second one.
    pub(super) fn on_data(&mut self, at_once: bool, has_gap: bool) -> AckTiming {
        self.unacknowledged_segments = self.unacknowledged_segments.saturating_add(1);
        let immediate = self.immediate_segments > 0;
        self.immediate_segments = self.immediate_segments.saturating_sub(1);
        if at_once || immediate || has_gap || self.unacknowledged_segments >= limits::DELAYED_ACK_SEGMENTS {
            self.owe_one();
            AckTiming::AtOnce
        } else {
            AckTiming::Delayed
        }
    }

    /// `count` segments with data have come in order after one that [`on_data`](Self::on_data) has counted,
    /// and nothing was sent in between: they are the second one and others, and are acknowledged at once.
    #[inline]
    pub(super) fn on_successors(&mut self, count: u32) {
        debug_assert!(self.unacknowledged_segments > 0, "no second segment");
        let count = u8::try_from(count).unwrap_or(u8::MAX);
        self.unacknowledged_segments = self.unacknowledged_segments.saturating_add(count);
        self.immediate_segments = self.immediate_segments.saturating_sub(count);
        self.owe_one();
    }

    /// RFC 8257 §3.2: the marks have changed. What came before, up to `next`, is acknowledged with the echo
    /// of before, `echoed`. Returns true if there is anything to acknowledge so.
    ///
    /// Example: of segments that end at 10, 20, 30 and 40 and come in one burst, the second and the third are
    /// marked. 10 is acknowledged without ECE, 30 with ECE, and then 40 as ever.
    pub(super) fn on_ce_change(&mut self, next: SeqNumber, echoed: bool) -> bool {
        if self.unacknowledged_segments == 0 {
            return false;
        }
        self.unacknowledged_segments = 0;
        if usize::from(self.ce_changes) == CE_CHANGES {
            // The run between the last two counts as those around it: theirs is the echo of before, too.
            self.ce_changes -= 2;
        }
        if self.ce_changes == 0 {
            self.echoes_before_ce_change = echoed;
        }
        self.before_ce_changes[usize::from(self.ce_changes)] = next;
        self.ce_changes += 1;
        true
    }

    /// Whether an acknowledgement of before a change of marks is to be sent.
    pub(super) const fn has_ce_change(&self) -> bool {
        self.ce_changes > 0
    }

    /// Removes the first acknowledgement of before a change of marks, which is sent now.
    pub(super) fn next_ce_change(&mut self) -> Option<EarlierAck> {
        self.ce_changes = self.ce_changes.checked_sub(1)?;
        let [ack, ..] = self.before_ce_changes;
        self.before_ce_changes.rotate_left(1);
        let echoes = self.echoes_before_ce_change;
        self.echoes_before_ce_change = !echoes;
        self.last_sent = self.last_sent.later(ack);
        Some(EarlierAck { ack, echoes })
    }

    /// Octets from `next` on are dropped as if they had not come: no acknowledgement is of them.
    pub(super) fn on_forgotten(&mut self, next: SeqNumber) {
        let changes = &self.before_ce_changes[..usize::from(self.ce_changes)];
        self.ce_changes = changes.iter().take_while(|ack| **ack <= next).count() as u8;
    }

    /// A segment with the acknowledgement number `next` has left. Each one acknowledges everything in order;
    /// beyond a gap the peer counts acknowledgements without data (RFC 5681 §2), so those stay owed.
    pub(super) fn on_sent(&mut self, next: SeqNumber, has_gap: bool) {
        self.last_sent = next;
        self.unacknowledged_segments = 0;
        if !has_gap && !self.has_blocks {
            self.owed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after segments of ten octets each, marked or not, all in one burst.
    fn after(marks: &[bool]) -> AckState {
        let mut ack = AckState::new();
        let mut echoed = false;
        for (number, marked) in marks.iter().enumerate() {
            if echoed != *marked {
                ack.on_ce_change(SeqNumber(10 * number as u32), echoed);
            }
            echoed = *marked;
            ack.on_data(false, false);
        }
        ack
    }

    fn sent(ack: &mut AckState) -> Vec<(u32, bool)> {
        core::iter::from_fn(|| ack.next_ce_change()).map(|sent| (sent.ack.0, sent.echoes)).collect()
    }

    /// RFC 8257 §3.2: each change is acknowledged, in order, with the echo of what came before it.
    #[test]
    fn each_change_of_marks_is_acknowledged() {
        let mut ack = after(&[false, true, true, false]);
        assert_eq!(sent(&mut ack), [(10, false), (30, true)]);
        assert!(!ack.has_ce_change());
        assert_eq!(ack.last_sent, SeqNumber(30));
        let mut ack = after(&[true, false, true, false]);
        assert_eq!(sent(&mut ack), [(10, true), (20, false), (30, true)]);
    }

    /// What has no place of its own counts as its neighbours, so that echoes still alternate.
    #[test]
    fn more_changes_than_places_are_acknowledged_together() {
        let mut ack = after(&[false, true, false, true, false]);
        assert_eq!(sent(&mut ack), [(10, false), (40, true)]);
        let mut ack = after(&[false, true, false, true, false, true, false]);
        assert_eq!(sent(&mut ack), [(10, false), (60, true)]);
    }

    #[test]
    fn what_is_forgotten_is_not_acknowledged() {
        let mut ack = after(&[false, true, false, true]);
        ack.on_forgotten(SeqNumber(20));
        assert_eq!(sent(&mut ack), [(10, false), (20, true)]);
        let mut ack = after(&[false, true, false, true]);
        ack.on_forgotten(SeqNumber(5));
        assert_eq!(sent(&mut ack), []);
    }
}
