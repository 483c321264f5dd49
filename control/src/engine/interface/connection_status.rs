//! The state of a queue pair's connection that the application and the engine share: its addresses, and how
//! it ends.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpline_dataplane::ring::FlowKey;
use warpline_dataplane::tcp::CloseReason;

use crate::vocabulary::connect::SocketPair;

/// How far a connection has been closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CloseState {
    /// The peer has closed its half.
    pub(crate) peer_closed: bool,
    /// Why the connection is over; `None` while it is not.
    pub(crate) reason: Option<CloseReason>,
}

/// The addresses of a connection, and how far it has been closed. The engine writes it; the application reads
/// it, waits for it, or has it watched.
#[derive(Default)]
pub(crate) struct ConnectionStatus {
    /// Set when the connection comes to Full Operation.
    flow: Mutex<Option<FlowKey>>,
    closing: Mutex<CloseState>,
    changed: Condvar,
    watcher: Mutex<Option<Watcher>>,
}

/// Called with each new state, by the thread of the engine. It must not wait.
type Watcher = Box<dyn FnMut(CloseState) + Send>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectionStatus {
    /// Records that the queue pair serves the connection `flow` from now on.
    pub(crate) fn set_flow(&self, flow: Option<FlowKey>) {
        *lock(&self.flow) = flow;
    }

    /// Returns the connection that the queue pair serves or has served.
    pub(crate) fn pair(&self) -> Option<SocketPair> {
        lock(&self.flow).map(SocketPair::from)
    }

    /// Records that the connection is over. The first reason stays.
    pub(crate) fn set_closed(&self, reason: CloseReason) {
        self.change(|closing| _ = closing.reason.get_or_insert(reason));
    }

    pub(crate) fn set_peer_closed(&self) {
        self.change(|closing| closing.peer_closed = true);
    }

    /// Records that the connection did not come to Full Operation: the next one has nothing of it.
    pub(crate) fn set_free(&self) {
        self.set_flow(None);
        self.change(|closing| closing.peer_closed = false);
    }

    fn change(&self, change: impl FnOnce(&mut CloseState)) {
        change(&mut lock(&self.closing));
        self.changed.notify_all();
        self.notify(&mut lock(&self.watcher));
    }

    /// Calls `watcher` with the state, and again after each change.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let mut place = lock(&self.watcher);
        *place = Some(watcher);
        self.notify(&mut place);
    }

    fn notify(&self, watcher: &mut Option<Watcher>) {
        if let Some(watcher) = watcher {
            let closing = *lock(&self.closing);
            watcher(closing);
        }
    }

    /// Waits until the state meets `condition`, at most for `timeout`, and returns the state.
    pub(crate) fn wait(&self, timeout: Duration, condition: impl Fn(&CloseState) -> bool) -> CloseState {
        let waited = self.changed.wait_timeout_while(lock(&self.closing), timeout, |state| !condition(state));
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns the state now.
    pub(crate) fn close_state(&self) -> CloseState {
        *lock(&self.closing)
    }
}
