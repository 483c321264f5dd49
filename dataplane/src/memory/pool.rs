//! Memory for many short uses: blocks of a few sizes, cut from large slabs and joined again.
//!
//! A slab is allocated once, by what the pool was made with, and serves until the pool is dropped. Blocks
//! have powers of two of units. A block that is split leaves its other half free, and two free halves of one
//! block are joined (Knuth, TAOCP 1, 2.5, "buddy system"). So a block neither costs an allocation, nor is it
//! zeroed or touched by the pool.
//!
//! Blocks are taken under a lock, by threads of applications. They go back without one, when the last clone
//! of their [`Region`] is dropped, which may be at a core: it pushes the block to a stack, which the next
//! thread that takes a block empties.

use core::any::Any;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Backing, Region};

/// The smallest block, in bytes.
const UNIT_BYTES: usize = 4 << 10;
/// Blocks of so many units are a slab.
const UNITS_PER_SLAB: usize = 1 << ORDER_MAX;
/// The binary logarithm of the units of a slab.
const ORDER_MAX: u32 = 9;
/// Bytes of a slab. Longer regions are allocated for themselves.
const SLAB_BYTES: usize = UNIT_BYTES * UNITS_PER_SLAB;
/// Of each four bytes that there may be, one is for those who have none yet.
const SPARE_FOURTHS: usize = 3;
/// The end of the stack of returned blocks.
const NONE: u32 = u32::MAX;

/// A block: its first unit, counted over all slabs, and the binary logarithm of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    unit: u32,
    order: u32,
}

impl Block {
    /// Bits of a word that hold an order.
    const ORDER_BITS: u32 = 4;

    const fn bytes(self) -> usize {
        UNIT_BYTES << self.order
    }

    /// The block with which it makes up a block twice as long.
    const fn buddy(self) -> u32 {
        self.unit ^ (1 << self.order)
    }

    /// The slab, and the unit in it.
    const fn place(self) -> (usize, usize) {
        (self.unit as usize / UNITS_PER_SLAB, self.unit as usize % UNITS_PER_SLAB)
    }

    const fn to_word(self) -> u32 {
        self.unit << Self::ORDER_BITS | self.order
    }

    const fn from_word(word: u32) -> Self {
        Self { unit: word >> Self::ORDER_BITS, order: word & ((1 << Self::ORDER_BITS) - 1) }
    }
}

/// The most slabs of a pool, so that a word names each block.
const SLABS_MAX: usize = (NONE as usize >> Block::ORDER_BITS) / UNITS_PER_SLAB;

/// Memory that is cut into blocks.
struct Slab {
    memory: Region,
    /// By the first unit of a returned block: the one returned before it.
    next: [AtomicU32; UNITS_PER_SLAB],
}

/// What a pool has, and what became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionPoolReport {
    /// The most bytes that the pool may allocate.
    pub limit_bytes: usize,
    /// Bytes that it has allocated.
    pub allocated_bytes: usize,
    /// Bytes of blocks that are in use.
    pub used_bytes: usize,
    /// Requests that were refused because no memory was left.
    pub refused: u64,
    /// Requests of those who had memory, and would have had more, that were refused.
    pub spare_refused: u64,
}

/// Where the memory of a pool comes from.
type Allocate = dyn Fn(usize) -> Option<Region> + Send + Sync;

struct Shared {
    allocate: Box<Allocate>,
    limit: usize,
    slabs: Mutex<Slabs>,
    /// The word of the block that was returned last, and no one has taken in.
    returned: AtomicU32,
    allocated: AtomicUsize,
    used: AtomicUsize,
    refused: AtomicU64,
    spare_refused: AtomicU64,
}

#[derive(Default)]
struct Slabs {
    all: Vec<Arc<Slab>>,
    /// The first units of free blocks, by order. The lowest is taken first, so that few slabs are touched.
    free: [BTreeSet<u32>; ORDER_MAX as usize + 1],
}

impl Slabs {
    fn take(&mut self, order: u32) -> Option<Block> {
        let from = (order..=ORDER_MAX).find(|order| !self.free[*order as usize].is_empty())?;
        let unit = self.free[from as usize].pop_first()?;
        for half in order..from {
            self.free[half as usize].insert(unit + (1 << half));
        }
        Some(Block { unit, order })
    }

