//! How a device starts: its cores, their rings, and the thread of its control.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use crossbeam::channel;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, Place};
use warpline_dataplane::device;
use warpline_dataplane::device::boxed::{BoxedDevice, boxed};
use warpline_dataplane::limits;
use warpline_dataplane::memory::Claims;
use warpline_dataplane::net::addresses::Presence;
use warpline_dataplane::qp::async_event::AsyncEvents;
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::ring::Rings;
use warpline_dataplane::steering::Steering;
use warpline_dataplane::waker::Waker;

use super::context::{ContextParts, DeviceContext};
use super::control_driver::{ControlDriver, PolledControl};
use super::control_loop::{ControlLoop, DeviceFlags};
use super::control_thread;
use super::control_waker::{ControlInTurns, ControlWaker};
use super::device::Device;
use super::driver::{self, CoreDriver};
use super::event_fd::EventFd;
use super::shared_driver::SharedDriver;
use super::shared_thread::{self, AwayTimes};
use super::turns::{TakeTurns, Turns};
use crate::engine::names::KeyedSequence;
use crate::engine::placement::Placement;
use crate::engine::{Engine, EngineConfig};
use crate::host::held_ports::HeldPorts;
use crate::vocabulary::device::{DeviceConfig, StartError, check, check_address_space};
use crate::vocabulary::poll_thread::PollThread;

impl Device {
    /// Starts a core on `device` with a thread that polls it.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start<D: device::Device<Frame: CoreFrame> + Send>(
        device: D,
        config: &DeviceConfig,
        poll: PollThread,
    ) -> Result<Self, StartError> {
        let (driver, control) = assemble(boxed(device), config)?;
        control.start_with_threads(config, vec![driver], &[poll])
    }

    /// Starts a core on each of `devices`, which are the queues of one NIC, with a thread for each: that of
    /// core `i` as `polls[i]` says, no two of them on one CPU. The segments of each connection come to the
    /// core that `steering` says.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_cores<D: device::Device<Frame: CoreFrame> + Send>(
        devices: Vec<D>,
        steering: &Arc<Steering>,
        config: &DeviceConfig,
        polls: &[PollThread],
    ) -> Result<Self, StartError> {
        if polls.len() != devices.len() {
            return Err(StartError::CoreCount { devices: devices.len(), cores: polls.len() });
        }
        check_cpus(polls)?;
        let (drivers, control) = assemble_cores(devices, steering, config)?;
        control.start_with_threads(config, drivers, polls)
    }

    /// Starts a core on `device` that the application polls.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_manual<D: device::Device<Frame: CoreFrame> + Send>(
        device: D,
        config: &DeviceConfig,
    ) -> Result<(Self, CoreDriver), StartError> {
        let (driver, control) = assemble(boxed(device), config)?;
        Ok((control.start(config, Vec::new())?, driver))
    }

    /// Starts a core on each of `devices`, as [`start_cores`](Self::start_cores) does, that the application
    /// polls: by a thread for each, or by fewer. Returns their drivers by number.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_cores_manual<D: device::Device<Frame: CoreFrame> + Send>(
        devices: Vec<D>,
        steering: &Arc<Steering>,
        config: &DeviceConfig,
    ) -> Result<(Self, Vec<CoreDriver>), StartError> {
        let (drivers, control) = assemble_cores(devices, steering, config)?;
        Ok((control.start(config, Vec::new())?, drivers))
    }

    /// Starts a core on `device` that the application polls, and its control engine, which has no thread
    /// either: for applications that open and close connections by the thousand, on one thread.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_polled<D: device::Device<Frame: CoreFrame> + Send>(
        device: D,
        config: &DeviceConfig,
    ) -> Result<(Self, CoreDriver, ControlDriver), StartError> {
        let (driver, control) = assemble(boxed(device), config)?;
        let (device, control) = control.start_polled(config);
        Ok((device, driver, control))
    }

    /// Starts a core on `device`, and its control engine, that threads of the application and one of warpline
    /// drive in turns. A thread of the application that waits for something takes a turn instead of waiting
    /// for another thread, and calls of the API that wait for a reply, as registering memory does, take turns
    /// themselves. Warpline's thread, which runs as `poll` says, takes the turns that applications leave, so
    /// that a program which computes, or sleeps, is served too.
    ///
    /// With [`Idle::Sleep`](crate::Idle::Sleep) that thread keeps away while an application polls, for a
    /// millisecond at most, and sleeps while nobody has anything to do. With
    /// [`Idle::Spin`](crate::Idle::Spin) it polls all the time, and the turns of applications rarely find
    /// anything. Callbacks, as [`Notify`](crate::Notify) is one, may run on any thread that takes turns. They
    /// must not wait: calls that do fail there with [`Stopped`](crate::Stopped) or as they do for it.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_shared<D: device::Device<Frame: CoreFrame> + Send>(
        device: D,
        config: &DeviceConfig,
        poll: PollThread,
    ) -> Result<(Self, Turns), StartError> {
        Self::start_shared_away(device, config, poll, AwayTimes::default())
    }

    /// As [`start_shared`](Self::start_shared), with a thread that keeps away for `away_times`.
    pub(super) fn start_shared_away<D: device::Device<Frame: CoreFrame> + Send>(
        device: D,
        config: &DeviceConfig,
        poll: PollThread,
        away_times: AwayTimes,
    ) -> Result<(Self, Turns), StartError> {
        let (driver, control) = assemble(boxed(device), config)?;
        control.start_shared(config, driver, poll, away_times)
    }
}

