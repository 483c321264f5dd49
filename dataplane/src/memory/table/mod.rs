//! The STag table of a core, and the checks before every access.
//!
//! A slot holds a registration or a window. Control decides which slots there are and whose they are
//! ([`insert`], [`allocate_window`], [`remove`]): it is the Privileged Resource Manager of RFC 5042, and an
//! application shows its right to memory by owning it. The table is the RNIC's part: which memory a stream
//! may access, and until when. What a slot grants at a time changes faster, by work requests and by the
//! peers' own messages: an STag is *invalidated* (`invalidation`), and from then on the slot grants nothing,
//! until it is *bound* or *registered* again under another key (`binding`), or removed. Where a device has
//! several cores, each with a table of its own, no two of them grant what only one may: see
//! [`claims`](super::claims).
//!
//! Sends and Read Responses read from memory when they are built, and again when they are retransmitted. They
//! count as readers ([`retain`], [`release`]), and while there are any, the slot keeps its memory and its
//! key. An invalidation does not wait for readers: every new access is refused at once, and messages already
//! owed to the peer still read by [`retained`]. Operations that would give the STag other memory, or free it,
//! are refused until the last reader is done.
//!
//! [`insert`]: StagTable::insert
//! [`allocate_window`]: StagTable::allocate_window
//! [`remove`]: StagTable::remove
//! [`retain`]: StagTable::retain
//! [`release`]: StagTable::release
//! [`retained`]: StagTable::retained
// Requirements: DDP-8.3-06, DDP-8.3.2-05, DDP-8.3-04, DDP-8.3.1-01, RDMAP-8.1-01

mod binding;
#[cfg(test)]
mod cores_tests;
mod errors;
mod invalidation;
#[cfg(test)]
mod model_tests;
mod streams;
#[cfg(test)]
mod tests;

pub use errors::{BindError, InsertError, InvalidationError, RemoveError};

use std::sync::Arc;

use super::claims::{Claims, CoreClaims, Holder};
use super::{Access, AccessError, Accessor, Grant, ProtectionDomainId, Region, STag, Target};
use crate::limits;
use streams::Streams;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Registration {
        /// The rights of the first registration; fast registrations cannot have more.
        allowed: Access,
        /// Windows bound to it.
        windows: u32,
    },
    Window {
        /// The slot of the registration that it is bound to, while it is bound.
        of: u16,
    },
}

/// The octets that a slot grants, and the rights. A window that is not bound grants none.
#[derive(Debug)]
struct GrantedRange {
    region: Region,
    /// The offset in the region at which it begins.
    start: usize,
    octets: usize,
    /// The Tagged Offset of its first octet.
    base_to: u64,
    access: Access,
    /// The only stream that may use it, if it is for one.
    stream: Option<u32>,
}

impl GrantedRange {
    /// The range `to..to + octets`, if it lies inside.
    // Requirements: DDP-7.1-12 to DDP-7.1-14, DDP-8.1-01, DDP-8.3.1-04
    #[inline]
    fn target(&self, to: u64, octets: usize) -> Result<Target<'_>, AccessError> {
        debug_assert!(self.base_to.checked_add(self.octets as u64).is_some(), "a range that wraps");
        // The granted range does not wrap, so nothing inside does. An offset from `to` below its base is
        // beyond all of it.
        let offset = to.wrapping_sub(self.base_to);
        match (self.octets as u64).checked_sub(offset) {
            Some(left) if octets as u64 <= left => {
                Ok(Target { region: &self.region, offset: self.start + offset as usize, octets })
            }
            // A sum of exactly 2^64 wraps too (ambiguity A-14).
            _ if to.checked_add(octets as u64).is_none() => Err(AccessError::Wrap),
            _ => Err(AccessError::Bounds),
        }
    }
}

/// Memory that requests have retained: what they send is built from ranges of it.
#[derive(Clone, Copy, Debug)]
pub struct RetainedMemory<'t>(&'t GrantedRange);

impl<'t> RetainedMemory<'t> {
    /// The range of `octets` octets from Tagged Offset `to` on, which was checked.
    #[inline]
    pub fn target(self, to: u64, octets: usize) -> Option<Target<'t>> {
        self.0.target(to, octets).ok()
    }
}

/// A slot that a stream of this end may read from: its ranges are still to be checked.
#[derive(Debug)]
pub struct Readable<'t> {
    slot: &'t mut Slot,
}

