//! A host: its cores, their control engine, the applications' queues, and the loop around them in virtual
//! time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;
use std::sync::Arc;

use crossbeam::channel::Receiver;
use fastrand::Rng;
use warpline_dataplane::core::tables::{Tables, Usage};
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, Place};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::sim::{SimDevice, SimFrame};
use warpline_dataplane::device::spread::{Queues, spread};
use warpline_dataplane::memory::Claims;
use warpline_dataplane::net::addresses::Addresses;
use warpline_dataplane::net::addresses::Cidr;
use warpline_dataplane::qp::async_event::{AsyncEvent, AsyncEvents};
use warpline_dataplane::qp::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use warpline_dataplane::qp::work::{Completion, QpNumber};
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::steering::Steering;
use warpline_dataplane::time::{Instant, SECOND};

use super::completions::Completions;
use super::core_thread::{Alarm, CoreThread, rings};
use super::draw::{Draw, HostDraw};
use super::memory_oracle::{PD, SLOTS, stack::DEPTH};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Arrival, arrival_queue};
use crate::engine::interface::request::{NewQueuePair, NewStreamListener, Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::names::KeyedSequence;
use crate::engine::placement::Placement;
use crate::engine::{Engine, EngineConfig};
use crate::vocabulary::capacity::Capacity;
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::listen::ListenConfig;
use crate::vocabulary::queue_pair::{QpConfig, RnrPolicy};
use crate::vocabulary::quota::Quotas;
use crate::vocabulary::startup::{ReadDepths, Terms};
use crate::vocabulary::stream::TcpListenConfig;

/// Where hosts listen for MPA, and for byte streams.
pub(super) const MPA_PORT: u16 = 1;
pub(super) const STREAM_PORT: u16 = 2;
/// A host asks for an event when fewer shared receives are left than a number below this.
const LIMIT_MAX: u32 = 8;
/// How long a message waits for a receive that comes: longer than the model waits for anything.
const RECEIVE_WAIT: std::time::Duration = std::time::Duration::from_hours(1);
/// Longer than all stalls and losses of a seed take.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(20);

/// Bytes a second of a queue pair that is limited: what most send takes less than a second.
const RATES: core::ops::Range<u64> = 2_000_000..200_000_000;
/// The shares of queue pairs in what their core sends.
const WEIGHTS: [NonZeroU8; 4] =
    [NonZeroU8::MIN, NonZeroU8::new(16).unwrap(), NonZeroU8::new(16).unwrap(), NonZeroU8::MAX];
/// Entries of the table by which an adapter spreads segments over its queues.
const SPREAD_ENTRIES: usize = 128;

/// The cores of a device, and their engine.
pub(super) struct Host {
    engine: Engine,
    cores: Vec<CoreThread>,
    run_to_completion: bool,
    keeps_open: bool,
    /// Until then control does nothing.
    pub(super) control_stalls_until: Instant,
    pub(super) shared_receives: Arc<SharedReceiveQueue>,
    pub(super) arrivals: Receiver<Arrival>,
    pub(super) streams: Receiver<Arc<SharedStream>>,
    completions: Completions,
    /// Commands to the cores and events of them so far.
    pub(super) exchanged: u64,
    /// Of its applications.
    rng: Rng,
    events: Arc<AsyncEvents>,
    /// The number and side of the connection of each queue pair.
    pub(super) ends: BTreeMap<QpNumber, (usize, usize)>,
}

/// Returns the address of a host.
pub(super) fn address(draw: &Draw, host: usize) -> IpAddr {
    let last = 1 + host as u8;
    if draw.ipv6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(198, 18, 0, last).into()
    }
}

/// Returns what a queue pair brings to MPA startup.
pub(super) const fn terms(draw: &Draw) -> Terms {
    let depths = ReadDepths { ird: draw.reads, ord: draw.reads };
    Terms { depths, negotiated: true, rtr: draw.rtr }
}

