//! Arithmetic modulo the polynomial of CRC32c, at compile time.
//!
//! Polynomials are reflected, as the CRC is: bit 31 of a `u32` is the coefficient of x^0, bit 0 that of x^31.

/// The polynomial 0x1EDC6F41, reflected, without x^32.
// Requirements: MPA-4.4-11
pub(super) const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// Returns `value` times x.
pub(super) const fn times_x(value: u32) -> u32 {
    if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 }
}

/// Returns the product of `a` and `b`.
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = times_x(b);
    }
    product
}

/// Returns x to the power of `exponent`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only kernels for x86-64 fold"))]
pub(super) const fn power_of_x(exponent: isize) -> u32 {
    // x divides 1 + P, so (1 + P) / x is its inverse.
    const INVERSE: u32 = POLYNOMIAL << 1 | 1;
    let mut square = if exponent < 0 { INVERSE } else { times_x(ONE) };
    let mut power = ONE;
    let mut left = exponent.unsigned_abs();
    while left > 0 {
        if left & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remainder of x^exponent by long division, highest coefficient first, not reflected.
    fn power_by_division(exponent: isize) -> u32 {
        let mut remainder: u64 = 1;
        for _ in 0..exponent {
            remainder <<= 1;
            if remainder >> 32 == 1 {
                remainder ^= 0x1_1edc_6f41;
            }
        }
        remainder as u32
    }

    #[test]
    fn powers_agree_with_long_division() {
        for exponent in (0..200).chain([511, 512, 4096, 65_535]) {
            let expected = power_by_division(exponent).reverse_bits();
            assert_eq!(power_of_x(exponent), expected, "x^{exponent}");
        }
    }

    #[test]
    fn negative_powers_are_inverses() {
        for exponent in 1..200 {
            assert_eq!(multiply(power_of_x(-exponent), power_of_x(exponent)), ONE, "x^-{exponent}");
        }
    }
}
