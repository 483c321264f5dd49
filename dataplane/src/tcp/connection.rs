//! The state of a connection, and what its user asks of it: to queue data, to consume it, to close.

use core::num::NonZeroU32;

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Header, SeqNumber};

use super::ack_state::AckState;
use super::challenge::Challenges;
use super::config::Config;
use super::congestion::{Congestion, CongestionControl};
use super::counters::Counters;
use super::ecn::Ecn;
use super::pacing::{Pace, Pacer};
use super::path_mss::PathMss;
use super::pools::Pools;
use super::rdma_option::RdmaOptionUse;
use super::receive_queue::{ReceiveQueue, WindowPromise};
use super::receive_state::ReceiveState;
use super::recovery::Recovery;
use super::rtt::RttEstimator;
use super::send_queue::{Segment, SendPayload};
use super::send_state::{Fin, SendState};
use super::snapshot::Snapshot;
use super::state::{CloseReason, State};
use super::timers::{Activity, ProbeState, Timer, Timers};
use super::timestamps::TimestampClock;
use super::unusual::Unusual;

/// One TCP connection, with one field for each mechanism. Methods of the connection change the fields, and
/// keep what must hold between them: with [`State::Closed`], for example, no timer runs, and only then
/// `reset_owed` may be set.
///
/// The fields are in an order that keeps together what each segment needs (test
/// `what_each_segment_needs_is_together`): a connection that was idle long enough to leave the caches costs a
/// wait for memory for each line of it.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    // What hardly ever changes.
    pub(super) config: Config,
    pub(super) counters: Counters,
    // What each segment needs, in either direction.
    pub(super) ack: AckState,
    /// The rare conditions, of TCP and of its user.
    pub unusual: Unusual,
    pub(super) receive: ReceiveState,
    pub(super) state: State,
    pub(super) close_reason: CloseReason,
    /// A RST is to be sent; set by [`reset`](Self::reset) only.
    pub(super) reset_owed: bool,
    pub(super) ecn: Ecn,
    pub(super) path: PathMss,
    pub(super) probe: ProbeState,
    pub(super) timestamps: TimestampClock,
    pub(super) timers: Timers,
    pub(super) send: SendState,
    pub(super) recovery: Recovery,
    // What data that is sent and acknowledged needs besides.
    pub(super) rtt: RttEstimator,
    pub(super) activity: Activity,
    pub(super) pacer: Pacer,
    pub(super) congestion: Congestion,
    // What only an attack needs.
    pub(super) challenges: Challenges,
}

// Memory for a hundred thousand idle connections is mostly this (test `memory_per_connection`).
const _: () = assert!(size_of::<Connection>() <= 800);

impl Connection {
    fn new(state: State, config: Config, iss: SeqNumber) -> Self {
        let path = PathMss::new(limits::DEFAULT_MSS_BYTES);
        let algorithm = config.behaviour.congestion;
        Self {
            state,
            close_reason: CloseReason::Finished,
            config,
            reset_owed: false,
            send: SendState::new(iss, iss + 1),
            receive: ReceiveState::new(&config),
            ack: AckState::new(),
            unusual: Unusual::all().difference(Unusual::AWAITS_PATH),
            probe: ProbeState::new(),
            path,
            congestion: Congestion::new(algorithm, path.emss_octets()),
            rtt: RttEstimator::new(),
            recovery: Recovery::new(iss + 1),
            pacer: Pacer::new(),
            ecn: Ecn::off(),
            timestamps: TimestampClock::new(config.timestamp_offset),
            challenges: Challenges::new(),
            activity: Activity::new(),
            timers: Timers::new(),
            counters: Counters::default(),
        }
    }

    /// Opens a connection actively: it owes a SYN.
    pub fn connect(config: Config, iss: SeqNumber) -> Self {
        Self::new(State::SynSent, config, iss)
    }

    /// Opens a connection passively, for `syn` that came at `now`: it owes a SYN-ACK.
    pub fn accept(now: Instant, config: Config, iss: SeqNumber, syn: &Header) -> Self {
        let mut connection = Self::new(State::SynReceived, config, iss);
        connection.accept_syn(now, syn);
        connection
    }

