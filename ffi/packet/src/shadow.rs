//! A TCP port of the kernel's, held so that the kernel neither gives it to others nor answers for it.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::error::PacketError;
use crate::filter::Filter;
use crate::options;

/// The least TTL, or hop limit, of what the kernel takes: the greatest there is, which nobody has that is not
/// on the link, and few that are.
const LEAST_HOPS: libc::c_int = 255;

/// Connections that could wait: the kernel takes none.
const BACKLOG: libc::c_int = 1;

/// How often a port is tried whose owner may have it for a moment only, and how long it has between. A look
/// takes microseconds. In all it is some 2 ms, much less than a retransmission timeout: the thread that waits
/// may be the one that runs connections.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_micros(400);
const _: () = assert!(PAUSE.as_micros() * ATTEMPTS as u128 <= 2000);

/// Holds a TCP port at an address of the kernel's, for connections that this process has by a packet socket.
///
/// It is a socket of the kernel that listens, so other programs find the port in use, and `ss` shows it. The
/// kernel finds it for every segment to the port, and drops the segment without an answer: because of its TTL
/// (`IP_MINTTL`), and by a filter where that is allowed. When the process ends, however it does, the kernel
/// has the port back, and resets what peers still send to it.
///
/// The kernel's firewall sees the segments, and decides nothing: the packet socket has them before.
#[derive(Debug)]
pub struct PortShadow {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl PortShadow {
    /// Holds the port of `address`, which is an address of the kernel's; for port 0 a free one. A port that
    /// another program is only looking at is waited for, for some 2 ms.
    ///
    /// # Errors
    ///
    /// [`PacketError::PortInUse`]; or that of the system call.
    pub fn hold(address: SocketAddr) -> Result<Self, PacketError> {
        Self::hold_by(bind_soon, address)
    }

    /// Holds the port of `address`, to which `bind` binds the socket.
    fn hold_by(
        bind: fn(&OwnedFd, SocketAddr) -> Result<(), PacketError>,
        address: SocketAddr,
    ) -> Result<Self, PacketError> {
        let socket = tcp_socket(address)?;
        let (level, option) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MINTTL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
        };
        options::set(socket.as_fd(), level, option, LEAST_HOPS, "have the kernel leave a port alone")?;
        // Some kernels want a privilege for it. It is for peers on the link that send with the greatest TTL.
        let _ = options::attach(socket.as_fd(), &Filter::nothing());
        bind(&socket, address)?;
        // SAFETY: takes numbers only.
        if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
            return Err(in_use_or(address, "hold a port"));
        }
        let address = SocketAddr::new(address.ip(), port_of(&socket)?);
        Ok(Self { _socket: socket, address })
    }

    /// Returns the address and the port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn tcp_socket(address: SocketAddr) -> Result<OwnedFd, PacketError> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(PacketError::last("open a socket to hold a port"));
    }
    // SAFETY: the call has made the descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Binds the socket, at once or when those have let go of the port who only look whether it is free.
///
/// The socket does not share its port (`SO_REUSEADDR`): it would get one on which the kernel still has
/// connections, whose segments are not for this process.
fn bind_soon(socket: &OwnedFd, address: SocketAddr) -> Result<(), PacketError> {
    attempt(|| bind(socket, address), || is_shared(address))
}

/// Calls `bind` until it finds the port free, a few times at most, and only while `is_shared` says that the
/// program which has the port shares it.
fn attempt(
    mut bind: impl FnMut() -> Result<(), PacketError>,
    mut is_shared: impl FnMut() -> bool,
) -> Result<(), PacketError> {
    for _ in 1..ATTEMPTS {
        match bind() {
            Err(PacketError::PortInUse { .. }) if is_shared() => thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
    bind()
}

/// Returns true if nobody listens at the port of `address`, and who has it shares it: such as a program that
/// looks whether it is free.
fn is_shared(address: SocketAddr) -> bool {
    tcp_socket(address).is_ok_and(|socket| {
        let step = "share a port";
        options::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, step).is_ok()
            && bind(&socket, address).is_ok()
    })
}

fn in_use_or(address: SocketAddr, step: &'static str) -> PacketError {
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => PacketError::PortInUse { address },
        _ => PacketError::Setup { step, source },
    }
}

