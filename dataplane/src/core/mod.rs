//! One poll loop: frames in, frames out, connections and queue pairs between.
//!
//! A [`Core`] owns everything it touches; nothing here is shared, locked or reference-counted with other cores. Control
//! talks to it over [`ring`], applications over the rings of their queue pairs.

mod backlog_shares;
mod commands;
pub mod connection;
mod cut;
mod events;
mod flows;
mod icmp_errors;
mod linger;
pub mod listeners;
mod nudge;
mod opening;
mod placement;
mod ports;
mod queue_pairs;
mod receive;
pub mod ring;
mod rnr;
mod send_stream;
mod shortage;
pub mod statistics;
mod stream;
mod streaming;
mod syn_cookies;
pub mod tables;
mod time_wait;
mod transmit;
mod wheel;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::device::{Device, RxInterrupt};
use crate::limits;
use crate::memory::StagTable;
use crate::net::addresses::{Addresses, Cidr, Routes};
use crate::net::flow::FlowKey;
use crate::net::neighbours::StaticNeighbour;
use crate::net::{self, Host};
use crate::ordered::OrderedPool;
use crate::pool::Pool;
use crate::qp::error::StreamError;
use crate::qp::reads::Reads;
use crate::qp::receiver::{PlacedSegment, Receiver};
use crate::qp::sender::Sender;
use crate::qp::shared::{QpState, SharedQp};
use crate::qp::work::QpNumber;
use crate::rate_limit::RateLimit;
use crate::secret::{Purpose, Secret};
use crate::tcp;
use crate::tcp::receive_queue::HeldPool;
use crate::time::Instant;
use crate::waker::Waker;
use backlog_shares::BacklogShares;
use connection::{Chunk, Connection, Mode};
use cut::CutRuns;
use events::Events;
use flows::Flows;
use listeners::ListenAddress;
use ports::Ports;
use queue_pairs::QueuePairs;
use ring::{ConnectionId, FullOperation, Rings};
use rnr::ReceiveWait;
use statistics::Statistics;
use syn_cookies::SynCookies;
use tables::Tables;
use time_wait::TimeWaits;
use wheel::Wheel;

/// How a core is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its addresses, IPv4 and IPv6, each with the prefix of its network.
    pub addresses: Addresses,
    /// Its routes to other networks.
    pub routes: Routes,
    /// Neighbours whose hardware address is known beforehand.
    pub neighbours: ArrayVec<StaticNeighbour, { limits::STATIC_NEIGHBOURS_PER_CORE }>,
    /// Whether it probes for other stations that have its IPv6 addresses before it uses them (RFC 4862 §5.4): for one to two
    /// seconds after the start. Without it, it uses the addresses at once.
    pub duplicate_address_detection: bool,
    /// The VLAN that all frames belong to, 1 to 4094, by an IEEE 802.1Q tag; `None` for frames without one.
    pub vlan: Option<u16>,
    /// Octets a peer may have in flight on one connection.
    pub window_octets: u32,
    /// First and last local port of connections this core opens. Cores that share an address must not share ports.
    pub ports: (u16, u16),
    /// How its connections behave unless they are asked for otherwise.
    pub tcp: tcp::Behaviour,
    /// Whether streaming octets stay with TCP until control says that it has taken them ([`ring::Command::Take`]): whoever
    /// does not take them is sent no more than the window, and Full Operation can begin at any octet that was not taken.
    /// Control is then told what the peer has acknowledged of its own ([`ring::Event::StreamAcknowledged`]). Without, they
    /// are taken as they are handed up: that is enough for MPA's startup.
    pub lends_stream: bool,
    /// Secret of initial sequence numbers and ports: different on every start (RFC 6528).
    pub secret: [u64; 2],
}

impl Config {
    /// Octets of the window unless changed: a millisecond at 16 Gbit/s.
    pub const WINDOW_OCTETS: u32 = {
        let octets = 2 << 20;
        // What a whole window of Ethernet's full frames takes behind a single loss, or the peer sends much of it in vain.
        let beyond_gap = limits::HELD_FRAMES_PER_CONNECTION - limits::HELD_FRAMES_IN_ORDER;
        assert!(beyond_gap * 1428 >= octets as usize, "the frames held are too few for the window");
        octets
    };

    /// The usual, with one address: no routes, no VLAN, a window of 2 MiB.
    pub fn new(address: IpAddr, prefix_bits: u8, secret: [u64; 2]) -> Self {
        Self {
            addresses: [Cidr::new(address, prefix_bits)].into_iter().collect(),
            routes: Routes::new(),
            neighbours: ArrayVec::new(),
            duplicate_address_detection: true,
            vlan: None,
            window_octets: Self::WINDOW_OCTETS,
            ports: limits::EPHEMERAL_PORTS,
            tcp: tcp::Behaviour::default(),
            lends_stream: false,
            secret,
        }
    }
}