/// The parts of a device beside its cores, before its control runs.
struct UnstartedControl {
    waker: Arc<ControlWaker>,
    flags: Arc<DeviceFlags>,
    /// By core.
    rings: Vec<Rings>,
    placement: Placement,
    /// What the cores may grant, if there are several.
    claims: Option<Arc<Claims>>,
    /// Whether the device takes payload by reference.
    gathers: bool,
    held_ports: Option<HeldPorts>,
    events: Arc<AsyncEvents>,
    event_fd: Arc<EventFd>,
    /// Keys of the names that control assigns, and of those that handles assign to memory and windows.
    names: [KeyedSequence; 2],
}

impl UnstartedControl {
    /// Starts a thread for each of `drivers`, as `polls` says, and the control thread.
    fn start_with_threads(
        self,
        config: &DeviceConfig,
        drivers: Vec<CoreDriver>,
        polls: &[PollThread],
    ) -> Result<Device, StartError> {
        let mut threads = Vec::with_capacity(drivers.len());
        let started =
            drivers.into_iter().zip(polls).try_for_each(|(driver, poll)| -> Result<(), StartError> {
                threads.push(driver::spawn(driver, *poll, self.flags.clone())?);
                Ok(())
            });
        match started {
            Ok(()) => self.start(config, threads),
            Err(error) => {
                // Nothing of the device is left: it can be opened again at once.
                self.flags.set_ended();
                for rings in &self.rings {
                    rings.doorbells.wake();
                }
                join_all(threads);
                Err(error)
            }
        }
    }

    /// Starts the control thread, which outlives the threads that poll the cores. They have ended if it does
    /// not start.
    fn start(self, config: &DeviceConfig, polls: Vec<JoinHandle<()>>) -> Result<Device, StartError> {
        let waker = self.waker.clone();
        let (control, mut parts) = self.into_loop(config);
        // Handed over once there is a thread that joins them.
        let (hand_over, handed) = channel::bounded(1);
        let run = move || {
            control_thread::run(control, &waker);
            handed.into_iter().for_each(join_all);
        };
        match thread::Builder::new().name("warpline-control".into()).spawn(run) {
            Ok(control) => {
                let _ = hand_over.send(polls);
                parts.control = Some(control);
                Ok(Device { context: DeviceContext::new(parts) })
            }
            Err(error) => {
                // The loop was dropped, which ends them.
                join_all(polls);
                Err(StartError::ControlThread(error))
            }
        }
    }

