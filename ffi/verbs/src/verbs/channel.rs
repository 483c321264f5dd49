//! Completion channels: descriptors on which programs sleep for completions.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpline::Notify;

use super::context::{self, Context};
use super::cq::{self, CqEvents};
use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::adapter::{hand_over, turn};
use crate::errno::{descriptor, guarded, number, pointer};
use crate::object::{Kind, Object, Use};
use crate::tokens::{self, Tokens};

/// A completion channel.
pub(crate) struct CompletionChannel {
    pub(crate) tokens: Arc<Tokens>,
    queues: Mutex<Queues>,
    _context: Use<Context>,
}

/// The queues of a channel, which are asked in turn.
#[derive(Default)]
struct Queues {
    /// With the program's pointers.
    all: Vec<(usize, Arc<CqEvents>)>,
    next: usize,
}

impl Kind for CompletionChannel {
    type Public = ibv_comp_channel;
    const MARK: u64 = 0x7761_7270_6363_3030;
}

/// Counts the events of one queue, and brings each to the channel: the core calls it, so it neither waits
/// nor allocates. A closed one brings nothing: the queue pairs of a destroyed queue still flush to it.
pub(crate) struct Bell {
    tokens: Arc<Tokens>,
    counts: AtomicU64,
}

/// What a bell counts, in one word.
///
/// An event is counted before its token is added, so that a thread that reads the token finds the event. The
/// tokens of all queues of a channel are alike, so a bell that is closed takes back exactly as many as it has
/// added and the program has not taken. The thread that closes it takes back those that are there for
/// certain, and a thread that rings meanwhile takes back its own. If there are two events, and one thread
/// rings, each of the two threads takes one token back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Events that the program has not taken; of a closed bell those whose tokens are yet to be taken back by
    /// threads that ring.
    events: u32,
    /// Threads that have counted an event, and are about to add its token or have just done so.
    ringing: u16,
    closed: bool,
}

impl Counts {
    const RINGING_AT: u32 = u32::BITS;
    const CLOSED_AT: u32 = Self::RINGING_AT + u16::BITS;

    const fn of_word(word: u64) -> Self {
        Self {
            events: word as u32,
            ringing: (word >> Self::RINGING_AT) as u16,
            closed: word >> Self::CLOSED_AT != 0,
        }
    }

    const fn word(self) -> u64 {
        self.events as u64
            | (self.ringing as u64) << Self::RINGING_AT
            | (self.closed as u64) << Self::CLOSED_AT
    }
}

impl Bell {
    pub(crate) const fn new(tokens: Arc<Tokens>) -> Self {
        Self { tokens, counts: AtomicU64::new(0) }
    }

    fn counts(&self) -> Counts {
        Counts::of_word(self.counts.load(Ordering::Acquire))
    }

    /// Changes the counts, unless `change` returns none. Returns what they were.
    fn change(&self, change: impl Fn(Counts) -> Option<Counts>) -> Option<Counts> {
        let change = |word| change(Counts::of_word(word)).map(Counts::word);
        self.counts.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).ok().map(Counts::of_word)
    }

    /// Returns true if there is an event.
    fn has_event(&self) -> bool {
        self.counts().events > 0
    }

    /// Takes an event, if there is one.
    fn take(&self) -> bool {
        self.change(|counts| Some(Counts { events: counts.events.checked_sub(1)?, ..counts })).is_some()
    }

    /// Counts an event, whose token the caller is to add. Returns false if the bell is closed.
    fn begin_ringing(&self) -> bool {
        let counted = |counts: Counts| Counts {
            events: counts.events.saturating_add(1),
            ringing: counts.ringing.saturating_add(1),
            ..counts
        };
        self.change(|counts| (!counts.closed).then(|| counted(counts))).is_some()
    }

    /// Takes note that the token is there, and takes one back if the bell was closed meanwhile.
    fn end_ringing(&self) {
        let before = self.change(|counts| {
            let events = if counts.closed { counts.events.saturating_sub(1) } else { counts.events };
            Some(Counts { events, ringing: counts.ringing.saturating_sub(1), ..counts })
        });
        if before.is_some_and(|before| before.closed && before.events > 0) {
            self.tokens.take_back();
        }
    }

    /// Closes the bell, whose queue no thread of the program looks at any more, and takes back all events
    /// that the program has not taken.
    fn close(&self) {
        let left_to_ringing = |counts: Counts| counts.events.min(counts.ringing.into());
        let before = self.change(|counts| {
            (!counts.closed).then(|| Counts { events: left_to_ringing(counts), closed: true, ..counts })
        });
        let Some(before) = before else { return };
        for _ in left_to_ringing(before)..before.events {
            self.tokens.take_back();
        }
    }
}

