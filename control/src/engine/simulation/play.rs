//! One run: virtual time, what applications will do, and the replies they wait for.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};
use fastrand::Rng;
use warpline_dataplane::device::sim::{self, End, EndConfig, Impairments, Network};
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::host::Host;
use super::records::{Attempt, Decision, Established, Listening};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{NewQueuePair, Request};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::queue_pair::QpConfig;

/// Virtual time after which a run that has not ended is stuck.
const PATIENCE_NS: u64 = 2000 * SECOND;
/// What may pass between a deadline and the reply: the time until the core reports, and that of the polls
/// themselves.
const SLACK_NS: u64 = 2 * SECOND;

/// Polls in which everything that can happen at one time has happened.
const POLLS_MAX: u32 = 10_000;

/// A future action of an application.
type Action = Box<dyn FnOnce(&mut Play)>;

/// A reply that an application waits for.
struct Pending {
    what: &'static str,
    /// When it must have come.
    until: Instant,
    /// Takes the reply, if it is there. Returns true then.
    poll: Box<dyn FnMut(&mut Play) -> bool>,
}

/// The outcomes of a run.
pub(super) struct Report {
    /// How often each outcome was reached.
    pub(super) outcomes: BTreeMap<String, u64>,
    /// A hash of everything that happened.
    pub(super) trace: u64,
}

/// One run.
pub(super) struct Play {
    pub(super) rng: Rng,
    pub(super) now: Instant,
    pub(super) hosts: [Host; 2],
    network: Network,
    agenda: BTreeMap<(Instant, u64), Action>,
    scheduled: u64,
    pending: Vec<Pending>,
    /// Requests to connect, by the number in their Private Data.
    pub(super) attempts: Vec<Attempt>,
    /// Decisions of Responders, by the addresses of Initiator and Responder.
    pub(super) decisions: BTreeMap<(SocketAddr, SocketAddr), Decision>,
    /// Connections that came to Full Operation, by the same addresses.
    pub(super) established: BTreeMap<(SocketAddr, SocketAddr), Established>,
    pub(super) listening: Vec<Listening>,
    /// Queue pairs with an owner, and their hosts.
    pub(super) queue_pairs: Vec<(usize, Arc<NewQueuePair>)>,
    /// Connections in streaming mode with a handle, and their hosts.
    pub(super) streams: Vec<(usize, Arc<SharedStream>)>,
    /// The application ends: it begins nothing new.
    pub(super) ending: bool,
    /// Polls since time moved on.
    polls: u32,
    outcomes: BTreeMap<String, u64>,
    trace: DefaultHasher,
}

/// Returns the address of a host.
pub(super) const fn address(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, 1 + side as u8)
}

