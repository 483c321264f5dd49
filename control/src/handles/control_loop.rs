//! The loop around the engine of a device, which reads the clock. A thread goes round in it, or the
//! application does, one round at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, TryRecvError};
use warpline_dataplane::ring::Rings;
use warpline_dataplane::time::{Instant, SECOND};

use super::clock::now;
use crate::engine::Engine;
use crate::engine::interface::request::Request;

/// How long connections that are being closed may hold up the end of the device.
const END_LINGER_NS: u64 = 2 * SECOND;

/// Flags that the threads of a device share.
#[derive(Debug)]
pub(crate) struct DeviceFlags {
    /// The core is polled.
    driven: AtomicBool,
    /// Control has ended: the poll thread is to end too.
    ended: AtomicBool,
}

impl DeviceFlags {
    pub(crate) const fn new() -> Self {
        Self { driven: AtomicBool::new(true), ended: AtomicBool::new(false) }
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    pub(crate) fn clear_driven(&self) {
        self.driven.store(false, Ordering::Release);
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
    /// The last handle of the device is gone and its connections are closed, or the core is polled no more:
    /// nothing comes after this.
    Last,
}

/// The loop around an engine.
pub(super) struct ControlLoop {
    engine: Engine,
    requests: Receiver<Request>,
    rings: Rings,
    flags: Arc<DeviceFlags>,
    /// When the device ends though connections are being closed; `None` while there are handles.
    end_at: Option<Instant>,
}

impl ControlLoop {
    pub(super) const fn new(
        engine: Engine,
        requests: Receiver<Request>,
        rings: Rings,
        flags: Arc<DeviceFlags>,
    ) -> Self {
        Self { engine, requests, rings, flags, end_at: None }
    }

    /// Does everything that there is to do now.
    pub(super) fn go_round(&mut self) -> Round {
        let mut busy = self.accept_requests().unwrap_or_else(|HandlesGone| {
            self.end_at.get_or_insert_with(|| now() + END_LINGER_NS);
            false
        });
        // Before the events: those that the core sent before its driver went are taken too.
        let driven = self.flags.is_driven();
        busy |= self.handle_events();
        self.engine.on_time(now());
        self.deliver();
        let ended = self.end_at.is_some_and(|end| !self.engine.has_business() || now() >= end);
        match busy {
            _ if ended || !driven => Round::Last,
            true => Round::Busy,
            false => Round::Idle,
        }
    }

    /// Returns when there is something to do even if nothing happens.
    pub(super) fn next_deadline(&self) -> Instant {
        let deadline = self.engine.next_deadline();
        self.end_at.map_or(deadline, |end| end.min(deadline))
    }

    /// Returns true if a request or an event has come since the last round.
    pub(super) fn has_news(&self) -> bool {
        !self.requests.is_empty() || !self.rings.events.is_empty()
    }

    /// Carries out the requests that have come. Returns true if there were any.
    fn accept_requests(&mut self) -> Result<bool, HandlesGone> {
        let mut busy = false;
        loop {
            match self.requests.try_recv() {
                Ok(request) => {
                    busy = true;
                    self.engine.on_request(now(), request);
                    self.deliver();
                }
                Err(TryRecvError::Empty) => return Ok(busy),
                Err(TryRecvError::Disconnected) => return Err(HandlesGone),
            }
        }
    }

    /// Takes in the events of the core. Returns true if there were any.
    fn handle_events(&mut self) -> bool {
        let mut busy = false;
        while let Some(event) = self.rings.events.pop() {
            busy = true;
            self.engine.on_event(now(), event);
            self.deliver();
        }
        busy
    }

    /// Passes commands to the core as far as its ring has room, then replies to the handles.
    fn deliver(&mut self) {
        let mut wake = false;
        while let Some(command) = self.engine.next_command() {
            wake = true;
            if let Err(command) = self.rings.commands.push(command) {
                self.engine.return_command(command);
                break;
            }
        }
        if wake {
            // A core that sleeps carries them out at once.
            self.rings.doorbells.wake();
        }
        while let Some(deliver) = self.engine.next_reply() {
            deliver();
        }
    }
}

impl Drop for ControlLoop {
    /// Stops the core however control ends: it is not polled for nothing, and no application waits for it.
    fn drop(&mut self) {
        self.flags.set_ended();
        self.rings.doorbells.wake();
        self.engine.stop();
    }
}
