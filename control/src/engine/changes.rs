//! Changes of what memory grants, by work requests, that other cores have to follow.
//!
//! A work request at core 0 invalidates memory that cores 1 and 2 have too. Core 0 reports the change, the
//! others are asked to follow, and when both have answered, core 0 is told that the request is complete. The
//! same holds for memory that is registered anew for all streams of its domain. There a core may have to
//! refuse, because sends still read by the last name: then the registration is taken back at all cores before
//! its request fails.

use warpline_dataplane::memory::{BindError, ChangeId, ChangeResult, Claims, GrantChange, STag};
use warpline_dataplane::ring::Command;

use super::names::Table;
use super::outbox::Outbox;
use crate::vocabulary::core_set::CoreSet;

/// A change that is under way.
struct Change {
    /// The core of the work request.
    origin: u8,
    /// The first name of the memory.
    stag: STag,
    /// Its new name, if it is registered anew.
    registered: Option<STag>,
    /// The number of its grant.
    grant: u8,
    /// The cores that have not answered.
    awaited: CoreSet,
    /// `Ok` before a core refuses.
    result: ChangeResult,
}

/// All changes that are under way: at most one for each queue pair.
#[derive(Default)]
pub(super) struct Changes(Table<ChangeId, Change>);

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has `cores` follow a change that core `origin` has made.
    pub(super) fn begin(&mut self, out: &mut Outbox, origin: u8, change: &GrantChange, cores: CoreSet) {
        let GrantChange { id, stag, grant, ref to } = *change;
        if cores.is_empty() {
            return out.command_core(origin, Command::EndChange { id, result: Ok(()) });
        }
        let registered = to.as_ref().map(|wanted| wanted.stag);
        self.0.insert(id, Change { origin, stag, registered, grant, awaited: cores, result: Ok(()) });
        out.command_each(cores, || Command::Follow(*change));
    }

    /// Has `core`, which has been given the memory meanwhile, follow too.
    pub(super) fn extend(&mut self, out: &mut Outbox, core: u8, change: &GrantChange) {
        if let Some(under_way) = self.0.get_mut(&change.id) {
            under_way.awaited = under_way.awaited.with(core);
        }
        out.command_core(core, Command::Follow(*change));
    }

    /// Handles the answer of a core. Returns the first name of memory whose registration is to be taken back:
    /// what all cores are to follow then is [`revert`](Self::revert)ed.
    pub(super) fn on_followed(
        &mut self,
        out: &mut Outbox,
        core: u8,
        id: ChangeId,
        result: ChangeResult,
    ) -> Option<STag> {
        let change = self.0.get_mut(&id)?;
        change.awaited = change.awaited.without(core);
        change.result = change.result.and(result);
        if !change.awaited.is_empty() {
            return None;
        }
        if change.result.is_err() && change.registered.is_some() {
            return Some(change.stag);
        }
        let Change { origin, result, .. } = self.0.remove(&id)?;
        out.command_core(origin, Command::EndChange { id, result });
        None
    }

    /// Takes a registration back that a core could not follow: `cores` have the memory.
    pub(super) fn revert(&mut self, out: &mut Outbox, id: ChangeId, claims: &Claims, cores: CoreSet) {
        let Some(change) = self.0.get_mut(&id).filter(|_| !cores.is_empty()) else {
            return self.abandon(out, id);
        };
        if let Some(name) = change.registered.take() {
            claims.withdraw(name, change.grant);
        }
        change.awaited = cores;
        let Change { stag, grant, .. } = *change;
        out.command_each(cores, || Command::Follow(GrantChange { id, stag, grant, to: None }));
    }

    /// Ends a change of memory that is gone.
    pub(super) fn abandon(&mut self, out: &mut Outbox, id: ChangeId) {
        if let Some(Change { origin, .. }) = self.0.remove(&id) {
            out.command_core(origin, Command::EndChange { id, result: GONE });
        }
    }

    /// Returns the changes that wait for a core which is polled no more. What it has begun itself nobody
    /// waits for.
    pub(super) fn on_core_ended(&mut self, core: u8) -> Vec<ChangeId> {
        self.0.retain(|_, change| change.origin != core);
        let awaited = self.0.iter().filter(|(_, change)| change.awaited.contains(core));
        let mut awaited: Vec<ChangeId> = awaited.map(|(id, _)| *id).collect();
        awaited.sort_unstable();
        awaited
    }
}

/// The end of a registration of memory that is gone.
pub(super) const GONE: ChangeResult = Err(BindError::InvalidStag);