impl Notify for Bell {
    fn notify(&self) {
        if self.begin_ringing() {
            self.tokens.add();
            self.end_ringing();
        }
    }
}

impl CompletionChannel {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue, the program's `cq`.
    pub(crate) fn add(&self, cq: *mut ibv_cq, events: &Arc<CqEvents>) {
        self.lock().all.push((cq.expose_provenance(), events.clone()));
    }

    /// Removes a queue, with those of its events that the program has not taken.
    pub(crate) fn remove(&self, cq: *mut ibv_cq) {
        let mut queues = self.lock();
        if let Some(place) = queues.all.iter().position(|(other, _)| *other == cq.addr()) {
            let (_, events) = queues.all.swap_remove(place);
            if let Some(bell) = &events.bell {
                bell.close();
            }
        }
    }

    /// Returns true if a queue has an event.
    fn has_event(&self) -> bool {
        self.lock().all.iter().any(|(_, events)| events.bell.as_ref().is_some_and(|bell| bell.has_event()))
    }

    /// Takes an event; `None` if it was withdrawn.
    fn take(&self) -> Option<*mut ibv_cq> {
        let mut queues = self.lock();
        let (count, first) = (queues.all.len(), queues.next);
        for place in (first..first + count).map(|place| place % count) {
            let (cq, events) = &queues.all[place];
            if events.bell.as_ref().is_some_and(|bell| bell.take()) {
                events.acks.taken();
                let cq = std::ptr::with_exposed_provenance_mut(*cq);
                queues.next = place + 1;
                return Some(cq);
            }
        }
        None
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { context::context(context)? };
        let tokens = Arc::new(Tokens::new()?);
        let public = ibv_comp_channel { context, fd: tokens.fd(), refcnt: 0 };
        let inner = CompletionChannel { tokens, queues: Mutex::default(), _context: object.used() };
        Ok(Object::hand_out(public, inner))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    number(|| unsafe { Object::<CompletionChannel>::take_back(channel) }.map(drop))
}

/// How long a thread that waits takes turns at the device before it sleeps: longer than a peer on the same
/// network takes to answer.
const TURNS_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Turns between two looks at the descriptor, each of which is a system call.
const TURNS_PER_LOOK: usize = 64;

/// Waits for an event of a queue of the channel; -1 if there is none and the descriptor does not wait.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    if unsafe { take_event_soon(channel, cq, cq_context) } {
        return 0;
    }
    loop {
        // SAFETY: as above: the channel, with its descriptor, stays.
        unsafe {
            let fd = descriptor(|| Ok(Object::<CompletionChannel>::of(channel)?.inner().tokens.fd()));
            hand_over();
            if fd < 0 || !tokens::wait(fd) {
                return -1;
            }
            if take_event(channel, cq, cq_context) {
                return 0;
            }
        }
    }
}

