//! A parsed packet script: its statements, in order, each with its time. `tests/scripts/README.md` describes
//! the language.

use std::ops::Range;

use warpline_dataplane::wire::tcp::Flags;

/// One script.
#[derive(Debug)]
pub struct Script {
    /// Where it came from, for reports.
    pub path: String,
    /// Its first line: the section it shows, and a description.
    pub title: String,
    pub lines: Vec<Line>,
}

/// One line that does or expects something.
#[derive(Debug)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    pub text: String,
    pub when: When,
    pub statement: Statement,
}

/// When a line's statement is due, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After the line before.
    After(u64),
    /// Between two times after the line before.
    Within(u64, u64),
    /// After the beginning of the script.
    At(u64),
    /// Whenever it happens.
    Any,
}

#[derive(Debug)]
pub enum Statement {
    /// `option NAME=VALUE ...`: how the core is set up.
    Option(Vec<(String, String)>),
    /// `flow N peer=PORT core=PORT iss=NUMBER`: another pair of ports.
    Flow(Flow),
    /// `< ...`: the peer sends a segment.
    Inject(Injected),
    /// `> ...`: the core has sent a segment.
    Expect(Expected),
    /// `< [SEQ:END(LEN)] icmp ...`: a router sends an ICMP message about a segment of the core.
    Icmp(Icmp),
    /// `nothing`: the core has sent nothing.
    Nothing,
    /// `unjudged`: segments that the core has sent are ignored.
    Unjudged,
    /// `establish ...`: a handshake that the script does not test.
    Establish(Establish),
    /// An action of the application, or of control.
    Act(Action),
    /// `event NAME`: control receives an event.
    Event(Vec<String>),
    /// `read N` or `read "..."`: streaming octets of a flow have come.
    Read(u32, Octets),
    /// `completion STATUS`: a work request has completed.
    Completion(String),
    /// `placed A:B`, `not placed A:B`: whether octets of the peer's stream of FPDUs are in the application's
    /// memory.
    Placed(Range<u32>, bool),
    /// `check A < B`: a condition on values that the core reports.
    Check(String),
}

/// Another pair of ports.
#[derive(Clone, Debug)]
pub struct Flow {
    pub number: u32,
    pub peer_port: Option<u16>,
    pub core_port: Option<u16>,
    pub peer_iss: Option<u32>,
}

/// Octets of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Octets {
    /// So many, of the pattern of their stream.
    Pattern(usize),
    /// These.
    Literal(Vec<u8>),
}

impl Octets {
    pub fn len(&self) -> usize {
        match self {
            Self::Pattern(octets) => *octets,
            Self::Literal(octets) => octets.len(),
        }
    }
}

/// Where the octets of a segment come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// The pattern of the stream.
    #[default]
    Pattern,
    /// These octets.
    Literal(Vec<u8>),
    /// One whole FPDU of an RDMA Write.
    Fpdu,
    /// The part of an FPDU that these octets hold. The range is that of the whole FPDU.
    PartOfFpdu(Range<u32>),
}

/// Fields that injected and expected segments share. Sequence numbers count from the sender's SYN,
/// acknowledgements from the other end's.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub flow: u32,
    pub flags: Flags,
    pub seq: i64,
    pub octets: u32,
    pub ack: Option<i64>,
    pub window: Option<u16>,
    pub urgent: u16,
    /// The two bits in the IP header.
    pub ecn: u8,
    pub options: Options,
    pub payload: Payload,
}

/// TCP options, relative numbers in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `...`: other options are ignored.
    pub and_others: bool,
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    /// Value and echo; `None` for `*`.
    pub timestamps: Option<(Option<u32>, Option<u32>)>,
    pub sack: Vec<(i64, i64)>,
}

#[derive(Clone, Debug)]
pub struct Injected {
    pub segment: Segment,
    /// Ranges of the IP payload, in the order they are sent as fragments; empty for one whole packet.
    pub fragments: Vec<Range<usize>>,
    /// The IP identification.
    pub identification: u16,
}

#[derive(Clone, Debug)]
pub struct Expected {
    pub segment: Segment,
}

/// An ICMP message about a segment of the core.
#[derive(Clone, Debug)]
pub struct Icmp {
    pub flow: u32,
    /// The sequence number the quoted segment has.
    pub seq: i64,
    pub octets: u32,
    pub message: IcmpMessage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMessage {
    /// Destination unreachable, with its code.
    Unreachable(u8),
    /// Fragmentation needed, or packet too big, with the next hop's MTU.
    TooBig(u32),
}

/// A handshake in one line.
#[derive(Clone, Debug)]
pub struct Establish {
    /// The core opens; else the peer does.
    pub active: bool,
    pub options: Options,
    pub window: u16,
    /// From the core's SYN to its acknowledgement, in nanoseconds.
    pub round_trip_ns: u64,
    /// SYN with ECE and CWR, answered with ECE (RFC 3168 §6.1.1).
    pub ecn: bool,
}

#[derive(Clone, Debug)]
pub enum Action {
    Listen {
        port: Option<u16>,
        backlog: u32,
    },
    Unlisten,
    /// Opens to the peer port of a flow.
    Connect {
        flow: u32,
        timeout_ns: u64,
    },
    /// Streaming octets.
    Send(Octets),
    /// Full Operation from here on.
    Operate {
        markers: bool,
    },
    /// An RDMA Write of this number of octets.
    Write(u32),
    /// RDMA Writes that fill this number of segments.
    WriteSegments(u32),
    Close(u32),
    Abort(u32),
    /// Whether the peer answers ARP requests.
    Arp(bool),
}
