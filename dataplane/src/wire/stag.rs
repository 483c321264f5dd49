//! The STag, which names registered memory in DDP and RDMAP headers.

use core::fmt;

/// A Steering Tag (RFC 5041 §2): 16 bits that name a slot of the STag table and 16 bits of key that must
/// match what the slot holds, so that stale and guessed STags fail. Zero is never given out: some adapters
/// refuse it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct STag(pub u32);

impl STag {
    /// The STag of slot `index` with `key`.
    pub const fn new(index: u16, key: u16) -> Self {
        Self((key as u32) << 16 | index as u32)
    }

    /// The same slot with another key, for when it is registered or bound again.
    #[must_use]
    pub const fn with_key(self, key: u16) -> Self {
        Self::new(self.index() as u16, key)
    }

    /// Its slot.
    pub const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Its key.
    pub const fn key(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Debug for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "STag({:#010x})", self.0)
    }
}
