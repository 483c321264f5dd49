//! Values that are made once, without a lock: in a child of fork(2) no thread goes on that could unlock it.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made when it is first needed, and stays as long as the process.
pub(crate) struct MadeOnce<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> MadeOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the value if it is made.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from the box of `get_or_make`, which is not freed once its pointer is here.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, which `make` makes if there is none. If two threads make it at the same time, one
    /// of the values is dropped.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(made) = self.get() {
            return made;
        }
        let made = Box::into_raw(Box::new(make()));
        let none = std::ptr::null_mut();
        match self.0.compare_exchange(none, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as in `get`.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: it is from the box above, and no other thread has the pointer.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as in `get`: not null, as the exchange expected null.
                unsafe { &*other }
            }
        }
    }

    /// Has the next call make another value, for a child of the process. This one stays as it is.
    pub(crate) fn forget(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Of the values that threads make at the same time one stays, for all of them.
    #[test]
    fn one_value_stays() {
        let (place, counted, barrier) = (MadeOnce::new(), Arc::new(()), Barrier::new(4));
        assert!(place.get().is_none());
        let make = || {
            barrier.wait();
            let made: *const Arc<()> = place.get_or_make(|| {
                barrier.wait();
                counted.clone()
            });
            made.addr()
        };
        let places =
            thread::scope(|scope| [(); 4].map(|()| scope.spawn(make)).map(|made| made.join().unwrap()));
        assert!(places.iter().all(|place| *place == places[0]));
        assert_eq!(Arc::strong_count(&counted), 2, "the others are dropped");
        place.forget();
        assert!(place.get().is_none());
        place.get_or_make(|| counted.clone());
        assert_eq!(Arc::strong_count(&counted), 3, "the first stays as it is");
    }
}
