//! Marker PDU Aligned framing (RFC 5044).
//!
//! Everything here is arithmetic over octets: [`fpdu`] frames ULPDUs, [`receiver`] finds and verifies them again, and
//! [`startup`] draws the conclusions of the frames that come before, [`enhanced`] those of what RFC 6581 adds to them.
//! The stream itself belongs to TCP.

pub mod enhanced;
mod error;
pub mod fpdu;
pub mod receiver;
pub mod startup;

pub use error::MpaError;
pub use fpdu::Framing;
