//! The ports that accept connections, and how many connections of each have not left its backlog (RFC 4987).
//!
//! A connection is in the backlog of its listener in two [`Stage`]s: half-open until its handshake is
//! complete, and then until it is in Full Operation or the application has accepted it. The backlog bounds
//! each stage, and a core bounds the half-open connections of all listeners together.

use std::net::IpAddr;

use super::backlog_shares::{BacklogShares, Stage};
use super::listen_address::{ListenAddress, Scope};
use crate::limits;
use crate::net::flow::FlowKey;
use crate::tcp::Behaviour;

/// A port that accepts connections.
#[derive(Debug)]
struct Listener {
    at: ListenAddress,
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
        Self { at, backlog, tcp, opening: 0, starting: 0 }
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
    list: Vec<Listener>,
    capacity: usize,
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

    /// Accepts connections at `at`, or changes how that is done. `in_backlog` has the stages of the
    /// connections to `at` that have not left the backlog: a listener that was closed and is opened again
    /// counts them. A listener beyond the limit is ignored: control has the same limit.
    pub(crate) fn listen(
        &mut self,
        at: ListenAddress,
        backlog: u32,
        tcp: Behaviour,
        in_backlog: impl Iterator<Item = Stage>,
    ) {
        if let Some(listener) = self.list.iter_mut().find(|listener| listener.at == at) {
            (listener.backlog, listener.tcp) = (backlog, tcp);
        } else if self.list.len() < self.capacity {
            let mut listener = Listener::new(at, backlog, tcp);
            for stage in in_backlog {
                *listener.count_mut(stage) += 1;
            }
            self.list.push(listener);
        }
    }

    /// Accepts no more connections at `at`. Those in its backlog stay, and count again if a listener there
    /// returns.
    pub(crate) fn unlisten(&mut self, at: ListenAddress) {
        self.list.retain(|listener| listener.at != at);
    }

    /// Returns the listener that accepts connections to `port` at `local`.
    ///
    /// Of a listener at 198.18.0.1 port 80 and one at every address port 80, the first has SYNs to 198.18.0.1
    /// port 80 and the second those to the core's other addresses.
    pub(crate) fn find(&self, local: IpAddr, port: u16) -> Option<ListenerIndex> {
        let candidates = self.list.iter().enumerate().filter(|(_, listener)| listener.at.port == port);
        candidates
            .filter_map(|(index, listener)| Some((listener.at.scope(local)?, index)))
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
        self.leave(at, peer, Stage::Opening);
        self.shares.add(at, peer, Stage::Starting);
        if let Some(listener) = self.list.iter_mut().find(|listener| listener.at == at) {
            listener.starting += 1;
        }
    }

    /// Counts a connection of the listener at `at` no longer: it is in Full Operation, accepted by the
    /// application, or gone. `stage` is the one in which it was.
    pub(crate) fn leave(&mut self, at: ListenAddress, peer: IpAddr, stage: Stage) {
        if stage == Stage::Opening {
            debug_assert!(self.opening > 0, "a half-open connection is counted");
            self.opening = self.opening.saturating_sub(1);
        }
        self.shares.remove(at, peer, stage);
        if let Some(listener) = self.list.iter_mut().find(|listener| listener.at == at) {
            let count = listener.count_mut(stage);
            debug_assert!(*count > 0, "a connection leaves the backlog once");
            *count = count.saturating_sub(1);
        }
    }

    /// Returns how many connections the backlogs hold.
    pub(crate) fn in_backlogs(&self) -> usize {
        self.list.iter().map(|listener| (listener.opening + listener.starting) as usize).sum()
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
        let mut listeners = Listeners::new(4, 16, [1, 2]);
        for at in addresses {
            listeners.listen(at, 1, Behaviour::default(), std::iter::empty());
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
            assert_eq!(listeners.find(local, port), expected.map(ListenerIndex), "{local} {port}");
            if let Some(at) = expected.map(|index: usize| addresses[index]) {
                assert_eq!(ListenAddress::of(at.scope(local).unwrap(), local, port), at);
            }
        }
    }
}
