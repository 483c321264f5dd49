//! The configuration that the devices of benchmarks start with.

use warpline::{Cidr, CrcPolicy, DeviceConfig, DeviceName, MemorySource, open};
use warpline_tools::arguments::Switch;

/// Bytes in flight on a connection: some tens of jumbo frames, which stay in a core's cache.
const WINDOW_BYTES: u32 = 512 << 10;

/// Returns `config` with what all benchmarks have: their window, hugepages where there are some, and the CRC
/// as the command line has it.
pub fn config(crc: Switch, config: DeviceConfig) -> DeviceConfig {
    DeviceConfig {
        crc: if crc.is_on() { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees },
        window_bytes: WINDOW_BYTES,
        memory: open::Eal::current().map_or_else(MemorySource::heap, open::hugepages),
        ..config
    }
}

/// Returns the configuration of an end of `ring`: that of its name, with address 198.18.0.`host`.
pub fn on_ring(ring: &DeviceName, host: u8) -> DeviceConfig {
    DeviceConfig { addresses: vec![Cidr::new([198, 18, 0, host].into(), 24)], ..ring.config() }
}

/// Returns the configuration of an end of `ring` as [`on_ring`] does, with address 2001:2:0::`host`, of the
/// range for benchmarks (RFC 5180 §8).
pub fn on_ring_over_ipv6(ring: &DeviceName, host: u8) -> DeviceConfig {
    let address = [0x2001, 2, 0, 0, 0, 0, 0, host.into()].into();
    DeviceConfig { addresses: vec![Cidr::new(address, 64)], ..ring.config() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_ring_has_what_its_name_says() {
        let ring = "ring,vlan=7,route=10.0.0.0/8@198.18.0.2".parse().unwrap();
        let config = on_ring(&ring, 1);
        assert_eq!((config.vlan, config.routes.len()), (Some(7), 1));
        assert_eq!(config.addresses, [Cidr::new([198, 18, 0, 1].into(), 24)]);
    }
}
