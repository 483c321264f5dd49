//! Ethernet ports and their queues.

mod all_multicast;
mod claim;
mod config;
mod interrupt;
mod listing;
mod queues;
mod running;
mod setup;
mod spreading;
mod start;

use std::ffi::CString;

use dpdk_sys as sys;

use crate::eal::{Eal, control};
use crate::mempool::Mempool;
pub use all_multicast::AllMulticast;
use claim::Claim;
pub use config::{Mtu, Multicast, PortCapabilities, PortConfig, PortError, Rss, RssLayout, UnknownSpread};
pub use interrupt::{RxInterrupt, RxTrigger};
use listing::ports;
pub(crate) use listing::{PortId, ports_of_device};
pub use queues::{QueuePair, RxQueue, TxQueue};
use running::Running;
pub use running::{LinkState, PortStatistics, RunningPort};
use setup::most_mtu;
use spreading::{has_queues, table_entries};
use start::Start;

/// A port that belongs to the holder and is not started.
#[derive(Debug)]
pub struct Port {
    claim: Claim,
}

impl Port {
    /// Returns the names of all ports: of PCI devices their address, of virtual devices their name
    /// (`net_tap0`).
    pub fn names(_: Eal) -> Vec<String> {
        control(|alone| ports(alone).filter_map(PortId::name).collect())
    }

    /// Opens the port `name`.
    ///
    /// # Errors
    ///
    /// [`PortError::NotFound`], [`PortError::InUse`].
    pub fn open(eal: Eal, name: &str) -> Result<Self, PortError> {
        let mut id = 0;
        let claimed = CString::new(name).ok().and_then(|text| {
            // Found and claimed at once, or another thread could remove its device in between.
            control(|_| {
                // SAFETY: the EAL runs (`eal`), the string lives through the call, and `id` is writable.
                let found = unsafe { sys::rte_eth_dev_get_port_by_name(text.as_ptr(), &raw mut id) } == 0;
                found.then(|| Claim::new(id, name))
            })
        });
        let Some(claimed) = claimed else {
            let mut known = Self::names(eal).join(", ");
            if known.is_empty() {
                "none (give the EAL a virtual device or allow a PCI device)".clone_into(&mut known);
            }
            return Err(PortError::NotFound { name: name.to_owned(), known });
        };
        let claim = claimed.ok_or_else(|| PortError::InUse(name.to_owned()))?;
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
        Ok(PortCapabilities::new(queues, most_mtu(&info), pieces, info.rx_offload_capa, info.tx_offload_capa))
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

    /// Returns the NUMA node that the port is at, if it is at one.
    pub fn node(&self) -> Option<u32> {
        // SAFETY: takes any number.
        u32::try_from(unsafe { sys::rte_eth_dev_socket_id(self.claim.id) }).ok()
    }

    /// Returns the entries of the table by which the port can spread TCP segments over `queues` queues as an
    /// [`RssLayout`] says; `None` if it cannot: it has fewer queues, or its hash is not known.
    ///
    /// Of DPDK 22.11's virtual devices only `net_null` says that it can, whose frames are blank. Of those
    /// with several queues, `net_tap` and `net_af_packet` leave the choice to the kernel, `net_af_xdp` to the
    /// adapter under it, and `net_vhost`, `net_virtio_user`, `net_memif` and `net_ring` to the peer, which
    /// may have fewer queues.
    ///
    /// # Errors
    ///
    /// [`PortError::Refused`] when the driver does not tell.
    pub fn spreads(&self, queues: u16) -> Result<Option<u16>, PortError> {
        Ok(table_entries(&self.claim.info()?, queues))
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
        let mut start = Start::set_up(&self.claim, &info, config, pools)?;
        // From here on the port must be closed again, whatever happens, before its pools may go.
        let running = Running { claim: self.claim, _pools: pools.to_vec() };
        let rss = start.run(&running.claim)?;
        start.finish(running, rss)
    }

    /// As [`start`](Self::start), with a queue pair for each of `pools` if the port [spreads](Self::spreads)
    /// TCP segments over so many as [`RunningPort::rss`] then says; else as `unknown` says. The number in
    /// `config` is ignored. The port keeps all pools until it is closed.
    ///
    /// # Errors
    ///
    /// [`PortError`].
    pub fn start_spread(
        self,
        config: &PortConfig,
        pools: &[Mempool],
        unknown: UnknownSpread,
    ) -> Result<(RunningPort, Vec<QueuePair>), PortError> {
        let info = self.claim.info()?;
        let queues = u16::try_from(pools.len()).unwrap_or(u16::MAX);
        let (one, several) = (PortConfig { queues: 1, ..*config }, PortConfig { queues, ..*config });
        let one_pool = pools.get(..1).unwrap_or_default();
        let takes_any = unknown == UnknownSpread::QueueEach && has_queues(&info, queues);
        let spreads = queues > 1 && (takes_any || table_entries(&info, queues).is_some());
        let start = if spreads { Start::set_up(&self.claim, &info, &several, pools).ok() } else { None };
        let mut start = match start {
            Some(start) => start,
            None => Start::set_up(&self.claim, &info, &one, one_pool)?,
        };
        let running = Running { claim: self.claim, _pools: pools.to_vec() };
        let started = start.run(&running.claim);
        let is_as_wanted = matches!(started, Ok(rss) if rss.is_some() || takes_any);
        if start.config.queues == 1 || is_as_wanted {
            return start.finish(running, started?);
        }
        // The driver has refused, or does otherwise than it said.
        running.claim.stop();
        start = Start::set_up(&running.claim, &info, &one, one_pool)?;
        let rss = start.run(&running.claim)?;
        start.finish(running, rss)
    }
}
