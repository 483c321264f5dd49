//! A lock around what one thread at a time may use: the form for threads that share it.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// A value that threads use in turn: a lock around what is for one thread at a time, such as the end of a
/// queue at which work is posted.
#[derive(Debug)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    /// Returns `value` with a lock around it.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until no other thread uses the value. It is this thread's for as long as the guard lives. A
    /// thread that has panicked meanwhile has left the value as it was between two calls.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
