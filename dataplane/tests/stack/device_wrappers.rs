//! Tests of the devices that wrap another: a thread that sleeps until frames arrive relies on the receive
//! interrupt and on the waker of the device inside, and the cores of a device on its way between them.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{io, iter};

use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::fault::{Fault, Impairments};
use warpline_dataplane::device::packet::HeardPorts;
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice, SimFrame};
use warpline_dataplane::device::tap::{Tap, TapConfig};
use warpline_dataplane::device::{Capabilities, Device, Frame, RxInterrupt, RxTrigger};
use warpline_dataplane::net::notice::Notice;
use warpline_dataplane::notify::Notify;
use warpline_dataplane::ring::{Event, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{Instant, SECOND};
use warpline_dataplane::waker::Waker;
use warpline_dataplane::wire::ethernet::MacAddress;

use crate::common::{TestCore, address, core_on};

/// When the next frame arrives at the device inside.
const ARRIVAL: Instant = Instant::from_nanos(9);

/// The calls that have reached the device inside.
#[derive(Default)]
struct Calls {
    enabled: AtomicU32,
    disabled: AtomicU32,
    wakers: AtomicU32,
    /// The core that the last frame was handed to.
    handed_to: AtomicU32,
    /// Frames that the device says it has dropped on the way between cores.
    not_handed_over: AtomicU32,
    /// Frames that the device says it has dropped for a core of the other end that has stalled.
    stalled: AtomicU32,
    /// Frames that it says it had no room for.
    missed: AtomicU32,
    unsent: AtomicU32,
    /// The device says that its adapter differs.
    differs: AtomicBool,
    /// The device says that it has no frames.
    is_empty: AtomicBool,
    /// The ports that it hears were asked for.
    asked_for_ports: AtomicBool,
}

impl Calls {
    fn counts(&self) -> [u32; 3] {
        [&self.enabled, &self.disabled, &self.wakers].map(|calls| calls.load(Ordering::Relaxed))
    }
}

/// A device with a receive interrupt.
struct Interrupting {
    device: SimDevice,
    interrupt: File,
    calls: Arc<Calls>,
}

impl Device for Interrupting {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.device.mac()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<SimFrame>, limit: usize) -> usize {
        self.device.receive(now, frames, limit)
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.device.allocate()
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<SimFrame>) -> usize {
        self.device.transmit(now, frames)
    }

    fn hand_over(&mut self, core: u8, _: SimFrame) -> Result<(), SimFrame> {
        self.calls.handed_to.store(core.into(), Ordering::Relaxed);
        Ok(())
    }

    fn frames_not_handed_over(&self) -> u64 {
        self.calls.not_handed_over.load(Ordering::Relaxed).into()
    }

    fn stalled_frames(&self) -> u64 {
        self.calls.stalled.load(Ordering::Relaxed).into()
    }

    fn missed_frames(&self) -> u64 {
        self.calls.missed.load(Ordering::Relaxed).into()
    }

    fn unsent_frames(&self) -> u64 {
        self.calls.unsent.load(Ordering::Relaxed).into()
    }

    fn may_have_frames(&self) -> bool {
        !self.calls.is_empty.load(Ordering::Relaxed)
    }

    fn allocate_burst(&mut self, frames: &mut Vec<SimFrame>, limit: usize) {
        frames.extend(iter::from_fn(|| self.device.allocate()).take(limit));
    }

    fn reaches_programs(&self) -> bool {
        true
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        self.calls.asked_for_ports.store(true, Ordering::Relaxed);
        None
    }

    fn next_arrival(&self) -> Option<Instant> {
        Some(ARRIVAL)
    }

    fn adapter_differs(&self) -> bool {
        self.calls.differs.load(Ordering::Relaxed)
    }

    fn wake_on_arrival(&mut self, _: &Arc<Waker>) -> bool {
        self.calls.wakers.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        Some(RxInterrupt { fd: self.interrupt.as_fd(), trigger: RxTrigger::Edge })
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        self.calls.enabled.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn disable_rx_interrupt(&mut self) {
        self.calls.disabled.fetch_add(1, Ordering::Relaxed);
    }
}

struct Nobody;

impl Notify for Nobody {
    fn notify(&self) {}
}

/// Checks that the device that `wrap` makes forwards the interrupt, the waker, bursts of empty frames, and
/// frames of other cores to the one inside, and what that one reports of itself and its cores. Returns it
/// with an empty one inside.
fn check<D: Device>(wrap: impl FnOnce(Interrupting) -> D) -> D {
    let (device, _) = sim::link(1, EndConfig::a(), EndConfig::b());
    let interrupt = File::open("/dev/null").unwrap();
    let (fd, calls) = (interrupt.as_raw_fd(), Arc::new(Calls::default()));
    let mut wrapper = wrap(Interrupting { device, interrupt, calls: calls.clone() });
    let found = wrapper.rx_interrupt().map(|interrupt| (interrupt.fd.as_raw_fd(), interrupt.trigger));
    assert_eq!(found, Some((fd, RxTrigger::Edge)));
    assert_eq!(calls.counts(), [0, 0, 0]);
    assert!(wrapper.enable_rx_interrupt());
    assert_eq!(calls.counts(), [1, 0, 0]);
    wrapper.disable_rx_interrupt();
    assert_eq!(calls.counts(), [1, 1, 0]);
    assert!(wrapper.wake_on_arrival(&Arc::new(Waker::new(Arc::new(Nobody)))));
    assert_eq!(calls.counts(), [1, 1, 1]);
    assert!(wrapper.reaches_programs());
    assert_eq!(wrapper.next_arrival(), Some(ARRIVAL));
    assert!(wrapper.take_heard_ports().is_none() && calls.asked_for_ports.load(Ordering::Relaxed));
    let mut frames = Vec::new();
    wrapper.allocate_burst(&mut frames, 3);
    assert_eq!(frames.len(), 3);
    let frame = wrapper.allocate().expect("an empty frame");
    assert!(wrapper.hand_over(3, frame).is_ok(), "the device inside takes it");
    assert_eq!(calls.handed_to.load(Ordering::Relaxed), 3);
    assert_eq!((wrapper.frames_not_handed_over(), wrapper.adapter_differs()), (0, false));
    assert_eq!((wrapper.stalled_frames(), wrapper.missed_frames(), wrapper.unsent_frames()), (0, 0, 0));
    calls.not_handed_over.store(5, Ordering::Relaxed);
    calls.stalled.store(6, Ordering::Relaxed);
    calls.missed.store(7, Ordering::Relaxed);
    calls.unsent.store(8, Ordering::Relaxed);
    calls.differs.store(true, Ordering::Relaxed);
    assert_eq!((wrapper.frames_not_handed_over(), wrapper.adapter_differs()), (5, true));
    assert_eq!((wrapper.stalled_frames(), wrapper.missed_frames(), wrapper.unsent_frames()), (6, 7, 8));
    calls.is_empty.store(true, Ordering::Relaxed);
    wrapper
}

/// The frames that the device drops between cores are counted by cause, and an adapter that differs is a
/// notice, once.
#[test]
fn a_core_counts_the_drops_of_its_device_and_reports_an_adapter_that_differs() {
    let (device, mut peer) = sim::link(1, EndConfig::a(), EndConfig::b());
    let (interrupt, calls) = (File::open("/dev/null").unwrap(), Arc::new(Calls::default()));
    let rings = Rings::new();
    let config = Config::new(address(1).into(), 24, [1, 2]);
    let device = Interrupting { device, interrupt, calls: calls.clone() };
    let mut core = core_on(device, CoreSetup::new(config, rings.clone()));
    let mut now = Instant::ZERO;
    let mut notices = |core: &mut TestCore| {
        let mut frame = peer.allocate().expect("an empty frame");
        frame.append(60).expect("room").fill(0);
        assert_eq!(peer.transmit(now, &mut vec![frame]), 1);
        now += SECOND;
        core.poll_once(now);
        let events = iter::from_fn(|| rings.events.pop());
        events.filter(|event| matches!(event, Event::Notice(Notice::AdapterDiffers))).count()
    };
    assert_eq!(notices(&mut core), 0);
    calls.differs.store(true, Ordering::Relaxed);
    calls.not_handed_over.store(5, Ordering::Relaxed);
    calls.stalled.store(6, Ordering::Relaxed);
    calls.missed.store(7, Ordering::Relaxed);
    calls.unsent.store(8, Ordering::Relaxed);
    assert_eq!([notices(&mut core), notices(&mut core)], [1, 0]);
    let statistics = core.statistics();
    let causes = [DropCause::NotHandedOver, DropCause::StalledCore, DropCause::Missed, DropCause::NotSent];
    assert_eq!(causes.map(|cause| statistics.dropped(cause)), [5, 6, 7, 8]);
}

#[test]
fn a_pointer_forwards_all_calls() {
    assert!(!check(boxed).may_have_frames(), "the others may have some of their own");
}

#[test]
fn a_tap_forwards_all_calls() {
    check(|device| Tap::new(device, io::sink(), &TapConfig::default()).unwrap());
}

#[test]
fn a_fault_injector_forwards_all_calls() {
    let none = Impairments::default();
    check(|device| Fault::new(device, 1, none, none));
}

#[test]
fn a_fault_injector_around_a_tap_forwards_all_calls() {
    let none = Impairments::default();
    check(|device| Fault::new(Tap::new(device, io::sink(), &TapConfig::default()).unwrap(), 1, none, none));
}
