//! `option` lines: the configuration of the core under test.

use warpline_dataplane::core::Config;
use warpline_dataplane::net::addresses::Cidr;

use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::tcp::{EcnPolicy, Keepalive};
use warpline_dataplane::time::MILLISECOND;

use super::frames::Family;
use super::words::{duration, number};
use crate::common::raw::RawPeer;

/// The configuration that `option` lines describe.
pub struct Setup {
    pub core: Config,
    pub family: Family,
    pub mtu_octets: usize,
    /// How far from its time an expected segment may come, in nanoseconds.
    pub tolerance_ns: u64,
}

impl Setup {
    pub fn new() -> Self {
        let family = Family::V4;
        Self { core: RawPeer::config(), family, mtu_octets: 1500, tolerance_ns: 2_000_000 }
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "ip" {
            self.family = one_of(value, &[("4", Family::V4), ("6", Family::V6)])?;
            self.core.duplicate_address_detection = false;
            self.core.addresses.clear();
            self.core.addresses.push(Cidr::new(self.family.address(1), 24));
            return Ok(());
        }
        let tcp = &mut self.core.tcp;
        match name {
            "sack" => tcp.sack = switch(value)?,
            "timestamps" => tcp.timestamps = switch(value)?,
            "nagle" => tcp.nagle = switch(value)?,
            "pacing" => tcp.pacing = switch(value)?,
            "ecn" => {
                tcp.ecn = one_of(
                    value,
                    &[
                        ("off", EcnPolicy::Off),
                        ("accept", EcnPolicy::Accept),
                        ("request", EcnPolicy::Request),
                    ],
                )?;
            }
            "congestion" => {
                tcp.congestion = one_of(
                    value,
                    &[
                        ("cubic", Algorithm::Cubic),
                        ("newreno", Algorithm::NewReno),
                        ("dctcp", Algorithm::Dctcp),
                    ],
                )?;
            }
            "user_timeout" => tcp.user_timeout_ms = Some(milliseconds(value)?),
            "keepalive" => tcp.keepalive = Some(keepalive(value)?),
            "window" => self.core.window_bytes = number(value)?,
            "mtu" => self.mtu_octets = number(value)?,
            "tolerance" => self.tolerance_ns = duration(value)?,
            _ => return Err(format!("there is no option {name:?}")),
        }
        Ok(())
    }
}

fn switch(value: &str) -> Result<bool, String> {
    one_of(value, &[("on", true), ("off", false)])
}

fn one_of<T: Copy>(value: &str, known: &[(&str, T)]) -> Result<T, String> {
    known.iter().find(|(name, _)| *name == value).map(|(_, meaning)| *meaning).ok_or_else(|| {
        format!("{value:?} is none of {:?}", known.iter().map(|(name, _)| name).collect::<Vec<_>>())
    })
}

fn milliseconds(value: &str) -> Result<u32, String> {
    Ok((duration(value)? / MILLISECOND) as u32)
}

/// `IDLE,INTERVAL,PROBES`
fn keepalive(value: &str) -> Result<Keepalive, String> {
    let parts: Vec<_> = value.split(',').collect();
    let [idle, interval, probes] = parts[..] else {
        return Err(format!("{value:?} is not IDLE,INTERVAL,PROBES"));
    };
    Ok(Keepalive {
        idle_ms: milliseconds(idle)?,
        interval_ms: milliseconds(interval)?,
        probes: number(probes)?,
    })
}
