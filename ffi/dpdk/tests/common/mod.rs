//! Common start of every test of this crate. The EAL starts once per process, so each file here is one test
//! process.
#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::OnceLock;

use dpdk::{Eal, Mbuf, Mempool, MempoolConfig};

/// The EAL of this test process: hugepages where there are some, ordinary memory else.
pub fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    *EAL.get_or_init(|| Eal::builder().memory_mib(64).init().unwrap())
}

/// A small pool of buffers of `data_octets` each.
pub fn pool(mbufs: u32, data_octets: u16) -> Mempool {
    Mempool::new(eal(), MempoolConfig { mbufs, data_octets, cache_mbufs: 32, ..MempoolConfig::default() })
        .unwrap()
}

/// A frame of one piece.
pub fn frame(pool: &Mempool, octets: &[u8]) -> Mbuf {
    let mut frame = pool.allocate().unwrap();
    frame.append(octets.len()).unwrap().copy_from_slice(octets);
    frame
}
