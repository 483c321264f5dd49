//! How a core finds what other cores have put into the rings to it: a bit for each sender, and the waker of
//! its thread.
//!
//! Of four cores, core 2 pushes a burst to core 1 and sets bit 2 in core 1's word. Core 1, which loads the
//! word in each poll, takes all bits out of it and looks into the rings from those cores; the word of a core
//! with nothing to take stays in its own cache. A bit that is taken out covers all that its ring has by then,
//! and what is pushed later is followed by the bit again.

use std::sync::{Arc, OnceLock};

use crate::sync::{AtomicU64, Ordering, fence};
use crate::tally;
use crate::waker::Waker;

/// Which of several rings to a core have something, a bit for each sender.
#[derive(Debug)]
pub(crate) struct Senders(AtomicU64);

impl Senders {
    /// Returns those of rings that are empty.
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns true if there is a bit, for the core.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Takes the bits out, for the core.
    #[inline]
    pub(crate) fn take(&self) -> u64 {
        // Most polls find none, and write nothing to the line then.
        // Acquire: with the bits comes what was pushed before they were set.
        if self.any() {
            tally::record_shared_write();
            self.0.swap(0, Ordering::Acquire)
        } else {
            0
        }
    }

    /// Sets the bit of `sender`.
    #[inline]
    fn set(&self, sender: u8) {
        tally::record_shared_write();
        self.0.fetch_or(1 << sender, Ordering::SeqCst);
    }
}

/// The waker of a core that others put something into rings to, from when the core has one.
#[derive(Debug, Default)]
pub(crate) struct InboxOwner {
    waker: OnceLock<Arc<Waker>>,
}

impl InboxOwner {
    /// Has the core woken by `waker` from now on. Returns false if it has another one already.
    pub(crate) fn wake_by(&self, waker: &Arc<Waker>) -> bool {
        Arc::ptr_eq(self.waker.get_or_init(|| waker.clone()), waker)
    }

    /// Announces by `senders`, a word of this core, what `sender` has pushed, and wakes the core if it
    /// sleeps.
    #[inline]
    pub(crate) fn announce(&self, senders: &Senders, sender: u8) {
        let Some(waker) = self.waker.get() else { return self.announce_early(senders, sender) };
        senders.set(sender);
        waker.wake_after_exchange();
    }

    /// Announces while the core seems to have no waker yet. The fence pairs with that of [`Waker::arm`]:
    /// either the waker is found now, or it was set too late, and then the poll after it is armed finds the
    /// bit.
    #[cold]
    fn announce_early(&self, senders: &Senders, sender: u8) {
        senders.set(sender);
        fence(Ordering::SeqCst);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}
