//! Frames for groups on an interface of the kernel.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Has an interface of the kernel pass the frames of all groups, until it is dropped or the process ends. The
/// kernel counts those who want it, so that one that ends takes nothing from another. `net_af_packet` has no
/// such mode: it would set the flag of the interface that has it pass every frame, and leave it set.
#[derive(Debug)]
pub struct AllMulticast {
    _socket: OwnedFd,
}

impl AllMulticast {
    /// Begins it for the interface with the number `index`.
    ///
    /// # Errors
    ///
    /// That of the packet socket.
    pub fn of_interface(index: u32) -> io::Result<Self> {
        // SAFETY: takes numbers only. Protocol 0 receives no frames.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made the descriptor, which nothing else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let request = libc::packet_mreq {
            mr_ifindex: c_int::try_from(index).unwrap_or(0),
            mr_type: libc::PACKET_MR_ALLMULTI as _,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: `request` is readable and of the size given.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                size_of_val(&request) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(Self { _socket: socket }) } else { Err(io::Error::last_os_error()) }
    }
}
