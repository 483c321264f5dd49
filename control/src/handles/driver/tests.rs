//! Tests of the CPU time that an idle device uses, and of the events that wake it.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warpline_dataplane::device::sim::{self, End, EndConfig, SimDevice, SimFrame};
use warpline_dataplane::device::{self, Capabilities, Device as _, RxInterrupt, RxTrigger};
use warpline_dataplane::waker::Waker;
use warpline_dataplane::wire::ethernet::MacAddress;

use crate::handles::driver::{self, CoreDriver};
use crate::handles::event_fd::EventFd;
use crate::{
    Access, CompletionQueue, ConnectConfig, ConnectError, Device, DeviceConfig, Idle, ListenConfig,
    MemoryRegion, PollThread, QpConfig, QueuePair, QueuePairControl, Status,
};

const PATIENCE: Duration = Duration::from_mins(2);
const NEAR: [u8; 4] = [198, 18, 0, 1];
const FAR: [u8; 4] = [198, 18, 0, 2];
const PORT: u16 = 4711;

/// A device that does not report when frames arrive, as most ports.
pub(in crate::handles) struct Unannounced(pub(in crate::handles) SimDevice);

impl device::Device for Unannounced {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.0.mac()
    }

    fn receive(
        &mut self,
        now: warpline_dataplane::time::Instant,
        frames: &mut Vec<SimFrame>,
        limit: usize,
    ) -> usize {
        self.0.receive(now, frames, limit)
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.0.allocate()
    }

    fn transmit(&mut self, now: warpline_dataplane::time::Instant, frames: &mut Vec<SimFrame>) -> usize {
        self.0.transmit(now, frames)
    }
}

