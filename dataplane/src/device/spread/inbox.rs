//! What other cores write to of a core: which rings to it have frames.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use crate::inbox::{InboxOwner, Senders};
use crate::waker::Waker;

/// The words of a core for what other cores have pushed.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Those of frames that were received.
    pub(super) received: Senders,
    /// Those of frames to send.
    pub(super) to_send: Senders,
    owner: InboxOwner,
}

/// Those of all cores, each on lines of its own.
pub(super) type Inboxes = Arc<[Arc<CachePadded<Inbox>>]>;

/// Returns those of so many cores.
pub(super) fn inboxes(cores: usize) -> Inboxes {
    (0..cores).map(|_| Arc::new(CachePadded::new(Inbox::new()))).collect()
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { received: Senders::none(), to_send: Senders::none(), owner: InboxOwner::default() }
    }

    /// Has the core woken by `waker` from now on. Returns false if it has another one already.
    pub(super) fn wake_by(&self, waker: &Arc<Waker>) -> bool {
        self.owner.wake_by(waker)
    }

    /// Announces received frames that `sender` has pushed.
    #[inline]
    pub(super) fn announce_received(&self, sender: u8) {
        self.owner.announce(&self.received, sender);
    }

    /// Announces frames to send that `sender` has pushed.
    #[inline]
    pub(super) fn announce_to_send(&self, sender: u8) {
        self.owner.announce(&self.to_send, sender);
    }
}
