//! What an application and a core share of a queue pair: bounded lock-free rings, so that work is posted and completions
//! are polled from any thread while the core runs.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::Arc;

use crossbeam::atomic::AtomicCell;
use crossbeam::queue::ArrayQueue;

use super::error::StreamError;
use super::work::{Completion, QpNumber, ReceiveRequest, SendRequest};
use crate::memory::{Accessor, ProtectionDomainId};

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// No connection yet; receives may be posted.
    Idle = 0,
    /// Connected, in Full Operation.
    ReadyToSend = 1,
    /// This end has closed, or the peer has and this end follows; sends posted before are still being done, and receives
    /// are taken for what the peer still sends.
    Closing = 2,
    /// Over: everything posted is flushed.
    Error = 3,
}

impl QpState {
    const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Idle,
            1 => Self::ReadyToSend,
            2 => Self::Closing,
            _ => Self::Error,
        }
    }
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue holds as many requests as it was made for: poll completions first.
    #[error("the queue is full: poll completions first")]
    QueueFull,
    /// The completion queue has no place reserved for another completion: poll it first.
    #[error("the completion queue is full: poll it first")]
    CompletionQueueFull,
    /// The queue pair is not connected (sends), or its stream is over.
    #[error("the queue pair is {0:?}: no work is taken")]
    WrongState(QpState),
}

/// A bounded queue of completions. A place is reserved when work is posted, so it cannot overflow (RDMAP-8.1.1-05).
#[derive(Debug)]
pub struct CompletionRing {
    entries: ArrayQueue<Completion>,
    reserved: AtomicU32,
}

impl CompletionRing {
    /// A ring of `capacity` entries, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { entries: ArrayQueue::new(capacity.max(1)), reserved: AtomicU32::new(0) }
    }

    /// The oldest completion not polled yet.
    pub fn poll(&self) -> Option<Completion> {
        let completion = self.entries.pop()?;
        self.unreserve();
        Some(completion)
    }

    fn reserve(&self) -> bool {
        let capacity = self.entries.capacity() as u32;
        if self.reserved.fetch_add(1, Ordering::Relaxed) >= capacity {
            self.unreserve();
            return false;
        }
        true
    }

    fn unreserve(&self) {
        self.reserved.fetch_sub(1, Ordering::Relaxed);
    }

    fn push(&self, completion: Completion) {
        let pushed = self.entries.push(completion);
        debug_assert!(pushed.is_ok(), "a completion without a reserved place");
    }
}

/// The bell that applications ring at a core: the numbers of queue pairs with new work.
#[derive(Debug)]
pub struct Doorbells(ArrayQueue<QpNumber>);

impl Doorbells {
    /// Bells for `queue_pairs` queue pairs.
    pub fn new(queue_pairs: usize) -> Self {
        Self(ArrayQueue::new(queue_pairs.max(1)))
    }

    /// The next queue pair that has new work.
    pub fn take(&self) -> Option<QpNumber> {
        self.0.pop()
    }

    /// Whether no bell rings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The part of a queue pair that an application and a core share.
#[derive(Debug)]
pub struct SharedQp {
    /// Its number at the core.
    pub number: QpNumber,
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    sends: ArrayQueue<SendRequest>,
    receives: ArrayQueue<ReceiveRequest>,
    /// Posted and not completed.
    sends_outstanding: AtomicU32,
    receives_outstanding: AtomicU32,
    send_completions: Arc<CompletionRing>,
    receive_completions: Arc<CompletionRing>,
    rung: AtomicBool,
    doorbells: Arc<Doorbells>,
    state: AtomicU8,
    error: AtomicCell<Option<StreamError>>,
}

impl SharedQp {
    /// A queue pair with queues of `send_depth` and `receive_depth` work requests, at least one each.
    pub fn new(
        number: QpNumber,
        pd: ProtectionDomainId,
        (send_depth, receive_depth): (usize, usize),
        (send_completions, receive_completions): (Arc<CompletionRing>, Arc<CompletionRing>),
        doorbells: Arc<Doorbells>,
    ) -> Self {
        Self {
            number,
            pd,
            sends: ArrayQueue::new(send_depth.max(1)),
            receives: ArrayQueue::new(receive_depth.max(1)),
            sends_outstanding: AtomicU32::new(0),
            receives_outstanding: AtomicU32::new(0),
            send_completions,
            receive_completions,
            rung: AtomicBool::new(false),
            doorbells,
            state: AtomicU8::new(QpState::Idle as u8),
            error: AtomicCell::new(None),
        }
    }

