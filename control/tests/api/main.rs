//! Tests of the public API: devices, memory, queue pairs and connections, over a link in memory.
//!
//! One binary for all of them: the shared helpers, and the cores below them, are compiled once.

mod addressing;
mod bad_input;
mod byte_streams;
mod cifs_shaped;
mod cm;
#[path = "../common/mod.rs"]
mod common;
mod completion_events;
mod connections;
mod early_messages;
mod enhanced;
mod frames_on_the_wire;
mod lending;
mod memory;
mod nfs_compound;
mod options;
mod posting;
mod quota;
mod resources;
mod revocation;
mod several_cores;
mod shared_receives;
mod startup_faults;
mod stream_memory;
mod streaming;
mod teardown;
mod unconnected;
