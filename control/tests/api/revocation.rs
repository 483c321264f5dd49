//! Tests of memory that is deregistered while a peer writes to it at full speed, with separate threads for
//! each core and each application: once the call has returned, no octet changes any more (design: a
//! quiescent-state handshake).

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use crate::common::{FAR, PATIENCE, Pair, eventually, eventually_unused};
use warpline::{
    Access, Addressing, Advertisement, CompletionQueue, ConnectConfig, Device, ListenConfig, Operation,
    ProtectionDomain, QpConfig, QueuePair, Region, SendRequest, Slice, Status,
};

/// Octets of the memory: several segments' worth, so that one Write is caught in the middle.
const OCTETS: usize = 96 << 10;
const WRITE_OCTETS: u32 = 24 << 10;
/// Contents of the memory after it is deregistered. No writer uses this value.
const CANARY: u8 = 0xee;
/// Connections at the same time, and how often each is made again.
const LANES: u16 = 3;
const ROUNDS: u8 = 12;

/// Writes `value` to all of the memory again and again, until the stream fails.
fn write_until_refused(qp: &QueuePair, completions: &CompletionQueue, source: Slice, target: &Advertisement) {
    let (mut id, begun) = (0, Instant::now());
    while begun.elapsed() < PATIENCE {
        let offset = id % u64::from(target.len / WRITE_OCTETS) * u64::from(WRITE_OCTETS);
        if qp.post_write(id, source, target, offset).is_ok() {
            id += 1;
        }
        // Full queues, or an end: either way something completes.
        while let Some(completion) = completions.poll() {
            if completion.status != Status::Success {
                return;
            }
        }
        if qp.error().is_some() {
            return;
        }
    }
    panic!("the stream goes on, though its target is gone");
}

/// The peer of one lane: connects, and writes to each target that it receives.
fn writer(near: &Device, port: u16, targets: &Receiver<(u8, Advertisement)>, begun: &Sender<()>) {
    let domain = near.protection_domain();
    while let Ok((value, target)) = targets.recv() {
        let completions = CompletionQueue::new(1024);
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
        qp.connect((FAR, port).into(), &ConnectConfig::default()).unwrap();
        let source = domain.allocate(WRITE_OCTETS as usize, Access::empty()).unwrap();
        source.fill(value);
        begun.send(()).unwrap();
        write_until_refused(&qp, &completions, source.slice(0, WRITE_OCTETS), &target);
    }
}

fn holds_only(region: &Region, value: u8) -> bool {
    let mut octets = vec![0; region.len()];
    assert!(region.read(0, &mut octets));
    octets.iter().all(|&octet| octet == value)
}

fn has_been_written(region: &Region, value: u8) -> bool {
    let mut octet = [0];
    assert!(region.read(region.len() - 1, &mut octet));
    octet == [value]
}

fn fill(region: &Region, value: u8) {
    assert!(region.write(0, &vec![value; region.len()]));
}

/// How memory is taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TakenBack {
    Deregistered,
    Invalidated,
}

/// A queue pair that has taken the next connection to `port`.
fn accept(
    domain: &ProtectionDomain,
    listener: &warpline::Listener,
    completions: &CompletionQueue,
) -> QueuePair {
    let qp = domain.queue_pair(&QpConfig::default(), completions, completions).unwrap();
    listener.accept(PATIENCE).unwrap().accept(&qp, b"").unwrap();
    qp
}

/// One lane: the same memory is registered again and again, each time for a new connection, and taken back in
/// full flight.
fn lane(pair: &Pair, number: u16, how: TakenBack) {
    let port = 5000 + number;
    let listener = pair.far.listen(port, &ListenConfig::default()).unwrap();
    let domain = pair.far.protection_domain();
    let region = Region::heap(OCTETS).unwrap();
    let (tell, targets) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || writer(&pair.near, port, &targets, &begun));
        for round in 1..=ROUNDS {
            let memory = domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::Address).unwrap();
            tell.send((round, memory.advertisement(0, OCTETS as u32).unwrap())).unwrap();
            let completions = CompletionQueue::new(64);
            let qp = accept(&domain, &listener, &completions);
            has_begun.recv().unwrap();
            eventually("the peer writes", || has_been_written(&region, round));
            if how == TakenBack::Invalidated {
                let operation = Operation::LocalInvalidate { stag: memory.stag() };
                qp.post(SendRequest::new(1, operation, Slice::default())).unwrap();
                assert_eq!(completions.wait(PATIENCE).unwrap().status, Status::Success);
            } else {
                memory.deregister(PATIENCE).unwrap();
            }
            fill(&region, CANARY);
            // The peer has written on; its stream ends by that.
            assert!(qp.wait_closed(PATIENCE).is_err());
            assert!(holds_only(&region, CANARY), "written after it was taken back");
        }
        drop(tell);
    });
}

fn in_lanes(how: TakenBack) {
    let pair = Pair::new();
    thread::scope(|scope| {
        for number in 0..LANES {
            let pair = &pair;
            scope.spawn(move || lane(pair, number, how));
        }
    });
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// Segments are in flight, and more segments follow them.
// Requirements: DDP-8.3.1-07, RDMAP-8.1.1-01
#[test]
fn deregistered_memory_is_written_no_more() {
    in_lanes(TakenBack::Deregistered);
}

/// An invalidation that is complete is as good.
// Requirements: DDP-8.3.1-07
#[test]
fn invalidated_memory_is_written_no_more() {
    in_lanes(TakenBack::Invalidated);
}

/// Ends the other threads of a test, also when it fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lent memory is exclusive to its owner again when the deregistration returns, whatever the core was doing.
#[test]
fn lent_memory_is_free_once_it_is_deregistered() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let stop = AtomicBool::new(false);
    let started = Barrier::new(2);
    let target = far.memory.advertisement(0, 100_000).unwrap();
    let (started, stop) = (&started, &stop);
    thread::scope(|scope| {
        scope.spawn(move || {
            started.wait();
            while !stop.load(Ordering::Relaxed) {
                near.qp.post_write(1, near.memory.slice(0, 100_000), &target, 0).unwrap();
                assert_eq!(near.completion().status, Status::Success);
            }
        });
        let _stop = StopAtEnd(stop);
        started.wait();
        for round in 0..200_u8 {
            let region = Region::owned(vec![round; 4096]).unwrap();
            let registered =
                far.domain.register(region.clone(), Access::REMOTE, Addressing::ZeroBased).unwrap();
            registered.deregister(PATIENCE).unwrap();
            let memory = region.into_vec().unwrap_or_else(|_| panic!("still held after round {round}"));
            assert_eq!(memory, [round; 4096]);
        }
    });
}
