//! The control thread of a device. It owns names (listeners, STags, queue pair numbers), turns what the API asks into
//! commands for the core, and does MPA startup with the octets that the core hands up. It waits for nobody: what must
//! wait is kept, with a deadline.

mod connections;
mod initiating;
mod memory;
pub(crate) mod names;
mod queue_pairs;
pub mod quota;
pub(crate) mod request;
mod responding;
pub mod startup;
pub(crate) mod streaming;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam::channel::{Receiver, TryRecvError};
use warpline_dataplane::core::ring::{Command, Event, Rings};
use warpline_dataplane::core::statistics::Statistics;
use warpline_dataplane::memory::Grant;
use warpline_dataplane::qp::async_event::{AsyncEvent, AsyncEvents};
use warpline_dataplane::tcp::Snapshot;
use warpline_dataplane::time::{Instant, SECOND};

use crate::handles::device::{CrcPolicy, DeviceConfig, Usage};
use crate::handles::driver::{self, ControlWaker};
use crate::vocabulary::socket_pair::SocketPair;
use connections::Connections;
use memory::{Departure, Registrations};
use names::{StagNames, Unpredictable};
use queue_pairs::QueuePairs;
use request::{Reply, Request};
use responding::Acceptance;
use streaming::Streams;

/// How long a connection that this end has finished may take to close before it is reset.
pub(crate) const LINGER_NS: u64 = 5 * SECOND;
/// How long connections that are being closed may hold up the end of the device.
const END_LINGER_NS: u64 = 2 * SECOND;

/// Commands on their way to the core. The ring is bounded; what it has no room for waits here, so that control never
/// waits for the core.
struct Commands {
    rings: Rings,
    waiting: VecDeque<Command>,
}

impl Commands {
    fn push(&mut self, command: Command) {
        self.waiting.push_back(command);
        self.flush();
    }

    fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.fill();
        // A core that sleeps looks at once.
        self.rings.doorbells.wake();
    }

    fn fill(&mut self) {
        while let Some(command) = self.waiting.pop_front() {
            if let Err(command) = self.rings.commands.push(command) {
                self.waiting.push_front(command);
                return;
            }
        }
    }
}

/// The last handle of the device has gone: nobody will ask for anything any more.
struct Ended;

/// The next time something must be looked at.
struct Alarm(Instant);

impl Alarm {
    fn set(&mut self, at: Instant) {
        self.0 = self.0.min(at);
    }
}

/// The control thread's state: the Privileged Resource Manager of the device. What could hurt others goes through it, and what
/// there is a limited number of comes from it.
// DDP-8.3-06, DDP-8.3.2-01, DDP-8.3.2-02, DDP-8.3.2-03, RDMAP-8.1.2-01
pub(crate) struct Control {
    requests: Receiver<Request>,
    /// By which this thread is woken.
    waker: Arc<ControlWaker>,
    commands: Commands,
    /// Whether somebody still polls the core.
    driver: Arc<AtomicBool>,
    /// Tells the poll thread to end, and whoever asks that control has.
    stop: Arc<AtomicBool>,
    crc: CrcPolicy,
    /// Asynchronous events, for applications.
    events: Arc<AsyncEvents>,
    alarm: Alarm,
    registrations: Registrations,
    queue_pairs: QueuePairs,
    connections: Connections,
    streams: Streams,
    statistics: Vec<Reply<Statistics>>,
    /// Who waits for reports on connections, in the order of asking.
    reports: VecDeque<Reply<Option<Snapshot>>>,
}

