//! What a test does, as both ends have to know it: the connecting end says so in the Private Data of its
//! Request.

use clap::ValueEnum;
use serde::Serialize;
use warpline::{Advertisement, SendBatch, limits};

use super::arguments::DEPTH_MAX;
use crate::arguments::{MESSAGE_BYTES_MAX, REGION_BYTES_MAX};

/// The operation of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Send.
    Send,
    /// Atomic addition.
    FetchAdd,
    /// Atomic exchange.
    CompareSwap,
}

impl Verb {
    /// Returns true for Atomic Operations.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Returns true if a ping is answered by a message, and not by its result.
    pub const fn is_answered_by_message(self) -> bool {
        matches!(self, Self::Write | Self::Send)
    }

    /// Returns the first part of the name of its tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::FetchAdd | Self::CompareSwap => "atomic",
        }
    }
}

/// The figure that a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Messages and bytes a second.
    Bandwidth,
    /// The time of a message.
    Latency,
}

/// How much of what arrives is compared with what was sent.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Nothing.
    Off,
    /// A message from time to time, while the test runs.
    Sample,
    /// Every byte. RDMA Writes and Reads then pause whenever the region is full.
    #[value(alias = "on")]
    All,
}

/// What a test does with one size of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The operation.
    pub verb: Verb,
    /// The figure.
    pub figure: Figure,
    /// How much is compared.
    pub verify: Verify,
    /// Both ends send at the same time.
    pub bidirectional: bool,
    /// Payload goes in the work requests.
    pub inline: bool,
    /// No connection for another size comes after this one.
    pub last: bool,
    /// All queue pairs have one memory that messages go to.
    pub one_region: bool,
    /// Its queue pairs are beside those that are measured.
    pub beside: bool,
    /// Bytes of a message.
    pub size: u32,
    /// Bytes that messages go to, one after the other and then again.
    pub region: u32,
    /// Messages outstanding.
    pub depth: u32,
    /// Messages for each completion.
    pub completion_each: u32,
    /// Messages that are always posted together; 0 for as many as there is room for.
    pub post_list: u32,
    /// The core of the listening end that the connection is to be at, counted in turn if there are fewer;
    /// `None` for any.
    pub core: Option<u8>,
}

/// The words for an atomic test: both ends count in them.
pub const ATOMIC_WORDS: u64 = 512;
/// Bytes of such a word.
pub const ATOMIC_BYTES: u32 = 8;
/// Slots for messages that are compared while others go on.
pub const SAMPLE_SLOTS: usize = 2;
/// Messages that a ping alternates between: a message is compared while the next one comes.
pub const PING_SLOTS: u32 = 2;

const MAGIC: [u8; 4] = *b"WLP1";
/// Bytes of the Request's Private Data.
const REQUEST_BYTES: usize = 48;

/// Returns true if a batch holds the messages of a `post_list`.
pub const fn list_fits(post_list: u32) -> bool {
    post_list as usize <= SendBatch::CAPACITY
}

/// Returns true if messages go on for ever with `depth` outstanding: those without a completion must leave
/// room for the next `post_list`, or for one if it is 0. With a depth of 16 and a completion for each 16
/// messages, 15 may be without one, which leaves room for one more, but not for 2 at once.
pub const fn depth_suffices(depth: u32, completion_each: u32, post_list: u32) -> bool {
    let together = if post_list == 0 { 1 } else { post_list };
    completion_each as u64 + together as u64 <= depth as u64 + 1
}

impl Plan {
    /// Returns the number of messages after which the region is full.
    pub const fn slots(&self) -> u64 {
        (self.region / self.size) as u64
    }

    /// Returns the bytes of the memory that messages go to.
    pub const fn sink_bytes(&self) -> usize {
        if self.verb.is_atomic() {
            return (ATOMIC_WORDS * ATOMIC_BYTES as u64) as usize;
        }
        self.region as usize + SAMPLE_SLOTS * self.size as usize
    }

