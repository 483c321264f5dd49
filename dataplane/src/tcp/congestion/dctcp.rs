//! DCTCP (RFC 8257): grows as NewReno, and on ECN decreases by how much of a window was marked.

use super::control::{AckSample, CongestionControl, Signal};
use super::new_reno::NewReno;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// 1 as a fixed-point fraction.
const ONE: u32 = 1 << 30;
/// The estimation gain g is 1/16 (RFC 8257 §4.2).
const GAIN_SHIFT: u32 = 4;

/// The state of DCTCP.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Dctcp {
    reno: NewReno,
    /// `DCTCP.Alpha`: the fraction of octets marked, smoothed, in units of 1 / [`ONE`].
    alpha: u32,
    /// `DCTCP.WindowEnd`: where the current observation window ends, once there is one.
    window_end: Option<SeqNumber>,
    acked_octets: u32,
    marked_octets: u32,
}

impl Dctcp {
    /// Returns the algorithm for a new connection whose segments carry up to `emss_octets` octets.
    pub fn new(emss_octets: u32) -> Self {
        // RFC 8257 §3.3: alpha of 1 makes the first reduction a halving.
        Self {
            reno: NewReno::new(emss_octets),
            alpha: ONE,
            window_end: None,
            acked_octets: 0,
            marked_octets: 0,
        }
    }

    /// Returns the estimated fraction of octets that are marked, 0.0 to 1.0.
    pub fn alpha(&self) -> f64 {
        f64::from(self.alpha) / f64::from(ONE)
    }

    /// Updates the estimate by an acknowledgement (RFC 8257 §3.3, steps 1 to 8).
    fn observe(&mut self, sample: &AckSample) {
        self.acked_octets = self.acked_octets.saturating_add(sample.octets);
        if sample.ece {
            self.marked_octets = self.marked_octets.saturating_add(sample.octets);
        }
        if self.window_end.is_some_and(|end| sample.ack <= end) {
            return;
        }
        if self.acked_octets > 0 {
            let marked = u64::from(self.marked_octets) * u64::from(ONE) / u64::from(self.acked_octets);
            self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (marked as u32 >> GAIN_SHIFT);
        }
        self.window_end = Some(sample.highest_sent);
        self.acked_octets = 0;
        self.marked_octets = 0;
    }
}

impl CongestionControl for Dctcp {
    fn window_octets(&self) -> u32 {
        self.reno.window_octets()
    }

    fn threshold_octets(&self) -> u32 {
        self.reno.threshold_octets()
    }

    fn on_ack(&mut self, sample: &AckSample, in_recovery: bool) {
        self.observe(sample);
        self.reno.on_ack(sample, in_recovery);
    }

    fn on_congestion(&mut self, now: Instant, flight_octets: u32, signal: Signal) {
        match signal {
            // RFC 8257 §3.5: to loss, as any TCP.
            Signal::Loss => self.reno.on_congestion(now, flight_octets, signal),
            // §3.3 step 9: cwnd = cwnd * (1 - alpha / 2).
            Signal::Ecn => {
                let window = self.reno.window_octets();
                let cut = u64::from(window) * u64::from(self.alpha) / u64::from(2 * ONE);
                self.reno.reduce(window - cut as u32, signal);
            }
        }
    }

    fn on_recovery(&mut self) {
        self.reno.on_recovery();
    }

    fn set_window(&mut self, octets: u32) {
        self.reno.set_window(octets);
    }

    fn on_recovered(&mut self, now: Instant) {
        self.reno.on_recovered(now);
    }

    fn on_timeout(&mut self, now: Instant, flight_octets: u32, first: bool) {
        self.reno.on_timeout(now, flight_octets, first);
    }

    fn keep_reduction(&mut self) {
        self.reno.keep_reduction();
    }

    fn undo(&mut self, now: Instant) -> bool {
        self.reno.undo(now)
    }

    fn on_idle(&mut self, now: Instant, idle_ns: u64, rto_ns: u64) {
        self.reno.on_idle(now, idle_ns, rto_ns);
    }

    fn set_emss(&mut self, octets: u32) {
        self.reno.set_emss(octets);
    }

    fn on_syn_timeout(&mut self) {
        self.reno.on_syn_timeout();
    }
}
