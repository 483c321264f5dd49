//! One poll loop: frames in, frames out, and the endpoints between.
//!
//! A [`Core`] connects layers that do not name each other: the IP `Host` with its device, the connection
//! table, the `Endpoints` and the rings to control. It hands each input to one endpoint, and applies what
//! that changes. A core owns everything it uses; nothing here is shared, locked or reference-counted with
//! other cores. Control talks to it over [`ring`](crate::ring), applications over the rings of their queue
//! pairs, and the other cores of its device over rings from one to the other ([`Place`]).
//!
//! # What it consists of
//!
//! `poll.rs` is the order of a poll. Inputs come in by `receive.rs`, `commands.rs` and `doorbells.rs`, and
//! the endpoints apply what follows from each (`endpoint/outcome.rs`); `transmit.rs` serves the connections
//! that are scheduled. State beside the endpoints has types of its own: `Handshakes` opens connections and
//! answers segments that belong to none, `Eviction` fails connections that hold too many frames,
//! `PathWaiters` and `Reports` visit all of them.
//!
//! # When data is acknowledged
//!
//! In a core that its application polls itself (`Core::poll_run_to_completion`), a connection that has
//! received data is served by the next poll, after the application has run: what it answers to the data
//! carries the acknowledgement, and one segment goes in each direction where two would. What follows from an
//! acknowledgement or a timer only does not wait for that. A core with a thread of its own sends the
//! acknowledgement in the same poll, because it cannot know when an application on another thread will look.
//!
//! # Work that takes several polls
//!
//! No poll looks at all connections or all queue pairs: with 100,000 of them, frames would wait for
//! milliseconds. Most events concern those of a list: connections without a path to their peer, queue pairs
//! with posted requests, timers of a tick. Where all are concerned, each poll visits a bounded number of
//! them, and the next goes on: a report of the counters, the look for those that hold frames. So it does
//! where a list is long. A command that takes several polls has those after it wait. Until all is done,
//! [`Core::has_scheduled`] is true.
//!
//! # Time
//!
//! Protocol code reads no clock. `poll_once(now)` is given the time and `next_deadline()` says when it must
//! be called again. Timers lie in a wheel of 4096 slots of about a millisecond, at a cost per poll that does
//! not grow with the number of connections. A poll receives a burst of frames before it handles timers. If a
//! timer is due, the burst was full and the poll before was more than 100 us ago, the loop has stalled: up to
//! 64 bursts are received first, so that an acknowledgement that has arrived counts before the timer that
//! waits for it. The simulated network (`dataplane::device::sim`) runs two cores in virtual time: seeded
//! loss, reordering, duplication, corruption, resegmentation, and every failure is replayed from its seed.

mod active_open;
mod commands;
mod config;
mod connection_commands;
mod core_frame;
mod demultiplexing;
mod deregistration;
mod doorbells;
mod eviction;
mod handshakes;
mod look_ahead;
mod passive_open;
mod path_waiters;
mod poll;
mod receive;
mod reports;
mod resets;
mod revocation;
mod sending;
mod setup;
pub mod tables;
#[cfg(feature = "testing")]
pub mod testing;
mod transmit;
mod unmatched;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::byte_stream::TransferCounters;
#[cfg(feature = "testing")]
use crate::conn::ConnectionId;
use crate::conn::{Listeners, Orphans, Table};
use crate::device::{Capabilities, Device, RxInterrupt};
use crate::endpoint::{Context, CutRunStore, Endpoints, QueuePairs, ReceiveWaiters, Unaccepted};
use crate::limits;
use crate::memory::StagTable;
use crate::net::Host;
use crate::ordered::OrderedPool;
#[cfg(feature = "testing")]
use crate::qp::work::QpNumber;
use crate::rate_limit::RateLimit;
use crate::ring::{Events, Rings};
use crate::secret::{Purpose, Secret};
use crate::statistics::Statistics;
use crate::tcp;
use crate::tcp::receive_queue::HeldPool;
use crate::time::Instant;
use crate::waker::Waker;
use eviction::Eviction;
use handshakes::{Handshakes, Opener};
use path_waiters::PathWaiters;
use reports::Reports;
use tables::{Tables, Usage};

