//! The interface between handles and the engine: requests and their replies, the peers that a listener is
//! offered, and the state that both see of a connection.

pub(crate) mod connection_status;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod shared_stream;
pub(crate) mod sleeper;
