//! Tests of devices that applications and a thread of warpline drive in turns.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice, SimFrame};
use warpline_dataplane::device::{self, Capabilities, RxInterrupt, RxTrigger};
use warpline_dataplane::time::{self, SECOND};
use warpline_dataplane::wire::ethernet::MacAddress;

use crate::handles::cm;
use crate::handles::driver::tests::{Interrupting, Unannounced, per_second, sleeps};
use crate::handles::event_fd::EventFd;
use crate::handles::shared_thread::AwayTimes;
use crate::{
    Access, AsyncEvent, CompletionQueue, ConnectConfig, CreateError, Device, DeviceConfig, Idle,
    ListenConfig, MemoryError, MemoryRegion, Notice, Notify, PollThread, ProtectionDomain, QpConfig,
    QueuePair, QueuePairControl, Status, Turns,
};

const PATIENCE: Duration = Duration::from_mins(2);
const NEAR: [u8; 4] = [198, 18, 0, 1];
const FAR: [u8; 4] = [198, 18, 0, 2];
const PORT: u16 = 4711;
/// A thread that keeps away for so long does nothing unless it is called back.
const FOR_EVER: AwayTimes = AwayTimes { shortest_ns: 3600 * SECOND, longest_ns: 3600 * SECOND };

/// A device, and what is made from it.
struct Host {
    device: Device,
    turns: Turns,
    domain: ProtectionDomain,
    memory: MemoryRegion,
    qp: QueuePair,
    completions: CompletionQueue,
}

impl Host {
    fn new<D: device::Device<Frame = SimFrame> + Send>(
        link: D,
        address: [u8; 4],
        idle: Idle,
        away_times: AwayTimes,
    ) -> Self {
        let (device, turns) = start(link, address, idle, away_times);
        let (domain, completions) = (device.protection_domain(), CompletionQueue::new(64));
        let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
        Self { device, turns, domain, memory, qp, completions }
    }
}

fn start(
    link: impl device::Device<Frame = SimFrame> + Send,
    address: [u8; 4],
    idle: Idle,
    away_times: AwayTimes,
) -> (Device, Turns) {
    let config = DeviceConfig { duplicate_address_detection: false, ..DeviceConfig::new(address, 24) };
    Device::start_shared_away(link, &config, PollThread { lcore: None, idle }, away_times).unwrap()
}

/// Two devices, whose queue pairs are connected.
struct Ends {
    near: Host,
    far: Host,
}

impl Ends {
    fn new(idle: Idle) -> Self {
        Self::on(idle, |end| end)
    }

    /// Returns them on devices that `wrap` makes of the ends of a link.
    fn on<D: device::Device<Frame = SimFrame> + Send>(idle: Idle, wrap: impl Fn(SimDevice) -> D) -> Self {
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let near = Host::new(wrap(near), NEAR, idle, AwayTimes::default());
        let far = Host::new(wrap(far), FAR, idle, AwayTimes::default());
        connect(&near.qp, &far, &far.qp, PORT);
        Self { near, far }
    }

    /// Writes a number to the far end, without a turn.
    fn write(&self, number: u64) {
        let Host { memory, qp, completions, .. } = &self.near;
        assert!(memory.write(0, &number.to_be_bytes()));
        let target = self.far.memory.advertisement(0, 8).unwrap();
        qp.post_write(number, memory.slice(0, 8), &target, 0).unwrap();
        let completion = completions.wait(PATIENCE).expect("a completion");
        assert_eq!((completion.id, completion.status), (number, Status::Success));
        assert_eq!(self.far.memory.to_vec(0, 8).unwrap(), number.to_be_bytes());
    }
}

