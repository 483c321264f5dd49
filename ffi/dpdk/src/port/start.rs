//! Starts a claimed port, step by step.

use core::marker::PhantomData;
use std::sync::Arc;

use dpdk_sys as sys;

use super::claim::{Claim, driver};
use super::config::{Multicast, PortCapabilities, PortConfig, PortError, RssLayout};
use super::interrupt::Interrupt;
use super::queues::{QueuePair, RxQueue, TxQueue};
use super::running::{Running, RunningPort};
use super::setup::{Plan, receive_multicast};
use super::spreading::spread_in_turn;
use crate::eal::control;
use crate::errno::Errno;
use crate::mempool::Mempool;

/// Drivers of DPDK 22.11 whose receive interrupts are not to be waited for. That of `net_vhost` is of no use,
/// and the driver takes a second try for a port that is set up, whatever the first one met. `net_e1000_em`
/// (e1000, e1000e) takes the wish and maps no queue to a vector, so none ever comes: a thread that waits for
/// it sleeps until a timer is due.
const SILENT_DRIVERS: [&[u8]; 2] = [b"net_vhost", b"net_e1000_em"];

/// A port that is set up, and runs after [`run`](Self::run).
pub(super) struct Start<'a> {
    info: &'a sys::rte_eth_dev_info,
    pub(super) config: &'a PortConfig,
    pools: &'a [Mempool],
    plan: Plan,
    rx_interrupts: bool,
}

impl<'a> Start<'a> {
    /// Configures a port that does not run, and sets its queues up.
    pub(super) fn set_up(
        claim: &Claim,
        info: &'a sys::rte_eth_dev_info,
        config: &'a PortConfig,
        pools: &'a [Mempool],
    ) -> Result<Self, PortError> {
        let plan = Plan::new(claim, info, config, pools)?;
        // A driver without receive interrupts ignores the wish for them, or refuses the port.
        let may_interrupt = config.rx_interrupts && !SILENT_DRIVERS.contains(&driver(info));
        let rx_interrupts = may_interrupt && plan.carry_out(claim, info, config, pools, true).is_ok();
        if !rx_interrupts {
            plan.carry_out(claim, info, config, pools, false)?;
        }
        Ok(Self { info, config, pools, plan, rx_interrupts })
    }

    /// Has the port run, and spread what it receives over its queues. Returns how, if that is known.
    pub(super) fn run(&mut self, claim: &Claim) -> Result<Option<RssLayout>, PortError> {
        if let Err(error) = claim.start() {
            if !self.rx_interrupts {
                return Err(error);
            }
            self.rx_interrupts = false;
            self.plan.carry_out(claim, self.info, self.config, self.pools, false)?;
            claim.start()?;
        }
        if self.config.promiscuous {
            // SAFETY: DPDK checks the port number.
            Errno::check(control(|_| unsafe { sys::rte_eth_promiscuous_enable(claim.id) }))
                .map_err(claim.refused("turning promiscuous"))?;
        }
        spread_in_turn(claim, self.info, self.config, &self.plan)
    }

    /// Returns the port, which runs, with its queues.
    pub(super) fn finish(
        self,
        running: Running,
        rss: Option<RssLayout>,
    ) -> Result<(RunningPort, Vec<QueuePair>), PortError> {
        let Self { info, config, plan, rx_interrupts, .. } = self;
        let multicast = if config.multicast { receive_multicast(&running.claim) } else { Multicast::AsItIs };
        let Plan { receive, transmit, .. } = plan;
        let mac = running.claim.mac()?;
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
                    interrupt: rx_interrupts.then(|| Interrupt::find(&running.claim, info, queue)).flatten(),
                    not_sync: PhantomData,
                },
                transmit: TxQueue {
                    port: Arc::clone(&running),
                    queue,
                    // Only offloads can ask the driver to touch a frame.
                    prepare: transmit & !sys::constant_RTE_ETH_TX_OFFLOAD_MULTI_SEGS != 0,
                    rejected_frames: 0,
                    not_sync: PhantomData,
                },
            })
            .collect();
        Ok((RunningPort { port: running, mac, capabilities, rss, multicast, not_sync: PhantomData }, pairs))
    }
}
