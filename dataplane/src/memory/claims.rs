//! The claims of the cores of a device to the slots of STags: which of them may grant the memory of a slot.
//!
//! Each core has an STag table of its own, in which it looks up every access. A work request, a peer's
//! message or the end of a stream changes the table of one core. So that no two tables grant what only one
//! may, every change of what a slot grants is first made here, in one word for each slot that all cores
//! share, by compare-and-swap. No check of a received segment or a send reads the word: only operations that
//! change a grant do, and the insertion of a slot into a table. A device of one core has no claims.
//!
//! The word names the key that the slot had last, who holds it, whether several cores have the slot, and how
//! many windows are bound to it.
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
//! core 1 can bind it: (7, core 1). Meanwhile the word of the memory below has counted one window.
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
    /// This core, by a work request.
    Core(u8),
}

/// How many cores have been given a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    None,
    OneCore,
    SeveralCores,
}

/// The word of a slot: the key in bits 0 to 15, the core in bits 16 to 23, the kind of holder in bits 24 and
/// 25, the spread in bits 26 and 27, the windows from bit 32 on, and one more than the slot below from bit 48
/// on. A slot that is not in use has zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    key: u16,
    holder: Holder,
    spread: Spread,
    /// How many windows grant parts of its memory, at any core.
    windows: u16,
    /// The slot of the registration of which a bound window grants a part.
    of: Option<u16>,
}

impl Claim {
    const UNCLAIMED: u64 =
        Self { key: 0, holder: Holder::Unclaimed, spread: Spread::None, windows: 0, of: None }.word();

    const fn word(self) -> u64 {
        let (kind, core) = match self.holder {
            Holder::Unclaimed => (0, 0),
            Holder::Nobody => (1, 0),
            Holder::Registration => (2, 0),
            Holder::Core(core) => (3, core),
        };
        let spread = match self.spread {
            Spread::None => 0,
            Spread::OneCore => 1,
            Spread::SeveralCores => 2,
        };
        let of = match self.of {
            Some(index) => index as u64 + 1,
            None => 0,
        };
        let held = self.key as u64 | (core as u64) << 16 | kind << 24 | spread << 26;
        held | (self.windows as u64) << 32 | of << 48
    }

    const fn of_word(word: u64) -> Self {
        let holder = match word >> 24 & 3 {
            0 => Holder::Unclaimed,
            1 => Holder::Nobody,
            2 => Holder::Registration,
            _ => Holder::Core((word >> 16) as u8),
        };
        let spread = match word >> 26 & 3 {
            0 => Spread::None,
            1 => Spread::OneCore,
            _ => Spread::SeveralCores,
        };
        let of = ((word >> 48) as u16).checked_sub(1);
        Self { key: word as u16, holder, spread, windows: (word >> 32) as u16, of }
    }

