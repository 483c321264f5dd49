//! Time as the protocol code sees it: nanoseconds since an origin the caller chose.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// One microsecond in nanoseconds.
pub const MICROSECOND: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
/// One second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// A point in time: nanoseconds since the caller's origin. It never goes backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns nanoseconds since `earlier`; 0 when `earlier` is later.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Instant {
    type Output = Self;

    /// Returns the point `nanos` nanoseconds later.
    fn add(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<u64> for Instant {
    fn add_assign(&mut self, nanos: u64) {
        *self = *self + nanos;
    }
}

impl Sub for Instant {
    type Output = u64;

    /// Returns nanoseconds between two points; 0 when `earlier` is later.
    fn sub(self, earlier: Self) -> u64 {
        self.nanos_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / SECOND, self.0 % SECOND)
    }
}
