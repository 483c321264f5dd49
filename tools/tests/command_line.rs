//! Tests of the rigs' command lines: each report has its documented keys, and an impossible request ends with
//! a one-line error.

use std::path::PathBuf;
use std::process::{Command, Output};

fn tools(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline-tools")).args(arguments).output().unwrap()
}

fn temporary(name: &str) -> PathBuf {
    // Cargo's directory for files of tests: no other user can create the file first.
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tools-{}-{name}", std::process::id()))
}

/// RFC 5044 appendix B.2: FPDUs that are not aligned make the receiver keep a part of one for each
/// connection. With aligned FPDUs the kept octets do not grow with the connections, and with Markers the
/// receiver keeps nothing. Every FPDU is placed, and each octet of user data is copied once.
// Requirements: MPA-B.1-01
#[test]
fn reassembly_grows_with_connections_only_where_fpdus_are_not_aligned() {
    let (json, svg) = (temporary("reassembly-json"), temporary("reassembly-svg"));
    let files = ["--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let output = tools(&[&["reassembly", "--connections", "25,100"], &files[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let plot = std::fs::read_to_string(&svg).unwrap();
    for file in [json, svg] {
        std::fs::remove_file(file).unwrap();
    }
    assert!(plot.starts_with("<svg") && plot.matches("<circle").count() == 6, "{plot}");
    let outcomes = report.as_array().unwrap();
    let held = |connections: u64, framing: &str| {
        let outcome = outcomes
            .iter()
            .find(|outcome| outcome["connections"] == connections && outcome["framing"] == framing);
        outcome.unwrap()["held_frames_peak"].as_u64().unwrap()
    };
    assert!(held(25, "unaligned") >= 25 && held(100, "unaligned") >= 100, "{report}");
    let [few, many] = [25, 100].map(|connections| held(connections, "aligned"));
    assert!((1..=32).contains(&few) && (1..=32).contains(&many), "{report}");
    assert_eq!([25, 100].map(|connections| held(connections, "aligned-markers")), [0, 0], "{report}");
    for outcome in outcomes {
        assert_eq!(outcome["fpdus"], outcome["connections"].as_u64().unwrap() * 40);
        assert_eq!(outcome["copied_per_byte"], 1.0);
        assert!(outcome["out_of_order_segments"].as_u64().unwrap() > 20, "{report}");
        assert_eq!(outcome["retransmitted_segments"], 0, "{report}");
    }
}

/// Two devices that receive blank frames endlessly and accept every frame for transmission.
const ENDLESS: [&str; 5] = ["impair", "--left", "eal:net_null0,size=64", "--right", "eal:net_null1,size=64"];

#[test]
fn impair_does_what_it_is_told_and_counts_it() {
    let json = temporary("impair");
    let told = ["--loss", "10%", "--duplicate", "0.2", "--way", "to-right", "--duration", "1", "--json"];
    let eal = ["--eal", "--no-huge -m 160"];
    let output = tools(&[&ENDLESS[..], &told, &[json.to_str().unwrap()], &eal].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ready"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("left to right"));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    let count = |way: &str, what: &str| report[way][what].as_u64().unwrap();
    let [received, lost, duplicated] = ["received", "lost", "duplicated"].map(|what| count("to_right", what));
    assert!(received > 10_000, "{report}");
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    assert!((0.08..0.12).contains(&share(lost, received)), "{report}");
    assert!((0.18..0.22).contains(&share(duplicated, received - lost)), "{report}");
    assert_eq!(count("to_right", "queue_full"), 0, "{report}");
    // The other direction loses nothing: a frame that has not left yet is still in flight.
    assert!(count("to_left", "delivered") > 10_000, "{report}");
    assert_eq!((count("to_left", "lost"), count("to_left", "duplicated")), (0, 0), "{report}");
}

#[test]
fn impair_ends_with_its_input() {
    let output = tools(&[&ENDLESS[..], &["--eal", "--no-huge -m 160", "--delay", "1ms"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The error is one clear line that names the remedy.
#[test]
fn what_cannot_be_is_said_in_one_line() {
    let cases: [(&[&str], &str); 2] = [
        (&["impair", "--left", "eal:net_null0", "--right", "eal:net_none0"], "net_none0"),
        (
            &[
                "exchange",
                "--device",
                "tap:t,address=198.18.0.1",
                "--listen",
                "7471",
                "--send",
                "/nonexistent/file",
                "--receive",
                "/dev/null",
                "--receive-octets",
                "1",
            ],
            "warpline-tools: /nonexistent/file: No such file or directory (os error 2)",
        ),
    ];
    for (arguments, expected) in cases {
        let output = tools(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("warpline-tools: ") && last.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn wrong_command_lines_are_refused() {
    for arguments in [
        &["reassembly", "--connections", "0"][..],
        &["reassembly", "--connections", "10,70000"],
        &["impair", "--left", "eal:net_null0"],
        &["impair", "--left", "eal:net_null0", "--right", "eal:net_null1", "--loss", "2"],
        &["impair", "--left", "eal:net_null0", "--right", "eal:net_null1", "--delay", "1"],
        &["exchange"],
        &[],
    ] {
        let output = tools(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
