//! Work requests on their way to queue pairs.

use warpline_dataplane::qp::shared::{BadRequest, PostError};
use warpline_dataplane::qp::work::{Operation, Payload, ReceiveRequest, SendRequest, Slice, SliceList};

use crate::handles::batch::SendBatch;
use crate::handles::queue_pair::QueuePair;
use crate::vocabulary::advertisement::Advertisement;

impl QueuePair {
    /// Posts a Send of `local`: it arrives in the buffer of the peer's oldest receive. Its completion is
    /// called `id`; until then `local` is not to be written to, or what arrives is not defined (see
    /// [`SendRequest`]).
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_send(&self, id: u64, local: impl Into<Payload>) -> Result<(), PostError> {
        self.post(SendRequest::new(id, Operation::SEND, local))
    }

    /// Posts an RDMA Write of `local` to byte `offset` of `remote`. Its completion is called `id`; until
    /// then `local` is not to be written to, or what arrives is not defined (see [`SendRequest`]).
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_write(
        &self,
        id: u64,
        local: impl Into<Payload>,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<(), PostError> {
        self.post(Self::write_request(id, local, remote, offset)?)
    }

    /// Posts an RDMA Read of as many bytes as `local` has, from byte `offset` of `remote`. Its completion
    /// is called `id`.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_read(
        &self,
        id: u64,
        local: Slice,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<(), PostError> {
        self.post(Self::read_request(id, local, remote, offset)?)
    }

    /// Posts an RDMA Write as [`post_write`](Self::post_write) does, and eight bytes of Immediate Data after
    /// it that complete a receive of the peer, which learns so that all of the Write has been placed (RFC
    /// 7306 §6).
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    pub fn post_write_with_immediate(
        &self,
        id: u64,
        local: impl Into<Payload>,
        remote: &Advertisement,
        offset: u64,
        immediate: u64,
    ) -> Result<(), PostError> {
        let local = local.into();
        let (stag, to) = (remote.stag, place_in(remote, offset, local.len())?);
        let operation = Operation::WriteWithImmediate { stag, to, immediate, solicited: false };
        self.post(SendRequest::new(id, operation, local))
    }

    /// Posts an atomic addition of `add` to the eight bytes at byte `offset` of `remote`, which must be
    /// aligned to eight (RFC 7306 §5.1.1). Their value before comes to `local`, of eight bytes. Its
    /// completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    pub fn post_fetch_add(
        &self,
        id: u64,
        local: Slice,
        remote: &Advertisement,
        offset: u64,
        add: u64,
    ) -> Result<(), PostError> {
        let (stag, to) = (remote.stag, place_in(remote, offset, ATOMIC_BYTES)?);
        self.post(SendRequest::new(id, Operation::FetchAdd { stag, to, add, mask: 0 }, local))
    }

    /// Posts an atomic exchange of the eight bytes at byte `offset` of `remote`: if they are `compare`,
    /// they become `swap` (RFC 7306 §5.1.2). As [`post_fetch_add`](Self::post_fetch_add) else.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    pub fn post_compare_swap(
        &self,
        id: u64,
        local: Slice,
        remote: &Advertisement,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<(), PostError> {
        let (stag, to) = (remote.stag, place_in(remote, offset, ATOMIC_BYTES)?);
        let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
        let operation = Operation::CompareSwap { stag, to, compare, compare_mask, swap, swap_mask };
        self.post(SendRequest::new(id, operation, local))
    }

    /// Returns an RDMA Write of `local` to byte `offset` of `remote`.
    #[inline]
    pub(crate) fn write_request(
        id: u64,
        local: impl Into<Payload>,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<SendRequest, PostError> {
        let local = local.into();
        let to = place_in(remote, offset, local.len())?;
        Ok(SendRequest::new(id, Operation::Write { stag: remote.stag, to }, local))
    }

    /// Returns an RDMA Read into `local` from byte `offset` of `remote`.
    #[inline]
    pub(crate) fn read_request(
        id: u64,
        local: impl Into<Payload>,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<SendRequest, PostError> {
        let local = local.into();
        let to = place_in(remote, offset, local.len())?;
        Ok(SendRequest::new(id, Operation::Read { stag: remote.stag, to }, local))
    }

    /// Posts a send work request as it is; one that is not signaled reports only failure.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post(&self, request: SendRequest) -> Result<(), PostError> {
        self.shared.post_send(request)
    }

    /// Posts send work requests in this order: less work than one by one, and one bell for the core. See also
    /// [`batch`](Self::batch).
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not taken; those before it are posted, those after it are not.
    pub fn post_many(&self, requests: &[SendRequest]) -> Result<(), BadRequest> {
        self.shared.post_sends(requests)
    }

    /// Posts all of `requests`, in this order and with one bell for the core, or none.
    ///
    /// # Errors
    ///
    /// [`PostError`] of the first that was not taken; nothing is posted then.
    pub fn post_all(&self, requests: &[SendRequest]) -> Result<(), PostError> {
        self.shared.post_all(requests)
    }

    /// Returns how many send work requests may be posted now: no fewer until this thread posts. Completions
    /// need room too.
    pub fn sends_free(&self) -> usize {
        self.shared.sends_free()
    }

    /// Begins a list of send work requests that are posted together.
    pub const fn batch(&self) -> SendBatch<'_> {
        SendBatch::new(self)
    }

    /// Posts a receive: `local` is for one Send of the peer. Allowed before the connection is open, and wise:
    /// a Send that finds none ends the stream, unless it is to [wait](crate::RnrPolicy). Its completion is
    /// called `id`.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing is posted then.
    pub fn post_receive(&self, id: u64, local: impl Into<SliceList>) -> Result<(), PostError> {
        self.shared.post_receive(ReceiveRequest::new(id, local))
    }

    /// Posts receives in this order.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not taken; those before it are posted, those after it are not.
    pub fn post_receives(&self, requests: &[ReceiveRequest]) -> Result<(), BadRequest> {
        self.shared.post_receives(requests)
    }
}

/// Bytes that an Atomic Operation works on.
const ATOMIC_BYTES: u64 = 8;

/// Returns the Tagged Offset of byte `offset` of `remote`, when `bytes` bytes from there lie inside.
#[inline]
pub(crate) fn place_in(remote: &Advertisement, offset: u64, len: u64) -> Result<u64, PostError> {
    let to = u32::try_from(len).ok().and_then(|len| remote.range(offset, len));
    to.ok_or(PostError::OutsideAdvertisement { advertised: remote.len })
}