impl Host {
    /// Returns a host that listens.
    pub(super) fn new(draw: &Draw, host: usize, device: SimDevice, now: Instant) -> Self {
        let of = draw.hosts[host];
        let mut config = Config {
            duplicate_address_detection: of.detects_duplicates,
            holds_stream: true,
            vlan: draw.vlan,
            window_bytes: of.window_octets,
            ports: draw.ports,
            tcp: of.tcp,
            ..Config::new(Ipv4Addr::new(198, 18, 0, 1 + host as u8).into(), 24, of.secret)
        };
        if draw.ipv6 {
            config.addresses.push(Cidr::new(address(draw, host), 64));
        }
        let addresses: Addresses = config.addresses.iter().copied().collect();
        let (cores, steering, claims) = cores(device, &of, &config, draw.tables);
        let [one, other] = of.secret;
        let key = u128::from(one) << 64 | u128::from(other);
        let events = Arc::new(AsyncEvents::new(None));
        let engine = Engine::new(EngineConfig {
            crc: if draw.crc_always { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees },
            capacity: Capacity::default(),
            quotas: Quotas::default(),
            doorbells: cores.iter().map(|core| core.rings.doorbells.clone()).collect(),
            placement: Placement::new(steering, addresses),
            claims,
            events: events.clone(),
            random: KeyedSequence::new(key.to_le_bytes()),
        });
        let (arrivals, streams) = (crossbeam::channel::never(), crossbeam::channel::never());
        let mut this = Self {
            engine,
            cores,
            run_to_completion: of.run_to_completion,
            keeps_open: of.keeps_open,
            control_stalls_until: Instant::ZERO,
            shared_receives: Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, SLOTS, Some(events.clone()))),
            arrivals,
            streams,
            completions: Completions::new(of.one_completion_queue, one),
            exchanged: 0,
            rng: Rng::with_seed(other),
            events,
            ends: BTreeMap::new(),
        };
        this.cores.iter_mut().for_each(|core| _ = core.core.poll_once(now));
        this.listen(draw, now);
        this
    }

    fn listen(&mut self, draw: &Draw, now: Instant) {
        let at = ListenAddress::everywhere(MPA_PORT);
        let config = ListenConfig {
            markers: false,
            terms: terms(draw),
            permissive: true,
            startup_timeout: PATIENCE,
            decision_timeout: None,
            first_fpdu_timeout: None,
            ..ListenConfig::default()
        };
        let arrivals = arrival_queue(&config);
        self.arrivals = arrivals.1.clone();
        let port = self.begin(now, |reply| Request::Listen { at, config, arrivals, notify: None, reply });
        self.deliver();
        assert_eq!(port.try_recv(), Ok(Ok(MPA_PORT)));
        let (at, config) = (ListenAddress::everywhere(STREAM_PORT), TcpListenConfig::default());
        let listener = self.begin(now, |reply| Request::Stream(StreamRequest::Listen { at, config, reply }));
        self.deliver();
        let Ok(Ok(NewStreamListener { streams, .. })) = listener.try_recv() else {
            panic!("the port is free")
        };
        self.streams = streams;
    }

    /// Has one of the cores stall, which `any` chooses.
    pub(super) fn stall_core(&mut self, any: usize, until: Instant) {
        let core = any % self.cores.len();
        self.cores[core].stalls_until = until;
    }

    /// Returns true if one of its cores is not polled.
    pub(super) fn stalls(&self, now: Instant) -> bool {
        self.cores.iter().any(|core| core.stalls_until > now)
    }

    /// Polls the cores and runs the engine, unless they stall. Returns true if there was anything to do.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for core in &mut self.cores {
            busy |= core.poll(now, self.run_to_completion);
        }
        if self.control_stalls_until <= now {
            for (CoreThread { rings, .. }, number) in self.cores.iter().zip(0..) {
                while let Some(event) = rings.events.pop() {
                    busy = true;
                    self.exchanged += 1;
                    self.engine.on_event(now, number, event);
                }
            }
            self.engine.on_time(now);
            busy |= self.deliver();
        }
        busy
    }

    /// Delivers the outputs of the engine. Returns true if there were any.
    fn deliver(&mut self) -> bool {
        let mut busy = false;
        for (CoreThread { rings, .. }, number) in self.cores.iter().zip(0..) {
            while let Some(command) = self.engine.next_command(number) {
                if let Err(command) = rings.commands.push(command) {
                    self.engine.return_command(number, command);
                    break;
                }
                rings.doorbells.wake();
                busy = true;
                self.exchanged += 1;
            }
        }
        while let Some(deliver) = self.engine.next_reply() {
            busy = true;
            deliver();
        }
        busy
    }

    /// Returns when the host has work, if nothing happens before.
    pub(super) fn next_deadline(&self) -> Instant {
        let cores = self.cores.iter().map(CoreThread::next_deadline).min().unwrap_or(Instant::NEVER);
        cores.min(self.engine.next_deadline().max(self.control_stalls_until))
    }

    pub(super) fn send(&mut self, now: Instant, request: Request) {
        self.engine.on_request(now, request);
    }

    /// Sends a request. Returns where the reply arrives.
    pub(super) fn begin<T>(
        &mut self,
        now: Instant,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Receiver<T> {
        let (reply, receiver) = Reply::new();
        self.send(now, request(reply));
        receiver
    }

    /// Asks for a queue pair for one end of a connection.
    pub(super) fn create_qp(
        &mut self,
        now: Instant,
        draw: &Draw,
        shares: bool,
    ) -> Receiver<Result<NewQueuePair, crate::vocabulary::queue_pair::CreateError>> {
        let completions = self.completions.of_another();
        let waits_long = shares && draw.waits_for_shared_receives();
        let timeout = if waits_long { RECEIVE_WAIT } else { std::time::Duration::from_millis(20) };
        let rnr = RnrPolicy::Wait { timeout };
        let rng = &mut self.rng;
        let config = QpConfig {
            send_depth: DEPTH,
            receive_depth: DEPTH,
            packing: draw.packing,
            keep_open: self.keeps_open,
            rate_limit: (rng.u8(..8) == 0).then(|| rng.u64(RATES)),
            weight: WEIGHTS[rng.usize(..WEIGHTS.len())],
            user_timeout: rng.bool().then_some(PATIENCE),
            disconnect_timeout: rng.bool().then_some(PATIENCE),
            rnr: if draw.receive_wait { rnr } else { RnrPolicy::Terminate },
            ..QpConfig::default()
        };
        let receives = shares.then(|| self.shared_receives.clone());
        self.begin(now, |reply| Request::CreateQp { pd: PD, config, completions, receives, reply })
    }

    /// Takes all completions. Now and then asks for an event when few shared receives are left.
    pub(super) fn poll_completions(&mut self) -> Vec<((usize, usize), Completion)> {
        if self.rng.u8(..8) == 0 {
            self.shared_receives.arm_limit(self.rng.u32(..LIMIT_MAX));
        }
        let all = self.completions.poll().into_iter();
        all.map(|completion| (self.ends[&completion.qp], completion)).collect()
    }

    /// Takes all asynchronous events.
    pub(super) fn async_events(&self) -> impl Iterator<Item = AsyncEvent> {
        std::iter::from_fn(|| self.events.dequeue())
    }

    /// Returns how many cores it has.
    pub(super) const fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// Returns the counters of all cores together.
    pub(super) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        self.cores.iter().for_each(|core| sum.add(&core.core.statistics()));
        sum
    }

    /// Returns the counters of each core.
    pub(super) fn core_statistics(&self) -> Vec<Statistics> {
        self.cores.iter().map(|core| core.core.statistics()).collect()
    }

    /// Returns what each core holds.
    pub(super) fn usage(&self) -> impl Iterator<Item = Usage> {
        self.cores.iter().map(|core| core.core.usage())
    }

    /// Drops both listeners.
    pub(super) fn unlisten(&mut self, now: Instant) {
        for port in [MPA_PORT, STREAM_PORT] {
            self.send(now, Request::Unlisten { at: ListenAddress::everywhere(port) });
        }
    }

    /// Returns true if nothing is left that applications have asked for, in control and in the core.
    pub(super) fn is_unused(&mut self) -> bool {
        let is_unused = |usage: Usage| Usage { time_waits: 0, ..usage } == Usage::default();
        !self.engine.has_business() && !self.engine.awaits_reports() && self.usage().all(is_unused)
    }

    pub(super) const fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

