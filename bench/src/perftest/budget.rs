//! What the connections of a listening end may use of its memory, all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arguments::QPS_MAX;
use crate::error::BenchError;

/// Bytes of all connections of a listening end, at most. That is 256 queue pairs with the largest messages of
/// a sweep, each with 8 MiB to write to and 16 MiB for samples, or 2048 with regions of 1 MiB and messages of
/// 1 MiB.
pub const LISTENING_BYTES_MAX: u64 = 8 << 30;

/// The memory of a listening end's connections.
#[derive(Clone, Default)]
pub struct Budget {
    used: Arc<AtomicU64>,
}

/// Bytes of a [`Budget`], free again when it is dropped.
pub struct Reservation {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Budget {
    /// Reserves `bytes`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`] if the connections would use more than [`LISTENING_BYTES_MAX`].
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BenchError> {
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= LISTENING_BYTES_MAX);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum) {
            Ok(_) => Ok(Reservation { used: self.used.clone(), bytes }),
            Err(used) => Err(BenchError::Memory(format!(
                "{bytes} bytes more than the {used} in use, of {LISTENING_BYTES_MAX} at most"
            ))),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Checks that a listening end with `open` connections takes one more.
///
/// # Errors
///
/// The reason to reject it, in words.
pub fn check_open(open: u32) -> Result<(), String> {
    if open >= QPS_MAX {
        return Err(format!("the listening end has {QPS_MAX} connections, and takes no more"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_bound_and_is_given_back() {
        let budget = Budget::default();
        let most = budget.reserve(LISTENING_BYTES_MAX - 1).unwrap();
        let last = budget.reserve(1).unwrap();
        for bytes in [1, u64::MAX] {
            let error = budget.reserve(bytes).err().unwrap().to_string();
            assert!(error.contains("8589934592 at most"), "{error}");
        }
        drop(most);
        assert!(budget.reserve(LISTENING_BYTES_MAX).is_err(), "one byte is still in use");
        drop(last);
        assert!(budget.reserve(LISTENING_BYTES_MAX).is_ok());
    }

    #[test]
    fn connections_have_a_bound() {
        assert_eq!(check_open(QPS_MAX - 1), Ok(()));
        assert!(check_open(QPS_MAX).is_err());
    }
}
