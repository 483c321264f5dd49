//! Tests of pools and of their buffers.
#![allow(missing_docs)]

mod common;

use std::thread;

use common::{eal, frame, pool};
use dpdk::{Mbuf, Mempool, MempoolConfig, MempoolError};

fn octets(frame: &Mbuf) -> Vec<u8> {
    frame.pieces().flatten().copied().collect()
}

#[test]
fn an_exhausted_pool_gives_none_and_recovers() {
    let pool = pool(63, 256);
    let mut all: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
    assert_eq!(all.len(), pool.capacity());
    assert_eq!(pool.available(), 0);
    assert!(all[0].append_piece(1).is_none(), "a piece needs a buffer too");
    assert_eq!(all[0].piece_count(), 1);
    all.pop();
    assert!(pool.allocate().is_some());
    let mut more = Vec::new();
    assert!(!pool.allocate_many(&mut more, 2), "all or none");
    assert!(more.is_empty());
    drop(all);
    assert!(pool.allocate_many(&mut more, 63));
    drop(more);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn frames_grow_and_shrink_at_both_ends() {
    let pool = pool(7, 256);
    let mut frame = frame(&pool, &[1; 100]);
    let (headroom, tailroom) = (frame.headroom(), frame.tailroom());
    assert_eq!(tailroom, 156);
    frame.prepend(headroom).unwrap().fill(2);
    assert!(frame.prepend(1).is_none());
    frame.append(tailroom).unwrap().fill(3);
    assert!(frame.append(1).is_none());
    assert_eq!(frame.len(), headroom + 256);
    assert!(!frame.trim_front(frame.len() + 1));
    assert!(!frame.trim_back(frame.len() + 1));
    assert!(frame.trim_front(headroom) && frame.trim_back(tailroom));
    frame.first_mut()[99] = 4;
    let mut expected = [1; 100];
    expected[99] = 4;
    assert_eq!(octets(&frame), expected);
}

#[test]
fn a_copy_is_like_its_original() {
    let pool = pool(15, 64);
    let mut original = frame(&pool, &[1; 64]);
    original.append_piece(64).unwrap().fill(2);
    let copy = original.copy(&pool).unwrap();
    original.first_mut().fill(3);
    let mut expected = [1; 128];
    expected[64..].fill(2);
    assert_eq!(octets(&copy), expected);
}

#[test]
fn a_part_is_copied_from_any_piece() {
    let pool = pool(3, 64);
    let mut original = frame(&pool, &[1; 64]);
    original.append_piece(64).unwrap().fill(2);
    let part = original.copy_part(60, 10).unwrap();
    assert_eq!(octets(&part), [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    original.first_mut().fill(3);
    assert_eq!(octets(&part)[..4], [1; 4], "it shares nothing");
    assert!(original.copy_part(120, 8).is_none(), "no buffer is left");
    drop(part);
    assert_eq!(octets(&original.copy_part(127, 1).unwrap()), [2]);
    assert!(original.copy_part(120, 9).is_none(), "beyond the end");
    assert!(original.copy_part(0, 0).is_none(), "nothing");
}

/// The cache of a thread that ends is not lost.
#[test]
fn registered_threads_leave_their_caches_behind() {
    let pool = pool(63, 256);
    let theirs = pool.clone();
    thread::spawn(move || {
        let _registered = eal().register_thread().unwrap();
        let _again = eal().register_thread().unwrap();
        drop(theirs.allocate());
    })
    .join()
    .unwrap();
    let all: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
    assert_eq!(all.len(), pool.capacity());
}

#[test]
fn a_buffer_too_large_is_refused() {
    let config = MempoolConfig { data_octets: u16::MAX, ..MempoolConfig::default() };
    let error = Mempool::new(eal(), config).unwrap_err();
    assert!(matches!(error, MempoolError::DataOctets { most: 65407, .. }), "{error}");
}
