//! A core for a million connections takes address space, and hardly any memory until there are connections.
//! The only test of its process: others would use memory meanwhile.

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, PollLoop};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::sim::{self, EndConfig, SimFrame};
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::ring::Rings;

/// Most bytes that a core may touch for each connection that it has room for: bits of doorbells, and octets
/// that say which places of a hash table are free.
const TOUCHED_BYTES: usize = 4;

/// Returns the bytes of memory that the process has.
fn resident_bytes() -> usize {
    let fields = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = fields.split_whitespace().nth(1).expect("it has a second field").parse().unwrap();
    pages * 4096
}

/// Returns the bytes of memory that a core with room for `connections` takes when it is created.
fn bytes_of_core(connections: usize) -> (usize, Box<dyn PollLoop>) {
    let (device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
    let tables =
        Tables { connections, queue_pairs: connections, time_waits: 16 * connections, ..Tables::default() };
    assert!(tables.bytes() > 2000 * connections);
    let rings = Rings::with(Doorbells::new(connections).with_byte_streams(connections));
    let before = resident_bytes();
    let setup = CoreSetup::new(Config::new([198, 18, 0, 1].into(), 24, [3, 4]), rings).with_tables(tables);
    let core = SimFrame::poll_loop(boxed(device), setup);
    (resident_bytes().saturating_sub(before), core)
}

#[test]
fn a_large_capacity_costs_nothing_until_it_is_used() {
    const CONNECTIONS: usize = 1_000_000;
    // The first core brings what is the same for all.
    let (_, small) = bytes_of_core(1000);
    let (few, other) = bytes_of_core(1000);
    let (many, large) = bytes_of_core(CONNECTIONS);
    println!("{few} bytes for 1,000 connections, {many} for a million");
    assert!(many < few + TOUCHED_BYTES * CONNECTIONS, "{many} bytes, {few} with few connections");
    drop((small, other, large));
}
