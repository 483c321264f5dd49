//! Active opens: connections that control requests.

use std::net::{IpAddr, SocketAddr};

use crate::device::Device;
use crate::endpoint::{Endpoints, OpenKind};
use crate::limits;
use crate::net::addresses::{self, Cidr};
use crate::net::flow::FlowKey;
use crate::ring::ConnectError;
use crate::tcp;
use crate::wire::tcp::SeqNumber;

use super::handshakes::{Handshakes, Opener};

/// A connection to open: the arguments of [`Command::Connect`](crate::ring::Command::Connect), and how far
/// the search for a local port has come.
pub(super) struct OpenRequest {
    pub token: u64,
    pub local: Option<SocketAddr>,
    pub remote: SocketAddr,
    pub timeout_ns: u64,
    pub tcp: Option<tcp::Behaviour>,
    pub octets: Box<[u8]>,
    /// Ports that were tried: all of them once for one that is unused, then for one in TIME-WAIT.
    pub ports_tried: u32,
}

/// A local port that a connection may have.
struct FreePort {
    key: FlowKey,
    /// The least initial sequence number, if the port had a connection to the same peer before.
    iss_min: Option<SeqNumber>,
}

impl<D: Device> Opener<'_, D> {
    /// Opens a connection. Returns false if the next poll is to go on: there may be a free port yet.
    pub(super) fn connect(&mut self, request: &mut OpenRequest) -> Result<bool, ConnectError> {
        // An IPv4-mapped IPv6 address represents an IPv4 address (RFC 4291 §2.5.5.2).
        let remote = SocketAddr::new(request.remote.ip().to_canonical(), request.remote.port());
        self.host.neighbourhood.next_hop(remote.ip()).ok_or(ConnectError::NoRoute)?;
        let (address, port) = local_end(self.host.neighbourhood.addresses(), request.local, remote.ip())?;
        let owner =
            port.and_then(|port| self.host.interface.other_owner(&key_to(address, port, remote).received()?));
        if let Some(owner) = owner {
            return Err(ConnectError::OtherCore { owner });
        }
        let behaviour = request.tcp.unwrap_or(self.handshakes.behaviour);
        let found = match port {
            Some(port) => self.given_port(address, port, remote, behaviour.timestamps),
            None => self.free_port(address, remote, behaviour.timestamps, &mut request.ports_tried),
        };
        let Some(FreePort { key, iss_min }) = found else {
            let may_go_on = port.is_none() && request.ports_tried < 2 * self.handshakes.ports.count();
            return if may_go_on { Ok(false) } else { Err(ConnectError::NoPort) };
        };
        let iss = self.initial_number(&key, iss_min);
        let tcp = tcp::Connection::connect(self.tcp_config(&key, behaviour), iss);
        let open_kind = OpenKind::Active { token: request.token };
        let slot = self.insert_connection(key, open_kind, tcp).ok_or(ConnectError::NoRoom)?;
        self.endpoints.context.opening.insert(request.token, slot);
        if iss_min.is_some() {
            self.reuse_time_wait(&key);
        }
        if let Some(mut endpoint) = self.endpoints.at(self.now, slot) {
            endpoint.open_until(self.now + request.timeout_ns);
            // A startup frame goes with the acknowledgement that completes the handshake.
            endpoint.send_first(core::mem::take(&mut request.octets));
        }
        Ok(true)
    }

    /// Ends the connection that is being opened for `token`, if there is one.
    pub(super) fn give_up(&mut self, token: u64) {
        if let Some(&slot) = self.endpoints.context.opening.get(&token)
            && let Some(mut endpoint) = self.endpoints.at(self.now, slot)
        {
            let outcome = endpoint.abort();
            self.endpoints.apply(slot, outcome);
        }
    }

    /// Returns the local port that control has chosen, if it is free towards `remote`. One in TIME-WAIT is
    /// free only to a connection that offers `timestamps`, as in [`free_port`](Self::free_port).
    fn given_port(&self, local: IpAddr, port: u16, remote: SocketAddr, timestamps: bool) -> Option<FreePort> {
        let key = key_to(local, port, remote);
        let time_waits = &self.handshakes.time_waits;
        let reusable = time_waits.reusable(self.now, &key).filter(|_| timestamps);
        let is_free = reusable.is_some() || !time_waits.contains(self.now, &key);
        let is_free = is_free && self.endpoints.table.find(&key).is_none() && !is_itself(&key);
        is_free.then(|| FreePort { key, iss_min: reusable.map(|state| state.next_iss_min()) })
    }

    /// Returns a free local port for a connection to `remote`, no listening one, whose segments come to this
    /// core, and tries some of those that were not `tried` yet. Ports in TIME-WAIT come last, or in their
    /// turn where none is unused, and only where the `timestamps` of both connections distinguish old
    /// segments from new ones (RFC 6191 §2, from our side: our clock has ticked since).
    fn free_port(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        timestamps: bool,
        tried: &mut u32,
    ) -> Option<FreePort> {
        let now = self.now;
        let Handshakes { ports, time_waits, .. } = &mut *self.handshakes;
        time_waits.expire(now);
        let (host, Endpoints { table, context, .. }) = (&*self.host, &*self.endpoints);
        let is_unused = |key: &FlowKey| {
            let listens = || context.listeners.find(local, key.local_port).is_some();
            table.find(key).is_none() && !is_itself(key) && !listens()
        };
        let to = (remote.ip(), remote.port());
        let count = ports.count();
        if *tried == 0 && ports.are_exhausted(now, local, to) {
            *tried = count;
        }
        let rest_of_flow = host.interface.without_local_port(&key_to(local, 0, remote));
        let mut left = limits::PORTS_TRIED_TOGETHER * u32::from(host.interface.cores());
        let mut found = None;
        while found.is_none() && left > 0 && *tried < 2 * count {
            let in_time_wait = *tried >= count;
            let most = left.min(if in_time_wait { 2 * count } else { count } - *tried);
            let tried_before = *tried;
            let port = ports.pick(local, to, most, |port| {
                *tried += 1;
                if !host.interface.owns_port(rest_of_flow, port) {
                    return false;
                }
                let key = key_to(local, port, remote);
                let may_have = !time_waits.contains(now, &key)
                    || timestamps && in_time_wait && time_waits.reusable(now, &key).is_some();
                may_have && is_unused(&key)
            });
            left -= *tried - tried_before;
            if in_time_wait && port.is_some() {
                ports.set_exhausted(now, local, to);
            }
            found = port.map(|port| key_to(local, port, remote));
        }
        let key = found?;
        Some(FreePort { key, iss_min: time_waits.reusable(now, &key).map(|state| state.next_iss_min()) })
    }
}

