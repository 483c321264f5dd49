//! Invalidation of STags (RFC 5040 §5.3, RFC 5042): by a work request of the owner, by a message of the peer,
//! or at the end of the stream they were for.

use super::errors::{BindError, InvalidationError};
use super::{Kind, Slot, StagTable};
use crate::memory::change::{ChangeId, GrantChange, Reach};
use crate::memory::{Access, Accessor, FastRegistration, Invalidation, STag};

impl Slot {
    /// Returns the STag that the slot `index` has now.
    const fn stag(&self, index: usize) -> STag {
        STag::new(index as u16, self.key)
    }

    /// Checks an invalidation of a valid slot. Returns true if it is for the stream of `accessor` alone, so
    /// that no other core can use it.
    fn check_invalidation(&self, accessor: Accessor, by: Invalidation) -> Result<bool, InvalidationError> {
        let granted = self.granted.as_ref().ok_or(InvalidationError::InvalidStag)?;
        if self.pd != accessor.pd {
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
        if let Kind::Registration { windows: 1.., .. } = self.kind {
            return Err(InvalidationError::WindowsBound);
        }
        Ok(granted.stream == Some(accessor.stream))
    }
}

impl StagTable {
    /// Makes `stag` invalid: when this returns, no new access to its memory is allowed. The slot still
    /// belongs to its owner. Readers that have called [`retain`](Self::retain) before still read; until they
    /// are done, the slot cannot be bound, registered again or removed. Where other cores of the device have
    /// it valid, they have to follow: see [`GrantChange`].
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
    ) -> Result<Reach, InvalidationError> {
        let is_elsewhere = self.invalidate_here(stag, accessor, by)?;
        Ok(if is_elsewhere { self.change_elsewhere(stag, None) } else { Reach::ThisCore })
    }

    /// Closes a window of the domain of `accessor`, whatever its key is, as [`invalidate`](Self::invalidate)
    /// does for its owner. One that is not bound stays so: its peer may have closed it, or its stream has
    /// ended, and the owner cannot know.
    ///
    /// # Errors
    ///
    /// [`InvalidationError::InvalidStag`]: there is no such window. [`InvalidationError::NotAssociated`].
    pub fn unbind(&mut self, window: STag, accessor: Accessor) -> Result<Reach, InvalidationError> {
        let slot = match self.slots.get(window.index()) {
            Some(Some(slot)) if matches!(slot.kind, Kind::Window { .. }) => slot,
            _ => return Err(InvalidationError::InvalidStag),
        };
        if slot.pd != accessor.pd {
            return Err(InvalidationError::NotAssociated);
        }
        // Another core may have given it another key.
        let key = self.claims.as_ref().map_or(slot.key, |claims| claims.key(window));
        match self.invalidate(window.with_key(key), accessor, Invalidation::Local) {
            Err(InvalidationError::InvalidStag) => Ok(Reach::ThisCore),
            result => result,
        }
    }

    /// Makes `stag` invalid for the peer of `accessor`, as [`invalidate`](Self::invalidate) does: at no other
    /// core, where it is for that stream alone.
    ///
    /// # Errors
    ///
    /// [`InvalidationError`].
    // Requirements: RDMAP-5.3-08
    #[inline]
    pub(crate) fn invalidate_for_peer(
        &mut self,
        stag: STag,
        accessor: Accessor,
    ) -> Result<(), InvalidationError> {
        let is_elsewhere = self.invalidate_here(stag, accessor, Invalidation::Remote)?;
        debug_assert!(!is_elsewhere, "it was for a stream of this core");
        Ok(())
    }