    /// Checks that messages of the plan fit into `sink`, whose addresses must not pass 2^64. RDMA Reads take
    /// their bytes from the content there, which has `content_len` bytes.
    ///
    /// # Errors
    ///
    /// The reason why they do not, in words.
    pub fn check_sink(&self, sink: &Advertisement, content_len: usize) -> Result<(), String> {
        let needed = match self.verb {
            Verb::Send => 0,
            Verb::Read => content_len,
            _ => self.sink_bytes(),
        };
        let Advertisement { to, len, .. } = *sink;
        if (len as usize) < needed {
            return Err(format!("it gave {len} bytes of buffer, {needed} were needed"));
        }
        if to.checked_add(len.into()).is_none() {
            return Err(format!("its buffer of {len} bytes at {to:#x} passes the largest address"));
        }
        Ok(())
    }

    /// Returns the offset of a sample's slot in that memory.
    pub const fn sample_offset(&self, slot: usize) -> usize {
        self.region as usize + slot * self.size as usize
    }

    /// Returns after how many messages one is compared that is a sample: every 4 MiB, but neither many small
    /// messages nor nearly all large ones. A comparison costs a pass over the bytes, so a few percent.
    pub fn sample_interval(&self) -> u64 {
        const BYTES: u32 = 4 << 20;
        match (self.verify, self.figure) {
            (Verify::All, _) => 1,
            (_, Figure::Latency) => 64,
            _ => (BYTES / self.size).clamp(32, 1024).into(),
        }
    }

    /// Returns the Private Data that describe the plan; `buffer` is this end's, for the other end's messages.
    pub fn encode(&self, buffer: Option<Advertisement>) -> Vec<u8> {
        let mut data = MAGIC.to_vec();
        let verb = match self.verb {
            Verb::Write => 0,
            Verb::Read => 1,
            Verb::Send => 2,
            Verb::FetchAdd => 3,
            Verb::CompareSwap => 4,
        };
        let verify = match self.verify {
            Verify::Off => 0,
            Verify::Sample => 1,
            Verify::All => 2,
        };
        let latency = self.figure == Figure::Latency;
        let flags = [latency, self.bidirectional, self.inline, self.last, self.one_region, self.beside];
        let flags = flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag));
        data.extend([verb, verify, flags, self.core.map_or(0, |core| core + 1)]);
        for number in [self.size, self.region, self.depth, self.completion_each, self.post_list, 0] {
            data.extend(number.to_be_bytes());
        }
        data.extend(buffer.unwrap_or_default().encode());
        debug_assert!(data.len() == REQUEST_BYTES);
        data
    }

    /// Reads the Private Data of a Request; `None` if they are not of this program, or of another version.
    pub fn decode(data: &[u8]) -> Option<(Self, Advertisement)> {
        if data.len() != REQUEST_BYTES || data[..4] != MAGIC {
            return None;
        }
        let number =
            |index: usize| u32::from_be_bytes(*data[8 + 4 * index..].first_chunk().unwrap_or(&[0; 4]));
        let flag = |bit: u8| data[6] & 1 << bit != 0;
        let plan = Self {
            verb: [Verb::Write, Verb::Read, Verb::Send, Verb::FetchAdd, Verb::CompareSwap]
                .get(usize::from(data[4]))
                .copied()?,
            verify: [Verify::Off, Verify::Sample, Verify::All].get(usize::from(data[5])).copied()?,
            figure: if flag(0) { Figure::Latency } else { Figure::Bandwidth },
            bidirectional: flag(1),
            inline: flag(2),
            last: flag(3),
            one_region: flag(4),
            beside: flag(5),
            size: number(0),
            region: number(1),
            depth: number(2),
            completion_each: number(3),
            post_list: number(4),
            core: data[7].checked_sub(1),
        };
        let possible = (1..=MESSAGE_BYTES_MAX).contains(&plan.size)
            && (plan.size..=REGION_BYTES_MAX).contains(&plan.region)
            && (1..=DEPTH_MAX).contains(&plan.depth)
            && (plan.verify == Verify::Off || !plan.one_region)
            && plan.completion_each >= 1
            && plan.core.is_none_or(|core| usize::from(core) < limits::CORES_MAX)
            && list_fits(plan.post_list)
            && depth_suffices(plan.depth, plan.completion_each, plan.post_list);
        let buffer = Advertisement::decode(&data[32..]).ok()?;
        possible.then_some((plan, buffer))
    }
}

#[cfg(test)]
mod tests {
    use warpline::STag;

    use super::*;

