//! The work requests that the core is given, and the messages that must come of them.

use std::collections::VecDeque;

use fastrand::Rng;
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::work::{
    Completion, CompletionKind, InlineData, Operation, Payload, SendRequest, Slice, SliceList, Status,
};

use super::subject::{ANSWER_OCTETS, ANSWERS, AREAS, ORD, SEND_DEPTH, SOURCE, SOURCE_OCTETS, Subject};
use crate::reference::fields::{AtomicRequest, ReadRequest, opcode};
use crate::reference::reader::Message;
use crate::reference::target::{Outstanding, Range, Target};

const ANSWERS_BASE: u64 = 7;
const INLINE_OCTETS_MAX: usize = 64;

/// A work request.
#[derive(Clone, Debug)]
struct Post {
    request: SendRequest,
    /// Its messages that the core has not sent.
    messages: VecDeque<Message>,
    /// Its number among those that have a response.
    number: usize,
}

impl Post {
    fn asks(&self) -> bool {
        self.request.operation.expects_response()
    }
}

/// All that was posted and is not complete, oldest first.
#[derive(Debug, Default)]
pub(super) struct Work {
    posts: VecDeque<Post>,
    posted: u64,
    /// How many have asked for a response.
    asked: usize,
}

fn message(opcode: u8, stag: STag, to: u64, octets: Vec<u8>) -> Message {
    Message { opcode, stag: stag.0, to, octets }
}

fn immediate_message(immediate: u64, solicited: bool) -> Message {
    let code = if solicited { opcode::IMMEDIATE_SOLICITED } else { opcode::IMMEDIATE };
    message(code, STag(0), 0, immediate.to_be_bytes().to_vec())
}

impl Work {
    /// Posts a request of any kind, if there is room.
    pub(super) fn post(&mut self, rng: &mut Rng, subject: &Subject, source: &[u8]) {
        let unanswered = self.posts.iter().filter(|post| post.asks()).count();
        if self.posts.len() >= SEND_DEPTH / 2 {
            return;
        }
        let asks = unanswered < AREAS && rng.u32(..4) == 0;
        let (stag, to) = (STag(rng.u32(..)), rng.u64(..u64::MAX / 2));
        let answer = ANSWERS_BASE + (self.asked % AREAS * ANSWER_OCTETS) as u64;
        let (operation, local, messages) = match rng.u32(..7) {
            _ if asks => Self::asking(rng, stag, to, answer),
            0..=2 => {
                let (local, octets) = payload(rng, source);
                let message = message(opcode::WRITE, stag, to, octets);
                (Operation::Write { stag, to }, local, vec![message])
            }
            3..=4 => {
                let (local, octets) = payload(rng, source);
                let (invalidate, solicited) = (rng.bool().then_some(stag), rng.bool());
                let code = match (invalidate.is_some(), solicited) {
                    (false, false) => opcode::SEND,
                    (true, false) => opcode::SEND_INVALIDATE,
                    (false, true) => opcode::SEND_SOLICITED,
                    (true, true) => opcode::SEND_SOLICITED_INVALIDATE,
                };
                let message = message(code, invalidate.unwrap_or_default(), 0, octets);
                (Operation::Send { invalidate, solicited }, local, vec![message])
            }
            5 => {
                let (immediate, solicited) = (rng.u64(..), rng.bool());
                let operation = Operation::Immediate { immediate, solicited };
                (operation, Payload::EMPTY, vec![immediate_message(immediate, solicited)])
            }
            _ => {
                let (immediate, solicited) = (rng.u64(..), rng.bool());
                let (local, octets) = payload(rng, source);
                let write = message(opcode::WRITE, stag, to, octets);
                let operation = Operation::WriteWithImmediate { stag, to, immediate, solicited };
                (operation, local, vec![write, immediate_message(immediate, solicited)])
            }
        };
        let request = SendRequest {
            signaled: rng.u32(..4) > 0,
            fenced: rng.u32(..6) == 0,
            ..SendRequest::new(self.posted, operation, local)
        };
        subject.qp.post_send(request).unwrap();
        self.posted += 1;
        let number = self.asked;
        self.asked += usize::from(operation.expects_response());
        self.posts.push_back(Post { request, messages: messages.into(), number });
    }

