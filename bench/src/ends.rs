//! The ends of a benchmark: where their cores run, and their addresses on a ring.

use warpline::DeviceConfig;

use crate::arguments::End;

/// Returns the CPU for the core of an end whose peer may be another process on this machine: the first of
/// `wanted`, or else one at the end's own side of the list, so that the two keep out of each other's way.
pub fn cpu(end: End, wanted: &[usize]) -> usize {
    if let Some(&cpu) = wanted.first() {
        return cpu;
    }
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let cpu = match end {
        End::Listening(_) => cpus.last(),
        End::Connecting(_) => cpus.first(),
    };
    cpu.map_or(0, |cpu| cpu.id)
}

/// Returns the configuration of an end of a ring: address 198.18.0.`host`.
pub fn on_ring(host: u8) -> DeviceConfig {
    DeviceConfig::new([198, 18, 0, host], 24)
}
