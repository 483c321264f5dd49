//! What folds a lane of 128 bits.
//!
//! To fold a lane over n bits is to multiply it by x^n, modulo the polynomial: the product can be added to
//! the lane n bits later in the message, and the remainder of the whole stays the same. n need not be a
//! multiple of a lane.

use super::super::polynomial::power_of_x;

/// What the two halves of a lane are multiplied by.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Multipliers {
    low: u64,
    high: u64,
}

impl Multipliers {
    pub(super) const ZERO: Self = Self { low: 0, high: 0 };

    /// Those that fold a lane over so many bytes.
    pub(super) const fn folding_over(bytes: usize) -> Self {
        let bits = 8 * bytes.cast_signed();
        // The low half comes 64 bits before the high one. The product of two reflected numbers is one power
        // of x too high.
        Self { low: reflected(power_of_x(bits + 64 - 1)), high: reflected(power_of_x(bits - 1)) }
    }
}

/// A remainder as the 64 bits of a factor.
const fn reflected(remainder: u32) -> u64 {
    (remainder as u64) << 32
}