/// Takes turns at the device until there is an event, for a while, and writes it as [`take_event`] does;
/// false if there was none.
unsafe fn take_event_soon(
    channel: *mut ibv_comp_channel,
    target: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> bool {
    guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { Object::<CompletionChannel>::of(channel)? };
        let start = Instant::now();
        let waits = object.inner().tokens.waits();
        loop {
            if object.inner().tokens.take_back() {
                // SAFETY: as above.
                return Ok(unsafe { take_event(channel, target, cq_context) });
            }
            if !waits {
                return Ok(false);
            }
            let mut busy = false;
            for _ in 0..TURNS_PER_LOOK {
                busy |= turn();
                if object.inner().has_event() {
                    break;
                }
            }
            if !busy && start.elapsed() >= TURNS_BEFORE_SLEEP {
                return Ok(false);
            }
        }
    })
    .unwrap_or(false)
}

/// Writes the queue that has an event, and its context; false if the event was withdrawn.
unsafe fn take_event(
    channel: *mut ibv_comp_channel,
    target: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> bool {
    guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let channel = unsafe { Object::<CompletionChannel>::of(channel)? };
        let Some(cq) = channel.inner().take() else { return Ok(false) };
        // SAFETY: the caller has room for both; the queue is there until its event is acknowledged.
        unsafe {
            target.write(cq);
            cq_context.write((*cq).cq_context);
        }
        Ok(true)
    })
    .unwrap_or(true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, events: u32) {
    let _ = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { cq::of(queue)? }.inner().events.acks.acknowledged(events);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two queues of a channel, with the tokens that they share.
    fn bells() -> (Arc<Tokens>, [Bell; 2]) {
        let tokens = Arc::new(Tokens::new().unwrap());
        let bells = [(); 2].map(|()| Bell::new(tokens.clone()));
        (tokens, bells)
    }

    /// Takes all tokens, and returns how many there were.
    fn drained(tokens: &Tokens) -> usize {
        std::iter::from_fn(|| tokens.take_back().then_some(())).count()
    }

    #[test]
    fn a_closed_bell_brings_nothing() {
        let (tokens, [closed, other]) = bells();
        for bell in [&closed, &closed, &other] {
            bell.notify();
        }
        assert!(closed.take());
        closed.close();
        closed.notify();
        closed.close();
        assert!(!closed.has_event() && other.has_event());
        // One of the event that was taken, whose token its thread has read or is about to read.
        assert_eq!(drained(&tokens), 2);
        assert_eq!(closed.counts(), Counts { events: 0, ringing: 0, closed: true });
    }

    /// The token of an event that is counted may be added after the bell was closed. It does not stay, and
    /// that of the other queue does.
    #[test]
    fn a_bell_that_is_closed_while_it_rings_leaves_no_token() {
        for added_before in [false, true] {
            for other_has_event in [false, true] {
                let (tokens, [closed, other]) = bells();
                if other_has_event {
                    other.notify();
                }
                closed.notify();
                assert!(closed.begin_ringing());
                if added_before {
                    tokens.add();
                }
                closed.close();
                if !added_before {
                    tokens.add();
                }
                closed.end_ringing();
                assert_eq!(drained(&tokens), usize::from(other_has_event), "{added_before}");
                assert_eq!(closed.counts(), Counts { events: 0, ringing: 0, closed: true });
            }
        }
    }

    /// An event that the program has taken with its token leaves nothing to take back.
    #[test]
    fn an_event_that_is_taken_while_the_bell_rings_is_not_taken_back() {
        let (tokens, [closed, other]) = bells();
        other.notify();
        assert!(closed.begin_ringing());
        tokens.add();
        assert!(tokens.take_back() && closed.take());
        closed.close();
        closed.end_ringing();
        assert_eq!(drained(&tokens), 1, "the token of the other queue");
    }

    #[test]
    fn counts_are_kept_in_one_word() {
        let most = Counts { events: u32::MAX, ringing: u16::MAX, closed: true };
        for counts in [Counts::default(), most, Counts { events: 3, ringing: 2, closed: false }] {
            assert_eq!(Counts::of_word(counts.word()), counts);
        }
    }
}
