//! TCP headers (RFC 9293) and the options this stack speaks: maximum segment size, window scale, timestamps
//! (RFC 7323), selective acknowledgment (RFC 2018) and the RDMA option (draft-csapuntz-tcprdma-00).

use core::cmp::Ordering;
use core::ops::{Add, AddAssign, Sub};

use arrayvec::ArrayVec;
use bitflags::bitflags;

use super::tcp_rdma::{self, RdmaOption};
use super::{Malformed, Writer};

/// A TCP sequence number: a point on a circle of 2^32 octets.
///
/// Order is that of the shorter distance: `a < b` when `b` lies less than 2^31 octets ahead of `a`. It is
/// an order only among numbers within half the circle, which all numbers of a window are (RFC 9293 §3.4);
/// points exactly opposite each other are not ordered at all.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// The one further ahead.
    #[inline]
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if self - other >= 0 { self } else { other }
    }

    /// The one further back.
    #[inline]
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        if self - other <= 0 { self } else { other }
    }
}

/// The sequence numbers of octets in a row: from the first to the one after the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqRange {
    /// The first octet.
    pub from: SeqNumber,
    /// The octet after the last.
    pub to: SeqNumber,
}

impl PartialOrd for SeqNumber {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match *self - *other {
            i32::MIN => None,
            distance => Some(distance.cmp(&0)),
        }
    }

    // One difference and its sign: points opposite each other are -2^31 apart, both ways.
    #[inline]
    fn lt(&self, other: &Self) -> bool {
        *other - *self > 0
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        *other - *self >= 0
    }

    #[inline]
    fn gt(&self, other: &Self) -> bool {
        *self - *other > 0
    }

    #[inline]
    fn ge(&self, other: &Self) -> bool {
        *self - *other >= 0
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn add(self, octets: u32) -> Self {
        Self(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn sub(self, octets: u32) -> Self {
        Self(self.0.wrapping_sub(octets))
    }
}

impl Sub for SeqNumber {
    type Output = i32;

    /// Octets from `earlier` ahead to `self`, negative when `earlier` is the later one.
    #[inline]
    fn sub(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

bitflags! {
    /// The control bits.
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronise sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push function.
        const PSH = 0x08;
        /// The acknowledgment field is valid.
        const ACK = 0x10;
        /// The urgent pointer counts.
        const URG = 0x20;
        /// Congestion was experienced (RFC 3168).
        const ECE = 0x40;
        /// The congestion window was reduced (RFC 3168).
        const CWR = 0x80;
    }
}

/// The timestamps option (RFC 7323 §3).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The clock value being echoed; means nothing without ACK.
    pub echo: u32,
}

impl Timestamps {
    /// The option after two NOPs, as RFC 7323 appendix A recommends.
    #[inline]
    const fn after_nops(self) -> [u8; USUAL_LEN] {
        let [v0, v1, v2, v3] = self.value.to_be_bytes();
        let [e0, e1, e2, e3] = self.echo.to_be_bytes();
        [NOP, NOP, TIMESTAMPS, USUAL_LEN as u8 - 2, v0, v1, v2, v3, e0, e1, e2, e3]
    }
}

/// The options of a header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Largest segment the sender accepts, in octets of payload.
    pub mss: Option<u16>,
    /// Left shift of the sender's windows, 0..=14.
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgments.
    pub sack_permitted: bool,
    /// Clocks.
    pub timestamps: Option<Timestamps>,
    /// Blocks that the sender holds beyond the acknowledgment number: the first octet and the one after the
    /// last.
    pub sack: ArrayVec<(SeqNumber, SeqNumber), 4>,
    /// The first RDMA option of the header (draft-csapuntz-tcprdma-00 §3.3); `None` too if its length is not
    /// valid. The host's configuration says of which kind it is, see [`Header::parse_with`].
    pub rdma: Option<RdmaOption>,
}

pub(super) const END: u8 = 0;
pub(super) const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
pub(super) const SACK: u8 = 5;
pub(super) const TIMESTAMPS: u8 = 8;

/// Octets of the timestamps option with two NOPs.
const USUAL_LEN: usize = 12;

/// The largest window scale (RFC 7323 §2.3); a larger one is used as this.
const WINDOW_SCALE_MAX: u8 = 14;

impl Options {
    /// Octets of options a header has room for.
    pub const ROOM: usize = 40;

    /// Parses an option list up to its end, or up to the first option whose length is impossible. RFC 9293
    /// §3.1 asks a TCP to be prepared for such a length; after it nobody can say where the next option
    /// begins, and the options before it are as good as ever. Example: of `02 04 05 b4  08 00` the MSS of
    /// 1460 is accepted, the timestamps of length 0 are not.
    ///
    /// RDMA options have the kind `rdma_kind`, unless another option has it. Of several only the first is
    /// looked at, even if its length is not valid.
    #[inline]
    fn parse(octets: &[u8], rdma_kind: u8) -> Self {
        match *octets {
            [] => Self::default(),
            // RFC 7323 appendix A: the options of nearly all segments after the handshake.
            [NOP, NOP, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] => {
                let value = u32::from_be_bytes([v0, v1, v2, v3]);
                let timestamps = Some(Timestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) });
                Self { timestamps, ..Self::default() }
            }
            _ => Self::parse_each(octets, rdma_kind),
        }
    }

    /// [Parses](Self::parse) option by option.
    #[inline(never)]
    fn parse_each(mut octets: &[u8], rdma_kind: u8) -> Self {
        let mut options = Self::default();
        let mut first_rdma = Some(rdma_kind);
        loop {
            octets = match octets {
                [] | [END, ..] => return options,
                [NOP, rest @ ..] => rest,
                _ => match options.parse_first(octets, &mut first_rdma) {
                    Some(rest) => rest,
                    None => return options,
                },
            };
        }
    }

    /// Parses the option at the front of `octets` and returns the octets after it; `None`, and nothing
    /// parsed, when its length is impossible. `first_rdma` is the kind of the RDMA option as long as none has
    /// come.
    fn parse_first<'a>(&mut self, octets: &'a [u8], first_rdma: &mut Option<u8>) -> Option<&'a [u8]> {
        let [kind, len, ..] = octets else { return None };
        let (option, rest) = octets.split_at_checked(usize::from(*len))?;
        self.set(*kind, option.get(2..)?, first_rdma)?;
        Some(rest)
    }

    /// `None`, and nothing set, when `body` has not the length its `kind` asks for.
    fn set(&mut self, kind: u8, body: &[u8], first_rdma: &mut Option<u8>) -> Option<()> {
        match kind {
            MSS => self.mss = Some(u16::from_be_bytes(body.try_into().ok()?)),
            WINDOW_SCALE => {
                let [shift] = body.try_into().ok()?;
                self.window_scale = Some(u8::min(shift, WINDOW_SCALE_MAX));
            }
            SACK_PERMITTED => {
                let [] = body.try_into().ok()?;
                self.sack_permitted = true;
            }
            SACK => {
                let (blocks, []) = body.as_chunks::<8>() else { return None };
                for block in blocks {
                    let (left, right) = two_words(*block);
                    // More than fits a header cannot be, but several options of this kind can.
                    let _ = self.sack.try_push((SeqNumber(left), SeqNumber(right)));
                }
            }
            TIMESTAMPS => {
                let (value, echo) = two_words(body.try_into().ok()?);
                self.timestamps = Some(Timestamps { value, echo });
            }
            // draft-csapuntz-tcprdma-00 §3.1: an option of another length is ignored. It is the first all the
            // same (§3.3), and the options after it count.
            // Requirements: TRO-3.1-01, TRO-3.3-01
            _ if *first_rdma == Some(kind) => {
                self.rdma = RdmaOption::parse(body);
                *first_rdma = None;
            }
            _ => {}
        }
        Some(())
    }

    /// Octets of everything but the selective acknowledgment, each option filled up to a multiple of four.
    const fn fixed_len(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        // Permission shares the four octets of alignment that timestamps need.
        let clocks = match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => 12,
            (false, true) => 4,
            (false, false) => 0,
        };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        let rdma = match &self.rdma {
            Some(option) => option.len(),
            None => 0,
        };
        mss + clocks + scale + rdma
    }

    /// How many blocks of the selective acknowledgment have room: three beside timestamps, four without, none
    /// beside timestamps and an RDMA option of 20 octets.
    fn sack_blocks(&self) -> usize {
        // All of them together: 4 of MSS, 12 of timestamps and permission, 4 of scale, 20 of a transfer.
        let room = Self::ROOM - self.fixed_len();
        self.sack.len().min(room.saturating_sub(4) / 8)
    }

    /// Whether there is no option but perhaps timestamps, as in nearly all segments.
    #[inline]
    pub const fn is_usual(&self) -> bool {
        self.mss.is_none()
            && self.window_scale.is_none()
            && !self.sack_permitted
            && self.sack.is_empty()
            && self.rdma.is_none()
    }

    /// Octets of all options, which are [usual](Self::is_usual) or not.
    #[inline]
    fn len(&self, usual: bool) -> usize {
        if usual {
            return if self.timestamps.is_some() { USUAL_LEN } else { 0 };
        }
        match self.sack_blocks() {
            0 => self.fixed_len(),
            blocks => self.fixed_len() + 4 + 8 * blocks,
        }
    }

    /// The order and the padding are those of Linux, so that header prediction elsewhere recognises them. All
    /// options, padding included, begin at multiples of four octets, as draft-csapuntz-tcprdma-00 §3.1.8
    /// requires of the RDMA option.
    // Requirements: TRO-3.1.8-02
    fn emit(&self, out: &mut Writer<'_>, rdma_kind: u8) {
        if let Some(mss) = self.mss {
            out.put([MSS, 4]);
            out.put(mss.to_be_bytes());
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            out.put(if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] });
            out.put([TIMESTAMPS, 10]);
            out.put(value.to_be_bytes());
            out.put(echo.to_be_bytes());
        } else if self.sack_permitted {
            out.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, shift.min(WINDOW_SCALE_MAX)]);
        }
        if let Some(option) = &self.rdma {
            let octets = option.emit(rdma_kind, out.0);
            out.0 = core::mem::take(&mut out.0).get_mut(octets..).unwrap_or_default();
        }
        let blocks = self.sack_blocks();
        if blocks > 0 {
            out.put([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
        }
        for (left, right) in self.sack.iter().take(blocks) {
            out.put(left.0.to_be_bytes());
            out.put(right.0.to_be_bytes());
        }
    }
}

