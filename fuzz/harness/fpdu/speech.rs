//! The peer's stream: FPDUs of RDMA Writes and Sends, each with a place of its own, and the damage of some of
//! them.

use warpline_dataplane::memory::STag;

use super::input::Input;
use super::mpa_reference::{Crc, Liberties, Sender, Stream};

/// FPDUs of one stream, at most.
const FPDUS: usize = 32;
/// Octets of a stream, at most, but for its last FPDU: with this it fits a window without a scale.
const STREAM_OCTETS: usize = 40_000;
/// Receives that are posted, and octets of the buffer of each.
pub const RECEIVES: usize = 8;
pub const RECEIVE_OCTETS: usize = 2048;
/// Octets the peer may write to.
pub const SINK_OCTETS: usize = 44_000;

/// How the peer's half connection runs.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub markers: bool,
    pub crc: bool,
    /// Of DDP and RDMAP.
    pub version: u8,
    /// The sequence number of its first octet.
    pub start: u32,
}

impl Mode {
    pub fn of(input: &mut Input<'_>) -> Self {
        let how = input.octet();
        Self {
            markers: how & 1 == 0,
            crc: how & 2 == 0,
            version: u8::from(how & 0x0c != 0x0c),
            start: if how & 0x10 == 0 { 0xffff_ff00 } else { input.u32() },
        }
    }

    pub fn stream(self) -> Stream {
        Stream { start: self.start, markers: self.markers, crc: self.crc }
    }
}

/// Where a ULPDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Sink { offset: usize },
    Inbox { receive: usize, offset: usize },
}

/// An FPDU of the stream, as the peer means it.
#[derive(Clone, Debug)]
pub struct Meant {
    /// The positions of its first octet and after its last.
    pub start: usize,
    pub end: usize,
    /// Octets of its ULPDU.
    pub ulpdu: usize,
    pub place: Place,
    /// Octets of its DDP header.
    pub header: usize,
    /// It is the last segment of its message.
    pub last: bool,
}

/// The peer's stream in one run.
#[derive(Debug)]
pub struct Speech {
    pub mode: Mode,
    pub octets: Vec<u8>,
    pub fpdus: Vec<Meant>,
}

/// The STag of the sink.
pub const SINK: STag = STag::new(1, 0x4b00);

/// A message in progress.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Octets of the sink that Writes have taken.
    written: usize,
    /// Number of Sends begun, and octets of the one in progress.
    sends: usize,
    offset: usize,
    open: bool,
}

impl Speech {
    pub fn of(input: &mut Input<'_>, mode: Mode) -> Self {
        let mut speech = Self { mode, octets: Vec::new(), fpdus: Vec::new() };
        let mut said = Said::default();
        let mut sender = Sender::new(mode.stream());
        for _ in 0..=input.below(FPDUS) {
            if speech.octets.len() > STREAM_OCTETS {
                break;
            }
            speech.append(input, &mut sender, &mut said);
        }
        speech
    }

    fn append(&mut self, input: &mut Input<'_>, sender: &mut Sender, said: &mut Said) {
        let how = input.octet();
        let len = match how & 3 {
            0 => input.below(8),
            1 => usize::from(input.octet()),
            2 => 400 + usize::from(input.octet()),
            _ => usize::from(input.u16()) % 3000,
        };
        let may_send = said.open || said.sends < RECEIVES;
        let (mut ulpdu, place, last) =
            if said.open || how & 4 != 0 && may_send { self.send(said, len, how) } else { self.write(said) };
        let header = ulpdu.len();
        let fill = self.fpdus.len() as u8;
        let room = match place {
            Place::Sink { offset } => SINK_OCTETS - offset,
            Place::Inbox { offset, .. } => RECEIVE_OCTETS - offset,
        };
        ulpdu.extend((0..len.min(room)).map(|at| fill.wrapping_mul(37).wrapping_add(at as u8)));
        match place {
            Place::Sink { .. } => said.written += len.min(room),
            Place::Inbox { .. } => said.offset += len.min(room),
        }
        let liberty = how & 0x20 != 0;
        sender.liberties = if liberty {
            Liberties { pad: 0x5a, reserved: 0x4b4b, low_bits: how >> 6 }
        } else {
            Liberties::default()
        };
        let start = self.octets.len();
        sender.frame(&ulpdu, &mut self.octets);
        let end = self.octets.len();
        self.fpdus.push(Meant { start, end, ulpdu: ulpdu.len(), place, header, last });
        if how & 0x10 != 0 {
            self.damage(input, header);
        }
    }