/// Connects `near` to `far_qp` of the host `far`.
fn connect(near: &QueuePairControl, far: &Host, far_qp: &QueuePair, port: u16) {
    let listener = far.device.listen(port, &ListenConfig::default()).unwrap();
    thread::scope(|scope| {
        let remote = SocketAddr::from((FAR, port));
        let connecting = scope.spawn(move || near.connect(remote, &ConnectConfig::default()));
        listener.accept(PATIENCE).unwrap().accept(far_qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
}

/// Waits until something holds.
#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it does not happen");
    }
}

fn sleep_briefly() {
    thread::sleep(Duration::from_micros(50));
}

/// Polls until warpline's thread, which something has woken, keeps away.
#[track_caller]
fn keep_thread_away(host: &Host) {
    let Turns { driver } = &host.turns;
    until(|| {
        if driver.thread_is_asleep() {
            host.device.usage().unwrap();
        }
        driver.turn();
        driver.thread_is_away()
    });
}

#[track_caller]
fn until_asleep(turns: &Turns) {
    until(|| {
        sleep_briefly();
        turns.driver.thread_is_asleep()
    });
}

/// Both applications poll, each on a thread of its own; the numbers go there and back.
#[test]
fn applications_that_poll_exchange_sends() {
    const ROUNDS: u64 = 2000;
    let Ends { near, far } = Ends::new(Idle::Sleep);
    let barrier = Barrier::new(2);
    let receive = |host: &Host| host.qp.post_receive(u64::MAX, host.memory.slice(8, 8)).unwrap();
    let send = |host: &Host, number: u64| {
        assert!(host.memory.write(0, &number.to_be_bytes()));
        host.qp.post_send(number, host.memory.slice(0, 8)).unwrap();
    };
    // Takes the completions of a send and a receive.
    let take = |host: &Host, number: u64| {
        let (mut sent, mut received) = (number == 0, false);
        until(|| {
            match host.completions.poll() {
                Some(done) if done.id == u64::MAX => received = done.status == Status::Success,
                Some(done) => sent |= done.status == Status::Success,
                None => _ = host.turns.turn(),
            }
            sent && received
        });
        u64::from_be_bytes(host.memory.to_vec(8, 8).unwrap().try_into().unwrap())
    };
    thread::scope(|scope| {
        let ready = &barrier;
        scope.spawn(move || {
            receive(&near);
            ready.wait();
            for number in 1..=ROUNDS {
                send(&near, number);
                assert_eq!(take(&near, number), number);
                receive(&near);
            }
        });
        receive(&far);
        ready.wait();
        for number in 1..=ROUNDS {
            assert_eq!(take(&far, number - 1), number);
            receive(&far);
            send(&far, number);
        }
    });
}

impl Ends {
    /// Writes so many numbers without a turn, whatever the threads do at that moment.
    fn write_at_any_moment(&self, rounds: u64) {
        for number in 0..rounds {
            self.write(number);
            // From before a thread begins to sleep to after it.
            let gap = Instant::now();
            while gap.elapsed() < Duration::from_nanos(number * 7919 % 100_000) {
                std::hint::spin_loop();
            }
        }
    }

    /// Writes so many numbers after applications have polled at both ends, some of which hand over.
    fn write_after_turns(&self, rounds: u64) {
        for number in 0..rounds {
            for _ in 0..number % 50 * 20 {
                self.near.turns.turn();
                self.far.turns.turn();
            }
            if number % 3 == 0 {
                self.far.turns.hand_over();
            }
            self.write(number);
        }
    }
}

/// Applications that never take a turn are served.
#[test]
fn an_application_that_does_not_poll_is_served() {
    Ends::new(Idle::Sleep).write_at_any_moment(2000);
    Ends::on(Idle::Sleep, Interrupting::new).write_at_any_moment(1000);
    Ends::on(Idle::Sleep, Unannounced).write_at_any_moment(200);
    Ends::new(Idle::Spin).write_at_any_moment(200);
}

/// Applications that poll for a while leave no work behind when they stop: the thread takes it over.
#[test]
fn what_an_application_leaves_is_done() {
    Ends::new(Idle::Sleep).write_after_turns(300);
    Ends::on(Idle::Sleep, Interrupting::new).write_after_turns(300);
    Ends::on(Idle::Sleep, Unannounced).write_after_turns(100);
    Ends::new(Idle::Spin).write_after_turns(100);
}

/// A device that delivers while it is open, whose interrupt is never raised: as if each frame were taken
/// before the thread has looked.
struct Unheard {
    device: SimDevice,
    interrupt: EventFd,
    is_open: Arc<AtomicBool>,
}

impl device::Device for Unheard {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.device.mac()
    }

    fn receive(&mut self, now: time::Instant, frames: &mut Vec<SimFrame>, limit: usize) -> usize {
        if self.is_open.load(Ordering::Relaxed) { self.device.receive(now, frames, limit) } else { 0 }
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.device.allocate()
    }

    fn transmit(&mut self, now: time::Instant, frames: &mut Vec<SimFrame>) -> usize {
        self.device.transmit(now, frames)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        Some(RxInterrupt { fd: self.interrupt.as_fd(), trigger: RxTrigger::Level })
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        true
    }
}

