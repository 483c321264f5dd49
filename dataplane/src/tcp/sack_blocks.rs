//! The blocks that selective acknowledgements report: octets held beyond a gap, most recent first (RFC 2018
//! §4), and octets received twice (D-SACK, RFC 2883).

use arrayvec::ArrayVec;

use crate::wire::tcp::SeqNumber;

/// A range of octets: the first sequence number, and the one after the last.
pub(super) type Block = (SeqNumber, SeqNumber);

/// The most blocks that an option holds.
const BLOCKS: usize = 4;

/// The blocks of one acknowledgement.
pub(super) type Blocks = ArrayVec<Block, BLOCKS>;

/// No octets.
const NO_BLOCK: Block = (SeqNumber(0), SeqNumber(0));

/// The blocks to be reported. A range that does not fit is reported when it changes again; blocks are
/// advisory.
#[derive(Clone, Debug)]
pub(super) struct SackBlocks {
    /// The first `count` are blocks.
    held: [Block; BLOCKS],
    /// None if it is empty.
    duplicate: Block,
    count: u8,
    /// Octets may be held that are in no block: the oldest has given way.
    incomplete: bool,
}

impl SackBlocks {
    /// No blocks.
    pub(super) const fn new() -> Self {
        Self { held: [NO_BLOCK; BLOCKS], duplicate: NO_BLOCK, count: 0, incomplete: false }
    }

