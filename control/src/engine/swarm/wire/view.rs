//! What the wire shows of one end of a connection that its host reports of itself.

use warpline_dataplane::limits;
use warpline_dataplane::tcp::{Snapshot, State};

use super::half::{Half, Verdict, ensure};

/// One end of a connection, as the wire shows it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct View {
    /// Both ends have offered it.
    sack: bool,
    timestamps: bool,
    ecn: bool,
    /// The largest segment that the peer takes.
    mss: u16,
    /// Sequence numbers that were sent and are not acknowledged.
    outstanding: i64,
    /// What the peer has offered beyond its acknowledgement.
    window: i64,
}

impl View {
    /// Returns what the wire shows of `half`, which talks to `peer`.
    pub(super) fn of(half: &Half, peer: &Half) -> Self {
        let [own, other] = [half.offer, peer.offer];
        Self {
            sack: own.sack && other.sack,
            timestamps: own.timestamps && other.timestamps,
            ecn: half.takes_ecn && peer.takes_ecn,
            mss: other.mss,
            outstanding: half.next() - half.una,
            window: half.window_end - half.una,
        }
    }

    /// Judges the report of the same end at the same time. All that is sent arrives in order if the path
    /// `is_clear`.
    pub(in super::super) fn judge(&self, snapshot: &Snapshot, is_clear: bool) -> Verdict {
        if !matches!(snapshot.state, State::Established | State::CloseWait) {
            return Ok(());
        }
        let agreed = [snapshot.sack, snapshot.timestamps, snapshot.ecn];
        let expected = [self.sack, self.timestamps, self.ecn];
        ensure!(agreed == expected, "SACK, timestamps and ECN {agreed:?}, and {expected:?} is agreed");
        ensure!(snapshot.emss_bytes <= self.mss, "an EMSS above {}", self.mss);
        let outstanding = i64::from(snapshot.outstanding_bytes);
        // A segment may wait for the hardware address of its next hop.
        ensure!(outstanding >= self.outstanding, "{outstanding} outstanding of {}", self.outstanding);
        ensure!(
            snapshot.sacked_bytes + snapshot.lost_bytes <= snapshot.outstanding_bytes,
            "more sacked and lost than is outstanding"
        );
        let timeouts = limits::MIN_RTO_NS..=limits::MAX_RTO_NS;
        ensure!(timeouts.contains(&snapshot.rto_ns), "a timeout of {} ns", snapshot.rto_ns);
        if is_clear {
            ensure!(outstanding == self.outstanding, "{outstanding} outstanding, not {}", self.outstanding);
            let window = i64::from(snapshot.peer_window_bytes);
            ensure!(window == self.window, "a window of {window}, not {}", self.window);
            ensure!(snapshot.sacked_bytes + snapshot.lost_bytes == 0, "sacked or lost on a clear path");
            ensure!(!snapshot.reordering_seen, "reordering on a clear path");
        }
        Ok(())
    }
}