/// A queue pair at its core.
struct QueuePair {
    shared: Arc<SharedQp>,
    sender: Sender,
    receiver: Receiver,
    /// What both halves know of Reads under way.
    reads: Reads,
    /// The connection it runs on.
    connection: Option<ConnectionId>,
    /// How long messages may wait for a receive.
    receive_wait: ReceiveWait,
}

impl QueuePair {
    /// Whether it has had no connection yet. Each queue pair serves one.
    fn is_unbound(&self) -> bool {
        self.connection.is_none() && self.shared.state() == QpState::Idle
    }

    /// Its stream begins.
    fn begin(&mut self, operation: &FullOperation) {
        self.sender.begin(operation.version, operation.ready, operation.depths.ord);
        self.receiver.begin(operation.version, operation.ready);
        self.receiver.take_posted(&self.shared);
        self.reads.begin(operation.depths);
        self.receive_wait = ReceiveWait::new(operation.receive_wait_ns);
        self.shared.set_ord(operation.depths.ord);
        self.shared.set_state(QpState::ReadyToSend);
    }

    /// Ends all that is posted and under way.
    fn flush(
        &mut self,
        stags: &mut StagTable,
        placed: &mut OrderedPool<PlacedSegment>,
        error: Option<StreamError>,
    ) {
        self.sender.flush(&self.shared, stags, error);
        self.receiver.flush(&self.shared, placed, error);
        self.reads.flush(stags);
    }
}

/// A port that takes connections.
struct Listener {
    at: ListenAddress,
    /// Bounds each of the two below.
    backlog: u32,
    /// How TCP behaves on its connections.
    tcp: tcp::Behaviour,
    /// Connections whose handshake is not complete.
    opening: u32,
    /// Connections that are open and not yet in Full Operation.
    starting: u32,
}

/// A place for a connection. The generation outlives the connection, so that old names find nothing.
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// One poll loop and all it owns.
pub struct Core<D: Device> {
    /// As in [`Config`].
    window_octets: u32,
    /// As in [`Config`].
    tcp: tcp::Behaviour,
    /// As in [`Config`].
    lends_stream: bool,
    /// As in [`Config`].
    secret: [u64; 2],

    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    flows: Flows,
    listeners: Vec<Listener>,
    backlog_shares: BacklogShares,
    /// Half-open connections of all ports.
    opening: usize,
    /// SYNs that got a connection in this poll.
    syns_this_poll: usize,
    syn_cookies: SynCookies,
    time_waits: TimeWaits,
    ports: Ports,
    /// RSTs to segments of no connection.
    resets: RateLimit,
    wheel: Wheel,
    /// Connections that may have something to send.
    dirty: Vec<u32>,

    pools: tcp::Pools<Chunk, D::Frame>,
    /// Segments placed before their turn whose Delivery is remembered.
    placed_sends: OrderedPool<PlacedSegment>,
    /// Connections on which a message waits for a shared receive queue, the longest waiting first. Each is in
    /// it once.
    awaiting_shared: VecDeque<ConnectionId>,
    /// Octets kept for connections whose queue pairs are gone.
    lingering_octets: usize,
    /// When connections that hold frames are looked at next, if frames are short.
    relief_at: Instant,
    stags: StagTable,
    qps: QueuePairs,

    rings: Rings,
    events: Events,
    statistics: Statistics,

    /// FPDUs that were sent in part, by the connection's slot: few connections have any.
    cut: BTreeMap<u32, CutRuns>,
    /// Octets kept of them, and how many they may be.
    cut_octets: usize,
    cut_octets_max: usize,

    /// Dropped last: frames go back to its device.
    host: Host<D>,
}

impl<D: Device> Core<D> {
    /// A core on `device` that talks to control over `rings`. Allocates everything it will need.
    pub fn new(device: D, config: Config, rings: Rings) -> Self {
        Self::with_tables(device, config, rings, Tables::default())
    }

