//! The payload of work requests: ranges of registered memory, or inline data.

use core::num::NonZeroU32;

use crate::limits;
use crate::memory::STag;

/// A range of registered memory of this end: the scatter/gather element of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slice {
    /// The registration.
    pub stag: STag,
    /// The Tagged Offset of the first byte.
    pub to: u64,
    /// The length in bytes.
    pub len: u32,
}

/// More ranges than [`SCATTER_GATHER_ELEMENTS`](limits::SCATTER_GATHER_ELEMENTS).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} ranges are more than the {max} of a work request", max = limits::SCATTER_GATHER_ELEMENTS)]
pub struct TooManySlices(pub usize);

/// A scatter/gather list: ranges of memory in the order of their bytes in the message.
#[derive(Clone, Copy, Debug, Default)]
pub struct SliceList {
    slices: [Slice; limits::SCATTER_GATHER_ELEMENTS],
    len: u8,
    /// The [lender](super::lender) of the memory, if one has lent it.
    pub(super) lender: Option<NonZeroU32>,
}

impl SliceList {
    /// The ranges, in order.
    #[inline]
    pub fn as_slice(&self) -> &[Slice] {
        &self.slices[..usize::from(self.len)]
    }

    /// The bytes of all ranges together.
    #[inline]
    pub fn byte_len(&self) -> u64 {
        self.as_slice().iter().map(|slice| u64::from(slice.len)).sum()
    }

    /// Becomes a list of `first`, or of nothing if `len` is 0, of memory that `lender` has lent.
    #[inline]
    pub(super) const fn restart(&mut self, lender: Option<NonZeroU32>, first: Slice, len: u8) {
        debug_assert!(len <= 1, "one range at most");
        (self.slices[0], self.len, self.lender) = (first, len, lender);
    }

    /// Adds `slice` if there is room.
    #[inline]
    pub(super) fn push(&mut self, slice: Slice) {
        if let Some(place) = self.slices.get_mut(usize::from(self.len)) {
            *place = slice;
            self.len += 1;
        }
    }

    /// The pieces of the ranges that hold the `len` bytes from `offset`: for each, its offset relative to
    /// `offset`, and the part. Bytes after the end of the list are left out.
    pub fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = (usize, Slice)> {
        pieces(self.as_slice(), offset, len)
    }
}

/// The pieces of `slices` that hold the `len` bytes from `offset`, as [`SliceList::pieces`].
pub(super) fn pieces(slices: &[Slice], offset: u64, len: usize) -> impl Iterator<Item = (usize, Slice)> {
    let (mut begin, wanted) = (0, offset..offset.saturating_add(len as u64));
    slices.iter().filter_map(move |slice| {
        let end = begin + u64::from(slice.len);
        let (from, to) = (wanted.start.max(begin), wanted.end.min(end));
        let skipped = from.saturating_sub(begin);
        begin = end;
        (from < to).then(|| {
            let part =
                Slice { stag: slice.stag, to: slice.to.wrapping_add(skipped), len: (to - from) as u32 };
            ((from - wanted.start) as usize, part)
        })
    })
}

impl PartialEq for SliceList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SliceList {}

impl From<Slice> for SliceList {
    fn from(slice: Slice) -> Self {
        let mut list = Self { len: 1, ..Self::default() };
        list.slices[0] = slice;
        list
    }
}

impl TryFrom<&[Slice]> for SliceList {
    type Error = TooManySlices;

    fn try_from(slices: &[Slice]) -> Result<Self, TooManySlices> {
        let mut list = Self { len: slices.len() as u8, ..Self::default() };
        list.slices.get_mut(..slices.len()).ok_or(TooManySlices(slices.len()))?.copy_from_slice(slices);
        Ok(list)
    }
}

/// More bytes than [`INLINE_BYTES`](limits::INLINE_BYTES).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are more than the {max} that go inline", max = limits::INLINE_BYTES)]
pub struct TooLongForInline(pub usize);

