//! Devices of several cores: connections at each of them, memory that all of them reach, cores that stall and
//! end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use warpline::link::tap::{Tap, TapConfig};
use warpline::link::{BoxedDevice, boxed};
use warpline::steering::Steering;
use warpline::{
    Access, Addressing, AsyncEvent, CompletionQueue, ConnectConfig, ConnectError, CoreDriver, CoreSet,
    DeregisterError, Device, DeviceConfig, Idle, ListenConfig, ListenError, MemoryError, MemoryRegion,
    Operation, PollThread, PostError, QpConfig, QueuePair, Region, SendRequest, Sharing, Slice, StartError,
    Status,
};
use warpline_dataplane::device::sim::{SimDevice, SimFrame};
use warpline_dataplane::device::spread::{Queues, spread};

use crate::common::{End, FAR, NEAR, PATIENCE, PORT, config, eventually, link, statistics_of_cores};

const CORES: u8 = 3;

/// Threads that sleep: a machine may have fewer CPUs than the device has cores.
const POLL: PollThread = PollThread { lcore: None, idle: Idle::Sleep };

fn steering(cores: u8) -> Arc<Steering> {
    let mut random = fastrand::Rng::with_seed(11);
    Arc::new(Steering::new(cores, 128, |key| random.fill(key)))
}

/// The devices of the cores of an end with `queues`.
fn devices(end: SimDevice, queues: Queues, steering: &Arc<Steering>) -> Vec<BoxedDevice<SimFrame>> {
    let devices = match queues {
        Queues::PerCore | Queues::Unsorted => end.queues(steering),
        Queues::One => end.sharing(steering.cores().into()),
    };
    spread(devices, queues, steering).into_iter().map(boxed).collect()
}

/// Which cores have answered when they were asked for their counters.
fn answering(device: &Device) -> Vec<bool> {
    device.statistics_by_core().unwrap().iter().map(Option::is_some).collect()
}

fn start(end: SimDevice, queues: Queues, config: &DeviceConfig) -> Device {
    let steering = steering(CORES);
    let polls = [POLL; CORES as usize];
    Device::start_cores(devices(end, queues, &steering), &steering, config, &polls).unwrap()
}

/// A near device of one core, and a far one of several.
fn pair(queues: Queues) -> (Device, Device) {
    let (near, far) = link();
    (Device::start(near, &config(NEAR), POLL).unwrap(), start(far, queues, &config(FAR)))
}

/// Connects `near` to `far`, of a device that `listener` belongs to. Returns the core of the far end.
fn connect(near: &End, far: &End, listener: &warpline::Listener, config: &ConnectConfig) -> u8 {
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting_with(config));
        let request = listener.accept(PATIENCE).unwrap();
        let core = request.core();
        request.accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
        core
    })
}

/// Writes from `one` to `other`, and back, and compares.
fn exchange(one: &End, other: &End, value: u8) {
    for (from, to, value) in [(one, other, value), (other, one, !value)] {
        from.memory.fill(value);
        from.write(1, to, 100_000);
        assert_eq!(from.completion().status, Status::Success);
        assert!(to.memory.to_vec(0, 100_000).unwrap().iter().all(|octet| *octet == value));
    }
}

/// Peers come to every core, by an adapter that spreads them and by one queue, and each connection works.
#[test]
fn connections_are_at_every_core() {
    for queues in [Queues::PerCore, Queues::One] {
        let (near, far) = pair(queues);
        assert_eq!((near.cores(), far.cores()), (1, CORES));
        let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
        let mut cores = CoreSet::default();
        let mut ends = Vec::new();
        for number in 0..24 {
            let (near, far) = (End::new(&near), End::new(&far));
            let core = connect(&near, &far, &listener, &ConnectConfig::default());
            cores = (0..CORES).filter(|other| *other == core || cores.contains(*other)).collect();
            exchange(&near, &far, number);
            ends.push((near, far));
        }
        assert_eq!(cores.len(), CORES.into(), "{queues:?}: {cores}");
        let by_core = statistics_of_cores(&far);
        let opened: Vec<u64> = by_core.iter().map(|core| core.connections_opened).collect();
        assert!(opened.iter().all(|opened| *opened > 0) && opened.iter().sum::<u64>() == 24, "{opened:?}");
        assert_eq!(far.statistics().unwrap().connections_opened, 24);
        for (near, far) in ends {
            near.qp.disconnect();
            near.qp.wait_closed(PATIENCE).unwrap();
            drop(far);
        }
    }
}