    /// Returns the device with a driver for its control, which the thread that polls the only core polls too.
    fn start_polled(self, config: &DeviceConfig) -> (Device, ControlDriver) {
        let doorbells = self.rings[0].doorbells.clone();
        let (control, parts) = self.into_loop(config);
        let control = Arc::new(PolledControl::new(control));
        parts.control_waker.register_polled(&control, doorbells);
        (Device { context: DeviceContext::new(parts) }, ControlDriver::new(control))
    }

    /// Starts the thread that takes turns at `driver` and control, beside applications.
    fn start_shared(
        self,
        config: &DeviceConfig,
        driver: CoreDriver,
        poll: PollThread,
        away_times: AwayTimes,
    ) -> Result<(Device, Turns), StartError> {
        let core = self.rings[0].doorbells.clone();
        let recall = EventFd::new().map_err(StartError::EventFd)?;
        // For its first round.
        let has_work = Arc::new(AtomicBool::new(true));
        let (control, mut parts) = self.into_loop(config);
        let shared = Arc::new(SharedDriver::new(driver, control, has_work.clone(), recall));
        let driver: Arc<dyn TakeTurns> = shared.clone();
        let control_waker = parts.control_waker.clone();
        control_waker.register_in_turns(ControlInTurns { driver: Arc::downgrade(&driver), has_work, core });
        let thread = driver::spawn_at(poll.lcore, move || {
            #[cfg(test)]
            control_waker.register_task();
            shared_thread::run(&shared, poll.idle, away_times);
        });
        parts.control = Some(thread?);
        Ok((Device { context: DeviceContext::new(parts) }, Turns::new(driver)))
    }

    /// Returns the loop around an engine, and the parts of a context without a control thread.
    fn into_loop(self, config: &DeviceConfig) -> (ControlLoop, ContextParts) {
        let Self { waker: control_waker, flags, rings, placement, claims, gathers, .. } = self;
        let Self { held_ports, events, event_fd, names, .. } = self;
        let [random, names] = names;
        let cores = placement.cores();
        let engine = Engine::new(EngineConfig {
            crc: config.crc,
            capacity: config.capacity,
            quotas: config.quotas,
            doorbells: rings.iter().map(|rings| rings.doorbells.clone()).collect(),
            placement,
            claims,
            events: events.clone(),
            random,
        });
        let (requests, receiver) = channel::unbounded();
        let control = ControlLoop::new(engine, receiver, rings, flags.clone(), held_ports);
        let config = config.clone();
        let parts = ContextParts {
            requests,
            control: None,
            control_waker,
            flags,
            names,
            cores,
            gathers,
            config,
            events,
            event_fd,
        };
        (control, parts)
    }
}

/// Waits for the end of threads that poll cores.
fn join_all(polls: Vec<JoinHandle<()>>) {
    for poll in polls {
        // The thread has reported its own panic.
        let _ = poll.join();
    }
}

/// Checks that no CPU is to poll two cores.
fn check_cpus(polls: &[PollThread]) -> Result<(), StartError> {
    for (second, cpu) in polls.iter().enumerate().filter_map(|(core, poll)| Some((core, poll.lcore?))) {
        if let Some(first) = polls[..second].iter().position(|poll| poll.lcore == Some(cpu)) {
            return Err(StartError::CpuTwice { cpu, first, second });
        }
    }
    Ok(())
}

/// Returns a core with its driver, and what control consists of.
fn assemble<F: CoreFrame>(
    device: BoxedDevice<F>,
    config: &DeviceConfig,
) -> Result<(CoreDriver, UnstartedControl), StartError> {
    let mut assembly = Assembly::new(config, None)?;
    let driver = assembly.add_core(device, None)?;
    Ok((driver, assembly.control))
}

