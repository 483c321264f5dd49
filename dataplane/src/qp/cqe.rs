//! Completion queue entries: a completion as the words of a slot.

use super::lender::MarkedId;
use super::work::{Completion, CompletionKind, QpNumber, Status};
use crate::memory::STag;

/// The words of a completion. Its status, unless it is a success, is kept beside the slot.
pub(super) const CQE_WORDS: usize = 4;

// With the turn of its slot, a completion fills one cache line.
const _: () = assert!(CQE_WORDS <= 7);

const FAILED: u64 = 1 << 40;
const IMMEDIATE: u64 = 1 << 41;
const INVALIDATED: u64 = 1 << 42;
const SOLICITED: u64 = 1 << 43;
const LENT: u64 = 1 << 44;
/// All of them.
const FLAGS: u64 = !0 << 40;

/// The words of a success without Immediate Data, invalidation or solicited event: of any send, and of most
/// receives.
#[inline]
pub(super) fn success_words(
    qp: QpNumber,
    kind: CompletionKind,
    byte_len: u32,
    id: MarkedId,
) -> [u64; CQE_WORDS] {
    let MarkedId { id, lent } = id;
    let lent = if lent { LENT } else { 0 };
    [id, u64::from(qp.0) | u64::from(byte_len) << 32, 0, (kind as u64) << 32 | lent]
}

/// What the completion of a receive says of its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedMessage {
    pub byte_len: u32,
    pub solicited: bool,
    pub invalidated: Option<STag>,
    pub immediate: Option<u64>,
}

/// The words of the completion of a receive, whose message was Delivered.
#[inline]
pub(super) fn received_words(qp: QpNumber, id: MarkedId, message: &ReceivedMessage) -> [u64; CQE_WORDS] {
    let ReceivedMessage { byte_len, solicited, invalidated, immediate } = *message;
    let mut words = success_words(qp, CompletionKind::Receive, byte_len, id);
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    words[2] = immediate.unwrap_or_default();
    words[3] |= flag(IMMEDIATE, immediate.is_some())
        | flag(INVALIDATED, invalidated.is_some())
        | flag(SOLICITED, solicited)
        | u64::from(invalidated.unwrap_or_default().0);
    words
}

/// The words of `completion`.
#[inline]
pub(super) fn words(completion: &Completion) -> [u64; CQE_WORDS] {
    let Completion { id, qp, kind, status, byte_len, immediate, invalidated, solicited, lent } = *completion;
    let mut words = success_words(qp, kind, byte_len, MarkedId { id, lent });
    let flag = |flag, is_set| if is_set { flag } else { 0 };
    words[2] = immediate.unwrap_or_default();
    words[3] |= flag(FAILED, status != Status::Success)
        | flag(IMMEDIATE, immediate.is_some())
        | flag(INVALIDATED, invalidated.is_some())
        | flag(SOLICITED, solicited)
        | u64::from(invalidated.unwrap_or_default().0);
    words
}

/// The completion that has these words. `failure` returns its status if it is not a success.
#[inline]
pub(super) fn completion(words: [u64; CQE_WORDS], failure: impl FnOnce() -> Status) -> Completion {
    if has_flags(words) { with_flags(words, failure) } else { success_completion(words) }
}

/// Whether some of the words are flags, which a [success without them](success_completion) has not.
#[inline]
pub(super) const fn has_flags(words: [u64; CQE_WORDS]) -> bool {
    words[3] & FLAGS != 0
}

/// The completion that has these words without any flag.
#[inline]
pub(super) const fn success_completion([id, qp_len, _, rest]: [u64; CQE_WORDS]) -> Completion {
    let (qp, kind) = (QpNumber(qp_len as u32), kind((rest >> 32) as u8));
    Completion::new(qp, id, kind, Status::Success, (qp_len >> 32) as u32)
}

/// The completion that has these words, of which some are flags.
#[cold]
fn with_flags(words: [u64; CQE_WORDS], failure: impl FnOnce() -> Status) -> Completion {
    let mut completion = success_completion(words);
    let [_, _, immediate, rest] = words;
    let has = |flag| rest & flag != 0;
    if has(FAILED) {
        completion.status = failure();
    }
    completion.immediate = has(IMMEDIATE).then_some(immediate);
    completion.invalidated = has(INVALIDATED).then_some(STag(rest as u32));
    completion.solicited = has(SOLICITED);
    completion.lent = has(LENT);
    completion
}

/// The kind with this number.
#[inline]
const fn kind(number: u8) -> CompletionKind {
    match number {
        0 => CompletionKind::Send,
        1 => CompletionKind::Write,
        2 => CompletionKind::Read,
        3 => CompletionKind::FetchAdd,
        4 => CompletionKind::CompareSwap,
        5 => CompletionKind::LocalInvalidate,
        6 => CompletionKind::Bind,
        7 => CompletionKind::Register,
        _ => CompletionKind::Receive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::error::StreamError;

    /// The completion of a message is written as any completion is.
    #[test]
    fn a_message_has_the_words_of_its_completion() {
        let success = Completion::new(QpNumber(7), 3, CompletionKind::Receive, Status::Success, 100);
        for (solicited, lent) in [(false, false), (true, false), (false, true)] {
            for (invalidated, immediate) in [(None, None), (Some(STag(u32::MAX)), None), (None, Some(0))] {
                let message = ReceivedMessage { byte_len: 100, solicited, invalidated, immediate };
                let expected = Completion { immediate, invalidated, solicited, lent, ..success };
                assert_eq!(received_words(QpNumber(7), MarkedId { id: 3, lent }, &message), words(&expected));
            }
        }
    }

    #[test]
    fn every_completion_arrives_as_it_was() {
        let kinds = [
            CompletionKind::Send,
            CompletionKind::Write,
            CompletionKind::Read,
            CompletionKind::FetchAdd,
            CompletionKind::CompareSwap,
            CompletionKind::LocalInvalidate,
            CompletionKind::Bind,
            CompletionKind::Register,
            CompletionKind::Receive,
        ];
        for kind in kinds {
            let plain =
                Completion::new(QpNumber(u32::MAX - 1), u64::MAX - 2, kind, Status::Success, u32::MAX);
            let completions = [
                plain,
                Completion { immediate: Some(0), ..plain },
                Completion { immediate: Some(u64::MAX), invalidated: Some(STag(0)), ..plain },
                Completion { invalidated: Some(STag(u32::MAX)), solicited: true, byte_len: 0, ..plain },
                Completion { lent: true, id: 0, qp: QpNumber(0), ..plain },
                Completion { status: Status::Failed(StreamError::NoFpdu), ..plain },
                Completion { status: Status::Flushed, ..plain },
            ];
            for expected in completions {
                assert_eq!(completion(words(&expected), || expected.status), expected);
            }
        }
    }
}
