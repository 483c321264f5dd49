//! The output of the engine for the loop around it: commands for the core, and replies for handles.

use std::collections::VecDeque;

use warpline_dataplane::ring::Command;

use super::interface::reply::Reply;

/// Delivers one reply.
pub(crate) type Delivery = Box<dyn FnOnce() + Send>;

/// The outputs of the engine that the loop has not taken yet.
pub(super) struct Outbox {
    commands: VecDeque<Command>,
    replies: VecDeque<Delivery>,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { commands: VecDeque::new(), replies: VecDeque::new() }
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
