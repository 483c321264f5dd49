//! The send half of a queue pair: work requests and responses become FPDU descriptors, TCP acknowledgements
//! become completions.

use arrayvec::ArrayVec;

use super::active_queue::ActiveQueue;
use super::active_wqe::{self, ActiveWqe, Effect, MessageNumbers, Stage};
use super::error::StreamError;
use super::indication::{self, ProviderMessage};
use super::reads::{InboundReads, OutboundReads, Reads, ResponsePayload};
use super::run::{FpduDescriptor, FpduRun, Origin, SegmentRoom, Source};
use super::shared::SharedQp;
use super::work::{Operation, Slice, Status};
use super::wqe::Wqe;
use crate::ddp::segmentation::Message;
use crate::limits;
use crate::memory::{Invalidation, STag, StagTable};
use crate::mpa;
use crate::mpa::enhanced::{ReadyToReceive, Rtr};
use crate::rdmap::message;
use crate::wire::atomic::AtomicResponse;
use crate::wire::ddp::{self, DDP_VERSION};
use crate::wire::tcp::SeqNumber;

/// The send half of a queue pair at its core.
#[derive(Debug)]
#[repr(C)]
pub struct Sender {
    /// Entries in the order of posting, from the oldest not completed. At most the depth of the queue, and
    /// one more if the last request is two messages.
    active: ActiveQueue,
    /// How many entries of `active` are wholly acknowledged.
    acknowledged: usize,
    /// How many entries of `active` are wholly queued to TCP, or carried out.
    queued: usize,
    /// Entries completed before these; it wraps.
    completed: u32,
    /// Octets of the next entry that are queued.
    offset: u32,
    /// The MSNs of the next messages.
    numbers: MessageNumbers,
    /// Whether the ends agreed on Reads and Atomic Operations.
    reads: bool,
    /// Whether a response goes before the next request if both wait. They take turns: requests and responses
    /// are ordered only among their own kind.
    // Requirements: RDMAP-5.5-05, RDMAP-5.5-09
    response_next: bool,
    terminate_queued: bool,
    /// A message of the provider, which goes before anything else.
    provider_message: Option<ProviderMessage>,
    /// The buffer of the peer's indication that was answered, if it was an RDMA Read: a stream has one.
    answered: (STag, u64),
    /// The Terminate Message, once there is one to send. Nothing follows it.
    // Requirements: RDMAP-5.4-04
    terminate: Option<ArrayVec<u8, { limits::TERMINATE_BYTES }>>,
    /// The first request that was posted after this end had closed. It and those after it are flushed when
    /// all before it are complete.
    after_close: Option<Wqe>,
}

impl Sender {
    /// A sender for up to `depth` requests.
    pub fn new(depth: usize) -> Self {
        Self {
            active: ActiveQueue::with_capacity(depth + 1),
            completed: 0,
            after_close: None,
            acknowledged: 0,
            queued: 0,
            offset: 0,
            numbers: MessageNumbers { version: DDP_VERSION, send: 1, read: 1 },
            reads: false,
            response_next: false,
            provider_message: None,
            answered: (STag::default(), 0),
            terminate: None,
            terminate_queued: false,
        }
    }

    /// Begins a stream; `ord` is how many Reads the peer accepts.
    // Requirements: MPAv2-5-01, MPAv2-9.2-07
    pub fn begin(&mut self, version: u8, ready: ReadyToReceive, ord: u16) {
        self.numbers.version = version;
        self.reads = ord > 0;
        if let ReadyToReceive::Send(rtr) = ready {
            self.provider_message = Some(ProviderMessage::Indication(rtr));
            // Ambiguity A-16: the indication has used the first MSN of its queue.
            match rtr {
                Rtr::Send => self.numbers.send = 2,
                Rtr::Read => self.numbers.read = 2,
                Rtr::Write => {}
            }
        }
    }

    /// Sets the MSN of the next message on each queue to `next`.
    pub fn continue_message_numbers(&mut self, next: u32) {
        (self.numbers.send, self.numbers.read) = (next, next);
    }

    /// Queues the response to a ready-to-receive indication that is an RDMA Read of no octets.
    pub fn respond(&mut self, stag: STag, to: u64) {
        self.answered = (stag, to);
        self.provider_message = Some(ProviderMessage::Response { stag, to });
    }

