//! One queue pair of a test, and what its end does between the polls of the core.

mod comparing;
mod conversation;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use warpline::{
    Advertisement, Completion, CompletionKind, MemoryRegion, QpConfig, QpState, QueuePair, RnrPolicy,
    SharedCompletionQueue, Status,
};

use super::content::Comparison;
use super::plan::{Figure, PING_SLOTS, Plan, Verb, Verify};
use super::receives::{Receives, WORDS};
use super::settings::Settings;
use super::stream::Stream;
use super::supplies::{Completions, PATIENCE, Supplies};
use super::verify::{After, Verification};
use super::words::Word;
use crate::error::BenchError;

/// The identifier of requests that carry words; messages have their number.
const WORD: u64 = u64::MAX;
/// Completions polled at a time.
pub const BATCH: usize = 32;

/// Lanes up to which many are looked at between two polls of the core.
const FEW_LANES: usize = 256;
/// As many as that.
pub const LANES_PER_TURN: usize = 32;

/// Returns how many of `count` lanes, which are like `first`, are looked at between two polls of the core,
/// besides those that have completions. With thousands of queue pairs most have nothing to do, and a look at
/// each would take longer than what the core does.
pub fn lanes_per_turn(first: Option<&Lane>, count: usize) -> usize {
    let Some(first) = first else { return LANES_PER_TURN };
    let has_own_queue = matches!(first.completions, Completions::Own(_));
    if count <= FEW_LANES || first.plan.verb == Verb::Send && has_own_queue { LANES_PER_TURN } else { 1 }
}

/// The part of an end in the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connects, and decides when the test ends.
    Connecting,
    /// It listens, and answers.
    Listening,
}

/// The other end's report.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerReport {
    /// Messages that it had sent when it was to stop.
    pub messages: u64,
    /// Our messages that have arrived there, where that can be counted.
    pub arrived: Option<u64>,
    /// Bytes that it has compared.
    pub compared_bytes: u64,
    /// Bytes of them that were wrong.
    pub corrupt_bytes: u64,
    /// Nothing more comes.
    pub complete: bool,
}

/// A queue pair of a test.
pub struct Lane {
    /// The queue pair.
    pub qp: QueuePair,
    completions: Completions,
    polled: Vec<Completion>,
    plan: Plan,
    role: Role,
    /// The memory that this end's messages come from, or that takes their answers.
    local: Arc<MemoryRegion>,
    /// The memory that the other end's messages work on.
    exposed: Option<Arc<MemoryRegion>>,
    receives: Receives,
    /// The messages that this end sends, once it knows the other end's memory.
    stream: Option<Stream>,
    /// Whether it answers each ping with one of its own.
    echoes: bool,
    /// Comparisons are made at once, not a part at a time: the thread sleeps where there is nothing else.
    thorough: bool,
    verification: Verification,
    /// Messages that have arrived, for Sends and for pings.
    arrived: u64,
    /// The next one of them to compare.
    next_compared: u64,
    /// Messages in the region that were compared with all of it.
    checked: u64,
    /// The test has started.
    started: bool,
    /// Messages that the other end has asked this one to send.
    wanted: u64,
    /// The other end has sent as many messages as it was asked for.
    peer_sent: bool,
    /// Messages sent when the other end said that it was over.
    sent_at_finish: Option<u64>,
    /// The words that this end says once it has done its part.
    said_sent: bool,
    said_report: bool,
    report: PeerReport,
    /// How long the other end may be silent.
    timeout: Duration,
}

