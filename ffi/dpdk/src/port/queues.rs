//! The queues of a started port: frames in, frames out.

use std::sync::Arc;

use dpdk_sys as sys;

use super::interrupt::{Interrupt, RxInterrupt};
use super::running::{NotSync, Running};
use crate::errno::Errno;
use crate::mbuf::Mbuf;

/// A receive and a transmit queue of a started port.
#[derive(Debug)]
pub struct QueuePair {
    /// The receive queue.
    pub receive: RxQueue,
    /// The transmit queue.
    pub transmit: TxQueue,
}

/// A receive queue. One thread at a time owns it.
#[derive(Debug)]
pub struct RxQueue {
    pub(super) port: Arc<Running>,
    pub(super) queue: u16,
    pub(super) interrupt: Option<Interrupt>,
    pub(super) not_sync: NotSync,
}

impl RxQueue {
    /// Takes up to `limit` received frames, appending them to `frames`; returns how many.
    #[inline]
    pub fn receive(&mut self, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        let limit = limit.min(usize::from(u16::MAX));
        frames.reserve(limit);
        let spare = frames.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the port is started and has this queue, which no other code polls (`&mut self`). There is
        // room for `limit` pointers at `spare`: an `Mbuf` is one pointer.
        let count =
            unsafe { sys::inlined_rte_eth_rx_burst(self.port.claim.id, self.queue, spare, limit as u16) };
        // SAFETY: `count` elements have been written, each a frame that the driver gave up.
        unsafe { frames.set_len(frames.len() + usize::from(count)) };
        usize::from(count)
    }

    /// Returns what becomes readable when frames arrive, once [enabled](Self::enable_interrupt); `None` if
    /// the driver has no receive interrupts.
    ///
    /// Of DPDK 22.11's virtual devices, `net_tap` and `net_virtio_user` have them. `net_af_packet`,
    /// `net_af_xdp`, `net_memif`, `net_ring` and `net_null` do not, and `net_vhost` none that covers a peer
    /// that connects later.
    pub fn interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.interrupt.as_ref().map(Interrupt::borrow)
    }

    /// Has the next frame raise the interrupt. A frame that arrived before raises none: receive once more
    /// before waiting.
    ///
    /// # Errors
    ///
    /// The driver's reason; without [`interrupt`](Self::interrupt), that it is not supported.
    pub fn enable_interrupt(&mut self) -> Result<(), Errno> {
        let interrupt = self.interrupt.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        interrupt.enable(&self.port.claim, self.queue)
    }

    /// Has frames raise no interrupt any more. One may still come.
    pub fn disable_interrupt(&mut self) {
        if let Some(interrupt) = &self.interrupt {
            interrupt.disable(&self.port.claim, self.queue);
        }
    }
}

/// A transmit queue. One thread at a time owns it.
#[derive(Debug)]
pub struct TxQueue {
    pub(super) port: Arc<Running>,
    pub(super) queue: u16,
    /// Whether the driver wants to see frames beforehand: some fix the checksum field up for their hardware.
    pub(super) prepare: bool,
    pub(super) rejected_frames: u64,
    pub(super) not_sync: NotSync,
}

impl TxQueue {
    /// Takes frames from the front of `frames` and leaves those for which the queue has no room; returns how
    /// many it took. A frame that the driver can never send is taken too, dropped and counted.
    #[inline]
    pub fn transmit(&mut self, frames: &mut Vec<Mbuf>) -> usize {
        let mut taken = 0;
        loop {
            let offered = frames.len().min(usize::from(u16::MAX)) as u16;
            if offered == 0 {
                return taken;
            }
            let (port, first) = (self.port.claim.id, frames.as_mut_ptr().cast());
            let fit = if self.prepare {
                // SAFETY: the port is started and has this queue, which no other code uses (`&mut self`).
                // `first` points to `offered` frames: an `Mbuf` is one pointer.
                unsafe { sys::inlined_rte_eth_tx_prepare(port, self.queue, first, offered) }
            } else {
                offered
            };
            // SAFETY: as above, for the first `fit` of them.
            let sent = unsafe { sys::inlined_rte_eth_tx_burst(port, self.queue, first, fit) };
            // The driver owns them now.
            Mbuf::forget_first(frames, sent.into());
            taken += usize::from(sent);
            if sent < fit {
                return taken;
            }
            if fit < offered {
                frames.remove(0);
                self.rejected_frames += 1;
                taken += 1;
            }
        }
    }

    /// Returns the number of frames dropped because the driver could never have sent them: too many pieces,
    /// or offloads it does not have.
    pub const fn rejected_frames(&self) -> u64 {
        self.rejected_frames
    }
}
