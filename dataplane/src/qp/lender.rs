//! The lender of a work request's memory: a mark that passes from the request to its completion and that
//! nobody else can forge. The `wr_id` cannot identify the lender, because applications choose any
//! value.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

use super::payload::{Payload, Slice, SliceList};
use super::work::Completion;

/// Identifies a lender of memory within the process. It cannot be copied, so only its holder can mark
/// requests with it.
#[derive(Debug)]
pub struct LenderNumber(NonZeroU32);

impl LenderNumber {
    /// A number not used before; `None` after 2^32 - 2 of them.
    pub fn unused() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        NonZeroU32::new(number.ok()?).map(Self)
    }
}

impl SliceList {
    /// A list of memory that `lender` lends. The completion keeps the 32 least significant bits of the
    /// request's `wr_id`.
    pub fn lent(slice: Slice, lender: &LenderNumber) -> Self {
        let mut list = Self::from(slice);
        list.lender = Some(lender.0);
        list
    }
}

impl Payload {
    /// The mark of the lender.
    pub(super) const fn lender(&self) -> Option<NonZeroU32> {
        match self {
            Self::Gather(list) => list.lender,
            Self::Inline(_) => None,
        }
    }
}

/// The identifier that the completion of a request has. The mark of a lender fills the upper half of the
/// `wr_id`: a completion of 48 bytes has no other room.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedId {
    /// The `wr_id`, or what the mark has left of it.
    pub(super) id: u64,
    /// It is marked.
    pub(super) lent: bool,
}

/// Returns the identifier that the completion of a request has whose memory `lender` has lent.
#[inline]
pub(super) fn marked_id(id: u64, lender: Option<NonZeroU32>) -> MarkedId {
    match lender {
        Some(number) => MarkedId { id: u64::from(number.get()) << 32 | id & u64::from(u32::MAX), lent: true },
        None => MarkedId { id, lent: false },
    }
}

impl Completion {
    /// The same completion, marked with `lender`.
    #[inline]
    pub(super) fn marked(self, lender: Option<NonZeroU32>) -> Self {
        let MarkedId { id, lent } = marked_id(self.id, lender);
        Self { id, lent, ..self }
    }

    /// The 32 bits of the `wr_id`, if `lender` has lent the memory of the request.
    pub fn lent_by(&self, lender: &LenderNumber) -> Option<u32> {
        let own = self.lent && self.id >> 32 == u64::from(lender.0.get());
        own.then_some(self.id as u32)
    }

    /// The same completion without the mark, with the application's `wr_id`.
    #[must_use]
    pub const fn returned(self, id: u64) -> Self {
        Self { id, lent: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::work::{CompletionKind, QpNumber, ReceiveRequest, SendRequest, Status};

    /// The mark identifies the lender, whatever the `wr_id` is.
    #[test]
    fn only_the_mark_tells_whose_it_is() {
        let (near, far) = (LenderNumber::unused().unwrap(), LenderNumber::unused().unwrap());
        let completion = |request: &ReceiveRequest| request.completion(QpNumber(1), Status::Success, 3);
        let lent = ReceiveRequest::new(5, SliceList::lent(Slice::default(), &near));
        let own = completion(&lent);
        assert_eq!((own.lent_by(&near), own.lent_by(&far)), (Some(5), None));
        let returned = own.returned(1 << 40);
        let plain = Completion::new(QpNumber(1), 1 << 40, CompletionKind::Receive, Status::Success, 3);
        assert_eq!((returned, returned.lent_by(&near)), (plain, None));

        // A request posted with the marked `wr_id` does not carry the mark.
        let direct = completion(&ReceiveRequest::new(own.id, Slice::default()));
        assert_eq!((direct.id, direct.lent_by(&near)), (own.id, None));
        // Nor does one with the mark of another lender.
        let other = completion(&ReceiveRequest::new(own.id, SliceList::lent(Slice::default(), &far)));
        assert_eq!((other.lent_by(&near), other.lent_by(&far)), (None, Some(5)));
    }

    /// The mark fits into padding, so requests and completions do not grow.
    #[test]
    fn it_needs_no_room() {
        assert_eq!(size_of::<SendRequest>(), 144);
        assert_eq!(size_of::<ReceiveRequest>(), 80);
        assert_eq!(size_of::<Completion>(), 48);
    }
}
