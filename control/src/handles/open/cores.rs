//! DPDK devices for several cores.

use core::convert::Infallible;
use std::sync::Arc;

use dpdk::{Eal, Mempool, WireConfig};
use warpline_dataplane::device;
use warpline_dataplane::device::dpdk::{DpdkDevice, core_wires};
use warpline_dataplane::device::spread::{Queues, Spread, spread};
use warpline_dataplane::limits::CORES_MAX;
use warpline_dataplane::steering::Steering;

use super::pools::wire_pool;
use super::{OpenError, hugepages_near, open_port};
use crate::engine::names::KeyedSequence;
use crate::handles::device::Device;
use crate::handles::start::random_key;
use crate::host::cpus::cpus_of;
use crate::host::survey::HostWarning;
use crate::vocabulary::device::{DeviceConfig, StartError};
use crate::vocabulary::device_name::DeviceName;
use crate::vocabulary::poll_thread::PollThread;

/// Entries of the table by which segments are steered in software: as many as large adapters have, so that
/// cores in any number get nearly equal parts.
const SOFTWARE_ENTRIES: usize = 512;

/// The devices of the cores of one device, core 0 first.
#[derive(Debug)]
pub struct OpenedPorts {
    /// The device of each core.
    pub(super) devices: Vec<DpdkDevice>,
    /// Which core owns which flow.
    pub(super) steering: Arc<Steering>,
    /// The queues of the port, for several cores.
    pub(super) queues: Queues,
    /// The name of the port.
    pub(super) port: String,
    /// The NUMA node of the port.
    pub(super) node: Option<u32>,
    /// What may keep the port's frames from passing.
    pub(super) warnings: Vec<HostWarning>,
}

impl OpenedPorts {
    /// Returns how many cores there are.
    pub const fn cores(&self) -> usize {
        self.devices.len()
    }

    /// Returns the queues of the port: one for each core, that its flows come to or that it sorts; or one,
    /// and the first core receives for all and hands frames over. One core has the only queue there is.
    pub const fn queues(&self) -> Queues {
        self.queues
    }

    /// Returns the NUMA node of the port, if it is at one: memory of regions is best there
    /// ([`hugepages_near`](super::hugepages_near)).
    pub const fn node(&self) -> Option<u32> {
        self.node
    }

    /// Returns the device of each core, core 0 first, and which core owns which flow, for
    /// [`Device::start_cores`].
    pub fn into_parts(self) -> (Vec<Spread<DpdkDevice>>, Arc<Steering>) {
        let unchanged: Result<_, Infallible> = self.into_parts_in(Ok);
        match unchanged {
            Ok(parts) => parts,
        }
    }

    /// As [`into_parts`](Self::into_parts), each device in what `wrap` makes of it, such as a capture: below
    /// the frames that cores hand over, so that it has those of the wire alone. All that `wrap` returns must
    /// offer the same, for with one queue the first device sends what the others have built.
    ///
    /// # Errors
    ///
    /// The first of `wrap`.
    pub fn into_parts_in<D: device::Device, E>(
        self,
        wrap: impl FnMut(DpdkDevice) -> Result<D, E>,
    ) -> Result<(Vec<Spread<D>>, Arc<Steering>), E> {
        let devices = self.devices.into_iter().map(wrap).collect::<Result<_, _>>()?;
        Ok((spread(devices, self.queues, &self.steering), self.steering))
    }

    /// Returns what makes the device slower than so many cores could be.
    pub fn warning(&self) -> Option<HostWarning> {
        let (port, cores) = (&self.port, self.cores());
        (self.queues == Queues::One).then(|| HostWarning::OneQueue { port: port.clone(), cores })
    }

    /// Returns all that there is to say of the device.
    fn all_warnings(&self) -> Vec<HostWarning> {
        self.warnings.iter().cloned().chain(self.warning()).collect()
    }
}

/// Returns the CPUs that are to poll `device`, one for each core; `None` if its name lists none.
///
/// # Errors
///
/// [`OpenError::Cpus`], of a NUMA node. Whether CPUs that are listed are there is found out when their
/// threads start.
pub fn cpus(device: &DeviceName) -> Result<Option<Vec<usize>>, OpenError> {
    let refused = |fault| OpenError::Cpus { name: Box::new(device.clone()), fault };
    device.cores().map(cpus_of).transpose().map_err(refused)
}

/// Opens the port of `device` for `cores` cores, as [`port`](super::port) does for one: with a queue for each
/// if the port spreads TCP segments over so many by a hash that is known, or as the name
/// [says](DeviceName::has_queue_each); else with one queue.
///
/// # Errors
///
/// [`OpenError`].
pub fn ports(eal: Eal, device: &DeviceName, cores: usize) -> Result<OpenedPorts, OpenError> {
    check_count(cores)?;
    open_port(eal, device, cores)
}

