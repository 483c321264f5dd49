//! A TCP that knows about FPDUs and keeps their boundaries (RFC 9293, with selective acknowledgement, RACK-TLP,
//! timestamps, ECN and a choice of congestion controls).
//!
//! A [`Connection`] holds no octets. To send it keeps descriptors ([`send_queue`]); what arrives it keeps as frames
//! ([`receive_queue`]). It reads no clock and sends nothing by itself: segments come in through
//! [`Connection::on_segment`], time through [`Connection::on_timer`], and [`Connection::poll_transmit`] gives what is to
//! be sent.

mod acknowledgement;
mod challenge;
mod config;
pub mod congestion;
mod counters;
mod ecn;
mod input;
mod output;
mod pacing;
mod path_mtu;
mod prr;
mod rack;
pub mod receive_queue;
mod recovery;
pub mod rtt;
mod sack_blocks;
pub mod scan_budget;
pub mod send_queue;
mod snapshot;
mod syn;
mod timers;
mod timestamps;

use bitflags::bitflags;

use crate::pool::Pool;
use crate::rate_limit::RateLimit;
use crate::time::{Instant, MILLISECOND};
use crate::wire::tcp::SeqNumber;
use challenge::Challenges;
use congestion::{Congestion, CongestionControl};
use ecn::Ecn;
use pacing::{Pace, Pacer};
use receive_queue::{HeldPool, ReceiveQueue};
use recovery::Recovery;
use rtt::RttEstimator;
use sack_blocks::SackBlocks;
use scan_budget::ScanBudget;
use send_queue::{Segment, SendQueue};
use timers::{Timer, Timers};
use timestamps::Clocks;

pub use config::{Behaviour, Config, Keepalive};
pub use counters::Counters;
pub use ecn::{EcnField, EcnPolicy};
pub use input::Payload;
pub use output::Outgoing;
pub use snapshot::Snapshot;

/// The states of RFC 9293 §3.3.2. LISTEN is not among them: a listener is not a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Both directions are open.
    Established,
    /// We have closed; our FIN is not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer has not closed.
    FinWait2,
    /// The peer has closed; we have not.
    CloseWait,
    /// Both have closed, neither FIN acknowledged to us.
    Closing,
    /// The peer had closed first; our FIN is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged; old segments die out.
    TimeWait,
    /// Nothing is left.
    Closed,
}

/// Why a connection is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Both ends closed, and all data was acknowledged.
    #[error("closed by both ends")]
    Finished,
    /// The peer refused the connection.
    #[error("connection refused by the peer")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset by the peer")]
    Reset,
    /// The peer no longer acknowledges, or has not closed its half in the time that a disconnect gives it.
    #[error("connection timed out: the peer does not acknowledge, or does not close")]
    TimedOut,
    /// Aborted from this end.
    #[error("connection aborted by this end")]
    Aborted,
}

bitflags! {
    /// What a segment or a timer led to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Changes: u8 {
        /// The handshake is complete.
        const ESTABLISHED = 1;
        /// More octets are in order.
        const DATA = 2;
        /// Octets we sent were acknowledged.
        const ACKNOWLEDGED = 4;
        /// The peer sends nothing more; all it sent is in order (C00-5.1-06).
        const PEER_FINISHED = 8;
        /// The connection is closed; [`Connection::close_reason`] says why.
        const CLOSED = 16;
    }
}

/// Why a segment was not taken, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Outside the window.
    OutsideWindow,
    /// Nothing in it is new.
    Duplicate,
    /// It acknowledges what was never sent.
    BadAck,
    /// A RST or SYN that may be forged (RFC 5961): answered by an acknowledgement.
    Challenged,
    /// A bound on held frames is reached.
    NoRoom,
    /// No place in the state of the connection.
    WrongState,
    /// Out of place, and one too many for an answer (RFC 5961 §7).
    RateLimited,
    /// A timestamp older than one already seen, or none where each segment has one (RFC 7323 §3.2, §5.3).
    OldTimestamp,
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// What it led to.
    pub changes: Changes,
    /// The octets of it that are kept beyond a gap: the first, and the place after the last (MPA-A.3-01, MPA-A.3-03).
    pub beyond_gap: Option<(SeqNumber, SeqNumber)>,
    /// Why its payload or all of it was not taken.
    pub refusal: Option<Refusal>,
}

