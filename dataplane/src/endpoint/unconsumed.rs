//! Streaming octets that control has a copy of and has not consumed.

use crate::limits;

/// How many octets control has a copy of and has not consumed: the first of those in TCP's receive queue.
/// They stay in TCP's window meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnconsumedOctets(u32);

impl UnconsumedOctets {
    /// No octets.
    pub const NONE: Self = Self(0);

    /// Returns how many there are.
    pub const fn octets(self) -> u32 {
        self.0
    }

    /// Returns how many of the `available` octets in the receive queue control has no copy of.
    pub const fn uncopied(self, available: usize) -> usize {
        available.saturating_sub(self.0 as usize)
    }

    /// Returns how many of the `available` octets in the receive queue control may have a copy of next.
    pub fn copyable(self, available: usize) -> usize {
        let room = limits::STREAM_UNCONSUMED_BYTES.saturating_sub(self.0 as usize);
        self.uncopied(available).min(room)
    }

    /// Records that control has a copy of the next `octets` octets.
    pub const fn add(&mut self, octets: u32) {
        self.0 += octets;
    }

    /// Records that control has consumed the first `octets` octets, or all if there are fewer; returns how
    /// many.
    pub fn consume(&mut self, octets: u32) -> u32 {
        let consumed = octets.min(self.0);
        self.0 -= consumed;
        consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_has_a_limited_number_of_octets() {
        let mut unconsumed = UnconsumedOctets::NONE;
        let most = limits::STREAM_UNCONSUMED_BYTES;
        assert_eq!((unconsumed.uncopied(most + 7), unconsumed.copyable(most + 7)), (most + 7, most));
        unconsumed.add(most as u32);
        assert_eq!((unconsumed.uncopied(most + 7), unconsumed.copyable(most + 7)), (7, 0));
        assert_eq!((unconsumed.consume(5), unconsumed.copyable(most + 2)), (5, 5));
        assert_eq!((unconsumed.consume(u32::MAX), unconsumed), (most as u32 - 5, UnconsumedOctets::NONE));
    }
}