/// Returns the one of our `addresses` for a connection to `remote`, and its port if control has chosen one.
/// An unspecified address is left to the core too.
fn local_end(
    addresses: &[Cidr],
    local: Option<SocketAddr>,
    remote: IpAddr,
) -> Result<(IpAddr, Option<u16>), ConnectError> {
    let address = local.map(|local| local.ip().to_canonical()).filter(|address| !address.is_unspecified());
    let port = local.map(|local| local.port()).filter(|port| *port != 0);
    let is_own = |address: &IpAddr| addresses.iter().any(|own| own.address == *address);
    let address = match address {
        None => addresses::source_for(addresses, remote).ok_or(ConnectError::NoRoute)?,
        Some(address) if !is_own(&address) => return Err(ConnectError::NoAddress),
        Some(address) if address.is_ipv4() != remote.is_ipv4() => return Err(ConnectError::NoRoute),
        Some(address) => address,
    };
    Ok((address, port))
}

/// Returns the addresses and ports of a connection to `remote`.
const fn key_to(local: IpAddr, local_port: u16, remote: SocketAddr) -> FlowKey {
    FlowKey { local, remote: remote.ip(), remote_port: remote.port(), local_port }
}

/// Returns true if both ends are the same. A connection has two: an address and port of ours that connects to
/// itself has one.
fn is_itself(key: &FlowKey) -> bool {
    key.local == key.remote && key.local_port == key.remote_port
}
