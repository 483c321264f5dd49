//! The headers of Atomic Operations (RFC 7306 §5.2).

use super::stag::STag;
use super::{Malformed, Reader, Writer, room};

/// Octets of the value that an Atomic Operation works on.
pub const VALUE_OCTETS: usize = 8;

/// The operation on the eight octets (RFC 7306 figure 5).
// Requirements: RDMAPX-5-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicCode {
    /// Adds, field by field.
    FetchAdd,
    /// Compares, and replaces if it is equal.
    CompareSwap,
    /// A number that means nothing.
    Unknown(u8),
}

/// The Atomic Request header, which follows the DDP header.
// Requirements: RDMAPX-5-03
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequest {
    /// AOpCode.
    pub code: AtomicCode,
    /// Comes back in the Response.
    pub identifier: u32,
    /// The buffer at the Responder.
    pub stag: STag,
    /// Where in it.
    pub to: u64,
    /// The value that is added, or the new value.
    pub data: u64,
    /// The most significant bits of the fields that are added to, or the bits that are replaced.
    pub mask: u64,
    /// The expected value.
    pub compare: u64,
    /// The bits of it that are compared.
    pub compare_mask: u64,
}

/// A value, of which only the bits that are set in `mask` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked {
    /// The value.
    pub value: u64,
    /// The bits of it that count.
    pub mask: u64,
}

impl Masked {
    /// A value of which no bit counts.
    pub const NOTHING: Self = Self { value: 0, mask: 0 };
}

impl AtomicRequest {
    /// Octets of the header.
    pub const LEN: usize = 52;

    /// A request to add. The fields that it does not use are set as RFC 7306 §5.2.1 requires.
    pub const fn fetch_add(identifier: u32, stag: STag, to: u64, add: u64, mask: u64) -> Self {
        let code = AtomicCode::FetchAdd;
        Self { code, identifier, stag, to, data: add, mask, compare: 0, compare_mask: u64::MAX }
    }

    /// A request to replace the bits of `swap` if those of `compare` are as expected.
    pub const fn compare_swap(identifier: u32, stag: STag, to: u64, compare: Masked, swap: Masked) -> Self {
        Self {
            code: AtomicCode::CompareSwap,
            identifier,
            stag,
            to,
            data: swap.value,
            mask: swap.mask,
            compare: compare.value,
            compare_mask: compare.mask,
        }
    }

    /// Parses the header at the start of `octets`; its reserved bits are ignored.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`].
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        Self::fields(octets).ok_or(Malformed::Truncated)
    }

    fn fields(octets: &[u8]) -> Option<Self> {
        let mut octets = Reader(octets);
        let [.., code] = octets.take::<4>()?;
        Some(Self {
            code: match code & 0x0f {
                0 => AtomicCode::FetchAdd,
                2 => AtomicCode::CompareSwap,
                other => AtomicCode::Unknown(other),
            },
            identifier: u32::from_be_bytes(octets.take()?),
            stag: STag(u32::from_be_bytes(octets.take()?)),
            to: u64::from_be_bytes(octets.take()?),
            data: u64::from_be_bytes(octets.take()?),
            mask: u64::from_be_bytes(octets.take()?),
            compare: u64::from_be_bytes(octets.take()?),
            compare_mask: u64::from_be_bytes(octets.take()?),
        })
    }

    /// Writes the header to the first [`LEN`](Self::LEN) octets of `out`. Returns their number.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let code = match self.code {
            AtomicCode::FetchAdd => 0,
            AtomicCode::CompareSwap => 2,
            AtomicCode::Unknown(code) => code & 0x0f,
        };
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put([0, 0, 0, code]);
            out.put(self.identifier.to_be_bytes());
            out.put(self.stag.0.to_be_bytes());
            out.put(self.to.to_be_bytes());
            out.put(self.data.to_be_bytes());
            out.put(self.mask.to_be_bytes());
            out.put(self.compare.to_be_bytes());
            out.put(self.compare_mask.to_be_bytes());
        }
        Self::LEN
    }

    /// The result of the operation on `original`; `None` for an unknown code.
    // Requirements: RDMAPX-5-01
    #[must_use]
    pub const fn apply(&self, original: u64) -> Option<u64> {
        match self.code {
            AtomicCode::FetchAdd => Some(add_fields(original, self.data, self.mask)),
            AtomicCode::CompareSwap if (self.compare ^ original) & self.compare_mask == 0 => {
                Some(original & !self.mask | self.data & self.mask)
            }
            AtomicCode::CompareSwap => Some(original),
            AtomicCode::Unknown(_) => None,
        }
    }
}