/// Connections that a device opens go to its cores in turn, or to the one asked for, and the answers come
/// there.
#[test]
fn a_device_opens_connections_at_every_core() {
    let (far, near) = link();
    // The device at the far address has one core, so that `End::connect` finds it.
    let (near, far) =
        (start(near, Queues::One, &config(NEAR)), Device::start(far, &config(FAR), POLL).unwrap());
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let mut ends = Vec::new();
    let wanted = [None, None, None, Some(1), Some(2), Some(2), Some(0)];
    for (number, core) in (1..).zip(wanted) {
        let ends_of_one = (End::new(&near), End::new(&far));
        let config = ConnectConfig { core, ..ConnectConfig::default() };
        connect(&ends_of_one.0, &ends_of_one.1, &listener, &config);
        exchange(&ends_of_one.0, &ends_of_one.1, number);
        ends.push(ends_of_one);
    }
    let by_core = statistics_of_cores(&near);
    let opened: Vec<u64> = by_core.iter().map(|core| core.connections_opened).collect();
    assert_eq!(opened, [2, 2, 3]);
    let none = ConnectConfig { core: Some(CORES), ..ConnectConfig::default() };
    assert_eq!(End::new(&near).connect_with(&none), Err(ConnectError::NoCore { core: CORES }));
}

/// All connections of a listener that is one core's are there.
#[test]
fn a_listener_keeps_to_its_core() {
    let (near, far) = pair(Queues::PerCore);
    let config = ListenConfig { core: Some(2), ..ListenConfig::default() };
    let listener = far.listen(PORT, &config).unwrap();
    for number in 0..8 {
        let (near, far) = (End::new(&near), End::new(&far));
        assert_eq!(connect(&near, &far, &listener, &ConnectConfig::default()), 2);
        exchange(&near, &far, number);
    }
    drop(listener);
    let refused = |core| far.listen(PORT, &ListenConfig { core, ..ListenConfig::default() }).unwrap_err();
    assert_eq!(refused(None), ListenError::OtherCore(PORT));
    assert_eq!(refused(Some(9)), ListenError::NoCore { core: 9 });
    far.listen(PORT, &config).unwrap();
}

