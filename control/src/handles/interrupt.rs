//! The receive interrupt of a device, as the thread that polls the device waits for it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use warpline_dataplane::device::{RxInterrupt, RxTrigger};

/// A file descriptor that is readable when the interrupt has been raised since it was last
/// [taken](Self::take).
///
/// It is an epoll set, because the driver's own descriptor may stay readable for ever after an interrupt: the
/// edges count. And the driver owns that descriptor: the kernel removes it from the set when the driver
/// closes it.
#[derive(Debug)]
pub(crate) struct InterruptFd(OwnedFd);

impl InterruptFd {
    pub(crate) fn new(interrupt: RxInterrupt<'_>) -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let trigger = match interrupt.trigger {
            RxTrigger::Level => EventFlags::empty(),
            RxTrigger::Edge => EventFlags::ET,
        };
        epoll::add(&set, interrupt.fd, EventData::new_u64(0), EventFlags::IN | trigger)?;
        Ok(Self(set))
    }

    /// Takes the interrupts that were raised; returns false if there was none.
    pub(crate) fn take(&self) -> bool {
        let mut events = [MaybeUninit::uninit(); 1];
        let taken = epoll::wait(&self.0, &mut events, Some(&Timespec::default()));
        taken.is_ok_and(|(events, _)| !events.is_empty())
    }
}

impl AsFd for InterruptFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warpline_dataplane::notify::Notify;

    use super::*;
    use crate::handles::event_fd::EventFd;

    #[test]
    fn edges_are_taken_once_and_levels_until_they_are_gone() {
        let (source, bell) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let watched = |trigger| InterruptFd::new(RxInterrupt { fd: source.as_fd(), trigger }).unwrap();
        let (edge, level) = (watched(RxTrigger::Edge), watched(RxTrigger::Level));
        let raised = |interrupt: &InterruptFd| {
            let readable = bell.wait_beside(Some(interrupt.as_fd()), Duration::ZERO);
            assert_eq!(interrupt.take(), readable);
            readable
        };
        assert!(!raised(&edge) && !raised(&level));
        for _ in 0..2 {
            // Nothing reads the source: it stays readable.
            source.notify();
            assert!(raised(&edge) && !raised(&edge));
            assert!(raised(&level) && raised(&level));
        }
        source.clear();
        assert!(!raised(&edge) && !raised(&level));
    }
}
