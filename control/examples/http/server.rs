//! A server of the files of a directory: GET and HEAD with ranges and conditions, POST and PUT. One thread
//! accepts all connections and serves them. It takes the turns at its device itself, so that a connection
//! passes through no other thread. When nothing was to do for a while, it sleeps until the listener or a byte
//! stream has something.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use warpline::{Behaviour, Device, Notify, TcpListenConfig, TcpListener, TcpStream, TcpStreamError, Turns};

use crate::ends::Outcome;
use crate::files::Directory;
use crate::session::{Session, Turn};
use crate::transfer;

/// Connections that are served at a time. More wait in the backlog.
pub const CONNECTIONS_MAX: usize = 256;
/// How long the thread polls before it sleeps.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(200);
/// How often it looks whether it is to stop, and which connections have taken too long.
const LOOK: Duration = Duration::from_millis(50);

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
        let worked = turns.is_some_and(Turns::turn) | server.accept()? | server.serve_ready();
        let now = Instant::now();
        server.expire(now);
        let poll_until = if turns.is_some() { worked_at + POLL_BEFORE_SLEEP } else { worked_at };
        if worked {
            worked_at = now;
        } else if now > poll_until {
            if let Some(turns) = turns {
                turns.hand_over();
            }
            server.sleep(now)?;
        }
    }
    Ok(())
}

/// A thread that serves connections.
struct Server<'s> {
    listener: &'s TcpListener,
    site: &'s Site<'s>,
    slots: Vec<Option<Slot<'s>>>,
    /// Slots that are taken.
    served: usize,
    /// Slots whose bells have rung.
    rung: Receiver<usize>,
    bells: Bells,
    /// Slots whose sessions are to have a turn.
    ready: Vec<usize>,
    /// When it looks which sessions have taken too long.
    look_at: Instant,
}

struct Slot<'s> {
    session: Session<'s>,
    /// It is among those that are to have a turn.
    is_ready: bool,
}

/// What bells do when they ring.
#[derive(Clone)]
struct Bells {
    rung: Sender<usize>,
    sleep: Arc<Sleep>,
}

/// The sleep of the server.
struct Sleep {
    /// It sleeps, or is about to.
    begun: AtomicBool,
    /// Readable when that is to end.
    ended: OwnedFd,
}

/// Rings when a byte stream has something for its session.
struct Bell {
    slot: usize,
    bells: Bells,
}

impl Notify for Bell {
    /// On the thread that drives the device: the server's own, or another.
    fn notify(&self) {
        // It fails once the server has gone.
        let _ = self.bells.rung.send(self.slot);
        if self.bells.sleep.begun.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.bells.sleep.ended, &1_u64.to_ne_bytes());
        }
    }
}

impl<'s> Server<'s> {
    fn new(listener: &'s TcpListener, site: &'s Site<'s>) -> Outcome<Self> {
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let sleep = Arc::new(Sleep { begun: AtomicBool::new(false), ended });
        let (sender, rung) = mpsc::channel();
        Ok(Self {
            listener,
            site,
            slots: Vec::new(),
            served: 0,
            rung,
            bells: Bells { rung: sender, sleep },
            ready: Vec::new(),
            look_at: Instant::now() + LOOK,
        })
    }

    /// Takes in connections that wait, as many as there are places for. Returns true if there were any.
    fn accept(&mut self) -> Outcome<bool> {
        let mut any = false;
        for _ in self.served..CONNECTIONS_MAX {
            let stream = match self.listener.accept(Duration::ZERO) {
                Ok(stream) => stream,
                Err(TcpStreamError::TimedOut) => break,
                Err(error) => return Err(error.into()),
            };
            any = true;
            let peer = stream.remote();
            if let Err(error) = self.add(stream) {
                // The client has gone, or there is no memory for another one: the others go on.
                eprintln!("{peer}: {error}");
            }
        }
        Ok(any)
    }

    /// Takes a connection in, whose session has its first turn soon.
    fn add(&mut self, stream: TcpStream) -> Outcome {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let bell: Arc<dyn Notify> = Arc::new(Bell { slot, bells: self.bells.clone() });
        let stream = stream.into_byte_stream_with_notify(&transfer::server_stream(), &bell)?;
        let session = Session::new(self.site, stream, Instant::now());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Slot { session, is_ready: true });
        self.served += 1;
        self.ready.push(slot);
        Ok(())
    }

    /// Notes which sessions are to have a turn. Returns true if there are any.
    fn collect_ready(&mut self) -> bool {
        for slot in self.rung.try_iter() {
            // It may have gone meanwhile.
            if let Some(Slot { is_ready: is_ready @ false, .. }) =
                self.slots.get_mut(slot).and_then(Option::as_mut)
            {
                *is_ready = true;
                self.ready.push(slot);
            }
        }
        !self.ready.is_empty()
    }

    /// Gives each session that is ready a turn. Returns true if there were any.
    fn serve_ready(&mut self) -> bool {
        let any = self.collect_ready();
        let now = Instant::now();
        for slot in std::mem::take(&mut self.ready) {
            self.turn(slot, |session| session.run(now));
        }
        any
    }

    /// Ends what has taken too long, from time to time.
    fn expire(&mut self, now: Instant) {
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
        self.slots[slot] = None;
        self.served -= 1;
    }

    /// Sleeps until there is something to do, or it is to look again.
    fn sleep(&mut self, now: Instant) -> Outcome {
        let sleep = self.bells.sleep.clone();
        sleep.begun.store(true, Ordering::SeqCst);
        // What has come before this is found now, and what comes later ends the sleep.
        let is_full = self.served == CONNECTIONS_MAX;
        if !self.collect_ready() && (is_full || self.listener.arm()) {
            let left = Timespec::try_from(self.look_at.saturating_duration_since(now)).ok();
            let listener = self.listener.event_fd()?;
            let ends = [sleep.ended.as_fd(), listener.as_fd()];
            let mut ends = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
            match poll(&mut ends, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            listener.clear();
            let _ = rustix::io::read(&sleep.ended, &mut [0; 8]);
        }
        sleep.begun.store(false, Ordering::SeqCst);
        Ok(())
    }
}
