//! A server of the files of a directory: GET and HEAD with ranges and conditions, POST and PUT. A few threads
//! serve all connections: each sleeps until the file descriptors of one of its byte streams say that there is
//! something to do.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use warpline::{Behaviour, ByteStream, Device, TcpListenConfig, TcpListener, TcpStreamError};

use crate::ends::Outcome;
use crate::files::Directory;
use crate::session::{Session, Turn};
use crate::transfer;

/// Connections that are served at a time. More wait in the backlog.
pub const CONNECTIONS_MAX: usize = 256;
/// Threads that serve them.
const WORKERS: usize = 2;
/// How often a thread looks whether it is to stop.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// The token of a worker's own file descriptor; the others are those of slots.
const INBOX: u64 = u64::MAX;

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

/// Serves `site` until `stop` is set.
pub fn serve(listener: &TcpListener, site: &Site<'_>, stop: &AtomicBool) -> Outcome {
    let workers = (0..WORKERS).map(|_| Worker::new(stop)).collect::<Result<Vec<_>, _>>()?;
    thread::scope(|scope| {
        let threads: Vec<_> = workers.iter().map(|worker| scope.spawn(|| worker.serve(site))).collect();
        let accepted = accept(listener, &workers, stop);
        // A thread that could not go on ends the server, and an accept that failed ends the threads.
        stop.store(true, Ordering::Relaxed);
        let served = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        served.fold(accepted, Outcome::and)
    })
}

/// Hands connections to the worker with the fewest.
fn accept(listener: &TcpListener, workers: &[Worker<'_>], stop: &AtomicBool) -> Outcome {
    while !stop.load(Ordering::Relaxed) {
        let served: usize = workers.iter().map(Worker::load).sum();
        let full = served >= CONNECTIONS_MAX;
        for worker in workers {
            worker.crowded.store(full, Ordering::Relaxed);
        }
        if full {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let stream = match listener.accept(STOP_LOOK) {
            Ok(stream) => stream,
            Err(TcpStreamError::TimedOut) => continue,
            Err(error) => return Err(error.into()),
        };
        let peer = stream.remote();
        match (stream.into_byte_stream(&transfer::server_stream()), workers.iter().min_by_key(|of| of.load()))
        {
            (Ok(stream), Some(worker)) => worker.give(stream)?,
            // The client has gone, or there is no memory for another one: the others go on.
            (Err(error), _) => eprintln!("{peer}: {error}"),
            (Ok(_), None) => {}
        }
    }
    Ok(())
}

/// A thread that serves connections.
struct Worker<'s> {
    stop: &'s AtomicBool,
    inbox: Mutex<Vec<ByteStream>>,
    /// Readable when there is something in the inbox.
    given: OwnedFd,
    /// Connections given and not over.
    load: AtomicUsize,
    /// Others wait for places.
    crowded: AtomicBool,
}

impl<'s> Worker<'s> {
    fn new(stop: &'s AtomicBool) -> Outcome<Self> {
        Ok(Self {
            stop,
            inbox: Mutex::default(),
            given: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            load: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
        })
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    fn give(&self, stream: ByteStream) -> Outcome {
        self.load.fetch_add(1, Ordering::Relaxed);
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        rustix::io::write(&self.given, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    fn serve(&self, site: &Site<'_>) -> Outcome {
        let mut sessions = Sessions { epoll: epoll::create(CreateFlags::CLOEXEC)?, slots: Vec::new() };
        epoll::add(&sessions.epoll, &self.given, EventData::new_u64(INBOX), EventFlags::IN)?;
        let mut ready = VecDeque::new();
        let mut events = Vec::<Event>::with_capacity(EVENTS);
        let mut look_at = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let left = if ready.is_empty() { look_at.saturating_duration_since(now) } else { Duration::ZERO };
            let left = Timespec::try_from(left.min(STOP_LOOK)).ok();
            events.clear();
            match epoll::wait(&sessions.epoll, rustix::buffer::spare_capacity(&mut events), left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    INBOX => self.take_in(&mut sessions, site, &mut ready)?,
                    token => sessions.wake(token, &mut ready),
                }
            }
            let now = Instant::now();
            for slot in std::mem::take(&mut ready) {
                self.turn(&mut sessions, slot, &mut ready, |session| session.run(now));
            }
            let crowded = self.crowded.load(Ordering::Relaxed);
            if now >= look_at || crowded {
                look_at = now + STOP_LOOK;
                for slot in sessions.due(now, crowded) {
                    self.turn(&mut sessions, slot, &mut ready, |session| session.expire(now));
                }
            }
            if let Some(soonest) = sessions.soonest(crowded) {
                look_at = look_at.min(soonest);
            }
        }
        Ok(())
    }

    fn take_in<'t>(
        &self,
        sessions: &mut Sessions<'t>,
        site: &'t Site<'t>,
        ready: &mut VecDeque<usize>,
    ) -> Outcome {
        let _ = rustix::io::read(&self.given, &mut [0; 8]);
        for stream in std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner)) {
            ready.push_back(sessions.add(Session::new(site, stream, Instant::now()))?);
        }
        Ok(())
    }

    /// Gives the session at `slot` a turn, and ends it if it is over.
    fn turn<'t>(
        &self,
        sessions: &mut Sessions<'t>,
        slot: usize,
        ready: &mut VecDeque<usize>,
        turn: impl FnOnce(&mut Session<'t>) -> Outcome<Turn>,
    ) {
        let Some(Slot { session, is_ready }) = sessions.slots.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        *is_ready = false;
        match turn(session) {
            Ok(Turn::Again) => {
                *is_ready = true;
                ready.push_back(slot);
                return;
            }
            Ok(Turn::Waits) => return,
            Ok(Turn::Over) => {}
            Err(error) => eprintln!("{}: {error}", session.remote()),
        }
        sessions.remove(slot);
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sessions of a worker.
struct Sessions<'s> {
    epoll: OwnedFd,
    slots: Vec<Option<Slot<'s>>>,
}

