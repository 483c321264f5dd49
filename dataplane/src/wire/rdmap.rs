//! RDMAP control fields and headers (RFC 5040 §4).

use super::stag::STag;
use super::{Malformed, Reader, Writer, ddp, room};

/// The RDMAP version of RFC 5040; 0 is that of RDMA Consortium peers.
// Requirements: RDMAP-4.1-07
pub const RDMAP_VERSION: u8 = 1;

/// Octets of Immediate Data (RFC 7306 §6.2).
pub const IMMEDIATE_OCTETS: usize = 8;

/// The opcode of an RDMA Message: four bits, all of which have a name here.
// Requirements: RDMAP-4.1-05, RDMAPX-4-01
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendWithInvalidate = 4,
    /// Send with Solicited Event.
    SendWithSolicitedEvent = 5,
    /// Send with Solicited Event and Invalidate.
    SendWithSolicitedEventAndInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate Data (RFC 7306).
    ImmediateData = 8,
    /// Immediate Data with Solicited Event (RFC 7306).
    ImmediateDataWithSolicitedEvent = 9,
    /// Atomic Request (RFC 7306).
    AtomicRequest = 10,
    /// Atomic Response (RFC 7306).
    AtomicResponse = 11,
    /// Reserved.
    Reserved12 = 12,
    /// Reserved.
    Reserved13 = 13,
    /// Reserved.
    Reserved14 = 14,
    /// Reserved.
    Reserved15 = 15,
}

impl Opcode {
    const ALL: [Self; 16] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendWithInvalidate,
        Self::SendWithSolicitedEvent,
        Self::SendWithSolicitedEventAndInvalidate,
        Self::Terminate,
        Self::ImmediateData,
        Self::ImmediateDataWithSolicitedEvent,
        Self::AtomicRequest,
        Self::AtomicResponse,
        Self::Reserved12,
        Self::Reserved13,
        Self::Reserved14,
        Self::Reserved15,
    ];

    /// The Send opcode that invalidates an STag, or requests an Event, or both.
    pub const fn send(invalidates: bool, solicits_event: bool) -> Self {
        match (invalidates, solicits_event) {
            (false, false) => Self::Send,
            (true, false) => Self::SendWithInvalidate,
            (false, true) => Self::SendWithSolicitedEvent,
            (true, true) => Self::SendWithSolicitedEventAndInvalidate,
        }
    }

    /// Whether it is a Send of any kind.
    #[inline]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendWithInvalidate
                | Self::SendWithSolicitedEvent
                | Self::SendWithSolicitedEventAndInvalidate
        )
    }

    /// Whether it is Immediate Data.
    #[inline]
    pub const fn is_immediate(self) -> bool {
        matches!(self, Self::ImmediateData | Self::ImmediateDataWithSolicitedEvent)
    }

    /// Whether the message goes to a Tagged Buffer.
    // Requirements: RDMAP-4.1-04
    #[inline]
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// Whether the message names an STag to invalidate.
    #[inline]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendWithInvalidate | Self::SendWithSolicitedEventAndInvalidate)
    }

    /// Whether the message requests an Event at the peer.
    #[inline]
    pub const fn solicits_event(self) -> bool {
        matches!(
            self,
            Self::SendWithSolicitedEvent
                | Self::SendWithSolicitedEventAndInvalidate
                | Self::ImmediateDataWithSolicitedEvent
        )
    }
}

/// The RDMAP control octet: the first octet that DDP leaves to its ULP.
// Requirements: RDMAP-4.1-01, RDMAP-4.1-02
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// RV: the version of RDMAP, 0..=3.
    pub version: u8,
    /// The message.
    pub opcode: Opcode,
}

impl Control {
    /// Parses the octet; its two reserved bits are ignored.
    // Requirements: RDMAP-4.1-08
    #[inline]
    pub const fn from_octet(octet: u8) -> Self {
        Self { version: octet >> 6, opcode: Opcode::ALL[(octet & 0x0f) as usize] }
    }

