//! Configures a port: selects from its capabilities, and makes the calls for them.

use core::mem;

use dpdk_sys as sys;

use super::claim::{Claim, driver};
use super::config::{Mtu, Multicast, PortConfig, PortError, RECEIVE_CHECKSUMS, TRANSMIT_CHECKSUMS};
use super::spreading::{HashPlan, receives_by_others};
use crate::eal::control;
use crate::errno::Errno;
use crate::mempool::Mempool;

/// Octets of the largest frame that a port may join from segments: an IP packet with its Ethernet header.
const JOINED_OCTETS: u32 = 65_535 + HEADER_OCTETS as u32;
/// The most pieces that a frame to send is given, for queues have room for several frames.
const PIECES: u16 = 64;
/// Octets an Ethernet header takes, with a VLAN tag.
const HEADER_OCTETS: usize = sys::RTE_ETHER_HDR_LEN as usize + 4;
/// Octets of the frame check sequence, which DPDK counts as part of a frame.
const FCS_OCTETS: u32 = 4;

/// The used part of the port's capabilities.
pub(super) struct Plan {
    /// Receive offloads.
    pub(super) receive: u64,
    /// Transmit offloads.
    pub(super) transmit: u64,
    /// The driver passes super-frames on without reporting it.
    pub(super) passes_super_frames: bool,
    /// The most pieces of a frame to send.
    pub(super) pieces: u16,
    /// Octets of the largest frame with several segments that the port is to join; 0 leaves it to the driver.
    joined_octets: u32,
    /// What received frames are spread by.
    pub(super) hash: HashPlan,
}

impl Plan {
    pub(super) fn new(
        claim: &Claim,
        info: &sys::rte_eth_dev_info,
        config: &PortConfig,
        pools: &[Mempool],
    ) -> Result<Self, PortError> {
        let name = || claim.name.clone();
        let offered = info.max_rx_queues.min(info.max_tx_queues);
        if config.queues == 0 || config.queues > offered {
            return Err(PortError::Queues { name: name(), asked: config.queues, offered });
        }
        if receives_by_others(info, config.queues) {
            let has = info.max_rx_queues;
            return Err(PortError::UnusedQueues { name: name(), asked: config.queues, has });
        }
        if pools.len() != usize::from(config.queues) {
            return Err(PortError::Pools { queues: config.queues, pools: pools.len() });
        }
        let most = most_mtu(info);
        if let Mtu::Set(asked) = config.mtu
            && !(info.min_mtu..=most).contains(&asked)
        {
            return Err(PortError::Mtu { name: name(), asked, least: info.min_mtu, most });
        }

        let mut receive = 0;
        let mut transmit = info.tx_offload_capa & sys::constant_RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
        let frame_octets = usize::from(config.mtu.octets()) + HEADER_OCTETS;
        let data_octets = pools.iter().map(Mempool::data_octets).min().unwrap_or(0);
        if data_octets < frame_octets {
            if info.rx_offload_capa & sys::constant_RTE_ETH_RX_OFFLOAD_SCATTER == 0 {
                return Err(PortError::DataOctets { name: name(), frame_octets, data_octets });
            }
            receive |= sys::constant_RTE_ETH_RX_OFFLOAD_SCATTER;
        }
        if config.offloads {
            receive |= info.rx_offload_capa & RECEIVE_CHECKSUMS;
            transmit |= info.tx_offload_capa & TRANSMIT_CHECKSUMS;
        }
        let passes_super_frames = config.super_frames && driver(info) == b"net_vhost";
        if config.super_frames {
            receive |= joined_receive(info, data_octets);
            transmit |= segmented_transmit(info);
        }
        // A queue that is shorter than a frame would never take it.
        let pieces = info.tx_desc_lim.nb_seg_max.min(PIECES).min(config.transmit_descriptors / 4).max(1);

        let hash = HashPlan::new(info, config);
        if hash.headers != 0 {
            receive |= info.rx_offload_capa & sys::constant_RTE_ETH_RX_OFFLOAD_RSS_HASH;
        }
        let joined_octets = info.max_lro_pkt_size.min(JOINED_OCTETS);
        Ok(Self { receive, transmit, passes_super_frames, pieces, joined_octets, hash })
    }

    /// Configures the port and sets its queues up, with receive interrupts or without.
    pub(super) fn carry_out(
        &self,
        claim: &Claim,
        info: &sys::rte_eth_dev_info,
        config: &PortConfig,
        pools: &[Mempool],
        rx_interrupts: bool,
    ) -> Result<(), PortError> {
        claim.control(|_| {
            self.configure(claim, config, rx_interrupts)?;
            set_up_queues(claim, info, self, config, pools)
        })
    }

