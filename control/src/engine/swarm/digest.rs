//! Digests of what happens in a seed.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// A digest under way. The same on every machine, and by every version of the standard library.
#[derive(Clone, Default)]
pub(super) struct Digest(SipHasher13);

impl Digest {
    /// Adds a number.
    pub(super) fn add(&mut self, number: u64) {
        self.0.write(&number.to_le_bytes());
    }

    /// Adds octets.
    pub(super) fn add_octets(&mut self, octets: &[u8]) {
        self.add(octets.len() as u64);
        self.0.write(octets);
    }

    /// Returns the digest of what was added so far.
    pub(super) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// What a seed came to: two runs of it are the same if this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) frames: u64,
    pub(super) wire: u64,
}
