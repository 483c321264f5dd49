//! Counters of devices and connections.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

use super::byte_streams::{self, section};
use super::ends::*;
use super::handles::*;
use super::streaming::{expect, say, streams};
use crate::byte_stream::*;
use crate::statistics::*;
use crate::work::*;

const EMPTY: Counter = Counter { name: [0x55; WARPLINE_MAX_COUNTER_NAME], value: u64::MAX };

/// Asks how many counters there are, and then for all of them.
fn all(call: impl Fn(*mut Counter, u32) -> c_int) -> BTreeMap<String, u64> {
    let count = call(null_mut(), 0);
    assert!(count > 12, "{count} {}", last_error());
    // The round-trip times may become known in between.
    let mut counters = vec![EMPTY; count as usize + 3];
    let count = call(counters.as_mut_ptr(), counters.len() as u32) as usize;
    assert!((1..=counters.len()).contains(&count), "{count} {}", last_error());
    let named: BTreeMap<_, _> = counters[..count]
        .iter()
        .map(|counter| {
            // SAFETY: a zero byte ends a name: the header says so.
            let name = unsafe { CStr::from_ptr(counter.name.as_ptr()) };
            (name.to_str().unwrap().to_owned(), counter.value)
        })
        .collect();
    assert_eq!(named.len(), count, "each has its own name");
    assert!(named.keys().all(|name| name.len() + 1 < WARPLINE_MAX_COUNTER_NAME), "none is cut");
    named
}

fn of_device(device: &Handle<crate::device::Device>) -> BTreeMap<String, u64> {
    // SAFETY: the handle is good, and there is as much room.
    all(|counters, room| unsafe { warpline_device_counters(device.raw(), counters, room) })
}

/// What became of the segments of a byte stream that have the TCP RDMA option, and its TCP.
pub(super) fn of_byte_stream(stream: &Handle<ByteStream>) -> BTreeMap<String, u64> {
    // SAFETY: as above.
    all(|counters, room| unsafe { warpline_byte_stream_counters(stream.raw(), counters, room) })
}

/// A device counts what was sent and received, a queue pair what its connection did.
#[test]
fn devices_and_queue_pairs_have_counters() {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(&near_device), End::new(&far_device));
    let qp = near.qp.raw();
    // SAFETY: the handle is good.
    assert_eq!(unsafe { warpline_qp_counters(qp, null_mut(), 0) }, -libc::ENOTCONN);
    assert!(last_error().contains("no connection"));
    connect(&far_device, &near, &far);
    let before = of_device(&near_device);
    assert_eq!((before["connections_opened"], before["drops.tcp_checksum"]), (1, 0));
    far.post_recv(1, 0, 4096);
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, 4096)));
    assert_eq!([near.completed().byte_len, far.completed().byte_len], [4096; 2]);
    let after = of_device(&near_device);
    // Sent again, and copied again, only if the machine did not run an end for a while.
    let [copied, again] =
        ["bytes_copied_tx", "tcp.retransmitted_segments"].map(|name| after[name] - before[name]);
    assert!((4096..=4096 * (1 + again)).contains(&copied), "{copied}, {again} segments again");
    assert!(after["fpdus_sent"] > before["fpdus_sent"]);
    assert_eq!(of_device(&far_device)["bytes_copied_rx"], 4096);
    // SAFETY: as above.
    let tcp = all(|counters, room| unsafe { warpline_qp_counters(qp, counters, room) });
    assert_eq!((tcp["sack"], tcp["unsent_bytes"]), (1, 0));
    assert_eq!(tcp["retransmitted_segments"], of_device(&near_device)["tcp.retransmitted_segments"]);
    assert!(tcp["data_segments_sent"] > 0 && tcp["emss_bytes"] > 8900, "{tcp:?}");
}

#[test]
fn streams_have_counters() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    let bytes = vec![7; 100_000];
    say(&near, &bytes);
    expect(&far, &bytes);
    let raw = near.raw();
    // SAFETY: the handle is good, and there is as much room.
    let tcp = all(|counters, room| unsafe { warpline_stream_counters(raw, counters, room) });
    assert!(tcp["data_segments_sent"] > 11 && tcp["rdma_option"] == 0, "{tcp:?}");
    assert_eq!((near.abort(), near.wait_closed(PATIENCE)), (0, -libc::ECONNRESET));
    // SAFETY: as above.
    assert_eq!(unsafe { warpline_stream_counters(raw, null_mut(), 0) }, -libc::ENOTCONN);
}

/// A byte stream says how many bytes of transfers were placed, and why others were not, also when it has
/// ended.
#[test]
fn byte_streams_say_what_was_placed() {
    let (near_device, far_device) = devices();
    let (near, far) = byte_streams::streams(&near_device, &far_device);
    let end = End::new(&near_device);
    assert_eq!(near.expect(7, &end.mr, 0, 3000), 0);
    let body = vec![5; 3000];
    // The second is of a name that nobody expects, and the third leaves the buffer.
    for annotation in [
        section(7, 3000),
        section(8, 3000),
        Annotated { buffer_offset: 1, total_known: crate::extensible::Flag::CLEAR, ..section(7, 0) },
    ] {
        assert_eq!(far.write_annotated(&annotation, &body, PATIENCE), 0);
    }
    let mut read = [0; 3000];
    let (mut placed, mut copied) = (0, 0);
    while placed + copied < 9000 {
        let part = near.read_part(&mut read, PATIENCE).unwrap();
        match part.kind {
            WARPLINE_READ_PLACED => placed += part.length,
            WARPLINE_READ_BYTES => copied += part.length,
            _ => {}
        }
    }
    let all_named = of_byte_stream(&near);
    assert_eq!(all_named["rdma_option"], 1);
    let of_transfers = |named: BTreeMap<String, u64>| -> BTreeMap<_, _> {
        named.into_iter().filter(|(name, value)| name.starts_with("transfers.") && *value > 0).collect()
    };
    let transfers = of_transfers(all_named);
    assert_eq!((placed, transfers["transfers.octets_delivered"]), (3000, 3000), "{transfers:?}");
    assert_eq!((copied, transfers["transfers.octets_refused"]), (6000, 6000), "{transfers:?}");
    assert!(transfers["transfers.unknown_rid"] > 0, "{transfers:?}");
    assert_eq!(of_transfers(of_device(&near_device)), transfers);
    assert_eq!((near.abort(), near.wait_closed(PATIENCE)), (0, -libc::ECONNRESET));
    assert_eq!(of_transfers(of_byte_stream(&near)), transfers);
}

/// Only as many are written as there is room for, and null is told.
#[test]
fn room_is_respected() {
    let (device, _far_device) = devices();
    let mut counters = [EMPTY; 3];
    // SAFETY: the handle is good, and there is more room than that.
    let count = unsafe { warpline_device_counters(device.raw(), counters.as_mut_ptr(), 2) };
    assert!(count > 20);
    assert_eq!(counters.map(|counter| counter.value == u64::MAX), [false, false, true]);
    // SAFETY: null is what the header tells of.
    let results = unsafe {
        [
            warpline_device_counters(device.raw(), null_mut(), 1),
            warpline_device_counters(null(), counters.as_mut_ptr(), 3),
            warpline_qp_counters(null(), counters.as_mut_ptr(), 3),
            warpline_stream_counters(null(), counters.as_mut_ptr(), 3),
            warpline_byte_stream_counters(null(), counters.as_mut_ptr(), 3),
        ]
    };
    assert_eq!(results, [-libc::EINVAL; 5]);
}
