//! Registrations and windows: from the request of the application to the reply of the core, and back.

use std::time::Duration;

use warpline_dataplane::memory::{Grant, InsertError, ProtectionDomainId, RemoveError, STag};
use warpline_dataplane::ring::Command;
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::deadlines::Deadlines;
use super::holdings::Holdings;
use super::interface::reply::Reply;
use super::interface::request::DeregisterOutcome;
use super::names::{KeyedSequence, StagNames, Table};
use super::outbox::Outbox;
use crate::vocabulary::duration::nanos;
use crate::vocabulary::memory::MemoryError;

/// Time until the second attempt to deregister memory that sends read from. Each attempt has the core look at
/// its queue pairs, and a peer that takes no octets keeps memory in use for as long as it likes: so the time
/// doubles.
const RETRY_NS: u64 = MILLISECOND;
/// The longest it gets.
const RETRY_MAX_NS: u64 = 128 * MILLISECOND;

/// A registration that waits for the core.
enum Pending {
    /// The core has not confirmed it yet.
    Registering(Reply<Result<STag, MemoryError>>),
    /// The application wants it removed.
    Deregistering(Deregistration),
}

/// An application's request to deregister memory or to deallocate a window.
pub(super) struct DeregisterRequest {
    /// The name that it was given first.
    pub(super) stag: STag,
    /// The name that it had last.
    pub(super) last: STag,
    /// How long to try again; `None` without limit.
    pub(super) patience: Option<Duration>,
    pub(super) reply: Reply<DeregisterOutcome>,
}

/// A deregistration under way.
struct Deregistration {
    reply: Reply<DeregisterOutcome>,
    /// The name that the memory had last.
    last: STag,
    /// When to give up.
    until: Instant,
    /// When to ask the core again; never while its reply is awaited.
    retry_at: Instant,
    /// How long to wait before the next attempt.
    retry_ns: u64,
    /// Why the core has kept the memory so far.
    kept: Option<RemoveError>,
}

impl Deregistration {
    /// Returns when there is something to do, if the core does not answer before.
    fn deadline(&self) -> Instant {
        self.retry_at.min(self.until)
    }
}

/// A registration that does not wait for the core.
#[derive(Clone, Copy)]
enum Settled {
    /// The core has it.
    Registered,
    /// The core has removed it after the application had stopped waiting for that.
    Removed,
}

/// All registrations of a device. Each is in one of the two tables.
pub(super) struct Registrations {
    names: StagNames,
    pending: Table<STag, Pending>,
    settled: Table<STag, Settled>,
    /// Those of deregistrations under way.
    deadlines: Deadlines<u32>,
    /// The Protection Domain of each.
    domain_of: Table<STag, ProtectionDomainId>,
    domains: Holdings<ProtectionDomainId>,
}

impl Registrations {
    pub(super) fn new(random: KeyedSequence, capacity: usize, regions_per_domain: usize) -> Self {
        let (names, domains) = (StagNames::new(random, capacity), Holdings::new(regions_per_domain));
        Self {
            names,
            pending: Table::default(),
            settled: Table::default(),
            deadlines: Deadlines::new(),
            domain_of: Table::default(),
            domains,
        }
    }

    /// Frees the name of a registration, `stag` at first and `last` in the end.
    fn forget(&mut self, stag: STag, last: STag) {
        self.names.give_back(last);
        if let Some(pd) = self.domain_of.remove(&stag) {
            self.domains.give_back(pd);
        }
    }

    pub(super) fn len(&self) -> usize {
        let registrations = self.pending.len() + self.settled.len();
        debug_assert_eq!(self.names.in_use(), registrations, "a name for each");
        registrations
    }

    /// Returns how many were refused because their domain had its quota.
    pub(super) fn refused(&self) -> u64 {
        self.domains.refused()
    }