    /// Queues an RDMA Write without payload, unless the next segment belongs to a message that has begun or
    /// to the provider. Returns true if it did.
    // Requirements: DDP-5.3-03
    pub fn nudge(&mut self) -> bool {
        let free = self.offset == 0 && self.provider_message.is_none() && self.terminate.is_none();
        if free {
            self.provider_message = Some(ProviderMessage::Indication(Rtr::Write));
        }
        free
    }

    /// Takes posted requests, up to one that changes what this end grants. Requests after that may depend on
    /// the change, and are checked once it is carried out. A request that fails the check of its local side
    /// becomes an error in its turn, and puts nothing on the wire.
    pub fn take_posted(&mut self, shared: &SharedQp, stags: &mut StagTable) {
        if !shared.has_posted_sends() || self.after_close.is_some() || self.ends_locally() {
            return;
        }
        loop {
            let has_more = self.take_short_messages(shared, stags);
            let is_full = self.active.len() >= shared.send_depth();
            if !has_more || is_full || !self.take_one(shared, stags) {
                return;
            }
        }
    }

    /// Takes a request, and checks it in place. Returns true if there was one, and another may be taken.
    #[inline]
    fn take_one(&mut self, shared: &SharedQp, stags: &mut StagTable) -> bool {
        let Some(wqe) = self.active.next_mut() else { return false };
        let Some(request) = shared.take_send() else { return false };
        if request.posted_after_close() {
            self.after_close = Some(request);
            return false;
        }
        wqe.take(request);
        let status = active_wqe::check(&wqe.request, shared, stags, self.reads);
        let mut second = None;
        if status == Status::Success {
            second = wqe.request.split_immediate();
            wqe.note_memory(stags);
        }
        wqe.checked(status, &mut self.numbers);
        let ends_locally = wqe.effect == Effect::Local;
        self.active.push_next();
        match second {
            Some(second) => {
                self.add_second(second);
                true
            }
            None => !ends_locally,
        }
    }

    /// Adds the second message of the last request taken.
    #[cold]
    fn add_second(&mut self, request: Wqe) {
        let mut second = ActiveWqe::new(request);
        second.checked(Status::Success, &mut self.numbers);
        if let Some(first) = self.active.back_mut() {
            first.complete_with(&mut second);
        }
        if let Some(place) = self.active.next_mut() {
            *place = second;
            self.active.push_next();
        }
    }

    /// Whether the last request taken puts nothing on the wire.
    fn ends_locally(&self) -> bool {
        self.active.back().is_some_and(|wqe| wqe.effect == Effect::Local)
    }

    /// Whether a request is still to be taken, queued, or answered by the peer.
    pub fn has_work(&self, shared: &SharedQp, reads: &Reads) -> bool {
        if self.provider_message.is_some() {
            return true;
        }
        if self.terminate.is_some() {
            return !self.terminate_queued;
        }
        // A Read is done when its response has come.
        // Requirements: DDP-6.2.1-01
        let posted = !shared.state().is_over() && self.may_be_posted(shared);
        posted
            || self.queued < self.active.len()
            || reads.inbound.next().is_some()
            || !reads.outbound.is_empty()
    }

    /// Whether there is nothing to [take](Self::take_posted), to [carry out](Self::carry_out), to flush or to
    /// [queue](Self::peek) for now, in a stream that has not ended.
    #[inline]
    pub fn has_queued_all(&self, shared: &SharedQp, reads: &Reads) -> bool {
        self.queued == self.active.len()
            && self.provider_message.is_none()
            && self.terminate.is_none()
            && self.after_close.is_none()
            && reads.inbound.next().is_none()
            && !shared.has_posted_sends()
            && !shared.state().is_over()
    }

    /// Whether requests may lie in the queue that are not taken yet and are not to be flushed.
    pub fn may_be_posted(&self, shared: &SharedQp) -> bool {
        self.after_close.is_none() && shared.has_posted_sends()
    }

    /// Whether the next request cannot be done, for a reason on this end.
    // Requirements: RDMAP-7.1-01
    pub fn has_failed(&self) -> bool {
        self.terminate.is_none()
            && self.active.get(self.queued).is_some_and(|wqe| wqe.status != Status::Success)
    }

