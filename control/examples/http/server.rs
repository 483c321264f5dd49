//! A server of the files of a directory: GET and HEAD with ranges and conditions, POST and PUT. One thread
//! accepts all connections and serves them. It takes the turns at its device itself, so that a connection
//! passes through no other thread. When nothing was to do for a while, it sleeps until a file descriptor, of
//! the listener or of a byte stream, says that there is something.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use warpline::{Behaviour, ByteStream, Device, TcpListenConfig, TcpListener, TcpStreamError, Turns};

use crate::ends::Outcome;
use crate::files::Directory;
use crate::session::{Session, Turn};
use crate::transfer;

/// Connections that are served at a time. More wait in the backlog.
pub const CONNECTIONS_MAX: usize = 256;
/// How long the thread polls before it sleeps.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// How often it looks whether it is to stop, and which connections have taken too long.
const LOOK: Duration = Duration::from_millis(50);
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// The token of the listener's file descriptor; the others are those of slots.
const LISTENER: u64 = u64::MAX;

/// What a server has done.
#[derive(Debug, Default)]
pub struct Totals {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    /// Bytes of bodies that were sent.
    pub sent_bytes: AtomicU64,
    /// Bytes of bodies that were received.
    pub received_bytes: AtomicU64,
    /// Of these, bytes that were placed in a buffer.
    pub placed_bytes: AtomicU64,
}

/// How long the server waits for a client.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between requests.
    pub idle: Duration,
    /// The same while others wait for a place.
    pub crowded_idle: Duration,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// For the next byte of a body, or for room to send one.
    pub stall: Duration,
    /// For the client to close, after the last response.
    pub linger: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            idle: Duration::from_mins(1),
            crowded_idle: Duration::from_secs(1),
            head: Duration::from_secs(20),
            stall: Duration::from_secs(20),
            linger: Duration::from_millis(500),
        }
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Site<'s> {
    pub directory: &'s Directory,
    pub totals: &'s Totals,
    pub patience: Patience,
}

/// Listens at `port`, offering the option or not.
pub fn listen(device: &Device, port: u16, rdma_option: bool) -> Outcome<TcpListener> {
    let tcp = Some(Behaviour { rdma_option, ..device.config().tcp });
    Ok(device.listen_streams(port, &TcpListenConfig { tcp, ..TcpListenConfig::default() })?)
}

/// Serves `site` until `stop` is set, and takes these turns at the device of `listener`; without, a thread of
/// its own drives that.
pub fn serve(listener: &TcpListener, turns: Option<&Turns>, site: &Site<'_>, stop: &AtomicBool) -> Outcome {
    let mut server = Server::new(listener, site)?;
    let mut worked_at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // Of what another thread has done in a turn the file descriptors tell.
        let worked = turns.is_some_and(Turns::turn) | server.accept()?;
        let now = Instant::now();
        if worked {
            worked_at = now;
        }
        let poll_until = if turns.is_some() { worked_at + POLL_BEFORE_SLEEP } else { worked_at };
        let sleep = if now > poll_until { server.time_to_sleep(now) } else { Duration::ZERO };
        if !sleep.is_zero()
            && let Some(turns) = turns
        {
            turns.hand_over();
        }
        server.collect_events(sleep)?;
        if server.serve_ready() {
            worked_at = Instant::now();
        }
        server.expire();
    }
    Ok(())
}

/// A thread that serves connections.
struct Server<'s> {
    listener: &'s TcpListener,
    site: &'s Site<'s>,
    epoll: OwnedFd,
    events: Vec<Event>,
    slots: Vec<Option<Slot<'s>>>,
    /// Slots that are taken.
    served: usize,
    /// Slots whose sessions have a turn.
    ready: Vec<usize>,
    /// When it looks which sessions have taken too long.
    look_at: Instant,
}

struct Slot<'s> {
    session: Session<'s>,
    /// It is among those that have a turn.
    is_ready: bool,
}

