//! Holds DPDK's interrupt thread while a driver is called that its handlers would race with.
//!
//! A driver registers handlers that DPDK calls on one thread of its own, and takes them away when its port is
//! configured anew or stopped. `rte_intr_callback_unregister` refuses that (EAGAIN) while the handler runs,
//! and virtio's driver (DPDK 22.11) ignores the refusal: the handler stays, with a file descriptor that is
//! closed and a port that is freed. The next descriptor of that number calls it. Messages of the vhost-user
//! peer raise the interrupt, and each of those calls has some, so the handler often runs meanwhile.

use core::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dpdk_sys as sys;

/// The driver whose calls race with its handlers, and so the beginning of the names of its devices.
const RACING: &[u8] = b"net_virtio_user";

/// Returns true if calls that set up, stop or close a device of this name, or of the driver of this name,
/// must be [`held`].
pub(crate) fn race_with(name: &[u8]) -> bool {
    name.starts_with(RACING)
}

/// Runs `call` while the interrupt thread runs no handler.
///
/// `call` must not wait for a handler. Must not be called by a handler.
pub(crate) fn held<T>(call: impl FnOnce() -> T) -> T {
    let gate = Arc::new(Gate::default());
    let for_thread = Arc::into_raw(gate.clone());
    // An alarm is called on the interrupt thread, between handlers. A microsecond is the shortest.
    // SAFETY: `stay` takes such a pointer, once: an alarm is called once.
    let set = unsafe { sys::rte_eal_alarm_set(1, Some(stay), for_thread.cast_mut().cast()) };
    if set < 0 {
        // No memory for an alarm: the call is still worth more than none.
        // SAFETY: the pointer is of `into_raw`, and went to nobody.
        drop(unsafe { Arc::from_raw(for_thread) });
        return call();
    }
    gate.until(|state| state == State::Held);
    let _release = Release(&gate);
    call()
}

/// Keeps the interrupt thread until its [`Gate`] is released.
unsafe extern "C" fn stay(gate: *mut c_void) {
    // SAFETY: `held` gave up this count of the gate for this call.
    let gate = unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) };
    gate.become_state(State::Held);
    gate.until(|state| state == State::Released);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum State {
    #[default]
    Asked,
    Held,
    Released,
}

/// Where the two threads meet.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn become_state(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }

    fn until(&self, wanted: impl Fn(State) -> bool) {
        let guard = self.changed.wait_while(self.lock(), |state| !wanted(*state));
        drop(guard.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Lets the interrupt thread go, also if the call panics.
struct Release<'a>(&'a Gate);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.become_state(State::Released);
    }
}
