//! How queue pairs are made, and how their connections end.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use warpline_dataplane::limits;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::tcp::{Keepalive, PeerTimeouts};

use super::device::Stopped;
use super::duration::whole_milliseconds;

/// The treatment of a message of the peer, a Send or Immediate Data, that finds no receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RnrPolicy {
    /// It ends the stream: the peer gets a Terminate that says so (RFC 5041 §7.1).
    #[default]
    Terminate,
    /// The message waits for a receive, as verbs' `rnr_retry` has a sender wait. All that the peer sends
    /// after it waits too, its RDMA Read Responses included: TCP's window closes, and the peer is held up.
    /// The stream ends as with [`Terminate`](Self::Terminate) when no receive was posted in time; earlier,
    /// but not within four seconds, when the device runs short of the frames that its connections hold and
    /// this one holds its fair share of them or more.
    ///
    /// Once this end disconnects, a message waits half a second at most: where both ends do while messages of
    /// theirs wait, nobody posts receives any more.
    Wait {
        /// How long each message waits.
        timeout: Duration,
    },
}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Send work requests that may be outstanding: at least one, at most
    /// [`WORK_REQUESTS_PER_QUEUE`](limits::WORK_REQUESTS_PER_QUEUE).
    pub send_depth: usize,
    /// Receive work requests that may be outstanding; the same bounds.
    pub receive_depth: usize,
    /// What happens when the peer closes its half of the connection. `false`: we close ours once everything
    /// posted is done. `true`: it stays open for sends until
    /// [`QueuePairControl::disconnect`](crate::QueuePairControl::disconnect).
    pub keep_open: bool,
    /// Small messages that wait at the same time share a TCP segment (RFC 5044 App. A.2). None waits for
    /// another: that is [`Behaviour::nagle`](warpline_dataplane::tcp::Behaviour::nagle). `false`: each FPDU
    /// has a segment of its own.
    pub packing: bool,
    /// Times in a row that an FPDU with a wrong CRC is dropped in silence before it is error 2: TCP brings it
    /// again, if none of it was acknowledged (RFC 5044 §8). 0: the first is an error.
    pub crc_retries: u8,
    /// The treatment of a message that finds no receive, of the queue pair or of its shared receive queue.
    pub rnr: RnrPolicy,
    /// How long a connection that this end has closed may go without a sign of life that matters: a byte of
    /// the peer, or an acknowledgement of ours. Then it is reset, and ends as
    /// [`TimedOut`](warpline_dataplane::tcp::CloseReason::TimedOut). `None`: it waits for the peer however
    /// long that takes.
    pub disconnect_timeout: Option<Duration>,
    /// How long bytes of this end may go unacknowledged before the connection fails as
    /// [`TimedOut`](warpline_dataplane::tcp::CloseReason::TimedOut): TCP's user timeout (RFC 9293 §3.9.1, RFC
    /// 5482), in whole milliseconds. It holds from Full Operation on, in place of
    /// [`Behaviour::user_timeout_ms`](warpline_dataplane::tcp::Behaviour::user_timeout_ms); `None` leaves
    /// that. A peer that keeps its window closed, and answers, is not given up.
    pub user_timeout: Option<Duration>,
    /// When a peer that is silent while nothing of this end waits for it is probed and given up (RFC 9293
    /// §3.8.4). It holds from Full Operation on, in place of
    /// [`Behaviour::keepalive`](warpline_dataplane::tcp::Behaviour::keepalive); `None` leaves that.
    pub keepalive: Option<Keepalive>,
    /// How much the queue pair may send, in bytes of TCP payload a second, headers of FPDUs, CRCs and what is
    /// sent again among them; whole kilobytes (1000 bytes), one at least. Segments leave at that pace: after
    /// rest two milliseconds' worth may leave at once, a segment at least. It holds from Full Operation on,
    /// in place of [`Behaviour::rate_limit_kbps`](warpline_dataplane::tcp::Behaviour::rate_limit_kbps);
    /// `None` leaves that.
    pub rate_limit: Option<u64>,
    /// Its share in what the core sends while several connections have much to send: one of weight 32 may
    /// send twice as many bytes as one of 16, which is the usual weight. The core serves them in turns, 8 KiB
    /// for each unit of the weight.
    pub weight: NonZeroU8,
}

