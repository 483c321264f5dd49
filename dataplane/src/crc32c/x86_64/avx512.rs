//! Folding of 256 bytes at a time with carry-less multiplication of 512 bits.
//!
//! A block of 64 bytes is four lanes, which [`multipliers`](super::multipliers) says how to fold. The first 1
//! to 64 bytes of a message are read as a block of their own, with zeros for the bytes after them, and folded
//! over their own length; whole blocks follow. For example, 150 bytes are blocks of 22, 64 and 64 bytes.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_load_si128,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256,
    _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64,
    _mm512_load_si512, _mm512_maskz_mov_epi8, _mm512_setzero_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::multipliers::Multipliers;
use super::{Pass, Spans, crc_instruction, take_64, take_end_of_64};

const BLOCK: usize = 64;

/// Blocks that are folded independently, to hide the time of a multiplication.
const STREAMS: usize = 4;

/// `OVER_BYTES[n]` folds over `n` bytes.
static OVER_BYTES: [Multipliers; BLOCK + 1] = {
    let mut multipliers = [Multipliers::ZERO; BLOCK + 1];
    let mut bytes = 0;
    while bytes <= BLOCK {
        multipliers[bytes] = Multipliers::folding_over(bytes);
        bytes += 1;
    }
    multipliers
};

/// Folds over as many blocks as are summed in one step.
static OVER_STREAMS: Multipliers = Multipliers::folding_over(BLOCK * STREAMS);

/// The most blocks that are left when folding ends.
const LAST_BLOCKS: usize = 2 * STREAMS - 1;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct LaneMultipliers([Multipliers; 4]);

/// Folds each lane of the last blocks over all lanes after it, to the last of all.
static TO_LAST_LANE: [LaneMultipliers; LAST_BLOCKS] = {
    let mut multipliers = [LaneMultipliers([Multipliers::ZERO; 4]); LAST_BLOCKS];
    let lanes = 4 * LAST_BLOCKS;
    let mut lane = 0;
    while lane < lanes {
        multipliers[lane / 4].0[lane % 4] = Multipliers::folding_over(16 * (lanes - 1 - lane));
        lane += 1;
    }
    multipliers
};

/// Returns the remainder after `len` bytes of the source, when `remainder` is the one before. Remainders are
/// CRCs without the final inversion.
///
/// # Safety
///
/// See [`Spans`].
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,sse4.2")]
pub(crate) unsafe fn update<P: Pass>(remainder: u32, spans: Spans, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        if len <= BLOCK {
            crc_instruction::update_short::<P>(remainder, spans, len)
        } else if len < P::ALIGNED_MIN_LEN {
            fold::<P, false>(remainder, spans, len)
        } else {
            fold::<P, true>(remainder, spans, len)
        }
    }
}

/// [`update`] for more than 64 bytes, or for more than 128 with aligned blocks.
///
/// # Safety
///
/// See [`Spans`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn fold<P: Pass, const ALIGNED: bool>(remainder: u32, spans: Spans, len: usize) -> u32 {
    debug_assert!(len > if ALIGNED { 2 * BLOCK } else { BLOCK });
    // What is not a whole block: without alignment, all of it comes first.
    let first_len = if ALIGNED { BLOCK - P::aligned_address(spans) % BLOCK } else { (len - 1) % BLOCK + 1 };
    let last_len = (len - first_len) % BLOCK;
    // SAFETY: the first are 1 to 64 bytes, the last fewer than 64, and between them are whole blocks, one at
    // least.
    unsafe {
        let sum = fold_blocks::<P, ALIGNED>(remainder, spans, first_len, (len - first_len) / BLOCK);
        if !ALIGNED || last_len == 0 {
            return remainder_of(sum);
        }
        let last = take_end_of_64::<P>(spans.after(len - BLOCK), last_len);
        let last = fold_to(last, load(&TO_LAST_LANE[LAST_BLOCKS - 1]), _mm512_setzero_si512());
        remainder_of(fold_to(sum, broadcast(&OVER_BYTES[last_len]), last))
    }
}

