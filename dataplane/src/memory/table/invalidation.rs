//! STags lose their validity (RFC 5040 §5.3, RFC 5042): by their owner's work request, by a peer's message,
//! or with the stream they were for.

use super::{Kind, StagTable};
use crate::memory::{Access, Accessor, STag};

/// Who wants an STag invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// This end, by a work request.
    Local,
    /// The peer, by a Send with Invalidate.
    Remote,
}

/// Why an STag was not invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidationError {
    /// There is no such STag, or it is not valid any more.
    #[error("there is no such STag, or it is not valid any more")]
    InvalidStag,
    /// It belongs to another Protection Domain, or (to a peer) to another stream.
    #[error("the STag belongs to another Protection Domain or stream")]
    NotAssociated,
    /// Other streams may use it too, so no peer may take it from them.
    // Requirements: RDMAP-8.1.1-02
    #[error("the STag is for several streams: their peers cannot invalidate it")]
    Shared,
    /// It was never open to any peer.
    #[error("the STag grants no remote access: peers cannot invalidate it")]
    Rights,
    /// Windows are bound to the registration: they go first.
    #[error("windows are bound to the memory: invalidate them first")]
    WindowsBound,
}

impl StagTable {
    /// Makes `stag` invalid: when this returns, nothing new reaches its memory by it. The slot stays its
    /// owner's. What was [`retain`](Self::retain)ed before is still read; until that ends the slot cannot be
    /// bound, registered again or removed.
    ///
    /// The owner may invalidate what belongs to the domain, on any of its streams. A peer may invalidate what
    /// is for its stream alone and grants it something.
    ///
    /// # Errors
    ///
    /// [`InvalidationError`]; the STag is as it was. To a peer, all of them are RDMAP's "STag cannot be
    /// invalidated" (A-17).
    // Requirements: DDP-8.3-02, DDP-8.3.1-07, RDMAP-5.3-08, RDMAP-7.2-04, RDMAP-8.1.1-02
    pub fn invalidate(
        &mut self,
        stag: STag,
        accessor: Accessor,
        by: Invalidation,
    ) -> Result<(), InvalidationError> {
        let slot = self.slot(stag).filter(|slot| slot.valid).ok_or(InvalidationError::InvalidStag)?;
        let granted = slot.granted.as_ref().ok_or(InvalidationError::InvalidStag)?;
        if slot.pd != accessor.pd {
            return Err(InvalidationError::NotAssociated);
        }
        if by == Invalidation::Remote {
            match granted.stream {
                None => return Err(InvalidationError::Shared),
                Some(stream) if stream != accessor.stream => return Err(InvalidationError::NotAssociated),
                Some(_) if !granted.access.intersects(Access::REMOTE) => {
                    return Err(InvalidationError::Rights);
                }
                Some(_) => {}
            }
        }
        if let Kind::Registration { windows: 1.., .. } = slot.kind {
            return Err(InvalidationError::WindowsBound);
        }
        self.invalidate_slot(stag.index());
        Ok(())
    }

    /// Invalidates all that was for `stream` alone, whose queue pair is no more: its number will be that of
    /// another, to which none of it was granted. Windows of other streams stay bound, whatever becomes of the
    /// registration.
    // Requirements: DDP-8.3.1-03
    pub fn end_stream(&mut self, stream: u32) {
        let mut from = 0;
        while let Some(index) = self.streams.find(stream, from) {
            self.invalidate_slot(index);
            from = index + 1;
        }
    }

    /// Nothing new reaches the memory by the slot.
    pub(super) fn invalidate_slot(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        slot.valid = false;
        self.streams.set(index, None);
        if slot.readers == 0 {
            self.let_go(index);
        }
    }

    /// A window that is invalid, and that nobody reads by, lets go of its registration.
    pub(super) fn let_go(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        let Kind::Window { of } = slot.kind else { return };
        if slot.granted.take().is_none() {
            return;
        }
        if let Some(Some(registration)) = self.slots.get_mut(usize::from(of))
            && let Kind::Registration { windows, .. } = &mut registration.kind
        {
            debug_assert!(*windows > 0, "a window that nobody has counted");
            *windows = windows.saturating_sub(1);
        }
    }
}
