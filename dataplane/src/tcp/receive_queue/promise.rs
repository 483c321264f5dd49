//! Windows of readers that may pause: each is a promise of frames, out of an account of the core.
//!
//! A window that was offered does not shrink (RFC 9293 §3.8.6.2.1), so a core offers its windows only as far
//! as its frames hold what peers may send into all of them while no application reads. What an application
//! has room for outside of frames needs no promise.
//!
//! Example: of 8192 frames of 2 KiB, windows may promise 6144, or 5.25 MiB. A ring of 64 KiB is empty, and
//! the usual window is 2 MiB: 64 KiB of it lie in the ring, and the rest is promised, being less than four
//! fifths of what is left. When the reader pauses, the ring fills, then the frames. The next connection is
//! promised four fifths of the 3.3 MiB that are left, at most. When the first reader goes on, the promise
//! shrinks to what it would be if asked for now, but not below what the peer was offered.

use crate::limits;

use super::HeldPool;

/// What the window of one connection was promised.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowPromise {
    /// Octets that frames will hold.
    octets: u32,
    /// Frames that the connection kept when it was last looked at.
    frames: u32,
}

impl WindowPromise {
    /// Returns the octets promised.
    pub const fn octets(self) -> u32 {
        self.octets
    }

    /// Returns the frames of `pool` promised.
    pub const fn frames<F>(self, pool: &HeldPool<F>) -> usize {
        (self.octets as usize).div_ceil(pool.octets_per_frame)
    }

    /// Promises `wanted` octets, or as many as its share of what is left, but no fewer than `least`, if the
    /// frames of one connection hold those. The connection keeps `frames` frames.
    #[inline]
    pub fn renew<F>(&mut self, pool: &mut HeldPool<F>, frames: usize, least: u32, wanted: u32) {
        let others = pool.promised_octets - self.octets as usize;
        let left = pool.promise_octets_max().saturating_sub(others);
        // As if its part were free: that many times what is then left for all.
        let share = left / (limits::HELD_SHARE_IN_ORDER + 1) * limits::HELD_SHARE_IN_ORDER;
        let share = u32::try_from(share).unwrap_or(u32::MAX).min(WINDOW_OCTETS_MAX);
        let renewed = wanted.min(share).max(least.min(WINDOW_OCTETS_MAX));
        pool.promised_octets = others + renewed as usize;
        pool.frames_promised = pool.frames_promised - self.frames as usize + frames;
        *self = Self { octets: renewed, frames: frames as u32 };
    }

    /// Gives back what was promised.
    pub fn end<F>(self, pool: &mut HeldPool<F>) {
        pool.promised_octets -= self.octets as usize;
        pool.frames_promised -= self.frames as usize;
    }
}

/// What the frames of one connection hold at most. Some frames hold parts of segments.
const WINDOW_OCTETS_MAX: u32 =
    (limits::HELD_FRAMES_PER_CONNECTION / 8 * 7 * limits::PROMISED_BYTES_PER_FRAME) as u32;

impl<F> HeldPool<F> {
    /// Octets that windows may promise together.
    const fn promise_octets_max(&self) -> usize {
        self.promised_frames_max() * self.octets_per_frame
    }

    /// The largest window to offer before Full Operation: what the frames of one connection hold, and less
    /// once windows are promised.
    pub fn window_in_startup(&self) -> u32 {
        if self.promised_octets == 0 {
            return WINDOW_OCTETS_MAX;
        }
        let left = self.promise_octets_max().saturating_sub(self.promised_octets);
        let part = u32::try_from(left / limits::PROMISED_PART_IN_STARTUP).unwrap_or(u32::MAX);
        part.max(u16::MAX.into())
    }

