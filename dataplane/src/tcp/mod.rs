//! A TCP that knows about FPDUs and keeps their boundaries (RFC 9293, with RFC 5681, 6298, 6582 and 7323's window
//! scaling).
//!
//! A [`Connection`] holds no octets. To send it keeps descriptors ([`send_queue`]); what arrives it keeps as frames
//! ([`receive_queue`]). It reads no clock and sends nothing by itself: segments come in through
//! [`Connection::on_segment`], time through [`Connection::on_timer`], and [`Connection::poll_transmit`] gives what is to
//! be sent.

pub mod cc;
pub mod congestion;
mod input;
mod output;
pub mod receive_queue;
pub mod rtt;
pub mod send_queue;
mod timers;

use bitflags::bitflags;

use crate::pool::Pool;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;
use congestion::NewReno;
use receive_queue::{Held, ReceiveQueue};
use rtt::RttEstimator;
use send_queue::{Segment, SendQueue};
use timers::{Timer, Timers};

pub use input::Payload;
pub use output::Outgoing;

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
    /// The peer no longer acknowledges.
    #[error("connection timed out: the peer does not acknowledge")]
    TimedOut,
    /// Aborted from this end.
    #[error("connection aborted by this end")]
    Aborted,
}

bitflags! {
    /// What a segment or a timer led to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Progress: u8 {
        /// The handshake is complete.
        const ESTABLISHED = 1;
        /// More octets are in order.
        const DATA = 2;
        /// Octets we sent were acknowledged.
        const ACKNOWLEDGED = 4;
        /// The peer sends nothing more; all it sent is in order.
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
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// What it led to.
    pub progress: Progress,
    /// Why its payload or all of it was not taken.
    pub refusal: Option<Refusal>,
}

/// How a connection behaves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest segment we can take, in octets of payload: the MTU less 40.
    pub mss_octets: u16,
    /// Octets we let the peer have in flight.
    pub window_octets: u32,
}

/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments with data sent, retransmissions included.
    pub data_segments_sent: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Segments received with data beyond a gap.
    pub out_of_order_segments: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Fast retransmits.
    pub fast_retransmits: u64,
    /// Zero-window probes sent.
    pub window_probes: u64,
    /// FPDUs that had to be cut to fit a small segment or window.
    pub cut_segments: u64,
    /// The most frames held at once.
    pub held_frames_peak: u64,
    /// FPDUs dropped before acknowledgement because their CRC was wrong (RFC 5044 §8).
    pub forgotten_runs: u64,
}

/// The frames and descriptors of all connections of a core.
pub struct Pools<P, F> {
    /// Descriptors of data to send.
    pub segments: Pool<Segment<P>>,
    /// Frames received and not consumed.
    pub held: Pool<Held<F>>,
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
    /// Largest payload of a segment we send: min of the peer's MSS and ours (EMSS).
    emss_octets: u16,
    duplicate_acks: u8,
    congestion: NewReno,
    rtt: RttEstimator,
    fin_queued: bool,
    fin_sent: bool,

    /// The peer's first sequence number.
    irs: SeqNumber,
    receive: ReceiveQueue,
    /// Right edge of the window we have offered; it never goes back (DDP-A-04).
    rcv_edge: SeqNumber,
    rcv_scale: u8,
    /// Place of the peer's FIN, once seen.
    peer_fin: Option<SeqNumber>,
    /// The peer's FIN is in order and counts in what we acknowledge.
    peer_finished: bool,
    /// The acknowledgement number last sent.
    last_ack_sent: SeqNumber,

    /// Segments with data since the last acknowledgement.
    unacknowledged_segments: u8,
    /// Acknowledgements to be sent now.
    acks_owed: u8,
    syn_owed: bool,
    probe_owed: bool,
    resend_owed: bool,
    reset_owed: bool,

    timers: Timers,
    close_reason: CloseReason,
    counters: Counters,
}

