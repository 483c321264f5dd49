//! The means by which threads share data: atomics and bounded queues. Everything that an application and a
//! core both touch is made of these, so that under `--cfg loom` the same code runs on a model of memory,
//! which tries every order of what two threads do, and of what the memory shows them.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use crossbeam::atomic::AtomicCell;
#[cfg(not(loom))]
pub(crate) use crossbeam::queue::ArrayQueue;

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};
#[cfg(loom)]
pub use model::{ArrayQueue, AtomicCell, HandedOver, Words};

/// Words that one thread writes and another reads later. They order nothing: what hands them over does, such
/// as a store and a load of an atomic variable beside them.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Words<const N: usize>([AtomicU64; N]);

#[cfg(not(loom))]
impl<const N: usize> Words<N> {
    /// Returns zeros.
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    /// Writes the first words.
    #[inline]
    pub(crate) fn write(&self, words: &[u64]) {
        for (place, word) in self.0.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    /// Reads the first `M` words.
    #[inline]
    pub(crate) fn read<const M: usize>(&self) -> [u64; M] {
        const { assert!(M <= N) };
        core::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }

    /// Copies the first `M` words while another thread may write them: of some it may find the old, of some
    /// the new. The caller finds out later whether that was so, and discards the copy then.
    #[inline]
    pub(crate) fn copy<const M: usize>(&self) -> [u64; M] {
        self.read()
    }
}

/// A value of eight bytes or less in a word of its own: an `AtomicCell` of it has no lock, which could keep a
/// core from going on while a thread that holds it is not scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub(crate) struct OneWord<T: Copy>(pub T);

impl<T: Copy> OneWord<T> {
    /// Returns a cell with `value`, without a lock.
    #[cfg(not(loom))]
    pub(crate) const fn cell(value: T) -> AtomicCell<Self> {
        const { assert!(AtomicCell::<Self>::is_lock_free()) };
        AtomicCell::new(Self(value))
    }

    /// Returns a cell with `value`.
    #[cfg(loom)]
    pub fn cell(value: T) -> AtomicCell<Self> {
        AtomicCell::new(Self(value))
    }
}

/// A value that one thread stores and another loads later. Like [`Words`], it orders nothing.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct HandedOver<T: Copy>(AtomicCell<OneWord<T>>);

#[cfg(not(loom))]
impl<T: Copy> HandedOver<T> {
    /// Returns `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self(OneWord::cell(value))
    }

    /// Stores `value`.
    pub(crate) fn store(&self, value: T) {
        self.0.store(OneWord(value));
    }

    /// Loads the value.
    pub(crate) fn load(&self) -> T {
        self.0.load().0
    }
}

/// The queue as the model sees it.
#[cfg(loom)]
mod model {
    use core::mem;
    use std::sync::PoisonError;

    use loom::cell::UnsafeCell;
    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    /// Replaces `crossbeam::queue::ArrayQueue`, and promises less: what was done before a push happens before
    /// the pop of that element, and a push or a pop orders hardly anything else. Those of crossbeam are
    /// fences too; code that needs a fence has to write one.
    #[derive(Debug)]
    pub struct ArrayQueue<T> {
        places: Vec<Place<T>>,
        head: AtomicUsize,
        tail: AtomicUsize,
    }

    #[derive(Debug)]
    struct Place<T> {
        /// Which turn it is: even turns push, odd ones pop.
        turn: AtomicUsize,
        // Only the thread that pushes and the thread that pops touch it, so the lock orders nothing else.
        element: Mutex<Option<T>>,
    }

    impl<T> ArrayQueue<T> {
        /// Returns a queue of `capacity` places.
        pub fn new(capacity: usize) -> Self {
            let place = |_| Place { turn: AtomicUsize::new(0), element: Mutex::new(None) };
            Self {
                places: (0..capacity).map(place).collect(),
                head: AtomicUsize::new(0),
                tail: AtomicUsize::new(0),
            }
        }

        /// Appends `element`.
        ///
        /// # Errors
        ///
        /// `element`, when there is no room.
        pub fn push(&self, element: T) -> Result<(), T> {
            let capacity = self.places.len();
            // A guess. The model's search does not see that a read of another thread and a write of this one
            // may change places if this one has read in between, so writers find out by what is a write too.
            let mut tail = 0;
            loop {
                let head = self.head.fetch_add(0, Ordering::Relaxed);
                if tail == head + capacity {
                    return Err(element);
                }
                match self.tail.compare_exchange(tail, tail + 1, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => tail = now,
                }
            }
            let place = &self.places[tail % capacity];
            loop {
                let mut free = place.element.lock().unwrap_or_else(PoisonError::into_inner);
                if free.is_none() {
                    *free = Some(element);
                    break;
                }
                // The thread that pops the last element has not taken it yet.
                drop(free);
                loom::thread::yield_now();
            }
            place.turn.store(2 * (tail / capacity) + 1, Ordering::Release);
            Ok(())
        }