/// One region, one domain, one completion queue: peers write to it at all cores, and after its deregistration
/// none does.
#[test]
fn cores_share_memory_and_completion_queues() {
    let (near, far) = pair(Queues::One);
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let domain = far.protection_domain();
    let completions = CompletionQueue::new(1000);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let memory = domain.allocate(12 * 4096, access).unwrap();
    let mut ends = Vec::new();
    for number in 0..12_u8 {
        let near = End::new(&near);
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
        qp.post_receive(u64::from(number), memory.slice(0, 0)).unwrap();
        thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(&qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        near.memory.fill(number + 1);
        let place = memory.advertisement(usize::from(number) * 4096, 4096).unwrap();
        near.qp.post_write(1, near.memory.slice(0, 4096), &place, 0).unwrap();
        near.qp.post_send(2, near.memory.slice(0, 0)).unwrap();
        ends.push((near, qp));
    }
    let mut received: Vec<u64> = (0..12).map(|_| completions.wait(PATIENCE).unwrap().id).collect();
    received.sort_unstable();
    assert_eq!(received, (0..12).collect::<Vec<u64>>());
    for number in 0..12_u8 {
        let written = memory.to_vec(usize::from(number) * 4096, 4096).unwrap();
        assert!(written.iter().all(|octet| *octet == number + 1), "{number}");
    }
    let target = memory.advertisement(0, 4096).unwrap();
    memory.deregister(PATIENCE).unwrap();
    for (near, qp) in ends {
        while near.completions.poll().is_some() {}
        near.qp.post_write(3, near.memory.slice(0, 4096), &target, 0).unwrap();
        // The peer ends the stream: its memory is not there any more.
        near.qp.wait_closed(PATIENCE).unwrap_err();
        drop(qp);
    }
}

/// Work requests at any core change what streams at all cores reach: memory is registered anew, and
/// invalidated, for all of them, and a work request is done when they are.
#[test]
fn a_work_request_changes_what_all_cores_grant() {
    const ENDS: usize = 12;
    let (near, far) = pair(Queues::PerCore);
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let domain = far.protection_domain();
    let completions = CompletionQueue::new(1000);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mut memory = domain.allocate(ENDS * 4096, access).unwrap();
    let mut ends = Vec::new();
    let mut cores = CoreSet::default();
    while ends.len() < ENDS {
        let near = End::new(&near);
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
        let core = thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b""));
            let request = listener.accept(PATIENCE).unwrap();
            let core = request.core();
            request.accept(&qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
            core
        });
        // Which core has a connection is drawn: the last places are for cores that have none yet.
        let is_needed = ENDS - ends.len() > usize::from(CORES) - cores.len();
        if is_needed || !cores.contains(core) {
            cores = (0..CORES).filter(|other| *other == core || cores.contains(*other)).collect();
            ends.push((near, qp));
        }
    }
    assert_eq!(cores.len(), CORES.into(), "{cores}");
    let carry_out = |end: usize, operation| {
        let qp: &QueuePair = &ends[end].1;
        qp.post(SendRequest::new(end as u64, operation, Slice::default())).unwrap();
        let completion = completions.wait(PATIENCE).unwrap();
        assert_eq!((completion.id, completion.status), (end as u64, Status::Success));
    };
    let write_all = |memory: &MemoryRegion, value: u8| {
        for (number, (near, _)) in ends.iter().enumerate() {
            near.memory.fill(value + number as u8);
            let place = memory.advertisement(number * 4096, 4096).unwrap();
            near.qp.post_write(1, near.memory.slice(0, 4096), &place, 0).unwrap();
            assert_eq!(near.completion().status, Status::Success);
            let written = || memory.to_vec(number * 4096, 4096).unwrap();
            eventually("written", || written().iter().all(|octet| *octet == value + number as u8));
        }
    };
    write_all(&memory, 1);
    for round in 0..3 {
        carry_out(round, Operation::LocalInvalidate { stag: memory.stag() });
        let (len, all) = (memory.len(), Sharing::AllStreams);
        let anew = memory.fast_registration(0, len, Access::REMOTE_WRITE, Addressing::ZeroBased, all);
        carry_out(11 - round, Operation::Register(anew));
        write_all(&memory, 20 + 20 * round as u8);
    }
    carry_out(7, Operation::LocalInvalidate { stag: memory.stag() });
    let before = memory.to_vec(0, memory.len()).unwrap();
    for (number, (near, _)) in ends.iter().enumerate() {
        near.memory.fill(0);
        let place = memory.advertisement(number * 4096, 4096).unwrap();
        near.qp.post_write(3, near.memory.slice(0, 4096), &place, 0).unwrap();
        // The peer ends the stream: the name is valid at no core.
        near.qp.wait_closed(PATIENCE).unwrap_err();
    }
    assert_eq!(memory.to_vec(0, memory.len()).unwrap(), before);
    memory.deregister(PATIENCE).unwrap();
}

/// A far device of several cores that threads of the test poll, until they are told not to.
struct Polled {
    device: Device,
    stalled: Arc<[AtomicBool]>,
    ended: Arc<[AtomicBool]>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Polled {
    fn new(end: SimDevice) -> Self {
        let steering = steering(CORES);
        let devices = devices(end, Queues::PerCore, &steering);
        let (device, drivers) = Device::start_cores_manual(devices, &steering, &config(FAR)).unwrap();
        let flags = || (0..CORES).map(|_| AtomicBool::new(false)).collect::<Arc<[_]>>();
        let (stalled, ended) = (flags(), flags());
        let poll = |(core, mut driver): (usize, CoreDriver)| {
            let (stalled, ended) = (stalled.clone(), ended.clone());
            thread::spawn(move || {
                while !ended[core].load(Ordering::Relaxed) {
                    if stalled[core].load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    } else if !driver.poll_once() {
                        driver.wait(Duration::from_millis(1));
                    }
                }
            })
        };
        let threads = drivers.into_iter().enumerate().map(poll).collect();
        Self { device, stalled, ended, threads }
    }

    fn stall(&self, core: u8, stalled: bool) {
        self.stalled[usize::from(core)].store(stalled, Ordering::Relaxed);
    }

    fn end(&self, core: u8) {
        self.ended[usize::from(core)].store(true, Ordering::Relaxed);
    }

