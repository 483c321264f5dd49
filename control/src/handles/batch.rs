//! Work requests that are posted together.

use warpline_dataplane::limits;
use warpline_dataplane::qp::shared::{BadRequest, PostError, SendList};
use warpline_dataplane::qp::work::{Operation, Payload, SendRequest, Slice};

use crate::handles::posting::place_in;
use crate::handles::queue_pair::QueuePair;
use crate::vocabulary::advertisement::Advertisement;

/// Send work requests that are being gathered for one queue pair, with one bell for the core when they are
/// [posted](Self::commit). It lives on the stack and allocates nothing; dropped before that, nothing of it is
/// posted.
///
/// ```no_run
/// # use warpline::{Advertisement, QueuePair, Slice};
/// # fn post(qp: &QueuePair, slice: Slice, peer: Advertisement) -> Result<(), Box<dyn std::error::Error>> {
/// let mut batch = qp.batch();
/// batch.write(1, slice, &peer, 0)?;
/// batch.write(2, slice, &peer, 4096)?;
/// batch.send(3, slice)?;
/// batch.commit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is posted before commit"]
#[derive(Debug)]
pub struct SendBatch<'a> {
    qp: &'a QueuePair,
    requests: SendList,
}

impl<'a> SendBatch<'a> {
    /// Work requests that one batch holds.
    pub const CAPACITY: usize = limits::POST_BATCH;

    pub(crate) const fn new(qp: &'a QueuePair) -> Self {
        Self { qp, requests: SendList::new() }
    }

    /// Returns the number of requests in the batch.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if the batch holds no request.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a request as it is.
    ///
    /// # Errors
    ///
    /// [`PostError::BatchFull`] when the batch is full: commit it, and begin another.
    #[inline]
    pub fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.requests.push(request)
    }

    /// Adds a Send of `local`. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn send(&mut self, id: u64, local: impl Into<Payload>) -> Result<(), PostError> {
        self.push(SendRequest::new(id, Operation::SEND, local))
    }

    /// Adds an RDMA Write of `local` to byte `offset` of `remote`. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`PostError::OutsideAdvertisement`], and as [`push`](Self::push).
    #[inline]
    pub fn write(
        &mut self,
        id: u64,
        local: impl Into<Payload>,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<(), PostError> {
        // Not by way of `write_request`: a request in a `Result` is moved once more, which for small messages
        // shows.
        let local = local.into();
        let to = place_in(remote, offset, local.len())?;
        self.push(SendRequest::new(id, Operation::Write { stag: remote.stag, to }, local))
    }

    /// Adds an RDMA Read into `local` from byte `offset` of `remote`. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`PostError::OutsideAdvertisement`], and as [`push`](Self::push).
    pub fn read(
        &mut self,
        id: u64,
        local: Slice,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<(), PostError> {
        self.push(QueuePair::read_request(id, local, remote, offset)?)
    }

    /// Posts what it holds, in order. The batch is empty afterwards, and can be filled again.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not taken; those before it are posted, those after it are not.
    // By reference: the batch is some KiB, and would be moved.
    #[inline]
    pub fn commit(&mut self) -> Result<(), BadRequest> {
        let posted = self.qp.shared.post_list(&self.requests);
        self.requests.clear();
        posted
    }
}