pub use crate::net::place::Place;
pub use config::Config;
pub use core_frame::CoreFrame;
pub use poll::PollLoop;
pub use setup::CoreSetup;

/// One poll loop and everything it owns.
pub struct Core<D: Device> {
    /// Connections and queue pairs.
    endpoints: Endpoints<D::Frame>,
    /// How connections are opened, and what is left of those that are over.
    handshakes: Handshakes<D::Frame>,
    /// Data arrived in this poll that the application may answer.
    data_arrived: bool,
    /// When the core last received what had arrived.
    polled_at: Instant,
    /// A poll before this has nothing to do, unless something has come since the one before; see
    /// [`poll_idly`](Self::poll_idly).
    idle_until: Instant,
    /// The look for connections that hold too many frames.
    eviction: Eviction,
    /// The reports of the counters that control waits for.
    reports: Reports,
    /// The command that was not carried out in one poll.
    unfinished: Option<commands::Unfinished>,
    /// Why connections that wait for a path are visited.
    path_waiters: PathWaiters,
    /// Something that visits many connections or queue pairs goes on in this poll or the next.
    walks_on: bool,
    /// The rings to control and the doorbells of applications.
    rings: Rings,
    /// Dropped last: the frames above go back to its device.
    host: Host<D>,
}

impl<D: Device> Core<D> {
    /// Returns a core on `device`. Reserves room for everything it will need.
    pub fn new(device: D, setup: CoreSetup<D::Frame>) -> Self {
        let CoreSetup { config, rings, tables, place } = setup;
        if let Some(place) = &place {
            place.wake_by(&rings.doorbells);
        }
        let Capabilities { frames, frame_bytes, .. } = device.capabilities();
        let held_frames = tables.held_frames.min(frames / 2);
        let held = HeldPool::new(held_frames, frame_bytes, tables.placed_runs);
        let events = Events::new(rings.events.clone());
        let resets_per_second = part_of(limits::RESETS_PER_SECOND, place.as_ref());
        let secret = Secret::new(config.secret);
        let (first_port, last_port) = config.ports;
        Self {
            endpoints: endpoints(&config, &tables, place.as_ref(), held, events),
            handshakes: Handshakes::new(&config, tables.time_waits, resets_per_second),
            data_arrived: false,
            polled_at: Instant::ZERO,
            idle_until: Instant::ZERO,
            eviction: Eviction::new(),
            reports: Reports::default(),
            unfinished: None,
            path_waiters: PathWaiters::default(),
            walks_on: false,
            rings,
            host: Host::new(device, config.into_host(), secret, place).with_ports(first_port..=last_port),
        }
    }

    /// Returns what opens connections at `now`.
    fn opener(&mut self, now: Instant) -> Opener<'_, D> {
        let Self { handshakes, endpoints, host, .. } = self;
        Opener { now, handshakes, endpoints, host }
    }

    /// Returns true if there is an event for control since the last call, or room for commands. The thread
    /// that polls the core then wakes control.
    #[inline]
    pub fn clear_news(&mut self) -> bool {
        self.endpoints.context.events.clear_news()
    }

    /// Returns true if events wait for room in the ring to control: control does not notify the core when
    /// there is some.
    pub fn has_waiting_events(&self) -> bool {
        self.endpoints.context.events.waiting() > 0
    }

    /// Has `waker` called when frames arrive; see [`Device::wake_on_arrival`].
    pub fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.host.interface.wake_on_arrival(waker)
    }

    /// Returns the device's receive interrupt, see [`Device::rx_interrupt`].
    pub fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.host.interface.rx_interrupt()
    }

    /// Enables the device's receive interrupt, see [`Device::enable_rx_interrupt`].
    pub fn enable_rx_interrupt(&mut self) -> bool {
        self.host.interface.enable_rx_interrupt()
    }

    /// Disables the device's receive interrupt, see [`Device::disable_rx_interrupt`].
    pub fn disable_rx_interrupt(&mut self) {
        self.host.interface.disable_rx_interrupt();
    }

    /// Returns the counters, with those of the connections there are. Visits every connection: for tests and
    /// tools. Control gets a report that takes several polls.
    pub fn statistics(&self) -> Statistics {
        reports::statistics(&self.endpoints, &self.host)
    }

    /// Returns how much of its tables is in use. Visits every listener: for tests and tools.
    pub fn usage(&self) -> Usage {
        let context = &self.endpoints.context;
        Usage {
            connections: self.endpoints.table.len(),
            time_waits: self.handshakes.time_waits.len(),
            half_open: context.listeners.in_backlogs(),
            orphans: context.orphans.len(),
            send_descriptors: context.pools.segments.used(),
            held_frames: context.pools.held.frames(),
            placed_runs: context.pools.held.placed_runs(),
            placed_sends: context.placed_sends.used(),
            queue_pairs: self.endpoints.queue_pairs.len(),
            awaiting_shared: context.receive_waiters.len(),
            cut_octets: context.cut_runs.octets(),
            frames_to_send: self.host.interface.frames_to_send(),
            events_waiting: context.events.waiting(),
        }
    }
}

