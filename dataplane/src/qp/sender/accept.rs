//! Posted requests become entries of the send queue: each is checked, and gets its message number. Those that
//! put nothing on the wire are carried out.

use super::Sender;
use super::entry::SendEntry;
use crate::limits;
use crate::memory::{
    Accessor, Binding, ChangeId, ChangeResult, GrantChange, Invalidation, Reach, Readable, STag, StagTable,
};
use crate::qp::reads::Reads;
use crate::qp::request_check;
use crate::qp::shared::SharedQp;
use crate::qp::work::{Operation, Status};
use crate::qp::wqe::Wqe;

/// What became of the next request, if it puts nothing on the wire.
#[derive(Debug)]
pub enum CarriedOut {
    /// It is complete, so that more may be accepted.
    Done,
    /// It has to wait, or has failed, or there is none.
    Nothing,
    /// Other cores are to follow. It waits for the [end](Sender::end_change) of that.
    Elsewhere(GrantChange),
}

/// Why no more requests that send a range were accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Nothing more is posted.
    Empty,
    /// The next request is of another kind, or there is no room for any.
    Other,
    /// The free entries in a row are filled.
    Full,
}

impl Sender {
    /// Accepts posted requests, up to one that changes what this end grants. Requests after that may depend
    /// on the change, and are checked once it is carried out. A request that fails the check of its local
    /// side becomes an error in its turn, and puts nothing on the wire. Returns false if some have to wait.
    #[inline]
    pub fn accept_posted(&mut self, shared: &SharedQp, stags: &mut StagTable) -> bool {
        !shared.has_posted_sends() || self.accept_all(shared, stags)
    }

    #[inline(never)]
    fn accept_all(&mut self, shared: &SharedQp, stags: &mut StagTable) -> bool {
        if self.after_close.is_some() {
            return true;
        }
        if self.ends_locally() {
            return false;
        }
        loop {
            // The free entries are in a row, or in two.
            match self.accept_ranges(shared, stags) {
                Until::Empty => return true,
                Until::Full => {}
                Until::Other => {
                    let is_full = self.entries.len() >= shared.send_depth();
                    if is_full || !self.accept_one(shared, stags) {
                        return !self.may_be_posted(shared);
                    }
                }
            }
        }
    }