    /// The octet, its reserved bits zero.
    // Requirements: RDMAP-4.1-08
    #[inline]
    pub const fn to_octet(self) -> u8 {
        self.version << 6 | self.opcode as u8
    }

    /// The octets for the ULP of an Untagged header: this octet and the STag to invalidate, which only
    /// messages that invalidate carry.
    // Requirements: RDMAP-4.1-03, RDMAP-4.1-09, RDMAP-5.3-07
    #[inline]
    pub const fn to_rsvd_ulp(self, invalidate: STag) -> [u8; 5] {
        let [a, b, c, d] = if self.opcode.invalidates() { invalidate.0.to_be_bytes() } else { [0; 4] };
        [self.to_octet(), a, b, c, d]
    }

    /// Parses the octets for the ULP of an Untagged header. The STag is ignored where none belongs.
    // Requirements: RDMAP-4.1-03, RDMAP-4.1-09
    #[inline]
    pub const fn from_rsvd_ulp(rsvd_ulp: [u8; 5]) -> (Self, Option<STag>) {
        let [control, a, b, c, d] = rsvd_ulp;
        let control = Self::from_octet(control);
        let stag = STag(u32::from_be_bytes([a, b, c, d]));
        (control, if control.opcode.invalidates() { Some(stag) } else { None })
    }
}

/// The RDMA Read Request header, which follows the DDP header.
// Requirements: RDMAP-4.2-01, RDMAP-4.4-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// Where the Response goes at the Data Sink.
    pub sink_stag: STag,
    /// Where in it.
    pub sink_to: u64,
    /// Octets to read.
    pub size: u32,
    /// What is read at the Data Source.
    pub source_stag: STag,
    /// Where in it.
    pub source_to: u64,
}

impl ReadRequest {
    /// Octets of the header.
    pub const LEN: usize = 28;

    /// Parses the header at the start of `octets`. Any value of any field is well formed.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`].
    // Requirements: RDMAP-4.4-03, RDMAP-4.4-04
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        Self::fields(octets).ok_or(Malformed::Truncated)
    }

    fn fields(octets: &[u8]) -> Option<Self> {
        let mut octets = Reader(octets);
        Some(Self {
            sink_stag: STag(u32::from_be_bytes(octets.take()?)),
            sink_to: u64::from_be_bytes(octets.take()?),
            size: u32::from_be_bytes(octets.take()?),
            source_stag: STag(u32::from_be_bytes(octets.take()?)),
            source_to: u64::from_be_bytes(octets.take()?),
        })
    }

    /// Writes the header to the first [`LEN`](Self::LEN) octets of `out`. Returns their number.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put(self.sink_stag.0.to_be_bytes());
            out.put(self.sink_to.to_be_bytes());
            out.put(self.size.to_be_bytes());
            out.put(self.source_stag.0.to_be_bytes());
            out.put(self.source_to.to_be_bytes());
        }
        Self::LEN
    }
}

const SEGMENT_LENGTH_VALID: u8 = 0x80;
const DDP_HEADER_INCLUDED: u8 = 0x40;
const RDMA_HEADER_INCLUDED: u8 = 0x20;

/// The Terminate header: the error, and copies of the headers in error.
// Requirements: RDMAP-4.8-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminate<'a> {
    /// The layer that found the error, four bits: 0 RDMAP, 1 DDP, 2 the lower layer.
    pub layer: u8,
    /// The layer's type of error, four bits.
    pub error_type: u8,
    /// The error.
    pub code: u8,
    /// M: the length of the DDP Segment in error.
    pub segment_len: Option<u16>,
    /// D: the DDP header of that segment, 14 or 18 octets; none when empty.
    pub ddp_header: &'a [u8],
    /// R: the RDMA Read Request header of that segment, 28 octets; none when empty.
    pub rdma_header: &'a [u8],
}

impl<'a> Terminate<'a> {
    /// Octets of the Terminate Control and its reserved bits.
    pub const CONTROL_LEN: usize = 4;

