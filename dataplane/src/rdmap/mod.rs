//! The RDMA Protocol (RFC 5040).

mod error;
pub mod message;

pub use error::{RdmapError, layer};
