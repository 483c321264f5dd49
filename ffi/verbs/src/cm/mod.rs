//! librdmacm: its functions, on warpline's connection manager.

pub(crate) mod addrinfo;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod queues;
pub(crate) mod sockaddr;
pub(crate) mod unsupported;
