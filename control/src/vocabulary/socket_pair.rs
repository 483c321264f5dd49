//! The addresses and ports of both ends of a connection.

use std::net::SocketAddr;

/// The addresses and ports of a TCP connection (RFC 9293 §4, "socket pair"), as this end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketPair {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}
