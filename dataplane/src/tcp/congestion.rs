//! Congestion control: NewReno (RFC 5681, RFC 6582).

use crate::wire::tcp::SeqNumber;

/// What an acknowledgement of new data means for a sender in fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// No recovery under way.
    None,
    /// Only a part of what was in flight when recovery began is acknowledged: the next hole is to be retransmitted at
    /// once (RFC 6582 §3.2 step 3).
    Partial,
    /// Everything is acknowledged; recovery is over.
    Complete,
}

/// The congestion window of one connection.
#[derive(Clone, Copy, Debug)]
pub struct NewReno {
    /// Octets that may be in flight.
    cwnd_octets: u32,
    ssthresh_octets: u32,
    emss_octets: u32,
    /// Where recovery ends: the highest octet sent when it began.
    recover: Option<SeqNumber>,
}

impl NewReno {
    /// The window of a fresh connection whose segments carry up to `emss_octets` octets (RFC 6928).
    pub fn new(emss_octets: u32) -> Self {
        let initial = (10 * emss_octets).min((2 * emss_octets).max(14_600));
        Self { cwnd_octets: initial, ssthresh_octets: u32::MAX, emss_octets, recover: None }
    }

    /// Octets that may be in flight.
    pub const fn window_octets(&self) -> u32 {
        self.cwnd_octets
    }

    /// The slow-start threshold in octets.
    pub const fn threshold_octets(&self) -> u32 {
        self.ssthresh_octets
    }

    /// Whether fast recovery is under way.
    pub const fn in_recovery(&self) -> bool {
        self.recover.is_some()
    }

    /// `acked_octets` new octets up to `ack` were acknowledged. `limited` says whether the window was what held the
    /// sender back; an unused window does not grow (RFC 7661's spirit, RFC 5681 §3.1).
    pub fn on_ack(&mut self, ack: SeqNumber, acked_octets: u32, limited: bool) -> Recovery {
        if let Some(recover) = self.recover {
            if ack < recover {
                // Deflate by what left the network, and let one segment more go (RFC 6582 §3.2 step 3).
                self.cwnd_octets = self.cwnd_octets.saturating_sub(acked_octets).max(self.emss_octets);
                if acked_octets >= self.emss_octets {
                    self.cwnd_octets = self.cwnd_octets.saturating_add(self.emss_octets);
                }
                return Recovery::Partial;
            }
            self.recover = None;
            self.cwnd_octets = self.ssthresh_octets;
            return Recovery::Complete;
        }
        if limited {
            let growth = if self.cwnd_octets < self.ssthresh_octets {
                // Slow start, with appropriate byte counting (RFC 3465, L = 2).
                acked_octets.min(2 * self.emss_octets)
            } else {
                (u64::from(self.emss_octets) * u64::from(acked_octets) / u64::from(self.cwnd_octets)).max(1)
                    as u32
            };
            self.cwnd_octets = self.cwnd_octets.saturating_add(growth);
        }
        Recovery::None
    }

    /// A duplicate acknowledgement while in recovery: a segment has left the network (RFC 5681 §3.2 step 4).
    pub fn on_duplicate_ack(&mut self) {
        if self.in_recovery() {
            self.cwnd_octets = self.cwnd_octets.saturating_add(self.emss_octets);
        }
    }

    /// The third duplicate acknowledgement: fast retransmit starts (RFC 5681 §3.2 steps 2, 3).
    pub fn on_fast_retransmit(&mut self, flight_octets: u32, highest_sent: SeqNumber) {
        self.ssthresh_octets = (flight_octets / 2).max(2 * self.emss_octets);
        self.cwnd_octets = self.ssthresh_octets + 3 * self.emss_octets;
        self.recover = Some(highest_sent);
    }

    /// The retransmission timer expired (RFC 5681 §3.1). A second timeout for the same data leaves the threshold.
    pub fn on_timeout(&mut self, flight_octets: u32, first: bool) {
        if first {
            self.ssthresh_octets = (flight_octets / 2).max(2 * self.emss_octets);
        }
        self.cwnd_octets = self.emss_octets;
        self.recover = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_then_avoidance_adds_one_segment_a_window() {
        let mut cc = NewReno::new(1000);
        assert_eq!(cc.window_octets(), 10_000);
        for _ in 0..10 {
            cc.on_ack(SeqNumber(0), 1000, true);
        }
        assert_eq!(cc.window_octets(), 20_000);
        cc.on_timeout(20_000, true);
        assert_eq!((cc.window_octets(), cc.threshold_octets()), (1000, 10_000));
        while cc.window_octets() < 10_000 {
            cc.on_ack(SeqNumber(0), 1000, true);
        }
        for _ in 0..10 {
            cc.on_ack(SeqNumber(0), 1000, true);
        }
        assert!((10_900..=11_000).contains(&cc.window_octets()), "{}", cc.window_octets());
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut cc = NewReno::new(1000);
        cc.on_ack(SeqNumber(0), 1000, false);
        assert_eq!(cc.window_octets(), 10_000);
    }

    #[test]
    fn recovery_ends_where_it_began() {
        let mut cc = NewReno::new(1000);
        cc.on_fast_retransmit(10_000, SeqNumber(11_000));
        assert_eq!(cc.window_octets(), 8000);
        cc.on_duplicate_ack();
        assert_eq!(cc.window_octets(), 9000);
        assert_eq!(cc.on_ack(SeqNumber(5000), 4000, true), Recovery::Partial);
        assert_eq!(cc.window_octets(), 6000);
        assert_eq!(cc.on_ack(SeqNumber(11_000), 6000, true), Recovery::Complete);
        assert_eq!(cc.window_octets(), 5000);
        assert!(!cc.in_recovery());
    }

    #[test]
    fn repeated_timeouts_keep_the_threshold() {
        let mut cc = NewReno::new(1000);
        cc.on_timeout(10_000, true);
        cc.on_timeout(1000, false);
        assert_eq!(cc.threshold_octets(), 5000);
    }
}
