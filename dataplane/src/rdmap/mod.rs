//! The RDMA Protocol (RFC 5040).
