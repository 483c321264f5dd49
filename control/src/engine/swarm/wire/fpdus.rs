//! What one end of a connection with MPA sends: a startup frame, and then FPDUs, whose DDP segments follow
//! each other as RFC 5041 and RFC 5040 say.

use super::super::reference_mpa::{Receiver, Stream};
use super::half::{Verdict, ensure};

/// Octets of a startup frame before its Private Data (RFC 5044 §7.1.1).
const STARTUP_OCTETS: usize = 20;
const QUEUES: usize = 4;
/// RDMAP opcodes (RFC 5040 §4.3, RFC 7306 §4).
mod opcode {
    pub(super) const WRITE: u8 = 0;
    pub(super) const READ_REQUEST: u8 = 1;
    pub(super) const READ_RESPONSE: u8 = 2;
    pub(super) const TERMINATE: u8 = 7;
    pub(super) const ATOMIC_REQUEST: u8 = 10;
    pub(super) const ATOMIC_RESPONSE: u8 = 11;
    pub(super) const LAST: u8 = 11;
}

/// A startup frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Startup {
    octets: usize,
    wants_markers: bool,
    wants_crc: bool,
    rejects: bool,
}

impl Startup {
    /// Returns the frame that `stream` begins with, once it is whole.
    pub(super) fn parse(stream: &[u8]) -> Option<Self> {
        let [high, low] = stream.get(18..STARTUP_OCTETS)? else { return None };
        let octets = STARTUP_OCTETS + usize::from(u16::from_be_bytes([*high, *low]));
        let flags = stream[16];
        (stream.len() >= octets).then_some(Self {
            octets,
            wants_markers: flags & 0x80 != 0,
            wants_crc: flags & 0x40 != 0,
            rejects: flags & 0x20 != 0,
        })
    }
}

/// The message that a DDP segment without the L bit has left open, and the place of its next octet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Tagged { control: u8, stag: u32, to: u64 },
    Untagged { control: u8, queue: usize, msn: u32, mo: u32 },
}

/// The FPDUs of one direction.
#[derive(Debug)]
pub(super) struct Fpdus {
    receiver: Receiver,
    /// Octets of the stream that were looked at.
    position: usize,
    open: Option<Open>,
    /// The number of the next message of each queue.
    msns: [u32; QUEUES],
    terminated: bool,
    /// FPDUs so far, and their octets.
    pub(super) seen: [u64; 2],
}

impl Fpdus {
    /// Returns the FPDUs of an end whose frame is `own`, towards one whose frame is `peer`; `None` if there
    /// are none to come.
    pub(super) fn new(own: Startup, peer: Startup) -> Option<Self> {
        let stream = Stream { start: 0, markers: peer.wants_markers, crc: own.wants_crc || peer.wants_crc };
        (!own.rejects && !peer.rejects).then(|| Self {
            receiver: Receiver::new(stream),
            position: own.octets,
            open: None,
            msns: [1; QUEUES],
            terminated: false,
            seen: [0; 2],
        })
    }

    /// Judges what has been added to `stream`.
    pub(super) fn look_on(&mut self, stream: &[u8]) -> Verdict {
        while let Some(octet) = stream.get(self.position) {
            self.position += 1;
            let received =
                self.receiver.take(*octet).map_err(|fault| format!("an FPDU that breaks {fault:?}"))?;
            if let Some(received) = received {
                self.seen[0] += 1;
                self.seen[1] += u64::from(received.shape.octets);
                self.judge(&received.ulpdu)?;
            }
        }
        Ok(())
    }

    /// Returns true if the stream so far ends with a whole FPDU.
    pub(super) fn is_at_boundary(&self) -> bool {
        !self.receiver.inside()
    }

    fn judge(&mut self, ulpdu: &[u8]) -> Verdict {
        ensure!(!self.terminated, "an FPDU after a Terminate");
        ensure!(ulpdu.len() >= 14, "a ULPDU of {} octets", ulpdu.len());
        let (is_tagged, is_last, control) = (ulpdu[0] & 0x80 != 0, ulpdu[0] & 0x40 != 0, ulpdu[1]);
        ensure!(ulpdu[0] & 0x3f == 1, "DDP control {:x} (RFC 5041 §4.1)", ulpdu[0]);
        ensure!(control & 0xf0 == 0x40, "RDMAP control {control:x} (RFC 5040 §4.1)");
        let opcode = control & 0x0f;
        ensure!(opcode <= opcode::LAST, "opcode {opcode}");
        let places_in_tagged = matches!(opcode, opcode::WRITE | opcode::READ_RESPONSE);
        ensure!(is_tagged == places_in_tagged, "opcode {opcode}, tagged {is_tagged}");
        let (here, after) =
            if is_tagged { Self::tagged(control, ulpdu) } else { self.untagged(control, ulpdu, is_last)? };
        // RFC 5041 §6.2.2: after a fatal error DDP completes all outstanding requests with an error, also one
        // whose message is under way, and lets the ULP transfer additional messages on the outgoing half. RFC
        // 5040 §5.4: that is the Terminate, and after it come no messages. No other message comes inside of
        // one.
        let ends = opcode == opcode::TERMINATE || self.open.is_none_or(|open| open == here);
        ensure!(ends, "{here:x?} inside of {:x?}", self.open);
        self.open = (!is_last).then_some(after);
        self.terminated = opcode == opcode::TERMINATE;
        Ok(())
    }

    fn tagged(control: u8, ulpdu: &[u8]) -> (Open, Open) {
        let (stag, to) = (be32(ulpdu, 2), u64::from(be32(ulpdu, 6)) << 32 | u64::from(be32(ulpdu, 10)));
        let octets = ulpdu.len() as u64 - 14;
        (Open::Tagged { control, stag, to }, Open::Tagged { control, stag, to: to.wrapping_add(octets) })
    }

    /// The messages of each queue are numbered from 1, and the segments of one begin where those before end
    /// (RFC 5041 §5.3).
    fn untagged(&mut self, control: u8, ulpdu: &[u8], is_last: bool) -> Result<(Open, Open), String> {
        ensure!(ulpdu.len() >= 18, "an untagged ULPDU of {} octets", ulpdu.len());
        let (queue, msn, mo) = (be32(ulpdu, 6) as usize, be32(ulpdu, 10), be32(ulpdu, 14));
        let expected = match control & 0x0f {
            opcode::READ_REQUEST | opcode::ATOMIC_REQUEST => 1,
            opcode::TERMINATE => 2,
            opcode::ATOMIC_RESPONSE => 3,
            _ => 0,
        };
        ensure!(queue == expected, "opcode {} on queue {queue}", control & 0x0f);
        ensure!(msn == self.msns[queue], "MSN {msn}, not {}, on queue {queue}", self.msns[queue]);
        let begins = self.open.is_none() || control & 0x0f == opcode::TERMINATE;
        ensure!(!begins || mo == 0, "a message begins at offset {mo}");
        self.msns[queue] = msn.wrapping_add(u32::from(is_last));
        let octets = ulpdu.len() as u32 - 18;
        let fixed = match control & 0x0f {
            opcode::READ_REQUEST => Some(28),
            opcode::ATOMIC_REQUEST => Some(52),
            opcode::ATOMIC_RESPONSE => Some(12),
            _ => None,
        };
        ensure!(fixed.is_none_or(|fixed| fixed == octets), "opcode {} with {octets} octets", control & 0x0f);
        Ok((
            Open::Untagged { control, queue, msn, mo },
            Open::Untagged { control, queue, msn, mo: mo + octets },
        ))
    }
}

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}