impl Readable<'_> {
    /// Counts one more reader, as [`StagTable::check_retained`] does, if `octets` octets from `to` on lie in
    /// the memory. Returns true if they do.
    #[inline]
    pub fn retain(&mut self, to: u64, octets: usize) -> bool {
        let inside = self.slot.granted.as_ref().is_some_and(|granted| granted.target(to, octets).is_ok());
        self.slot.readers += u32::from(inside);
        inside
    }

    /// Whether frames carry copies of the memory, never references to it.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.slot.granted.as_ref().is_none_or(|granted| granted.region.is_copied())
    }
}

#[derive(Debug)]
struct Slot {
    /// The key that work requests and peers must name.
    key: u16,
    /// The key that control has assigned, and uses to remove the slot.
    named: u16,
    /// Whether the STag is valid: only then new accesses are allowed.
    valid: bool,
    /// Control takes the slot back: it does not become valid again.
    revoked: bool,
    /// The number of what it grants in the claim to the slot; 0 for what control has registered.
    grant: u8,
    kind: Kind,
    pd: ProtectionDomainId,
    granted: Option<GrantedRange>,
    /// Sends and Read Responses that still read from this memory by this STag.
    readers: u32,
}

impl Slot {
    /// Checks an access by the slot's key, as [`StagTable::check`] does.
    #[inline]
    fn check(
        &self,
        accessor: Accessor,
        access: Access,
        to: u64,
        octets: usize,
    ) -> Result<Target<'_>, AccessError> {
        let granted = self.granted.as_ref().filter(|_| self.valid).ok_or(AccessError::InvalidStag)?;
        // Both kinds of association.
        // Requirements: DDP-8.2-04
        if self.pd != accessor.pd || granted.stream.is_some_and(|stream| stream != accessor.stream) {
            return Err(AccessError::NotAssociated);
        }
        let target = granted.target(to, octets)?;
        // A window is for peers: this end has the registration.
        let local = !access.intersects(Access::REMOTE);
        if !granted.access.contains(access) || local && matches!(self.kind, Kind::Window { .. }) {
            return Err(AccessError::Rights);
        }
        Ok(target)
    }
}

/// The STags of one core. Each core has its own table, with the slots that control gives it.
#[derive(Debug)]
pub struct StagTable {
    slots: Vec<Option<Slot>>,
    /// The slots that are for one stream.
    streams: Streams,
    /// This core's view of what it and the others may grant; `None` if it is the only core of its device.
    claims: Option<CoreClaims>,
    /// How many changes other cores had to follow.
    changes: u32,
}

impl StagTable {
    /// An empty table with every slot that an STag can name.
    pub fn new() -> Self {
        Self::with_slots(limits::REGIONS_PER_CORE)
    }

