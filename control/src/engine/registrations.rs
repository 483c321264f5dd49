//! Registrations and windows: from the request of the application to the replies of the cores, and back.
//!
//! Each core has a table of STags of its own, so that no count of readers is shared. A Protection Domain is
//! *present* at a core from its first queue pair there: the core is then given all its registrations, before
//! the command that begins Full Operation, and every later one. A device of one core has all domains there
//! from the beginning.
//!
//! Memory that one core alone has is deregistered by one command. Where several have it, they are asked first
//! whether anything uses it (`Probe`), which changes nothing. Once all have answered that nothing does, no
//! other core is given the memory, and all that have it remove it (`Remove`): from then on nothing new can
//! use it, and what has begun to meanwhile ends. When all have answered, no core reads or writes the memory.
//!
//! Work requests change what a core grants without control. So that a core which is given memory later has
//! nothing valid that was invalidated or named anew before, the cores claim each slot in a word that they
//! share, [`Claims`]; control clears the word when it frees the name. What other cores have to
//! [follow](Changes) control leads.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::memory::{
    ChangeId, ChangeResult, Claims, Grant, GrantChange, InsertError, ProtectionDomainId, RemoveError, STag,
};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::Command;
use warpline_dataplane::time::Instant;

use super::changes::{self, Changes};
use super::deadlines::Deadlines;
use super::deregistration::{Deregistration, Readers, Step};
use super::holdings::Holdings;
use super::interface::reply::Reply;
use super::interface::request::DeregisterOutcome;
use super::names::{KeyedSequence, StagNames, Table};
use super::outbox::Outbox;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::memory::MemoryError;

/// What a name stands for.
enum Named {
    /// Memory.
    Memory(Grant),
    /// A window.
    Window,
}

impl Named {
    /// Returns the queue pair that it is for alone, if it was registered so.
    fn queue_pair(&self) -> Option<QpNumber> {
        match self {
            Self::Memory(grant) => grant.stream.map(QpNumber),
            Self::Window => None,
        }
    }
}

/// How far a registration has come.
enum State {
    /// Cores have not confirmed it yet.
    Registering { reply: Reply<Result<STag, MemoryError>>, awaited: CoreSet, until: Instant },
    /// All that are to have it do.
    Settled,
    /// The application wants it removed.
    Deregistering(Box<Deregistration>),
    /// It is removed everywhere, after the application had stopped waiting for that.
    Removed,
}

/// A registration or a window.
struct Registration {
    pd: ProtectionDomainId,
    named: Named,
    /// How it was registered anew for all streams of the domain, if it still is.
    registered_for_all: Option<GrantChange>,
    /// The cores that have it, or are about to.
    cores: CoreSet,
    state: State,
    /// Its [deadline](Self::deadline), as it was recorded last.
    recorded: Instant,
}

impl Registration {
    /// Returns the command by which a core learns of it.
    fn command(&self, stag: STag) -> Command {
        match &self.named {
            Named::Memory(grant) => Command::Register { stag, grant: grant.clone() },
            Named::Window => Command::AllocateWindow { stag, pd: self.pd },
        }
    }

    /// Returns true if another core may be given it.
    fn may_spread(&self) -> bool {
        match &self.state {
            State::Registering { .. } | State::Settled => true,
            State::Deregistering(deregistration) => !deregistration.is_removing(),
            State::Removed => false,
        }
    }

    /// Returns when there is something to do, if no core answers before.
    fn deadline(&self) -> Instant {
        match &self.state {
            State::Registering { until, .. } => *until,
            State::Deregistering(deregistration) => deregistration.deadline(),
            State::Settled | State::Removed => Instant::NEVER,
        }
    }
}

/// An application's request to deregister memory or to deallocate a window.
pub(super) struct DeregisterRequest {
    /// The name that it was given first.
    pub(super) stag: STag,
    /// The name that it had last.
    pub(super) last: STag,
    /// How long to try again; `None` without limit.
    pub(super) patience: Option<Duration>,
    /// What becomes of streams that read from it then.
    pub(super) readers: Readers,
    pub(super) reply: Reply<DeregisterOutcome>,
}

