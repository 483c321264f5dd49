//! A second implementation of MPA framing, written from the text of RFC 5044 §4, §5.2 and §8 alone, as an
//! oracle for the first.
//!
//! Startup frames are in [`startup`]. The oracle is simple on purpose and shares nothing with the code under
//! test. It writes and reads octets one at a time, derives from each octet's sequence number whether a Marker
//! is due, and has a CRC table of its own. Sender and receiver count in TCP's sequence numbers, which wrap,
//! and not in positions, which do not.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod startup;

/// Octets from one Marker to the next (§4.3).
const MARKER_EVERY: u32 = 512;
/// The longest ULPDU (§3).
const ULPDU_OCTETS_MAX: u32 = 64768;

/// CRC32c (§4.4) of octets that come one at a time: polynomial 0x1EDC6F41, least significant bit first.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u32);

/// The CRC of each octet alone, computed bit by bit.
const CRC_OF_OCTET: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let mut value = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            // 0x1EDC6F41 with its bits in the opposite order.
            value = if value & 1 == 1 { value >> 1 ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        table[octet] = value;
        octet += 1;
    }
    table
};

impl Crc {
    pub const NOTHING: Self = Self(0xffff_ffff);

    pub fn take(&mut self, octet: u8) {
        self.0 = CRC_OF_OCTET[usize::from(self.0 as u8 ^ octet)] ^ self.0 >> 8;
    }

    /// The field, in the order of the wire: figure 5 has 0x83992352 as 52 23 99 83.
    pub fn field(self) -> [u8; 4] {
        let value = self.0 ^ 0xffff_ffff;
        [value as u8, (value >> 8) as u8, (value >> 16) as u8, (value >> 24) as u8]
    }
}

/// The options of one half connection, and the sequence number of its first octet.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub start: u32,
    pub markers: bool,
    pub crc: bool,
}

impl Stream {
    /// "(SeqNum - SeqStart) mod 512 = 0": a Marker begins at this sequence number.
    fn marker_begins_at(self, seq: u32) -> bool {
        self.markers && seq.wrapping_sub(self.start).is_multiple_of(MARKER_EVERY)
    }
}

/// Values that a sender may put into fields that receivers ignore (§4.1, §4.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Liberties {
    /// PAD.
    pub pad: u8,
    /// The first half of a Marker, reserved.
    pub reserved: u16,
    /// The two low bits of FPDUPTR.
    pub low_bits: u8,
}

/// Frames ULPDUs.
#[derive(Clone, Debug)]
pub struct Sender {
    stream: Stream,
    /// The sequence number of the next octet.
    pub seq: u32,
    pub liberties: Liberties,
}

impl Sender {
    pub fn new(stream: Stream) -> Self {
        Self { stream, seq: stream.start, liberties: Liberties::default() }
    }

    /// Appends the FPDU of `ulpdu` to `out`.
    pub fn frame(&mut self, ulpdu: &[u8], out: &mut Vec<u8>) {
        let mut fpdu = Fpdu { sender: self, out, header: None, crc: Crc::NOTHING };
        for octet in (ulpdu.len() as u16).to_be_bytes() {
            fpdu.content(octet);
        }
        for octet in ulpdu {
            fpdu.content(*octet);
        }
        let mut content = 2 + ulpdu.len();
        while !content.is_multiple_of(4) {
            fpdu.content(fpdu.sender.liberties.pad);
            content += 1;
        }
        // A Marker that is due here precedes the CRC, which covers it.
        fpdu.marker_if_due();
        let field = if fpdu.sender.stream.crc { fpdu.crc.field() } else { [0; 4] };
        for octet in field {
            fpdu.octet(octet);
        }
    }
}

/// An FPDU being written.
struct Fpdu<'a> {
    sender: &'a mut Sender,
    out: &'a mut Vec<u8>,
    /// The sequence number of ULPDU_Length, once that is written.
    header: Option<u32>,
    crc: Crc,
}

impl Fpdu<'_> {
    fn octet(&mut self, octet: u8) {
        self.out.push(octet);
        self.crc.take(octet);
        self.sender.seq = self.sender.seq.wrapping_add(1);
    }

    fn content(&mut self, octet: u8) {
        self.marker_if_due();
        self.header.get_or_insert(self.sender.seq);
        self.octet(octet);
    }

    fn marker_if_due(&mut self) {
        let seq = self.sender.seq;
        if self.sender.stream.marker_begins_at(seq) {
            // Octets from ULPDU_Length to the Marker; zero for one in front of it.
            let distance = self.header.map_or(0, |header| seq.wrapping_sub(header)) as u16;
            let liberties = self.sender.liberties;
            let pointer = distance | u16::from(liberties.low_bits & 3);
            for octet in liberties.reserved.to_be_bytes().into_iter().chain(pointer.to_be_bytes()) {
                self.octet(octet);
            }
        }
    }
}

