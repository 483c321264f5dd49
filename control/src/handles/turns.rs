//! The turns that threads of an application take at a core which it shares with a thread of warpline.

use core::hint;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, TryRecvError};

use super::clock::now;
use super::wake_sources::POLL_BEFORE_SLEEP_NS;
use crate::vocabulary::duration::nanos;

thread_local! {
    /// Whether this thread is in a turn, so that what calls the API is a callback.
    static WITHIN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that is in a turn, until it is dropped.
pub(super) struct WithinTurn {
    /// Whether it was before.
    outer: bool,
}

impl WithinTurn {
    #[inline]
    pub(super) fn enter() -> Self {
        Self { outer: WITHIN_TURN.replace(true) }
    }

    /// Returns true if this thread is in a turn: it must not wait for what another turn does.
    pub(super) fn is_entered() -> bool {
        WITHIN_TURN.get()
    }
}

impl Drop for WithinTurn {
    #[inline]
    fn drop(&mut self) {
        WITHIN_TURN.set(self.outer);
    }
}

/// A core and its control engine that any thread may drive, one at a time.
pub(super) trait TakeTurns: Send + Sync {
    /// See [`Turns::turn`].
    fn turn(&self) -> bool;

    /// See [`Turns::hand_over`].
    fn hand_over(&self);

    /// See [`Turns::abandon`].
    fn abandon(&self);

    /// Returns true once it was abandoned.
    fn is_abandoned(&self) -> bool;

    /// Returns true if warpline's thread keeps away from a device that applications poll.
    #[cfg(test)]
    fn thread_is_away(&self) -> bool;

    /// Returns true if warpline's thread sleeps until there is work.
    #[cfg(test)]
    fn thread_is_asleep(&self) -> bool;
}

/// Turns at the core and the control engine of a device that
/// [`Device::start_shared`](crate::Device::start_shared) has started. Threads of the application take them
/// while they wait for something, and warpline's thread takes those that they leave. Clones are for the same
/// device; they do not keep it open.
///
/// A thread that waits for a completion polls its completion queue, and takes a turn if that is empty:
///
/// ```
/// use std::time::Duration;
/// use warpline::link::sim::{self, EndConfig};
/// use warpline::{Completion, CompletionQueue, Device, DeviceConfig, PollThread, Turns};
///
/// fn wait(completions: &CompletionQueue, turns: &Turns) -> Completion {
///     for _ in 0..10_000 {
///         if let Some(completion) = completions.poll() {
///             return completion;
///         }
///         turns.turn();
///     }
///     loop {
///         // It takes long: sleep, and leave the turns to warpline's thread.
///         turns.hand_over();
///         if let Some(completion) = completions.wait(Duration::from_secs(1)) {
///             return completion;
///         }
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (near, _far) = sim::link(1, EndConfig::a(), EndConfig::b());
/// let config = DeviceConfig::new([198, 18, 0, 1], 24);
/// let (device, turns) = Device::start_shared(near, &config, PollThread::default())?;
/// turns.turn();
/// drop(device);
/// assert!(!turns.turn());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Turns {
    pub(super) driver: Arc<dyn TakeTurns>,
}

impl Turns {
    pub(super) fn new(driver: Arc<dyn TakeTurns>) -> Self {
        Self { driver }
    }

    /// Takes a turn: sends what was posted, takes what has arrived, and carries out requests, as
    /// [`CoreDriver::poll_once`](crate::CoreDriver::poll_once) and
    /// [`ControlDriver::poll_once`](crate::ControlDriver::poll_once) do. Returns true if there was anything
    /// to do, or there is for the next turn.
    ///
    /// Does not wait: returns false if another thread has a turn, or this one has (in a callback), or the
    /// device has ended. Makes no system call but those of the device and of notifications, and one to wake
    /// warpline's thread if that sleeps and there is work for the core.
    #[inline]
    pub fn turn(&self) -> bool {
        self.driver.turn()
    }

    /// Leaves the turns to warpline's thread, because this thread is about to sleep: on a file descriptor, or
    /// in a call that waits for a peer, such as [`Listener::accept`](crate::Listener::accept) or
    /// [`CompletionQueue::wait`](crate::CompletionQueue::wait). Without this call warpline's thread, which
    /// keeps away while applications take turns, comes back by itself, a millisecond later at most. Makes a
    /// system call only if it keeps away now.
    pub fn hand_over(&self) {
        self.driver.hand_over();
    }

    /// Ends the device for this process, which is a child (fork(2)) of the one that has the device: no call
    /// touches it from here on, and those that wait for it fail as with a device that has stopped. A child
    /// that took turns would take its parent's frames. It is to be the first call in the child, and may be
    /// made by a handler of pthread_atfork(3): it stores a flag. Handles are not to be dropped in the child.
    pub fn abandon(&self) {
        self.driver.abandon();
    }

    /// Waits for a reply, at most for `at_most`: takes turns until it comes, or until there has been nothing
    /// to do for a while, and then sleeps.
    ///
    /// # Errors
    ///
    /// `Disconnected` if there will be no reply, and if this thread is in a turn: a reply takes another one.
    pub(super) fn wait_for<T>(&self, reply: &Receiver<T>, at_most: Duration) -> Result<T, RecvTimeoutError> {
        if WithinTurn::is_entered() || self.driver.is_abandoned() {
            return Err(RecvTimeoutError::Disconnected);
        }
        let give_up_at = now() + nanos(at_most);
        let mut idle_since = None;
        loop {
            let busy = self.turn();
            match reply.try_recv() {
                Ok(reply) => return Ok(reply),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let now = now();
            if now >= give_up_at {
                return Err(RecvTimeoutError::Timeout);
            }
            if busy {
                idle_since = None;
            } else if now >= *idle_since.get_or_insert(now) + *POLL_BEFORE_SLEEP_NS {
                break;
            } else {
                hint::spin_loop();
            }
        }
        self.hand_over();
        reply.recv_timeout(Duration::from_nanos(give_up_at - now()))
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}