    /// Makes `stag` invalid at this core. Returns true if others are to follow.
    fn invalidate_here(
        &mut self,
        stag: STag,
        accessor: Accessor,
        by: Invalidation,
    ) -> Result<bool, InvalidationError> {
        self.refresh(stag.index());
        let at_this_core = if let Some(slot) = self.slot(stag).filter(|slot| slot.valid) {
            slot.check_invalidation(accessor, by)?
        } else {
            self.check_elsewhere(stag, accessor, by)?;
            false
        };
        let is_elsewhere = match &self.claims {
            Some(claims) => {
                let released = claims.release(stag, at_this_core);
                released.map_err(|_| InvalidationError::WindowsBound)?
            }
            None => false,
        };
        self.invalidate_slot(stag.index());
        Ok(is_elsewhere)
    }

    /// Checks that the owner invalidates what another core has granted by a work request.
    fn check_elsewhere(
        &self,
        stag: STag,
        accessor: Accessor,
        by: Invalidation,
    ) -> Result<(), InvalidationError> {
        match (&self.claims, self.slots.get(stag.index())) {
            (Some(claims), Some(Some(slot)))
                if by == Invalidation::Local
                    && slot.pd == accessor.pd
                    && claims.is_granted_somewhere(stag) =>
            {
                Ok(())
            }
            _ => Err(InvalidationError::InvalidStag),
        }
    }

    /// Returns the change of the slot of `stag` that other cores are to follow.
    #[cold]
    pub(super) fn change_elsewhere(&mut self, stag: STag, to: Option<FastRegistration>) -> Reach {
        let (Some(claims), Some(Some(slot))) = (&self.claims, self.slots.get(stag.index())) else {
            return Reach::ThisCore;
        };
        self.changes = self.changes.wrapping_add(1);
        let id = ChangeId::new(claims.core(), self.changes);
        Reach::OtherCores(GrantChange { id, stag: stag.with_key(slot.named), grant: slot.grant, to })
    }

    /// Carries out what a work request at another core has changed. Nothing is left to do if the slot is
    /// gone, or was changed again meanwhile.
    ///
    /// # Errors
    ///
    /// [`BindError::InUse`], [`BindError::WindowsBound`]: the slot is invalid here, and cannot grant anything
    /// else yet.
    pub fn follow(&mut self, change: &GrantChange) -> Result<(), BindError> {
        if self.named_slot(change.stag).is_none() {
            return Ok(());
        }
        self.refresh(change.stag.index());
        change.to.map_or(Ok(()), |wanted| self.register_too(&wanted, change.grant))
    }

    /// Makes a slot invalid if it has become so elsewhere.
    #[inline]
    pub(super) fn refresh(&mut self, index: usize) {
        if self.claims.is_some() {
            self.compare_claim(index);
        }
    }

    #[inline(never)]
    fn compare_claim(&mut self, index: usize) {
        if let (Some(claims), Some(Some(slot))) = (&self.claims, self.slots.get(index))
            && slot.valid
            && !claims.is_granted(slot.stag(index), slot.grant)
        {
            self.invalidate_slot(index);
        }
    }

    /// Prepares for `stream`, whose queue pair begins at this core: what was registered for an earlier stream
    /// of the same number, which ended at another core, becomes invalid here too.
    // Requirements: DDP-8.3.1-03
    pub fn begin_stream(&mut self, stream: u32) {
        if self.claims.is_none() {
            return;
        }
        let mut next = self.streams.find(stream);
        while let Some(index) = next {
            self.refresh(index);
            next = self.streams.after(index, stream);
        }
    }

    /// Invalidates all STags that are for `stream` alone, whose queue pair is gone: another queue pair will
    /// have its number, and must not get its grants. Windows of other streams stay bound, whatever becomes of
    /// the registration.
    // Requirements: DDP-8.3.1-03
    pub fn end_stream(&mut self, stream: u32) {
        let mut next = self.streams.find(stream);
        while let Some(index) = next {
            // Before the slot leaves the ring: a search from the beginning would meet the slots of other
            // streams again.
            next = self.streams.after(index, stream);
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
            claims.end(slot.stag(index), slot.grant);
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
        if let Some(claims) = &self.claims {
            claims.unbind(STag::new(index as u16, 0));
        }
    }
}