    const PLAN: Plan = Plan {
        verb: Verb::Send,
        figure: Figure::Bandwidth,
        verify: Verify::All,
        bidirectional: true,
        inline: false,
        last: true,
        one_region: false,
        beside: false,
        size: 4096,
        region: 1 << 20,
        depth: 128,
        completion_each: 4,
        post_list: 16,
        core: None,
    };

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let buffer = Advertisement { to: 77, stag: STag(5), len: 9 };
        for verb in [Verb::Write, Verb::Read, Verb::Send, Verb::FetchAdd, Verb::CompareSwap] {
            for figure in [Figure::Bandwidth, Figure::Latency] {
                let plan = Plan { verb, figure, inline: figure == Figure::Latency, ..PLAN };
                assert_eq!(Plan::decode(&plan.encode(Some(buffer))), Some((plan, buffer)));
                let plan =
                    Plan { beside: true, one_region: true, verify: Verify::Off, core: Some(63), ..plan };
                assert_eq!(Plan::decode(&plan.encode(Some(buffer))), Some((plan, buffer)));
            }
        }
    }

    #[test]
    fn an_impossible_plan_is_not_read() {
        for plan in [
            Plan { size: 0, ..PLAN },
            Plan { size: MESSAGE_BYTES_MAX + 1, region: u32::MAX, ..PLAN },
            Plan { region: 4095, ..PLAN },
            Plan { region: REGION_BYTES_MAX + 1, ..PLAN },
            Plan { depth: 0, ..PLAN },
            Plan { depth: DEPTH_MAX + 1, ..PLAN },
            Plan { completion_each: 129, ..PLAN },
            Plan { completion_each: 0, ..PLAN },
            Plan { completion_each: u32::MAX, ..PLAN },
            Plan { post_list: 129, ..PLAN },
            Plan { post_list: SendBatch::CAPACITY as u32 + 1, ..PLAN },
            Plan { completion_each: 114, ..PLAN },
            Plan { completion_each: 128, post_list: 2, ..PLAN },
            Plan { core: Some(64), ..PLAN },
        ] {
            assert_eq!(Plan::decode(&plan.encode(None)), None, "{plan:?}");
        }
        let mut data = PLAN.encode(None);
        assert_eq!(Plan::decode(&data[1..]), None);
        data[4] = 9;
        assert_eq!(Plan::decode(&data), None, "no such operation");
        assert_eq!(Plan::decode(b""), None);
    }

    #[test]
    fn a_plan_at_its_bounds_is_read() {
        for plan in [
            Plan { region: REGION_BYTES_MAX, depth: DEPTH_MAX, ..PLAN },
            Plan { post_list: SendBatch::CAPACITY as u32, ..PLAN },
            Plan { completion_each: 113, ..PLAN },
            Plan { completion_each: 128, post_list: 0, ..PLAN },
            Plan { completion_each: 128, post_list: 1, ..PLAN },
        ] {
            assert_eq!(Plan::decode(&plan.encode(None)).map(|(plan, _)| plan), Some(plan));
        }
    }

    #[test]
    fn a_sink_holds_the_plan_below_the_largest_address() {
        let sink = |to, len| Advertisement { to, stag: STag(5), len };
        let check = |verb, sink| Plan { verb, ..PLAN }.check_sink(&sink, 2000);
        let needed = PLAN.sink_bytes() as u32;
        for (verb, needed) in [(Verb::Write, needed), (Verb::Read, 2000), (Verb::FetchAdd, 4096)] {
            for to in [0, u64::MAX - u64::from(needed)] {
                assert_eq!(check(verb, sink(to, needed)), Ok(()), "{verb:?}");
            }
            let error = check(verb, sink(0, needed - 1)).unwrap_err();
            assert!(error.contains(&format!("{needed} were needed")), "{error}");
            for to in [u64::MAX - u64::from(needed) + 1, u64::MAX] {
                let error = check(verb, sink(to, needed)).unwrap_err();
                assert!(error.contains("passes the largest address"), "{error}");
            }
        }
        assert_eq!(check(Verb::Send, Advertisement::default()), Ok(()));
    }

    #[test]
    fn few_messages_are_samples() {
        let interval = |size| Plan { size, verify: Verify::Sample, ..PLAN }.sample_interval();
        assert_eq!([64, 4096, 65_536, 8 << 20].map(interval), [1024, 1024, 64, 32]);
        assert_eq!(PLAN.sample_interval(), 1);
    }
}
