//! Ethernet ports and their queues.

use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Arc;

use dpdk_sys as sys;

use crate::eal::{Eal, control};
use crate::errno::Errno;
use crate::mbuf::Mbuf;
use crate::mempool::Mempool;

/// A port could not be opened or started.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// There is none of that name.
    #[error("there is no port `{name}`; the ports are: {known}")]
    NotFound {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Somebody in this process has it.
    #[error("the port `{0}` is open already")]
    InUse(String),
    /// One pool per queue pair is needed.
    #[error("{queues} queue pairs need as many pools, not {pools}")]
    Pools {
        /// Queue pairs asked for.
        queues: u16,
        /// Pools given.
        pools: usize,
    },
    /// It has fewer queues, or 0 were asked for.
    #[error("`{name}` has 1 to {offered} queue pairs, not {asked}")]
    Queues {
        /// The port.
        name: String,
        /// Queue pairs asked for.
        asked: u16,
        /// Queue pairs it has.
        offered: u16,
    },
    /// It does not take that MTU.
    #[error("`{name}` takes an MTU of {least} to {most} octets, not {asked}")]
    Mtu {
        /// The port.
        name: String,
        /// The MTU asked for.
        asked: u16,
        /// The smallest it takes.
        least: u16,
        /// The largest it takes.
        most: u16,
    },
    /// A frame is larger than a buffer, and the port cannot spread it over several.
    #[error(
        "`{name}` puts a frame of {frame_octets} octets in one buffer, but the pool's take {data_octets}"
    )]
    DataOctets {
        /// The port.
        name: String,
        /// Octets of the largest frame.
        frame_octets: usize,
        /// Octets a buffer takes.
        data_octets: usize,
    },
    /// The driver refused a step.
    #[error("`{name}`: {step} failed: {errno}")]
    Refused {
        /// The port.
        name: String,
        /// What was tried.
        step: &'static str,
        /// The driver's reason.
        errno: Errno,
    },
}

/// The MTU of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtu {
    /// Configure the port for IP packets of this many octets.
    Set(u16),
    /// Leave the port as it is and take it to carry IP packets of this many octets: for drivers that cannot set what the
    /// interface beneath them has (`net_af_packet`).
    Assume(u16),
}

impl Mtu {
    /// The octets.
    pub const fn octets(self) -> u16 {
        match self {
            Self::Set(octets) | Self::Assume(octets) => octets,
        }
    }
}

/// How received frames are spread over queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The Toeplitz key. Ports with longer keys get it repeated.
    pub key: [u8; 40],
}

/// How the port spreads frames, for those who must know the queue of a frame beforehand: the hash of its addresses and
/// ports, modulo the table's entries, modulo the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssLayout {
    /// The Toeplitz key.
    pub key: [u8; 40],
    /// Entries of the indirection table, filled with the queues in turn.
    pub table_entries: u16,
}

/// How to start a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Pairs of a receive and a transmit queue.
    pub queues: u16,
    /// Receive descriptors per queue; moved to the nearest number the port takes.
    pub receive_descriptors: u16,
    /// Transmit descriptors per queue; likewise.
    pub transmit_descriptors: u16,
    /// The MTU.
    pub mtu: Mtu,
    /// How frames are spread, with several queues.
    pub rss: Rss,
    /// Whether to receive frames for other hardware addresses.
    pub promiscuous: bool,
    /// Whether to receive frames for multicast groups: IPv6 finds its neighbours through them (RFC 4861 §7.2.1).
    pub multicast: bool,
    /// Whether to use what checksum and segmentation offload the port has.
    pub offloads: bool,
}

impl Default for PortConfig {
    /// One queue pair of 1024 descriptors each way, 1500 octets, all offloads, frames for
    /// ourselves and for groups. The key is one that treats
    /// all input bits alike.
    fn default() -> Self {
        Self {
            queues: 1,
            receive_descriptors: 1024,
            transmit_descriptors: 1024,
            mtu: Mtu::Set(1500),
            rss: Rss { key: DEFAULT_KEY },
            promiscuous: false,
            multicast: true,
            offloads: true,
        }
    }
}

/// The key of Microsoft's RSS specification, for which test vectors are published.
const DEFAULT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// How a started port comes by the frames for multicast groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// It was told to let through those of all groups.
    All,
    /// It cannot be told that; it was told to let through every frame.
    Promiscuous,
    /// It cannot be told at all, as virtual devices without a filter; or nobody asked for them.
    AsItIs,
}

