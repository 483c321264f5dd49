//! Markers (RFC 5044 §4.2) and startup frames (RFC 5044 §7.1.1, RFC 6581 §6 and §9).

use thiserror::Error;

use super::{Reader, Writer, room};

/// A Marker: it stands at every [`INTERVAL`](Self::INTERVAL)th octet of the stream and tells how far back the
/// FPDU around it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Octets of stream from the ULPDU_Length field of the FPDU to the Marker; 0 when the Marker opens the
    /// FPDU.
    pub fpdu_ptr: u16,
}

impl Marker {
    /// Octets of a Marker.
    pub const LEN: usize = 4;

    /// Octets of stream from one Marker to the next.
    pub const INTERVAL: usize = 512;

    /// FPDUs are made of groups of four octets, so the two low bits of a pointer carry nothing.
    const POINTER: u16 = !0b11;

    /// Parses a Marker. Its reserved bits say nothing and its two low bits read as zero; the CRC covers both
    /// all the same.
    // Requirements: MPA-4.2-01, MPA-4.2-02, MPA-4.2-04, C00-6.1-01, C00-6.1-02, C00-7.1-04
    #[inline]
    pub const fn parse(octets: [u8; Self::LEN]) -> Self {
        let [_, _, high, low] = octets;
        Self { fpdu_ptr: u16::from_be_bytes([high, low]) & Self::POINTER }
    }

    /// Returns the Marker after this one in the same FPDU.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self { fpdu_ptr: self.fpdu_ptr.wrapping_add(Self::INTERVAL as u16) }
    }

    /// The octets of the Marker.
    // Requirements: MPA-4.2-01, MPA-4.2-02, MPA-4.2-03
    #[inline]
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [high, low] = (self.fpdu_ptr & Self::POINTER).to_be_bytes();
        [0, 0, high, low]
    }
}

/// Which of the two startup frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The Initiator's.
    Request,
    /// The Responder's.
    Reply,
}

impl Kind {
    const KEY_LEN: usize = 16;

    // Requirements: MPA-7.1.1-01, MPA-7.1.1-03, D08-7.1.1-01
    const fn key(self) -> &'static [u8; Self::KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// An MPA Request or Reply Frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupFrame<'a> {
    /// Which of the two.
    pub kind: Kind,
    /// M: the sender requests Markers in the stream that it receives.
    pub markers: bool,
    /// C: the sender wants CRCs in both directions.
    pub crc: bool,
    /// R: the connection is rejected. Only in a Reply.
    pub rejected: bool,
    /// S: Private Data begins with [`EnhancedData`] (RFC 6581 §6). Only from revision 2.
    pub enhanced: bool,
    /// The revision of MPA.
    pub revision: u8,
    /// Private Data, the enhanced data included.
    pub private_data: &'a [u8],
}

/// The result of parsing a startup frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// Nothing wrong so far, but octets are missing.
    Incomplete,
    /// All of it.
    Complete {
        /// The frame.
        frame: StartupFrame<'a>,
        /// Its octets; those after them do not belong to the frame.
        consumed: usize,
    },
}

/// Why octets are not the startup frame that was expected. The connection is closed.
// Requirements: MPA-7.1.2-04, MPA-7.1.2-12
#[derive(Clone, Copy, PartialEq, Eq, Error)]
pub enum StartupError {
    /// The octets do not begin with the key.
    #[error("not an MPA startup frame")]
    WrongKey,
    /// A Request where the Reply should be: both ends are Initiators.
    #[error("the peer is an Initiator too")]
    OtherInitiator,
    /// A revision that this implementation does not support.
    #[error("unknown MPA revision {0}")]
    Revision(u8),
    /// More Private Data than allowed, too little for the enhanced data it should begin with, or a length
    /// that does not agree with the octets there are.
    #[error("impossible Private Data length")]
    PrivateDataLength,
}

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;

impl<'a> StartupFrame<'a> {
    /// Octets before the Private Data.
    pub const HEADER_LEN: usize = 20;

    /// Most octets of Private Data.
    pub const PRIVATE_DATA_MAX: usize = 512;

    /// Octets of the largest frame.
    pub const MAX_LEN: usize = Self::HEADER_LEN + Self::PRIVATE_DATA_MAX;

    /// The highest revision that this implementation supports.
    pub const REVISION_MAX: u8 = 2;

    /// The first revision that has the S bit.
    const REVISION_ENHANCED: u8 = 2;

    /// Octets of the frame.
    pub const fn len(&self) -> usize {
        Self::HEADER_LEN + self.private_data.len()
    }

