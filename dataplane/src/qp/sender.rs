//! The send half of a queue pair: work requests and responses become FPDU descriptors, TCP acknowledgements
//! become completions.

mod accept;
mod build;
mod complete;
mod entries;
mod entry;
mod pack;

use arrayvec::ArrayVec;

use super::indication::ProviderMessage;
use super::reads::Reads;
use super::run::{FpduDescriptor, FpduRun, Origin, SegmentRoom, Source};
use super::shared::SharedQp;
use super::work::Status;
use super::wqe::Wqe;
use crate::limits;
use crate::memory::{ChangeId, STag, prefetch};
use crate::mpa;
use crate::mpa::enhanced::{ReadyToReceive, Rtr};
use crate::wire::ddp::{self, DDP_VERSION};
use entries::SendEntries;
use entry::MessageNumbers;

pub use accept::CarriedOut;
pub use build::SmallMessage;

/// The send half of a queue pair at its core.
#[derive(Debug)]
#[repr(C)]
pub struct Sender {
    /// Entries in the order of posting, from the oldest not completed. At most the depth of the queue, and
    /// one more if the last request is two messages.
    entries: SendEntries,
    /// How many of the queued entries are known to be acknowledged and wait for their responses.
    acknowledged: usize,
    /// How many entries are completely queued to TCP, or carried out.
    queued: usize,
    /// Entries completed before these; it wraps.
    completed: u32,
    /// Octets of the next entry that are queued.
    offset: u32,
    /// The MSNs of the next messages.
    numbers: MessageNumbers,
    /// Whether the ends agreed on Reads and Atomic Operations.
    reads: bool,
    /// Whether a response goes before the next request if both wait. They alternate: requests and responses
    /// are ordered only among their own kind.
    // Requirements: RDMAP-5.5-05, RDMAP-5.5-09
    response_next: bool,
    terminate_queued: bool,
    /// A message of the provider, which goes before anything else.
    provider_message: Option<ProviderMessage>,
    /// The Terminate Message, once there is one to send. Nothing follows it. Boxed: few streams have one.
    // Requirements: RDMAP-5.4-04
    terminate: Option<Box<ArrayVec<u8, { limits::TERMINATE_BYTES }>>>,
    /// The first request that was posted after this end had closed. It and those after it are flushed when
    /// all before it are complete. Boxed, as it comes once in the life of a stream at most.
    after_close: Option<Box<Wqe>>,
    /// The buffer of the peer's indication that was answered, if it was an RDMA Read: a stream has one.
    answered: (STag, u64),
    /// The change by the oldest request that other cores are to follow: it completes when they have.
    change: Option<ChangeId>,
}

impl Sender {
    /// A sender for up to `depth` requests.
    pub fn new(depth: usize) -> Self {
        Self {
            entries: SendEntries::with_capacity(depth + 1),
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
            change: None,
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

    /// Whether a request is still to be accepted, queued, or answered by the peer.
    pub fn has_work(&self, shared: &SharedQp, reads: &Reads) -> bool {
        // A Read is done when its response has come.
        // Requirements: DDP-6.2.1-01
        self.has_unqueued(shared, reads) || (self.terminate.is_none() && !reads.outbound.is_empty())
    }

    /// Whether anything is still to be accepted or queued.
    pub fn has_unqueued(&self, shared: &SharedQp, reads: &Reads) -> bool {
        if self.provider_message.is_some() {
            return true;
        }
        if self.terminate.is_some() {
            return !self.terminate_queued;
        }
        let posted = !shared.state().is_over() && self.may_be_posted(shared);
        posted || self.queued < self.entries.len() || reads.inbound.has_next()
    }

    /// Whether there is nothing to [accept](Self::accept_posted), to [carry out](Self::carry_out), to flush
    /// or to [queue](Self::peek) for now, in a stream that has not ended.
    #[inline]
    pub fn has_queued_all(&self, shared: &SharedQp, reads: &Reads) -> bool {
        self.has_queued_accepted(reads) && !shared.has_posted_sends() && !shared.state().is_over()
    }

    /// The same of what is accepted, whatever has been posted since.
    #[inline]
    pub fn has_queued_accepted(&self, reads: &Reads) -> bool {
        self.queued == self.entries.len()
            && self.provider_message.is_none()
            && self.terminate.is_none()
            && self.after_close.is_none()
            && !reads.inbound.has_next()
    }

    /// Whether requests may lie in the queue that are not accepted yet and are not to be flushed.
    pub fn may_be_posted(&self, shared: &SharedQp) -> bool {
        self.after_close.is_none() && shared.has_posted_sends()
    }

    /// Whether the next request cannot be done, for a reason on this end.
    // Requirements: RDMAP-7.1-01
    pub fn has_failed(&self) -> bool {
        self.terminate.is_none()
            && self.entries.get(self.queued).is_some_and(|entry| entry.status != Status::Success)
    }

    /// Has the processor fetch the oldest entry, and the one that is queued next.
    #[inline]
    pub fn prefetch_entries(&self) {
        for entry in [self.entries.front(), self.entries.get(self.queued)].into_iter().flatten() {
            prefetch(entry);
        }
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

    /// Sends `message`, a Terminate, and nothing after it.
    pub fn terminate(&mut self, message: ArrayVec<u8, { limits::TERMINATE_BYTES }>) {
        self.terminate.get_or_insert_with(|| Box::new(message));
    }

    /// Whether every request accepted is complete.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A Terminate always fits the smallest MULPDU.
// Requirements: MPA-3-05
const _: () = assert!(limits::TERMINATE_BYTES + ddp::Untagged::LEN <= mpa::fpdu::MULPDU_MIN);

#[cfg(test)]
mod tests;
