//! A core that is measured, and its work: connections to its peer, and the RDMA Writes on them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpline::{
    Access, Advertisement, Completion, CompletionQueue, ConnectConfig, CoreDriver, Device, MemoryRegion,
    QpConfig, QueuePair, Revision, STag, SendBatch, Status,
};
use warpline_tools::interrupt;

use super::peer::{PEER, PORT, Shared, cycles};
use super::report::{Measured, Row};
use crate::endpoint::NAP;
use crate::error::BenchError;

/// Writes outstanding on a queue pair.
const DEPTH: u64 = 128;
/// Writes posted at a time.
const BATCH: u64 = 16;
const _: () = assert!(BATCH as usize <= SendBatch::CAPACITY);
/// The time before anything is counted.
const WARM_UP: Duration = Duration::from_millis(50);

/// A connection's queue pair and its memory: the source or the sink.
struct Lane {
    qp: QueuePair,
    completions: CompletionQueue,
    region: MemoryRegion,
    posted: u64,
    completed: u64,
}

/// A core before its connections are open.
pub struct UnconnectedCore {
    pub driver: CoreDriver,
    /// What it shares with its peer.
    pub shared: Arc<Shared>,
    /// What is to be measured.
    pub row: Row,
}

impl UnconnectedCore {
    /// Connects the queue pairs of the core with this `number` of `device`.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn connect(mut self, device: &Device, number: u8, content: &[u8]) -> Result<Core, BenchError> {
        let row = self.row;
        let at = (row.cores > 1).then_some(number);
        let lanes = self.driver.run(|| {
            (0..row.connections).map(|_| Lane::connect(device, at, row, content)).collect::<Result<_, _>>()
        })?;
        let polled = Vec::with_capacity(DEPTH as usize);
        Ok(Core { driver: self.driver, lanes, shared: self.shared, row, polled })
    }
}

impl Lane {
    /// Connects a queue pair at a core, if there are several.
    fn connect(device: &Device, at: Option<u8>, row: Row, content: &[u8]) -> Result<Self, BenchError> {
        let peer = SocketAddr::from((PEER, PORT));
        let setup = |error: &dyn std::error::Error| BenchError::Setup(error.to_string());
        let domain = device.protection_domain();
        let completions = CompletionQueue::new(2 * DEPTH as usize);
        let config = QpConfig { send_depth: DEPTH as usize, packing: row.packing, ..QpConfig::default() };
        let qp = domain.queue_pair(&config, &completions, &completions).map_err(|error| setup(&error))?;
        let region = domain
            .allocate(content.len(), Access::REMOTE_WRITE)
            .map_err(|error| BenchError::Memory(error.to_string()))?;
        if row.transmits() && !region.write(0, content) {
            return Err(BenchError::Memory("the content does not fit".into()));
        }
        let config = ConnectConfig {
            markers: row.markers,
            revision: Revision::One,
            core: at,
            ..ConnectConfig::default()
        };
        qp.connect(peer, &config).map_err(|error| BenchError::Connect(peer, error))?;
        Ok(Self { qp, completions, region, posted: 0, completed: 0 })
    }
}

/// A core that is measured.
pub struct Core {
    driver: CoreDriver,
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
    row: Row,
    polled: Vec<Completion>,
}

