//! The path MTU turns out smaller than assumed, or larger again (RFC 1191, RFC 8201, RFC 4821; RFC 5044 §9.1,
//! App. A.5).
//!
//! FPDUs that are queued or outstanding by then are cut at the new EMSS when they are sent; new ones are made
//! to fit.

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::congestion::CongestionControl;
use super::send_queue::Verdict;
use super::timers::Timer;
use super::{Connection, Pools};

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
    const fn narrow(&mut self, emss_octets: u16) {
        debug_assert!(emss_octets < self.emss_octets, "the path has become wider");
        self.emss_octets = emss_octets;
    }

    /// Uses segments of the negotiated size again.
    const fn widen(&mut self) {
        self.emss_octets = self.negotiated_octets;
    }

    /// A segment of `octets` octets has arrived: the path carries that size.
    pub(super) fn on_delivered(&mut self, octets: u32) {
        if octets >= u32::from(self.negotiated_octets) {
            self.black_holes_suspected = 0;
        }
    }

    /// The next smaller size to try for a segment of `octets` octets that does not pass.
    fn next_smaller(self, octets: u32, option_octets: u16) -> Option<u16> {
        limits::PATH_MSS_STEPS
            .into_iter()
            .map(|mss| mss - option_octets)
            .find(|emss| *emss < self.emss_octets && u32::from(*emss) < octets)
    }

    /// A black hole is suspected. Returns how long to wait before the larger size is tried again: congestion
    /// that loses three segments in a row looks the same, so that is soon, and later each time it fails.
    fn on_black_hole(&mut self) -> u64 {
        let wait_ns = limits::BLACK_HOLE_RETRY_NS << self.black_holes_suspected.min(16);
        self.black_holes_suspected = self.black_holes_suspected.saturating_add(1);
        wait_ns.min(limits::PATH_MTU_RETRY_NS)
    }
}

impl Connection {
    /// Takes the report of a router that the segment at `quoted` was too large, and that segments of
    /// `mss_octets` octets of options and payload would pass. Returns false and changes nothing if the report
    /// is not plausible (RFC 5927 §7): nothing is outstanding at that sequence number, or segments are no
    /// larger than that. The caller has checked the size against the minimum MTU.
    pub fn on_packet_too_big<P: Copy, F>(
        &mut self,
        now: Instant,
        quoted: SeqNumber,
        mss_octets: u16,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let outstanding = quoted >= self.send.una && quoted < self.send.queue.nxt();
        let emss = mss_octets.saturating_sub(self.option_octets()).max(limits::MIN_MSS_OCTETS);
        if !outstanding || u32::from(emss) >= self.path.emss_octets() {
            return false;
        }
        self.narrow(now, emss, pools);
        true
    }

    /// Limits segments to `mss_octets` octets of options and payload, as remembered from earlier connections
    /// on the path.
    pub fn limit_mss(&mut self, now: Instant, mss_octets: u16) {
        let emss = mss_octets.saturating_sub(self.option_octets()).max(limits::MIN_MSS_OCTETS);
        if u32::from(emss) < self.path.emss_octets() {
            self.path.narrow(emss);
            self.congestion.set_emss(u32::from(emss));
            self.timers.set(Timer::PathMtu, now + limits::PATH_MTU_RETRY_NS);
        }
    }

    /// Large segments that are lost repeatedly while nothing is acknowledged may be too large for a path
    /// whose routers do not report it: a black hole (RFC 4821 §7.7).
    pub(super) fn suspect_black_hole<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        if self.rtt.timeouts_in_a_row() < limits::BLACK_HOLE_TIMEOUTS {
            return;
        }
        let Some(oldest) = self.send.queue.oldest(&pools.segments).map(|segment| segment.octets) else {
            return;
        };
        if let Some(emss) = self.path.next_smaller(oldest, self.option_octets()) {
            self.narrow(now, emss, pools);
            let wait_ns = self.path.on_black_hole();
            self.timers.set(Timer::PathMtu, now + wait_ns);
        }
    }

    /// Uses smaller segments. Larger ones in flight are lost for certain, but not because of congestion: they
    /// are retransmitted at once.
    fn narrow<P: Copy, F>(&mut self, now: Instant, emss: u16, pools: &mut Pools<P, F>) {
        self.path.narrow(emss);
        self.congestion.set_emss(u32::from(emss));
        self.send.queue.mark_lost(&mut pools.segments, &mut pools.scan_budget, |segment| {
            if segment.octets > u32::from(emss) { Verdict::Lost } else { Verdict::Keep }
        });
        self.counters.path_mtu_reductions += 1;
        self.timers.set(Timer::PathMtu, now + limits::PATH_MTU_RETRY_NS);
    }

    /// RFC 1191 §6.3: the path may have changed; larger segments are tried again after some minutes.
    pub(super) fn try_larger_segments(&mut self) {
        self.path.widen();
        self.congestion.set_emss(self.path.emss_octets());
    }
}
