//! A thousand queue pairs of each of two hosts, connected at once over a path that loses, reorders,
//! duplicates and delays. They exchange data, memory is deregistered beside them, some fail, either end
//! closes them, and other attempts to connect are refused or given up. In the end every table is empty.

mod ending;
mod exchange;
mod opening;

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crossbeam::channel::Receiver;
use fastrand::Rng;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::{self, EndConfig, Impairments};
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::completion_queue::CompletionRing;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::host::{Host, HostConfig};
use super::play::address;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Arrival, NewQueuePair, Request};
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::quota::Quotas;
use exchange::Memory;
use opening::{Attempt, Timed};

/// Queue pairs of each host that are connected to one of the other host at the same time.
const CONNECTIONS: usize = 1000;
/// Room of each host: little more than what is open at once, so that a leak shows soon.
const ROOM: usize = CONNECTIONS + opening::OTHERS;
/// The Protection Domain of everything.
const PD: ProtectionDomainId = ProtectionDomainId(1);
/// Virtual time after which a phase that has not ended is stuck: that of TCP's last retransmission.
const PATIENCE_NS: u64 = 600 * SECOND;

/// Two hosts, their applications, and the time they live in.
struct Crowd {
    rng: Rng,
    now: Instant,
    hosts: [Host; 2],
    /// Where all queue pairs of a host report.
    completions: [Arc<CompletionRing>; 2],
    /// What has arrived at the listener of a host.
    arrivals: [Receiver<Arrival>; 2],
    /// By their numbers, which are in the Private Data of Requests.
    attempts: Vec<Attempt>,
    /// What the applications will do.
    agenda: BTreeSet<(Instant, usize, Timed)>,
    /// Peers whose startup failed.
    faults: usize,
    /// Completions of the current round, by host and work request.
    completed: HashSet<(usize, u64)>,
    /// Attempts that were given up before they led to a connection, and after.
    given_up: [usize; 2],
    /// Queue pairs that were destroyed.
    dropped: Vec<NewQueuePair>,
    /// Replies to requests to destroy them.
    destroyed: Vec<Receiver<()>>,
    trace: DefaultHasher,
}

/// Returns the path from one host to the other.
fn path() -> Impairments {
    Impairments {
        loss: 0.02,
        duplicate: 0.02,
        reorder: 0.05,
        reorder_delay_ns: 2 * MILLISECOND,
        delay_min_ns: MILLISECOND / 10,
        delay_max_ns: 3 * MILLISECOND,
        ..Impairments::default()
    }
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let ends = [EndConfig::a(), EndConfig::b()].map(|end| EndConfig { outbound: path(), ..end });
        let [a, b] = ends;
        let (a, b) = sim::link(seed, a, b);
        let crc = if rng.bool() { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees };
        let hosts = [(a, 0), (b, 1)].map(|(device, side)| {
            let tables =
                Tables { connections: ROOM, time_waits: ROOM, queue_pairs: ROOM, ..Tables::default() };
            let secret = [rng.u64(..), rng.u64(..)];
            let config = HostConfig { secret, key: rng.u128(..), crc, tables, quotas: Quotas::default() };
            Host::with_config(device, address(side), &config)
        });
        Self {
            rng,
            now: Instant::from_nanos(1),
            hosts,
            completions: [0, 1].map(|_| Arc::new(CompletionRing::new(exchange::COMPLETIONS))),
            arrivals: [0, 1].map(|_| crossbeam::channel::never()),
            attempts: Vec::new(),
            agenda: BTreeSet::new(),
            faults: 0,
            completed: HashSet::new(),
            given_up: [0; 2],
            dropped: Vec::new(),
            destroyed: Vec::new(),
            trace: DefaultHasher::new(),
        }
    }

    /// Lets time pass until `done`, which is asked whenever nothing is left to do at a time.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let give_up = self.now + PATIENCE_NS;
        loop {
            while self.work() {}
            if done(self) {
                (what, self.now.as_nanos()).hash(&mut self.trace);
                return;
            }
            assert!(self.now < give_up, "{what}: {:?}", [0, 1].map(|side| self.hosts[side].core_usage()));
            let next = self.hosts.iter().map(Host::next_deadline).min().unwrap_or(Instant::NEVER);
            let next = self.agenda.first().map_or(next, |(at, ..)| next.min(*at));
            self.now = next.max(self.now + 1).min(self.now + SECOND);
        }
    }

    /// Does what there is to do now. Returns true if there was anything.
    fn work(&mut self) -> bool {
        let mut busy = false;
        for host in &mut self.hosts {
            busy |= host.poll(self.now);
        }
        self.take_completions();
        busy |= self.take_arrivals();
        while self.agenda.first().is_some_and(|(at, ..)| *at <= self.now) {
            busy = true;
            let (_, number, timed) = self.agenda.pop_first().expect("there is one");
            self.carry_out(number, timed);
        }
        busy
    }

    /// Sends a request, and lets time pass until the reply is there.
    fn ask<T>(&mut self, side: usize, what: &str, request: impl FnOnce(Reply<T>) -> Request) -> T {
        let receiver = self.hosts[side].begin(self.now, request);
        let mut reply = None;
        self.until(what, |_| {
            reply = receiver.try_recv().ok();
            reply.is_some()
        });
        reply.expect("it has come")
    }

    /// Asserts that this many connections and queue pairs are open at each host, and nothing half open.
    fn expect_open(&self, count: usize) {
        for host in &self.hosts {
            let (core, engine) = (host.core_usage(), host.engine.usage());
            assert_eq!((core.connections, core.queue_pairs, core.half_open), (count, count, 0));
            assert_eq!((engine.connections, engine.queue_pairs), (count, count));
        }
    }

    /// Returns the queue pair at one end of a connection that is open; end 0 is the Initiator's.
    fn qp(&self, number: usize, end: usize) -> &NewQueuePair {
        self.attempts[number].ends[end].as_ref().expect("it has a queue pair at both ends")
    }
}

/// Runs `seed`. Returns the hash of what happened when.
///
/// # Panics
///
/// When anything is lost, differs, does not end, or is left.
fn run(seed: u64) -> u64 {
    let mut crowd = Crowd::new(seed);
    crowd.open();
    crowd.expect_open(CONNECTIONS);

    // Memory that everything is sent from is deregistered while it is being sent.
    let targets = [0, 1].map(|side| Memory::target(&mut crowd, side));
    let mut expected = [0, 1].map(|side| targets[side].content());
    crowd.exchange_and_deregister(&targets, &mut expected);
    crowd.expect_open(CONNECTIONS);

    // Memory that peers write to is deregistered. Those that still write to it fail, and no others.
    let withdrawn = [0, 1].map(|side| Memory::target(&mut crowd, side));
    crowd.deregister(&withdrawn);
    crowd.exchange_beside_failures(&targets, &mut expected, &withdrawn);
    crowd.expect_open(CONNECTIONS - exchange::failures());

    crowd.deregister(&targets);
    crowd.close_all();
    crowd.expect_unused();
    crowd.trace.finish()
}

#[test]
fn a_thousand_queue_pairs_work_side_by_side_and_leave_nothing() {
    for seed in 0..2 {
        println!("seed {seed}");
        run(seed);
    }
}

#[test]
fn a_thousand_queue_pairs_do_the_same_again() {
    assert_eq!(run(2), run(2));
}
