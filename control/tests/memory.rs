//! Registered memory: who reaches it, and when it may go.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{End, PATIENCE, Pair, eventually_unused};
use warpline::{
    Access, Addressing, CloseError, DeregisterError, MemoryError, Region, Slice, Status, StreamError,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};
use warpline_dataplane::rdmap::RdmapError;

/// DDP-8.3.1-07: memory that a send reads is not taken back under it; once the send is done it is.
#[test]
fn memory_stays_while_sends_read_from_it() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let source = near.domain.allocate(100_000, Access::empty()).unwrap();
    source.fill(1);
    // Acknowledgements are lost for a while, so the Write stays outstanding.
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    let target = far.memory.advertisement(0, 100_000).unwrap();
    near.qp.post_write(1, source.slice(0, 100_000), &target, 0).unwrap();
    let error = source.deregister(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, DeregisterError::InUse(_)), "{error}");
    let source = error.into_region();
    assert_eq!(source.to_vec(0, 1).unwrap(), [1], "it is still there");

    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    source.deregister(PATIENCE).unwrap();
    let completion = near.completion();
    assert_eq!((completion.id, completion.status), (1, Status::Success));
    assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), vec![1; 100_000]);
}

/// As above, but dropped: the drop returns soon, and the Write is done all the same.
#[test]
fn memory_may_be_dropped_while_sends_read_from_it() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let source = near.domain.allocate(100_000, Access::empty()).unwrap();
    source.fill(2);
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    let target = far.memory.advertisement(0, 100_000).unwrap();
    near.qp.post_write(1, source.slice(0, 100_000), &target, 0).unwrap();
    drop(source);
    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), vec![2; 100_000]);
    drop((near, far));
    eventually_unused(&pair.near);
}

/// DDP-7.1-10, DDP-8.3.1-07: a name that was taken back names nothing, however soon it is used.
#[test]
fn a_deregistered_name_is_dead() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let target = far.domain.allocate(4096, Access::REMOTE_WRITE).unwrap();
    let (advertisement, memory) = (target.advertisement(0, 4096).unwrap(), target.region().clone());
    near.memory.fill(7);
    near.qp.post_write(1, near.memory.slice(0, 100), &advertisement, 0).unwrap();
    assert_eq!(near.completion().status, Status::Success);
    target.deregister(PATIENCE).unwrap();
    near.qp.post_write(2, near.memory.slice(0, 100), &advertisement, 200).unwrap();
    let Err(CloseError::Failed(error)) = near.qp.wait_closed(PATIENCE) else { panic!("accepted") };
    assert_eq!(error, StreamError::Terminated { layer: 1, error_type: 1, code: 0 });
    let mut octets = [0; 300];
    assert!(memory.read(0, &mut octets));
    assert_eq!((octets[..100].to_vec(), octets[100..].to_vec()), (vec![7; 100], vec![0; 200]));
}

/// DDP-8.2-01, DDP-8.3.1-02, DDP-8.3.1-06: another domain's memory, and memory without the right, are out of reach.
#[test]
fn domains_and_rights_hold() {
    let cases = [
        (Access::REMOTE_WRITE, true, StreamError::Ddp(DdpError::NotAssociated)),
        (Access::LOCAL_WRITE, false, StreamError::Rdmap(RdmapError::AccessRights)),
    ];
    for (access, other_domain, error) in cases {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        let domain = if other_domain { pair.far.protection_domain() } else { far.domain.clone() };
        let target = domain.allocate(4096, access).unwrap();
        let advertisement = target.advertisement(0, 4096).unwrap();
        near.qp.post_write(1, near.memory.slice(0, 100), &advertisement, 0).unwrap();
        assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
        assert_eq!(target.to_vec(0, 4096).unwrap(), vec![0; 4096]);
    }
}

/// A work request on memory of ours that is not there fails, and with it the stream (RDMAP-7.1-01): what was posted before is
/// done, what was posted behind it is not, as with any queue pair.
#[test]
fn a_local_range_that_is_not_registered_ends_the_stream() {
    for (offset, octets, other_key) in [(End::OCTETS - 10, 11, 0), (0, 1, 0x1_0000)] {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        let target = far.memory.advertisement(0, 4096).unwrap();
        near.write(1, &far, 100);
        let slice = near.memory.slice(offset, octets);
        let bad = Slice { stag: warpline::STag(slice.stag.0 ^ other_key), ..slice };
        near.qp.post_write(2, bad, &target, 0).unwrap();
        let late = near.qp.post_write(3, near.memory.slice(0, 100), &target, 0);
        let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
        // The third may come too late to be posted.
        let count = if late.is_ok() { 3 } else { 2 };
        let ends: Vec<_> = (0..count).map(|_| near.completion()).map(|end| (end.id, end.status)).collect();
        assert_eq!(ends, expected[..count]);
        let told = StreamError::Terminated { layer: 0, error_type: 0, code: 0 };
        assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(told)));
    }
}

#[test]
fn tagged_offsets_count_from_the_address_or_from_zero() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = Region::heap(4096).unwrap();
    let by_address = far.domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::Address).unwrap();
    let zero_based =
        far.domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::ZeroBased).unwrap();
    assert_eq!((by_address.to(5), zero_based.to(5)), (region.address() + 5, 5));
    assert!(by_address.advertisement(0, 4097).is_none());
    assert!(near.memory.write(0, b"ab"));
    for (id, target) in [(0, &by_address), (1, &zero_based)] {
        let advertisement = target.advertisement(100, 2).unwrap();
        near.qp.post_write(id, near.memory.slice(id as usize, 1), &advertisement, id).unwrap();
        assert_eq!(near.completion().status, Status::Success);
    }
    assert_eq!(zero_based.to_vec(100, 2).unwrap(), b"ab", "both name the same memory");
}

#[test]
fn no_memory_is_an_error() {
    let pair = Pair::new();
    let domain = pair.near.protection_domain();
    for octets in [0, usize::MAX] {
        let error = domain.allocate(octets, Access::empty()).unwrap_err();
        assert_eq!(error, MemoryError::OutOfMemory { octets });
    }
}
