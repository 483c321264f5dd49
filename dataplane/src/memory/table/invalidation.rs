//! Invalidation of STags (RFC 5040 §5.3, RFC 5042): by a work request of the owner, by a message of the peer,
//! or at the end of the stream they were for.

use super::errors::InvalidationError;
use super::{Kind, Slot, StagTable};
use crate::memory::claims::CoreClaims;
use crate::memory::{Access, Accessor, Invalidation, STag};

impl Slot {
    /// Returns the STag that the slot `index` has now.
    const fn stag(&self, index: usize) -> STag {
        STag::new(index as u16, self.key)
    }

    /// Makes a slot invalid that this core may not grant any more. Only a registration becomes so without
    /// this core, so there is no window to unbind.
    fn refresh(&mut self, index: usize, claims: &CoreClaims) {
        self.valid &= claims.is_granted(self.stag(index));
    }
}

impl StagTable {
    /// Makes `stag` invalid: when this returns, no new access to its memory is allowed. The slot still
    /// belongs to its owner. Readers that have called [`retain`](Self::retain) before still read; until they
    /// are done, the slot cannot be bound, registered again or removed.
    ///
    /// The owner may invalidate any STag of the domain, on any of its streams. A peer may invalidate an STag
    /// that is for its stream alone and grants it remote access.
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
        self.refresh(stag);
        let valid = self.slot(stag).filter(|slot| slot.valid);
        let slot = valid.ok_or_else(|| self.why_invalid(stag, accessor))?;
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
        if let Some(claims) = &self.claims {
            // The stream is at this core, and no other may use the memory.
            let at_this_core = granted.stream == Some(accessor.stream);
            claims.release(stag, at_this_core).map_err(|_| InvalidationError::SeveralCores)?;
        }
        self.invalidate_slot(stag.index());
        Ok(())
    }

    /// Returns why `accessor` cannot invalidate an STag that is not valid at this core.
    fn why_invalid(&self, stag: STag, accessor: Accessor) -> InvalidationError {
        let is_of_domain = |slot: &Slot| slot.pd == accessor.pd;
        match (&self.claims, self.slots.get(stag.index())) {
            (Some(claims), Some(Some(slot))) if is_of_domain(slot) && claims.is_other_cores(stag) => {
                InvalidationError::OtherCore
            }
            _ => InvalidationError::InvalidStag,
        }
    }

    /// Makes the slot of `stag` invalid if it has become so elsewhere: what was registered for one stream
    /// ends at the core of that stream.
    pub(super) fn refresh(&mut self, stag: STag) {
        let Self { slots, claims: Some(claims), .. } = self else { return };
        if let Some(Some(slot)) = slots.get_mut(stag.index()) {
            slot.refresh(stag.index(), claims);
        }
    }

    /// Prepares for `stream`, whose queue pair begins at this core: what was registered for an earlier stream
    /// of the same number, which ended at another core, becomes invalid here too.
    // Requirements: DDP-8.3.1-03
    pub fn begin_stream(&mut self, stream: u32) {
        let Self { slots, claims: Some(claims), streams } = self else { return };
        for index in streams.of(stream) {
            if let Some(Some(slot)) = slots.get_mut(index) {
                slot.refresh(index, claims);
            }
        }
    }

    /// Invalidates all STags that are for `stream` alone, whose queue pair is gone: another queue pair will
    /// have its number, and must not get its grants. Windows of other streams stay bound, whatever becomes of
    /// the registration.
    // Requirements: DDP-8.3.1-03
    pub fn end_stream(&mut self, stream: u32) {
        while let Some(index) = self.streams.find(stream) {
            self.end_grant(index);
            self.invalidate_slot(index);
            self.streams.set(index, None);
        }
    }

    /// Gives back the claim of a valid slot whose only stream ends.
    fn end_grant(&self, index: usize) {
        if let (Some(claims), Some(Some(slot))) = (&self.claims, self.slots.get(index))
            && slot.valid
        {
            let released = claims.release(slot.stag(index), true);
            debug_assert_eq!(released, Ok(()), "its stream was at this core alone");
        }
    }

    /// Makes the STag of the slot invalid.
    pub(super) fn invalidate_slot(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        slot.valid = false;
        if slot.readers == 0 {
            self.unbind_window(index);
        }
    }

    /// Unbinds the window in the slot, if it is invalid and has no readers.
    pub(super) fn unbind_window(&mut self, index: usize) {
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
