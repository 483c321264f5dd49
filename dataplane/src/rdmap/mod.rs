//! The RDMA Protocol (RFC 5040).

mod error;

pub use error::{RdmapError, layer};
