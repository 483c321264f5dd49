//! Two hosts, each a core and its control engine, in virtual time over a network that loses, reorders,
//! duplicates, damages, cuts and joins: MPA startup, timeouts, listeners that come and go, streaming mode,
//! and teardown, all by chance and all repeatable by seed.
//!
//! `WARPLINE_SEEDS` says how many seeds run, `WARPLINE_FIRST_SEED` which is the first.

mod deciding;
mod ending;
mod falling_back;
mod host;
mod initiating;
mod play;
mod records;
mod registering;
mod setup_cost;
mod streaming;
mod thousand;

use std::collections::BTreeMap;

use play::Play;

/// Outcomes that the default seeds must reach: a change of the choices must not leave the simulation without
/// any that matter.
const OUTCOMES: [&str; 43] = [
    "connect: revision 0",
    "connect: revision 1",
    "connect: revision 2",
    "connect: fell back to revision 1",
    "connect: connection refused",
    "connect: the peer did not answer in time",
    "connect: the peer's application rejected the connection without a reason",
    "connect: the peer accepted on terms that cannot be met",
    "connect: startup, the peer closed the connection during MPA startup",
    "connect: startup, not an MPA startup frame",
    "connect: startup, no complete startup frame in time",
    "connect: the connection ended during startup",
    "connect: the device has as many connections as it can",
    "connect: the queue pair has or had a connection",
    "connect: bytes of Private Data",
    "connect: the connection is not in streaming mode",
    "connect: bytes of streaming data wait to be read",
    "accept: version 0",
    "accept: version 1",
    "accept: the answer came too late",
    "accept: startup, the peer closed the connection during MPA startup",
    "accept: the queue pair has or had a connection",
    "accept: the peer takes  RDMA Reads at a time",
    "reject: done",
    "reject: too late",
    "reject to stream: done",
    "peer: the peer closed the connection during MPA startup",
    "peer: bytes follow the startup frame that its PD_Length does not count",
    "peer: not an MPA startup frame",
    "peer: no complete startup frame in time",
    "respond: Request",
    "respond: startup, the peer closed the connection during MPA startup",
    "start: done",
    "refused by quota",
    "queue pair: the protection domain has as many queue pairs as it may",
    "closed: connection aborted by this end",
    "closed: closed by both ends",
    "closed: connection reset by the peer",
    "memory: the protection domain has as many regions and windows as it may",
    "memory: deregistered",
    "path: damaged",
    "path: cut",
    "path: joined",
];

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Everything that was begun ends once, and what it held is free again.
#[test]
fn startups_and_teardowns_end_and_leave_nothing() {
    const DEFAULT_SEEDS: u64 = 300;
    let (first, seeds) = (environment("WARPLINE_FIRST_SEED"), environment("WARPLINE_SEEDS"));
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    let start = first.unwrap_or(0);
    let end = start + seeds.unwrap_or(DEFAULT_SEEDS);
    for seed in start..end {
        println!("seed {seed}");
        for (outcome, count) in Play::run(seed).outcomes {
            *reached.entry(outcome).or_default() += count;
        }
    }
    println!("{reached:#?}");
    if end - start >= DEFAULT_SEEDS {
        for outcome in OUTCOMES {
            assert!(reached.contains_key(outcome), "no seed reached \"{outcome}\": {reached:#?}");
        }
    }
}

/// A run follows from its seed alone.
#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..8 {
        let (first, second) = (Play::run(seed), Play::run(seed));
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
