//! The functions of libibverbs and librdmacm under arbitrary calls: in any order, with handles that are null,
//! of another kind or no handles at all, structures with any numbers in them, and lists of work requests of
//! which any may be bad. What would be the program's fault is left out: handles of what was destroyed,
//! pointers to memory that is not there, events that are never acknowledged.
//!
//! [`run`] takes one input; libFuzzer drives it from `fuzz/`, the tests replay seeds and regressions. Each
//! run begins with two connected queue pairs of a device in memory, so that work requests are executed. What
//! must hold:
//!
//! - Every signaled request, and every receive of a queue pair's own, completes or is flushed, in order;
//!   nothing completes that was not posted, or twice.
//! - What is used is not destroyed (`EBUSY`), and everything is destroyed in the end.
//! - Octets around registered memory do not change, nor does memory that nobody has the right to write, nor
//!   what was deregistered.

mod built;
mod connections;
mod program;
mod structures;
mod world;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Once;

#[allow(dead_code, reason = "it reads more than this needs")]
#[path = "../../../../fuzz/harness/receive/input.rs"]
mod input;

use input::Input;
use world::World;

/// What a run has come to, for tests that check the coverage of inputs.
#[derive(Debug, Default)]
pub struct Reached {
    /// Calls by name and by what they returned: 0, or a number of errno(3).
    pub calls: BTreeMap<(&'static str, c_int), usize>,
    /// Completions polled, by status.
    pub completions: BTreeMap<u32, usize>,
    /// Successful completions, by operation.
    pub operations: BTreeMap<u32, usize>,
}

impl Reached {
    /// Adds what another run has come to.
    pub fn add(&mut self, other: Self) {
        for (call, count) in other.calls {
            *self.calls.entry(call).or_default() += count;
        }
        for (status, count) in other.completions {
            *self.completions.entry(status).or_default() += count;
        }
        for (operation, count) in other.operations {
            *self.operations.entry(operation).or_default() += count;
        }
    }
}

/// Runs one input: as many calls as it has.
pub fn run(octets: &[u8]) -> Reached {
    static DEVICE: Once = Once::new();
    DEVICE.call_once(warpline_verbs::testing::use_device_in_memory);
    let mut input = Input::new(octets);
    let mut world = World::new();
    connections::connect(&mut world, None);
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        program::call(&mut world, &mut input);
    }
    world.finish()
}
