//! One deregistration: which cores are asked what, and when again.

use std::time::Duration;

use warpline_dataplane::memory::{RemoveError, STag};
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::interface::reply::Reply;
use super::interface::request::DeregisterOutcome;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::duration::nanos;

/// Time until the second attempt to deregister memory that sends read from. Each attempt has cores look at
/// their queue pairs, and a peer that takes no octets keeps memory in use for as long as it likes: so the
/// time doubles.
const RETRY_NS: u64 = MILLISECOND;
/// The longest it gets.
const RETRY_MAX_NS: u64 = 128 * MILLISECOND;

/// How long the cores may take to end the streams that read from memory that is revoked.
const REVOKE_NS: u64 = 2 * SECOND;

/// What becomes of streams that still read from the memory when the application's patience is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// They go on, and so does the registration.
    Stay,
    /// They end.
    End,
    /// They are being ended.
    Ending,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, before a core answers or time passes.
    Wait,
    /// The only core that has the memory removes it, if it can.
    Deregister(u8),
    /// These cores say whether anything uses the memory, for the attempt of this number.
    Probe(CoreSet, u32),
    /// These cores remove it.
    Remove(CoreSet),
    /// These cores remove it, and end the streams that read from it.
    Revoke(CoreSet),
    /// The next attempt.
    Again,
    /// No core has it.
    Done,
    /// The application waits no longer.
    Abandon(DeregisterOutcome),
}

/// What is awaited.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The next attempt.
    Pausing,
    /// The answer of the only core that has the memory.
    Awaiting(u8),
    /// Whether anything uses the memory.
    Probing {
        /// Those that have not answered.
        awaited: CoreSet,
        /// One has answered that something does.
        is_used: bool,
    },
    /// Nothing has used the memory, and nothing new can: those that have not removed it.
    Removing(CoreSet),
}

/// A deregistration under way.
pub(super) struct Deregistration {
    /// The application that waits, and the name that the memory had last.
    waiter: Option<(Reply<DeregisterOutcome>, STag)>,
    /// When it gives up.
    until: Instant,
    /// When the next attempt is due.
    retry_at: Instant,
    /// How long to wait before the one after it.
    retry_ns: u64,
    /// Why a core has kept the memory so far.
    kept: Option<RemoveError>,
    phase: Phase,
    /// The number of the last attempt.
    attempt: u32,
    readers: Readers,
}

impl Deregistration {
    pub(super) fn new(
        now: Instant,
        reply: Reply<DeregisterOutcome>,
        last: STag,
        patience: Option<Duration>,
        readers: Readers,
    ) -> Self {
        Self {
            waiter: Some((reply, last)),
            until: until(now, patience),
            retry_at: Instant::NEVER,
            retry_ns: RETRY_NS,
            kept: None,
            phase: Phase::Pausing,
            attempt: 0,
            readers,
        }
    }

    /// Returns when there is something to do, if no core answers before.
    pub(super) fn deadline(&self) -> Instant {
        self.retry_at.min(self.until)
    }

    /// Returns true if no core may be given the memory any more.
    pub(super) const fn is_removing(&self) -> bool {
        matches!(self.phase, Phase::Removing(_))
    }

    /// Returns true if no application waits for it.
    pub(super) const fn is_abandoned(&self) -> bool {
        self.waiter.is_none()
    }

