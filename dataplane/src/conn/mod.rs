//! The connection table: which connection a segment belongs to, which peers may open another one, and what a
//! core remembers of connections that are over.
//!
//! Nothing here knows what a connection carries: the [`Table`] holds connections of any type that has a
//! [`FlowKey`](crate::net::flow::FlowKey).

mod backlog_shares;
mod flows;
mod initial_numbers;
mod listen_address;
mod listeners;
mod orphans;
mod ports;
mod recent_flows;
mod syn_cookies;
mod table;
mod time_wait;
mod wheel;

pub use backlog_shares::Stage;
pub use initial_numbers::InitialNumbers;
pub use listen_address::{ListenAddress, Scope};
pub use listeners::{ListenerIndex, Listeners};
pub use orphans::Orphans;
pub use ports::Ports;
pub use syn_cookies::SynCookies;
pub use table::{ConnectionId, Keyed, Table};
pub use time_wait::{Clocks, TimeWaitOutcome, TimeWaitState, TimeWaitTable};