/// The answer of a core that was asked whether anything uses memory.
#[derive(Clone, Copy)]
pub(super) struct ProbeAnswer {
    pub(super) core: u8,
    /// The first name of the memory.
    pub(super) stag: STag,
    pub(super) attempt: u32,
    pub(super) result: Result<(), RemoveError>,
}

/// All registrations of a device.
pub(super) struct Registrations {
    names: StagNames,
    entries: Table<STag, Registration>,
    /// Of those that wait for a core.
    deadlines: Deadlines<u32>,
    /// Those of each Protection Domain.
    members: Table<ProtectionDomainId, BTreeSet<u32>>,
    /// The cores at which a domain has queue pairs, or had since it had none.
    present: Table<ProtectionDomainId, CoreSet>,
    domains: Holdings<ProtectionDomainId>,
    /// What the cores may grant, if there are several.
    claims: Option<Arc<Claims>>,
    /// The memory that is for one queue pair alone, if there are several cores.
    of_stream: Table<QpNumber, BTreeSet<u32>>,
    /// What cores are to follow.
    changes: Changes,
    /// The number of the last attempt to deregister memory. Each has its own: answers may come late.
    attempt: u32,
}

impl Registrations {
    /// Returns no registrations, and room for `capacity` at the cores that share `claims`.
    pub(super) fn new(
        random: KeyedSequence,
        capacity: usize,
        regions_per_domain: usize,
        claims: Option<Arc<Claims>>,
    ) -> Self {
        Self {
            names: StagNames::new(random, capacity),
            entries: Table::default(),
            deadlines: Deadlines::new(),
            members: Table::default(),
            present: Table::default(),
            domains: Holdings::new(regions_per_domain),
            claims,
            of_stream: Table::default(),
            changes: Changes::new(),
            attempt: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.names.in_use(), self.entries.len(), "a name for each");
        self.entries.len()
    }

    /// Returns how many were refused because their domain had its quota.
    pub(super) fn refused(&self) -> u64 {
        self.domains.refused()
    }

    /// Returns true if a registration or a work request waits for a core.
    pub(super) fn is_pending(&self) -> bool {
        let waits =
            |entry: &Registration| matches!(entry.state, State::Registering { .. } | State::Deregistering(_));
        !self.changes.is_empty() || self.entries.values().any(waits)
    }

    // Where registrations are.

    /// Returns the cores that a registration of `pd` is for now.
    fn cores_of(&self, out: &Outbox, pd: ProtectionDomainId) -> CoreSet {
        let one = out.cores() == 1;
        let present =
            if one { CoreSet::first(1) } else { self.present.get(&pd).copied().unwrap_or_default() };
        present.and(out.alive())
    }

    /// Gives `core` all registrations of `pd`, unless it has them: a queue pair of the domain begins there.
    pub(super) fn adopt(&mut self, out: &mut Outbox, pd: ProtectionDomainId, core: u8) {
        if out.cores() == 1 || !out.alive().contains(core) {
            return;
        }
        let present = self.present.entry(pd).or_default();
        if present.contains(core) {
            return;
        }
        *present = present.with(core);
        for stag in self.members.get(&pd).into_iter().flatten().map(|stag| STag(*stag)) {
            let Some(entry) = self.entries.get_mut(&stag) else { continue };
            if entry.may_spread() && !entry.cores.contains(core) {
                entry.cores = entry.cores.with(core);
                if let State::Registering { awaited, .. } = &mut entry.state {
                    *awaited = awaited.with(core);
                }
                out.command_core(core, entry.command(stag));
                if let Some(change) = entry.registered_for_all {
                    self.changes.extend(out, core, change);
                }
            }
        }
    }

    /// Records that `pd` has no queue pair any more. What cores have of it they keep until it is removed.
    pub(super) fn forget_presence(&mut self, pd: ProtectionDomainId) {
        self.present.remove(&pd);
    }

    /// Ends what was registered for the queue pair `number` alone, which is destroyed: a core that is given
    /// the memory later has it invalid.
    pub(super) fn end_stream(&mut self, number: QpNumber) {
        let (Some(claims), Some(stags)) = (&self.claims, self.of_stream.remove(&number)) else { return };
        for stag in stags.into_iter().map(STag) {
            claims.end_stream(stag);
        }
    }

