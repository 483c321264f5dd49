//! The ports that accept connections, and how many connections of each have not left its backlog (RFC 4987).
//!
//! A connection is in the backlog of its listener in two [`Stage`]s: half-open until its handshake is
//! complete, and then until it is in Full Operation or the application has accepted it. The backlog bounds
//! each stage, and a core bounds the half-open connections of all listeners together.

use core::ops::Range;
use std::net::IpAddr;

use super::backlog_shares::{BacklogShares, Stage};
use super::listen_address::{ListenAddress, Scope};
use crate::limits;
use crate::net::flow::FlowKey;
use crate::tcp::Behaviour;

/// A port that accepts connections, or did: a listener that was closed stays while connections are in its
/// backlog, so that they count again if it returns.
#[derive(Debug)]
struct Listener {
    at: ListenAddress,
    /// It was not closed.
    is_open: bool,
    /// Bounds each of the two counts below.
    backlog: u32,
    /// How TCP behaves on its connections.
    tcp: Behaviour,
    /// Connections whose handshake is not complete.
    opening: u32,
    /// Connections that are open, and neither in Full Operation nor accepted by the application.
    starting: u32,
}

impl Listener {
    const fn new(at: ListenAddress, backlog: u32, tcp: Behaviour) -> Self {
        Self { at, is_open: true, backlog, tcp, opening: 0, starting: 0 }
    }

    /// Returns true if it was closed, and no connection is in its backlog.
    const fn is_over(&self) -> bool {
        !self.is_open && self.opening == 0 && self.starting == 0
    }

    const fn count_mut(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Opening => &mut self.opening,
            Stage::Starting => &mut self.starting,
        }
    }

    const fn free_places(&self, stage: Stage) -> u32 {
        match stage {
            Stage::Opening => self.backlog.saturating_sub(self.opening),
            Stage::Starting => self.backlog.saturating_sub(self.starting),
        }
    }
}

/// Names a listener until the next call that changes the list of listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerIndex(usize);

/// The listeners of a core and their backlogs.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// By port, so that those of a port are found by halving.
    list: Vec<Listener>,
    /// How many may be open.
    capacity: usize,
    /// Those of the list that are not closed.
    open: usize,
    shares: BacklogShares,
    /// Half-open connections of all listeners, those included that are gone.
    opening: usize,
    /// Most half-open connections of all listeners.
    opening_max: usize,
    /// SYNs that got a connection in this poll.
    syns_this_poll: usize,
}

impl Listeners {
    /// Returns no listeners, and room for `capacity`, for a core with room for `connections`, whose peers are
    /// counted under a hash with `hash_key`.
    pub(crate) fn new(capacity: usize, connections: usize, hash_key: [u64; 2]) -> Self {
        Self {
            list: Vec::with_capacity(capacity),
            capacity,
            open: 0,
            shares: BacklogShares::new(hash_key),
            opening: 0,
            opening_max: limits::HALF_OPEN_PER_CORE.min(connections / 2),
            syns_this_poll: 0,
        }
    }

    /// Begins a poll: as many SYNs as the limit says may get a connection in it.
    pub(crate) const fn begin_poll(&mut self) {
        self.syns_this_poll = 0;
    }

    /// Accepts connections at `at`, or changes how that is done. A listener beyond the limit is ignored:
    /// control has the same limit.
    pub(crate) fn listen(&mut self, at: ListenAddress, backlog: u32, tcp: Behaviour) {
        let known = self.position(at);
        let is_open = known.is_some_and(|index| self.list[index].is_open);
        if !is_open && self.open == self.capacity {
            return;
        }
        self.open += usize::from(!is_open);
        if let Some(index) = known {
            let listener = &mut self.list[index];
            (listener.is_open, listener.backlog, listener.tcp) = (true, backlog, tcp);
        } else {
            let index = self.list.partition_point(|listener| listener.at.port <= at.port);
            self.list.insert(index, Listener::new(at, backlog, tcp));
        }
    }

