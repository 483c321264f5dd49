//! CUBIC (RFC 9438): the window is a cubic function of the time since the last reduction.
//!
//! The document counts segments; here windows are octets, so that C is multiplied by the segment size.

use super::control::{AckSample, CongestionControl, Signal};
use super::window::Window;
use crate::time::{Instant, SECOND};

/// Multiplicative decrease (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// Aggressiveness, in segments per second cubed (§5).
const C: f64 = 0.4;
/// Growth in the Reno-friendly region: as much as Reno gets on average with its deeper cuts (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Segments that one acknowledgement counts for in the first slow start (RFC 9406 §4.3: L of 8).
const FIRST_SLOW_START_LIMIT_SEGMENTS: u32 = 8;
/// And in later ones (RFC 3465 §2.2).
const SLOW_START_LIMIT_SEGMENTS: u32 = 2;

/// The curve the window follows from one reduction to the next.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// `W_max` in octets: the plateau; 0 when it is not defined (before the first reduction, after a
    /// timeout).
    plateau_octets: u32,
    /// `cwnd_prior` in octets: the window when the threshold was last set.
    prior_octets: u32,
    /// `t_epoch`: when this congestion avoidance began; [`Instant::NEVER`] while there is none.
    epoch: Instant,
    /// `K` in seconds: from the epoch to the plateau.
    k: f64,
    /// `W_est` in octets: the window Reno would have.
    reno_octets: f64,
}

/// The state of CUBIC.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cubic {
    window: Window,
    /// Growth below an octet that is still to come.
    carry_octets: f32,
    /// When the last acknowledgement came.
    last_ack: Instant,
    curve: Curve,
    /// The curve before the last reduction.
    before: Curve,
}

impl Cubic {
    /// Returns the algorithm for a new connection whose segments carry up to `emss_octets` octets.
    pub fn new(emss_octets: u32) -> Self {
        let curve =
            Curve { plateau_octets: 0, prior_octets: 0, epoch: Instant::NEVER, k: 0.0, reno_octets: 0.0 };
        Self {
            window: Window::new(emss_octets),
            curve,
            before: curve,
            last_ack: Instant::ZERO,
            carry_octets: 0.0,
        }
    }

    /// Returns `W_cubic(t)` in octets, `t` in seconds since the epoch (§4.2).
    fn curve_octets(&self, t: f64) -> f64 {
        let from_plateau = t - self.curve.k;
        let emss = f64::from(self.window.emss_octets());
        C * emss * from_plateau * from_plateau * from_plateau + f64::from(self.curve.plateau_octets)
    }

    /// Begins congestion avoidance (§4.2). Without a plateau above the window, the curve starts on it (§4.8,
    /// §4.10).
    fn begin_epoch(&mut self, now: Instant) {
        let window = self.window.octets();
        let curve = &mut self.curve;
        if curve.plateau_octets <= window {
            curve.plateau_octets = window;
            curve.prior_octets = curve.prior_octets.max(window);
        }
        let below = f64::from(curve.plateau_octets - window) / f64::from(self.window.emss_octets());
        curve.k = (below / C).cbrt();
        curve.epoch = now;
        curve.reno_octets = f64::from(window);
        self.carry_octets = 0.0;
    }

    /// Grows the window in congestion avoidance (§4.2 to §4.5).
    fn avoid(&mut self, sample: &AckSample) {
        if self.curve.epoch == Instant::NEVER {
            self.begin_epoch(sample.now);
        }
        let window = f64::from(self.window.octets());
        // A window's worth at most: one acknowledgement must not leap over the target.
        let share = (f64::from(sample.octets) / window).min(1.0);
        // §4.3: once what was before the reduction is reached, Reno grows by a segment a round.
        let reached = self.curve.reno_octets >= f64::from(self.curve.prior_octets);
        let alpha = if reached { 1.0 } else { ALPHA };
        self.curve.reno_octets += alpha * share * f64::from(self.window.emss_octets());

        let t = seconds(sample.now - self.curve.epoch);
        let grown = if self.curve_octets(t) < self.curve.reno_octets {
            self.curve.reno_octets.max(window)
        } else {
            let rtt = seconds(sample.smoothed_rtt_ns.unwrap_or(0));
            let target = self.curve_octets(t + rtt).clamp(window, 1.5 * window);
            window + (target - window) * share + f64::from(self.carry_octets)
        };
        let whole = grown.floor();
        self.carry_octets = (grown - whole) as f32;
        self.window.set(whole as u32);
    }

