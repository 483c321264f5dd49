//! Receive interrupts: the file descriptor on which a thread waits for frames instead of polling a queue.

use std::os::fd::{BorrowedFd, RawFd};

use dpdk_sys as sys;

use super::claim::{Claim, driver};
use crate::errno::Errno;

/// When the descriptor of an [`RxInterrupt`] is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxTrigger {
    /// As long as frames wait in the queue. Receiving them makes it unreadable.
    Level,
    /// From an interrupt on, for ever: no code reads the interrupts from it. Wait for its edges (`EPOLLET` of
    /// epoll(7)), as DPDK's own `rte_epoll_wait` does.
    Edge,
}

/// The receive interrupt of a queue. The driver owns the descriptor: waiting for it is all that may be done
/// with it. To read from the descriptor of a `net_tap` queue would take a frame.
#[derive(Clone, Copy, Debug)]
pub struct RxInterrupt<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// When it is readable.
    pub trigger: RxTrigger,
}

/// The interrupt that a queue of a started port keeps.
#[derive(Debug)]
pub(super) struct Interrupt {
    fd: RawFd,
    trigger: RxTrigger,
}

impl Interrupt {
    /// Returns the interrupt of a queue of the started port `claim`, which was configured for interrupts;
    /// `None` if its driver has none that a sleeping thread can rely on.
    pub(super) fn find(claim: &Claim, info: &sys::rte_eth_dev_info, queue: u16) -> Option<Self> {
        let trigger = match driver(info) {
            // The descriptor is that of the tap's own queue, which needs no enabling: the driver has no call
            // for it.
            b"net_tap" => RxTrigger::Level,
            // It enables the interrupt of the peer that is there now. One that connects later finds it
            // disabled.
            b"net_vhost" => return None,
            _ => {
                enable(claim, queue).ok()?;
                disable(claim, queue);
                RxTrigger::Edge
            }
        };
        // SAFETY: DPDK checks the port and the queue.
        let fd = unsafe { sys::rte_eth_dev_rx_intr_ctl_q_get_fd(claim.id, queue) };
        (fd >= 0).then_some(Self { fd, trigger })
    }

    /// Returns the interrupt for users, for as long as the queue that `self` is of keeps its port started.
    pub(super) fn borrow(&self) -> RxInterrupt<'_> {
        // SAFETY: the driver opened the descriptor when the port was set up or started, and closes it when
        // the port is stopped or closed, not earlier. The queue that owns `self`, and so is borrowed too,
        // keeps the port started (`Arc<Running>`). `find` refused negative numbers.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        RxInterrupt { fd, trigger: self.trigger }
    }

    /// Has the next frame raise the interrupt.
    pub(super) fn enable(&self, claim: &Claim, queue: u16) -> Result<(), Errno> {
        match self.trigger {
            RxTrigger::Level => Ok(()),
            RxTrigger::Edge => enable(claim, queue),
        }
    }

    /// Spares the device the interrupts.
    pub(super) fn disable(&self, claim: &Claim, queue: u16) {
        if self.trigger == RxTrigger::Edge {
            disable(claim, queue);
        }
    }
}

fn enable(claim: &Claim, queue: u16) -> Result<(), Errno> {
    // SAFETY: DPDK checks the port and the queue. Nobody else enables or disables it: each queue has one
    // owner.
    Errno::check(unsafe { sys::rte_eth_dev_rx_intr_enable(claim.id, queue) }).map(drop)
}

fn disable(claim: &Claim, queue: u16) {
    // A failure leaves interrupts enabled, which costs time and nothing else.
    // SAFETY: as for `enable`.
    let _ = unsafe { sys::rte_eth_dev_rx_intr_disable(claim.id, queue) };
}