    /// Connects an end at each core.
    fn connect_all(&self, near: &Device) -> Vec<(End, End)> {
        let listener = self.device.listen(PORT, &ListenConfig::default()).unwrap();
        let mut ends: Vec<Option<(End, End)>> = (0..CORES).map(|_| None).collect();
        while ends.iter().any(Option::is_none) {
            let (near, far) = (End::new(near), End::new(&self.device));
            let core = connect(&near, &far, &listener, &ConnectConfig::default());
            ends[usize::from(core)].get_or_insert((near, far));
        }
        ends.into_iter().flatten().collect()
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        (0..CORES).for_each(|core| self.end(core));
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// A core that is not polled stops no other, and what waits for it ends and names it.
#[test]
fn a_stalled_core_stops_no_other() {
    let (near, far) = link();
    let (near, far) = (Device::start(near, &config(NEAR), POLL).unwrap(), Polled::new(far));
    let ends = far.connect_all(&near);
    let memory = {
        // Memory that all cores have.
        let domain = &ends[0].1.domain;
        domain.register(Region::heap(64).unwrap(), Access::REMOTE_WRITE, Addressing::Address).unwrap()
    };
    far.stall(1, true);
    for (core, (near, far)) in (0..).zip(&ends).filter(|(core, _)| *core != 1) {
        exchange(near, far, core);
    }
    // The domain of this end is at core 0 alone.
    memory.deregister(PATIENCE).unwrap();
    eventually("all but one answer", || answering(&far.device) == [true, false, true]);
    assert!(ends[1].1.qp.tcp().unwrap().is_none(), "it does not answer");
    eventually("the core beside it answers", || ends[2].1.qp.tcp().unwrap().is_some());
    let only_1 = CoreSet::from_iter([1]);
    match ends[1].1.domain.allocate(64, Access::REMOTE_WRITE) {
        Err(MemoryError::Unanswered(cores)) => assert_eq!(cores, only_1),
        other => panic!("{other:?}"),
    }
    let short = Duration::from_millis(50);
    let at_1 = ConnectConfig { core: Some(1), timeout: short, ..ConnectConfig::default() };
    let opened = End::new(&far.device).connect_with(&at_1);
    assert_eq!(opened, Err(ConnectError::Unanswered { core: 1 }));
    far.stall(1, false);
    // It is asked anew once it has answered what nobody waits for any more.
    let of_core_1 = || statistics_of_cores(&far.device)[1].frames_received;
    let before = of_core_1();
    exchange(&ends[1].0, &ends[1].1, 77);
    // Each answer is to its own question.
    assert!(of_core_1() > before);
    eventually("it answers this too", || ends[1].1.qp.tcp().unwrap().is_some());
    let memory = ends[1].1.domain.allocate(64, Access::REMOTE_WRITE).unwrap();
    far.stall(1, true);
    let Err(DeregisterError::Unanswered { region, cores }) = memory.deregister(Duration::from_millis(50))
    else {
        panic!("the core is not polled")
    };
    assert_eq!(cores, only_1);
    far.stall(1, false);
    region.deregister(PATIENCE).unwrap();
}

/// When one core ends, its connections fail, an event names it, and the others go on.
#[test]
fn the_end_of_a_core_is_reported() {
    let (near, far) = link();
    let (near, far) = (Device::start(near, &config(NEAR), POLL).unwrap(), Polled::new(far));
    let mut ends = far.connect_all(&near);
    far.end(1);
    loop {
        match far.device.wait_event(PATIENCE).expect("an event names the core") {
            AsyncEvent::CoreEnded { core } => break assert_eq!(core, 1),
            // Of connections that were opened and dropped before each core had one.
            AsyncEvent::CommunicationEstablished { .. } | AsyncEvent::QpFatal { .. } => {}
            other => panic!("{other}"),
        }
    }
    ends[1].1.qp.wait_closed(PATIENCE).unwrap_err();
    for core in [0, 2] {
        let (near, far) = &ends[core];
        exchange(near, far, core as u8);
    }
    let domain = &ends[1].1.domain;
    domain.allocate(64, Access::REMOTE_WRITE).expect("it is for no core that is polled");
    // Handles of what was there wait for nothing.
    drop(ends.remove(1));
    eventually("all but one answer", || answering(&far.device) == [true, false, true]);
    for core in [1, CORES, 64, 255] {
        let config = ConnectConfig { core: Some(core), ..ConnectConfig::default() };
        assert_eq!(End::new(&far.device).connect_with(&config), Err(ConnectError::NoCore { core }));
    }
}

/// The entries of a completion queue that work at a core has reserved are free when the core has ended, for
/// queue pairs of others.
#[test]
fn a_core_that_ends_keeps_no_entries() {
    let (near, far) = link();
    let (near, far) = (Device::start(near, &config(NEAR), POLL).unwrap(), Polled::new(far));
    let listener = near.listen(PORT, &ListenConfig::default()).unwrap();
    let (peer, end) =
        (End::new(&near), End::reporting(&far.device, &QpConfig::default(), CompletionQueue::new(4)));
    thread::scope(|scope| {
        let at_1 = ConnectConfig { core: Some(1), ..ConnectConfig::default() };
        let qp = end.control();
        let connecting = scope.spawn(move || qp.connect(SocketAddr::from((NEAR, PORT)), &at_1));
        listener.accept(PATIENCE).unwrap().accept(&peer.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    let End { qp, completions, memory, domain } = end;
    let other = domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
    let post = |qp: &QueuePair| qp.post_receive(1, memory.slice(0, 64));
    (0..4).for_each(|_| post(&qp).unwrap());
    assert_eq!(post(&other), Err(PostError::CompletionQueueFull));
    far.end(1);
    qp.wait_closed(PATIENCE).unwrap_err();
    drop(qp);
    (0..4).for_each(|_| post(&other).unwrap());
    assert_eq!(post(&other), Err(PostError::CompletionQueueFull));
}

/// A queue pair that was never connected is destroyed by some core. If that ends first, nothing is left.
#[test]
fn a_core_that_ends_leaves_no_queue_pair_undestroyed() {
    let (_near, far) = link();
    let far = Polled::new(far);
    let end = End::new(&far.device);
    far.stall(0, true);
    // A drop waits for a while only.
    drop(end);
    let queue_pairs = || far.device.usage().unwrap().queue_pairs;
    assert_eq!(queue_pairs(), 1, "core 0 is to destroy it");
    far.end(0);
    eventually("no queue pair is left", || queue_pairs() == 0);
}

/// Numbers of devices, cores and threads that do not agree are refused.
#[test]
fn each_core_needs_a_device_and_a_thread() {
    let (_near, far) = link();
    let steering = steering(2);
    let two = devices(far, Queues::One, &steering);
    let refused = Device::start_cores(two, &steering, &config(FAR), &[POLL]).unwrap_err();
    assert!(matches!(refused, StartError::CoreCount { devices: 2, cores: 1 }), "{refused}");
    let (_near, far) = link();
    let one: Vec<_> = devices(far, Queues::One, &steering).into_iter().take(1).collect();
    let refused = Device::start_cores_manual(one, &steering, &config(FAR)).map(|_| ()).unwrap_err();
    assert!(matches!(refused, StartError::CoreCount { devices: 1, cores: 2 }), "{refused}");
}

/// A CPU polls one core. Threads without a CPU of their own may be as many as wanted.
#[test]
fn no_cpu_polls_two_cores() {
    let steering = steering(3);
    let start = |lcores: [Option<usize>; 3]| {
        let (_near, far) = link();
        let polls = lcores.map(|lcore| PollThread { lcore, ..POLL });
        Device::start_cores(devices(far, Queues::One, &steering), &steering, &config(FAR), &polls)
    };
    let refused = start([Some(0), None, Some(0)]).unwrap_err();
    assert!(matches!(refused, StartError::CpuTwice { cpu: 0, first: 0, second: 2 }), "{refused}");
    assert_eq!(refused.to_string(), "CPU 0 is to poll cores 0 and 2: give each core a CPU of its own");
    assert!(start([Some(0), None, None]).is_ok());
}

/// What a tap writes to. It takes a while to be dropped, and counts that.
struct SlowToDrop(Arc<AtomicUsize>);

impl Write for SlowToDrop {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SlowToDrop {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(100));
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A start that fails at a later core leaves nothing of the cores before: their devices can be opened again
/// at once.
#[test]
fn a_start_that_fails_leaves_no_core() {
    let steering = steering(2);
    let dropped = Arc::<AtomicUsize>::default();
    let (_near, far) = link();
    let tap = |device| Tap::new(device, SlowToDrop(dropped.clone()), &TapConfig::default()).unwrap();
    let taps = devices(far, Queues::One, &steering).into_iter().map(tap).collect();
    let polls = [POLL, PollThread { lcore: Some(100_000), ..POLL }];
    let refused = Device::start_cores(taps, &steering, &config(FAR), &polls).unwrap_err();
    assert_eq!(dropped.load(Ordering::SeqCst), 2, "the devices of both cores are gone");
    assert!(matches!(refused, StartError::PollThread(_)), "{refused}");
}
