//! Passive opens: a SYN at a listening port, and how the core withstands a flood of them (RFC 4987).
//!
//! While there is room, a SYN gets a connection. Half-open connections are bounded per port by its backlog
//! and per core; beyond that a SYN gets a cookie, and the connection is made when the cookie comes back. A
//! core under attack holds no more than that bound and still accepts every peer that answers.
//!
//! Of each bound a peer has a share. Half-open connections beyond it cost the peer nothing: they get cookies,
//! so an attacker that forges its address takes nothing from it. Open connections beyond it are refused:
//! their address is proved.

use crate::conn::{ListenerIndex, Stage, TimeWaitOutcome};
use crate::device::Device;
use crate::drops::DropCause;
use crate::endpoint::OpenKind;
use crate::limits;
use crate::net::addresses::Presence;
use crate::net::flow::FlowKey;
use crate::net::input::Ingress;
use crate::tcp;
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::Core;

impl<D: Device> Core<D> {
    /// Handles a segment that belongs to no connection: it opens one, belongs to one in TIME-WAIT, or is
    /// answered with a RST.
    pub(super) fn on_unmatched_segment(
        &mut self,
        now: Instant,
        key: FlowKey,
        segment: &Segment,
        header: &Header,
        frame: D::Frame,
    ) -> Result<(), DropCause> {
        let iss_min = self.on_segment_in_time_wait(now, key, header, segment.payload_octets)?;
        let kind = header.flags & (Flags::SYN | Flags::ACK | Flags::RST);
        if let Some(listener) = self.endpoints.context.listeners.find(key.local, key.local_port) {
            if kind == Flags::SYN {
                // RFC 9293 §3.10.7.2: what comes with it, a FIN too, may be accepted later. The peer sends it
                // again.
                return self.on_syn(now, listener, key, header, iss_min, &frame);
            }
            if kind.is_empty() {
                // RFC 9293 §3.10.7.2, fourth: text, or a FIN, of no connection.
                return Err(DropCause::WrongState);
            }
            if kind == Flags::ACK && self.syn_cookies.expected(now) {
                if let Some(syn) = self.syn_cookies.check(now, &key, header) {
                    return self.on_cookie(now, listener, key, &syn, (segment, header), frame);
                }
                self.endpoints.context.statistics.syn_cookies_bad += 1;
            }
        }
        let frame = match kind {
            Flags::SYN => match self.left_ports.hold(now, key.local_port, frame) {
                Ok(()) => return Ok(()),
                Err(frame) => frame,
            },
            _ => frame,
        };
        if let Some(reset) = self.resets.reply_to(now, segment, &self.host) {
            self.host.send_bare_reply(key, &reset, &frame);
        }
        Err(DropCause::NoConnection)
    }

    /// Handles a segment that may belong to a connection in TIME-WAIT. Returns the least initial sequence
    /// number of a new connection, if the segment may open one in its place, and `None` if there is no such
    /// connection.
    fn on_segment_in_time_wait(
        &mut self,
        now: Instant,
        key: FlowKey,
        header: &Header,
        payload_octets: usize,
    ) -> Result<Option<SeqNumber>, DropCause> {
        let Some(state) = self.time_waits.get(now, &key) else { return Ok(None) };
        let challenges = &mut self.endpoints.context.pools.challenges;
        match self.time_waits.on_segment(now, &key, &state, header, payload_octets, challenges) {
            TimeWaitOutcome::Reopen(iss_min) => Ok(Some(iss_min)),
            TimeWaitOutcome::Reply(acknowledgement) => {
                self.host.send_bare(key, &acknowledgement);
                Err(DropCause::Duplicate)
            }
            TimeWaitOutcome::Drop(cause) => Err(cause),
        }
    }

    /// Has SYNs to `port`, where a listener was, wait for the next one.
    pub(super) fn leave_port(&mut self, now: Instant, port: u16) {
        if self.host.presence == Presence::Shared {
            self.left_ports.leave(now, port);
        }
    }

    /// Handles the SYNs that have waited for a listener at `port`, which there is now.
    pub(super) fn return_to_port(&mut self, now: Instant, port: u16) {
        self.left_ports.listen(port);
        self.take_held_syns(now);
    }

    /// Handles the SYNs for which there is a listener now, or that are refused as they have waited in vain.
    /// Returns true.
    #[cold]
    pub(super) fn take_held_syns(&mut self, now: Instant) -> bool {
        while let Some(frame) = self.left_ports.pop(now) {
            self.on_other_frame(now, frame, Ingress::Wire);
        }
        true
    }

