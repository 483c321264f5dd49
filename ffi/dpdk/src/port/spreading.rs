//! How a port spreads received frames over its queues (RSS), and whether that is known.

use core::{mem, ptr};

use dpdk_sys as sys;

use super::claim::{Claim, driver};
use super::config::{PortConfig, PortError, RssLayout};
use super::setup::Plan;
use crate::eal::control;
use crate::errno::Errno;

/// The TCP segments of both IP versions, by their addresses and ports. Other frames are not hashed: they come
/// to the queue of the first entry, if the adapter has no other place for them.
const HASHED: u64 = sys::constant_RTE_ETH_RSS_NONFRAG_IPV4_TCP | sys::constant_RTE_ETH_RSS_NONFRAG_IPV6_TCP;
/// Octets of a key that a hash over the addresses and ports of IPv6 uses.
const KEY_OCTETS: usize = 40;
/// The most entries of a table: local ports are chosen so that a hash selects a certain one.
const ENTRIES_MAX: u16 = 4096;
const GROUP: usize = sys::RTE_ETH_RETA_GROUP_SIZE as usize;

/// Drivers of DPDK 22.11 that offer more queues than they serve: that of e1000 and e1000e offers two of each,
/// and what is given to the second of an e1000 does not leave.
const ONE_QUEUE_DRIVERS: [&[u8]; 1] = [b"net_e1000_em"];

/// Drivers of DPDK 22.11 that receive by all queues which they were created with, also by those that are not
/// set up: that of packet sockets joins a socket for each to one group.
const ALL_QUEUES_DRIVERS: [&[u8]; 1] = [b"net_af_packet"];

/// What received frames are hashed by.
pub(super) struct HashPlan {
    /// The headers, in DPDK's bits; 0 without.
    pub(super) headers: u64,
    /// The key, as long as the port wants it.
    pub(super) key: Vec<u8>,
}

impl HashPlan {
    pub(super) fn new(info: &sys::rte_eth_dev_info, config: &PortConfig) -> Self {
        let headers = if config.queues > 1 { info.flow_type_rss_offloads & HASHED } else { 0 };
        let key = config.rss.key.iter().copied();
        let key = match info.hash_key_size {
            0 => key.collect(),
            octets => key.cycle().take(octets.into()).collect(),
        };
        Self { headers, key }
    }
}

/// Returns the entries of the table by which a port can spread TCP segments over `queues` queues, in a way
/// that is known; `None` if it cannot.
pub(super) fn table_entries(info: &sys::rte_eth_dev_info, queues: u16) -> Option<u16> {
    let offered = info.max_rx_queues.min(info.max_tx_queues);
    let takes_key = info.hash_key_size == 0 || usize::from(info.hash_key_size) >= KEY_OCTETS;
    let hashes = info.flow_type_rss_offloads & HASHED == HASHED && takes_key;
    let entries = info.reta_size;
    let selects = entries.is_power_of_two() && (queues..=ENTRIES_MAX).contains(&entries);
    (queues <= offered && hashes && selects).then_some(entries)
}

/// Returns true if the port receives and sends by `queues` queues, whatever comes to which.
pub(super) fn has_queues(info: &sys::rte_eth_dev_info, queues: u16) -> bool {
    queues <= info.max_rx_queues.min(info.max_tx_queues) && !ONE_QUEUE_DRIVERS.contains(&driver(info))
}

/// Returns true if some of what the port receives would come to queues beyond the first `queues`.
pub(super) fn receives_by_others(info: &sys::rte_eth_dev_info, queues: u16) -> bool {
    info.max_rx_queues > queues && ALL_QUEUES_DRIVERS.contains(&driver(info))
}

/// Fills the table of a port that runs with its queues in turn, so that the queue of a hash can be predicted.
/// Returns how the port spreads frames: `None` with one queue, or if that is not known.
pub(super) fn spread_in_turn(
    claim: &Claim,
    info: &sys::rte_eth_dev_info,
    config: &PortConfig,
    plan: &Plan,
) -> Result<Option<RssLayout>, PortError> {
    let Some(entries) = table_entries(info, config.queues).filter(|_| config.queues > 1) else {
        return Ok(None);
    };
    let mut groups = table(entries);
    for (entry, queue) in (0..usize::from(entries)).zip((0..config.queues).cycle()) {
        groups[entry / GROUP].reta[entry % GROUP] = queue;
    }
    // SAFETY: `groups` holds `entries` entries, and the port is started.
    Errno::check(control(|_| unsafe {
        sys::rte_eth_dev_rss_reta_update(claim.id, groups.as_mut_ptr(), entries)
    }))
    .map_err(claim.refused("filling the RSS indirection table"))?;
    let is_as_set = has_table(claim, entries, &groups) && {
        // Some drivers ignore the key that a port is configured with.
        has_hash(claim, &plan.hash) || (set_hash(claim, &plan.hash) && has_hash(claim, &plan.hash))
    };
    Ok(is_as_set.then_some(RssLayout { key: config.rss.key, table_entries: entries }))
}