/// Adds fields whose most significant bits are set in `mask`, each on its own: a carry out of a field is
/// dropped. The topmost bit ends a field even if the mask does not have it (RFC 7306 §5.1.1).
const fn add_fields(a: u64, b: u64, mask: u64) -> u64 {
    // The bits below the topmost of each field cannot carry beyond it; that bit is then the sum of three
    // without a carry.
    let sum = (a & !mask).wrapping_add(b & !mask);
    sum ^ (a ^ b) & mask
}

/// The Atomic Response header, which follows the DDP header.
// RDMAPX-5-03, A-26
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResponse {
    /// From the request.
    pub identifier: u32,
    /// The value before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Octets of the header.
    pub const LEN: usize = 12;

    /// Parses the header at the start of `octets`.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`].
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let mut octets = Reader(octets);
        match (octets.take(), octets.take()) {
            (Some(identifier), Some(original)) => Ok(Self {
                identifier: u32::from_be_bytes(identifier),
                original: u64::from_be_bytes(original),
            }),
            _ => Err(Malformed::Truncated),
        }
    }

    /// Writes the header to the first [`LEN`](Self::LEN) octets of `out`. Returns their number.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put(self.identifier.to_be_bytes());
            out.put(self.original.to_be_bytes());
        }
        Self::LEN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The pseudocode of RFC 7306 §5.1.1, bit by bit.
    fn add_by_the_document(original: u64, add: u64, mask: u64) -> u64 {
        let (mut carry, mut value) = (0, 0);
        for bit in 0..64 {
            let sum = carry + (original >> bit & 1) + (add >> bit & 1);
            value |= (sum & 1) << bit;
            carry = (sum >> 1) & !(mask >> bit) & 1;
        }
        value
    }

    /// A value that does not match stays; otherwise the bits of the mask are replaced.
    // Requirements: RDMAPX-5-01
    #[test]
    fn compare_and_swap_looks_through_its_masks() {
        let masked = |(value, mask)| Masked { value, mask };
        let request =
            |compare, swap| AtomicRequest::compare_swap(1, STag(2), 0, masked(compare), masked(swap));
        assert_eq!(request((5, u64::MAX), (9, u64::MAX)).apply(5), Some(9));
        assert_eq!(request((5, u64::MAX), (9, u64::MAX)).apply(6), Some(6));
        assert_eq!(request((0x05, 0x0f), (0xaa00, 0xff00)).apply(0x1234_5675), Some(0x1234_aa75));
        assert_eq!(request((0, 0), (u64::MAX, 0xf0)).apply(0x1205), Some(0x12f5));
        let unknown = AtomicRequest { code: AtomicCode::Unknown(1), ..request((0, 0), (0, 0)) };
        assert_eq!(unknown.apply(1), None);
    }

    proptest! {
        /// Additions agree with the algorithm of the document, bit by bit.
        // Requirements: RDMAPX-5-01
        #[test]
        fn additions_are_those_of_the_document(a: u64, b: u64, mask: u64) {
            for mask in [mask, 0, 1 << 63, u64::MAX, 0x8080_8080_8080_8080] {
                let request = AtomicRequest::fetch_add(1, STag(2), 0, b, mask);
                prop_assert_eq!(request.apply(a), Some(add_by_the_document(a, b, mask)));
            }
        }

        /// Parsing and emitting a header returns its octets, reserved bits aside.
        // Requirements: RDMAPX-5-03
        #[test]
        fn headers_survive(
            octets in proptest::array::uniform32(any::<u8>()),
            more in proptest::array::uniform20(any::<u8>())
        ) {
            let mut octets = [&octets[..], &more].concat();
            let request = AtomicRequest::parse(&octets).unwrap();
            (octets[0], octets[1], octets[2], octets[3]) = (0, 0, 0, octets[3] & 0x0f);
            let mut out = [0; AtomicRequest::LEN];
            prop_assert_eq!(request.emit(&mut out), octets.len());
            prop_assert_eq!(&out[..], &octets);
            prop_assert_eq!(AtomicRequest::parse(&octets[..51]), Err(Malformed::Truncated));
            let response = AtomicResponse::parse(&octets[8..20]).unwrap();
            let mut out = [0; AtomicResponse::LEN];
            response.emit(&mut out);
            prop_assert_eq!(&out[..], &octets[8..20]);
            prop_assert_eq!(AtomicResponse::parse(&octets[..11]), Err(Malformed::Truncated));
        }
    }
}
