//! The ends of a benchmark: where their cores run, and their addresses on a ring.

use warpline::{Cidr, DeviceConfig, DeviceName};

use crate::arguments::End;
use crate::error::BenchError;
use crate::placement;

/// Returns the CPU for the core of an end whose peer may be another process on this machine: the first of
/// `wanted`, or else one at the end's own side of the list, so that the two keep out of each other's way.
///
/// # Errors
///
/// [`BenchError::Pin`].
pub fn cpu(end: End, wanted: &[usize]) -> Result<usize, BenchError> {
    placement::check(wanted)?;
    if let Some(&cpu) = wanted.first() {
        return Ok(cpu);
    }
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let cpu = match end {
        End::Listening(_) => cpus.last(),
        End::Connecting(_) => cpus.first(),
    };
    Ok(cpu.map_or(0, |cpu| cpu.id))
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
