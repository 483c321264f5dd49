//! NewReno: slow start and congestion avoidance of RFC 5681 with appropriate byte counting (RFC 3465).

use super::control::{AckSample, CongestionControl, Signal};
use super::window::Window;
use crate::time::Instant;

/// Segments that one acknowledgement counts for in slow start (RFC 3465 §2.2: L of 2).
const SLOW_START_LIMIT_SEGMENTS: u32 = 2;

/// The state of NewReno.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NewReno {
    window: Window,
    /// Octets acknowledged in congestion avoidance that have not grown the window yet.
    counted_octets: u32,
}

impl NewReno {
    /// Returns the algorithm for a new connection whose segments carry up to `emss_octets` octets.
    pub fn new(emss_octets: u32) -> Self {
        Self { window: Window::new(emss_octets), counted_octets: 0 }
    }

    /// Reduces to `threshold_octets`: for an algorithm that grows as NewReno does and decreases otherwise.
    pub(super) fn reduce(&mut self, threshold_octets: u32, signal: Signal) {
        self.counted_octets = 0;
        self.window.reduce(threshold_octets, signal);
    }
}

impl CongestionControl for NewReno {
    fn window_octets(&self) -> u32 {
        self.window.octets()
    }

    fn threshold_octets(&self) -> u32 {
        self.window.threshold_octets()
    }

    fn on_ack(&mut self, sample: &AckSample, in_recovery: bool) {
        if !self.window.record_ack(sample, in_recovery) {
            return;
        }
        if self.window.in_slow_start() {
            return self.window.slow_start(sample.octets, SLOW_START_LIMIT_SEGMENTS);
        }
        // RFC 3465 §2.1: a segment for each window acknowledged.
        let counted = self.counted_octets.saturating_add(sample.octets);
        let window = self.window.octets();
        if counted < window {
            self.counted_octets = counted;
        } else {
            self.counted_octets = (counted - window).min(window);
            self.window.set(window.saturating_add(self.window.emss_octets()));
        }
    }

    fn on_congestion(&mut self, _now: Instant, flight_octets: u32, signal: Signal) {
        self.reduce(flight_octets / 2, signal);
    }

    fn on_recovery(&mut self) {
        self.window.begin_recovery();
    }

    fn set_window(&mut self, octets: u32) {
        self.window.set(octets);
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.window.recovered();
    }

    fn on_timeout(&mut self, _now: Instant, flight_octets: u32, first: bool) {
        self.counted_octets = 0;
        self.window.time_out(flight_octets / 2, first);
    }

    fn keep_reduction(&mut self) {
        self.window.keep_reduction();
    }

    fn undo(&mut self, _now: Instant) -> bool {
        self.window.undo()
    }

    fn on_idle(&mut self, _now: Instant, idle_ns: u64, rto_ns: u64) {
        self.window.restart(idle_ns, rto_ns);
    }

    fn set_emss(&mut self, octets: u32) {
        self.window.set_emss(octets);
    }

    fn on_syn_timeout(&mut self) {
        self.window.syn_timed_out();
    }
}
