//! A device: a core on a NIC, its control thread, and what applications make from it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel;
use warpline_dataplane::core::{Config, Core};
use warpline_dataplane::device;
use warpline_dataplane::limits;
use warpline_dataplane::memory::RegionPoolReport as StreamMemory;
use warpline_dataplane::qp::async_event::{AsyncEvent, AsyncEvents};
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::ring::Rings;
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::waker::Waker;

use super::context::{ContextParts, DeviceContext};
use super::control_driver::{ControlDriver, PolledControl};
use super::control_loop::{ControlLoop, DeviceFlags};
use super::control_thread;
use super::control_waker::ControlWaker;
use super::driver::{self, CoreDriver};
use super::event_fd::EventFd;
use super::listener::Listener;
use super::protection_domain::ProtectionDomain;
use super::tcp_listener::TcpListener;
use super::tcp_stream::TcpStream;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::engine::names::KeyedSequence;
use crate::engine::{Engine, EngineConfig};
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::device::{DeviceConfig, StartError, Stopped, Usage, check, check_address_space};
use crate::vocabulary::listen::{ListenConfig, ListenError};
use crate::vocabulary::poll_thread::PollThread;
use crate::vocabulary::stream::{StreamConfig, TcpListenConfig};

/// One core on a NIC and its control thread. Clones are the same device.
///
/// It stops when the last clone and everything made from it are dropped; connections that are being closed by
/// then get two seconds for it.
#[derive(Clone)]
pub struct Device {
    pub(crate) context: Arc<DeviceContext>,
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
        let (driver, control) = assemble(device, config)?;
        let poll = driver::spawn(driver, poll, control.flags.clone())?;
        let (flags, rings) = (control.flags.clone(), control.rings.clone());
        let device = control.start(config, Some(poll));
        if device.is_err() {
            flags.set_ended();
            rings.doorbells.wake();
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
        let (driver, control) = assemble(device, config)?;
        Ok((control.start(config, None)?, driver))
    }

    /// Starts a core on `device` that the application polls, and its control engine, which has no thread
    /// either: for applications that open and close connections by the thousand, on one thread.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn start_polled<D: device::Device>(
        device: D,
        config: &DeviceConfig,
    ) -> Result<(Self, CoreDriver<D>, ControlDriver), StartError> {
        let (driver, control) = assemble(device, config)?;
        let (device, control) = control.start_polled(config);
        Ok((device, driver, control))
    }

    /// Returns a new Protection Domain: queue pairs of it reach only memory of it (RFC 5041 §8.2).
    pub fn protection_domain(&self) -> ProtectionDomain {
        let id = self.context.next_domain();
        ProtectionDomain::new(self.context.clone(), id)
    }

    /// Takes connections to `port` at every address of the device. For port 0 a free one is chosen:
    /// [`Listener::port`] returns it.
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
        Listener::new(self.context.clone(), local, *config)
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
            self.context.ask(|reply| Request::Stream(StreamRequest::Connect { remote, config, reply }))??;
        Ok(TcpStream::new(self.context.clone(), opened))
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
        TcpListener::new(self.context.clone(), local, *config)
    }

    /// Returns how the device was set up.
    pub fn config(&self) -> &DeviceConfig {
        self.context.config()
    }

    /// Returns the oldest asynchronous event that was not taken yet. Does not wait.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.context.events.dequeue()
    }

    /// Returns the oldest asynchronous event; sleeps until there is one, at most for `timeout`. For one
    /// thread; with an epoll set, [`event_fd`](Self::event_fd).
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        let start = Instant::now();
        loop {
            // Before the poll: an event that comes after it wakes again.
            self.context.event_fd().clear();
            let event = self.poll_event();
            let left = timeout.saturating_sub(start.elapsed());
            if event.is_some() || left.is_zero() {
                return event;
            }
            self.context.event_fd().wait(left);
        }
    }

    /// Returns the file descriptor that becomes readable with each asynchronous event, until it is cleared.
    pub fn event_fd(&self) -> &EventFd {
        self.context.event_fd()
    }

    /// Asynchronous events that were lost because those before them were not taken.
    pub fn events_lost(&self) -> u64 {
        self.context.events.lost()
    }

    /// Returns the core's counters.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn statistics(&self) -> Result<Statistics, Stopped> {
        self.context.ask(|reply| Request::Statistics { reply })
    }

    /// Counts of regions, queue pairs, listeners and connections.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn usage(&self) -> Result<Usage, Stopped> {
        self.context.ask(|reply| Request::Usage { reply })
    }

    /// Returns how many bytes the buffers of byte streams have, of how many they may have
    /// ([`Capacity::stream_bytes`](crate::Capacity::stream_bytes)), and how often none were left.
    pub fn stream_memory(&self) -> StreamMemory {
        self.context.stream_memory.report()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("config", self.context.config()).finish_non_exhaustive()
    }
}

