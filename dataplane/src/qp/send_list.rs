//! Send work requests that an application gathers to post them together.

use arrayvec::ArrayVec;

use super::post_error::PostError;
use super::request_check::check_shape;
use super::work::SendRequest;
use super::wqe::{Boxes, CompactWqe, WQE_WORDS};
use crate::limits;

/// Up to [`POST_BATCH`](limits::POST_BATCH) send work requests, in order. A compact one is kept in the form
/// that it has in the ring, a third of its size.
#[derive(Debug, Default)]
pub struct SendList {
    wqes: ArrayVec<CompactWqe, { limits::POST_BATCH }>,
    /// Those that are not compact.
    full: ArrayVec<SendRequest, { limits::POST_BATCH }>,
    /// How many are signaled.
    signaled: u32,
    /// Whether one needs a check of its shape when it is posted.
    has_unchecked: bool,
}

impl SendList {
    /// Returns no requests.
    pub const fn new() -> Self {
        Self { wqes: ArrayVec::new_const(), full: ArrayVec::new_const(), signaled: 0, has_unchecked: false }
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// [`PostError::BatchFull`].
    #[expect(
        clippy::inline_always,
        reason = "a request that is built for it is not built then, only its compact form"
    )]
    #[inline(always)]
    pub fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.wqes.is_full() {
            return Err(PostError::BatchFull);
        }
        let full = self.full.len();
        let wqe = CompactWqe::new(&request);
        if wqe.is_none() {
            self.full.push(request);
        }
        let wqe = wqe.unwrap_or_else(|| CompactWqe::boxed(full, &request));
        self.wqes.push(wqe);
        self.signaled += u32::from(request.signaled);
        self.has_unchecked |= wqe.check_shape(false).is_err() || wqe.box_index().is_some();
        Ok(())
    }

    /// Removes all requests.
    #[inline]
    pub fn clear(&mut self) {
        self.wqes.clear();
        self.full.clear();
        (self.signaled, self.has_unchecked) = (0, false);
    }

    /// The requests.
    #[inline]
    pub(super) fn wqes(&self) -> &[CompactWqe] {
        &self.wqes
    }

    /// The request of `wqe`, if it is not compact.
    #[inline]
    fn full(&self, wqe: &CompactWqe) -> Option<&SendRequest> {
        self.full.get(wqe.box_index()?)
    }

    /// The first request that does not pass [`check_shape`]: its index, and what is wrong.
    #[inline]
    pub(super) fn first_bad(&self, reads: bool) -> Option<(usize, PostError)> {
        if !self.has_unchecked {
            return None;
        }
        let check = |wqe| match self.full(wqe) {
            Some(request) => check_shape(request, reads),
            None => wqe.check_shape(reads),
        };
        self.wqes.iter().enumerate().find_map(|(index, wqe)| Some((index, check(wqe).err()?)))
    }

    /// How many of `wqes`, the first of the list, are signaled.
    #[inline]
    pub(super) fn signaled(&self, wqes: &[CompactWqe]) -> u32 {
        if wqes.len() == self.wqes.len() {
            return self.signaled;
        }
        wqes.iter().filter(|wqe| wqe.is_signaled()).count() as u32
    }

    /// The words of a request of the list, for the slot with `index`. If it is not compact, it is written to
    /// the box at `index`.
    #[inline]
    pub(super) fn words(
        &self,
        wqe: &CompactWqe,
        boxes: &Boxes,
        index: usize,
        after_close: bool,
    ) -> [u64; WQE_WORDS] {
        match self.full(wqe) {
            Some(request) => boxes.fill(index, request).words(after_close),
            None => wqe.words(after_close),
        }
    }
}
