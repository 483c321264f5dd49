//! The addresses and ports of both ends of a connection.

use std::net::SocketAddr;

/// What names a TCP connection (RFC 9293 §4, "socket pair"), as this end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketPair {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}