    /// As [`new`](Self::new), with tables of other sizes.
    pub fn with_tables(device: D, config: Config, rings: Rings, tables: Tables) -> Self {
        let Config { addresses, routes, neighbours, duplicate_address_detection, vlan, .. } = config;
        let host = net::Config { addresses, routes, neighbours, duplicate_address_detection, vlan };
        let Config { window_octets, ports, tcp, lends_stream, secret: words, .. } = config;
        let secret = Secret::new(words);
        let held_frames = tables.held_frames.min(device.capabilities().frames / 2);
        let slots = (0..tables.connections).map(|_| Slot { generation: 0, connection: None }).collect();
        Self {
            window_octets,
            tcp,
            lends_stream,
            secret: words,
            slots,
            free_slots: (0..tables.connections as u32).rev().collect(),
            flows: Flows::new(tables.connections, secret.derive(Purpose::Flows)),
            listeners: Vec::with_capacity(limits::LISTENERS_PER_CORE),
            backlog_shares: BacklogShares::new(secret.derive(Purpose::BacklogShares)),
            opening: 0,
            syns_this_poll: 0,
            syn_cookies: SynCookies::new(secret.derive(Purpose::SynCookies)),
            time_waits: TimeWaits::new(tables.time_waits, secret.derive(Purpose::TimeWaits)),
            ports: Ports::new(
                ports,
                [secret.derive(Purpose::PortOffsets), secret.derive(Purpose::PortCounters)],
            ),
            resets: RateLimit::new(limits::RESETS_PER_SECOND, secret.derive(Purpose::Resets)),
            wheel: Wheel::new(tables.connections),
            dirty: Vec::with_capacity(tables.connections),
            pools: tcp::Pools {
                segments: Pool::new(tables.send_descriptors),
                held: HeldPool::new(held_frames, tables.placed_runs),
                challenges: RateLimit::new(limits::CHALLENGES_PER_SECOND, secret.derive(Purpose::Challenges)),
                scan_budget: tcp::scan_budget::ScanBudget::new(),
            },
            placed_sends: OrderedPool::new(tables.placed_sends),
            awaiting_shared: VecDeque::with_capacity(tables.queue_pairs),
            lingering_octets: 0,
            relief_at: Instant::ZERO,
            stags: StagTable::with_slots(tables.regions),
            qps: QueuePairs::new(tables.queue_pairs),
            events: Events::new(rings.events.clone()),
            rings,
            statistics: Statistics::default(),
            cut: BTreeMap::new(),
            cut_octets: 0,
            cut_octets_max: tables.cut_octets,
            host: Host::new(device, host, secret),
        }
    }

    /// Does everything there is to do at `now`. Gives whether there was anything.
    pub fn poll_once(&mut self, now: Instant) -> bool {
        let mut busy = self.take_commands(now);
        busy |= self.answer_doorbells(now);
        self.syns_this_poll = 0;
        self.pools.scan_budget.begin_poll();
        busy |= self.receive(now);
        busy |= self.receive_looped(now);
        busy |= self.begin_addresses(now);
        busy |= self.expire_timers(now);
        busy |= self.transmit(now);
        busy |= self.host.looped_frames() > 0;
        self.events.flush();
        self.statistics.polls += 1;
        if !busy {
            self.statistics.idle_polls += 1;
        }
        busy
    }