    /// Whether the frame has no octet. It always has.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the frame to the first [`len`](Self::len) octets of `out` and returns their number; `None`, and
    /// nothing written, when `out` is shorter, there is more Private Data than allowed, or less than enhanced
    /// data takes.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let enhanced = self.enhanced && self.revision >= Self::REVISION_ENHANCED;
        // Requirements: MPA-7.1.1-18, D08-7.1.1-02, MPAv2-6-05
        if self.private_data.len() > Self::PRIVATE_DATA_MAX
            || enhanced && self.private_data.len() < EnhancedData::LEN
        {
            return None;
        }
        let out = out.get_mut(..self.len())?;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        // Bits of no meaning here are zero:
        // Requirements: MPA-7.1.1-10, MPA-7.1.1-11, MPAv2-6-01
        let flags = bit(self.markers, MARKERS)
            | bit(self.crc, CRC)
            | bit(self.rejected && self.kind == Kind::Reply, REJECTED)
            | bit(enhanced, ENHANCED);
        let mut out = Writer(out);
        out.put(*self.kind.key());
        out.put([flags, self.revision]);
        // Requirements: MPA-7.1.1-16
        out.put((self.private_data.len() as u16).to_be_bytes());
        out.0.copy_from_slice(self.private_data);
        Some(self.len())
    }

    /// Parses the frame of `expected` kind at the start of `octets`, which are all that came so far. Fails on
    /// the first octet that cannot be, so that a stranger does not hold the connection until a timer fires.
    ///
    /// # Errors
    ///
    /// [`StartupError`].
    pub fn parse(expected: Kind, octets: &'a [u8]) -> Result<Parsed<'a>, StartupError> {
        let mut rest = Reader(octets);
        let Some(key) = rest.take::<{ Kind::KEY_LEN }>() else {
            return check_key(expected, octets).map(|()| Parsed::Incomplete);
        };
        check_key(expected, &key)?;
        let Some([flags]) = rest.take() else {
            return Ok(Parsed::Incomplete);
        };
        let Some([revision]) = rest.take() else {
            return Ok(Parsed::Incomplete);
        };
        // MPA-7.1.1-13, MPA-7.1.1-14; revision 0 is left to the caller, who may be permissive.
        if revision > Self::REVISION_MAX {
            return Err(StartupError::Revision(revision));
        }
        // Reserved bits are not checked, and S is one of them before revision 2.
        // Requirements: MPA-7.1.1-11
        let enhanced = flags & ENHANCED != 0 && revision >= Self::REVISION_ENHANCED;
        // The first octet of a length above 767 already gives it away.
        if rest.0.first().is_some_and(|high| usize::from(*high) << 8 > Self::PRIVATE_DATA_MAX) {
            return Err(StartupError::PrivateDataLength);
        }
        let Some(length) = rest.take() else {
            return Ok(Parsed::Incomplete);
        };
        let length = usize::from(u16::from_be_bytes(length));
        // Requirements: MPA-7.1.1-17, MPA-7.1.2-22, MPA-7.1.2-24, MPAv2-6-05
        if length > Self::PRIVATE_DATA_MAX || enhanced && length < EnhancedData::LEN {
            return Err(StartupError::PrivateDataLength);
        }
        let Some(private_data) = rest.0.get(..length) else {
            return Ok(Parsed::Incomplete);
        };
        let frame = Self {
            kind: expected,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            // The bit is not looked at in a Request.
            // Requirements: MPA-7.1.1-10
            rejected: flags & REJECTED != 0 && expected == Kind::Reply,
            enhanced,
            revision,
            private_data,
        };
        Ok(Parsed::Complete { frame, consumed: frame.len() })
    }

    /// The enhanced data and the Private Data of the ULP, when the frame has the former.
    pub fn enhanced_data(&self) -> Option<(EnhancedData, &'a [u8])> {
        let (data, private_data) = self.private_data.split_first_chunk()?;
        self.enhanced.then_some((EnhancedData::parse(*data), private_data))
    }
}

/// Compares as much of the key as there is.
// Requirements: MPA-7.1.1-02, MPA-7.1.1-04, MPA-7.1.2-16
fn check_key(expected: Kind, octets: &[u8]) -> Result<(), StartupError> {
    let begins = |kind: Kind| kind.key().iter().zip(octets).all(|(key, octet)| key == octet);
    if begins(expected) {
        Ok(())
    } else if expected == Kind::Reply && begins(Kind::Request) {
        // The tenth octet tells.
        // Requirements: MPA-7.1.2-20
        Err(StartupError::OtherInitiator)
    } else {
        Err(StartupError::WrongKey)
    }
}

