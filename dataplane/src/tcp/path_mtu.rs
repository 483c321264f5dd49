//! The path MTU turns out smaller than assumed, or larger again (RFC 1191, RFC 8201, RFC 4821; RFC 5044 §9.1,
//! App. A.5).
//!
//! FPDUs that are queued or outstanding by then are cut at the new EMSS when they are sent; new ones are made
//! to fit.

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::congestion::{Congestion, CongestionControl};
use super::counters::Counters;
use super::path_mss::PathMss;
use super::rdma_option::RdmaOptionUse;
use super::rtt::RttEstimator;
use super::send_queue::{SendPayload, Verdict};
use super::send_state::SendState;
use super::timers::{Timer, Timers};
use super::{Connection, Pools};

/// What a connection follows the path MTU with.
pub struct PathMtu<'c> {
    path: &'c mut PathMss,
    send: &'c mut SendState,
    congestion: &'c mut Congestion,
    timers: &'c mut Timers,
    counters: &'c mut Counters,
    rtt: &'c RttEstimator,
    pub(super) rdma_option: RdmaOptionUse,
    /// Octets of options in each segment with data.
    pub(super) option_octets: u16,
}

impl<'c> PathMtu<'c> {
    /// Returns what `tcp` follows the path MTU with.
    #[inline]
    pub fn of(tcp: &'c mut Connection) -> Self {
        Self {
            path: &mut tcp.path,
            send: &mut tcp.send,
            congestion: &mut tcp.congestion,
            timers: &mut tcp.timers,
            counters: &mut tcp.counters,
            rtt: &tcp.rtt,
            rdma_option: tcp.receive.rdma_option,
            option_octets: tcp.timestamps.option_octets(),
        }
    }

    /// Accepts the report of a router that the segment at `quoted` was too large, and that segments of
    /// `mss_octets` octets of options and payload would pass. Returns false and changes nothing if the report
    /// is not plausible (RFC 5927 §7): nothing is outstanding at that sequence number, or segments are no
    /// larger than that. The caller has checked the size against the minimum MTU.
    pub fn on_packet_too_big<P: SendPayload, F>(
        &mut self,
        now: Instant,
        quoted: SeqNumber,
        mss_octets: u16,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let outstanding = quoted >= self.send.una && quoted < self.send.queue.nxt();
        let emss = mss_octets.saturating_sub(self.option_octets).max(limits::MIN_MSS_BYTES);
        if !outstanding || u32::from(emss) >= self.path.emss_octets() {
            return false;
        }
        self.narrow(now, emss, pools);
        true
    }

    /// Limits segments to `mss_octets` octets of options and payload, as remembered from earlier connections
    /// on the path.
    pub fn limit_mss(&mut self, now: Instant, mss_octets: u16) {
        let emss = mss_octets.saturating_sub(self.option_octets).max(limits::MIN_MSS_BYTES);
        if u32::from(emss) < self.path.emss_octets() {
            self.path.narrow(emss);
            self.congestion.set_emss(u32::from(emss));
            self.timers.set(Timer::PathMtu, now + limits::PATH_MTU_RETRY_NS);
        }
    }

    /// Large segments that are lost repeatedly while nothing is acknowledged may be too large for a path
    /// whose routers do not report it: a black hole (RFC 4821 §7.7).
    pub(super) fn suspect_black_hole<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        if self.rtt.timeouts_in_a_row() < limits::BLACK_HOLE_TIMEOUTS {
            return;
        }
        let Some(oldest) = self.send.queue.oldest(&pools.segments) else { return };
        let octets = oldest.octets + self.rdma_option.octets_for(&oldest.payload);
        if let Some(emss) = self.path.next_smaller(octets, self.option_octets) {
            self.narrow(now, emss, pools);
            let wait_ns = self.path.on_black_hole();
            self.timers.set(Timer::PathMtu, now + wait_ns);
        }
    }

    /// Uses smaller segments. Larger ones in flight are lost for certain, but not because of congestion: they
    /// are retransmitted at once.
    fn narrow<P: SendPayload, F>(&mut self, now: Instant, emss: u16, pools: &mut Pools<P, F>) {
        self.path.narrow(emss);
        self.congestion.set_emss(u32::from(emss));
        let rdma_option = self.rdma_option;
        self.send.queue.mark_lost_with(
            &mut pools.segments,
            &mut pools.scan_budget,
            |segment, payload: &P| {
                if segment.octets + rdma_option.octets_for(payload) > u32::from(emss) {
                    Verdict::Lost
                } else {
                    Verdict::Keep
                }
            },
        );
        self.counters.path_mtu_reductions += 1;
        self.timers.set(Timer::PathMtu, now + limits::PATH_MTU_RETRY_NS);
    }

    /// RFC 1191 §6.3: the path may have changed; larger segments are tried again after some minutes.
    pub(super) fn try_larger_segments(&mut self) {
        self.path.widen();
        self.congestion.set_emss(self.path.emss_octets());
    }
}
