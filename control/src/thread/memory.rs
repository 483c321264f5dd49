//! Registrations at the control thread.

use std::collections::HashMap;
use std::time::Duration;

use warpline_dataplane::core::ring::Command;
use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::names::StagNames;
use super::request::{Deregistration, Reply};
use super::{Alarm, Commands, Control};
use crate::memory::{Addressing, MemoryError};

/// Time between two attempts to deregister memory that sends read from.
const RETRY_NS: u64 = MILLISECOND;

/// A deregistration that somebody waits for.
struct Leaving {
    reply: Reply<Deregistration>,
    /// When to give up.
    until: Instant,
    /// When to ask the core again; never while its answer is awaited.
    retry_at: Instant,
    /// The core's last answer was that sends read from the memory.
    in_use: bool,
}

/// What control knows of a registration.
enum State {
    /// The core has not confirmed it yet.
    Registering(Reply<Result<STag, MemoryError>>),
    /// It stands.
    Registered,
    /// It is to go.
    Leaving(Leaving),
    /// The core let go of it after its owner had stopped waiting.
    Gone,
}

/// All registrations of a device.
pub(super) struct Registrations {
    names: StagNames,
    states: HashMap<STag, State>,
}

impl Registrations {
    pub(super) fn new(names: StagNames) -> Self {
        Self { names, states: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.names.in_use(), self.states.len(), "a name without a registration");
        self.states.len()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.states.values().any(|state| matches!(state, State::Registering(_) | State::Leaving(_)))
    }

    fn forget(&mut self, stag: STag) {
        if self.states.remove(&stag).is_some() {
            self.names.give_back(stag);
        }
    }

    fn ask(commands: &mut Commands, stag: STag, leaving: &mut Leaving) {
        leaving.retry_at = Instant::NEVER;
        commands.push(Command::Deregister { stag });
    }

    /// Tries again what is due and gives up what has taken too long.
    fn look(&mut self, now: Instant, commands: &mut Commands, alarm: &mut Alarm) {
        for (stag, state) in &mut self.states {
            let State::Leaving(leaving) = state else { continue };
            if now >= leaving.until {
                let how = if leaving.in_use { Deregistration::InUse } else { Deregistration::Unanswered };
                if let State::Leaving(leaving) = core::mem::replace(state, State::Registered) {
                    leaving.reply.send(how);
                }
                continue;
            }
            if now >= leaving.retry_at {
                Self::ask(commands, *stag, leaving);
            }
            alarm.set(leaving.retry_at.min(leaving.until));
        }
    }
}

impl Control {
    pub(super) fn register(
        &mut self,
        region: Region,
        pd: ProtectionDomainId,
        access: Access,
        addressing: Addressing,
        reply: Reply<Result<STag, MemoryError>>,
    ) {
        let Some(stag) = self.registrations.names.take() else {
            reply.send(Err(MemoryError::TooManyRegions));
            return;
        };
        let base_to = addressing.base_to(&region);
        self.registrations.states.insert(stag, State::Registering(reply));
        self.commands.push(Command::Register { stag, grant: Grant { region, pd, base_to, access } });
    }

    /// Work that is posted from now on finds the registration.
    pub(super) fn on_registered(&mut self, stag: STag, done: bool) {
        let Some(state) = self.registrations.states.get_mut(&stag) else { return };
        if let State::Registering(reply) = core::mem::replace(state, State::Registered) {
            let answer = if done { Ok(stag) } else { Err(MemoryError::TooManyRegions) };
            reply.send(answer);
            if !done {
                self.registrations.forget(stag);
            }
        }
    }

    pub(super) fn deregister(
        &mut self,
        now: Instant,
        stag: STag,
        patience: Option<Duration>,
        reply: Reply<Deregistration>,
    ) {
        match self.registrations.states.get_mut(&stag) {
            Some(state @ State::Registered) => {
                let until = patience.map_or(Instant::NEVER, |patience| now + crate::driver::nanos(patience));
                let mut leaving = Leaving { reply, until, retry_at: Instant::NEVER, in_use: false };
                Registrations::ask(&mut self.commands, stag, &mut leaving);
                self.alarm.set(until);
                *state = State::Leaving(leaving);
            }
            Some(State::Gone) | None => {
                self.registrations.forget(stag);
                reply.send(Deregistration::Done);
            }
            // One owner asks once at a time.
            Some(State::Registering(_) | State::Leaving(_)) => {}
        }
    }

    pub(super) fn on_deregistered(&mut self, now: Instant, stag: STag, done: bool) {
        let Some(state) = self.registrations.states.get_mut(&stag) else { return };
        match state {
            State::Leaving(_) if done => {
                if let State::Leaving(leaving) = core::mem::replace(state, State::Gone) {
                    leaving.reply.send(Deregistration::Done);
                }
                self.registrations.forget(stag);
            }
            State::Leaving(leaving) => {
                leaving.in_use = true;
                leaving.retry_at = now + RETRY_NS;
                self.alarm.set(leaving.retry_at);
            }
            state @ State::Registered if done => *state = State::Gone,
            State::Registered | State::Registering(_) | State::Gone => {}
        }
    }

    pub(super) fn look_at_registrations(&mut self, now: Instant) {
        self.registrations.look(now, &mut self.commands, &mut self.alarm);
    }
}