/// An application's turn takes a frame, and with it the interrupt of the thread that sleeps. The thread does
/// what the turn has left: it acknowledges.
#[test]
fn a_turn_that_takes_a_frame_leaves_the_rest_to_the_thread() {
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let is_open = Arc::new(AtomicBool::new(true));
    let near = Unheard { device: near, interrupt: EventFd::new().unwrap(), is_open: is_open.clone() };
    let near = Host::new(near, NEAR, Idle::Sleep, AwayTimes::default());
    let far = Host::new(far, FAR, Idle::Sleep, AwayTimes::default());
    let (turns, is_connected) = (&near.turns, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            until(|| {
                turns.turn();
                is_connected.load(Ordering::Relaxed)
            });
        });
        connect(&near.qp, &far, &far.qp, PORT);
        is_connected.store(true, Ordering::Relaxed);
    });
    // The end that has connected sends first.
    let target = far.memory.advertisement(0, 8).unwrap();
    near.qp.post_write(0, near.memory.slice(0, 8), &target, 0).unwrap();
    until(|| {
        near.turns.turn();
        near.completions.poll().is_some_and(|done| done.status == Status::Success)
    });
    for number in 0..20 {
        is_open.store(false, Ordering::Relaxed);
        until_asleep(&near.turns);
        let target = near.memory.advertisement(0, 8).unwrap();
        far.qp.post_write(number, far.memory.slice(0, 8), &target, 0).unwrap();
        is_open.store(true, Ordering::Relaxed);
        until(|| near.turns.turn());
        assert_eq!(far.completions.wait(PATIENCE).expect("it is acknowledged").status, Status::Success);
    }
}

/// Deadlines wake the thread, though it sleeps.
#[test]
fn deadlines_are_met_without_turns() {
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let near = Host::new(near, NEAR, Idle::Sleep, AwayTimes::default());
    // Nobody answers there.
    drop(far);
    let config = ConnectConfig { timeout: Duration::from_millis(50), ..ConnectConfig::default() };
    assert!(near.qp.connect(SocketAddr::from((FAR, PORT)), &config).is_err());
}

