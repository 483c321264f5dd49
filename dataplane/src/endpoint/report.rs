//! A report of the counters of all connections, which takes several polls.

use core::ops::Range;

use crate::byte_stream::TransferCounters;
use crate::conn::Table;
use crate::tcp;

use super::connection::Connection;

/// A report that is made. It begins with the counters of connections that have ended before, and visits the
/// slots of the others one after the other: each connection that was there when the report began counts
/// once, as it is when it is visited, or as it was at its end if that comes first. What happened before the
/// report was asked for is in it.
#[derive(Debug)]
pub(crate) struct Report {
    /// The next slot to visit.
    next: u32,
    /// How many requests it answers.
    requests: usize,
    /// The counters of TCP so far.
    pub tcp: tcp::Counters,
    /// The transfers so far.
    pub transfers: TransferCounters,
}

impl Report {
    /// Begins a report that answers so many requests. The counters are those of connections that have ended.
    pub(crate) const fn begin(requests: usize, tcp: tcp::Counters, transfers: TransferCounters) -> Self {
        Self { next: 0, requests, tcp, transfers }
    }

    /// Returns how many requests it answers.
    pub(crate) const fn requests(&self) -> usize {
        self.requests
    }

    /// Visits up to `most` slots. Returns true if there are no more.
    pub(crate) fn visit(&mut self, table: &Table<Connection>, most: usize) -> bool {
        let slots = self.next_slots(table.slots(), most);
        self.next = slots.end;
        for connection in slots.filter_map(|slot| table.at(slot)) {
            self.add(&connection.tcp.counters(), &connection.transfer_counters());
        }
        self.next == table.slots()
    }

    fn next_slots(&self, slots: u32, most: usize) -> Range<u32> {
        self.next..slots.min(self.next.saturating_add(most as u32))
    }

    /// Adds the counters of the connection in `slot`, which has ended, if it was not visited.
    pub(super) fn add_ended(&mut self, slot: u32, tcp: &tcp::Counters, transfers: &TransferCounters) {
        if slot >= self.next {
            self.add(tcp, transfers);
        }
    }

    fn add(&mut self, tcp: &tcp::Counters, transfers: &TransferCounters) {
        self.tcp.add(tcp);
        self.transfers.add(transfers);
    }
}
