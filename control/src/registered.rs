//! What a device keeps under an STag for an application: a registration or a window. It goes with its handle.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::memory::STag;

use crate::device::Shared;
use crate::thread::request::{Deregistration, Request};

/// How long a drop waits until no core reaches the memory.
const DROP_WAIT: Duration = Duration::from_millis(100);

/// A slot of the cores' STag tables. Dropping it takes it back: what does not end soon, ends behind its back.
pub(crate) struct Registered {
    /// `None` once it is taken back.
    shared: Option<Arc<Shared>>,
    /// What it was called first: how control knows it.
    first: STag,
    /// What it is called now, or will be when the work request that calls it so is done.
    stag: STag,
}

impl Registered {
    pub(crate) fn new(shared: Arc<Shared>, stag: STag) -> Self {
        Self { shared: Some(shared), first: stag, stag }
    }

    pub(crate) const fn stag(&self) -> STag {
        self.stag
    }

    /// Gives it another name, which nobody can predict and which is not the one before (RDMAP-8.1.1-03).
    pub(crate) fn rename(&mut self) -> STag {
        if let Some(shared) = &self.shared {
            self.stag = shared.next_name(self.stag);
        }
        self.stag
    }

    /// Whether sends copy their payload from `region` into frames.
    pub(crate) fn copies(&self, region: &warpline_dataplane::memory::Region) -> bool {
        self.shared.as_ref().is_none_or(|shared| !shared.gathers) || region.is_copied()
    }

    /// Takes it back, trying for `patience`.
    pub(crate) fn leave(&mut self, patience: Duration) -> Deregistration {
        let Some(shared) = &self.shared else { return Deregistration::Done };
        let (stag, last) = (self.first, self.stag);
        let left = shared.ask(|reply| Request::Deregister { stag, last, patience: Some(patience), reply });
        // A stopped device has no core that reaches anything.
        let left = left.unwrap_or(Deregistration::Done);
        if left == Deregistration::Done {
            self.shared = None;
        }
        left
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let (stag, last) = (self.first, self.stag);
            // Without a core there is nothing to wait for; with a slow one, control goes on alone.
            if let Ok(done) = shared.begin(|reply| Request::Deregister { stag, last, patience: None, reply })
            {
                let _ = done.recv_timeout(DROP_WAIT);
            }
        }
    }
}
