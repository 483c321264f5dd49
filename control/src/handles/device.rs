//! A device: a core on a NIC, its control thread, and what applications make from it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Sender};
use warpline_dataplane::core::ring::Rings;
use warpline_dataplane::core::statistics::Statistics;
use warpline_dataplane::core::{Config, Core};
use warpline_dataplane::device;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{ProtectionDomainId, Region, STag};
use warpline_dataplane::net::addresses::{Addresses, Cidr, Route, Routes, is_host_address};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::qp::async_event::{AsyncEvent, AsyncEvents};
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::qp::shared_receive_queue::SrqNumber;
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::waker::Waker;

use crate::engine::Control;
use crate::engine::names::Unpredictable;
use crate::engine::quota::Quotas;
use crate::engine::request::{Reply, Request};
use crate::engine::streaming::StreamRequest;
use crate::handles::driver::{self, ControlWaker, CoreDriver, PollThread, PollThreadError};
use crate::handles::event_fd::EventFd;
use crate::handles::listener::{ListenConfig, ListenError, Listener};
use crate::handles::memory::ProtectionDomain;
use crate::handles::tcp_listener::{TcpListenConfig, TcpListener};
use crate::handles::tcp_stream::{StreamConfig, TcpStream};
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::device_name::DeviceName;

/// Whether CRCs are used. Only an administrator decides this; users of connections do not see it (MPA-4.4-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CrcPolicy {
    /// C=1 in every startup frame: CRCs are always generated and checked (MPA-4.4-02, MPA-4.4-03).
    #[default]
    Always,
    /// C=0: no CRCs with peers that say the same (MPA-4.4-04). Octets that are damaged below TCP's checksum, and headers
    /// that lead them astray, then go unnoticed: not without end-to-end protection at least as strong, such as IPsec
    /// (MPA-4.4-05).
    OffIfPeerAgrees,
}

/// Where a device gets the memory that applications ask it for.
#[derive(Clone)]
pub struct MemorySource(Arc<dyn Fn(usize) -> Option<Region> + Send + Sync>);

impl MemorySource {
    /// Memory that `allocate` gives, by the number of octets; `None` when it is short.
    pub fn new(allocate: impl Fn(usize) -> Option<Region> + Send + Sync + 'static) -> Self {
        Self(Arc::new(allocate))
    }

    /// Ordinary memory.
    pub fn heap() -> Self {
        Self::new(Region::heap)
    }

    /// `octets` octets of it; `None` when it is short.
    pub fn allocate(&self, octets: usize) -> Option<Region> {
        (self.0)(octets)
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource").finish_non_exhaustive()
    }
}

/// How a device is set up.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its addresses, IPv4 and IPv6, each with the prefix of its network: one to
    /// [`ADDRESSES_PER_CORE`](limits::ADDRESSES_PER_CORE).
    pub addresses: Vec<Cidr>,
    /// Who forwards to other networks, at most [`ROUTES_PER_CORE`](limits::ROUTES_PER_CORE) of them.
    pub routes: Vec<Route>,
    /// Neighbours whose hardware address is known beforehand: they are not asked for it. At most
    /// [`STATIC_NEIGHBOURS_PER_CORE`](limits::STATIC_NEIGHBOURS_PER_CORE).
    pub neighbours: Vec<StaticNeighbour>,
    /// Whether the link is asked for other stations with our IPv6 addresses before these are used (RFC 4862 §5.4), for one to
    /// two seconds after the start.
    pub duplicate_address_detection: bool,
    /// The VLAN that all frames belong to, 1 to 4094, by an IEEE 802.1Q tag; `None` for frames without one.
    pub vlan: Option<u16>,
    /// Octets a peer may have in flight on one connection (DDP-A-01): at least the product of rate and delay.
    pub window_octets: u32,
    /// How TCP behaves on its connections.
    pub tcp: Behaviour,
    /// Whether CRCs are used.
    pub crc: CrcPolicy,
    /// Where memory comes from.
    pub memory: MemorySource,
    /// What one Protection Domain, and one peer, may hold.
    pub quotas: Quotas,
}

