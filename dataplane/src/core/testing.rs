//! Hooks of tests and fuzz targets: what the cores of a thread have done, and a core on a simulated device.

use std::sync::Arc;

use super::tables::{Tables, Usage};
use super::{Config, Core, Place};
use crate::device::sim::{SimDevice, SimFrame};
use crate::device::spread::{Queues, Spread, spread};
use crate::net;
use crate::qp::shared::BadRequest;
use crate::qp::shared_receive_queue::SharedReceiveQueue;
use crate::qp::work::ReceiveRequest;
use crate::ring::Rings;
use crate::statistics::Statistics;
use crate::steering::Steering;
use crate::tally;
use crate::time::Instant;
use crate::waker::Waker;

/// Returns how often the cores of this thread have computed the checksum of a segment that has arrived.
#[doc(hidden)]
pub fn checksums_computed() -> u64 {
    net::testing::sums()
}

/// Posts receives as a thread does that is interrupted once it has claimed their positions, and goes on after
/// `meanwhile`.
///
/// # Errors
///
/// As [`SharedReceiveQueue::post`].
#[doc(hidden)]
pub fn post_interrupted(
    queue: &SharedReceiveQueue,
    requests: &[ReceiveRequest],
    meanwhile: impl FnOnce(),
) -> Result<(), BadRequest> {
    queue.post_interrupted(requests, meanwhile)
}

/// Returns how many connections, queue pairs, timers and STags the cores of this thread have looked at, each
/// as often as they did.
#[doc(hidden)]
pub fn visits() -> u64 {
    tally::visits()
}

/// Returns how often the cores of this thread have written to lines that other cores of a device use, queues
/// that an application shares among them left out.
#[doc(hidden)]
pub fn shared_writes() -> u64 {
    tally::shared_writes()
}

/// A core on a simulated device. Its poll loop is compiled here, optimised as this crate is: a test that only
/// drives it need not be.
#[doc(hidden)]
pub struct SimulatedCore(Core<Spread<SimDevice>>);

impl SimulatedCore {
    /// As [`Core::with_tables`].
    pub fn new(device: SimDevice, config: Config, rings: Rings, tables: Tables) -> Self {
        // Nothing is handed over where there is one core.
        let steering = Arc::new(Steering::new(1, 1, |_| ()));
        let mut devices = spread(vec![device], Queues::PerCore, &steering);
        Self(Core::with_tables(devices.remove(0), config, rings, tables))
    }

    /// As [`Core::placed`].
    pub fn placed(
        device: Spread<SimDevice>,
        config: Config,
        rings: Rings,
        tables: Tables,
        place: Place<SimFrame>,
    ) -> Self {
        Self(Core::placed(device, config, rings, tables, place))
    }

    /// As [`Core::poll_once`].
    pub fn poll_once(&mut self, now: Instant) -> bool {
        self.0.poll_once(now)
    }

    /// As [`Core::poll_run_to_completion`].
    pub fn poll_run_to_completion(&mut self, now: Instant) -> bool {
        self.0.poll_run_to_completion(now)
    }

    /// As [`Core::next_deadline`].
    pub fn next_deadline(&self) -> Instant {
        self.0.next_deadline()
    }

    /// As [`Core::has_scheduled`].
    pub fn has_scheduled(&self) -> bool {
        self.0.has_scheduled()
    }

    /// As [`Core::has_waiting_events`].
    pub fn has_waiting_events(&self) -> bool {
        self.0.has_waiting_events()
    }

    /// As [`Core::wake_on_arrival`].
    pub fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.0.wake_on_arrival(waker)
    }

    /// As [`Core::statistics`].
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// As [`Core::usage`].
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }
}
