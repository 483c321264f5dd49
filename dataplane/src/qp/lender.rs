//! Who has lent the memory of a work request: a mark that goes from the request to its completion, and that
//! nobody else can make. By the name of a request alone it could not be told whose it is: applications choose
//! names as they like.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

use super::payload::{Payload, Slice, SliceList};
use super::work::Completion;

/// One who lends memory to work requests, among all of a process. It has no copy: who keeps it to themselves
/// can be sure that what bears its mark is theirs.
#[derive(Debug)]
pub struct LenderNumber(NonZeroU32);

impl LenderNumber {
    /// One that nobody had before; `None` when there are no more, after 2^32 - 2.
    pub fn unused() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        NonZeroU32::new(number.ok()?).map(Self)
    }
}

impl SliceList {
    /// The memory of a request of `lender`. Of the request's name, its completion keeps the 32 least
    /// significant bits.
    pub fn lent(slice: Slice, lender: &LenderNumber) -> Self {
        let mut list = Self::from(slice);
        list.lender = Some(lender.0);
        list
    }
}

impl Payload {
    /// Its mark.
    pub(super) const fn lender(&self) -> Option<NonZeroU32> {
        match self {
            Self::Gather(list) => list.lender,
            Self::Inline(_) => None,
        }
    }
}

impl Completion {
    /// The same, of a request whose memory bears the mark `lender`. The mark takes the upper half of the
    /// name: there is no other room for it in an entry of 48 octets.
    pub(super) fn marked(self, lender: Option<NonZeroU32>) -> Self {
        match lender {
            Some(number) => {
                let place = self.id & u64::from(u32::MAX);
                Self { id: u64::from(number.get()) << 32 | place, lent: true, ..self }
            }
            None => self,
        }
    }

    /// The 32 bits by which `lender` named the request, if it is one of its own.
    pub fn lent_by(&self, lender: &LenderNumber) -> Option<u32> {
        let own = self.lent && self.id >> 32 == u64::from(lender.0.get());
        own.then_some(self.id as u32)
    }

    /// The same for the application, which called the request `id`: without the mark.
    #[must_use]
    pub const fn returned(self, id: u64) -> Self {
        Self { id, lent: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::work::{CompletionKind, QpNumber, ReceiveRequest, SendRequest, Status};

    /// A completion is its lender's by the mark of the request's memory, whatever the request was called.
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

        // What the stack calls it is no secret, and no use.
        let direct = completion(&ReceiveRequest::new(own.id, Slice::default()));
        assert_eq!((direct.id, direct.lent_by(&near)), (own.id, None));
        // Nor is a name of more than 32 bits with the mark of another.
        let other = completion(&ReceiveRequest::new(own.id, SliceList::lent(Slice::default(), &far)));
        assert_eq!((other.lent_by(&near), other.lent_by(&far)), (None, Some(5)));
    }

    /// The mark lies where there was nothing, so what is copied for a message is none the longer.
    #[test]
    fn it_takes_no_room() {
        assert_eq!(size_of::<SendRequest>(), 144);
        assert_eq!(size_of::<ReceiveRequest>(), 80);
        assert_eq!(size_of::<Completion>(), 48);
    }
}
