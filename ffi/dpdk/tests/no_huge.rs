//! Tests of the EAL in ordinary memory, as on machines where no hugepage can be reserved.
#![allow(unsafe_code, missing_docs)]

use std::mem::MaybeUninit;
use std::path::Path;
use std::process;
use std::sync::Barrier;
use std::thread;

use dpdk::{Eal, EalError, HugeRegion, Memory, MemoryMode, Mempool, MempoolConfig, MempoolError};

#[test]
fn everything_works_in_ordinary_memory_and_leaves_no_trace() {
    let affinity = affinity();
    assert_eq!(Eal::current(), None);
    let prefix = format!("warpline-no-huge-{}", process::id());
    let builder = Eal::builder().memory(Memory::Ordinary).memory_mib(64).file_prefix(&prefix);
    let eal = builder.clone().init().unwrap();
    assert_eq!(eal.memory_mode(), MemoryMode::Ordinary);
    assert_eq!(Eal::current(), Some(eal));
    assert!(matches!(builder.init(), Err(EalError::AlreadyInitialised)));
    assert_eq!(self::affinity(), affinity, "the thread may run where it might before");
    assert!(!Path::new("/var/run/dpdk").join(prefix).exists());

    // Memory would not do for the fourth pool if those before had stayed.
    for _ in 0..8 {
        let pool = Mempool::new(eal, MempoolConfig::default()).unwrap();
        assert!(pool.allocate().is_some());
    }
    pools_outlast_no_cache(eal);
    let error = Mempool::new(eal, MempoolConfig { mbufs: 65_535, ..MempoolConfig::default() }).unwrap_err();
    assert!(matches!(error, MempoolError::Memory { .. }), "{error}");
    assert!(error.to_string().contains("give the EAL more memory"), "{error}");

    // More than half of the memory, so that the second would fail if the first stayed.
    for _ in 0..2 {
        let region = HugeRegion::new(eal, 36 << 20).unwrap();
        // SAFETY: the region is that long, initialised, and this test alone has it.
        let octets = unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), region.octets()) };
        assert!(octets.iter().all(|octet| *octet == 0));
        octets.fill(1);
        assert_eq!(region.start().as_ptr().addr() % HugeRegion::ALIGNMENT, 0);
    }
    for octets in [1 << 40, usize::MAX, usize::MAX - 4096] {
        let error = HugeRegion::new(eal, octets).unwrap_err().to_string();
        assert!(error.contains("ordinary memory"), "{error}");
    }
    assert!(HugeRegion::new(eal, 0).is_err());

    // An allocation looks through all that is free, so nothing stays free between regions.
    let before = free_elements();
    for octets in [1, 64, 1000, 3968, 3969, 4096, 10_000] {
        let regions: Vec<HugeRegion> = (0..100).map(|_| HugeRegion::new(eal, octets).unwrap()).collect();
        assert!(regions.iter().all(|region| region.octets() == octets));
        let during = free_elements();
        assert!(during <= before + 1, "{octets} octets: {during} free elements, {before} before");
    }
    assert_eq!(free_elements(), before, "what was free is joined again");
}

/// A pool whose last handle goes while a buffer is in the cache of another thread, or in use, is freed once
/// that is back: again, memory would not do for the fourth pool.
fn pools_outlast_no_cache(eal: Eal) {
    for _ in 0..8 {
        let pool = Mempool::new(eal, MempoolConfig::default()).unwrap();
        let theirs = pool.clone();
        let cached = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _registered = eal.register_thread().unwrap();
                drop(theirs.allocate().unwrap());
                drop(theirs);
                cached.wait();
                // The other handle is dropped.
                cached.wait();
            });
            cached.wait();
            drop(pool);
            cached.wait();
        });
    }
    for _ in 0..8 {
        let pool = Mempool::new(eal, MempoolConfig::default()).unwrap();
        let buffer = pool.allocate().unwrap();
        drop(pool);
        drop(buffer);
    }
}

/// Returns how many spans of the EAL's heap are free.
fn free_elements() -> u32 {
    let mut found = MaybeUninit::<dpdk_sys::rte_malloc_socket_stats>::zeroed();
    // SAFETY: the EAL runs, and the structure is numbers alone, for which zeros would do, too.
    unsafe {
        assert_eq!(dpdk_sys::rte_malloc_get_socket_stats(0, found.as_mut_ptr()), 0);
        found.assume_init().free_count
    }
}

fn affinity() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned()
}
