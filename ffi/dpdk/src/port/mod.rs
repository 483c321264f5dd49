//! Ethernet ports and their queues.

mod all_multicast;
mod claim;
mod config;
mod interrupt;
mod queues;
mod running;
mod setup;

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use std::ffi::CString;
use std::sync::Arc;

use dpdk_sys as sys;

use crate::eal::{Eal, control};
use crate::errno::Errno;
use crate::mempool::Mempool;
pub use all_multicast::AllMulticast;
use claim::{Claim, driver};
pub use config::{Mtu, Multicast, PortCapabilities, PortConfig, PortError, Rss, RssLayout};
use interrupt::Interrupt;
pub use interrupt::{RxInterrupt, RxTrigger};
pub use queues::{QueuePair, RxQueue, TxQueue};
use running::Running;
pub use running::{LinkState, PortStatistics, RunningPort};
use setup::{Plan, receive_multicast, spread_in_turn};

/// A port that belongs to the holder and is not started.
#[derive(Debug)]
pub struct Port {
    claim: Claim,
}

impl Port {
    /// Returns the names of all ports: of PCI devices their address, of virtual devices their name
    /// (`net_tap0`).
    pub fn names(_: Eal) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = 0;
        control(|| {
            loop {
                // SAFETY: takes any number and returns the next port from there, or one past the last
                // possible.
                let id = unsafe { sys::rte_eth_find_next(next) };
                if u32::from(id) >= sys::RTE_MAX_ETHPORTS {
                    return;
                }
                next = id + 1;
                let mut name: [c_char; sys::RTE_ETH_NAME_MAX_LEN as usize] = [0; _];
                // SAFETY: `name` is as long as the longest name with its end.
                if unsafe { sys::rte_eth_dev_get_name_by_port(id, name.as_mut_ptr()) } == 0 {
                    // SAFETY: DPDK has written a string that ends inside `name`.
                    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
                    names.push(name.to_string_lossy().into_owned());
                }
            }
        });
        names
    }

    /// Opens the port `name`.
    ///
    /// # Errors
    ///
    /// [`PortError::NotFound`], [`PortError::InUse`].
    pub fn open(eal: Eal, name: &str) -> Result<Self, PortError> {
        let mut id = 0;
        let found = CString::new(name).is_ok_and(|name| {
            // SAFETY: the EAL runs (`eal`), the string lives through the call, and `id` is writable.
            control(|| unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) }) == 0
        });
        if !found {
            let mut known = Self::names(eal).join(", ");
            if known.is_empty() {
                "none (give the EAL a virtual device or allow a PCI device)".clone_into(&mut known);
            }
            return Err(PortError::NotFound { name: name.to_owned(), known });
        }
        let claim = Claim::new(id, name).ok_or_else(|| PortError::InUse(name.to_owned()))?;
        Ok(Self { claim })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.claim.name
    }

    /// Returns its capabilities.
    ///
    /// # Errors
    ///
    /// [`PortError::Refused`] when the driver does not tell.
    pub fn capabilities(&self) -> Result<PortCapabilities, PortError> {
        let info = self.claim.info()?;
        let queues = info.max_rx_queues.min(info.max_tx_queues);
        let pieces = info.tx_desc_lim.nb_seg_max;
        Ok(PortCapabilities::new(queues, info.max_mtu, pieces, info.rx_offload_capa, info.tx_offload_capa))
    }

    /// Returns the number of the interface of the kernel under it, if it has one.
    ///
    /// # Errors
    ///
    /// [`PortError::Refused`] when the driver does not tell.
    pub fn interface(&self) -> Result<Option<u32>, PortError> {
        let index = self.claim.info()?.if_index;
        Ok((index > 0).then_some(index))
    }

    /// Configures and starts the port. Queue pair `n` receives into `pools[n]`. The port stops and closes,
    /// for good, when everything that this returns is dropped: the handle and every queue.
    ///
    /// # Errors
    ///
    /// [`PortError`].
    pub fn start(
        self,
        config: &PortConfig,
        pools: &[Mempool],
    ) -> Result<(RunningPort, Vec<QueuePair>), PortError> {
        let info = self.claim.info()?;
        let plan = Plan::new(&self.claim, &info, config, pools)?;
        let set_up =
            |claim: &Claim, rx_interrupts| plan.carry_out(claim, &info, config, pools, rx_interrupts);
        // A driver without receive interrupts ignores the wish for them, or refuses the port. `net_vhost` has
        // none that is of use, and takes a second try for a port that is set up, whatever the first one met.
        let may_interrupt = config.rx_interrupts && driver(&info) != b"net_vhost";
        let mut rx_interrupts = may_interrupt && set_up(&self.claim, true).is_ok();
        if !rx_interrupts {
            set_up(&self.claim, false)?;
        }
        // From here on the port must be closed again, whatever happens, before its pools may go.
        let running = Running { claim: self.claim, _pools: pools.to_vec() };
        let claim = &running.claim;
        if let Err(error) = claim.start() {
            if !rx_interrupts {
                return Err(error);
            }
            rx_interrupts = false;
            set_up(claim, false)?;
            claim.start()?;
        }
        if config.promiscuous {
            // SAFETY: DPDK checks the port number.
            Errno::check(control(|| unsafe { sys::rte_eth_promiscuous_enable(claim.id) }))
                .map_err(claim.refused("turning promiscuous"))?;
        }
        let multicast = if config.multicast { receive_multicast(claim) } else { Multicast::AsItIs };
        let rss = match info.reta_size {
            entries if plan.hashes != 0 && entries > 0 => Some(spread_in_turn(claim, config, entries)?),
            _ => None,
        };
        let Plan { receive, transmit, .. } = plan;
        let mac = claim.mac()?;
        let mut capabilities =
            PortCapabilities::new(config.queues, config.mtu.octets(), plan.pieces, receive, transmit);
        if plan.passes_super_frames {
            (capabilities.segmentation, capabilities.joins_received) = (true, true);
        }
        let running = Arc::new(running);
        let pairs = (0..config.queues)
            .map(|queue| QueuePair {
                receive: RxQueue {
                    port: Arc::clone(&running),
                    queue,
                    interrupt: rx_interrupts.then(|| Interrupt::find(&running.claim, &info, queue)).flatten(),
                    alone: PhantomData,
                },
                transmit: TxQueue {
                    port: Arc::clone(&running),
                    queue,
                    // Only offloads can ask the driver to touch a frame.
                    prepare: transmit & !sys::constant_RTE_ETH_TX_OFFLOAD_MULTI_SEGS != 0,
                    rejected_frames: 0,
                    alone: PhantomData,
                },
            })
            .collect();
        Ok((RunningPort { port: running, mac, capabilities, rss, multicast, alone: PhantomData }, pairs))
    }
}
