//! How long a message [waits for a receive](super::await_receive).

use core::num::NonZeroU64;

use crate::limits;
use crate::qp::shared::SharedQp;
use crate::time::Instant;

/// How long messages of a stream may wait for a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWait {
    /// How long one may wait, in nanoseconds; `None` if it is an error at once.
    allowed_ns: Option<NonZeroU64>,
    /// Its number among the [waits](super::ReceiveWaiters) for shared receive queues, if it is one of them.
    pub(super) number: u64,
    /// When the message that waits is an error; `NEVER` while none does.
    pub(super) until: Instant,
}

impl ReceiveWait {
    /// Returns that no message waits, and that each may for `allowed_ns` nanoseconds.
    pub(crate) fn new(allowed_ns: Option<u64>) -> Self {
        Self { allowed_ns: allowed_ns.and_then(NonZeroU64::new), number: 0, until: Instant::NEVER }
    }

    /// Returns true if a message of the queue pair may wait: each, or one whose receive is being posted.
    #[inline]
    pub(crate) fn is_allowed_for(&self, qp: &SharedQp) -> bool {
        self.allowed_ns.is_some() || qp.awaits_poster()
    }

    /// Records that the next message has no receive at `now`, or one that `is_being_posted`. Returns `None`
    /// if its time is over, or else whether it has only begun to wait.
    pub(crate) fn wait(&mut self, now: Instant, is_being_posted: bool) -> Option<bool> {
        let posting = is_being_posted.then_some(NonZeroU64::new(limits::SHARED_POST_NS)).flatten();
        let allowed_ns = self.allowed_ns.or(posting)?;
        let begins = self.until == Instant::NEVER;
        if begins {
            // A deadline that is never reached differs from none.
            self.until = (now + allowed_ns.get()).min(Instant::from_nanos(u64::MAX - 1));
        }
        (now < self.until).then_some(begins)
    }

    /// Has the message that waits, and each that comes, wait no longer than `limit_ns` nanoseconds.
    pub(super) fn shorten(&mut self, now: Instant, limit_ns: u64) {
        let limit = NonZeroU64::new(limit_ns).unwrap_or(NonZeroU64::MIN);
        self.allowed_ns = self.allowed_ns.map(|allowed_ns| allowed_ns.min(limit));
        if self.until != Instant::NEVER {
            self.until = self.until.min(now + limit_ns);
        }
    }

    /// Records that the next message has its receive, or needs none.
    #[inline]
    pub(crate) const fn end(&mut self) {
        self.until = Instant::NEVER;
    }

    /// Records that the message has waited long enough.
    pub(super) const fn expire(&mut self) {
        self.until = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_for_its_own_time() {
        let now = Instant::from_nanos(100);
        assert_eq!(ReceiveWait::new(None).wait(now, false), None);
        let mut receive_wait = ReceiveWait::new(Some(10));
        assert_eq!(receive_wait.wait(now, false), Some(true));
        assert_eq!(receive_wait.wait(now + 9, false), Some(false), "still the same deadline");
        assert_eq!(receive_wait.wait(now + 10, false), None);
        receive_wait.end();
        assert_eq!(receive_wait.wait(now + 10, false), Some(true), "the next has its own");
        receive_wait.expire();
        assert_eq!(receive_wait.wait(now + 11, false), None);
        receive_wait.shorten(now + 11, 5);
        receive_wait.end();
        receive_wait.shorten(now + 12, 3);
        assert_eq!(
            (receive_wait.wait(now + 20, false), receive_wait.wait(now + 23, false)),
            (Some(true), None)
        );
        receive_wait.shorten(now + 20, 1);
        assert_eq!(receive_wait.wait(now + 21, false), None, "the one that waits, too");
        let mut never = ReceiveWait::new(None);
        never.shorten(now, 5);
        assert_eq!(never.wait(now, false), None);
        let mut posting = ReceiveWait::new(None);
        assert_eq!((posting.wait(now, true), posting.wait(now, true)), (Some(true), Some(false)));
        assert_eq!(posting.wait(now + limits::SHARED_POST_NS, true), None, "its thread is gone");
        let mut patient = ReceiveWait::new(Some(u64::MAX));
        assert_eq!((patient.wait(now, false), patient.wait(now, false)), (Some(true), Some(false)));
    }
}