/// What a port can do, or, of a started one, what it was told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCapabilities {
    /// Queue pairs.
    pub queues: u16,
    /// Largest IP packet, in octets.
    pub mtu_octets: u16,
    /// Verifies IPv4 and TCP checksums of received frames.
    pub receive_checksums: bool,
    /// Fills in IPv4 and TCP checksums, TCP's over IPv6 too.
    pub transmit_checksums: bool,
    /// Sends frames of several pieces, such as those carried by reference.
    pub gather: bool,
    /// Spreads a received frame over several buffers.
    pub scatter: bool,
    /// Cuts frames into TCP segments.
    pub segmentation: bool,
}

impl PortCapabilities {
    const fn new(queues: u16, mtu_octets: u16, receive: u64, transmit: u64) -> Self {
        Self {
            queues,
            mtu_octets,
            receive_checksums: receive & RECEIVE_CHECKSUMS == RECEIVE_CHECKSUMS,
            transmit_checksums: transmit & TRANSMIT_CHECKSUMS == TRANSMIT_CHECKSUMS,
            gather: transmit & sys::constant_RTE_ETH_TX_OFFLOAD_MULTI_SEGS != 0,
            scatter: receive & sys::constant_RTE_ETH_RX_OFFLOAD_SCATTER != 0,
            segmentation: transmit & sys::constant_RTE_ETH_TX_OFFLOAD_TCP_TSO != 0,
        }
    }
}

const RECEIVE_CHECKSUMS: u64 =
    sys::constant_RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | sys::constant_RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
const TRANSMIT_CHECKSUMS: u64 =
    sys::constant_RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | sys::constant_RTE_ETH_TX_OFFLOAD_TCP_CKSUM;

/// Octets an Ethernet header takes, with a VLAN tag.
const HEADER_OCTETS: usize = sys::RTE_ETHER_HDR_LEN as usize + 4;

/// What a port counts.
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

/// A port that belongs to the holder and is not started.
#[derive(Debug)]
pub struct Port {
    claim: Claim,
}

/// The right to a port; nobody else in the process has it.
#[derive(Debug)]
struct Claim {
    id: u16,
    name: String,
}

static CLAIMED: [AtomicBool; sys::RTE_MAX_ETHPORTS as usize] =
    [const { AtomicBool::new(false) }; sys::RTE_MAX_ETHPORTS as usize];

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED[usize::from(self.id)].store(false, Ordering::Release);
    }
}

impl Claim {
    fn refused(&self, step: &'static str) -> impl FnOnce(Errno) -> PortError {
        move |errno| PortError::Refused { name: self.name.clone(), step, errno }
    }

    fn info(&self) -> Result<sys::rte_eth_dev_info, PortError> {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut info: sys::rte_eth_dev_info = unsafe { mem::zeroed() };
        // SAFETY: `info` is writable; DPDK checks the port number.
        Errno::check(unsafe { sys::rte_eth_dev_info_get(self.id, &raw mut info) })
            .map_err(self.refused("asking for its capabilities"))?;
        Ok(info)
    }

    fn mac(&self) -> Result<[u8; 6], PortError> {
        let mut address = sys::rte_ether_addr { addr_bytes: [0; 6] };
        // SAFETY: `address` is writable; DPDK checks the port number.
        Errno::check(unsafe { sys::rte_eth_macaddr_get(self.id, &raw mut address) })
            .map_err(self.refused("asking for its hardware address"))?;
        Ok(address.addr_bytes)
    }
}