    /// Has an application wait again.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        reply: Reply<DeregisterOutcome>,
        last: STag,
        patience: Option<Duration>,
        readers: Readers,
    ) {
        if self.readers != Readers::Ending {
            self.readers = readers;
        }
        (self.waiter, self.until) = (Some((reply, last)), until(now, patience));
    }

    /// Has the application wait no longer. Returns its reply.
    pub(super) fn abandon(&mut self) -> Option<Reply<DeregisterOutcome>> {
        self.until = Instant::NEVER;
        self.waiter.take().map(|(reply, _)| reply)
    }

    /// Returns the reply of the application that waits, and the name that the memory had last.
    pub(super) fn into_waiter(self) -> Option<(Reply<DeregisterOutcome>, STag)> {
        self.waiter
    }

    /// Begins the attempt of this number at the cores that have the memory.
    pub(super) fn begin(&mut self, cores: CoreSet, attempt: u32) -> Step {
        self.attempt = attempt;
        if cores.is_empty() {
            return Step::Done;
        }
        if self.is_removing() {
            return self.remove(cores);
        }
        if let Some(core) = cores.only() {
            self.phase = Phase::Awaiting(core);
            return Step::Deregister(core);
        }
        self.phase = Phase::Probing { awaited: cores, is_used: false };
        Step::Probe(cores, self.attempt)
    }

    fn remove(&mut self, cores: CoreSet) -> Step {
        self.phase = Phase::Removing(cores);
        if self.readers == Readers::Ending { Step::Revoke(cores) } else { Step::Remove(cores) }
    }

    /// Handles the answer of a core that was asked to remove the memory; `cores` have it then.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        core: u8,
        result: Result<(), RemoveError>,
        cores: CoreSet,
    ) -> Step {
        if cores.is_empty() {
            return Step::Done;
        }
        self.kept = result.err().or(self.kept);
        match &mut self.phase {
            // Another core was given the memory meanwhile.
            Phase::Awaiting(asked) if *asked == core && result.is_ok() => self.remove(cores),
            Phase::Awaiting(asked) if *asked == core => self.pause(now),
            Phase::Removing(awaited) => {
                *awaited = awaited.without(core);
                let is_next = awaited.is_empty();
                if is_next { self.try_later(now) } else { Step::Wait }
            }
            // It has ended, or answers what an earlier attempt has asked it.
            Phase::Probing { .. } => self.on_probed(now, core, self.attempt, result, cores),
            Phase::Awaiting(_) | Phase::Pausing => Step::Wait,
        }
    }

    /// Handles the answer of a core that was asked whether anything uses the memory; `cores` have it then.
    pub(super) fn on_probed(
        &mut self,
        now: Instant,
        core: u8,
        attempt: u32,
        result: Result<(), RemoveError>,
        cores: CoreSet,
    ) -> Step {
        let Phase::Probing { awaited, is_used } = &mut self.phase else { return Step::Wait };
        if attempt != self.attempt {
            return Step::Wait;
        }
        *awaited = awaited.without(core);
        *is_used |= result.is_err();
        self.kept = result.err().or(self.kept);
        match (awaited.is_empty(), *is_used) {
            (false, _) => Step::Wait,
            (true, true) => self.pause(now),
            (true, false) => self.remove(cores),
        }
    }

    fn pause(&mut self, now: Instant) -> Step {
        self.phase = Phase::Pausing;
        self.try_later(now)
    }

    fn try_later(&mut self, now: Instant) -> Step {
        self.retry_at = now + self.retry_ns;
        self.retry_ns = (2 * self.retry_ns).min(RETRY_MAX_NS);
        Step::Wait
    }

    /// Does what is due: `cores` have the memory.
    pub(super) fn on_time(&mut self, now: Instant, cores: CoreSet) -> Step {
        if now >= self.until && self.readers == Readers::End && self.kept != Some(RemoveError::WindowsBound) {
            return self.revoke(now, cores);
        }
        if now >= self.until {
            return Step::Abandon(self.outcome(cores));
        }
        if now < self.retry_at {
            return Step::Wait;
        }
        self.retry_at = Instant::NEVER;
        Step::Again
    }

    /// Ends what still reads from the memory: `cores` have it.
    fn revoke(&mut self, now: Instant, cores: CoreSet) -> Step {
        (self.readers, self.kept) = (Readers::Ending, None);
        (self.until, self.retry_at, self.retry_ns) = (now + REVOKE_NS, Instant::NEVER, RETRY_NS);
        if cores.is_empty() { Step::Done } else { self.remove(cores) }
    }

    /// Returns what the application learns that waits no longer.
    fn outcome(&self, cores: CoreSet) -> DeregisterOutcome {
        match (self.kept, self.phase) {
            (Some(RemoveError::WindowsBound), _) => DeregisterOutcome::WindowsBound,
            (Some(RemoveError::InUse | RemoveError::Unknown), _) => DeregisterOutcome::InUse,
            (None, Phase::Probing { awaited, .. } | Phase::Removing(awaited)) => {
                DeregisterOutcome::Unanswered(awaited)
            }
            (None, Phase::Awaiting(_) | Phase::Pausing) => DeregisterOutcome::Unanswered(cores),
        }
    }
}

fn until(now: Instant, patience: Option<Duration>) -> Instant {
    patience.map_or(Instant::NEVER, |patience| now + nanos(patience))
}
