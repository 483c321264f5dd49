//! The end that listens.

use std::collections::VecDeque;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use warpline::{AcceptError, Advertisement, ConnectionRequest, Device, ListenConfig, Listener};
use warpline_tools::output::note;

use super::budget::{Budget, Reservation, check_open};
use super::lane::{LANES_PER_TURN, Lane, Role, lanes_per_turn};
use super::plan::{Figure, Plan};
use super::settings::Settings;
use super::supplies::Supplies;
use crate::at_core::OTHER_CORE;
use crate::endpoint::{Driver, received};
use crate::error::BenchError;

/// A connection, and the memory that it keeps in use.
pub struct AcceptedLane {
    lane: Lane,
    /// The core of its connection.
    core: u8,
    /// The last of a size's lanes frees what they share.
    shared: Arc<Shared>,
    _reservation: Reservation,
}

/// What the lanes of a size share.
struct Shared {
    supplies: Supplies,
    _reservation: Reservation,
}

/// A connection that has ended, to be dropped by a thread that need not poll.
pub struct Ended {
    accepted: AcceptedLane,
    result: Result<(), BenchError>,
}

/// Channels between the thread that accepts and the target's cores.
pub struct Lanes {
    /// By core.
    give: Vec<mpsc::Sender<AcceptedLane>>,
    ended: mpsc::Receiver<Ended>,
}

/// The target's work between polls.
pub type Work = Box<dyn FnMut(&mut Driver) -> ControlFlow<()> + Send>;

/// Returns the target's work between the polls of each of `cores` cores, and the channels to it. Once it
/// `closes`, all connections are closed, and nothing else is done on them.
pub fn work(cores: u32, closes: fn() -> bool) -> (Lanes, Vec<Work>) {
    let (end, ended) = mpsc::channel();
    let works = (0..cores).map(|_| {
        let (give, taken) = mpsc::channel();
        (give, work_of_core(taken, end.clone(), closes))
    });
    let (give, works) = works.unzip();
    (Lanes { give, ended }, works)
}

/// Returns the work of a core, which takes connections from `taken` and gives them to `end`.
fn work_of_core(taken: mpsc::Receiver<AcceptedLane>, end: mpsc::Sender<Ended>, closes: fn() -> bool) -> Work {
    let (mut measured, mut beside) = (Group::default(), Group::default());
    let (mut closing, mut turns) = (false, 0u32);
    let step = move |driver: &mut Driver| {
        if let Some(accepted) = received(&taken)? {
            let group = if accepted.lane.is_beside() { &mut beside } else { &mut measured };
            group.lanes.push(accepted);
        }
        // The other end starts all of them together.
        driver.set_up(measured.lanes.last().is_none_or(|accepted| !accepted.lane.has_started()));
        if closes() && !closing {
            closing = true;
            for accepted in measured.lanes.iter().chain(&beside.lanes) {
                accepted.lane.qp.disconnect();
            }
        }
        turns = turns.wrapping_add(1);
        let (few, few_beside) = if driver.sleeps() {
            (measured.lanes.len(), beside.lanes.len())
        } else if measured.lanes.is_empty() {
            (0, LANES_PER_TURN)
        } else {
            let first = measured.lanes.first().map(|first| &first.lane);
            (lanes_per_turn(first, measured.lanes.len()), turns.is_multiple_of(TURNS_BESIDE).into())
        };
        measured.turn(few, closing, &end);
        beside.turn(few_beside, closing, &end);
        ControlFlow::Continue(())
    };
    Box::new(step)
}

/// Turns between two looks at lanes beside those that are measured. They have nothing to do here but to end.
const TURNS_BESIDE: u32 = 16;

/// Lanes that take turns.
#[derive(Default)]
struct Group {
    lanes: Vec<AcceptedLane>,
    next: usize,
}

impl Group {
    /// Does what there is to do on the next `count` lanes; if they are `closing`, only looks whether they are
    /// over. Those that have ended go to `end`.
    fn turn(&mut self, count: usize, closing: bool, end: &mpsc::Sender<Ended>) {
        if self.next >= self.lanes.len() {
            self.next = 0;
        }
        for _ in 0..count.min(self.lanes.len() - self.next) {
            let lane = &mut self.lanes[self.next].lane;
            let result = match if closing { Ok(lane.is_over()) } else { lane.step() } {
                Ok(ControlFlow::Continue(())) => {
                    self.next += 1;
                    continue;
                }
                Ok(ControlFlow::Break(())) => Ok(()),
                Err(error) => Err(error),
            };
            // Fails only when the program is ending.
            let _ = end.send(Ended { accepted: self.lanes.swap_remove(self.next), result });
        }
    }
}

