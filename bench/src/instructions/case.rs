//! The transfers that are measured.

/// What the ends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The writer posts as many Writes as may be outstanding.
    Stream,
    /// The same with Sends, for which the target has receives posted.
    Sends,
    /// The target posts as many Reads of the writer's memory as may be outstanding.
    Reads,
    /// The writer posts one Write, and the next when the target has answered it by a Write of its own.
    Ping,
}

/// One kind of transfer.
#[derive(Debug)]
pub struct Case {
    /// What `scripts/bench` calls it.
    pub name: &'static str,
    /// What its instructions are divided by.
    pub unit: &'static str,
    /// What the ends do.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub size: u32,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Whether small messages share segments.
    pub packing: bool,
    /// Whether FPDUs carry Markers.
    pub markers: bool,
    /// Whether the two ends have IPv6 addresses.
    pub over_ipv6: bool,
    /// Connections that take turns, each with a queue pair and one Write outstanding; one alone has as many
    /// as the writer may post.
    pub connections: u32,
    /// Messages before anything is measured.
    pub warm_up_messages: u64,
    /// Turns of each end in the measured phase.
    pub turns: u32,
}

/// All cases but [`SPREAD`]. A turn moves 32 segments at most, or 16 messages, or half of a ping.
pub const CASES: [Case; 12] = [
    Case { name: "segment-1500", turns: 128, ..LARGE },
    Case { name: "segment-9000", mtu: 9000, turns: 64, ..LARGE },
    Case { name: "packed-64", turns: 256, ..SMALL },
    Case { name: "single-64", packing: false, turns: 128, ..SMALL },
    Case { name: "markers-1500", markers: true, turns: 64, ..LARGE },
    Case { name: "markers-9000", markers: true, mtu: 9000, turns: 64, ..LARGE },
    Case { name: "markers-packed-64", markers: true, turns: 128, ..SMALL },
    Case { name: "send-1500", pattern: Pattern::Sends, turns: 64, ..LARGE },
    Case { name: "send-packed-64", pattern: Pattern::Sends, turns: 128, ..SMALL },
    Case { name: "read-1500", pattern: Pattern::Reads, turns: 64, ..LARGE },
    Case { name: "ipv6-1500", over_ipv6: true, turns: 64, ..LARGE },
    Case { name: "ping-64", unit: "ping", pattern: Pattern::Ping, turns: 512, ..SMALL },
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

const LARGE: Case = Case {
    name: "",
    unit: "segment",
    pattern: Pattern::Stream,
    size: 64 << 10,
    mtu: 1500,
    packing: true,
    markers: false,
    over_ipv6: false,
    connections: 1,
    warm_up_messages: 64,
    turns: 0,
};

const SMALL: Case = Case { unit: "message", size: 64, warm_up_messages: 2048, ..LARGE };
