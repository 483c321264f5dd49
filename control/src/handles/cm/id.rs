//! Ids: connections, listeners, and what is to become one.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use warpline_dataplane::net::addresses;
use warpline_dataplane::qp::shared::SharedQp;

use super::channel::{ChannelState, EventKind, IdNumber, Queue};
use super::listening::{ListeningAt, unlisten};
use crate::engine::interface::connection_status::{CloseState, ConnectionStatus};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::Request;
use crate::handles::connection_request::ConnectionRequest;
use crate::handles::device::Device;
use crate::handles::queue_pair::QueuePairControl;
use crate::vocabulary::connect::{self, ConnectConfig, ConnectError, Connected};
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::{Accepted, AnswerError, ListenConfig, ListenError, listen_address};
use crate::vocabulary::startup::{PrivateDataTooLong, ReadDepths, ReadsWanted, StartupFault};

/// How often a port is chosen that all devices of a channel are to have free.
const PORT_ATTEMPTS: usize = 16;

/// Why an id does not do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// Not in this order.
    #[error("the id is {0}: that comes at another time")]
    WrongState(&'static str),
    /// No device of the channel has the address.
    #[error(
        "no device of the channel has the address: give the channel that device, or leave the address \
        unspecified"
    )]
    NoDevice,
    /// The queue pair belongs to another device.
    #[error("the queue pair belongs to another device: make one on the device of the id")]
    OtherDevice,
    /// The port cannot be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// More than a startup frame holds.
    #[error(transparent)]
    PrivateDataTooLong(#[from] PrivateDataTooLong),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How far an id has come.
enum State {
    Idle,
    Bound {
        local: SocketAddr,
        /// Its port was [found](Id::bind_port) for it.
        reserved: bool,
    },
    AddressResolved {
        device: usize,
        local: SocketAddr,
        remote: SocketAddr,
    },
    RouteResolved {
        device: usize,
        local: SocketAddr,
        remote: SocketAddr,
    },
    Connecting {
        device: usize,
    },
    Listening(Vec<Arc<ListeningAt>>),
    Requested {
        device: usize,
        request: ConnectionRequest,
    },
    Accepting {
        device: usize,
    },
    Connected {
        device: usize,
    },
    /// The connection has ended, or never came about.
    Over {
        device: usize,
        was_connected: bool,
    },
}

impl State {
    const fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Bound { .. } => "bound to an address",
            Self::AddressResolved { .. } => "resolved to an address",
            Self::RouteResolved { .. } => "resolved to a route",
            Self::Connecting { .. } => "connecting",
            Self::Listening(_) => "listening",
            Self::Requested { .. } => "asked for a connection",
            Self::Accepting { .. } => "accepting",
            Self::Connected { .. } => "connected",
            Self::Over { .. } => "over",
        }
    }

    const fn device(&self) -> Option<usize> {
        match self {
            Self::Idle | Self::Bound { .. } | Self::Listening(_) => None,
            Self::AddressResolved { device, .. }
            | Self::RouteResolved { device, .. }
            | Self::Connecting { device }
            | Self::Requested { device, .. }
            | Self::Accepting { device }
            | Self::Connected { device }
            | Self::Over { device, .. } => Some(*device),
        }
    }
}

/// The state that an id shares with the control thread while that works for it.
struct IdState {
    id: IdNumber,
    state: Mutex<State>,
    queue: Arc<Queue>,
    /// Its own address and that of its peer, as far as they are known.
    addresses: Mutex<(Option<SocketAddr>, Option<SocketAddr>)>,
    /// The queue pair that serves the connection, while it is there.
    qp: OnceLock<Weak<SharedQp>>,
    /// The id was dropped: no event may name it any more.
    gone: AtomicBool,
}

