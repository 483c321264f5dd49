//! The CRC instruction and carry-less multiplication of 256 bits, side by side.
//!
//! The unit of the CRC instruction takes 8 bytes a cycle, that of vectors nearly as many, and neither waits
//! for the other. So a round sums the first half or so of its bytes with the one, in three streams, and the
//! rest with the other, by folding, in the same loop. For example, 1428 bytes are 4 of their own, three
//! streams of 32, 32 and 34 words of 8 bytes, and 640 bytes of vectors, in ten steps.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_load_si128, _mm_xor_si128,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256,
    _mm256_load_si256, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_xor_si256,
};

use super::crc_instruction::{self, MAX_SHIFT, shift, update_partial};
use super::multipliers::Multipliers;
use super::{Spans, Sum, take_8};

/// From this many bytes on a round is faster than the CRC instruction alone.
const ROUND_MIN_LEN: usize = 512;

/// Bytes that a step takes from the vectors.
const BLOCK: usize = 64;

/// Words of 8 bytes that a step takes from each of the three streams. On a Zen 3, nine CRC instructions take
/// nine cycles, the four multiplications of a block eight, and a step of both ten.
const STREAM_WORDS: usize = 3;

/// Words that a step takes.
const STEP_WORDS: usize = 3 * STREAM_WORDS + BLOCK / 8;

/// Steps of a round at most. Longer inputs take several rounds.
const MAX_STEPS: usize = 68;

// The first stream of the longest round is shifted over all that follows it, but for a word.
const _: () = {
    let words = MAX_STEPS * STEP_WORDS + STEP_WORDS - 1;
    let vectors = MAX_STEPS * BLOCK / 8;
    assert!(words - (words - vectors) / 3 - 1 <= MAX_SHIFT);
};

/// Folds each lane over a block.
static OVER_BLOCK: Multipliers = Multipliers::folding_over(BLOCK);

#[repr(C, align(32))]
struct LaneMultipliers([Multipliers; 4]);

/// Folds each lane of a block over the lanes after it, to the last.
static TO_LAST_LANE: LaneMultipliers = LaneMultipliers([
    Multipliers::folding_over(48),
    Multipliers::folding_over(32),
    Multipliers::folding_over(16),
    Multipliers::folding_over(0),
]);

/// Returns the remainder after `len` bytes of the source, when `remainder` is the one before. Remainders are
/// CRCs without the final inversion.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn update(remainder: u32, spans: Spans, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        if len < ROUND_MIN_LEN {
            crc_instruction::update(remainder, spans, len)
        } else {
            update_long(remainder, spans, len)
        }
    }
}

/// [`update`] in rounds.
///
/// # Safety
///
/// See [`Spans`].
#[inline(never)]
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn update_long(mut remainder: u32, mut spans: Spans, mut len: usize) -> u32 {
    debug_assert!(len >= ROUND_MIN_LEN);
    while len >= ROUND_MIN_LEN {
        // A multiple of 8 bytes is left after the first 1 to 8.
        let first_len = (len - 1) % 8 + 1;
        // SAFETY: there are at least 8 bytes. Those after the first are taken once more.
        let first = unsafe { take_8::<Sum>(spans, 0) };
        let before = update_partial(remainder, first, first_len);
        let words = ((len - first_len) / 8).min(MAX_STEPS * STEP_WORDS + STEP_WORDS - 1);
        spans = spans.after(first_len);
        // SAFETY: so many words are left.
        remainder = unsafe { round(before, spans, words) };
        spans = spans.after(8 * words);
        len -= first_len + 8 * words;
    }
    // SAFETY: so many bytes are left.
    unsafe { crc_instruction::update(remainder, spans, len) }
}

