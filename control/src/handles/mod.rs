//! The handles that applications hold: devices, queue pairs, memory, listeners, connections. Each handle
//! sends requests to the control engine of its device and waits for the reply, or works on the rings that it
//! shares with the core.
//!
//! A handle sends a request with a `Reply`, and waits on the channel of that `Reply` or, in the connection
//! manager, leaves a callback. `cm` keeps no thread: the callback runs on the control thread and puts an
//! event on the channel. Neither callbacks nor the queue of events hold a device, so a device ends when its
//! last handle goes. `engine::interface` has everything that both sides see: requests, replies, arrivals at
//! listeners, and two small structures under a lock, `SharedStream` (the octets of a connection in streaming
//! mode) and `ConnectionStatus` (how far the connection of a queue pair is closed).

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
pub mod shared;
pub mod shared_receive_queue;
pub mod tcp_listener;
pub mod tcp_stream;
#[cfg(feature = "dpdk")]
mod vdev;
pub mod window;