    // Registration.

    pub(super) fn register(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        grant: Grant,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        match grant.check() {
            Ok(()) => self.add(now, out, grant.pd, Named::Memory(grant), reply),
            Err(error) => out.reply(reply, Err(MemoryError::of_insert(error))),
        }
    }

    pub(super) fn allocate_window(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        pd: ProtectionDomainId,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        self.add(now, out, pd, Named::Window, reply);
    }

    /// Names a registration or window of `pd`, and gives it to the cores where the domain is present.
    // Requirements: DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
    fn add(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        pd: ProtectionDomainId,
        named: Named,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        if !self.domains.has_room(pd) {
            return out.reply(reply, Err(MemoryError::Quota));
        }
        let Some(stag) = self.names.allocate() else {
            return out.reply(reply, Err(MemoryError::TooManyRegions));
        };
        self.domains.add(pd);
        self.members.entry(pd).or_default().insert(stag.0);
        if let (Some(_), Some(number)) = (&self.claims, named.queue_pair()) {
            self.of_stream.entry(number).or_default().insert(stag.0);
        }
        let cores = self.cores_of(out, pd);
        let until = out.until(now);
        let (state, recorded) = (State::Settled, Instant::NEVER);
        let mut entry = Registration { pd, named, registered_for_all: None, cores, state, recorded };
        out.command_each(cores, || entry.command(stag));
        if cores.is_empty() {
            out.reply(reply, Ok(stag));
        } else {
            entry.state = State::Registering { reply, awaited: cores, until };
        }
        self.entries.insert(stag, entry);
        self.record_deadline(stag);
    }

    /// Handles the answer of a core: work that is posted from now on there finds the registration.
    pub(super) fn on_registered(
        &mut self,
        out: &mut Outbox,
        core: u8,
        stag: STag,
        result: Result<(), InsertError>,
    ) {
        debug_assert_eq!(result, Ok(()), "an STag was given out twice, or not checked");
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        let State::Registering { awaited, .. } = &mut entry.state else { return };
        *awaited = awaited.without(core);
        if awaited.is_empty() {
            self.settle(out, stag, Ok(stag));
        }
    }

    /// Ends a registration that waits for cores.
    fn settle(&mut self, out: &mut Outbox, stag: STag, result: Result<STag, MemoryError>) {
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        if let State::Registering { reply, .. } = core::mem::replace(&mut entry.state, State::Settled) {
            out.reply(reply, result);
        }
        self.record_deadline(stag);
    }

    /// Ends a registration that cores have not confirmed in time: it is taken back.
    fn give_up(&mut self, now: Instant, out: &mut Outbox, stag: STag, silent: CoreSet) {
        self.settle(out, stag, Err(MemoryError::Unanswered(silent)));
        let (readers, reply) = (Readers::Stay, Reply::call(|_| ()));
        let request = DeregisterRequest { stag, last: stag, patience: None, readers, reply };
        self.deregister(now, out, request);
    }

    // Work requests.

    /// Handles a change that a work request at `core` has made: all other cores that have the memory follow.
    pub(super) fn on_grant_changed(&mut self, now: Instant, out: &mut Outbox, core: u8, change: GrantChange) {
        let Some(entry) = self.entries.get_mut(&change.stag) else {
            let result = if change.to.is_some() { changes::GONE } else { Ok(()) };
            return out.command_core(core, Command::EndChange { id: change.id, result });
        };
        let others = entry.cores.and(out.alive()).without(core);
        self.changes.begin(now, out, core, change, others);
        // The report of an invalidation may come after that of what was granted next, at another core.
        let last = entry.registered_for_all.filter(|last| last.grant != change.grant);
        entry.registered_for_all = change.to.map(|_| change).or(last);
        if let (Some(_), Some(number)) = (change.to, entry.named.queue_pair()) {
            remove_from(&mut self.of_stream, number, change.stag);
        }
    }

    /// Handles the answer of a core that was asked to follow a change.
    pub(super) fn on_followed(&mut self, out: &mut Outbox, core: u8, id: ChangeId, result: ChangeResult) {
        if let Some(refused) = self.changes.on_followed(out, core, id, result) {
            self.revert(out, &refused);
        }
    }