    /// The header of a segment of an RDMA Write, whole in itself (RFC 5041 §4.2).
    fn write(&self, said: &Said) -> (Vec<u8>, Place, bool) {
        let mut ulpdu = vec![0xc0 | self.mode.version, self.mode.version << 6];
        ulpdu.extend(SINK.0.to_be_bytes());
        ulpdu.extend((said.written as u64).to_be_bytes());
        (ulpdu, Place::Sink { offset: said.written }, true)
    }

    /// The header of a segment of a Send (RFC 5041 §4.3).
    fn send(&self, said: &mut Said, len: usize, how: u8) -> (Vec<u8>, Place, bool) {
        if !said.open {
            said.sends += 1;
            said.offset = 0;
        }
        let last = how & 8 != 0 || said.offset + len >= RECEIVE_OCTETS;
        said.open = !last;
        let mut ulpdu = vec![u8::from(last) << 6 | self.mode.version, self.mode.version << 6 | 3, 0, 0, 0, 0];
        ulpdu.extend([0; 4]);
        ulpdu.extend((said.sends as u32).to_be_bytes());
        ulpdu.extend((said.offset as u32).to_be_bytes());
        (ulpdu, Place::Inbox { receive: said.sends - 1, offset: said.offset }, last)
    }

    /// Whether the ULPDU_Length of an FPDU announces more octets than it has.
    pub fn is_overlong(&self, meant: &Meant) -> bool {
        let at = meant.start + if self.mode.markers && meant.start.is_multiple_of(512) { 4 } else { 0 };
        let announced = usize::from(self.octets[at]) << 8 | usize::from(self.octets[at + 1]);
        announced > meant.ulpdu
    }

    /// Something is wrong with the last FPDU.
    fn damage(&mut self, input: &mut Input<'_>, header: usize) {
        let meant = self.fpdus.last().expect("there is one");
        let (start, end) = (meant.start, meant.end);
        let to_marker = start.next_multiple_of(512) - start;
        let has_marker = self.mode.markers && start + to_marker < end;
        let how = input.octet();
        let at = usize::from(input.octet());
        let mend = match how % 6 {
            // The CRC.
            0 => {
                self.octets[end - 1 - at % 4] ^= 1 << (how >> 5);
                false
            }
            // The pointer of a Marker, with a CRC that holds or does not.
            kind @ (1 | 2) if has_marker => {
                let markers = (end - start - to_marker).div_ceil(512);
                self.octets[start + to_marker + at % markers * 512 + 3] ^= 4 << (how >> 6);
                kind == 1
            }
            // The payload, with a CRC that holds or does not.
            kind @ (3 | 4) => {
                self.damage_payload(start, end, header, at, 1 << (how >> 5));
                kind == 3
            }
            // ULPDU_Length: without CRCs, the meaning of the later octets would be unpredictable.
            5 if self.mode.crc => {
                let length = start + if self.mode.markers && to_marker == 0 { 4 } else { 0 };
                self.octets[length + (at & 1)] ^= 1 << (how >> 5);
                false
            }
            _ => false,
        };
        if mend && self.mode.crc {
            let mut crc = Crc::NOTHING;
            for octet in &self.octets[start..end - 4] {
                crc.take(*octet);
            }
            self.octets[end - 4..end].copy_from_slice(&crc.field());
        }
    }

    /// Damages an octet after the headers that is not part of a Marker.
    fn damage_payload(&mut self, start: usize, end: usize, header: usize, at: usize, bit: u8) {
        // ULPDU_Length, the DDP header and the Markers among them use no more than this; PAD and CRC follow
        // the payload.
        let first = start + 2 + header + 8;
        if first + 8 > end {
            return;
        }
        let place = first + at % (end - 7 - first);
        if !(self.mode.markers && place % 512 < 4) {
            self.octets[place] ^= bit;
        }
    }
}