impl DeviceConfig {
    /// The usual, with one address: no routes, no VLAN, a window of 2 MiB, CRCs always, memory from the heap.
    pub fn new(address: impl Into<IpAddr>, prefix_bits: u8) -> Self {
        Self {
            addresses: vec![Cidr::new(address.into(), prefix_bits)],
            routes: Vec::new(),
            neighbours: Vec::new(),
            duplicate_address_detection: true,
            vlan: None,
            window_octets: Config::WINDOW_OCTETS,
            tcp: Behaviour::default(),
            crc: CrcPolicy::Always,
            memory: MemorySource::heap(),
            quotas: Quotas::default(),
        }
    }
}

impl DeviceName {
    /// Returns the configuration of a device with the addresses, routes and VLAN of this name, and the defaults of
    /// [`DeviceConfig::new`] for the rest. It can be started only if the name has an address.
    pub fn config(&self) -> DeviceConfig {
        DeviceConfig {
            addresses: self.addresses().to_vec(),
            routes: self.routes().to_vec(),
            vlan: self.vlan(),
            ..DeviceConfig::new(Ipv4Addr::UNSPECIFIED, 0)
        }
    }
}

/// Why a device could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not that of a host.
    #[error("{0} is not the address of a host: give the device a unicast address of its network")]
    Address(IpAddr),
    /// No address, or too many.
    #[error("{0} addresses: a device has one to {max}", max = limits::ADDRESSES_PER_CORE)]
    AddressCount(usize),
    /// The prefix is longer than an address.
    #[error("{0}: a prefix has at most 32 bits for IPv4, 128 for IPv6")]
    Prefix(Cidr),
    /// Too many routes.
    #[error("{0} routes: a device has at most {max}", max = limits::ROUTES_PER_CORE)]
    RouteCount(usize),
    /// The gateway cannot be reached, or is this device.
    #[error("gateway {0} is no neighbour on a network of the device: nothing could be sent to it")]
    Gateway(IpAddr),
    /// Too many configured neighbours.
    #[error("{0} configured neighbours: a device has at most {max}", max = limits::STATIC_NEIGHBOURS_PER_CORE)]
    NeighbourCount(usize),
    /// No VLAN has that number.
    #[error("VLAN {0}: the number of a VLAN is 1 to 4094")]
    Vlan(u16),
    /// The system gives no random octets.
    #[error("no random octets from /dev/urandom: {0}; STags must not be predictable")]
    Random(std::io::Error),
    /// No file descriptor.
    #[error("no file descriptor for events: {0}; check the limit on open files (ulimit -n)")]
    EventFd(std::io::Error),
    /// No control thread.
    #[error("no control thread: {0}; check the limit on threads (ulimit -u)")]
    ControlThread(std::io::Error),
    /// No poll thread.
    #[error(transparent)]
    PollThread(#[from] PollThreadError),
}

/// The device serves no more: its core is not polled any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has stopped: its core is polled no longer, start a new one")]
pub struct Stopped;

/// What an application has of a device at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Registered regions.
    pub regions: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Listeners.
    pub listeners: usize,
    /// Connections, those being opened or closed included.
    pub connections: usize,
    /// How often something was refused since the start because who wanted it had their share ([`Quotas`]): connections of
    /// peers, regions, windows and queue pairs.
    pub refused_by_quota: u64,
}

/// One core on a NIC and its control thread. Clones are the same device.
///
/// It stops when the last clone and everything made from it are gone; connections that are being closed by then get two
/// seconds for it.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<Shared>,
}

