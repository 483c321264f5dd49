//! Segments that belong to no connection in the table (RFC 9293 §3.10.7.1 and §3.10.7.2): each opens one,
//! belongs to one in TIME-WAIT, or is answered with a RST.

use crate::conn::{HeldSyn, ListenerIndex, TimeWaitOutcome};
use crate::device::Device;
use crate::drops::DropCause;
use crate::net::flow::FlowKey;
use crate::net::input::Ingress;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::handshakes::Opener;

/// A connection that a segment has opened by its SYN cookie, and the frame of the segment, which the
/// connection is to handle.
pub(super) struct OpenedByCookie<F> {
    pub slot: u32,
    pub frame: F,
}

impl<D: Device> Opener<'_, D> {
    /// Handles a segment that belongs to no connection: it opens one, belongs to one in TIME-WAIT, or is
    /// answered with a RST.
    pub(super) fn on_unmatched_segment(
        &mut self,
        key: FlowKey,
        segment: &Segment,
        header: &Header,
        frame: D::Frame,
        ingress: Ingress,
    ) -> Result<Option<OpenedByCookie<D::Frame>>, DropCause> {
        let now = self.now;
        let listener = self.endpoints.context.listeners.find(key.local, key.local_port);
        let iss_min = self.on_segment_in_time_wait(key, listener, header, segment.payload_octets)?;
        let kind = header.flags & (Flags::SYN | Flags::ACK | Flags::RST);
        if let Some(listener) = listener {
            if kind == Flags::SYN {
                // RFC 9293 §3.10.7.2: what comes with it, a FIN too, may be accepted later. The peer sends it
                // again.
                return self.on_syn(listener, key, header, iss_min, &frame).map(|()| None);
            }
            if kind.is_empty() {
                // RFC 9293 §3.10.7.2, fourth: text, or a FIN, of no connection.
                return Err(DropCause::WrongState);
            }
            if kind == Flags::ACK && self.handshakes.syn_cookies.expected(now) {
                if let Some(syn) = self.handshakes.syn_cookies.check(now, &key, header) {
                    let slot = self.on_cookie(listener, key, &syn, header)?;
                    return Ok(Some(OpenedByCookie { slot, frame }));
                }
                self.endpoints.context.statistics.syn_cookies_bad += 1;
            }
        }
        let frame = match kind {
            Flags::SYN => {
                let syn = HeldSyn { frame, ingress };
                match self.handshakes.left_ports.hold(now, key.local_port, syn) {
                    Ok(()) => return Ok(None),
                    Err(syn) => syn.frame,
                }
            }
            _ => frame,
        };
        if let Some(reset) = self.handshakes.resets.reply_to(now, segment, self.host) {
            self.host.send_bare_reply(key, &reset, &frame);
        }
        Err(DropCause::NoConnection)
    }

    /// Handles a segment at the port of `listener` that may belong to a connection in TIME-WAIT. Returns the
    /// least initial sequence number of a new connection, if the segment may open one in its place, and
    /// `None` if there is no such connection.
    fn on_segment_in_time_wait(
        &mut self,
        key: FlowKey,
        listener: Option<ListenerIndex>,
        header: &Header,
        payload_octets: usize,
    ) -> Result<Option<SeqNumber>, DropCause> {
        let (now, time_waits) = (self.now, &mut self.handshakes.time_waits);
        let context = &mut self.endpoints.context;
        // Without a listener the segment opens nothing.
        let uses_timestamps =
            listener.is_none_or(|listener| context.listeners.behaviour(listener).timestamps);
        let challenges = &mut context.pools.challenges;
        match time_waits.on_segment(now, &key, header, payload_octets, uses_timestamps, challenges) {
            None => Ok(None),
            Some(TimeWaitOutcome::Reopen(iss_min)) => Ok(Some(iss_min)),
            Some(TimeWaitOutcome::Reply(acknowledgement)) => {
                self.host.send_bare(key, &acknowledgement);
                Err(DropCause::Duplicate)
            }
            Some(TimeWaitOutcome::Drop(cause)) => Err(cause),
        }
    }
}
