//! Random work on several queue pairs, run on the stack over a network that loses, reorders and repeats, and
//! on a model of plain memory: the same octets in all memory, the same completions in the same order on every
//! queue. The model is written from RFC 5040, RFC 5041 and RFC 7306; the order it gives to what is posted is
//! the one that all three leave no choice about, and where they leave one, work waits or is fenced.
//!
//! What an end opens to its peer changes meanwhile: windows are bound and memory is registered anew, both
//! ends invalidate. What the model cannot say is when a name may be given to other memory after the peer has
//! read by it: the stack lets go of the old memory when TCP has the acknowledgement of the last Response,
//! which nobody sees. So such a name is left alone until the peer has sent something after its Reads were
//! complete.
//!
//! Nor can it say which receive of a shared queue a message takes: that hangs on which queue pair hears of
//! its message first. All of them take any message, and what the completion names is judged: posted and not
//! used before, on each queue pair in the order of posting, and none left out but for a message of another
//! that is still on its way.
//!
//! `WARPLINE_MODEL_SEEDS` says how many seeds are played, 2000 unless it is set, and `WARPLINE_MODEL_FIRST`
//! which is the first: a seed that failed is had again by its number.

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
            match catch_unwind(AssertUnwindSafe(|| Play::new(seed).run())) {
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
