//! The messages of a stream of ULPDUs, and the rules that their sender must keep: fields, queues, MSNs that
//! rise by one, offsets without gaps (RFC 5041 §4, §5.2; RFC 5040 §4, §5; RFC 7306 §4).

use super::fields::{AtomicRequest, AtomicResponse, Model, ReadRequest, Segment, opcode};

/// A message of RDMAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub opcode: u8,
    /// The STag of a Tagged message, or the one to invalidate; otherwise zero.
    pub stag: u32,
    /// The Tagged Offset of the first octet.
    pub to: u64,
    /// All after the DDP headers.
    pub octets: Vec<u8>,
}

/// A segment, and the message that it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub last: bool,
    pub message: Option<Message>,
}

/// Puts messages together.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The MSN of the next message of each queue.
    msn: [u32; 4],
    /// The message that has begun. A sender does not interleave messages.
    open: Option<Message>,
    terminated: bool,
}

/// The queue of an opcode; `None` for one of the Tagged model.
fn queue_of(code: u8) -> Option<u32> {
    match code {
        opcode::WRITE | opcode::READ_RESPONSE => None,
        opcode::READ_REQUEST | opcode::ATOMIC_REQUEST => Some(1),
        opcode::TERMINATE => Some(2),
        opcode::ATOMIC_RESPONSE => Some(3),
        _ => Some(0),
    }
}

impl Reader {
    pub fn new() -> Self {
        Self { msn: [1; 4], open: None, terminated: false }
    }

    /// Takes the next ULPDU.
    ///
    /// # Errors
    ///
    /// The rule that it breaks.
    pub fn take(&mut self, ulpdu: &[u8]) -> Result<Read, &'static str> {
        let segment = Segment::parse(ulpdu).ok_or("shorter than its header")?;
        let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
        rule(!self.terminated, "nothing follows a Terminate (RDMAP-5.4-04)")?;
        rule(segment.version == 1 && segment.rdmap_version == 1, "versions are 1")?;
        rule(segment.reserved == 0, "reserved bits are zero")?;
        rule(segment.opcode <= opcode::ATOMIC_RESPONSE, "an opcode that there is")?;
        if segment.opcode == opcode::TERMINATE {
            // It may cut a message short: RFC 5041 §7.1 allows one message more, and nothing of another.
            self.open = None;
        }
        let first = self.open.is_none();
        let mut message = self.open.take().unwrap_or_else(|| Message {
            opcode: segment.opcode,
            stag: 0,
            to: 0,
            octets: Vec::new(),
        });
        rule(message.opcode == segment.opcode, "all segments of a message have its opcode")?;
        rule(first || !segment.payload.is_empty(), "an empty message is one segment (DDP-5.2-08)")?;
        rule(segment.last || !segment.payload.is_empty(), "an empty message is one segment (DDP-5.2-08)")?;
        match segment.model {
            Model::Tagged { stag, to } => {
                rule(queue_of(segment.opcode).is_none(), "the opcode is of the Tagged model")?;
                if first {
                    (message.stag, message.to) = (stag, to);
                }
                let next = message.to.wrapping_add(message.octets.len() as u64);
                rule((stag, to) == (message.stag, next), "segments follow one another (DDP-5.2-07)")?;
            }
            Model::Untagged { invalidate, queue, msn, mo } => {
                rule(queue_of(segment.opcode) == Some(queue), "the opcode has this queue")?;
                let invalidates =
                    matches!(segment.opcode, opcode::SEND_INVALIDATE | opcode::SEND_SOLICITED_INVALIDATE);
                rule(invalidates || invalidate == 0, "no STag to invalidate (RDMAP-4.1-09)")?;
                if first {
                    message.stag = invalidate;
                }
                rule(invalidate == message.stag, "each segment names it")?;
                rule(msn == self.msn[queue as usize], "MSNs rise by one (DDP-4.3-08)")?;
                rule(mo as usize == message.octets.len(), "offsets have no gap (DDP-5.2-05)")?;
                self.msn[queue as usize] = msn.wrapping_add(u32::from(segment.last));
            }
        }
        message.octets.extend(&segment.payload);
        if !segment.last {
            self.open = Some(message);
            return Ok(Read { last: false, message: None });
        }
        rule(first || fixed_octets(segment.opcode).is_none(), "a header is in one segment")?;
        let octets = message.octets.len();
        rule(fixed_octets(segment.opcode).is_none_or(|fixed| fixed == octets), "its header, and no more")?;
        self.terminated = segment.opcode == opcode::TERMINATE;
        Ok(Read { last: true, message: Some(message) })
    }

    /// Returns true if a message has begun and not ended.
    pub fn inside(&self) -> bool {
        self.open.is_some()
    }
}

/// Octets of the messages that are a header alone.
fn fixed_octets(code: u8) -> Option<usize> {
    match code {
        opcode::READ_REQUEST => Some(ReadRequest::OCTETS),
        opcode::IMMEDIATE | opcode::IMMEDIATE_SOLICITED => Some(8),
        opcode::ATOMIC_REQUEST => Some(AtomicRequest::OCTETS),
        opcode::ATOMIC_RESPONSE => Some(AtomicResponse::OCTETS),
        _ => None,
    }
}
