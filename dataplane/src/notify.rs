//! How the data plane wakes a thread that waits for it: for a completion, an event, a frame.

/// Wakes a thread that waits for an entry. The data plane calls it, so it must not block.
pub trait Notify: Send + Sync {
    /// Notifies the thread: there is an entry.
    fn notify(&self);
}
