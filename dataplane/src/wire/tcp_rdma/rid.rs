//! The identifier of a transfer (RID) and its formats in the protocols that use the TCP RDMA option
//! (draft-csapuntz-tcprdma-00 §3.1.1, §5).

use thiserror::Error;

/// The identifier of a transfer, 46 bits (§3.1.1). The application finds the buffer by it, so two transfers
/// that are under way at a time on one connection have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid {
    /// The most significant word first. Words of 16 bits need no padding, and a RID is in each TCP header.
    words: [u16; 3],
}

impl Rid {
    /// The bits of a RID.
    pub const BITS: u32 = 46;

    /// Returns the RID with these bits; `None` if there are more than 46.
    pub const fn new(bits: u64) -> Option<Self> {
        if bits >> Self::BITS == 0 { Some(Self::from_parts((bits >> 32) as u16, bits as u32)) } else { None }
    }

    /// Returns the bits.
    pub const fn get(self) -> u64 {
        (self.high() as u64) << 32 | self.low() as u64
    }

    /// Bits 32 to 45.
    const fn high(self) -> u16 {
        self.words[0]
    }

    /// Bits 0 to 31.
    const fn low(self) -> u32 {
        (self.words[1] as u32) << 16 | self.words[2] as u32
    }

    const fn from_parts(high: u16, low: u32) -> Self {
        Self { words: [high, (low >> 16) as u16, low as u16] }
    }
}

/// A RID is not of the format that its protocol uses: bits are set that are always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("bits of the RID are set that its format has as zero")]
pub struct ReservedBits;

/// The RID of NFS (§5.1.1): zero (6 bits), operation index (8), XID (32).
// Requirements: TRO-5.1.1-01, TRO-5.1.1-04
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NfsRid {
    /// The transaction identifier of the RPC.
    pub xid: u32,
    /// Which operation of the RPC the transfer belongs to. The first one is 0, and operations count whether
    /// or not they have a transfer.
    // Requirements: TRO-5.1.1-02
    pub operation: u8,
}

impl NfsRid {
    /// Returns the RID of the RPC `xid` of NFS version 2 or 3, which has one operation: its index is 0.
    // Requirements: TRO-5.1.1-03
    pub const fn of_one_operation(xid: u32) -> Self {
        Self { xid, operation: 0 }
    }
}

impl From<NfsRid> for Rid {
    fn from(NfsRid { xid, operation }: NfsRid) -> Self {
        Self::from_parts(operation.into(), xid)
    }
}

impl TryFrom<Rid> for NfsRid {
    type Error = ReservedBits;

    fn try_from(rid: Rid) -> Result<Self, ReservedBits> {
        let (operation, xid) = operation_and_word(rid)?;
        Ok(Self { xid, operation })
    }
}

/// The RID of HTTP (§5.2.1): zero (14 bits), request index (32).
// Requirements: TRO-5.2.1-01
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HttpRid {
    /// Which request of the connection the transfer belongs to. The first one is 0.
    pub request_index: u32,
}

impl From<HttpRid> for Rid {
    fn from(HttpRid { request_index }: HttpRid) -> Self {
        Self::from_parts(0, request_index)
    }
}

impl TryFrom<Rid> for HttpRid {
    type Error = ReservedBits;

    fn try_from(rid: Rid) -> Result<Self, ReservedBits> {
        match operation_and_word(rid)? {
            (0, request_index) => Ok(Self { request_index }),
            _ => Err(ReservedBits),
        }
    }
}

/// The RID of CIFS (§5.3.1): zero (6 bits), operation index (8), PID (16), MID (16). The CIFS client must
/// make sure that two requests at a time do not share PID and MID.
// Requirements: TRO-5.3.1-02
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CifsRid {
    /// Which operation of a compound request the transfer belongs to. The first one is 0, and operations
    /// count whether or not they have a transfer.
    pub operation: u8,
    /// The process identifier of the request.
    pub pid: u16,
    /// The multiplex identifier of the request.
    pub mid: u16,
}

impl From<CifsRid> for Rid {
    fn from(CifsRid { operation, pid, mid }: CifsRid) -> Self {
        Self::from_parts(operation.into(), u32::from(pid) << 16 | u32::from(mid))
    }
}

impl TryFrom<Rid> for CifsRid {
    type Error = ReservedBits;

    fn try_from(rid: Rid) -> Result<Self, ReservedBits> {
        let (operation, word) = operation_and_word(rid)?;
        Ok(Self { operation, pid: (word >> 16) as u16, mid: word as u16 })
    }
}

/// The RID of SCSI, whose format another document defines (§5.4): all bits are the user's.
// Requirements: TRO-5.4-01
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScsiRid(pub Rid);

impl From<ScsiRid> for Rid {
    fn from(ScsiRid(rid): ScsiRid) -> Self {
        rid
    }
}

impl From<Rid> for ScsiRid {
    fn from(rid: Rid) -> Self {
        Self(rid)
    }
}

/// Bits 32 to 39 and bits 0 to 31 of a RID whose bits 40 to 45 are zero.
const fn operation_and_word(rid: Rid) -> Result<(u8, u32), ReservedBits> {
    if rid.high() > u8::MAX as u16 {
        return Err(ReservedBits);
    }
    Ok((rid.high() as u8, rid.low()))
}