/// Returns a sum of four lanes with the same remainder as `first_len` bytes, 1 to 64, and `blocks` blocks, 1
/// at least.
///
/// `ALIGNED` makes no difference here but that each function which calls this one has its own to inline.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn fold_blocks<P: Pass, const ALIGNED: bool>(
    remainder: u32,
    spans: Spans,
    first_len: usize,
    mut blocks: usize,
) -> __m512i {
    // SAFETY: there are more than 64 bytes. Those after `first_len` are taken once more.
    let first = unsafe { take_64::<P, 0>(spans) };
    let first = _mm512_maskz_mov_epi8(u64::MAX >> (BLOCK - first_len), first);
    // The remainder is added to the first bytes of the message, however few are in this block.
    let first = _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(remainder.cast_signed())));
    let first_over = broadcast(&OVER_BYTES[first_len]);

    // SAFETY: so many whole blocks follow the first bytes, and each is taken once.
    unsafe {
        let mut spans = spans.after(first_len);
        let next = fold_to(first, first_over, take_64::<P, 0>(spans));
        if blocks < STREAMS {
            let multipliers = &TO_LAST_LANE[LAST_BLOCKS - blocks..];
            let mut sum = fold_to(next, load(&multipliers[0]), _mm512_setzero_si512());
            for (index, multipliers) in multipliers.iter().enumerate().skip(1) {
                sum = fold_to(take_64::<P, 0>(spans.after(BLOCK * index)), load(multipliers), sum);
            }
            return sum;
        }
        let over_streams = broadcast(&OVER_STREAMS);
        let mut streams = [
            next,
            take_64::<P, BLOCK>(spans),
            take_64::<P, { 2 * BLOCK }>(spans),
            take_64::<P, { 3 * BLOCK }>(spans),
        ];
        spans = spans.after(STREAMS * BLOCK);
        blocks -= STREAMS;
        while blocks >= STREAMS {
            streams = [
                fold_to(streams[0], over_streams, take_64::<P, 0>(spans)),
                fold_to(streams[1], over_streams, take_64::<P, BLOCK>(spans)),
                fold_to(streams[2], over_streams, take_64::<P, { 2 * BLOCK }>(spans)),
                fold_to(streams[3], over_streams, take_64::<P, { 3 * BLOCK }>(spans)),
            ];
            spans = spans.after(STREAMS * BLOCK);
            blocks -= STREAMS;
        }
        let multipliers = &TO_LAST_LANE[LAST_BLOCKS - STREAMS - blocks..];
        let (of_streams, of_blocks) = multipliers.split_at(STREAMS);
        let mut sum = _mm512_setzero_si512();
        for (stream, multipliers) in streams.into_iter().zip(of_streams) {
            sum = fold_to(stream, load(multipliers), sum);
        }
        for (index, multipliers) in of_blocks.iter().enumerate() {
            sum = fold_to(take_64::<P, 0>(spans.after(BLOCK * index)), load(multipliers), sum);
        }
        sum
    }
}

/// Returns the multipliers of four lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(multipliers: &LaneMultipliers) -> __m512i {
    // SAFETY: a reference to 64 bytes, aligned to 64.
    unsafe { _mm512_load_si512(core::ptr::from_ref(multipliers).cast()) }
}

/// Returns the same multipliers for each of four lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(multipliers: &Multipliers) -> __m512i {
    // SAFETY: a reference to 16 bytes, aligned to 16.
    let lane = unsafe { _mm_load_si128(core::ptr::from_ref(multipliers).cast::<__m128i>()) };
    _mm512_broadcast_i32x4(lane)
}

/// Folds the lanes of `block`, and adds them to `to`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_to(block: __m512i, multipliers: __m512i, to: __m512i) -> __m512i {
    const SUM_OF_THREE: i32 = 0x96;
    let low = _mm512_clmulepi64_epi128(block, multipliers, 0x00);
    let high = _mm512_clmulepi64_epi128(block, multipliers, 0x11);
    _mm512_ternarylogic_epi64(low, high, to, SUM_OF_THREE)
}

/// Returns the remainder of the sum of four lanes.
#[inline]
#[target_feature(enable = "avx512f,sse4.2")]
fn remainder_of(lanes: __m512i) -> u32 {
    let two = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
    let one = _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    let remainder = _mm_crc32_u64(0, _mm_cvtsi128_si64(one) as u64);
    _mm_crc32_u64(remainder, _mm_extract_epi64(one, 1) as u64) as u32
}
