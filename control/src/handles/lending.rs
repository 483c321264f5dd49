//! Memory that is lent to work requests. Through buffers no thread writes what the stack reads, nor reads
//! what it writes: the compiler checks it.
//!
//! A [`Buffer`] is a range of a registered region with one owner; it can be cut into disjoint ones. Posting
//! through a [`Lender`] moves it away, and it comes back with its completion: until then no buffer has any of
//! its bytes, and the region can be neither had back nor deregistered. What is only sent may be lent to many
//! requests at the same time, as an `Arc<Buffer>`: that can be read meanwhile, but not written. None of it
//! changes when the lender is dropped first, or another thread polls the completion: then the buffer does not
//! come back.
//!
//! This holds among buffers, and for nothing else that reaches the same memory. Code that had the region
//! before it became a buffer may have kept another way: the memory itself ([`MemoryRegion::region`] can be
//! cloned, or registered again), a [`Slice`] of it for requests past the lender, an advertisement or a window
//! that a peer has received. Those reach it lent or not, and their users must take care.
//!
//! ```compile_fail,E0382
//! # fn post(lender: &mut warpline::Lender, qp: &warpline::QueuePair, mut buffer: warpline::Buffer) {
//! lender.send(qp, 1, buffer).unwrap();
//! buffer.write(0, b"too late"); // it is the stack's until the completion
//! # }
//! ```
//!
//! ```compile_fail,E0596
//! # use std::sync::Arc;
//! # fn post(lender: &mut warpline::Lender, qp: &warpline::QueuePair, buffer: Arc<warpline::Buffer>) {
//! lender.send(qp, 1, buffer.clone()).unwrap();
//! buffer.write(0, b"no"); // it may be read, and that is all
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # fn post(lender: &mut warpline::Lender, qp: &warpline::QueuePair, region: warpline::MemoryRegion) {
//! let buffer = warpline::Buffer::from(region);
//! lender.receive(qp, 1, buffer).unwrap();
//! drop(buffer); // nor can it be deregistered
//! # }
//! ```

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warpline_dataplane::qp::lender::LenderNumber;
use warpline_dataplane::qp::shared::PostError;
use warpline_dataplane::qp::work::{Completion, Operation, ReceiveRequest, SendRequest, Slice, SliceList};

use crate::handles::memory_region::MemoryRegion;
use crate::handles::queue_pair::QueuePair;
use crate::handles::shared::SharedCompletionQueue;
use crate::vocabulary::advertisement::Advertisement;

/// A range of a registered region that has one owner. The region stays registered as long as there is a
/// buffer of it.
pub struct Buffer {
    region: Arc<MemoryRegion>,
    offset: usize,
    len: u32,
}

impl Buffer {
    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no byte.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its offset in its region, in bytes.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Cuts it in two: the first `len` bytes, and the rest. Nothing is cut off beyond its end.
    #[must_use]
    pub fn split_at(self, len: usize) -> (Self, Self) {
        let Self { region, offset, len: all } = self;
        let first = len.min(all as usize) as u32;
        let after = offset + first as usize;
        (
            Self { region: region.clone(), offset, len: first },
            Self { region, offset: after, len: all - first },
        )
    }

    /// Puts it together with the buffer that begins where it ends, from which it was once cut.
    ///
    /// # Errors
    ///
    /// Both, when they do not lie side by side in this order.
    pub fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        let len = self.len.checked_add(next.len);
        match len {
            Some(len)
                if Arc::ptr_eq(&self.region, &next.region) && self.offset + self.len() == next.offset =>
            {
                Ok(Self { len, ..self })
            }
            _ => Err((self, next)),
        }
    }

    /// Returns the region, if this is all of it: neither the application nor the stack then has another part.
    ///
    /// # Errors
    ///
    /// The buffer, when it is a part.
    pub fn into_region(self) -> Result<MemoryRegion, Self> {
        if self.offset != 0 || self.len() != self.region.len() {
            return Err(self);
        }
        let Self { region, offset, len } = self;
        // Empty buffers may be left: they keep the region, and reach nothing of it.
        Arc::try_unwrap(region).map_err(|region| Self { region, offset, len })
    }

    /// Copies `source` to byte `offset`. `false`, and nothing written, when it does not fit.
    #[must_use]
    pub fn write(&mut self, offset: usize, source: &[u8]) -> bool {
        self.contains(offset, source.len()) && self.region.write(self.offset + offset, source)
    }

    /// Copies from byte `offset` to `target`. `false`, and `target` unchanged, when there are not as many.
    #[must_use]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> bool {
        self.contains(offset, target.len()) && self.region.read(self.offset + offset, target)
    }

    /// Returns a copy of `bytes` bytes from `offset`; `None` when there are not as many.
    pub fn to_vec(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        if self.contains(offset, len) { self.region.to_vec(self.offset + offset, len) } else { None }
    }

    fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }

    fn slice(&self) -> Slice {
        self.region.slice(self.offset, self.len)
    }
}

