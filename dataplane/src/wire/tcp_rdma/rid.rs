//! The identifier of a transfer (RID) and its formats in the protocols that use the TCP RDMA option
//! (draft-csapuntz-tcprdma-00 §3.1.1, §5).

/// The identifier of a transfer, 46 bits (§3.1.1). The application finds the buffer by it, so two transfers
/// that are outstanding at a time on one connection have different ones.
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

    /// Returns the RID with the bits above the lowest `bits` as zeros.
    const fn with_low_bits(self, bits: u32) -> Self {
        let mask = (1 << bits) - 1;
        let masked = self.get() & mask;
        Self::from_parts((masked >> 32) as u16, masked as u32)
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

/// The protocol of a connection, which decides what the bits of its RIDs are (§5).
///
/// The bits that a format has as zero are sent as zero and "received as zeros by the receiver" (§5.1.1.3,
/// §5.3.1.3): whatever a peer has set there, the transfer is the one that the other bits name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RidFormat {
    /// All 46 bits are a name, as in SCSI (§5.4) and in protocols of the user's own.
    #[default]
    Opaque,
    /// NFS: [`NfsRid`].
    Nfs,
    /// HTTP: [`HttpRid`].
    Http,
    /// CIFS: [`CifsRid`].
    Cifs,
}

impl RidFormat {
    /// Returns `rid` as a receiver reads it: the bits that the format has as zero are zeros.
    // Requirements: TRO-5.1.1-04, TRO-5.3.1-02
    pub const fn received(self, rid: Rid) -> Rid {
        rid.with_low_bits(match self {
            Self::Opaque => Rid::BITS,
            Self::Nfs | Self::Cifs => 40,
            Self::Http => 32,
        })
    }
}

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

impl From<Rid> for NfsRid {
    /// Returns the fields of `rid`, whose other bits are received as zeros.
    fn from(rid: Rid) -> Self {
        Self { xid: rid.low(), operation: rid.high() as u8 }
    }
}

/// The RID of HTTP (§5.2.1): zero (14 bits), request index (32).
// Requirements: TRO-5.2.1-01
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HttpRid {
    /// Which request of the connection the transfer belongs to. The first one is 0, and requests count
    /// whether or not they have a transfer.
    // Requirements: TRO-5.2.1-02
    pub request_index: u32,
}

impl From<HttpRid> for Rid {
    fn from(HttpRid { request_index }: HttpRid) -> Self {
        Self::from_parts(0, request_index)
    }
}

impl From<Rid> for HttpRid {
    /// Returns the field of `rid`, whose other bits are received as zeros.
    fn from(rid: Rid) -> Self {
        Self { request_index: rid.low() }
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

impl From<Rid> for CifsRid {
    /// Returns the fields of `rid`, whose other bits are received as zeros.
    fn from(rid: Rid) -> Self {
        Self { operation: rid.high() as u8, pid: (rid.low() >> 16) as u16, mid: rid.low() as u16 }
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
