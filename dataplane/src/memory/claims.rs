//! The claims of the cores of a device to the slots of STags: which of them may grant the memory of a slot.
//!
//! Each core has an STag table of its own, in which it looks up every access. A work request, a peer's
//! message or the end of a stream changes the table of one core. So that no two tables grant what only one
//! may, every change of what a slot grants is first made here, in one word for each slot that all cores
//! share, by compare-and-swap. No check of a received segment or a send reads the word: only operations that
//! change a grant do, and the insertion of a slot into a table. A device of one core has no claims.
//!
//! The word names the key that the slot had last and the number of its grant, who holds it, whether several
//! cores have the slot, and how many windows are bound to it. Keys recur: by the number a core knows whether
//! what it has is what the claim is for. Control's registration has number 0, and no later grant has.
//!
//! - *Insertion.* The first core to which control gives the slot claims it for the registration. Another core
//!   finds the claim: under the same key and held by the registration, the slot is valid there too.
//!   Otherwise it was invalidated or named anew meanwhile, and is inserted invalid: with its memory, so that
//!   a fast registration at that core can use it. The same step records that several cores have the slot. It
//!   is one step, so an invalidation comes before it, and the new core has the slot invalid, or after it, and
//!   the new core has to follow it.
//! - *Invalidation* of what a work request has granted at this core, or what the registration granted to a
//!   stream at this core, concerns no other core. What the registration granted to all streams of the domain
//!   can be valid at several cores, and what another core holds is valid there: once the claim is free, those
//!   cores [follow](super::GrantChange), and the work request is complete when they have. It is refused while
//!   windows are bound to the memory, at any core.
//! - *Binding and fast registration* take the claim, if nobody holds it, for the core that carries them out.
//!   What they grant is valid at that core alone, also if another is given the slot later. A fast
//!   registration for all streams takes it for the registration, and the other cores follow.
//! - *The end of a stream* frees what the core holds for it. Other cores keep copies of what the registration
//!   has granted to it. They are valid for a stream that is never at those cores, until another stream has
//!   its number and begins there: then the core looks at the claims first.
//! - *Removal* frees what the core holds. Control [forgets](Claims::forget) the word when it frees the name
//!   of the slot: by then no core has it.
//!
//! Core 0 has a window with key 5 and binds it under key 6: the word changes from (5, nobody) to (6, core 0).
//! Core 1, which still has the window unbound with key 5, is to bind it under key 7. It finds that core 0
//! holds the claim, and refuses. The peer of the stream at core 0 invalidates the window: (6, nobody). Now
//! core 1 can bind it: (7, core 1). Meanwhile the word of the memory below has counted one window: until core
//! 0, where the window was bound, has unbound it. Before that the window cannot be bound anywhere, and core 0
//! does not remove the memory.
// Requirements: DDP-8.3-01, DDP-8.3-02, DDP-8.3.1-03

use core::convert::Infallible;
use std::sync::Arc;

use super::STag;
use crate::sync::{AtomicU64, Ordering};
use crate::tally;

/// Who may grant the memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody has claimed the slot since its name was assigned.
    Unclaimed,
    /// Nobody: it grants nothing.
    Nobody,
    /// Each core that has it with this key, as it was registered.
    Registration,
    /// This core, by a fast registration.
    Core(u8),
    /// This core, by a window that is bound to the registration in the slot `below`.
    Window { core: u8, below: u16 },
    /// Nobody, and this core is still to unbind the window.
    Unbinding { core: u8, below: u16 },
}

impl Holder {
    /// Returns the core that alone may grant the memory.
    const fn core(self) -> Option<u8> {
        match self {
            Self::Core(core) | Self::Window { core, .. } => Some(core),
            Self::Unclaimed | Self::Nobody | Self::Registration | Self::Unbinding { .. } => None,
        }
    }

    const fn grants(self) -> bool {
        matches!(self, Self::Registration | Self::Core(_) | Self::Window { .. })
    }
}

/// How many cores have been given a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    None,
    OneCore,
    SeveralCores,
}

/// The word of a slot: the key in bits 0 to 15, the core in bits 16 to 23, the kind of holder in bits 24 to
/// 26, the spread in bits 27 and 28, the number of the grant in bits 29 to 31, the windows in bits 32 to 47
/// and the slot below in bits 48 to 63. A slot that is not in use has zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    key: u16,
    /// The number of the grant: 0 for control's own, 1 to 7 in turn for those of work requests.
    grant: u8,
    holder: Holder,
    spread: Spread,
    /// How many windows are bound to it, at any core.
    windows: u16,
}

impl Claim {
    const UNCLAIMED: Self =
        Self { key: 0, grant: 0, holder: Holder::Unclaimed, spread: Spread::None, windows: 0 };

