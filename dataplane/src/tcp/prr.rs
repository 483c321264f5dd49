//! Proportional rate reduction: the octets sent for each acknowledgement during loss recovery (RFC 9937).

/// One recovery, in octets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prr {
    /// Delivered since it began.
    delivered: u32,
    /// Sent since it began.
    sent: u32,
    /// Octets outstanding when it began (RecoverFS).
    flight: u32,
}

impl Prr {
    /// Recovery begins with `flight_octets` octets outstanding that were not selectively acknowledged before.
    pub(super) fn new(flight_octets: u32) -> Self {
        Self { delivered: 0, sent: 0, flight: flight_octets.max(1) }
    }

    pub(super) fn on_sent(&mut self, octets: u32) {
        self.sent = self.sent.saturating_add(octets);
    }

    /// The window after an acknowledgement that delivered `delivered_octets`, with `in_flight_octets` still
    /// in flight. `safe` says that it moved SND.UNA and showed no further loss (§6: then slow start, else
    /// conservation).
    pub(super) fn window_octets(
        &mut self,
        delivered_octets: u32,
        in_flight_octets: u32,
        threshold_octets: u32,
        emss_octets: u32,
        safe: bool,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered_octets);
        let send = if in_flight_octets > threshold_octets {
            let share =
                (u64::from(self.delivered) * u64::from(threshold_octets)).div_ceil(u64::from(self.flight));
            share.saturating_sub(u64::from(self.sent)).min(u64::from(u32::MAX)) as u32
        } else {
            let mut send = self.delivered.saturating_sub(self.sent).max(delivered_octets);
            if safe {
                send = send.saturating_add(emss_octets);
            }
            send.min(threshold_octets - in_flight_octets)
        };
        // The first retransmission goes at once.
        let send = if self.sent == 0 { send.max(emss_octets) } else { send };
        in_flight_octets.saturating_add(send)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty segments of 1000, one lost, threshold 14: 14 segments are sent for the 19 that are delivered,
    /// spread evenly (0.7 a segment rounded up).
    #[test]
    fn one_loss_halves_the_rate_evenly() {
        let mut prr = Prr::new(20_000);
        let (mut in_flight, mut sent, mut out) = (20_000 - 1000 - 2000, 0, Vec::new());
        prr.window_octets(2000, in_flight, 14_000, 1000, false);
        prr.on_sent(1000);
        in_flight += 1000;
        for _ in 0..17 {
            in_flight -= 1000;
            let window = prr.window_octets(1000, in_flight, 14_000, 1000, false);
            let send = (window - in_flight) / 1000;
            out.push(send);
            prr.on_sent(send * 1000);
            in_flight += send * 1000;
            sent += send;
        }
        assert!((12..=14).contains(&sent), "{sent}: {out:?}");
        assert!(out.iter().all(|send| *send <= 1), "never a burst: {out:?}");
        assert!((13_000..=14_000).contains(&in_flight), "{in_flight}");
    }

    /// After heavy loss the window is rebuilt: one segment more than was delivered for each safe
    /// acknowledgement.
    #[test]
    fn heavy_loss_slow_starts_up_to_the_threshold() {
        let mut prr = Prr::new(20_000);
        prr.on_sent(1000);
        assert_eq!(prr.window_octets(1000, 4000, 10_000, 1000, true), 4000 + 2000);
        assert_eq!(prr.window_octets(1000, 4000, 10_000, 1000, false), 4000 + 1000, "not safe");
        assert_eq!(prr.window_octets(9000, 9500, 10_000, 1000, true), 10_000, "never over the threshold");
    }

    #[test]
    fn the_first_retransmission_goes_at_once() {
        let mut prr = Prr::new(100_000);
        assert_eq!(prr.window_octets(0, 97_000, 50_000, 1000, false), 98_000);
    }
}
