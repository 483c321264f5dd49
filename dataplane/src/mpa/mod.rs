//! Marker PDU Aligned framing (RFC 5044).

mod error;

pub use error::{FpduError, MpaError};
