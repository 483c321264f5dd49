//! The part that the algorithms share: window, threshold, slow start, and how a reduction is undone.

use super::control::{AckSample, Signal};
use super::hystart::{HyStart, Phase};
use crate::limits;

/// Window and slow-start threshold of one connection. What each acknowledgement asks for comes first, here
/// and in the algorithms, so that it shares a cache line with what lies before the algorithm in a connection.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Window {
    octets: u32,
    threshold_octets: u32,
    emss_octets: u32,
    /// Something was acknowledged: the window is no longer the initial one.
    used: bool,
    /// A SYN was lost, so the initial window is one segment.
    syn_lost: bool,
    /// The connection is in loss recovery, whose end sets the window.
    recovering: bool,
    /// Slow start follows a timeout.
    after_timeout: bool,
    hystart: HyStart,
    /// Window and threshold before the last reduction, as long as it may be undone.
    before: Option<(u32, u32)>,
}

impl Window {
    pub(super) fn new(emss_octets: u32) -> Self {
        let emss_octets = emss_octets.max(1);
        Self {
            octets: initial_octets(emss_octets),
            threshold_octets: u32::MAX,
            emss_octets,
            before: None,
            hystart: HyStart::new(),
            used: false,
            syn_lost: false,
            recovering: false,
            after_timeout: false,
        }
    }

    pub(super) const fn octets(&self) -> u32 {
        self.octets
    }

    pub(super) const fn threshold_octets(&self) -> u32 {
        self.threshold_octets
    }

    pub(super) const fn emss_octets(&self) -> u32 {
        self.emss_octets
    }

    pub(super) const fn in_slow_start(&self) -> bool {
        self.octets < self.threshold_octets
    }

    /// Records an acknowledgement. Returns true if the window may grow by it: not in recovery, not by an
    /// acknowledgement with ECE (RFC 3168 §6.1.2), and not if the window does not limit sending.
    pub(super) fn record_ack(&mut self, sample: &AckSample, in_recovery: bool) -> bool {
        self.used = true;
        let initial = self.threshold_octets == u32::MAX;
        if initial && !in_recovery && self.hystart.on_ack(sample) == Phase::Done {
            self.threshold_octets = self.octets;
        }
        !in_recovery && !sample.ece && sample.limited
    }

    /// Grows by `acked_octets` in slow start, counting at most `limit_segments` segments for one
    /// acknowledgement (RFC 3465 §2.2), one after a timeout (§2.3): the hole it fills may cover data that
    /// left the network long before.
    pub(super) fn slow_start(&mut self, acked_octets: u32, limit_segments: u32) {
        let limit_segments = if self.after_timeout { 1 } else { limit_segments };
        let counted = acked_octets.min(self.emss_octets.saturating_mul(limit_segments));
        // RFC 9406 §4.2: conservative slow start counts a quarter.
        let initial = self.threshold_octets == u32::MAX;
        let growth = if initial { counted / self.hystart.divisor() } else { counted };
        self.set(self.octets.saturating_add(growth).min(self.threshold_octets));
        self.after_timeout &= self.in_slow_start();
    }

    /// Sets the window, at least a segment and within the bound.
    pub(super) fn set(&mut self, octets: u32) {
        let most = limits::CONGESTION_WINDOW_MAX_BYTES.max(self.emss_octets);
        self.octets = octets.clamp(self.emss_octets, most);
    }

    /// Begins a reduction to `threshold_octets`, at least two segments (RFC 5681 equation 4).
    pub(super) fn reduce(&mut self, threshold_octets: u32, signal: Signal) {
        let before = (self.octets, self.threshold_octets);
        self.set_threshold(threshold_octets);
        self.after_timeout = false;
        match signal {
            Signal::Loss => {
                self.before = Some(before);
                self.recovering = true;
            }
            Signal::Ecn => {
                // A mark is no guess. Undoing a reduction before it would undo this one too.
                self.before = None;
                // After a timeout the window may be smaller.
                self.set(self.octets.min(self.threshold_octets));
            }
        }
    }

    /// Begins loss recovery without a reduction.
    pub(super) const fn begin_recovery(&mut self) {
        self.recovering = true;
    }

    /// Ends loss recovery (RFC 9937 §6). Returns true if there was one.
    pub(super) fn recovered(&mut self) -> bool {
        let recovering = core::mem::take(&mut self.recovering);
        if recovering {
            self.set(self.threshold_octets);
        }
        recovering
    }

    /// Reduces the window to one segment when the timer expires, and sets the threshold if it is the first
    /// time for this data (RFC 5681 §3.1).
    pub(super) fn time_out(&mut self, threshold_octets: u32, first: bool) {
        if first {
            self.before = Some((self.octets, self.threshold_octets));
            self.set_threshold(threshold_octets);
        }
        self.octets = self.emss_octets;
        self.recovering = false;
        self.after_timeout = true;
    }

    /// Has the last reduction stay.
    pub(super) const fn keep_reduction(&mut self) {
        self.before = None;
    }

    /// Undoes the last reduction, unless it stays, and ends loss recovery. Returns true if it has undone one.
    pub(super) fn undo(&mut self) -> bool {
        let Some((octets, threshold_octets)) = self.before.take() else {
            self.recovered();
            return false;
        };
        self.set(self.octets.max(octets));
        self.threshold_octets = self.threshold_octets.max(threshold_octets);
        self.recovering = false;
        self.after_timeout = false;
        true
    }

    /// Reduces the window to at most the initial one after a pause longer than the retransmission timeout
    /// (RFC 5681 §4.1). Slow start then restores three quarters of the old window (RFC 7661 §4.4.1). Returns
    /// true if the window was reduced.
    pub(super) fn restart(&mut self, idle_ns: u64, rto_ns: u64) -> bool {
        let restart_octets = initial_octets(self.emss_octets);
        if idle_ns <= rto_ns || self.octets <= restart_octets {
            return false;
        }
        self.threshold_octets = self.threshold_octets.max(self.octets - self.octets / 4);
        self.set(restart_octets);
        true
    }

    pub(super) fn set_emss(&mut self, octets: u32) {
        self.emss_octets = octets.max(1);
        if !self.used {
            let initial = if self.syn_lost { self.emss_octets } else { initial_octets(self.emss_octets) };
            self.set(initial);
        }
        self.set(self.octets);
        self.set_threshold(self.threshold_octets);
    }

    pub(super) fn syn_timed_out(&mut self) {
        self.syn_lost = true;
        self.octets = self.emss_octets;
    }

    fn set_threshold(&mut self, octets: u32) {
        self.threshold_octets = octets.max(self.emss_octets.saturating_mul(2));
    }
}

/// Returns the initial window: ten segments, within 14 600 octets, and two at least (RFC 6928 §2).
fn initial_octets(emss_octets: u32) -> u32 {
    let most = emss_octets.saturating_mul(2).max(limits::INITIAL_WINDOW_BYTES);
    emss_octets.saturating_mul(10).min(most)
}
