//! The transfers that are measured.

/// Messages outstanding at most.
pub const DEPTH: u64 = 128;

/// What the ends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The writer posts as many Writes as may be outstanding.
    Stream,
    /// The same with Sends, for which the target has receives posted.
    Sends,
    /// The same with Sends with Invalidate, after those of the warm-up: each invalidates an STag of the
    /// target's.
    Invalidations,
    /// The same with Immediate Data alone (RFC 7306 §6).
    Immediates,
    /// The target posts as many Reads of the writer's memory as may be outstanding.
    Reads,
    /// The writer posts one Write, and the next when the target has answered it by a Write of its own.
    Ping,
    /// The writer writes to a byte stream from its memory, and the target reads it.
    Bytes,
    /// The same in transfers that the TCP RDMA option names: the target has buffers for them.
    Transfers,
}

impl Pattern {
    /// Returns true if the target's messages take receives.
    pub const fn takes_receives(self) -> bool {
        matches!(self, Self::Sends | Self::Invalidations | Self::Immediates)
    }
}

/// The network between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4, on a device that verifies checksums. It loses nothing and keeps the order.
    Ipv4,
    /// The same over IPv6.
    Ipv6,
    /// Frames have an IEEE 802.1Q tag.
    Vlan,
    /// The devices neither fill in checksums nor verify them.
    NoChecksums,
    /// DCTCP at both ends, and Congestion Experienced on every other segment of the writer's (RFC 8257).
    Marking,
    /// The same, but the marks do not come back to the writer: it would send short bursts.
    MarkingUnheard,
    /// Of the segments that leave together, one arrives with the next that do, so that each acknowledgement
    /// carries SACK blocks beside the timestamps.
    Reordering,
    /// The two ends are on one core, and frames never leave it.
    Loopback,
}

/// Where the target's receives are, and what one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// Of the queue pair, of one range each.
    Own,
    /// Of a shared receive queue, of one range each.
    Shared,
    /// Of the queue pair, of two ranges each.
    TwoRanges,
}

/// One kind of transfer.
#[derive(Debug)]
pub struct Case {
    /// What `scripts/bench` calls it.
    pub name: &'static str,
    /// The case from which it differs in one thing, which is to cost little: `scripts/bench` prints the
    /// ratio.
    pub resembles: Option<&'static str>,
    /// What its instructions are divided by.
    pub unit: &'static str,
    /// What the ends do.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub size: u32,
    /// Messages posted in a turn at most.
    pub batch: u64,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Whether small messages share segments.
    pub packing: bool,
    /// Whether FPDUs carry Markers.
    pub markers: bool,
    /// What is between the ends.
    pub network: Network,
    /// Where messages that take receives find them.
    pub receives: Receives,
    /// Cores of each device, all polled by the end's thread. On each there is what one core alone has: the
    /// messages of a turn, and the connections.
    pub cores: u8,
    /// Connections that take turns, each with a queue pair and one Write outstanding; one alone has as many
    /// as the writer may post.
    pub connections: u32,
    /// More connections, which are open and idle.
    pub idle_connections: u32,
    /// Messages before anything is measured: some 64 turns of them, for the round trips of the setup, which
    /// took the time of the clock, are forgotten only by and by.
    pub warm_up_messages: u64,
    /// Turns of each end in the measured phase.
    pub turns: u32,
}

impl Case {
    /// Returns as many messages as are posted at most after those of the warm-up: when these are complete,
    /// others are outstanding.
    pub fn messages_max(&self) -> u64 {
        DEPTH + (u64::from(self.turns) + 1) * self.batch
    }
}

