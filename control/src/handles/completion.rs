//! Completion queues.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpline_dataplane::limits;
use warpline_dataplane::notify::Notify;
use warpline_dataplane::qp::completion_queue::{CompletionRing, CqNumber, Drain, Notice};
use warpline_dataplane::qp::work::Completion;

use crate::handles::event_fd::EventFd;

/// A bounded queue of completions.
///
/// One thread at a time polls it: it can be sent to another thread, and not be shared (`Send`, not `Sync`).
/// So polling takes no lock, and no locked operation. Threads that poll the same queue put a lock around it:
/// [`SharedCompletionQueue`](crate::SharedCompletionQueue). What any thread may do at any time is in
/// [`CompletionQueueControl`], to which it dereferences.
///
/// ```compile_fail,E0277
/// # use warpline::CompletionQueue;
/// fn is_sync<T: Sync>() {}
/// is_sync::<CompletionQueue>();
/// ```
///
/// A place is reserved for every work request when it is posted, so completions are never lost: a queue that
/// is not polled makes posting fail. A message that takes a buffer from a
/// [`SharedReceiveQueue`](crate::SharedReceiveQueue) and finds no place ends its queue pair, and only that
/// ([`AsyncEvent::CompletionQueueOverflow`](crate::AsyncEvent)).
///
/// The capacity is fixed when the queue is made, and no peer can change it. Queue pairs may share a queue,
/// for sends, receives or both; do not let users that do not trust each other share one. Completions of one
/// queue pair come in order, and so do those of all queue pairs of one device.
///
/// A queue made by [`new`](Self::new) is polled. One made by [`with_events`](Self::with_events) can also be
/// slept on: by [`wait`](Self::wait), or with verbs' steps, which suit an epoll set too. Arm it
/// ([`arm`](Self::arm)); if that finds completions, poll them; else sleep until
/// [`events`](CompletionQueueControl::events) is readable, clear it, and poll.
// Requirements: RDMAP-8.1.1-05, RDMAP-8.1.2-02, RDMAP-8.1.1-04
#[derive(Debug)]
pub struct CompletionQueue {
    control: CompletionQueueControl,
    /// Not `Sync`.
    one_poller: PhantomData<Cell<()>>,
}

/// What any thread may do with a [`CompletionQueue`] while another polls it: make queue pairs that report to
/// it, and sleep on its descriptor.
#[derive(Debug)]
pub struct CompletionQueueControl {
    pub(crate) ring: Arc<CompletionRing>,
    events: Option<Arc<Events>>,
}

const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<CompletionQueue>();
    is_sync::<CompletionQueueControl>();
};

#[derive(Debug)]
struct Events {
    /// Notified when the queue was armed.
    fd: Arc<EventFd>,
    /// Threads in [`SharedCompletionQueue::wait`](crate::SharedCompletionQueue::wait) that sleep or are about
    /// to.
    sleepers: AtomicUsize,
}

impl CompletionQueue {
    /// Returns a queue with room for the completions of `capacity` work requests, one at least and
    /// [`COMPLETIONS_PER_QUEUE`](limits::COMPLETIONS_PER_QUEUE) at most: a larger `capacity` counts as that,
    /// see [`capacity`](CompletionQueueControl::capacity). It is polled: least latency, and no system call
    /// ever.
    pub fn new(capacity: usize) -> Self {
        Self::with(CompletionRing::new(bounded(capacity)), None)
    }

    /// Creates the same queue with a file descriptor to sleep on. It costs a system call for each time a
    /// sleeper is woken.
    ///
    /// # Errors
    ///
    /// When the system has no file descriptor left.
    pub fn with_events(capacity: usize) -> io::Result<Self> {
        let fd = Arc::new(EventFd::new()?);
        let ring = CompletionRing::with_notify(bounded(capacity), fd.clone());
        Ok(Self::with(ring, Some(Events { fd, sleepers: AtomicUsize::new(0) })))
    }

    /// Creates the same queue for applications that wake their threads in a way of their own, as one for many
    /// queues: `notify` is called, by the thread that polls the core, when the queue was [armed](Self::arm).
    /// [`wait`](Self::wait) then polls.
    pub fn with_notify(capacity: usize, notify: Arc<dyn Notify>) -> Self {
        Self::with(CompletionRing::with_notify(bounded(capacity), notify), None)
    }

    /// Returns the queue, in which no place is reserved when receives are posted: as those of verbs it
    /// accepts any number of them. Sends reserve half of the places at most. If more receives are complete
    /// than there is room for before the queue is polled, completions are left out, and
    /// [`AsyncEvent::CompletionQueueOverflow`](crate::AsyncEvent) says so. The queue is not in use yet:
    /// otherwise it stays as it is.
    #[must_use]
    pub fn may_overflow(mut self) -> Self {
        if let Some(ring) = Arc::get_mut(&mut self.control.ring) {
            ring.set_may_overflow();
        }
        self
    }

    fn with(ring: CompletionRing, events: Option<Events>) -> Self {
        let control = CompletionQueueControl { ring: Arc::new(ring), events: events.map(Arc::new) };
        Self { control, one_poller: PhantomData }
    }

