//! The interface between loss recovery and the congestion control algorithms.

use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// The input of the algorithm from an acknowledgement of new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// When it came.
    pub now: Instant,
    /// Octets newly acknowledged cumulatively.
    pub octets: u32,
    /// Octets that were in flight before it.
    pub flight_octets: u32,
    /// The congestion window was what held the sender back. A window that is not used does not grow (in the
    /// spirit of RFC 7661).
    pub limited: bool,
    /// The round-trip time measured with it, in nanoseconds, if any.
    pub rtt_ns: Option<u64>,
    /// The smoothed round-trip time in nanoseconds, once known.
    pub smoothed_rtt_ns: Option<u64>,
    /// The place acknowledged up to.
    pub ack: SeqNumber,
    /// The highest place sent: with `ack`, it delimits rounds and observation windows.
    pub highest_sent: SeqNumber,
    /// ECE was set on it (RFC 3168). Such an acknowledgement grows no window; to DCTCP its octets count as
    /// marked.
    pub ece: bool,
}

/// Why the window is to be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Segments were lost.
    Loss,
    /// A router marked segments instead of dropping them (RFC 3168 §6.1.2). TCP reports it at most once a
    /// window.
    Ecn,
}

/// One algorithm, for one connection.
pub trait CongestionControl {
    /// Returns the octets that may be in flight.
    fn window_octets(&self) -> u32;

    /// Returns the slow-start threshold in octets; `u32::MAX` while nothing has set it.
    fn threshold_octets(&self) -> u32;

    /// Handles an acknowledgement of new data. `in_recovery` says that the connection is in loss recovery:
    /// the window does not grow then, but DCTCP's estimate follows.
    fn on_ack(&mut self, sample: &AckSample, in_recovery: bool);

    /// Loss recovery or an ECN reduction begins: sets the threshold (the multiplicative decrease). For
    /// [`Signal::Ecn`] the window is the threshold at once, and stays; for [`Signal::Loss`] the algorithm
    /// remembers what was before, and the loss recovery sets the window through
    /// [`set_window`](Self::set_window) until [`on_recovered`](Self::on_recovered).
    fn on_congestion(&mut self, now: Instant, flight_octets: u32, signal: Signal);

    /// Loss recovery begins in a round trip in which a mark was answered: the threshold stays, and the loss
    /// recovery sets the window as after [`Signal::Loss`].
    fn on_recovery(&mut self);

    /// Sets the window that proportional rate reduction computes during recovery (RFC 9937).
    fn set_window(&mut self, octets: u32);

    /// Loss recovery is over: the window is the threshold. Nothing happens when a timeout came in between,
    /// since the window grows from one segment then.
    fn on_recovered(&mut self, now: Instant);

    /// Handles an expired retransmission timer: the window becomes one segment (RFC 5681 §3.1). `first` says
    /// that the timer had not backed off yet; only then is the threshold set, and what was before remembered.
    fn on_timeout(&mut self, now: Instant, flight_octets: u32, first: bool);

    /// Has the last reduction stay, because it answers a mark too: [`undo`](Self::undo) undoes nothing.
    fn keep_reduction(&mut self);

    /// Undoes the last reduction, which was spurious (F-RTO, Eifel, D-SACK): window and threshold are at
    /// least as large as before it. If there is none, or it stays, the loss recovery just ends, and it
    /// returns false.
    fn undo(&mut self, now: Instant) -> bool;

    /// Handles the start of sending after nothing was in flight for `idle_ns`. A pause longer than the
    /// retransmission timeout `rto_ns` makes the window no larger than the initial one (RFC 5681 §4.1).
    fn on_idle(&mut self, now: Instant, idle_ns: u64, rto_ns: u64);

    /// Segments carry up to `octets` octets from now on. The window stays what it is in octets, unless
    /// nothing was ever acknowledged: then it is the initial one for the new size.
    fn set_emss(&mut self, octets: u32);

    /// Handles the loss of a SYN or SYN-ACK: the connection starts from one segment (RFC 5681 §3.1, RFC 6928
    /// §2).
    fn on_syn_timeout(&mut self);
}
