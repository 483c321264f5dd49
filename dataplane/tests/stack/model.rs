//! Random work on several queue pairs, run on the stack over a network that loses, reorders, repeats,
//! damages, cuts and joins, and on a model of plain memory: the same octets in all memory, the same
//! completions in the same order on every queue. The model is written from RFC 5040, RFC 5041 and RFC 7306.
//! It carries out requests in the order that all three documents fix; where they leave a choice, requests
//! wait or are fenced.
//!
//! The grants of an end change meanwhile: windows are bound and memory is registered again, and both ends
//! invalidate. The model cannot determine when a name may be reused for other memory after the peer has read
//! by it: the stack releases the old memory when TCP has the acknowledgement of the last Response, which the
//! test cannot observe. So such a name stays unused until the peer has sent a message after its Reads were
//! complete.
//!
//! Nor can the model determine which receive of a shared queue a message uses: that depends on which queue
//! pair receives its message first. Every receive fits any message, and the model checks the completion: its
//! receive is posted and not used before, in the order of posting on each queue pair, and no older receive is
//! skipped unless a message of another queue pair that is still in flight holds it.
//!
//! `WARPLINE_MODEL_SEEDS` sets the number of seeds, 2000 by default, and `WARPLINE_MODEL_FIRST` the first
//! seed: a failed seed is repeated by its number.

mod endings;
mod faults;
mod grants;
mod half;
mod hazards;
mod memory;
mod opening;
pub mod play;
mod pool;
mod receives;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use play::{Play, Tally};

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
                    Play::new(seed).run_to_completion().run();
                }
                Play::new(seed).run()
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