/// Clock ticks of CPU time that a task of this process has used, by the path of its directory in /proc.
fn cpu_ticks(task: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{task}/stat")).unwrap();
    // proc_pid_stat(5): fields 14 and 15, counted after the name in parentheses, which is field 2.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..=12].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Times that a task has gone to sleep.
pub(in crate::handles) fn sleeps(task: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{task}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// How often something happened in the time from `begin`, as a number per second.
pub(in crate::handles) fn per_second(count: u64, begin: Instant) -> f64 {
    // A sleep of a second takes longer on a busy machine.
    count as f64 / begin.elapsed().as_secs_f64()
}

/// Polls on this thread until `stop`; returns its CPU time in clock ticks per second.
fn polled(driver: CoreDriver, idle: Idle, stop: &AtomicBool) -> f64 {
    let (begin, before) = (Instant::now(), cpu_ticks("thread-self"));
    driver::poll(driver, idle, || stop.load(Ordering::Acquire));
    per_second(cpu_ticks("thread-self") - before, begin)
}

/// Ticks that the poll thread of an idle device that listens uses in a second, and how often its control
/// thread wakes.
fn cost_of_a_second(device: impl device::Device<Frame = SimFrame> + Send, idle: Idle) -> (f64, f64) {
    let (device, driver) = Device::start_manual(device, &DeviceConfig::new(FAR, 24)).unwrap();
    let _listener = device.listen(PORT, &ListenConfig::default()).unwrap();
    let (stop, waker) = (AtomicBool::new(false), driver.waker());
    thread::scope(|scope| {
        let polling = scope.spawn(|| polled(driver, idle, &stop));
        // The start-up work of the device is done.
        device.statistics().unwrap();
        let control = device.context.control_task();
        let (begin, before) = (Instant::now(), sleeps(&control));
        thread::sleep(Duration::from_secs(1));
        let woken = per_second(sleeps(&control) - before, begin);
        stop.store(true, Ordering::Release);
        waker.wake();
        (polling.join().unwrap(), woken)
    })
}

/// Clock ticks in a second that a thread which sleeps stays below. One tick is a hundredth of a second: a
/// thread that spins uses a hundred, less the CPU time of other threads, and one that looks every millisecond
/// uses a few.
const IDLE_TICKS: f64 = 20.0;

#[test]
fn an_idle_device_leaves_the_cpu_to_others() {
    let link = || sim::link(1, EndConfig::a(), EndConfig::b());
    let (ticks, woken) = cost_of_a_second(link().1, Idle::Sleep);
    assert!(ticks < IDLE_TICKS, "{ticks} hundredths of a second");
    // Looking every 2 ms would be 500 times.
    assert!(woken < 50.0, "control woke {woken} times");
    let (ticks, _) = cost_of_a_second(Unannounced(link().1), Idle::Sleep);
    assert!(ticks < IDLE_TICKS, "{ticks} hundredths of a second");
}

struct Ends {
    near: (QueuePair, CompletionQueue, MemoryRegion),
    far: (QueuePair, CompletionQueue, MemoryRegion),
}

fn end(device: &Device) -> (QueuePair, CompletionQueue, MemoryRegion) {
    let (domain, completions) = (device.protection_domain(), CompletionQueue::new(64));
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
    (qp, completions, domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap())
}

fn connected(near: &Device, far: &Device) -> Ends {
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let (near, far) = (end(near), end(far));
    let remote = SocketAddr::from((FAR, PORT));
    let qp: &QueuePairControl = &near.0;
    thread::scope(|scope| {
        let connecting = scope.spawn(|| qp.connect(remote, &ConnectConfig::default()));
        listener.accept(PATIENCE).unwrap().accept(&far.0, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    Ends { near, far }
}

impl Ends {
    /// Writes a number to the far end.
    fn write(&self, number: u64) {
        let (qp, completions, memory) = &self.near;
        assert!(memory.write(0, &number.to_be_bytes()));
        let target = self.far.2.advertisement(0, 8).unwrap();
        qp.post_write(number, memory.slice(0, 8), &target, 0).unwrap();
        let completion = completions.wait(PATIENCE).expect("a completion");
        assert_eq!((completion.id, completion.status), (number, Status::Success));
        assert_eq!(self.far.2.to_vec(0, 8).unwrap(), number.to_be_bytes());
    }
}

fn start(device: impl device::Device<Frame = SimFrame> + Send, address: [u8; 4]) -> Device {
    Device::start(device, &DeviceConfig::new(address, 24), PollThread::default()).unwrap()
}

/// Waits until the core's thread is marked asleep.
fn asleep(waker: &Waker) {
    let start = Instant::now();
    while !waker.is_armed() {
        assert!(start.elapsed() < PATIENCE, "it does not sleep");
        thread::sleep(Duration::from_micros(50));
    }
}

/// Doorbells, commands and frames each find the threads asleep at last, and wake them.
#[test]
fn what_comes_wakes_a_core_that_sleeps() {
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let (far, driver) = Device::start_manual(far, &DeviceConfig::new(FAR, 24)).unwrap();
    let (stop, waker) = (AtomicBool::new(false), driver.waker());
    thread::scope(|scope| {
        let polling = scope.spawn(|| driver::poll(driver, Idle::Sleep, || stop.load(Ordering::Acquire)));
        let near = start(near, NEAR);
        asleep(&waker);
        // A command.
        far.statistics().unwrap();
        let ends = connected(&near, &far);
        for number in 0..20 {
            // Frames.
            asleep(&waker);
            ends.write(number);
        }
        // A doorbell of its own.
        asleep(&waker);
        let target = ends.near.2.advertisement(0, 8).unwrap();
        ends.far.0.post_write(1, ends.far.2.slice(0, 8), &target, 0).unwrap();
        assert!(ends.far.1.wait(PATIENCE).is_some());
        drop(ends);
        asleep(&waker);
        stop.store(true, Ordering::Release);
        waker.wake();
        polling.join().unwrap();
    });
}

/// The same at a device that does not report frames.
#[test]
fn a_core_that_is_not_told_of_frames_looks_for_them() {
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let (near, far) = (start(Unannounced(near), NEAR), start(Unannounced(far), FAR));
    let ends = connected(&near, &far);
    for number in 0..20 {
        thread::sleep(Duration::from_millis(3));
        ends.write(number);
    }
}

/// Timers end a sleep: a lost segment is sent again, and a peer that is not there is given up.
#[test]
fn timers_wake_a_core_that_sleeps() {
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let network = near.network();
    let (near, far) = (start(near, NEAR), start(far, FAR));
    let ends = connected(&near, &far);
    ends.write(1);
    let (lost, losing) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let seen = lost.clone();
    network.set_filter(End::A, move |_, frame| {
        if frame.len() > 80 && losing.swap(false, Ordering::Relaxed) {
            seen.store(true, Ordering::Relaxed);
            return sim::Verdict::Drop;
        }
        sim::Verdict::Pass
    });
    ends.write(2);
    assert!(lost.load(Ordering::Relaxed));
    let (nobody, _completions, _memory) = end(&near);
    let config = ConnectConfig { timeout: Duration::from_millis(100), ..ConnectConfig::default() };
    let refused = nobody.connect(([198, 18, 0, 77], PORT).into(), &config).unwrap_err();
    assert!(matches!(refused, ConnectError::TimedOut | ConnectError::Unreachable), "{refused}");
}

/// Work that comes at any moment of falling asleep is done. Nothing but the doorbell announces it: a lost
/// wake-up would be the end.
#[test]
fn no_wake_up_is_lost() {
    const ROUNDS: u64 = 3000;
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let (near, far) = (start(near, NEAR), start(far, FAR));
    let ends = connected(&near, &far);
    for number in 0..ROUNDS {
        ends.write(number);
        // 0 to about 100 microseconds: from before the thread begins to sleep to after it.
        let gap = Instant::now();
        while gap.elapsed() < Duration::from_nanos(number * 7919 % 100_000) {
            std::hint::spin_loop();
        }
    }
}

/// A device that raises an interrupt for each frame, as adapters do: nothing takes it out of the descriptor.
pub(in crate::handles) struct Interrupting {
    device: SimDevice,
    interrupt: Arc<EventFd>,
    enabled: Arc<Waker>,
}

impl Interrupting {
    pub(in crate::handles) fn new(mut device: SimDevice) -> Self {
        let interrupt = Arc::new(EventFd::new().unwrap());
        let enabled = Arc::new(Waker::new(interrupt.clone()));
        assert!(device.wake_on_arrival(&enabled));
        Self { device, interrupt, enabled }
    }
}

impl device::Device for Interrupting {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.device.mac()
    }

    fn receive(
        &mut self,
        now: warpline_dataplane::time::Instant,
        frames: &mut Vec<SimFrame>,
        limit: usize,
    ) -> usize {
        self.device.receive(now, frames, limit)
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.device.allocate()
    }

    fn transmit(&mut self, now: warpline_dataplane::time::Instant, frames: &mut Vec<SimFrame>) -> usize {
        self.device.transmit(now, frames)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        Some(RxInterrupt { fd: self.interrupt.as_fd(), trigger: RxTrigger::Edge })
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        self.enabled.arm();
        true
    }

    fn disable_rx_interrupt(&mut self) {
        self.enabled.disarm();
    }
}

/// The poll thread sleeps until an interrupt, however many went before, and loses none.
#[test]
fn interrupts_wake_a_core_that_sleeps() {
    const ROUNDS: u64 = 1000;
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let near = start(Interrupting::new(near), NEAR);
    let (far, driver) = Device::start_manual(Interrupting::new(far), &DeviceConfig::new(FAR, 24)).unwrap();
    let (stop, waker) = (AtomicBool::new(false), driver.waker());
    let (send_task, task) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let polling = scope.spawn(|| {
            let task = fs::read_link("/proc/thread-self").unwrap();
            send_task.send(task.to_string_lossy().into_owned()).unwrap();
            driver::poll(driver, Idle::Sleep, || stop.load(Ordering::Acquire));
        });
        let ends = connected(&near, &far);
        for number in 0..ROUNDS {
            ends.write(number);
            let gap = Instant::now();
            while gap.elapsed() < Duration::from_nanos(number * 7919 % 100_000) {
                std::hint::spin_loop();
            }
        }
        let task = task.recv().unwrap();
        asleep(&waker);
        let (begin, before) = (Instant::now(), sleeps(&task));
        thread::sleep(Duration::from_secs(1));
        let woken = per_second(sleeps(&task) - before, begin);
        stop.store(true, Ordering::Release);
        waker.wake();
        polling.join().unwrap();
        // Looking every millisecond would be a thousand times.
        assert!(woken < 100.0, "went to sleep {woken} times in a second");
    });
}

/// A thread that waits for a completion without events, or for a call while it polls the core itself, leaves
/// the CPU to others too.
#[test]
fn waiting_threads_leave_the_cpu_to_others() {
    const SECOND: Duration = Duration::from_secs(1);
    let (begin, before) = (Instant::now(), cpu_ticks("thread-self"));
    assert!(CompletionQueue::new(8).wait(SECOND).is_none());
    let ticks = per_second(cpu_ticks("thread-self") - before, begin);
    assert!(ticks < IDLE_TICKS, "{ticks} hundredths of a second for a completion");
    let (_, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let (_device, mut driver) = Device::start_manual(far, &DeviceConfig::new(FAR, 24)).unwrap();
    let (begin, before) = (Instant::now(), cpu_ticks("thread-self"));
    driver.run(|| thread::sleep(SECOND));
    let ticks = per_second(cpu_ticks("thread-self") - before, begin);
    assert!(ticks < IDLE_TICKS, "{ticks} hundredths of a second for a call");
    let failed =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run(|| panic!("of the call"))));
    assert!(failed.is_err());
}
