//! The path turns out narrower than believed, or wider again (RFC 1191, RFC 8201, RFC 4821; RFC 5044 §9.1, App. A.5).
//!
//! FPDUs that are queued or outstanding by then are cut at the new EMSS when they are sent; new ones are made to fit.

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::congestion::CongestionControl;
use super::send_queue::Verdict;
use super::timers::Timer;
use super::{Connection, Pools};

impl Connection {
    /// A router says that the segment at `quoted` was too large, and that segments of `mss_octets` octets of options and
    /// payload would pass. `false`, and nothing changed, when that cannot be (RFC 5927 §7): nothing is outstanding at
    /// that place, or segments are no larger than that already. The caller has checked the size against the least MTU.
    pub fn on_packet_too_big<P: Copy, F>(
        &mut self,
        now: Instant,
        quoted: SeqNumber,
        mss_octets: u16,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let outstanding = quoted >= self.snd_una && quoted < self.send.nxt();
        let emss = mss_octets.saturating_sub(self.option_octets()).max(limits::MIN_MSS_OCTETS);
        if !outstanding || emss >= self.emss_octets {
            return false;
        }
        self.narrow(now, emss, pools);
        true
    }

    /// Uses segments of at most `mss_octets` octets of options and payload from the start: what is remembered of the
    /// path.
    pub fn limit_mss(&mut self, now: Instant, mss_octets: u16) {
        let emss = mss_octets.saturating_sub(self.option_octets()).max(limits::MIN_MSS_OCTETS);
        if emss < self.emss_octets {
            self.emss_octets = emss;
            self.congestion.set_emss(u32::from(emss));
            self.timers.set(Timer::PathMtu, now + limits::PATH_MTU_RETRY_NS);
        }
    }

    /// Large segments that are lost twice over while nothing gets through may be too large for a path that does not say
    /// so (RFC 4821 §7.7).
    pub(super) fn suspect_black_hole<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        if self.rtt.timeouts_in_a_row() < limits::BLACK_HOLE_TIMEOUTS {
            return;
        }
        let Some(oldest) = self.send.oldest(&pools.segments).map(|segment| segment.octets) else { return };
        let options = self.option_octets();
        let next = limits::PATH_MSS_STEPS
            .into_iter()
            .map(|mss| mss - options)
            .find(|emss| *emss < self.emss_octets && u32::from(*emss) < oldest);
        if let Some(emss) = next {
            self.narrow(now, emss, pools);
            // Congestion that loses three in a row looks the same: the larger size is tried again soon, and later each time
            // it fails.
            let wait_ns = limits::BLACK_HOLE_RETRY_NS << self.black_holes_suspected.min(16);
            self.timers.set(Timer::PathMtu, now + wait_ns.min(limits::PATH_MTU_RETRY_NS));
            self.black_holes_suspected = self.black_holes_suspected.saturating_add(1);
        }
    }

    /// A segment of `octets` octets has arrived: the path carries that size.
    pub(super) fn note_size_delivered(&mut self, octets: u32) {
        if octets >= u32::from(self.emss_negotiated_octets) {
            self.black_holes_suspected = 0;
        }
    }

    /// What was sent in larger segments is lost for certain, and not for congestion: it is sent again at once.
    fn narrow<P: Copy, F>(&mut self, now: Instant, emss: u16, pools: &mut Pools<P, F>) {
        self.emss_octets = emss;
        self.congestion.set_emss(u32::from(emss));
        self.send.mark_lost(&mut pools.segments, &mut pools.scan_budget, |segment| {
            if segment.octets > u32::from(emss) { Verdict::Lost } else { Verdict::Keep }
        });
        self.counters.path_mtu_reductions += 1;
        self.timers.set(Timer::PathMtu, now + limits::PATH_MTU_RETRY_NS);
    }

    /// RFC 1191 §6.3: paths change; after some minutes larger segments are tried again.
    pub(super) fn try_larger_segments(&mut self) {
        self.emss_octets = self.emss_negotiated_octets;
        self.congestion.set_emss(u32::from(self.emss_octets));
    }
}
