//! The loop around the engine of a device, which reads the clock. A thread goes round in it, or the
//! application does, one round at a time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam::channel::{Receiver, TryRecvError};
use warpline_dataplane::limits;
use warpline_dataplane::ring::{Command, ConnectError, Event, Rings};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::clock::now;
use crate::engine::interface::request::Request;
use crate::engine::{Engine, LocalPeer};
use crate::host::held_ports::HeldPorts;
use crate::vocabulary::core_set::CoreSet;

/// How long connections that are being closed may hold up the end of the device.
const END_LINGER_NS: u64 = 2 * SECOND;

/// Time between looks whether other programs of this machine still have the ports that connections lead to;
/// and within a look, of which each part takes so many connections.
const LOOK_NS: u64 = 500 * MILLISECOND;
const LOOK_ON_NS: u64 = 5 * MILLISECOND;
const LOOKED_AT: usize = 32;
/// What comes before all of them.
const FIRST: LocalPeer = (SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), 0);

/// Flags that the threads of a device share.
#[derive(Debug)]
pub(crate) struct DeviceFlags {
    /// The cores that are polled, a bit for each.
    driven: AtomicU64,
    /// Control has ended: the poll thread is to end too.
    ended: AtomicBool,
}

impl DeviceFlags {
    /// Returns those of a device whose `cores` cores are polled.
    pub(crate) const fn new(cores: u8) -> Self {
        Self { driven: AtomicU64::new(CoreSet::first(cores).to_bits()), ended: AtomicBool::new(false) }
    }

    /// Returns the cores that are polled.
    pub(crate) fn driven(&self) -> CoreSet {
        CoreSet::from_bits(self.driven.load(Ordering::Acquire))
    }

