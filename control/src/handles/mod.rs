//! The handles that applications hold: devices, queue pairs, memory, listeners, connections. Each handle
//! sends requests to the control engine of its device and waits for the reply, or works on the rings that it
//! shares with the core.

pub mod batch;
pub mod byte_stream;
pub(crate) mod clock;
pub mod cm;
pub mod completion;
pub mod connection_request;
mod context;
mod control_thread;
mod control_waker;
pub mod device;
pub mod driver;
pub mod event_fd;
#[cfg(all(debug_assertions, not(test)))]
mod instances;
mod interrupt;
pub mod lending;
pub mod link;
pub mod listener;
pub mod memory_region;
#[cfg(feature = "dpdk")]
pub mod open;
pub mod posting;
pub mod protection_domain;
pub mod queue_pair;
mod registered;
pub mod shared_receive_queue;
pub mod tcp_listener;
pub mod tcp_stream;
#[cfg(feature = "dpdk")]
mod vdev;
pub mod window;