    /// Carries out the next request if it puts nothing on the wire and all before it are complete: a
    /// retransmission may still read memory whose grant it changes. Returns true if it did, so that more may
    /// be [taken](Self::take_posted).
    pub fn carry_out(&mut self, shared: &SharedQp, stags: &mut StagTable, reads: &Reads) -> bool {
        let Some(wqe) = self.active.front_mut() else { return false };
        let local = wqe.effect == Effect::Local && wqe.status == Status::Success;
        let fenced = wqe.request.fenced() && !reads.outbound.is_empty();
        if !local || fenced || self.queued > 0 || self.terminate.is_some() {
            return false;
        }
        wqe.status = carry_out_one(wqe.request.operation(), shared, stags);
        let done = wqe.status == Status::Success;
        if done {
            self.finish_front(shared, stags, Status::Success);
        }
        done
    }

    /// The entry at `index` with its message, if it may be sent now. `pending` counts the entries before it
    /// that expect a response and are not queued yet.
    fn ready(&self, index: usize, pending: usize, outbound: &OutboundReads) -> Option<(&ActiveWqe, Message)> {
        let wqe = self.active.get(index)?;
        let message = wqe.message(self.numbers.version)?;
        let waits = (wqe.request.fenced() && !(outbound.is_empty() && pending == 0))
            || (wqe.expects_response() && !outbound.has_room(pending));
        (!waits || (index == self.queued && self.offset > 0)).then_some((wqe, message))
    }

    /// The FPDUs of the next segment: requests in the order of posting, offsets rising; responses between
    /// them. The caller queues them and calls [`advance`](Self::advance), or calls this again later.
    // Requirements: DDP-5.3-02, RDMAP-5.1-04, RDMAP-5.2.1-03, RDMAP-5.3-03, RDMAP-5.5-06, DDP-5.3-03
    #[inline]
    pub fn peek(&self, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        let has_none = self.queued == self.active.len()
            && self.provider_message.is_none()
            && self.terminate.is_none()
            && reads.inbound.next().is_none();
        if has_none { None } else { self.peek_next(room, reads) }
    }

    /// The FPDUs of the next segment, if there are any.
    fn peek_next(&self, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        if let Some(run) = self.peek_short_message(room, reads) {
            let alone = !room.packing || self.queued + 1 >= self.active.len();
            return Some(if alone { run } else { self.pack(run, self.queued + 1, 0, room, &reads.outbound) });
        }
        let version = self.numbers.version;
        if let Some(provided) = self.provider_message {
            let origin = match provided {
                ProviderMessage::Indication(rtr) => Origin::Indication(rtr),
                ProviderMessage::Response { .. } => Origin::IndicationResponse,
            };
            return Some(FpduRun::one(origin, &indication::message(version, provided), 0, room));
        }
        if self.terminate.is_some() {
            return self.peek_terminate(room);
        }
        let request = self.ready(self.queued, 0, &reads.outbound);
        match reads.inbound.next() {
            // A message is finished before another begins.
            Some((_, offset))
                if offset > 0 || self.response_next && self.offset == 0 || request.is_none() =>
            {
                next_response(&reads.inbound, room)
            }
            _ => {
                let (wqe, message) = request?;
                let number = self.number(self.queued);
                let run = FpduRun::one(Origin::Requests(number), &message, self.offset, room);
                let ends = self.offset + run.first_octets == message.octets;
                let pending = usize::from(wqe.expects_response());
                Some(if ends { self.pack(run, self.queued + 1, pending, room, &reads.outbound) } else { run })
            }
        }
    }

    /// The Terminate Message, if there is one that is not queued.
    pub fn peek_terminate(&self, room: &SegmentRoom) -> Option<FpduRun> {
        let terminate = self.terminate.as_ref().filter(|_| !self.terminate_queued)?;
        let message = message::terminate(self.numbers.version, terminate.len() as u32);
        Some(FpduRun::one(Origin::Terminate, &message, 0, room))
    }

    /// The first FPDU of a run that is not yet acknowledged.
    #[inline]
    pub fn first_of(&self, run: &FpduRun, reads: &Reads) -> Option<FpduDescriptor> {
        let Origin::Requests(number) = run.origin else { return self.first_of_another(run, reads) };
        let wqe = self.active.get(number.wrapping_sub(self.completed) as usize)?;
        Some(wqe.fpdu(&wqe.message(self.numbers.version)?, number, run.offset, run.first_ulpdu_octets()))
    }