impl Connection {
    fn new(state: State, config: Config, iss: SeqNumber) -> Self {
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
            emss_octets: crate::limits::DEFAULT_MSS_OCTETS,
            duplicate_acks: 0,
            congestion: NewReno::new(u32::from(crate::limits::DEFAULT_MSS_OCTETS)),
            rtt: RttEstimator::new(),
            fin_queued: false,
            fin_sent: false,
            irs: SeqNumber(0),
            receive: ReceiveQueue::new(SeqNumber(0)),
            rcv_edge: SeqNumber(0),
            rcv_scale: output::scale_for(config.window_octets),
            peer_fin: None,
            peer_finished: false,
            last_ack_sent: SeqNumber(0),
            unacknowledged_segments: 0,
            acks_owed: 0,
            syn_owed: true,
            probe_owed: false,
            resend_owed: false,
            reset_owed: false,
            timers: Timers::new(),
            close_reason: CloseReason::Finished,
            counters: Counters::default(),
        }
    }

    /// A connection that opens actively: it owes a SYN.
    pub fn connect(config: Config, iss: SeqNumber) -> Self {
        Self::new(State::SynSent, config, iss)
    }

    /// A connection that answers `syn`: it owes a SYN with an acknowledgement.
    pub fn accept(config: Config, iss: SeqNumber, syn: &crate::wire::tcp::Header) -> Self {
        let mut connection = Self::new(State::SynReceived, config, iss);
        connection.take_syn(syn);
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

    /// Largest payload of a segment we send, in octets (MPA-A.1-02).
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
        let window = self.snd_wnd.min(self.congestion.window_octets());
        let used = (self.send.end() - self.snd_una) as u32;
        window.saturating_sub(used) as usize
    }

    /// Whether something is queued that was not yet sent.
    pub fn has_unsent(&self) -> bool {
        self.send.unsent_octets() > 0
    }

    /// Queues `octets` octets that `payload` stands for as one segment, from `skip` octets into the payload. Segments
    /// longer than the EMSS are cut when they are sent. `false` when the core's pool is exhausted or the connection does
    /// not send any more.
    pub fn queue<P, F>(&mut self, pools: &mut Pools<P, F>, payload: P, skip: u32, octets: u32) -> bool {
        self.may_send() && self.send.push(&mut pools.segments, payload, skip, octets)
    }

    /// Consumes `octets` octets of what is in order.
    pub fn consume<P, F>(&mut self, pools: &mut Pools<P, F>, octets: usize) {
        self.receive.consume(&mut pools.held, octets);
        if self.window_grows_enough() {
            self.acks_owed = self.acks_owed.max(1);
        }
    }

    /// Forgets the octets in order from `start` octets after the first unread one, so that the peer sends them again.
    /// `false`, and nothing changed, when some of them were acknowledged already (MPA-8-08).
    pub fn forget<P, F>(&mut self, pools: &mut Pools<P, F>, start: usize) -> bool {
        let from = self.receive.unread() + start as u32;
        if self.last_ack_sent > from || self.peer_finished {
            return false;
        }
        self.receive.forget(&mut pools.held, start);
        self.peer_fin = None;
        self.counters.forgotten_runs += 1;
        // Three duplicates make a sender with fast retransmit send it again at once.
        self.acks_owed = self.acks_owed.max(1);
        true
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
        if matches!(self.state, State::Closed | State::TimeWait | State::SynSent) {
            self.enter_closed(CloseReason::Aborted);
            return;
        }
        self.reset_owed = true;
        self.enter_closed(CloseReason::Aborted);
    }

    /// Frees what the connection holds of the pools. The connection is of no use afterwards.
    pub fn release<P, F>(&mut self, pools: &mut Pools<P, F>) {
        self.send.clear(&mut pools.segments);
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

    fn arm_retransmit(&mut self, now: Instant) {
        self.timers.set(Timer::Retransmit, now + self.rtt.rto_ns());
    }
}
