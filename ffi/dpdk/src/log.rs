//! DPDK's log, and what its libraries print beside it: kept for the errors of this crate, unless a program
//! wants it on standard error.

use core::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

use dpdk_sys as sys;

use crate::streams::{self, Diversion};

/// The most lines of the log that an error has.
const LINES: usize = 3;
/// The most characters of one.
const CHARACTERS: usize = 200;

/// The end of a pipe at which DPDK's lines arrive. A pipe has a bound: what nobody reads is lost once it is
/// full.
static KEPT: OnceLock<File> = OnceLock::new();

/// Lines of DPDK's log, which say why something failed. Displays as a part of a sentence that follows the
/// error; as nothing if DPDK said nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LogLines(Vec<String>);

impl LogLines {
    /// Returns the lines.
    pub fn lines(&self) -> &[String] {
        &self.0
    }

    fn of(text: &str) -> Self {
        // EAL says after each error of a driver that there was one, and prints what it has logged as fatal.
        let is_echo = |line: &str| {
            line.starts_with("EAL: Driver cannot attach the device")
                || line.starts_with("EAL: Failed to attach device")
                || line.starts_with("EAL: FATAL: ")
        };
        let mut kept: Vec<String> = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_echo(line)) {
            let line: String = line.chars().take(CHARACTERS).collect();
            if kept.len() < LINES && !kept.contains(&line) {
                kept.push(line);
            }
        }
        Self(kept)
    }
}

impl fmt::Display for LogLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; DPDK says: {}", self.0.join("; ")) }
    }
}

/// Keeps what DPDK logs from now on. Without a pipe it goes to standard error.
pub(crate) fn keep() {
    if KEPT.get().is_some() {
        return;
    }
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return;
    }
    // SAFETY: the call has made both descriptors, which nothing else owns.
    let [reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // SAFETY: a descriptor to write to, and a mode for it.
    let stream = unsafe { libc::fdopen(writer.as_raw_fd(), c"w".as_ptr()) };
    if stream.is_null() {
        return;
    }
    // The stream has it from here on, and DPDK has the stream, until the process ends.
    let _ = writer.into_raw_fd();
    // SAFETY: an open stream, which is never closed.
    if unsafe { sys::rte_openlog_stream(stream.cast()) } == 0 {
        let _ = KEPT.set(File::from(reader));
    }
}

/// Has what DPDK prints past its log be kept as well, until the result is dropped; `None` if the log is on
/// standard error.
pub(crate) fn divert() -> Option<Diversion> {
    KEPT.get().map(|_| Diversion::begin())
}

/// Forgets what DPDK has logged: it is about something that is over.
pub(crate) fn forget() {
    let _ = take();
}

/// Takes what DPDK has logged, and then what it has printed.
pub(crate) fn take() -> LogLines {
    let Some(mut kept) = KEPT.get() else { return LogLines::default() };
    let mut text = Vec::new();
    // Ends with an error: there is nothing more to read yet.
    let _ = kept.read_to_end(&mut text);
    text.extend(streams::take());
    LogLines::of(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_that_say_something_are_kept() {
        let lines = LogLines::of(
            "open_packet_iface(): Could not open AF_PACKET socket\nEAL: Driver cannot attach the device \
             (net_af_packet0)\n\nEAL: Failed to attach device on primary process\nsecond\nEAL: FATAL: \
             second\nsecond\nthird\nfourth\n",
        );
        assert_eq!(
            lines.to_string(),
            "; DPDK says: open_packet_iface(): Could not open AF_PACKET socket; second; third"
        );
        assert_eq!(LogLines::of(&"x".repeat(1000)).lines()[0].len(), CHARACTERS);
        assert_eq!(LogLines::of("\n").to_string(), "");
    }
}