    /// Takes a registration back that not all cores have followed.
    fn revert(&mut self, out: &mut Outbox, change: &GrantChange) {
        let (Some(claims), Some(entry)) = (&self.claims, self.entries.get_mut(&change.stag)) else {
            return self.changes.end(out, change.id, changes::GONE);
        };
        entry.registered_for_all = entry.registered_for_all.filter(|last| last.id != change.id);
        self.changes.revert(out, change.id, claims, entry.cores.and(out.alive()));
    }

    // Deregistration.

    pub(super) fn deregister(&mut self, now: Instant, out: &mut Outbox, request: DeregisterRequest) {
        let DeregisterRequest { stag, last, patience, readers, reply } = request;
        let Some(entry) = self.entries.get_mut(&stag) else {
            // Its one handle asks, and waits for the reply before it asks again.
            debug_assert!(false, "{stag:?} is not registered");
            return;
        };
        match &mut entry.state {
            State::Removed => {
                self.forget(stag, last);
                out.reply(reply, DeregisterOutcome::Done);
            }
            // It was removed in part when the application stopped waiting, and is still.
            State::Deregistering(under_way) if under_way.is_abandoned() => {
                under_way.resume(now, reply, last, patience, readers);
                self.record_deadline(stag);
            }
            State::Registering { .. } | State::Settled | State::Deregistering(_) => {
                debug_assert!(
                    matches!(entry.state, State::Settled),
                    "the application has a reply before it asks"
                );
                let begun = Deregistration::new(now, reply, last, patience, readers);
                entry.state = State::Deregistering(Box::new(begun));
                self.attempt(now, out, stag);
            }
        }
    }

    /// Asks the cores that have the memory to remove it, or whether they can.
    fn attempt(&mut self, now: Instant, out: &mut Outbox, stag: STag) {
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        let State::Deregistering(deregistration) = &mut entry.state else { return };
        // A core that is no longer polled reads and writes nothing.
        entry.cores = entry.cores.and(out.alive());
        self.attempt = self.attempt.wrapping_add(1);
        let step = deregistration.begin(entry.cores, self.attempt);
        self.follow(now, out, stag, step);
    }

    /// Handles the answer of a core that was asked to remove the memory.
    pub(super) fn on_deregistered(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        core: u8,
        stag: STag,
        result: Result<(), RemoveError>,
    ) {
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        if result.is_ok() {
            entry.cores = entry.cores.without(core);
        }
        match &mut entry.state {
            State::Deregistering(deregistration) => {
                let step = deregistration.on_answer(now, core, result, entry.cores);
                self.follow(now, out, stag, step);
            }
            // The application had stopped waiting.
            State::Settled if result.is_ok() && entry.cores.is_empty() => entry.state = State::Removed,
            State::Registering { .. } | State::Settled | State::Removed => {}
        }
    }

    /// Handles the answer of a core that was asked whether anything uses the memory.
    pub(super) fn on_probed(&mut self, now: Instant, out: &mut Outbox, answer: ProbeAnswer) {
        let ProbeAnswer { core, stag, attempt, result } = answer;
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        let State::Deregistering(deregistration) = &mut entry.state else { return };
        let step = deregistration.on_probed(now, core, attempt, result, entry.cores);
        self.follow(now, out, stag, step);
    }

    /// Does what a step of a deregistration has come to.
    fn follow(&mut self, now: Instant, out: &mut Outbox, stag: STag, step: Step) {
        match step {
            Step::Wait => {}
            Step::Deregister(core) => out.command_core(core, Command::Deregister { stag }),
            Step::Probe(cores, attempt) => out.command_each(cores, || Command::Probe { stag, attempt }),
            Step::Remove(cores) => out.command_each(cores, || Command::Remove { stag }),
            Step::Revoke(cores) => out.command_each(cores, || Command::Revoke { stag }),
            Step::Again => return self.attempt(now, out, stag),
            Step::Done => return self.end(out, stag),
            Step::Abandon(outcome) => return self.abandon(out, stag, outcome),
        }
        self.record_deadline(stag);
    }

