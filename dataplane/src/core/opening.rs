//! Passive opens: a SYN at a listening port, and what keeps a flood of them from doing harm (RFC 4987).
//!
//! While there is room, a SYN gets a connection. What is half-open is bounded per port by its backlog and per core; beyond
//! that a SYN is answered by a cookie, and the connection is made when the cookie comes back. A stack under attack holds
//! no more than that bound and still takes every peer that is there.
//!
//! Of each bound a peer has a share ([`BacklogShares`](super::backlog_shares::BacklogShares)). Half-open
//! connections beyond it cost the peer nothing: they are answered by cookies, so that whoever forges its
//! address keeps it from nothing. Open connections beyond it are refused: their address is proved.

use std::net::IpAddr;

use super::backlog_shares::Stage;
use super::connection::Origin;
use super::listeners::{ListenAddress, Scope, listener_for};
use super::statistics::DropCause;
use super::{Core, Listener};
use crate::device::Device;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::tcp::{self, Payload};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

impl Listener {
    /// A place where connections are taken.
    pub(super) const fn new(at: ListenAddress, backlog: u32, tcp: tcp::Behaviour) -> Self {
        Self { at, backlog, tcp, opening: 0, starting: 0 }
    }
}

impl<D: Device> Core<D> {
    /// A segment of no connection: it opens one, or belongs to none.
    pub(super) fn on_segment_of_nobody(
        &mut self,
        now: Instant,
        key: FlowKey,
        header: &Header,
        payload: Payload<D::Frame>,
    ) -> Result<(), DropCause> {
        let remains = self.time_waits.get(now, &key);
        let mut beyond = None;
        if let Some(remains) = remains {
            beyond = Some(self.on_segment_in_time_wait(now, key, &remains, header, payload.octets)?);
        }
        let kind = header.flags & (Flags::SYN | Flags::ACK | Flags::RST | Flags::FIN);
        let listener = listener_for(&self.listeners, key.local, key.local_port);
        if let Some(listener) = listener {
            if kind == Flags::SYN {
                return self.on_syn(now, listener, key, header, beyond, &payload.frame);
            }
            if kind.contains(Flags::ACK)
                && !kind.intersects(Flags::SYN | Flags::RST)
                && self.syn_cookies.expected(now)
            {
                if let Some(syn) = self.syn_cookies.check(now, &key, header) {
                    return self.on_cookie(now, listener, key, &syn, header, payload);
                }
                self.statistics.syn_cookies_bad += 1;
            }
        }
        self.send_reset(now, key, header, payload.octets);
        Err(DropCause::NoConnection)
    }

    fn on_syn(
        &mut self,
        now: Instant,
        listener: usize,
        key: FlowKey,
        syn: &Header,
        beyond: Option<SeqNumber>,
        frame: &D::Frame,
    ) -> Result<(), DropCause> {
        if !self.may_take(listener) {
            // RFC 9293 leaves it to us; without an answer the peer tries again.
            return Err(DropCause::NoRoomForConnection);
        }
        if !self.has_share(listener, key, Stage::Starting) {
            return Err(DropCause::PeerShare);
        }
        // Nobody is there to answer an answer that cannot be sent.
        self.host.next_hop(key.remote).ok_or(DropCause::OtherAddress)?;
        let Listener { opening, backlog, .. } = self.listeners[listener];
        let room = opening < backlog
            && self.has_share(listener, key, Stage::Opening)
            && self.opening < limits::HALF_OPEN_PER_CORE.min(self.slots.len() / 2)
            && self.syns_this_poll < limits::SYNS_PER_POLL;
        if !room && beyond.is_some() {
            // A cookie could lie anywhere in the sequence numbers of the connection before.
            return Err(DropCause::NoRoomForConnection);
        }
        if !room {
            self.send_cookie(now, listener, key, syn, frame);
            return Ok(());
        }
        self.syns_this_poll += 1;
        let mut iss = self.initial_sequence_number(key, now);
        if let Some(beyond) = beyond {
            iss = iss.later(beyond);
        }
        let config = self.tcp_config(key, self.listeners[listener].tcp);
        let tcp = tcp::Connection::accept(now, config, iss, syn);
        let origin = self.accepted_by(listener, &key);
        let index = self.insert_connection(key, origin, tcp).ok_or(DropCause::NoRoomForConnection)?;
        if let Some(connection) = self.slots[index as usize].connection.as_mut() {
            // TCP counts the SYNs it sends. To a peer whose hardware address nobody tells it can send none.
            connection.abort_at = now + limits::ACCEPT_TIMEOUT_NS;
        }
        self.count_opening(listener, key);
        if beyond.is_some() {
            self.time_waits.remove(&key);
            self.statistics.time_waits_reused += 1;
        }
        Ok(())
    }

