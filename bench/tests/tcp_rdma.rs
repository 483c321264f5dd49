//! Tests of `tcp-rdma`: how often bytes are copied, with the option and without. How fast says nothing here.

use std::path::PathBuf;
use std::process::Command;

fn run(name: &str, arguments: &[&str]) -> Vec<serde_json::Value> {
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
/// Bytes whose transfers had begun when the counters were read make a difference of some.
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
            assert!((expected..expected + 0.5).contains(&copies("received")), "{row}");
            assert!((1.0..1.5).contains(&copies("sent")), "{row}");
            assert!(row["compared"].as_u64().unwrap() > 0 && row["bytes"].as_u64().unwrap() > 0, "{row}");
        }
    }
}

#[test]
fn wrong_times_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["tcp-rdma", "--duration", "0"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--duration is 0.01 to 3600 seconds"));
}
