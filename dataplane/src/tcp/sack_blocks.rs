//! The blocks that selective acknowledgements report: what is held beyond a gap, most recent first (RFC 2018
//! §4), and what came twice (D-SACK, RFC 2883).

use arrayvec::ArrayVec;

use crate::wire::tcp::SeqNumber;

/// A run of octets: the first, and the place after the last.
pub(super) type Block = (SeqNumber, SeqNumber);

/// As many blocks as an option ever holds.
const BLOCKS: usize = 4;

/// What is to be reported. A run that finds no place among the blocks is told when it changes again; blocks
/// are advice, not promises.
#[derive(Clone, Debug, Default)]
pub(super) struct SackBlocks {
    held: ArrayVec<Block, BLOCKS>,
    duplicate: Option<Block>,
}

impl SackBlocks {
    /// Whether there is something to report.
    pub(super) const fn is_empty(&self) -> bool {
        self.held.is_empty() && self.duplicate.is_none()
    }

    /// Octets `block` are held beyond a gap.
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

    /// Octets `block` came although they were there. The next acknowledgement says so, and only that one.
    pub(super) const fn on_duplicate(&mut self, block: Block) {
        self.duplicate = Some(block);
    }

    /// Everything before `next` is in order.
    pub(super) fn on_in_order(&mut self, next: SeqNumber) {
        if !self.held.is_empty() {
            self.held.retain(|held| held.1 > next);
        }
    }

    /// Nothing is held beyond a gap any more.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// The blocks for an acknowledgement that is sent now, the duplicate first.
    pub(super) fn report(&mut self) -> ArrayVec<Block, BLOCKS> {
        let mut blocks: ArrayVec<Block, BLOCKS> = self.duplicate.take().into_iter().collect();
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

    /// RFC 2883 §4: the duplicate stands first, once.
    #[test]
    fn a_duplicate_is_told_once() {
        let mut blocks = SackBlocks::default();
        blocks.on_held(block(100, 200));
        blocks.on_duplicate(block(50, 60));
        assert_eq!(report(&mut blocks), [block(50, 60), block(100, 200)]);
        assert_eq!(report(&mut blocks), [block(100, 200)]);
    }
}