#[cfg(feature = "testing")]
impl<D: Device> Core<D> {
    /// Returns what became of segments with the TCP RDMA option, summed over all connections so far.
    #[doc(hidden)]
    pub fn transfer_counters(&self) -> TransferCounters {
        reports::transfers(self.endpoints.context.transfers, &self.endpoints.table)
    }

    /// Returns the TCP connection that `id` names.
    #[doc(hidden)]
    pub fn tcp(&self, id: ConnectionId) -> Option<&tcp::Connection> {
        self.endpoints.table.get(id).map(|connection| &connection.tcp)
    }

    /// Has every queue of a queue pair continue at message number `next`, in both directions, as if all
    /// before had been exchanged. For tests: the wrap (RFC 5041 §4.3) is 2^32 messages away otherwise.
    #[doc(hidden)]
    pub fn continue_message_numbers(&mut self, qp: QpNumber, next: u32) {
        if let Some(qp) = self.endpoints.queue_pairs.iter_mut().find(|each| each.shared.number == qp) {
            qp.sender.continue_message_numbers(next);
            qp.receiver.continue_message_numbers(next);
            qp.reads.inbound.continue_message_numbers(next);
        }
    }
}

/// Returns the endpoints of a core that has none yet.
fn endpoints<F>(
    config: &Config,
    tables: &Tables,
    place: Option<&Place<F>>,
    held: HeldPool<F>,
    events: Events,
) -> Endpoints<F> {
    let number = place.map_or(0, Place::core);
    let challenges_per_second = part_of(limits::CHALLENGES_PER_SECOND, place);
    let secret = Secret::new(config.secret);
    let context = Context {
        pools: tcp::Pools {
            segments: tcp::send_queue::SegmentPool::new(tables.send_descriptors),
            held,
            challenges: RateLimit::new(challenges_per_second, secret.derive(Purpose::Challenges)),
            scan_budget: tcp::scan_budget::ScanBudget::new(),
        },
        placed_sends: OrderedPool::new(tables.placed_sends),
        stags: match place.and_then(Place::claims) {
            Some(claims) => StagTable::with_claims(tables.regions, claims.clone(), number),
            None => StagTable::with_slots(tables.regions),
        },
        listeners: Listeners::new(
            tables.listeners,
            tables.connections,
            secret.derive(Purpose::BacklogShares),
        ),
        orphans: Orphans::new(tables.connections, secret.derive(Purpose::Orphans)),
        opening: BTreeMap::new(),
        receive_waiters: ReceiveWaiters::default(),
        unaccepted: Unaccepted::default(),
        cut_runs: CutRunStore::new(tables.cut_octets),
        local_operations_left: limits::LOCAL_OPERATIONS_PER_POLL,
        lingering_octets: 0,
        holds_stream: config.holds_stream,
        events,
        statistics: Statistics::default(),
        transfers: TransferCounters::default(),
        report: None,
    };
    Endpoints {
        table: Table::new(number, tables.connections, secret.derive(Purpose::Flows)),
        queue_pairs: QueuePairs::new(tables.queue_pairs),
        context,
    }
}

/// Returns the part of a core in what a device may do for strangers in a second.
fn part_of<F>(per_second: u32, place: Option<&Place<F>>) -> u32 {
    per_second.div_ceil(place.map_or(1, Place::cores).into())
}