    /// Has the processor fetch the oldest segment of the send queue, and the next one to send.
    #[inline]
    pub fn prefetch_segments<P, F>(&self, pools: &Pools<P, F>) {
        self.send.queue.prefetch(&pools.segments);
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether the handshake is not complete.
    pub(super) const fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// Why the connection is closed; valid in state [`State::Closed`].
    pub const fn close_reason(&self) -> CloseReason {
        self.close_reason
    }

    /// The largest payload of a segment that is sent (EMSS), in octets.
    // Requirements: MPA-5.1-01, MPA-A.1-02, C00-5.1-02
    pub const fn emss_octets(&self) -> usize {
        self.path.emss_octets() as usize
    }

    /// SND.UNA: the oldest sequence number that is not acknowledged.
    pub const fn acknowledged(&self) -> SeqNumber {
        self.send.una
    }

    /// SND.NXT, but for the FIN: the sequence number of the next octet that was never sent.
    pub const fn next_seq(&self) -> SeqNumber {
        self.send.queue.nxt()
    }

    /// The sequence number after the last octet queued.
    pub const fn queued_end(&self) -> SeqNumber {
        self.send.queue.end()
    }

    /// The received octets.
    pub const fn received(&self) -> &ReceiveQueue {
        &self.receive.queue
    }

    /// Whether both ends use the TCP RDMA option.
    pub const fn rdma_option(&self) -> RdmaOptionUse {
        self.receive.rdma_option
    }

    /// The counters.
    pub const fn counters(&self) -> Counters {
        Counters { held_frames_peak: self.receive.held_frames_peak, ..self.counters }
    }

    /// A snapshot of the connection.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self)
    }

    /// The round-trip time estimate.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The offset of the timestamp clock, and the peer's latest timestamp, if the ends have agreed on
    /// timestamps.
    pub fn clocks(&self) -> Option<(u32, u32)> {
        self.timestamps.negotiated.then(|| self.timestamps.values())
    }

    /// Whether the peer has closed and everything it sent is in order.
    pub const fn peer_finished(&self) -> bool {
        self.receive.peer_finished()
    }