impl Play {
    /// Runs `seed` to its end.
    ///
    /// # Panics
    ///
    /// When something does not end, ends twice, is not given back, or differs at the two ends.
    pub(super) fn run(seed: u64) -> Report {
        let mut play = Self::new(seed);
        play.begin();
        play.run_until("the applications", |play| play.agenda.is_empty() && play.pending.is_empty());
        play.run_until("the connections", |play| play.established.values().all(Established::is_settled));
        play.end();
        play.run_until("the end", |play| {
            play.pending.is_empty() && play.hosts.iter().all(|host| !host.engine.has_business())
        });
        for side in 0..2 {
            if play.hosts[side].engine.assert_unused() > 0 {
                play.record("refused by quota");
            }
        }
        play.record_path();
        Report { outcomes: play.outcomes, trace: play.trace.finish() }
    }

    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut path = || {
            let mut probability = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
            Impairments {
                loss: probability(0.1),
                reorder: probability(0.1),
                duplicate: probability(0.1),
                corrupt_bits: probability(0.05),
                resegment: probability(0.3),
                delay_max_ns: rng.u64(100_000..20 * MILLISECOND),
                ..Impairments::default()
            }
        };
        let a = EndConfig { outbound: path(), ..EndConfig::a() };
        let b = EndConfig { outbound: path(), ..EndConfig::b() };
        let (a, b) = sim::link(seed, a, b);
        debug_assert_eq!((a.end(), b.end()), (End::A, End::B));
        let network = a.network();
        let hosts = [Host::new(a, address(0), &mut rng), Host::new(b, address(1), &mut rng)];
        Self {
            rng,
            now: Instant::from_nanos(1),
            hosts,
            network,
            agenda: BTreeMap::new(),
            scheduled: 0,
            pending: Vec::new(),
            attempts: Vec::new(),
            decisions: BTreeMap::new(),
            established: BTreeMap::new(),
            listening: Vec::new(),
            queue_pairs: Vec::new(),
            streams: Vec::new(),
            ending: false,
            polls: 0,
            outcomes: BTreeMap::new(),
            trace: DefaultHasher::new(),
        }
    }

    /// Schedules what the applications will do.
    fn begin(&mut self) {
        for side in 0..2 {
            self.listen(side);
            self.use_memory(side);
        }
        for _ in 0..self.rng.usize(2..16) {
            let (side, delay_ns) = (self.rng.usize(..2), self.rng.u64(..5 * SECOND));
            match self.rng.u8(..10) {
                0..=5 => self.after(delay_ns, move |play| play.connect(side)),
                6..=8 => self.after(delay_ns, move |play| play.open_stream(side)),
                _ => self.after(delay_ns, move |play| play.relisten(side)),
            }
        }
    }

    /// Drops everything that the applications have.
    fn end(&mut self) {
        self.ending = true;
        while let Some(listening) = self.listening.pop() {
            self.unlisten(listening);
        }
        while let Some((side, stream)) = self.streams.pop() {
            self.abandon(side, &stream);
        }
        while let Some((side, qp)) = self.queue_pairs.pop() {
            self.destroy(side, &qp);
        }
    }

    /// Does `action` in `delay_ns`.
    pub(super) fn after(&mut self, delay_ns: u64, action: impl FnOnce(&mut Self) + 'static) {
        self.agenda.insert((self.now + delay_ns, self.scheduled), Box::new(action));
        self.scheduled += 1;
    }

    /// Calls `then` with the reply of `receiver`, which must come within `within_ns`, exactly once.
    pub(super) fn expect<T: 'static>(
        &mut self,
        what: &'static str,
        within_ns: u64,
        receiver: Receiver<T>,
        then: impl FnOnce(&mut Self, T) + 'static,
    ) {
        let mut then = Some(then);
        let poll = move |play: &mut Self| match receiver.try_recv() {
            Ok(reply) => {
                then.take().expect("one reply")(play, reply);
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => panic!("{what}: the engine dropped its reply"),
        };
        let until = self.now + within_ns + SLACK_NS;
        self.pending.push(Pending { what, until, poll: Box::new(poll) });
    }

    /// Sends a request of the application at `side`.
    pub(super) fn send(&mut self, side: usize, request: Request) {
        self.hosts[side].send(self.now, request);
    }

    /// Sends a request whose reply is taken by [`expect`](Self::expect).
    pub(super) fn ask<T>(&mut self, side: usize, request: impl FnOnce(Reply<T>) -> Request) -> Receiver<T> {
        self.hosts[side].begin(self.now, request)
    }

    /// Creates a queue pair, if the quota allows one.
    pub(super) fn create_qp(&mut self, side: usize) -> Option<Arc<NewQueuePair>> {
        let config = QpConfig {
            send_depth: 4,
            receive_depth: 4,
            keep_open: self.rng.u8(..8) == 0,
            ..QpConfig::default()
        };
        match self.hosts[side].create_qp(self.now, config) {
            Ok(qp) => {
                let qp = Arc::new(qp);
                self.queue_pairs.push((side, qp.clone()));
                Some(qp)
            }
            Err(error) => {
                self.record(format!("queue pair: {}", variant(&error)));
                None
            }
        }
    }

    /// Notes what the network has done to frames.
    fn record_path(&mut self) {
        for path in [End::A, End::B].map(|end| self.network.statistics(end)) {
            let done = [("damaged", path.corrupted_bits), ("cut", path.split), ("joined", path.merged)];
            for (outcome, frames) in done.into_iter().filter(|(_, frames)| *frames > 0) {
                *self.outcomes.entry(format!("path: {outcome}")).or_default() += frames;
            }
        }
    }

    /// Counts an outcome.
    pub(super) fn record(&mut self, outcome: impl Into<String>) {
        let outcome = outcome.into();
        (self.now.as_nanos(), &outcome).hash(&mut self.trace);
        *self.outcomes.entry(outcome).or_default() += 1;
    }

    /// Moves time on until `done`.
    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.now + PATIENCE_NS;
        while !done(self) {
            assert!(self.now < end, "{what} do not end: {:?}", self.waiting());
            self.step();
        }
    }

    fn waiting(&self) -> Vec<&'static str> {
        self.pending.iter().map(|pending| pending.what).collect()
    }

    /// Does everything there is to do now, or else moves time on to the next thing that happens.
    fn step(&mut self) {
        let mut busy = false;
        for host in &mut self.hosts {
            busy |= host.poll(self.now);
        }
        busy |= self.poll_pending();
        self.poll_listening();
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
            busy = true;
            entry.remove()(self);
        }
        self.polls += 1;
        assert!(self.polls < POLLS_MAX, "time stands still: {:?}", self.waiting());
        if !busy {
            self.polls = 0;
            let next = self.hosts.iter().map(Host::next_deadline).min().unwrap_or(Instant::NEVER);
            let next = self.agenda.keys().next().map_or(next, |(at, _)| next.min(*at));
            self.now = next.max(self.now + 1).min(self.now + SECOND);
        }
    }

    fn poll_pending(&mut self) -> bool {
        let mut busy = false;
        for mut pending in std::mem::take(&mut self.pending) {
            if (pending.poll)(self) {
                busy = true;
            } else {
                assert!(self.now < pending.until, "{}: no reply in time", pending.what);
                self.pending.push(pending);
            }
        }
        busy
    }
}

/// Returns the sentence of an error up to the first remedy or detail, as far as outcomes differ by it.
pub(super) fn variant(value: &impl Display) -> String {
    let text = value.to_string();
    let clause = |text: &str| {
        let text: String = text.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        text.split([':', ',', ';', '(']).next().unwrap_or_default().trim().to_owned()
    };
    match text.split_once("MPA startup failed: ") {
        Some((_, fault)) => format!("startup, {}", clause(fault)),
        None => clause(&text),
    }
}
