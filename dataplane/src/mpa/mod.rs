//! Marker PDU Aligned framing (RFC 5044).
//!
//! Everything here is arithmetic over octets. [`fpdu`] frames ULPDUs, and [`builder`] builds the payload of
//! segments from them. [`receiver`] finds and verifies FPDUs in order, [`whole`] those that lie in one piece,
//! [`out_of_order`] those beyond gaps.
//! [`startup`] negotiates what the frames before Full Operation agree on, [`enhanced`] what RFC 6581 adds to
//! them. The stream itself belongs to TCP.

pub mod builder;
pub mod enhanced;
mod error;
pub mod fpdu;
pub mod out_of_order;
pub mod receiver;
pub mod startup;
pub mod whole;

pub use error::MpaError;
pub use fpdu::Framing;