/// Where Markers stood in an FPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub markers: u32,
    /// One stood in front of ULPDU_Length.
    pub leading: bool,
    /// One stood between PAD (or ULPDU) and CRC.
    pub before_crc: bool,
    /// The sequence numbers of one wrapped inside it.
    pub marker_wraps: bool,
    /// The sequence numbers of the FPDU wrapped inside it or at its end.
    pub wraps: bool,
    /// Octets of PAD.
    pub pad: u32,
    /// Octets of the FPDU, Markers included.
    pub octets: u32,
}

/// An FPDU that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub ulpdu: Vec<u8>,
    pub shape: Shape,
}

/// A fault that ends a half connection: the code of RFC 5044 §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Crc = 2,
    Marker = 3,
}

/// Finds FPDUs in the octets of a stream, in order.
#[derive(Clone, Debug)]
pub struct Receiver {
    stream: Stream,
    /// The sequence number of the next octet.
    seq: u32,
    /// The sequence number of ULPDU_Length, once its first octet has come.
    header: Option<u32>,
    /// Octets of the FPDU so far, without Markers.
    content: u32,
    length: u32,
    ulpdu: Vec<u8>,
    marker: [u8; 4],
    marker_wrong: bool,
    crc: Crc,
    field: [u8; 4],
    shape: Shape,
    /// How many octets of a Marker are still to come.
    marker_left: usize,
}

impl Receiver {
    pub fn new(stream: Stream) -> Self {
        Self::at(stream, stream.start)
    }

    /// A receiver at an FPDU that begins at `seq`, its leading Marker included.
    pub fn at(stream: Stream, seq: u32) -> Self {
        Self {
            stream,
            seq,
            header: None,
            content: 0,
            length: 0,
            ulpdu: Vec::new(),
            marker: [0; 4],
            marker_wrong: false,
            crc: Crc::NOTHING,
            field: [0; 4],
            shape: Shape::default(),
            marker_left: 0,
        }
    }

    /// The sequence number of the next octet.
    pub fn seq(&self) -> u32 {
        self.seq
    }

    /// Returns true if an FPDU has begun and not ended.
    pub fn inside(&self) -> bool {
        self.shape.octets > 0
    }

    /// Takes the next octet of the stream; returns the FPDU that it completes.
    pub fn take(&mut self, octet: u8) -> Result<Option<Received>, Fault> {
        if self.marker_left == 0 && self.stream.marker_begins_at(self.seq) {
            self.marker_left = 4;
        }
        let seq = self.seq;
        self.seq = self.seq.wrapping_add(1);
        self.shape.octets += 1;
        self.shape.wraps |= self.seq == 0;
        if self.marker_left > 0 {
            self.take_of_marker(octet, seq);
            return Ok(None);
        }
        self.take_content(octet, seq)
    }

    fn take_of_marker(&mut self, octet: u8, seq: u32) {
        let index = 4 - self.marker_left;
        self.crc.take(octet);
        self.marker[index] = octet;
        self.shape.marker_wraps |= index > 0 && seq == 0;
        self.marker_left -= 1;
        if self.marker_left == 0 {
            let first = seq.wrapping_sub(3);
            let distance = self.header.map_or(0, |header| first.wrapping_sub(header));
            // The reserved half and the two low bits are ignored.
            let pointer = u16::from_be_bytes([self.marker[2], self.marker[3]]) & 0xfffc;
            self.marker_wrong |= u32::from(pointer) != distance;
            self.shape.markers += 1;
            self.shape.leading |= self.header.is_none();
            self.shape.before_crc |= self.header.is_some() && self.content == self.crc_begins();
        }
    }

    /// Octets of content before the CRC, once the length is known.
    fn crc_begins(&self) -> u32 {
        if self.content < 2 {
            return u32::MAX;
        }
        (2 + self.length).next_multiple_of(4)
    }

    fn take_content(&mut self, octet: u8, seq: u32) -> Result<Option<Received>, Fault> {
        self.header.get_or_insert(seq);
        let index = self.content;
        if index >= self.crc_begins() {
            self.field[(index - self.crc_begins()) as usize] = octet;
        } else {
            self.crc.take(octet);
            if index < 2 {
                self.length = self.length << 8 | u32::from(octet);
            } else if index < 2 + self.length {
                self.ulpdu.push(octet);
            } else {
                self.shape.pad += 1;
            }
        }
        self.content += 1;
        if self.content == 2 && self.length > ULPDU_OCTETS_MAX {
            // Ambiguity A-05: no boundary can be trusted.
            return Err(Fault::Marker);
        }
        if self.content < 2 || self.content < self.crc_begins() + 4 {
            return Ok(None);
        }
        self.judge().map(Some)
    }

    /// §8: first the CRC, then the Markers.
    fn judge(&mut self) -> Result<Received, Fault> {
        if self.stream.crc && self.field != self.crc.field() {
            return Err(Fault::Crc);
        }
        if self.marker_wrong {
            return Err(Fault::Marker);
        }
        let next = Self::at(self.stream, self.seq);
        let done = core::mem::replace(self, next);
        Ok(Received { ulpdu: done.ulpdu, shape: done.shape })
    }
}
