//! What active and passive opens share: the state that a core keeps for them, the setup of TCP, and a place
//! in the connection table.

use crate::conn::{InitialNumbers, LeftPorts, Ports, SynCookies, TimeWaitTable};
use crate::device::Device;
use crate::endpoint::{Connection, Endpoints, OpenKind};
use crate::limits;
use crate::net::Host;
use crate::net::flow::FlowKey;
use crate::rate_limit::RateLimit;
use crate::secret::{Purpose, Secret};
use crate::tcp;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::Config;
use super::resets::Resets;

/// The state of a core between connections: what it opens them with, what it remembers of those that are
/// over, and how it answers segments that belong to none.
pub(super) struct Handshakes<F> {
    /// Octets a peer may have in flight on one connection.
    window_octets: u32,
    /// How TCP behaves on connections whose command does not say so.
    pub behaviour: tcp::Behaviour,
    initial_numbers: InitialNumbers,
    pub time_waits: TimeWaitTable,
    /// The local ports of active opens.
    pub ports: Ports,
    pub syn_cookies: SynCookies,
    /// The ports that listeners have left, where SYNs wait for the next.
    pub left_ports: LeftPorts<F>,
    pub resets: Resets,
}

impl<F> Handshakes<F> {
    /// Returns those of a core that keeps up to `time_waits` connections in TIME-WAIT, and sends up to
    /// `resets_per_second` RSTs.
    pub(super) fn new(config: &Config, time_waits: usize, resets_per_second: u32) -> Self {
        let secret = Secret::new(config.secret);
        let (first_port, last_port) = config.ports;
        let port_secrets =
            [Purpose::PortOffsets, Purpose::PortCounters].map(|purpose| secret.derive(purpose));
        Self {
            window_octets: config.window_bytes,
            behaviour: config.tcp,
            initial_numbers: InitialNumbers::new(config.secret),
            time_waits: TimeWaitTable::new(time_waits, secret.derive(Purpose::TimeWaits)),
            ports: Ports::new(first_port, last_port, port_secrets),
            syn_cookies: SynCookies::new(secret.derive(Purpose::SynCookies)),
            left_ports: LeftPorts::new(),
            resets: Resets::new(RateLimit::new(resets_per_second, secret.derive(Purpose::Resets))),
        }
    }
}

/// The handshakes of a core at one input, with what they need to open a connection.
pub(super) struct Opener<'c, D: Device> {
    /// The time of the input.
    pub now: Instant,
    pub handshakes: &'c mut Handshakes<D::Frame>,
    pub endpoints: &'c mut Endpoints<D::Frame>,
    pub host: &'c mut Host<D>,
}

impl<D: Device> Opener<'_, D> {
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
            window_octets: self.handshakes.window_octets.clamp(window_min, limits::WINDOW_BYTES_MAX),
            timestamp_offset: self.handshakes.initial_numbers.timestamp_offset(key),
            behaviour,
        }
    }

    /// Returns the initial sequence number of a connection: no less than `iss_min`, where it takes the place
    /// of one in TIME-WAIT.
    pub(super) fn initial_number(&self, key: &FlowKey, iss_min: Option<SeqNumber>) -> SeqNumber {
        let iss = self.handshakes.initial_numbers.sequence_number(key, self.now);
        iss_min.map_or(iss, |iss_min| iss.later(iss_min))
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

    /// Ends the connection in TIME-WAIT in whose place another has been opened.
    pub(super) fn reuse_time_wait(&mut self, key: &FlowKey) {
        self.handshakes.time_waits.remove(key);
        self.endpoints.context.statistics.time_waits_reused += 1;
    }
}