    /// Leaves the curve on a reduction (§4.6, §4.7). `plateau_octets` is 0 after a timeout: the next curve
    /// starts where slow start ends (§4.8).
    fn leave_curve(&mut self, plateau_octets: u32) {
        self.before = self.curve;
        self.curve.plateau_octets = plateau_octets;
        self.curve.prior_octets = self.window.octets();
        self.curve.epoch = Instant::NEVER;
    }

    /// Returns the plateau of the next curve. Fast convergence: a window that did not reach the old plateau
    /// gives room to newer flows (§4.7).
    fn next_plateau_octets(&self) -> u32 {
        let window = self.window.octets();
        if window < self.curve.plateau_octets {
            (f64::from(window) * f64::midpoint(1.0, BETA)) as u32
        } else {
            window
        }
    }

    /// Excludes the time from `from` to `now` from the curve (§5.8).
    fn skip(&mut self, from: Instant, now: Instant) {
        if self.curve.epoch != Instant::NEVER {
            self.curve.epoch += now - from.max(self.curve.epoch);
        }
    }
}

impl CongestionControl for Cubic {
    fn window_octets(&self) -> u32 {
        self.window.octets()
    }

    fn threshold_octets(&self) -> u32 {
        self.window.threshold_octets()
    }

    fn on_ack(&mut self, sample: &AckSample, in_recovery: bool) {
        let last_ack = core::mem::replace(&mut self.last_ack, sample.now);
        let grows = self.window.record_ack(sample, in_recovery);
        if !grows {
            // Time in which the window is not used, or must not grow, moves the curve along.
            return self.skip(last_ack, sample.now);
        }
        if self.window.in_slow_start() {
            let first = self.window.threshold_octets() == u32::MAX;
            let limit = if first { FIRST_SLOW_START_LIMIT_SEGMENTS } else { SLOW_START_LIMIT_SEGMENTS };
            self.window.slow_start(sample.octets, limit);
        } else {
            self.avoid(sample);
        }
    }

    fn on_congestion(&mut self, _now: Instant, flight_octets: u32, signal: Signal) {
        self.leave_curve(self.next_plateau_octets());
        self.window.reduce(decreased(flight_octets), signal);
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
        if first {
            self.leave_curve(0);
        }
        self.curve.epoch = Instant::NEVER;
        self.window.time_out(decreased(flight_octets), first);
    }

    fn keep_reduction(&mut self) {
        self.window.keep_reduction();
    }

    fn undo(&mut self, _now: Instant) -> bool {
        // §4.9: everything as it was, the epoch too.
        let undone = self.window.undo();
        if undone {
            self.curve = self.before;
        }
        undone
    }

    fn on_idle(&mut self, now: Instant, idle_ns: u64, rto_ns: u64) {
        if self.window.restart(idle_ns, rto_ns) {
            // A new congestion avoidance begins when slow start has come back to the threshold.
            self.curve.epoch = Instant::NEVER;
        } else {
            self.skip(Instant::from_nanos(now.as_nanos().saturating_sub(idle_ns)), now);
        }
        self.last_ack = now;
    }

    fn set_emss(&mut self, octets: u32) {
        self.window.set_emss(octets);
        // K was for segments of the old size.
        self.curve.epoch = Instant::NEVER;
    }

    fn on_syn_timeout(&mut self) {
        self.window.syn_timed_out();
    }
}

/// Returns `octets` after the multiplicative decrease.
fn decreased(octets: u32) -> u32 {
    (f64::from(octets) * BETA) as u32
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}
