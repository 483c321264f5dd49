//! The device of an endpoint: a DPDK port or wire end, as it is or in something. One type, so that the poll
//! loop is compiled once. And the configuration that it starts with.

use std::sync::Arc;

use warpline::link::{BoxedDevice, Capabilities, Device, HeardPorts, RxInterrupt, Waker, boxed};
use warpline::open::{self, DpdkDevice, Mbuf};
use warpline::time::Instant;
use warpline::{Cidr, CrcPolicy, DeviceConfig, DeviceName, MacAddress, MemorySource};
use warpline_tools::arguments::Switch;
use warpline_tools::capture::{CaptureFile, captured};
use warpline_tools::output::OutputFile;

use crate::error::BenchError;

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

/// A device of DPDK's.
#[expect(clippy::large_enum_variant, reason = "a program has one or two, and each burst looks into it")]
pub enum BenchDevice {
    /// A port or an end of a wire.
    Bare(DpdkDevice),
    /// One that is captured, that a benchmark makes itself, or that of one of several cores. Behind a
    /// pointer, so that the loop of a single core is as if it were not there.
    Boxed(BoxedDevice<Mbuf>),
}

impl BenchDevice {
    /// Wraps `device`, and captures its frames to `file` if there is one.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`](warpline_tools::error::CommandError::File).
    pub fn new(device: DpdkDevice, file: Option<OutputFile>, interface: &str) -> Result<Self, BenchError> {
        let file = file.map(CaptureFile::begin).transpose()?;
        Self::of_core(device, file.as_ref().map(|file| (file, interface)))
    }

    /// Wraps the device of one core. Captures its frames, if there is a file with the name of an interface,
    /// which the devices of the other cores share.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`](warpline_tools::error::CommandError::File).
    pub fn of_core(device: DpdkDevice, capture: Option<(&CaptureFile, &str)>) -> Result<Self, BenchError> {
        let Some((file, interface)) = capture else { return Ok(Self::Bare(device)) };
        Ok(Self::Boxed(boxed(captured(device, file.clone(), interface)?)))
    }
}

impl Device for BenchDevice {
    type Frame = Mbuf;

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Bare(device) => device.capabilities(),
            Self::Boxed(device) => device.capabilities(),
        }
    }

    fn mac(&self) -> MacAddress {
        match self {
            Self::Bare(device) => device.mac(),
            Self::Boxed(device) => device.mac(),
        }
    }

    fn reaches_programs(&self) -> bool {
        match self {
            Self::Bare(device) => device.reaches_programs(),
            Self::Boxed(device) => device.reaches_programs(),
        }
    }

    #[inline]
    fn may_have_frames(&self) -> bool {
        match self {
            Self::Bare(device) => device.may_have_frames(),
            Self::Boxed(device) => device.may_have_frames(),
        }
    }

    #[inline]
    fn receive(&mut self, now: Instant, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        match self {
            Self::Bare(device) => device.receive(now, frames, limit),
            Self::Boxed(device) => device.receive(now, frames, limit),
        }
    }

    #[inline]
    fn allocate(&mut self) -> Option<Mbuf> {
        match self {
            Self::Bare(device) => device.allocate(),
            Self::Boxed(device) => device.allocate(),
        }
    }

    #[inline]
    fn allocate_burst(&mut self, frames: &mut Vec<Mbuf>, limit: usize) {
        match self {
            Self::Bare(device) => device.allocate_burst(frames, limit),
            Self::Boxed(device) => device.allocate_burst(frames, limit),
        }
    }

    fn hand_over(&mut self, core: u8, frame: Mbuf) -> Result<(), Mbuf> {
        match self {
            Self::Bare(device) => device.hand_over(core, frame),
            Self::Boxed(device) => device.hand_over(core, frame),
        }
    }

    fn frames_not_handed_over(&self) -> u64 {
        match self {
            Self::Bare(device) => device.frames_not_handed_over(),
            Self::Boxed(device) => device.frames_not_handed_over(),
        }
    }

    fn stalled_frames(&self) -> u64 {
        match self {
            Self::Bare(device) => device.stalled_frames(),
            Self::Boxed(device) => device.stalled_frames(),
        }
    }

    fn missed_frames(&self) -> u64 {
        match self {
            Self::Bare(device) => device.missed_frames(),
            Self::Boxed(device) => device.missed_frames(),
        }
    }

    fn unsent_frames(&self) -> u64 {
        match self {
            Self::Bare(device) => device.unsent_frames(),
            Self::Boxed(device) => device.unsent_frames(),
        }
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        match self {
            Self::Bare(device) => device.take_heard_ports(),
            Self::Boxed(device) => device.take_heard_ports(),
        }
    }

    fn adapter_differs(&self) -> bool {
        match self {
            Self::Bare(device) => device.adapter_differs(),
            Self::Boxed(device) => device.adapter_differs(),
        }
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        match self {
            Self::Bare(device) => device.wake_on_arrival(waker),
            Self::Boxed(device) => device.wake_on_arrival(waker),
        }
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        match self {
            Self::Bare(device) => device.rx_interrupt(),
            Self::Boxed(device) => device.rx_interrupt(),
        }
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        match self {
            Self::Bare(device) => device.enable_rx_interrupt(),
            Self::Boxed(device) => device.enable_rx_interrupt(),
        }
    }

    fn disable_rx_interrupt(&mut self) {
        match self {
            Self::Bare(device) => device.disable_rx_interrupt(),
            Self::Boxed(device) => device.disable_rx_interrupt(),
        }
    }

    #[inline]
    fn transmit(&mut self, now: Instant, frames: &mut Vec<Mbuf>) -> usize {
        match self {
            Self::Bare(device) => device.transmit(now, frames),
            Self::Boxed(device) => device.transmit(now, frames),
        }
    }

    fn next_arrival(&self) -> Option<Instant> {
        match self {
            Self::Bare(device) => device.next_arrival(),
            Self::Boxed(device) => device.next_arrival(),
        }
    }
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