    /// The FPDU of a run that does not belong to requests.
    fn first_of_another(&self, run: &FpduRun, reads: &Reads) -> Option<FpduDescriptor> {
        let (version, mulpdu) = (self.numbers.version, run.first_ulpdu_octets());
        let descriptor = |message: Message, source| {
            let (header, octets) = message.segment(run.offset, mulpdu);
            FpduDescriptor { header, octets, source }
        };
        let provided = match run.origin {
            Origin::Requests(_) => return None,
            Origin::Response(number) => {
                let response = reads.inbound.numbered(number)?;
                let source = match response.payload {
                    ResponsePayload::Memory(source) => Source::Memory(Slice {
                        stag: source.stag,
                        to: source.to.wrapping_add(u64::from(run.offset)),
                        len: run.first_octets,
                    }),
                    ResponsePayload::Atomic { identifier, original } => {
                        Source::AtomicResponse { identifier, original }
                    }
                };
                return Some(descriptor(response.message, source));
            }
            Origin::Terminate => {
                let octets = self.terminate.as_ref()?.len() as u32;
                return Some(descriptor(message::terminate(version, octets), Source::Terminate));
            }
            Origin::Indication(rtr) => ProviderMessage::Indication(rtr),
            Origin::IndicationResponse => {
                ProviderMessage::Response { stag: self.answered.0, to: self.answered.1 }
            }
        };
        Some(descriptor(indication::message(version, provided), Source::Provider))
    }

    /// Whether there is a Terminate Message, sent or not.
    pub const fn has_terminate(&self) -> bool {
        self.terminate.is_some()
    }

    /// Whether there is a Terminate Message that is not queued yet.
    pub const fn terminate_is_due(&self) -> bool {
        self.terminate.is_some() && !self.terminate_queued
    }

    /// The number of the entry at `index`.
    const fn number(&self, index: usize) -> u32 {
        self.completed.wrapping_add(index as u32)
    }

    /// Notes that `run` is queued and ends at `end` in the stream; `before` of its FPDUs were queued before.
    /// Its requests complete together when the whole segment is acknowledged: until then the segment may have
    /// to be built again.
    pub fn advance(&mut self, run: &FpduRun, before: usize, end: SeqNumber, reads: &mut Reads) {
        let number = match run.origin {
            Origin::Terminate => {
                self.terminate_queued = true;
                return;
            }
            Origin::Indication(_) | Origin::IndicationResponse => {
                self.provider_message = None;
                return;
            }
            Origin::Response(_) => {
                if reads.inbound.advance(run.first_octets, end) {
                    self.response_next = false;
                }
                return;
            }
            Origin::Requests(number) => number,
        };
        if before > 0 {
            let from = number.wrapping_sub(self.completed) as usize;
            for wqe in self.active.range_mut(from.min(self.queued)..self.queued) {
                wqe.stage = Stage::Queued(end);
            }
        }
        let short = self.advance_short_messages(run, before, end);
        for place in before + short..run.fpdus() {
            let octets = match place {
                0 => run.first_octets,
                _ if place + 1 == run.fpdus() => run.last_octets,
                _ => u32::MAX,
            };
            self.advance_one(octets, end, reads);
        }
        self.response_next = self.offset == 0;
    }

    /// Notes that another `octets` octets of the next request are queued, or all of it if it has fewer.
    fn advance_one(&mut self, octets: u32, end: SeqNumber, reads: &mut Reads) {
        let (number, version) = (self.number(self.queued), self.numbers.version);
        let Some(wqe) = self.active.get_mut(self.queued) else { return };
        let Some(message) = wqe.message(version) else { return };
        self.offset = self.offset.saturating_add(octets).min(message.octets);
        if self.offset == message.octets {
            wqe.stage = Stage::Queued(end);
            if wqe.expects_response() {
                wqe.response = wqe.outbound_request(number).map(|awaited| reads.outbound.push(awaited));
            }
            self.queued += 1;
            self.offset = 0;
        }
    }

