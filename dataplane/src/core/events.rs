//! Events on their way to control. None is lost: what the ring has no room for waits here, and what could come without
//! bound (streaming octets) is not produced while anything waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ring::Event;
use crate::sync::ArrayQueue;

pub(super) struct Events {
    ring: Arc<ArrayQueue<Event>>,
    /// At most a few per connection, queue pair and command: each of those causes a bounded number of events.
    waiting: VecDeque<Event>,
    /// There is something for control to look at that it has not been told of.
    news: bool,
}

impl Events {
    pub(super) fn new(ring: Arc<ArrayQueue<Event>>) -> Self {
        Self { waiting: VecDeque::with_capacity(ring.capacity()), ring, news: false }
    }

    /// Whether an event that could also be produced later may be produced now.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.ring.len() < self.ring.capacity() / 2
    }

    pub(super) fn push(&mut self, event: Event) {
        self.news = true;
        if !self.waiting.is_empty() {
            self.waiting.push_back(event);
        } else if let Err(event) = self.ring.push(event) {
            self.waiting.push_back(event);
        }
    }

    /// Something has changed that control looks at, without an event.
    pub(super) fn note(&mut self) {
        self.news = true;
    }

    /// Whether control has something to look at, once.
    pub(super) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// Events that wait for room in the ring.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Moves what waits into the ring.
    pub(super) fn flush(&mut self) {
        while let Some(event) = self.waiting.pop_front() {
            if let Err(event) = self.ring.push(event) {
                self.waiting.push_front(event);
                return;
            }
        }
    }
}
