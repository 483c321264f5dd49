//! The listeners of a device, for MPA and for streaming mode: one table, for they share ports.

use std::sync::Arc;

use crossbeam::channel::{self, Receiver, Sender};
use warpline_dataplane::limits;
use warpline_dataplane::ring::{Command, ConnectionId, ListenAddress};
use warpline_dataplane::tcp::Behaviour;

use crate::engine::interface::request::{Arrival, ArrivalQueue, NewStreamListener, PeerRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::interface::sleeper::Sleeper;
use crate::engine::names::Table;
use crate::engine::outbox::Outbox;
use crate::engine::placement::Placement;
use crate::vocabulary::connect::SocketPair;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::listen::{ListenConfig, ListenError, backlog};
use crate::vocabulary::startup::StartupFault;
use crate::vocabulary::stream::TcpListenConfig;

/// A listener whose connections start with MPA.
pub(in crate::engine) struct MpaListener {
    pub(in crate::engine) config: ListenConfig,
    /// To the application.
    pub(in crate::engine) arrivals: ArrivalQueue,
    /// Called after each arrival.
    pub(in crate::engine) notify: Option<Box<dyn Fn() + Send>>,
}

impl MpaListener {
    /// Hands something to the application. Returns false if its queue is full.
    fn offer(&self, arrival: Arrival) -> bool {
        let taken = self.arrivals.0.try_send(arrival).is_ok();
        if let (true, Some(notify)) = (taken, &self.notify) {
            notify();
        }
        taken
    }
}

/// The use of a listener's connections.
enum Kind {
    /// MPA starts, with the peers whose Request is not complete.
    Mpa { listener: MpaListener, awaited: Table<ConnectionId, SocketPair> },
    /// They are handed to the application in streaming mode.
    Streams(StreamQueue),
}

/// Connections in streaming mode on their way to the application that listens.
struct StreamQueue {
    sender: Sender<Arc<SharedStream>>,
    receiver: Receiver<Arc<SharedStream>>,
    sleeper: Arc<Sleeper>,
}

impl StreamQueue {
    /// Hands a connection to the application. Returns false if there is no room.
    fn push(&self, stream: Arc<SharedStream>) -> bool {
        let has_room = self.sender.try_send(stream).is_ok();
        if has_room {
            self.sleeper.wake();
        }
        has_room
    }
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        self.sleeper.end();
    }
}

struct Listener {
    /// Its port may be shared with other listeners that say the same.
    reuse_address: bool,
    kind: Kind,
}

/// What the cores are to know of a listener.
#[derive(Clone, Copy)]
struct ListenCommand {
    backlog: u32,
    tcp: Option<Behaviour>,
    /// The only one that listens, if all do not: a peer may come to any of them.
    core: Option<u8>,
}

/// The next step of a connection that a peer has opened.
pub(super) enum Accept {
    /// It waits for the peer's Request.
    AwaitRequest(ListenConfig),
    /// The application has it in streaming mode.
    Streaming(Arc<SharedStream>),
    /// Nothing listens there, or the application does not keep up.
    Refuse,
}

/// The connections of a dropped listener that no application has accepted.
#[derive(Default)]
pub(super) struct Orphans {
    /// Their Request is not complete.
    pub(super) awaited: Vec<ConnectionId>,
    /// Their Request waits for a decision.
    pub(super) undecided: Vec<ConnectionId>,
    /// They are in streaming mode.
    pub(super) streaming: Vec<ConnectionId>,
}

/// All listeners of a device.
pub(super) struct Listeners {
    table: Table<ListenAddress, Listener>,
    capacity: usize,
    /// Where the search for a free port begins.
    next_port: u16,
}