    /// Octets of the longest header.
    pub const MAX_LEN: usize = Self::CONTROL_LEN + 2 + ddp::Header::MAX_LEN + ReadRequest::LEN;

    /// A Terminate that copies no header, as for local catastrophic errors and those of the lower layer.
    pub const fn bare(layer: u8, error_type: u8, code: u8) -> Self {
        Self { layer, error_type, code, segment_len: None, ddp_header: &[], rdma_header: &[] }
    }

    /// The segment length stands there when it is valid, and also when it is not but a DDP header follows.
    // Requirements: RDMAP-4.8-06
    const fn has_length_field(&self) -> bool {
        self.segment_len.is_some() || !self.ddp_header.is_empty()
    }

    /// Octets of the header. RFC 5040 leaves open whether a field whose flag is clear is omitted (§4.8) or
    /// sent as zero (§7.1). It is omitted, except for the segment length before a DDP header, which is zero
    /// then.
    // Requirements: A-18
    pub const fn len(&self) -> usize {
        let length = if self.has_length_field() { 2 } else { 0 };
        Self::CONTROL_LEN + length + self.ddp_header.len() + self.rdma_header.len()
    }

    /// Whether the header has no octet. It always has.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the first [`len`](Self::len) octets of `out`. Returns their number.
    // Requirements: RDMAP-4.8-02, RDMAP-4.8-05, RDMAP-4.8-07, RDMAP-4.8-08
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.len();
        debug_assert!(out.len() >= len, "{} octets are no room for {len}", out.len());
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = bit(self.segment_len.is_some(), SEGMENT_LENGTH_VALID)
            | bit(!self.ddp_header.is_empty(), DDP_HEADER_INCLUDED)
            | bit(!self.rdma_header.is_empty(), RDMA_HEADER_INCLUDED);
        if let Some(out) = out.get_mut(..len) {
            let mut out = Writer(out);
            out.put([self.layer << 4 | self.error_type & 0x0f, self.code, flags, 0]);
            if self.has_length_field() {
                out.put(self.segment_len.unwrap_or(0).to_be_bytes());
            }
            let (ddp_header, rdma_header) = out.0.split_at_mut(self.ddp_header.len());
            ddp_header.copy_from_slice(self.ddp_header);
            rdma_header.copy_from_slice(self.rdma_header);
        }
        len
    }

    /// Whether an error is one of the documents': of RFC 5040 figure 9, RFC 5041 §7.2, RFC 5044 §8 and RFC
    /// 6581 §8.
    const fn is_known(layer: u8, error_type: u8, code: u8) -> bool {
        match (layer, error_type) {
            // The codes of the operations are those that begin with 5; those of MPA are 1 to 7.
            (0, 2) => code >= 5,
            (2, 0) => matches!(code, 1..=7),
            (0, 0 | 1) | (1, 0..=3) => true,
            _ => false,
        }
    }

    /// The third octet of the Terminate Control that Linux siw sends for an error: M, D and R in its low
    /// bits, in reverse order. `None` for errors that siw does not report.
    const fn siw_flags(layer: u8, error_type: u8, code: u8) -> Option<u8> {
        const NONE: u8 = 0;
        const SEGMENT: u8 = (SEGMENT_LENGTH_VALID | DDP_HEADER_INCLUDED).reverse_bits();
        const REQUEST: u8 = SEGMENT | RDMA_HEADER_INCLUDED.reverse_bits();
        Some(match (layer, error_type, code) {
            // siw sets R for each protection error, also for those of a Send, which has no RDMA header.
            (0, 1, 0x00..=0x04 | 0x09 | 0xff) => REQUEST,
            (0, 2, 0x07..=0x09 | 0xff) | (1, 0, 0) | (1, 1, 0x00..=0x03) | (1, 2, 0x01..=0x05) => SEGMENT,
            // Neither catastrophic errors of RDMAP nor those of MPA come with a header, nor do those of
            // versions and opcodes, whose segment siw cannot read.
            (0, 0, _) | (0, 2, 0x05 | 0x06) | (1, 1, 0x04) | (1, 2, 0x06) | (2, 0, 0x01..=0x07) => NONE,
            _ => return None,
        })
    }

    /// Whether the Terminate Control is laid out as Linux siw does on a little-endian host: layer and type
    /// have changed places, and M, D and R stand in the low bits of their octet. Example: "DDP, Untagged, no
    /// buffer" is `12 02 c0 00` as drawn and `21 02 03 00` from siw.
    ///
    /// All four octets must be those that siw sends for the error: any other bits there are reserved ones,
    /// and ignored. Without flags, the two layouts differ in layer and type only, and a Terminate that names
    /// an error as drawn is read as drawn.
    const fn is_swapped([kind, code, flags, reserved]: [u8; 4]) -> bool {
        let (layer, error_type) = (kind & 0x0f, kind >> 4);
        match Self::siw_flags(layer, error_type, code) {
            Some(siw) => {
                flags == siw && reserved == 0 && (siw != 0 || !Self::is_known(error_type, layer, code))
            }
            None => false,
        }
    }

    /// Parses the header at the start of `octets`. The flags decide which fields are there, and octets after
    /// these fields are ignored: a sender may omit a field whose flag is clear or send it as zero (see
    /// [`len`](Self::len)). A field or header that is cut short counts as absent: the error itself matters
    /// more than its illustration. The layout of Linux siw is understood.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`] without all of the Terminate Control.
    // Requirements: A-18, RDMAP-4.8-02, RDMAP-4.8-05, RDMAP-4.8-06, RDMAP-4.8-07, RDMAP-4.8-08
    pub fn parse(octets: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Reader(octets);
        let control = rest.take().ok_or(Malformed::Truncated)?;
        let swapped = Self::is_swapped(control);
        let [kind, code, flags, _] = control;
        let (kind, flags) = if swapped { (kind.rotate_left(4), flags.reverse_bits()) } else { (kind, flags) };
        let mut terminate = Self::bare(kind >> 4, kind & 0x0f, code);
        let announced = |flag: u8| flags & flag != 0;
        if announced(SEGMENT_LENGTH_VALID | DDP_HEADER_INCLUDED) {
            let Some(length) = rest.take() else {
                return Ok(terminate);
            };
            terminate.segment_len = announced(SEGMENT_LENGTH_VALID).then_some(u16::from_be_bytes(length));
        }
        if announced(DDP_HEADER_INCLUDED) {
            let Ok((_, header_len)) = ddp::Header::parse(rest.0, rest.0.len()) else {
                return Ok(terminate);
            };
            (terminate.ddp_header, rest.0) = rest.0.split_at(header_len);
        }
        if announced(RDMA_HEADER_INCLUDED) {
            terminate.rdma_header = rest.0.get(..ReadRequest::LEN).unwrap_or_default();
        }
        Ok(terminate)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAG: STag = STag(0xa1a2_a3a4);

    // Requirements: RDMAP-4.1-01, RDMAP-4.1-02, RDMAP-4.1-05, RDMAP-4.1-07, RDMAP-4.1-08
    #[test]
    fn every_control_octet_parses() {
        for octet in 0..=u8::MAX {
            let control = Control::from_octet(octet);
            assert_eq!(control.version, octet >> 6);
            assert_eq!(control.opcode as u8, octet & 0x0f);
            assert_eq!(control.to_octet(), octet & 0xcf);
        }
        assert_eq!(Control { version: RDMAP_VERSION, opcode: Opcode::Send }.to_octet(), 0x43);
    }

    // Requirements: RDMAP-4.1-04
    #[test]
    fn writes_and_read_responses_are_tagged() {
        let tagged: Vec<_> = Opcode::ALL.into_iter().filter(|opcode| opcode.is_tagged()).collect();
        assert_eq!(tagged, [Opcode::Write, Opcode::ReadResponse]);
    }

    /// The STag is carried by two messages and zero, or ignored, in all others.
    // Requirements: RDMAP-4.1-03, RDMAP-4.1-09
    #[test]
    fn only_invalidating_sends_carry_an_stag() {
        for opcode in Opcode::ALL {
            let control = Control { version: 1, opcode };
            let [octet, stag @ ..] = control.to_rsvd_ulp(STAG);
            assert_eq!(octet, control.to_octet());
            let carries = matches!(octet, 0x44 | 0x46);
            assert_eq!(stag, if carries { [0xa1, 0xa2, 0xa3, 0xa4] } else { [0; 4] });
            let parsed = Control::from_rsvd_ulp([octet, 0xa1, 0xa2, 0xa3, 0xa4]);
            assert_eq!(parsed, (control, carries.then_some(STAG)));
        }
    }

    /// A DDP header without a valid length still has the field before it.
    // Requirements: RDMAP-4.8-06
    #[test]
    fn the_length_field_is_there_with_a_ddp_header() {
        let terminate = Terminate { ddp_header: &[0xc1; 14], ..Terminate::bare(1, 1, 1) };
        let mut out = [0xff; Terminate::MAX_LEN];
        assert_eq!(terminate.emit(&mut out), 20);
        assert_eq!(out[..7], [0x11, 1, 0x40, 0, 0, 0, 0xc1]);
        assert_eq!(Terminate::parse(&out), Ok(terminate));
    }

    /// Reserved bits and trailing octets are ignored; a cut header is no header.
    // Requirements: A-18, RDMAP-4.8-05
    #[test]
    fn parsing_is_lenient() {
        let octets = [0x12, 0x02, 0xdf, 0xff, 0, 42, 0x41, 1, 2, 3];
        let expected = Terminate { segment_len: Some(42), ..Terminate::bare(1, 2, 2) };
        assert_eq!(Terminate::parse(&octets), Ok(expected));
        assert_eq!(Terminate::parse(&octets[..4]), Ok(Terminate::bare(1, 2, 2)));
        assert_eq!(Terminate::parse(&octets[..3]), Err(Malformed::Truncated));
        assert_eq!(Terminate::parse(&[0x20, 2, 0, 0, 9, 9, 9]), Ok(Terminate::bare(2, 0, 2)));
    }

    /// Linux siw on a little-endian host: "DDP, Untagged, no buffer", as observed, with and without the
    /// headers it copies.
    #[test]
    fn the_terminates_of_siw_are_understood() {
        let mut octets = vec![0x21, 0x02, 0x03, 0x00, 0, 42, 0x41, 0x43];
        octets.resize(6 + 18, 9);
        let expected =
            Terminate { segment_len: Some(42), ddp_header: &octets[6..], ..Terminate::bare(1, 2, 2) };
        assert_eq!(Terminate::parse(&octets), Ok(expected));
        assert_eq!(Terminate::parse(&octets[..4]), Ok(Terminate::bare(1, 2, 2)));
        // siw's other errors: of MPA, and of RDMAP with a Read Request, whose layer and type both exist
        // swapped.
        assert_eq!(Terminate::parse(&[0x02, 2, 0, 0]), Ok(Terminate::bare(2, 0, 2)));
        assert_eq!(Terminate::parse(&[0x21, 6, 0, 0]), Ok(Terminate::bare(1, 2, 6)));
        let mut octets = vec![0x10, 0x02, 0x07, 0x00, 0, 28, 0x41, 0x41];
        octets.resize(6 + 18 + 28, 9);
        let (ddp_header, rdma_header) = octets[6..].split_at(18);
        let expected =
            Terminate { segment_len: Some(28), ddp_header, rdma_header, ..Terminate::bare(0, 1, 2) };
        assert_eq!(Terminate::parse(&octets), Ok(expected));
    }

    /// Reserved bits are ignored with every error. Only the exact octets that siw sends swap the fields.
    // Requirements: RDMAP-4.8-05
    #[test]
    fn reserved_bits_do_not_swap_the_fields() {
        // Local catastrophic error of DDP; swapped, it would be a protection error of RDMAP.
        for flags in (0..0x20).filter(|flags| *flags != 0x07) {
            assert_eq!(Terminate::parse(&[0x10, 0, flags, 0]), Ok(Terminate::bare(1, 0, 0)), "{flags:#04x}");
        }
        assert_eq!(Terminate::parse(&[0x10, 0, 0x07, 0]), Ok(Terminate::bare(0, 1, 0)));
        assert_eq!(Terminate::parse(&[0x10, 0, 0x07, 1]), Ok(Terminate::bare(1, 0, 0)));
        // DDP's invalid STag, whose layer and type are the same in both orders: M, D and R are those of the
        // figure.
        for flags in (0..0x20).filter(|flags| *flags != 0x03) {
            assert_eq!(Terminate::parse(&[0x11, 0, flags, 0, 0, 42]), Ok(Terminate::bare(1, 1, 0)));
        }
    }

    /// Both layouts of the errors that Linux siw reports, with the headers that siw copies.
    #[test]
    fn both_layouts_name_the_same_error() {
        let tagged = [0xc1; 14];
        let mut segment = vec![0, 42];
        segment.extend(tagged);
        for (kind, code) in [(0x11, 0), (0x11, 1), (0x11, 2), (0x11, 3), (0x02, 7), (0x02, 0xff)] {
            let error = Terminate::bare(kind >> 4, kind & 0x0f, code);
            let expected = Ok(Terminate { segment_len: Some(42), ddp_header: &tagged, ..error });
            let drawn = [&[kind, code, 0xc0, 0], &segment[..]].concat();
            let siw = [&[kind.rotate_left(4), code, 0x03, 0], &segment[..]].concat();
            assert_eq!(Terminate::parse(&drawn), expected);
            assert_eq!(Terminate::parse(&siw), expected, "{kind:#04x}");
        }
    }

    /// Every Terminate that the documents define is read as defined, with any of the flags, if all reserved
    /// bits are zero.
    #[test]
    fn a_terminate_as_drawn_is_never_taken_for_one_of_siw() {
        let errors = (0..=2_u8).flat_map(|layer| (0..=3_u8).map(move |error_type| (layer, error_type)));
        let mut known = 0;
        for (layer, error_type) in errors {
            for code in (0..=u8::MAX).filter(|code| Terminate::is_known(layer, error_type, *code)) {
                known += 1;
                for flags in 0..8 {
                    let octets = [layer << 4 | error_type, code, flags << 5, 0];
                    assert_eq!(Terminate::parse(&octets), Ok(Terminate::bare(layer, error_type, code)));
                }
            }
        }
        assert_eq!(known, 6 * 256 + 251 + 7);
    }

    proptest! {
        // Requirements: RDMAP-4.4-01, RDMAP-4.4-03
        #[test]
        fn read_requests_survive(octets in proptest::array::uniform28(any::<u8>())) {
            let mut out = [0; ReadRequest::LEN];
            let request = ReadRequest::parse(&octets).unwrap();
            prop_assert_eq!(request.emit(&mut out), 28);
            prop_assert_eq!(out, octets);
            prop_assert_eq!(ReadRequest::parse(&octets[..27]), Err(Malformed::Truncated));
        }

        // Requirements: RDMAP-4.8-01, RDMAP-4.8-02
        #[test]
        fn terminates_survive(octets in proptest::collection::vec(any::<u8>(), 4..80)) {
            let terminate = Terminate::parse(&octets).unwrap();
            let mut out = [0; Terminate::MAX_LEN];
            let len = terminate.emit(&mut out);
            if Terminate::is_swapped([out[0], out[1], out[2], out[3]]) {
                // Without a reserved bit that was set before, it looks like one of siw's. No error that a
                // document defines does.
                prop_assert!(!Terminate::is_known(terminate.layer, terminate.error_type, terminate.code));
            } else {
                prop_assert_eq!(Terminate::parse(&out[..len]), Ok(terminate));
            }
        }
    }
}
