//! Initial sequence numbers and timestamp offsets (RFC 6528, RFC 7323 §5.4): different for each flow, and
//! unpredictable without the core's secret.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

use crate::net::flow::FlowKey;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Nanoseconds of a tick of the clock that initial sequence numbers follow (RFC 6528 §3).
const TICK_NS: u64 = 4000;

/// Computes the initial numbers of connections.
#[derive(Debug)]
pub(crate) struct InitialNumbers {
    secret: [u64; 2],
}

impl InitialNumbers {
    /// Numbers under `secret`, which is different on every start.
    pub(crate) const fn new(secret: [u64; 2]) -> Self {
        Self { secret }
    }

    /// Returns the initial sequence number of a connection that opens at `now`: a keyed hash of its addresses
    /// and ports, plus a clock of 4 microseconds.
    pub(crate) fn sequence_number(&self, key: &FlowKey, now: Instant) -> SeqNumber {
        SeqNumber((self.hash(key) as u32).wrapping_add((now.as_nanos() / TICK_NS) as u32))
    }

    /// Returns what the connection adds to its timestamps: the half of the hash that the sequence number does
    /// not show.
    pub(crate) fn timestamp_offset(&self, key: &FlowKey) -> u32 {
        (self.hash(key) >> 32) as u32
    }

    fn hash(&self, key: &FlowKey) -> u64 {
        let [key0, key1] = self.secret;
        let mut hasher = SipHasher24::new_with_keys(key0, key1);
        key.hash(&mut hasher);
        hasher.finish()
    }
}