impl Listeners {
    /// Returns no listeners, and room for `capacity`.
    pub(super) fn new(capacity: usize, next_port: u16) -> Self {
        Self { table: Table::default(), capacity, next_port }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether a listener has `port`, at any address.
    pub(super) fn has_port(&self, port: u16) -> bool {
        self.table.keys().any(|at| at.port == port)
    }

    /// Listens for connections that start with MPA. Returns the port.
    pub(super) fn listen(
        &mut self,
        out: &mut Outbox,
        placement: &mut Placement,
        at: ListenAddress,
        listener: MpaListener,
    ) -> Result<u16, ListenError> {
        let config = ListenConfig { backlog: backlog(listener.config.backlog), ..listener.config };
        let listener = MpaListener { config, ..listener };
        let kind = Kind::Mpa { listener, awaited: Table::default() };
        // A core lets an address have half of the places.
        let places = if config.peer_shares { config.backlog } else { 2 * config.backlog };
        let command = ListenCommand { backlog: places, tcp: config.tcp, core: config.core };
        self.insert(out, placement, at, Listener { reuse_address: config.reuse_address, kind }, command)
    }

    /// Listens for connections in streaming mode.
    pub(super) fn listen_streams(
        &mut self,
        out: &mut Outbox,
        placement: &mut Placement,
        at: ListenAddress,
        config: TcpListenConfig,
    ) -> Result<NewStreamListener, ListenError> {
        let backlog = backlog(config.backlog);
        // Those that wait, and those whose handshake is complete meanwhile.
        let (sender, receiver) = channel::bounded(2 * backlog as usize);
        let (streams, sleeper) = (receiver.clone(), Arc::<Sleeper>::default());
        let kind = Kind::Streams(StreamQueue { sender, receiver, sleeper: sleeper.clone() });
        let listener = Listener { reuse_address: config.reuse_address, kind };
        let command = ListenCommand { backlog, tcp: config.tcp, core: config.core };
        let port = self.insert(out, placement, at, listener, command)?;
        Ok(NewStreamListener { port, streams, sleeper })
    }

    /// Has the cores listen at `at`, or at a free port. Returns the port.
    fn insert(
        &mut self,
        out: &mut Outbox,
        placement: &mut Placement,
        at: ListenAddress,
        listener: Listener,
        command: ListenCommand,
    ) -> Result<u16, ListenError> {
        let at = self.free_address(at, listener.reuse_address)?;
        let ListenCommand { backlog, tcp, core } = command;
        placement.place_listener(out.alive(), at.port, core)?;
        self.table.insert(at, listener);
        let ListenAddress { address, port } = at;
        let cores = core.map_or(CoreSet::first(out.cores()), |core| CoreSet::EMPTY.with(core));
        out.command_each(cores, || Command::Listen { address, port, backlog, tcp });
        Ok(port)
    }

    /// Returns the port of `at` if there can be a listener, or one that no listener has if it names none.
    pub(super) fn free_port(&mut self, at: ListenAddress, reuse_address: bool) -> Result<u16, ListenError> {
        self.free_address(at, reuse_address).map(|at| at.port)
    }

    /// Returns the address `at`, with a port that no other listener has if it names none.
    fn free_address(&mut self, at: ListenAddress, reuse_address: bool) -> Result<ListenAddress, ListenError> {
        const FIRST: u16 = limits::EPHEMERAL_PORTS.0;
        const COUNT: u16 = limits::EPHEMERAL_PORTS.1 - FIRST + 1;
        // One of them is free.
        const { assert!(limits::LISTENERS_MAX < COUNT as usize) };
        let conflicts = |(other, listener): (&ListenAddress, &Listener)| {
            other == &at || (other.overlaps(&at) && !(listener.reuse_address && reuse_address))
        };
        if self.table.iter().any(conflicts) {
            return Err(ListenError::PortInUse(at.port));
        }
        if self.table.len() >= self.capacity {
            return Err(ListenError::TooManyListeners);
        }
        if at.port != 0 {
            return Ok(at);
        }
        let mut next = self.next_port.wrapping_add(1);
        let port = loop {
            let port = FIRST + next % COUNT;
            if !self.has_port(port) {
                break port;
            }
            next = next.wrapping_add(1);
        };
        self.next_port = next;
        Ok(ListenAddress { port, ..at })
    }

    /// Listens no more. Returns the connections that no application has taken.
    pub(super) fn unlisten(&mut self, out: &mut Outbox, at: ListenAddress) -> Orphans {
        let Some(listener) = self.table.remove(&at) else { return Orphans::default() };
        let ListenAddress { address, port } = at;
        // A core that has no such listener does nothing.
        out.command_each(CoreSet::first(out.cores()), || Command::Unlisten { address, port });
        match listener.kind {
            Kind::Mpa { listener, awaited } => {
                let arrivals = listener.arrivals.1.try_iter();
                let undecided = arrivals.filter_map(|arrival| match arrival {
                    Arrival::Request { connection, .. } => Some(connection),
                    Arrival::Fault { .. } => None,
                });
                let undecided = undecided.collect();
                Orphans { awaited: awaited.into_keys().collect(), undecided, ..Orphans::default() }
            }
            Kind::Streams(queue) => {
                let streaming = queue.receiver.try_iter().map(|stream| stream.connection).collect();
                Orphans { streaming, ..Orphans::default() }
            }
        }
    }

    /// Handles a peer that has connected at `at`.
    pub(super) fn accept(
        &mut self,
        at: ListenAddress,
        id: ConnectionId,
        pair: SocketPair,
        rdma_option: bool,
    ) -> Accept {
        match self.table.get_mut(&at).map(|listener| &mut listener.kind) {
            Some(Kind::Mpa { listener, awaited }) => {
                awaited.insert(id, pair);
                Accept::AwaitRequest(listener.config)
            }
            Some(Kind::Streams(queue)) => {
                let stream = SharedStream::new(id, pair, rdma_option);
                if queue.push(stream.clone()) { Accept::Streaming(stream) } else { Accept::Refuse }
            }
            None => Accept::Refuse,
        }
    }

    fn mpa(&mut self, at: ListenAddress) -> Option<(&mut MpaListener, &mut Table<ConnectionId, SocketPair>)> {
        match &mut self.table.get_mut(&at)?.kind {
            Kind::Mpa { listener, awaited } => Some((listener, awaited)),
            Kind::Streams(_) => None,
        }
    }

    /// Offers a Request that is complete to the application. Returns false if its queue is full or the
    /// listener was dropped.
    pub(super) fn offer(
        &mut self,
        at: ListenAddress,
        connection: ConnectionId,
        request: PeerRequest,
    ) -> bool {
        let Some((listener, awaited)) = self.mpa(at) else { return false };
        let Some(pair) = awaited.remove(&connection) else { return false };
        listener.offer(Arrival::Request { connection, pair, request })
    }

    /// Reports a peer whose startup failed, as long as that takes no room from peers whose startup does not.
    pub(super) fn report_fault(&mut self, at: ListenAddress, id: ConnectionId, fault: StartupFault) {
        let Some((listener, awaited)) = self.mpa(at) else { return };
        let Some(SocketPair { remote, .. }) = awaited.remove(&id) else { return };
        if listener.arrivals.0.len() < listener.config.backlog as usize {
            listener.offer(Arrival::Fault { remote, fault });
        }
    }
}