    fn put(&mut self, mut block: Block) {
        while block.order < ORDER_MAX && self.free[block.order as usize].remove(&block.buddy()) {
            block = Block { unit: block.unit.min(block.buddy()), order: block.order + 1 };
        }
        let is_new = self.free[block.order as usize].insert(block.unit);
        debug_assert!(is_new, "a block is returned once");
    }

    fn add(&mut self, memory: Region) {
        let unit = (self.all.len() * UNITS_PER_SLAB) as u32;
        self.all.push(Arc::new(Slab { memory, next: [const { AtomicU32::new(NONE) }; UNITS_PER_SLAB] }));
        self.put(Block { unit, order: ORDER_MAX });
    }
}

impl Shared {
    /// Takes in the blocks that were returned.
    fn accept_returned(&self, slabs: &mut Slabs) {
        // Acquire: what their last users have done with them is over.
        let mut word = self.returned.swap(NONE, Ordering::Acquire);
        while word != NONE {
            let block = Block::from_word(word);
            let (slab, unit) = block.place();
            word = slabs.all[slab].next[unit].load(Ordering::Relaxed);
            slabs.put(block);
        }
    }

    /// Allocates `bytes` bytes, within the limit. A region of another length is refused: blocks are found in
    /// it by their place, without another look at its length.
    fn allocate(&self, bytes: usize) -> Option<Region> {
        let within = |allocated: usize| allocated.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.allocated.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        let memory = (self.allocate)(bytes).filter(|memory| memory.len() == bytes);
        if memory.is_none() {
            self.allocated.fetch_sub(bytes, Ordering::Relaxed);
        }
        memory
    }

    fn give_back(&self, slab: &Slab, block: Block) {
        self.used.fetch_sub(block.bytes(), Ordering::Relaxed);
        let (word, (_, unit)) = (block.to_word(), block.place());
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            slab.next[unit].store(head, Ordering::Relaxed);
            // The stack is emptied as a whole, so a word that comes back to its head does no harm.
            match self.returned.compare_exchange_weak(head, word, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// Lends regions, of at most so many bytes in all. Clones are the same pool.
#[derive(Clone)]
pub struct RegionPool(Arc<Shared>);

impl RegionPool {
    /// Returns a pool of at most `limit_bytes` bytes, which `allocate` allocates as they are needed: it takes
    /// a number of bytes, and returns a region of exactly so many, or `None` when memory is short.
    pub fn new(
        limit_bytes: usize,
        allocate: impl Fn(usize) -> Option<Region> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            allocate: Box::new(allocate),
            limit: limit_bytes,
            slabs: Mutex::default(),
            returned: AtomicU32::new(NONE),
            allocated: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            spare_refused: AtomicU64::new(0),
        }))
    }

    /// Returns a region of `bytes` bytes, which goes back to the pool when its last clone is dropped; `None`
    /// if no memory is left, or `bytes` is 0. It holds what others have left in it: read nothing of it that
    /// was not written since.
    pub fn take(&self, bytes: usize) -> Option<Region> {
        let taken = self.take_uncounted(bytes);
        self.0.refused.fetch_add(taken.is_none().into(), Ordering::Relaxed);
        taken
    }

    /// Returns a region as [`take`](Self::take) does, of zeros.
    pub fn take_zeroed(&self, bytes: usize) -> Option<Region> {
        let region = self.take(bytes)?;
        let zeros = [0; UNIT_BYTES];
        for at in (0..bytes).step_by(UNIT_BYTES) {
            let written = region.write(at, &zeros[..UNIT_BYTES.min(bytes - at)]);
            debug_assert!(written, "a region has its bytes");
        }
        Some(region)
    }

    /// Returns a region as [`take`](Self::take) does, to a user that has one already: a fourth of the limit
    /// is left to users that have none yet.
    pub fn take_spare(&self, bytes: usize) -> Option<Region> {
        let used = self.0.used.load(Ordering::Relaxed).saturating_add(bytes);
        let taken = if used <= self.0.limit / 4 * SPARE_FOURTHS { self.take_uncounted(bytes) } else { None };
        self.0.spare_refused.fetch_add(taken.is_none().into(), Ordering::Relaxed);
        taken
    }

