//! The message that is being received.

use crate::qp::work::{ReceiveRequest, Slice};
use crate::wire::ddp::Untagged;

/// Octets of an untagged header before the Message Offset: the same in all segments of a message but for the
/// last flag.
const ALIKE: usize = Untagged::LEN - size_of::<u32>();

/// A message being received into a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub request: ReceiveRequest,
    /// Octets placed: the offset at which the next segment must begin.
    pub placed: u32,
    /// How the headers of its segments begin, but for that of the last.
    begin: [u8; ALIKE],
}

impl Current {
    /// A message that the segment with `header` begins, into the buffer of `request`.
    pub(super) fn new(request: ReceiveRequest, header: &Untagged) -> Self {
        let mut octets = [0; Untagged::LEN];
        Untagged { last: false, ..*header }.emit(&mut octets);
        let mut begin = [0; ALIKE];
        begin.copy_from_slice(&octets[..ALIKE]);
        Self { request, placed: 0, begin }
    }

    /// The memory of the `octets` octets of payload of a segment with `header`, if it is the next of the
    /// message and not the last; `None` if it is anything else, or the buffer is more than one range of
    /// memory. What the header of the first segment was checked for holds for one that begins like it.
    #[inline]
    pub(super) fn continued_by(&self, header: &[u8; Untagged::LEN], octets: usize) -> Option<Slice> {
        let (begin, offset) = header.split_last_chunk()?;
        let [buffer] = self.request.local.as_slice() else { return None };
        let is_next = *begin == self.begin && u32::from_be_bytes(*offset) == self.placed;
        let fits = (1..=buffer.len.saturating_sub(self.placed) as usize).contains(&octets);
        let to = buffer.to.wrapping_add(u64::from(self.placed));
        (is_next && fits).then_some(Slice { stag: buffer.stag, to, len: octets as u32 })
    }
}
