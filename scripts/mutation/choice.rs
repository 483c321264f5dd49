//! Which mutant this run is: the one that WARPLINE_MUTANT numbers.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static CHOSEN: OnceLock<u32> = OnceLock::new();
static REACHED: AtomicBool = AtomicBool::new(false);

/// Returns true if this run is that mutant. What the compiler evaluates is none.
#[inline]
pub(crate) const fn is_chosen(number: u32) -> bool {
    core::intrinsics::const_eval_select((number,), never, in_run)
}

const fn never(_: u32) -> bool {
    false
}

fn in_run(number: u32) -> bool {
    let chosen = *CHOSEN.get_or_init(|| {
        std::env::var("WARPLINE_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
    });
    if chosen != number {
        return false;
    }
    if !REACHED.swap(true, Ordering::Relaxed) {
        // The macros would write to what the test harness keeps.
        let _ = std::io::stderr().write_all(b"the mutant is reached\n");
    }
    true
}
