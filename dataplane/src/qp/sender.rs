//! The send half of a queue pair: work requests become FPDU descriptors, acknowledgements become completions.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::error::StreamError;
use super::indication::{self, Provided};
use super::run::{FpduRun, SegmentRoom};
use super::shared::SharedQp;
use super::work::{Completion, CompletionKind, Operation, SendRequest, Slice, Status};
use crate::ddp::segmentation::Message;
use crate::limits;
use crate::memory::{Access, STag, StagTable};
use crate::mpa;
use crate::mpa::enhanced::{ReadyToReceive, Rtr};
use crate::rdmap::message;
use crate::wire::ddp::{self, DDP_VERSION};
use crate::wire::tcp::SeqNumber;

/// Where the payload of an FPDU comes from when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Registered memory of this end.
    Memory(Slice),
    /// The Terminate Message of the queue pair.
    Terminate,
    /// A message of the provider's own: a ready-to-receive indication, or the answer to one. What payload it has is
    /// always [the same](indication::READ_REQUEST).
    Provider,
}

/// An FPDU to be built when it is sent, and again whenever it is retransmitted: from the same octets, with the same
/// boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduDescriptor {
    /// The DDP header with RDMAP's control octet.
    pub header: ddp::Header,
    /// Octets of payload after the header.
    pub octets: u32,
    /// Where they come from.
    pub source: Source,
}

impl FpduDescriptor {
    /// Octets of the ULPDU: header and payload.
    pub fn ulpdu_octets(&self) -> usize {
        self.header.header_len() + self.octets as usize
    }
}

/// A work request the core has taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    request: SendRequest,
    message: Message,
    status: Status,
    /// The place after the segment with its last octet in the TCP stream, once all of it is queued.
    end: Option<SeqNumber>,
}

impl Taken {
    /// Its FPDU that begins `offset` octets into the message and whose ULPDU fits `mulpdu`.
    fn fpdu(&self, offset: u32, mulpdu: usize) -> FpduDescriptor {
        let (header, octets) = self.message.segment(offset, mulpdu);
        let local = self.request.local;
        let source = Slice { stag: local.stag, to: local.to.wrapping_add(u64::from(offset)), octets };
        FpduDescriptor { header, octets, source: Source::Memory(source) }
    }
}

/// The send half of a queue pair at its core.
#[derive(Debug)]
pub struct Sender {
    /// Requests in the order of posting, from the oldest not completed. At most the queue's depth.
    taken: VecDeque<Taken>,
    /// How many requests were completed before these; it wraps.
    completed: u32,
    /// How many of them are queued whole.
    queued: usize,
    /// How much of the next one is queued, in octets.
    offset: u32,
    /// Number of the next Send (DDP-4.3-07, DDP-4.3-08).
    next_msn: u32,
    /// The version of DDP and RDMAP.
    version: u8,
    /// What the provider sends of its own, before anything else.
    provided: Option<Provided>,
    /// The Terminate Message, once there is one to send. Nothing follows it (RDMAP-5.4-04).
    terminate: Option<ArrayVec<u8, { limits::TERMINATE_OCTETS }>>,
    terminate_queued: bool,
}

impl Sender {
    /// A sender for up to `depth` requests.
    pub fn new(depth: usize) -> Self {
        Self {
            taken: VecDeque::with_capacity(depth),
            completed: 0,
            queued: 0,
            offset: 0,
            next_msn: 1,
            version: DDP_VERSION,
            provided: None,
            terminate: None,
            terminate_queued: false,
        }
    }

    /// The stream begins.
    // MPAv2-5-01, MPAv2-9.2-07
    pub fn begin(&mut self, version: u8, ready: ReadyToReceive) {
        self.version = version;
        if let ReadyToReceive::Send(rtr) = ready {
            self.provided = Some(Provided::Indication(rtr));
            if rtr == Rtr::Send {
                // it has used up the first number.
                self.next_msn = 2;
            }
        }
    }

    /// Answers a ready-to-receive indication that is an RDMA Read for nothing, to where it said.
    pub fn respond(&mut self, stag: STag, to: u64) {
        self.provided = Some(Provided::Response { stag, to });
    }

