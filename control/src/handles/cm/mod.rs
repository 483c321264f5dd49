//! The connection manager in rdma_cm's terms: ids that are resolved, connected, listened on and accepted
//! without waiting, and one channel on which everything that happens to them arrives as an event, in order.
//!
//! Nothing here waits for a peer or a core, so one thread serves any number of connections, listeners and
//! devices: from [`EventChannel::wait`], or with the channel in an epoll set.
//! [`QueuePairControl::connect`](crate::QueuePairControl::connect) and
//! [`Listener::accept`](crate::Listener::accept) do the same for threads that wait.
//!
//! | The end that connects | The end that listens |
//! |---|---|
//! | [`Id::resolve_addr`], [`AddressResolved`](EventKind::AddressResolved) | [`Id::bind_addr`], [`Id::listen`] |
//! | [`Id::resolve_route`], [`RouteResolved`](EventKind::RouteResolved) | |
//! | a queue pair on [`Id::device`], [`Id::connect`] | [`ConnectRequest`](EventKind::ConnectRequest), with an id of its own |
//! | | a queue pair on its [`Id::device`], [`Id::accept`] or [`Id::reject`] |
//! | [`Established`](EventKind::Established), [`Rejected`](EventKind::Rejected), [`Unreachable`](EventKind::Unreachable) or [`ConnectError`](EventKind::ConnectError) | [`Established`](EventKind::Established) or [`ConnectError`](EventKind::ConnectError) |
//! | [`Id::disconnect`], [`Disconnected`](EventKind::Disconnected), [`TimewaitExit`](EventKind::TimewaitExit) | the same |

mod channel;
mod id;
mod listening;

pub use channel::{Event, EventChannel, EventKind, IdNumber};
pub use id::{CmError, Id};
