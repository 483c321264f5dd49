//! The poll of a core: what it does, in which order, and when the next one is due.
//!
//! # Polls that find nothing
//!
//! Most polls find nothing, where a core waits for its peer. A poll that has found nothing sets the time
//! until which the next ones find nothing either, unless something comes: a command, a doorbell, a frame, a
//! note of another core. So the next ones ask for these alone.

use std::sync::Arc;

use super::Core;
use super::doorbells::RungDoorbells;
use super::tables::Usage;
#[cfg(feature = "testing")]
use crate::byte_stream::TransferCounters;
use crate::cold;
#[cfg(feature = "testing")]
use crate::conn::ConnectionId;
use crate::device::{Device, RxInterrupt};
use crate::limits;
#[cfg(feature = "testing")]
use crate::qp::work::QpNumber;
use crate::statistics::Statistics;
#[cfg(feature = "testing")]
use crate::tcp;
use crate::time::Instant;
use crate::waker::Waker;

/// A core on whatever device, for what drives it. Its methods are those of [`Core`].
pub trait PollLoop: Send {
    /// As [`Core::poll_once`].
    fn poll_once(&mut self, now: Instant) -> bool;

    /// As [`Core::poll_run_to_completion`].
    fn poll_run_to_completion(&mut self, now: Instant) -> bool;

    /// As [`Core::has_scheduled`].
    fn has_scheduled(&self) -> bool;

    /// As [`Core::next_deadline`].
    fn next_deadline(&self) -> Instant;

    /// As [`Core::clear_news`].
    fn clear_news(&mut self) -> bool;

    /// As [`Core::has_waiting_events`].
    fn has_waiting_events(&self) -> bool;

    /// As [`Core::wake_on_arrival`].
    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool;

    /// As [`Core::rx_interrupt`].
    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>>;

    /// As [`Core::enable_rx_interrupt`].
    fn enable_rx_interrupt(&mut self) -> bool;

    /// As [`Core::disable_rx_interrupt`].
    fn disable_rx_interrupt(&mut self);

    /// As [`Core::statistics`].
    fn statistics(&self) -> Statistics;

    /// As [`Core::usage`].
    fn usage(&self) -> Usage;

    /// As [`Core::transfer_counters`].
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    fn transfer_counters(&self) -> TransferCounters;

    /// As [`Core::tcp`].
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    fn tcp(&self, id: ConnectionId) -> Option<&tcp::Connection>;

    /// As [`Core::continue_message_numbers`].
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    fn continue_message_numbers(&mut self, qp: QpNumber, next: u32);
}

impl<D: Device> Core<D> {
    /// Does everything there is to do at `now`: what has arrived is answered before this returns. Returns
    /// true if it did any work.
    #[inline]
    pub fn poll_once(&mut self, now: Instant) -> bool {
        !self.poll_idly(now) && self.receive_and_send(now)
    }

    #[inline(never)]
    fn receive_and_send(&mut self, now: Instant) -> bool {
        let mut busy = self.receive_commands(now);
        busy |= self.serve_doorbells(now);
        busy |= self.receive_arrivals(now);
        self.host.interface.free_spent();
        busy |= self.transmit(now);
        busy |= self.host.interface.looped_frames() > 0;
        self.end_poll(now, busy)
    }

    /// Does what [`poll_once`](Self::poll_once) does for an application that works between the polls, on the
    /// same thread: it sends first, and receives last. So what the application has posted
    /// leaves at once, and data that have arrived are acknowledged by the next poll: the acknowledgement goes
    /// with what the application answers (RFC 9293 §3.8.6.3), and if it answers nothing, on its own. What
    /// follows from anything else, such as an acknowledgement or a timer, leaves in the same poll, unless it
    /// has served connections before: then the application is at work, and the next poll does for both.
    ///
    /// Returns true if it did any work, or a connection is scheduled for the next poll.
    #[inline]
    pub fn poll_run_to_completion(&mut self, now: Instant) -> bool {
        !self.poll_idly(now) && self.send_and_receive(now)
    }