/// The frames and descriptors of all connections of a core.
pub struct Pools<P, F> {
    /// Descriptors of data to send.
    pub segments: Pool<Segment<P>>,
    /// Frames received and not consumed.
    pub held: HeldPool<F>,
    /// Answers to segments out of place.
    pub challenges: RateLimit,
    /// Looks at the send queues.
    pub scan_budget: ScanBudget,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Connection {
    state: State,
    config: Config,

    /// The first sequence number we used: our SYN's.
    iss: SeqNumber,
    /// Oldest octet not acknowledged.
    snd_una: SeqNumber,
    /// Window the peer gives, in octets.
    snd_wnd: u32,
    /// Largest window the peer ever gave.
    snd_wnd_max: u32,
    /// Sequence and acknowledgement number of the segment that last changed the window.
    snd_wl: (SeqNumber, SeqNumber),
    snd_scale: u8,
    send: SendQueue,
    /// Largest payload of a segment we send (EMSS): what peer, device and path allow, less the options of each segment.
    emss_octets: u16,
    /// What it was before the path turned out narrower.
    emss_negotiated_octets: u16,
    congestion: Congestion,
    rtt: RttEstimator,
    recovery: Recovery,
    pacer: Pacer,
    /// Data up to here was sent, or held back, under a full congestion window.
    limited_until: SeqNumber,
    /// When new data was last sent.
    sent_at: Instant,
    /// When data was last acknowledged, or first became outstanding after that.
    progress_at: Instant,

    /// The peer's first sequence number.
    irs: SeqNumber,
    receive: ReceiveQueue,
    sack_blocks: SackBlocks,
    /// Right edge of the window we have offered; it never goes back (DDP-A-04).
    rcv_edge: SeqNumber,
    rcv_scale: u8,
    /// Place of the peer's FIN, once seen.
    peer_fin: Option<SeqNumber>,
    /// The acknowledgement number last sent.
    last_ack_sent: SeqNumber,
    /// When anything last came from the peer.
    heard_at: Instant,

    clocks: Clocks,
    ecn: Ecn,
    /// Both ends understand selective acknowledgements.
    sack: bool,
    fin_queued: bool,
    fin_sent: bool,
    /// The peer's FIN is in order and counts in what we acknowledge.
    peer_finished: bool,

    /// Segments with data since the last acknowledgement.
    unacknowledged_segments: u8,
    /// Segments with data that are still to be acknowledged at once: there was a loss.
    prompt_acks: u8,
    /// What an acknowledgement with the echo before the last change of marks is to cover (RFC 8257 §3.2).
    earlier_ack: Option<SeqNumber>,
    /// Acknowledgements to be sent now.
    acks_owed: u8,
    /// SYNs sent.
    syn_transmissions: u8,
    /// Zero-window probes in a row, for their interval; those without any answer, to give up.
    persist_backoff: u8,
    unanswered_probes: u8,
    /// Times large segments were suspected not to pass, since one has passed.
    black_holes_suspected: u8,
    /// Keepalive probes in a row.
    keepalive_probes: u8,
    syn_owed: bool,
    fin_owed: bool,
    probe_owed: bool,
    reset_owed: bool,

    challenges: Challenges,
    timers: Timers,
    close_reason: CloseReason,
    counters: Counters,
}

impl Connection {
    fn new(state: State, config: Config, iss: SeqNumber) -> Self {
        let emss_octets = crate::limits::DEFAULT_MSS_OCTETS;
        let algorithm = config.behaviour.congestion;
        Self {
            state,
            config,
            iss,
            snd_una: iss,
            snd_wnd: 0,
            snd_wnd_max: 0,
            snd_wl: (SeqNumber(0), iss),
            snd_scale: 0,
            send: SendQueue::new(iss + 1),
            emss_octets,
            emss_negotiated_octets: emss_octets,
            congestion: Congestion::new(algorithm, u32::from(emss_octets)),
            rtt: RttEstimator::new(),
            recovery: Recovery::new(iss + 1),
            pacer: Pacer::new(),
            limited_until: iss,
            sent_at: Instant::ZERO,
            progress_at: Instant::ZERO,
            irs: SeqNumber(0),
            receive: ReceiveQueue::new(SeqNumber(0)),
            sack_blocks: SackBlocks::default(),
            rcv_edge: SeqNumber(0),
            rcv_scale: output::scale_for(config.window_octets),
            peer_fin: None,
            last_ack_sent: SeqNumber(0),
            heard_at: Instant::ZERO,
            clocks: Clocks::new(config.timestamp_offset),
            ecn: Ecn::new(algorithm == congestion::Algorithm::Dctcp),
            sack: false,
            fin_queued: false,
            fin_sent: false,
            peer_finished: false,
            unacknowledged_segments: 0,
            prompt_acks: 0,
            earlier_ack: None,
            acks_owed: 0,
            syn_transmissions: 0,
            persist_backoff: 0,
            unanswered_probes: 0,
            black_holes_suspected: 0,
            keepalive_probes: 0,
            syn_owed: true,
            fin_owed: false,
            probe_owed: false,
            reset_owed: false,
            challenges: Challenges::new(),
            timers: Timers::new(),
            close_reason: CloseReason::Finished,
            counters: Counters::default(),
        }
    }