    const fn word(self) -> u64 {
        let (kind, core, below) = match self.holder {
            Holder::Unclaimed => (0, 0, 0),
            Holder::Nobody => (1, 0, 0),
            Holder::Registration => (2, 0, 0),
            Holder::Core(core) => (3, core, 0),
            Holder::Window { core, below } => (4, core, below),
            Holder::Unbinding { core, below } => (5, core, below),
        };
        let spread = match self.spread {
            Spread::None => 0,
            Spread::OneCore => 1,
            Spread::SeveralCores => 2,
        };
        let held = self.key as u64 | (core as u64) << 16 | kind << 24;
        held | spread << 27 | (self.grant as u64) << 29 | (self.windows as u64) << 32 | (below as u64) << 48
    }

    const fn of_word(word: u64) -> Self {
        let (core, below) = ((word >> 16) as u8, (word >> 48) as u16);
        let holder = match word >> 24 & 7 {
            0 => Holder::Unclaimed,
            1 => Holder::Nobody,
            2 => Holder::Registration,
            3 => Holder::Core(core),
            4 => Holder::Window { core, below },
            _ => Holder::Unbinding { core, below },
        };
        let spread = match word >> 27 & 3 {
            0 => Spread::None,
            1 => Spread::OneCore,
            _ => Spread::SeveralCores,
        };
        let (grant, windows) = ((word >> 29 & 7) as u8, (word >> 32) as u16);
        Self { key: word as u16, grant, holder, spread, windows }
    }

    /// Returns the claim after the grant has ended.
    const fn free(self) -> Self {
        let holder = match self.holder {
            Holder::Window { core, below } | Holder::Unbinding { core, below } => {
                Holder::Unbinding { core, below }
            }
            Holder::Unclaimed | Holder::Nobody | Holder::Registration | Holder::Core(_) => Holder::Nobody,
        };
        Self { holder, ..self }
    }

    /// Returns the claim after a work request has granted memory by `name`.
    const fn granted(self, name: STag, holder: Holder) -> Self {
        Self { key: name.key(), grant: self.grant % 7 + 1, holder, ..self }
    }

    /// Returns true if it is for the grant of this number by `stag`.
    const fn is_for(self, stag: STag, grant: u8) -> bool {
        self.key == stag.key() && self.grant == grant
    }

    /// Returns the claim after another core has the slot.
    const fn spread_further(self) -> Self {
        let spread = match self.spread {
            Spread::None => Spread::OneCore,
            Spread::OneCore | Spread::SeveralCores => Spread::SeveralCores,
        };
        Self { spread, ..self }
    }

    const fn is_at_several(self) -> bool {
        matches!(self.spread, Spread::SeveralCores)
    }
}

/// Why a core may not change what a slot grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimError {
    /// The slot grants memory under another key.
    Held,
    /// The key is the one that the slot has.
    KeyReused,
    /// Windows are bound to the memory.
    WindowsBound,
    /// The window is not unbound yet where it was bound.
    InUse,
    /// The slot does not grant memory under this key at this core any more.
    Ended,
}

/// The claims to all slots of a device of several cores.
#[derive(Debug)]
pub struct Claims(Box<[AtomicU64]>);

