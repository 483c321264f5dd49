//! Opens lanes: the connections of a lane are at one core of the near device and at one of the far device.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use warpline::{
    Access, CompletionQueue, ConnectConfig, Device, ListenConfig, Listener, MemoryRegion, ProtectionDomain,
    QpConfig, QueuePair, QueuePairControl,
};
use warpline_tools::interrupt;

use super::joined::Joined;
use super::lane::{Collector, Completions, Lane, Memory, Pace};
use super::settings::{Share, Traffic};
use crate::arguments::REGION_BYTES_MAX;
use crate::at_core::{self, LocalPorts};
use crate::endpoint::PATIENCE;
use crate::error::BenchError;

/// The port at which the far device listens.
const PORT: u16 = 7471;

/// A lane that is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The core of the near device and that of the far one.
    pub cores: [u8; 2],
    /// Its Writes.
    pub traffic: Traffic,
    /// The least time between two of them, if they are paced.
    pub pace: Option<Duration>,
}

impl Route {
    /// Returns the routes from each of `cores` cores to that with the same number.
    pub fn straight(cores: usize, traffic: Traffic) -> Vec<Self> {
        (0..cores as u8).map(|core| Self { cores: [core; 2], traffic, pace: None }).collect()
    }
}

/// Lanes that are open.
pub struct Opened {
    pub lanes: Vec<Lane>,
    /// What polls the completions of all of them, if they share a queue.
    pub collector: Option<Collector>,
    /// A Protection Domain of each device: that of all lanes, if they share one.
    pub domains: [ProtectionDomain; 2],
}

/// What opens lanes between two devices, whose cores are polled meanwhile.
pub struct Opening {
    near: Device,
    far: Device,
    /// Where the far device listens.
    target: SocketAddr,
}

impl Opening {
    /// Returns what opens lanes between `joined`.
    pub fn new(joined: &Joined) -> Self {
        let (near, far) = (joined.near.device.clone(), joined.far.device.clone());
        let target = SocketAddr::new(far.config().addresses[0].address, PORT);
        Self { near, far, target }
    }