impl IdState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, (Option<SocketAddr>, Option<SocketAddr>)> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, kind: EventKind) {
        if !self.gone.load(Ordering::Acquire) {
            self.queue.report(self.id, kind);
        }
    }

    /// Reports that the connection of a queue pair is open, and later how it ends.
    fn established(
        self: &Arc<Self>,
        device: usize,
        status: &ConnectionStatus,
        private_data: Box<[u8]>,
        depths: ReadDepths,
    ) {
        if let Some(pair) = status.pair() {
            *self.addresses() = (Some(pair.local), Some(pair.remote));
        }
        *self.lock() = State::Connected { device };
        self.report(EventKind::Established { private_data, depths });
        let shared = self.clone();
        let (mut disconnected, mut over) = (false, false);
        status.watch(Box::new(move |CloseState { peer_closed, reason }| {
            if (peer_closed || reason.is_some()) && !core::mem::replace(&mut disconnected, true) {
                shared.report(EventKind::Disconnected);
            }
            if reason.is_some() && !core::mem::replace(&mut over, true) {
                *shared.lock() = State::Over { device, was_connected: true };
                shared.report(EventKind::TimewaitExit);
            }
        }));
    }

    fn failed(&self, device: usize, kind: EventKind) {
        *self.lock() = State::Over { device, was_connected: false };
        self.report(kind);
    }
}

/// A connection or a listener in rdma_cm's terms. Each of its methods returns at once; what comes of it
/// arrives on the channel.
///
/// Dropping it ends its listening and rejects a request that is not answered. A connection belongs to its
/// queue pair and ends with that.
pub struct Id {
    channel: Arc<ChannelState>,
    shared: Arc<IdState>,
    /// The peer's request, as long as the application may ask about it.
    peer: Option<PeerInfo>,
}

/// The content of a peer's Request.
#[derive(Clone, Debug)]
struct PeerInfo {
    private_data: Box<[u8]>,
    depths: Option<ReadDepths>,
}

impl Id {
    pub(super) fn new(channel: Arc<ChannelState>) -> Self {
        Self::with(channel, State::Idle, None)
    }

    /// Returns the id of a peer that asks for a connection.
    pub(super) fn of_request(channel: Arc<ChannelState>, device: usize, request: ConnectionRequest) -> Self {
        let addresses = (Some(request.local()), Some(request.remote()));
        let peer = PeerInfo { private_data: request.private_data().into(), depths: request.peer_depths() };
        let id = Self::with(channel, State::Requested { device, request }, Some(peer));
        *id.shared.addresses() = addresses;
        id
    }

    fn with(channel: Arc<ChannelState>, state: State, peer: Option<PeerInfo>) -> Self {
        let (id, queue) = (channel.next_number(), channel.queue.clone());
        let shared = IdState {
            id,
            state: Mutex::new(state),
            queue,
            addresses: Mutex::default(),
            qp: OnceLock::new(),
            gone: AtomicBool::new(false),
        };
        Self { channel, shared: Arc::new(shared), peer }
    }

    /// Returns its name in events.
    pub fn number(&self) -> IdNumber {
        self.shared.id
    }

    /// Returns the device it is on, once that is known: where its queue pair is to be made.
    pub fn device(&self) -> Option<&Device> {
        self.channel.devices.get(self.shared.lock().device()?)
    }

    /// Returns its own address and port (`rdma_get_local_addr`, `rdma_get_src_port`), as far as they are
    /// known: as bound; with the address that leads to the peer once that is resolved; with the port that was
    /// chosen once it listens or is connected.
    pub fn local(&self) -> Option<SocketAddr> {
        self.shared.addresses().0
    }

