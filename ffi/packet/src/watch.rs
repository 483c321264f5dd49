//! One descriptor for several sockets.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::error::PacketError;
use crate::socket::PacketSocket;

/// Returns a descriptor that is readable while one of `sockets` is: an epoll set (epoll(7)). A socket leaves
/// it when it is closed.
///
/// # Errors
///
/// That of the system call.
pub fn watch(sockets: &[&PacketSocket]) -> Result<OwnedFd, PacketError> {
    // SAFETY: takes a number only.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if set < 0 {
        return Err(PacketError::last("make an epoll set"));
    }
    // SAFETY: the call has made the descriptor, which nothing else owns.
    let set = unsafe { OwnedFd::from_raw_fd(set) };
    for socket in sockets {
        let fd = socket.as_fd().as_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event lives for the call.
        if unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } != 0 {
            return Err(PacketError::last("watch a socket"));
        }
    }
    Ok(set)
}