    /// Whether nothing is to be reported, and the blocks are all that is held.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.duplicate.0 == self.duplicate.1 && !self.incomplete
    }

    /// Whether octets may be held that are in no block. A segment may touch them then, and the block of it
    /// is longer than those that it meets here (RFC 2018 §3: the octets below and above a block have not been
    /// received).
    pub(super) const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Notes that octets are held that are in no block.
    pub(super) const fn set_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Records that the octets `block` are held beyond a gap.
    pub(super) fn on_held(&mut self, mut block: Block) {
        self.retain(|held| {
            let apart = held.1 < block.0 || block.1 < held.0;
            if !apart {
                block = (block.0.earlier(held.0), block.1.later(held.1));
            }
            apart
        });
        if usize::from(self.count) == BLOCKS {
            self.incomplete = true;
        } else {
            self.count += 1;
        }
        self.held[..usize::from(self.count)].rotate_right(1);
        self.held[0] = block;
    }

    /// Removes the octets at and after `end`, which are no longer held.
    pub(super) fn on_dropped_after(&mut self, end: SeqNumber) {
        self.retain(|held| held.0 < end);
        for held in &mut self.held[..usize::from(self.count)] {
            held.1 = held.1.earlier(end);
        }
    }

    fn retain(&mut self, mut stays: impl FnMut(&Block) -> bool) {
        let mut left = 0;
        for number in 0..usize::from(self.count) {
            if stays(&self.held[number]) {
                self.held[left] = self.held[number];
                left += 1;
            }
        }
        self.count = left as u8;
    }

    /// Records that the octets `block` were received twice. Only the next acknowledgement reports it, and one
    /// acknowledgement may answer a burst of segments: a duplicate that touches the one before it becomes one
    /// sequence with it (RFC 2883 §4), any other takes its place.
    pub(super) fn on_duplicate(&mut self, mut block: Block) {
        let pending = self.duplicate;
        if pending.0 != pending.1 && block.0 <= pending.1 && pending.0 <= block.1 {
            block = (block.0.earlier(pending.0), block.1.later(pending.1));
        }
        self.duplicate = block;
    }

    /// Removes the blocks before `next`, which are in order now; others are held if there is a gap.
    pub(super) fn on_in_order(&mut self, next: SeqNumber, has_gap: bool) {
        self.retain(|held| held.1 > next);
        self.incomplete &= has_gap;
    }

    /// Removes all blocks.
    pub(super) const fn clear(&mut self) {
        (self.count, self.incomplete) = (0, false);
    }

    /// Returns the blocks for an acknowledgement that is sent now: a duplicate first, then the block that it
    /// is a part of, by which the sender knows it for one (RFC 2883 §4), then the most recent.
    pub(super) fn report(&mut self) -> Blocks {
        let duplicate = core::mem::replace(&mut self.duplicate, NO_BLOCK);
        let mut blocks = self.held();
        if duplicate.0 == duplicate.1 {
            return blocks;
        }
        let around = |held: &Block| held.0 <= duplicate.0 && duplicate.1 <= held.1;
        if let Some(number) = blocks.iter().position(around) {
            blocks[..=number].rotate_right(1);
        }
        blocks.truncate(BLOCKS - 1);
        blocks.insert(0, duplicate);
        blocks
    }

    /// Returns the blocks held beyond a gap.
    pub(super) fn held(&self) -> Blocks {
        self.held[..usize::from(self.count)].iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn block(left: u32, right: u32) -> Block {
        (SeqNumber(left), SeqNumber(right))
    }

    fn report(blocks: &mut SackBlocks) -> Vec<Block> {
        blocks.report().to_vec()
    }

    /// RFC 2018 §4, case 3 of its examples: every other segment lost.
    #[test]
    fn the_most_recent_comes_first() {
        let mut blocks = SackBlocks::new();
        blocks.on_held(block(5500, 6000));
        blocks.on_held(block(6500, 7000));
        blocks.on_held(block(7500, 8000));
        let reported = report(&mut blocks);
        assert_eq!(reported, [block(7500, 8000), block(6500, 7000), block(5500, 6000)]);
    }

    /// What was dropped is reported no longer.
    #[test]
    fn what_is_dropped_is_not_reported() {
        let mut blocks = SackBlocks::new();
        blocks.on_held(block(7500, 8000));
        blocks.on_held(block(5500, 6000));
        blocks.on_held(block(6500, 7000));
        blocks.on_dropped_after(SeqNumber(6700));
        assert_eq!(report(&mut blocks), [block(6500, 6700), block(5500, 6000)]);
        blocks.on_dropped_after(SeqNumber(6500));
        assert_eq!(report(&mut blocks), [block(5500, 6000)]);
    }

    /// RFC 2883 §4: of several segments that one acknowledgement answers, the duplicate came first.
    #[test]
    fn the_block_around_a_duplicate_comes_second() {
        let mut blocks = SackBlocks::new();
        blocks.on_held(block(1000, 2000));
        blocks.on_duplicate(block(1500, 1600));
        for left in [3000, 5000, 7000] {
            blocks.on_held(block(left, left + 1000));
        }
        let expected = [block(1500, 1600), block(1000, 2000), block(7000, 8000), block(5000, 6000)];
        assert_eq!(report(&mut blocks), expected);
        let expected = [block(7000, 8000), block(5000, 6000), block(3000, 4000), block(1000, 2000)];
        assert_eq!(report(&mut blocks), expected, "once, and the most recent are first again");
    }

    #[test]
    fn runs_grow_together() {
        let mut blocks = SackBlocks::new();
        blocks.on_held(block(100, 200));
        blocks.on_held(block(300, 400));
        blocks.on_held(block(200, 300));
        assert_eq!(report(&mut blocks), [block(100, 400)]);
        blocks.on_in_order(SeqNumber(400), false);
        assert!(blocks.is_empty());
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut blocks = SackBlocks::new();
        for n in 0..6 {
            blocks.on_held(block(n * 100, n * 100 + 50));
        }
        let reported = report(&mut blocks);
        assert_eq!(reported.len(), 4);
        assert_eq!((reported[0], reported[3]), (block(500, 550), block(200, 250)));
        assert!(blocks.is_incomplete(), "0 to 50 and 100 to 150 are in no block");
        blocks.on_in_order(SeqNumber(150), true);
        assert!(blocks.is_incomplete(), "they may lie beyond all blocks");
        blocks.on_in_order(SeqNumber(550), false);
        assert!(blocks.is_empty());
    }

    /// RFC 2883 §4: duplicates that touch are one sequence, in whatever order they come; of others the last
    /// is reported.
    #[test]
    fn duplicates_that_touch_are_one_block() {
        for (first, second) in [(block(10, 20), block(20, 30)), (block(20, 30), block(10, 20))] {
            let mut blocks = SackBlocks::new();
            blocks.on_duplicate(first);
            blocks.on_duplicate(second);
            assert_eq!(report(&mut blocks), [block(10, 30)]);
            blocks.on_duplicate(block(30, 40));
            assert_eq!(report(&mut blocks), [block(30, 40)], "each is reported once");
        }
        let mut blocks = SackBlocks::new();
        blocks.on_duplicate(block(10, 20));
        blocks.on_duplicate(block(21, 30));
        assert_eq!(report(&mut blocks), [block(21, 30)]);
        // No octets at 0, as where nothing is pending, do not touch anything.
        blocks.on_duplicate(block(0, 10));
        assert_eq!(report(&mut blocks), [block(0, 10)]);
    }

    /// RFC 2883 §4: the duplicate is the first block, once.
    #[test]
    fn a_duplicate_is_told_once() {
        let mut blocks = SackBlocks::new();
        blocks.on_held(block(100, 200));
        blocks.on_duplicate(block(50, 60));
        assert_eq!(report(&mut blocks), [block(50, 60), block(100, 200)]);
        assert_eq!(report(&mut blocks), [block(100, 200)]);
    }
}