impl Claims {
    /// Returns claims to `slots` slots that nobody has claimed.
    pub fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU64::new(Claim::UNCLAIMED.word())).collect())
    }

    /// Makes the slot of `stag` one that nobody has claimed. For control, when it frees the name: no core has
    /// the slot, or is about to.
    pub fn forget(&self, stag: STag) {
        if let Some(word) = self.0.get(stag.index()) {
            word.store(Claim::UNCLAIMED.word(), Ordering::Release);
        }
    }

    /// Ends what control has registered as `stag` for one stream, which is no more, if the slot still grants
    /// that or is at no core yet: a core that is given the slot later has it invalid.
    // Requirements: DDP-8.3.1-03
    pub fn end_stream(&self, stag: STag) {
        self.update(stag, |claim| match claim.holder {
            Holder::Unclaimed => Claim { key: stag.key(), ..claim }.free(),
            Holder::Registration if claim.is_for(stag, 0) => claim.free(),
            _ => claim,
        });
    }

    /// Takes back what a fast registration has granted to all streams, if it still does: not all cores could
    /// follow. It was the grant of this number by the name `stag`.
    pub fn withdraw(&self, stag: STag, grant: u8) {
        self.update(stag, |claim| match claim.holder {
            Holder::Registration if claim.is_for(stag, grant) => claim.free(),
            _ => claim,
        });
    }

    /// Frees the slot of `stag` if `core`, which is no longer polled, holds it or is to unbind the window.
    pub fn end_core(&self, stag: STag, core: u8) {
        self.update(stag, |claim| if claim.holder == Holder::Core(core) { claim.free() } else { claim });
        self.unbind(stag, core);
    }

    /// Counts a window of `core` as unbound, which grants nothing any more: the memory below has one less.
    fn unbind(&self, window: STag, core: u8) {
        let before = self.update(window, |claim| match claim.holder {
            Holder::Window { core: by, .. } | Holder::Unbinding { core: by, .. } if by == core => {
                Claim { holder: Holder::Nobody, ..claim }
            }
            _ => claim,
        });
        match before.holder {
            Holder::Window { core: by, below } | Holder::Unbinding { core: by, below } if by == core => {
                self.count_less(below);
            }
            _ => {}
        }
    }

    /// Counts one window less at the slot of the memory below.
    fn count_less(&self, below: u16) {
        self.update(STag::new(below, 0), |claim| {
            debug_assert!(claim.windows > 0, "a window that nobody has counted");
            Claim { windows: claim.windows.saturating_sub(1), ..claim }
        });
    }

    fn load(&self, stag: STag) -> Claim {
        Claim::of_word(self.0[stag.index()].load(Ordering::Acquire))
    }

    /// Changes a claim as `change` says. Returns what it was.
    fn update(&self, stag: STag, change: impl Fn(Claim) -> Claim) -> Claim {
        let Ok(before) = self.try_update(stag, |claim| Ok::<_, Infallible>(change(claim)));
        before
    }

    /// Changes a claim as `change` says, unless that fails. Returns what it was.
    fn try_update<E>(&self, stag: STag, change: impl Fn(Claim) -> Result<Claim, E>) -> Result<Claim, E> {
        let word = &self.0[stag.index()];
        let mut current = word.load(Ordering::Acquire);
        loop {
            let before = Claim::of_word(current);
            let after = change(before)?.word();
            if after == current {
                return Ok(before);
            }
            tally::record_shared_write();
            // What the core has read and written by the old claim comes before, and what it reads and writes
            // by the new one after.
            match word.compare_exchange(current, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(before),
                Err(changed) => current = changed,
            }
        }
    }
}

/// The claims as a core sees them.
#[derive(Clone, Debug)]
pub(super) struct CoreClaims {
    claims: Arc<Claims>,
    core: u8,
}

impl CoreClaims {
    pub(super) const fn new(claims: Arc<Claims>, core: u8) -> Self {
        Self { claims, core }
    }

    /// Returns the number of the core.
    pub(super) const fn core(&self) -> u8 {
        self.core
    }

    /// Returns how many slots have claims.
    pub(super) fn slots(&self) -> usize {
        self.claims.0.len()
    }

    /// Records that this core is given the slot of `stag`, for `initial` if it is the first. Returns true if
    /// the slot grants at this core too what it was registered for: nothing has changed that since.
    pub(super) fn enter(&self, stag: STag, initial: Holder) -> bool {
        let enter = |claim: Claim| match claim.holder {
            Holder::Unclaimed => Claim { key: stag.key(), holder: initial, ..claim }.spread_further(),
            _ => claim.spread_further(),
        };
        let now = enter(self.claims.update(stag, enter));
        now.holder == Holder::Registration && now.is_for(stag, 0)
    }

    /// Returns true if this core may grant memory by `stag`, as the grant of this number.
    pub(super) fn is_granted(&self, stag: STag, grant: u8) -> bool {
        let claim = self.claims.load(stag);
        self.may_grant(claim) && claim.is_for(stag, grant)
    }

    fn may_grant(&self, claim: Claim) -> bool {
        claim.holder.grants() && claim.holder.core().is_none_or(|core| core == self.core)
    }

    /// Returns true if memory is granted by `stag`, at this core or another.
    pub(super) fn is_granted_somewhere(&self, stag: STag) -> bool {
        let claim = self.claims.load(stag);
        claim.holder.grants() && claim.key == stag.key()
    }

    /// Returns the key of the slot of `stag`.
    pub(super) fn key(&self, stag: STag) -> u16 {
        self.claims.load(stag).key
    }

    /// Frees the slot of `stag`, which this core or another has valid, for another grant. Returns true if
    /// other cores may have it valid too; `at_this_core` says that they have not.
    ///
    /// # Errors
    ///
    /// [`ClaimError::WindowsBound`].
    #[inline(never)]
    pub(super) fn release(&self, stag: STag, at_this_core: bool) -> Result<bool, ClaimError> {
        let before = self.claims.try_update(stag, |claim| {
            if !claim.holder.grants() || claim.key != stag.key() {
                // It has ended meanwhile.
                return Ok(claim);
            }
            if claim.windows > 0 { Err(ClaimError::WindowsBound) } else { Ok(claim.free()) }
        })?;
        let is_here = match before.holder {
            _ if before.key != stag.key() => false,
            Holder::Registration => !before.is_at_several(),
            // Of one that another core has just freed: it is not invalid everywhere yet.
            holder => holder.core() == Some(self.core),
        };
        Ok(!is_here && !at_this_core)
    }

