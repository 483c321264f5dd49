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

pub(crate) mod batch;
pub(crate) mod byte_stream;
pub(crate) mod clock;
pub mod cm;
pub(crate) mod completion;
pub(crate) mod connection_request;
mod context;
pub(crate) mod control_driver;
mod control_loop;
mod control_thread;
mod control_waker;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod event_fd;
mod interrupt;
pub(crate) mod lending;
pub mod link;
pub(crate) mod listener;
pub(crate) mod memory_region;
pub mod open;
pub(crate) mod posting;
pub(crate) mod protection_domain;
pub(crate) mod queue_pair;
mod registered;
pub(crate) mod shared;
mod shared_driver;
pub(crate) mod shared_receive_queue;
mod shared_thread;
mod start;
pub(crate) mod tcp_listener;
pub(crate) mod tcp_stream;
pub(crate) mod turns;
#[cfg(feature = "dpdk")]
mod vdev;
mod wake_sources;
pub(crate) mod window;
