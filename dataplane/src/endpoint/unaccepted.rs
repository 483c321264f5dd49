//! Queue pairs with posted requests that could not be accepted yet.
//!
//! A request is accepted when the doorbell of its queue pair is served, and from then on counts as a reader
//! of its memory. It may have to wait for a request before it that changes what this end grants. So a posted
//! request is accepted, or its queue pair is here, or its doorbell still rings: whoever wants to know of all
//! requests that may use some memory looks at these, and at no other queue pair.

/// A set of queue pairs: those with posted requests that could not be accepted are in it, others may be.
#[derive(Debug, Default)]
pub(crate) struct Unaccepted {
    /// Bit `n % 64` of word `n / 64` is that of the queue pair in slot `n`.
    words: Vec<u64>,
}

impl Unaccepted {
    /// Adds the queue pair in `slot`.
    #[cold]
    pub(super) fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    /// Removes the queue pair in `slot`.
    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Returns a word of the set, in which slot `64 * index` has the lowest bit.
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }
}
