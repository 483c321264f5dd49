//! Secrets that a core derives from the one it is configured with.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The purpose of a derived secret. Each purpose has its own secret: one that leaks reveals nothing about the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// SYN cookies.
    SynCookies = 1,
    /// The rate limit of RSTs.
    Resets = 2,
    /// The rate limit of replies to echo requests.
    EchoReplies = 3,
    /// Local ports: the offset of each destination.
    PortOffsets = 4,
    /// Local ports: the counter of each destination (RFC 6056 §3.3.4).
    PortCounters = 5,
    /// The rate limit of challenge ACKs.
    Challenges = 6,
    /// The hash of the flow table.
    Flows = 7,
    /// The hash of the TIME-WAIT table.
    TimeWaits = 8,
    /// IPv6 flow labels.
    FlowLabels = 9,
    /// The hash of the neighbour cache, and its reachable time.
    Neighbours = 11,
    /// The nonce and the delay of duplicate address detection.
    DuplicateDetection = 12,
    /// The hash of the peers in listeners' backlogs.
    BacklogShares = 13,
    /// The hash of the peers of connections that applications have left.
    Orphans = 14,
}

/// The secret of a core: different on every start, so that others can foresee nothing derived from it.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 2]);

impl Secret {
    /// Returns the secret that consists of `words`.
    pub(crate) const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// Returns the secret for one purpose, from which those for others do not follow.
    pub(crate) fn derive(self, purpose: Purpose) -> [u64; 2] {
        let [key0, key1] = self.0;
        [2 * purpose as u64, 2 * purpose as u64 + 1].map(|word| {
            let mut hasher = SipHasher24::new_with_keys(key0, key1);
            hasher.write_u64(word);
            hasher.finish()
        })
    }

    /// Returns a generator of random numbers for one purpose.
    pub(crate) fn random(self, purpose: Purpose) -> fastrand::Rng {
        let [seed, _] = self.derive(purpose);
        fastrand::Rng::with_seed(seed)
    }
}
