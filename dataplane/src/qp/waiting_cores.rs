//! The cores that wait for receives in a shared receive queue.

use std::sync::OnceLock;

use super::doorbells::CoreDoorbells;
use crate::sync::{AtomicU64, Ordering};

/// A bit for each core of the device, which is set while the core waits.
#[derive(Debug)]
pub(super) struct WaitingCores {
    /// Those of the device, once a core has waited.
    doorbells: OnceLock<CoreDoorbells>,
    /// Bit `n % 64` of word `n / 64` is that of core `n`.
    mask: [AtomicU64; 4],
}

impl WaitingCores {
    /// Returns that no core waits.
    pub(super) fn new() -> Self {
        Self { doorbells: OnceLock::new(), mask: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Returns the word with the bit of `core`, and the bit.
    fn bit(&self, core: u8) -> (&AtomicU64, u64) {
        (&self.mask[usize::from(core / 64)], 1 << (core % 64))
    }

    /// Adds `core`, of the device whose cores have `doorbells`. A fence follows, and a look at the queue.
    pub(super) fn add(&self, core: u8, doorbells: &CoreDoorbells) {
        self.doorbells.get_or_init(|| doorbells.clone());
        let (word, bit) = self.bit(core);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    /// Rings for `core`, unless another thread does.
    pub(super) fn ring_for(&self, core: u8) {
        let (word, bit) = self.bit(core);
        if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.ring(core);
        }
    }

    /// Rings for each core that waits, once. A fence has come before.
    #[inline]
    pub(super) fn ring_all(&self) {
        // No core has ever waited: there is no bit.
        if self.doorbells.get().is_none() {
            return;
        }
        for (word, first) in self.mask.iter().zip((0..=u8::MAX).step_by(64)) {
            if word.load(Ordering::Relaxed) != 0 {
                self.ring_word(word, first);
            }
        }
    }

    /// Rings for the cores whose bits are set in `word`, of which the lowest is that of core `first`.
    #[cold]
    fn ring_word(&self, word: &AtomicU64, first: u8) {
        let mut bits = word.swap(0, Ordering::AcqRel);
        while bits != 0 {
            self.ring(first + bits.trailing_zeros() as u8);
            bits &= bits - 1;
        }
    }

    fn ring(&self, core: u8) {
        if let Some(doorbells) = self.doorbells.get().and_then(|cores| cores.get(core)) {
            doorbells.ring_shared_receives();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::qp::doorbells::Doorbells;

    /// Each core that waits is rung for once, whatever its number, and no other.
    #[test]
    fn each_waiting_core_is_rung_for_once() {
        let doorbells: CoreDoorbells = (0..256).map(|_| Arc::new(Doorbells::new(1))).collect();
        let rung = || -> Vec<usize> {
            let cores = doorbells.iter().enumerate();
            cores.filter(|(_, bells)| bells.clear_shared_receives()).map(|(core, _)| core).collect()
        };
        let waiting = WaitingCores::new();
        waiting.ring_all();
        for core in [0, 63, 64, 200, 255] {
            waiting.add(core, &doorbells);
        }
        waiting.ring_for(64);
        waiting.ring_for(65);
        assert_eq!(rung(), [64]);
        waiting.ring_all();
        assert_eq!(rung(), [0, 63, 200, 255]);
        waiting.ring_all();
        assert_eq!(rung(), []);
    }
}