/// What everything made from a device holds on to.
pub(crate) struct Shared {
    /// `None` only while the device stops.
    requests: Option<Sender<Request>>,
    control: Option<JoinHandle<()>>,
    /// Wakes control when there are requests.
    control_waker: Arc<ControlWaker>,
    /// Whether control has ended.
    ended: Arc<AtomicBool>,
    /// Whether somebody still polls the core.
    driver: Arc<AtomicBool>,
    next_domain: AtomicU32,
    /// Names for what is registered or bound anew.
    names: Mutex<Unpredictable>,
    /// Whether the device takes payload by reference.
    pub(crate) gathers: bool,
    next_shared_receive_queue: AtomicU32,
    config: DeviceConfig,
    pub(crate) events: Arc<AsyncEvents>,
    event_fd: Arc<EventFd>,
}

impl Shared {
    /// Asks control; waits for the answer.
    pub(crate) fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Stopped> {
        self.begin(request)?.recv().map_err(|_| Stopped)
    }

    /// Asks control; gives where the answer comes.
    pub(crate) fn begin<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<channel::Receiver<T>, Stopped> {
        let (reply, answer) = Reply::new();
        self.tell(request(reply))?;
        Ok(answer)
    }

    /// The directory of the control thread in /proc.
    #[cfg(test)]
    pub(crate) fn control_task(&self) -> String {
        self.control_waker.task().expect("control has started")
    }

    /// Tells control something that has no answer.
    pub(crate) fn tell(&self, request: Request) -> Result<(), Stopped> {
        self.requests.as_ref().ok_or(Stopped)?.send(request).map_err(|_| Stopped)?;
        self.control_waker.wake();
        Ok(())
    }

    /// Whether the device serves no more. It does not before anything that control keeps is dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether a core may still reach what was registered: it may, for a while, though nobody can be asked any more.
    pub(crate) fn is_driven(&self) -> bool {
        self.driver.load(Ordering::Acquire)
    }

    /// Another name for the slot that is called `stag`.
    pub(crate) fn next_name(&self, stag: STag) -> STag {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = stag.with_key(names.next() as u16);
            if next != stag && next.0 != 0 {
                return next;
            }
        }
    }

    /// How the device was set up.
    pub(crate) fn config(&self) -> &DeviceConfig {
        &self.config
    }

    pub(crate) fn allocate(&self, octets: usize) -> Option<Region> {
        self.config.memory.allocate(octets)
    }

    pub(crate) fn next_shared_receive_queue(&self) -> SrqNumber {
        SrqNumber(self.next_shared_receive_queue.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Control ends when nobody can ask it any more.
        self.requests = None;
        self.control_waker.wake();
        if let Some(control) = self.control.take() {
            // A panic there has been reported there.
            let _ = control.join();
        }
    }
}