    /// A connection that opens actively: it owes a SYN.
    pub fn connect(config: Config, iss: SeqNumber) -> Self {
        Self::new(State::SynSent, config, iss)
    }

    /// A connection that answers `syn`, which came at `now`: it owes a SYN with an acknowledgement.
    pub fn accept(now: Instant, config: Config, iss: SeqNumber, syn: &crate::wire::tcp::Header) -> Self {
        let mut connection = Self::new(State::SynReceived, config, iss);
        connection.take_syn(now, syn);
        connection
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why the connection is closed; meaningful in state [`State::Closed`].
    pub const fn close_reason(&self) -> CloseReason {
        self.close_reason
    }

    /// Largest payload of a segment we send, in octets (MPA-5.1-01, MPA-A.1-02, C00-5.1-02).
    pub const fn emss_octets(&self) -> usize {
        self.emss_octets as usize
    }

    /// Oldest place in our stream that is not acknowledged.
    pub const fn acknowledged(&self) -> SeqNumber {
        self.snd_una
    }

    /// Place after the last octet queued to send.
    pub const fn queued_end(&self) -> SeqNumber {
        self.send.end()
    }

    /// The received octets.
    pub const fn received(&self) -> &ReceiveQueue {
        &self.receive
    }

    /// The counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The round-trip time estimate.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// What is added to our clock in timestamps and the peer's latest one, where both ends send them.
    pub fn clocks(&self) -> Option<(u32, u32)> {
        self.clocks.negotiated.then(|| self.clocks.parts())
    }

    /// Whether the peer sends nothing more and all it sent is in order.
    pub const fn peer_finished(&self) -> bool {
        self.peer_finished
    }

    /// Whether data may still be queued.
    pub const fn may_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.fin_queued
    }

    /// Octets that could be sent at once beyond what is queued: what the peer's window and the congestion window leave.
    pub fn send_room(&self) -> usize {
        if !self.may_send() {
            return 0;
        }
        let to_come = self.send.lost_octets() + self.send.unsent_octets();
        let network = self.congestion.window_octets().saturating_sub(self.pipe_octets() + to_come);
        let peer = self.snd_wnd.saturating_sub((self.send.end() - self.snd_una) as u32);
        network.min(peer) as usize
    }

    /// Whether something is queued that was not yet sent.
    pub fn has_unsent(&self) -> bool {
        self.send.unsent_octets() > 0
    }

    /// Queues `octets` octets that `payload` stands for as one segment, from `skip` octets into the payload. Segments
    /// longer than the EMSS are cut when they are sent. `false` when the connection has its share of the core's pool or does
    /// not send any more.
    pub fn queue<P, F>(&mut self, pools: &mut Pools<P, F>, payload: P, skip: u32, octets: u32) -> bool {
        self.may_send() && self.send.push(&mut pools.segments, payload, skip, octets)
    }

    /// What the last segment queued stands for and its octets, while it was never sent and may still grow.
    pub fn last_unsent<P: Copy, F>(&self, pools: &Pools<P, F>) -> Option<(P, u32)> {
        if self.may_send() { self.send.last_unsent(&pools.segments) } else { None }
    }

    /// The last segment queued, which [`last_unsent`](Self::last_unsent) gave, now stands for `payload`, of `octets` octets.
    pub fn extend_last<P, F>(&mut self, pools: &mut Pools<P, F>, payload: P, octets: u32) {
        self.send.extend_last(&mut pools.segments, payload, octets);
    }