    fn take_uncounted(&self, bytes: usize) -> Option<Region> {
        if bytes == 0 {
            return None;
        }
        if bytes > SLAB_BYTES {
            let memory = self.0.allocate(bytes)?;
            self.0.used.fetch_add(bytes, Ordering::Relaxed);
            return Some(Region::new(Arc::new(Single { memory, pool: self.0.clone() })));
        }
        let order = bytes.div_ceil(UNIT_BYTES).next_power_of_two().trailing_zeros();
        let (slab, block) = {
            let mut slabs = self.0.slabs.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.accept_returned(&mut slabs);
            let block = slabs.take(order).or_else(|| {
                let memory = if slabs.all.len() < SLABS_MAX { self.0.allocate(SLAB_BYTES) } else { None };
                slabs.add(memory?);
                slabs.take(order)
            })?;
            (slabs.all[block.place().0].clone(), block)
        };
        self.0.used.fetch_add(block.bytes(), Ordering::Relaxed);
        Some(Region::new(Arc::new(Share { slab, block, bytes, pool: self.0.clone() })))
    }

    /// Returns what it has at this moment, and what became of requests so far.
    pub fn report(&self) -> RegionPoolReport {
        RegionPoolReport {
            limit_bytes: self.0.limit,
            allocated_bytes: self.0.allocated.load(Ordering::Relaxed),
            used_bytes: self.0.used.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
            spare_refused: self.0.spare_refused.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for RegionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegionPool").field(&self.report()).finish()
    }
}

/// A block that is in use.
struct Share {
    slab: Arc<Slab>,
    block: Block,
    /// Bytes of the block that were asked for.
    bytes: usize,
    pool: Arc<Shared>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.give_back(&self.slab, self.block);
    }
}

// SAFETY: the block lies inside the region of the slab, which is kept, and which makes the same promises for
// all of its octets. The pool lends it to nobody else before this is dropped.
#[allow(unsafe_code)]
unsafe impl Backing for Share {
    fn start(&self) -> NonNull<u8> {
        let (_, unit) = self.block.place();
        // SAFETY: a slab has all of its units.
        unsafe { self.slab.memory.as_non_null().add(unit * UNIT_BYTES) }
    }

    fn octets(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

/// A region too long for a slab.
struct Single {
    memory: Region,
    pool: Arc<Shared>,
}

impl Drop for Single {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.memory.len(), Ordering::Relaxed);
        self.pool.allocated.fetch_sub(self.memory.len(), Ordering::Relaxed);
    }
}

// SAFETY: the octets are those of the region, which is kept, and makes the same promises.
#[allow(unsafe_code)]
unsafe impl Backing for Single {
    fn start(&self) -> NonNull<u8> {
        self.memory.as_non_null()
    }

