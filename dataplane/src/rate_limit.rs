//! Limits on replies that any sender may cause, without revealing to one sender how many others caused.
//!
//! A limit that is shared is a side channel: an observer that sees the last reply of a second learns how many
//! replies others got, and from that whether a forged segment hit (CVE-2016-5696). Here the limit of each
//! second is drawn anew between half of the nominal one and all of it, by a keyed hash, so that an observer's
//! count of its own replies reveals nothing about a few of others'.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::time::{Instant, SECOND};

/// A limit per second.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    per_second: u32,
    secret: [u64; 2],
    /// The second `left` is for.
    second: u64,
    left: u32,
}

impl RateLimit {
    /// Returns a limit of at most `per_second`, and not less than half of it. Limits that differ need secrets
    /// that differ.
    pub const fn new(per_second: u32, secret: [u64; 2]) -> Self {
        Self { per_second, secret, second: u64::MAX, left: 0 }
    }

    /// Returns true if one more is allowed at `now`; it counts then.
    pub fn admit(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / SECOND;
        if second != self.second {
            self.second = second;
            self.left = self.limit(second);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    fn limit(&self, second: u64) -> u32 {
        let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        hasher.write_u64(second);
        let half = self.per_second / 2;
        self.per_second - (hasher.finish() % (u64::from(half) + 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limit: &mut RateLimit, second: u64, attempts: u32) -> u32 {
        (0..attempts).filter(|n| limit.admit(Instant::from_nanos(second * SECOND + u64::from(*n)))).count()
            as u32
    }

    #[test]
    fn each_second_has_its_own_limit() {
        let mut limit = RateLimit::new(100, [1, 2]);
        let admitted: Vec<u32> = (0..200).map(|second| admitted(&mut limit, second, 1000)).collect();
        assert!(admitted.iter().all(|admitted| (50..=100).contains(admitted)), "{admitted:?}");
        let mut different = admitted.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 30, "{different:?}");
        let mean = admitted.iter().sum::<u32>() / 200;
        assert!((70..=80).contains(&mean), "{mean}");
    }

    #[test]
    fn what_is_not_used_is_not_saved_up() {
        let mut limit = RateLimit::new(100, [1, 2]);
        admitted(&mut limit, 0, 1);
        assert!(admitted(&mut limit, 50, 1000) <= 100);
    }

    /// The answers that one observer receives do not reveal whether another received one: in either case each
    /// count occurs about as often.
    #[test]
    fn one_more_or_less_is_not_seen() {
        let counts = |others: u32| {
            let mut limit = RateLimit::new(100, [3, 4]);
            let mut seen = [0u32; 101];
            for second in 0..20_000 {
                admitted(&mut limit, second, others);
                seen[admitted(&mut limit, second, 1000) as usize] += 1;
            }
            seen
        };
        let (without, with) = (counts(0), counts(1));
        // All counts but the outermost two are possible with both, and about as likely.
        for count in 50..100 {
            let (without, with) = (without[count], with[count]);
            assert!(without.abs_diff(with) < without / 2, "{count}: {without} and {with}");
        }
    }
}