/// All cases but [`SPREAD`] and [`AMONG_IDLE`]. A turn moves 32 segments at most, or 16 messages, or half of
/// a ping.
pub const CASES: [Case; 30] = [
    Case { name: "segment-1500", turns: 128, ..LARGE },
    Case { name: "segment-9000", mtu: 9000, turns: 64, ..LARGE },
    Case { name: "packed-64", turns: 256, ..SMALL },
    // What a poll costs beside its messages is what these take more of it each.
    Case { name: "packed-64-halves", batch: 8, turns: 64, warm_up_messages: 1024, ..SMALL },
    Case { name: "single-64", packing: false, turns: 128, ..SMALL },
    Case { name: "markers-1500", markers: true, turns: 64, ..LARGE },
    Case { name: "markers-9000", markers: true, mtu: 9000, turns: 64, ..LARGE },
    Case { name: "markers-packed-64", markers: true, turns: 128, ..SMALL },
    Case { name: "send-1500", pattern: Pattern::Sends, turns: 64, ..LARGE },
    Case { name: "send-packed-64", pattern: Pattern::Sends, turns: 128, ..SMALL },
    // 45 segments each: messages of 46 would all begin at even places of the bursts of 32, or all at odd
    // ones, as the round trips of the setup have it.
    Case { name: "read-1500", pattern: Pattern::Reads, size: 62 << 10, turns: 64, ..LARGE },
    Case { name: "ping-64", unit: "ping", pattern: Pattern::Ping, turns: 512, ..SMALL },
    Case { name: "ipv6-1500", network: Network::Ipv6, ..LIKE_SEGMENTS },
    Case { name: "vlan-1500", network: Network::Vlan, ..LIKE_SEGMENTS },
    Case { name: "no-checksums-1500", network: Network::NoChecksums, ..LIKE_SEGMENTS },
    Case { name: "marks-1500", network: Network::MarkingUnheard, ..LIKE_SEGMENTS },
    // The smallest congestion window suffices for what a turn posts.
    Case {
        name: "marks-packed-64",
        network: Network::Marking,
        resembles: Some("packed-64-halves"),
        batch: 8,
        turns: 64,
        warm_up_messages: 1024,
        ..SMALL
    },
    Case { name: "sack-1500", network: Network::Reordering, ..LIKE_SEGMENTS },
    Case { name: "loopback-1500", network: Network::Loopback, ..LIKE_SEGMENTS },
    Case { name: "bytes-1500", pattern: Pattern::Bytes, ..LIKE_SEGMENTS },
    Case {
        name: "transfers-1500",
        pattern: Pattern::Transfers,
        resembles: Some("bytes-1500"),
        ..LIKE_SEGMENTS
    },
    Case {
        name: "two-ranges-1500",
        pattern: Pattern::Sends,
        receives: Receives::TwoRanges,
        resembles: Some("send-1500"),
        ..LIKE_SEGMENTS
    },
    Case { name: "two-ranges-packed-64", receives: Receives::TwoRanges, ..LIKE_SENDS },
    Case { name: "shared-packed-64", receives: Receives::Shared, ..LIKE_SENDS },
    // Few messages: for each, memory is registered before.
    Case { name: "invalidate-packed-64", pattern: Pattern::Invalidations, turns: 24, ..LIKE_SENDS },
    // As many instructions a message as with one core.
    Case { name: "packed-64-2-cores", cores: 2, ..LIKE_PACKED },
    Case { name: "packed-64-8-cores", cores: 8, ..LIKE_PACKED },
    Case { name: "segment-1500-2-cores", cores: 2, ..LIKE_SEGMENTS },
    Case { name: "segment-1500-8-cores", cores: 8, ..LIKE_SEGMENTS },
    Case { name: "immediate-packed-8", pattern: Pattern::Immediates, size: 8, ..LIKE_SENDS },
];

/// One busy connection among many that are idle, which take long to set up under callgrind: these run when
/// they are asked for. They have as many turns as the case that they resemble, and are to take the same.
pub const AMONG_IDLE: [Case; 2] = [
    Case { name: "beside-10000-idle", idle_connections: 10_000, ..BESIDE_IDLE },
    Case { name: "beside-100000-idle", idle_connections: 100_000, ..BESIDE_IDLE },
];

/// Many connections of little data each, whose state is in no first-level cache: for a count of cache lines,
/// not of instructions.
pub const SPREAD: Case = Case {
    name: "spread-64",
    packing: false,
    connections: 1024,
    turns: 256,
    warm_up_messages: 4096,
    ..SMALL
};

const BESIDE_IDLE: Case = Case { resembles: Some("packed-64"), turns: 256, ..SMALL };

const LARGE: Case = Case {
    name: "",
    resembles: None,
    unit: "segment",
    pattern: Pattern::Stream,
    size: 64 << 10,
    batch: 16,
    mtu: 1500,
    packing: true,
    markers: false,
    network: Network::Ipv4,
    receives: Receives::Own,
    cores: 1,
    connections: 1,
    idle_connections: 0,
    warm_up_messages: 64,
    turns: 0,
};

const SMALL: Case = Case { unit: "message", size: 64, warm_up_messages: 2048, ..LARGE };

const LIKE_SEGMENTS: Case = Case { resembles: Some("segment-1500"), turns: 32, ..LARGE };

const LIKE_PACKED: Case = Case { resembles: Some("packed-64"), turns: 64, ..SMALL };

const LIKE_SENDS: Case = Case {
    resembles: Some("send-packed-64"),
    pattern: Pattern::Sends,
    turns: 32,
    warm_up_messages: 1024,
    ..SMALL
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_resembles_is_a_case_of_the_same_unit() {
        for case in CASES.iter().chain(&AMONG_IDLE) {
            let Some(name) = case.resembles else { continue };
            let resembled = CASES.iter().find(|other| other.name == name);
            assert_eq!(resembled.map(|other| other.unit), Some(case.unit), "{}", case.name);
        }
    }
}
