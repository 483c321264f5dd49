//! The ports of a device that shares its addresses with the kernel: the kernel leaves them to the device.
//!
//! The device opens connections from ports of its own, some in a row, which it holds from its start. A port
//! that is listened at, and one that an active open names, is held from then on until the device ends: the
//! connections of a listener outlast it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use warpline_dataplane::device::packet::{PacketError, PortShadow, hold_row};
use warpline_dataplane::ring::ListenAddress;

use crate::engine::interface::request::{Request, StreamRequest};
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::listen::ListenError;

/// Ports of active opens, each of which has connections to any number of peers.
const OWN_PORTS: u16 = 64;
/// Where they are looked for: above those that Linux gives away unless it is told otherwise.
const FIRST_PORT: u16 = 61_000;
/// How often a free port is looked for that is free at all addresses.
const ATTEMPTS: usize = 16;

/// The ports that a device holds.
pub(crate) struct HeldPorts {
    addresses: Vec<IpAddr>,
    first: u16,
    _own: Vec<PortShadow>,
    held: HashMap<SocketAddr, PortShadow>,
}

impl HeldPorts {
    /// Holds the ports of active opens at `addresses`, which are the kernel's.
    ///
    /// # Errors
    ///
    /// [`PacketError`].
    pub(crate) fn new(addresses: Vec<IpAddr>) -> Result<Self, PacketError> {
        let (first, own) = hold_row(&addresses, OWN_PORTS, FIRST_PORT)?;
        Ok(Self { addresses, first, _own: own, held: HashMap::new() })
    }

    /// Returns the first and the last port of active opens.
    pub(crate) const fn of_active_opens(&self) -> (u16, u16) {
        (self.first, self.first + (OWN_PORTS - 1))
    }

    /// Holds what `request` needs, and returns it, with a port that is free if it asks for one; replies to it
    /// if there is none.
    pub(crate) fn admit(&mut self, request: Request) -> Option<Request> {
        match request {
            Request::Listen { at, config, arrivals, notify, reply } => match self.hold_listener(at) {
                Ok(at) => Some(Request::Listen { at, config, arrivals, notify, reply }),
                Err(error) => {
                    reply.send(Err(error));
                    None
                }
            },
            Request::Stream(StreamRequest::Listen { at, config, reply }) => match self.hold_listener(at) {
                Ok(at) => Some(Request::Stream(StreamRequest::Listen { at, config, reply })),
                Err(error) => {
                    reply.send(Err(error));
                    None
                }
            },
            Request::Connect { qp, remote, config, reply } => {
                if self.hold_local(config.local).is_ok() {
                    return Some(Request::Connect { qp, remote, config, reply });
                }
                reply.send(Err(ConnectError::NoPort));
                None
            }
            Request::Stream(StreamRequest::Connect { remote, config, reply }) => {
                if self.hold_local(config.local).is_ok() {
                    return Some(Request::Stream(StreamRequest::Connect { remote, config, reply }));
                }
                reply.send(Err(ConnectError::NoPort));
                None
            }
            other => Some(other),
        }
    }

    /// Holds the port of a listener at each address that it has; returns its address with the port.
    fn hold_listener(&mut self, at: ListenAddress) -> Result<ListenAddress, ListenError> {
        let ListenAddress { address, port } = at;
        if port != 0 {
            self.hold(at).map_err(|error| refused(port, &error))?;
            return Ok(at);
        }
        let some = self.addresses.iter().copied().find(|own| at.scope(*own).is_some());
        let some =
            some.ok_or_else(|| ListenError::NoAddress(address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED))))?;
        let mut failed = ListenError::PortInUse(0);
        for _ in 0..ATTEMPTS {
            let shadow = PortShadow::hold((some, 0).into()).map_err(|error| refused(0, &error))?;
            let at = ListenAddress { port: shadow.address().port(), address };
            self.held.insert(shadow.address(), shadow);
            match self.hold(at) {
                Ok(()) => return Ok(at),
                Err(error) => failed = refused(at.port, &error),
            }
        }
        Err(failed)
    }

    /// Holds the port that an active open names, if it names one.
    fn hold_local(&mut self, local: Option<SocketAddr>) -> Result<(), PacketError> {
        let Some(local) = local.filter(|local| local.port() != 0) else { return Ok(()) };
        let address = local.ip().to_canonical();
        let everywhere = address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.hold(ListenAddress { address: (!everywhere).then_some(address), port: local.port() })
    }

    /// Holds a port at each address of `at`.
    fn hold(&mut self, at: ListenAddress) -> Result<(), PacketError> {
        let (first, last) = self.of_active_opens();
        if (first..=last).contains(&at.port) {
            return Ok(());
        }
        for address in self.addresses.iter().filter(|own| at.scope(**own).is_some()) {
            let address = SocketAddr::new(*address, at.port);
            if let Entry::Vacant(place) = self.held.entry(address) {
                place.insert(PortShadow::hold(address)?);
            }
        }
        Ok(())
    }
}

/// Returns why there is no listener at `port`.
fn refused(port: u16, error: &PacketError) -> ListenError {
    match error {
        PacketError::PortInUse { address } => ListenError::PortOfKernel(address.port()),
        PacketError::Setup { source, .. } => {
            ListenError::NotHeld { port, errno: source.raw_os_error().unwrap_or_default() }
        }
        _ => ListenError::NotHeld { port, errno: 0 },
    }
}