    /// Accepts the next posted requests as long as each sends one range of memory to which it has the rights,
    /// and there are free entries in a row for them. Returns why it has ended.
    fn accept_ranges(&mut self, shared: &SharedQp, stags: &mut StagTable) -> Until {
        let free = shared.send_depth().saturating_sub(self.entries.len());
        let numbers = &mut self.numbers;
        let places = self.entries.next_run();
        let most = free.min(places.len());
        let mut accepted = 0;
        let mut until = if most == 0 { Until::Other } else { Until::Full };
        // Most are from the same memory.
        let mut last: Option<(STag, Readable<'_>)> = None;
        let mut posted = shared.posted_sends();
        for place in &mut places[..most] {
            let Some(request) = posted.front() else {
                until = Until::Empty;
                break;
            };
            let local = request.local();
            if !request.sends_range() {
                until = Until::Other;
                break;
            }
            if last.as_ref().is_none_or(|(stag, _)| *stag != local.stag) {
                last = stags.readable(local.stag, shared.accessor()).map(|memory| (local.stag, memory));
            }
            let Some((_, memory)) = last.as_mut() else {
                until = Until::Other;
                break;
            };
            if !memory.retain(local.to, local.len as usize) {
                until = Until::Other;
                break;
            }
            // A small payload is copied on any device.
            let refers = local.len >= limits::BY_REFERENCE_MIN_BYTES && !memory.is_copied();
            place.accept_range(request, refers, numbers);
            posted.advance();
            accepted += 1;
        }
        self.entries.push_many(accepted);
        until
    }

    /// Accepts a request of any kind. Returns true if there was one, and another may be accepted.
    #[inline(never)]
    fn accept_one(&mut self, shared: &SharedQp, stags: &mut StagTable) -> bool {
        let Some(place) = self.entries.next_mut() else { return false };
        let Some(request) = shared.dequeue_send() else { return false };
        if request.posted_after_close() {
            self.after_close = Some(Box::new(request));
            return false;
        }
        *place = SendEntry::new(request);
        let status = request_check::check(&place.request, shared, stags, self.reads);
        let mut second = None;
        if status == Status::Success {
            second = place.request.split_immediate();
            place.record_memory(stags);
        }
        place.checked(status, &mut self.numbers);
        let ends_locally = !place.sends_message();
        self.entries.push_next();
        match second {
            Some(second) => {
                self.add_second(second);
                true
            }
            None => !ends_locally,
        }
    }

    /// Adds the second message of the last request accepted.
    #[cold]
    fn add_second(&mut self, request: Wqe) {
        let mut second = SendEntry::new(request);
        second.checked(Status::Success, &mut self.numbers);
        if let Some(first) = self.entries.back_mut() {
            first.complete_with(&mut second);
        }
        if let Some(place) = self.entries.next_mut() {
            *place = second;
            self.entries.push_next();
        }
    }

    /// Whether the last request accepted puts nothing on the wire.
    #[inline]
    fn ends_locally(&self) -> bool {
        self.entries.back().is_some_and(|entry| !entry.sends_message())
    }

    /// Carries out the next request if it puts nothing on the wire and all before it are complete: a
    /// retransmission may still read memory whose grant it changes.
    #[inline]
    pub fn carry_out(&mut self, shared: &SharedQp, stags: &mut StagTable, reads: &Reads) -> CarriedOut {
        let is_local = self.entries.front().is_some_and(|entry| !entry.sends_message());
        if is_local { self.carry_out_front(shared, stags, reads) } else { CarriedOut::Nothing }
    }

    #[inline(never)]
    fn carry_out_front(&mut self, shared: &SharedQp, stags: &mut StagTable, reads: &Reads) -> CarriedOut {
        let Some(entry) = self.entries.front_mut() else { return CarriedOut::Nothing };
        let fenced = entry.request.fenced() && !reads.outbound.is_empty();
        let waits = fenced || self.change.is_some() || self.queued > 0;
        if waits || entry.status != Status::Success || self.terminate.is_some() {
            return CarriedOut::Nothing;
        }
        match carry_out_one(entry.request.operation(), shared, stags) {
            Ok(Reach::ThisCore) => {
                self.finish_front(shared, stags, Status::Success);
                CarriedOut::Done
            }
            Ok(Reach::OtherCores(mut change)) => {
                change.id = change.id.by(shared.home().map_or(0, |home| home.slot));
                self.change = Some(change.id);
                CarriedOut::Elsewhere(change)
            }
            Err(status) => {
                entry.status = status;
                CarriedOut::Nothing
            }
        }
    }

    /// Ends the change of the oldest request, which other cores have followed, or could not. One that was
    /// flushed meanwhile is gone.
    pub fn end_change(
        &mut self,
        id: ChangeId,
        result: ChangeResult,
        shared: &SharedQp,
        stags: &mut StagTable,
    ) {
        if self.change.take_if(|change| *change == id).is_none() {
            return;
        }
        match result {
            // What the window opened before is closed everywhere. Carried out again, the request binds it.
            Ok(()) if self.entries.front().is_some_and(SendEntry::rebinds) => {}
            Ok(()) => self.finish_front(shared, stags, Status::Success),
            Err(_) => {
                if let Some(entry) = self.entries.front_mut() {
                    entry.status = Status::LocalProtection;
                }
            }
        }
    }
}

/// Carries out an operation that changes what this end grants.
// Requirements: DDP-8.3-01, DDP-8.3-02, DDP-8.3-03
fn carry_out_one(operation: Operation, shared: &SharedQp, stags: &mut StagTable) -> Result<Reach, Status> {
    let accessor = shared.accessor();
    match operation {
        Operation::LocalInvalidate { stag } => {
            stags.invalidate(stag, accessor, Invalidation::Local).map_err(|_| Status::LocalProtection)
        }
        Operation::Bind(binding) => bind(&binding, accessor, stags),
        Operation::Rebind(binding) => match stags.unbind(binding.window, accessor) {
            Ok(Reach::ThisCore) => bind(&binding, accessor, stags),
            Ok(elsewhere) => Ok(elsewhere),
            Err(_) => Err(Status::Bind),
        },
        Operation::Unbind { window } => stags.unbind(window, accessor).map_err(|_| Status::Bind),
        Operation::Register(wanted) => stags.register(&wanted, accessor).map_err(|_| Status::LocalProtection),
        _ => Err(Status::LocalOperation),
    }
}

/// Binds a window.
fn bind(binding: &Binding, accessor: Accessor, stags: &mut StagTable) -> Result<Reach, Status> {
    match stags.bind(binding, accessor) {
        Ok(()) => Ok(Reach::ThisCore),
        Err(_) => Err(Status::Bind),
    }
}
