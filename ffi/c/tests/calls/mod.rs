//! The C API under arbitrary calls: in any order that the header allows, with handles that are null, of
//! another device or given back in any order, null pointers, structures of every size, and numbers without a
//! meaning.
//!
//! [`run`] takes one input; libFuzzer drives it from `fuzz/`, the tests replay seeds and regressions. Memory
//! that a call may read or write is of exactly the size that it is told, so that AddressSanitizer sees what
//! is one byte beyond. No call may panic, which it would report as `-ENOTRECOVERABLE`, and each that fails
//! must say why.

mod program;
mod questions;
mod structures;
mod world;

use std::collections::BTreeMap;
use std::ffi::c_int;

#[allow(dead_code, reason = "it reads more than this needs")]
#[path = "../../../../fuzz/harness/receive/input.rs"]
mod input;

use input::Input;
use world::World;

/// What a run has come to, for tests that check the coverage of inputs.
#[derive(Debug, Default)]
pub struct Reached {
    /// Calls by what they returned: 0 for all that is not negative.
    pub results: BTreeMap<c_int, usize>,
    /// Calls by family, those that succeeded.
    pub successes: BTreeMap<&'static str, usize>,
    /// Completions polled, by status.
    pub completions: BTreeMap<u32, usize>,
}

impl Reached {
    /// Adds what another run has come to.
    pub fn add(&mut self, other: Self) {
        for (result, count) in other.results {
            *self.results.entry(result).or_default() += count;
        }
        for (family, count) in other.successes {
            *self.successes.entry(family).or_default() += count;
        }
        for (status, count) in other.completions {
            *self.completions.entry(status).or_default() += count;
        }
    }
}

/// Runs one input: two devices with a link in memory between them, and as many calls as the input has.
pub fn run(octets: &[u8]) -> Reached {
    let mut input = Input::new(octets);
    let mut world = World::new();
    // A call may wait for milliseconds.
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        program::call(&mut world, &mut input);
    }
    world.reached()
}
