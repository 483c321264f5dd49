//! Changes of what memory grants, by work requests, that other cores have to follow.
//!
//! A work request at core 0 invalidates memory that cores 1 and 2 have too. Core 0 reports the change, the
//! others are asked to follow, and when both have answered, the request is complete. The same holds for
//! memory that is registered anew for all streams of its domain. There a core may have to refuse, because
//! sends still read by the last name: then the registration is taken back at all cores before its request
//! fails. A core that does not answer in time makes the request fail too; it follows when it is polled again.

use warpline_dataplane::memory::{BindError, ChangeId, ChangeResult, Claims, GrantChange};
use warpline_dataplane::ring::Command;
use warpline_dataplane::time::Instant;

use super::deadlines::Deadlines;
use super::names::Table;
use super::outbox::Outbox;
use crate::vocabulary::core_set::CoreSet;

/// A change that is under way.
struct Change {
    /// The core of the work request; `None` once it is no longer polled.
    origin: Option<u8>,
    /// What is granted and not taken back.
    what: GrantChange,
    /// The cores that have not answered.
    awaited: CoreSet,
    /// `Ok` before a core refuses.
    result: ChangeResult,
    until: Instant,
}

/// All changes that are under way.
pub(super) struct Changes {
    table: Table<ChangeId, Change>,
    deadlines: Deadlines<ChangeId>,
}

impl Changes {
    pub(super) fn new() -> Self {
        Self { table: Table::default(), deadlines: Deadlines::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Has `cores` follow a change that core `origin` has made.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        origin: u8,
        what: GrantChange,
        cores: CoreSet,
    ) {
        if cores.is_empty() {
            return out.command_core(origin, Command::EndChange { id: what.id, result: Ok(()) });
        }
        let until = out.until(now);
        let change = Change { origin: Some(origin), what, awaited: cores, result: Ok(()), until };
        self.deadlines.change(what.id, Instant::NEVER, until);
        let before = self.table.insert(what.id, change);
        debug_assert!(before.is_none(), "a change has the name of another");
        out.command_each(cores, || Command::Follow(what));
    }

    /// Has `core`, which has been given the memory meanwhile, follow too.
    pub(super) fn extend(&mut self, out: &mut Outbox, core: u8, what: GrantChange) {
        if let Some(under_way) = self.table.get_mut(&what.id) {
            under_way.awaited = under_way.awaited.with(core);
        }
        out.command_core(core, Command::Follow(what));
    }

    /// Handles the answer of a core. Returns the registration that is to be [taken back](Self::revert), if a
    /// core has refused and all have answered.
    pub(super) fn on_followed(
        &mut self,
        out: &mut Outbox,
        core: u8,
        id: ChangeId,
        result: ChangeResult,
    ) -> Option<GrantChange> {
        let change = self.table.get_mut(&id)?;
        change.awaited = change.awaited.without(core);
        change.result = change.result.and(result);
        let Change { awaited, result, what, .. } = *change;
        if !awaited.is_empty() {
            return None;
        }
        if result.is_err() && what.to.is_some() {
            return Some(what);
        }
        self.end(out, id, result);
        None
    }

    /// Takes a registration back that a core could not follow, or the cores have not in time. Its request
    /// fails when `cores`, which have the memory, have followed this.
    pub(super) fn revert(&mut self, out: &mut Outbox, id: ChangeId, claims: &Claims, cores: CoreSet) {
        let Some(change) = self.table.get_mut(&id) else { return };
        if let Some(wanted) = change.what.to.take() {
            claims.withdraw(wanted.stag, change.what.grant);
        }
        change.awaited = cores;
        let (what, result) = (change.what, change.result);
        out.command_each(cores, || Command::Follow(what));
        if cores.is_empty() {
            self.end(out, id, result);
        }
    }

    /// Ends a change: its work request completes, or fails, as it has before or as `result` says.
    pub(super) fn end(&mut self, out: &mut Outbox, id: ChangeId, result: ChangeResult) {
        let Some(Change { origin, until, result: before, .. }) = self.table.remove(&id) else { return };
        self.deadlines.change(id, until, Instant::NEVER);
        if let Some(origin) = origin {
            out.command_core(origin, Command::EndChange { id, result: before.and(result) });
        }
    }

    /// Returns when the first has taken too long.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Returns a change that has taken too long, once, to be taken back if it is a registration, and
    /// [ended](Self::end).
    pub(super) fn next_overdue(&mut self, now: Instant) -> Option<GrantChange> {
        let id = self.deadlines.pop_due(now)?;
        let change = self.table.get_mut(&id)?;
        change.until = Instant::NEVER;
        change.result = change.result.and(UNANSWERED);
        Some(change.what)
    }

    /// Returns the changes that wait for a core which is no longer polled. Those of its own work requests go
    /// on at the others.
    pub(super) fn on_core_ended(&mut self, core: u8) -> Vec<ChangeId> {
        for change in self.table.values_mut() {
            change.origin = change.origin.filter(|origin| *origin != core);
        }
        let awaited = self.table.iter().filter(|(_, change)| change.awaited.contains(core));
        let mut awaited: Vec<ChangeId> = awaited.map(|(id, _)| *id).collect();
        awaited.sort_unstable();
        awaited
    }
}

/// How a work request fails for which a core has not answered in time.
pub(super) const UNANSWERED: ChangeResult = Err(BindError::Unanswered);

/// How the registration of memory that is gone fails.
pub(super) const GONE: ChangeResult = Err(BindError::InvalidStag);
