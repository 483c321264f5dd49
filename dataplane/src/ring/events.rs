//! Events on their way to control. None is lost: those that the ring has no room for wait here, and events
//! without a bound on their number (streaming octets) are not produced while any event waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Event;
use crate::sync::ArrayQueue;

/// Events on their way to control.
pub struct Events {
    ring: Arc<ArrayQueue<Event>>,
    /// At most a few per connection, queue pair and command: each of those causes a bounded number of events.
    waiting: VecDeque<Event>,
    /// There is an event, or room for commands, since control was last woken.
    has_news: bool,
}

impl Events {
    /// Returns no events, for `ring`.
    pub fn new(ring: Arc<ArrayQueue<Event>>) -> Self {
        Self { waiting: VecDeque::with_capacity(ring.capacity()), ring, has_news: false }
    }

    /// Returns true if an event that could also be produced later may be produced now.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.ring.len() < self.ring.capacity() / 2
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.has_news = true;
        if !self.waiting.is_empty() {
            self.waiting.push_back(event);
        } else if let Err(event) = self.ring.push(event) {
            self.waiting.push_back(event);
        }
    }

    /// Records that there is room for commands again, of which there is no event.
    pub fn record_change(&mut self) {
        self.has_news = true;
    }

    /// Returns true if there is an event, or room for commands, since the last call.
    pub fn clear_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Returns how many events wait for room in the ring.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Moves the events that wait into the ring, as many as there is room for.
    #[inline]
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.move_waiting();
        }
    }

    #[cold]
    fn move_waiting(&mut self) {
        while let Some(event) = self.waiting.pop_front() {
            if let Err(event) = self.ring.push(event) {
                self.waiting.push_front(event);
                return;
            }
            // Control may have emptied the ring, and sleep since.
            self.has_news = true;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::qp::work::QpNumber;

    /// Control sleeps once it has emptied the ring: what waited for room is news to it, as new events are.
    #[test]
    fn what_waited_for_room_is_news() {
        let ring = Arc::new(ArrayQueue::new(2));
        let mut events = Events::new(ring.clone());
        (0..3).for_each(|number| events.push(Event::QpEnded(QpNumber(number))));
        assert!(events.clear_news());
        events.flush();
        assert!(!events.clear_news(), "there is no room: control is behind");
        assert!(ring.pop().is_some() && ring.pop().is_some());
        events.flush();
        assert!(events.clear_news());
        assert_eq!((events.waiting(), ring.len()), (0, 1));
    }
}