/// The connection parameters that open the Private Data of an enhanced frame (RFC 6581 §9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EnhancedData {
    /// A: the peer-to-peer model, in which the Initiator sends a ready-to-receive indication.
    pub peer_to_peer: bool,
    /// B: the indication may be a zero-length Send.
    pub rtr_send: bool,
    /// C: the indication may be a zero-length RDMA Write.
    pub rtr_write: bool,
    /// D: the indication may be a zero-length RDMA Read Request.
    pub rtr_read: bool,
    /// Inbound RDMA Read Requests the sender accepts at a time, up to [`UNNEGOTIATED`](Self::UNNEGOTIATED).
    pub ird: u16,
    /// Outbound RDMA Read Requests the sender has at a time, up to [`UNNEGOTIATED`](Self::UNNEGOTIATED).
    pub ord: u16,
}

impl EnhancedData {
    /// Octets of the field.
    pub const LEN: usize = 4;

    /// The depth that leaves negotiation to the ULP, and the mask of a depth.
    pub const UNNEGOTIATED: u16 = 0x3fff;

    const FIRST: u16 = 0x8000;
    const SECOND: u16 = 0x4000;

    /// Parses the field. The kinds of indication mean nothing, and read as none, outside the peer-to-peer
    /// model.
    // Requirements: MPAv2-9-01, MPAv2-9.2-09
    pub const fn parse(octets: [u8; Self::LEN]) -> Self {
        let inbound = u16::from_be_bytes([octets[0], octets[1]]);
        let outbound = u16::from_be_bytes([octets[2], octets[3]]);
        let peer_to_peer = inbound & Self::FIRST != 0;
        Self {
            peer_to_peer,
            rtr_send: peer_to_peer && inbound & Self::SECOND != 0,
            rtr_write: peer_to_peer && outbound & Self::FIRST != 0,
            rtr_read: peer_to_peer && outbound & Self::SECOND != 0,
            ird: inbound & Self::UNNEGOTIATED,
            ord: outbound & Self::UNNEGOTIATED,
        }
    }

