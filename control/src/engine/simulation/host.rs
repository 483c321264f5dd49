//! A host: a core and its control engine, and the loop around both in virtual time.

use std::net::Ipv4Addr;
use std::ops::Sub;
use std::sync::Arc;

use crossbeam::channel::Receiver;
use fastrand::Rng;
use warpline_dataplane::core::tables::{Tables, Usage};
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, PollLoop};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::sim::{SimDevice, SimFrame};
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::net::addresses::Addresses;
use warpline_dataplane::qp::async_event::AsyncEvents;
use warpline_dataplane::qp::completion_queue::CompletionRing;
use warpline_dataplane::qp::shared::CompletionRings;
use warpline_dataplane::ring::Rings;
use warpline_dataplane::time::Instant;

use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{NewQueuePair, Request};
use crate::engine::names::KeyedSequence;
use crate::engine::placement::Placement;
use crate::engine::{Engine, EngineConfig};
use crate::vocabulary::capacity::Capacity;
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::queue_pair::{CreateError, QpConfig};
use crate::vocabulary::quota::Quotas;

const COMPLETIONS: usize = 64;

/// What a host has room for, and the numbers that its choices follow from.
pub(super) struct HostConfig {
    pub(super) secret: [u64; 2],
    pub(super) key: u128,
    pub(super) crc: CrcPolicy,
    pub(super) tables: Tables,
    pub(super) quotas: Quotas,
}

/// A core, its engine, and their rings.
pub(super) struct Host {
    pub(super) engine: Engine,
    core: Box<dyn PollLoop>,
    rings: Rings,
    cost: Cost,
}

/// What a host has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Commands for the core.
    pub(super) commands: u64,
    /// Events of the core.
    pub(super) events: u64,
    /// Frames that the core has sent.
    pub(super) frames: u64,
    /// Allocations by polls of the core.
    pub(super) core_allocations: u64,
    /// Allocations by the engine, with those of the requests and their replies.
    pub(super) engine_allocations: u64,
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            commands: self.commands - before.commands,
            events: self.events - before.events,
            frames: self.frames - before.frames,
            core_allocations: self.core_allocations - before.core_allocations,
            engine_allocations: self.engine_allocations - before.engine_allocations,
        }
    }
}

/// Calls `work`, and adds its allocations to `count`.
fn counted<T>(count: &mut u64, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    *count += allocation_counter::measure(|| result = Some(work())).count_total;
    result.expect("the work was done")
}

impl Host {
    /// Returns a host at `address`, whose room and choices follow from `rng`.
    pub(super) fn new(device: SimDevice, address: Ipv4Addr, rng: &mut Rng) -> Self {
        let secret = [rng.u64(..), rng.u64(..)];
        // Few enough that runs use them up.
        let connections = rng.usize(3..12);
        let tables = Tables {
            connections,
            time_waits: connections,
            send_descriptors: 4096,
            held_frames: 1024,
            placed_runs: 256,
            placed_sends: 256,
            ..Tables::default()
        };
        let crc = if rng.bool() { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees };
        let connections = if rng.u8(..4) == 0 { 2 } else { connections };
        let quotas = Quotas {
            regions_per_domain: 4,
            queue_pairs_per_domain: rng.usize(3..20),
            connections_per_peer: connections,
            connections_per_network: connections,
        };
        let key = rng.u128(..);
        Self::with_config(device, address, &HostConfig { secret, key, crc, tables, quotas })
    }

    /// Returns a host at `address` that is set up in this way.
    pub(super) fn with_config(device: SimDevice, address: Ipv4Addr, config: &HostConfig) -> Self {
        let &HostConfig { secret, key, crc, tables, quotas } = config;
        let rings = Rings::new();
        let config = Config {
            duplicate_address_detection: false,
            holds_stream: true,
            ..Config::new(address.into(), 24, secret)
        };
        let engine = Engine::new(EngineConfig {
            crc,
            capacity: Capacity::default(),
            quotas,
            doorbells: rings.doorbells.clone().into(),
            placement: Placement::new(None, Addresses::new()),
            claims: None,
            events: Arc::new(AsyncEvents::new(None)),
            random: KeyedSequence::new(key.to_le_bytes()),
        });
        let setup = CoreSetup::new(config, rings.clone()).with_tables(tables);
        let core = SimFrame::poll_loop(boxed(device), setup);
        Self { engine, core, rings, cost: Cost::default() }
    }

    /// Polls the core once, and passes on what it and the engine have for each other. Returns true if there
    /// was anything.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let Self { engine, core, rings, cost } = self;
        let mut busy = counted(&mut cost.core_allocations, || core.poll_once(now));
        while let Some(event) = rings.events.pop() {
            busy = true;
            cost.events += 1;
            counted(&mut cost.engine_allocations, || engine.on_event(now, 0, event));
        }
        counted(&mut cost.engine_allocations, || engine.on_time(now));
        busy | self.deliver()
    }

    /// Delivers the outputs of the engine. Returns true if there were any.
    fn deliver(&mut self) -> bool {
        let mut busy = false;
        while let Some(command) = self.engine.next_command(0) {
            busy = true;
            if let Err(command) = self.rings.commands.push(command) {
                self.engine.return_command(0, command);
                break;
            }
            self.cost.commands += 1;
        }
        while let Some(deliver) = self.engine.next_reply() {
            busy = true;
            deliver();
        }
        busy
    }

    /// Returns what the host has done so far.
    pub(super) fn cost(&self) -> Cost {
        Cost { frames: self.core.statistics().frames_sent, ..self.cost }
    }

    /// Returns how much of the core's tables is in use.
    pub(super) fn core_usage(&self) -> Usage {
        self.core.usage()
    }

    /// Returns the time at which the host has work, if nothing happens before.
    pub(super) fn next_deadline(&self) -> Instant {
        self.engine.next_deadline().min(self.core.next_deadline())
    }

    pub(super) fn send(&mut self, now: Instant, request: Request) {
        let Self { engine, cost, .. } = self;
        counted(&mut cost.engine_allocations, || engine.on_request(now, request));
        self.deliver();
    }

    /// Sends a request. Returns where the reply arrives.
    pub(super) fn begin<T>(
        &mut self,
        now: Instant,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Receiver<T> {
        let (reply, receiver) = counted(&mut self.cost.engine_allocations, Reply::new);
        self.send(now, request(reply));
        receiver
    }

    /// Sends a request to which the engine replies at once.
    pub(super) fn ask<T>(&mut self, now: Instant, request: impl FnOnce(Reply<T>) -> Request) -> T {
        self.begin(now, request).try_recv().expect("an immediate reply")
    }

    pub(super) fn create_qp(&mut self, now: Instant, config: QpConfig) -> Result<NewQueuePair, CreateError> {
        let completions = Arc::new(CompletionRing::new(COMPLETIONS));
        let completions = CompletionRings { send: completions.clone(), receive: completions };
        let pd = ProtectionDomainId(1);
        self.ask(now, |reply| Request::CreateQp { pd, config, completions, receives: None, reply })
    }
}
