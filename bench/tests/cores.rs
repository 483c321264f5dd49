//! Tests of `cores`: what it counts, and that a stalled core is named. How fast it is says nothing here.

use std::process::Command;

fn run(arguments: &[&str]) -> (serde_json::Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["cores", "--eal", "--no-huge -m 512", "--json", "-"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

fn first_cpu() -> String {
    core_affinity::get_core_ids().unwrap()[0].id.to_string()
}

/// Asserts that the rates of both variants and their ratio are some, from as many pairs.
fn assert_rates(report: &serde_json::Value, pairs: u64) {
    assert_eq!(report["pairs"], pairs, "{report}");
    for key in ["mmsg_per_s", "reference_mmsg_per_s", "gbit_per_s", "reference_gbit_per_s", "cpu_percent"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}: {report}");
    }
    let at = |key: &str| report["ratio"][key].as_f64().unwrap();
    assert!(0.0 < at("lower_quartile") && at("lower_quartile") <= at("median"), "{report}");
    assert!(at("median") <= at("upper_quartile"), "{report}");
}

/// Cores of one device transfer beside separate devices, whatever they share, each with a thread or all with
/// one.
#[test]
fn cores_are_compared_with_devices() {
    let cpu = first_cpu();
    for (arguments, cores) in
        [(&["--pairs", "2"][..], 2), (&["--pairs", "2", "--cores", "3", "--cpus", &cpu, "-q", "2"], 3)]
    {
        let (report, said) = run(&[&["--only", "scale"], arguments].concat());
        let shares: Vec<_> = report["scale"].as_array().unwrap().iter().map(|row| &row["share"]).collect();
        assert_eq!(shares, ["nothing", "domain", "queue"], "{report}");
        for row in report["scale"].as_array().unwrap() {
            assert_eq!((&row["cores"], &row["size"]), (&cores.into(), &64.into()), "{row}");
            assert_rates(row, 2);
        }
        assert!(report["deregister"].is_null() && report["stall"].is_null(), "{report}");
        assert!(said.contains("scale, one completion queue: "), "{said}");
    }
    let (report, _) =
        run(&["--only", "scale", "--share", "nothing", "-D", "0.2", "-s", "64k", "--depth", "8"]);
    assert_eq!(report["scale"][0]["size"], 65_536);
    assert_rates(&report["scale"][0], 2);
}

/// Memory that several cores have is registered and deregistered, with fewer threads than cores. Each core
/// takes a Write to it while it is registered, and refuses the next one: else the command fails.
#[test]
fn memory_of_several_cores_is_deregistered() {
    let cpu = first_cpu();
    let (report, said) = run(&["--only", "deregister", "--pairs", "3", "--cores", "4", "--cpus", &cpu]);
    let row = &report["deregister"];
    assert_eq!((&row["cores"], &row["threads"], &row["registrations"]), (&4.into(), &1.into(), &150.into()));
    assert_eq!(row["cores_checked"], 4, "{report}");
    for operation in ["register", "deregister"] {
        let us = |part: &str| row[format!("{operation}_{part}_us")].as_f64().unwrap();
        let [median, most] = ["p50", "p99"].map(us);
        assert!(0.0 < median && median <= most, "{report}");
    }
    assert!(said.contains("4 idle cores on 1 threads"), "{said}");
}

/// The other cores go on, and what waits for the one that stalls ends when it was to. That it names the core
/// is checked by the command.
#[test]
fn a_stalled_core_is_named() {
    let cpu = first_cpu();
    for arguments in [&["--pairs", "1"][..], &["--pairs", "1", "--cores", "3", "--cpus", &cpu]] {
        let (report, said) = run(&[&["--only", "stall"], arguments].concat());
        let row = &report["stall"];
        assert_rates(row, 1);
        assert_eq!(row["stalled_core"].as_u64().unwrap() + 1, row["cores"].as_u64().unwrap());
        let [patience, failed_in] =
            ["deregister_patience_ms", "deregister_failed_in_ms"].map(|key| row[key].as_f64().unwrap());
        assert!(0.0 < patience && patience <= failed_in, "{report}");
        assert!(said.contains("and named the core"), "{said}");
    }
}

/// Frames go from one core to the other, over a bare ring and by their owner: none stays where it was
/// received, and none is lost, or the command fails. What one takes beyond the other is the difference. It
/// takes two CPUs.
#[test]
fn frames_are_handed_over() {
    let cpu = first_cpu();
    let (report, said) = run(&["--only", "hand-over", "--pairs", "1", "--cpus", &cpu]);
    assert!(report["hand_over"].is_null() && said.contains("takes two CPUs"), "{report} {said}");
    if core_affinity::get_core_ids().unwrap().len() > 1 {
        let (report, _) = run(&["--only", "hand-over", "--pairs", "1"]);
        let row = &report["hand_over"];
        assert_eq!(row["pairs"], 1, "{report}");
        let [over, bare] = ["hand_over_ns", "bare_ns"].map(|key| row[key].as_f64().unwrap());
        assert!(over > 0.0 && bare > 0.0, "{report}");
        for quartile in ["lower_quartile", "median", "upper_quartile"] {
            let beyond = row["beyond_ns"][quartile].as_f64().unwrap();
            assert!((beyond - (over - bare)).abs() < 1e-6, "{quartile}: {report}");
        }
    }
}