    #[inline(never)]
    fn send_and_receive(&mut self, now: Instant) -> bool {
        // Before the doorbells: one of them may be that of a queue pair that a command creates.
        let mut busy = self.receive_commands(now);
        busy |= self.serve_doorbells(now);
        let had_scheduled = self.transmit(now);
        let had_arrivals = self.receive_arrivals(now);
        busy |= had_scheduled | had_arrivals;
        if had_arrivals && !self.data_arrived && !had_scheduled {
            busy |= self.transmit(now);
        }
        busy |= self.host.interface.looped_frames() > 0 || self.endpoints.table.has_scheduled();
        self.end_poll(now, busy)
    }

    /// Makes a poll that finds nothing, if the last one has found nothing, nothing has come since, and
    /// nothing is due at `now`; returns false otherwise, and the poll is still to be made. Frames that have
    /// come are those that it begins with.
    #[inline]
    fn poll_idly(&mut self, now: Instant) -> bool {
        let is_idle = now < self.idle_until
            && self.rings.commands.is_empty()
            && self.rings.doorbells.is_empty()
            && !self.host.interface.may_have_input_of_cores()
            && !cold::is_forced()
            && !self.host.interface.look_for_frames(now);
        if is_idle {
            self.polled_at = now;
            let statistics = &mut self.endpoints.context.statistics;
            statistics.polls += 1;
            statistics.idle_polls += 1;
        }
        is_idle
    }

    /// Serves the doorbells that were rung. Returns true if there were any.
    #[inline]
    fn serve_doorbells(&mut self, now: Instant) -> bool {
        !self.rings.doorbells.is_empty() && self.serve_rung_doorbells(now)
    }

    #[inline(never)]
    fn serve_rung_doorbells(&mut self, now: Instant) -> bool {
        let mut busy = self.rings.doorbells.clear_others();
        if busy {
            if self.rings.doorbells.clear_shared_receives() {
                self.walks_on |= !self.rung_doorbells(now).serve_shared_receives();
            }
            self.rung_doorbells(now).serve_byte_streams();
        }
        busy |= self.rung_doorbells(now).serve_queue_pairs();
        busy
    }

