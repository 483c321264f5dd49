//! The numbers that name completion queues and shared receive queues in asynchronous events.

/// Identifies a completion queue of the process in asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqNumber(pub u32);

/// Identifies a shared receive queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqNumber(pub u32);
