//! DDP segment headers (RFC 5041 §4).

use thiserror::Error;

use super::stag::STag;
use super::{Reader, Writer, room};

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION: u8 = 0x03;

/// The DDP version of RFC 5041; 0 is that of RDMA Consortium peers.
// Requirements: DDP-4.1-09
pub const DDP_VERSION: u8 = 1;

/// The ULPDU is shorter than the DDP header it should hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DdpHeaderError {
    /// RFC 5041 gives this no error number; it is reported as a local catastrophic error (type 0, code 0).
    // Requirements: A-06
    #[error("ULPDU shorter than its DDP header")]
    TooShort,
}

/// The header of a Tagged segment, which names the buffer of its payload.
// Requirements: DDP-4.2-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// DV: the version of DDP, 0..=3.
    pub version: u8,
    /// For the ULP.
    pub rsvd_ulp: u8,
    /// The buffer.
    pub stag: STag,
    /// The Tagged Offset of the first octet of payload.
    pub to: u64,
}

impl Tagged {
    /// Octets of the header.
    pub const LEN: usize = 14;

    /// Parses the header of a segment; `None` if it is not tagged, or shorter.
    #[inline]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let [control, rsvd_ulp, s0, s1, s2, s3, to @ ..] = *octets.first_chunk::<{ Self::LEN }>()?;
        if control & TAGGED == 0 {
            return None;
        }
        let (stag, to) = (STag(u32::from_be_bytes([s0, s1, s2, s3])), u64::from_be_bytes(to));
        Some(Self { last: control & LAST != 0, version: control & VERSION, rsvd_ulp, stag, to })
    }

    /// Writes the header to the first [`LEN`](Self::LEN) octets of `out`. Returns their number.
    // Requirements: DDP-4.1-08, DDP-4.2-02, DDP-4.2-06
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put([TAGGED | control(self.last, self.version), self.rsvd_ulp]);
            out.put(self.stag.0.to_be_bytes());
            out.put(self.to.to_be_bytes());
        }
        Self::LEN
    }
}

/// The header of an Untagged segment, whose payload goes to a buffer that the receiver chooses.
// Requirements: DDP-4.3-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// DV: the version of DDP, 0..=3.
    pub version: u8,
    /// For the ULP.
    pub rsvd_ulp: [u8; 5],
    /// QN: the queue that has the buffer.
    pub queue: u32,
    /// MSN: the number of the message on its queue, from 1.
    pub msn: u32,
    /// MO: octets of the message before the first octet of payload.
    pub mo: u32,
}

impl Untagged {
    /// Octets of the header.
    pub const LEN: usize = 18;

    /// Parses the header of a segment; `None` if it is tagged, or shorter.
    #[inline]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut octets = Reader(octets);
        let [control] = octets.take()?;
        if control & TAGGED != 0 {
            return None;
        }
        let rsvd_ulp = octets.take()?;
        let queue = u32::from_be_bytes(octets.take()?);
        let msn = u32::from_be_bytes(octets.take()?);
        let mo = u32::from_be_bytes(octets.take()?);
        Some(Self { last: control & LAST != 0, version: control & VERSION, rsvd_ulp, queue, msn, mo })
    }

    /// Writes the header to the first [`LEN`](Self::LEN) octets of `out`. Returns their number.
    // Requirements: DDP-4.1-08, DDP-4.3-02
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put([control(self.last, self.version)]);
            out.put(self.rsvd_ulp);
            out.put(self.queue.to_be_bytes());
            out.put(self.msn.to_be_bytes());
            out.put(self.mo.to_be_bytes());
        }
        Self::LEN
    }
}

/// The control octet but for the T bit. Its four reserved bits are zero.
const fn control(last: bool, version: u8) -> u8 {
    (if last { LAST } else { 0 }) | version & VERSION
}

/// The header of a DDP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// T=1.
    Tagged(Tagged),
    /// T=0.
    Untagged(Untagged),
}

impl Header {
    /// Octets of the longer header: with as many, [`parse`](Self::parse) has enough.
    pub const MAX_LEN: usize = Untagged::LEN;

    /// Parses the header of a segment of `ulpdu_len` octets that begins with `ulpdu_prefix`. Returns it and
    /// its octets. Reserved bits are ignored, versions and all other values are left to the caller.
    ///
    /// # Errors
    ///
    /// [`DdpHeaderError::TooShort`], also when `ulpdu_prefix` itself is shorter than the header.
    // Requirements: DDP-4.1-01, DDP-4.1-02, DDP-4.1-08, DDP-4.4-01
    #[inline]
    pub fn parse(ulpdu_prefix: &[u8], ulpdu_len: usize) -> Result<(Self, usize), DdpHeaderError> {
        let segment = ulpdu_prefix.get(..ulpdu_len).unwrap_or(ulpdu_prefix);
        let header = match segment.first() {
            Some(control) if control & TAGGED != 0 => Tagged::parse(segment).map(Self::Tagged),
            _ => Untagged::parse(segment).map(Self::Untagged),
        };
        header.map(|header| (header, header.header_len())).ok_or(DdpHeaderError::TooShort)
    }