    fn record_deadline(&mut self, stag: STag) {
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        let (before, after) = (entry.recorded, entry.deadline());
        entry.recorded = after;
        self.deadlines.change(stag.0, before, after);
    }

    /// Ends a deregistration: no core has the memory.
    fn end(&mut self, out: &mut Outbox, stag: STag) {
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        let State::Deregistering(deregistration) = core::mem::replace(&mut entry.state, State::Removed)
        else {
            return;
        };
        self.record_deadline(stag);
        if let Some((reply, last)) = deregistration.into_waiter() {
            self.forget(stag, last);
            out.reply(reply, DeregisterOutcome::Done);
        }
    }

    /// Has the application wait no longer. What no core has begun to remove stays as it was.
    fn abandon(&mut self, out: &mut Outbox, stag: STag, outcome: DeregisterOutcome) {
        let Some(entry) = self.entries.get_mut(&stag) else { return };
        let State::Deregistering(deregistration) = &mut entry.state else { return };
        if let Some(reply) = deregistration.abandon() {
            out.reply(reply, outcome);
        }
        if !deregistration.is_removing() {
            entry.state = State::Settled;
        }
        self.record_deadline(stag);
    }

    /// Frees the name of a registration, `stag` at first and `last` in the end.
    fn forget(&mut self, stag: STag, last: STag) {
        self.names.give_back(last);
        if let Some(claims) = &self.claims {
            claims.forget(stag);
        }
        if let Some(Registration { pd, named, .. }) = self.entries.remove(&stag) {
            self.domains.give_back(pd);
            remove_from(&mut self.members, pd, stag);
            if let Some(number) = named.queue_pair() {
                remove_from(&mut self.of_stream, number, stag);
            }
        }
    }

    // Time, and cores that end.

    /// Returns when the next attempt is due, or something has taken too long.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next().min(self.changes.next_deadline())
    }

    /// Repeats the attempts that are due, and abandons what has taken too long.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(overdue) = self.changes.next_overdue(now) {
            if overdue.to.is_some() {
                self.revert(out, &overdue);
            }
            self.changes.end(out, overdue.id, changes::UNANSWERED);
        }
        while let Some(stag) = self.deadlines.pop_due(now).map(STag) {
            let Some(entry) = self.entries.get_mut(&stag) else { continue };
            entry.recorded = Instant::NEVER;
            match &mut entry.state {
                State::Registering { awaited, .. } => {
                    let silent = *awaited;
                    self.give_up(now, out, stag, silent);
                }
                State::Deregistering(deregistration) => {
                    let step = deregistration.on_time(now, entry.cores);
                    self.follow(now, out, stag, step);
                }
                State::Settled | State::Removed => debug_assert!(false, "nothing waits"),
            }
        }
    }

    /// Counts a core that is no longer polled as one that has answered: it reads and writes nothing.
    pub(super) fn on_core_ended(&mut self, now: Instant, out: &mut Outbox, core: u8) {
        let mut stags: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.cores.contains(core))
            .map(|(stag, _)| stag.0)
            .collect();
        stags.sort_unstable();
        // No window is bound by that core any more, and no name is free before that is recorded.
        if let Some(claims) = &self.claims {
            for stag in &stags {
                claims.end_core(STag(*stag), core);
            }
        }
        for id in self.changes.on_core_ended(core) {
            self.on_followed(out, core, id, Ok(()));
        }
        for stag in stags.into_iter().map(STag) {
            let Some(entry) = self.entries.get_mut(&stag) else { continue };
            entry.cores = entry.cores.without(core);
            match &entry.state {
                State::Registering { .. } => self.on_registered(out, core, stag, Ok(())),
                State::Deregistering(_) => self.on_deregistered(now, out, core, stag, Ok(())),
                // A core that adopts its domain is given it.
                State::Settled | State::Removed => {}
            }
        }
    }
}

/// Takes `stag` off the list of `key`, which goes with its last one.
fn remove_from<K: Eq + Hash>(lists: &mut Table<K, BTreeSet<u32>>, key: K, stag: STag) {
    if let Entry::Occupied(mut list) = lists.entry(key) {
        list.get_mut().remove(&stag.0);
        if list.get().is_empty() {
            list.remove();
        }
    }
}

#[cfg(test)]
mod tests;
