//! Flags that the threads of a device share.

use std::sync::atomic::{AtomicBool, Ordering};

/// Flags that the threads of a device share.
#[derive(Debug)]
pub(crate) struct DeviceFlags {
    /// The core is polled.
    driven: AtomicBool,
    /// Control has ended: the poll thread is to end too.
    ended: AtomicBool,
}

impl DeviceFlags {
    pub(crate) const fn new() -> Self {
        Self { driven: AtomicBool::new(true), ended: AtomicBool::new(false) }
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    pub(crate) fn clear_driven(&self) {
        self.driven.store(false, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }
}