    /// Octets of the header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::Tagged(_) => Tagged::LEN,
            Self::Untagged(_) => Untagged::LEN,
        }
    }

    /// L: the last segment of its message.
    #[inline]
    pub const fn last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.last,
            Self::Untagged(header) => header.last,
        }
    }

    /// DV: the version of DDP.
    #[inline]
    pub const fn version(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.version,
            Self::Untagged(header) => header.version,
        }
    }

    /// The first octet for the ULP, which exists in both kinds of header; RDMAP keeps its control octet
    /// there.
    #[inline]
    pub const fn ulp_control(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.rsvd_ulp,
            Self::Untagged(header) => header.rsvd_ulp[0],
        }
    }

    /// Turns the header of a segment of `octets` octets of payload into that of the next segment of its
    /// message, if the next one is not the last.
    #[inline]
    pub const fn move_on(&mut self, octets: u32) {
        match self {
            Self::Tagged(header) => header.to = header.to.wrapping_add(octets as u64),
            Self::Untagged(header) => header.mo = header.mo.wrapping_add(octets),
        }
    }

    /// Writes the place of the segment in its message over that of the header at the front of `out`: TO or
    /// MO, which [`move_on`](Self::move_on) changes.
    #[inline]
    pub(crate) fn emit_place(&self, out: &mut [u8]) {
        match self {
            Self::Tagged(header) => {
                if let Some(field) = out.get_mut(Tagged::LEN - 8..Tagged::LEN) {
                    field.copy_from_slice(&header.to.to_be_bytes());
                }
            }
            Self::Untagged(header) => {
                if let Some(field) = out.get_mut(Untagged::LEN - 4..Untagged::LEN) {
                    field.copy_from_slice(&header.mo.to_be_bytes());
                }
            }
        }
    }

    /// Writes the header to the first octets of `out`. Returns how many.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Self::Tagged(header) => header.emit(out),
            Self::Untagged(header) => header.emit(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Requirements: DDP-4.1-01, DDP-4.1-02, DDP-4.1-09, DDP-4.2-01, DDP-4.3-01
    #[test]
    fn both_headers_look_as_drawn() {
        let tagged = Tagged {
            last: true,
            version: 1,
            rsvd_ulp: 0x40,
            stag: STag(0x0102_0304),
            to: 0x0506_0708_090a_0b0c,
        };
        let mut out = [0xff; 18];
        assert_eq!(tagged.emit(&mut out), 14);
        assert_eq!(out[..14], [0xc1, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(out[14..], [0xff; 4]);
        let untagged = Untagged {
            last: false,
            version: 0,
            rsvd_ulp: [1, 2, 3, 4, 5],
            queue: 2,
            msn: u32::MAX,
            mo: 0x0102_0304,
        };
        assert_eq!(untagged.emit(&mut out), 18);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 0, 0, 0, 2, 255, 255, 255, 255, 1, 2, 3, 4]);
    }

    /// As long as the header is not complete, there is none.
    // Requirements: A-06
    #[test]
    fn segments_that_are_too_short_have_no_header() {
        for (control, header_len) in [(0xc1, 14), (0x41, 18)] {
            let mut octets = [0; 40];
            octets[0] = control;
            for len in 0..header_len {
                assert_eq!(Header::parse(&octets[..18], len), Err(DdpHeaderError::TooShort));
                assert_eq!(Header::parse(&octets[..len], 40), Err(DdpHeaderError::TooShort));
            }
            let (header, parsed_len) = Header::parse(&octets[..header_len], 40).unwrap();
            assert_eq!((parsed_len, header.header_len()), (header_len, header_len));
            let kinds = (Tagged::parse(&octets).is_some(), Untagged::parse(&octets).is_some());
            assert_eq!(kinds, (header_len == 14, header_len == 18), "a segment is one or the other");
        }
    }

    proptest! {
        /// Reserved bits are zero when sent and make no difference when received.
        // Requirements: DDP-4.1-08
        #[test]
        fn headers_survive(octets: [u8; 18]) {
            let (header, header_len) = Header::parse(&octets, octets.len()).unwrap();
            let mut out = [0; 18];
            prop_assert_eq!(header.emit(&mut out), header_len);
            let mut expected = octets;
            expected[0] &= !0x3c;
            prop_assert_eq!(&out[..header_len], &expected[..header_len]);
            prop_assert_eq!(Header::parse(&out, header_len), Ok((header, header_len)));
            prop_assert_eq!(header.last(), octets[0] & 0x40 != 0);
            prop_assert_eq!(header.version(), octets[0] & 3);
            prop_assert_eq!(header.ulp_control(), octets[1]);
        }
    }
}
