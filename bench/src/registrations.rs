//! How long an application waits until memory is registered, and until it is deregistered.

use std::time::{Duration, Instant};

use serde::Serialize;
use warpline::{Access, Addressing, MemorySource, ProtectionDomain};
use warpline_tools::interrupt;

use crate::error::BenchError;
use crate::times::Times;

/// Bytes of the memory.
const REGION_BYTES: usize = 1 << 20;

/// The times from the calls to their return.
#[derive(Debug, Default)]
pub struct Registrations {
    pub register: Times,
    pub deregister: Times,
}

/// The same as a report has it.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct RegistrationTimes {
    /// How often memory was registered and deregistered, and its bytes.
    registrations: u64,
    region_bytes: usize,
    /// From the call to its return.
    register_p50_us: f64,
    register_p99_us: f64,
    deregister_p50_us: f64,
    deregister_p99_us: f64,
}

impl RegistrationTimes {
    /// Returns the times in words.
    pub fn words(&self) -> String {
        let Self { registrations, region_bytes, register_p50_us, register_p99_us, .. } = self;
        let Self { deregister_p50_us, deregister_p99_us, .. } = self;
        format!(
            "a region of {region_bytes} bytes was registered in {register_p50_us:.1} us (99 %: \
             {register_p99_us:.1}) and deregistered in {deregister_p50_us:.1} us (99 %: \
             {deregister_p99_us:.1}), {registrations} times"
        )
    }
}

impl Registrations {
    /// Returns the times as a report has them.
    pub fn report(&self) -> RegistrationTimes {
        RegistrationTimes {
            registrations: self.deregister.count(),
            region_bytes: REGION_BYTES,
            register_p50_us: self.register.quantile_us(0.5),
            register_p99_us: self.register.quantile_us(0.99),
            deregister_p50_us: self.deregister.quantile_us(0.5),
            deregister_p99_us: self.deregister.quantile_us(0.99),
        }
    }

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