/// The two 32-bit words of an option's body.
fn two_words(octets: [u8; 8]) -> (u32, u32) {
    let both = u64::from_be_bytes(octets);
    ((both >> 32) as u32, both as u32)
}

/// A TCP header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The first octet of payload, or the SYN.
    pub seq: SeqNumber,
    /// The next octet the sender expects.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// Octets the sender accepts beyond `ack`, not yet scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

/// Where in a header the checksum stands.
pub const CHECKSUM_OFFSET: usize = 16;

/// Where in a header the control bits stand.
pub const FLAGS_OFFSET: usize = 13;

impl Header {
    /// Octets of a header without options.
    pub const MIN_LEN: usize = 20;

    /// Octets of a header with timestamps as its only option.
    pub const WITH_TIMESTAMPS_LEN: usize = Self::MIN_LEN + USUAL_LEN;

    /// Octets of the longest header.
    pub const MAX_LEN: usize = Self::MIN_LEN + Options::ROOM;

    /// Parses the header at the start of `segment`. Returns it and the offset of the payload. The checksum is
    /// left to the caller, who knows the addresses, or to the device.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`]; [`Malformed::Length`] for a data offset inside the fixed header. Unknown
    /// options are skipped; an option of an impossible length ends the list (RFC 9293 §3.1).
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, usize), Malformed> {
        Self::parse_with(segment, tcp_rdma::DEFAULT_KIND)
    }

    /// Parses as [`parse`](Self::parse) does, with RDMA options of the kind `rdma_kind`
    /// (draft-csapuntz-tcprdma-00) instead of [`tcp_rdma::DEFAULT_KIND`].
    ///
    /// # Errors
    ///
    /// Those of [`parse`](Self::parse).
    #[inline]
    pub fn parse_with(segment: &[u8], rdma_kind: u8) -> Result<(Self, usize), Malformed> {
        let field: &[u8; Self::MIN_LEN] = segment.first_chunk().ok_or(Malformed::Truncated)?;
        let data_offset = usize::from(field[12] >> 4) * 4;
        if data_offset < Self::MIN_LEN {
            return Err(Malformed::Length);
        }
        let options = segment.get(Self::MIN_LEN..data_offset).ok_or(Malformed::Truncated)?;
        let header = Self {
            source_port: u16::from_be_bytes([field[0], field[1]]),
            destination_port: u16::from_be_bytes([field[2], field[3]]),
            seq: SeqNumber(u32::from_be_bytes([field[4], field[5], field[6], field[7]])),
            ack: SeqNumber(u32::from_be_bytes([field[8], field[9], field[10], field[11]])),
            flags: Flags::from_bits_retain(field[13]),
            window: u16::from_be_bytes([field[14], field[15]]),
            urgent: u16::from_be_bytes([field[18], field[19]]),
            options: Options::parse(options, rdma_kind),
        };
        Ok((header, data_offset))
    }

    /// Octets of the header with its options, a multiple of four, 20..=60.
    #[inline]
    pub fn header_len(&self) -> usize {
        Self::MIN_LEN + self.options.len(self.options.is_usual())
    }

    /// Writes the header to the first [`header_len`](Self::header_len) octets of `out`, the checksum field
    /// zero. Blocks of the selective acknowledgment that do not fit beside the other options are left out,
    /// last ones first.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        self.emit_with(out, tcp_rdma::DEFAULT_KIND);
    }

    /// Writes as [`emit`](Self::emit) does, with an RDMA option of the kind `rdma_kind` instead of
    /// [`tcp_rdma::DEFAULT_KIND`]. Returns the octets of the header.
    #[inline]
    pub fn emit_with(&self, out: &mut [u8], rdma_kind: u8) -> usize {
        let usual = self.options.is_usual();
        let header_len = Self::MIN_LEN + self.options.len(usual);
        debug_assert!(out.len() >= header_len, "{} octets are no room for {header_len}", out.len());
        let Some(out) = out.get_mut(..header_len) else { return header_len };
        let Some((fixed, options)) = out.split_first_chunk_mut::<{ Self::MIN_LEN }>() else {
            return header_len;
        };
        fixed[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12..14].copy_from_slice(&[(header_len / 4) as u8 * 16, self.flags.bits()]);
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&[0, 0]);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        if !usual {
            self.options.emit(&mut Writer(options), rdma_kind);
        } else if let Some((clock, out)) = self.options.timestamps.zip(options.first_chunk_mut()) {
            *out = clock.after_nops();
        }
        header_len
    }
}

