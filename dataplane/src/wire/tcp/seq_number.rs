//! Sequence numbers of TCP: their order and their arithmetic (RFC 9293 §3.4).

use core::cmp::Ordering;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number: a point on a circle of 2^32 octets.
///
/// Order is that of the shorter distance: `a < b` when `b` lies less than 2^31 octets ahead of `a`. It is
/// an order only among numbers within half the circle, which all numbers of a window are (RFC 9293 §3.4);
/// points exactly opposite each other are not ordered at all.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// The one further ahead.
    #[inline]
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if self - other >= 0 { self } else { other }
    }

    /// The one further back.
    #[inline]
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        if self - other <= 0 { self } else { other }
    }
}

/// The sequence numbers of octets in a row: from the first to the one after the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqRange {
    /// The first octet.
    pub from: SeqNumber,
    /// The octet after the last.
    pub to: SeqNumber,
}

impl PartialOrd for SeqNumber {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match *self - *other {
            i32::MIN => None,
            distance => Some(distance.cmp(&0)),
        }
    }

    // One difference and its sign: points opposite each other are -2^31 apart, both ways.
    #[inline]
    fn lt(&self, other: &Self) -> bool {
        *other - *self > 0
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        *other - *self >= 0
    }

    #[inline]
    fn gt(&self, other: &Self) -> bool {
        *self - *other > 0
    }

    #[inline]
    fn ge(&self, other: &Self) -> bool {
        *self - *other >= 0
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn add(self, octets: u32) -> Self {
        Self(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn sub(self, octets: u32) -> Self {
        Self(self.0.wrapping_sub(octets))
    }
}

impl Sub for SeqNumber {
    type Output = i32;

    /// Octets from `earlier` ahead to `self`, negative when `earlier` is the later one.
    #[inline]
    fn sub(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap() {
        let before = SeqNumber(0xffff_fff0);
        let after = before + 0x20;
        assert_eq!(after, SeqNumber(0x10));
        assert!(before < after);
        assert!(after > before);
        assert_eq!(after - before, 0x20);
        assert_eq!(before - after, -0x20);
        assert_eq!(after - 0x20, before);
        assert_eq!(before.later(after), after);
        assert_eq!(before.earlier(after), before);
        let opposite = before + 0x8000_0000;
        assert_eq!(before.partial_cmp(&opposite), None);
        assert_eq!(before.partial_cmp(&(opposite - 1)), Some(Ordering::Less));
        assert_eq!(before.partial_cmp(&(opposite + 1)), Some(Ordering::Greater));
        // The operators agree with the order.
        for distance in [0, 1, 2, 0x20, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_ffff] {
            let other = before + distance;
            let order = before.partial_cmp(&other);
            assert_eq!(before < other, order == Some(Ordering::Less), "{distance:#x}");
            assert_eq!(before > other, order == Some(Ordering::Greater), "{distance:#x}");
            assert_eq!(before <= other, order.is_some_and(Ordering::is_le), "{distance:#x}");
            assert_eq!(before >= other, order.is_some_and(Ordering::is_ge), "{distance:#x}");
        }
    }
}
