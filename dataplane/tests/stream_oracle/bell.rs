//! A bell that an end of a stream rings: once each time that somebody waits for it, and never too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warpline_dataplane::notify::Notify;

#[derive(Clone, Debug, Default)]
pub(crate) struct Bell(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_waited_for: AtomicBool,
}

impl Bell {
    /// Somebody waits from now on.
    pub(crate) fn wait(&self) {
        self.0.is_waited_for.store(true, Ordering::Relaxed);
    }

    /// Asserts that it has rung if somebody waits for what has come.
    pub(crate) fn expect_rung(&self, has_come: bool, what: &str) {
        assert!(!has_come || !self.0.is_waited_for.load(Ordering::Relaxed), "nobody was told of {what}");
    }

    /// Returns true if it has rung since somebody began to wait.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn has_rung(&self) -> bool {
        !self.0.is_waited_for.load(Ordering::Relaxed)
    }

    /// Returns what rings it.
    pub(crate) fn notify(&self) -> Arc<dyn Notify> {
        self.0.clone()
    }
}

impl Notify for State {
    fn notify(&self) {
        assert!(self.is_waited_for.swap(false, Ordering::Relaxed), "it rings, and nobody waits");
    }
}