/// Returns a table of `entries` entries, all of them selected.
fn table(entries: u16) -> Vec<sys::rte_eth_rss_reta_entry64> {
    let group = sys::rte_eth_rss_reta_entry64 { mask: u64::MAX, reta: [0; GROUP] };
    vec![group; usize::from(entries).div_ceil(GROUP)]
}

/// Returns false if the port says that its table is another one. Not every driver says it.
fn has_table(claim: &Claim, entries: u16, expected: &[sys::rte_eth_rss_reta_entry64]) -> bool {
    let mut groups = table(entries);
    // SAFETY: `groups` has room for `entries` entries.
    let reported = Errno::check(control(|_| unsafe {
        sys::rte_eth_dev_rss_reta_query(claim.id, groups.as_mut_ptr(), entries)
    }));
    let queues = |groups: &[sys::rte_eth_rss_reta_entry64]| -> Vec<u16> {
        groups.iter().flat_map(|group| group.reta).take(entries.into()).collect()
    };
    reported.is_err() || queues(&groups) == queues(expected)
}

/// Has the port hash as planned; returns false if it does not take that.
fn set_hash(claim: &Claim, plan: &HashPlan) -> bool {
    let mut key = plan.key.clone();
    let mut hash = sys::rte_eth_rss_conf {
        rss_key: key.as_mut_ptr(),
        rss_key_len: key.len() as u8,
        rss_hf: plan.headers,
    };
    // SAFETY: `hash` and its key are readable; drivers copy the key. DPDK checks the headers.
    Errno::check(control(|_| unsafe { sys::rte_eth_dev_rss_hash_update(claim.id, &raw mut hash) })).is_ok()
}

/// Returns false if the port says that it hashes otherwise: by another key, or not all headers. Not every
/// driver says it; some leave the key out.
fn has_hash(claim: &Claim, plan: &HashPlan) -> bool {
    let mut key = vec![0; plan.key.len()];
    // SAFETY: the structure is plain data, for which zeros are a value.
    let mut hash: sys::rte_eth_rss_conf = unsafe { mem::zeroed() };
    hash.rss_key = if key.is_empty() { ptr::null_mut() } else { key.as_mut_ptr() };
    hash.rss_key_len = key.len() as u8;
    // SAFETY: `hash` is writable, and drivers write no more octets of the key than it says.
    let reported =
        Errno::check(control(|_| unsafe { sys::rte_eth_dev_rss_hash_conf_get(claim.id, &raw mut hash) }));
    let is_key = key == plan.key || key.iter().all(|octet| *octet == 0);
    reported.is_err() || (is_key && hash.rss_hf & HASHED == HASHED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an adapter with 16 queues and a table of 128 entries says of itself.
    fn adapter() -> sys::rte_eth_dev_info {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut info: sys::rte_eth_dev_info = unsafe { mem::zeroed() };
        (info.max_rx_queues, info.max_tx_queues) = (16, 16);
        (info.hash_key_size, info.reta_size) = (40, 128);
        info.flow_type_rss_offloads = HASHED | sys::constant_RTE_ETH_RSS_IPV4;
        info
    }

    #[test]
    fn a_port_spreads_if_its_hash_is_known() {
        let with = |change: fn(&mut sys::rte_eth_dev_info)| {
            let mut info = adapter();
            change(&mut info);
            info
        };
        assert_eq!(table_entries(&adapter(), 16), Some(128));
        assert_eq!(table_entries(&adapter(), 17), None, "it has fewer queues");
        assert_eq!(table_entries(&with(|info| info.hash_key_size = 52), 2), Some(128));
        assert_eq!(table_entries(&with(|info| info.hash_key_size = 0), 2), Some(128));
        for (info, what) in [
            (with(|info| info.max_tx_queues = 1), "one transmit queue"),
            (with(|info| info.hash_key_size = 16), "a key that ends in the addresses"),
            (with(|info| info.reta_size = 0), "no table"),
            (with(|info| info.reta_size = 100), "a table that no low bits select from"),
            (with(|info| info.reta_size = 8192), "more entries than ports reach"),
            (
                with(|info| info.flow_type_rss_offloads &= !sys::constant_RTE_ETH_RSS_NONFRAG_IPV6_TCP),
                "no hash over IPv6",
            ),
        ] {
            assert_eq!(table_entries(&info, 2), None, "{what}");
        }
    }

    /// A longer key repeats ours; the hash uses none of it beyond the first 40 octets.
    #[test]
    fn the_key_is_as_long_as_the_port_wants_it() {
        let config = PortConfig { queues: 2, ..PortConfig::default() };
        for (size, octets) in [(0, 40), (40, 40), (52, 52)] {
            let mut info = adapter();
            info.hash_key_size = size;
            let plan = HashPlan::new(&info, &config);
            assert_eq!(plan.key.len(), octets);
            assert_eq!(plan.key[..40], config.rss.key);
            assert_eq!(plan.headers, HASHED);
        }
        assert_eq!(HashPlan::new(&adapter(), &PortConfig::default()).headers, 0, "one queue");
    }
}
