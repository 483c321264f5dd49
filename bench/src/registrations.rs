//! How long an application waits until memory is registered, and until it is deregistered.

use std::time::{Duration, Instant};

use warpline::{Access, Addressing, MemorySource, ProtectionDomain};
use warpline_tools::interrupt;

use crate::error::BenchError;
use crate::times::Times;

/// Bytes of the memory.
pub const REGION_BYTES: usize = 1 << 20;

/// The times from the calls to their return.
#[derive(Debug, Default)]
pub struct Registrations {
    pub register: Times,
    pub deregister: Times,
}

impl Registrations {
    /// Registers [`REGION_BYTES`] of `memory` in `domain` and deregisters them, `count` times or until the
    /// command is to end. A deregistration may take `patience`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`], [`BenchError::Setup`].
    pub fn measure(
        domain: &ProtectionDomain,
        memory: &MemorySource,
        count: u32,
        patience: Duration,
    ) -> Result<Self, BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Setup(error.to_string());
        let region = memory.allocate(REGION_BYTES);
        let region = region.ok_or_else(|| BenchError::Memory(format!("{REGION_BYTES} bytes")))?;
        let mut times = Self::default();
        for _ in 0..count {
            if interrupt::is_requested() {
                break;
            }
            let start = Instant::now();
            let registered = domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::Address);
            times.register.record(start.elapsed());
            let registered = registered.map_err(|error| failed(&error))?;
            let start = Instant::now();
            let deregistered = registered.deregister(patience);
            times.deregister.record(start.elapsed());
            deregistered.map_err(|error| failed(&error))?;
        }
        Ok(times)
    }
}
