//! Connections at a given core of each of two devices.
//!
//! Which core of a device has a connection, the addresses and ports decide. The near end asks for its core by
//! [`ConnectConfig::core`]; the far end rejects what comes to another core than it is to, and the near end
//! tries another local port. The hash is linear, and successive ports differ in a few bits alone, which may
//! say nothing of the far core: ports are tried that differ in all of their bits.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use warpline::{
    AcceptError, ConnectConfig, ConnectError, Connected, ConnectionRequest, Device, Listener, QueuePair,
    limits,
};
use warpline_tools::interrupt;

use crate::error::BenchError;

/// The Private Data with which a connection at another core is rejected.
pub const OTHER_CORE: &[u8] = b"it has come to another core";

/// From one local port to the next that is tried: a prime, which divides no number of ports.
const STRIDE: u16 = 7919;

/// The local ports of connections, one after the other.
#[derive(Debug)]
pub struct LocalPorts {
    next: u16,
}

impl Default for LocalPorts {
    fn default() -> Self {
        Self { next: limits::EPHEMERAL_PORTS.0 }
    }
}

impl LocalPorts {
    /// Connects `qp` to `peer` as `config` says, from one port after the other, until both ends of the
    /// connection are at the core that they want.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoPort`] if no port leads there; that of an attempt which failed otherwise, or was the
    /// last before the command is to end.
    pub fn connect(
        &mut self,
        device: &Device,
        qp: &QueuePair,
        peer: SocketAddr,
        config: &ConnectConfig,
    ) -> Result<Connected, ConnectError> {
        let addresses = device.config().addresses.iter().map(|cidr| cidr.address);
        let address = addresses.into_iter().find(|address| address.is_ipv4() == peer.is_ipv4());
        let address = address.ok_or(ConnectError::NoPort)?;
        let begin = self.next;
        loop {
            let local = Some(SocketAddr::new(address, self.take()));
            let attempt = qp.connect(peer, &ConnectConfig { local, ..config.clone() });
            match attempt {
                Err(ConnectError::OtherCore { .. } | ConnectError::NoPort) => {}
                Err(ConnectError::Rejected { ref private_data, .. }) if **private_data == *OTHER_CORE => {}
                _ => return attempt,
            }
            if self.next == begin || interrupt::is_requested() {
                return attempt;
            }
        }
    }

    fn take(&mut self) -> u16 {
        let (first, last) = limits::EPHEMERAL_PORTS;
        let port = self.next;
        self.next = first + (port - first).wrapping_add(STRIDE) % (last - first + 1);
        port
    }
}

/// Returns the next request at `core`, or at any without one, and rejects those at others before it.
///
/// # Errors
///
/// [`BenchError::Setup`] if none comes in `timeout`;
/// [`CommandError::Interrupted`](warpline_tools::error::CommandError::Interrupted) if the command is to end.
pub fn accept(
    listener: &Listener,
    core: Option<u8>,
    timeout: Duration,
) -> Result<ConnectionRequest, BenchError> {
    /// How often a signal is looked for.
    const LOOK: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + timeout;
    loop {
        let request = match listener.accept(LOOK.min(timeout)) {
            Err(AcceptError::TimedOut) if interrupt::is_requested() => return Err(BenchError::interrupted()),
            Err(AcceptError::TimedOut) if Instant::now() < deadline => continue,
            request => request.map_err(|error| setup(&error))?,
        };
        if core.is_none_or(|core| request.core() == core) {
            return Ok(request);
        }
        request.reject(OTHER_CORE).map_err(|error| setup(&error))?;
    }
}

fn setup(error: &dyn std::error::Error) -> BenchError {
    BenchError::Setup(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every port comes once before one comes again.
    #[test]
    fn all_ports_are_tried() {
        let (first, last) = limits::EPHEMERAL_PORTS;
        let count = usize::from(last - first) + 1;
        let mut ports = LocalPorts::default();
        let tried: BTreeSet<_> = (0..count).map(|_| ports.take()).collect();
        assert_eq!(tried.len(), count);
        assert_eq!((tried.first(), tried.last()), (Some(&first), Some(&last)));
        assert_eq!(ports.next, first);
    }
}