impl Device {
    /// Starts a core on `device` with a thread that polls it.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start<D: device::Device + Send>(
        device: D,
        config: &DeviceConfig,
        poll: PollThread,
    ) -> Result<Self, StartError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (driver, started) = parts(device, config, &stop)?;
        let poll = driver::spawn(driver, poll, stop.clone())?;
        let doorbells = started.doorbells.clone();
        let device = Self::with_control(started, config, Some(poll));
        if device.is_err() {
            stop.store(true, Ordering::Release);
            doorbells.wake();
        }
        device
    }

    /// Starts a core on `device` that the application polls.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_manual<D: device::Device>(
        device: D,
        config: &DeviceConfig,
    ) -> Result<(Self, CoreDriver<D>), StartError> {
        let (driver, started) = parts(device, config, &Arc::default())?;
        Ok((Self::with_control(started, config, None)?, driver))
    }

    fn with_control(
        started: Started,
        config: &DeviceConfig,
        poll: Option<JoinHandle<()>>,
    ) -> Result<Self, StartError> {
        let Started {
            control, control_waker, ended, driver, requests, names, gathers, events, event_fd, ..
        } = started;
        let run = move || {
            control.run();
            if let Some(poll) = poll {
                // A panic there has been reported there.
                let _ = poll.join();
            }
        };
        let control = thread::Builder::new()
            .name("warpline-control".into())
            .spawn(run)
            .map_err(StartError::ControlThread)?;
        let shared = Shared {
            requests: Some(requests),
            control: Some(control),
            control_waker,
            ended,
            driver,
            next_domain: AtomicU32::new(1),
            names: Mutex::new(names),
            gathers,
            next_shared_receive_queue: AtomicU32::new(0),
            config: config.clone(),
            events,
            event_fd,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A new Protection Domain: queue pairs of it reach only memory of it (RFC 5041 §8.2).
    pub fn protection_domain(&self) -> ProtectionDomain {
        let id = self.shared.next_domain.fetch_add(1, Ordering::Relaxed);
        ProtectionDomain::new(self.shared.clone(), ProtectionDomainId(id))
    }

    /// Takes connections to `port` at every address of the device. For port 0 a free one is chosen:
    /// [`Listener::port`] tells which.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen(&self, port: u16, config: &ListenConfig) -> Result<Listener, ListenError> {
        self.listen_at((Ipv6Addr::UNSPECIFIED, port).into(), config)
    }

    /// Takes connections to the port and address of `local`; at every IPv4 address for `0.0.0.0`, at every
    /// address of either family for `::`. For port 0 a free one is chosen.
    ///
    /// The same port may be listened on at several addresses; at all of them and at some only with
    /// [`ListenConfig::reuse_address`].
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_at(&self, local: SocketAddr, config: &ListenConfig) -> Result<Listener, ListenError> {
        Listener::new(self.shared.clone(), local, *config)
    }

    /// Opens a TCP connection to `remote`, in streaming mode.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn connect_stream(
        &self,
        remote: SocketAddr,
        config: &StreamConfig,
    ) -> Result<TcpStream, ConnectError> {
        let config = *config;
        let opened =
            self.shared.ask(|reply| Request::Stream(StreamRequest::Connect { remote, config, reply }))??;
        Ok(TcpStream::new(self.shared.clone(), opened))
    }

    /// Takes connections to `port` in streaming mode, as [`listen`](Self::listen) does for MPA.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_streams(&self, port: u16, config: &TcpListenConfig) -> Result<TcpListener, ListenError> {
        self.listen_streams_at((Ipv6Addr::UNSPECIFIED, port).into(), config)
    }

    /// Takes connections to `local` in streaming mode, as [`listen_at`](Self::listen_at) does for MPA.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_streams_at(
        &self,
        local: SocketAddr,
        config: &TcpListenConfig,
    ) -> Result<TcpListener, ListenError> {
        TcpListener::new(self.shared.clone(), local, *config)
    }

    /// How the device was set up.
    pub fn config(&self) -> &DeviceConfig {
        &self.shared.config
    }

    /// The oldest asynchronous event that nobody has taken. Does not wait.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.shared.events.take()
    }

    /// The oldest asynchronous event; sleeps until there is one, at most for `timeout`. For one thread; with an epoll set,
    /// [`event_fd`](Self::event_fd).
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        let start = Instant::now();
        loop {
            // Before the look: an event that comes behind it wakes again.
            self.shared.event_fd.clear();
            let event = self.poll_event();
            let left = timeout.saturating_sub(start.elapsed());
            if event.is_some() || left.is_zero() {
                return event;
            }
            self.shared.event_fd.wait(left);
        }
    }

    /// What becomes readable with each asynchronous event, until it is cleared.
    pub fn event_fd(&self) -> &EventFd {
        &self.shared.event_fd
    }

    /// Asynchronous events that were lost because nobody took those before them.
    pub fn events_lost(&self) -> u64 {
        self.shared.events.lost()
    }

    /// The core's counters.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn statistics(&self) -> Result<Statistics, Stopped> {
        self.shared.ask(|reply| Request::Statistics { reply })
    }

    /// What there is of regions, queue pairs, listeners and connections.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn usage(&self) -> Result<Usage, Stopped> {
        self.shared.ask(|reply| Request::Usage { reply })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// What a device consists of beside its core.
