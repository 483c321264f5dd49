//! What two cores do at the same time with the ring between them, in every order that memory allows.

use std::sync::Arc;

use loom::thread;

use super::inbox::Inbox;
use super::ring::ring;
use crate::notify::Notify;
use crate::sync::{AtomicBool, Ordering};
use crate::waker::Waker;

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // More switches between threads than the protocol has steps that matter.
    builder.preemption_bound = Some(4);
    builder.check(f);
}

/// A bell that says whether it has rung.
#[derive(Default)]
struct Bell(AtomicBool);

impl Notify for Bell {
    fn notify(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Takes what the ring has, as a poll does.
fn poll(inbox: &Inbox, from: &mut super::ring::RingConsumer<u32>, frames: &mut Vec<u32>) {
    if inbox.received.take() != 0 {
        from.pop_burst(frames, 32);
    }
}

/// A core sleeps only if all frames so far have been received, or its bell rings.
fn no_frame_is_slept_over(registers_late: bool) {
    model(move || {
        let inbox = Arc::new(Inbox::new());
        let bell = Arc::new(Bell::default());
        let waker = Arc::new(Waker::new(bell.clone()));
        let (mut to, mut from) = ring(2);
        if !registers_late {
            assert!(inbox.wake_by(&waker));
        }
        let sender = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                for number in [1, 2] {
                    assert!(to.push(number).is_ok());
                    inbox.announce_received(3);
                }
            })
        };
        let mut frames = Vec::new();
        if registers_late {
            // The sender may run here. To register is no operation of the model, which switches at none else.
            let _ = inbox.received.any();
            assert!(inbox.wake_by(&waker));
        }
        waker.arm();
        poll(&inbox, &mut from, &mut frames);
        if frames.len() < 2 {
            sender.join().expect("it has pushed both");
            // The thread sleeps by now: what it has not seen has rung.
            assert!(bell.0.load(Ordering::Acquire), "{frames:?}: it would sleep");
            poll(&inbox, &mut from, &mut frames);
        } else {
            sender.join().expect("it has pushed both");
        }
        assert_eq!(frames, [1, 2]);
    });
}

#[test]
fn a_sleeping_core_is_woken() {
    no_frame_is_slept_over(false);
}

#[test]
fn a_core_that_registers_its_waker_late_is_woken() {
    no_frame_is_slept_over(true);
}

/// A bit that is taken covers what its ring has; what is pushed meanwhile is announced again.
#[test]
fn nothing_is_left_unannounced() {
    model(|| {
        let inbox = Arc::new(Inbox::new());
        let senders: Vec<_> = (0..2)
            .map(|core| {
                let (mut to, from) = ring(2);
                let inbox = inbox.clone();
                let thread = thread::spawn(move || {
                    assert_eq!(to.push_burst(&mut vec![10 * core, 10 * core + 1]), 2);
                    inbox.announce_received(core as u8);
                });
                (thread, from)
            })
            .collect();
        let mut frames = Vec::new();
        let (threads, mut rings): (Vec<_>, Vec<_>) = senders.into_iter().unzip();
        let mut poll = |inbox: &Inbox| {
            let senders = inbox.received.take();
            for (core, from) in rings.iter_mut().enumerate().filter(|(core, _)| senders >> core & 1 == 1) {
                assert_eq!(from.pop_burst(&mut frames, 32), 2, "what core {core} has announced is there");
            }
        };
        poll(&inbox);
        for thread in threads {
            thread.join().expect("it has pushed");
        }
        poll(&inbox);
        frames.sort_unstable();
        assert_eq!(frames, [0, 1, 10, 11]);
        assert!(!inbox.received.any());
    });
}
