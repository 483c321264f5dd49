//! Why a packet socket cannot be used.

use std::io;
use std::net::SocketAddr;

/// A packet socket could not be opened or set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The kernel has no such interface in this network namespace.
    #[error("there is no interface '{interface}'")]
    NoInterface {
        /// The name asked for.
        interface: String,
    },
    /// No interface can have such a name.
    #[error("'{interface}' cannot be the name of an interface: it has 1 to {} bytes, none of them zero",
        libc::IFNAMSIZ - 1)]
    InterfaceName {
        /// The name asked for.
        interface: String,
    },
    /// The process may not open packet sockets.
    #[error(
        "a packet socket needs the capability CAP_NET_RAW: run as root, or setcap cap_net_raw+ep PROGRAM"
    )]
    Denied {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The interface carries no Ethernet frames.
    #[error("interface '{interface}' is not Ethernet: its hardware type is {hardware}, not 1")]
    NotEthernet {
        /// The interface.
        interface: String,
        /// Its hardware type (`ARPHRD_*`).
        hardware: u16,
    },
    /// The size of the largest frame is out of range.
    #[error("frames of {octets} bytes: the largest frame has {least} to {most}")]
    FrameSize {
        /// The size asked for, in bytes.
        octets: usize,
        /// The smallest possible, in bytes.
        least: usize,
        /// The largest possible, in bytes.
        most: usize,
    },
    /// A number of frames is out of range.
    #[error("room for {frames} frames: there is some for 1 to {most}")]
    FrameCount {
        /// Frames asked for.
        frames: usize,
        /// The most possible.
        most: usize,
    },
    /// The filter has more instructions than the kernel takes.
    #[error("a filter of {instructions} instructions: the kernel takes {most}; fewer addresses may help")]
    FilterSize {
        /// Instructions of the program.
        instructions: usize,
        /// The most that the kernel takes.
        most: usize,
    },
    /// Another socket has the port.
    #[error("port {} of {} is in use: choose another", .address.port(), .address.ip())]
    PortInUse {
        /// The address with the port.
        address: SocketAddr,
    },
    /// There are not so many free ports in a row.
    #[error("no {count} ports in a row from {least} on are free")]
    NoPorts {
        /// Ports asked for.
        count: u16,
        /// The least that would do.
        least: u16,
    },
    /// A system call failed.
    #[error("cannot {step}: {source}")]
    Setup {
        /// The purpose of the call, as the end of a sentence that begins with "cannot".
        step: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl PacketError {
    /// Returns the error of the system call that has just failed on this thread.
    pub(crate) fn last(step: &'static str) -> Self {
        Self::Setup { step, source: io::Error::last_os_error() }
    }
}
