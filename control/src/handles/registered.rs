//! A name in the STag table of the core, held by a handle: that of a registration or a window.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::memory::STag;

use super::context::DeviceContext;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{DeregisterOutcome, Request};
use crate::vocabulary::core_set::CoreSet;

/// How long a drop waits until no core reaches the memory.
const DROP_WAIT: Duration = Duration::from_millis(100);

/// A slot of the STag table of the core. Dropping it deregisters it: the drop waits for a while, and the
/// engine completes what takes longer.
pub(crate) struct Registered {
    /// `None` once it is deregistered.
    context: Option<Arc<DeviceContext>>,
    /// Its first name: the engine and the core know it by that.
    first: STag,
    /// Its name now, or as soon as the work request that renames it is done.
    stag: STag,
}

impl Registered {
    pub(crate) fn new(context: Arc<DeviceContext>, stag: STag) -> Self {
        Self { context: Some(context), first: stag, stag }
    }

    pub(crate) const fn stag(&self) -> STag {
        self.stag
    }

    /// Renames it: the new name cannot be predicted, and is not the one before.
    // Requirements: RDMAP-8.1.1-03
    pub(crate) fn rename(&mut self) -> STag {
        if let Some(context) = &self.context {
            self.stag = context.next_name(self.stag);
        }
        self.stag
    }

    /// Renames it: the same slot, and the key that the caller has chosen.
    pub(crate) const fn rename_to(&mut self, key: u16) -> STag {
        self.stag = self.stag.with_key(key);
        self.stag
    }

    /// Returns true if sends copy their payload from `region` into frames.
    pub(crate) fn copies(&self, region: &warpline_dataplane::memory::Region) -> bool {
        self.context.as_ref().is_none_or(|context| !context.gathers) || region.is_copied()
    }

    /// Deregisters it, trying for `patience`.
    pub(crate) fn deregister(&mut self, patience: Duration) -> DeregisterOutcome {
        let (stag, last, patience) = (self.first, self.stag, Some(patience));
        self.leave(|reply| Request::Deregister { stag, last, patience, reply })
    }

    /// Deregisters it, and ends the streams that still read from it after `patience`.
    pub(crate) fn revoke(&mut self, patience: Duration) -> DeregisterOutcome {
        let (stag, last) = (self.first, self.stag);
        self.leave(|reply| Request::Revoke { stag, last, patience, reply })
    }

    fn leave(&mut self, request: impl FnOnce(Reply<DeregisterOutcome>) -> Request) -> DeregisterOutcome {
        let Some(context) = &self.context else { return DeregisterOutcome::Done };
        let outcome = context.ask(request);
        // Without control a core that is still polled keeps its memory. One that is not polled reaches none.
        // Requirements: DDP-8.3.1-07
        let without_control = || match context.driven() {
            CoreSet::EMPTY => DeregisterOutcome::Done,
            cores => DeregisterOutcome::Unanswered(cores),
        };
        let outcome = outcome.unwrap_or_else(|_| without_control());
        if outcome == DeregisterOutcome::Done {
            self.context = None;
        }
        outcome
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            let (stag, last) = (self.first, self.stag);
            // Without a core there is nothing to wait for; with a slow one, control goes on alone.
            if let Ok(done) = context.begin(|reply| Request::Deregister { stag, last, patience: None, reply })
            {
                context.wait_briefly(&done, DROP_WAIT);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use warpline_dataplane::device::sim::{self, EndConfig};
    use warpline_dataplane::memory::Access;

    use crate::engine::interface::reply::Reply;
    use crate::engine::interface::request::Request;
    use crate::{AsyncEvent, DeallocateError, DeregisterError, Device, DeviceConfig};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// When control has ended and an application still polls the core, peers still reach the memory, and no
    /// call reports otherwise. Once the core is gone, peers reach nothing.
    // Requirements: DDP-8.3.1-07
    #[test]
    fn memory_of_a_core_that_is_polled_without_control_is_still_registered() {
        let (device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (device, mut driver) =
            Device::start_manual(device, &DeviceConfig::new([198, 18, 0, 1], 24)).unwrap();
        let domain = device.protection_domain();
        let region = driver.run(|| domain.allocate(64, Access::REMOTE_WRITE)).unwrap();
        let window = driver.run(|| domain.allocate_window()).unwrap();
        let reply = Reply::call(|_| panic!("an end of control, for a test"));
        device.context.send(Request::Usage { reply }).unwrap();
        assert_eq!(device.wait_event(PATIENCE), Some(AsyncEvent::DeviceFatal));
        driver.poll_once();
        let Err(DeregisterError::Unanswered { region, .. }) = region.deregister(PATIENCE) else {
            panic!("the core was not asked")
        };
        let Err(DeallocateError::Unanswered { window, .. }) = window.deallocate(PATIENCE) else {
            panic!("the core was not asked")
        };
        drop(driver);
        region.deregister(PATIENCE).unwrap();
        window.deallocate(PATIENCE).unwrap();
    }
}