    /// Takes what was posted. A request whose local range fails its check is completed in its turn with an error and
    /// puts nothing on the wire.
    pub fn take_posted(&mut self, shared: &SharedQp, stags: &mut StagTable) {
        while self.taken.len() < shared.send_depth() {
            let Some(request) = shared.take_send() else { return };
            let local = request.local;
            let octets = local.octets as usize;
            let readable =
                octets == 0 || stags.check(local.stag, shared.pd, Access::empty(), local.to, octets).is_ok();
            if readable && octets > 0 {
                stags.retain(local.stag);
            }
            let message = match request.operation {
                Operation::Write { stag, to } => message::write(self.version, stag, to, local.octets),
                Operation::Send => message::send(self.version, self.next_msn, local.octets),
            };
            if readable && request.operation == Operation::Send {
                // DDP-4.3-09: it wraps to zero.
                self.next_msn = self.next_msn.wrapping_add(1);
            }
            let status = if readable { Status::Success } else { Status::LocalProtection };
            self.taken.push_back(Taken { request, message, status, end: None });
        }
    }

    /// Whether the next FPDU is there to be queued.
    pub fn has_work(&self) -> bool {
        if self.provided.is_some() {
            return true;
        }
        if self.terminate.is_some() { !self.terminate_queued } else { self.queued < self.taken.len() }
    }

    /// The FPDUs of the next segment: in the order of posting (DDP-5.3-02, RDMAP-5.5-06), offsets rising (DDP-5.3-03).
    /// The caller queues them and calls [`advance`](Self::advance), or asks again later.
    pub fn peek(&mut self, room: &SegmentRoom) -> Option<FpduRun> {
        if let Some(provided) = self.provided {
            let (header, octets) = indication::message(self.version, provided).segment(0, room.mulpdu());
            let first = FpduDescriptor { header, octets, source: Source::Provider };
            return Some(FpduRun::one(first, 0, room));
        }
        if let Some(terminate) = &self.terminate {
            if self.terminate_queued {
                return None;
            }
            let octets = terminate.len() as u32;
            let (header, _) = message::terminate(self.version, octets).segment(0, room.mulpdu());
            let first = FpduDescriptor { header, octets, source: Source::Terminate };
            return Some(FpduRun::one(first, 0, room));
        }
        let taken = loop {
            let taken = self.taken.get(self.queued)?;
            if taken.status == Status::Success {
                break taken;
            }
            // Nothing of it goes out; it completes with its error when all before it are done.
            self.queued += 1;
        };
        let first = taken.fpdu(self.offset, room.mulpdu());
        let ends = self.offset + first.octets == taken.message.octets;
        let run = FpduRun::one(first, self.completed.wrapping_add(self.queued as u32), room);
        Some(if ends { self.pack(run, self.queued + 1, room) } else { run })
    }

    /// `run`, which is queued, with as many FPDUs behind it as there are and as fit. `None` when that is none. For
    /// [`advance`](Self::advance) it is a run like any other.
    pub fn extend(&self, run: FpduRun, room: &SegmentRoom) -> Option<FpduRun> {
        // Behind a part of a message only its own next part may follow, and that is for the next segment. Messages that are
        // not of the queue go alone.
        let alone = !matches!(run.first.source, Source::Memory(_));
        if self.offset > 0 || self.terminate.is_some() || self.provided.is_some() || alone {
            return None;
        }
        let longer = self.pack(run, self.queued, room);
        (longer.more > run.more).then_some(longer)
    }

    /// `run` with what fits of the requests from `next` on.
    // MPA-5.1-04, MPA-A.2-01
    fn pack(&self, mut run: FpduRun, next: usize, room: &SegmentRoom) -> FpduRun {
        if !room.packing || run.first.octets >= room.alone_from {
            return run;
        }
        let requests = self.taken.range(next.min(self.taken.len())..);
        for taken in requests.filter(|taken| taken.status == Status::Success) {
            if run.fpdus() == limits::FPDUS_PER_SEGMENT {
                break;
            }
            let octets = run.octets as usize;
            // A small FPDU may fit where no part of a larger one may stand.
            let whole = taken.fpdu(0, mpa::fpdu::MULPDU_MAX);
            let fits = room.with(octets, whole.ulpdu_octets()) <= room.emss_octets;
            let fpdu = if fits {
                whole
            } else {
                let Some(mulpdu) = room.mulpdu_behind(octets) else { break };
                taken.fpdu(0, mulpdu)
            };
            if fpdu.octets >= room.alone_from {
                break;
            }
            run.octets = room.with(octets, fpdu.ulpdu_octets()) as u32;
            run.more += 1;
            run.last_octets = fpdu.octets;
            if !fits {
                break;
            }
        }
        run
    }

    /// The FPDUs of a run that is not yet acknowledged, in order.
    pub fn fpdus(&self, run: FpduRun) -> impl Iterator<Item = FpduDescriptor> {
        let index = if run.more == 0 { 0 } else { run.request.wrapping_sub(self.completed) as usize + 1 };
        let behind = self
            .taken
            .range(index.min(self.taken.len())..)
            .filter(|taken| taken.status == Status::Success)
            .take(usize::from(run.more))
            .enumerate()
            .map(move |(place, taken)| {
                let whole = taken.fpdu(0, mpa::fpdu::MULPDU_MAX);
                if place + 1 == usize::from(run.more) && run.last_octets < whole.octets {
                    taken.fpdu(0, whole.header.header_len() + run.last_octets as usize)
                } else {
                    whole
                }
            });
        core::iter::once(run.first).chain(behind)
    }

