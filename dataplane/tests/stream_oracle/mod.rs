//! Applications at both ends of a byte stream (draft-csapuntz-tcprdma-00), which write and read what a random
//! plan says. The stream is the truth: whatever happens to options, what a reader is told, octet after
//! octet, is what the other end has written, and no octet outside of a buffer changes, nor one inside after
//! its transfer is over.

#![allow(dead_code, reason = "streams are cut off in the swarm only")]

pub(super) mod bell;
pub(super) mod plan;
pub(super) mod receiver;
pub(super) mod sender;

use warpline_dataplane::memory::Region;
use warpline_dataplane::wire::tcp_rdma::Rid;

fn rid(bits: u64) -> Rid {
    Rid::new(bits).expect("46 bits")
}

/// A region that holds `octets`.
fn region_of(octets: &[u8]) -> Region {
    let region = Region::heap(octets.len()).expect("memory");
    assert!(region.write(0, octets));
    region
}