    /// As whom its stream reaches memory.
    pub const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, stream: self.number.0 }
    }

    /// The state.
    pub fn state(&self) -> QpState {
        QpState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// The error that ended the stream, if one did.
    pub fn error(&self) -> Option<StreamError> {
        self.error.load()
    }

    /// Send work requests the queue was made for.
    pub fn send_depth(&self) -> usize {
        self.sends.capacity()
    }

    /// Receive work requests the queue was made for.
    pub fn receive_depth(&self) -> usize {
        self.receives.capacity()
    }

    /// Posts a send work request. Takes effect when the core next polls.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing is posted then.
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        match self.state() {
            QpState::ReadyToSend => {}
            state => return Err(PostError::WrongState(state)),
        }
        post(&self.sends, &self.sends_outstanding, &self.send_completions, request)?;
        self.ring();
        Ok(())
    }

    /// Posts a receive work request. Allowed before the connection exists, and after our half of it has closed: the peer
    /// may still send (DDP-6.2.1-06).
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing is posted then.
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        match self.state() {
            QpState::Idle | QpState::ReadyToSend | QpState::Closing => {}
            state @ QpState::Error => return Err(PostError::WrongState(state)),
        }
        post(&self.receives, &self.receives_outstanding, &self.receive_completions, request)?;
        // A request that slips in while the core ends the queue pair is flushed when the core hears the bell.
        if self.state() != QpState::Idle {
            self.ring();
        }
        Ok(())
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // There is a place for every queue pair, and each is in the queue at most once.
            let rung = self.doorbells.0.push(self.number);
            debug_assert!(rung.is_ok(), "more queue pairs than doorbells");
        }
    }

    /// The core has heard the bell and now looks at the queues.
    pub fn heard(&self) {
        // A swap, not a store: either the poster's swap comes first and this one sees its request, or it comes later and
        // rings again.
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// The next posted send, for the core.
    pub fn take_send(&self) -> Option<SendRequest> {
        self.sends.pop()
    }

    /// The next posted receive, for the core.
    pub fn take_receive(&self) -> Option<ReceiveRequest> {
        self.receives.pop()
    }

    /// Changes the state, for the core.
    pub fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Notes the error that ended the stream, for the core. The first one stays (RDMAP-7.1-03).
    pub fn set_error(&self, error: StreamError) {
        if self.error.load().is_none() {
            self.error.store(Some(error));
        }
    }

    /// Reports a completed send, for the core.
    pub fn complete_send(&self, completion: Completion) {
        self.sends_outstanding.fetch_sub(1, Ordering::Release);
        self.send_completions.push(completion);
    }

    /// Ends a send whose success is not reported, for the core.
    pub fn retire_send(&self) {
        self.sends_outstanding.fetch_sub(1, Ordering::Release);
        self.send_completions.unreserve();
    }

    /// Reports a completed receive, for the core.
    pub fn complete_receive(&self, completion: Completion) {
        self.receives_outstanding.fetch_sub(1, Ordering::Release);
        self.receive_completions.push(completion);
    }
}

/// Posts `request` if a place in the queue, among the outstanding, and for its completion can be had.
fn post<T>(
    queue: &ArrayQueue<T>,
    outstanding: &AtomicU32,
    completions: &CompletionRing,
    request: T,
) -> Result<(), PostError> {
    let depth = queue.capacity() as u32;
    if outstanding.fetch_add(1, Ordering::Acquire) >= depth {
        outstanding.fetch_sub(1, Ordering::Relaxed);
        return Err(PostError::QueueFull);
    }
    if !completions.reserve() {
        outstanding.fetch_sub(1, Ordering::Relaxed);
        return Err(PostError::CompletionQueueFull);
    }
    let pushed = queue.push(request);
    debug_assert!(pushed.is_ok(), "fewer places than outstanding requests");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::work::{CompletionKind, Operation, Slice, Status};
    use super::*;

    fn qp(depth: usize, completions: usize) -> (SharedQp, Arc<CompletionRing>, Arc<Doorbells>) {
        let ring = Arc::new(CompletionRing::new(completions));
        let bells = Arc::new(Doorbells::new(1));
        let shared = SharedQp::new(
            QpNumber(7),
            ProtectionDomainId(1),
            (depth, depth),
            (ring.clone(), ring.clone()),
            bells.clone(),
        );
        (shared, ring, bells)
    }

    fn send(id: u64) -> SendRequest {
        SendRequest::new(id, Operation::SEND, Slice::default())
    }

    fn completion(id: u64) -> Completion {
        Completion::new(QpNumber(7), id, CompletionKind::Send, Status::Success, 0)
    }

    #[test]
    fn sends_wait_for_the_connection() {
        let (qp, _, bells) = qp(2, 4);
        assert_eq!(qp.post_send(send(1)), Err(PostError::WrongState(QpState::Idle)));
        assert!(qp.post_receive(ReceiveRequest::new(1, Slice::default())).is_ok());
        assert!(bells.is_empty(), "no core to ring at yet");
    }

    #[test]
    fn depth_counts_until_completion() {
        let (qp, ring, bells) = qp(2, 4);
        qp.set_state(QpState::ReadyToSend);
        qp.post_send(send(1)).unwrap();
        qp.post_send(send(2)).unwrap();
        assert_eq!(bells.take(), Some(QpNumber(7)));
        assert_eq!(bells.take(), None, "one bell for many posts");
        assert_eq!(qp.take_send().unwrap().id, 1);
        assert_eq!(qp.post_send(send(3)), Err(PostError::QueueFull), "taken is not completed");
        qp.complete_send(completion(1));
        qp.post_send(send(3)).unwrap();
        assert_eq!(ring.poll().unwrap().id, 1);
    }

    /// RDMAP-8.1.1-05: a completion queue that nobody polls refuses work instead of losing completions.
    #[test]
    fn completions_have_reserved_places() {
        let (qp, ring, _) = qp(4, 2);
        qp.set_state(QpState::ReadyToSend);
        qp.post_send(send(1)).unwrap();
        qp.post_send(send(2)).unwrap();
        qp.complete_send(completion(1));
        assert_eq!(qp.post_send(send(3)), Err(PostError::CompletionQueueFull));
        assert!(ring.poll().is_some());
        qp.post_send(send(3)).unwrap();
        qp.retire_send();
        qp.post_send(send(4)).unwrap();
    }

    /// RDMAP-7.1-03
    #[test]
    fn the_first_error_stays() {
        let (qp, ..) = qp(1, 1);
        qp.set_error(StreamError::Tcp(crate::tcp::CloseReason::Reset));
        qp.set_error(StreamError::Tcp(crate::tcp::CloseReason::TimedOut));
        assert_eq!(qp.error(), Some(StreamError::Tcp(crate::tcp::CloseReason::Reset)));
    }
}