    /// Returns true if a registration waits for the core.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn register(
        &mut self,
        out: &mut Outbox,
        grant: Grant,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        if let Some(stag) = self.name(out, grant.pd, reply) {
            out.command(Command::Register { stag, grant });
        }
    }

    pub(super) fn allocate_window(
        &mut self,
        out: &mut Outbox,
        pd: ProtectionDomainId,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        if let Some(stag) = self.name(out, pd, reply) {
            out.command(Command::AllocateWindow { stag, pd });
        }
    }

    /// Names a registration or window of `pd`, which waits for the core from now on.
    // Requirements: DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
    fn name(
        &mut self,
        out: &mut Outbox,
        pd: ProtectionDomainId,
        reply: Reply<Result<STag, MemoryError>>,
    ) -> Option<STag> {
        if !self.domains.has_room(pd) {
            out.reply(reply, Err(MemoryError::Quota));
            return None;
        }
        let Some(stag) = self.names.allocate() else {
            out.reply(reply, Err(MemoryError::TooManyRegions));
            return None;
        };
        self.domains.add(pd);
        self.domain_of.insert(stag, pd);
        self.pending.insert(stag, Pending::Registering(reply));
        Some(stag)
    }

    /// Completes a registration: work that is posted from now on finds it.
    pub(super) fn on_registered(&mut self, out: &mut Outbox, stag: STag, result: Result<(), InsertError>) {
        let Some(Pending::Registering(reply)) = self.pending.remove(&stag) else { return };
        match result {
            Ok(()) => {
                self.settled.insert(stag, Settled::Registered);
                out.reply(reply, Ok(stag));
            }
            Err(error) => {
                debug_assert_ne!(error, InsertError::NoSlot, "an STag was given out twice");
                self.forget(stag, stag);
                out.reply(reply, Err(MemoryError::of_insert(error)));
            }
        }
    }

    pub(super) fn deregister(&mut self, now: Instant, out: &mut Outbox, request: DeregisterRequest) {
        let DeregisterRequest { stag, last, patience, reply } = request;
        match self.settled.remove(&stag) {
            Some(Settled::Registered) => {
                let until = patience.map_or(Instant::NEVER, |patience| now + nanos(patience));
                let retry_at = Instant::NEVER;
                let deregistration =
                    Deregistration { reply, last, until, retry_at, retry_ns: RETRY_NS, kept: None };
                self.deadlines.change(stag.0, Instant::NEVER, deregistration.deadline());
                self.pending.insert(stag, Pending::Deregistering(deregistration));
                out.command(Command::Deregister { stag });
            }
            Some(Settled::Removed) => {
                self.forget(stag, last);
                out.reply(reply, DeregisterOutcome::Done);
            }
            // Its one handle asks, and waits for the reply before it asks again.
            None => debug_assert!(false, "{stag:?} is not registered"),
        }
    }

    pub(super) fn on_deregistered(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        stag: STag,
        result: Result<(), RemoveError>,
    ) {
        if let Err(why) = result {
            if let Some(Pending::Deregistering(deregistration)) = self.pending.get_mut(&stag) {
                let before = deregistration.deadline();
                deregistration.kept = Some(why);
                deregistration.retry_at = now + deregistration.retry_ns;
                deregistration.retry_ns = (2 * deregistration.retry_ns).min(RETRY_MAX_NS);
                self.deadlines.change(stag.0, before, deregistration.deadline());
            }
        } else if let Some(Pending::Deregistering(deregistration)) = self.pending.remove(&stag) {
            self.deadlines.change(stag.0, deregistration.deadline(), Instant::NEVER);
            let Deregistration { reply, last, .. } = deregistration;
            self.forget(stag, last);
            out.reply(reply, DeregisterOutcome::Done);
        } else if let Some(settled) = self.settled.get_mut(&stag) {
            *settled = Settled::Removed;
        }
    }

    /// Returns when the next attempt is due, or has taken too long.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Repeats the attempts that are due, and abandons those that have taken too long.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(stag) = self.deadlines.pop_due(now).map(STag) {
            match self.pending.get_mut(&stag) {
                Some(Pending::Deregistering(deregistration)) if now < deregistration.until => {
                    deregistration.retry_at = Instant::NEVER;
                    self.deadlines.change(stag.0, Instant::NEVER, deregistration.until);
                    out.command(Command::Deregister { stag });
                }
                _ => self.abandon(out, stag),
            }
        }
    }

    /// Ends a deregistration that has taken too long: the registration stays as it was.
    fn abandon(&mut self, out: &mut Outbox, stag: STag) {
        let Some(Pending::Deregistering(Deregistration { reply, kept, .. })) = self.pending.remove(&stag)
        else {
            debug_assert!(false, "only deregistrations have deadlines");
            return;
        };
        self.settled.insert(stag, Settled::Registered);
        let outcome = match kept {
            Some(RemoveError::WindowsBound) => DeregisterOutcome::WindowsBound,
            Some(RemoveError::InUse | RemoveError::Unknown) => DeregisterOutcome::InUse,
            None => DeregisterOutcome::Unanswered,
        };
        out.reply(reply, outcome);
    }
}
