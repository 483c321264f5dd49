//! A test as the command line has it, whichever its command is, and what it has without options.

use warpline::{DeviceName, SendBatch};

use super::arguments::{
    AtomicBw, AtomicLat, AtomicType, Bandwidth, Common, Inlining, Latency, ReadBw, ReadLat, Receiving,
    SendBw, SendLat, Sizes, Target, WriteBw, WriteLat,
};
use super::plan::{
    ATOMIC_BYTES, ATOMIC_WORDS, Figure, PING_SLOTS, Plan, Verb, Verify, depth_suffices, list_fits,
};
use crate::arguments::Polling;
use crate::error::BenchError;

/// Bytes of a region unless a message needs more or --region says so: sixteen times the 64 KiB that perftest
/// writes over and over.
pub const REGION_BYTES: u32 = 1 << 20;
/// Bytes of a Write of the queue pairs beside those that are measured.
const BESIDE_BYTES: u32 = 64 << 10;
/// Such Writes outstanding on a queue pair: twice the window, so that it always has more to send.
const BESIDE_DEPTH: u32 = 16;
/// Seconds for a size without --duration.
pub const SECONDS: u32 = 1;
/// Pings for a size without --iters: as many as perftest makes.
pub const PINGS: u64 = 1000;
/// Seconds between two lines of --run-infinitely: as perftest has it.
pub const INTERVAL_SECONDS: u32 = 5;

/// Returns the sizes of perftest's `-a`, in bytes.
pub fn sweep() -> Vec<u32> {
    (1..=23).map(|power| 1 << power).collect()
}

/// Times that are reported one by one, at most.
const UNSORTED_MAX: u64 = 1_000_000;

/// A test as the command line has it. What its command has no options for is as if they were left out.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The operation.
    pub verb: Verb,
    /// The figure.
    pub figure: Figure,
    /// What every test has.
    pub common: Common,
    /// The sizes of messages, one after the other.
    pub sizes: Vec<u32>,
    /// The sizes are those of a sweep.
    pub swept: bool,
    /// The memory that messages go to.
    pub target: Target,
    /// Bandwidth.
    pub bandwidth: Bandwidth,
    /// Latency.
    pub latency: Latency,
    /// Payload in the work requests.
    pub inlining: Inlining,
    /// Receives.
    pub receiving: Receiving,
    /// Cores of each device in this process.
    pub cores: u32,
}

impl Settings {
    fn new(verb: Verb, common: Common, sizes: &Sizes) -> Self {
        let swept = sizes.size.is_none();
        Self {
            verb,
            figure: Figure::Bandwidth,
            common,
            sizes: sizes.size.map_or_else(sweep, |size| vec![size]),
            swept,
            target: Target::default(),
            bandwidth: Bandwidth::of_pings(),
            latency: Latency::default(),
            inlining: Inlining::default(),
            receiving: Receiving::default(),
            cores: 1,
        }
    }

    fn atomic(common: Common, kind: AtomicType) -> Self {
        let verb = match kind {
            AtomicType::FetchAdd => Verb::FetchAdd,
            AtomicType::CompareSwap => Verb::CompareSwap,
        };
        let sizes = Sizes { size: Some(ATOMIC_BYTES), all: false };
        Self::new(verb, common, &sizes)
    }