    /// An empty table of `slots` slots. STags of later slots are refused.
    pub fn with_slots(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| None).collect(),
            streams: Streams::new(slots),
            claims: None,
            changes: 0,
        }
    }

    /// Creates the table of core number `core` of several, which share `claims`.
    ///
    /// # Panics
    ///
    /// If there are fewer claims than slots.
    pub fn with_claims(slots: usize, claims: Arc<Claims>, core: u8) -> Self {
        let claims = CoreClaims::new(claims, core);
        assert!(slots <= claims.slots(), "{slots} slots, {} claims", claims.slots());
        Self { claims: Some(claims), ..Self::with_slots(slots) }
    }

    /// Registers `grant` under `stag`, which the caller chose. If another core of the device had it before
    /// and has invalidated it or given it another name, it is invalid here from the beginning.
    ///
    /// # Errors
    ///
    /// [`InsertError`].
    // Requirements: DDP-8.3-01, DDP-8.3-02, DDP-8.3-03, DDP-8.3.1-05, DDP-8.3.1-06
    pub fn insert(&mut self, stag: STag, grant: Grant) -> Result<(), InsertError> {
        grant.check()?;
        let Grant { region, pd, stream, base_to, access } = grant;
        let octets = region.len();
        self.take_slot(stag, pd, Kind::Registration { allowed: access, windows: 0 })?;
        self.grant(stag, 0, GrantedRange { region, start: 0, octets, base_to, access, stream });
        if let Some(claims) = &self.claims
            && !claims.enter(stag, Holder::Registration)
        {
            self.invalidate_slot(stag.index());
        }
        Ok(())
    }

    /// Makes `stag`, which the caller chose, a window of `pd` that is bound to nothing.
    ///
    /// # Errors
    ///
    /// [`InsertError::NoSlot`].
    pub fn allocate_window(&mut self, stag: STag, pd: ProtectionDomainId) -> Result<(), InsertError> {
        self.take_slot(stag, pd, Kind::Window { of: 0 })?;
        if let Some(claims) = &self.claims {
            claims.enter(stag, Holder::Nobody);
        }
        Ok(())
    }

    fn take_slot(&mut self, stag: STag, pd: ProtectionDomainId, kind: Kind) -> Result<(), InsertError> {
        match self.slots.get_mut(stag.index()) {
            Some(slot @ None) if stag.0 != 0 => {
                let key = stag.key();
                *slot = Some(Slot {
                    key,
                    named: key,
                    valid: false,
                    revoked: false,
                    grant: 0,
                    kind,
                    pd,
                    granted: None,
                    readers: 0,
                });
                Ok(())
            }
            _ => Err(InsertError::NoSlot),
        }
    }

    /// Makes `stag` the valid STag of its slot: it grants `granted`, as `number` in the claim.
    fn grant(&mut self, stag: STag, number: u8, granted: GrantedRange) {
        let Some(Some(slot)) = self.slots.get_mut(stag.index()) else { return };
        self.streams.set(stag.index(), granted.stream);
        slot.key = stag.key();
        slot.grant = number;
        slot.valid = true;
        slot.granted = Some(granted);
    }

    /// Removes the slot that control has assigned as `stag`, whatever its key is now. When this returns, the
    /// memory is not accessible any more, and a window is unbound.
    ///
    /// # Errors
    ///
    /// [`RemoveError`]; the STag is as it was.
    // Requirements: DDP-8.3.1-07
    pub fn remove(&mut self, stag: STag) -> Result<(), RemoveError> {
        self.check_unused(stag)?;
        self.leave_slot(stag);
        self.streams.set(stag.index(), None);
        self.slots[stag.index()] = None;
        Ok(())
    }

    /// Checks that [`remove`](Self::remove) would remove the slot now. Nothing changes.
    ///
    /// # Errors
    ///
    /// [`RemoveError`].
    pub fn check_unused(&self, stag: STag) -> Result<(), RemoveError> {
        match self.named_slot(stag).ok_or(RemoveError::Unknown)? {
            Slot { readers: 1.., .. } => Err(RemoveError::InUse),
            Slot { kind: Kind::Registration { windows: 1.., .. }, .. } => Err(RemoveError::WindowsBound),
            Slot { kind: Kind::Registration { .. } | Kind::Window { .. }, .. } => Ok(()),
        }
    }

    /// Returns true if windows are bound to the registration that control has assigned as `stag`, or read by
    /// responses still.
    pub fn has_windows(&self, stag: STag) -> bool {
        let kind = self.named_slot(stag).map(|slot| slot.kind);
        matches!(kind, Some(Kind::Registration { windows: 1.., .. }))
    }

    /// Makes the slot that control has assigned as `stag` invalid, whatever its key is now: nothing new can
    /// use the memory by it, and no work request makes it valid again. Readers still read.
    pub fn revoke(&mut self, stag: STag) {
        if self.named_slot(stag).is_none() {
            return;
        }
        self.leave_slot(stag);
        if let Some(Some(slot)) = self.slots.get_mut(stag.index()) {
            slot.revoked = true;
        }
    }

    /// Makes the slot of `stag` invalid, and gives back what this core holds of it.
    fn leave_slot(&mut self, stag: STag) {
        self.invalidate_slot(stag.index());
        if let Some(claims) = &self.claims {
            claims.leave(stag);
        }
    }

    /// The slot that control has assigned as `stag`, whatever its key is now.
    fn named_slot(&self, stag: STag) -> Option<&Slot> {
        self.slots.get(stag.index())?.as_ref().filter(|slot| slot.named == stag.key())
    }

    /// The Protection Domain of the slot that control has assigned as `stag`, if there is one.
    pub fn owner(&self, stag: STag) -> Option<ProtectionDomainId> {
        self.named_slot(stag).map(|slot| slot.pd)
    }

    #[inline]
    fn slot(&self, stag: STag) -> Option<&Slot> {
        match self.slots.get(stag.index()) {
            Some(Some(slot)) if slot.key == stag.key() => Some(slot),
            _ => None,
        }
    }

    #[inline]
    fn slot_mut(&mut self, stag: STag) -> Option<&mut Slot> {
        match self.slots.get_mut(stag.index()) {
            Some(Some(slot)) if slot.key == stag.key() => Some(slot),
            _ => None,
        }
    }

    /// Checks an access of `octets` octets at Tagged Offset `to` by `accessor`. Reading by this end itself is
    /// an access of no right: [`Access::empty`].
    ///
    /// # Errors
    ///
    /// The first check that fails, in the order of [`AccessError`].
    // Requirements: DDP-4.2-05, DDP-8.2-01, DDP-8.2-02, DDP-8.3.1-02 to DDP-8.3.1-04
    #[inline]
    pub fn check(
        &self,
        stag: STag,
        accessor: Accessor,
        access: Access,
        to: u64,
        octets: usize,
    ) -> Result<Target<'_>, AccessError> {
        let slot = self.slot(stag).ok_or(AccessError::InvalidStag)?;
        slot.check(accessor, access, to, octets)
    }

    /// Makes a [`check`](Self::check) of local memory, and counts one more send or Read Response that reads
    /// from it, until [`release`](Self::release), if the access is allowed.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    #[inline]
    pub fn check_retained(
        &mut self,
        stag: STag,
        accessor: Accessor,
        access: Access,
        to: u64,
        octets: usize,
    ) -> Result<(), AccessError> {
        let slot = self.slot_mut(stag).ok_or(AccessError::InvalidStag)?;
        slot.check(accessor, access, to, octets)?;
        slot.readers += 1;
        Ok(())
    }

    /// Makes the part of [`check_retained`](Self::check_retained) that is the same for all ranges of `stag`,
    /// for reading by this end. `None` if it fails.
    #[inline]
    pub fn readable(&mut self, stag: STag, accessor: Accessor) -> Option<Readable<'_>> {
        let slot = self.slot_mut(stag)?;
        let base_to = slot.granted.as_ref()?.base_to;
        slot.check(accessor, Access::empty(), base_to, 0).ok()?;
        Some(Readable { slot })
    }

    /// Counts one more send or Read Response that reads from `stag`, until [`release`](Self::release). After
    /// a [`check`](Self::check), which says whether it may.
    pub fn retain(&mut self, stag: STag) {
        if let Some(slot) = self.slot_mut(stag).filter(|slot| slot.valid) {
            slot.readers += 1;
        }
    }

    /// Takes one [`retain`](Self::retain) back.
    #[inline]
    pub fn release(&mut self, stag: STag) {
        self.release_many(stag, 1);
    }

    /// Takes `readers` [`retain`](Self::retain)s back.
    #[inline]
    pub fn release_many(&mut self, stag: STag, readers: u32) {
        let Some(slot) = self.slot_mut(stag) else { return };
        debug_assert!(slot.readers >= readers, "release without retain");
        slot.readers = slot.readers.saturating_sub(readers);
        if slot.readers == 0 && !slot.valid {
            self.unbind_window(stag.index());
        }
    }

    /// A range that was checked before its reader was [`retain`](Self::retain)ed, for building what it sends,
    /// also after the STag was invalidated. `None` when no request has retained it.
    #[inline]
    pub fn retained(&self, stag: STag, to: u64, octets: usize) -> Option<Target<'_>> {
        self.retained_memory(stag)?.target(to, octets)
    }

    /// All ranges that [`retained`](Self::retained) returns for `stag`. `None` when no request has retained
    /// it.
    #[inline]
    pub fn retained_memory(&self, stag: STag) -> Option<RetainedMemory<'_>> {
        let slot = self.slot(stag).filter(|slot| slot.readers > 0)?;
        slot.granted.as_ref().map(RetainedMemory)
    }
}

impl Grant {
    /// Checks that memory can be granted so.
    ///
    /// # Errors
    ///
    /// [`InsertError::Wrap`], [`InsertError::Constant`].
    pub fn check(&self) -> Result<(), InsertError> {
        self.base_to.checked_add(self.region.len() as u64).ok_or(InsertError::Wrap)?;
        if self.region.is_constant() && self.access.intersects(Access::ANY_WRITE) {
            return Err(InsertError::Constant);
        }
        Ok(())
    }
}

impl Default for StagTable {
    fn default() -> Self {
        Self::new()
    }
}
