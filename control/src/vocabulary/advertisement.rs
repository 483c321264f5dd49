//! Advertisements: how one end describes a buffer to the other.

use warpline_dataplane::memory::STag;

/// Registered memory of the peer: where an RDMA Write may go, or what an RDMA Read may fetch.
///
/// On the wire it is rping's message, a Send of 16 octets, big-endian: Tagged Offset 8, STag 4, length 4.
///
/// ```
/// use warpline::{Advertisement, STag};
///
/// let advertisement = Advertisement { to: 0x1000, stag: STag(0x0102_0304), octets: 64 };
/// let message = advertisement.encode();
/// assert_eq!(message, [0, 0, 0, 0, 0, 0, 0x10, 0, 1, 2, 3, 4, 0, 0, 0, 64]);
/// assert_eq!(Advertisement::decode(&message), Ok(advertisement));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Advertisement {
    /// The Tagged Offset of the first octet.
    pub to: u64,
    /// The registration.
    pub stag: STag,
    /// Octets from there on.
    pub octets: u32,
}

/// A message that is not an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a message of {octets} bytes is no advertisement: it has 16 (address 8, STag 4, length 4, big-endian)"
)]
pub struct NotAnAdvertisement {
    /// Octets of the message.
    pub octets: usize,
}

impl Advertisement {
    /// Octets of the message.
    pub const OCTETS: usize = 16;

    /// Returns the message.
    pub fn encode(&self) -> [u8; Self::OCTETS] {
        let mut message = [0; Self::OCTETS];
        message[..8].copy_from_slice(&self.to.to_be_bytes());
        message[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        message[12..].copy_from_slice(&self.octets.to_be_bytes());
        message
    }

    /// Reads the message.
    ///
    /// # Errors
    ///
    /// [`NotAnAdvertisement`] when it does not have 16 octets.
    pub fn decode(message: &[u8]) -> Result<Self, NotAnAdvertisement> {
        let error = NotAnAdvertisement { octets: message.len() };
        let (to, rest) = message.split_first_chunk().ok_or(error)?;
        let (stag, rest) = rest.split_first_chunk().ok_or(error)?;
        let octets = rest.try_into().map_err(|_| error)?;
        Ok(Self {
            to: u64::from_be_bytes(*to),
            stag: STag(u32::from_be_bytes(*stag)),
            octets: u32::from_be_bytes(octets),
        })
    }

    /// Returns the Tagged Offset of octet `offset` when `octets` octets from there lie inside.
    pub(crate) fn range(&self, offset: u64, octets: u32) -> Option<u64> {
        let end = offset.checked_add(u64::from(octets))?;
        if end <= u64::from(self.octets) { self.to.checked_add(offset) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_16_octets_are_an_advertisement() {
        for octets in (0..40).filter(|octets| *octets != 16) {
            assert_eq!(Advertisement::decode(&vec![0; octets]), Err(NotAnAdvertisement { octets }));
        }
    }

    #[test]
    fn ranges_end_with_the_buffer() {
        let advertisement = Advertisement { to: u64::MAX - 9, stag: STag(1), octets: 10 };
        assert_eq!(advertisement.range(4, 6), Some(u64::MAX - 5));
        assert_eq!(advertisement.range(4, 7), None, "past the end");
        assert_eq!(advertisement.range(u64::MAX, 1), None, "the sum wraps");
        let beyond = Advertisement { octets: 20, ..advertisement };
        assert_eq!(beyond.range(11, 1), None, "no Tagged Offset is that high");
    }
}