impl<'s> Server<'s> {
    fn new(listener: &'s TcpListener, site: &'s Site<'s>) -> Outcome<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener.event_fd()?, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            listener,
            site,
            epoll,
            events: Vec::with_capacity(EVENTS),
            slots: Vec::new(),
            served: 0,
            ready: Vec::new(),
            look_at: Instant::now() + LOOK,
        })
    }

    /// Takes in the connections that wait. Returns true if there were any.
    fn accept(&mut self) -> Outcome<bool> {
        let mut any = false;
        while self.served < CONNECTIONS_MAX {
            let stream = match self.listener.accept(Duration::ZERO) {
                Ok(stream) => stream,
                Err(TcpStreamError::TimedOut) => break,
                Err(error) => return Err(error.into()),
            };
            any = true;
            let peer = stream.remote();
            match stream.into_byte_stream(&transfer::server_stream()) {
                Ok(stream) => self.add(Session::new(self.site, stream, Instant::now()))?,
                // The client has gone, or there is no memory for another one: the others go on.
                Err(error) => eprintln!("{peer}: {error}"),
            }
        }
        Ok(any)
    }

    /// Takes a session in, ready for its first turn.
    fn add(&mut self, session: Session<'s>) -> Outcome {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        for (which, event) in descriptors(&session).into_iter().enumerate() {
            let token = EventData::new_u64((2 * slot + which) as u64);
            epoll::add(&self.epoll, event, token, EventFlags::IN)?;
        }
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Slot { session, is_ready: true });
        self.served += 1;
        self.ready.push(slot);
        Ok(())
    }

    /// Returns how long the thread may sleep, if nothing happens.
    fn time_to_sleep(&self, now: Instant) -> Duration {
        let may_accept = self.served < CONNECTIONS_MAX;
        if may_accept && !self.listener.arm() {
            return Duration::ZERO;
        }
        self.look_at.saturating_duration_since(now)
    }

    /// Notes what the file descriptors say; waits for that for `timeout`.
    fn collect_events(&mut self, timeout: Duration) -> Outcome {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let timeout = Timespec::try_from(timeout).ok();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => _ = self.listener.event_fd()?.clear(),
                token => self.wake(token),
            }
        }
        self.events = events;
        Ok(())
    }

    /// Notes that the file descriptor of `token` is readable. Its session may have gone meanwhile.
    fn wake(&mut self, token: u64) {
        let slot = (token / 2) as usize;
        let Some(Slot { session, is_ready }) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let event = if token.is_multiple_of(2) {
            session.stream.reader.event_fd()
        } else {
            session.stream.writer.event_fd()
        };
        if let Some(event) = event {
            event.clear();
        }
        if !std::mem::replace(is_ready, true) {
            self.ready.push(slot);
        }
    }

    /// Gives each session that is ready a turn. Returns true if there were any.
    fn serve_ready(&mut self) -> bool {
        let now = Instant::now();
        let ready = std::mem::take(&mut self.ready);
        for &slot in &ready {
            self.turn(slot, |session| session.run(now));
        }
        !ready.is_empty()
    }

    /// Ends what has taken too long, from time to time.
    fn expire(&mut self) {
        let now = Instant::now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        // Others may wait for a place.
        let crowded = self.served == CONNECTIONS_MAX;
        for slot in 0..self.slots.len() {
            let is_due = |slot: &Slot<'_>| !slot.is_ready && slot.session.deadline(crowded) <= now;
            if self.slots[slot].as_ref().is_some_and(is_due) {
                self.turn(slot, |session| session.expire(now));
            }
        }
    }

    /// Gives the session at `slot` a turn, and ends it if it is over.
    fn turn(&mut self, slot: usize, turn: impl FnOnce(&mut Session<'s>) -> Outcome<Turn>) {
        let Some(Slot { session, is_ready }) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        *is_ready = false;
        match turn(session) {
            Ok(Turn::Again) => {
                *is_ready = true;
                self.ready.push(slot);
                return;
            }
            Ok(Turn::Waits) => return,
            Ok(Turn::Over) => {}
            Err(error) => eprintln!("{}: {error}", session.remote()),
        }
        self.remove(slot);
    }

    fn remove(&mut self, slot: usize) {
        let Some(Slot { session, .. }) = self.slots[slot].take() else { return };
        self.served -= 1;
        for event in descriptors(&session) {
            // The core may hold them open for a moment.
            let _ = epoll::delete(&self.epoll, event);
        }
    }
}

fn descriptors<'e>(session: &'e Session<'_>) -> impl IntoIterator<Item = impl AsFd + 'e> {
    let ByteStream { reader, writer } = &session.stream;
    [reader.event_fd(), writer.event_fd()].into_iter().flatten()
}