impl Port {
    /// The names of all ports: of PCI devices their address, of virtual devices their name (`net_tap0`).
    pub fn names(_: Eal) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = 0;
        control(|| {
            loop {
                // SAFETY: takes any number and gives the next port from there, or one past the last possible.
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
        if CLAIMED[usize::from(id)].swap(true, Ordering::Acquire) {
            return Err(PortError::InUse(name.to_owned()));
        }
        Ok(Self { claim: Claim { id, name: name.to_owned() } })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.claim.name
    }

    /// What it can do.
    ///
    /// # Errors
    ///
    /// [`PortError::Refused`] when the driver does not tell.
    pub fn capabilities(&self) -> Result<PortCapabilities, PortError> {
        let info = self.claim.info()?;
        let queues = info.max_rx_queues.min(info.max_tx_queues);
        Ok(PortCapabilities::new(queues, info.max_mtu, info.rx_offload_capa, info.tx_offload_capa))
    }

    /// Configures and starts the port. Queue pair `n` receives into `pools[n]`. The port stops and closes, for good, when
    /// what this returns is gone: the handle and every queue.
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
        control(|| {
            plan.configure(&self.claim, config)?;
            set_up_queues(&self.claim, &info, &plan, config, pools)
        })?;
        // From here on the port must be closed again, whatever happens, before its pools may go.
        let running = Running { claim: self.claim, _pools: pools.to_vec() };
        let claim = &running.claim;
        // SAFETY: the port is configured, with all its queues.
        Errno::check(control(|| unsafe { sys::rte_eth_dev_start(claim.id) }))
            .map_err(claim.refused("starting"))?;
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
        let capabilities = PortCapabilities::new(config.queues, config.mtu.octets(), receive, transmit);
        let running = Arc::new(running);
        let pairs = (0..config.queues)
            .map(|queue| QueuePair {
                receive: RxQueue { port: Arc::clone(&running), queue, alone: PhantomData },
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

/// What of the port's offer is used.
struct Plan {
    /// Receive offloads.
    receive: u64,
    /// Transmit offloads.
    transmit: u64,
    /// Headers that RSS looks at; 0 without.
    hashes: u64,
    /// The RSS key, as long as the port wants it.
    key: Vec<u8>,
}

impl Plan {
    fn new(
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
        if pools.len() != usize::from(config.queues) {
            return Err(PortError::Pools { queues: config.queues, pools: pools.len() });
        }
        if let Mtu::Set(asked) = config.mtu
            && !(info.min_mtu..=info.max_mtu).contains(&asked)
        {
            return Err(PortError::Mtu { name: name(), asked, least: info.min_mtu, most: info.max_mtu });
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
            transmit |=
                info.tx_offload_capa & (TRANSMIT_CHECKSUMS | sys::constant_RTE_ETH_TX_OFFLOAD_TCP_TSO);
        }

        let mut hashes = 0;
        if config.queues > 1 {
            hashes = info.flow_type_rss_offloads
                & (sys::constant_RTE_ETH_RSS_IPV4
                    | sys::constant_RTE_ETH_RSS_NONFRAG_IPV4_TCP
                    | sys::constant_RTE_ETH_RSS_IPV6
                    | sys::constant_RTE_ETH_RSS_NONFRAG_IPV6_TCP);
        }
        if hashes != 0 {
            receive |= info.rx_offload_capa & sys::constant_RTE_ETH_RX_OFFLOAD_RSS_HASH;
        }
        let key = config.rss.key.iter().copied();
        let key = match info.hash_key_size {
            0 => key.collect(),
            octets => key.cycle().take(octets.into()).collect(),
        };
        Ok(Self { receive, transmit, hashes, key })
    }

    fn configure(&self, claim: &Claim, config: &PortConfig) -> Result<(), PortError> {
        // SAFETY: the structure is plain data, for which zeros are a value: everything off.
        let mut conf: sys::rte_eth_conf = unsafe { mem::zeroed() };
        if let Mtu::Set(octets) = config.mtu {
            conf.rxmode.mtu = octets.into();
        }
        if self.hashes != 0 {
            conf.rxmode.mq_mode = sys::rte_eth_rx_mq_mode::RTE_ETH_MQ_RX_RSS;
            conf.rx_adv_conf.rss_conf.rss_key = self.key.as_ptr().cast_mut();
            conf.rx_adv_conf.rss_conf.rss_key_len = self.key.len() as u8;
            conf.rx_adv_conf.rss_conf.rss_hf = self.hashes;
        }
        conf.rxmode.offloads = self.receive;
        conf.txmode.offloads = self.transmit;
        // SAFETY: `conf` and the key it points to are readable; drivers copy the key and do not write to it. DPDK checks
        // every value.
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
        // SAFETY: the configuration is readable and copied. A started port keeps its pools (`Running`); should a later
        // step fail, the driver touches none again, and what buffers it may hold keep their pool's memory.
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

/// Fills the indirection table, so that the queue of a hash is known beforehand.
fn spread_in_turn(claim: &Claim, config: &PortConfig, entries: u16) -> Result<RssLayout, PortError> {
    const GROUP: usize = sys::RTE_ETH_RETA_GROUP_SIZE as usize;
    let mut groups = vec![
        sys::rte_eth_rss_reta_entry64 { mask: u64::MAX, reta: [0; GROUP] };
        usize::from(entries).div_ceil(GROUP)
    ];
    for (entry, queue) in (0..usize::from(entries)).zip((0..config.queues).cycle()) {
        groups[entry / GROUP].reta[entry % GROUP] = queue;
    }
    // SAFETY: `groups` holds `entries` entries, and the port is started.
    Errno::check(control(|| unsafe {
        sys::rte_eth_dev_rss_reta_update(claim.id, groups.as_mut_ptr(), entries)
    }))
    .map_err(claim.refused("filling the RSS indirection table"))?;
    Ok(RssLayout { key: config.rss.key, table_entries: entries })
}

/// Opens the filter of a started port to multicast frames, as narrowly as its driver can be told.
fn receive_multicast(claim: &Claim) -> Multicast {
    control(|| {
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

/// A started port. Dropped with the last of its handle and queues.
#[derive(Debug)]
struct Running {
    claim: Claim,
    /// The port's descriptors hold buffers of these; members are dropped after the port is closed.
    _pools: Vec<Mempool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: DPDK checks the port number and state. No queue is left (`Arc`), so nobody polls the port.
        control(|| unsafe {
            sys::rte_eth_dev_stop(self.claim.id);
            sys::rte_eth_dev_close(self.claim.id);
        });
    }
}

/// Marks what may be sent to another thread but used by one at a time.
type Alone = PhantomData<Cell<()>>;

/// The handle of a started port.
#[derive(Debug)]
pub struct RunningPort {
    port: Arc<Running>,
    mac: [u8; 6],
    capabilities: PortCapabilities,
    rss: Option<RssLayout>,
    multicast: Multicast,
    alone: Alone,
}

impl RunningPort {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.port.claim.name
    }

    /// Its hardware address.
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// What it was configured for.
    pub const fn capabilities(&self) -> PortCapabilities {
        self.capabilities
    }

    /// How it spreads frames over its queues; `None` with one queue, or when the port does not let itself be told.
    pub const fn rss(&self) -> Option<RssLayout> {
        self.rss
    }

    /// How it comes by the frames for multicast groups.
    pub const fn multicast(&self) -> Multicast {
        self.multicast
    }

    /// What it has counted.
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

    /// The state of its link, as last known.
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
    port: Arc<Running>,
    queue: u16,
    alone: Alone,
}

impl RxQueue {
    /// Takes up to `limit` received frames, appending them to `frames`; gives how many.
    #[inline]
    pub fn receive(&mut self, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        let limit = limit.min(usize::from(u16::MAX));
        frames.reserve(limit);
        let spare = frames.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the port is started and has this queue, which nobody else polls (`&mut self`). There is room for
        // `limit` pointers at `spare`: an `Mbuf` is one pointer.
        let count =
            unsafe { sys::inlined_rte_eth_rx_burst(self.port.claim.id, self.queue, spare, limit as u16) };
        // SAFETY: `count` elements have been written, each a frame that the driver gave up.
        unsafe { frames.set_len(frames.len() + usize::from(count)) };
        usize::from(count)
    }
}

/// A transmit queue. One thread at a time owns it.
#[derive(Debug)]
pub struct TxQueue {
    port: Arc<Running>,
    queue: u16,
    /// Whether the driver wants to see frames beforehand: some fix the checksum field up for their hardware.
    prepare: bool,
    rejected_frames: u64,
    alone: Alone,
}

impl TxQueue {
    /// Takes frames from the front of `frames` and leaves those for which the queue has no room; gives how many it took.
    /// A frame that the driver can never send is taken too, dropped and counted.
    #[inline]
    pub fn transmit(&mut self, frames: &mut VecDeque<Mbuf>) -> usize {
        let mut taken = 0;
        loop {
            let (front, _) = frames.as_mut_slices();
            let offered = front.len().min(usize::from(u16::MAX)) as u16;
            if offered == 0 {
                return taken;
            }
            let (port, first) = (self.port.claim.id, front.as_mut_ptr().cast());
            let fit = if self.prepare {
                // SAFETY: the port is started and has this queue, which nobody else uses (`&mut self`). `first` points to
                // `offered` frames: an `Mbuf` is one pointer.
                unsafe { sys::inlined_rte_eth_tx_prepare(port, self.queue, first, offered) }
            } else {
                offered
            };
            // SAFETY: as above, for the first `fit` of them.
            let sent = unsafe { sys::inlined_rte_eth_tx_burst(port, self.queue, first, fit) };
            for frame in frames.drain(..usize::from(sent)) {
                // The driver owns it now.
                mem::forget(frame);
            }
            taken += usize::from(sent);
            if sent < fit {
                return taken;
            }
            if fit < offered && frames.pop_front().is_some() {
                self.rejected_frames += 1;
                taken += 1;
            }
        }
    }

    /// Frames dropped because the driver could never have sent them: too many pieces, or offloads it does not have.
    pub const fn rejected_frames(&self) -> u64 {
        self.rejected_frames
    }
}