/// Opens two devices with wires in memory between them, for so many cores at each end. With one core at both
/// they are those of [`ring_pair`](super::ring_pair).
///
/// # Errors
///
/// [`OpenError`].
pub fn ring_pair_of(eal: Eal, config: &WireConfig, cores: [usize; 2]) -> Result<[OpenedPorts; 2], OpenError> {
    let steering = |cores| {
        check_count(cores)?;
        new_steering(cores, SOFTWARE_ENTRIES)
    };
    let pools = |cores, receivers| {
        (0..cores).map(|_| wire_pool(eal, config, receivers)).collect::<Result<Vec<Mempool>, _>>()
    };
    let (near, far) = (steering(cores[0])?, steering(cores[1])?);
    let (near_pools, far_pools) = (pools(cores[0], cores[1])?, pools(cores[1], cores[0])?);
    let [near_devices, far_devices] = core_wires(eal, config, [&near_pools, &far_pools], [&near, &far])?;
    let opened = |devices, steering| {
        let (port, node, warnings) = ("ring".into(), None, Vec::new());
        OpenedPorts { devices, steering, queues: Queues::PerCore, port, node, warnings }
    };
    Ok([opened(near_devices, near), opened(far_devices, far)])
}

/// Opens the device `name` and starts it: with a core on each of the CPUs that the name lists, or with one
/// core on the CPU of `poll`, whose behaviour without work all threads have. Its memory is of hugepages, near
/// the port if that is at a NUMA node; the rest is as `config` says.
///
/// # Errors
///
/// [`OpenError`].
pub fn device(
    eal: Eal,
    name: &DeviceName,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<Device, OpenError> {
    let on = |cpu: &usize| PollThread { lcore: Some(*cpu), ..poll };
    let polls = cpus(name)?.map_or_else(|| vec![poll], |cpus| cpus.iter().map(on).collect());
    let mut opened = ports(eal, name, polls.len())?;
    let config = DeviceConfig { memory: hugepages_near(eal, opened.node()), ..config };
    let warnings = opened.all_warnings();
    let device = if let [poll] = polls[..] {
        let device = opened.devices.pop().ok_or(OpenError::NoQueue(opened.port))?;
        Device::start(device, &config, poll)?
    } else {
        let (devices, steering) = opened.into_parts();
        Device::start_cores(devices, &steering, &config, &polls)?
    };
    Ok(device.with_warnings(warnings))
}

fn check_count(cores: usize) -> Result<(), OpenError> {
    if (1..=CORES_MAX).contains(&cores) { Ok(()) } else { Err(OpenError::CoreCount(cores)) }
}

/// Returns a steering among `cores` cores, under a new key: by a table with the entries of the port's, or of
/// one in software.
pub(super) fn steering_of_port(cores: usize, entries: Option<u16>) -> Result<Arc<Steering>, OpenError> {
    new_steering(cores, entries.map_or(SOFTWARE_ENTRIES, usize::from))
}

fn new_steering(cores: usize, entries: usize) -> Result<Arc<Steering>, OpenError> {
    let mut random = KeyedSequence::new(random_key().map_err(StartError::Random)?);
    let steering = Steering::new(cores as u8, entries, |key| {
        for octets in key.as_chunks_mut().0 {
            *octets = random.next().to_ne_bytes();
        }
    });
    Ok(Arc::new(steering))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strangers cannot know the key: it is another one each time, and filled to its end.
    #[test]
    fn every_steering_has_a_key_of_its_own() {
        let keys = [0, 1].map(|_| *new_steering(3, SOFTWARE_ENTRIES).expect("random bytes").key());
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| key[32..] != [0; 8] && key[..8] != [0; 8]));
    }

    #[test]
    fn a_device_has_1_to_64_cores() {
        for (cores, expected) in [(0, false), (1, true), (64, true), (65, false)] {
            assert_eq!(check_count(cores).is_ok(), expected, "{cores}");
        }
        assert_eq!(check_count(65).unwrap_err().to_string(), "65 cores: a device has 1 to 64");
    }

    /// A list of CPUs is taken as it is, a node is looked up.
    #[test]
    fn the_name_lists_the_cpus() {
        let cpus = |name: &str| cpus(&name.parse().expect("a device name"));
        assert_eq!(cpus("ring").unwrap(), None);
        assert_eq!(cpus("ring,cores=5-6+2").unwrap(), Some(vec![5, 6, 2]));
        let error = cpus("ring,cores=node1023").unwrap_err().to_string();
        assert!(error.contains("'ring,cores=node1023': NUMA node 1023 has no CPU"), "{error}");
    }
}
