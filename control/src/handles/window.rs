//! Memory windows: narrow grants, made and taken back by work requests (RFC 5042 §2.1, DDP-8.3-01 to
//! DDP-8.3-03).

use std::time::Duration;

use warpline_dataplane::memory::{Access, Binding, STag};

use super::memory_region::MemoryRegion;
use super::registered::Registered;
use crate::engine::interface::request::DeregisterOutcome;
use crate::vocabulary::advertisement::Advertisement;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::memory::WindowAddressing;

/// Why a window is still there.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeallocateError {
    /// Read Responses that the peer has not acknowledged read by it.
    #[error("responses to the peer still read by the window: try again, or end the connection")]
    InUse(MemoryWindow),
    /// Cores did not answer in time.
    #[error("{cores} did not answer: is each of them polled?")]
    Unanswered {
        /// The window.
        window: MemoryWindow,
        /// The cores.
        cores: CoreSet,
    },
}

impl DeallocateError {
    /// Returns the window, to try again.
    pub fn into_window(self) -> MemoryWindow {
        match self {
            Self::InUse(window) | Self::Unanswered { window, .. } => window,
        }
    }
}

/// A window: bound to a part of a registration, it opens that part to the peer of one queue pair, until it is
/// invalidated by either end or the queue pair is dropped.
///
/// Binding is a work request, so it costs a peer that waits for an advertisement no more than a place in the
/// send queue before it. Dropping a window unbinds it.
pub struct MemoryWindow {
    registered: Registered,
    /// The Tagged Offset of its first byte, and its bytes, as it was bound last.
    to: u64,
    len: u64,
}

impl MemoryWindow {
    pub(crate) const fn new(registered: Registered) -> Self {
        Self { registered, to: 0, len: 0 }
    }

    /// Returns its STag, by which the peer addresses it once it is bound. [`binding`](Self::binding) assigns
    /// another one each time.
    pub const fn stag(&self) -> STag {
        self.registered.stag()
    }

    /// Returns the work request to post to bind it to bytes `offset..offset + bytes` of `region`: it must
    /// not be bound then, so invalidate it first if it is bound and neither end has: at a queue pair of the
    /// core where it is bound, if the device has several cores. It is the peer's when
    /// the work request is done; an advertisement that is posted after it on the same queue pair arrives
    /// after that.
    ///
    /// `region` must have been registered with [`Access::WINDOW_BIND`], and with [`Access::LOCAL_WRITE`] if
    /// the peer is to change anything. `access` is of [`Access::REMOTE`].
    #[must_use = "it is a part of a work request"]
    pub fn binding(
        &mut self,
        region: &MemoryRegion,
        offset: usize,
        len: usize,
        access: Access,
        addressing: WindowAddressing,
    ) -> Binding {
        let window = self.registered.rename();
        let (to, len, zero_based) =
            (region.to(offset), len as u64, addressing == WindowAddressing::ZeroBased);
        self.to = if zero_based { 0 } else { to };
        self.len = len;
        Binding { window, registration: region.stag(), to, len, access, zero_based }
    }

    /// Returns the Tagged Offset of byte `offset` of the window.
    pub const fn to(&self, offset: u64) -> u64 {
        self.to.wrapping_add(offset)
    }

    /// Returns the advertisement by which a peer reaches bytes `offset..offset + bytes` of the window;
    /// `None` when they do not all lie inside.
    pub fn advertisement(&self, offset: u64, len: u32) -> Option<Advertisement> {
        let inside = offset.checked_add(u64::from(len)).is_some_and(|end| end <= self.len);
        inside.then(|| Advertisement { to: self.to(offset), stag: self.stag(), len })
    }

    /// Takes the window back: afterwards its name names nothing. Tries for `patience` while responses read by
    /// it.
    ///
    /// # Errors
    ///
    /// [`DeallocateError`], with the window, which is as it was.
    pub fn deallocate(mut self, patience: Duration) -> Result<(), DeallocateError> {
        match self.registered.deregister(patience) {
            DeregisterOutcome::Done => Ok(()),
            DeregisterOutcome::InUse | DeregisterOutcome::WindowsBound => Err(DeallocateError::InUse(self)),
            DeregisterOutcome::Unanswered(cores) => Err(DeallocateError::Unanswered { window: self, cores }),
        }
    }
}

impl std::fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("stag", &self.stag())
            .field("to", &self.to)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