/// Calls `listening` once it listens, and takes connections at `ports` until all have ended and no more are
/// to come: the last size was measured, or a connection has failed in its test, or it `is_over`; then those
/// that are open have a moment to close. A client that this end has no room for, or that fails before its
/// test, is rejected, and others may come. Returns the number of bytes that it found to be wrong.
///
/// # Errors
///
/// The first error of a connection in its test.
pub fn serve(
    device: &Device,
    ports: RangeInclusive<u16>,
    settings: &Settings,
    lanes: &Lanes,
    is_over: impl Fn() -> bool,
    listening: impl FnOnce(),
) -> Result<u64, BenchError> {
    /// How long a connection is waited for before looking at those there are.
    const PATIENCE: Duration = Duration::from_millis(20);
    /// How long the other end may take to close when this one is to end.
    const CLOSING: Duration = Duration::from_secs(1);
    let config = ListenConfig {
        markers: settings.common.markers.is_on(),
        startup_timeout: settings.common.device.timeout(),
        // The other end opens all of its connections before it begins. One that has gone is found by the
        // time that it may be silent.
        first_fpdu_timeout: None,
        ..ListenConfig::default()
    };
    let config = settings.common.setup.listen(config);
    let mut listeners = Listeners::new(device, ports, &config)?;
    listening();
    let (mut open, mut over, mut corrupt) = (0u32, false, 0);
    let timeout = settings.common.device.timeout();
    let shared = (0..device.cores()).map(|_| None).collect();
    let mut acceptor = Acceptor { device, settings, budget: Budget::default(), shared };
    let mut result = Ok(());
    let mut waiting_since = None;
    let mut closing_since = None;
    while !over || open > 0 {
        if is_over() {
            let since = *closing_since.get_or_insert_with(Instant::now);
            if open == 0 || since.elapsed() > CLOSING {
                break;
            }
        }
        let request = listeners.next_request(PATIENCE)?;
        // First: a client opens the connections for a size when it has closed those for the size before.
        while let Ok(ended) = lanes.ended.try_recv() {
            open -= 1;
            over |= ended.result.is_err();
            waiting_since = Some(Instant::now());
            corrupt += ended.accepted.lane.compared().1;
            result = result.and(ended.result);
        }
        if let Some(accepted) = request.and_then(|request| acceptor.accept(request, open)) {
            open += 1;
            over |= accepted.shared.supplies.plan.last;
            if lanes.give[usize::from(accepted.core)].send(accepted).is_err() {
                return Err(BenchError::Setup("a core of the target has stopped".into()));
            }
        }
        // A client measures sizes one after the other. The first may come at any time.
        if open == 0 && !over && waiting_since.is_some_and(|since: Instant| since.elapsed() > timeout) {
            let seconds = timeout.as_secs_f64();
            return Err(BenchError::Peer(format!("it has not connected for its next size in {seconds} s")));
        }
    }
    result.map(|()| corrupt)
}

/// The listeners of a target.
struct Listeners {
    /// Of each port; the one that had the last request is the first.
    all: VecDeque<Listener>,
}

impl Listeners {
    fn new(device: &Device, ports: RangeInclusive<u16>, config: &ListenConfig) -> Result<Self, BenchError> {
        let listen = |port| device.listen(port, config).map_err(|error| BenchError::Setup(error.to_string()));
        Ok(Self { all: ports.map(listen).collect::<Result<_, _>>()? })
    }

    /// Returns the next client's request, or `None` if none came in time. A client uses the ports one after
    /// the other, so the port of the last request is the one to wait at.
    ///
    /// # Errors
    ///
    /// [`BenchError::Setup`] if the device has stopped.
    fn next_request(&mut self, patience: Duration) -> Result<Option<ConnectionRequest>, BenchError> {
        for index in (0..self.all.len()).rev() {
            let wait = if index == 0 { patience } else { Duration::ZERO };
            match self.all[index].accept(wait) {
                Ok(request) => {
                    self.all.rotate_left(index);
                    return Ok(Some(request));
                }
                Err(AcceptError::TimedOut) => {}
                Err(error @ AcceptError::Startup { .. }) => note!("warpline-bench: {error}"),
                Err(error) => return Err(BenchError::Setup(error.to_string())),
            }
        }
        Ok(None)
    }
}