/// While warpline's thread keeps away, calls of the API do everything themselves.
#[test]
fn registering_needs_no_other_thread() {
    let (near, _far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let host = Host::new(near, NEAR, Idle::Sleep, FOR_EVER);
    keep_thread_away(&host);
    for _ in 0..100 {
        let memory = host.domain.allocate(4096, Access::REMOTE_WRITE).unwrap();
        let qp = host.domain.queue_pair(&QpConfig::default(), &host.completions, &host.completions).unwrap();
        assert_eq!(host.device.usage().unwrap().queue_pairs, 2);
        drop(qp);
        memory.deregister(PATIENCE).unwrap();
    }
    assert!(host.turns.driver.thread_is_away(), "it has taken part");
}

/// A thread that keeps away comes back when the turns are handed over, and at the end of the device.
#[test]
fn handing_over_calls_the_thread_back() {
    let (near, _far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let host = Host::new(near, NEAR, Idle::Sleep, FOR_EVER);
    for _ in 0..20 {
        keep_thread_away(&host);
        host.turns.hand_over();
        until_asleep(&host.turns);
    }
    keep_thread_away(&host);
    let Host { device, turns, domain, memory, qp, completions } = host;
    drop((qp, memory, domain, completions));
    // Waits for the thread.
    drop(device);
    assert!(!turns.turn());
}

/// The thread sleeps while an idle device has no work.
#[test]
fn the_thread_of_an_idle_device_sleeps() {
    let ends = Ends::new(Idle::Sleep);
    ends.write(1);
    for host in [&ends.near, &ends.far] {
        until_asleep(&host.turns);
        let task = host.device.context.control_task();
        let (begin, before) = (Instant::now(), sleeps(&task));
        thread::sleep(Duration::from_secs(1));
        let woken = per_second(sleeps(&task) - before, begin);
        // Looking every millisecond would be a thousand times.
        assert!(woken < 100.0, "went to sleep {woken} times in a second");
    }
}

/// Does something when it is notified.
struct Callback(Box<dyn Fn() + Send + Sync>);

impl Notify for Callback {
    fn notify(&self) {
        (self.0)();
    }
}

/// A queue pair of the near host whose completion calls back, and that to which it is connected.
struct Calling {
    qp: QueuePair,
    completions: CompletionQueue,
    far_qp: QueuePair,
}

impl Calling {
    /// Has a Write complete.
    fn new(ends: &Ends, callback: impl Fn() + Send + Sync + 'static) -> Self {
        let completions = CompletionQueue::with_notify(8, Arc::new(Callback(Box::new(callback))));
        let qp = ends.near.domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
        let far = &ends.far.completions;
        let far_qp = ends.far.domain.queue_pair(&QpConfig::default(), far, far).unwrap();
        connect(&qp, &ends.far, &far_qp, PORT + 1);
        assert!(!completions.arm(Notice::Next));
        let target = ends.far.memory.advertisement(0, 8).unwrap();
        qp.post_write(1, ends.near.memory.slice(0, 8), &target, 0).unwrap();
        Self { qp, completions, far_qp }
    }

    fn assert_completed(&self) {
        assert_eq!(self.completions.wait(PATIENCE).unwrap().status, Status::Success);
    }
}

/// Returns what a callback of the near host reports: one that warpline's thread runs, or this one in a turn.
fn reported<T>(ends: &Ends, reports: &mpsc::Receiver<T>, by_thread: bool) -> T {
    if by_thread {
        return reports.recv_timeout(PATIENCE).unwrap();
    }
    let mut received = None;
    until(|| {
        ends.near.turns.turn();
        received = reports.try_recv().ok();
        received.is_some()
    });
    received.unwrap()
}

/// A callback runs within a turn: another turn returns false, and what would wait fails. So it does whichever
/// thread runs it.
#[test]
fn callbacks_take_no_turns_and_do_not_wait() {
    let ends = Ends::new(Idle::Sleep);
    for by_thread in [false, true] {
        let (turns, device) = (ends.near.turns.clone(), ends.near.device.clone());
        let (report, outcome) = mpsc::channel();
        let report = Mutex::new(report);
        let calling = Calling::new(&ends, move || {
            let busy = turns.turn();
            turns.hand_over();
            let asked = device.usage();
            let memory = device.protection_domain().allocate(64, Access::empty());
            report.lock().unwrap().send((busy, asked.is_err(), memory.is_err())).unwrap();
        });
        assert_eq!(reported(&ends, &outcome, by_thread), (false, true, true), "{by_thread}");
        calling.assert_completed();
    }
    // Outside of a turn they work again.
    assert!(ends.near.device.usage().is_ok());
}

/// A callback that listens is refused before control is asked: no listener is left that nobody has, and the
/// port is free.
#[test]
fn a_callback_leaves_no_listener() {
    let ends = Ends::new(Idle::Sleep);
    let channel = cm::EventChannel::new([ends.near.device.clone()]).unwrap();
    for by_thread in [false, true] {
        let id = Arc::new(channel.create_id());
        id.bind_addr((NEAR, PORT).into()).unwrap();
        // It goes at the end of the round, whenever the callback does.
        let in_callback = Arc::downgrade(&id);
        let (report, outcome) = mpsc::channel();
        let report = Mutex::new(report);
        let calling = Calling::new(&ends, move || {
            let outcome = in_callback.upgrade().unwrap().listen(&ListenConfig::default());
            report.lock().unwrap().send(outcome).unwrap();
        });
        let outcome = reported(&ends, &outcome, by_thread);
        assert!(matches!(outcome, Err(cm::CmError::Stopped(_))), "{by_thread}: {outcome:?}");
        calling.assert_completed();
        assert_eq!(ends.near.device.usage().unwrap().listeners, 0, "{by_thread}");
        id.listen(&ListenConfig::default()).unwrap();
    }
}

/// While another thread has a turn, this one does not wait.
#[test]
fn a_turn_does_not_wait_for_another() {
    let ends = Ends::new(Idle::Sleep);
    let (entered, is_entered) = mpsc::channel();
    let (leave, is_left) = mpsc::channel::<()>();
    let (entered, is_left) = (Mutex::new(entered), Mutex::new(is_left));
    let calling = Calling::new(&ends, move || {
        entered.lock().unwrap().send(()).unwrap();
        is_left.lock().unwrap().recv().unwrap();
    });
    // Warpline's thread takes that turn.
    is_entered.recv_timeout(PATIENCE).unwrap();
    for _ in 0..100 {
        assert!(!ends.near.turns.turn());
        ends.near.turns.hand_over();
    }
    leave.send(()).unwrap();
    calling.assert_completed();
    ends.write(1);
}

/// Several threads take turns, register and send, while others wait.
#[test]
fn many_threads_share_a_device() {
    const ROUNDS: u64 = 300;
    let ends = Ends::new(Idle::Sleep);
    let ended = AtomicBool::new(false);
    let (near, turned) = (&ends.near, AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..3_u64 {
            let (domain, turns) = (near.device.protection_domain(), near.turns.clone());
            let (ended, turned) = (&ended, &turned);
            scope.spawn(move || {
                let mut round = seed;
                while !ended.load(Ordering::Relaxed) {
                    round += 1;
                    turned.fetch_add(usize::from(turns.turn()), Ordering::Relaxed);
                    if round % 7 == 0 {
                        domain.allocate(4096, Access::REMOTE_READ).unwrap();
                    }
                    if round % 11 == seed {
                        turns.hand_over();
                        sleep_briefly();
                    }
                }
            });
        }
        for number in 0..ROUNDS {
            ends.write(number);
        }
        ended.store(true, Ordering::Relaxed);
    });
    until(|| near.device.usage().unwrap().regions == 1);
}

/// The last handle ends the thread, whatever it does, and turns that are left find nothing.
#[test]
fn dropping_all_handles_ends_everything() {
    for idle in [Idle::Sleep, Idle::Spin] {
        for polls in [0, 1, 10_000] {
            let Ends { near, far } = Ends::new(idle);
            let turns = [near.turns.clone(), far.turns.clone()];
            for _ in 0..polls {
                turns[0].turn();
            }
            // Closes the connection, and waits for the threads.
            drop((near, far));
            for turns in &turns {
                assert_eq!(Arc::strong_count(&turns.driver), 1, "the thread is there");
                assert!(!turns.turn());
                turns.hand_over();
            }
        }
    }
}

/// The last handle may go in a callback, whichever thread runs it: nothing waits for itself.
#[test]
fn a_callback_may_drop_the_last_handle() {
    for by_thread in [false, true] {
        let Ends { near, far } = Ends::new(Idle::Sleep);
        let last = Arc::new(Mutex::new(Vec::<(Host, QueuePair, CompletionQueue)>::new()));
        let (kept, dropped) = (last.clone(), Arc::new(OnceLock::new()));
        let is_dropped = dropped.clone();
        let turns = near.turns.clone();
        let ends = Ends { near, far };
        let calling = Calling::new(&ends, move || {
            until(|| !kept.lock().unwrap().is_empty());
            kept.lock().unwrap().clear();
            let _ = is_dropped.set(());
        });
        let Calling { qp, completions, far_qp } = calling;
        last.lock().unwrap().push((ends.near, qp, completions));
        until(|| {
            if by_thread {
                sleep_briefly();
            } else {
                turns.turn();
            }
            dropped.get().is_some()
        });
        // The thread ends, and the core with it.
        drop((far_qp, ends.far));
        until(|| {
            sleep_briefly();
            Arc::strong_count(&turns.driver) == 1
        });
        assert!(!turns.turn());
    }
}

/// A device that a child has of its parent is neither driven nor waited for.
#[test]
fn an_abandoned_device_is_not_touched() {
    let (near, _far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let (device, turns) = start(near, NEAR, Idle::Sleep, FOR_EVER);
    let domain = device.protection_domain();
    drop(domain.allocate(64, Access::empty()).unwrap());
    turns.abandon();
    assert!(!turns.turn());
    assert!(matches!(domain.allocate(64, Access::empty()), Err(MemoryError::Stopped(_))));
    let completions = CompletionQueue::new(8);
    let refused = domain.queue_pair(&QpConfig::default(), &completions, &completions);
    assert!(matches!(refused, Err(CreateError::Stopped(_))));
    assert!(device.usage().is_err());
}

/// A panic of a callback ends the device, and nobody waits for it.
#[test]
fn a_panic_within_a_turn_ends_the_device() {
    let ends = Ends::new(Idle::Sleep);
    let _calling = Calling::new(&ends, || panic!("of a callback, for a test"));
    let Host { device, turns, domain, .. } = &ends.near;
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until(|| {
            turns.turn();
            device.usage().is_err()
        });
    }));
    // It was this thread or warpline's that took the turn.
    drop(ended);
    until(|| device.usage().is_err());
    until(|| device.poll_event() == Some(AsyncEvent::DeviceFatal));
    let completions = CompletionQueue::new(8);
    let refused = domain.queue_pair(&QpConfig::default(), &completions, &completions);
    assert!(matches!(refused, Err(CreateError::Stopped(_))));
    assert!(!turns.turn());
}
