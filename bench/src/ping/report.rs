//! What is printed and written of pings.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use warpline::{Connected, ConnectionRequest, ReadDepths};

use super::Ping;
use super::client::Pinged;

/// The longest time that is told from a longer one: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits of a time that are kept.
const DIGITS: u8 = 3;

/// How long pings took.
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(
            Histogram::new_with_max(LONGEST_NS, DIGITS)
                .expect("the bounds are in order, the digits at most five"),
        )
    }
}

impl Times {
    /// One more.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS));
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    fn microseconds(ns: u64) -> f64 {
        ns as f64 / 1e3
    }

    fn quantile(&self, quantile: f64) -> f64 {
        Self::microseconds(self.0.value_at_quantile(quantile))
    }
}

/// The client's result. Times are of whole pings: six messages, three round trips.
#[derive(Serialize, Clone, Debug)]
pub struct Report {
    test: &'static str,
    backend: &'static str,
    mtu: u16,
    /// Octets of a ping.
    size: u32,
    /// Whether we asked for Markers.
    markers: bool,
    /// Whether we insisted on CRCs.
    crc: bool,
    /// The revision of the server's Reply.
    revision: u8,
    /// Our IRD and ORD on the connection.
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
    /// Octets that were not what was sent.
    corrupt_bytes: u64,
    /// RDMA Writes for nothing that a silent server was nudged with after our first message.
    nudges: u64,
}

/// perftest's heading for latencies.
pub const HEADING: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
                           99% percentile[usec]   99.9% percentile[usec]";

impl Report {
    /// The result of a client.
    pub fn new(args: &Ping, connected: &Connected, pinged: &Pinged, nudges: u64) -> Self {
        let times = &pinged.times;
        Self {
            test: "ping",
            backend: args.backend.name(),
            mtu: args.mtu,
            size: args.size,
            markers: args.markers.is_on(),
            crc: args.crc.is_on(),
            revision: connected.peer.revision,
            ird: connected.depths.ird,
            ord: connected.depths.ord,
            pings: times.count(),
            min_us: Times::microseconds(times.0.min()),
            p50_us: times.quantile(0.5),
            mean_us: times.0.mean() / 1e3,
            stdev_us: times.0.stdev() / 1e3,
            p90_us: times.quantile(0.9),
            p99_us: times.quantile(0.99),
            p999_us: times.quantile(0.999),
            max_us: Times::microseconds(times.0.max()),
            validated: args.validate.is_on(),
            corrupt_bytes: pinged.corrupt_octets,
            nudges,
        }
    }

    /// The line under [`HEADING`].
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

/// What became of a client of the server's.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// Its address.
    pub remote: SocketAddr,
    /// The revision of its Request.
    pub revision: u8,
    /// Its IRD and ORD as they came; nothing if its Request was not enhanced.
    pub asked: Option<Depths>,
    /// Our IRD and ORD on the connection.
    pub agreed: Depths,
    /// Its pings.
    pub pings: u64,
    /// Octets written back.
    pub octets: u64,
    /// `closed`, `rejected`, or what went wrong.
    pub ended: String,
}

/// How many RDMA Reads may be outstanding.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Depths {
    /// Towards the end that says so.
    pub ird: u16,
    /// From it.
    pub ord: u16,
}

impl From<ReadDepths> for Depths {
    fn from(ReadDepths { ird, ord }: ReadDepths) -> Self {
        Self { ird, ord }
    }
}

impl Served {
    /// A client that has not pinged yet.
    pub fn new(request: &ConnectionRequest) -> Self {
        Self {
            remote: request.remote(),
            revision: request.revision(),
            asked: request.peer_depths().map(Depths::from),
            agreed: Depths::default(),
            pings: 0,
            octets: 0,
            ended: String::new(),
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { remote, revision, asked, agreed, pings, octets, ended } = self;
        write!(f, "{remote}: revision {revision}")?;
        if let Some(asked) = asked {
            write!(
                f,
                ", its IRD {} and ORD {}, ours {} and {}",
                asked.ird, asked.ord, agreed.ird, agreed.ord
            )?;
        }
        write!(f, ": {pings} pings, {octets} octets: {ended}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_three_digits() {
        let mut times = Times::default();
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        assert_eq!(times.count(), 1000);
        for (quantile, expected) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = times.quantile(quantile);
            assert!((found / expected - 1.0).abs() < 0.002, "{quantile}: {found} us");
        }
        times.record(Duration::from_secs(1_000_000));
        assert_eq!(times.count(), 1001, "an absurd one counts too");
    }
}
