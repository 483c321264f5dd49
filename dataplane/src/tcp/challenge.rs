//! A limit on acknowledgements that segments out of place ask for (RFC 5961 §7).
//!
//! Without it two ends that disagree about where they are would answer each other's answers for ever, and
//! whoever knows the four numbers of a connection could have it send as much as he likes. Each connection has
//! a limit of its own, far below that of the core, which is drawn anew each second (see
//! [`rate_limit`](crate::rate_limit)): who counts the answers he gets on his own connection cannot tell
//! whether a forged segment on another brought one (CVE-2016-5696).

use crate::limits;
use crate::rate_limit::RateLimit;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

use super::{Connection, Refusal};

/// The answers of one connection in the current span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenges {
    began: Instant,
    count: u8,
}

impl Challenges {
    pub(super) const fn new() -> Self {
        Self { began: Instant::ZERO, count: 0 }
    }

    fn take(&mut self, now: Instant) -> bool {
        if now - self.began >= limits::CHALLENGE_SPAN_NS {
            *self = Self { began: now, count: 0 };
        }
        let allowed = self.count < limits::CHALLENGES_PER_SPAN;
        self.count += u8::from(allowed);
        allowed
    }
}

/// Whether the answer to a refused segment counts. Data that came before does not: its sender waits for the
/// answer, and sends no acknowledgement in return.
pub(super) fn is_challenged(refusal: Refusal, header: &Header, payload_octets: usize) -> bool {
    match refusal {
        Refusal::Challenged | Refusal::BadAck => true,
        Refusal::Duplicate | Refusal::OutsideWindow | Refusal::OldTimestamp => {
            payload_octets == 0 || header.flags.contains(Flags::SYN)
        }
        Refusal::NoRoom | Refusal::WrongState | Refusal::RateLimited => false,
    }
}

impl Connection {
    /// Whether one more such acknowledgement may be sent at `now`, by this connection and by the core.
    pub(super) fn may_challenge(&mut self, now: Instant, core: &mut RateLimit) -> bool {
        self.challenges.take(now) && core.take(now)
    }
}