    fn on_syn(
        &mut self,
        now: Instant,
        listener: ListenerIndex,
        key: FlowKey,
        syn: &Header,
        iss_min: Option<SeqNumber>,
        frame: &D::Frame,
    ) -> Result<(), DropCause> {
        // RFC 9293 leaves it to us; a peer without an answer tries again.
        self.check_room(listener, &key)?;
        // Without a route there is no answer.
        self.host.next_hop(key.remote).ok_or(DropCause::OtherAddress)?;
        if !self.endpoints.context.listeners.has_room_for_syn(listener, key.remote) {
            if iss_min.is_some() {
                // A cookie could lie anywhere in the sequence numbers of the connection before.
                return Err(DropCause::NoRoomForConnection);
            }
            self.send_cookie(now, listener, key, syn, frame);
            return Ok(());
        }
        self.endpoints.context.listeners.count_syn();
        let mut iss = self.initial_numbers.sequence_number(&key, now);
        if let Some(iss_min) = iss_min {
            iss = iss.later(iss_min);
        }
        let config = self.tcp_config(&key, self.endpoints.context.listeners.behaviour(listener));
        let slot = self.accept(listener, key, tcp::Connection::accept(now, config, iss, syn))?;
        if let Some(mut endpoint) = self.endpoints.at(now, slot) {
            // TCP counts the SYNs it sends. It can send none to a peer whose hardware address is not known.
            endpoint.open_until(now + limits::ACCEPT_TIMEOUT_NS);
        }
        if iss_min.is_some() {
            self.time_waits.remove(&key);
            self.endpoints.context.statistics.time_waits_reused += 1;
        }
        Ok(())
    }

    /// Checks that a peer at a listening port could have a connection. Each connection causes events: while
    /// control has not yet read them, peers that connect and leave must not pile them up.
    fn check_room(&self, listener: ListenerIndex, key: &FlowKey) -> Result<(), DropCause> {
        let context = &self.endpoints.context;
        let listeners = &context.listeners;
        if !listeners.has_place(listener) || self.endpoints.table.is_full() || !context.events.has_room() {
            return Err(DropCause::NoRoomForConnection);
        }
        if !listeners.has_share(listener, key.remote, Stage::Starting) {
            return Err(DropCause::PeerShare);
        }
        Ok(())
    }

    /// Adds a half-open connection of `listener` to the table. Returns its slot.
    fn accept(
        &mut self,
        listener: ListenerIndex,
        key: FlowKey,
        tcp: tcp::Connection,
    ) -> Result<u32, DropCause> {
        let open_kind = OpenKind::Passive(self.endpoints.context.listeners.scope(listener, key.local));
        let slot = self.insert_connection(key, open_kind, tcp).ok_or(DropCause::NoRoomForConnection)?;
        self.endpoints.context.listeners.enter_backlog(listener, &key);
        Ok(slot)
    }

    /// Answers a SYN with a cookie, and keeps no state of it.
    fn send_cookie(
        &mut self,
        now: Instant,
        listener: ListenerIndex,
        key: FlowKey,
        syn: &Header,
        frame: &D::Frame,
    ) {
        let iss = self.syn_cookies.make(now, &key, syn);
        // The cookie does not store whether ECN was negotiated, so it is not, nor is the RDMA option.
        let mut syn = Header { flags: Flags::SYN, ..syn.clone() };
        syn.options.rdma = None;
        let config = self.tcp_config(&key, self.endpoints.context.listeners.behaviour(listener));
        let mut tcp = tcp::Connection::accept(now, config, iss, &syn);
        let pools = &mut self.endpoints.context.pools;
        let syn_ack = tcp.poll_transmit(now, pools);
        tcp.release(pools);
        debug_assert!(syn_ack.is_some(), "a connection that accepts sends its SYN-ACK at once");
        // The addresses of a flood are many and not those of its senders: no hardware address is asked for.
        if let Some(syn_ack) = syn_ack
            && let Some(egress) = self.host.egress_of_reply(&key, frame)
        {
            self.host.send_bare_by(egress, key, &syn_ack.header);
            self.endpoints.context.statistics.syn_cookies_sent += 1;
        }
    }

    /// Makes the connection of a cookie that came back, as if it had been there since its SYN.
    fn on_cookie(
        &mut self,
        now: Instant,
        listener: ListenerIndex,
        key: FlowKey,
        syn: &Header,
        (segment, header): (&Segment, &Header),
        frame: D::Frame,
    ) -> Result<(), DropCause> {
        // Without room, the peer sends its first data again, and the cookie with it.
        self.check_room(listener, &key)?;
        let config = self.tcp_config(&key, self.endpoints.context.listeners.behaviour(listener));
        let mut tcp = tcp::Connection::accept(now, config, header.ack - 1, syn);
        // The SYN-ACK was sent with the cookie: from here on the connection has sent it.
        let syn_ack = tcp.poll_transmit(now, &mut self.endpoints.context.pools);
        debug_assert!(syn_ack.is_some(), "a connection that accepts sends its SYN-ACK at once");
        let slot = self.accept(listener, key, tcp)?;
        self.endpoints.context.statistics.syn_cookies_good += 1;
        self.on_segment(now, slot, segment, header, frame);
        Ok(())
    }
}
