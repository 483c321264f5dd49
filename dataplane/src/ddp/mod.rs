//! Direct Data Placement (RFC 5041).

mod error;
pub mod segmentation;

pub use error::DdpError;
