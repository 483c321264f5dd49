//! A started port: its configuration and its counters.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem;
use std::sync::Arc;

use dpdk_sys as sys;

use super::claim::Claim;
use super::config::{Multicast, PortCapabilities, PortError, RssLayout};
use crate::errno::Errno;
use crate::mempool::Mempool;

/// The counters of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PortStatistics {
    /// Frames received.
    pub received_frames: u64,
    /// Octets in them.
    pub received_octets: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Octets in them.
    pub sent_octets: u64,
    /// Frames the port dropped because its queues were full.
    pub missed_frames: u64,
    /// Frames received broken.
    pub receive_errors: u64,
    /// Frames it failed to send.
    pub transmit_errors: u64,
    /// Times no buffer was free for a received frame.
    pub no_buffer: u64,
}

/// The state of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Whether it is up.
    pub up: bool,
    /// Its speed in Mb/s; `u32::MAX` when unknown.
    pub megabits_per_second: u32,
    /// Whether both directions work at a time.
    pub full_duplex: bool,
}

/// A started port. Dropped with the last of its handle and queues.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) claim: Claim,
    /// The port's descriptors hold buffers of these; members are dropped after the port is closed.
    pub(super) _pools: Vec<Mempool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.claim.control(|_| {
            // SAFETY: DPDK checks the port number and state. No queue is left (`Arc`), so no code polls the
            // port.
            unsafe {
                sys::rte_eth_dev_stop(self.claim.id);
                sys::rte_eth_dev_close(self.claim.id);
            }
            self.claim.release();
        });
    }
}

/// Marks what may be sent to another thread but used by one at a time.
pub(super) type NotSync = PhantomData<Cell<()>>;

/// The handle of a started port.
#[derive(Debug)]
pub struct RunningPort {
    pub(super) port: Arc<Running>,
    pub(super) mac: [u8; 6],
    pub(super) capabilities: PortCapabilities,
    pub(super) rss: Option<RssLayout>,
    pub(super) multicast: Multicast,
    pub(super) not_sync: NotSync,
}

impl RunningPort {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.port.claim.name
    }

    /// Returns its hardware address.
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the capabilities it was configured with.
    pub const fn capabilities(&self) -> PortCapabilities {
        self.capabilities
    }

    /// Returns how it spreads frames over its queues; `None` with one queue, or when the port cannot be
    /// configured to spread frames.
    pub const fn rss(&self) -> Option<RssLayout> {
        self.rss
    }

    /// Returns how it receives the frames for multicast groups.
    pub const fn multicast(&self) -> Multicast {
        self.multicast
    }

    /// Returns its counters.
    ///
    /// # Errors
    ///
    /// [`PortError::Refused`] when the driver does not tell.
    pub fn statistics(&self) -> Result<PortStatistics, PortError> {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut counted: sys::rte_eth_stats = unsafe { mem::zeroed() };
        // SAFETY: `counted` is writable; DPDK checks the port number.
        Errno::check(unsafe { sys::rte_eth_stats_get(self.port.claim.id, &raw mut counted) })
            .map_err(self.port.claim.refused("reading its statistics"))?;
        Ok(PortStatistics {
            received_frames: counted.ipackets,
            received_octets: counted.ibytes,
            sent_frames: counted.opackets,
            sent_octets: counted.obytes,
            missed_frames: counted.imissed,
            receive_errors: counted.ierrors,
            transmit_errors: counted.oerrors,
            no_buffer: counted.rx_nombuf,
        })
    }

    /// Returns the state of its link, as last known.
    ///
    /// # Errors
    ///
    /// [`PortError::Refused`] when the driver does not tell.
    pub fn link(&self) -> Result<LinkState, PortError> {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut link: sys::rte_eth_link = unsafe { mem::zeroed() };
        // SAFETY: `link` is writable; DPDK checks the port number.
        Errno::check(unsafe { sys::rte_eth_link_get_nowait(self.port.claim.id, &raw mut link) })
            .map_err(self.port.claim.refused("asking for its link"))?;
        Ok(LinkState {
            up: link.link_status() != 0,
            megabits_per_second: link.link_speed,
            full_duplex: link.link_duplex() != 0,
        })
    }
}