/// Returns the cores of a device with their drivers, by number, and what control consists of.
fn assemble_cores<D: device::Device<Frame: CoreFrame> + Send>(
    devices: Vec<D>,
    steering: &Arc<Steering>,
    config: &DeviceConfig,
) -> Result<(Vec<CoreDriver>, UnstartedControl), StartError> {
    let cores = usize::from(steering.cores());
    if devices.len() != cores || cores > limits::CORES_MAX {
        return Err(StartError::CoreCount { devices: devices.len(), cores });
    }
    let mut assembly = Assembly::new(config, Some(steering))?;
    let places = Place::all(steering);
    assembly.control.claims = places.first().and_then(Place::claims).cloned();
    let cores = devices.into_iter().map(boxed).zip(places);
    let drivers = cores.map(|(device, place)| assembly.add_core(device, Some(place)));
    Ok((drivers.collect::<Result<_, _>>()?, assembly.control))
}

/// A device whose cores are made one after the other. They have one configuration, secrets included: what a
/// core derives from these it uses for flows of its own.
struct Assembly {
    config: Config,
    tables: Tables,
    control: UnstartedControl,
}

impl Assembly {
    /// Returns a device without cores, which is to have those of `steering`, or one.
    fn new(config: &DeviceConfig, steering: Option<&Arc<Steering>>) -> Result<Self, StartError> {
        let (addresses, routes) = check(config)?;
        let capacity = config.capacity;
        let sequence = || random_key().map(KeyedSequence::new).map_err(StartError::Random);
        let mut secret = sequence()?;
        let placement = Placement::new(steering.cloned(), addresses.clone());
        let cores = placement.cores();
        let own = || addresses.iter().map(|own| own.address).collect();
        let held_ports = match config.presence {
            Presence::Own => None,
            Presence::Shared => Some(HeldPorts::new(own())?),
        };
        let ports = match &held_ports {
            None => limits::EPHEMERAL_PORTS,
            Some(held) => {
                let (first, last) = held.of_active_opens();
                placement.share_out(first..=last);
                (first, last)
            }
        };
        let event_fd = Arc::new(EventFd::new().map_err(StartError::EventFd)?);
        let control = UnstartedControl {
            waker: Arc::default(),
            flags: Arc::new(DeviceFlags::new(cores)),
            rings: Vec::new(),
            placement,
            claims: None,
            gathers: true,
            held_ports,
            events: Arc::new(AsyncEvents::new(Some(event_fd.clone()))),
            event_fd,
            names: [sequence()?, sequence()?],
        };
        let config = Config {
            addresses,
            routes,
            neighbours: config.neighbours.iter().copied().collect(),
            presence: config.presence,
            duplicate_address_detection: config.duplicate_address_detection,
            vlan: config.vlan,
            rdma_option_kind: config.rdma_option_kind,
            window_bytes: config.window_bytes,
            ports,
            tcp: config.tcp,
            holds_stream: true,
            secret: [secret.next(), secret.next()],
        };
        Ok(Self { config, tables: capacity.tables(cores), control })
    }

    /// Makes the next core, on `device`, with its place among the cores if there are several.
    fn add_core<F: CoreFrame>(
        &mut self,
        mut device: BoxedDevice<F>,
        place: Option<Place<F>>,
    ) -> Result<CoreDriver, StartError> {
        if let Some(held_ports) = &mut self.control.held_ports
            && let Some(socket) = device.take_heard_ports()
        {
            held_ports.tell(socket)?;
        }
        let number = self.control.rings.len() as u8;
        let config = self.config.clone();
        let bell = Arc::new(EventFd::new().map_err(StartError::EventFd)?);
        let waker = Arc::new(Waker::new(bell.clone()));
        let doorbells = Doorbells::new(self.tables.queue_pairs)
            .with_byte_streams(self.tables.connections)
            .with_waker(waker.clone());
        let rings = Rings::with(doorbells);
        check_address_space(self.tables.bytes())?;
        self.control.gathers &= device.capabilities().gather;
        let mut setup = CoreSetup::new(config, rings.clone()).with_tables(self.tables);
        if let Some(place) = place {
            setup = setup.placed(place);
        }
        let core = F::poll_loop(device, setup);
        self.control.rings.push(rings);
        let (flags, control) = (self.control.flags.clone(), self.control.waker.clone());
        Ok(CoreDriver::new(number, core, waker, bell, flags, control))
    }
}

/// Returns a key from the random source of the system.
pub(super) fn random_key() -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}
