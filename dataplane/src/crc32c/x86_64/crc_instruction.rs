//! The CRC instruction, in three streams for more than a few bytes.
//!
//! The instruction takes 8 bytes and needs three cycles, but another can begin in each: three independent
//! streams hide the wait. Carry-less multiplication joins them.

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_xor_si128,
};

use super::super::polynomial::{multiply, power_of_x};
use super::{Pass, Spans, Sum, take_1, take_4, take_8};

/// From this many bytes on three streams are faster than one.
const STREAMS_MIN_LEN: usize = 160;

/// Words of 8 bytes in one stream at most. Longer inputs take several rounds.
const MAX_WORDS: usize = 64;

/// Words that a remainder can be shifted over at most.
pub(crate) const MAX_SHIFT: usize = 1023;

/// `SHIFTS[n]` multiplies a remainder by x^(64 n), when the low half of the product is then summed as a
/// message of 8 bytes: that multiplies by x^32, and the product of two reflected numbers by x.
static SHIFTS: [u32; MAX_SHIFT + 1] = {
    const WORD: u32 = power_of_x(64);
    let mut shifts = [power_of_x(-33); MAX_SHIFT + 1];
    let mut words = 1;
    while words < shifts.len() {
        shifts[words] = multiply(shifts[words - 1], WORD);
        words += 1;
    }
    shifts
};

/// Returns the remainder after `len` bytes of the source, when `remainder` is the one before. Remainders are
/// CRCs without the final inversion.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn update(remainder: u32, spans: Spans, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        if len < STREAMS_MIN_LEN {
            update_short::<Sum>(remainder, spans, len)
        } else {
            update_long(remainder, spans, len)
        }
    }
}

/// [`update`] in one stream, for few bytes.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) unsafe fn update_short<P: Pass>(remainder: u32, spans: Spans, len: usize) -> u32 {
    if len < 8 {
        // SAFETY: the caller's promise.
        return unsafe { update_under_8::<P>(remainder, spans, len) };
    }
    // A multiple of 8 bytes is left after the first 1 to 8.
    let mut at = (len - 1) % 8 + 1;
    // SAFETY: there are at least 8 bytes. Those after the first are taken once more.
    let first = unsafe { take_8::<P>(spans, 0) };
    let mut remainder = update_partial(remainder, first, at);
    while at < len {
        // SAFETY: a multiple of 8 bytes is left.
        remainder = _mm_crc32_u64(remainder, unsafe { take_8::<P>(spans, at) });
        at += 8;
    }
    remainder as u32
}

/// [`update`] in three streams, for 8 bytes or more.
///
/// # Safety
///
/// See [`Spans`].
#[inline(never)]
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn update_long(remainder: u32, spans: Spans, len: usize) -> u32 {
    let mut at = (len - 1) % 8 + 1;
    // SAFETY: there are at least 8 bytes. Those after the first are taken once more.
    let first = unsafe { take_8::<Sum>(spans, 0) };
    let mut remainder = update_partial(remainder, first, at);
    while len - at >= STREAMS_MIN_LEN / 2 {
        let words = ((len - at) / 24).min(MAX_WORDS);
        // SAFETY: three times so many words are left.
        remainder = unsafe { update_streams(remainder, spans.after(at), words) };
        at += 24 * words;
    }
    while at < len {
        // SAFETY: a multiple of 8 bytes is left.
        remainder = _mm_crc32_u64(remainder, unsafe { take_8::<Sum>(spans, at) });
        at += 8;
    }
    remainder as u32
}

/// Returns the remainder after the `len` low bytes of `bytes`, 1 to 8, when `remainder` is the one before.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn update_partial(remainder: u32, bytes: u64, len: usize) -> u64 {
    debug_assert!((1..=8).contains(&len));
    // Zero bytes before the first do not change a remainder of 0: the bytes become the last of 8. What is
    // left of the remainder after so few bytes is not shifted out and stays.
    let unused = 64 - 8 * len as u32;
    let stays = u64::from(remainder) >> (4 * len) >> (4 * len);
    _mm_crc32_u64(0, (bytes ^ u64::from(remainder)) << unused) ^ stays
}

/// [`update`] for fewer than 8 bytes.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn update_under_8<P: Pass>(remainder: u32, spans: Spans, len: usize) -> u32 {
    // Bytes are taken in the order of their places, and one that is taken twice is replaced by the second.
    let bytes = match len {
        0 => return remainder,
        1..4 => {
            // SAFETY: there are 1 to 3 bytes, with a middle and a last.
            let (first, middle, last) =
                unsafe { (take_1::<P>(spans, 0), take_1::<P>(spans, len / 2), take_1::<P>(spans, len - 1)) };
            let first = if len == 1 { last } else { first };
            let middle = if len < 3 { last } else { middle };
            let [first, middle, last] = [u64::from(first), u64::from(middle), u64::from(last)];
            first | middle << (8 * (len / 2)) | last << (8 * (len - 1))
        }
        _ => {
            // SAFETY: there are 4 to 7 bytes.
            let (first, last) = unsafe { (take_4::<P>(spans, 0), take_4::<P>(spans, len - 4)) };
            let first = u64::from(first) & ((1 << (8 * (len - 4))) - 1);
            first | u64::from(last) << (8 * (len - 4))
        }
    };
    update_partial(remainder, bytes, len) as u32
}

/// Returns the remainder after `3 * words` words of the source, 1 to [`MAX_WORDS`] times three.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn update_streams(remainder: u64, spans: Spans, words: usize) -> u64 {
    debug_assert!((1..=MAX_WORDS).contains(&words));
    let stream = 8 * words;
    let (mut a, mut b, mut c) = (remainder, 0, 0);
    let mut at = 0;
    // SAFETY: `at` is the place of each word of a stream in turn, but for the last word in the third.
    unsafe {
        while at < stream - 8 {
            a = _mm_crc32_u64(a, take_8::<Sum>(spans, at));
            b = _mm_crc32_u64(b, take_8::<Sum>(spans, at + stream));
            c = _mm_crc32_u64(c, take_8::<Sum>(spans, at + 2 * stream));
            at += 8;
        }
        a = _mm_crc32_u64(a, take_8::<Sum>(spans, at));
        b = _mm_crc32_u64(b, take_8::<Sum>(spans, at + stream));
    }
    let joined = _mm_cvtsi128_si64(_mm_xor_si128(shift(a, 2 * words), shift(b, words))) as u64;
    // SAFETY: this is the last word of the third stream.
    _mm_crc32_u64(c, unsafe { take_8::<Sum>(spans, at + 2 * stream) } ^ joined)
}

/// Multiplies a remainder as [`SHIFTS`] says, over so many words.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) fn shift(remainder: u64, words: usize) -> __m128i {
    let remainder = _mm_cvtsi64_si128(remainder.cast_signed());
    let multiplier = _mm_cvtsi64_si128(i64::from(SHIFTS[words]));
    _mm_clmulepi64_si128(remainder, multiplier, 0)
}