    /// Whether data may still be queued.
    pub const fn may_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.send.fin.is_queued()
    }

    /// Octets that could be sent at once beyond those queued: the rest of the peer's window and of the
    /// congestion window.
    pub fn send_room(&self) -> usize {
        if !self.may_send() {
            return 0;
        }
        let to_come = self.send.queue.lost_octets() + self.send.queue.unsent_octets();
        let network = self.congestion.window_octets().saturating_sub(self.pipe_octets() + to_come);
        let peer = self.send.window_octets.saturating_sub((self.send.queue.end() - self.send.una) as u32);
        network.min(peer) as usize
    }

    /// Whether octets are queued that were never sent.
    pub fn has_unsent(&self) -> bool {
        self.send.queue.unsent_octets() > 0
    }

    /// Whether octets or a FIN are to be sent that never were, or a FIN again.
    pub fn has_to_send(&self) -> bool {
        self.has_unsent() || self.send.fin.is_due()
    }

    /// Queues `octets` octets of `payload`, from `skip` octets into it, as one segment. A segment longer than
    /// the EMSS, less the [octets of its option](SendPayload::option_octets), is cut when it is sent. Returns
    /// false if the connection holds its share of the core's pool, or does not send any more.
    pub fn queue<P, F>(&mut self, pools: &mut Pools<P, F>, payload: P, skip: u32, octets: u32) -> bool {
        self.may_send() && self.send.queue.push(&mut pools.segments, payload, skip, octets)
    }

    /// Queues up to `count` segments more of the group that the last one, which was just
    /// [queued](Self::queue) completely, is the first of: [`SendPayload::move_on`] computes them from it.
    /// Returns how many it has queued: fewer if the connection holds its share of the core's pool.
    pub fn queue_more<P, F>(&mut self, pools: &mut Pools<P, F>, count: u32) -> u32 {
        self.send.queue.grow_last(&mut pools.segments, count)
    }

    /// The payload and the octets of the last segment queued, if it was never sent and may still grow: one
    /// that may need an option stays as it is.
    pub fn last_unsent<P: SendPayload, F>(&self, pools: &Pools<P, F>) -> Option<(P, u32)> {
        if self.may_send() { self.send.queue.last_unsent(&pools.segments) } else { None }
    }

    /// Replaces the payload of the last segment queued, which [`last_unsent`](Self::last_unsent) returned, by
    /// `payload` of `octets` octets.
    pub fn extend_last<P, F>(&mut self, pools: &mut Pools<P, F>, payload: P, octets: u32) {
        self.send.queue.extend_last(&mut pools.segments, payload, octets);
    }

    /// Whether segments are queued, or sent and not acknowledged.
    pub const fn has_kept(&self) -> bool {
        !self.send.queue.is_empty()
    }

    /// The segments that are queued, or sent and not acknowledged, in order.
    pub fn kept<'p, P: SendPayload, F>(
        &self,
        pools: &'p Pools<P, F>,
    ) -> impl Iterator<Item = Segment<P>> + 'p {
        self.send.queue.iter(&pools.segments)
    }

    /// The sequence number of the first of those; without one, the number after the last octet queued. It may
    /// lie before [`acknowledged`](Self::acknowledged): a segment acknowledged in part stays as it is.
    pub fn oldest_kept<P: SendPayload, F>(&self, pools: &Pools<P, F>) -> SeqNumber {
        self.send.queue.iter(&pools.segments).next().map_or(self.queued_end(), |segment| segment.seq)
    }

    /// Replaces the payload of all those segments by `payload`, whose octets are found by their sequence
    /// numbers.
    pub fn replace_payloads<P: SendPayload, F>(&mut self, pools: &mut Pools<P, F>, payload: P) {
        self.send.queue.replace_payloads(&mut pools.segments, payload);
    }

    /// Consumes `octets` octets in order.
    pub fn consume<P, F>(&mut self, pools: &mut Pools<P, F>, octets: usize) {
        self.receive.queue.consume(&mut pools.held, octets);
        self.owe_window();
    }

    /// Consumes `octets` octets in order, whose window [is promised](Self::promise_window) after this.
    pub fn consume_promised<P, F>(&mut self, pools: &mut Pools<P, F>, octets: usize) {
        self.receive.queue.consume(&mut pools.held, octets);
    }

    /// Owes an acknowledgement if the window can be offered much larger than the peer has it.
    #[inline]
    pub fn owe_window(&mut self) {
        // After its FIN the peer needs no window. It may be gone, and would answer with a RST.
        if !self.receive.peer_finished() && self.receive.may_grow_window() {
            self.ack.owe_one();
        }
    }

    /// Drops `octets` octets in order, from `start` octets after the first unread one, so that the peer sends
    /// them again. Octets after them are kept; a FIN that was in order is not any more. Returns false and
    /// changes nothing if some of them were acknowledged.
    // Requirements: MPA-8-08
    pub fn forget<P, F>(&mut self, pools: &mut Pools<P, F>, start: usize, octets: usize) -> bool {
        let forgotten = self.forget_unacknowledged(pools, start, octets);
        self.counters.forgotten_runs += u32::from(forgotten);
        forgotten
    }

    /// Drops all octets in order that are readable and not acknowledged, to free frames. Returns false if
    /// there are none.
    pub fn shed<P, F>(&mut self, pools: &mut Pools<P, F>) -> bool {
        let start = (self.ack.last_sent - self.receive.queue.unread()).max(0) as usize;
        let octets = self.receive.queue.readable(&pools.held).saturating_sub(start);
        octets > 0 && self.forget_unacknowledged(pools, start, octets)
    }

    fn forget_unacknowledged<P, F>(&mut self, pools: &mut Pools<P, F>, start: usize, octets: usize) -> bool {
        let from = self.receive.queue.unread() + start as u32;
        if self.ack.last_sent > from {
            return false;
        }
        self.give_back_fin();
        self.receive.queue.forget(&mut pools.held, start, octets);
        self.ack.on_forgotten(from);
        self.ack.replace_held(&self.receive.queue.runs_beyond_gaps(&pools.held));
        self.ack.owe_one();
        true
    }

    /// The peer's FIN, if it is in order and not acknowledged, comes after a gap again.
    fn give_back_fin(&mut self) {
        if !self.receive.give_back_fin() {
            return;
        }
        self.state = match self.state {
            State::CloseWait => State::Established,
            State::Closing | State::LastAck => State::FinWait1,
            State::TimeWait => {
                self.timers.clear(Timer::Linger);
                State::FinWait2
            }
            state => state,
        };
        self.unusual |= Unusual::of(self);
    }

    /// Counts the frames that it holds among those of connections before Full Operation.
    pub fn enter_startup(&mut self) {
        self.receive.queue.enter_startup();
    }

    /// Limits the window that is offered before Full Operation: what was offered stays, and its reader may
    /// turn out to be one who pauses.
    pub fn limit_window_in_startup<P, F>(&mut self, pools: &Pools<P, F>) {
        self.receive.limit_window(pools.held.window_in_startup());
    }

    /// Counts them no longer among those.
    pub fn leave_startup<P, F>(&mut self, pools: &mut Pools<P, F>) {
        self.receive.queue.leave_startup(&mut pools.held);
        self.receive.set_window(self.full_window_octets());
    }

    /// The window without any limit: what is set up, if the peer's window fields can name it.
    pub(super) const fn full_window_octets(&self) -> u32 {
        let unscaled = self.receive.scale == 0 && self.config.window_octets > 0xffff;
        if unscaled { 0xffff } else { self.config.window_octets }
    }

    /// Returns the octets of the window that the peer was offered, from the first not consumed one on.
    #[inline]
    pub fn offered_octets(&self) -> u32 {
        self.receive.offered_octets()
    }

    /// Offers a window to a peer whose reader may pause: frames are promised for what is more than
    /// `reader_octets`, which the reader has room for outside of frames, and always for some segments, so
    /// that a window opens again that was closed. It is of `most` octets, or what was offered before.
    #[inline]
    pub fn promise_window<P, F>(
        &mut self,
        pools: &mut Pools<P, F>,
        promise: &mut WindowPromise,
        reader_octets: u32,
        most: u32,
    ) {
        let full = self.full_window_octets().min(most);
        let wanted = full.saturating_sub(reader_octets);
        let offered = self.receive.offered_octets().saturating_sub(reader_octets);
        let some_segments = limits::PROMISED_SEGMENTS_MIN * u32::from(self.receive.mss_octets);
        let least = offered.max(some_segments.min(wanted));
        promise.renew(&mut pools.held, self.receive.queue.frames(), least, wanted);
        self.receive.set_window(full.min(reader_octets.saturating_add(promise.octets())));
        self.owe_window();
    }

    /// Marks `from..to`, beyond a gap, as placed (see [`ReceiveQueue::place`]).
    pub fn place<P, F>(&mut self, pools: &mut Pools<P, F>, from: SeqNumber, to: SeqNumber) {
        self.receive.queue.place(&mut pools.held, from, to);
        self.counters.placed_bytes += u64::from((to - from).max(0).cast_unsigned());
    }

    /// Closes this end: a FIN follows everything queued.
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
        self.send.fin = Fin::Queued;
    }

    /// Resets the connection when text arrives from now on: its user has left, and the peer learns that what
    /// it sends is lost (RFC 9293 §3.6.1, RFC 2525 §2.17). All text that has arrived was consumed.
    pub fn refuse_text(&mut self) {
        debug_assert!(self.receive.queue.is_drained(), "text of the user is lost without a word");
        self.receive.refuse_text();
    }

    /// Aborts the connection with a RST.
    pub fn abort(&mut self) {
        self.reset(CloseReason::Aborted);
    }

    /// Aborts the connection as [`abort`](Self::abort) does, because the peer is too slow.
    pub fn give_up(&mut self) {
        self.reset(CloseReason::TimedOut);
    }

    /// Closes the connection for `reason` and owes the peer a RST, except before the peer's SYN and in
    /// TIME-WAIT (RFC 9293 §3.10.5). A connection that is closed already keeps the RST that it owes.
    pub(super) fn reset(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.reset_owed = !matches!(self.state, State::TimeWait | State::SynSent);
            self.enter_closed(reason);
        }
    }

    /// Closes a connection before the peer's SYN: the network says that nobody is at the peer's port.
    pub fn refuse(&mut self) {
        debug_assert_eq!(self.state, State::SynSent, "the peer has answered");
        self.enter_closed(CloseReason::Refused);
    }

    /// Frees everything that the connection holds of the pools. The connection must not be used afterwards.
    pub fn release<P, F>(&mut self, pools: &mut Pools<P, F>) {
        self.send.queue.clear(&mut pools.segments);
        self.receive.queue.clear(&mut pools.held);
    }

    /// Records that octets which have arrived in order will not reach the user: the connection, which is to
    /// be reset, counts as aborted even if both ends have finished it.
    pub fn lose_received(&mut self) {
        if self.state == State::Closed && self.close_reason == CloseReason::Finished {
            self.close_reason = CloseReason::Aborted;
        }
    }

    /// Frees the frames of received octets. The connection must be closed.
    pub fn release_received<P, F>(&mut self, pools: &mut Pools<P, F>) {
        debug_assert_eq!(self.state, State::Closed, "what was acknowledged is lost");
        self.receive.queue.clear(&mut pools.held);
    }

    pub(super) fn enter_closed(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.close_reason = reason;
            self.timers.clear_all();
        }
    }

    /// Sends no more than `limit_kbps` kilobytes of payload a second, from now on.
    pub const fn set_rate_limit(&mut self, limit_kbps: Option<NonZeroU32>) {
        self.config.behaviour.rate_limit_kbps = limit_kbps;
    }

    /// When [`on_timer`](Self::on_timer) is to be called next.
    pub fn next_deadline(&self) -> Instant {
        self.timers.earliest()
    }

    /// Octets [believed to be in flight](Recovery::pipe_octets).
    pub(super) fn pipe_octets(&self) -> u32 {
        self.recovery.pipe_octets(&self.send.queue, self.path.emss_octets())
    }

    pub(super) fn arm_retransmit(&mut self, now: Instant) {
        let mut at = now + self.rtt.rto_ns();
        if let Some(limit_ns) = self.user_timeout_ns() {
            at = at.min((self.activity.last_progress + limit_ns).max(now));
        }
        self.timers.set(Timer::Retransmit, at);
    }

    /// The pace of the sender: that of its window or that of its rate limit, whichever is slower.
    pub(super) fn pace(&self) -> Option<Pace> {
        let Some(limit) = self.config.behaviour.rate_limit_kbps else { return self.pace_of_window() };
        let limited = Pace::limited(limit, self.path.emss_octets());
        Some(self.pace_of_window().map_or(limited, |pace| pace.slower(limited)))
    }

    /// The pace of the window, if the round-trip time is longer than the burst that may leave at once. On a
    /// shorter path the window is sent before pacing could hold it back.
    fn pace_of_window(&self) -> Option<Pace> {
        if !self.config.behaviour.pacing {
            return None;
        }
        let rtt_ns = self.rtt.smoothed_ns().filter(|rtt_ns| *rtt_ns > limits::PACED_BURST_NS)?;
        let window = self.congestion.window_octets();
        let slow_start = window < self.congestion.threshold_octets();
        Some(Pace::new(window, rtt_ns, slow_start, self.path.emss_octets()))
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    /// Cache lines from the one with octet `first` of a connection to the one with the octet before `end`, if
    /// octet 0 begins a line.
    const fn lines(first: usize, end: usize) -> usize {
        end.div_ceil(64) - first / 64
    }

    #[test]
    fn what_each_segment_needs_is_together() {
        let first = offset_of!(Connection, ack) + AckState::HOT_OFFSET;
        let end = offset_of!(Connection, recovery) + Recovery::HOT_OCTETS;
        assert!(lines(first, end) <= 5, "{first} to {end}");
        let both_ways = offset_of!(Connection, rtt);
        assert!(lines(first, both_ways) <= 7, "{first} to {both_ways}");
    }
}
