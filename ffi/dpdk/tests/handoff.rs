//! Tests of the ring between two threads: frames arrive once and in order, and none is lost at its end.
#![allow(missing_docs)]

mod common;

use std::thread;

use common::{frame, pool};
use dpdk::handoff;

#[test]
fn frames_cross_in_order_and_come_back() {
    const FRAMES: u32 = 100_000;
    let pool = pool(63, 256);
    let (mut there, mut arriving) = handoff(8);
    let (mut back, mut returning) = handoff(64);
    let mut free: Vec<_> = (0..63).map(|_| frame(&pool, &[0; 4])).collect();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut frames, mut expected) = (Vec::new(), 0u32);
            while expected < FRAMES {
                if arriving.receive(&mut frames, 5) == 0 {
                    thread::yield_now();
                }
                for frame in &frames {
                    assert_eq!(frame.first(), expected.to_be_bytes());
                    expected += 1;
                }
                while !frames.is_empty() {
                    back.send(&mut frames);
                }
            }
        });
        let mut numbers = 0..FRAMES;
        let mut ready = Vec::new();
        while !numbers.is_empty() || !ready.is_empty() {
            returning.receive(&mut free, 64);
            while let Some(mut frame) = free.pop() {
                let Some(number) = numbers.next() else { break };
                frame.first_mut().copy_from_slice(&number.to_be_bytes());
                ready.push(frame);
            }
            let sent = there.send(&mut ready);
            assert!(sent <= 8, "no more than the ring takes");
            if sent == 0 {
                thread::yield_now();
            }
        }
    });
    drop((free, returning));
    // The last frames may be in the cache of the thread that has ended.
    assert!(pool.available() + 32 >= pool.capacity());
}

#[test]
fn a_ring_takes_what_it_has_room_for_and_frees_what_is_left() {
    let pool = pool(63, 256);
    let (mut sender, mut receiver) = handoff(5);
    let mut frames: Vec<_> = (0..10).map(|number| frame(&pool, &[number])).collect();
    assert_eq!((sender.send(&mut frames), frames.len()), (8, 2), "a power of two");
    assert_eq!(frames[0].first(), [8], "the first ones were sent");
    assert_eq!(sender.send(&mut frames), 0);
    let mut received = Vec::new();
    assert_eq!(receiver.receive(&mut received, 3), 3);
    assert_eq!(sender.send(&mut frames), 2);
    assert_eq!(
        receiver.receive(&mut received, 100),
        5,
        "what the sender had sent when it was last looked at"
    );
    assert_eq!(receiver.receive(&mut received, 100), 2);
    let numbers: Vec<_> = received.iter().map(|frame| frame.first()[0]).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    sender.send(&mut received);
    drop((sender, receiver, received));
    assert_eq!(pool.available(), pool.capacity());
}