/// Returns the remainder after `words` words of the source, enough for a step and less than one more than
/// [`MAX_STEPS`].
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn round(remainder: u64, spans: Spans, words: usize) -> u32 {
    let steps = words / STEP_WORDS;
    debug_assert!((1..=MAX_STEPS).contains(&steps));
    let vectors = steps * BLOCK / 8;
    let (stream, more) = ((words - vectors) / 3, (words - vectors) % 3);

    let mut streams = Streams { spans, distance: 8 * stream, remainders: [remainder, 0, 0] };
    let mut blocks = spans.after(8 * (words - vectors));
    // SAFETY: the streams, of which the last has up to two words more, and the blocks are all words, and each
    // is taken once.
    let (low, high) = unsafe {
        let over_block = _mm256_broadcastsi128_si256(_mm_load_si128((&raw const OVER_BLOCK).cast()));
        let (mut low, mut high) = (load(blocks.source), load(blocks.source.wrapping_add(32)));
        for _ in 1..steps {
            streams.take::<STREAM_WORDS>();
            blocks = blocks.after(BLOCK);
            low = fold_to(low, over_block, load(blocks.source));
            high = fold_to(high, over_block, load(blocks.source.wrapping_add(32)));
        }
        for _ in STREAM_WORDS * (steps - 1)..stream {
            streams.take::<1>();
        }
        for _ in 0..more {
            streams.take_of_last();
        }
        (low, high)
    };
    let [a, b, c] = streams.remainders;
    // The streams are added to the low half of the last lane, which is the last word but one.
    let a = shift(a, words - stream - 1);
    let b = shift(b, words - 2 * stream - 1);
    let c = shift(c, vectors - 1);
    let sum = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, last_lane_of(low, high)));
    let remainder = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64);
    _mm_crc32_u64(remainder, _mm_extract_epi64(sum, 1) as u64) as u32
}

/// Three spans of words that the CRC instruction takes, each one after the other.
struct Streams {
    /// From the next word of the first on.
    spans: Spans,
    /// Bytes from a word of the first to that of the second, and from there to that of the third.
    distance: usize,
    remainders: [u64; 3],
}

impl Streams {
    /// Takes the next so many words of each.
    ///
    /// # Safety
    ///
    /// See [`Spans`].
    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn take<const WORDS: usize>(&mut self) {
        let [a, b, c] = &mut self.remainders;
        for at in (0..8 * WORDS).step_by(8) {
            // SAFETY: the caller's promise.
            unsafe {
                *a = _mm_crc32_u64(*a, take_8::<Sum>(self.spans, at));
                *b = _mm_crc32_u64(*b, take_8::<Sum>(self.spans, self.distance + at));
                *c = _mm_crc32_u64(*c, take_8::<Sum>(self.spans, 2 * self.distance + at));
            }
        }
        self.spans = self.spans.after(8 * WORDS);
    }

    /// Takes the next word of the last.
    ///
    /// # Safety
    ///
    /// See [`Spans`].
    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn take_of_last(&mut self) {
        let [.., c] = &mut self.remainders;
        // SAFETY: the caller's promise.
        *c = _mm_crc32_u64(*c, unsafe { take_8::<Sum>(self.spans, 2 * self.distance) });
        self.spans = self.spans.after(8);
    }
}

/// Loads two lanes.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(source: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(source.cast()) }
}

/// Folds the lanes of `block`, and adds them to `to`.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_to(block: __m256i, multipliers: __m256i, to: __m256i) -> __m256i {
    let low = _mm256_clmulepi64_epi128(block, multipliers, 0x00);
    let high = _mm256_clmulepi64_epi128(block, multipliers, 0x11);
    _mm256_xor_si256(_mm256_xor_si256(low, to), high)
}

/// Returns the sum of the four lanes of a block, folded to the last.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn last_lane_of(low: __m256i, high: __m256i) -> __m128i {
    let multipliers = (&raw const TO_LAST_LANE).cast::<__m256i>();
    // SAFETY: the static has 64 bytes, aligned to 32.
    let (of_low, of_high) =
        unsafe { (_mm256_load_si256(multipliers), _mm256_load_si256(multipliers.add(1))) };
    let sum = fold_to(high, of_high, fold_to(low, of_low, _mm256_setzero_si256()));
    _mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1))
}
