//! The printed and the written report of pings.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use warpline::{Connected, ConnectionRequest, DeviceName, ReadDepths};

use super::arguments::Ping;
use super::client::Pinged;

/// The client's result. Times are of whole pings: six messages, three round trips.
#[derive(Serialize, Clone, Debug)]
pub struct Report {
    test: &'static str,
    device: String,
    mtu: u16,
    /// Bytes of a ping.
    size: u32,
    /// Whether this end asked for Markers.
    markers: bool,
    /// Whether this end insisted on CRCs.
    crc: bool,
    /// The revision of the server's Reply.
    revision: u8,
    /// This end's IRD and ORD on the connection.
    ird: u16,
    ord: u16,
    /// Pings that came back.
    pings: u64,
    min_us: f64,
    p50_us: f64,
    mean_us: f64,
    stdev_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    validated: bool,
    /// Bytes that were not what was sent.
    corrupt_bytes: u64,
    /// RDMA Writes without payload that a silent server was sent after the first message.
    nudges: u64,
    /// The parts of the cores of this end, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_core: Vec<CoreReport>,
}

/// The part of a core in the result.
#[derive(Serialize, Clone, Debug)]
pub struct CoreReport {
    core: u8,
    /// Connections, one after the other.
    connections: u32,
    pings: u64,
    p50_us: f64,
    p99_us: f64,
}

impl CoreReport {
    /// Returns the part of `core`.
    pub fn new(core: u8, connections: u32, pinged: &Pinged) -> Self {
        let times = &pinged.times;
        let (p50_us, p99_us) = (times.quantile_us(0.5), times.quantile_us(0.99));
        Self { core, connections, pings: times.count(), p50_us, p99_us }
    }

    /// Returns the number of the core.
    pub const fn core(&self) -> u8 {
        self.core
    }
}

/// perftest's heading for latencies.
pub const HEADING: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                           t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]";

impl Report {
    /// Returns the result of a client.
    pub fn new(
        args: &Ping,
        device: &DeviceName,
        connected: &Connected,
        pinged: &Pinged,
        nudges: u64,
        by_core: Vec<CoreReport>,
    ) -> Self {
        let times = &pinged.times;
        Self {
            test: "ping",
            device: device.to_string(),
            mtu: device.mtu(),
            size: args.size,
            markers: args.markers.is_on(),
            crc: args.crc.is_on(),
            revision: connected.peer.revision,
            ird: connected.depths.ird,
            ord: connected.depths.ord,
            pings: times.count(),
            min_us: times.min_us(),
            p50_us: times.quantile_us(0.5),
            mean_us: times.mean_us(),
            stdev_us: times.stdev_us(),
            p90_us: times.quantile_us(0.9),
            p99_us: times.quantile_us(0.99),
            p999_us: times.quantile_us(0.999),
            max_us: times.max_us(),
            validated: args.validate.is_on(),
            corrupt_bytes: pinged.corrupt_bytes,
            nudges,
            by_core,
        }
    }

    /// Returns a line for each core, if there are several.
    pub fn core_lines(&self) -> Vec<String> {
        let line = |CoreReport { core, connections: _, pings, p50_us, p99_us }: &CoreReport| {
            format!(" core {core}: {pings} pings, {p50_us:.2} usec typical, {p99_us:.2} at 99 %")
        };
        self.by_core.iter().map(line).collect()
    }

    /// Returns the line under [`HEADING`].
    pub fn line(&self) -> String {
        format!(
            " {:<6} {:<14} {:<14.2} {:<12.2} {:<16.2} {:<14.2} {:<15.2} {:<22.2} {:.2}",
            self.size,
            self.pings,
            self.min_us,
            self.max_us,
            self.p50_us,
            self.mean_us,
            self.stdev_us,
            self.p99_us,
            self.p999_us
        )
    }
}

/// A client of the server, and how its connection ended.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// Its address.
    pub remote: SocketAddr,
    /// The core of this end that has its connection.
    pub core: u8,
    /// The revision of its Request.
    pub revision: u8,
    /// Its IRD and ORD as its Request has them; `None` if the Request was not enhanced.
    pub asked: Option<Depths>,
    /// The server's IRD and ORD on the connection.
    pub agreed: Depths,
    /// Its pings.
    pub pings: u64,
    /// Bytes written back.
    pub bytes: u64,
    /// `closed`, `rejected`, or what went wrong.
    pub ended: String,
}

/// The number of RDMA Reads that may be outstanding.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Depths {
    /// Towards this end.
    pub ird: u16,
    /// From this end.
    pub ord: u16,
}

impl From<ReadDepths> for Depths {
    fn from(ReadDepths { ird, ord }: ReadDepths) -> Self {
        Self { ird, ord }
    }
}

impl Served {
    /// Returns the report of a client that has not pinged yet.
    pub fn new(request: &ConnectionRequest) -> Self {
        Self {
            remote: request.remote(),
            core: request.core(),
            revision: request.revision(),
            asked: request.peer_depths().map(Depths::from),
            agreed: Depths::default(),
            pings: 0,
            bytes: 0,
            ended: String::new(),
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { remote, core: _, revision, asked, agreed, pings, bytes, ended } = self;
        write!(f, "{remote}: revision {revision}")?;
        if let Some(asked) = asked {
            write!(
                f,
                ", its IRD {} and ORD {}, ours {} and {}",
                asked.ird, asked.ord, agreed.ird, agreed.ord
            )?;
        }
        write!(f, ": {pings} pings, {bytes} bytes: {ended}")
    }
}
