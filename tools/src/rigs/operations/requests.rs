//! Work requests from the words of a command.

use warpline::{InlineData, Operation, Payload, STag, SendRequest, Slice, SliceList};

use super::words::{Words, number, octets};
use crate::failure::Failure;

/// Parses a request on the send queue. `find` looks memory up by its name.
pub fn send(
    request: &str,
    words: &mut Words<'_>,
    find: impl Fn(&str) -> Option<(STag, u64)>,
) -> Result<SendRequest, Failure> {
    let id = words.number("an ID")?;
    let local = match request {
        "immediate" | "invalidate" => Payload::from(SliceList::default()),
        _ => local(words.next("a buffer")?, find)?,
    };
    let mut operation = operation(request, words)?;
    let mut posted = SendRequest::new(id, Operation::SEND, local);
    while let Some(word) = words.another() {
        match (word, &mut operation) {
            ("fenced", _) => posted.fenced = true,
            ("unsignaled", _) => posted.signaled = false,
            (
                "solicited",
                Operation::Send { solicited, .. }
                | Operation::Immediate { solicited, .. }
                | Operation::WriteWithImmediate { solicited, .. },
            ) => *solicited = true,
            (word, Operation::Send { invalidate, .. }) if word.starts_with("invalidate=") => {
                *invalidate = Some(STag(number(&word["invalidate=".len()..])?));
            }
            _ => return Err(Failure::local(format!("'{word}' does not go with {request}"))),
        }
    }
    posted.operation = operation;
    Ok(posted)
}

fn operation(request: &str, words: &mut Words<'_>) -> Result<Operation, Failure> {
    match request {
        "send" => return Ok(Operation::SEND),
        "immediate" => {
            return Ok(Operation::Immediate { immediate: words.number("a value")?, solicited: false });
        }
        "invalidate" => return Ok(Operation::LocalInvalidate { stag: STag(words.number("an STag")?) }),
        _ => {}
    }
    let (stag, to) = (STag(words.number("an STag")?), words.number("a Tagged Offset")?);
    let mut value = || words.number("a value");
    Ok(match request {
        "write" => Operation::Write { stag, to },
        "write-immediate" => {
            Operation::WriteWithImmediate { stag, to, immediate: value()?, solicited: false }
        }
        "read" => Operation::Read { stag, to },
        "add" => Operation::FetchAdd { stag, to, add: value()?, mask: value()? },
        "swap" => Operation::Swap { stag, to, swap: value()?, mask: value()? },
        "compare-swap" => Operation::CompareSwap {
            stag,
            to,
            compare: value()?,
            compare_mask: value()?,
            swap: value()?,
            swap_mask: value()?,
        },
        _ => return Err(Failure::local(format!("'{request}' is no command"))),
    })
}

/// Parses a local buffer.
fn local(word: &str, find: impl Fn(&str) -> Option<(STag, u64)>) -> Result<Payload, Failure> {
    match word.strip_prefix("inline=") {
        Some(digits) => Ok(InlineData::try_from(&octets(digits)?[..]).map_err(Failure::local)?.into()),
        None => Ok(slices(word, find)?.into()),
    }
}

/// Ranges of our memory, as a command names them.
pub fn slices(word: &str, find: impl Fn(&str) -> Option<(STag, u64)>) -> Result<SliceList, Failure> {
    let slice = |part: &str| {
        let fields: Vec<_> = part.split(':').collect();
        let [name, offset, octets] = fields[..] else {
            return Err(Failure::local(format!("'{part}' is not NAME:OFFSET:OCTETS")));
        };
        let (stag, base) = match find(name) {
            Some(found) => found,
            None => (STag(number(name)?), 0),
        };
        Ok(Slice { stag, to: base.wrapping_add(number(offset)?), len: number(octets)? })
    };
    let slices: Vec<Slice> = word.split(',').map(slice).collect::<Result<_, _>>()?;
    SliceList::try_from(&slices[..]).map_err(Failure::local)
}
