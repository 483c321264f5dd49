//! The errors of DDP and their numbers (RFC 5041 §7.2).

use thiserror::Error;

/// An error in a segment, in the order of the numbers.
// Requirements: DDP-7.2-01
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum DdpError {
    /// An error of this end, not of the peer; also a segment shorter than its header (ambiguity A-06).
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// Tagged: no such STag.
    #[error("invalid STag")]
    InvalidStag,
    /// Tagged: the range is not inside the buffer.
    #[error("base or bounds violation")]
    BaseOrBounds,
    /// Tagged: the STag is not for this stream.
    #[error("STag not associated with DDP stream")]
    NotAssociated,
    /// Tagged: Tagged Offset plus length reaches 2^64.
    #[error("TO wrap")]
    ToWrap,
    /// Tagged: not the version of this stream.
    #[error("invalid DDP version in a Tagged segment")]
    TaggedVersion,
    /// Tagged: the STag does not grant the access. The table has no number for it, so it is sent with that of
    /// [`InvalidStag`](Self::InvalidStag) (ambiguity A-31).
    #[error("invalid STag: it does not grant this access")]
    AccessRights,
    /// Untagged: no such queue.
    #[error("invalid QN")]
    InvalidQueue,
    /// Untagged: the MSN is in range, but no buffer is posted for it.
    #[error("invalid MSN: no buffer available")]
    NoBuffer,
    /// Untagged: the MSN is not in range.
    #[error("invalid MSN: out of range")]
    MsnRange,
    /// Untagged: the offset lies beyond the buffer.
    #[error("invalid MO")]
    InvalidOffset,
    /// Untagged: the payload does not fit the buffer.
    #[error("DDP message too long for the buffer")]
    TooLong,
    /// Untagged: not the version of this stream.
    #[error("invalid DDP version in an Untagged segment")]
    UntaggedVersion,
}

impl DdpError {
    const fn number(self) -> (u8, u8) {
        match self {
            Self::LocalCatastrophic => (0x0, 0x00),
            Self::InvalidStag | Self::AccessRights => (0x1, 0x00),
            Self::BaseOrBounds => (0x1, 0x01),
            Self::NotAssociated => (0x1, 0x02),
            Self::ToWrap => (0x1, 0x03),
            Self::TaggedVersion => (0x1, 0x04),
            Self::InvalidQueue => (0x2, 0x01),
            Self::NoBuffer => (0x2, 0x02),
            Self::MsnRange => (0x2, 0x03),
            Self::InvalidOffset => (0x2, 0x04),
            Self::TooLong => (0x2, 0x05),
            Self::UntaggedVersion => (0x2, 0x06),
        }
    }

    /// The errors that a peer can report: [`AccessRights`](Self::AccessRights) has the number of an invalid
    /// STag.
    const ALL: [Self; 12] = [
        Self::LocalCatastrophic,
        Self::InvalidStag,
        Self::BaseOrBounds,
        Self::NotAssociated,
        Self::ToWrap,
        Self::TaggedVersion,
        Self::InvalidQueue,
        Self::NoBuffer,
        Self::MsnRange,
        Self::InvalidOffset,
        Self::TooLong,
        Self::UntaggedVersion,
    ];

    /// The error that a Terminate of the DDP layer names; `None` for numbers that the table does not have.
    /// The type of local catastrophic errors takes any code.
    pub fn from_number(error_type: u8, code: u8) -> Option<Self> {
        if error_type == Self::LocalCatastrophic.error_type() {
            return Some(Self::LocalCatastrophic);
        }
        Self::ALL.into_iter().find(|error| error.number() == (error_type, code))
    }

    /// The Error Type: 0 local catastrophic, 1 Tagged, 2 Untagged. Type 3 belongs to the layer below.
    pub const fn error_type(self) -> u8 {
        self.number().0
    }

    /// The Error Code.
    pub const fn code(self) -> u8 {
        self.number().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DDP-7.2-01: the numbers of the document's table.
    #[test]
    fn numbers_are_those_of_the_table() {
        let table = [
            (DdpError::LocalCatastrophic, 0, 0x00),
            (DdpError::InvalidStag, 1, 0x00),
            (DdpError::BaseOrBounds, 1, 0x01),
            (DdpError::NotAssociated, 1, 0x02),
            (DdpError::ToWrap, 1, 0x03),
            (DdpError::TaggedVersion, 1, 0x04),
            (DdpError::InvalidQueue, 2, 0x01),
            (DdpError::NoBuffer, 2, 0x02),
            (DdpError::MsnRange, 2, 0x03),
            (DdpError::InvalidOffset, 2, 0x04),
            (DdpError::TooLong, 2, 0x05),
            (DdpError::UntaggedVersion, 2, 0x06),
        ];
        for (error, error_type, code) in table {
            assert_eq!((error.error_type(), error.code()), (error_type, code), "{error}");
            assert_eq!(DdpError::from_number(error_type, code), Some(error));
        }
        let rights = DdpError::AccessRights;
        assert_eq!((rights.error_type(), rights.code()), (1, 0x00), "A-31");
        for (error_type, code) in [(1, 5), (2, 0), (2, 7), (3, 0)] {
            assert_eq!(DdpError::from_number(error_type, code), None);
        }
    }
}