/// The parts of a device beside its core, before its control thread runs.
struct UnstartedControl {
    waker: Arc<ControlWaker>,
    flags: Arc<DeviceFlags>,
    rings: Rings,
    /// Whether the device takes payload by reference.
    gathers: bool,
    events: Arc<AsyncEvents>,
    event_fd: Arc<EventFd>,
    /// Keys of the names that control assigns, and of those that handles assign to memory and windows.
    random: [KeyedSequence; 2],
}

impl UnstartedControl {
    /// Starts the control thread, which outlives the poll thread.
    fn start(self, config: &DeviceConfig, poll: Option<JoinHandle<()>>) -> Result<Device, StartError> {
        let waker = self.waker.clone();
        let (control, mut parts) = self.into_loop(config);
        let run = move || {
            control_thread::run(control, &waker);
            if let Some(poll) = poll {
                // The thread has reported its own panic.
                let _ = poll.join();
            }
        };
        let control = thread::Builder::new()
            .name("warpline-control".into())
            .spawn(run)
            .map_err(StartError::ControlThread)?;
        parts.control = Some(control);
        Ok(Device { context: DeviceContext::new(parts) })
    }

    /// Returns the device with a driver for its control.
    fn start_polled(self, config: &DeviceConfig) -> (Device, ControlDriver) {
        let doorbells = self.rings.doorbells.clone();
        let (control, parts) = self.into_loop(config);
        let control = Arc::new(PolledControl::new(control));
        parts.control_waker.register_polled(&control, doorbells);
        (Device { context: DeviceContext::new(parts) }, ControlDriver::new(control))
    }

    /// Returns the loop around an engine, and the parts of a context without a control thread.
    fn into_loop(self, config: &DeviceConfig) -> (ControlLoop, ContextParts) {
        let Self { waker: control_waker, flags, rings, gathers, events, event_fd, random } = self;
        let [random, names] = random;
        let engine = Engine::new(EngineConfig {
            crc: config.crc,
            capacity: config.capacity,
            quotas: config.quotas,
            doorbells: rings.doorbells.clone(),
            events: events.clone(),
            random,
        });
        let (requests, receiver) = channel::unbounded();
        let control = ControlLoop::new(engine, receiver, rings, flags.clone());
        let config = config.clone();
        let parts = ContextParts {
            requests,
            control: None,
            control_waker,
            flags,
            names,
            gathers,
            config,
            events,
            event_fd,
        };
        (control, parts)
    }
}

/// Returns a core with its driver, and what control consists of.
fn assemble<D: device::Device>(
    device: D,
    config: &DeviceConfig,
) -> Result<(CoreDriver<D>, UnstartedControl), StartError> {
    let (addresses, routes) = check(config)?;
    let sequence = || random_key().map(KeyedSequence::new).map_err(StartError::Random);
    let (mut random, names) = (sequence()?, sequence()?);
    let gathers = device.capabilities().gather;
    let core = Config {
        addresses,
        routes,
        neighbours: config.neighbours.iter().copied().collect(),
        duplicate_address_detection: config.duplicate_address_detection,
        vlan: config.vlan,
        rdma_option_kind: config.rdma_option_kind,
        window_bytes: config.window_bytes,
        ports: limits::EPHEMERAL_PORTS,
        tcp: config.tcp,
        holds_stream: true,
        secret: [random.next(), random.next()],
    };
    let bell = Arc::new(EventFd::new().map_err(StartError::EventFd)?);
    let core_waker = Arc::new(Waker::new(bell.clone()));
    let doorbells = Doorbells::new(config.capacity.queue_pairs)
        .with_byte_streams(config.capacity.connections)
        .with_waker(core_waker.clone());
    let rings = Rings::with(doorbells);
    let (flags, waker) = (Arc::new(DeviceFlags::new()), Arc::new(ControlWaker::default()));
    let tables = config.capacity.tables();
    check_address_space(Core::<D>::table_bytes(&tables))?;
    let core = Core::with_tables(device, core, rings.clone(), tables);
    let driver = CoreDriver::new(core, core_waker, bell, flags.clone(), waker.clone());
    let event_fd = Arc::new(EventFd::new().map_err(StartError::EventFd)?);
    let events = Arc::new(AsyncEvents::new(Some(event_fd.clone())));
    let random = [random, names];
    Ok((driver, UnstartedControl { waker, flags, rings, gathers, events, event_fd, random }))
}

/// Returns a key from the random source of the system.
fn random_key() -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}
