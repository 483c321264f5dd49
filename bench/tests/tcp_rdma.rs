//! Tests of `tcp-rdma`: how often bytes are copied, with the option and without. How fast says nothing here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One program at a time: each polls as fast as it can, and measures.
static ALONE: Mutex<()> = Mutex::new(());

fn run(name: &str, arguments: &[&str]) -> Vec<serde_json::Value> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["tcp-rdma", "--eal", "--no-huge -m 256", "--duration", "0.1", "--json"])
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    report
}

/// The saving that the option is for: one copy at the receiver instead of two. What is sent is copied once.
/// Bytes whose transfers had begun when the counters were read, of 16 transfers at most, make a difference.
#[test]
fn a_placed_byte_is_copied_once() {
    let cpus: Vec<_> = core_affinity::get_core_ids().unwrap().iter().map(|cpu| cpu.id).take(2).collect();
    let [one, all] =
        [&cpus[..1], &cpus[..]].map(|cpus| cpus.iter().map(usize::to_string).collect::<Vec<_>>());
    for cpus in [one.join(","), all.join(",")] {
        let rows = run("copies", &["--size", "16k", "--cpus", &cpus]);
        assert_eq!(rows.len(), 2 * 2, "MTU, option");
        for row in rows {
            let copies = |end: &str| row[format!("copies_{end}")].as_f64().unwrap();
            let expected = if row["option"] == "on" { 1.0 } else { 2.0 };
            let begun = 16.0 * f64::from(16 << 10) / row["bytes"].as_f64().unwrap();
            assert!((expected..expected + 0.1 + begun).contains(&copies("received")), "{row}");
            assert!((1.0..1.1 + begun).contains(&copies("sent")), "{row}");
            assert!(row["compared"].as_u64().unwrap() > 0 && row["bytes"].as_u64().unwrap() > 0, "{row}");
        }
    }
}

/// A segment of a capture whose TCP header has the option of a transfer: the option from its kind on, and the
/// payload.
struct Described {
    option: Vec<u8>,
    payload: Vec<u8>,
}

fn number(octets: &[u8]) -> usize {
    octets.iter().fold(0, |number, octet| number << 8 | usize::from(*octet))
}

/// Reads the segments that describe transfers from a capture (pcapng: draft-ietf-opsawg-pcapng §4.3).
fn transfers_of(capture: &[u8]) -> Vec<Described> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut segments) = (0, Vec::new());
    while at < capture.len() {
        const ENHANCED_PACKET: usize = 6;
        if word(at) == ENHANCED_PACKET {
            let frame = &capture[at + 28..at + 28 + word(at + 20)];
            if frame[12..14] == [8, 0] && frame[23] == 6 {
                let packet = &frame[14..14 + number(&frame[16..18])];
                let tcp = &packet[usize::from(packet[0] & 15) * 4..];
                let (header, payload) = tcp.split_at(usize::from(tcp[12] >> 4) * 4);
                let mut list = &header[20..];
                while let [kind, rest @ ..] = list
                    && *kind != 0
                {
                    let len = if *kind == 1 { 1 } else { usize::from(rest[0]) };
                    if *kind == 25 && len >= 16 {
                        segments.push(Described { option: list[..len].to_vec(), payload: payload.to_vec() });
                    }
                    list = &list[len..];
                }
            }
        }
        at += word(at + 4);
    }
    assert_eq!(at, capture.len(), "the last block is whole");
    segments
}

/// The octet at `offset` of the memory that the program sends transfers from.
const fn sent(offset: usize) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)) as u8
}

/// Of a transfer whose length is known the option has 20 octets, the last four of which say it, else 16; both
/// are placed. The capture shows which, and that the receiver is said to expect them. The fields describe the
/// octets that are in the segment (draft-csapuntz-tcprdma-00 §3.1): transfer `n` begins at `n` times its size
/// in memory for 16 transfers, and its parts follow each other without a gap.
// Requirements: TRO-3.1.4-02, TRO-5.2.2-01, TRO-5.2.2-02
#[test]
fn both_forms_of_the_option_are_placed_and_captured() {
    const SIZE: usize = 16 << 10;
    let directory = tempfile::tempdir().unwrap();
    for (total, octets) in [("on", 20), ("off", 16)] {
        let path = directory.path().join(format!("{total}.pcapng"));
        let arguments = ["--size", "16k", "--mtu", "1500", "--option", "on", "--total", total, "--pcap"];
        let rows = run(total, &[&arguments[..], &[path.to_str().unwrap()]].concat());
        let transfers = &rows[0]["transfers"];
        let count = |name: &str| transfers[name].as_u64().unwrap();
        assert!(count("octets_delivered") >= rows[0]["bytes"].as_u64().unwrap(), "{transfers}");
        assert_eq!((count("octets_refused"), count("unknown_rid")), (0, 0), "{transfers}");
        assert!(rows[0]["compared"].as_u64().unwrap() > 0, "{rows:?}");
        let segments = transfers_of(&std::fs::read(path).unwrap());
        assert!(segments.len() > 100, "{} options", segments.len());
        // How much of each transfer was sent.
        let mut described = BTreeMap::new();
        for Described { option, payload } in segments {
            assert_eq!((option[0], option.len()), (25, octets), "{option:02x?}");
            assert_eq!(usize::from(option[1]), octets, "{option:02x?}");
            let (aligned, unsolicited) = (option[2] & 0x80 != 0, option[2] & 0x40 != 0);
            assert!(!unsolicited, "{option:02x?}");
            // Bits 32 to 45 of the name are zero, the rest is the index of the request (§5.2.1).
            let rid = number(&[&[option[2] & 0x3f], &option[3..8]].concat());
            let [buffer_offset, data_offset, data_len] =
                [8..12, 12..14, 14..16].map(|field| number(&option[field]));
            assert_eq!(aligned, buffer_offset == 0, "a message begins with its transfer: {option:02x?}");
            let data = &payload[data_offset..data_offset + data_len];
            let at = (rid * SIZE + buffer_offset) % (16 * SIZE);
            assert!(
                data.iter().enumerate().all(|(index, octet)| *octet == sent(at + index)),
                "{option:02x?}"
            );
            let so_far = described.entry(rid).or_insert(0);
            assert!(buffer_offset <= *so_far, "{so_far} octets were sent before {option:02x?}");
            *so_far = (*so_far).max(buffer_offset + data_len);
            assert!(*so_far <= SIZE, "{option:02x?}");
            if octets == 20 {
                assert_eq!(number(&option[16..]), SIZE, "{option:02x?}");
            }
        }
        assert!(described.keys().copied().eq(0..described.len()), "requests count from 0");
        let begun = described.values().filter(|octets| **octets < SIZE).count();
        assert!(begun <= 16, "{begun} of {} transfers are not whole", described.len());
    }
}

/// Several measurements have a capture each.
#[test]
fn each_measurement_has_its_capture() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.pcapng");
    run("captures", &["--size", "16k", "--mtu", "1500", "--pcap", path.to_str().unwrap()]);
    let has_options = |name: &str| {
        let capture = std::fs::read(directory.path().join(name)).unwrap();
        assert!(capture.len() > 1000, "{name}");
        !transfers_of(&capture).is_empty()
    };
    assert_eq!(["f-1500-on.pcapng", "f-1500-off.pcapng"].map(has_options), [true, false]);
    assert!(!path.exists());
}

#[test]
fn wrong_times_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["tcp-rdma", "--duration", "0"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--duration is 0.01 to 3600 seconds"));
}