    /// Returns the peer's address and port (`rdma_get_peer_addr`, `rdma_get_dst_port`): of the peer that asks
    /// for the connection, or of the one that was resolved.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.shared.addresses().1
    }

    /// Returns the Private Data of the peer that asks for the connection.
    pub fn private_data(&self) -> &[u8] {
        self.peer.as_ref().map_or(&[], |peer| &peer.private_data)
    }

    /// Returns the IRD and ORD of the peer that asks for the connection; `None` when its Request was not
    /// enhanced.
    pub fn peer_depths(&self) -> Option<ReadDepths> {
        self.peer.as_ref().and_then(|peer| peer.depths)
    }

    /// Chooses the local address, and with it the device. An unspecified one means all devices, `0.0.0.0`
    /// with their IPv4 addresses, `::` with those of either family. [`listen`](Self::listen) listens there,
    /// and a connection comes from there. For port 0 a free one is chosen then.
    ///
    /// # Errors
    ///
    /// [`CmError::NoDevice`], [`CmError::WrongState`]; the id is then as before.
    pub fn bind_addr(&self, local: SocketAddr) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let local = self.bindable(&state, local)?;
        self.bind(&mut state, local, false);
        Ok(())
    }

    /// Chooses the local address as [`bind_addr`](Self::bind_addr) does, and finds the port that the id is to
    /// listen at now, as [`listen`](Self::listen) would: [`local`](Self::local) returns it. A port that
    /// cannot be listened at is refused. Where the kernel has the address too
    /// ([`Presence::Shared`](crate::Presence::Shared)), nobody else gets the port; otherwise another listener
    /// of the device may take it before. Waits for control.
    ///
    /// # Errors
    ///
    /// [`CmError`]; the id is then as before, and may be bound to another address or port.
    pub fn bind_port(&self, local: SocketAddr, reuse_address: bool) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let local = self.bindable(&state, local)?;
        let mut found = local;
        for on in self.devices_at(local) {
            match reserve_port(on, found, reuse_address) {
                Ok(port) => found.set_port(port),
                Err(error) => {
                    if found != local {
                        self.release_port(found);
                    }
                    return Err(error);
                }
            }
        }
        self.bind(&mut state, found, found != local);
        Ok(())
    }

    /// Returns `local` as an id in this state may be bound to it.
    fn bindable(&self, state: &State, local: SocketAddr) -> Result<SocketAddr, CmError> {
        let State::Idle = *state else { return Err(CmError::WrongState(state.word())) };
        if !local.ip().is_unspecified() && !self.channel.devices.iter().any(|device| has(device, local)) {
            return Err(CmError::NoDevice);
        }
        Ok(canonical(local))
    }

    fn bind(&self, state: &mut State, local: SocketAddr, reserved: bool) {
        *state = State::Bound { local, reserved };
        self.shared.addresses().0 = Some(local);
    }

    /// Returns the devices that have the address.
    fn devices_at(&self, local: SocketAddr) -> impl Iterator<Item = &Device> {
        let any = local.ip().is_unspecified();
        self.channel.devices.iter().filter(move |on| any || has(on, local))
    }

    /// Gives a port back that was found, and not listened at.
    fn release_port(&self, local: SocketAddr) {
        for on in self.devices_at(local) {
            if let Ok(at) = listen_address(on.config(), local) {
                // A stopped device has no ports.
                let _ = on.context.send(Request::ReleasePort { at });
            }
        }
    }

    /// Finds the device that leads to `remote`: [`EventKind::AddressResolved`] or
    /// [`EventKind::AddressError`]. After the latter another address may be tried.
    ///
    /// A port that [`bind_port`](Self::bind_port) has found is for listeners, and is given back in either
    /// case: the id is then bound to its address and any port.
    ///
    /// # Errors
    ///
    /// [`CmError::WrongState`].
    pub fn resolve_addr(&self, remote: SocketAddr) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let bound = match *state {
            State::Idle => None,
            State::Bound { local, reserved: true } => {
                // It was for a listener. From here on it may be another's, so it is given back once.
                self.release_port(local);
                let any_port = SocketAddr::new(local.ip(), 0);
                self.bind(&mut state, any_port, false);
                Some(any_port)
            }
            State::Bound { local, reserved: false } => Some(local),
            _ => return Err(CmError::WrongState(state.word())),
        };
        let remote = canonical(remote);
        let mut devices = self.channel.devices.iter().enumerate();
        match devices.find_map(|(place, device)| Some((place, source(device, bound, remote)?))) {
            Some((device, local)) => {
                *state = State::AddressResolved { device, local, remote };
                *self.shared.addresses() = (Some(local), Some(remote));
                self.shared.report(EventKind::AddressResolved);
            }
            None => self.shared.report(EventKind::AddressError),
        }
        Ok(())
    }

    /// Finds the route to the peer: [`EventKind::RouteResolved`]. The device asks for its neighbour's
    /// hardware address when it sends, so there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// [`CmError::WrongState`].
    pub fn resolve_route(&self) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let State::AddressResolved { device, local, remote } = *state else {
            return Err(CmError::WrongState(state.word()));
        };
        *state = State::RouteResolved { device, local, remote };
        self.shared.report(EventKind::RouteResolved);
        Ok(())
    }

    /// Connects `qp` to the peer as MPA's Initiator. What comes of it: [`EventKind::Established`],
    /// [`EventKind::Rejected`], [`EventKind::Unreachable`] (after [`ConnectConfig::timeout`] at the latest)
    /// or [`EventKind::ConnectError`].
    ///
    /// # Errors
    ///
    /// [`CmError`]; the id is then as before.
    pub fn connect(&self, qp: &QueuePairControl, config: &ConnectConfig) -> Result<(), CmError> {
        connect::check(config)?;
        let mut state = self.shared.lock();
        let State::RouteResolved { device, local, remote } = *state else {
            return Err(CmError::WrongState(state.word()));
        };
        let on = self.device_of(device, qp)?;
        let status = self.serve(qp);
        let shared = self.shared.clone();
        let reply = Reply::call(move |answer| match answer {
            Some(Ok(Connected { private_data, depths, .. })) => {
                shared.established(device, &status, private_data, depths);
            }
            Some(Err(error)) => shared.failed(device, not_connected(error)),
            None => shared.failed(device, EventKind::DeviceRemoval),
        });
        let config = ConnectConfig { local: Some(local), ..config.clone() };
        *state = State::Connecting { device };
        // The answer may come before this returns.
        drop(state);
        Ok(on.context.send(Request::Connect { qp: qp.shared.clone(), remote, config, reply })?)
    }

    /// Listens at the address it is [bound](Self::bind_addr) to: each peer that asks is an
    /// [`EventKind::ConnectRequest`]. At most [`ListenConfig::backlog`] wait at a time.
    ///
    /// # Errors
    ///
    /// [`CmError`]; there is no listener then.
    pub fn listen(&self, config: &ListenConfig) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let State::Bound { local, .. } = *state else { return Err(CmError::WrongState(state.word())) };
        let mut attempts = 1;
        let listening = loop {
            match self.listen_everywhere(local, config) {
                // The port that the first device chose is not free at another.
                Err(CmError::Listen(ListenError::PortInUse(_)))
                    if local.port() == 0 && attempts < PORT_ATTEMPTS =>
                {
                    attempts += 1;
                }
                outcome => break outcome?,
            }
        };
        let port = listening.first().and_then(|at| at.port()).unwrap_or(local.port());
        self.shared.addresses().0 = Some(SocketAddr::new(local.ip(), port));
        *state = State::Listening(listening);
        Ok(())
    }

    /// Listens at each device that has the address, all at the same port.
    fn listen_everywhere(
        &self,
        local: SocketAddr,
        config: &ListenConfig,
    ) -> Result<Vec<Arc<ListeningAt>>, CmError> {
        let any = local.ip().is_unspecified();
        let mut listening: Vec<Arc<ListeningAt>> = Vec::new();
        for (device, on) in self.channel.devices.iter().enumerate().filter(|(_, on)| any || has(on, local)) {
            let port = listening.first().and_then(|at| at.port()).unwrap_or(local.port());
            let begun = listen_address(on.config(), SocketAddr::new(local.ip(), port))
                .map_err(CmError::from)
                .and_then(|at| ListeningAt::new(self.number(), &self.channel.queue, device, on, at, *config));
            match begun {
                Ok(at) => listening.push(at),
                Err(error) => {
                    unlisten(&self.channel.devices, listening);
                    return Err(error);
                }
            }
        }
        Ok(listening)
    }

    /// Accepts the peer that asks: `qp`, of the id's [device](Self::device), serves the connection.
    /// [`EventKind::Established`] comes of it, or [`EventKind::AcceptError`].
    ///
    /// # Errors
    ///
    /// [`CmError`]; the request then still waits for its answer.
    pub fn accept(
        &self,
        qp: &QueuePairControl,
        reads: ReadsWanted,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let State::Requested { device, ref request } = *state else {
            return Err(CmError::WrongState(state.word()));
        };
        request.check_private_data(private_data)?;
        self.device_of(device, qp)?;
        let status = self.serve(qp);
        let State::Requested { request, .. } = core::mem::replace(&mut *state, State::Accepting { device })
        else {
            return Ok(());
        };
        // The answer may come before this returns.
        drop(state);
        let shared = self.shared.clone();
        let reply = Reply::call(move |answer: Option<Result<Accepted, AnswerError>>| match answer {
            Some(Ok(accepted)) => shared.established(device, &status, Box::default(), accepted.depths),
            Some(Err(error)) => shared.failed(device, EventKind::AcceptError(error)),
            None => shared.failed(device, EventKind::DeviceRemoval),
        });
        Ok(request.begin_accept(qp, reads, private_data, reply)?)
    }

    /// Rejects the peer that asks; it gets `private_data`.
    ///
    /// # Errors
    ///
    /// [`CmError`]; the request then still waits for its answer.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        let mut state = self.shared.lock();
        let State::Requested { device, ref request } = *state else {
            return Err(CmError::WrongState(state.word()));
        };
        request.check_private_data(private_data)?;
        let over = State::Over { device, was_connected: false };
        let State::Requested { request, .. } = core::mem::replace(&mut *state, over) else {
            return Ok(());
        };
        // A peer that has closed meanwhile is no error of this end.
        Ok(request.begin_reject(private_data)?)
    }

    /// Closes our half of the connection after everything posted, as [`QueuePairControl::disconnect`] does.
    /// [`EventKind::Disconnected`] comes when the peer closes its half, [`EventKind::TimewaitExit`] when all
    /// is over: both at the latest when the peer has been silent for the queue pair's
    /// [`disconnect_timeout`](crate::QpConfig::disconnect_timeout).
    ///
    /// # Errors
    ///
    /// [`CmError::WrongState`] when there was no connection. One that has ended meanwhile is no error: both
    /// ends may disconnect, and the answer to [`EventKind::Disconnected`] may come late.
    pub fn disconnect(&self) -> Result<(), CmError> {
        let state = self.shared.lock();
        let device = match *state {
            State::Connected { device } => device,
            State::Over { was_connected: true, .. } => return Ok(()),
            _ => return Err(CmError::WrongState(state.word())),
        };
        // A dropped queue pair has ended its connection.
        if let (Some(qp), Some(device)) =
            (self.shared.qp.get().and_then(Weak::upgrade), self.channel.devices.get(device))
        {
            device.context.send(Request::Disconnect { qp })?;
        }
        Ok(())
    }

    /// Returns the device at place `device`, which must be that of `qp`.
    fn device_of(&self, device: usize, qp: &QueuePairControl) -> Result<&Device, CmError> {
        let device = self.channel.devices.get(device).ok_or(CmError::NoDevice)?;
        if qp.is_of(&device.context) { Ok(device) } else { Err(CmError::OtherDevice) }
    }

    /// Remembers the queue pair whose connection this is.
    fn serve(&self, qp: &QueuePairControl) -> Arc<ConnectionStatus> {
        let _ = self.shared.qp.set(Arc::downgrade(&qp.shared));
        qp.status()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Release);
        let state = core::mem::replace(&mut *self.shared.lock(), State::Idle);
        match state {
            State::Listening(listening) => unlisten(&self.channel.devices, listening),
            State::Bound { local, reserved: true } => self.release_port(local),
            _ => {}
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("number", &self.number())
            .field("state", &self.shared.lock().word())
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Returns the port of `local` at the device, which nobody listens at: a free one for port 0.
fn reserve_port(on: &Device, local: SocketAddr, reuse_address: bool) -> Result<u16, CmError> {
    let at = listen_address(on.config(), local)?;
    Ok(on.context.ask(|reply| Request::ReservePort { at, reuse_address, reply })??)
}

/// Returns true if the device has the address.
fn has(device: &Device, local: SocketAddr) -> bool {
    device.config().addresses.iter().any(|own| own.address == local.ip().to_canonical())
}

/// Returns the source address of a connection of `device` to `remote` that was bound to `bound`; `None` if
/// there can be none.
fn source(device: &Device, bound: Option<SocketAddr>, remote: SocketAddr) -> Option<SocketAddr> {
    let config = device.config();
    addresses::next_hop(&config.addresses, &config.routes, remote.ip())?;
    let port = bound.map_or(0, |bound| bound.port());
    match bound.filter(|bound| !bound.ip().is_unspecified()) {
        Some(bound) => (has(device, bound) && bound.is_ipv4() == remote.is_ipv4()).then_some(bound),
        None => Some(SocketAddr::new(addresses::source_for(&config.addresses, remote.ip())?, port)),
    }
}

/// Returns `address` with an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2) replaced by its IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the rdma_cm event for a connection that was not opened.
fn not_connected(error: ConnectError) -> EventKind {
    match error {
        ConnectError::Rejected { private_data, peer } => {
            EventKind::Rejected { private_data, peer: Some(peer) }
        }
        ConnectError::Refused => EventKind::Rejected { private_data: Box::default(), peer: None },
        ConnectError::TimedOut
        | ConnectError::Unanswered { .. }
        | ConnectError::Startup(StartupFault::TimedOut)
        | ConnectError::Unreachable
        | ConnectError::NoRoute => EventKind::Unreachable(error),
        error => EventKind::ConnectError(error),
    }
}
