//! Tests of `line-rate`: packets and FPDUs are as many as the formats make of a message. How fast they are
//! says nothing here. What is received is compared by the command itself.

use std::path::PathBuf;
use std::process::Command;

fn rows(name: &str, arguments: &[&str]) -> Vec<serde_json::Value> {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["line-rate", "--eal", "--no-huge -m 256", "--duration", "0.1", "--json"])
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let rows = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    rows
}

fn number(row: &serde_json::Value, key: &str) -> f64 {
    row[key].as_f64().unwrap()
}

/// 45 FPDUs of 1448 bytes and one of 1296 carry 64 KiB; 17 FPDUs of 84 bytes carry as many messages of 64.
#[test]
fn segments_are_full_either_way() {
    for row in rows("full", &["--mtu", "1500", "--size", "64,64k", "--connections", "3"]) {
        let per_packet = [("bytes", 1447.0 * 0.99..1448.1), ("fpdus", 1.0..1.1)];
        let small = [("bytes", 12.0 * 84.0..17.0 * 84.0 + 0.1), ("fpdus", 12.0..17.1)];
        for (key, range) in if row["size"] == 64 { small } else { per_packet } {
            let each = number(&row, key) / number(&row, "packets");
            assert!(range.contains(&each), "{key}: {each} a packet of {row}");
        }
        assert_eq!(row["retransmitted_segments"], 0);
    }
}

/// A Marker of 4 bytes in every 512 of the stream; without CRCs the field is there all the same.
#[test]
fn markers_and_crcs_can_be_chosen() {
    let arguments = ["--mtu", "9000", "--size", "4096", "--markers", "on,off", "--crc", "on,off"];
    let rows = rows("markers", &[&arguments[..], &["--packing", "off"]].concat());
    assert_eq!(rows.len(), 2 * 2 * 2);
    for row in rows {
        let each = number(&row, "bytes") / number(&row, "packets");
        let unmarked = 4096.0 + 20.0;
        let expected = if row["markers"] == true { unmarked * 512.0 / 508.0 } else { unmarked };
        assert!((each - expected).abs() < 1.0, "{each} bytes a packet, not {expected}: {row}");
    }
}
