//! Sources that have their turns, so that none starves another.

/// Whose turn is next among up to 64 sources. A source that has filled what there was room for is last in the
/// next round.
///
/// With sources 1, 2 and 5 and the turn at 2, the order is 2, 5, 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    next: u32,
}

impl Turns {
    /// Returns the sources, a bit for each, in the order of their turns.
    pub(super) fn of(self, sources: u64) -> impl Iterator<Item = u8> {
        let mut rotated = sources.rotate_right(self.next);
        core::iter::from_fn(move || {
            let step = rotated.trailing_zeros();
            // Clears the lowest bit; without one, there is none to clear.
            rotated &= rotated.checked_sub(1)?;
            Some(((self.next + step) % u64::BITS) as u8)
        })
    }

    /// Ends the round with `source`.
    pub(super) const fn end_at(&mut self, source: u8) {
        self.next = (source as u32 + 1) % u64::BITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_their_turns() {
        let mut turns = Turns::default();
        let order = |turns: Turns| turns.of(1 << 1 | 1 << 2 | 1 << 5 | 1 << 63).collect::<Vec<_>>();
        assert_eq!(order(turns), [1, 2, 5, 63]);
        for (last, expected) in [(1, [2, 5, 63, 1]), (5, [63, 1, 2, 5]), (63, [1, 2, 5, 63])] {
            turns.end_at(last);
            assert_eq!(order(turns), expected);
        }
        assert_eq!(turns.of(0).count(), 0);
    }
}
