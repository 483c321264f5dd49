//! `option` lines: how the core under test is set up.

use warpline_dataplane::core::Config;

use super::words::{duration, number};
use crate::common::raw::RawPeer;

/// What `option` lines say.
pub struct Setup {
    pub core: Config,
    pub mtu_octets: usize,
    /// How far from its time an expected segment may come, in nanoseconds.
    pub tolerance_ns: u64,
}

impl Setup {
    pub fn new() -> Self {
        Self { core: RawPeer::config(), mtu_octets: 1500, tolerance_ns: 2_000_000 }
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "window" => self.core.window_octets = number(value)?,
            "mtu" => self.mtu_octets = number(value)?,
            "tolerance" => self.tolerance_ns = duration(value)?,
            _ => return Err(format!("there is no option {name:?}")),
        }
        Ok(())
    }
}