    fn octets(&self) -> usize {
        self.memory.len()
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(slabs: usize) -> RegionPool {
        RegionPool::new(slabs * SLAB_BYTES, Region::heap)
    }

    #[test]
    fn a_block_serves_again_once_its_last_clone_is_gone() {
        let pool = pool(1);
        let first = pool.take(SLAB_BYTES).unwrap();
        let (address, clone) = (first.address(), first.clone());
        drop(first);
        assert!(pool.take(1).is_none(), "a clone holds it");
        drop(clone);
        let again = pool.take(100).unwrap();
        assert_eq!((again.address(), again.len()), (address, 100));
        assert!(!again.contains(100, 1), "what was not asked for is not reached");
        let report = pool.report();
        assert_eq!((report.used_bytes, report.allocated_bytes), (UNIT_BYTES, SLAB_BYTES));
        assert_eq!((report.refused, report.spare_refused), (1, 0));
    }

    #[test]
    fn halves_are_joined() {
        let pool = pool(1);
        let units: Vec<Region> = std::iter::from_fn(|| pool.take(UNIT_BYTES)).collect();
        assert_eq!(units.len(), UNITS_PER_SLAB);
        assert_eq!(pool.report().refused, 1, "the last one had no room");
        drop(units);
        assert!(pool.take(SLAB_BYTES).is_some());
    }

    #[test]
    fn zeros_are_asked_for() {
        let pool = pool(1);
        let used = pool.take(10_000).unwrap();
        assert!(used.write(0, &[7; 10_000]));
        drop(used);
        let zeroed = pool.take_zeroed(10_000).unwrap();
        let mut bytes = [1; 10_000];
        assert!(zeroed.read(0, &mut bytes));
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn long_regions_count_and_are_freed() {
        let pool = pool(3);
        let long = pool.take(SLAB_BYTES + 1).unwrap();
        assert_eq!(long.len(), SLAB_BYTES + 1);
        assert!(pool.take(2 * SLAB_BYTES + 1).is_none(), "beyond the limit");
        drop(long);
        assert_eq!(pool.report().allocated_bytes, 0);
        assert!(pool.take(3 * SLAB_BYTES).is_some() && pool.take(usize::MAX).is_none());
    }

    #[test]
    fn a_fourth_is_left_to_those_who_have_none() {
        let pool = pool(1);
        let quarter = SLAB_BYTES / 4;
        let more: Vec<_> = std::iter::from_fn(|| pool.take_spare(quarter)).collect();
        assert_eq!((more.len(), pool.report().spare_refused), (3, 1));
        assert!(pool.take(quarter).is_some());
    }

    #[test]
    fn a_source_that_has_none_left_is_a_refusal() {
        let pool = RegionPool::new(usize::MAX, |_| None);
        assert!(pool.take(1).is_none() && pool.take(SLAB_BYTES + 1).is_none() && pool.take(0).is_none());
        assert_eq!((pool.report().allocated_bytes, pool.report().refused), (0, 3));
    }

    /// A region that is not as long as was asked for is not cut into blocks.
    #[test]
    fn a_source_that_returns_another_length_is_a_refusal() {
        for wrong in [1, SLAB_BYTES - 1, SLAB_BYTES + 1] {
            let pool = RegionPool::new(usize::MAX, move |_| Region::heap(wrong));
            assert!(pool.take(1).is_none() && pool.take(2 * SLAB_BYTES).is_none(), "{wrong}");
            let report = pool.report();
            assert_eq!((report.allocated_bytes, report.used_bytes, report.refused), (0, 0, 2), "{wrong}");
        }
    }

    #[test]
    fn threads_return_what_others_take() {
        let pool = pool(4);
        std::thread::scope(|scope| {
            let (give, take) = std::sync::mpsc::sync_channel::<(u8, Region)>(16);
            scope.spawn(move || {
                for (mark, region) in take {
                    let mut bytes = vec![0; region.len()];
                    assert!(region.read(0, &mut bytes));
                    assert!(bytes.iter().all(|byte| *byte == mark), "it is lent to nobody else");
                }
            });
            for round in 0..5_000_usize {
                let region = pool.take(1 + round * 977 % (1 << 15)).expect("few are in use at a time");
                let mark = round as u8;
                assert!(region.write(0, &vec![mark; region.len()]));
                give.send((mark, region)).expect("it is received");
            }
        });
        assert_eq!(pool.report().used_bytes, 0);
        assert!(pool.report().allocated_bytes <= 4 * SLAB_BYTES);
    }

    proptest! {
        /// Whatever is taken and dropped, no two regions overlap, and all of it is there in the end.
        #[test]
        fn regions_do_not_overlap(
            steps in proptest::collection::vec((0_usize..40, 1_usize..SLAB_BYTES), 1..200),
        ) {
            let pool = pool(4);
            let mut held: Vec<Option<Region>> = vec![None; 40];
            for (place, bytes) in steps {
                if held[place].take().is_none() {
                    held[place] = pool.take(bytes);
                }
                let mut spans: Vec<_> =
                    held.iter().flatten().map(|region| (region.address(), region.len() as u64)).collect();
                spans.sort_unstable();
                prop_assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            }
            held.clear();
            prop_assert_eq!(pool.report().used_bytes, 0);
            let all: Vec<_> = std::iter::from_fn(|| pool.take(SLAB_BYTES)).collect();
            prop_assert_eq!(all.len(), 4);
        }
    }
}