        /// Returns the oldest element.
        pub fn pop(&self) -> Option<T> {
            let capacity = self.places.len();
            // As above.
            let mut head = 0;
            loop {
                let place = &self.places[head % capacity];
                let turn = 2 * (head / capacity) + 1;
                if place.turn.load(Ordering::Acquire) == turn {
                    let next =
                        self.head.compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Relaxed);
                    let Err(now) = next else {
                        let element = place.element.lock().unwrap_or_else(PoisonError::into_inner).take();
                        place.turn.store(turn + 1, Ordering::Release);
                        return element;
                    };
                    head = now;
                } else {
                    let guess = mem::replace(&mut head, self.head.fetch_add(0, Ordering::Relaxed));
                    if guess == head && self.tail.load(Ordering::Relaxed) == head {
                        return None;
                    }
                    if guess != head {
                        continue;
                    }
                }
                loom::thread::yield_now();
            }
        }

        /// Elements it was made for.
        pub fn capacity(&self) -> usize {
            self.places.len()
        }

        /// Elements in it, at some moment.
        pub fn len(&self) -> usize {
            let tail = self.tail.load(Ordering::Acquire);
            tail - self.head.load(Ordering::Acquire).min(tail)
        }

        /// Returns true if the queue was empty at some moment.
        pub fn is_empty(&self) -> bool {
            self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
        }
    }

    /// Replaces `crossbeam::atomic::AtomicCell`, and promises less: what was done before a store happens
    /// before a load that returns its value. Those of crossbeam are in one order with all others.
    #[derive(Debug)]
    pub struct AtomicCell<T: Copy> {
        // The lock is of the standard library, so it orders nothing in the model.
        values: std::sync::Mutex<Vec<T>>,
        /// Which of the values the cell has.
        current: AtomicUsize,
    }

    impl<T: Copy> AtomicCell<T> {
        /// Returns `value`.
        pub fn new(value: T) -> Self {
            Self { values: std::sync::Mutex::new(vec![value]), current: AtomicUsize::new(0) }
        }

        /// Stores `value`.
        pub fn store(&self, value: T) {
            let index = {
                let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
                values.push(value);
                values.len() - 1
            };
            self.current.store(index, Ordering::Release);
        }

        /// Loads the value.
        pub fn load(&self) -> T {
            let index = self.current.load(Ordering::Acquire);
            self.values.lock().unwrap_or_else(PoisonError::into_inner)[index]
        }
    }

    /// Words as the model sees them: it fails where a thread touches them that another has not handed them
    /// to.
    #[derive(Debug)]
    pub struct Words<const N: usize> {
        // The lock is of the standard library, so it orders nothing in the model.
        touched: std::sync::Mutex<Touched<N>>,
        /// Which of the values they have, for copies.
        current: AtomicUsize,
    }

    /// All values that the words have had, and a note of who touches them.
    #[derive(Debug)]
    struct Touched<const N: usize> {
        access: UnsafeCell<()>,
        values: Vec<[u64; N]>,
    }

    impl<const N: usize> Words<N> {
        /// Returns zeros.
        pub fn new() -> Self {
            let touched = Touched { access: UnsafeCell::new(()), values: vec![[0; N]] };
            Self { touched: std::sync::Mutex::new(touched), current: AtomicUsize::new(0) }
        }

        /// Writes the first words.
        pub fn write(&self, words: &[u64]) {
            let written = {
                let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
                touched.access.with_mut(|_| ());
                let mut value = touched.values[touched.values.len() - 1];
                value[..words.len()].copy_from_slice(words);
                touched.values.push(value);
                touched.values.len() - 1
            };
            self.current.store(written, Ordering::Relaxed);
        }

        /// Reads the first `M` words.
        pub fn read<const M: usize>(&self) -> [u64; M] {
            let touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
            touched.access.with(|_| ());
            let value = touched.values[touched.values.len() - 1];
            core::array::from_fn(|at| value[at])
        }

        /// Copies the first `M` words, which may be those of any value that the thread may see now.
        pub fn copy<const M: usize>(&self) -> [u64; M] {
            let current = self.current.load(Ordering::Relaxed);
            let touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
            core::array::from_fn(|at| touched.values[current][at])
        }
    }

    /// A value as the model sees it, as with [`Words`].
    #[derive(Debug)]
    pub struct HandedOver<T: Copy>(std::sync::Mutex<(UnsafeCell<()>, T)>);

    impl<T: Copy> HandedOver<T> {
        /// Returns `value`.
        pub fn new(value: T) -> Self {
            Self(std::sync::Mutex::new((UnsafeCell::new(()), value)))
        }

        /// Stores `value`.
        pub fn store(&self, value: T) {
            let mut touched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            touched.0.with_mut(|_| ());
            touched.1 = value;
        }

        /// Loads the value.
        pub fn load(&self) -> T {
            let touched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            touched.0.with(|_| ());
            touched.1
        }
    }
}
