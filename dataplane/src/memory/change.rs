//! Changes of what an STag grants that several cores have to carry out.
//!
//! A work request changes the STag table of its own core. What it takes from streams at other cores, or gives
//! to them, those cores have to carry out too, and the request is not complete before they have. Control
//! leads the change: the core of the work request reports it as [`GrantChange`], control has every other core
//! that has the memory *follow* it, and when all have answered, it ends the change at the first core.
//!
//! An owner invalidates memory of a Protection Domain that has queue pairs at cores 0, 1 and 2, at core 1:
//! core 1 frees the claim to the slot and makes its own copy invalid; cores 0 and 2 follow; then the work
//! request completes, and no peer's message is placed in the memory any more.

use crate::memory::{BindError, FastRegistration, STag};

/// Names a change of the device that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId {
    /// The core in the lowest 8 bits, and a number at the core.
    number: u32,
    /// The slot of the queue pair at the core. Another may have it when the change has ended.
    slot: u32,
}

impl ChangeId {
    pub(crate) const fn new(core: u8, number: u32) -> Self {
        Self { number: number << 8 | core as u32, slot: 0 }
    }

    /// Returns the name of the change by the queue pair in `slot`.
    pub(crate) const fn by(self, slot: u32) -> Self {
        Self { slot, ..self }
    }

    /// Returns the slot of the queue pair at the core of the work request.
    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }
}

/// A change of what a slot grants, by a work request, that other cores are to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantChange {
    /// Its name.
    pub id: ChangeId,
    /// The name of the slot that control has assigned.
    pub stag: STag,
    /// The number of the grant of `to` in the claim to the slot: keys recur.
    pub grant: u8,
    /// What the slot grants to all streams of its domain from now on; `None` if it grants nothing.
    pub to: Option<FastRegistration>,
}

/// Where a work request has to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a change that other cores do not follow leaves them with what it takes back"]
pub enum Reach {
    /// At its own core: it is complete.
    ThisCore,
    /// At others too.
    OtherCores(GrantChange),
}

/// How a change has ended: the first refusal of a core, if there was one.
pub type ChangeResult = Result<(), BindError>;
