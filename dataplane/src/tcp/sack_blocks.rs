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

/// The blocks to be reported. A range that does not fit is reported when it changes again; blocks are
/// advisory.
#[derive(Clone, Debug, Default)]
pub(super) struct SackBlocks {
    held: Blocks,
    duplicate: Option<Block>,
}

impl SackBlocks {
    /// Whether there is something to report.
    pub(super) const fn is_empty(&self) -> bool {
        self.held.is_empty() && self.duplicate.is_none()
    }

    /// Records that the octets `block` are held beyond a gap.
    pub(super) fn on_held(&mut self, mut block: Block) {
        self.held.retain(|held| {
            let apart = held.1 < block.0 || block.1 < held.0;
            if !apart {
                block = (block.0.earlier(held.0), block.1.later(held.1));
            }
            apart
        });
        if self.held.is_full() {
            self.held.pop();
        }
        self.held.insert(0, block);
    }

    /// Records that the octets `block` were received twice. Only the next acknowledgement reports it.
    pub(super) const fn on_duplicate(&mut self, block: Block) {
        self.duplicate = Some(block);
    }

    /// Removes the blocks before `next`, which are in order now.
    pub(super) fn on_in_order(&mut self, next: SeqNumber) {
        if !self.held.is_empty() {
            self.held.retain(|held| held.1 > next);
        }
    }

    /// Removes all blocks.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// Returns the blocks for an acknowledgement that is sent now, the duplicate first.
    pub(super) fn report(&mut self) -> Blocks {
        let mut blocks: Blocks = self.duplicate.take().into_iter().collect();
        blocks.extend(self.held.iter().copied().take(BLOCKS - blocks.len()));
        blocks
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
        let mut blocks = SackBlocks::default();
        blocks.on_held(block(5500, 6000));
        blocks.on_held(block(6500, 7000));
        blocks.on_held(block(7500, 8000));
        let reported = report(&mut blocks);
        assert_eq!(reported, [block(7500, 8000), block(6500, 7000), block(5500, 6000)]);
    }

    #[test]
    fn runs_grow_together() {
        let mut blocks = SackBlocks::default();
        blocks.on_held(block(100, 200));
        blocks.on_held(block(300, 400));
        blocks.on_held(block(200, 300));
        assert_eq!(report(&mut blocks), [block(100, 400)]);
        blocks.on_in_order(SeqNumber(400));
        assert!(blocks.is_empty());
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut blocks = SackBlocks::default();
        for n in 0..6 {
            blocks.on_held(block(n * 100, n * 100 + 50));
        }
        let reported = report(&mut blocks);
        assert_eq!(reported.len(), 4);
        assert_eq!((reported[0], reported[3]), (block(500, 550), block(200, 250)));
    }

    /// RFC 2883 §4: the duplicate is the first block, once.
    #[test]
    fn a_duplicate_is_told_once() {
        let mut blocks = SackBlocks::default();
        blocks.on_held(block(100, 200));
        blocks.on_duplicate(block(50, 60));
        assert_eq!(report(&mut blocks), [block(50, 60), block(100, 200)]);
        assert_eq!(report(&mut blocks), [block(100, 200)]);
    }
}
