//! Congestion control: how much may be in flight (RFC 5681), by one of three algorithms with one trait.
//!
//! The loss recovery of TCP says what happened; an algorithm answers with a window and a slow-start
//! threshold. It sends nothing and reads no clock. All windows are octets; `SMSS` of the documents is
//! `emss_octets` here.

mod control;
mod cubic;
mod dctcp;
mod hystart;
mod new_reno;
mod window;

use core::fmt;
use core::str::FromStr;

use crate::time::Instant;

pub use control::{AckSample, CongestionControl, Signal};
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use new_reno::NewReno;

/// Which algorithm. Chosen per connection and per device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// CUBIC (RFC 9438): the default of Linux and others on the open Internet.
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582): the standard that others are measured against.
    NewReno,
    /// DCTCP (RFC 8257): only for networks under one hand whose switches mark early. Beside other algorithms
    /// at a queue that only drops it has no more than NewReno; at one that marks, it starves them (RFC 8257
    /// §5).
    Dctcp,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Dctcp => "dctcp",
        })
    }
}

/// No algorithm has this name.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such congestion control: one of cubic, newreno, dctcp")]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        match name {
            "cubic" => Ok(Self::Cubic),
            "newreno" => Ok(Self::NewReno),
            "dctcp" => Ok(Self::Dctcp),
            _ => Err(UnknownAlgorithm),
        }
    }
}

/// The algorithm of a connection, dispatched without a virtual call.
#[derive(Clone, Copy, Debug)]
pub enum Congestion {
    /// CUBIC.
    Cubic(Cubic),
    /// NewReno.
    NewReno(NewReno),
    /// DCTCP.
    Dctcp(Dctcp),
}

/// Many idle connections fit in memory only if each is small; the algorithm has a sixth of a connection's
/// KiB.
const _: () = assert!(size_of::<Congestion>() <= 160);

impl Congestion {
    /// Returns `algorithm` for a new connection whose segments carry up to `emss_octets` octets.
    pub fn new(algorithm: Algorithm, emss_octets: u32) -> Self {
        match algorithm {
            Algorithm::Cubic => Self::Cubic(Cubic::new(emss_octets)),
            Algorithm::NewReno => Self::NewReno(NewReno::new(emss_octets)),
            Algorithm::Dctcp => Self::Dctcp(Dctcp::new(emss_octets)),
        }
    }

    /// Returns the algorithm in use.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Cubic(_) => Algorithm::Cubic,
            Self::NewReno(_) => Algorithm::NewReno,
            Self::Dctcp(_) => Algorithm::Dctcp,
        }
    }
}

/// Calls a method of whichever algorithm it is.
macro_rules! whichever {
    ($congestion:expr, $algorithm:ident => $call:expr) => {
        match $congestion {
            Congestion::Cubic($algorithm) => $call,
            Congestion::NewReno($algorithm) => $call,
            Congestion::Dctcp($algorithm) => $call,
        }
    };
}

impl CongestionControl for Congestion {
    fn window_octets(&self) -> u32 {
        whichever!(self, algorithm => algorithm.window_octets())
    }

    fn threshold_octets(&self) -> u32 {
        whichever!(self, algorithm => algorithm.threshold_octets())
    }

    fn on_ack(&mut self, sample: &AckSample, in_recovery: bool) {
        whichever!(self, algorithm => algorithm.on_ack(sample, in_recovery));
    }

    fn on_congestion(&mut self, now: Instant, flight_octets: u32, signal: Signal) {
        whichever!(self, algorithm => algorithm.on_congestion(now, flight_octets, signal));
    }

    fn on_recovery(&mut self) {
        whichever!(self, algorithm => algorithm.on_recovery());
    }

    fn set_window(&mut self, octets: u32) {
        whichever!(self, algorithm => algorithm.set_window(octets));
    }

    fn on_recovered(&mut self, now: Instant) {
        whichever!(self, algorithm => algorithm.on_recovered(now));
    }

    fn on_timeout(&mut self, now: Instant, flight_octets: u32, first: bool) {
        whichever!(self, algorithm => algorithm.on_timeout(now, flight_octets, first));
    }

    fn keep_reduction(&mut self) {
        whichever!(self, algorithm => algorithm.keep_reduction());
    }

    fn undo(&mut self, now: Instant) -> bool {
        whichever!(self, algorithm => algorithm.undo(now))
    }

    fn on_idle(&mut self, now: Instant, idle_ns: u64, rto_ns: u64) {
        whichever!(self, algorithm => algorithm.on_idle(now, idle_ns, rto_ns));
    }

    fn set_emss(&mut self, octets: u32) {
        whichever!(self, algorithm => algorithm.set_emss(octets));
    }

    fn on_syn_timeout(&mut self) {
        whichever!(self, algorithm => algorithm.on_syn_timeout());
    }
}

#[cfg(test)]
mod tests;