    /// Records that `core` is no longer polled.
    pub(crate) fn clear_driven(&self, core: u8) {
        self.driven.fetch_and(!CoreSet::EMPTY.with(core).to_bits(), Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// The last handle of the device was dropped: no more requests will come.
struct HandlesGone;

/// What a round has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// There was something to do.
    Busy,
    /// There was nothing to do.
    Idle,
    /// The last handle of the device is gone and its connections are closed, or no core is polled any more:
    /// nothing comes after this.
    Last,
}

/// The loop around an engine.
pub(super) struct ControlLoop {
    engine: Engine,
    requests: Receiver<Request>,
    /// By core.
    rings: Vec<Rings>,
    flags: Arc<DeviceFlags>,
    /// The ports that a device holds which shares the kernel's addresses.
    held_ports: Option<HeldPorts>,
    /// When it looks next whether other programs of this machine still have theirs.
    look_at: Instant,
    /// The last connection that it has looked at.
    looked_at: LocalPeer,
    /// The cores that were polled when control last looked.
    driven: CoreSet,
    /// When the device ends though connections are being closed; `None` while there are handles.
    end_at: Option<Instant>,
}

impl ControlLoop {
    /// Returns the loop around `engine`, with the rings of each core.
    pub(super) const fn new(
        engine: Engine,
        requests: Receiver<Request>,
        rings: Vec<Rings>,
        flags: Arc<DeviceFlags>,
        held_ports: Option<HeldPorts>,
    ) -> Self {
        let driven = CoreSet::first(rings.len() as u8);
        Self {
            engine,
            requests,
            rings,
            flags,
            held_ports,
            look_at: Instant::ZERO,
            looked_at: FIRST,
            driven,
            end_at: None,
        }
    }

    /// Does everything that there is to do now.
    pub(super) fn go_round(&mut self) -> Round {
        let mut busy = self.accept_requests().unwrap_or_else(|HandlesGone| {
            self.end_at.get_or_insert_with(|| now() + END_LINGER_NS);
            false
        });
        // Before the events: those that a core sent before its driver went are taken too.
        let driven = self.flags.driven();
        busy |= self.handle_events();
        busy |= self.remove_cores(driven);
        self.engine.on_time(now());
        self.end_what_programs_have_left();
        self.deliver();
        let ended = self.end_at.is_some_and(|end| !self.engine.has_business() || now() >= end);
        match busy {
            _ if ended || driven.is_empty() => Round::Last,
            true => Round::Busy,
            false => Round::Idle,
        }
    }

    /// Returns when there is something to do even if nothing happens.
    pub(super) fn next_deadline(&self) -> Instant {
        let mut deadline = self.engine.next_deadline();
        if self.held_ports.is_some() && self.engine.has_local_peers() {
            deadline = deadline.min(self.look_at);
        }
        self.end_at.map_or(deadline, |end| end.min(deadline))
    }

    /// Returns true if a request or an event has come since the last round.
    pub(super) fn has_news(&self) -> bool {
        !self.requests.is_empty() || self.rings.iter().any(|rings| !rings.events.is_empty())
    }

    /// Carries out the requests that have come. Returns true if there were any.
    fn accept_requests(&mut self) -> Result<bool, HandlesGone> {
        let mut busy = false;
        loop {
            match self.requests.try_recv() {
                Ok(request) => {
                    busy = true;
                    let Self { engine, held_ports, .. } = &mut *self;
                    let admitted = match held_ports {
                        Some(held) => held.admit(request, |port, core| engine.check_port(port, core)),
                        None => Some(request),
                    };
                    if let Some(request) = admitted {
                        self.engine.on_request(now(), request);
                        self.deliver();
                    }
                }
                Err(TryRecvError::Empty) => return Ok(busy),
                Err(TryRecvError::Disconnected) => return Err(HandlesGone),
            }
        }
    }

    /// Takes in the events of the cores. Returns true if there were any.
    fn handle_events(&mut self) -> bool {
        let mut busy = false;
        for core in 0..self.rings.len() {
            // No more than a ring has room for: one core does not keep control from the others.
            for _ in 0..limits::EVENTS {
                let Some(event) = self.rings[core].events.pop() else { break };
                busy = true;
                self.engine.on_event(now(), core as u8, event);
                self.deliver();
            }
        }
        busy
    }

    /// Has the engine handle the end of each core that is not among those `driven` any more, but the last
    /// one: the device ends with that. Returns true if there was any.
    fn remove_cores(&mut self, driven: CoreSet) -> bool {
        let ended = core::mem::replace(&mut self.driven, driven).and(driven.complement());
        if ended.is_empty() || driven.is_empty() {
            return false;
        }
        for core in ended.iter() {
            self.engine.on_core_ended(now(), core);
        }
        self.deliver();
        true
    }

    /// Resets connections to programs of this machine that have ended without a word. The kernel, which does
    /// so for other peers, does not take what programs of the machine send each other.
    fn end_what_programs_have_left(&mut self) {
        let (Some(held), time) = (&self.held_ports, now()) else { return };
        if time < self.look_at {
            return;
        }
        let next: Vec<_> = self.engine.local_peers_after(self.looked_at).take(LOOKED_AT).collect();
        (self.looked_at, self.look_at) = match next.last() {
            Some(last) if next.len() == LOOKED_AT => (*last, time + LOOK_ON_NS),
            _ => (FIRST, time + LOOK_NS),
        };
        let mut looked = None;
        for local_peer in next {
            let remote = local_peer.0;
            let is_over = match looked {
                Some((before, is_over)) if before == remote => is_over,
                _ => held.is_nobodys(remote),
            };
            looked = Some((remote, is_over));
            if is_over {
                self.engine.abort(local_peer);
            }
        }
    }

    /// Passes commands to each core as far as its ring has room, then replies to the handles.
    fn deliver(&mut self) {
        for (core, rings) in (0..).zip(&self.rings) {
            deliver_commands(&mut self.engine, core, rings, self.held_ports.as_ref());
        }
        while let Some(deliver) = self.engine.next_reply() {
            deliver();
        }
    }
}

fn deliver_commands(engine: &mut Engine, core: u8, rings: &Rings, held_ports: Option<&HeldPorts>) {
    let mut wake = false;
    while let Some(command) = engine.next_command(core) {
        // Nobody would answer. A peer that refuses may be asked again: a program may listen there by then.
        if let Command::Connect { token, remote, .. } = command
            && held_ports.is_some_and(|held| held.is_nobodys(remote))
        {
            let error = ConnectError::Closed(CloseReason::Refused);
            engine.on_event(now(), core, Event::ConnectFailed { token, error });
            continue;
        }
        wake = true;
        if let Err(command) = rings.commands.push(command) {
            engine.return_command(core, command);
            break;
        }
    }
    if wake {
        // A core that sleeps carries them out at once.
        rings.doorbells.wake();
    }
}

impl Drop for ControlLoop {
    /// Stops the cores however control ends: none is polled for nothing, and no application waits for one.
    fn drop(&mut self) {
        self.flags.set_ended();
        for rings in &self.rings {
            rings.doorbells.wake();
        }
        self.engine.stop();
    }
}
