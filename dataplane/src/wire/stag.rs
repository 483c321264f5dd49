//! The STag, which names registered memory in DDP and RDMAP headers.

use core::fmt;

/// A Steering Tag (RFC 5041 §2): its high 16 bits name a slot of the STag table, and its low 16 bits are a
/// key that must match what the slot holds, so that stale and guessed STags fail. Zero is never given out:
/// some adapters refuse it.
///
/// The key is in the low bits because `ibv_inc_rkey(3)` counts in the lowest byte: slot 0x0102 with key
/// 0x03ff is 0x010203ff, and becomes 0x01020300, which names the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct STag(pub u32);

impl STag {
    /// The STag of slot `index` with `key`.
    pub const fn new(index: u16, key: u16) -> Self {
        Self((index as u32) << 16 | key as u32)
    }

    /// The same slot with another key, for when it is registered or bound again.
    #[must_use]
    pub const fn with_key(self, key: u16) -> Self {
        Self::new(self.index() as u16, key)
    }

    /// Its slot.
    pub const fn index(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Its key.
    pub const fn key(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "STag({:#010x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ibv_inc_rkey` computes, the next value of the lowest byte, names the same slot by another key.
    #[test]
    fn the_next_value_of_the_lowest_byte_is_another_key_of_the_slot() {
        let stag = STag(0x0102_03ff);
        assert_eq!((stag.index(), stag.key(), STag::new(0x0102, 0x03ff)), (0x0102, 0x03ff, stag));
        let next = STag(stag.0 & 0xffff_ff00 | u32::from((stag.0 as u8).wrapping_add(1)));
        assert_eq!((next, next.index()), (stag.with_key(0x0300), 0x0102));
    }
}
