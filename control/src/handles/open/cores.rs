//! The devices of the cores of one device, and how they start.

use core::convert::Infallible;
use std::sync::Arc;

use warpline_dataplane::core::CoreFrame;
use warpline_dataplane::device;
use warpline_dataplane::device::spread::{Queues, Spread, spread};
use warpline_dataplane::limits::CORES_MAX;
use warpline_dataplane::steering::Steering;

use super::OpenError;
use crate::engine::names::KeyedSequence;
use crate::handles::device::Device;
use crate::handles::start::random_key;
use crate::handles::turns::Turns;
use crate::host::cpus::cpus_of;
use crate::host::survey::HostWarning;
use crate::vocabulary::device::{DeviceConfig, StartError};
use crate::vocabulary::device_name::DeviceName;
use crate::vocabulary::poll_thread::PollThread;

/// Entries of the table by which segments are steered in software: as many as large adapters have, so that
/// cores in any number get nearly equal parts.
pub(super) const SOFTWARE_ENTRIES: usize = 512;

/// The devices of the cores of one device, core 0 first.
#[derive(Debug)]
pub struct OpenedDevices<D> {
    /// The device of each core.
    pub(super) devices: Vec<D>,
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

impl<D: device::Device> OpenedDevices<D> {
    /// Returns how many cores there are.
    pub const fn cores(&self) -> usize {
        self.devices.len()
    }

    /// Returns the queues of the port: one for each core, that its flows come to or that it sorts; or one,
    /// and the first core receives for all and hands frames over. One core has the only queue there is.
    pub const fn queues(&self) -> Queues {
        self.queues
    }

    /// Returns the NUMA node of the port, if it is at one: memory of regions is best there.
    pub const fn node(&self) -> Option<u32> {
        self.node
    }

    /// Returns the device of each core, core 0 first, and which core owns which flow, for
    /// [`Device::start_cores`].
    pub fn into_parts(self) -> (Vec<Spread<D>>, Arc<Steering>) {
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
    pub fn into_parts_in<W: device::Device, E>(
        self,
        wrap: impl FnMut(D) -> Result<W, E>,
    ) -> Result<(Vec<Spread<W>>, Arc<Steering>), E> {
        let devices = self.devices.into_iter().map(wrap).collect::<Result<_, _>>()?;
        Ok((spread(devices, self.queues, &self.steering), self.steering))
    }

    /// Returns what makes the device slower than so many cores could be.
    pub fn warning(&self) -> Option<HostWarning> {
        let (port, cores) = (&self.port, self.cores());
        (self.queues == Queues::One).then(|| HostWarning::OneQueue { port: port.clone(), cores })
    }

    /// Returns the device of the only core.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoQueue`].
    pub(super) fn into_only(mut self) -> Result<D, OpenError> {
        self.devices.pop().ok_or(OpenError::NoQueue(self.port))
    }

    /// Starts a core on each device, with a thread that polls it as its place in `polls` says.
    pub(super) fn start(self, config: &DeviceConfig, polls: &[PollThread]) -> Result<Device, OpenError>
    where
        D: Send,
        D::Frame: CoreFrame,
    {
        let warnings = self.warnings.iter().cloned().chain(self.warning()).collect();
        let device = if let [poll] = *polls {
            Device::start(self.into_only()?, config, poll)?
        } else {
            let (devices, steering) = self.into_parts();
            Device::start_cores(devices, &steering, config, polls)?
        };
        Ok(device.with_warnings(warnings))
    }

    /// Starts the only device for threads of the application and that of `poll`, in turns.
    pub(super) fn start_shared(
        mut self,
        config: &DeviceConfig,
        poll: PollThread,
    ) -> Result<(Device, Turns), OpenError>
    where
        D: Send,
        D::Frame: CoreFrame,
    {
        let warnings = core::mem::take(&mut self.warnings);
        let (device, turns) = Device::start_shared(self.into_only()?, config, poll)?;
        Ok((device.with_warnings(warnings), turns))
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

/// Returns the thread of each core of `device`: on the CPUs that its name lists, or one on that of `poll`,
/// whose behaviour without work all have.
pub(super) fn polls(device: &DeviceName, poll: PollThread) -> Result<Vec<PollThread>, OpenError> {
    let on = |cpu: &usize| PollThread { lcore: Some(*cpu), ..poll };
    Ok(cpus(device)?.map_or_else(|| vec![poll], |cpus| cpus.iter().map(on).collect()))
}

/// Returns the thread of the only core of `device`, as [`polls`] does.
///
/// # Errors
///
/// [`OpenError::SharedCores`] if its name lists several CPUs.
pub(super) fn only_poll(device: &DeviceName, poll: PollThread) -> Result<PollThread, OpenError> {
    match *polls(device, poll)? {
        [poll] => Ok(poll),
        ref several => Err(OpenError::SharedCores { name: Box::new(device.clone()), cpus: several.len() }),
    }
}

pub(super) fn check_count(cores: usize) -> Result<(), OpenError> {
    if (1..=CORES_MAX).contains(&cores) { Ok(()) } else { Err(OpenError::CoreCount(cores)) }
}

/// Returns a steering among `cores` cores, under a new key, by a table of so many entries.
pub(super) fn new_steering(cores: usize, entries: usize) -> Result<Arc<Steering>, OpenError> {
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

    /// A device that threads share has one core.
    #[test]
    fn a_shared_device_has_one_cpu() {
        let poll = PollThread { lcore: Some(7), ..PollThread::default() };
        let lcore = |name: &str| Ok(only_poll(&name.parse().expect("a device name"), poll)?.lcore);
        assert_eq!(lcore("ring").unwrap(), Some(7));
        assert_eq!(lcore("ring,cores=5").unwrap(), Some(5));
        let error: OpenError = lcore("ring,cores=5-6").unwrap_err();
        assert!(error.to_string().starts_with("device 'ring,cores=5-6': 2 CPUs"), "{error}");
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
