//! The stack does what the model of plain memory does, on two cores and a network that loses, reorders,
//! repeats, damages, cuts and joins.
//!
//! `WARPLINE_MODEL_SEEDS` sets the number of seeds, 2000 by default, and `WARPLINE_MODEL_FIRST` the first
//! seed: a failed seed is repeated by its number.

pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory_oracle::play::Tally;
use world::Pair;

/// Of so many seeds one runs as in programs that run to completion, too.
const RUN_TO_COMPLETION: u64 = 4;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect(name))
}

// Requirements: RDMAP-3.2-01, RDMAP-5.1-04, RDMAP-5.1-05, RDMAP-5.3-05, RDMAP-5.5-06, DDP-5.3-02
#[test]
fn the_stack_does_what_the_model_does() {
    let first = from_environment("WARPLINE_MODEL_FIRST", 0);
    let seeds = from_environment("WARPLINE_MODEL_SEEDS", 2000);
    let next = AtomicU64::new(first);
    let failures: Mutex<Vec<u64>> = Mutex::default();
    let tally: Mutex<Tally> = Mutex::default();
    let take = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            let run = || {
                // Some seeds run a second time, with each core sending before it receives.
                if seed.is_multiple_of(RUN_TO_COMPLETION) {
                    Pair::new(seed).run_to_completion().run();
                }
                Pair::new(seed).run()
            };
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(done) => tally.lock().unwrap().add(&done),
                Err(_) => failures.lock().unwrap().push(seed),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(take))));
    let mut failures = failures.into_inner().unwrap();
    failures.sort_unstable();
    let tally = tally.into_inner().unwrap();
    println!("{seeds} seeds from {first}: {tally:?}");
    assert!(
        failures.is_empty(),
        "seeds that failed: {failures:?}; WARPLINE_MODEL_SEEDS=1 WARPLINE_MODEL_FIRST={}",
        failures[0]
    );
    if seeds >= 100 {
        tally.expect_everything();
    }
}