    /// Completes, in the order of posting, the requests that TCP has acknowledged up to `acknowledged` and
    /// whose responses have come.
    // Requirements: RDMAP-5.5-07, RDMAP-5.5-08, RDMAP-5.5-10
    pub fn complete(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        reads: &mut Reads,
        acknowledged: SeqNumber,
    ) {
        reads.inbound.complete(stags, acknowledged);
        while self.finish_short_messages(shared, stags, acknowledged) {}
        if !self.active.is_empty() {
            self.finish_acknowledged(shared, stags, &reads.outbound, acknowledged);
            self.note_acknowledged(acknowledged);
        }
        self.flush_after_close(shared);
    }

    /// Completes the oldest requests that TCP has acknowledged and that wait for no response. All of them
    /// have succeeded.
    fn finish_acknowledged(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        outbound: &OutboundReads,
        acknowledged: SeqNumber,
    ) {
        loop {
            let run = self.active.front_run();
            let (mut done, mut reported) = (0, 0);
            for wqe in &*run {
                let answered = wqe.response.is_none_or(|number| outbound.is_answered(number));
                if !(wqe.stage.is_acknowledged(acknowledged) && answered) {
                    break;
                }
                done += 1;
                reported += u32::from(wqe.kind.is_some() && wqe.request.signaled());
            }
            if done == 0 {
                return;
            }
            let is_all = done == run.len();
            let mut completions = shared.complete_sends(reported);
            for wqe in run.iter_mut().take(done) {
                each_memory(&wqe.request, |stag| stags.release(stag));
                let (signaled, words) = (wqe.request.signaled(), wqe.cqe_words(shared));
                shared.recycle_box(&mut wqe.request);
                // The first of two messages has no completion, and the request is not done.
                if let Some(words) = words {
                    shared.retire_send();
                    if signaled {
                        completions.push_words(&words);
                    }
                }
            }
            drop(completions);
            self.active.pop_front(done);
            self.completed = self.completed.wrapping_add(done as u32);
            self.acknowledged = self.acknowledged.saturating_sub(done);
            self.queued = self.queued.saturating_sub(done);
            if !is_all {
                return;
            }
        }
    }

    /// Flushes requests posted after this end had closed or the stream had failed, once all before them are
    /// complete.
    pub fn flush_after_close(&mut self, shared: &SharedQp) {
        if self.active.is_empty() && (self.after_close.is_some() || shared.state().is_over()) {
            self.flush_posted(shared);
        }
    }

    /// Flushes requests that are not taken yet. It takes at most as many as the queue holds, so that an
    /// application that keeps posting cannot keep the core here, and rings the doorbell for the rest.
    fn flush_posted(&mut self, shared: &SharedQp) {
        for _ in 0..=shared.send_depth() {
            let Some(request) = self.after_close.take().or_else(|| shared.take_send()) else { return };
            let mut wqe = ActiveWqe::new(request);
            wqe.checked(Status::Flushed, &mut self.numbers);
            let (completion, signaled) = (wqe.completion(shared, Status::Flushed), wqe.request.signaled());
            shared.recycle(wqe.request);
            match completion {
                Some(completion) if signaled => shared.complete_send(completion),
                Some(completion) => shared.report_unsignaled(completion),
                None => {}
            }
        }
        if shared.has_posted_sends() {
            shared.ring();
        }
    }

    /// Marks requests as acknowledged: one may wait for its response until TCP's sequence numbers have
    /// wrapped.
    fn note_acknowledged(&mut self, acknowledged: SeqNumber) {
        for wqe in self.active.range_mut(self.acknowledged.min(self.queued)..self.queued) {
            match wqe.stage {
                Stage::Queued(end) if end <= acknowledged => wqe.stage = Stage::Acknowledged,
                _ => return,
            }
            self.acknowledged += 1;
        }
    }

    /// Completes everything taken and posted: the oldest request with `error` if the stream failed, the
    /// others as flushed. A request that could not be done keeps its own status.
    pub fn flush(&mut self, shared: &SharedQp, stags: &mut StagTable, error: Option<StreamError>) {
        let mut status = error.map_or(Status::Flushed, Status::Failed);
        while !self.active.is_empty() {
            // The first of two messages has no completion that could name the error.
            let named = self.active.front().is_some_and(|wqe| wqe.kind.is_some());
            self.finish_front(shared, stags, status);
            if named {
                status = Status::Flushed;
            }
        }
        self.flush_posted(shared);
        (self.acknowledged, self.queued, self.offset) = (0, 0, 0);
        self.provider_message = None;
    }

