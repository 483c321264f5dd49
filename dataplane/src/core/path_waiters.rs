//! Connections that wait for a path to their peer: all of them are visited, over several polls, when some may
//! have one.

use crate::conn::Table;
use crate::device::Device;
use crate::endpoint::Connection;
use crate::limits;
use crate::net::Host;

/// Why the connections without a path, which the table lists, are visited.
#[derive(Default)]
pub(super) struct PathWaiters {
    /// An address of the host has come into use, and connections may wait for it.
    has_new_address: bool,
}

impl PathWaiters {
    /// Begins to visit them, for [`resume`](Self::resume): a neighbour answered, or `has_new_address`.
    pub(super) fn begin_to_resume(&mut self, table: &mut Table<Connection>, has_new_address: bool) {
        self.has_new_address |= has_new_address;
        table.begin_to_resume();
    }

    /// Schedules connections that wait for a path, and have one; or that may ask for their neighbour, because
    /// an address of the host has come into use. Returns false if the next poll is to go on.
    pub(super) fn resume<D: Device>(&mut self, table: &mut Table<Connection>, host: &Host<D>) -> bool {
        let may_send = |Connection { key, .. }: &Connection| {
            host.neighbourhood.has_path(key) || self.has_new_address && host.neighbourhood.may_use(key.local)
        };
        let is_done = table.resume(limits::CONNECTIONS_VISITED_PER_POLL, may_send);
        self.has_new_address &= !is_done;
        is_done
    }
}
