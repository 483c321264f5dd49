//! Registrations and windows at the control thread.

use std::collections::HashMap;
use std::time::Duration;

use warpline_dataplane::core::ring::Command;
use warpline_dataplane::memory::{Grant, InsertError, ProtectionDomainId, RemoveError, STag};
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::Control;
use super::names::StagNames;
use super::request::{Deregistration, Reply};
use crate::engine::quota::{Holdings, Quotas};
use crate::handles::driver;
use crate::handles::memory::MemoryError;

/// Time until the second attempt to deregister memory that sends read from. Each attempt has the core look at its queue pairs, and
/// a peer that takes no octets keeps memory in use for as long as it likes: so the time doubles.
const RETRY_NS: u64 = MILLISECOND;
/// The longest it gets.
const RETRY_MAX_NS: u64 = 128 * MILLISECOND;

/// A registration on its way in or out.
enum Pending {
    /// The core has not confirmed it yet.
    Registering(Reply<Result<STag, MemoryError>>),
    /// It is to go.
    Leaving(Leaving),
}

/// How somebody wants memory deregistered.
pub(super) struct Departure {
    /// How long to try again; for as long as it takes without.
    pub(super) patience: Option<Duration>,
    pub(super) reply: Reply<Deregistration>,
}

/// A deregistration that somebody waits for.
struct Leaving {
    reply: Reply<Deregistration>,
    /// What the STag was called last.
    last: STag,
    /// When to give up.
    until: Instant,
    /// When to ask the core again; never while its answer is awaited.
    retry_at: Instant,
    /// How long to wait then.
    retry_ns: u64,
    /// Why the core has kept it so far.
    kept: Option<RemoveError>,
}

/// A registration that is neither on its way in nor out.
#[derive(Clone, Copy)]
enum Settled {
    /// The core has it.
    Registered,
    /// The core let go of it after its owner had stopped waiting for that.
    Gone,
}

/// All registrations of a device. Each is in one of the two tables.
pub(super) struct Registrations {
    names: StagNames,
    pending: HashMap<STag, Pending>,
    settled: HashMap<STag, Settled>,
    /// Whose they are.
    domains: Holdings<ProtectionDomainId, STag>,
}

impl Registrations {
    pub(super) fn new(names: StagNames, quotas: &Quotas) -> Self {
        let domains = Holdings::new(quotas.regions_per_domain);
        Self { names, pending: HashMap::new(), settled: HashMap::new(), domains }
    }

    /// What was called `stag` at first, and `last` in the end, is no more.
    fn forget(&mut self, stag: STag, last: STag) {
        self.names.give_back(last);
        self.domains.give_back(&stag);
    }

    pub(super) fn len(&self) -> usize {
        let registrations = self.pending.len() + self.settled.len();
        debug_assert_eq!(self.names.in_use(), registrations, "a name for each");
        registrations
    }

    /// How many were refused because their domain had its share.
    pub(super) fn refused(&self) -> u64 {
        self.domains.refused()
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl Control {
    pub(super) fn register(&mut self, grant: Grant, reply: Reply<Result<STag, MemoryError>>) {
        let Some(stag) = self.name(grant.pd, reply) else { return };
        self.commands.push(Command::Register { stag, grant });
    }

    pub(super) fn allocate_window(
        &mut self,
        pd: ProtectionDomainId,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        let Some(stag) = self.name(pd, reply) else { return };
        self.commands.push(Command::AllocateWindow { stag, pd });
    }

    /// A name for something of `pd` that the core is about to be told of.
    // DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
    fn name(&mut self, pd: ProtectionDomainId, reply: Reply<Result<STag, MemoryError>>) -> Option<STag> {
        if !self.registrations.domains.has_room(pd) {
            reply.send(Err(MemoryError::Quota));
            return None;
        }
        let Some(stag) = self.registrations.names.take() else {
            reply.send(Err(MemoryError::TooManyRegions));
            return None;
        };
        self.registrations.domains.take(pd, stag);
        self.registrations.pending.insert(stag, Pending::Registering(reply));
        Some(stag)
    }

    /// Work that is posted from now on finds the registration.
    pub(super) fn on_registered(&mut self, stag: STag, result: Result<(), InsertError>) {
        let Some(Pending::Registering(reply)) = self.registrations.pending.remove(&stag) else { return };
        match result {
            Ok(()) => {
                self.registrations.settled.insert(stag, Settled::Registered);
                reply.send(Ok(stag));
            }
            Err(error) => {
                debug_assert_ne!(error, InsertError::NoSlot, "control gave out an STag twice");
                self.registrations.forget(stag, stag);
                reply.send(Err(MemoryError::from(error)));
            }
        }
    }

    pub(super) fn deregister(
        &mut self,
        now: Instant,
        stag: STag,
        last: STag,
        Departure { patience, reply }: Departure,
    ) {
        match self.registrations.settled.remove(&stag) {
            Some(Settled::Registered) => {
                let until = patience.map_or(Instant::NEVER, |patience| now + driver::nanos(patience));
                let leaving =
                    Leaving { reply, last, until, retry_at: Instant::NEVER, retry_ns: RETRY_NS, kept: None };
                self.registrations.pending.insert(stag, Pending::Leaving(leaving));
                self.alarm.set(until);
                self.commands.push(Command::Deregister { stag });
            }
            Some(Settled::Gone) => {
                self.registrations.forget(stag, last);
                reply.send(Deregistration::Done);
            }
            // One owner asks, once at a time.
            None => debug_assert!(false, "nobody owns {stag:?}"),
        }
    }

    pub(super) fn on_deregistered(&mut self, now: Instant, stag: STag, result: Result<(), RemoveError>) {
        if let Err(why) = result {
            if let Some(Pending::Leaving(leaving)) = self.registrations.pending.get_mut(&stag) {
                leaving.kept = Some(why);
                leaving.retry_at = now + leaving.retry_ns;
                leaving.retry_ns = (2 * leaving.retry_ns).min(RETRY_MAX_NS);
                self.alarm.set(leaving.retry_at);
            }
        } else if let Some(Pending::Leaving(leaving)) = self.registrations.pending.remove(&stag) {
            self.registrations.forget(stag, leaving.last);
            leaving.reply.send(Deregistration::Done);
        } else if let Some(settled) = self.registrations.settled.get_mut(&stag) {
            *settled = Settled::Gone;
        }
    }

    /// Tries again what is due and gives up what has taken too long.
    pub(super) fn look_at_registrations(&mut self, now: Instant) {
        let Self { registrations: Registrations { pending, settled, .. }, commands, alarm, .. } = self;
        let given_up = pending.extract_if(|_, pending| match pending {
            Pending::Leaving(leaving) => now >= leaving.until,
            Pending::Registering(_) => false,
        });
        for (stag, pending) in given_up {
            settled.insert(stag, Settled::Registered);
            if let Pending::Leaving(Leaving { reply, kept, .. }) = pending {
                reply.send(match kept {
                    Some(RemoveError::WindowsBound) => Deregistration::WindowsBound,
                    Some(RemoveError::InUse | RemoveError::Unknown) => Deregistration::InUse,
                    None => Deregistration::Unanswered,
                });
            }
        }
        for (stag, pending) in pending {
            let Pending::Leaving(leaving) = pending else { continue };
            if now >= leaving.retry_at {
                leaving.retry_at = Instant::NEVER;
                commands.push(Command::Deregister { stag: *stag });
            }
            alarm.set(leaving.retry_at.min(leaving.until));
        }
    }
}
