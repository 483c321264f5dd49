//! The content of messages, and its comparison.
//!
//! Both ends make the same random bytes. Message `n` of a queue pair takes its bytes from a place that
//! depends on `n`, so that the bytes of an earlier message, or of another place, differ from those that
//! belong there: with messages of 64 KiB, message 17 is the second of round 1, so its bytes begin at
//! 1 * 65536 + 1 * 64.

use warpline::MemoryRegion;

use crate::pattern::{SHIFT_BYTES, SHIFTS, shift, shifted_bytes, shifted_len};

/// Bytes of a round: messages of a round lie side by side.
const ROUND_BYTES: u32 = 1 << 20;
/// Bytes compared at a time.
pub const CHUNK_BYTES: usize = 16 << 10;

/// The bytes from which every message takes its own.
pub struct Content {
    bytes: Vec<u8>,
    size: usize,
    /// Messages of a round.
    per_round: u64,
}

impl Content {
    /// Returns the content of messages of `size` bytes, one at least.
    pub fn new(size: u32) -> Self {
        let per_round = (ROUND_BYTES / size).max(1);
        let size = size as usize;
        let bytes = shifted_bytes(size * per_round as usize);
        Self { bytes, size, per_round: per_round.into() }
    }

    /// Returns how many bytes the content of messages of `size` bytes takes, one at least.
    pub fn len_for(size: u32) -> usize {
        shifted_len(size as usize * (ROUND_BYTES / size).max(1) as usize)
    }

    /// Returns the bytes to fill a source region with.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the offset in the source region of the bytes of message `number`.
    pub const fn offset(&self, number: u64) -> usize {
        let (round, place) = (number / self.per_round, number % self.per_round);
        place as usize * self.size + shift(round)
    }

    /// Returns the last byte of message `number`.
    pub fn last_byte(&self, number: u64) -> u8 {
        self.bytes[self.offset(number) + self.size - 1]
    }

    /// Returns the offsets of the messages from the first on.
    pub const fn offsets(&self) -> Offsets {
        Offsets { round_bytes: self.per_round as usize * self.size, size: self.size, place: 0, shift: 0 }
    }
}

/// The offsets of successive messages in the source region: as [`Content::offset`], without a division.
pub struct Offsets {
    round_bytes: usize,
    size: usize,
    place: usize,
    shift: usize,
}

impl Offsets {
    /// Returns the offset of the next message.
    #[inline]
    pub fn advance(&mut self) -> usize {
        let offset = self.place + self.shift;
        self.place += self.size;
        if self.place == self.round_bytes {
            self.place = 0;
            self.shift += SHIFT_BYTES;
            if self.shift == SHIFT_BYTES * SHIFTS as usize {
                self.shift = 0;
            }
        }
        offset
    }
}

/// A comparison of successive messages that lie side by side in memory, made a part at a time between polls.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The number of the first message.
    first: u64,
    /// The offset of its bytes in the memory.
    offset: usize,
    /// Bytes to compare.
    bytes: u64,
    /// Bytes compared.
    done: u64,
}

impl Comparison {
    /// Returns the comparison of messages `first..first + count` of `size` bytes each, at byte `offset`.
    pub fn new(first: u64, count: u64, size: u32, offset: usize) -> Self {
        Self { first, offset, bytes: count * u64::from(size), done: 0 }
    }

    /// Returns the bytes to compare in all.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset in the memory of the first byte.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns true if all bytes are compared.
    pub const fn is_done(&self) -> bool {
        self.done == self.bytes
    }

    /// Returns true if no byte is compared yet.
    pub const fn is_new(&self) -> bool {
        self.done == 0
    }

    /// Begins again.
    pub const fn restart(&mut self) {
        self.done = 0;
    }

    /// Compares the next part of `memory`, copied to `chunk` for that. Returns the number of bytes that are
    /// wrong.
    pub fn advance(&mut self, content: &Content, memory: &MemoryRegion, chunk: &mut [u8]) -> u64 {
        let size = content.size as u64;
        let (message, within) = (self.first + self.done / size, self.done % size);
        // Up to the end of the round the expected bytes are contiguous, as the messages are.
        let left_in_round = (content.per_round - message % content.per_round) * size - within;
        let len = left_in_round.min(self.bytes - self.done).min(chunk.len() as u64) as usize;
        let expected = &content.bytes[content.offset(message) + within as usize..][..len];
        let got = &mut chunk[..len];
        let readable = memory.read(self.offset + self.done as usize, got);
        self.done += len as u64;
        if !readable {
            return len as u64;
        }
        if got == expected {
            return 0;
        }
        got.iter().zip(expected).filter(|(got, expected)| got != expected).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &Content, number: u64) -> &[u8] {
        &content.bytes()[content.offset(number)..][..content.size]
    }

    #[test]
    fn offsets_are_the_same_one_by_one() {
        for size in [1, 3, 64, 65_536, 1 << 20, (1 << 20) + 1] {
            let content = Content::new(size);
            let mut offsets = content.offsets();
            for number in 0..3 * content.per_round + 2 {
                assert_eq!(offsets.advance(), content.offset(number), "{number} of {size}");
            }
            let far = content.per_round * SHIFTS;
            assert_eq!(content.offset(far), content.offset(0), "{size}");
            assert!(message(&content, far - 1).len() == size as usize, "the last one lies inside");
        }
    }

    /// An older message of the same place, and the message of another place, are not taken for the right one.
    #[test]
    fn messages_differ() {
        let content = Content::new(4096);
        for other in [1, 2, 255, 256, 257, 512] {
            let same =
                message(&content, 0).iter().zip(message(&content, other)).filter(|(a, b)| a == b).count();
            assert!(same < 60, "{same} bytes of message {other} are those of message 0");
        }
    }
}
