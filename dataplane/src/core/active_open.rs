//! Active opens: connections that control requests.

use std::net::{IpAddr, SocketAddr};

use crate::device::Device;
use crate::endpoint::{Connection, OpenKind};
use crate::net::addresses;
use crate::net::flow::FlowKey;
use crate::ring::ConnectError;
use crate::tcp;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::Core;

impl<D: Device> Core<D> {
    /// Opens a connection; the arguments are those of [`Command::Connect`](crate::ring::Command::Connect).
    /// Returns its slot.
    pub(super) fn connect(
        &mut self,
        now: Instant,
        token: u64,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        timeout_ns: u64,
        behaviour: Option<tcp::Behaviour>,
    ) -> Result<u32, ConnectError> {
        // An IPv4-mapped IPv6 address represents an IPv4 address (RFC 4291 §2.5.5.2).
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        self.host.next_hop(remote.ip()).ok_or(ConnectError::NoRoute)?;
        let (address, port) = self.local_end(local, remote.ip())?;
        let (key, iss_min) = self.free_port(now, address, port, remote).ok_or(ConnectError::NoPort)?;
        let mut iss = self.initial_numbers.sequence_number(&key, now);
        if let Some(iss_min) = iss_min {
            iss = iss.later(iss_min);
        }
        let behaviour = behaviour.unwrap_or(self.behaviour);
        let tcp = tcp::Connection::connect(self.tcp_config(&key, behaviour), iss);
        let slot =
            self.insert_connection(key, OpenKind::Active { token }, tcp).ok_or(ConnectError::NoRoom)?;
        if iss_min.is_some() {
            self.time_waits.remove(&key);
            self.endpoints.context.statistics.time_waits_reused += 1;
        }
        if let Some(mut endpoint) = self.endpoints.at(now, slot) {
            endpoint.open_until(now + timeout_ns);
        }
        Ok(slot)
    }

    /// Ends the connection that is being opened for `token`, if there is one. Looks at every connection: an
    /// application that opens one rarely changes its mind.
    pub(super) fn give_up(&mut self, now: Instant, token: u64) {
        let is_it = |connection: &&Connection| {
            connection.open_kind == OpenKind::Active { token } && !connection.open_notified
        };
        let Some(key) = self.endpoints.table.iter().find(is_it).map(|connection| connection.key) else {
            return;
        };
        if let Some(slot) = self.endpoints.table.find(&key)
            && let Some(mut endpoint) = self.endpoints.at(now, slot)
        {
            let outcome = endpoint.abort();
            self.apply(slot, outcome);
        }
    }

    /// Returns our address for a connection to `remote`, and its port if control has chosen one. An
    /// unspecified address is left to the core too.
    fn local_end(
        &self,
        local: Option<SocketAddr>,
        remote: IpAddr,
    ) -> Result<(IpAddr, Option<u16>), ConnectError> {
        let address =
            local.map(|local| local.ip().to_canonical()).filter(|address| !address.is_unspecified());
        let port = local.map(|local| local.port()).filter(|port| *port != 0);
        let addresses = self.host.addresses();
        let is_own = |address: &IpAddr| addresses.iter().any(|own| own.address == *address);
        let address = match address {
            None => addresses::source_for(addresses, remote).ok_or(ConnectError::NoRoute)?,
            Some(address) if !is_own(&address) => return Err(ConnectError::NoAddress),
            Some(address) if address.is_ipv4() != remote.is_ipv4() => return Err(ConnectError::NoRoute),
            Some(address) => address,
        };
        Ok((address, port))
    }

    /// Returns a free local port for a connection to `remote`, no listening one, or `port` if it is free
    /// towards `remote`; and the least initial sequence number, if the port had a connection to `remote`
    /// before. Ports in TIME-WAIT come last, and only where timestamps distinguish old segments from new ones
    /// (RFC 6191 §2, from our side: our clock has ticked since).
    fn free_port(
        &mut self,
        now: Instant,
        local: IpAddr,
        port: Option<u16>,
        remote: SocketAddr,
    ) -> Option<(FlowKey, Option<SeqNumber>)> {
        let Self { ports, endpoints, time_waits, .. } = self;
        time_waits.expire(now);
        let key = |local_port| FlowKey { local, remote: remote.ip(), remote_port: remote.port(), local_port };
        let listens = |port| endpoints.context.listeners.find(local, port).is_some();
        // A connection has two ends: an address and port of ours that connects to itself has one.
        let is_itself = |port| local == remote.ip() && port == remote.port();
        let is_unused = |port| endpoints.table.find(&key(port)).is_none() && !is_itself(port);
        let reusable = |port| time_waits.reusable(now, &key(port));
        if let Some(port) = port {
            let state = reusable(port);
            let is_free = is_unused(port) && (state.is_some() || !time_waits.contains(now, &key(port)));
            return is_free.then(|| (key(port), state.map(|state| state.next_iss_min())));
        }
        let is_unused = |port| is_unused(port) && !listens(port);
        let to = (remote.ip(), remote.port());
        let in_time_wait = |port| time_waits.contains(now, &key(port));
        if let Some(port) = ports.pick(local, to, |port| is_unused(port) && !in_time_wait(port)) {
            return Some((key(port), None));
        }
        let port = ports.pick(local, to, |port| is_unused(port) && reusable(port).is_some())?;
        Some((key(port), reusable(port).map(|state| state.next_iss_min())))
    }
}