impl From<MemoryRegion> for Buffer {
    /// Makes a buffer of all of the region, or its first 4 GiB - 1: a message has no more. Peers that have an
    /// advertisement of the region reach it as before; whether they write to what is lent is between you and
    /// them.
    fn from(region: MemoryRegion) -> Self {
        let len = u32::try_from(region.len()).unwrap_or(u32::MAX);
        Self { region: Arc::new(region), offset: 0, len }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, offset, len } = self;
        f.debug_struct("Buffer")
            .field("stag", &region.stag())
            .field("offset", offset)
            .field("len", len)
            .finish()
    }
}

/// A buffer that is lent, or was.
#[derive(Debug)]
pub enum Loan {
    /// To one request alone.
    Owned(Buffer),
    /// To requests that read it, with others.
    Shared(Arc<Buffer>),
}

impl Loan {
    /// Returns the buffer, if it was lent to one request alone.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Owned(buffer) => Some(buffer),
            Self::Shared(_) => None,
        }
    }

    fn slice(&self) -> Slice {
        match self {
            Self::Owned(buffer) => buffer.slice(),
            Self::Shared(buffer) => buffer.slice(),
        }
    }
}

impl From<Buffer> for Loan {
    fn from(buffer: Buffer) -> Self {
        Self::Owned(buffer)
    }
}

impl From<Arc<Buffer>> for Loan {
    fn from(buffer: Arc<Buffer>) -> Self {
        Self::Shared(buffer)
    }
}

/// A work request that was not taken, with the buffer that was to be lent.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct NotLent {
    /// Why not.
    pub error: LendError,
    /// The buffer.
    pub loan: Loan,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    /// The queue pair does not take it.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The lender has lent as many buffers as it can.
    #[error("as many buffers are lent as the lender can keep: poll completions first")]
    TooManyLoans,
    /// The queue pair reports to another completion queue, so that the buffer would never come back.
    #[error("the queue pair reports to another completion queue: make it with that of the lender")]
    OtherCompletionQueue,
}

/// A completion and what comes back with it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Returned {
    /// The completion, by the name that was given to the request.
    pub completion: Completion,
    /// What was lent; `None` for requests that were posted past the lender, whatever they are called, and for
    /// those of another lender, which are not called here as they were there.
    pub loan: Option<Loan>,
}

/// A loan under way, and what its request is called.
struct Lent {
    id: u64,
    loan: Loan,
}

/// Lends buffers to work requests and takes them back with their completions, of which it has a queue of its
/// own. It allocates nothing while it lends.
///
/// Dropping it drops the buffers that are lent: regions that nothing else holds are deregistered when the
/// stack is done with them. A buffer that is lent as an `Arc`, and that has other owners, is kept instead,
/// because no completion will say when it may be written to: it can only be read from then on, and is dropped
/// with the first lender that is dropped after the last of the other `Arc`s. Until then its region stays
/// registered, and its device keeps running. To be spared this, drop the queue pairs, and poll until nothing
/// is [lent](Self::lent).
pub struct Lender {
    completions: SharedCompletionQueue,
    /// The mark of its requests; `None`, and no place, when the process has had all lenders it can.
    number: Option<LenderNumber>,
    /// The loans, each in the place that its request is named by until its completion.
    places: Vec<Option<Lent>>,
    free: Vec<u32>,
}

impl Lender {
    /// Returns a lender with room for as many loans as `completions` has for completions. Make queue pairs
    /// that report to the same queue, and let nothing else poll it, no other lender either: what would come
    /// back with a completion polled elsewhere stays lent.
    pub fn new(completions: impl Into<SharedCompletionQueue>) -> Self {
        let completions = completions.into();
        let number = LenderNumber::unused();
        let room = if number.is_some() { completions.capacity() } else { 0 };
        let places = room.min(u32::MAX as usize) as u32;
        Self {
            completions,
            number,
            places: (0..places).map(|_| None).collect(),
            free: (0..places).rev().collect(),
        }
    }

    /// Returns the completion queue, for making queue pairs.
    pub const fn completions(&self) -> &SharedCompletionQueue {
        &self.completions
    }

    /// Buffers that are lent.
    pub fn lent(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Posts a Send of all of `loan`. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`NotLent`], with the buffer.
    pub fn send(&mut self, qp: &QueuePair, id: u64, loan: impl Into<Loan>) -> Result<(), NotLent> {
        self.post(qp, id, loan.into(), |name, slice| Ok(SendRequest::new(name, Operation::SEND, slice)))
    }

