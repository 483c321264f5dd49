//! TCP headers (RFC 9293).

mod options;
mod seq_number;

use bitflags::bitflags;

use super::tcp_rdma::{self, RdmaOption};
use super::{Malformed, Writer};
use options::USUAL_LEN;

pub(super) use options::{END, NOP, SACK, TIMESTAMPS};
pub use options::{Options, Timestamps};
pub use seq_number::{SeqNumber, SeqRange};

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
mod tests;
