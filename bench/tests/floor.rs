//! Tests of `floor`: which figures there are, and what they are of. How large they are says nothing here.

use std::path::PathBuf;
use std::process::Command;

fn run(name: &str, arguments: &[&str]) -> (serde_json::Value, String) {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["floor", "--eal", "--no-huge -m 256", "--duration", "0.01", "--json"])
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    (report, String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What was handed over is compared with its source by the command itself. The payload of a frame is what an
/// RDMA Write of our own carries in a full segment: 1428 bytes of 1500.
#[test]
fn two_cpus_hand_over_and_one_does_not() {
    let cpus: Vec<_> = core_affinity::get_core_ids().unwrap().iter().map(|cpu| cpu.id).take(2).collect();
    let one = cpus[0].to_string();
    let (report, said) = run("one", &["--mtu", "1500", "--region", "64k", "--crc", "on", "--cpus", &one]);
    assert!(said.contains("no hand-off is measured, which takes two"), "{said}");
    assert_eq!(report["half_round_trip"], serde_json::Value::Null);
    assert_eq!(report["figures"].as_array().unwrap().len(), 1);
    assert_eq!(report["figures"][0]["payload_bytes"], 1428);
    assert_eq!(report["gbit_per_s"], report["figures"][0]["gbit_per_s"]);
    if let [near, far] = cpus[..] {
        let two = format!("{near},{far}");
        let (report, _) = run("two", &["--mtu", "1500,9000", "--region", "64k", "--cpus", &two]);
        assert_eq!(report["cpus"], serde_json::json!([near, far]));
        let figures = report["figures"].as_array().unwrap();
        for kind in ["one-core", "hand-off", "by-reference"] {
            let of_kind: Vec<_> = figures.iter().filter(|figure| figure["kind"] == kind).collect();
            assert_eq!(of_kind.len(), 2 * 2, "MTU, CRC");
            for figure in of_kind {
                let rate = |key: &str| figure[key].as_f64().unwrap();
                assert!(rate("min_gbit_per_s") <= rate("gbit_per_s"));
                assert!(rate("gbit_per_s") <= rate("max_gbit_per_s"));
            }
        }
        let times = &report["half_round_trip"];
        assert!(
            0.0 < times["min_ns"].as_f64().unwrap() && times["min_ns"].as_f64() <= times["p99_ns"].as_f64()
        );
    }
    assert!(report["packet_rate"]["receive_mpps"].as_f64().unwrap() > 0.0);
}

#[test]
fn wrong_regions_are_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_warpline-bench")).args(["floor", "--region", "1"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("'1' is not a region: write 64k to 1024M"));
}
