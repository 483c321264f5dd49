//! The size of segments on the path of a connection.

use crate::limits;

/// The largest segments that the path carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMss {
    /// Octets of payload in the largest segment that is sent (EMSS): what peer, device and path allow, less
    /// the options of each segment.
    emss_octets: u16,
    /// What the ends have agreed on, before the path turned out narrower. Never less than `emss_octets`.
    negotiated_octets: u16,
    /// Times large segments were suspected not to pass, since one has passed.
    black_holes_suspected: u8,
}

impl PathMss {
    pub(super) const fn new(emss_octets: u16) -> Self {
        Self { emss_octets, negotiated_octets: emss_octets, black_holes_suspected: 0 }
    }

    /// The EMSS in octets.
    pub(super) const fn emss_octets(self) -> u32 {
        self.emss_octets as u32
    }

    /// Uses segments of at most `emss_octets` octets, fewer than before.
    pub(super) const fn narrow(&mut self, emss_octets: u16) {
        debug_assert!(emss_octets < self.emss_octets, "the path has become wider");
        self.emss_octets = emss_octets;
    }

    /// Uses segments of the negotiated size again.
    pub(super) const fn widen(&mut self) {
        self.emss_octets = self.negotiated_octets;
    }

    /// A segment of `octets` octets has arrived: the path carries that size.
    pub(super) fn on_delivered(&mut self, octets: u32) {
        if octets >= u32::from(self.negotiated_octets) {
            self.black_holes_suspected = 0;
        }
    }

    /// The next smaller size to try for a segment of `octets` octets that does not pass.
    pub(super) fn next_smaller(self, octets: u32, option_octets: u16) -> Option<u16> {
        limits::PATH_MSS_STEPS
            .into_iter()
            .map(|mss| mss - option_octets)
            .find(|emss| *emss < self.emss_octets && u32::from(*emss) < octets)
    }

    /// A black hole is suspected. Returns how long to wait before the larger size is tried again: congestion
    /// that loses three segments in a row looks the same, so that is soon, and later each time it fails.
    pub(super) fn on_black_hole(&mut self) -> u64 {
        let wait_ns = limits::BLACK_HOLE_RETRY_NS << self.black_holes_suspected.min(16);
        self.black_holes_suspected = self.black_holes_suspected.saturating_add(1);
        wait_ns.min(limits::PATH_MTU_RETRY_NS)
    }
}
