//! The connection table: which connection a segment belongs to, which peers may open another one, and what a
//! core remembers of connections that are over.
//!
//! Nothing here knows what a connection carries: the [`Table`] holds connections of any type that has a
//! [`FlowKey`](crate::net::flow::FlowKey).
//!
//! Connections live in slots, found by their addresses and ports in a table that holds slot numbers only,
//! hashed under a secret key. A connection names its queue pair by number. The queue pair names its
//! connection by slot and generation, a name that is never used again, so an old connection never reaches a
//! queue pair that got the number later. An idle connection costs less than a kibibyte of all tables
//! together; a test counts. A connection in TIME-WAIT moves to a table of its own, which keeps only the state
//! that answers old segments. It ends for a SYN that is certainly new, or for an active open whose clock
//! has ticked since.
//!
//! A listener has a port and an address: one of the core's, `0.0.0.0` for those of IPv4, or all. A SYN
//! belongs to the listener that names its destination most exactly, and the connection counts in that one's
//! backlog until it is in Full Operation. Where listeners overlap, control refuses the second as sockets do,
//! unless both share the port (`reuse_address`).
//!
//! A SYN gets a connection while its port's backlog and the core's have room; beyond that it gets a cookie,
//! and the connection is made when the cookie comes back. A peer has a share of a backlog: an address holds
//! no more places than it leaves free, an IPv6 network of 64 bits no more than four times as many. Handshakes
//! beyond it get cookies, open connections beyond it no answer, and what waits for the application's decision
//! is rejected after a deadline. What strangers can cause is bounded: RSTs, echo replies and challenge
//! acknowledgements per second, the latter per connection too, by limits that are drawn anew each second so
//! that no sender can infer others' replies from its own (`rate_limit.rs`). Initial sequence numbers,
//! timestamps, local ports and flow labels come from keyed hashes, each under a key of its own; the
//! identification of IPv4 packets is 0, since none is ever fragmented (RFC 6864). Fragments are put together
//! in a few buffers per core; an overlap drops the datagram. Neighbours are learnt by ARP and Neighbor
//! Discovery in one cache, only from those that were asked or that ask for us.

mod backlog_shares;
mod flow_index;
mod flows;
mod initial_numbers;
mod left_ports;
mod listen_address;
mod listeners;
mod orphans;
mod ports;
mod schedule;
mod syn_cookies;
mod table;
mod time_wait;
mod wheel;

pub(crate) use backlog_shares::Stage;
pub(crate) use initial_numbers::InitialNumbers;
pub(crate) use left_ports::{HeldSyn, LeftPorts};
pub use listen_address::{ListenAddress, Scope};
pub(crate) use listeners::{ListenerIndex, Listeners};
pub(crate) use orphans::Orphans;
pub(crate) use ports::Ports;
pub(crate) use schedule::{Allowance, Served};
pub(crate) use syn_cookies::SynCookies;
pub use table::ConnectionId;
pub(crate) use table::{Keyed, Table};
pub(crate) use time_wait::{Clocks, TimeWaitOutcome, TimeWaitState, TimeWaitTable};