    /// Writes the field to the first [`LEN`](Self::LEN) octets of `out`.
    // Requirements: MPAv2-9-01, MPAv2-9.2-09
    pub fn emit(&self, out: &mut [u8]) {
        let bit = |set: bool, bit: u16| if set && self.peer_to_peer { bit } else { 0 };
        let inbound = bit(true, Self::FIRST) | bit(self.rtr_send, Self::SECOND);
        let outbound = bit(self.rtr_write, Self::FIRST) | bit(self.rtr_read, Self::SECOND);
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put((inbound | self.ird.min(Self::UNNEGOTIATED)).to_be_bytes());
            out.put((outbound | self.ord.min(Self::UNNEGOTIATED)).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: StartupFrame<'_> = StartupFrame {
        kind: Kind::Request,
        markers: true,
        crc: true,
        rejected: false,
        enhanced: false,
        revision: 1,
        private_data: b"hello",
    };

    fn emitted(frame: &StartupFrame<'_>) -> Vec<u8> {
        let mut out = vec![0xff; frame.len()];
        assert_eq!(frame.emit(&mut out), Some(frame.len()));
        out
    }

    // Requirements: MPA-4.2-01, MPA-4.2-02, MPA-4.2-03, MPA-4.2-04, C00-6.1-01, C00-6.1-02
    #[test]
    fn markers_carry_a_pointer_and_nothing_else() {
        assert_eq!(Marker { fpdu_ptr: 0x0214 }.emit(), [0, 0, 2, 0x14]);
        assert_eq!(Marker { fpdu_ptr: 0x0217 }.emit(), [0, 0, 2, 0x14]);
        assert_eq!(Marker::parse([0xff, 0xff, 2, 0x17]), Marker { fpdu_ptr: 0x0214 });
    }

    /// Any octet of the key, noticed as soon as it is there.
    // Requirements: MPA-7.1.1-02, MPA-7.1.1-04
    #[test]
    fn a_wrong_key_is_noticed_on_its_first_wrong_octet() {
        for kind in [Kind::Request, Kind::Reply] {
            let good = emitted(&StartupFrame { kind, ..REQUEST });
            for at in 0..16 {
                let mut octets = good.clone();
                octets[at] ^= 0x20;
                assert_eq!(StartupFrame::parse(kind, &octets[..at]), Ok(Parsed::Incomplete));
                assert_eq!(StartupFrame::parse(kind, &octets[..=at]), Err(StartupError::WrongKey));
            }
        }
    }

    /// Only an Initiator can detect two Initiators; a Responder reports a wrong key.
    // Requirements: MPA-7.1.2-20
    #[test]
    fn two_initiators_know_each_other() {
        let request = emitted(&REQUEST);
        for len in 10..request.len() {
            let parsed = StartupFrame::parse(Kind::Reply, &request[..len]);
            assert_eq!(parsed, Err(StartupError::OtherInitiator));
        }
        assert_eq!(StartupFrame::parse(Kind::Reply, &request[..9]), Ok(Parsed::Incomplete));
        let reply = emitted(&StartupFrame { kind: Kind::Reply, ..REQUEST });
        assert_eq!(StartupFrame::parse(Kind::Request, &reply[..10]), Err(StartupError::WrongKey));
    }

    // Requirements: MPA-7.1.1-13, MPA-7.1.1-14
    #[test]
    fn revisions_above_2_are_refused() {
        for revision in 0..=u8::MAX {
            let octets = emitted(&StartupFrame { revision, ..REQUEST });
            let parsed = StartupFrame::parse(Kind::Request, &octets[..18]);
            let expected =
                if revision <= 2 { Ok(Parsed::Incomplete) } else { Err(StartupError::Revision(revision)) };
            assert_eq!(parsed, expected);
        }
    }

    // Requirements: MPA-7.1.1-17, MPA-7.1.1-18, MPA-7.1.2-22
    #[test]
    fn private_data_ends_at_512_octets() {
        let long = [7; 513];
        let most = StartupFrame { private_data: &long[..512], ..REQUEST };
        assert!(matches!(
            StartupFrame::parse(Kind::Request, &emitted(&most)),
            Ok(Parsed::Complete { consumed: 532, .. })
        ));
        assert_eq!(StartupFrame { private_data: &long, ..REQUEST }.emit(&mut [0; 600]), None);
        let mut octets = emitted(&most);
        octets[19] = 1;
        assert_eq!(StartupFrame::parse(Kind::Request, &octets[..20]), Err(StartupError::PrivateDataLength));
        octets[18] = 3;
        assert_eq!(StartupFrame::parse(Kind::Request, &octets[..19]), Err(StartupError::PrivateDataLength));
    }

    /// MPAv2-6-05, and the S bit is a reserved bit in revision 1.
    #[test]
    fn enhanced_frames_hold_enhanced_data() {
        let frame =
            StartupFrame { enhanced: true, revision: 2, private_data: &[0xc0, 16, 0xc0, 16, 9], ..REQUEST };
        let octets = emitted(&frame);
        assert_eq!(octets[16], 0xd0);
        assert_eq!(StartupFrame::parse(Kind::Request, &octets), Ok(Parsed::Complete { frame, consumed: 25 }));
        let (data, private_data) = frame.enhanced_data().unwrap();
        assert_eq!((data.ird, data.ord, private_data), (16, 16, &[9][..]));
        let mut short = octets.clone();
        short[19] = 3;
        assert_eq!(StartupFrame::parse(Kind::Request, &short), Err(StartupError::PrivateDataLength));
        short[17] = 1;
        let Ok(Parsed::Complete { frame, .. }) = StartupFrame::parse(Kind::Request, &short) else { panic!() };
        assert_eq!(frame.enhanced_data(), None);
    }

    proptest! {
        #[test]
        fn any_octets_parse_or_fail(
            octets in proptest::collection::vec(any::<u8>(), 0..40),
            key in 0usize..=16
        ) {
            let mut octets = octets;
            let key = key.min(octets.len());
            octets[..key].copy_from_slice(&Kind::Reply.key()[..key]);
            if let Ok(Parsed::Complete { frame, consumed }) = StartupFrame::parse(Kind::Reply, &octets) {
                prop_assert!(consumed <= octets.len() && frame.private_data.len() <= 512);
            }
        }

        /// MPA-7.1.1-12, MPA-7.1.1-16; MPA-7.1.2-25 needs that no split is complete too early.
        #[test]
        fn frames_survive_in_any_number_of_pieces(
            reply: bool, markers: bool, crc: bool, rejected: bool, revision in 0u8..=2,
            private_data in proptest::collection::vec(any::<u8>(), 0..=512),
        ) {
            let kind = if reply { Kind::Reply } else { Kind::Request };
            let rejected = rejected && reply;
            let frame = StartupFrame {
                kind, markers, crc, rejected, enhanced: false, revision, private_data: &private_data
            };
            let octets = emitted(&frame);
            for len in 0..octets.len() {
                prop_assert_eq!(StartupFrame::parse(kind, &octets[..len]), Ok(Parsed::Incomplete));
            }
            let expected = Parsed::Complete { frame, consumed: octets.len() };
            prop_assert_eq!(StartupFrame::parse(kind, &octets), Ok(expected));
        }

        #[test]
        fn enhanced_data_survives(octets: [u8; 4]) {
            let data = EnhancedData::parse(octets);
            let mut out = [0; 4];
            data.emit(&mut out);
            prop_assert_eq!(EnhancedData::parse(out), data);
            if data.peer_to_peer {
                prop_assert_eq!(out, octets);
            }
        }
    }
}