/// Inline data: bytes in the work request. They need no registration, and their source may be reused at
/// once.
#[derive(Clone, Copy, Debug)]
pub struct InlineData {
    bytes: [u8; limits::INLINE_BYTES],
    len: u8,
}

impl InlineData {
    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl PartialEq for InlineData {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for InlineData {}

impl TryFrom<&[u8]> for InlineData {
    type Error = TooLongForInline;

    fn try_from(bytes: &[u8]) -> Result<Self, TooLongForInline> {
        let mut data = Self { bytes: [0; limits::INLINE_BYTES], len: bytes.len() as u8 };
        data.bytes.get_mut(..bytes.len()).ok_or(TooLongForInline(bytes.len()))?.copy_from_slice(bytes);
        Ok(data)
    }
}

/// The payload of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Ranges of registered memory; they belong to the stack until the completion.
    Gather(SliceList),
    /// Bytes in the request.
    Inline(InlineData),
}

impl Payload {
    /// An empty payload.
    pub const EMPTY: Self = Self::Gather(SliceList {
        slices: [EMPTY_SLICE; limits::SCATTER_GATHER_ELEMENTS],
        len: 0,
        lender: None,
    });

    /// The length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Gather(list) => list.byte_len(),
            Self::Inline(data) => u64::from(data.len),
        }
    }

    /// Returns true if there is no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ranges of memory; none if the data is inline.
    #[inline]
    pub fn slices(&self) -> &[Slice] {
        match self {
            Self::Gather(list) => list.as_slice(),
            Self::Inline(_) => &[],
        }
    }
}

const EMPTY_SLICE: Slice = Slice { stag: STag(0), to: 0, len: 0 };

impl Default for Payload {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<Slice> for Payload {
    fn from(slice: Slice) -> Self {
        Self::Gather(slice.into())
    }
}

impl From<SliceList> for Payload {
    fn from(list: SliceList) -> Self {
        Self::Gather(list)
    }
}

impl From<InlineData> for Payload {
    fn from(data: InlineData) -> Self {
        Self::Inline(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(stag: u32, to: u64, octets: u32) -> Slice {
        Slice { stag: STag(stag), to, len: octets }
    }

    #[test]
    fn pieces_end_where_their_range_ends() {
        let list = SliceList::try_from(&[slice(1, 10, 3), slice(2, 0, 0), slice(3, 100, 5)][..]).unwrap();
        assert_eq!(list.byte_len(), 8);
        let pieces = |offset, octets| list.pieces(offset, octets).collect::<Vec<_>>();
        assert_eq!(pieces(0, 8), [(0, slice(1, 10, 3)), (3, slice(3, 100, 5))]);
        assert_eq!(pieces(2, 3), [(0, slice(1, 12, 1)), (1, slice(3, 100, 2))]);
        assert_eq!(pieces(4, 100), [(0, slice(3, 101, 4))], "nothing lies after the end");
        assert_eq!(pieces(8, 1), []);
        assert_eq!(pieces(0, 0), []);
    }

    #[test]
    fn lists_have_a_limit() {
        let slices = [slice(1, 0, 1); limits::SCATTER_GATHER_ELEMENTS + 1];
        assert_eq!(SliceList::try_from(&slices[..]), Err(TooManySlices(slices.len())));
        assert_eq!(SliceList::try_from(&slices[1..]).unwrap().as_slice(), &slices[1..]);
        let octets = [7; limits::INLINE_BYTES + 1];
        assert_eq!(InlineData::try_from(&octets[..]), Err(TooLongForInline(octets.len())));
        assert_eq!(InlineData::try_from(&octets[1..]).unwrap().as_slice(), &octets[1..]);
        assert!(SliceList::try_from(&[slice(1, 0, 1); 300][..]).is_err());
        assert!(InlineData::try_from(&[0; 256][..]).is_err());
    }
}
