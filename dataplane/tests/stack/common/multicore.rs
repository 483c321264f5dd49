//! Hosts of one core or of several, all in one thread and in virtual time.

use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::core::{Config, CoreSetup, Place};
use warpline_dataplane::device::Device;
use warpline_dataplane::device::sim::{SimDevice, SimFrame};
use warpline_dataplane::device::spread::{Queues, spread};
use warpline_dataplane::qp::shared::CoreDoorbells;
use warpline_dataplane::ring::{Command, Event, Rings};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::steering::Steering;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::{TABLES, TestCore, core_on};

/// How frames come to the cores of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The host has one core, whose device is none of several.
    Plain,
    /// A queue for each core, and an adapter that spreads as the steering says.
    Rss,
    /// A queue for each core, and an adapter that spreads by another key.
    OtherRss,
    /// A queue for each core, which an adapter fills in a way that is not known.
    Unsorted,
    /// One queue.
    OneQueue,
}

impl Port {
    /// How many kinds there are.
    pub const COUNT: usize = Self::OneQueue as usize + 1;
}

/// A core of a host, and the rings to it.
pub struct HostCore {
    core: TestCore,
    pub rings: Rings,
    /// It is not polled before.
    stalled_until: Instant,
}

impl HostCore {
    const fn new(core: TestCore, rings: Rings) -> Self {
        Self { core, rings, stalled_until: Instant::ZERO }
    }
}

/// The cores of a host.
pub struct Host {
    pub cores: Vec<HostCore>,
}

impl Host {
    /// Returns a host of `cores` cores on `device`, each with `config`.
    pub fn new(device: SimDevice, port: Port, cores: u8, seed: u64, config: &Config) -> Self {
        let steering_by = |seed: u64| {
            let mut rng = Rng::with_seed(seed);
            Arc::new(Steering::new(cores, 128, |key| rng.fill(key)))
        };
        let steering = steering_by(seed);
        let cores = match port {
            Port::Plain => {
                let rings = Rings::new();
                let setup = CoreSetup::new(config.clone(), rings.clone()).with_tables(TABLES);
                vec![HostCore::new(core_on(device, setup), rings)]
            }
            Port::Rss => {
                placed(spread(device.queues(&steering), Queues::PerCore, &steering), &steering, config)
            }
            Port::OtherRss | Port::Unsorted => {
                let queues = if port == Port::Unsorted { Queues::Unsorted } else { Queues::PerCore };
                let devices = device.queues(&steering_by(!seed));
                placed(spread(devices, queues, &steering), &steering, config)
            }
            Port::OneQueue => {
                let devices = device.sharing(cores.into());
                placed(spread(devices, Queues::One, &steering), &steering, config)
            }
        };
        Self { cores }
    }

    /// Has a core carry out a command.
    pub fn command(&self, core: usize, command: Command) {
        assert!(self.cores[core].rings.commands.push(command).is_ok(), "command ring full");
    }

    /// Returns the doorbells of all cores.
    pub fn doorbells(&self) -> CoreDoorbells {
        self.cores.iter().map(|core| core.rings.doorbells.clone()).collect()
    }

    /// Returns true if all cores have taken all commands.
    pub fn has_obeyed(&self) -> bool {
        self.cores.iter().all(|core| core.rings.commands.is_empty())
    }

    /// Takes the events of all cores, each with the number of the core.
    pub fn take_events(&self) -> Vec<(usize, Event)> {
        let events = |core: &HostCore| std::iter::from_fn(|| core.rings.events.pop()).collect::<Vec<_>>();
        let all = self.cores.iter().enumerate();
        all.flat_map(|(number, core)| events(core).into_iter().map(move |event| (number, event))).collect()
    }

    /// Returns the counters of each core.
    pub fn statistics(&self) -> Vec<Statistics> {
        self.cores.iter().map(|core| core.core.statistics()).collect()
    }
}

/// Returns the cores of a device.
fn placed<D: Device<Frame = SimFrame> + Send>(
    devices: Vec<D>,
    steering: &Arc<Steering>,
    config: &Config,
) -> Vec<HostCore> {
    let core = |(device, place)| {
        let rings = Rings::new();
        let setup = CoreSetup::new(config.clone(), rings.clone()).with_tables(TABLES).placed(place);
        HostCore::new(core_on(device, setup), rings)
    };
    devices.into_iter().zip(Place::all(steering)).map(core).collect()
}

/// The order in which cores are polled, and how time passes.
pub struct Scheduler {
    pub now: Instant,
    rng: Rng,
    /// Probability that a core stalls in a step.
    stall: f64,
    pub stalls: u64,
}

impl Scheduler {
    pub fn new(seed: u64, stall: f64) -> Self {
        Self { now: Instant::from_nanos(1), rng: Rng::with_seed(seed), stall, stalls: 0 }
    }

    /// Polls most of the cores that are not stalled once, in random order. If all had their poll, and none
    /// had anything to do, time moves on to the next thing that happens.
    pub fn step(&mut self, hosts: &mut [Host]) {
        let mut cores: Vec<_> = hosts.iter_mut().flat_map(|host| &mut host.cores).collect();
        if self.rng.f64() < self.stall {
            self.stalls += 1;
            let core = self.rng.usize(0..cores.len());
            cores[core].stalled_until = self.now + self.rng.u64(1..20 * MILLISECOND);
        }
        self.rng.shuffle(&mut cores);
        let (mut busy, mut next) = (false, self.now + SECOND);
        for core in cores {
            if core.stalled_until > self.now {
                next = next.min(core.stalled_until);
            } else if self.rng.u8(0..8) == 0 {
                busy = true;
            } else {
                busy |= core.core.poll_once(self.now);
                next = next.min(core.core.next_deadline());
            }
        }
        self.now = if busy { self.now + self.rng.u64(0..2000) } else { next.max(self.now + 1) };
    }
}