struct Slot<'s> {
    session: Session<'s>,
    /// It is among those that have a turn.
    is_ready: bool,
}

impl<'s> Sessions<'s> {
    /// Takes a session in, ready for its first turn. Returns its slot.
    fn add(&mut self, session: Session<'s>) -> Outcome<usize> {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        for (which, event) in descriptors(&session).into_iter().enumerate() {
            let token = EventData::new_u64((2 * slot + which) as u64);
            epoll::add(&self.epoll, event, token, EventFlags::IN)?;
        }
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Slot { session, is_ready: true });
        Ok(slot)
    }

    /// Notes that the file descriptor of `token` is readable. Its session may have gone meanwhile.
    fn wake(&mut self, token: u64, ready: &mut VecDeque<usize>) {
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
            ready.push_back(slot);
        }
    }

    /// Returns the slots of the sessions whose deadlines are over.
    fn due(&self, now: Instant, crowded: bool) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        let due = |slot: &Slot<'_>| !slot.is_ready && slot.session.deadline(crowded) <= now;
        slots.filter_map(|(at, slot)| slot.as_ref().filter(|slot| due(slot)).map(|_| at)).collect()
    }

    fn soonest(&self, crowded: bool) -> Option<Instant> {
        self.slots.iter().flatten().map(|slot| slot.session.deadline(crowded)).min()
    }

    fn remove(&mut self, slot: usize) {
        if let Some(Slot { session, .. }) = self.slots[slot].take() {
            for event in descriptors(&session) {
                // The core may hold them open for a moment.
                let _ = epoll::delete(&self.epoll, event);
            }
        }
    }
}

fn descriptors<'e>(session: &'e Session<'_>) -> impl IntoIterator<Item = impl AsFd + 'e> {
    let ByteStream { reader, writer } = &session.stream;
    [reader.event_fd(), writer.event_fd()].into_iter().flatten()
}