    /// Returns the name of the test's command.
    pub const fn test(&self) -> &'static str {
        match (self.verb, self.figure) {
            (Verb::Write, Figure::Bandwidth) => "write-bw",
            (Verb::Read, Figure::Bandwidth) => "read-bw",
            (Verb::Send, Figure::Bandwidth) => "send-bw",
            (_, Figure::Bandwidth) => "atomic-bw",
            (Verb::Write, Figure::Latency) => "write-lat",
            (Verb::Read, Figure::Latency) => "read-lat",
            (Verb::Send, Figure::Latency) => "send-lat",
            (_, Figure::Latency) => "atomic-lat",
        }
    }

    /// Checks what no single option shows.
    ///
    /// # Errors
    ///
    /// [`CommandError::Options`](warpline_tools::error::CommandError::Options).
    pub fn check(&self) -> Result<(), BenchError> {
        let wrong = |what: String| Err(BenchError::options(what));
        let largest = self.sizes.iter().copied().max().unwrap_or(1);
        let smallest = self.sizes.iter().copied().min().unwrap_or(1);
        if let Some(inline) = self.inlining.inline_size
            && inline < smallest
        {
            return wrong(format!(
                "no message would go inline: --inline-size is {inline}, and messages have {smallest} bytes"
            ));
        }
        if let Some(region) = self.target.region
            && region < largest
        {
            return wrong(format!("a --region of {region} bytes does not hold a message of {largest}"));
        }
        if self.target.one_region && self.common.verify != Verify::Off {
            return wrong("--one-region needs --verify off: what arrives is not of one queue pair".into());
        }
        let Bandwidth { depth, cq_mod, post_list, .. } = self.bandwidth;
        let together = post_list.unwrap_or(1);
        if !list_fits(together) {
            return wrong(format!("--post-list {together} is more than {}", SendBatch::CAPACITY));
        }
        if !depth_suffices(depth, cq_mod, together) {
            return wrong(format!(
                "a --depth of {depth} is too small for --post-list {together} and --cq-mod {cq_mod}: \
                 {cq_mod} messages without a completion would leave no room for the next {together}"
            ));
        }
        if self.bandwidth.run_infinitely && self.swept {
            return wrong("--run-infinitely measures one size: give --size".into());
        }
        let pings = self.common.iters.unwrap_or(PINGS);
        if self.latency.report_unsorted && pings > UNSORTED_MAX {
            return wrong(format!(
                "--report-unsorted keeps at most {UNSORTED_MAX} times: --iters is {pings}"
            ));
        }
        Ok(())
    }

    /// Checks that the device has room for the queue pairs: all are of one Protection Domain, and lead to one
    /// peer.
    ///
    /// # Errors
    ///
    /// [`CommandError::Options`](warpline_tools::error::CommandError::Options).
    pub fn check_room(&self, device: &DeviceName) -> Result<(), BenchError> {
        let (qps, quotas) = (self.queue_pairs() as usize, device.config().quotas);
        if qps <= quotas.queue_pairs_per_domain.min(quotas.connections_per_peer) {
            return Ok(());
        }
        let needed = 2 * qps;
        Err(BenchError::options(format!(
            "{qps} queue pairs are more than half of the connections that the device has room for: add \
             connections={needed} to --device"
        )))
    }

    /// Takes the cores of `device`, and the CPUs that are to poll them. In a latency test a queue pair pings
    /// on each.
    ///
    /// # Errors
    ///
    /// Those of [`RunArguments::polling`](crate::arguments::RunArguments::polling).
    pub fn take_polling(&mut self, device: &DeviceName) -> Result<Polling, BenchError> {
        let polling = self.common.run.polling(device)?;
        self.cores = polling.cores as u32;
        if self.figure == Figure::Latency {
            self.bandwidth.qps = self.cores;
        }
        Ok(polling)
    }

    /// Returns the number of queue pairs of an end, those [beside](Self::beside) included.
    pub fn queue_pairs(&self) -> u32 {
        self.bandwidth.qps + self.beside().0
    }

    /// Returns the plan for messages of `size` bytes.
    pub fn plan(&self, size: u32) -> Plan {
        let region = match self.figure {
            _ if self.verb.is_atomic() => ATOMIC_WORDS as u32 * ATOMIC_BYTES,
            Figure::Bandwidth => self.target.region.unwrap_or(REGION_BYTES).max(size),
            Figure::Latency => PING_SLOTS * size,
        };
        Plan {
            verb: self.verb,
            figure: self.figure,
            verify: self.common.verify,
            bidirectional: self.bandwidth.bidirectional,
            inline: self.inlining.inline_size.is_some_and(|inline| size <= inline),
            last: self.sizes.last() == Some(&size),
            one_region: self.target.one_region,
            beside: false,
            size,
            region,
            depth: self.bandwidth.depth,
            completion_each: self.bandwidth.cq_mod,
            post_list: self.bandwidth.post_list.unwrap_or(0),
            core: None,
        }
    }

    /// Returns the number of queue pairs beside those that are measured, which stream in a latency test and
    /// are idle in the others, and their plan.
    pub fn beside(&self) -> (u32, Plan) {
        let plan = Plan {
            verb: Verb::Write,
            figure: Figure::Bandwidth,
            verify: Verify::Off,
            bidirectional: false,
            inline: false,
            last: false,
            one_region: true,
            beside: true,
            size: BESIDE_BYTES,
            region: REGION_BYTES,
            depth: BESIDE_DEPTH,
            completion_each: 1,
            post_list: 0,
            core: None,
        };
        (self.latency.beside.or(self.bandwidth.idle).unwrap_or(0), plan)
    }

    /// Returns the number of messages to measure on each queue pair; `None` to measure for
    /// [`seconds`](Self::seconds).
    pub fn messages(&self) -> Option<u64> {
        match self.figure {
            Figure::Latency if self.common.duration.is_none() => Some(self.common.iters.unwrap_or(PINGS)),
            _ => self.common.iters,
        }
    }

    /// Returns the seconds to measure for, or between two lines of --run-infinitely.
    pub fn seconds(&self) -> u32 {
        let usual = if self.bandwidth.run_infinitely { INTERVAL_SECONDS } else { SECONDS };
        self.common.duration.unwrap_or(usual)
    }
}