/// What a listening end needs to accept connections.
struct Acceptor<'s> {
    device: &'s Device,
    settings: &'s Settings,
    budget: Budget,
    /// What the lanes of the latest plan share, by core.
    shared: Vec<Option<Arc<Shared>>>,
}

impl Acceptor<'_> {
    /// Accepts a connection beside `open` others; `None` when it failed or was rejected.
    fn accept(&mut self, request: ConnectionRequest, open: u32) -> Option<AcceptedLane> {
        let remote = request.remote();
        if self.is_elsewhere(&request) {
            // The other end may be gone already.
            let _ = request.reject(OTHER_CORE);
            return None;
        }
        let (accepted, advertisement) = match self.prepare(&request, open) {
            Ok(prepared) => prepared,
            Err(reason) => {
                note!("warpline-bench: {remote}: {reason}");
                // The other end may be gone already.
                let _ = request.reject(reason.as_bytes());
                return None;
            }
        };
        if let Err(error) = request.accept(&accepted.lane.qp, &advertisement.encode()) {
            note!("warpline-bench: {remote}: {error}");
            return None;
        }
        Some(accepted)
    }

    /// Returns true if a connection is at another core than its plan wants.
    fn is_elsewhere(&self, request: &ConnectionRequest) -> bool {
        let wanted = Plan::decode(request.private_data()).and_then(|(plan, _)| plan.core);
        wanted.is_some_and(|core| core % self.device.cores() != request.core())
    }

    /// Prepares a connection for the plan of a Request, within the bounds of this end. Returns also the
    /// advertisement of its memory.
    ///
    /// # Errors
    ///
    /// The reason to reject it, in words.
    fn prepare(
        &mut self,
        request: &ConnectionRequest,
        open: u32,
    ) -> Result<(AcceptedLane, Advertisement), String> {
        check_open(open)?;
        let (plan, sink) = wanted(self.settings, request.private_data())?;
        let (words, core) = (|error: BenchError| error.to_string(), request.core());
        let shared = self.share(&plan, core).map_err(words)?;
        let bytes = Supplies::own_bytes(&plan, self.settings).map_err(words)?;
        let reservation = self.budget.reserve(bytes).map_err(words)?;
        let (lane, advertisement) = prepare(&shared.supplies, self.settings, sink).map_err(words)?;
        Ok((AcceptedLane { lane, core, shared, _reservation: reservation }, advertisement))
    }

    /// Returns what the lanes of `plan` share at a core.
    fn share(&mut self, plan: &Plan, core: u8) -> Result<Arc<Shared>, BenchError> {
        let latest = &mut self.shared[usize::from(core)];
        if let Some(shared) = latest.as_ref().filter(|shared| shared.supplies.plan == *plan) {
            return Ok(shared.clone());
        }
        // Before the reservation: nothing may use it any more.
        *latest = None;
        let reservation = self.budget.reserve(Supplies::shared_bytes(plan, self.settings)?)?;
        let supplies = Supplies::new(self.device, plan);
        let shared = Arc::new(Shared { supplies, _reservation: reservation });
        Ok(latest.insert(shared).clone())
    }
}

/// Returns a queue pair whose messages go to `sink`, and the advertisement of its own memory.
fn prepare(
    supplies: &Supplies,
    settings: &Settings,
    sink: Advertisement,
) -> Result<(Lane, Advertisement), BenchError> {
    let plan = supplies.plan;
    let mut lane = Lane::new(supplies, settings, Role::Listening)?;
    if plan.bidirectional || plan.figure == Figure::Latency && plan.verb.is_answered_by_message() {
        lane.send_to(sink)?;
    }
    let advertisement = lane.advertisement()?.unwrap_or_default();
    Ok((lane, advertisement))
}

/// Returns the plan of a Request and the other end's memory, or why this end is not for it.
fn wanted(settings: &Settings, private_data: &[u8]) -> Result<(Plan, Advertisement), String> {
    let (plan, sink) =
        Plan::decode(private_data).ok_or("it is not a test of this version of warpline-bench")?;
    let here = (settings.verb.name(), settings.figure);
    // Those beside a test follow it.
    if !plan.beside && (plan.verb.name(), plan.figure) != here {
        let figure = if plan.figure == Figure::Latency { "lat" } else { "bw" };
        return Err(format!("the listening end runs {}, not {}-{figure}", settings.test(), plan.verb.name()));
    }
    Ok((plan, sink))
}
