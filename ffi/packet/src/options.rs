//! Options of a socket, with the types that the kernel wants.

use core::ptr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::PacketError;
use crate::filter::Filter;

/// A type that an option of a socket can have.
///
/// # Safety
///
/// It is plain data of C: every bit pattern is valid, and it has no padding and no pointers that the kernel
/// keeps.
pub(crate) unsafe trait OptionValue: Copy {}

// SAFETY: a number.
unsafe impl OptionValue for libc::c_int {}
// SAFETY: four numbers of the same size.
unsafe impl OptionValue for libc::tpacket_req {}
// SAFETY: two numbers of the same size.
unsafe impl OptionValue for libc::tpacket_stats {}
// SAFETY: a number of 4 octets, two of 2, and 8 octets: aligned without padding.
unsafe impl OptionValue for libc::packet_mreq {}

/// Sets an option of `socket`.
///
/// # Errors
///
/// That of the kernel, as the failure of `step`.
pub(crate) fn set<T: OptionValue>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
    step: &'static str,
) -> Result<(), PacketError> {
    let octets = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives for the call, and the kernel reads no more than its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, ptr::from_ref(&value).cast(), octets) };
    if result == 0 { Ok(()) } else { Err(PacketError::last(step)) }
}

/// Returns an option of `socket`. `value` is returned where the kernel writes nothing.
///
/// # Errors
///
/// That of the kernel.
pub(crate) fn get<T: OptionValue>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut octets = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives for the call, the kernel writes no more than its size, and every bit pattern of
    // it is valid.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, ptr::from_mut(&mut value).cast(), &raw mut octets)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Attaches `filter` to `socket`, in place of the one before.
///
/// # Errors
///
/// [`PacketError::FilterSize`], or that of the kernel.
pub(crate) fn attach(socket: BorrowedFd<'_>, filter: &Filter) -> Result<(), PacketError> {
    let program = filter.program();
    let too_long = PacketError::FilterSize { instructions: program.len(), most: Filter::INSTRUCTIONS_MAX };
    if program.len() > Filter::INSTRUCTIONS_MAX {
        return Err(too_long);
    }
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program lives for the call; the kernel copies it, and writes nothing to it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(PacketError::last("attach the filter, which net.core.optmem_max bounds"))
    }
}
