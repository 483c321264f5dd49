//! What control asks of a core.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use siphasher::sip::SipHasher24;

use super::connection::{Mode, Operating, Origin};
use super::listeners::{ListenAddress, listener_for};
use super::ring::{Command, ConnectError, ConnectionId, Direction, Event, FullOperation};
use super::rnr::ReceiveWait;
use super::{Core, Listener, QueuePair};
use crate::device::Device;
use crate::limits;
use crate::memory::{RemoveError, STag};
use crate::net::addresses;
use crate::net::flow::FlowKey;
use crate::qp::reads::Reads;
use crate::qp::receiver::Receiver;
use crate::qp::sender::Sender;
use crate::qp::shared::{QpState, SharedQp};
use crate::qp::work::QpNumber;
use crate::tcp;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

impl<D: Device> Core<D> {
    pub(super) fn take_commands(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for _ in 0..limits::COMMANDS_PER_POLL {
            let Some(command) = self.rings.commands.pop() else { break };
            busy = true;
            self.on_command(now, command);
        }
        if busy {
            // There is room for other commands, and queue pairs may have changed their state.
            self.events.note();
        }
        busy
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Listen { address, port, backlog, tcp } => {
                self.listen(ListenAddress { address, port }, backlog, tcp);
            }
            Command::Unlisten { address, port } => {
                let at = ListenAddress { address, port };
                self.listeners.retain(|listener| listener.at != at);
            }
            Command::Connect { token, local, remote, timeout_ns, tcp } => {
                if let Err(error) = self.connect(now, token, (local, remote), timeout_ns, tcp) {
                    self.events.push(Event::ConnectFailed { token, error });
                }
            }
            Command::Admit { connection } => self.admit(connection),
            Command::Stream { connection, octets, then } => self.send_stream(now, connection, octets, then),
            Command::Take { connection, octets } => self.take_stream(now, connection, octets),
            Command::Start { connection, operation } => self.start(now, connection, operation),
            Command::StartUnnegotiated { connection, operation, direction } => {
                self.start_unnegotiated(now, connection, operation, direction);
            }
            Command::ExpectFpdu { connection, within_ns } => self.expect_fpdu(now, connection, within_ns),
            Command::Close { connection } => self.close(connection),
            Command::Disconnect { connection, within_ns } => {
                self.close(connection);
                if let Some(connection) = self.connection(connection) {
                    connection.close_within(now, within_ns);
                }
            }
            Command::Abort { connection } => self.abort(connection),
            Command::CreateQp(shared) => self.create_qp(shared),
            Command::DestroyQp(number) => self.destroy_qp(number),
            Command::Register { stag, grant } => {
                let result = self.stags.insert(stag, grant);
                self.events.push(Event::Registered { stag, result });
            }
            Command::AllocateWindow { stag, pd } => {
                let result = self.stags.allocate_window(stag, pd);
                self.events.push(Event::Registered { stag, result });
            }
            Command::Deregister { stag } => self.deregister(stag),
            Command::ReportStatistics => self.events.push(Event::Statistics(Box::new(self.statistics()))),
            Command::ReportConnection { connection } => {
                let report = self.tcp(connection).map(|tcp| Box::new(tcp.snapshot()));
                self.events.push(Event::ConnectionReport(report));
            }
        }
    }

    fn listen(&mut self, at: ListenAddress, backlog: u32, tcp: Option<tcp::Behaviour>) {
        let behaviour = tcp.unwrap_or(self.tcp);
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.at == at) {
            (listener.backlog, listener.tcp) = (backlog, behaviour);
        } else if self.listeners.len() < limits::LISTENERS_PER_CORE {
            self.listeners.push(Listener::new(at, backlog, behaviour));
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        token: u64,
        (local, remote): (Option<SocketAddr>, SocketAddr),
        timeout_ns: u64,
        tcp: Option<tcp::Behaviour>,
    ) -> Result<(), ConnectError> {
        // An IPv4-mapped IPv6 address stands for an IPv4 address (RFC 4291 §2.5.5.2).
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        self.host.next_hop(remote.ip()).ok_or(ConnectError::NoRoute)?;
        let (address, port) = self.local_end(local, remote.ip())?;
        let (key, beyond) = self.free_port(now, (address, port), remote).ok_or(ConnectError::NoPort)?;
        let mut iss = self.initial_sequence_number(key, now);
        if let Some(beyond) = beyond {
            iss = iss.later(beyond);
            self.time_waits.remove(&key);
            self.statistics.time_waits_reused += 1;
        }
        let behaviour = tcp.unwrap_or(self.tcp);
        let tcp = tcp::Connection::connect(self.tcp_config(key, behaviour), iss);
        let index = self.insert_connection(key, Origin::Connect(token), tcp).ok_or(ConnectError::NoRoom)?;
        if let Some(connection) = self.slots[index as usize].connection.as_mut() {
            connection.abort_at = now + timeout_ns;
        }
        Ok(())
    }

    /// Our address for a connection to `remote`, and its port if that is not left to us. An unspecified
    /// address is left to us too.
    fn local_end(
        &self,
        local: Option<SocketAddr>,
        remote: IpAddr,
    ) -> Result<(IpAddr, Option<u16>), ConnectError> {
        let address =
            local.map(|local| local.ip().to_canonical()).filter(|address| !address.is_unspecified());
        let port = local.map(|local| local.port()).filter(|port| *port != 0);
        let own = |address: &IpAddr| self.host.addresses().iter().any(|own| own.address == *address);
        let address = match address {
            None => addresses::source_for(self.host.addresses(), remote).ok_or(ConnectError::NoRoute)?,
            Some(address) if !own(&address) => return Err(ConnectError::NoAddress),
            Some(address) if address.is_ipv4() != remote.is_ipv4() => return Err(ConnectError::NoRoute),
            Some(address) => address,
        };
        Ok((address, port))
    }

    /// A free local port for a connection to `remote`, no listening one, or `port` if it is free towards
    /// `remote`; and where the sequence numbers of the connection that had it last end. Ports in TIME-WAIT
    /// come last, and only where timestamps tell old segments from new ones (RFC 6191 §2, from our side: our
    /// clock has ticked since).
    fn free_port(
        &mut self,
        now: Instant,
        (local, port): (IpAddr, Option<u16>),
        remote: SocketAddr,
    ) -> Option<(FlowKey, Option<SeqNumber>)> {
        let Self { ports, flows, slots, listeners, time_waits, .. } = self;
        time_waits.expire(now);
        let key = |local_port| FlowKey { local, remote: remote.ip(), remote_port: remote.port(), local_port };
        let listens = |port| listener_for(listeners, local, port).is_some();
        // A connection has two ends: an address and port of ours that connects to itself has one.
        let itself = |port| local == remote.ip() && port == remote.port();
        let unused = |port| flows.get(slots, &key(port)).is_none() && !itself(port);
        let rested = |port| time_waits.rested(now, &key(port));
        if let Some(port) = port.filter(|port| unused(*port)) {
            let remains = rested(port);
            let free = remains.is_some() || !time_waits.contains(&key(port));
            return free.then(|| (key(port), remains.map(|remains| remains.beyond())));
        }
        if port.is_some() {
            return None;
        }
        let unused = |port| unused(port) && !listens(port);
        let to = (remote.ip(), remote.port());
        if let Some(port) = ports.pick(local, to, |port| unused(port) && !time_waits.contains(&key(port))) {
            return Some((key(port), None));
        }
        let port = ports.pick(local, to, |port| unused(port) && rested(port).is_some())?;
        Some((key(port), rested(port).map(|remains| remains.beyond())))
    }

    /// RFC 6528: a keyed hash of the four numbers and a clock of 4 microseconds.
    pub(super) fn initial_sequence_number(&self, key: FlowKey, now: Instant) -> SeqNumber {
        SeqNumber((self.flow_hash(key) as u32).wrapping_add((now.as_nanos() / 4000) as u32))
    }

    fn flow_hash(&self, key: FlowKey) -> u64 {
        let [key0, key1] = self.secret;
        let mut hasher = SipHasher24::new_with_keys(key0, key1);
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// How TCP of `key` is set up.
    pub(super) fn tcp_config(&self, key: FlowKey, behaviour: tcp::Behaviour) -> tcp::Config {
        // MPA-5.1-02
        let mss_octets = self.host.mss_octets(key.remote);
        // MPA-A.5-03, C00-13-01: an FPDU that fills a segment of our link finds room, in however many segments it comes.
        let window_min = u32::from(mss_octets).max(limits::REASSEMBLY_FLOOR_OCTETS);
        tcp::Config {
            mss_octets,
            window_octets: self.window_octets.clamp(window_min, limits::WINDOW_OCTETS_MAX),
            // The half of the hash that the sequence number does not show.
            timestamp_offset: (self.flow_hash(key) >> 32) as u32,
            behaviour,
        }
    }

    pub(super) fn start(&mut self, now: Instant, id: ConnectionId, operation: FullOperation) {
        if !self.is_startable(id) {
            return;
        }
        self.enter_full_operation(id, operation);
        self.mark_dirty(id.index);
        // The peer may have been quick: its octets wait in order, and perhaps its FIN behind them.
        self.take_again(now, id.index);
    }

    /// Returns true if Full Operation may begin on the connection: it is there, and [`Event::Closed`] was not
    /// sent. That event was on its way when control gave a command that is refused here, and it tells control
    /// that the queue pair stays idle.
    fn is_startable(&mut self, id: ConnectionId) -> bool {
        let startable = self.connection(id).is_some_and(|connection| !connection.told_closed);
        self.statistics.starts_refused += u64::from(!startable);
        startable
    }

    /// MPA-7.1-01: from here on, FPDUs in both directions. The place is fixed by the order of the streams, not by time:
    /// whatever TCP has to repair meanwhile, it repairs (MPA-7.1.5-03, MPA-7.1.5-04, C00-8.1-01).
    fn enter_full_operation(&mut self, id: ConnectionId, operation: FullOperation) {
        let Some(connection) = self.slots[id.index as usize].connection.as_mut() else { return };
        let bound = match connection.mode {
            Mode::Streaming => self.qps.bind(operation.qp, id),
            Mode::FullOperation(_) | Mode::Lingering { .. } => None,
        };
        let Some((qp_id, qp)) = bound else {
            // MPA-7.1-04: without a bound endpoint there is no Full Operation.
            self.statistics.starts_refused += 1;
            connection.tcp.abort();
            return;
        };
        connection.mode = Mode::FullOperation(Operating::new(operation, qp_id, connection.send_end()));
        connection.lent_octets = 0;
        qp.begin(&operation);
        self.leave_backlog(id.index);
    }

    /// C00-8.1-01, C00-8.1-02: from here on, FPDUs in `direction`.
    fn start_unnegotiated(
        &mut self,
        now: Instant,
        id: ConnectionId,
        operation: FullOperation,
        direction: Direction,
    ) {
        if !self.is_startable(id) {
            return;
        }
        self.mark_dirty(id.index);
        let Some(connection) = self.slots[id.index as usize].connection.as_mut() else { return };
        let send_start = connection.send_end();
        match connection.qp() {
            // The other direction follows.
            Some(qp_id) if qp_id.number == operation.qp && self.qps.get(qp_id).is_some() => {}
            None if let Some((qp_id, qp)) = self.qps.bind(operation.qp, id) => {
                connection.mode = Mode::FullOperation(Operating::unnegotiated(operation, qp_id, send_start));
                qp.begin(&operation);
            }
            _ => {
                // MPA-7.1-04
                self.statistics.starts_refused += 1;
                connection.tcp.abort();
                return;
            }
        }
        if let Mode::FullOperation(operating) = &mut connection.mode {
            operating.start(direction, send_start);
        }
        if direction.receives() {
            connection.lent_octets = 0;
            // The peer's end means something else behind FPDUs.
            connection.told_finished = false;
        }
        self.leave_backlog(id.index);
        self.take_again(now, id.index);
    }

    fn expect_fpdu(&mut self, now: Instant, id: ConnectionId, within_ns: u64) {
        let Some(connection) = self.connection(id) else { return };
        if let Mode::FullOperation(operating) = &mut connection.mode
            && !operating.may_send
        {
            operating.silent_until = now + within_ns;
            self.mark_dirty(id.index);
        }
    }

    fn admit(&mut self, id: ConnectionId) {
        if self.connection(id).is_some() {
            self.leave_backlog(id.index);
        }
    }

    /// The connection counts in its listener's backlog no longer.
    fn leave_backlog(&mut self, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        let (remote, opened) = (connection.key.remote, connection.announced);
        if core::mem::take(&mut connection.in_backlog)
            && let Some(listener) = connection.listener()
        {
            self.no_longer_in_backlog(listener, remote, opened);
        }
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection(id) else { return };
        connection.closing = true;
        let qp = connection.qp();
        self.mark_dirty(id.index);
        if let Some(qp) = qp.and_then(|id| self.qps.get(id))
            && qp.shared.state() == QpState::ReadyToSend
        {
            qp.shared.set_state(QpState::Closing);
        }
    }

    fn abort(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection(id) else { return };
        connection.tcp.abort();
        self.mark_dirty(id.index);
        self.on_closed(id.index);
    }

    fn create_qp(&mut self, shared: Arc<SharedQp>) {
        let sender = Sender::new(shared.send_depth());
        let receiver = Receiver::new(shared.receive_depth());
        let qp = QueuePair {
            shared,
            sender,
            receiver,
            reads: Reads::default(),
            connection: None,
            receive_wait: ReceiveWait::new(None),
        };
        let inserted = self.qps.insert(qp);
        debug_assert!(inserted, "control gave out a queue pair number twice");
    }

    fn destroy_qp(&mut self, number: QpNumber) {
        // A slot that serves another connection by now is none of the queue pair's business.
        if let Some(id) = self.qps.numbered(number).and_then(|qp| qp.connection)
            && self.connection(id).is_some()
        {
            let lingers = self.keep_terminate(id);
            if let Some(connection) = self.connection(id)
                && !lingers
            {
                connection.tcp.abort();
            }
            self.mark_dirty(id.index);
            self.on_closed(id.index);
            if lingers {
                self.leave_queue_pair(id.index);
            }
        }
        if let Some(mut qp) = self.qps.remove(number) {
            // No doorbell leads to it any more: what was posted now would never be flushed.
            qp.shared.refuse_posts();
            qp.shared.set_state(QpState::Error);
            qp.flush(&mut self.stags, &mut self.placed_sends, None);
        }
        // Its number will be another's.
        self.stags.end_stream(number.0);
        self.events.push(Event::QpDestroyed(number));
    }

    fn deregister(&mut self, stag: STag) {
        // Sends that were posted before read from the memory too, even if their doorbell is not answered yet. Those that cannot be
        // taken yet may do so as well.
        let owner = self.stags.owner(stag);
        let mut unknown = false;
        for qp in self.qps.iter_mut().filter(|qp| !qp.shared.state().is_over()) {
            qp.sender.take_posted(&qp.shared, &mut self.stags);
            unknown |= Some(qp.shared.accessor().pd) == owner && qp.sender.may_be_posted(&qp.shared);
        }
        let result = if unknown { Err(RemoveError::InUse) } else { self.stags.remove(stag) };
        self.events.push(Event::Deregistered { stag, result });
    }
}
