//! The part that active and passive opens share: the setup of TCP, and a place in the connection table.

use crate::device::Device;
use crate::endpoint::{Connection, OpenKind};
use crate::limits;
use crate::net::flow::FlowKey;
use crate::tcp;

use super::Core;

impl<D: Device> Core<D> {
    /// Returns how TCP of `key` is set up. The MSS leaves room for the headers without options (RFC 9293
    /// §3.7.1, RFC 8200 §8.3).
    // Requirements: MPA-5.1-02
    pub(super) fn tcp_config(&self, key: &FlowKey, behaviour: tcp::Behaviour) -> tcp::Config {
        let mss_octets = self.host.mss_octets(key.remote);
        // An FPDU that fills a segment of our link finds room, in however many segments it arrives.
        // Requirements: MPA-A.5-03, C00-13-01
        let window_min = u32::from(mss_octets).max(limits::REASSEMBLY_FLOOR_BYTES);
        tcp::Config {
            mss_octets,
            window_octets: self.window_octets.clamp(window_min, limits::WINDOW_BYTES_MAX),
            timestamp_offset: self.initial_numbers.timestamp_offset(key),
            behaviour,
        }
    }

    /// Adds a connection to the table. Returns its slot; `None` if the table is full.
    pub(super) fn insert_connection(
        &mut self,
        key: FlowKey,
        open_kind: OpenKind,
        mut tcp: tcp::Connection,
    ) -> Option<u32> {
        let pools = &self.endpoints.context.pools;
        // One that this end opens has its full window at once, while no window is promised.
        if matches!(open_kind, OpenKind::Passive(_)) || pools.held.promised_octets() > 0 {
            tcp.limit_window_in_startup(pools);
        }
        self.endpoints.table.insert(Connection::new(key, self.host.flow_label(&key), open_kind, tcp))
    }
}