    /// The segments that are queued, or sent and not acknowledged, in order.
    pub fn kept<'p, P, F>(&self, pools: &'p Pools<P, F>) -> impl Iterator<Item = &'p Segment<P>> {
        self.send.iter(&pools.segments)
    }

    /// Where the first of those begins; the place after all that was queued without one. It may lie before
    /// [`acknowledged`](Self::acknowledged): a segment stays whole.
    pub fn oldest_kept<P, F>(&self, pools: &Pools<P, F>) -> SeqNumber {
        self.send.iter(&pools.segments).next().map_or(self.queued_end(), |segment| segment.seq)
    }

    /// All of those stand for `payload` from now on, whose octets are found by their place in the stream.
    pub fn replace_payloads<P: Copy, F>(&mut self, pools: &mut Pools<P, F>, payload: P) {
        self.send.replace_payloads(&mut pools.segments, payload);
    }

    /// Consumes `octets` octets of what is in order.
    pub fn consume<P, F>(&mut self, pools: &mut Pools<P, F>, octets: usize) {
        self.receive.consume(&mut pools.held, octets);
        if self.window_grows_enough() {
            self.acks_owed = self.acks_owed.max(1);
        }
    }

    /// Forgets `octets` octets in order from `start` octets after the first unread one, so that the peer sends them again;
    /// what lies behind them is kept. `false`, and nothing changed, when some of them were acknowledged already
    /// (MPA-8-08).
    pub fn forget<P, F>(&mut self, pools: &mut Pools<P, F>, start: usize, octets: usize) -> bool {
        let forgotten = self.forget_unacknowledged(pools, start, octets);
        self.counters.forgotten_runs += u32::from(forgotten);
        forgotten
    }

    /// Forgets all that is in order, can be read and was not acknowledged, for want of frames. `false` when there is no such.
    pub fn shed<P, F>(&mut self, pools: &mut Pools<P, F>) -> bool {
        let start = (self.last_ack_sent - self.receive.unread()).max(0) as usize;
        let octets = self.receive.readable(&pools.held).saturating_sub(start);
        octets > 0 && self.forget_unacknowledged(pools, start, octets)
    }

    fn forget_unacknowledged<P, F>(&mut self, pools: &mut Pools<P, F>, start: usize, octets: usize) -> bool {
        let from = self.receive.unread() + start as u32;
        if self.last_ack_sent > from || self.peer_finished {
            return false;
        }
        self.receive.forget(&mut pools.held, start, octets);
        self.sack_blocks.clear();
        for run in self.receive.runs_beyond_gaps(&pools.held) {
            self.sack_blocks.on_held(run);
        }
        self.acks_owed = self.acks_owed.max(1);
        true
    }

    /// Marks `from..to`, beyond a gap, as placed, see [`ReceiveQueue::place`].
    pub fn place<P, F>(&mut self, pools: &mut Pools<P, F>, from: SeqNumber, to: SeqNumber) {
        self.receive.place(&mut pools.held, from, to);
        self.counters.placed_octets += u64::from((to - from).max(0).cast_unsigned());
    }

    /// Sends FIN after everything queued.
    pub fn close(&mut self) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynSent => {
                self.enter_closed(CloseReason::Aborted);
                return;
            }
            State::SynReceived => {
                self.abort();
                return;
            }
            _ => return,
        }
        self.fin_queued = true;
    }

    /// Sends RST and forgets everything.
    pub fn abort(&mut self) {
        self.reset_owed = !matches!(self.state, State::Closed | State::TimeWait | State::SynSent);
        self.enter_closed(CloseReason::Aborted);
    }

    /// As [`abort`](Self::abort), for a peer that has taken too long.
    pub fn give_up(&mut self) {
        self.reset_owed = !matches!(self.state, State::Closed | State::TimeWait | State::SynSent);
        self.enter_closed(CloseReason::TimedOut);
    }

    /// Frees what the connection holds of the pools. The connection is of no use afterwards.
    pub fn release<P, F>(&mut self, pools: &mut Pools<P, F>) {
        self.send.clear(&mut pools.segments);
        self.receive.clear(&mut pools.held);
    }

    /// Frees the frames that the connection holds of what it has received. It must be closed.
    pub fn release_received<P, F>(&mut self, pools: &mut Pools<P, F>) {
        debug_assert_eq!(self.state, State::Closed, "what was acknowledged is lost");
        self.receive.clear(&mut pools.held);
    }

    fn enter_closed(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.close_reason = reason;
            self.timers.clear_all();
        }
    }

    /// When [`on_timer`](Self::on_timer) is to be called next.
    pub fn next_deadline(&self) -> Instant {
        self.timers.earliest()
    }

    /// Octets sent and not acknowledged.
    fn flight_octets(&self) -> u32 {
        (self.send.nxt() - self.snd_una).max(0) as u32
    }

    /// Octets believed to be on their way. Without selective acknowledgements each duplicate tells of one segment that
    /// has left the network (RFC 5681 §3.2).
    fn pipe_octets(&self) -> u32 {
        self.send.in_flight_octets().saturating_sub(self.recovery.left_octets(self.emss_octets))
    }

    fn arm_retransmit(&mut self, now: Instant) {
        let mut at = now + self.rtt.rto_ns();
        if let Some(limit_ms) = self.config.behaviour.user_timeout_ms {
            at = at.min((self.progress_at + u64::from(limit_ms) * MILLISECOND).max(now));
        }
        self.timers.set(Timer::Retransmit, at);
    }

    /// The pace of the sender, once the path is known to be longer than the burst that may leave at once: a window over a
    /// shorter one is spent before pacing could hold it back.
    fn pace(&self) -> Option<Pace> {
        if !self.config.behaviour.pacing {
            return None;
        }
        let rtt_ns = self.rtt.smoothed_ns().filter(|rtt_ns| *rtt_ns > crate::limits::PACED_BURST_NS)?;
        let window = self.congestion.window_octets();
        let slow_start = window < self.congestion.threshold_octets();
        Some(Pace::new(window, rtt_ns, slow_start, u32::from(self.emss_octets)))
    }
}