    /// Opens lanes on `routes`, which share what `share` says.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn open(self, routes: &[Route], share: Share) -> Result<Opened, BenchError> {
        let bytes = routes.iter().map(|route| route.traffic.lane_bytes()).fold(0, usize::saturating_add);
        if bytes > REGION_BYTES_MAX as usize {
            let most = REGION_BYTES_MAX >> 20;
            return Err(BenchError::options(format!(
                "--size times --depth times --cores is more than {most} MiB: take less"
            )));
        }
        let listening = ListenConfig { first_fpdu_timeout: None, ..ListenConfig::default() };
        let listener = self.far.listen(PORT, &listening).map_err(|error| setup(&error))?;
        let mut ports = LocalPorts::default();
        let collector = (share == Share::Queue).then(|| {
            let outstanding = routes.iter().map(|route| route.traffic.outstanding()).sum();
            let qps = routes.iter().map(|route| route.traffic.qps as usize).sum();
            Collector::new(CompletionQueue::new(outstanding), qps)
        });
        let domains = [self.near.protection_domain(), self.far.protection_domain()];
        let all = if share == Share::Domain { Some(regions(&domains, bytes)?) } else { None };
        let (mut start, mut first_qp) = (0, 0);
        let lanes = routes.iter().map(|route| {
            let place = match &all {
                Some(regions) => Place::new(domains.clone(), regions.clone(), start, route)?,
                None => self.place_of_its_own(route)?,
            };
            let lane = self.lane(&listener, &mut ports, route, place, first_qp, collector.as_ref())?;
            start += route.traffic.lane_bytes();
            first_qp += route.traffic.qps as usize;
            Ok(lane)
        });
        let lanes = lanes.collect::<Result<_, BenchError>>()?;
        Ok(Opened { lanes, collector, domains })
    }

    fn place_of_its_own(&self, route: &Route) -> Result<Place, BenchError> {
        let domains = [self.near.protection_domain(), self.far.protection_domain()];
        let regions = regions(&domains, route.traffic.lane_bytes())?;
        Place::new(domains, regions, 0, route)
    }

    fn lane(
        &self,
        listener: &Listener,
        ports: &mut LocalPorts,
        route: &Route,
        place: Place,
        first_qp: usize,
        collector: Option<&Collector>,
    ) -> Result<Lane, BenchError> {
        let Place { domains: [near_domain, far_domain], memory } = place;
        let traffic = &route.traffic;
        let qps = traffic.qps as usize;
        let own = CompletionQueue::new(traffic.outstanding());
        let queue = collector.map_or(&own, Collector::queue);
        // Nothing is posted there.
        let far_completions = CompletionQueue::new(1);
        let near_config =
            QpConfig { send_depth: traffic.depth as usize, receive_depth: 1, ..QpConfig::default() };
        let far_config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
        let (mut near_qps, mut far_qps) = (Vec::with_capacity(qps), Vec::with_capacity(qps));
        for _ in 0..qps {
            let near = near_domain.queue_pair(&near_config, queue, queue).map_err(|error| setup(&error))?;
            let far = far_domain.queue_pair(&far_config, &far_completions, &far_completions);
            let far = far.map_err(|error| setup(&error))?;
            self.connect(listener, ports, route.cores, &near, &far)?;
            near_qps.push(near);
            far_qps.push(far);
        }
        let completions = match collector {
            None => Completions::Own(own),
            Some(collector) => Completions::Credited(collector.credits()),
        };
        Ok(Lane {
            qps: near_qps,
            far_qps,
            memory,
            completions,
            first_qp,
            size: traffic.size,
            depth: traffic.depth.into(),
            pace: route.pace.map(Pace::new),
            posted: vec![0; qps],
            completed: vec![0; qps],
            polled: Vec::with_capacity(traffic.outstanding()),
        })
    }

    /// Connects the queue pair `near` at its core with `far` at its own, from one of `ports`.
    fn connect(
        &self,
        listener: &Listener,
        ports: &mut LocalPorts,
        [near_core, far_core]: [u8; 2],
        near: &QueuePair,
        far: &QueuePairControl,
    ) -> Result<(), BenchError> {
        let core = (self.near.cores() > 1).then_some(near_core);
        let config = ConnectConfig { core, timeout: PATIENCE, ..ConnectConfig::default() };
        let target = self.target;
        thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let request = at_core::accept(listener, Some(far_core), PATIENCE)?;
                request.accept(far, b"").map(drop).map_err(|error| setup(&error))
            });
            let connected = ports.connect(&self.near, near, target, &config);
            let accepted = accepting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match connected {
                Err(_) if interrupt::is_requested() => Err(BenchError::interrupted()),
                Err(error) => Err(BenchError::Connect(target, error)),
                Ok(_) => accepted,
            }
        })
    }
}

/// The memory of a lane, and the Protection Domains of its two ends.
struct Place {
    domains: [ProtectionDomain; 2],
    memory: Memory,
}

impl Place {
    fn new(
        domains: [ProtectionDomain; 2],
        [source, sink]: [Arc<MemoryRegion>; 2],
        start: usize,
        route: &Route,
    ) -> Result<Self, BenchError> {
        let advertisement = sink.advertisement(start, route.traffic.lane_bytes() as u32);
        let advertisement = advertisement.ok_or_else(|| BenchError::Memory("no range".into()))?;
        Ok(Self { domains, memory: Memory { source, sink, start, advertisement } })
    }
}

/// Returns a region of the near domain to read from, and one of the far domain to write to.
fn regions(domains: &[ProtectionDomain; 2], bytes: usize) -> Result<[Arc<MemoryRegion>; 2], BenchError> {
    let [near, far] = domains;
    let memory = |error: warpline::MemoryError| BenchError::Memory(error.to_string());
    let source = near.allocate(bytes, Access::empty()).map_err(memory)?;
    let sink = far.allocate(bytes, Access::REMOTE_WRITE | Access::LOCAL_WRITE).map_err(memory)?;
    Ok([Arc::new(source), Arc::new(sink)])
}

fn setup(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Setup(error.to_string())
}
