//! A host of eight cores does what a host of one does: Writes and Sends over random connections, through loss
//! and reordering, compared with plain memory, while cores are polled in random order and some stall.
//!
//! `WARPLINE_CORES_SEEDS` sets the number of seeds, 48 by default, and `WARPLINE_CORES_FIRST` the first seed:
//! a failed seed is repeated by its number.

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::multicore::Port;
use world::{Tally, World};

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect(name))
}

#[test]
fn eight_cores_do_what_one_does() {
    let first = from_environment("WARPLINE_CORES_FIRST", 0);
    let seeds = from_environment("WARPLINE_CORES_SEEDS", 48);
    let next = AtomicU64::new(first);
    let failures: Mutex<Vec<u64>> = Mutex::default();
    let tally: Mutex<Tally> = Mutex::default();
    let take = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| World::new(seed).run())) {
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
        "seeds that failed: {failures:?}; WARPLINE_CORES_SEEDS=1 WARPLINE_CORES_FIRST={}",
        failures[0]
    );
    if seeds >= 24 {
        tally.expect_everything();
    }
}

/// Where an adapter brings each core its own segments, no message has a core write to a line that another one
/// uses. Where one core receives for all, each burst has.
#[test]
fn cores_with_queues_of_their_own_write_nothing_that_others_use() {
    let (messages, written) = World::undisturbed(Port::Rss, 1).count_shared_writes();
    assert!(messages > 5000, "{messages} messages");
    assert_eq!(written, 0);
    let (messages, written) = World::undisturbed(Port::OneQueue, 1).count_shared_writes();
    println!("one queue: {written} writes to shared lines for {messages} messages");
    assert!(written > messages, "{written} writes for {messages} messages");
}
