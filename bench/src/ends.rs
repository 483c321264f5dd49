//! What this process is when the other end is in another.

use std::net::SocketAddr;

use warpline::Cidr;

use crate::BenchError;
use crate::cli::{Backend, with_usual_prefix};

/// One end of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It connects to this address.
    Connecting(SocketAddr),
    /// It listens at this port.
    Listening(u16),
}

impl End {
    /// The CPU of its core: the first of `wanted`, if there is any. The other end may be another process on
    /// this machine: the two keep out of each other's way.
    pub fn cpu(&self, wanted: &[usize]) -> usize {
        if let Some(&cpu) = wanted.first() {
            return cpu;
        }
        let cpus = core_affinity::get_core_ids().unwrap_or_default();
        let cpu = match self {
            Self::Listening(_) => cpus.last(),
            Self::Connecting(_) => cpus.first(),
        };
        cpu.map_or(0, |cpu| cpu.id)
    }
}

/// Our end and our address, from `--listen`, HOST:PORT and `--address`.
///
/// # Errors
///
/// [`BenchError::WhichEnd`].
pub fn which(
    backend: Backend,
    listen: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    address: Option<Cidr>,
) -> Result<(Cidr, End), BenchError> {
    match (listen, peer, address) {
        (Some(listen), None, address) => {
            let usual = with_usual_prefix(listen.ip());
            let prefix_bits = address.map_or(usual.prefix_bits, |address| address.prefix_bits);
            Ok((Cidr { prefix_bits, ..usual }, End::Listening(listen.port())))
        }
        (None, Some(peer), Some(interface)) => Ok((interface, End::Connecting(peer))),
        _ => Err(BenchError::WhichEnd(backend.name())),
    }
}
