//! The output of the engine for the loop around it: commands for the core, replies for handles, and the time
//! of the next call.

use std::collections::VecDeque;

use warpline_dataplane::ring::Command;
use warpline_dataplane::time::Instant;

use super::interface::reply::Reply;

/// Delivers one reply.
pub(crate) type Delivery = Box<dyn FnOnce() + Send>;

/// The outputs of the engine that the loop has not taken yet.
pub(super) struct Outbox {
    commands: VecDeque<Command>,
    replies: VecDeque<Delivery>,
    deadline: Instant,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { commands: VecDeque::new(), replies: VecDeque::new(), deadline: Instant::NEVER }
    }

    /// Queues a command for the core.
    pub(super) fn command(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// Queues a reply. It leaves after the commands before it, so that the application's next call finds
    /// their effects.
    pub(super) fn reply<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        self.replies.push_back(Box::new(move || reply.send(value)));
    }

    /// Asks for a call at `at` at the latest.
    pub(super) fn wake_at(&mut self, at: Instant) {
        self.deadline = self.deadline.min(at);
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns true, and forgets the deadline, if it has come.
    pub(super) fn take_deadline(&mut self, now: Instant) -> bool {
        let due = now >= self.deadline;
        if due {
            self.deadline = Instant::NEVER;
        }
        due
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    pub(super) fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Takes back a command that the core has no room for.
    pub(super) fn return_command(&mut self, command: Command) {
        self.commands.push_front(command);
    }

    pub(super) fn next_reply(&mut self) -> Option<Delivery> {
        self.replies.pop_front()
    }
}