fn bind(socket: &OwnedFd, address: SocketAddr) -> Result<(), PacketError> {
    let step = "hold a port";
    let result = match address {
        SocketAddr::V4(address) => {
            let address = raw_v4(address);
            // SAFETY: the address lives for the call, and has this size.
            unsafe { bind_raw(socket, (&raw const address).cast(), size_of_val(&address)) }
        }
        SocketAddr::V6(address) => {
            let address = raw_v6(address);
            // SAFETY: as above.
            unsafe { bind_raw(socket, (&raw const address).cast(), size_of_val(&address)) }
        }
    };
    if result == 0 { Ok(()) } else { Err(in_use_or(address, step)) }
}

/// # Safety
///
/// There is an address of `octets` octets at `address`.
unsafe fn bind_raw(socket: &OwnedFd, address: *const libc::sockaddr, octets: usize) -> libc::c_int {
    // SAFETY: as the caller promises; the kernel reads no more.
    unsafe { libc::bind(socket.as_raw_fd(), address, octets as libc::socklen_t) }
}

fn raw_v4(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn raw_v6(address: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
        sin6_scope_id: address.scope_id(),
    }
}

/// Returns the port that the socket is bound to.
fn port_of(socket: &OwnedFd) -> Result<u16, PacketError> {
    // SAFETY: numbers, of which all zeros are valid.
    let mut address: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
    let mut octets = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives for the call, and the kernel writes no more than its size, in which an
    // address of either family fits.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut octets) };
    if result != 0 {
        return Err(PacketError::last("find out which port is held"));
    }
    // Both families have the port in the same place.
    Ok(u16::from_be(address.sin6_port))
}

/// Returns the first port of `count` in a row, none of which is lower than `least`, that are free at all of
/// `addresses`, and what holds them.
///
/// # Errors
///
/// [`PacketError::NoPorts`], or that of a system call.
pub fn hold_row(addresses: &[IpAddr], count: u16, least: u16) -> Result<(u16, Vec<PortShadow>), PacketError> {
    let mut first = least;
    while first.checked_add(count - 1).is_some() {
        match hold_from(addresses, first, count) {
            Ok(held) => return Ok((first, held)),
            Err(PacketError::PortInUse { address }) => match address.port().checked_add(1) {
                Some(next) => first = next,
                None => break,
            },
            Err(error) => return Err(error),
        }
    }
    Err(PacketError::NoPorts { count, least })
}

fn hold_from(addresses: &[IpAddr], first: u16, count: u16) -> Result<Vec<PortShadow>, PacketError> {
    let ports = (first..=u16::MAX).take(count.into());
    let all = ports.flat_map(|port| addresses.iter().map(move |address| SocketAddr::new(*address, port)));
    // Those after a port in use may be as good: it is not waited for.
    all.map(|address| PortShadow::hold_by(bind, address)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7471);

    /// Returns what comes of a port that is in use for so many attempts, and how often it was tried.
    fn attempt_at(refusals: u32, is_shared: bool) -> (Result<(), PacketError>, u32) {
        let mut attempts = 0;
        let bind = || {
            attempts += 1;
            if attempts > refusals { Ok(()) } else { Err(PacketError::PortInUse { address: PORT }) }
        };
        let outcome = attempt(bind, || is_shared);
        (outcome, attempts)
    }

    /// Who looks whether a port is free has it for a moment, and shares it: that is waited for.
    #[test]
    fn a_port_that_others_look_at_is_tried_again() {
        for refusals in 0..ATTEMPTS {
            let (outcome, attempts) = attempt_at(refusals, true);
            assert!(outcome.is_ok(), "{outcome:?} after {refusals}");
            assert_eq!(attempts, refusals + 1);
        }
    }

    #[test]
    fn a_port_that_others_keep_is_given_up() {
        for (is_shared, most) in [(true, ATTEMPTS), (false, 1)] {
            let (outcome, attempts) = attempt_at(u32::MAX, is_shared);
            assert!(
                matches!(outcome, Err(PacketError::PortInUse { address }) if address == PORT),
                "{outcome:?}"
            );
            assert_eq!(attempts, most);
        }
    }

    #[test]
    fn another_error_is_not_tried_again() {
        let mut attempts = 0;
        let bind = || {
            attempts += 1;
            Err(PacketError::NoPorts { count: 1, least: 1 })
        };
        assert!(matches!(attempt(bind, || true), Err(PacketError::NoPorts { .. })));
        assert_eq!(attempts, 1);
    }
}
