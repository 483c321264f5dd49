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

    /// Returns its STag, by which the peer addresses it once it is bound. [`binding`](Self::binding) and
    /// [`binding_with_key`](Self::binding_with_key) assign another one each time.
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
        self.registered.rename();
        self.binding_of(region, offset, len, access, addressing)
    }

    /// As [`binding`](Self::binding), with the key that the caller chooses: the low 16 bits of the STag, as
    /// programs count them that were written to `ibv_inc_rkey(3)`.
    ///
    /// The work request fails, and ends the connection, if the window has that key already.
    ///
    /// # Security
    ///
    /// STags should be hard to predict (RFC 5040 §8.1.1). Those with counted keys are not: whoever has had
    /// one of the window can name it under each later key, though the memory was not advertised under that.
    /// The window is open to the peer of one queue pair alone (RFC 5041 §8.3), so that peer is the one to
    /// trust; invalidate the window when the peer is not to reach the memory, and do not rely on a key that
    /// it was not given. A message under way when the window is invalidated may arrive when it is bound
    /// again: if it has the same key by then, the message reaches the new range.
    ///
    /// # Examples
    ///
    /// ```
    /// # use warpline::{Access, Binding, MemoryRegion, MemoryWindow, WindowAddressing};
    /// fn next(window: &mut MemoryWindow, region: &MemoryRegion) -> Binding {
    ///     let key = window.stag().key().wrapping_add(1);
    ///     window.binding_with_key(key, region, 0, 64, Access::REMOTE_READ, WindowAddressing::AsRegistered)
    /// }
    /// ```
    #[must_use = "it is a part of a work request"]
    pub fn binding_with_key(
        &mut self,
        key: u16,
        region: &MemoryRegion,
        offset: usize,
        len: usize,
        access: Access,
        addressing: WindowAddressing,
    ) -> Binding {
        self.registered.rename_to(key);
        self.binding_of(region, offset, len, access, addressing)
    }

    /// Returns the work request to bind it by the name that it has now.
    const fn binding_of(
        &mut self,
        region: &MemoryRegion,
        offset: usize,
        len: usize,
        access: Access,
        addressing: WindowAddressing,
    ) -> Binding {
        let window = self.registered.stag();
        let (to, len, zero_based) =
            (region.to(offset), len as u64, matches!(addressing, WindowAddressing::ZeroBased));
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
