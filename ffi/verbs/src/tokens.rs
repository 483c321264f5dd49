//! File descriptors that are readable once for each event, for programs to poll and to read behind calls.

use std::ffi::c_int;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags};

use crate::errno;

/// A count of events: each read takes one. The program decides whether reading waits (`O_NONBLOCK`).
#[derive(Debug)]
pub(crate) struct Tokens(OwnedFd);

impl Tokens {
    pub(crate) fn new() -> Result<Self, errno::Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE);
        Ok(Self(fd.map_err(|error| errno::Errno::from(std::io::Error::from(error)))?))
    }

    /// Adds one.
    pub(crate) fn add(&self) {
        // It fails only when 2^64 - 2 wait.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes one without waiting, for an event that is withdrawn; false if a reader has it.
    pub(crate) fn take_back(&self) -> bool {
        /// Reads from where the descriptor stands: it has no positions.
        const NO_OFFSET: u64 = u64::MAX;
        let mut value = [0; 8];
        let target = &mut [IoSliceMut::new(&mut value)];
        match rustix::io::preadv2(&self.0, target, NO_OFFSET, ReadWriteFlags::NOWAIT) {
            Ok(_) => true,
            // A kernel before 5.8: look, and read. A reader in between has this thread wait for the next.
            Err(Errno::OPNOTSUPP) => self.is_readable() && rustix::io::read(&self.0, &mut value).is_ok(),
            Err(_) => false,
        }
    }

    fn is_readable(&self) -> bool {
        let at_once = Timespec::default();
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Waits for one, and takes it, whether or not the program has made the descriptor non-blocking. No
    /// thread is cancelled in here.
    pub(crate) fn wait(&self) {
        while !self.take_back() {
            // A signal, or no memory for the moment: look again.
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None);
        }
    }

    /// Returns true if reading waits: the program has not made the descriptor non-blocking.
    pub(crate) fn waits(&self) -> bool {
        // SAFETY: a descriptor that is open, and no argument.
        let flags = unsafe { libc::fcntl(self.fd(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK == 0
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// Takes one from the descriptor; waits for it unless the program has made it non-blocking. Returns false,
/// with `errno`, if there is none or a signal came.
///
/// A thread may be cancelled in here (pthread_cancel(3)), as rping's are: it is unwound through this call and
/// those above it, which therefore have nothing to drop.
///
/// # Safety
///
/// `fd` is that of [`Tokens`] which are there until this returns.
pub(crate) unsafe extern "C-unwind" fn wait(fd: c_int) -> bool {
    unsafe extern "C-unwind" {
        fn read(fd: c_int, buffer: *mut u64, count: usize) -> isize;
    }
    let mut value = 0;
    // SAFETY: eight octets are read into a variable of eight.
    unsafe { read(fd, &raw mut value, size_of::<u64>()) == size_of::<u64>() as isize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_taken_once() {
        let tokens = Tokens::new().unwrap();
        assert!(!tokens.take_back());
        tokens.add();
        tokens.add();
        // SAFETY: the tokens are there.
        assert!(unsafe { wait(tokens.fd()) });
        assert!(tokens.take_back() && !tokens.take_back());
    }
}