    /// Notes that `run` was queued, and ends at `end` in the stream; `before` of its FPDUs were so already. Its requests
    /// complete together, when the whole segment is acknowledged: until then it may have to be built again.
    pub fn advance(&mut self, run: &FpduRun, before: usize, end: SeqNumber) {
        match run.first.source {
            Source::Terminate => {
                self.terminate_queued = true;
                return;
            }
            Source::Provider => {
                self.provided = None;
                return;
            }
            Source::Memory(_) => {}
        }
        let from = run.request.wrapping_sub(self.completed) as usize;
        for taken in self.taken.range_mut(from.min(self.queued)..self.queued) {
            taken.end = taken.end.map(|_| end);
        }
        for place in before..run.fpdus() {
            while self.taken.get(self.queued).is_some_and(|taken| taken.status != Status::Success) {
                self.queued += 1;
            }
            let Some(taken) = self.taken.get_mut(self.queued) else { return };
            let last = place + 1 == run.fpdus();
            self.offset += match place {
                0 => run.first.octets,
                _ if last => run.last_octets,
                _ => taken.message.octets,
            };
            if self.offset == taken.message.octets {
                taken.end = Some(end);
                self.queued += 1;
                self.offset = 0;
            }
        }
    }

    /// Completes the requests whose last octet TCP has acknowledged up to `acknowledged`, in the order of posting
    /// (RDMAP-5.5-07, RDMAP-5.5-08).
    pub fn complete(&mut self, shared: &SharedQp, stags: &mut StagTable, acknowledged: SeqNumber) {
        while let Some(taken) = self.taken.front() {
            let done = match taken.end {
                Some(end) => end <= acknowledged,
                // One that failed its check is done when it is the oldest and its turn has passed.
                None => self.queued > 0 && taken.status != Status::Success,
            };
            if !done {
                return;
            }
            self.finish_front(shared, stags, None);
        }
    }

    /// Ends everything taken and posted: the request under way when the stream failed with `error`, the others flushed.
    pub fn flush(&mut self, shared: &SharedQp, stags: &mut StagTable, error: Option<StreamError>) {
        let mut status = error.map_or(Status::Flushed, Status::Failed);
        while !self.taken.is_empty() {
            self.finish_front(shared, stags, Some(status));
            status = Status::Flushed;
        }
        while let Some(request) = shared.take_send() {
            shared.complete_send(completion(shared, &request, Status::Flushed));
        }
        (self.queued, self.offset) = (0, 0);
        self.provided = None;
    }

    fn finish_front(&mut self, shared: &SharedQp, stags: &mut StagTable, instead: Option<Status>) {
        let Some(taken) = self.taken.pop_front() else { return };
        self.completed = self.completed.wrapping_add(1);
        self.queued = self.queued.saturating_sub(1);
        let local = taken.request.local;
        if taken.status == Status::Success && local.octets > 0 {
            stags.release(local.stag);
        }
        let status =
            if taken.status == Status::Success { instead.unwrap_or(Status::Success) } else { taken.status };
        if status == Status::Success && !taken.request.signaled {
            shared.retire_send();
        } else {
            shared.complete_send(completion(shared, &taken.request, status));
        }
    }

    /// Nothing but `message`, a Terminate, is sent from now on.
    pub fn terminate(&mut self, message: ArrayVec<u8, { limits::TERMINATE_OCTETS }>) {
        self.terminate.get_or_insert(message);
    }

    /// The octets of the Terminate Message.
    pub fn terminate_octets(&self) -> &[u8] {
        self.terminate.as_ref().map_or(&[], |message| message)
    }

    /// Whether every taken request is completed.
    pub fn is_idle(&self) -> bool {
        self.taken.is_empty()
    }
}

fn completion(shared: &SharedQp, request: &SendRequest, status: Status) -> Completion {
    let kind = match request.operation {
        Operation::Send => CompletionKind::Send,
        Operation::Write { .. } => CompletionKind::Write,
    };
    Completion { id: request.id, qp: shared.number, kind, status, octets: request.local.octets }
}

/// Whether a ULPDU of a descriptor ever exceeds what MPA takes (MPA-3-05). Kept as a compile-time fact.
const _: () = assert!(limits::TERMINATE_OCTETS + ddp::Untagged::LEN <= mpa::fpdu::MULPDU_MIN);
