//! A connection that is served: work requests and streaming octets fill TCP's send queue, TCP says which
//! segment goes next, and after that the connection ends or waits for its next deadline.

use crate::cold;
use crate::conn::{Clocks, TimeWaitState};
use crate::device::Frame;
use crate::limits;
use crate::mpa::MpaError;
use crate::qp::error::StreamError;
use crate::rdmap::RdmapError;
use crate::tcp::send_queue::Segment;
use crate::tcp::{Burst, Changes, Outgoing, State, Unusual};
use crate::time::Instant;

use super::Endpoint;
use super::build::FpduSources;
use super::chunk::Chunk;
use super::context::Context;
use super::continuations::{Continuations, may_be_continued};
use super::mode::Mode;
use super::single_fpdu::SingleFpdu;

/// The stream has failed, and the connection sends something else than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamFailed;

/// The state of a connection after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterTransmit {
    /// It has more to send, and stays scheduled.
    More {
        /// When its timer is due.
        deadline: Instant,
    },
    /// It has nothing to send for now.
    Wait {
        /// When its timer is due.
        deadline: Instant,
    },
    /// It is closed, and nothing of it is left.
    Closed,
    /// It is closed but for TIME-WAIT.
    TimeWait(TimeWaitState),
}

impl<F: Frame> Endpoint<'_, F> {
    /// Copies the streaming octets to control for which there was no room before.
    pub(crate) fn retry_stream(&mut self) {
        if self.connection.octets_for_control() > 0 {
            self.resume_receive();
        }
    }

    /// Moves what can be sent at once to TCP, and one piece more, on a device that does or does not accept
    /// payload by reference. Of `segments` segments that the connection may send now, no more wait in TCP's
    /// queue while the core has few descriptors.
    ///
    /// # Errors
    ///
    /// [`StreamFailed`]: another call moves what is sent instead.
    #[inline]
    pub(crate) fn queue_work(&mut self, by_reference: bool, segments: usize) -> Result<(), StreamFailed> {
        if self.connection.has_no_work() && !cold::is_forced() {
            debug_assert!(
                self.queue_pair.as_deref().is_some_and(|qp| qp.sender.has_queued_accepted(&qp.reads)),
                "work came unnoticed"
            );
            return Ok(());
        }
        self.queue_any_work(by_reference, segments)
    }

    /// Does as [`queue_work`](Self::queue_work) does for a connection that may have work.
    fn queue_any_work(&mut self, by_reference: bool, segments: usize) -> Result<(), StreamFailed> {
        self.context.pools.segments.limit_unsent(segments as u32);
        if self.connection.tcp.unusual.contains(Unusual::STREAMING) {
            self.streaming().queue();
        }
        let Some(mut stream) = self.rdmap() else {
            if self.byte_stream().is_some_and(|mut bytes| bytes.queue_octets()) {
                self.connection.closing = true;
                self.connection.tcp.unusual |= Unusual::CLOSING;
            }
            return Ok(());
        };
        stream.queue_fpdus(by_reference);
        if !stream.operating.failed && stream.qp.sender.has_failed() {
            // A Terminate goes instead of the message.
            // Requirements: RDMAP-7.1-01, RDMAP-7.1-02
            self.fail_stream(StreamError::Rdmap(RdmapError::LocalCatastrophic), None);
            return Err(StreamFailed);
        }
        // A peer that has finished has left TCP in another state.
        if !self.connection.tcp.unusual.is_empty() && self.awaits_response_after_finish() {
            self.fail_stream(StreamError::Mpa(MpaError::TcpClosed), None);
        }
        Ok(())
    }

    /// Begins a burst of segments with data, `without_options` or with RDMA options, too; `None` if the next
    /// segment is another, or there is none: [`poll_transmit`](Self::poll_transmit) returns it.
    ///
    /// While a connection is served nothing arrives, and everything that could be queued is. What an
    /// application posts or writes meanwhile follows after the burst.
    #[inline]
    pub(crate) fn begin_burst(&mut self, without_options: bool) -> Option<Burst<Chunk>> {
        if self.connection.tcp.unusual.intersects(Unusual::SEND) || cold::is_forced() {
            return None;
        }
        Burst::begin(&mut self.connection.tcp, self.now, &mut self.context.pools, without_options)
    }

    /// Goes on to the next segment of a burst. Returns false if there is none, or it has more than
    /// `most_octets` octets.
    #[inline]
    pub(crate) fn next_of_burst(&mut self, burst: &mut Burst<Chunk>, most_octets: u32) -> bool {
        burst.advance(&mut self.connection.tcp, self.now, &mut self.context.pools, most_octets)
    }

    /// Ends a burst, of which nothing more is sent.
    #[inline]
    pub(crate) fn end_burst(&mut self, burst: &mut Burst<Chunk>) {
        burst.end(&mut self.connection.tcp, self.now, &mut self.context.pools);
    }

    /// Returns the next segment that is not sent in a burst, or `None` if there is nothing for now.
    #[inline]
    pub(crate) fn poll_transmit(&mut self) -> Option<Outgoing<Chunk>> {
        self.connection.tcp.poll_transmit(self.now, &mut self.context.pools)
    }

    /// Appends the payload of `segment` to `frame`, after room for `headers` octets; by reference if that is
    /// allowed and worth it. Returns false if the payload or room for it cannot be had.
    pub(crate) fn write_payload(
        &mut self,
        segment: &Segment<Chunk>,
        by_reference: bool,
        headers: usize,
        frame: &mut F,
    ) -> bool {
        let Context { stags, statistics, .. } = &mut *self.context;
        let Chunk::Fpdus(run) = &segment.payload else {
            let Some(room) = frame.append(headers + segment.octets as usize) else { return false };
            return self.connection.copy_octets(segment, &mut room[headers..], statistics);
        };
        let fpdus = FpduSources::of(&self.connection.mode, self.queue_pair.as_deref(), stags);
        if run.first_octets < limits::SMALL_MESSAGE_BYTES && run.octets == segment.octets {
            // Not cut, and copied on any device.
            let Some(room) = frame.append(headers + segment.octets as usize) else { return false };
            return fpdus
                .is_some_and(|fpdus| fpdus.build_run(run, segment.seq, &mut room[headers..], statistics));
        }
        if let Some(single) = fpdus.and_then(|fpdus| SingleFpdu::of(fpdus, segment, by_reference)) {
            let Some(room) = frame.append(headers + segment.octets as usize) else { return false };
            return single.build(&mut room[headers..], statistics);
        }
        self.payload().write(segment, by_reference, headers, frame)
    }

    /// Returns the [continuations](Continuations::of) of the segment that `burst` sent last, in a stream of
    /// FPDUs on a device that does or does not accept payload by reference; `None` if there are none.
    #[inline]
    pub(crate) fn continuations<'s>(
        &'s mut self,
        burst: &'s mut Burst<Chunk>,
        by_reference: bool,
    ) -> Option<Continuations<'s>> {
        if !may_be_continued(burst) {
            return None;
        }
        Continuations::of(self.rdmap()?, burst, by_reference)
    }

    /// Returns true if there is nothing more to send now, and nothing to [queue](Self::queue_work), after a
    /// segment was sent. Returns false if another look is needed to know.
    #[inline]
    pub(crate) fn has_sent_all(&mut self) -> bool {
        let tcp = &self.connection.tcp;
        !tcp.unusual.intersects(Unusual::SEND) && tcp.is_silent() && self.has_queued_all()
    }

    /// Returns true if its queue pair has nothing to [queue](Self::queue_work). Returns false if another look
    /// is needed to know.
    #[inline]
    fn has_queued_all(&mut self) -> bool {
        let Mode::FullOperation(operating) = &mut self.connection.mode else { return false };
        let Some(qp) = self.queue_pair.as_deref() else { return false };
        if operating.may_have_work {
            operating.may_have_work = !qp.sender.has_queued_all(&qp.shared, &qp.reads);
        }
        !operating.may_have_work
    }

    /// Returns the next deadline of a connection that segments have changed so, if the peer has acknowledged
    /// all that was sent, and nothing else has changed and nothing is left to send: then the connection need
    /// not be served.
    #[inline]
    pub(crate) fn rest_after(&mut self, changes: Changes) -> Option<Instant> {
        let tcp = &self.connection.tcp;
        let may_rest = changes == Changes::ACKNOWLEDGED && tcp.is_at_rest() && tcp.unusual.is_empty();
        if !may_rest || !self.has_queued_all() {
            return None;
        }
        self.context.cut_runs.acknowledge(self.id, self.connection.tcp.acknowledged());
        Some(self.straight_deadline())
    }

    /// Nothing can leave, for there is no path to the peer: what there is to send is timed.
    #[cold]
    pub(crate) fn await_path(&mut self) {
        let has_octets = self.connection.stream.unqueued_octets() > 0 || self.connection.has_unqueued_bytes();
        let has_requests = self.rdmap().is_some_and(|stream| stream.has_unqueued());
        if has_octets || has_requests || self.connection.tcp.has_to_send() {
            self.connection.tcp.await_path(self.now);
        }
    }

    /// Returns what becomes of a connection that was served and has `more` to send, or not: it closes, is
    /// over, or waits for its next deadline.
    #[inline]
    pub(crate) fn unschedule(&mut self, more: bool) -> AfterTransmit {
        let connection = &mut *self.connection;
        self.context.cut_runs.acknowledge(self.id, connection.tcp.acknowledged());
        if !connection.tcp.unusual.is_empty() {
            return self.end_unusual_transmit(more);
        }
        debug_assert!(connection.has_all_conditions(), "a condition began unnoticed while it was served");
        let mut deadline = self.straight_deadline();
        if self.context.pools.segments.free() == 0 {
            let has_work = self.rdmap().is_some_and(|stream| stream.has_work());
            deadline = self.deadline(has_work || self.connection.has_unqueued_bytes());
        }
        if more { AfterTransmit::More { deadline } } else { AfterTransmit::Wait { deadline } }
    }

    /// Returns the next deadline of a connection without a rare condition, if it does not wait for
    /// descriptors.
    #[inline]
    fn straight_deadline(&self) -> Instant {
        self.connection.tcp.next_deadline().min(self.connection.nudge_due())
    }

    /// Does as [`unschedule`](Self::unschedule) does for a connection with a rare condition: it may close, or
    /// be over.
    #[cold]
    fn end_unusual_transmit(&mut self, mut more: bool) -> AfterTransmit {
        let connection = &mut *self.connection;
        // Acknowledged octets that control has no copy of yet outlive TCP.
        if connection.tcp.state() == State::Closed
            && !more
            && (connection.close_notified || !connection.has_pending_octets())
        {
            self.on_closed();
            return AfterTransmit::Closed;
        }
        if !more && connection.is_only_in_time_wait() {
            return AfterTransmit::TimeWait(self.time_wait_state());
        }
        let streamed = connection.stream.unqueued_octets() == 0 && !connection.has_unqueued_bytes();
        let has_work = self.rdmap().is_some_and(|stream| stream.has_work());
        if self.connection.closing && self.connection.tcp.may_send() && streamed && !has_work {
            self.connection.tcp.close();
            more = true;
        }
        self.connection.await_first_fpdu(self.now);
        self.connection.review();
        let deadline = self.deadline(!streamed || has_work);
        if more { AfterTransmit::More { deadline } } else { AfterTransmit::Wait { deadline } }
    }

    /// Returns when the connection has something to do even if nothing arrives.
    fn deadline(&self, has_unqueued: bool) -> Instant {
        let Self { now, connection, .. } = self;
        let mut deadline = connection.tcp.next_deadline().min(connection.abort_timer.at());
        deadline = deadline.min(connection.fpdu_due()).min(connection.nudge_due()).min(self.receive_due());
        if has_unqueued && self.context.pools.segments.free() == 0 {
            // Other connections have all descriptors, and nothing of this one need be outstanding.
            deadline = deadline.min(*now + limits::SEND_DESCRIPTOR_RETRY_NS);
        }
        if connection.octets_for_control() > 0 {
            deadline = deadline.min(*now + limits::HAND_UP_RETRY_NS);
        }
        deadline
    }

    /// Returns when a message that waits for a receive is an error.
    pub(super) fn receive_due(&self) -> Instant {
        match &self.queue_pair {
            Some(qp) if self.connection.mode.awaits_receive() => qp.receive_wait.until,
            _ => Instant::NEVER,
        }
    }

    /// Returns what TIME-WAIT keeps of the connection.
    fn time_wait_state(&self) -> TimeWaitState {
        let tcp = &self.connection.tcp;
        TimeWaitState {
            snd_nxt: tcp.acknowledged(),
            rcv_nxt: tcp.received().nxt() + u32::from(tcp.peer_finished()),
            clocks: tcp.clocks().map(|(offset, recent)| Clocks { offset, recent }),
        }
    }
}
