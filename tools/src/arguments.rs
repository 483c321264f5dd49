//! Parts of the command line that the benchmark and the rigs have in common.

use std::time::Duration;

use clap::ValueEnum;

/// Seconds after which a silent end is given up, unless the command line has others.
pub const TIMEOUT_SECONDS: &str = "10";

/// A switch written `on` or `off`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Switch {
    /// Returns true if it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Parses the seconds that the other end may be silent.
///
/// # Errors
///
/// Why it is no timeout, and what to write.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.ok_or_else(|| format!("'{text}' is not a timeout: write 0.1 to 3600 seconds"))
}
