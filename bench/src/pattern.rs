//! The random bytes that messages are made of. Successive messages begin at successive shifts, so that the
//! bytes of an earlier message, or of another place, differ from those that belong there.

/// Bytes by which one message is shifted against the one before.
pub const SHIFT_BYTES: usize = 64;
/// Shifts before the first one comes again.
pub const SHIFTS: u64 = 509;

/// Returns how many bytes messages of `len` bytes at any shift take.
pub const fn shifted_len(len: usize) -> usize {
    len + SHIFT_BYTES * SHIFTS as usize
}

/// Returns the bytes for messages of `len` bytes at any shift.
pub fn shifted_bytes(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; shifted_len(len)];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in bytes.chunks_mut(8) {
        // splitmix64: both ends must make the same bytes, whatever their version of any library.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        word.copy_from_slice(&mixed.to_le_bytes()[..word.len()]);
    }
    bytes
}

/// Returns the offset of shift `number`.
pub const fn shift(number: u64) -> usize {
    SHIFT_BYTES * (number % SHIFTS) as usize
}
