//! How long a connection has held its fair share of the frames, or more.

use crate::limits;
use crate::time::MILLISECOND;
use crate::wire::tcp::SeqNumber;

/// How long a connection has held its fair share of a core's frames or more, at each look. Connections are
/// looked at while frames are scarce. What a connection consumes meanwhile makes no difference: one octet now
/// and then, or a window each second, leaves the others as few frames.
#[derive(Clone, Copy, Debug)]
pub struct HoldingTracker {
    /// The first octet that was not consumed at the last look.
    unread: SeqNumber,
    /// The time since the first of the looks, in milliseconds.
    for_ms: u16,
    /// The looks in a row at which it held so many.
    looks: u8,
    /// Nothing was consumed between the last two looks.
    stands: bool,
}

impl HoldingTracker {
    /// Returns a tracker that has not seen the connection.
    pub const fn new() -> Self {
        Self { unread: SeqNumber(0), for_ms: 0, looks: 0, stands: false }
    }

    /// Looks at a connection that has consumed all octets before `unread`, `since_ns` after the last look, if
    /// that counts as the one before. `holds_share` says whether it holds its fair share or more.
    pub fn look(&mut self, since_ns: Option<u64>, unread: SeqNumber, holds_share: bool) {
        self.stands = unread == self.unread;
        self.unread = unread;
        match since_ns {
            Some(since_ns) if holds_share && self.looks > 0 => {
                self.looks = self.looks.saturating_add(1);
                let since_ms = u16::try_from(since_ns / MILLISECOND).unwrap_or(u16::MAX);
                self.for_ms = self.for_ms.saturating_add(since_ms);
            }
            _ => (self.looks, self.for_ms) = (u8::from(holds_share), 0),
        }
    }

    /// Returns true if it has held so many for long enough to be failed for them.
    pub const fn is_long(self) -> bool {
        self.looks >= limits::HELD_LOOKS && self.for_ms as u64 * MILLISECOND >= limits::HELD_PATIENCE_NS
    }

    /// Returns true if it consumed nothing between the last two looks.
    pub const fn stands(self) -> bool {
        self.stands
    }
}
