//! The control thread of a device: it goes round in the loop around the engine, and sleeps while there is
//! nothing to do.

use std::thread;
use std::time::Duration;

use super::clock::now;
use super::control_loop::{ControlLoop, Round};
use super::control_waker::ControlWaker;

/// Serves until the last handle of the device is dropped and its connections are closed, or the core is no
/// longer polled. Sleeps while there is nothing to do: a request wakes the thread by `waker`, and the driver
/// of the core does after a poll with events.
pub(super) fn run(mut control: ControlLoop, waker: &ControlWaker) {
    waker.register_thread();
    loop {
        match control.go_round() {
            Round::Last => return,
            Round::Busy => {}
            // A thread that gives it work after this point unparks it, which ends the next sleep at once.
            Round::Idle => thread::park_timeout(Duration::from_nanos(control.next_deadline() - now())),
        }
    }
}