    /// Accepts no more connections at `at`. Those in its backlog stay, and count again if a listener there
    /// returns.
    pub(crate) fn unlisten(&mut self, at: ListenAddress) {
        if let Some(index) = self.position(at)
            && core::mem::take(&mut self.list[index].is_open)
        {
            self.open -= 1;
            self.remove_if_over(index);
        }
    }

    fn remove_if_over(&mut self, index: usize) {
        if self.list[index].is_over() {
            self.list.remove(index);
        }
    }

    /// Returns the places in the list of the listeners at `port`.
    fn at_port(&self, port: u16) -> Range<usize> {
        let start = self.list.partition_point(|listener| listener.at.port < port);
        let count = self.list[start..].iter().take_while(|listener| listener.at.port == port).count();
        start..start + count
    }

    /// Returns the place in the list of the listener at `at`, closed or not.
    fn position(&self, at: ListenAddress) -> Option<usize> {
        self.at_port(at.port).find(|index| self.list[*index].at == at)
    }

    /// Returns the listener that accepts connections to `port` at `local`.
    ///
    /// Of a listener at 198.18.0.1 port 80 and one at every address port 80, the first has SYNs to 198.18.0.1
    /// port 80 and the second those to the core's other addresses.
    pub(crate) fn find(&self, local: IpAddr, port: u16) -> Option<ListenerIndex> {
        self.at_port(port)
            .filter(|index| self.list[*index].is_open)
            .filter_map(|index| Some((self.list[index].at.scope(local)?, index)))
            .max_by_key(|(scope, _)| *scope)
            .map(|(_, index)| ListenerIndex(index))
    }

    /// Returns how TCP behaves on connections of `listener`.
    pub(crate) fn behaviour(&self, listener: ListenerIndex) -> Behaviour {
        self.list[listener.0].tcp
    }

    /// Returns how specifically `listener`, which [`find`](Self::find) has returned for `local`, names that
    /// address.
    pub(crate) fn scope(&self, listener: ListenerIndex, local: IpAddr) -> Scope {
        let scope = self.list[listener.0].at.scope(local);
        debug_assert!(scope.is_some(), "the listener does not accept connections at {local}");
        scope.unwrap_or(Scope::All)
    }

    /// Returns true if a connection to `listener` may open: one more could wait for its startup.
    pub(crate) fn has_place(&self, listener: ListenerIndex) -> bool {
        self.list[listener.0].free_places(Stage::Starting) > 0
    }

    /// Returns true if `peer` may have another connection at `stage` in the backlog of `listener`.
    pub(crate) fn has_share(&self, listener: ListenerIndex, peer: IpAddr, stage: Stage) -> bool {
        let listener = &self.list[listener.0];
        self.shares.has_room(listener.at, peer, stage, listener.free_places(stage))
    }

    /// Returns true if a SYN of `peer` to `listener` may get a connection in this poll; else it gets a
    /// cookie.
    pub(crate) fn has_room_for_syn(&self, listener: ListenerIndex, peer: IpAddr) -> bool {
        self.list[listener.0].free_places(Stage::Opening) > 0
            && self.has_share(listener, peer, Stage::Opening)
            && self.opening < self.opening_max
            && self.syns_this_poll < limits::SYNS_PER_POLL
    }

    /// Counts a SYN that gets a connection in this poll.
    pub(crate) const fn count_syn(&mut self) {
        self.syns_this_poll += 1;
    }

    /// Counts a connection of `key` to `listener` as half-open.
    pub(crate) fn enter_backlog(&mut self, listener: ListenerIndex, key: &FlowKey) {
        let listener = &mut self.list[listener.0];
        listener.opening += 1;
        self.opening += 1;
        self.shares.add(listener.at, key.remote, Stage::Opening);
    }

    /// Counts a connection that was half-open as open: its handshake is complete.
    pub(crate) fn complete_handshake(&mut self, at: ListenAddress, peer: IpAddr) {
        self.shares.add(at, peer, Stage::Starting);
        if let Some(index) = self.position(at) {
            self.list[index].starting += 1;
        }
        self.leave(at, peer, Stage::Opening);
    }

