//! The control thread of a device: the loop around its engine, which reads the clock and waits.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam::channel::{Receiver, TryRecvError};
use warpline_dataplane::ring::Rings;
use warpline_dataplane::time::{Instant, SECOND};

use super::clock::now;
use super::context::DeviceFlags;
use super::control_waker::ControlWaker;
use crate::engine::Engine;
use crate::engine::interface::request::Request;

/// How long connections that are being closed may hold up the end of the device.
const END_LINGER_NS: u64 = 2 * SECOND;

/// The last handle of the device was dropped: no more requests will come.
struct HandlesGone;

/// The loop around an engine.
pub(super) struct ControlThread {
    engine: Engine,
    requests: Receiver<Request>,
    rings: Rings,
    /// Wakes this thread.
    waker: Arc<ControlWaker>,
    flags: Arc<DeviceFlags>,
}

impl ControlThread {
    pub(super) const fn new(
        engine: Engine,
        requests: Receiver<Request>,
        rings: Rings,
        waker: Arc<ControlWaker>,
        flags: Arc<DeviceFlags>,
    ) -> Self {
        Self { engine, requests, rings, waker, flags }
    }

    /// Serves until the last handle of the device is dropped and its connections are closed, or the core is
    /// polled no more. Sleeps while there is nothing to do: a request wakes it, and the driver of the core
    /// does after a poll with events.
    pub(super) fn run(mut self) {
        self.waker.register();
        let mut end_at = None;
        loop {
            let mut busy = self.accept_requests().unwrap_or_else(|HandlesGone| {
                end_at.get_or_insert_with(|| now() + END_LINGER_NS);
                false
            });
            // Before the events: those that the core sent before its driver went are taken too.
            let driven = self.flags.is_driven();
            busy |= self.handle_events();
            self.engine.on_time(now());
            self.deliver();
            let ended = end_at.is_some_and(|end| !self.engine.has_business() || now() >= end);
            if ended || !driven {
                break;
            }
            if !busy {
                // A thread that gives it work after this point unparks it, which ends the next sleep at once.
                let deadline = self.engine.next_deadline();
                let until = end_at.map_or(deadline, |end: Instant| end.min(deadline));
                thread::park_timeout(Duration::from_nanos(until - now()));
            }
        }
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

impl Drop for ControlThread {
    /// Stops the core however control ends: it is not polled for nothing, and no application waits for it.
    fn drop(&mut self) {
        self.flags.set_ended();
        self.rings.doorbells.wake();
        self.engine.stop();
    }
}