/// Writes `value` to the checksum field of the header at the start of `segment`.
#[inline]
pub fn set_checksum(segment: &mut [u8], value: u16) {
    if let Some(field) = segment.get_mut(CHECKSUM_OFFSET..).and_then(<[u8]>::first_chunk_mut) {
        *field = value.to_be_bytes();
    }
}

/// Writes the ports to the header at the start of `segment`.
#[inline]
pub fn set_ports(segment: &mut [u8], source: u16, destination: u16) {
    if let Some(field) = segment.first_chunk_mut::<{ Header::MIN_LEN }>() {
        field[0..2].copy_from_slice(&source.to_be_bytes());
        field[2..4].copy_from_slice(&destination.to_be_bytes());
    }
}

/// Copies the ports and the checksum field from the header at the start of `from` to that of `to`.
pub fn copy_ports_and_checksum(from: &[u8], to: &mut [u8]) {
    let from = from.first_chunk::<{ Header::MIN_LEN }>();
    if let Some((to, from)) = to.first_chunk_mut::<{ Header::MIN_LEN }>().zip(from) {
        to[0..4].copy_from_slice(&from[0..4]);
        to[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&from[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2]);
    }
}

/// What a header without ports says that has no options but perhaps timestamps, as nearly all have.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SegmentHeader {
    /// The sequence number.
    pub seq: SeqNumber,
    /// The acknowledgment number.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// The window field.
    pub window: u16,
    /// Clocks.
    pub timestamps: Option<Timestamps>,
}

