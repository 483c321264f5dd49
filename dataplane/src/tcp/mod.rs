//! A TCP that keeps the boundaries of FPDUs (RFC 9293, with selective acknowledgement, RACK-TLP, timestamps,
//! ECN and a choice of congestion controls).
//!
//! A [`Connection`] copies no octets. It keeps descriptors of data to send ([`send_queue`]), and received
//! data in the frames it came in ([`receive_queue`]). It reads no clock and sends nothing by itself: segments
//! come in through [`Connection::on_segment`], time through [`Connection::on_timer`], and
//! [`Connection::poll_transmit`] returns the segments to send.

mod ack_state;
mod acknowledgement;
mod activity;
mod arrivals;
mod challenge;
mod config;
pub mod congestion;
mod connection;
mod counters;
mod disposition;
mod ecn;
mod frto;
mod handshake;
mod input;
mod losses;
mod outgoing;
mod output;
mod pacing;
mod path_mss;
mod path_mtu;
mod plain_ack;
mod pools;
mod prediction;
mod probe;
mod probing;
mod prr;
mod rack;
mod rdma_option;
pub mod receive_queue;
mod receive_state;
mod recovery;
pub mod rtt;
mod sack_blocks;
pub mod scan_budget;
pub mod send_queue;
mod send_state;
mod snapshot;
mod state;
mod syn;
mod timeouts;
mod timers;
mod timestamps;
mod train;

pub use arrivals::Arrivals;
pub use config::{Behaviour, Config, Keepalive, PeerTimeouts};
pub use connection::Connection;
pub use counters::Counters;
pub use disposition::{Changes, Disposition, Refusal};
pub use ecn::{EcnField, EcnPolicy};
pub use input::Payload;
pub use outgoing::Outgoing;
pub use pools::Pools;
pub use snapshot::Snapshot;
pub use state::{CloseReason, State};
pub use train::Train;