    /// Whether a peer at a listening port could have a connection. Each connection causes events: while control is behind,
    /// peers that come and go must not pile them up.
    fn may_take(&self, listener: usize) -> bool {
        let Listener { starting, backlog, .. } = self.listeners[listener];
        starting < backlog && !self.free_slots.is_empty() && self.events.has_room()
    }

    /// Whether the peer of `key` may have another connection at `stage` in the listener's backlog.
    fn has_share(&self, listener: usize, key: FlowKey, stage: Stage) -> bool {
        let Listener { at, backlog, opening, starting, .. } = self.listeners[listener];
        let held = match stage {
            Stage::Opening => opening,
            Stage::Starting => starting,
        };
        self.backlog_shares.has_room(at, key.remote, stage, backlog.saturating_sub(held))
    }

    /// What a connection that the listener takes keeps of it.
    fn accepted_by(&self, listener: usize, key: &FlowKey) -> Origin {
        let scope = self.listeners[listener].at.scope(key.local);
        debug_assert!(scope.is_some(), "listener_for has chosen it");
        Origin::Accepted(scope.unwrap_or(Scope::All))
    }

    /// A connection at a listening port is half-open.
    fn count_opening(&mut self, listener: usize, key: FlowKey) {
        self.listeners[listener].opening += 1;
        self.opening += 1;
        self.backlog_shares.add(self.listeners[listener].at, key.remote, Stage::Opening);
    }

    /// Answers a SYN and keeps nothing of it.
    fn send_cookie(&mut self, now: Instant, listener: usize, key: FlowKey, syn: &Header, frame: &D::Frame) {
        let iss = self.syn_cookies.make(now, &key, syn);
        // What a cookie does not remember is not agreed to: ECN.
        let syn = Header { flags: Flags::SYN, ..syn.clone() };
        let config = self.tcp_config(key, self.listeners[listener].tcp);
        let mut tcp = tcp::Connection::accept(now, config, iss, &syn);
        let Some(answer) = tcp.poll_transmit(now, &mut self.pools) else { return };
        tcp.release(&mut self.pools);
        // Addresses of a flood are many and nobody's: none is asked for, the answer goes back to where the SYN came from.
        let Some(egress) = self.host.egress_of_reply(key.remote, frame) else { return };
        self.host.send_bare_by(egress, key, answer.header);
        self.statistics.syn_cookies_sent += 1;
    }

    /// A cookie has come back: the connection is made as if it had been there since its SYN.
    fn on_cookie(
        &mut self,
        now: Instant,
        listener: usize,
        key: FlowKey,
        syn: &Header,
        header: &Header,
        payload: Payload<D::Frame>,
    ) -> Result<(), DropCause> {
        if !self.may_take(listener) {
            // The peer sends its first data again, and the cookie with it.
            return Err(DropCause::NoRoomForConnection);
        }
        if !self.has_share(listener, key, Stage::Starting) {
            return Err(DropCause::PeerShare);
        }
        let config = self.tcp_config(key, self.listeners[listener].tcp);
        let mut tcp = tcp::Connection::accept(now, config, header.ack - 1, syn);
        // What was sent with the cookie: from here on the connection has sent it.
        tcp.poll_transmit(now, &mut self.pools).ok_or(DropCause::NoRoomForConnection)?;
        let origin = self.accepted_by(listener, &key);
        let index = self.insert_connection(key, origin, tcp).ok_or(DropCause::NoRoomForConnection)?;
        self.count_opening(listener, key);
        self.statistics.syn_cookies_good += 1;
        self.on_segment(now, index, header, payload)
    }

    /// The handshake of a connection at a listening port is complete: it is no longer half-open, and not yet in Full
    /// Operation.
    pub(super) fn opened(&mut self, at: ListenAddress, peer: IpAddr) {
        self.opening = self.opening.saturating_sub(1);
        self.backlog_shares.remove(at, peer, Stage::Opening);
        self.backlog_shares.add(at, peer, Stage::Starting);
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.at == at) {
            listener.opening = listener.opening.saturating_sub(1);
            listener.starting += 1;
        }
    }

    /// A connection at a listening port no longer counts in its backlog: it is in Full Operation, or gone. `opened` tells
    /// whether its handshake was complete.
    pub(super) fn no_longer_in_backlog(&mut self, at: ListenAddress, peer: IpAddr, opened: bool) {
        if !opened {
            self.opening = self.opening.saturating_sub(1);
        }
        let stage = if opened { Stage::Starting } else { Stage::Opening };
        self.backlog_shares.remove(at, peer, stage);
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.at == at) {
            let count = if opened { &mut listener.starting } else { &mut listener.opening };
            *count = count.saturating_sub(1);
        }
    }
}
