//! Orderly ends: on SIGINT and SIGTERM, and when what a command writes to fails. Every command looks whether
//! it is to end, stops, and reports what it has measured.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, panic, thread};

use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::error::CommandError;
use crate::output::note;

/// How long a command may take to end before the signal ends it as it would any program.
const GRACE: Duration = Duration::from_secs(10);
/// The exit status of a Rust program that has panicked.
const PANICKED: i32 = 101;

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// The first signal that came; 0 if none did.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// What else than a signal ends the command.
static CAUSE: Mutex<Option<CommandError>> = Mutex::new(None);

/// Has SIGINT and SIGTERM end the command in an orderly way. A second SIGINT ends it at once.
///
/// # Errors
///
/// Those of the system.
pub fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watching = thread::Builder::new().name("signals".into());
    watching.spawn(move || {
        for signal in signals.forever() {
            on_signal(signal);
        }
    })?;
    Ok(())
}

fn on_signal(signal: i32) {
    REQUESTED.store(true, Ordering::Relaxed);
    if SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        // Some senders of SIGTERM send it twice (timeout(1)).
        if signal == SIGINT {
            end_by(SIGINT);
        }
        return;
    }
    thread::spawn(move || {
        thread::sleep(GRACE);
        end_by(signal);
    });
}

/// Ends the process as `signal` ends one that does nothing about it.
fn end_by(signal: i32) {
    let _ = low_level::emulate_default_handler(signal);
    low_level::exit(128 + signal);
}

/// Returns true if the command is to end with what it has.
#[inline]
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Returns true while less than `duration` has passed since `start`, and the command is not to end.
#[inline]
pub fn goes_on(start: Instant, duration: Duration) -> bool {
    start.elapsed() < duration && !is_requested()
}

/// The flag that [`is_requested`] reads.
pub const fn flag() -> &'static AtomicBool {
    &REQUESTED
}

/// Has the command end with what it has, because of `error`. The first error counts.
pub fn end_because(error: CommandError) {
    CAUSE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Returns `result`, or the error that has had the command end.
///
/// # Errors
///
/// That of [`end_because`], else that of `result`.
pub fn outcome<E: From<CommandError>>(result: Result<(), E>) -> Result<(), E> {
    let cause = CAUSE.lock().unwrap_or_else(PoisonError::into_inner).take();
    cause.map_or(result, |cause| Err(cause.into()))
}

/// Ends `program` by a signal if `error` calls for it: by the one that came before anything was measured, or
/// by SIGPIPE for a closed pipe. Returns otherwise.
pub fn end_for(program: &str, error: &CommandError) {
    match error {
        CommandError::ClosedPipe => end_by(SIGPIPE),
        CommandError::Interrupted => {
            note!("{program}: {error}");
            end_by(SIGNAL.load(Ordering::Relaxed));
        }
        _ => {}
    }
}

/// Has a panic of any thread end the process, after its message: the others would wait for that thread, or
/// poll for ever.
pub fn end_on_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        low_level::exit(PANICKED);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The variable that has the test below be the process that panics.
    const PANICS: &str = "WARPLINE_TEST_PANICS";

    /// This test runs itself in a process of its own, which waits for a thread that it never hears of again.
    #[test]
    fn a_panic_of_any_thread_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            end_on_panics();
            thread::spawn(|| panic!("on purpose"));
            loop {
                thread::park();
            }
        }
        let test = "interrupt::tests::a_panic_of_any_thread_ends_the_process";
        let this = std::env::current_exe().unwrap();
        let output = Command::new(this).args([test, "--exact", "--nocapture"]).env(PANICS, "1").output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(PANICKED), "{errors}");
        assert!(errors.contains("on purpose"), "{errors}");
    }
}
