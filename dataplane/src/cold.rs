//! The cold branches of the data plane.
//!
//! A step of the hot path exists once: its first branch is for what nearly always happens, and the rest of
//! it is a function that is hardly ever called. For what the first branch takes the rest would do the same.
//! Tests hold it to that: they have every step, or those that a coin chooses, leave its first branch out.

/// Returns true if a step is to leave its first branch out, though that would do.
#[inline]
pub(crate) fn is_forced() -> bool {
    #[cfg(any(test, feature = "testing"))]
    if forced::is_forced() {
        return true;
    }
    false
}

#[cfg(any(test, feature = "testing"))]
mod forced {
    use core::cell::{Cell, RefCell};

    /// Which steps leave their first branch out.
    enum Steps {
        All,
        /// Each in so many of 256 cases.
        Tossed {
            of_256: u16,
            coin: fastrand::Rng,
        },
    }

    thread_local! {
        static BEGUN: Cell<bool> = const { Cell::new(false) };
        static STEPS: RefCell<Steps> = const { RefCell::new(Steps::All) };
    }

    pub(super) fn is_forced() -> bool {
        BEGUN.get()
            && STEPS.with_borrow_mut(|steps| match steps {
                Steps::All => true,
                Steps::Tossed { of_256, coin } => coin.u16(..256) < *of_256,
            })
    }

    /// Has the steps of this thread leave their first branches out, until it is dropped.
    #[derive(Debug)]
    pub struct ColdBranches(());

    impl ColdBranches {
        /// Has every step take its cold branch.
        #[must_use]
        pub fn begin() -> Self {
            Self::with(Steps::All)
        }

        /// Has each step take it in `of_256` of 256 cases. Which these are follows from `seed`.
        #[must_use]
        pub fn by_coin(of_256: u16, seed: u64) -> Self {
            Self::with(Steps::Tossed { of_256, coin: fastrand::Rng::with_seed(seed) })
        }

        fn with(steps: Steps) -> Self {
            STEPS.set(steps);
            BEGUN.set(true);
            Self(())
        }
    }

    impl Drop for ColdBranches {
        fn drop(&mut self) {
            BEGUN.set(false);
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub use forced::ColdBranches;