    /// Counts a connection of the listener at `at` no longer: it is in Full Operation, accepted by the
    /// application, or gone. `stage` is the one in which it was.
    pub(crate) fn leave(&mut self, at: ListenAddress, peer: IpAddr, stage: Stage) {
        if stage == Stage::Opening {
            debug_assert!(self.opening > 0, "a half-open connection is counted");
            self.opening = self.opening.saturating_sub(1);
        }
        self.shares.remove(at, peer, stage);
        let index = self.position(at);
        debug_assert!(index.is_some(), "a listener stays while connections are in its backlog");
        if let Some(index) = index {
            let count = self.list[index].count_mut(stage);
            debug_assert!(*count > 0, "a connection leaves the backlog once");
            *count = count.saturating_sub(1);
            self.remove_if_over(index);
        }
    }

    /// Returns how many connections the backlogs of open listeners hold.
    pub(crate) fn in_backlogs(&self) -> usize {
        let open = self.list.iter().filter(|listener| listener.is_open);
        open.map(|listener| (listener.opening + listener.starting) as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_belongs_to_the_listener_that_names_its_destination_most_exactly() {
        let at = |address: Option<&str>, port| {
            let address = address.map(|address| address.parse().unwrap());
            ListenAddress { address, port }
        };
        let addresses = [
            at(None, 80),
            at(Some("198.18.0.1"), 80),
            at(Some("0.0.0.0"), 80),
            at(Some("fd00::1"), 80),
            at(Some("198.18.0.1"), 81),
            at(Some("0.0.0.0"), 82),
        ];
        let mut listeners = Listeners::new(16, 16, [1, 2]);
        for at in addresses {
            listeners.listen(at, 1, Behaviour::default());
        }
        for (local, port, expected) in [
            ("198.18.0.1", 80, Some(1)),
            ("198.18.0.2", 80, Some(2)),
            ("fd00::1", 80, Some(3)),
            ("fd00::2", 80, Some(0)),
            ("198.18.0.1", 81, Some(4)),
            ("198.18.0.2", 81, None),
            ("198.18.0.2", 82, Some(5)),
            ("fd00::1", 82, None),
            ("198.18.0.1", 83, None),
        ] {
            let local = local.parse().unwrap();
            let found = listeners.find(local, port).map(|index| listeners.list[index.0].at);
            let expected = expected.map(|index: usize| addresses[index]);
            assert_eq!(found, expected, "{local} {port}");
            if let Some(at) = expected {
                assert_eq!(ListenAddress::of(at.scope(local).unwrap(), local, port), at);
            }
        }
    }

    /// Connections of a listener that was closed count when it returns, at the stage that they have reached,
    /// and no other listener has their places.
    #[test]
    fn a_listener_that_returns_finds_its_backlog() {
        let mut listeners = Listeners::new(16, 16, [1, 2]);
        let at = ListenAddress::everywhere(80);
        let key = |remote_port| FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: [198, 18, 0, 2].into(),
            remote_port,
            local_port: 80,
        };
        for port in [79, 80, 81] {
            listeners.listen(ListenAddress::everywhere(port), 4, Behaviour::default());
        }
        let listener = listeners.find(key(1).local, 80).unwrap();
        for port in 1..=3 {
            listeners.enter_backlog(listener, &key(port));
        }
        listeners.unlisten(at);
        assert!(listeners.find(key(1).local, 80).is_none(), "it is closed");
        listeners.complete_handshake(at, key(1).remote);
        listeners.leave(at, key(2).remote, Stage::Opening);
        listeners.listen(at, 4, Behaviour::default());
        let listener = listeners.find(key(1).local, 80).unwrap();
        let counted = &listeners.list[listener.0];
        assert_eq!((counted.opening, counted.starting, listeners.open), (1, 1, 3));
        listeners.unlisten(at);
        listeners.leave(at, key(1).remote, Stage::Starting);
        listeners.leave(at, key(3).remote, Stage::Opening);
        assert_eq!((listeners.list.len(), listeners.open, listeners.opening), (2, 2, 0), "no trace is left");
    }
}
