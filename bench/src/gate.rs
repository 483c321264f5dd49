//! Where the threads of several cores wait for each other, polling.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A gate that opens when all threads have come to it, or have ended.
#[derive(Debug)]
pub struct Gate {
    /// Threads that have neither come nor ended.
    expected: AtomicUsize,
}

/// A thread that may come to the gate. It is not waited for once this is dropped.
#[derive(Debug)]
pub struct Passage<'g> {
    gate: &'g Gate,
    has_come: bool,
}

impl Gate {
    /// Returns the gate of so many threads.
    pub const fn new(threads: usize) -> Self {
        Self { expected: AtomicUsize::new(threads) }
    }

    /// Returns true if no thread is waited for.
    pub fn is_open(&self) -> bool {
        self.expected.load(Ordering::Acquire) == 0
    }

    /// Returns the way of one thread to the gate.
    pub const fn passage(&self) -> Passage<'_> {
        Passage { gate: self, has_come: false }
    }
}

impl Passage<'_> {
    /// Comes to the gate, the first time. Returns true if it is open.
    pub fn is_open(&mut self) -> bool {
        self.come();
        self.gate.is_open()
    }

    fn come(&mut self) {
        if !core::mem::replace(&mut self.has_come, true) {
            self.gate.expected.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.come();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_opens_when_nobody_is_on_the_way() {
        let gate = Gate::new(3);
        let (mut first, mut second, third) = (gate.passage(), gate.passage(), gate.passage());
        assert!(!first.is_open() && !first.is_open() && !second.is_open());
        // It has failed on its way.
        drop(third);
        assert!(first.is_open() && second.is_open());
    }
}