    fn configure(&self, claim: &Claim, config: &PortConfig, rx_interrupts: bool) -> Result<(), PortError> {
        // SAFETY: the structure is plain data, for which zeros are a value: everything off.
        let mut conf: sys::rte_eth_conf = unsafe { mem::zeroed() };
        if let Mtu::Set(octets) = config.mtu {
            conf.rxmode.mtu = octets.into();
        }
        if self.hash.headers != 0 {
            conf.rxmode.mq_mode = sys::rte_eth_rx_mq_mode::RTE_ETH_MQ_RX_RSS;
            conf.rx_adv_conf.rss_conf.rss_key = self.hash.key.as_ptr().cast_mut();
            conf.rx_adv_conf.rss_conf.rss_key_len = self.hash.key.len() as u8;
            conf.rx_adv_conf.rss_conf.rss_hf = self.hash.headers;
        }
        if self.receive & sys::constant_RTE_ETH_RX_OFFLOAD_TCP_LRO != 0 {
            conf.rxmode.max_lro_pkt_size = self.joined_octets;
        }
        conf.rxmode.offloads = self.receive;
        conf.txmode.offloads = self.transmit;
        conf.intr_conf.set_rxq(rx_interrupts.into());
        // SAFETY: `conf` and the key it points to are readable; drivers copy the key and do not write to it.
        // DPDK checks every value.
        Errno::check(unsafe {
            sys::rte_eth_dev_configure(claim.id, config.queues, config.queues, &raw const conf)
        })
        .map_err(claim.refused("configuring"))?;
        Ok(())
    }
}

fn set_up_queues(
    claim: &Claim,
    info: &sys::rte_eth_dev_info,
    plan: &Plan,
    config: &PortConfig,
    pools: &[Mempool],
) -> Result<(), PortError> {
    let id = claim.id;
    let (mut receive, mut transmit) = (config.receive_descriptors, config.transmit_descriptors);
    // SAFETY: both numbers are writable.
    Errno::check(unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut receive, &raw mut transmit) })
        .map_err(claim.refused("choosing descriptors"))?;
    // SAFETY: takes any number.
    let socket = unsafe { sys::rte_eth_dev_socket_id(id) }.cast_unsigned();
    let receive_conf = sys::rte_eth_rxconf { offloads: plan.receive, ..info.default_rxconf };
    let transmit_conf = sys::rte_eth_txconf { offloads: plan.transmit, ..info.default_txconf };
    for (queue, pool) in (0..config.queues).zip(pools) {
        // SAFETY: the configuration is readable and copied. A started port keeps its pools (`Running`);
        // should a later step fail, the driver touches none again, and what buffers it may hold keep their
        // pool's memory.
        Errno::check(unsafe {
            sys::rte_eth_rx_queue_setup(id, queue, receive, socket, &raw const receive_conf, pool.as_ptr())
        })
        .map_err(claim.refused("setting up a receive queue"))?;
        // SAFETY: the configuration is readable and copied.
        Errno::check(unsafe {
            sys::rte_eth_tx_queue_setup(id, queue, transmit, socket, &raw const transmit_conf)
        })
        .map_err(claim.refused("setting up a transmit queue"))?;
    }
    Ok(())
}

/// Returns the largest MTU that the port takes. Some drivers limit the frame alone: that of `e1000e` to 9234
/// bytes, which is an MTU of 9216.
pub(super) fn most_mtu(info: &sys::rte_eth_dev_info) -> u16 {
    // As `rte_eth_dev_configure` computes it: without a limit on the MTU, a frame is an Ethernet header and
    // the FCS longer.
    let limits_frame = info.max_mtu == u16::MAX || info.max_rx_pktlen <= info.max_mtu.into();
    if !limits_frame {
        return info.max_mtu;
    }
    let most = info.max_rx_pktlen.saturating_sub(sys::RTE_ETHER_HDR_LEN + FCS_OCTETS);
    u16::try_from(most).map_or(info.max_mtu, |most| most.min(info.max_mtu))
}

/// Returns the receive offloads for frames with several segments, in buffers of `data_octets` octets; none if
/// the port offers none, or such a frame would not fit.
fn joined_receive(info: &sys::rte_eth_dev_info, data_octets: usize) -> u64 {
    let lro = info.rx_offload_capa & sys::constant_RTE_ETH_RX_OFFLOAD_TCP_LRO;
    let scatter = info.rx_offload_capa & sys::constant_RTE_ETH_RX_OFFLOAD_SCATTER;
    let fits = scatter != 0 || data_octets >= JOINED_OCTETS as usize;
    if lro != 0 && fits { lro | scatter } else { 0 }
}

/// Returns the transmit offload that cuts frames into segments; none if the port does not offer it for both
/// versions of IP.
fn segmented_transmit(info: &sys::rte_eth_dev_info) -> u64 {
    // It cuts by `librte_gso`, which knows IPv4 alone, and it would never let go of a frame of IPv6.
    let ipv4_alone = driver(info) == b"net_tap";
    if ipv4_alone { 0 } else { info.tx_offload_capa & sys::constant_RTE_ETH_TX_OFFLOAD_TCP_TSO }
}

/// Opens the filter of a started port to multicast frames, as narrowly as its driver allows.
pub(super) fn receive_multicast(claim: &Claim) -> Multicast {
    control(|_| {
        // SAFETY: DPDK checks the port number.
        if Errno::check(unsafe { sys::rte_eth_allmulticast_enable(claim.id) }).is_ok() {
            return Multicast::All;
        }
        // SAFETY: DPDK checks the port number.
        match Errno::check(unsafe { sys::rte_eth_promiscuous_enable(claim.id) }) {
            Ok(_) => Multicast::Promiscuous,
            Err(_) => Multicast::AsItIs,
        }
    })
}
