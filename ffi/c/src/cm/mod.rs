//! The connection manager in rdma_cm's terms: ids that are resolved, connected, listened on and accepted
//! without waiting, and a channel on which everything that happens to them arrives as an event, in order.

pub mod channel;
pub mod id;
