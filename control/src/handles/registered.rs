//! What a device keeps under an STag for an application: a registration or a window. It goes with its handle.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::memory::STag;

use crate::engine::request::{Deregistration, Request};
use crate::handles::device::Shared;

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
        // DDP-8.3.1-07: without control nothing can be taken from a core that is still polled. One that is not reaches nothing.
        let unheard = || if shared.is_driven() { Deregistration::Unanswered } else { Deregistration::Done };
        let left = left.unwrap_or_else(|_| unheard());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warpline_dataplane::device::sim::{self, EndConfig};
    use warpline_dataplane::memory::Access;

    use crate::engine::request::{Reply, Request};
    use crate::{AsyncEvent, DeallocateError, DeregisterError, Device, DeviceConfig};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// DDP-8.3.1-07: when control has ended and an application still polls the core, peers still reach the memory, and nobody is
    /// told that they do not. Once the core is gone, they do not.
    #[test]
    fn memory_of_a_core_that_is_polled_without_control_is_still_registered() {
        let (device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (device, mut driver) =
            Device::start_manual(device, &DeviceConfig::new([198, 18, 0, 1], 24)).unwrap();
        let domain = device.protection_domain();
        let region = driver.run(|| domain.allocate(64, Access::REMOTE_WRITE)).unwrap();
        let window = driver.run(|| domain.allocate_window()).unwrap();
        let reply = Reply::call(|_| panic!("an end of control, for a test"));
        device.shared.tell(Request::Usage { reply }).unwrap();
        assert_eq!(device.wait_event(PATIENCE), Some(AsyncEvent::DeviceFatal));
        driver.poll_once();
        let Err(DeregisterError::Unanswered(region)) = region.deregister(PATIENCE) else {
            panic!("the core was not asked")
        };
        let Err(DeallocateError::Unanswered(window)) = window.deallocate(PATIENCE) else {
            panic!("the core was not asked")
        };
        drop(driver);
        region.deregister(PATIENCE).unwrap();
        window.deallocate(PATIENCE).unwrap();
    }
}