impl Lane {
    /// Returns a queue pair for the plan of `supplies`, with receives posted.
    ///
    /// # Errors
    ///
    /// [`BenchError::Setup`], [`BenchError::Memory`].
    pub fn new(supplies: &Supplies, settings: &Settings, role: Role) -> Result<Self, BenchError> {
        let (plan, timeout) = (supplies.plan, settings.common.device.timeout());
        let answers = plan.figure == Figure::Latency && plan.verb.is_answered_by_message();
        let arriving = role == Role::Listening || plan.bidirectional || answers;
        let shared = if arriving { supplies.shared_receives(settings)? } else { None };
        let srq = shared.as_ref().map(|shared| shared.queue().clone());
        let mut receives = Receives::new(&supplies.domain, &plan, settings, arriving, shared)?;
        let depth = plan.depth as usize + WORDS;
        let completions = supplies.completions(depth + receives.count());
        let config = QpConfig {
            send_depth: depth,
            receive_depth: receives.count(),
            packing: settings.common.packing.is_on(),
            rnr: RnrPolicy::Wait { timeout },
            rate_limit: settings.bandwidth.rate.map(|gigabits| (gigabits * 1e9 / 8.0) as u64),
            ..QpConfig::default().give_up_after(timeout)
        };
        let queue = completions.control();
        let qp = match srq {
            Some(srq) => supplies.domain.queue_pair_sharing(&srq, &config, queue, queue),
            None => supplies.domain.queue_pair(&config, queue, queue),
        };
        let qp = qp.map_err(|error| BenchError::Setup(error.to_string()))?;
        receives.post_all(&qp).map_err(BenchError::Setup)?;
        let exposed = if arriving { supplies.exposed()? } else { None };
        let patience = if answers && plan.verb == Verb::Write { PATIENCE } else { Duration::ZERO };
        let room = receives.count() + WORDS;
        let verification =
            Verification::new(supplies.content.clone(), settings.common.damage, patience, room);
        let lane = Self {
            qp,
            completions,
            polled: Vec::with_capacity(BATCH),
            plan,
            role,
            local: supplies.local()?,
            exposed,
            receives,
            stream: None,
            echoes: role == Role::Listening && answers,
            thorough: settings.common.events,
            verification,
            arrived: 0,
            next_compared: if plan.verify == Verify::Off { u64::MAX } else { 0 },
            checked: 0,
            started: false,
            wanted: 0,
            peer_sent: false,
            sent_at_finish: None,
            said_sent: false,
            said_report: false,
            report: PeerReport::default(),
            timeout,
        };
        if answers && plan.verb == Verb::Write {
            (0..u64::from(PING_SLOTS)).for_each(|number| lane.unmark(number));
        }
        Ok(lane)
    }

    /// Returns the advertisement of the memory that the other end's messages work on.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`].
    pub fn advertisement(&self) -> Result<Option<Advertisement>, BenchError> {
        let Some(exposed) = &self.exposed else { return Ok(None) };
        let all = u32::try_from(exposed.len()).ok().and_then(|len| exposed.advertisement(0, len));
        all.map(Some).ok_or_else(|| BenchError::Memory("no range".into()))
    }

    /// Has this end's messages go to `sink`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] if it is too small, or passes the largest address.
    pub fn send_to(&mut self, sink: Advertisement) -> Result<(), BenchError> {
        let checked = self.plan.check_sink(&sink, self.verification.content().bytes().len());
        checked.map_err(|what| self.failed(&what))?;
        self.stream = Some(Stream::new(&self.plan, self.verification.content(), sink));
        Ok(())
    }

    /// Begins: `messages` are to be sent, or as many as there is time for.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    pub fn start(&mut self, messages: Option<u64>) -> Result<(), BenchError> {
        self.say(Word::Start(messages.unwrap_or(0)))?;
        self.started = true;
        self.wanted = messages.unwrap_or(0);
        if self.plan.figure == Figure::Bandwidth {
            self.allow(messages.unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// Returns true once the test has started.
    #[inline]
    pub const fn has_started(&self) -> bool {
        self.started
    }

    /// Returns true if it is beside those that are measured.
    #[inline]
    pub const fn is_beside(&self) -> bool {
        self.plan.beside
    }

    /// Lets this end send `limit` messages in all.
    pub const fn allow(&mut self, limit: u64) {
        if let Some(stream) = &mut self.stream {
            stream.allow(limit);
        }
    }

    /// Has this end send no more, and wait for no more.
    pub fn stop(&mut self) {
        self.wanted = 0;
        if let Some(stream) = &mut self.stream {
            stream.stop();
        }
    }

    /// Says that this end has sent everything.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    pub fn finish(&self) -> Result<(), BenchError> {
        self.say(Word::Finish)
    }

    /// Messages of this end that are complete.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.stream.as_ref().map_or(0, Stream::completed)
    }

    /// Messages of the other end that have arrived, for Sends and for pings.
    #[inline]
    pub const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns true if the messages to measure are complete, in both directions if there are two.
    #[inline]
    pub fn is_done(&self) -> bool {
        let waits = self.plan.bidirectional && self.wanted > 0 && !self.peer_sent;
        self.stream.as_ref().is_none_or(Stream::is_done) && !waits
    }

