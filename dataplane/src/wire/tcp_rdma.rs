//! The TCP RDMA option (draft-csapuntz-tcprdma-00): it says which octets of a segment's payload belong to a
//! transfer into a buffer of the receiver, and whether a message of the application begins with the payload.
//!
//! ```text
//!          0               1               2               3
//!  0 |  kind (25)    |    length     |A|U| RID bits 45..40 | 39..32 |
//!  4 |                         RID bits 31..0                       |
//!  8 |                         buffer offset                        |
//! 12 |          data offset          |          data length         |
//! 16 |                         total length                         |
//! ```
//!
//! The length is 2 (nothing after the length: the option is offered), 4 (A and U only), 16 (no total length)
//! or 20.

mod rid;

pub use rid::{CifsRid, HttpRid, NfsRid, Rid, RidFormat, ScsiRid};

use super::tcp::{END, NOP, SACK, TIMESTAMPS};

/// The option kind that the draft uses (§3.1). It is not assigned to this option, so hosts may be configured
/// with another one.
// Requirements: TRO-3.1-01
pub const DEFAULT_KIND: u8 = 25;

/// Returns true if `kind` may be that of the RDMA option: no option that this stack uses has it.
pub const fn is_free_kind(kind: u8) -> bool {
    !matches!(kind, END..=SACK | TIMESTAMPS)
}

/// The A bit: octet 0 of the payload begins a message.
const MESSAGE_ALIGNED: u8 = 0x80;
/// The U bit: the receiver does not expect the RID.
const UNSOLICITED: u8 = 0x40;
/// The other bits of the octet with A and U are bits 40 to 45 of the RID.
const RID_HIGH: u8 = 0x3f;
/// The octets of a transfer in one segment (§3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The RID: the same in all segments of the transfer (§3.1.1).
    // Requirements: TRO-3.1.1-01
    pub rid: Rid,
    /// The A bit: octet 0 of the payload begins a message of the application (§3.1.6).
    pub message_aligned: bool,
    /// The U bit: the receiver does not expect the RID (§3.1.7).
    pub unsolicited: bool,
    /// Where the octets go in the receiver's buffer (§3.1.5).
    // Requirements: TRO-3.1.5-01
    pub buffer_offset: u32,
    /// Where in the payload the octets begin (§3.1.2).
    pub data_offset: u16,
    /// How many octets there are; zero is valid (§3.1.3).
    // Requirements: TRO-3.1.3-02
    pub data_octets: u16,
    /// Octets of the transfer, the same in all its segments; `None` if the sender did not know it: the
    /// option has 16 octets then. Zero is valid (§3.1.4).
    // Requirements: TRO-3.1.4-02, TRO-3.1.4-03
    pub total_octets: Option<u32>,
}

impl Transfer {
    /// Returns true if `data_offset` and `data_octets` lie inside a payload of `payload_octets` octets. The
    /// receiver ignores an option that does not.
    ///
    /// Example: in a payload of 200 octets, the octets 100 to 199 fit, and so do none at offset 200; 101
    /// octets at offset 100 do not, nor none at offset 201.
    // Requirements: TRO-3.1.2-01, TRO-3.1.3-01
    pub const fn fits(&self, payload_octets: usize) -> bool {
        self.data_offset as usize + self.data_octets as usize <= payload_octets
    }

    /// Parses what follows kind and length, 14 or 18 octets.
    #[inline]
    fn parse(body: &[u8]) -> Option<Self> {
        let (&[flags, r4, r3, r2, r1, r0, b3, b2, b1, b0, d1, d0, l1, l0], total) =
            body.split_first_chunk::<14>()?;
        Some(Self {
            rid: Rid::new(u64::from_be_bytes([0, 0, flags & RID_HIGH, r4, r3, r2, r1, r0]))?,
            message_aligned: flags & MESSAGE_ALIGNED != 0,
            unsolicited: flags & UNSOLICITED != 0,
            buffer_offset: u32::from_be_bytes([b3, b2, b1, b0]),
            data_offset: u16::from_be_bytes([d1, d0]),
            data_octets: u16::from_be_bytes([l1, l0]),
            total_octets: total.first_chunk().map(|total| u32::from_be_bytes(*total)),
        })
    }

    /// Writes the option, of kind `kind`, to the front of `out`.
    // Requirements: TRO-3.1-02, TRO-3.1.1-02
    #[inline]
    fn put(&self, kind: u8, out: &mut [u8]) {
        let flags = flags(self.message_aligned, self.unsolicited);
        let (octets, total) = match self.total_octets {
            Some(total) => (20, total),
            None => (16, 0),
        };
        // Few numbers of many octets are written.
        let name =
            u64::from(u16::from_be_bytes([kind, octets])) << 48 | u64::from(flags) << 40 | self.rid.get();
        let data = u64::from(self.buffer_offset) << 32
            | u64::from(self.data_offset) << 16
            | u64::from(self.data_octets);
        if let Some((words, rest)) = out.split_first_chunk_mut::<16>() {
            *words = (u128::from(name) << 64 | u128::from(data)).to_be_bytes();
            if octets > 16
                && let Some(field) = rest.first_chunk_mut()
            {
                *field = total.to_be_bytes();
            }
        }
    }
}

