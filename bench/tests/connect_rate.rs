//! Tests of `connect-rate`: what it counts. How fast it is says nothing here.

use std::process::Command;

fn run(arguments: &[&str]) -> (serde_json::Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["connect-rate", "--eal", "--no-huge -m 256", "--json", "-"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// Connections are opened and closed, on two CPUs or on one, one at a time or many.
#[test]
fn connections_come_and_go() {
    let cpu = core_affinity::get_core_ids().unwrap()[0].id.to_string();
    for arguments in [&["-c", "1"][..], &["-c", "64", "--cpus", &cpu]] {
        let (report, said) = run(&[arguments, &["-D", "1"]].concat());
        let connections = report["connections"].as_u64().unwrap();
        assert!(connections > 0, "{report}");
        let per_s = connections as f64 / report["seconds"].as_f64().unwrap();
        assert!((report["per_s"].as_f64().unwrap() / per_s - 1.0).abs() < 0.01, "{report}");
        assert!(report["resident_bytes_per_connection"].is_null() && report["registrations"].is_null());
        assert!(said.contains("connections opened and closed a second"), "{said}");
    }
}

/// As many are open as were asked for, and take memory: more than a kilobyte at either end, and less than
/// what a hundred pages do. Beside them the core is polled, and memory is registered and deregistered, with
/// the ends on two CPUs or on one.
#[test]
fn many_stay_open() {
    let cpu = core_affinity::get_core_ids().unwrap()[0].id.to_string();
    for cpus in [&[][..], &["--cpus", &cpu]] {
        let (report, said) = run(&[&["--open", "3000"], cpus].concat());
        assert_eq!(report["connections"], 3000);
        let bytes = report["resident_bytes_per_connection"].as_u64().unwrap();
        assert!((2 << 10..400 << 10).contains(&bytes), "{bytes} bytes");
        assert!(said.contains("3000 connections are open"), "{said}");
        assert_eq!((&report["registrations"], &report["region_bytes"]), (&1000.into(), &(1 << 20).into()));
        assert!(report["idle_polls"].as_u64().unwrap() > 0, "{report}");
        let us = |key: &str| report[key].as_f64().unwrap();
        for operation in ["register", "deregister"] {
            let [median, most] = ["p50", "p99"].map(|part| us(&format!("{operation}_{part}_us")));
            assert!(0.0 < median && median <= most, "{report}");
        }
        assert!(us("longest_idle_poll_us") > 0.0 && us("longest_registering_poll_us") > 0.0, "{report}");
        assert!(said.contains("1048576 bytes was registered in "), "{said}");
    }
}
