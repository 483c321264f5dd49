//! Threads that sleep until frames come, from the wire or from other cores.

use super::frames::{flow, segment};
use super::*;
use crate::notify::Notify;
use crate::sync::{AtomicU32, Ordering};
use crate::waker::Waker;

#[derive(Default)]
struct Count(AtomicU32);

impl Notify for Count {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Has each core woken, and asleep. Returns the wakers with their counts.
fn sleep_all(bench: &mut Bench) -> Vec<(Arc<Waker>, Arc<Count>)> {
    let wakers = bench.cores.iter_mut().map(|core| {
        let count = Arc::new(Count::default());
        let waker = Arc::new(Waker::new(count.clone()));
        assert!(core.wake_on_arrival(&waker));
        waker.arm();
        (waker, count)
    });
    wakers.collect()
}

fn woken(wakers: &[(Arc<Waker>, Arc<Count>)]) -> Vec<u32> {
    wakers.iter().map(|(_, count)| count.0.load(Ordering::Relaxed)).collect()
}

#[test]
fn a_core_is_woken_once_for_what_is_handed_to_it() {
    let steering = steering(4, 1);
    let mut bench = Bench::new(&steering, None);
    let wakers = sleep_all(&mut bench);
    let owned = (2..200).map(|host| flow(host, 1, false)).find(|flow| steering.owner(flow) == 2);
    let frames: Vec<_> = (0..5).map(|number| segment(&owned.expect("one"), number)).collect();
    bench.inject(&frames);
    assert_eq!(woken(&wakers), [1, 0, 0, 0], "core 0, by the link: it polls the queue");
    assert!(bench.poll(0).is_empty());
    assert_eq!(woken(&wakers), [1, 0, 1, 0]);
    assert!(!bench.cores[1].may_have_frames() && bench.cores[2].may_have_frames());
    assert_eq!(bench.poll(2), frames);
    assert!(!bench.cores[2].may_have_frames());
}

#[test]
fn core_0_is_woken_to_send() {
    let mut bench = Bench::new(&steering(4, 1), None);
    let wakers = sleep_all(&mut bench);
    assert!(transmit(&mut bench.cores[3], &segment(&flow(2, 1, false), 1)));
    assert_eq!(woken(&wakers), [1, 0, 0, 0]);
}

/// Each core of an adapter is woken by its queue as well.
#[test]
fn a_core_with_a_queue_is_woken_by_it() {
    let steering = steering(2, 1);
    let mut bench = Bench::new(&steering, Some(&steering));
    let wakers = sleep_all(&mut bench);
    bench.inject(&[segment(&flow(2, 1, false), 1)]);
    assert_eq!(woken(&wakers), [1, 1]);
}

#[test]
fn a_core_has_one_waker() {
    let mut bench = Bench::new(&steering(2, 1), None);
    let wakers = sleep_all(&mut bench);
    assert!(bench.cores[1].wake_on_arrival(&wakers[1].0));
    assert!(!bench.cores[1].wake_on_arrival(&wakers[0].0));
}

/// Frames that come before a core has a waker are found by its first poll.
#[test]
fn frames_come_before_the_waker() {
    let mut bench = Bench::new(&steering(2, 1), None);
    assert!(transmit(&mut bench.cores[1], &segment(&flow(2, 1, false), 1)));
    let _ = sleep_all(&mut bench);
    assert!(bench.cores[0].may_have_frames());
}