impl Control {
    pub(crate) fn new(
        (requests, waker): (Receiver<Request>, Arc<ControlWaker>),
        rings: Rings,
        (driver, stop): (Arc<AtomicBool>, Arc<AtomicBool>),
        (config, events): (&DeviceConfig, Arc<AsyncEvents>),
        mut random: Unpredictable,
    ) -> Self {
        let next_port = random.next() as u16;
        Self {
            requests,
            waker,
            commands: Commands { rings, waiting: VecDeque::new() },
            driver,
            stop,
            crc: config.crc,
            events,
            alarm: Alarm(Instant::NEVER),
            registrations: Registrations::new(StagNames::new(random), &config.quotas),
            queue_pairs: QueuePairs::new(&config.quotas),
            connections: Connections::new(&config.quotas, next_port),
            streams: Streams::default(),
            statistics: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    /// Serves until the last handle of the device is gone and its connections are closed, or nobody polls the
    /// core any more. Sleeps while there is nothing to do: requests wake it, and the core's driver does after
    /// a poll with events.
    pub(crate) fn run(mut self) {
        self.waker.register();
        let mut end_at = None;
        loop {
            let mut busy = self.take_requests().unwrap_or_else(|Ended| {
                end_at.get_or_insert_with(|| driver::now() + END_LINGER_NS);
                false
            });
            // Before the events: what the core did before its driver went is still heard.
            let driven = self.driver.load(Ordering::Acquire);
            busy |= self.take_events();
            self.look_at_time(driver::now());
            self.commands.flush();
            let ended = end_at.is_some_and(|end| !self.has_business() || driver::now() >= end);
            if ended || !driven {
                break;
            }
            if !busy {
                // Whoever gives it something to do after it has looked unparks it, which ends the next sleep
                // at once.
                let until = end_at.map_or(self.alarm.0, |end| end.min(self.alarm.0));
                thread::park_timeout(Duration::from_nanos(until - driver::now()));
            }
        }
    }

    /// Does what was asked; gives whether anything was.
    fn take_requests(&mut self) -> Result<bool, Ended> {
        let mut busy = false;
        loop {
            match self.requests.try_recv() {
                Ok(request) => {
                    busy = true;
                    self.on_request(driver::now(), request);
                }
                Err(TryRecvError::Empty) => return Ok(busy),
                Err(TryRecvError::Disconnected) => return Err(Ended),
            }
        }
    }

    fn take_events(&mut self) -> bool {
        let mut busy = false;
        while let Some(event) = self.commands.rings.events.pop() {
            busy = true;
            self.on_event(driver::now(), event);
        }
        busy
    }

    fn on_request(&mut self, now: Instant, request: Request) {
        match request {
            Request::Register { region, pd, stream, access, addressing, reply } => {
                let base_to = addressing.base_to(&region);
                let stream = stream.map(|qp| qp.0);
                self.register(Grant { region, pd, stream, base_to, access }, reply);
            }
            Request::AllocateWindow { pd, reply } => self.allocate_window(pd, reply),
            Request::Deregister { stag, last, patience, reply } => {
                self.deregister(now, stag, last, Departure { patience, reply });
            }
            Request::CreateQp { pd, config, completions, receives, reply } => {
                reply.send(self.create_qp(pd, config, completions, receives));
            }
            Request::DestroyQp { qp, reply } => self.destroy_qp(now, qp, reply),
            Request::Connect { qp, remote, config, reply } => {
                self.connect(now, initiating::Wish::new(qp, remote, config, reply));
            }
            Request::Listen { at, config, incoming, told, reply } => {
                reply.send(self.listen(at, config, incoming, told));
            }
            Request::Unlisten { at } => self.unlisten(now, at),
            Request::Accept { connection, qp, reads, private_data, reply } => {
                self.accept(now, connection, Acceptance { qp, reads, private_data, reply });
            }
            Request::Reject { connection, private_data, reply } => {
                reply.send(self.reject(now, connection, &private_data));
            }
            Request::Stream(request) => self.on_stream_request(now, request),
            Request::Disconnect { qp } => self.disconnect(&qp),
            Request::Abort { qp } => self.abort(qp),
            Request::Statistics { reply } => {
                self.statistics.push(reply);
                self.commands.push(Command::ReportStatistics);
            }
            Request::ConnectionReport { qp, reply } => self.report_connection(qp, reply),
            Request::Usage { reply } => {
                reply.send(self.usage());
            }
        }
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Accepted { connection, listener, local, remote } => {
                self.on_accepted(now, connection, listener, SocketPair { local, remote });
            }
            Event::Connected { token, connection, local } => {
                self.on_connected(now, token, connection, local);
            }
            Event::ConnectFailed { token, error } => self.on_connect_failed(token, error),
            Event::Stream { connection, octets } => self.on_stream(now, connection, &octets),
            Event::StreamAcknowledged { connection, octets } => {
                if let Some(shared) = self.stream_of(connection) {
                    shared.acknowledged(octets as usize);
                }
            }
            Event::PeerFinished { connection } => self.on_peer_finished(now, connection),
            Event::StreamFailed { connection, .. } => self.on_stream_failed(connection),
            Event::Closed { connection, reason } => self.on_closed(now, connection, reason),
            Event::QpDestroyed(qp) => self.on_qp_destroyed(qp),
            Event::Registered { stag, result } => self.on_registered(stag, result),
            Event::Deregistered { stag, result } => self.on_deregistered(now, stag, result),
            Event::Statistics(statistics) => {
                if !self.statistics.is_empty() {
                    self.statistics.remove(0).send(*statistics);
                }
            }
            Event::ConnectionReport(report) => {
                if let Some(reply) = self.reports.pop_front() {
                    reply.send(report.map(|report| *report));
                }
            }
        }
    }

    /// Does what has become due, and finds the next time to look.
    fn look_at_time(&mut self, now: Instant) {
        self.look_at_starting();
        if now < self.alarm.0 {
            return;
        }
        self.alarm = Alarm(Instant::NEVER);
        self.look_at_connections(now);
        self.look_at_queue_pairs(now);
        self.look_at_registrations(now);
    }

    /// Something is left to do after the last handle has gone.
    fn has_business(&self) -> bool {
        !self.commands.waiting.is_empty()
            || self.registrations.is_pending()
            || !self.queue_pairs.entries.is_empty()
            || !self.connections.is_empty()
            || self.streams.opening() > 0
    }

    fn usage(&self) -> Usage {
        Usage {
            regions: self.registrations.len(),
            queue_pairs: self.queue_pairs.entries.len(),
            listeners: self.connections.listeners.len() + self.streams.listeners(),
            connections: self.connections.len() + self.streams.opening(),
            refused_by_quota: self.registrations.refused()
                + self.queue_pairs.domains.refused()
                + self.connections.refused(),
        }
    }
}

impl Drop for Control {
    /// However control ends, the core is not polled for nothing, and nobody waits for it.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.commands.rings.doorbells.wake();
        self.events.report(AsyncEvent::DeviceFatal);
        self.queue_pairs.fail_all();
        self.stop_streams();
    }
}