    fn rung_doorbells(&mut self, now: Instant) -> RungDoorbells<'_, D::Frame> {
        RungDoorbells { now, doorbells: &self.rings.doorbells, endpoints: &mut self.endpoints }
    }

    /// Receives what has arrived and handles the timers that are due. Returns true if there was anything.
    fn receive_arrivals(&mut self, now: Instant) -> bool {
        // Of the poll before, where what has arrived is answered by this one: the answer has left.
        self.host.interface.free_spent();
        self.data_arrived = false;
        self.endpoints.context.listeners.begin_poll();
        self.endpoints.context.pools.scan_budget.begin_poll();
        self.endpoints.context.local_operations_left = limits::LOCAL_OPERATIONS_PER_POLL;
        let has_stalled = now - core::mem::replace(&mut self.polled_at, now) > limits::STALL_NS;
        let (mut bursts, mut busy) = (0, false);
        loop {
            let count = self.receive(now);
            let mut has_received = count > 0;
            has_received |= self.receive_looped(now);
            has_received |= self.receive_from_cores(now);
            busy |= has_received;
            bursts += 1;
            // A timer may be due only because the poll loop has stalled: what the timer waits for may be
            // among the frames that have arrived after this burst.
            let is_late = has_stalled
                && has_received
                && self.endpoints.table.next_deadline() <= now
                && (count == limits::RECEIVE_BURST_FRAMES || self.host.interface.has_backlog(now));
            if !is_late || bursts == limits::BURSTS_BEFORE_TIMERS {
                break;
            }
            self.host.interface.free_spent();
        }
        busy |= self.detect_duplicates(now);
        self.handshakes.time_waits.expire(now);
        busy |= self.endpoints.expire_timers(now);
        busy |= self.handshakes.left_ports.next_deadline() <= now && self.handle_held_syns(now);
        busy | (self.walks_on && self.walk_on(now))
    }

    /// Goes on with everything that visits many connections or queue pairs, each a bounded number of them.
    #[cold]
    fn walk_on(&mut self, now: Instant) -> bool {
        self.go_on_with_command(now);
        let mut walks_on = self.unfinished.is_some();
        walks_on |= !self.reports.go_on(&mut self.endpoints, &self.host);
        walks_on |= !self.eviction.go_on(now, &mut self.endpoints);
        walks_on |= !self.path_waiters.resume(&mut self.endpoints.table, &self.host);
        let passes = self.endpoints.context.receive_waiters.is_passing();
        walks_on |= passes && !self.rung_doorbells(now).resume_receive_waiters();
        self.walks_on = walks_on;
        true
    }

    fn end_poll(&mut self, now: Instant, busy: bool) -> bool {
        self.host.end_poll(now);
        self.endpoints.context.events.flush();
        self.endpoints.context.statistics.polls += 1;
        if busy {
            self.idle_until = Instant::ZERO;
        } else {
            self.end_idle_poll(now);
        }
        busy
    }

    /// Ends a poll at `now` that has found nothing.
    fn end_idle_poll(&mut self, now: Instant) {
        self.endpoints.context.statistics.idle_polls += 1;
        // Each poll moves events that wait, as soon as control has made room for them.
        let goes_on = self.has_scheduled() || self.endpoints.context.events.waiting() > 0;
        self.idle_until = if goes_on { Instant::ZERO } else { self.next_due(now) };
    }

    /// Returns a time no later than that at which the next of what a core does by the clock is due.
    fn next_due(&self, now: Instant) -> Instant {
        let of_connections =
            self.endpoints.table.next_look(now).min(self.handshakes.left_ports.next_deadline());
        self.host.next_deadline().min(of_connections).min(self.handshakes.time_waits.next_expiry())
    }

    /// Returns true if a connection is scheduled, or something that takes several polls goes on: the next
    /// poll is to come at once.
    #[inline]
    pub fn has_scheduled(&self) -> bool {
        self.endpoints.table.has_scheduled() || self.walks_on
    }

    /// Returns when [`poll_once`](Self::poll_once) must be called again even if nothing arrives and nothing
    /// is posted.
    pub fn next_deadline(&self) -> Instant {
        if self.walks_on {
            return Instant::ZERO;
        }
        let of_connections =
            self.endpoints.table.next_deadline().min(self.handshakes.left_ports.next_deadline());
        self.host.next_deadline().min(of_connections)
    }
}

impl<D: Device + Send> PollLoop for Core<D> {
    fn poll_once(&mut self, now: Instant) -> bool {
        Self::poll_once(self, now)
    }

    fn poll_run_to_completion(&mut self, now: Instant) -> bool {
        Self::poll_run_to_completion(self, now)
    }

    fn has_scheduled(&self) -> bool {
        Self::has_scheduled(self)
    }

    fn next_deadline(&self) -> Instant {
        Self::next_deadline(self)
    }

    fn clear_news(&mut self) -> bool {
        Self::clear_news(self)
    }

    fn has_waiting_events(&self) -> bool {
        Self::has_waiting_events(self)
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        Self::wake_on_arrival(self, waker)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        Self::rx_interrupt(self)
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        Self::enable_rx_interrupt(self)
    }

    fn disable_rx_interrupt(&mut self) {
        Self::disable_rx_interrupt(self);
    }

    fn statistics(&self) -> Statistics {
        Self::statistics(self)
    }

    fn usage(&self) -> Usage {
        Self::usage(self)
    }

    #[cfg(feature = "testing")]
    fn transfer_counters(&self) -> TransferCounters {
        Self::transfer_counters(self)
    }

    #[cfg(feature = "testing")]
    fn tcp(&self, id: ConnectionId) -> Option<&tcp::Connection> {
        Self::tcp(self, id)
    }

    #[cfg(feature = "testing")]
    fn continue_message_numbers(&mut self, qp: QpNumber, next: u32) {
        Self::continue_message_numbers(self, qp, next);
    }
}
