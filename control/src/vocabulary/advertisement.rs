//! Advertisements: how one end describes a buffer to the other.

use warpline_dataplane::memory::STag;

/// Registered memory of the peer: where an RDMA Write may go, or what an RDMA Read may fetch.
///
/// On the wire it is rping's message, a Send of 16 bytes, big-endian: Tagged Offset 8, STag 4, length 4.
///
/// ```
/// use warpline::{Advertisement, STag};
///
/// let advertisement = Advertisement { to: 0x1000, stag: STag(0x0102_0304), len: 64 };
/// let message = advertisement.encode();
/// assert_eq!(message, [0, 0, 0, 0, 0, 0, 0x10, 0, 1, 2, 3, 4, 0, 0, 0, 64]);
/// assert_eq!(Advertisement::decode(&message), Ok(advertisement));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Advertisement {
    /// The Tagged Offset of the first byte.
    pub to: u64,
    /// The registration.
    pub stag: STag,
    /// Bytes from there on.
    pub len: u32,
}

/// A message that is not an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {len} bytes is no advertisement: it has 16 (address 8, STag 4, length 4, big-endian)")]
pub struct NotAnAdvertisement {
    /// The length of the message in bytes.
    pub len: usize,
}

impl Advertisement {
    /// The length of the message in bytes.
    pub const MESSAGE_LEN: usize = 16;

    /// Returns the message.
    pub fn encode(&self) -> [u8; Self::MESSAGE_LEN] {
        let mut message = [0; Self::MESSAGE_LEN];
        message[..8].copy_from_slice(&self.to.to_be_bytes());
        message[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        message[12..].copy_from_slice(&self.len.to_be_bytes());
        message
    }

    /// Reads the message.
    ///
    /// # Errors
    ///
    /// [`NotAnAdvertisement`] when it does not have 16 bytes.
    pub fn decode(message: &[u8]) -> Result<Self, NotAnAdvertisement> {
        let error = NotAnAdvertisement { len: message.len() };
        let (to, rest) = message.split_first_chunk().ok_or(error)?;
        let (stag, rest) = rest.split_first_chunk().ok_or(error)?;
        let len = rest.try_into().map_err(|_| error)?;
        Ok(Self {
            to: u64::from_be_bytes(*to),
            stag: STag(u32::from_be_bytes(*stag)),
            len: u32::from_be_bytes(len),
        })
    }

    /// Returns the Tagged Offset of byte `offset` when `bytes` bytes from there lie inside.
    pub(crate) fn range(&self, offset: u64, len: u32) -> Option<u64> {
        let end = offset.checked_add(u64::from(len))?;
        if end <= u64::from(self.len) { self.to.checked_add(offset) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_16_octets_are_an_advertisement() {
        for octets in (0..40).filter(|octets| *octets != 16) {
            assert_eq!(Advertisement::decode(&vec![0; octets]), Err(NotAnAdvertisement { len: octets }));
        }
    }

    #[test]
    fn ranges_end_with_the_buffer() {
        let advertisement = Advertisement { to: u64::MAX - 9, stag: STag(1), len: 10 };
        assert_eq!(advertisement.range(4, 6), Some(u64::MAX - 5));
        assert_eq!(advertisement.range(4, 7), None, "past the end");
        assert_eq!(advertisement.range(u64::MAX, 1), None, "the sum wraps");
        let beyond = Advertisement { len: 20, ..advertisement };
        assert_eq!(beyond.range(11, 1), None, "no Tagged Offset is that high");
    }
}