    /// Posts an RDMA Write of all of `loan` to byte `offset` of `remote`. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`NotLent`], with the buffer.
    pub fn write(
        &mut self,
        qp: &QueuePair,
        id: u64,
        loan: impl Into<Loan>,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<(), NotLent> {
        self.post(qp, id, loan.into(), |name, slice| QueuePair::write_request(name, slice, remote, offset))
    }

    /// Posts an RDMA Read into all of `buffer` from byte `offset` of `remote`. Its completion is called
    /// `id`.
    ///
    /// # Errors
    ///
    /// [`NotLent`], with the buffer.
    pub fn read(
        &mut self,
        qp: &QueuePair,
        id: u64,
        buffer: Buffer,
        remote: &Advertisement,
        offset: u64,
    ) -> Result<(), NotLent> {
        let loan = Loan::Owned(buffer);
        self.post(qp, id, loan, |name, slice| QueuePair::read_request(name, slice, remote, offset))
    }

    /// Posts a receive into `buffer`. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`NotLent`], with the buffer.
    pub fn receive(&mut self, qp: &QueuePair, id: u64, buffer: Buffer) -> Result<(), NotLent> {
        let reports_here = qp.reports_receives_to(&self.completions);
        self.lend(reports_here, id, Loan::Owned(buffer), |name, slice| {
            qp.post_receives(&[ReceiveRequest::new(name, slice)]).map_err(|bad| bad.error)
        })
    }

    fn post(
        &mut self,
        qp: &QueuePair,
        id: u64,
        loan: Loan,
        request: impl FnOnce(u64, SliceList) -> Result<SendRequest, PostError>,
    ) -> Result<(), NotLent> {
        let reports_here = qp.reports_sends_to(&self.completions);
        self.lend(reports_here, id, loan, |name, slice| qp.post(request(name, slice)?))
    }

    /// Finds a place for `loan` and posts its request by the name of the place.
    fn lend(
        &mut self,
        reports_here: bool,
        id: u64,
        loan: Loan,
        post: impl FnOnce(u64, SliceList) -> Result<(), PostError>,
    ) -> Result<(), NotLent> {
        if !reports_here {
            return Err(NotLent { error: LendError::OtherCompletionQueue, loan });
        }
        let Some((number, index)) = self.number.as_ref().zip(self.free.pop()) else {
            return Err(NotLent { error: LendError::TooManyLoans, loan });
        };
        match post(index.into(), SliceList::lent(loan.slice(), number)) {
            Ok(()) => {
                self.places[index as usize] = Some(Lent { id, loan });
                Ok(())
            }
            Err(error) => {
                self.free.push(index);
                Err(NotLent { error: error.into(), loan })
            }
        }
    }

    /// Returns the oldest completion, with the buffers that were lent for it. Does not wait.
    pub fn poll(&mut self) -> Option<Returned> {
        let completion = self.completions.lock().poll()?;
        Some(self.take_back(completion))
    }

    /// Returns the same, and waits for it for `timeout`, see [`SharedCompletionQueue::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Option<Returned> {
        let completion = self.completions.wait(timeout)?;
        Some(self.take_back(completion))
    }

    fn take_back(&mut self, completion: Completion) -> Returned {
        // The mark, not the name alone: a request posted past the lender may be called as one of its own.
        let index = self.number.as_ref().and_then(|number| completion.lent_by(number));
        let lent = index.and_then(|index| Some((index, self.places.get_mut(index as usize)?.take()?)));
        match lent {
            Some((index, Lent { id, loan })) => {
                self.free.push(index);
                Returned { completion: completion.returned(id), loan: Some(loan) }
            }
            None => Returned { completion, loan: None },
        }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let loans = self.places.drain(..).flatten().map(|lent| lent.loan);
        let shared = loans.filter_map(|loan| match loan {
            Loan::Owned(_) => None,
            Loan::Shared(buffer) => Some(buffer),
        });
        leave(shared.collect());
    }
}

/// Keeps `loans`, which were under way when their lender was dropped, as long as they have other owners: no
/// owner can write to a buffer then. Buffers without another owner are dropped, of these and of those that
/// were kept before.
fn leave(loans: Vec<Arc<Buffer>>) {
    /// The kept buffers, each one once.
    static KEPT: Mutex<Vec<Arc<Buffer>>> = Mutex::new(Vec::new());
    let mut unreachable = Vec::new();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend(loans);
    kept.sort_unstable_by_key(Arc::as_ptr);
    kept.dedup_by(|one, next| Arc::ptr_eq(one, next));
    for buffer in mem::take(&mut *kept) {
        match Arc::try_unwrap(buffer) {
            Ok(buffer) => unreachable.push(buffer),
            Err(buffer) => kept.push(buffer),
        }
    }
    drop(kept);
    // Without the lock: it may wait for a core.
    drop(unreachable);
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender")
            .field("completions", &self.completions)
            .field("lent", &self.lent())
            .finish_non_exhaustive()
    }
}