    const fn free(self) -> Self {
        Self { holder: Holder::Nobody, of: None, ..self }
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
    /// Windows grant parts of the memory.
    WindowsBound,
    /// The slot does not grant memory under this key at this core any more.
    Ended,
}

/// The claims to all slots of a device of several cores.
#[derive(Debug)]
pub struct Claims(Box<[AtomicU64]>);

impl Claims {
    /// Returns claims to `slots` slots that nobody has claimed.
    pub fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU64::new(Claim::UNCLAIMED)).collect())
    }

    /// Makes the slot of `stag` one that nobody has claimed. For control, when it frees the name: no core has
    /// the slot, or is about to.
    pub fn forget(&self, stag: STag) {
        if let Some(word) = self.0.get(stag.index()) {
            word.store(Claim::UNCLAIMED, Ordering::Release);
        }
    }

    /// Ends what control has registered as `stag` for one stream, which is no more, if the slot still grants
    /// that or is at no core yet: a core that is given the slot later has it invalid.
    // Requirements: DDP-8.3.1-03
    pub fn end_stream(&self, stag: STag) {
        self.update(stag, |claim| match claim.holder {
            Holder::Unclaimed => Claim { key: stag.key(), ..claim }.free(),
            Holder::Registration if claim.key == stag.key() => claim.free(),
            Holder::Nobody | Holder::Registration | Holder::Core(_) => claim,
        });
    }

    /// Takes back what a fast registration has granted to all streams by the name `stag`, if it still is: not
    /// all cores could follow.
    pub fn withdraw(&self, stag: STag) {
        self.update(stag, |claim| match claim.holder {
            Holder::Registration if claim.key == stag.key() => claim.free(),
            Holder::Unclaimed | Holder::Nobody | Holder::Registration | Holder::Core(_) => claim,
        });
    }

    /// Frees the slot of `stag` if `core` holds it, which is polled no more.
    pub fn end_core(&self, stag: STag, core: u8) {
        self.update(stag, |claim| if claim.holder == Holder::Core(core) { claim.free() } else { claim });
    }

    /// Counts a window less if a claim that has changed was that of a bound window.
    fn count_freed(&self, before: Claim, after: Claim) {
        if let (Some(below), None) = (before.of, after.of) {
            self.unbind(below);
        }
    }

    /// Counts a window less at the slot of the memory that it was bound to.
    fn unbind(&self, below: u16) {
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

    /// Changes a claim as `change` says, unless that fails. Returns what it was. The memory below a window
    /// that is freed has one window less.
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
                Ok(_) => {
                    self.count_freed(before, Claim::of_word(after));
                    return Ok(before);
                }
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
    /// the slot is held by the registration under this key: it grants at this core too what it was registered
    /// for.
    pub(super) fn enter(&self, stag: STag, initial: Holder) -> bool {
        let enter = |claim: Claim| match claim.holder {
            Holder::Unclaimed => Claim { key: stag.key(), holder: initial, ..claim }.spread_further(),
            Holder::Nobody | Holder::Registration | Holder::Core(_) => claim.spread_further(),
        };
        let now = enter(self.claims.update(stag, enter));
        now.holder == Holder::Registration && now.key == stag.key()
    }

    /// Returns true if this core may grant memory by `stag`.
    pub(super) fn is_granted(&self, stag: STag) -> bool {
        self.grants(self.claims.load(stag), stag)
    }

    fn grants(&self, claim: Claim, stag: STag) -> bool {
        let held = claim.holder == Holder::Registration || claim.holder == Holder::Core(self.core);
        held && claim.key == stag.key()
    }

    /// Returns true if another core has granted memory by `stag`, by a work request.
    pub(super) fn is_other_cores(&self, stag: STag) -> bool {
        let claim = self.claims.load(stag);
        claim.key == stag.key() && matches!(claim.holder, Holder::Core(core) if core != self.core)
    }

    /// Frees the slot of `stag`, which this core or another has valid, for another grant. Returns true if
    /// other cores may have it valid too; `at_this_core` says that they have not.
    ///
    /// # Errors
    ///
    /// [`ClaimError::WindowsBound`].
    #[inline(never)]
    pub(super) fn release(&self, stag: STag, at_this_core: bool) -> Result<bool, ClaimError> {
        let before = self.claims.try_update(stag, |claim| match claim.holder {
            Holder::Registration | Holder::Core(_) if claim.key == stag.key() => match claim.windows {
                0 => Ok(claim.free()),
                _ => Err(ClaimError::WindowsBound),
            },
            // It has ended meanwhile.
            _ => Ok(claim),
        })?;
        let is_here = match before.holder {
            _ if before.key != stag.key() => false,
            Holder::Registration => !before.is_at_several(),
            Holder::Core(core) => core == self.core,
            // Another core has just freed it. It is not invalid everywhere yet.
            Holder::Unclaimed | Holder::Nobody => false,
        };
        Ok(!is_here && !at_this_core)
    }

    /// Frees the slot of `stag`, which this core has valid for a stream that is no more.
    pub(super) fn end(&self, stag: STag) {
        self.claims.update(stag, |claim| if self.grants(claim, stag) { claim.free() } else { claim });
    }

    /// Returns whether [`take`](Self::take) would succeed now.
    pub(super) fn can_take(&self, name: STag) -> Result<(), ClaimError> {
        takeable(self.claims.load(name), name)
    }

    /// Takes the slot of `name`, which grants memory by that name from now on: at this core, or at all that
    /// have it if `all_cores` is set.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    pub(super) fn take(&self, name: STag, all_cores: bool) -> Result<(), ClaimError> {
        let holder = if all_cores { Holder::Registration } else { Holder::Core(self.core) };
        let taken = self.claims.try_update(name, |claim| {
            takeable(claim, name)?;
            Ok(Claim { key: name.key(), holder, ..claim })
        });
        taken.map(drop)
    }

    /// Takes the slot of `window` for this core, which grants a part of `registration` by it from now on.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    pub(super) fn bind(&self, window: STag, registration: STag) -> Result<(), ClaimError> {
        self.claims.try_update(registration, |claim| {
            let granted = self.grants(claim, registration).then_some(claim).ok_or(ClaimError::Ended)?;
            let windows = granted.windows.checked_add(1).ok_or(ClaimError::WindowsBound)?;
            Ok(Claim { windows, ..granted })
        })?;
        let below = registration.index() as u16;
        let taken = self.claims.try_update(window, |claim| {
            takeable(claim, window)?;
            Ok(Claim { key: window.key(), holder: Holder::Core(self.core), of: Some(below), ..claim })
        });
        if taken.is_err() {
            self.claims.unbind(below);
        }
        taken.map(drop)
    }

    /// Frees the slot of `stag`, whatever its key is, if no other core grants memory by it: it is removed
    /// from this core.
    pub(super) fn leave(&self, stag: STag) {
        self.claims.update(stag, |claim| match claim.holder {
            Holder::Core(core) if core == self.core => claim.free(),
            Holder::Registration if !claim.is_at_several() => claim.free(),
            Holder::Unclaimed | Holder::Nobody | Holder::Registration | Holder::Core(_) => claim,
        });
    }
}

/// Returns whether a core may grant memory by `name` now.
fn takeable(claim: Claim, name: STag) -> Result<(), ClaimError> {
    match claim.holder {
        _ if claim.key == name.key() => Err(ClaimError::KeyReused),
        Holder::Unclaimed | Holder::Nobody if claim.windows > 0 => Err(ClaimError::WindowsBound),
        Holder::Registration | Holder::Core(_) => Err(ClaimError::Held),
        Holder::Unclaimed | Holder::Nobody => Ok(()),
    }
}