    /// Whether control has something to look at since the last call: an event, or what a command has changed.
    /// Whoever polls the core then wakes control.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        self.events.take_news()
    }

    /// Whether events wait for room in the ring to control: nothing tells the core when there is some.
    pub fn has_waiting_events(&self) -> bool {
        self.events.waiting() > 0
    }

    /// Has `waker` called when frames arrive; `false` if the device cannot do that.
    pub fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.host.wake_on_arrival(waker)
    }

    /// See [`Device::rx_interrupt`].
    pub fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.host.rx_interrupt()
    }

    /// See [`Device::enable_rx_interrupt`].
    pub fn enable_rx_interrupt(&mut self) -> bool {
        self.host.enable_rx_interrupt()
    }

    /// See [`Device::disable_rx_interrupt`].
    pub fn disable_rx_interrupt(&mut self) {
        self.host.disable_rx_interrupt();
    }

    /// When [`poll_once`](Self::poll_once) must be called again even if nothing arrives and nothing is posted.
    pub fn next_deadline(&self) -> Instant {
        self.wheel.next_deadline().min(self.host.next_deadline())
    }

    /// The counters, with those of the connections there are.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.statistics.clone();
        statistics.add_host(self.host.counters());
        for connection in self.slots.iter().filter_map(|slot| slot.connection.as_ref()) {
            statistics.tcp.add(connection.tcp.counters());
        }
        statistics.held_frames = self.pools.held.frames() as u64;
        statistics.held_frames_peak = self.pools.held.frames_peak() as u64;
        statistics.nodes_visited = self.pools.held.visits() + self.placed_sends.visits();
        statistics.searches_refused = self.pools.scan_budget.refused();
        statistics
    }

    /// The TCP connection that `id` names, for tests and tools.
    pub fn tcp(&self, id: ConnectionId) -> Option<&tcp::Connection> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.connection.as_ref().map(|connection| &connection.tcp)
    }

    /// Has every queue of a queue pair go on at message number `next`, in both directions, as if all before
    /// had been exchanged. For tests: the wrap (RFC 5041 §4.3) is 2^32 messages away otherwise.
    #[doc(hidden)]
    pub fn continue_message_numbers(&mut self, qp: QpNumber, next: u32) {
        if let Some(qp) = self.qps.numbered(qp) {
            qp.sender.continue_message_numbers(next);
            qp.receiver.continue_message_numbers(next);
            qp.reads.inbound.continue_message_numbers(next);
        }
    }

    /// The device, for tests and tools.
    pub const fn device(&self) -> &D {
        self.host.device()
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.connection.as_mut() } else { None }
    }

    fn insert_connection(
        &mut self,
        key: FlowKey,
        origin: connection::Origin,
        tcp: tcp::Connection,
    ) -> Option<u32> {
        let index = self.free_slots.pop()?;
        let flow_label = self.host.flow_label(&key);
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(Connection::new(key, flow_label, origin, tcp));
        self.flows.insert(&self.slots, &key, index);
        self.mark_dirty(index);
        Some(index)
    }

    fn remove_connection(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(mut connection) = slot.connection.take() else { return };
        let id = ConnectionId { index, generation: slot.generation };
        slot.generation = slot.generation.wrapping_add(1);
        self.forget_waiting(id, connection.awaits_shared_receive());
        connection.tcp.release(&mut self.pools);
        if let Some(cut) = self.cut.remove(&index) {
            self.cut_octets -= cut.octets();
        }
        self.statistics.tcp.add(connection.tcp.counters());
        self.flows.remove(&connection.key, index);
        self.wheel.set(index, Instant::NEVER);
        if let Mode::Lingering { kept_octets } = connection.mode {
            self.lingering_octets -= kept_octets;
        }
        self.free_slots.push(index);
        if connection.in_backlog
            && let Some(listener) = connection.listener()
        {
            self.no_longer_in_backlog(listener, connection.key.remote, connection.announced);
        }
    }

    fn mark_dirty(&mut self, index: u32) {
        if let Some(connection) = self.slots[index as usize].connection.as_mut()
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(index);
        }
    }

    fn answer_doorbells(&mut self, now: Instant) -> bool {
        let mut busy = self.rings.doorbells.take_shared_receives();
        if busy {
            self.resume_sharing(now);
        }
        for _ in 0..limits::DOORBELLS_PER_POLL {
            let Some(number) = self.rings.doorbells.take() else { break };
            busy = true;
            self.answer_doorbell(now, number);
        }
        busy
    }

    fn answer_doorbell(&mut self, now: Instant, number: QpNumber) {
        let Some(qp) = self.qps.numbered(number) else { return };
        qp.shared.clear_doorbell();
        match qp.connection {
            Some(connection) => {
                if qp.shared.state().is_over() {
                    // Those on their way still have their buffers: what is posted behind them waits for them.
                    qp.receiver.flush(&qp.shared, &mut self.placed_sends, None);
                    qp.sender.flush_after_close(&qp.shared);
                }
                self.resume_if_ready(now, connection.index);
                self.mark_dirty(connection.index);
            }
            // Posted while the queue pair was coming to its end.
            None if qp.shared.state() == QpState::Error => {
                qp.flush(&mut self.stags, &mut self.placed_sends, None);
            }
            None => {}
        }
    }

    fn expire_timers(&mut self, now: Instant) -> bool {
        self.time_waits.expire(now);
        let mut busy = false;
        for _ in 0..limits::TIMERS_PER_POLL {
            // What is due beyond that keeps its place in the wheel until the next poll.
            let Some(index) = self.wheel.pop_due(now) else { break };
            busy = true;
            let Some(connection) = self.slots[index as usize].connection.as_mut() else { continue };
            let mut progress = connection.tcp.on_timer(now, &mut self.pools);
            if connection.abort_at <= now {
                progress |= connection.end_in_time();
            }
            let overdue = connection.fpdu_due() <= now;
            let receive_overdue = connection.receive_due(&self.qps) <= now;
            self.nudge(now, index);
            self.mark_dirty(index);
            self.on_progress(now, index, progress);
            if receive_overdue {
                self.end_wait(now, index);
            }
            if overdue {
                // before the first FPDU there is no Terminate.
                self.fail_stream(now, index, StreamError::NoFpdu, None);
            }
        }
        busy
    }
}
