//! How a core is told that others have put frames into the rings to it: a bit for each sender, and the waker
//! of its thread.
//!
//! Of four cores, core 2 pushes a burst to core 1 and sets bit 2 in core 1's word. Core 1, which loads the
//! word in each poll, takes all bits out of it and looks into the rings from those cores; the word of a core
//! with nothing to take stays in its own cache. A bit that is taken out covers all that its ring has by then,
//! and what is pushed later is followed by the bit again.

use std::sync::{Arc, OnceLock};

use crate::sync::{AtomicU64, Ordering, fence};
use crate::waker::Waker;

/// Which of several rings to a core have something, a bit for each sender.
#[derive(Debug)]
pub(super) struct Senders(AtomicU64);

impl Senders {
    /// Returns true if there is a bit.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Takes the bits out.
    #[inline]
    pub(super) fn take(&self) -> u64 {
        // Most polls find none, and write nothing to the line then.
        // Acquire: with the bits comes what was pushed before they were set.
        if self.any() { self.0.swap(0, Ordering::Acquire) } else { 0 }
    }
}

/// What other cores write to of a core.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Those of frames that were received.
    pub(super) received: Senders,
    /// Those of frames to send.
    pub(super) to_send: Senders,
    waker: OnceLock<Arc<Waker>>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let none = || Senders(AtomicU64::new(0));
        Self { received: none(), to_send: none(), waker: OnceLock::new() }
    }

    /// Has the core woken by `waker` from now on. Returns false if it has another one already.
    pub(super) fn wake_by(&self, waker: &Arc<Waker>) -> bool {
        Arc::ptr_eq(self.waker.get_or_init(|| waker.clone()), waker)
    }

    /// Announces received frames that `sender` has pushed.
    #[inline]
    pub(super) fn announce_received(&self, sender: u8) {
        self.announce(&self.received, sender);
    }

    /// Announces frames to send that `sender` has pushed.
    #[inline]
    pub(super) fn announce_to_send(&self, sender: u8) {
        self.announce(&self.to_send, sender);
    }

    #[inline]
    fn announce(&self, senders: &Senders, sender: u8) {
        let Some(waker) = self.waker.get() else { return self.announce_early(senders, sender) };
        senders.0.fetch_or(1 << sender, Ordering::SeqCst);
        waker.wake_after_exchange();
    }

    /// Announces frames while the core seems to have no waker yet. The fence pairs with that of
    /// [`Waker::arm`]: either the waker is found now, or it was set too late, and then the poll after it is
    /// armed finds the bit.
    #[cold]
    fn announce_early(&self, senders: &Senders, sender: u8) {
        senders.0.fetch_or(1 << sender, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}