impl SegmentHeader {
    /// What `header` says; `None` if it has other options.
    #[inline]
    pub fn of(header: &Header) -> Option<Self> {
        let Header { seq, ack, flags, window, ref options, .. } = *header;
        debug_assert!(header.urgent == 0, "nothing is urgent");
        let timestamps = options.timestamps;
        options.is_usual().then_some(Self { seq, ack, flags, window, timestamps })
    }

    /// Writes it without its PSH to the front of `segment`, which has room for timestamps. Ports and checksum
    /// stay as they are. Returns the octets of the header.
    #[inline]
    pub fn emit(&self, segment: &mut [u8]) -> usize {
        let Some(out) = segment.first_chunk_mut::<{ Header::WITH_TIMESTAMPS_LEN }>() else {
            debug_assert!(false, "no room for timestamps");
            return Header::MIN_LEN;
        };
        let mut header_len = Header::MIN_LEN;
        if let Some(clock) = self.timestamps {
            header_len = Header::WITH_TIMESTAMPS_LEN;
            out[Header::MIN_LEN..].copy_from_slice(&clock.after_nops());
        }
        out[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        let flags = self.flags.difference(Flags::PSH).bits();
        out[12..14].copy_from_slice(&[(header_len / 4) as u8 * 16, flags]);
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        header_len
    }
}

impl From<SegmentHeader> for Header {
    fn from(header: SegmentHeader) -> Self {
        let SegmentHeader { seq, ack, flags, window, timestamps } = header;
        Self {
            seq,
            ack,
            flags,
            window,
            options: Options { timestamps, ..Options::default() },
            ..Self::default()
        }
    }
}

/// Writes `seq` to the header at the start of `segment`, and adds `flags` to its control bits. The checksum
/// stays as it is.
#[inline]
pub fn patch(segment: &mut [u8], seq: SeqNumber, flags: Flags) {
    if let Some(field) = segment.first_chunk_mut::<{ Header::MIN_LEN }>() {
        field[4..8].copy_from_slice(&seq.0.to_be_bytes());
        field[FLAGS_OFFSET] |= flags.bits();
    }
}

/// Appends `option`, of the kind `kind`, to the options of the header of `header_octets` octets at the start
/// of `segment`. The checksum stays as it is.
#[inline]
pub fn append_option(segment: &mut [u8], header_octets: usize, option: &RdmaOption, kind: u8) {
    let octets = header_octets + option.len();
    if let Some((header, field)) =
        segment.get_mut(..octets).and_then(|all| all.split_at_mut_checked(header_octets))
        && let Some(data_offset) = header.get_mut(12)
    {
        option.emit(kind, field);
        *data_offset = (octets / 4) as u8 * 16;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn emitted(header: &Header) -> Vec<u8> {
        let mut out = vec![0xff; header.header_len()];
        header.emit(&mut out);
        out
    }

    #[test]
    fn sequence_numbers_wrap() {
        let before = SeqNumber(0xffff_fff0);
        let after = before + 0x20;
        assert_eq!(after, SeqNumber(0x10));
        assert!(before < after);
        assert!(after > before);
        assert_eq!(after - before, 0x20);
        assert_eq!(before - after, -0x20);
        assert_eq!(after - 0x20, before);
        assert_eq!(before.later(after), after);
        assert_eq!(before.earlier(after), before);
        let opposite = before + 0x8000_0000;
        assert_eq!(before.partial_cmp(&opposite), None);
        assert_eq!(before.partial_cmp(&(opposite - 1)), Some(Ordering::Less));
        assert_eq!(before.partial_cmp(&(opposite + 1)), Some(Ordering::Greater));
        // The operators agree with the order.
        for distance in [0, 1, 2, 0x20, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_ffff] {
            let other = before + distance;
            let order = before.partial_cmp(&other);
            assert_eq!(before < other, order == Some(Ordering::Less), "{distance:#x}");
            assert_eq!(before > other, order == Some(Ordering::Greater), "{distance:#x}");
            assert_eq!(before <= other, order.is_some_and(Ordering::is_le), "{distance:#x}");
            assert_eq!(before >= other, order.is_some_and(Ordering::is_ge), "{distance:#x}");
        }
    }

    #[test]
    fn a_syn_looks_like_that_of_linux() {
        let options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 0x0102_0304, echo: 0 }),
            sack: ArrayVec::new(),
            rdma: None,
        };
        let header = Header { flags: Flags::SYN, options, ..Header::default() };
        let octets = emitted(&header);
        assert_eq!(octets[12], 0xa0);
        let expected = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
        assert_eq!(octets[20..], expected);
        assert_eq!(Header::parse(&octets), Ok((header, 40)));
    }

    #[test]
    fn established_segments_align_their_timestamps() {
        let options = Options { timestamps: Some(Timestamps { value: 1, echo: 2 }), ..Options::default() };
        let header = Header { flags: Flags::ACK | Flags::PSH, options, ..Header::default() };
        let octets = emitted(&header);
        assert_eq!(octets[20..], [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(Header::parse(&octets), Ok((header, 32)));
    }

    #[test]
    fn beside_timestamps_three_blocks_fit() {
        let block = |n: u32| (SeqNumber(n * 100), SeqNumber(n * 100 + 50));
        let mut options = Options { sack: (1..=4).map(block).collect(), ..Options::default() };
        let alone = Header { options: options.clone(), ..Header::default() };
        assert_eq!(alone.header_len(), 56);
        assert_eq!(Header::parse(&emitted(&alone)), Ok((alone, 56)));
        options.timestamps = Some(Timestamps::default());
        let crowded = Header { options, ..Header::default() };
        assert_eq!(crowded.header_len(), 60);
        let (parsed, _) = Header::parse(&emitted(&crowded)).unwrap();
        assert_eq!(parsed.options.sack[..], crowded.options.sack[..3]);
    }

    #[test]
    fn an_impossible_length_ends_the_options_and_unknown_ones_are_skipped() {
        let parse = |options: &[u8]| {
            let mut octets = emitted(&Header::default());
            octets.extend(options);
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets[12] = (octets.len() / 4) as u8 * 16;
            Header::parse(&octets).map(|(header, _)| header.options)
        };
        let shift = Options { window_scale: Some(7), ..Options::default() };
        for bad in [
            &[2, 3, 5][..],
            &[2, 5, 5, 0xb4, 0],
            &[3, 4, 7, 0],
            &[4, 3, 0],
            &[8, 9, 0, 0, 0, 0, 0, 0, 0],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[253, 0, 0, 0],
            &[253, 1, 0, 0],
            &[253, 9, 0, 0],
            &[1, 1, 1, 253],
        ] {
            assert_eq!(parse(bad), Ok(Options::default()), "{bad:?}");
            let before = [&[3, 3, 7], bad].concat();
            assert_eq!(parse(&before), Ok(shift.clone()), "{before:?}");
            // The MSS after the damage may be part of it.
            let after = [&[3, 3, 7], bad, &[2, 4, 5, 0xb4]].concat();
            assert_eq!(parse(&after).unwrap().mss, None, "{after:?}");
        }
        let skipped = parse(&[253, 4, 9, 9, 25, 2, 2, 4, 5, 0xb4, 0, 2]).unwrap();
        assert_eq!(
            skipped,
            Options { mss: Some(1460), rdma: Some(RdmaOption::Permitted), ..Options::default() },
            "nothing counts after the end"
        );
        assert_eq!(parse(&[3, 3, 255]).unwrap().window_scale, Some(14));
    }

    #[test]
    fn impossible_data_offsets_are_refused() {
        let mut octets = emitted(&Header::default());
        octets[12] = 0x40;
        assert_eq!(Header::parse(&octets), Err(Malformed::Length));
        octets[12] = 0x60;
        assert_eq!(Header::parse(&octets), Err(Malformed::Truncated));
        assert_eq!(Header::parse(&octets[..19]), Err(Malformed::Truncated));
    }

    #[test]
    fn the_checksum_goes_to_its_field() {
        let mut octets = emitted(&Header::default());
        set_checksum(&mut octets, 0x1234);
        assert_eq!(octets[16..18], [0x12, 0x34]);
        set_checksum(&mut octets[..17], 0xffff);
        assert_eq!(octets[16], 0x12, "a header cut short is left alone");
    }

    /// No option, or one of any form.
    fn rdma_options() -> impl Strategy<Value = Option<RdmaOption>> {
        let body = prop_oneof![Just(0), Just(2usize), Just(14), Just(18), Just(3)]
            .prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len));
        body.prop_map(|body| RdmaOption::parse(&body))
    }

    /// Only the first option counts, and one that is malformed does not make the others so.
    // Requirements: TRO-3.1-01, TRO-3.3-01
    #[test]
    fn of_several_rdma_options_the_first_counts() {
        let parse = |options: &[u8], kind: u8| {
            let mut octets = emitted(&Header::default());
            octets.extend(options);
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets[12] = (octets.len() / 4) as u8 * 16;
            Header::parse_with(&octets, kind).map(|(header, _)| header.options).unwrap()
        };
        let aligned = |message_aligned, unsolicited| Options {
            rdma: Some(RdmaOption::Aligned { message_aligned, unsolicited }),
            ..Options::default()
        };
        let two = [25, 4, 0x80, 0, 25, 4, 0x40, 0];
        assert_eq!(parse(&two, 25), aligned(true, false));
        assert_eq!(parse(&two, 26), Options::default(), "another kind");
        assert_eq!(parse(&[25, 4, 0x80, 0, 253, 4, 0x40, 0], 253), aligned(false, true));
        let shift = Options { window_scale: Some(7), ..Options::default() };
        for len in (3..38).filter(|len| !matches!(len, 4 | 16 | 20)) {
            let mut malformed = vec![25, len];
            malformed.resize(usize::from(len), 0x19);
            // It is skipped by its length; an option of its kind after it does not replace it.
            let followed = [&malformed[..], &[3, 3, 7]].concat();
            if followed.len() <= Options::ROOM {
                assert_eq!(parse(&followed, 25), shift, "{len}");
            }
            let followed = [&malformed[..], &[25, 2]].concat();
            if followed.len() <= Options::ROOM {
                assert_eq!(parse(&followed, 25), Options::default(), "{len}");
            }
        }
        // Without room for its length the list ends.
        assert_eq!(parse(&[3, 3, 7, 25, 20, 0x80, 0, 0], 25), shift);
        assert_eq!(parse(&[3, 3, 7, 25, 1, 25, 2, 0], 25), shift);
    }

    /// A kind that another option has is that option's.
    #[test]
    fn other_options_keep_their_kinds() {
        let header =
            Header { options: Options { mss: Some(1460), ..Options::default() }, ..Header::default() };
        let octets = emitted(&header);
        assert_eq!(Header::parse_with(&octets, MSS), Ok((header, octets.len())));
    }

    proptest! {
        #[test]
        fn any_octets_parse_or_fail(octets in proptest::collection::vec(any::<u8>(), 20..80)) {
            if let Ok((header, data_offset)) = Header::parse(&octets) {
                prop_assert!((20..=60).contains(&data_offset) && data_offset <= octets.len());
                let (again, _) = Header::parse(&emitted(&header)).unwrap();
                prop_assert_eq!(again.seq, header.seq);
                prop_assert_eq!(again.options.timestamps, header.options.timestamps);
            }
        }

        #[test]
        fn headers_survive(
            ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16, mss: Option<u16>,
            window_scale in proptest::option::of(0u8..=14), sack_permitted: bool,
            timestamps: Option<(u32, u32)>, sack in proptest::collection::vec(any::<(u32, u32)>(), 0..=1),
            rdma in rdma_options(), rdma_kind in 9u8..,
        ) {
            let options = Options {
                mss,
                window_scale,
                sack_permitted,
                timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
                sack: sack.into_iter().map(|(left, right)| (SeqNumber(left), SeqNumber(right))).collect(),
                rdma,
            };
            let header = Header {
                source_port: ports.0,
                destination_port: ports.1,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: Flags::from_bits_retain(flags),
                window,
                urgent,
                options,
            };
            let mut octets = vec![0xff; header.header_len()];
            header.emit_with(&mut octets, rdma_kind);
            let (parsed, len) = Header::parse_with(&octets, rdma_kind).expect("our own header");
            // The blocks have the room that everything else leaves.
            let crowded = header.options.fixed_len() + 12 > Options::ROOM && !header.options.sack.is_empty();
            let mut expected = header;
            if crowded {
                expected.options.sack.clear();
            }
            prop_assert_eq!((parsed, len), (expected, octets.len()));
            prop_assert!(octets.len() <= Header::MAX_LEN);
        }

        /// Whatever options there are, the RDMA option begins at a multiple of four octets, and each of its
        /// octets is where the codec has it.
        // Requirements: TRO-3.1.8-02, TRO-3.1.8-03
        #[test]
        fn rdma_options_are_aligned(
            mss: Option<u16>, window_scale in proptest::option::of(0u8..=14), sack_permitted: bool,
            clock: bool, blocks in 0u32..=4, rdma in rdma_options(),
        ) {
            let timestamps = clock.then_some(Timestamps { value: 0x1919_1919, echo: 0x1902_1902 });
            let sack = (0..blocks).map(|n| (SeqNumber(n * 100), SeqNumber(n * 100 + 50))).collect();
            let options = Options { mss, window_scale, sack_permitted, timestamps, sack, rdma };
            let octets = emitted(&Header { options, ..Header::default() });
            prop_assert!(octets.len() <= Header::MAX_LEN && octets.len().is_multiple_of(4));
            if let Some(option) = rdma {
                let mut expected = [0; RdmaOption::MAX_LEN];
                let len = option.emit(tcp_rdma::DEFAULT_KIND, &mut expected);
                let places = (Header::MIN_LEN..octets.len()).step_by(4);
                let mut at = places.filter(|at| octets[*at..].starts_with(&expected[..len]));
                prop_assert!(at.next().is_some(), "{octets:02x?}");
            }
        }
    }
}
