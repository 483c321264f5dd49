//! Streaming mode: octets that are not, or not yet, FPDUs. Control sends them by commands and receives copies
//! of them in events.

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::limits;
use crate::ring::Event;
use crate::tcp;

use super::chunk::Chunk;
use super::context::Context;
use super::send_stream::SendStream;
use super::unconsumed::UnconsumedOctets;

/// The streaming octets of a connection, in both directions.
pub(super) struct StreamingOctets<'e, F> {
    /// The name of the connection.
    pub(super) id: ConnectionId,
    pub(super) tcp: &'e mut tcp::Connection,
    /// Those that the peer has not acknowledged.
    pub(super) stream: &'e mut SendStream,
    /// Those that control has a copy of.
    pub(super) unconsumed: &'e mut UnconsumedOctets,
    /// The context that the endpoints of a core share.
    pub(super) context: &'e mut Context<F>,
}

impl<F: Frame> StreamingOctets<'_, F> {
    /// Moves octets to TCP in pieces that fill a segment: those that can be sent at once, and one more piece,
    /// so that TCP has data waiting.
    pub(super) fn queue(&mut self) {
        let Self { tcp, stream, context, .. } = self;
        while stream.unqueued_octets() > 0 && tcp.may_send() {
            let octets = stream.unqueued_octets().min(tcp.emss_octets() as u32);
            if tcp.has_unsent() && tcp.send_room() < octets as usize {
                return;
            }
            if !tcp.queue(&mut context.pools, Chunk::Stream, 0, octets) {
                return;
            }
            stream.on_queued(octets);
        }
    }

    /// Frees the octets that the peer has acknowledged, and notifies control, if it `may_send` more, that
    /// there is room again.
    pub(super) fn release(&mut self, may_send: bool) {
        let octets = self.stream.release(self.tcp.oldest_kept(&self.context.pools));
        if octets > 0 && self.context.holds_stream && may_send {
            self.context.events.push(Event::StreamAcknowledged { connection: self.id, octets });
        }
    }

    /// Copies octets to control, up to its limit and as long as there is room for events. The rest stays in
    /// TCP's window.
    pub(super) fn copy_to_control(&mut self) {
        let Self { id, tcp, unconsumed, context, .. } = self;
        while context.events.has_room() {
            let octets = unconsumed.copyable(tcp.received().available()).min(limits::STREAM_EVENT_BYTES);
            if octets == 0 {
                return;
            }
            let mut copy = Vec::with_capacity(octets);
            let start = unconsumed.octets() as usize;
            tcp.received().for_each_slice(&context.pools.held, start, octets, |slice| {
                copy.extend_from_slice(slice);
            });
            debug_assert_eq!(copy.len(), octets, "so many are in order");
            if context.holds_stream {
                unconsumed.add(octets as u32);
            } else {
                tcp.consume(&mut context.pools, octets);
            }
            context.events.push(Event::Stream { connection: *id, octets: copy.into_boxed_slice() });
        }
    }

    /// Frees the first `octets` of those that control has a copy of: the window opens by as many.
    pub(super) fn consume(&mut self, octets: u32) {
        // Once Full Operation has begun there are none: the octets that control has a copy of are FPDUs.
        let octets = self.unconsumed.consume(octets);
        self.tcp.consume(&mut self.context.pools, octets as usize);
    }
}