impl Core {
    /// Polls until `ends` says so.
    ///
    /// # Errors
    ///
    /// [`CommandError::Interrupted`](warpline_tools::error::CommandError::Interrupted).
    pub fn poll_until(&mut self, mut ends: impl FnMut() -> bool) -> Result<(), BenchError> {
        while !ends() {
            if interrupt::is_requested() {
                return Err(BenchError::interrupted());
            }
            if !self.driver.poll_once() {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Measures for `duration`.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn measure(&mut self, duration: Duration) -> Result<Measured, BenchError> {
        if !self.row.transmits() {
            let sinks = self.lanes.iter().map(|lane| lane.region.advertisement(0, self.row.size));
            let sinks: Option<Vec<_>> = sinks.collect();
            // Set once: a core is measured once.
            let _ = self.shared.sinks.set(sinks.ok_or_else(|| BenchError::Memory("no range".into()))?);
            self.shared.sending.store(true, Ordering::Relaxed);
        }
        self.work(WARM_UP.min(duration))?;
        let (before, start, begin) = (self.snapshot(), Instant::now(), cycles());
        self.work(duration)?;
        let (seconds, all_cycles) = (start.elapsed().as_secs_f64(), cycles().wrapping_sub(begin));
        let after = self.snapshot();
        self.shared.sending.store(false, Ordering::Relaxed);
        Ok(Measured { seconds, all_cycles, ..after.since(&before) })
    }

    fn work(&mut self, duration: Duration) -> Result<(), BenchError> {
        /// Polls between two readings of the clock.
        const POLLS: u32 = 64;
        let start = Instant::now();
        while interrupt::goes_on(start, duration) {
            for _ in 0..POLLS {
                if self.row.transmits() {
                    self.post()?;
                }
                self.driver.poll_once();
            }
        }
        Ok(())
    }

    /// Takes what has completed, and posts as much.
    fn post(&mut self) -> Result<(), BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::Peer(error.to_string());
        // The peer takes any STag.
        let sink = Advertisement { to: 0, stag: STag(0x100), len: self.row.size };
        for lane in &mut self.lanes {
            while lane.completions.poll_into(&mut self.polled) > 0 {
                for completion in self.polled.drain(..) {
                    if completion.status != Status::Success {
                        return Err(BenchError::Peer(format!("a Write ended with {:?}", completion.status)));
                    }
                    lane.completed += 1;
                }
            }
            let count = (lane.completed + DEPTH - lane.posted).min(BATCH);
            if count == 0 {
                continue;
            }
            let mut batch = lane.qp.batch();
            for number in lane.posted..lane.posted + count {
                let local = lane.region.slice(0, self.row.size);
                batch.write(number, local, &sink, 0).map_err(|error| failed(&error))?;
            }
            batch.commit().map_err(|error| failed(&error))?;
            lane.posted += count;
        }
        Ok(())
    }

    fn snapshot(&self) -> Measured {
        let shared = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let statistics = self.driver.statistics();
        Measured {
            seconds: 0.0,
            all_cycles: 0,
            packets: shared(&self.shared.packets),
            octets: shared(&self.shared.octets),
            acknowledgements: shared(&self.shared.acknowledgements),
            peer_cycles: shared(&self.shared.peer_cycles),
            device_cycles: shared(&self.shared.device_cycles),
            fpdus: statistics.fpdus_sent + statistics.fpdus_received,
            retransmitted_segments: statistics.tcp.retransmitted_segments,
        }
    }

    /// Checks that all went as it must: segments came in order, and what was received is in its place.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`], [`BenchError::Corrupt`].
    pub fn verify(&mut self, content: &[u8]) -> Result<(), BenchError> {
        if let Some(error) = self.lanes.iter().find_map(|lane| lane.qp.error()) {
            return Err(BenchError::Peer(error.to_string()));
        }
        let unexpected = self.shared.unexpected.load(Ordering::Relaxed);
        if unexpected > 0 {
            return Err(BenchError::Peer(format!("{unexpected} segments were not the next")));
        }
        if self.row.transmits() {
            return Ok(());
        }
        // What was generated in the last poll has been placed by the next.
        self.driver.poll_once();
        let (sent, received) =
            (self.shared.fpdus.load(Ordering::Relaxed), self.driver.statistics().fpdus_received);
        if sent != received {
            return Err(BenchError::Peer(format!("of {sent} FPDUs that were sent, {received} were placed")));
        }
        let mut corrupt = 0;
        for lane in &self.lanes {
            let placed = lane.region.to_vec(0, content.len()).unwrap_or_default();
            corrupt += placed.iter().zip(content).filter(|(placed, sent)| placed != sent).count() as u64;
        }
        if corrupt == 0 { Ok(()) } else { Err(BenchError::Corrupt(corrupt)) }
    }
}