    /// The part for any thread, for a shared form.
    pub(crate) fn control(&self) -> CompletionQueueControl {
        CompletionQueueControl { ring: self.ring.clone(), events: self.events.clone() }
    }

    /// Returns the oldest completion that was not polled yet. Does not wait.
    #[inline]
    pub fn poll(&self) -> Option<Completion> {
        self.ring.poll()
    }

    /// Moves the oldest completions to the front of `completions`. Returns how many. Does not wait.
    #[inline]
    pub fn poll_many(&self, completions: &mut [Completion]) -> usize {
        self.ring.poll_many(completions)
    }

    /// Returns the completions there are, one after the other. Their places are free for new work once the
    /// iterator is dropped.
    pub fn drain(&self) -> Drain<'_> {
        self.ring.drain()
    }

    /// Appends completions to `completions` as far as it has room without allocating. Returns how many.
    #[inline]
    pub fn poll_into(&self, completions: &mut Vec<Completion>) -> usize {
        self.ring.poll_into(completions)
    }

    /// Asks for one notification of [`events`](CompletionQueueControl::events): at the next completion, or
    /// the next that matters (verbs' `req_notify_cq`). Completions that are there already cause no
    /// notification: `true` means that there are some, so poll first.
    pub fn arm(&self, notice: Notice) -> bool {
        self.ring.arm(notice)
    }

    /// Returns the oldest completion; waits for it for `timeout`. On a queue
    /// [`with_events`](Self::with_events) the thread sleeps meanwhile, else it polls for 50 microseconds and
    /// then, ever more rarely, up to every millisecond. A peer that falls silent shows here alone.
    ///
    /// Mix it with waiting on [`events`](CompletionQueueControl::events) only on another queue.
    // Requirements: MPA-7.1.2-26
    pub fn wait(&self, timeout: Duration) -> Option<Completion> {
        let arm = || {
            self.arm(Notice::Next);
        };
        self.control.wait(timeout, || self.poll(), arm)
    }
}

impl Deref for CompletionQueue {
    type Target = CompletionQueueControl;

    fn deref(&self) -> &CompletionQueueControl {
        &self.control
    }
}

impl CompletionQueueControl {
    /// Returns its name in asynchronous events.
    pub fn number(&self) -> CqNumber {
        self.ring.number()
    }

    /// Completions it has room for.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Returns true if a queue pair has failed because its completion had no place here.
    pub fn has_overflowed(&self) -> bool {
        self.ring.has_overflowed()
    }

    /// Returns the descriptor that becomes readable after [`arm`](CompletionQueue::arm); `None` for a queue
    /// that is polled.
    pub fn events(&self) -> Option<&EventFd> {
        self.events.as_ref().map(|events| events.fd.as_ref())
    }

    /// Waits for `timeout` until `poll` returns a completion. Where threads poll in turn, both calls take the
    /// lock, and the thread sleeps without it.
    pub(crate) fn wait(
        &self,
        timeout: Duration,
        poll: impl Fn() -> Option<Completion>,
        arm: impl Fn(),
    ) -> Option<Completion> {
        match &self.events {
            _ if timeout.is_zero() => poll(),
            Some(events) => poll().or_else(|| sleep(events, timeout, poll, arm)),
            None => look(timeout, poll),
        }
    }
}

/// Sleeps until there is a completion, for `timeout`.
fn sleep(
    events: &Events,
    timeout: Duration,
    poll: impl Fn() -> Option<Completion>,
    arm: impl Fn(),
) -> Option<Completion> {
    let start = Instant::now();
    events.sleepers.fetch_add(1, Ordering::SeqCst);
    let completion = loop {
        // A completion is polled before the queue is armed for it: so armed it stays until one wakes a
        // sleeper.
        arm();
        if let Some(completion) = poll() {
            break Some(completion);
        }
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            break None;
        }
        if events.fd.wait(left) {
            events.fd.clear();
        }
    };
    // The notification may have been for others too, and the queue is armed no more: let them look.
    if events.sleepers.fetch_sub(1, Ordering::SeqCst) > 1 {
        events.fd.notify();
    }
    completion
}

/// Polls for as long as a peer on the same network takes to answer, then looks from time to time: what is
/// waited for may need this CPU.
fn look(timeout: Duration, poll: impl Fn() -> Option<Completion>) -> Option<Completion> {
    /// Polls before the clock is read.
    const POLLS: usize = 128;
    const SPIN: Duration = Duration::from_micros(50);
    const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
    const LONGEST_PAUSE: Duration = Duration::from_millis(1);
    let start = Instant::now();
    let mut pause = SHORTEST_PAUSE;
    loop {
        for _ in 0..POLLS {
            if let Some(completion) = poll() {
                return Some(completion);
            }
            core::hint::spin_loop();
        }
        let elapsed = start.elapsed();
        if elapsed >= timeout {
            return None;
        }
        if elapsed >= SPIN {
            thread::sleep(pause.min(timeout.saturating_sub(elapsed)));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// Returns how many places a queue of `capacity` has.
fn bounded(capacity: usize) -> usize {
    capacity.min(limits::COMPLETIONS_PER_QUEUE)
}