impl Bandwidth {
    /// Returns what the ends of a latency test have: a ping, and the answer to it.
    const fn of_pings() -> Self {
        Self {
            qps: 1,
            idle: None,
            depth: PING_SLOTS,
            bidirectional: false,
            cq_mod: 1,
            post_list: None,
            rate: None,
            limit_bw: None,
            limit_msgrate: None,
            run_infinitely: false,
        }
    }
}

impl From<WriteBw> for Settings {
    fn from(args: WriteBw) -> Self {
        let WriteBw { common, sizes, target, bandwidth, inlining } = args;
        Self { target, bandwidth, inlining, ..Self::new(Verb::Write, common, &sizes) }
    }
}

impl From<ReadBw> for Settings {
    fn from(args: ReadBw) -> Self {
        let ReadBw { common, sizes, target, bandwidth } = args;
        Self { target, bandwidth, ..Self::new(Verb::Read, common, &sizes) }
    }
}

impl From<SendBw> for Settings {
    fn from(args: SendBw) -> Self {
        let SendBw { common, sizes, target, bandwidth, inlining, receiving } = args;
        Self { target, bandwidth, inlining, receiving, ..Self::new(Verb::Send, common, &sizes) }
    }
}

impl From<AtomicBw> for Settings {
    fn from(AtomicBw { common, bandwidth, atomic }: AtomicBw) -> Self {
        Self { bandwidth, ..Self::atomic(common, atomic.atomic_type) }
    }
}

impl From<WriteLat> for Settings {
    fn from(args: WriteLat) -> Self {
        let WriteLat { common, sizes, latency, inlining } = args;
        let figure = Figure::Latency;
        Self { figure, latency, inlining, ..Self::new(Verb::Write, common, &sizes) }
    }
}

impl From<ReadLat> for Settings {
    fn from(ReadLat { common, sizes, latency }: ReadLat) -> Self {
        Self { figure: Figure::Latency, latency, ..Self::new(Verb::Read, common, &sizes) }
    }
}

impl From<SendLat> for Settings {
    fn from(args: SendLat) -> Self {
        let SendLat { common, sizes, latency, inlining, receiving } = args;
        let figure = Figure::Latency;
        Self { figure, latency, inlining, receiving, ..Self::new(Verb::Send, common, &sizes) }
    }
}

impl From<AtomicLat> for Settings {
    fn from(AtomicLat { common, latency, atomic }: AtomicLat) -> Self {
        Self { figure: Figure::Latency, latency, ..Self::atomic(common, atomic.atomic_type) }
    }
}
