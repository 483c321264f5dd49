//! Tests of the stack as a whole, in one process and in virtual time: against frames written by hand, against
//! itself over links that lose, and against models.
//!
//! One binary for all of them: the shared helpers, and the cores they drive, are compiled once.

mod addressing;
mod against_reference;
mod alignment;
mod arriving_bursts;
mod behaviour;
mod bounded_polls;
mod byte_streams;
mod challenges;
mod changing_memory;
mod closing;
mod common;
mod cores;
mod descriptors;
mod device_wrappers;
mod drop_order;
mod enhanced;
mod errors;
mod fairness;
mod framing;
mod full_device;
mod giving_up;
mod held_frames;
mod idle_polls;
mod ipv6;
mod many_connections;
mod matrix;
#[path = "../memory_oracle/mod.rs"]
mod memory_oracle;
mod memory_per_connection;
mod message_numbers;
mod model;
mod mpa_model;
mod neighbours;
mod no_allocation;
mod operations;
mod packet_scripts;
mod packing;
mod path_mtu;
mod peer_shares;
mod placement;
mod queue_pair_binding;
mod rate_limit;
mod rdma_option;
mod reassembly;
mod receiver_not_ready;
#[path = "../reference/mod.rs"]
mod reference;
mod replicas;
mod run_to_completion;
mod sack_work;
mod shared_addresses;
mod sources;
mod stalls;
#[path = "../stream_oracle/mod.rs"]
mod stream_oracle;
mod stream_order;
mod streaming;
mod super_frames;
mod syn_flood;
mod tagged_deliveries;
mod tcp_exchanges;
mod time_wait;
mod transfer;
mod two_domains;
mod unreachable;
mod vectors;
mod wire_digests;
