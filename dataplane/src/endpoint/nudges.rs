//! How many [nudges](super::nudge) a connection may still send.

use crate::limits;

/// How many more nudges a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nudges {
    pub(super) left: u8,
}

impl Nudges {
    /// No nudges.
    pub const NONE: Self = Self { left: 0 };

    /// Returns the nudges of a connection that begins, if it may send any.
    pub const fn new(wanted: bool) -> Self {
        if wanted { Self { left: limits::NUDGES } } else { Self::NONE }
    }

    /// Returns how long to wait for the peer before the next nudge; twice as long each time.
    pub(super) const fn wait_ns(self) -> Option<u64> {
        if self.left == 0 { None } else { Some(limits::FIRST_NUDGE_NS << (limits::NUDGES - self.left)) }
    }
}
