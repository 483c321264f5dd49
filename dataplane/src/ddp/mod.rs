//! Direct Data Placement (RFC 5041).

mod error;

pub use error::DdpError;
