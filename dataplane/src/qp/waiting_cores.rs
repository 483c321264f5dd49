//! The cores that wait for receives in a shared receive queue.

use std::sync::OnceLock;

use super::doorbells::CoreDoorbells;
use crate::sync::{AtomicU64, Ordering};

/// A bit for each core of the device, which is set while the core waits.
#[derive(Debug, Default)]
pub(super) struct WaitingCores {
    /// Not there until a core waits.
    cores: OnceLock<Cores>,
}

#[derive(Debug)]
struct Cores {
    doorbells: CoreDoorbells,
    /// Bit `n % 64` of word `n / 64` is that of core `n`.
    mask: Box<[AtomicU64]>,
}

impl WaitingCores {
    /// Adds `core`, of the device whose cores have `doorbells`. A fence follows, and a look at the queue.
    pub(super) fn add(&self, core: u8, doorbells: &CoreDoorbells) {
        let cores = self.cores.get_or_init(|| {
            let words = doorbells.iter().count().div_ceil(u64::BITS as usize);
            let mask = (0..words).map(|_| AtomicU64::new(0)).collect();
            Cores { doorbells: doorbells.clone(), mask }
        });
        if let Some(word) = cores.mask.get(usize::from(core) / 64) {
            word.fetch_or(1 << (core % 64), Ordering::Relaxed);
        }
    }

    /// Rings for `core`, unless another thread does.
    pub(super) fn ring_for(&self, core: u8) {
        let Some(cores) = self.cores.get() else { return };
        let (word, bit) = (cores.mask.get(usize::from(core) / 64), 1 << (core % 64));
        if word.is_some_and(|word| word.fetch_and(!bit, Ordering::AcqRel) & bit != 0) {
            cores.ring(core);
        }
    }

    /// Rings for each core that waits, once. A fence has come before.
    #[inline]
    pub(super) fn ring_all(&self) {
        let Some(cores) = self.cores.get() else { return };
        for (word, first) in cores.mask.iter().zip((0..=u8::MAX).step_by(64)) {
            if word.load(Ordering::Relaxed) != 0 {
                cores.ring_word(word, first);
            }
        }
    }
}

impl Cores {
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
        if let Some(doorbells) = self.doorbells.get(core) {
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
        let waiting = WaitingCores::default();
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
