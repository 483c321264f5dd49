//! The errors of the RDMAP layer and their place in a Terminate message (RFC 5040 §4.8).

use thiserror::Error;

/// The Layer field of a Terminate message: the layer that found the error.
pub mod layer {
    /// RDMAP itself; the numbers are those of [`RdmapError`](super::RdmapError).
    pub const RDMAP: u8 = 0;
    /// DDP; the numbers are those of RFC 5041 §7.2.
    pub const DDP: u8 = 1;
    /// The lower layer, MPA: type 0 and the codes of RFC 5044 §8 and RFC 6581 §8.
    pub const LLP: u8 = 2;
}

/// An error of the RDMAP layer, in the order of the numbers.
// Requirements: RDMAP-4.8-03
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum RdmapError {
    /// An error of the sender of the Terminate, without a code.
    #[error("local catastrophic error")]
    LocalCatastrophic,
    /// Protection: no such STag.
    #[error("invalid STag")]
    InvalidStag,
    /// Protection: the range is not inside the buffer.
    #[error("base or bounds violation")]
    BaseOrBounds,
    /// Protection: the STag does not grant this access.
    #[error("access rights violation")]
    AccessRights,
    /// Protection: the STag is not for this stream.
    #[error("STag not associated with RDMAP stream")]
    NotAssociated,
    /// Protection: Tagged Offset plus length reaches 2^64.
    #[error("TO wrap")]
    ToWrap,
    /// Protection: the STag named by an invalidating Send cannot be invalidated. The table has two numbers
    /// for this; this one is sent (ambiguity A-17).
    #[error("STag cannot be invalidated")]
    CannotInvalidate,
    /// Protection: anything else.
    #[error("unspecified protection error")]
    UnspecifiedProtection,
    /// Operation: not the version of this stream.
    #[error("invalid RDMAP version")]
    InvalidVersion,
    /// Operation: an opcode that does not exist, or is not valid in this place.
    #[error("unexpected opcode")]
    UnexpectedOpcode,
    /// Operation: this stream cannot go on.
    #[error("catastrophic error of the stream")]
    CatastrophicStream,
    /// Operation: no stream can go on.
    #[error("catastrophic error of all streams")]
    CatastrophicGlobal,
    /// Operation: the second number for [`CannotInvalidate`](Self::CannotInvalidate); received, never sent.
    #[error("STag cannot be invalidated (operation)")]
    CannotInvalidateOperation,
    /// Operation: anything else.
    #[error("unspecified operation error")]
    UnspecifiedOperation,
}

impl RdmapError {
    const ALL: [Self; 14] = [
        Self::LocalCatastrophic,
        Self::InvalidStag,
        Self::BaseOrBounds,
        Self::AccessRights,
        Self::NotAssociated,
        Self::ToWrap,
        Self::CannotInvalidate,
        Self::UnspecifiedProtection,
        Self::InvalidVersion,
        Self::UnexpectedOpcode,
        Self::CatastrophicStream,
        Self::CatastrophicGlobal,
        Self::CannotInvalidateOperation,
        Self::UnspecifiedOperation,
    ];

    const fn number(self) -> (u8, u8) {
        match self {
            Self::LocalCatastrophic => (0x0, 0x00),
            Self::InvalidStag => (0x1, 0x00),
            Self::BaseOrBounds => (0x1, 0x01),
            Self::AccessRights => (0x1, 0x02),
            Self::NotAssociated => (0x1, 0x03),
            Self::ToWrap => (0x1, 0x04),
            Self::CannotInvalidate => (0x1, 0x09),
            Self::UnspecifiedProtection => (0x1, 0xff),
            Self::InvalidVersion => (0x2, 0x05),
            Self::UnexpectedOpcode => (0x2, 0x06),
            Self::CatastrophicStream => (0x2, 0x07),
            Self::CatastrophicGlobal => (0x2, 0x08),
            Self::CannotInvalidateOperation => (0x2, 0x09),
            Self::UnspecifiedOperation => (0x2, 0xff),
        }
    }

    /// The Error Type: 0 local catastrophic, 1 remote protection, 2 remote operation.
    pub const fn error_type(self) -> u8 {
        self.number().0
    }

    /// The Error Code.
    pub const fn code(self) -> u8 {
        self.number().1
    }

    /// The error that a Terminate of the RDMAP layer names; `None` for numbers that the table does not have.
    /// The type of local catastrophic errors takes any code.
    pub fn from_number(error_type: u8, code: u8) -> Option<Self> {
        if error_type == Self::LocalCatastrophic.error_type() {
            return Some(Self::LocalCatastrophic);
        }
        Self::ALL.into_iter().find(|error| error.number() == (error_type, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMAP-4.8-03: the numbers of the document's table.
    #[test]
    fn numbers_are_those_of_the_table() {
        let protection = [0x00, 0x01, 0x02, 0x03, 0x04, 0x09, 0xff];
        let operation = [0x05, 0x06, 0x07, 0x08, 0x09, 0xff];
        for code in 0..=u8::MAX {
            assert_eq!(RdmapError::from_number(0, code), Some(RdmapError::LocalCatastrophic));
            for (error_type, codes) in [(1, &protection[..]), (2, &operation[..]), (3, &[])] {
                let error = RdmapError::from_number(error_type, code);
                assert_eq!(error.is_some(), codes.contains(&code), "{error_type}/{code:#04x}");
                if let Some(error) = error {
                    assert_eq!((error.error_type(), error.code()), (error_type, code));
                }
            }
        }
        assert_eq!(RdmapError::from_number(1, 0x02), Some(RdmapError::AccessRights));
        assert_eq!(RdmapError::from_number(1, 0x03), Some(RdmapError::NotAssociated));
        assert_eq!(RdmapError::from_number(2, 0x05), Some(RdmapError::InvalidVersion));
        assert_eq!(RdmapError::from_number(2, 0x06), Some(RdmapError::UnexpectedOpcode));
    }
}
