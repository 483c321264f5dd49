//! The output of the engine for the loop around it: commands for each core, and replies for handles.

use std::collections::VecDeque;

use warpline_dataplane::ring::{Command, ConnectionId};
use warpline_dataplane::time::{Instant, SECOND};

use super::interface::reply::Reply;
use crate::vocabulary::core_set::CoreSet;

/// How long an application, or a work request, waits for what several cores do.
const PATIENCE_NS: u64 = 5 * SECOND;

/// Delivers one reply.
pub(crate) type Delivery = Box<dyn FnOnce() + Send>;

/// The outputs of the engine that the loop has not taken yet. Each core has commands of its own: one that
/// takes none keeps no other from what it is to do.
pub(super) struct Outbox {
    commands: Box<[VecDeque<Command>]>,
    /// The cores that are polled.
    alive: CoreSet,
    replies: VecDeque<Delivery>,
}

impl Outbox {
    pub(super) fn new(cores: u8) -> Self {
        let commands = (0..cores).map(|_| VecDeque::new()).collect();
        Self { commands, alive: CoreSet::first(cores), replies: VecDeque::new() }
    }

    /// Returns how many cores there are, and were.
    pub(super) fn cores(&self) -> u8 {
        self.commands.len() as u8
    }

    /// Returns how long somebody waits for cores who asks them for something now.
    pub(super) fn until(&self, now: Instant) -> Instant {
        self.until_within(now, PATIENCE_NS)
    }

    /// The same, with a patience of its own. The only core of a device is waited for without limit: whoever
    /// asks may be about to poll it.
    pub(super) fn until_within(&self, now: Instant, patience_ns: u64) -> Instant {
        if self.cores() == 1 { Instant::NEVER } else { now + patience_ns }
    }

    /// Returns the cores that are polled.
    pub(super) const fn alive(&self) -> CoreSet {
        self.alive
    }

    /// Returns a core that is polled, for what any of them can do.
    pub(super) fn any_core(&self) -> u8 {
        self.alive.iter().next().unwrap_or_default()
    }

    /// Queues a command for the core of a connection, which it is about.
    pub(super) fn command(&mut self, connection: ConnectionId, command: Command) {
        self.command_core(connection.core(), command);
    }

    /// Queues a command for a core, unless that is no longer polled.
    pub(super) fn command_core(&mut self, core: u8, command: Command) {
        if self.alive.contains(core) {
            self.commands[usize::from(core)].push_back(command);
        }
    }

    /// Queues a command for each of the cores.
    pub(super) fn command_each(&mut self, cores: CoreSet, command: impl Fn() -> Command) {
        for core in cores.iter() {
            self.command_core(core, command());
        }
    }

    /// Queues a reply. It leaves after the commands before it, so that the application's next call finds
    /// their effects.
    pub(super) fn reply<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        self.replies.push_back(Box::new(move || reply.send(value)));
    }

    pub(super) fn has_commands(&self) -> bool {
        self.commands.iter().any(|commands| !commands.is_empty())
    }

    pub(super) fn next_command(&mut self, core: u8) -> Option<Command> {
        self.commands[usize::from(core)].pop_front()
    }

    /// Takes back a command that the core has no room for.
    pub(super) fn return_command(&mut self, core: u8, command: Command) {
        self.commands[usize::from(core)].push_front(command);
    }

    /// Drops the commands for a core that is no longer polled.
    pub(super) fn remove_core(&mut self, core: u8) {
        self.alive = self.alive.without(core);
        self.commands[usize::from(core)].clear();
    }

    pub(super) fn next_reply(&mut self) -> Option<Delivery> {
        self.replies.pop_front()
    }
}
