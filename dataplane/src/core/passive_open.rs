//! Passive opens: a SYN at a listening port, and how the core withstands a flood of them (RFC 4987).
//!
//! While there is room, a SYN gets a connection. Half-open connections are bounded per port by its backlog
//! and per core; beyond that a SYN gets a cookie, and the connection is made when the cookie comes back. A
//! core under attack holds no more than that bound and still accepts every peer that answers.
//!
//! Of each bound a peer has a share. Half-open connections beyond it cost the peer nothing: they get cookies,
//! so an attacker that forges its address takes nothing from it. Open connections beyond it are refused:
//! their address is proved.

use crate::conn::{ListenAddress, ListenerIndex, Stage};
use crate::device::Device;
use crate::drops::DropCause;
use crate::endpoint::OpenKind;
use crate::limits;
use crate::net::addresses::Presence;
use crate::net::flow::FlowKey;
use crate::tcp;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::handshakes::Opener;

impl<D: Device> Opener<'_, D> {
    /// Listens at an address and a port, or changes the backlog of the listener there. SYNs that wait for it
    /// can be [taken back](crate::conn::LeftPorts::pop) then.
    pub(super) fn listen(&mut self, at: ListenAddress, backlog: u32, tcp: Option<tcp::Behaviour>) {
        self.host.neighbourhood.answer_for(at.port);
        let behaviour = tcp.unwrap_or(self.handshakes.behaviour);
        let backlog = self.part_of_backlog(at.port, backlog);
        self.endpoints.context.listeners.listen(at, backlog, behaviour);
        self.handshakes.left_ports.listen(at.port);
    }

    /// Listens no more at an address and a port. SYNs to the port wait for the next listener.
    pub(super) fn unlisten(&mut self, at: ListenAddress) {
        self.endpoints.context.listeners.unlisten(at);
        if self.host.neighbourhood.presence == Presence::Shared {
            self.handshakes.left_ports.leave(self.now, at.port);
        }
    }

    /// Returns this core's part of the backlog of a listener: twice as many as if peers came to all cores in
    /// turn.
    fn part_of_backlog(&self, port: u16, backlog: u32) -> u32 {
        let cores = u32::from(self.host.interface.cores());
        if cores == 1 || self.host.interface.is_restricted(port) {
            return backlog;
        }
        backlog.saturating_mul(2).div_ceil(cores)
    }

    /// Handles a SYN at a listening port. It may take the place of a connection in TIME-WAIT, with an initial
    /// sequence number that is `iss_min` at least.
    pub(super) fn on_syn(
        &mut self,
        listener: ListenerIndex,
        key: FlowKey,
        syn: &Header,
        iss_min: Option<SeqNumber>,
        frame: &D::Frame,
    ) -> Result<(), DropCause> {
        // RFC 9293 leaves it to us; a peer without an answer tries again.
        self.check_room(listener, &key)?;
        // Without a route there is no answer.
        self.host.neighbourhood.next_hop(key.remote).ok_or(DropCause::OtherAddress)?;
        if !self.endpoints.context.listeners.has_room_for_syn(listener, key.remote) {
            if iss_min.is_some() {
                // A cookie could lie anywhere in the sequence numbers of the connection before.
                return Err(DropCause::NoRoomForConnection);
            }
            self.send_cookie(listener, key, syn, frame);
            return Ok(());
        }
        self.endpoints.context.listeners.count_syn();
        let iss = self.initial_number(&key, iss_min);
        let config = self.tcp_config(&key, self.endpoints.context.listeners.behaviour(listener));
        let slot = self.accept(listener, key, tcp::Connection::accept(self.now, config, iss, syn))?;
        if let Some(mut endpoint) = self.endpoints.at(self.now, slot) {
            // TCP counts the SYNs it sends. It can send none to a peer whose hardware address is not known.
            endpoint.open_until(self.now + limits::ACCEPT_TIMEOUT_NS);
        }
        if iss_min.is_some() {
            self.reuse_time_wait(&key);
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
    fn send_cookie(&mut self, listener: ListenerIndex, key: FlowKey, syn: &Header, frame: &D::Frame) {
        let iss = self.handshakes.syn_cookies.make(self.now, &key, syn);
        // The cookie does not store whether ECN was negotiated, so it is not, nor is the RDMA option.
        let mut syn = Header { flags: Flags::SYN, ..syn.clone() };
        syn.options.rdma = None;
        let config = self.tcp_config(&key, self.endpoints.context.listeners.behaviour(listener));
        let mut tcp = tcp::Connection::accept(self.now, config, iss, &syn);
        let pools = &mut self.endpoints.context.pools;
        let syn_ack = tcp.poll_transmit(self.now, pools);
        tcp.release(pools);
        debug_assert!(syn_ack.is_some(), "a connection that accepts sends its SYN-ACK at once");
        // The addresses of a flood are many and not those of its senders: no hardware address is asked for.
        if let Some(syn_ack) = syn_ack
            && let Some(egress) = self.host.neighbourhood.egress_of_reply(&key, frame)
        {
            self.host.send_bare_by(egress, key, &syn_ack.header);
            self.endpoints.context.statistics.syn_cookies_sent += 1;
        }
    }

    /// Makes the connection of a cookie that came back, as if it had been there since its SYN. Returns its
    /// slot: it handles the segment with the cookie, which has this header.
    pub(super) fn on_cookie(
        &mut self,
        listener: ListenerIndex,
        key: FlowKey,
        syn: &Header,
        header: &Header,
    ) -> Result<u32, DropCause> {
        // Without room, the peer sends its first data again, and the cookie with it.
        self.check_room(listener, &key)?;
        let config = self.tcp_config(&key, self.endpoints.context.listeners.behaviour(listener));
        let mut tcp = tcp::Connection::accept(self.now, config, header.ack - 1, syn);
        // The SYN-ACK was sent with the cookie: from here on the connection has sent it.
        let syn_ack = tcp.poll_transmit(self.now, &mut self.endpoints.context.pools);
        debug_assert!(syn_ack.is_some(), "a connection that accepts sends its SYN-ACK at once");
        let slot = self.accept(listener, key, tcp)?;
        self.endpoints.context.statistics.syn_cookies_good += 1;
        Ok(slot)
    }
}
