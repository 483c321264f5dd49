//! A limit on acknowledgements in response to segments that are not acceptable (RFC 5961 §7).
//!
//! Without it, two ends with different sequence numbers would answer each other for ever, and an attacker who
//! knows addresses and ports could make a connection send an acknowledgement for each forged RST or SYN.
//! A duplicate, old or out-of-window segment with data is answered each time, except in SYN-RECEIVED: see
//! [`limit_of`].
//!
//! Each connection has a limit far below that of the core, and the limit of the core is random in each second
//! (see [`rate_limit`](crate::rate_limit)). So an attacker who counts the answers on a connection of his own
//! cannot tell whether a forged segment on another one was answered (CVE-2016-5696).
//!
//! A probe of a live peer, for its window or because it was silent (RFC 9293 §3.8.4, §3.8.6.1), has the
//! sequence number before the next. It counts for its connection only: the keepalives of some ten thousand
//! connections are more than the core's limit, and one that is not answered in time ends its connection. It
//! shows a stranger nothing of other connections, and nobody finds the number by chance. It has a count of
//! its own: a stranger uses up the other answers without any number, and a probe is answered all the same.

use crate::limits;
use crate::rate_limit::RateLimit;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::disposition::Refusal;

/// The answers that one connection has sent in the current span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenges {
    began: Instant,
    /// Those that count against the limit of the core too.
    of_core: u8,
    /// Those to probes.
    to_probes: u8,
}

impl Challenges {
    pub(super) const fn new() -> Self {
        Self::begin(Instant::ZERO)
    }

    const fn begin(now: Instant) -> Self {
        Self { began: now, of_core: 0, to_probes: 0 }
    }

    /// Whether `limit` allows another answer at `now`; it counts then.
    pub(super) fn admit(&mut self, now: Instant, limit: Limit, core: &mut RateLimit) -> bool {
        if now - self.began >= limits::CHALLENGE_SPAN_NS {
            *self = Self::begin(now);
        }
        match limit {
            Limit::None => true,
            Limit::Connection => admit_one(&mut self.to_probes),
            Limit::Core => admit_one(&mut self.of_core) && core.admit(now),
        }
    }
}

/// Whether a connection may send one more of the answers that `count` counts.
fn admit_one(count: &mut u8) -> bool {
    let allowed = *count < limits::CHALLENGES_PER_SPAN;
    *count += u8::from(allowed);
    allowed
}

/// The limits that the answer to a refused segment counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// None: it is always answered.
    None,
    /// That of its connection for answers to probes.
    Connection,
    /// That of its connection for all others, and that of the core.
    Core,
}

/// Returns the limit that the answer to a refused segment counts against; `next` is RCV.NXT. The answer to
/// data that is a duplicate, outside the window or old is not limited: a genuine sender waits for it, and
/// does not acknowledge it in turn.
pub(super) fn limit_of(refusal: Refusal, header: &Header, payload_octets: usize, next: SeqNumber) -> Limit {
    match refusal {
        Refusal::Challenged | Refusal::BadAck => Limit::Core,
        Refusal::Duplicate | Refusal::OutsideWindow | Refusal::OldTimestamp => {
            if payload_octets > 0 && !header.flags.contains(Flags::SYN) {
                Limit::None
            } else if is_probe(header, next) {
                Limit::Connection
            } else {
                Limit::Core
            }
        }
        Refusal::NoRoom | Refusal::WrongState | Refusal::RateLimited | Refusal::AfterClose => Limit::None,
    }
}

/// Whether a segment without data is a probe. It may have an ECN flag, like any acknowledgement.
fn is_probe(header: &Header, next: SeqNumber) -> bool {
    let controls = Flags::SYN | Flags::FIN | Flags::RST;
    !header.flags.intersects(controls) && header.seq + 1 == next
}
