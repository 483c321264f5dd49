//! The swarm: hosts with applications, control engines and cores, in virtual time over a network with every
//! fault there is. Each seed [draws](draw::Draw) its faults; the oracles are the model of plain memory and
//! the applications of byte streams.
//!
//! What is open is what the documents leave open. Where a connection is cut off, each octet is one that the
//! model had at some time, and each request completes at most once, in order. Everything else is exact: all
//! memory, all completions, errors at both ends, an orderly close of what nothing has disturbed, and nothing
//! left at any host in the end. On clear paths no retransmission timeout comes to pass.
//!
//! Hosts differ in whatever may differ: whether the threads of their cores [sleep](core_thread), how their
//! queue pairs close and what these may send, what their devices can do. Applications also talk in
//! [streaming mode](talks), take memory back that is read, and [ask](reports) about their connections.
//!
//! Beside the outcome, every segment and every FPDU that a host sends is [judged](wire) by what the host has
//! sent and received before, and counters by what was seen. The first seeds send what they [sent](digests)
//! when somebody last looked at a change of it.
//!
//! `WARPLINE_SWARM_SEEDS` sets the number of seeds and `WARPLINE_SWARM_FIRST` the first one: a failed seed is
//! repeated by its number. With `WARPLINE_SWARM_SHOW` it prints its frames and faults.

mod completions;
mod core_thread;
mod counters;
mod digest;
mod digests;
mod draw;
mod ending;
mod flood;
mod forger;
mod host;
#[path = "../../../../dataplane/tests/memory_oracle/mod.rs"]
mod memory_oracle;
mod opening;
mod packets;
#[path = "../../../../dataplane/tests/reference/mpa/mod.rs"]
#[allow(unreachable_pub, reason = "the tests of the data plane use it too")]
mod reference_mpa;
mod reports;
mod router;
mod run;
mod stranger;
#[path = "../../../../dataplane/tests/stream_oracle/mod.rs"]
mod stream_oracle;
mod streams;
mod switch;
mod talks;
mod wire;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use memory_oracle::play::Tally;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect(name))
}

/// Returns true if each frame and fault is to be printed.
fn shows() -> bool {
    std::env::var_os("WARPLINE_SWARM_SHOW").is_some()
}

/// Of so many seeds one runs twice on the same hosts: the same seed gives the same frames at the same times.
/// The others run a second time on hosts of another make, and give the same frames too.
const REPEATED: u64 = 16;

#[test]
fn a_swarm_does_what_the_model_does() {
    let first = from_environment("WARPLINE_SWARM_FIRST", 0);
    let seeds = from_environment("WARPLINE_SWARM_SEEDS", 500);
    let next = AtomicU64::new(first);
    let failures: Mutex<Vec<u64>> = Mutex::default();
    let tally: Mutex<Tally> = Mutex::default();
    let effort: Mutex<counters::Effort> = Mutex::default();
    let counted: Mutex<counters::Counted> = Mutex::default();
    let reports = AtomicU64::new(0);
    let digests: Mutex<digests::Digests> = Mutex::default();
    let take = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            let run = || {
                let done = run::run(seed);
                let again = if seed.is_multiple_of(REPEATED) { run::run(seed) } else { run::run_twin(seed) };
                assert_eq!(again.trace, done.trace, "seed {seed} ran otherwise");
                done
            };
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(done) => {
                    digests.lock().expect("no panic").record(seed, &done);
                    tally.lock().expect("no panic").add(&done.tally);
                    effort.lock().expect("no panic").add(&done.effort);
                    counted.lock().expect("no panic").add(&done.counted);
                    reports.fetch_add(done.reports, Ordering::Relaxed);
                }
                Err(_) => failures.lock().expect("no panic").push(seed),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(take))));
    let mut failures = failures.into_inner().expect("no panic");
    failures.sort_unstable();
    let tally = tally.into_inner().expect("no panic");
    println!("{seeds} seeds from {first}: {tally:?}");
    assert!(
        failures.is_empty(),
        "seeds that failed: {failures:?}; WARPLINE_SWARM_SEEDS=1 WARPLINE_SWARM_FIRST={}",
        failures[0]
    );
    digests.into_inner().expect("no panic").expect_as_before();
    let effort = effort.into_inner().expect("no panic");
    println!("{effort:?}");
    let counted = counted.into_inner().expect("no panic");
    if seeds >= 200 {
        effort.expect_little();
    }
    if seeds >= 500 {
        tally.expect_everything();
        assert!(tally.awaited > 0, "no message has waited for a receive");
        assert!(reports.into_inner() > 1000, "few reports of connections have come");
    }
    if seeds >= 500 && first == 0 {
        counted.expect_everything();
    }
}