/// An option of a transfer as it lies in a header: the buffer offset, and all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferWords {
    /// Kind, length, A, U and RID.
    name: [u8; 8],
    buffer_offset: u32,
    data: [u8; 4],
    /// Zeros if there is none: the length says so.
    total: [u8; 4],
}

impl TransferWords {
    /// Returns those of an option of 16 or 20 octets; `None` if `option` is another form.
    #[inline]
    pub fn of(option: &[u8]) -> Option<Self> {
        let (name, rest) = option.split_first_chunk()?;
        let (&buffer_offset, rest) = rest.split_first_chunk()?;
        let (&data, rest) = rest.split_first_chunk()?;
        let total = match rest {
            [] => [0; 4],
            _ => *rest.first_chunk().filter(|_| rest.len() == 4)?,
        };
        Some(Self { name: *name, buffer_offset: u32::from_be_bytes(buffer_offset), data, total })
    }

    /// Returns true if it is the same option as `other`, but with this buffer offset.
    #[inline]
    pub fn is_at(&self, other: &Self, buffer_offset: u32) -> bool {
        (self.name, self.data, self.total) == (other.name, other.data, other.total)
            && self.buffer_offset == buffer_offset
    }
}

/// The option in each of its forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RdmaOption {
    /// Length 2: the sender of a SYN offers the option, or accepts it. It triggers no transfer (§3.2).
    Permitted,
    /// Length 4: the A and U bits only (§3.1.6). The draft does not say what the RID bits of this form are:
    /// they are sent as zero, and ignored.
    // Requirements: TRO-3.1.6-01, TRO-3.1.6-02
    Aligned {
        /// The A bit: octet 0 of the payload begins a message of the application.
        message_aligned: bool,
        /// The U bit.
        unsolicited: bool,
    },
    /// Length 16 or 20: octets of a transfer.
    Transfer(Transfer),
}

impl RdmaOption {
    /// Returns true if a message begins with the payload.
    pub const fn begins_message(&self) -> bool {
        match self {
            Self::Permitted => false,
            Self::Aligned { message_aligned, .. } => *message_aligned,
            Self::Transfer(transfer) => transfer.message_aligned,
        }
    }

    /// Octets of the longest form.
    pub const MAX_LEN: usize = 20;

    /// Returns the octets of the option in a header, filled up to a multiple of four: 4, 4, 16 or 20.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "no form is empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Permitted | Self::Aligned { .. } => 4,
            Self::Transfer(Transfer { total_octets: None, .. }) => 16,
            Self::Transfer(Transfer { total_octets: Some(_), .. }) => 20,
        }
    }

    /// Parses `body`, the octets of an option after its kind and length. Returns `None` for a length that the
    /// draft does not define: such an option is ignored (§3.1).
    // Requirements: TRO-3.1-01
    pub fn parse(body: &[u8]) -> Option<Self> {
        match *body {
            [] => Some(Self::Permitted),
            [flags, _] => Some(Self::Aligned {
                message_aligned: flags & MESSAGE_ALIGNED != 0,
                unsolicited: flags & UNSOLICITED != 0,
            }),
            _ if matches!(body.len(), 14 | 18) => Transfer::parse(body).map(Self::Transfer),
            _ => None,
        }
    }

    /// Writes the option with the kind `kind` to the first [`len`](Self::len) octets of `out`. Returns their
    /// number. Two NOPs follow the form of two octets.
    #[inline]
    pub fn emit(&self, kind: u8, out: &mut [u8]) -> usize {
        let len = self.len();
        debug_assert!(out.len() >= len, "{} octets are no room for {len}", out.len());
        let four = match self {
            Self::Permitted => [kind, 2, NOP, NOP],
            Self::Aligned { message_aligned, unsolicited } => {
                [kind, 4, flags(*message_aligned, *unsolicited), 0]
            }
            Self::Transfer(transfer) => {
                transfer.put(kind, out);
                return len;
            }
        };
        if let Some(field) = out.first_chunk_mut() {
            *field = four;
        }
        len
    }
}

/// The A and U bits in their octet.
const fn flags(message_aligned: bool, unsolicited: bool) -> u8 {
    let aligned = if message_aligned { MESSAGE_ALIGNED } else { 0 };
    let unsolicited = if unsolicited { UNSOLICITED } else { 0 };
    aligned | unsolicited
}

#[cfg(test)]
mod tests;
