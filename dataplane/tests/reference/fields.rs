//! The headers of DDP and RDMAP, field by field: RFC 5041 figures 3 and 4, RFC 5040 figures 4, 6 and 8, RFC
//! 7306 figures 4 and 6.

/// The opcodes of RDMAP (RFC 5040 figure 4, RFC 7306 figure 3).
pub mod opcode {
    pub const WRITE: u8 = 0;
    pub const READ_REQUEST: u8 = 1;
    pub const READ_RESPONSE: u8 = 2;
    pub const SEND: u8 = 3;
    pub const SEND_INVALIDATE: u8 = 4;
    pub const SEND_SOLICITED: u8 = 5;
    pub const SEND_SOLICITED_INVALIDATE: u8 = 6;
    pub const TERMINATE: u8 = 7;
    pub const IMMEDIATE: u8 = 8;
    pub const IMMEDIATE_SOLICITED: u8 = 9;
    pub const ATOMIC_REQUEST: u8 = 10;
    pub const ATOMIC_RESPONSE: u8 = 11;
}

/// The number of `octets` octets at `at`, most significant first.
pub fn number(of: &[u8], at: usize, octets: usize) -> u64 {
    of[at..at + octets].iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// The fields of a DDP segment that the two buffer models do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    Tagged {
        stag: u32,
        to: u64,
    },
    Untagged {
        /// The last four octets of RsvdULP: the STag to invalidate.
        invalidate: u32,
        queue: u32,
        msn: u32,
        mo: u32,
    },
}

/// A DDP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// L.
    pub last: bool,
    /// The four reserved bits of DDP's control octet, and the two of RDMAP's.
    pub reserved: u8,
    /// DV.
    pub version: u8,
    /// RV.
    pub rdmap_version: u8,
    pub opcode: u8,
    pub model: Model,
    pub payload: Vec<u8>,
}

impl Segment {
    /// Reads a ULPDU; `None` if it is shorter than the header that its first bit announces.
    pub fn parse(ulpdu: &[u8]) -> Option<Self> {
        let control = *ulpdu.first()?;
        let tagged = control & 0x80 != 0;
        if ulpdu.len() < if tagged { 14 } else { 18 } {
            return None;
        }
        let model = if tagged {
            Model::Tagged { stag: number(ulpdu, 2, 4) as u32, to: number(ulpdu, 6, 8) }
        } else {
            Model::Untagged {
                invalidate: number(ulpdu, 2, 4) as u32,
                queue: number(ulpdu, 6, 4) as u32,
                msn: number(ulpdu, 10, 4) as u32,
                mo: number(ulpdu, 14, 4) as u32,
            }
        };
        Some(Self {
            last: control & 0x40 != 0,
            reserved: control & 0x3c | (ulpdu[1] & 0x30) >> 4,
            version: control & 0x03,
            rdmap_version: ulpdu[1] >> 6,
            opcode: ulpdu[1] & 0x0f,
            model,
            payload: ulpdu[if tagged { 14 } else { 18 }..].to_vec(),
        })
    }

    /// Writes it.
    pub fn ulpdu(&self) -> Vec<u8> {
        let tagged = matches!(self.model, Model::Tagged { .. });
        let mut ulpdu = vec![u8::from(tagged) << 7 | u8::from(self.last) << 6 | self.version];
        ulpdu.push(self.rdmap_version << 6 | self.opcode);
        match self.model {
            Model::Tagged { stag, to } => {
                ulpdu.extend(stag.to_be_bytes());
                ulpdu.extend(to.to_be_bytes());
            }
            Model::Untagged { invalidate, queue, msn, mo } => {
                for field in [invalidate, queue, msn, mo] {
                    ulpdu.extend(field.to_be_bytes());
                }
            }
        }
        ulpdu.extend(&self.payload);
        ulpdu
    }
}

/// The header of an RDMA Read Request (RFC 5040 figure 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub sink_stag: u32,
    pub sink_to: u64,
    pub size: u32,
    pub source_stag: u32,
    pub source_to: u64,
}

impl ReadRequest {
    pub const OCTETS: usize = 28;

    pub fn parse(octets: &[u8]) -> Self {
        Self {
            sink_stag: number(octets, 0, 4) as u32,
            sink_to: number(octets, 4, 8),
            size: number(octets, 12, 4) as u32,
            source_stag: number(octets, 16, 4) as u32,
            source_to: number(octets, 20, 8),
        }
    }

    pub fn octets(&self) -> Vec<u8> {
        let mut octets = self.sink_stag.to_be_bytes().to_vec();
        octets.extend(self.sink_to.to_be_bytes());
        octets.extend(self.size.to_be_bytes());
        octets.extend(self.source_stag.to_be_bytes());
        octets.extend(self.source_to.to_be_bytes());
        octets
    }
}

/// The header of an Atomic Request (RFC 7306 figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// AOpCode: 0 is FetchAdd, 2 is CmpSwap.
    pub code: u8,
    pub identifier: u32,
    pub stag: u32,
    pub to: u64,
    pub data: u64,
    pub mask: u64,
    pub compare: u64,
    pub compare_mask: u64,
}

impl AtomicRequest {
    pub const OCTETS: usize = 52;

    pub fn parse(octets: &[u8]) -> Self {
        Self {
            code: octets[3] & 0x0f,
            identifier: number(octets, 4, 4) as u32,
            stag: number(octets, 8, 4) as u32,
            to: number(octets, 12, 8),
            data: number(octets, 20, 8),
            mask: number(octets, 28, 8),
            compare: number(octets, 36, 8),
            compare_mask: number(octets, 44, 8),
        }
    }

    pub fn octets(&self) -> Vec<u8> {
        let mut octets = vec![0, 0, 0, self.code];
        octets.extend(self.identifier.to_be_bytes());
        octets.extend(self.stag.to_be_bytes());
        for field in [self.to, self.data, self.mask, self.compare, self.compare_mask] {
            octets.extend(field.to_be_bytes());
        }
        octets
    }

    /// The value after the operation, by the pseudocode of RFC 7306 §5.1; `None` for a code that means
    /// nothing.
    pub fn apply(&self, original: u64) -> Option<u64> {
        match self.code {
            0 => Some(self.fetch_add(original)),
            2 if (self.compare ^ original) & self.compare_mask == 0 => {
                Some(original & !self.mask | self.data & self.mask)
            }
            2 => Some(original),
            _ => None,
        }
    }

    fn fetch_add(&self, original: u64) -> u64 {
        let (mut value, mut carry) = (0, 0);
        for bit in 0..64 {
            let sum = carry + (original >> bit & 1) + (self.data >> bit & 1);
            value |= (sum & 1) << bit;
            carry = if self.mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
        }
        value
    }
}

/// The header of an Atomic Response (RFC 7306 figure 6; 12 octets: A-26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    pub identifier: u32,
    pub original: u64,
}

impl AtomicResponse {
    pub const OCTETS: usize = 12;

    pub fn parse(octets: &[u8]) -> Self {
        Self { identifier: number(octets, 0, 4) as u32, original: number(octets, 4, 8) }
    }

    pub fn octets(&self) -> Vec<u8> {
        let mut octets = self.identifier.to_be_bytes().to_vec();
        octets.extend(self.original.to_be_bytes());
        octets
    }
}