    /// Octets that windows were promised.
    pub const fn promised_octets(&self) -> usize {
        self.promised_octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: usize = 8192;
    const ALL_OCTETS: usize = FRAMES / 4 * 3 * limits::PROMISED_BYTES_PER_FRAME;

    /// However many want a window, no more is promised together than frames hold, and each later one has a
    /// part.
    #[test]
    fn windows_share_what_frames_hold() {
        let mut pool = HeldPool::<()>::new(FRAMES, 2048, 0);
        let mut promises = [WindowPromise::default(); 5];
        for (n, promise) in promises.iter_mut().enumerate() {
            let left = ALL_OCTETS - pool.promised_octets();
            promise.renew(&mut pool, 0, 0, 2 << 20);
            let share = (2 << 20).min(left / 5 * 4);
            assert_eq!(promise.octets() as usize, share, "promise {n}");
        }
        assert!(pool.promised_octets() < ALL_OCTETS);
        // Those that ask again become alike.
        for _ in 0..100 {
            for promise in &mut promises {
                promise.renew(&mut pool, 0, 0, 2 << 20);
            }
        }
        let [least, most] = [Iterator::min, Iterator::max].map(|of| of(promises.iter().map(|p| p.octets())));
        assert!(most.unwrap() - least.unwrap() < 100, "{least:?} to {most:?}");
        assert!(least.unwrap() as usize > ALL_OCTETS / 6);
        for promise in promises {
            promise.end(&mut pool);
        }
        assert_eq!((pool.promised_octets(), pool.frames_promised), (0, 0));
    }

    /// What a peer was offered stays promised when nothing is left.
    #[test]
    fn a_promise_is_kept() {
        let mut pool = HeldPool::<()>::new(FRAMES, 2048, 0);
        let mut first = WindowPromise::default();
        first.renew(&mut pool, 0, 2 << 20, 1 << 30);
        let mut others = [WindowPromise::default(); 2];
        for other in &mut others {
            other.renew(&mut pool, 0, 2 << 20, 1 << 30);
        }
        assert!(pool.promised_octets() > ALL_OCTETS, "it was offered");
        let mut second = WindowPromise::default();
        second.renew(&mut pool, 3, 2920, 1 << 20);
        assert_eq!((second.octets(), second.frames(&pool)), (2920, 4));
        first.renew(&mut pool, 0, 1 << 20, 1 << 30);
        assert!(first.octets() >= 1 << 20);
        // The first want no more: the rest is there for the second.
        first.renew(&mut pool, 0, 0, 0);
        for other in others {
            other.end(&mut pool);
        }
        second.renew(&mut pool, 3, 2920, 1 << 20);
        assert_eq!(second.octets(), 1 << 20);
    }

    /// However much windows were promised, because peers were offered it before, others find frames.
    #[test]
    fn strangers_find_frames_beside_promises_beyond_all() {
        let mut pool = HeldPool::<()>::new(FRAMES, 2048, 0);
        let mut promises = [WindowPromise::default(); 8];
        for promise in &mut promises {
            promise.renew(&mut pool, 0, 2 << 20, 2 << 20);
        }
        assert!(pool.promised_octets() > 2 * ALL_OCTETS);
        let left = FRAMES / 4 - limits::HELD_FRAMES_RESERVED;
        for in_startup in [false, true] {
            assert!(pool.accepts_in_order(0, in_startup) && pool.accepts_beyond_gap(0, in_startup));
        }
        assert!(pool.accepts_in_order(limits::HELD_SHARE_IN_ORDER * left - 1, false));
        assert!(!pool.accepts_in_order(limits::HELD_SHARE_IN_ORDER * left, false));
    }

    /// The larger frames are, the fewer a window takes: of 512 frames of 64 KiB sixteen windows leave most.
    #[test]
    fn a_window_takes_few_large_frames() {
        for (frame_octets, frames) in [(1518, 74), (2048, 74), (9018, 16), (65_536, 16)] {
            let mut pool = HeldPool::<()>::new(512, frame_octets, 0);
            let mut promises = [WindowPromise::default(); 16];
            for promise in &mut promises {
                promise.renew(&mut pool, 0, 1 << 16, 1 << 16);
                assert_eq!(promise.frames(&pool), frames, "{frame_octets}");
            }
            // Of a part of 192 frames or of 64, without the reserve, others have four fifths.
            assert_eq!(pool.accepts_in_order(400, false), frames == 16, "{frame_octets}");
        }
    }

    /// Frames that windows were promised are not there for others, whether they are held yet or not.
    #[test]
    fn others_leave_what_is_promised() {
        let mut pool = HeldPool::<()>::new(FRAMES, 2048, 0);
        assert!(pool.accepts_in_order(FRAMES / 2, false));
        let mut promise = WindowPromise::default();
        promise.renew(&mut pool, 0, 0, u32::MAX);
        let promised = promise.octets() as usize / limits::PROMISED_BYTES_PER_FRAME;
        let left = FRAMES - limits::HELD_FRAMES_RESERVED - promised;
        assert!(!pool.accepts_in_order(limits::HELD_SHARE_IN_ORDER * left, false));
        assert!(pool.accepts_in_order(limits::HELD_SHARE_IN_ORDER * left - 1, false));
        pool.expect_promised(promise.frames(&pool));
        assert!(pool.accepts_in_order(promise.frames(&pool) - 1, false));
        promise.end(&mut pool);
    }
}