    /// A Read or an Atomic Operation, whose result goes to `answer`.
    fn asking(rng: &mut Rng, stag: STag, to: u64, answer: u64) -> (Operation, Payload, Vec<Message>) {
        let slice = |octets: u32| Slice { stag: ANSWERS, to: answer, len: octets };
        let atomic =
            |request: AtomicRequest| vec![message(opcode::ATOMIC_REQUEST, STag(0), 0, request.octets())];
        let (a, b, c, d) = (rng.u64(..), rng.u64(..), rng.u64(..), rng.u64(..));
        let base = AtomicRequest {
            code: 2,
            identifier: 0,
            stag: stag.0,
            to,
            data: a,
            mask: b,
            compare: 0,
            compare_mask: u64::MAX,
        };
        match rng.u32(..5) {
            0 => {
                let operation = Operation::FetchAdd { stag, to, add: a, mask: b };
                (operation, slice(8).into(), atomic(AtomicRequest { code: 0, ..base }))
            }
            1 => {
                let (compare, compare_mask) = (c, d);
                let operation =
                    Operation::CompareSwap { stag, to, compare, compare_mask, swap: a, swap_mask: b };
                (operation, slice(8).into(), atomic(AtomicRequest { compare, compare_mask, ..base }))
            }
            2 => {
                let operation = Operation::Swap { stag, to, swap: a, mask: b };
                (operation, slice(8).into(), atomic(AtomicRequest { compare_mask: 0, ..base }))
            }
            _ => {
                let size = if rng.u32(..6) == 0 { 0 } else { rng.u32(..ANSWER_OCTETS as u32) };
                let request = ReadRequest {
                    sink_stag: ANSWERS.0,
                    sink_to: answer,
                    size,
                    source_stag: stag.0,
                    source_to: to,
                };
                let message = message(opcode::READ_REQUEST, STag(0), 0, request.octets());
                (Operation::Read { stag, to }, slice(size).into(), vec![message])
            }
        }
    }

    /// Takes a message that the core has sent: it must be the next one that was asked for. The reference then
    /// awaits its response.
    pub(super) fn sent(&mut self, message: &Message, target: &mut Target) {
        let post = self.posts.iter_mut().find(|post| !post.messages.is_empty());
        let post = post.unwrap_or_else(|| panic!("nobody has asked for {message:?}"));
        let mut expected = post.messages.pop_front().unwrap();
        if message.opcode == opcode::ATOMIC_REQUEST {
            // The identifier is the sender's choice.
            expected.octets[4..8].copy_from_slice(&message.octets[4..8]);
        }
        assert!(*message == expected, "sent {message:02x?}\nnot {expected:02x?}");
        let Some(slice) = post.request.local.slices().first().filter(|_| post.asks()) else { return };
        let range = Range { stag: slice.stag.0, to: slice.to, octets: slice.len as usize };
        target.outstanding.push_back(if message.opcode == opcode::ATOMIC_REQUEST {
            let identifier = AtomicRequest::parse(&message.octets).identifier;
            Outstanding::Atomic { identifier, target: range }
        } else {
            Outstanding::Read { sink: range, delivered: 0 }
        });
    }

    /// Returns true if the core has sent all that it may: the next request, if there is one, is fenced, or
    /// needs one more request outstanding than may be.
    pub(super) fn all_sent(&self, target: &Target) -> bool {
        let Some(next) = self.posts.iter().find(|post| !post.messages.is_empty()) else { return true };
        let outstanding = target.outstanding.len();
        next.request.fenced && outstanding > 0 || next.asks() && outstanding == ORD
    }

    /// Returns true if nothing waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.posts.iter().all(|post| post.messages.is_empty())
    }

    /// Takes the completions of sends, of which TCP has the acknowledgement: those that are due, in order.
    pub(super) fn complete(&mut self, completions: &[Completion], target: &Target) {
        let mut completions = completions.iter();
        while let Some(post) = self.posts.front() {
            let done = post.messages.is_empty() && (!post.asks() || post.number < target.answered);
            if !done {
                break;
            }
            if post.request.signaled {
                let completion = completions.next().unwrap_or_else(|| panic!("no completion of {post:?}"));
                assert_eq!((completion.id, completion.status), (post.request.id, Status::Success));
                assert_eq!(completion.kind, post.request.operation.kind());
                if matches!(completion.kind, CompletionKind::Write | CompletionKind::Read) {
                    assert_eq!(u64::from(completion.byte_len), post.request.local.len());
                }
            }
            self.posts.pop_front();
        }
        assert_eq!(completions.next(), None, "nothing else is complete");
    }

    /// Takes the completions after the end of the stream: all that was not complete has failed or was
    /// flushed, in order, signaled or not.
    pub(super) fn flush(&mut self, completions: &[Completion]) {
        let ids: Vec<_> = completions.iter().map(|completion| completion.id).collect();
        let expected: Vec<_> = self.posts.iter().map(|post| post.request.id).collect();
        assert_eq!(ids, expected, "flushed: {completions:?} of {self:?}");
        assert!(completions.iter().all(|completion| completion.status != Status::Success), "{completions:?}");
    }
}

/// A payload of one to four ranges or inline, and its octets.
fn payload(rng: &mut Rng, source: &[u8]) -> (Payload, Vec<u8>) {
    if rng.u32(..4) == 0 {
        let octets: Vec<u8> = (0..rng.usize(..=INLINE_OCTETS_MAX)).map(|_| rng.u8(..)).collect();
        return (Payload::Inline(InlineData::try_from(&octets[..]).unwrap()), octets);
    }
    let mut octets = Vec::new();
    let slices: Vec<_> = (0..rng.usize(..=4))
        .map(|_| {
            let at = rng.usize(..SOURCE_OCTETS);
            let most = if rng.bool() { 60 } else { 3000 };
            let len = rng.usize(..=most).min(SOURCE_OCTETS - at);
            octets.extend(&source[at..at + len]);
            Slice { stag: SOURCE, to: at as u64, len: len as u32 }
        })
        .collect();
    (Payload::Gather(SliceList::try_from(&slices[..]).unwrap()), octets)
}