    /// Returns true if nothing of this end is on its way because the region is being compared.
    pub fn is_paused(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_paused)
    }

    /// Returns true if nothing is left to compare, at either end.
    pub fn is_compared(&self) -> bool {
        self.verification.is_idle() && self.stream.as_ref().is_none_or(Stream::has_no_samples)
    }

    /// How long the other end may be silent.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the other end's report.
    pub const fn peer_report(&self) -> PeerReport {
        self.report
    }

    /// Returns how many bytes this end has compared, and how many of them were wrong.
    pub const fn compared(&self) -> (u64, u64) {
        (self.verification.compared_bytes, self.verification.corrupt_bytes)
    }

    /// Breaks when the connection is over, however it ended.
    pub fn is_over(&self) -> ControlFlow<()> {
        if self.qp.state() == QpState::Error { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Does everything there is to do at this end; breaks when the connection is over, in an orderly way.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    #[inline]
    pub fn step(&mut self) -> Result<ControlFlow<()>, BenchError> {
        // First: the core has been polled since the last step, so the answer to what is compared has left.
        self.compare()?;
        let mut polled = core::mem::take(&mut self.polled);
        while let Completions::Own(queue) = &self.completions
            && queue.poll_into(&mut polled) > 0
        {
            for completion in polled.drain(..) {
                if completion.status != Status::Success && self.is_closed() {
                    return Ok(ControlFlow::Break(()));
                }
                self.complete(&completion)?;
            }
        }
        self.polled = polled;
        // Receives that are shared are not flushed: only the state shows the end.
        if self.qp.state() == QpState::Error {
            let end =
                if self.is_closed() { Ok(ControlFlow::Break(())) } else { Err(self.failed("it failed")) };
            return end;
        }
        self.go_on()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Handles a completion.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    #[inline]
    pub fn complete(&mut self, completion: &Completion) -> Result<(), BenchError> {
        if completion.status != Status::Success {
            let what = format!("{:?} ended with {:?}", completion.kind, completion.status);
            return Err(self.failed(&what));
        }
        self.on_completion(completion)
    }

    /// Posts what there is room for after completions, and says what is due.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    #[inline]
    pub fn go_on(&mut self) -> Result<(), BenchError> {
        self.watch_for_ping()?;
        if let Some(stream) = &mut self.stream {
            if self.echoes {
                stream.allow(self.arrived);
            }
            let posted = stream.post(&self.qp, &self.local, self.verification.content());
            posted.map_err(|what| self.failed(&what))?;
        }
        self.receives.post(&self.qp).map_err(|what| self.failed(&what))?;
        if self.thorough && self.plan.figure == Figure::Bandwidth {
            self.compare()?;
        }
        self.say_what_is_due()
    }

    /// Returns the completion queue that it reports to with others, if it does.
    pub fn shared_completions(&self) -> Option<&SharedCompletionQueue> {
        match &self.completions {
            Completions::Own(_) => None,
            Completions::Shared(queue) => Some(queue),
        }
    }

    /// Does what there is to do in the middle of the test.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`], also if the other end has closed the connection.
    #[inline]
    pub fn step_on(&mut self) -> Result<(), BenchError> {
        match self.step()? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(self.failed("it closed the connection in the middle of the test")),
        }
    }

    #[inline]
    fn on_completion(&mut self, completion: &Completion) -> Result<(), BenchError> {
        if completion.kind != CompletionKind::Receive {
            if completion.id != WORD
                && let Some(stream) = &mut self.stream
            {
                stream.on_completion(completion.id, &self.local, &mut self.verification);
            }
            return Ok(());
        }
        if let Some(immediate) = completion.immediate {
            self.receives.give_back(completion.id);
            let word = Word::decode(immediate).ok_or_else(|| self.failed("it sent an unknown word"))?;
            return self.on_word(word);
        }
        if completion.byte_len != self.plan.size || self.plan.verb != Verb::Send {
            let len = completion.byte_len;
            return Err(self.failed(&format!("it sent {len} bytes, {} were expected", self.plan.size)));
        }
        let number = self.arrived;
        self.arrived += 1;
        match self.receives.buffers() {
            Some(buffers) if self.is_sample(number) => {
                let sample = Comparison::new(number, 1, self.plan.size, buffers.offset(completion.id));
                self.next_compared += self.plan.sample_interval();
                self.verification.push(sample, After::Receive(completion.id));
            }
            _ => self.receives.give_back(completion.id),
        }
        Ok(())
    }

    const fn is_sample(&self, number: u64) -> bool {
        number == self.next_compared
    }

    /// Returns true if the connection is over, and ended as it should.
    fn is_closed(&self) -> bool {
        self.qp.state() == QpState::Error && self.qp.error().is_none()
    }

    /// Returns the error for `what`, with the stream's own error where there is one.
    pub fn failed(&self, what: &str) -> BenchError {
        match self.qp.error() {
            Some(error) => BenchError::Peer(format!("{error} ({what})")),
            None => BenchError::Peer(what.into()),
        }
    }

    /// Sends a FIN, and waits for the other end's. Another thread has to poll the core meanwhile.
    pub fn close(self) {
        self.qp.disconnect();
        // The other end may be gone already.
        let _ = self.qp.wait_closed(self.timeout);
    }
}
