//! Orderly ends on SIGINT and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns a flag that is set by SIGINT and SIGTERM; a second SIGINT ends the process at once.
///
/// # Errors
///
/// Those of the system.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // In this order: the first signal finds the flag clear. Some senders of SIGTERM send it twice
    // (timeout(1)).
    flag::register_conditional_shutdown(SIGINT, 1, interrupted.clone())?;
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}
