//! The review of a connection's rare conditions: see [`Unusual`].

use crate::tcp::Unusual;
use crate::time::Instant;

use super::connection::{Connection, Mode};

impl Connection {
    /// Computes the rare conditions of the connection anew, after a step that may have ended some.
    #[inline(never)]
    pub fn review(&mut self) {
        self.tcp.unusual = self.unusual_recomputed();
    }

    /// Returns true if no condition is missing in the word: debug builds ask whenever it is served.
    pub fn has_all_conditions(&self) -> bool {
        self.tcp.unusual.contains(self.unusual_recomputed())
    }

    fn unusual_recomputed(&self) -> Unusual {
        let bit = |bit: Unusual, holds: bool| if holds { bit } else { Unusual::empty() };
        let streams = self.sends_stream() || self.receives_stream() || self.stream.unqueued_octets() > 0;
        let ends = self.closing || self.abort_at != Instant::NEVER;
        let mut found = self.tcp.unusual_recomputed()
            | bit(Unusual::STREAMING, streams)
            | bit(Unusual::FAILED, self.close_notified)
            | bit(Unusual::CLOSING, ends);
        if let Mode::FullOperation(operating) = &self.mode {
            found |= bit(Unusual::FAILED, operating.failed)
                | bit(Unusual::SILENT_PEER, operating.awaits_first_fpdu())
                | bit(Unusual::AWAITS_RECEIVE, operating.awaits_receive);
        }
        found
    }
}
