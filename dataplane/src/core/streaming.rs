//! Streaming mode: octets that are not, or not yet, FPDUs. Control hands down what is sent and is lent what is received.

use super::Core;
use super::connection::{Chunk, Connection};
use super::ring::{AfterStream, ConnectionId, Event, StreamOctets};
use crate::device::Device;
use crate::limits;
use crate::tcp::Pools;
use crate::time::Instant;

impl<D: Device> Core<D> {
    pub(super) fn send_stream(
        &mut self,
        now: Instant,
        id: ConnectionId,
        octets: Box<[u8]>,
        then: AfterStream,
    ) {
        let Some(connection) = self.connection(id) else { return };
        let end = connection.send_end();
        // Requirements: RDMAP-6.1-01
        if !connection.sends_stream() || !connection.stream.push(octets, end) {
            // Control asked for more than the connection can take: it is of no use like that.
            connection.tcp.abort();
            self.mark_dirty(id.index);
            return;
        }
        match then {
            AfterStream::Stay => {}
            AfterStream::FullOperation(operation) => self.start(now, id, operation),
            AfterStream::Close => self.close(id),
        }
        self.mark_dirty(id.index);
    }

    /// Frees what the peer has acknowledged, and tells control that there is room again.
    pub(super) fn release_stream(&mut self, index: u32) {
        let id = self.id(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        let octets = connection.stream.release(connection.tcp.acknowledged());
        if octets > 0 && self.lends_stream && !connection.told_closed {
            self.events.push(Event::StreamAcknowledged { connection: id, octets });
        }
    }

    /// Hands streaming octets to control as far as it may have them and there is room for events; the rest waits in TCP's
    /// window.
    pub(super) fn hand_up_stream(&mut self, index: u32) {
        let (id, lends) = (self.id(index), self.lends_stream);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if connection.told_closed {
            // Nobody listens any more.
            let octets = connection.tcp.received().available();
            connection.tcp.consume(&mut self.pools, octets);
            connection.lent_octets = 0;
            return;
        }
        while self.events.has_room() {
            let octets = to_lend(connection).min(limits::STREAM_EVENT_OCTETS);
            if octets == 0 {
                return;
            }
            let mut copy = StreamOctets::new();
            let start = connection.lent_octets as usize;
            connection.tcp.received().for_each_slice(&self.pools.held, start, octets, |slice| {
                let fits = copy.try_extend_from_slice(slice);
                debug_assert!(fits.is_ok(), "no more than an event holds");
            });
            if lends {
                connection.lent_octets += octets as u32;
            } else {
                connection.tcp.consume(&mut self.pools, octets);
            }
            self.events.push(Event::Stream { connection: id, octets: copy });
        }
    }

    /// Control has taken the first of the octets it was lent: the window opens again.
    pub(super) fn take_stream(&mut self, now: Instant, id: ConnectionId, octets: u32) {
        let Some(connection) = self
            .slots
            .get_mut(id.index as usize)
            .and_then(|slot| if slot.generation == id.generation { slot.connection.as_mut() } else { None })
        else {
            return;
        };
        // Nothing is lent once Full Operation has begun: what control has a copy of are FPDUs.
        let octets = octets.min(connection.lent_octets);
        connection.lent_octets -= octets;
        connection.tcp.consume(&mut self.pools, octets as usize);
        self.mark_dirty(id.index);
        if self.has_unlent_octets(id.index) || self.ends_unheard(id.index) {
            self.take_again(now, id.index);
        }
    }

    /// Whether there are streaming octets that control could have now, if there is room for events.
    pub(super) fn has_octets_to_lend(&self, index: u32) -> bool {
        self.slots[index as usize].connection.as_ref().is_some_and(|connection| to_lend(connection) > 0)
    }

    /// Whether there are streaming octets that control has no copy of.
    pub(super) fn has_unlent_octets(&self, index: u32) -> bool {
        self.slots[index as usize]
            .connection
            .as_ref()
            .is_some_and(|connection| connection.unlent_octets() > 0)
    }

    /// Whether the peer has finished and control does not know yet.
    fn ends_unheard(&self, index: u32) -> bool {
        self.slots[index as usize]
            .connection
            .as_ref()
            .is_some_and(|connection| connection.tcp.peer_finished() && !connection.told_finished)
    }
}

/// Streaming octets that control may have a copy of now.
fn to_lend(connection: &Connection) -> usize {
    let room = limits::STREAM_LENT_OCTETS.saturating_sub(connection.lent_octets as usize);
    connection.unlent_octets().min(room)
}

/// Moves streaming octets to TCP, as much as fills a segment at a time: while they can go at once, and some more when none
/// wait, so that TCP knows of them.
pub(super) fn fill<F>(connection: &mut Connection, pools: &mut Pools<Chunk, F>) {
    while connection.stream.unqueued_octets() > 0 && connection.tcp.may_send() {
        let octets = connection.stream.unqueued_octets().min(connection.tcp.emss_octets() as u32);
        if connection.tcp.has_unsent() && connection.tcp.send_room() < octets as usize {
            return;
        }
        if !connection.tcp.queue(pools, Chunk::Stream, 0, octets) {
            return;
        }
        connection.stream.note_queued(octets);
    }
}