/// A limit of time that no seed reaches.
pub(super) const fn patience() -> std::time::Duration {
    PATIENCE
}

/// The same in nanoseconds.
pub(super) const PATIENCE_NS: u64 = PATIENCE.as_secs() * SECOND;

/// Returns the cores of a host, and if there are several, by what their segments are spread, and their claims
/// on memory.
fn cores(
    device: SimDevice,
    draw: &HostDraw,
    config: &Config,
    tables: Tables,
) -> (Vec<CoreThread>, Option<Arc<Steering>>, Option<Arc<Claims>>) {
    let alarm = || draw.sleeps.then(Alarm::new);
    if draw.cores == 1 {
        let alarm = alarm();
        let rings = rings(alarm.as_ref());
        let setup = CoreSetup::new(config.clone(), rings.clone()).with_tables(tables);
        let core = SimFrame::poll_loop(boxed(device), setup);
        return (vec![CoreThread::new(core, rings, alarm)], None, None);
    }
    let mut rng = Rng::with_seed(draw.secret[0]);
    let steering = Arc::new(Steering::new(draw.cores, SPREAD_ENTRIES, |key| rng.fill(key)));
    let places = Place::all(&steering);
    let claims = places[0].claims().cloned();
    let placed = |(device, place)| {
        let alarm = alarm();
        let rings = rings(alarm.as_ref());
        let setup = CoreSetup::new(config.clone(), rings.clone()).with_tables(tables).placed(place);
        let core = SimFrame::poll_loop(boxed(device), setup);
        CoreThread::new(core, rings, alarm)
    };
    let devices = spread(device.queues(&steering), Queues::PerCore, &steering);
    (devices.into_iter().zip(places).map(placed).collect(), Some(steering), claims)
}
