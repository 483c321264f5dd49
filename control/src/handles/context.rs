//! The context that all handles of a device share: the way to its control engine, and its configuration.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender};
use warpline_dataplane::memory::{ProtectionDomainId, Region, RegionPool, STag};
use warpline_dataplane::qp::async_event::AsyncEvents;
use warpline_dataplane::qp::shared_receive_queue::SrqNumber;

use super::control_loop::DeviceFlags;
use super::control_waker::{ControlWaker, ServedBy};
use super::event_fd::EventFd;
use super::turns::WithinTurn;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::Request;
use crate::engine::names::KeyedSequence;
use crate::host::survey::HostWarning;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::device::{DeviceConfig, Stopped};

/// The context that all handles of a device share (verbs' device context). The device stops when the last
/// handle is dropped.
pub(crate) struct DeviceContext {
    /// `None` only while the device stops.
    requests: Option<Sender<Request>>,
    /// The thread that ends after control, if there is one: the control thread, or that which takes turns.
    control: Option<JoinHandle<()>>,
    /// Tells control that there are requests.
    control_waker: Arc<ControlWaker>,
    flags: Arc<DeviceFlags>,
    next_domain: AtomicU32,
    next_shared_receive_queue: AtomicU32,
    /// Names for memory that is registered anew and windows that are bound anew.
    names: Mutex<KeyedSequence>,
    /// How many cores the device has.
    pub(super) cores: u8,
    /// Whether the device takes payload by reference.
    pub(crate) gathers: bool,
    config: DeviceConfig,
    /// The buffers of byte streams.
    pub(super) stream_memory: RegionPool,
    pub(crate) events: Arc<AsyncEvents>,
    event_fd: Arc<EventFd>,
    /// What was found when the device was opened, if it was opened by its name.
    pub(super) warnings: OnceLock<Vec<HostWarning>>,
}

/// The parts of a context.
pub(super) struct ContextParts {
    pub(super) requests: Sender<Request>,
    pub(super) control: Option<JoinHandle<()>>,
    pub(super) control_waker: Arc<ControlWaker>,
    pub(super) flags: Arc<DeviceFlags>,
    pub(super) names: KeyedSequence,
    pub(super) cores: u8,
    pub(super) gathers: bool,
    pub(super) config: DeviceConfig,
    pub(super) events: Arc<AsyncEvents>,
    pub(super) event_fd: Arc<EventFd>,
}

impl DeviceContext {
    pub(super) fn new(parts: ContextParts) -> Arc<Self> {
        let ContextParts {
            requests,
            control,
            control_waker,
            flags,
            names,
            cores,
            gathers,
            config,
            events,
            event_fd,
        } = parts;
        let memory = config.memory.clone();
        let stream_memory = RegionPool::new(config.capacity.stream_bytes, move |len| memory.allocate(len));
        Arc::new(Self {
            stream_memory,
            requests: Some(requests),
            control,
            control_waker,
            flags,
            next_domain: AtomicU32::new(1),
            next_shared_receive_queue: AtomicU32::new(0),
            names: Mutex::new(names),
            cores,
            gathers,
            config,
            events,
            event_fd,
            warnings: OnceLock::new(),
        })
    }

    /// Sends a request, and waits for the reply.
    pub(crate) fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Stopped> {
        self.check_may_wait()?;
        self.wait_for(&self.begin(request)?)
    }

    /// Refuses what waits for a reply in a callback, where the reply takes another turn. It is to be called
    /// before the request is sent: otherwise control carries it out, and nobody has what was asked for.
    pub(super) fn check_may_wait(&self) -> Result<(), Stopped> {
        let is_callback =
            WithinTurn::is_entered() && matches!(self.control_waker.served_by(), ServedBy::Turns(_));
        if is_callback { Err(Stopped) } else { Ok(()) }
    }

    /// Waits for the reply to a request.
    pub(crate) fn wait_for<T>(&self, reply: &Receiver<T>) -> Result<T, Stopped> {
        match self.control_waker.served_by() {
            ServedBy::Polled(control) => control.wait_for(reply),
            ServedBy::Turns(turns) => turns.wait_for(reply, Duration::MAX).map_err(|_| Stopped),
            ServedBy::Other => reply.recv().map_err(|_| Stopped),
        }
    }

    /// Waits for a reply that is not needed, for `at_most`. Where this thread may be the one that has to
    /// poll, it does not wait.
    pub(crate) fn wait_briefly<T>(&self, reply: &Receiver<T>, at_most: Duration) {
        match self.control_waker.served_by() {
            ServedBy::Polled(_) => {}
            ServedBy::Turns(turns) => _ = turns.wait_for(reply, at_most),
            ServedBy::Other => _ = reply.recv_timeout(at_most),
        }
    }

    /// Sends a request. Returns where the reply arrives.
    pub(crate) fn begin<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<Receiver<T>, Stopped> {
        let (reply, receiver) = Reply::new();
        self.send(request(reply))?;
        Ok(receiver)
    }

    /// Sends a request that has no reply, or one that arrives elsewhere.
    pub(crate) fn send(&self, request: Request) -> Result<(), Stopped> {
        if self.has_ended() {
            return Err(Stopped);
        }
        self.requests.as_ref().ok_or(Stopped)?.send(request).map_err(|_| Stopped)?;
        self.control_waker.wake();
        Ok(())
    }

    /// Returns the directory of the control thread in /proc.
    #[cfg(test)]
    pub(crate) fn control_task(&self) -> String {
        self.control_waker.task().expect("control has started")
    }

    /// Returns true if the device serves no more. It is set before anything that control holds is dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.flags.has_ended()
    }

    /// Returns the cores that may still reach registered memory, though control may have ended.
    pub(crate) fn driven(&self) -> CoreSet {
        self.flags.driven()
    }

    /// Returns another name for the slot of `stag`.
    pub(crate) fn next_name(&self, stag: STag) -> STag {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = stag.with_key(names.next() as u16);
            if next != stag && next.0 != 0 {
                return next;
            }
        }
    }

    /// Returns how the device was set up.
    pub(crate) fn config(&self) -> &DeviceConfig {
        &self.config
    }

    pub(crate) fn allocate(&self, len: usize) -> Option<Region> {
        self.config.memory.allocate(len)
    }

    pub(crate) fn next_domain(&self) -> ProtectionDomainId {
        ProtectionDomainId(self.next_domain.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_shared_receive_queue(&self) -> SrqNumber {
        SrqNumber(self.next_shared_receive_queue.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the descriptor that becomes readable with each asynchronous event.
    pub(crate) fn event_fd(&self) -> &EventFd {
        &self.event_fd
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        // Control ends when no handle can send a request any more.
        self.requests = None;
        self.control_waker.wake();
        if let ServedBy::Turns(turns) = self.control_waker.served_by() {
            turns.hand_over();
            if WithinTurn::is_entered() {
                // A callback had the last handle. The thread ends after this turn, which may be its own.
                return;
            }
        }
        if let Some(control) = self.control.take() {
            // The thread has reported its own panic.
            let _ = control.join();
        }
    }
}
