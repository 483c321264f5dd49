//! The end that is written to.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use warpline::{AcceptError, Access, Advertisement, Device, ListenConfig, Listener, MemoryRegion, STag};

use super::arguments::WriteBw;
use super::sizes::TIMEOUT;
use crate::arguments::MESSAGE_BYTES_MAX;
use crate::endpoint::{Driver, received};
use crate::error::BenchError;
use crate::lane::Lane;
use crate::pattern::Pattern;

/// A lane of the target: the memory that is written, and its expected content.
struct TargetLane {
    lane: Lane,
    sink: MemoryRegion,
    pattern: Pattern,
    verify: bool,
}

impl TargetLane {
    /// Answers the writer's messages; breaks when the writer has closed.
    fn step(&mut self) -> Result<ControlFlow<()>, BenchError> {
        while let Some(completion) = self.lane.completions.poll() {
            if self.lane.is_closed() {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(message) = self.lane.message(&completion)? {
                self.answer(&message)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn answer(&self, round: &Advertisement) -> Result<(), BenchError> {
        let octets = round.len as usize;
        let corrupt = if self.verify {
            self.pattern.corrupt_bytes(&self.sink, round.to, octets.min(self.sink.len()))
        } else {
            0
        };
        self.lane.send(&Advertisement { to: corrupt, stag: STag(0), len: round.len })
    }
}

/// A lane whose connection has ended, to be dropped by a thread that need not poll.
pub struct Ended {
    _lane: TargetLane,
    result: Result<(), BenchError>,
}

/// Channels between the thread that accepts and the target's core.
pub struct Lanes {
    give: mpsc::Sender<TargetLane>,
    ended: mpsc::Receiver<Ended>,
}

/// The target's work between polls.
pub type Work = Box<dyn FnMut(&mut Driver) -> ControlFlow<()> + Send>;

/// Returns the target's work between polls, and the way to it.
pub fn work() -> (Lanes, Work) {
    let (give, taken) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let mut lanes: Vec<TargetLane> = Vec::new();
    let step = move |_: &mut Driver| {
        lanes.extend(received(&taken)?);
        let mut index = 0;
        while index < lanes.len() {
            let result = match lanes[index].step() {
                Ok(ControlFlow::Continue(())) => {
                    index += 1;
                    continue;
                }
                Ok(ControlFlow::Break(())) => Ok(()),
                Err(error) => Err(error),
            };
            // Unheard only when the program is ending.
            let _ = end.send(Ended { _lane: lanes.swap_remove(index), result });
        }
        ControlFlow::Continue(())
    };
    (Lanes { give, ended }, Box::new(step))
}

/// Calls `listening` once it listens, and takes connections at `port` until the last one that came has ended,
/// or no writer will connect any more (`cancelled`).
///
/// # Errors
///
/// The first error of a connection.
pub fn serve(
    device: &Device,
    port: u16,
    args: &WriteBw,
    lanes: &Lanes,
    cancelled: &AtomicBool,
    listening: impl FnOnce(),
) -> Result<(), BenchError> {
    /// How long a connection is waited for before looking at those there are.
    const PATIENCE: Duration = Duration::from_millis(20);
    let config = ListenConfig { markers: args.markers.is_on(), ..ListenConfig::default() };
    let config = args.setup.listen(config);
    let listener = device.listen(port, &config).map_err(|error| BenchError::Setup(error.to_string()))?;
    listening();
    let (mut open, mut came) = (0u32, false);
    let mut result = Ok(());
    while (!came || open > 0) && !cancelled.load(Ordering::Relaxed) {
        if let Some(lane) = accept(device, &listener, args, PATIENCE)? {
            (open, came) = (open + 1, true);
            if lanes.give.send(lane).is_err() {
                return Err(BenchError::Setup("the target's core has stopped".into()));
            }
        }
        while let Ok(ended) = lanes.ended.try_recv() {
            open -= 1;
            result = result.and(ended.result);
        }
    }
    result
}

/// Accepts a connection and advertises a buffer to it; `None` when none came.
fn accept(
    device: &Device,
    listener: &Listener,
    args: &WriteBw,
    patience: Duration,
) -> Result<Option<TargetLane>, BenchError> {
    let request = match listener.accept(patience) {
        Ok(request) => request,
        Err(AcceptError::TimedOut) => return Ok(None),
        Err(error) => return Err(BenchError::Setup(error.to_string())),
    };
    let lane = Lane::new(device, args.depth, args.packing.is_on())?;
    request.accept(&lane.qp, &[]).map_err(|error| BenchError::Setup(error.to_string()))?;
    let wanted = lane.wait_for_message(TIMEOUT)?.len;
    if !(1..=MESSAGE_BYTES_MAX).contains(&wanted) {
        return Err(lane.failed(&format!("it wants {wanted} bytes of buffer")));
    }
    let sink = lane
        .domain
        .allocate(wanted as usize, Access::REMOTE_WRITE)
        .map_err(|error| BenchError::Memory(error.to_string()))?;
    let advertisement = sink.advertisement(0, wanted).ok_or_else(|| BenchError::Memory("no range".into()))?;
    lane.send(&advertisement)?;
    let pattern = Pattern::new(wanted as usize);
    Ok(Some(TargetLane { lane, sink, pattern, verify: args.verify.is_on() }))
}