    fn finish_front(&mut self, shared: &SharedQp, stags: &mut StagTable, outcome: Status) {
        let Some(wqe) = self.active.front_mut() else { return };
        self.completed = self.completed.wrapping_add(1);
        self.acknowledged = self.acknowledged.saturating_sub(1);
        self.queued = self.queued.saturating_sub(1);
        let status = if wqe.status == Status::Success {
            each_memory(&wqe.request, |stag| stags.release(stag));
            outcome
        } else {
            wqe.status
        };
        let completion = wqe.completion(shared, status);
        let signaled = wqe.request.signaled();
        shared.recycle_box(&mut wqe.request);
        self.active.pop_front(1);
        match completion {
            // The first of two messages: the second has the completion.
            None => {}
            Some(completion) if signaled => shared.complete_send(completion),
            Some(_) if status == Status::Success => shared.retire_send(),
            // Verbs reports every failure, signaled or not.
            Some(completion) => shared.report_unsignaled(completion),
        }
    }

    /// Sends `message`, a Terminate, and nothing after it.
    pub fn terminate(&mut self, message: ArrayVec<u8, { limits::TERMINATE_BYTES }>) {
        self.terminate.get_or_insert(message);
    }

    /// Copies the payload of an FPDU from `at` on to `out`. Payload of [`Source::Memory`] is read without the
    /// sender. Returns false if the octets are not available.
    #[must_use]
    pub fn copy(&self, source: Source, stags: &StagTable, at: usize, out: &mut [u8]) -> bool {
        let mut response = [0; AtomicResponse::LEN];
        let octets = match source {
            Source::Memory(_) => return false,
            Source::Request { number, offset } => {
                let wqe = self.active.get(number.wrapping_sub(self.completed) as usize);
                let offset = u64::from(offset) + at as u64;
                return wqe.is_some_and(|wqe| wqe.copy(number, stags, offset, out));
            }
            Source::AtomicResponse { identifier, original } => {
                AtomicResponse { identifier, original }.emit(&mut response);
                &response[..]
            }
            Source::Terminate => self.terminate.as_ref().map_or(&[][..], |message| message),
            Source::Provider => &indication::READ_REQUEST[..],
        };
        octets.get(at..at + out.len()).is_some_and(|octets| {
            out.copy_from_slice(octets);
            true
        })
    }

    /// Whether every request taken is complete.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }
}

/// Carries out an operation that changes what this end grants.
// Requirements: DDP-8.3-01, DDP-8.3-02, DDP-8.3-03
fn carry_out_one(operation: Operation, shared: &SharedQp, stags: &mut StagTable) -> Status {
    let done = |done, otherwise| if done { Status::Success } else { otherwise };
    match operation {
        Operation::LocalInvalidate { stag } => {
            let invalidated = stags.invalidate(stag, shared.accessor(), Invalidation::Local);
            done(invalidated.is_ok(), Status::LocalProtection)
        }
        Operation::Bind(binding) => done(stags.bind(&binding, shared.accessor()).is_ok(), Status::Bind),
        Operation::Register(wanted) => {
            done(stags.register(&wanted, shared.accessor()).is_ok(), Status::LocalProtection)
        }
        _ => Status::LocalOperation,
    }
}

/// The next FPDU of the oldest response. Responses go alone.
fn next_response(inbound: &InboundReads, room: &SegmentRoom) -> Option<FpduRun> {
    let (response, offset) = inbound.next()?;
    Some(FpduRun::one(Origin::Response(inbound.next_number()), &response.message, offset, room))
}

/// Calls `f` for each registration that the payload of a request lies in.
#[inline]
fn each_memory(request: &Wqe, mut f: impl FnMut(STag)) {
    match request.short_range() {
        Some(local) if local.len > 0 => f(local.stag),
        Some(_) => {}
        None => request.slices().iter().filter(|slice| slice.len > 0).map(|slice| slice.stag).for_each(f),
    }
}

/// A Terminate always fits the smallest MULPDU.
// Requirements: MPA-3-05
const _: () = assert!(limits::TERMINATE_BYTES + ddp::Untagged::LEN <= mpa::fpdu::MULPDU_MIN);

mod packing;
mod short_messages;
#[cfg(test)]
mod tests;

pub use short_messages::ShortMessage;
