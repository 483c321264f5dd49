//! Streaming mode: octets that are not, or not yet, FPDUs. Control sends them by commands and receives copies
//! of them in events.

use crate::device::Frame;
use crate::limits;
use crate::ring::Event;
use crate::tcp::Pools;

use super::chunk::Chunk;
use super::connection::Connection;
use super::{Endpoint, Outcome};

impl<F: Frame> Endpoint<'_, F> {
    /// Appends `octets` to the streaming octets to be sent. Returns false, and resets the connection, if that
    /// is not possible: the rest of the command is then not carried out.
    // Requirements: RDMAP-6.1-01
    pub(crate) fn send_stream(&mut self, octets: Box<[u8]>) -> bool {
        let end = self.connection.send_end();
        if self.connection.sends_stream() && self.connection.stream.push(octets, end) {
            return true;
        }
        // Control sends more than the limit, or after Full Operation has begun: it cannot know what the peer
        // receives.
        self.connection.tcp.abort();
        false
    }

    /// Keeps `octets`, which are sent as soon as the connection is open.
    pub(crate) fn send_first(&mut self, octets: Box<[u8]>) {
        let connection = &mut *self.connection;
        let end = connection.send_end();
        if !connection.stream.begin(octets, end) {
            connection.tcp.abort();
        }
    }

    /// Frees the streaming octets that the peer has acknowledged, and notifies control that there is room
    /// again.
    pub(super) fn release_stream(&mut self) {
        let connection = &mut *self.connection;
        let octets = connection.stream.release(connection.tcp.oldest_kept(&self.context.pools));
        if octets > 0 && self.context.holds_stream && connection.sends_stream() && !connection.close_notified
        {
            self.context.events.push(Event::StreamAcknowledged { connection: self.id, octets });
        }
    }

    /// Copies streaming octets to control, up to its limit and as long as there is room for events. The rest
    /// stays in TCP's window.
    pub(super) fn copy_stream_to_control(&mut self) {
        if self.connection.close_notified {
            // Control has had its last event of the connection.
            self.discard_received();
            self.connection.unconsumed_octets = 0;
            return;
        }
        let (connection, context) = (&mut *self.connection, &mut *self.context);
        while context.events.has_room() {
            let octets = octets_for_control(connection).min(limits::STREAM_EVENT_BYTES);
            if octets == 0 {
                return;
            }
            let mut copy = Vec::with_capacity(octets);
            let start = connection.unconsumed_octets as usize;
            connection.tcp.received().for_each_slice(&context.pools.held, start, octets, |slice| {
                copy.extend_from_slice(slice);
            });
            debug_assert_eq!(copy.len(), octets, "so many are in order");
            if context.holds_stream {
                connection.unconsumed_octets += octets as u32;
            } else {
                connection.tcp.consume(&mut context.pools, octets);
            }
            context.events.push(Event::Stream { connection: self.id, octets: copy.into_boxed_slice() });
        }
    }

    /// Handles that control has consumed the first `octets` of those it has a copy of: the window opens by as
    /// many.
    pub(crate) fn consume_stream(&mut self, octets: u32) -> Outcome {
        // Once Full Operation has begun there are none: the octets that control has a copy of are FPDUs.
        let octets = octets.min(self.connection.unconsumed_octets);
        self.connection.unconsumed_octets -= octets;
        self.connection.tcp.consume(&mut self.context.pools, octets as usize);
        let pending = self.connection.uncopied_octets() > 0 || self.connection.has_unnotified_finish();
        if pending && !self.connection.close_notified {
            self.resume_receive();
        }
        Outcome::SCHEDULE
    }

    /// Copies the streaming octets to control for which there was no room before.
    pub(crate) fn retry_stream(&mut self) {
        if octets_for_control(self.connection) > 0 {
            self.resume_receive();
        }
    }
}

/// Returns how many streaming octets control may have a copy of now, if there is room for events.
pub(super) fn octets_for_control(connection: &Connection) -> usize {
    if !connection.receives_stream() {
        return 0;
    }
    let room = limits::STREAM_UNCONSUMED_BYTES.saturating_sub(connection.unconsumed_octets as usize);
    connection.uncopied_octets().min(room)
}

/// Moves streaming octets to TCP in pieces that fill a segment: those that can be sent at once, and one more
/// piece, so that TCP has data waiting.
pub(super) fn queue_stream<F>(connection: &mut Connection, pools: &mut Pools<Chunk, F>) {
    while connection.stream.unqueued_octets() > 0 && connection.tcp.may_send() {
        let octets = connection.stream.unqueued_octets().min(connection.tcp.emss_octets() as u32);
        if connection.tcp.has_unsent() && connection.tcp.send_room() < octets as usize {
            return;
        }
        if !connection.tcp.queue(pools, Chunk::Stream, 0, octets) {
            return;
        }
        connection.stream.on_queued(octets);
    }
}
