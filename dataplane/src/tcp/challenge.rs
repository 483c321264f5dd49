//! A limit on acknowledgements in response to segments that are not acceptable (RFC 5961 §7).
//!
//! Without it, two ends with different sequence numbers would answer each other for ever, and an attacker who
//! knows addresses and ports could make a connection send an acknowledgement for each forged RST or SYN.
//! A duplicate, old or out-of-window segment with data is answered each time, except in SYN-RECEIVED: see
//! [`is_challenged`].
//!
//! Each connection has a limit far below that of the core, and the limit of the core is random in each second
//! (see [`rate_limit`](crate::rate_limit)). So an attacker who counts the answers on a connection of his own
//! cannot tell whether a forged segment on another one was answered (CVE-2016-5696).

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

use super::disposition::Refusal;

/// The answers that one connection has sent in the current span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenges {
    began: Instant,
    count: u8,
}

impl Challenges {
    pub(super) const fn new() -> Self {
        Self { began: Instant::ZERO, count: 0 }
    }

    /// Whether the limit of this connection allows another answer at `now`; it counts then.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        if now - self.began >= limits::CHALLENGE_SPAN_NS {
            *self = Self { began: now, count: 0 };
        }
        let allowed = self.count < limits::CHALLENGES_PER_SPAN;
        self.count += u8::from(allowed);
        allowed
    }
}

/// Whether the answer to a refused segment counts against the limit. The answer to data that is a duplicate,
/// outside the window or old does not: a genuine sender waits for it, and does not acknowledge it in turn.
pub(super) fn is_challenged(refusal: Refusal, header: &Header, payload_octets: usize) -> bool {
    match refusal {
        Refusal::Challenged | Refusal::BadAck => true,
        Refusal::Duplicate | Refusal::OutsideWindow | Refusal::OldTimestamp => {
            payload_octets == 0 || header.flags.contains(Flags::SYN)
        }
        Refusal::NoRoom | Refusal::WrongState | Refusal::RateLimited | Refusal::AfterClose => false,
    }
}