impl QpConfig {
    /// Returns the same configuration, with a peer that is gone given up after `silence`, whether or not
    /// bytes wait for its acknowledgement: [`user_timeout`](Self::user_timeout) and
    /// [`keepalive`](Self::keepalive) together. At least a millisecond, at most 49 days.
    ///
    /// ```
    /// use std::time::Duration;
    /// use warpline::QpConfig;
    ///
    /// let config = QpConfig::default().give_up_after(Duration::from_secs(10));
    /// assert_eq!(config.user_timeout, Some(Duration::from_secs(10)));
    /// assert_eq!(config.keepalive.map(|keepalive| keepalive.idle_ms), Some(5000));
    /// ```
    #[must_use]
    pub fn give_up_after(self, silence: Duration) -> Self {
        let keepalive = Keepalive::within_ms(whole_milliseconds(silence));
        Self { user_timeout: Some(silence), keepalive: Some(keepalive), ..self }
    }

    /// Returns the rate limit as TCP has it, in kilobytes.
    pub(crate) fn rate_limit_kbps(&self) -> Option<NonZeroU32> {
        let kilobytes = |bytes: u64| u32::try_from(bytes / 1000).unwrap_or(u32::MAX);
        self.rate_limit.map(|bytes| NonZeroU32::new(kilobytes(bytes)).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns when TCP gives the peer up.
    pub(crate) fn peer_timeouts(&self) -> PeerTimeouts {
        let user_timeout_ms = self.user_timeout.map(whole_milliseconds);
        PeerTimeouts { user_timeout_ms, keepalive: self.keepalive }
    }
}

impl Default for QpConfig {
    /// Returns 128 work requests each way, packing, a few retries, a minute after a disconnect, and otherwise
    /// the timeouts of TCP.
    fn default() -> Self {
        Self {
            send_depth: 128,
            receive_depth: 128,
            keep_open: false,
            packing: true,
            crc_retries: limits::CRC_RETRIES,
            rnr: RnrPolicy::Terminate,
            disconnect_timeout: Some(Duration::from_nanos(limits::DISCONNECT_TIMEOUT_NS)),
            user_timeout: None,
            keepalive: None,
            rate_limit: None,
            weight: limits::WEIGHT_USUAL,
        }
    }
}

/// Why there is no queue pair.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The device serves as many as it can.
    #[error("the device has as many queue pairs as it can: drop some")]
    TooManyQueuePairs,
    /// The Protection Domain has its share of what the device can serve.
    #[error("the protection domain has as many queue pairs as it may: drop some (Quotas)")]
    Quota,
    /// A queue is to hold more work requests than one can.
    #[error("a queue of {depth} work requests is deeper than any can be: {most} at most")]
    TooDeep {
        /// Work requests asked for.
        depth: usize,
        /// As many as there may be.
        most: usize,
    },
    /// The shared receive queue belongs to another Protection Domain.
    #[error(
        "the shared receive queue belongs to another Protection Domain: make one in that of the queue pair"
    )]
    OtherDomain,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a connection did not end in an orderly way, or not yet.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// It failed.
    #[error(transparent)]
    Failed(StreamError),
    /// It is not closed yet.
    #[error("the connection is not closed yet: disconnect it, and see that the peer closes too")]
    NotYet,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate limit is in whole kilobytes, one at least, and none stays none.
    #[test]
    fn a_rate_limit_is_at_least_a_kilobyte() {
        for (bytes, kilobytes) in [(0, 1), (999, 1), (2999, 2), (u64::MAX, u32::MAX)] {
            let config = QpConfig { rate_limit: Some(bytes), ..QpConfig::default() };
            assert_eq!(config.rate_limit_kbps().map(std::num::NonZero::get), Some(kilobytes), "{bytes}");
        }
        assert_eq!(QpConfig::default().rate_limit_kbps(), None);
    }
}
