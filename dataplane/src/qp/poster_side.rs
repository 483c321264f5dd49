//! The side of a queue pair where work is posted: for the one thread that posts.

use super::post_error::{BadRequest, PostError};
use super::receive_slot::RECEIVE_WORDS;
use super::request_check::check_shape;
use super::send_list::SendList;
use super::shared::SharedQp;
use super::slot::Slots;
use super::state::QpState;
use super::work::{ReceiveRequest, SendRequest};
use super::work_queue::Portion;
use super::wqe::{CompactWqe, WQE_WORDS};
use crate::sync::{Ordering, fence};

impl SharedQp {
    /// Posts a send work request. Takes effect when the core next polls. After this end has closed, or once
    /// the stream has failed, the request is flushed when all requests before it are complete, as in verbs:
    /// its completion shows that the queue is drained.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing is posted then.
    // Inlined: a request that is built for it is not built then, only its compact form.
    #[inline]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        let posted = match CompactWqe::new(&request) {
            Some(wqe) => self.post_compact(&wqe),
            None => self.post_sends(core::slice::from_ref(&request)),
        };
        posted.map_err(|bad| bad.error)
    }

    /// Posts a compact request.
    #[inline(never)]
    fn post_compact(&self, wqe: &CompactWqe) -> Result<(), BadRequest> {
        self.post_each(
            core::slice::from_ref(wqe),
            Portion::Prefix,
            |reads| wqe.check_shape(reads).err().map(|error| (0, error)),
            |wqes| wqes.iter().filter(|wqe| wqe.is_signaled()).count() as u32,
            |wqe, _, after_close| wqe.words(after_close),
        )
    }

    /// Posts send work requests in this order, with one doorbell for all.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not accepted; those before it are posted.
    pub fn post_sends(&self, requests: &[SendRequest]) -> Result<(), BadRequest> {
        self.post_requests(requests, Portion::Prefix)
    }

    #[inline]
    fn post_requests(&self, requests: &[SendRequest], extent: Portion) -> Result<(), BadRequest> {
        self.post_each(
            requests,
            extent,
            |reads| {
                let bad = |request| check_shape(request, reads).err();
                requests.iter().enumerate().find_map(|(index, request)| Some((index, bad(request)?)))
            },
            |requests| requests.iter().filter(|request| request.signaled).count() as u32,
            |request, index, after_close| self.boxes.words(index, request, after_close),
        )
    }

    /// Posts the send work requests of `list` in this order, with one doorbell for all.
    ///
    /// # Errors
    ///
    /// As [`post_sends`](Self::post_sends).
    #[inline]
    pub fn post_list(&self, list: &SendList) -> Result<(), BadRequest> {
        self.post_each(
            list.wqes(),
            Portion::Prefix,
            |reads| list.first_bad(reads),
            |wqes| list.signaled(wqes),
            |wqe, index, after_close| list.words(wqe, &self.boxes, index, after_close),
        )
    }

    /// Posts `requests` in this order. `first_bad` returns the first that cannot be posted, when it is called
    /// with whether the ends agreed on Reads; `signaled`, how many of the first requests are. `words` is
    /// called with a request, the index of its slot, and whether it is posted after this end has closed.
    #[inline]
    fn post_each<R>(
        &self,
        requests: &[R],
        extent: Portion,
        first_bad: impl FnOnce(bool) -> Option<(usize, PostError)>,
        signaled: impl Fn(&[R]) -> u32,
        words: impl Fn(&R, usize, bool) -> [u64; WQE_WORDS],
    ) -> Result<(), BadRequest> {
        let after_close = match self.state() {
            QpState::ReadyToSend => false,
            QpState::Closing | QpState::Terminate | QpState::Error if !self.is_abandoned() => true,
            state => return Err(BadRequest { posted: 0, error: PostError::WrongState(state) }),
        };
        let reads = self.ord.load(Ordering::Acquire) > 0;
        let first_bad = first_bad(reads);
        let good = match first_bad {
            Some(_) if extent == Portion::Whole => &[],
            Some((index, _)) => &requests[..index],
            None => requests,
        };
        let write = |request: &R, slots: &Slots<WQE_WORDS>, position: u64| {
            slots.slot(position).write(position, &words(request, slots.index(position), after_close));
        };
        let (posted, refused) =
            self.sends().post(good, extent, self.send_completions.queue(), signaled, write);
        if posted > 0 {
            self.ring();
        }
        match refused.or(first_bad.map(|(_, error)| error)) {
            Some(error) => Err(BadRequest { posted, error }),
            None => Ok(()),
        }
    }

    /// Posts all of `requests`, in this order and with one doorbell for all, or none.
    ///
    /// # Errors
    ///
    /// See [`PostError`], of the first that was not accepted; nothing is posted then. If the queue has no
    /// room for all of them, that is the error, whatever entries the completion queue has.
    pub fn post_all(&self, requests: &[SendRequest]) -> Result<(), PostError> {
        self.post_requests(requests, Portion::Whole).map_err(|bad| bad.error)
    }

    /// Returns how many send work requests fit now. For the thread that posts, which finds no fewer until it
    /// does.
    pub fn sends_free(&self) -> usize {
        self.sends().free()
    }

    /// Posts a receive work request. It may be posted before the connection exists, and after this end has
    /// closed: the peer may still send. Once the stream has failed it is flushed.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing is posted then.
    // Requirements: DDP-6.2.1-06
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        self.post_receives(core::slice::from_ref(&request)).map_err(|bad| bad.error)
    }

    /// Posts receive work requests in this order, with one doorbell for all.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not accepted; those before it are posted.
    pub fn post_receives(&self, requests: &[ReceiveRequest]) -> Result<(), BadRequest> {
        let bad = |error| BadRequest { posted: 0, error };
        if self.shares_receives() {
            return Err(bad(PostError::SharedReceives));
        }
        if self.is_abandoned() {
            return Err(bad(PostError::WrongState(self.state())));
        }
        let completions = self.receive_completions.queue();
        let reserves = completions.reserves_for_receives();
        let places = |requests: &[ReceiveRequest]| if reserves { requests.len() as u32 } else { 0 };
        let write = |request: &ReceiveRequest, slots: &Slots<RECEIVE_WORDS>, position| {
            request.write_to(slots, position, &self.more_ranges);
        };
        let (posted, refused) = self.receives().post(requests, Portion::Prefix, completions, places, write);
        if posted > 0 && self.has_begun() {
            self.ring();
        }
        refused.map_or(Ok(()), |error| Err(BadRequest { posted, error }))
    }

    /// Whether the stream has begun, for the thread that has just posted: without one there is nothing to
    /// ring for. A request posted while the core ends an idle queue pair is flushed, when the core flushes or
    /// when it serves the doorbell; the fence is the other one of [`set_state`](Self::set_state).
    #[inline]
    fn has_begun(&self) -> bool {
        let has_begun = || self.state() != QpState::Idle;
        has_begun() || {
            fence(Ordering::SeqCst);
            has_begun()
        }
    }
}