struct Started {
    control: Control,
    control_waker: Arc<ControlWaker>,
    /// Wakes the core's thread.
    doorbells: Arc<Doorbells>,
    /// Set when control ends.
    ended: Arc<AtomicBool>,
    /// Whether somebody polls the core.
    driver: Arc<AtomicBool>,
    /// Where control takes requests.
    requests: Sender<Request>,
    /// For what is registered or bound anew.
    names: Unpredictable,
    /// Whether the device takes payload by reference.
    gathers: bool,
    events: Arc<AsyncEvents>,
    event_fd: Arc<EventFd>,
}

/// A core and what belongs to it.
fn parts<D: device::Device>(
    device: D,
    config: &DeviceConfig,
    stop: &Arc<AtomicBool>,
) -> Result<(CoreDriver<D>, Started), StartError> {
    let (addresses, routes) = checked(config)?;
    let mut random = Unpredictable::new().map_err(StartError::Random)?;
    let names = Unpredictable::new().map_err(StartError::Random)?;
    let gathers = device.capabilities().gather;
    let core = Config {
        addresses,
        routes,
        neighbours: config.neighbours.iter().copied().collect(),
        duplicate_address_detection: config.duplicate_address_detection,
        vlan: config.vlan,
        window_octets: config.window_octets,
        ports: limits::EPHEMERAL_PORTS,
        tcp: config.tcp,
        lends_stream: true,
        secret: [random.next(), random.next()],
    };
    let bell = Arc::new(EventFd::new().map_err(StartError::EventFd)?);
    let waker = Arc::new(Waker::new(bell.clone()));
    let rings = Rings::with_waker(waker.clone());
    let doorbells = rings.doorbells.clone();
    let (alive, control_waker) = (Arc::new(AtomicBool::new(true)), Arc::new(ControlWaker::default()));
    let core = Core::new(device, core, rings.clone());
    let driver = CoreDriver::new(core, (waker, bell), (alive.clone(), control_waker.clone()));
    let (requests, taken) = channel::unbounded();
    let event_fd = Arc::new(EventFd::new().map_err(StartError::EventFd)?);
    let events = Arc::new(AsyncEvents::new(Some(event_fd.clone())));
    let told = (config, events.clone());
    let waits = (taken, control_waker.clone());
    let control = Control::new(waits, rings, (alive.clone(), stop.clone()), told, random);
    let started = Started {
        control,
        control_waker,
        doorbells,
        ended: stop.clone(),
        driver: alive,
        requests,
        names,
        gathers,
        events,
        event_fd,
    };
    Ok((driver, started))
}

/// The addresses and routes, if a core can work with them and the rest.
fn checked(config: &DeviceConfig) -> Result<(Addresses, Routes), StartError> {
    if let Some(vlan) = config.vlan
        && !(1..=4094).contains(&vlan)
    {
        return Err(StartError::Vlan(vlan));
    }
    if config.neighbours.len() > limits::STATIC_NEIGHBOURS_PER_CORE {
        return Err(StartError::NeighbourCount(config.neighbours.len()));
    }
    let addresses = config.addresses.as_slice();
    for own in addresses {
        if !is_host_address(own.address) {
            return Err(StartError::Address(own.address));
        }
        check_prefix(*own)?;
    }
    for route in &config.routes {
        check_prefix(route.destination)?;
        let own = addresses.iter().any(|own| own.address == route.gateway);
        if own || !addresses.iter().any(|own| own.contains(route.gateway)) {
            return Err(StartError::Gateway(route.gateway));
        }
    }
    let wrong_count = |_| StartError::AddressCount(addresses.len());
    let addresses = Addresses::try_from(addresses).map_err(wrong_count)?;
    if addresses.is_empty() {
        return Err(StartError::AddressCount(0));
    }
    let wrong_count = |_| StartError::RouteCount(config.routes.len());
    Ok((addresses, Routes::try_from(config.routes.as_slice()).map_err(wrong_count)?))
}

fn check_prefix(cidr: Cidr) -> Result<(), StartError> {
    if cidr.prefix_bits > cidr.address_bits() { Err(StartError::Prefix(cidr)) } else { Ok(()) }
}