    /// Frees the slot of `stag`, which this core has valid as the grant of this number, for a stream that is
    /// no more.
    pub(super) fn end(&self, stag: STag, grant: u8) {
        let ends = |claim: Claim| self.may_grant(claim) && claim.is_for(stag, grant);
        self.claims.update(stag, |claim| if ends(claim) { claim.free() } else { claim });
    }

    /// Records that this core has unbound a window: it grants nothing, and nothing reads by it any more.
    pub(super) fn unbind(&self, window: STag) {
        self.claims.unbind(window, self.core);
    }

    /// Returns whether [`take`](Self::take) would succeed now.
    pub(super) fn can_take(&self, name: STag) -> Result<(), ClaimError> {
        takeable(self.claims.load(name), name)
    }

    /// Takes the slot of `name`, which grants memory by that name from now on: at this core, or at all that
    /// have it if `all_cores` is set. Returns the number of the grant.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    pub(super) fn take(&self, name: STag, all_cores: bool) -> Result<u8, ClaimError> {
        self.grant(name, if all_cores { Holder::Registration } else { Holder::Core(self.core) })
    }

    fn grant(&self, name: STag, holder: Holder) -> Result<u8, ClaimError> {
        let grant = |claim| takeable(claim, name).map(|()| claim.granted(name, holder));
        let before = self.claims.try_update(name, grant)?;
        Ok(before.granted(name, holder).grant)
    }

    /// Takes the slot of `window` for this core, which grants a part of `registration` by it from now on,
    /// which this core has valid as the grant of number `of`. Returns the number of the window's grant.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    pub(super) fn bind(&self, window: STag, registration: STag, of: u8) -> Result<u8, ClaimError> {
        self.claims.try_update(registration, |claim| {
            if !self.may_grant(claim) || !claim.is_for(registration, of) {
                return Err(ClaimError::Ended);
            }
            let windows = claim.windows.checked_add(1).ok_or(ClaimError::WindowsBound)?;
            Ok(Claim { windows, ..claim })
        })?;
        let below = registration.index() as u16;
        let granted = self.grant(window, Holder::Window { core: self.core, below });
        if granted.is_err() {
            self.claims.count_less(below);
        }
        granted
    }

    /// Frees the slot of `stag`, whatever its key is, if no other core grants memory by it: it is removed
    /// from this core.
    pub(super) fn leave(&self, stag: STag) {
        self.claims.update(stag, |claim| match claim.holder {
            Holder::Registration if claim.is_at_several() => claim,
            _ if self.may_grant(claim) => claim.free(),
            _ => claim,
        });
    }
}

/// Returns whether a core may grant memory by `name` now.
fn takeable(claim: Claim, name: STag) -> Result<(), ClaimError> {
    match claim.holder {
        _ if claim.key == name.key() => Err(ClaimError::KeyReused),
        _ if claim.holder.grants() => Err(ClaimError::Held),
        Holder::Unbinding { .. } => Err(ClaimError::InUse),
        _ if claim.windows > 0 => Err(ClaimError::WindowsBound),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every claim is found in its word as it was put there, at the ends of each part.
    #[test]
    fn a_word_holds_a_whole_claim() {
        let mut seen = std::collections::BTreeSet::new();
        for (core, below) in [(0, 0), (0, u16::MAX), (u8::MAX, 0), (u8::MAX, u16::MAX)] {
            for holder in [
                Holder::Unclaimed,
                Holder::Nobody,
                Holder::Registration,
                Holder::Core(core),
                Holder::Window { core, below },
                Holder::Unbinding { core, below },
            ] {
                for spread in [Spread::None, Spread::OneCore, Spread::SeveralCores] {
                    for (key, grant, windows) in [(0, 0, 0), (u16::MAX, 0, 0), (0, 7, 0), (0, 0, u16::MAX)] {
                        let claim = Claim { key, grant, holder, spread, windows };
                        assert_eq!(Claim::of_word(claim.word()), claim);
                        seen.insert(claim.word());
                    }
                }
            }
        }
        assert_eq!(seen.len(), (3 + 2 + 4 + 4) * 3 * 4);
        assert_eq!(Claim::UNCLAIMED.word(), 0);
    }

    /// The number of a grant is never that of control's registration again.
    #[test]
    fn grants_are_numbered_in_turn() {
        let mut claim = Claim::UNCLAIMED;
        let numbers: Vec<u8> = (0..9)
            .map(|key| {
                claim = claim.granted(STag::new(0, key), Holder::Registration);
                claim.grant
            })
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 1, 2]);
    }
}
