//! Tests of the benchmark's command line: the transfers are verified, each report has its documented keys,
//! and an impossible request ends with a one-line error.

use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline-bench")).args(arguments).output().unwrap()
}

fn temporary(name: &str) -> PathBuf {
    // Cargo's directory for files of tests: no other user can create the file first.
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}-{name}", std::process::id()))
}

/// Runs `write-bw` on the ring and returns its JSON report.
fn measure(name: &str, arguments: &[&str]) -> serde_json::Value {
    let json = temporary(name);
    let path = json.to_str().unwrap();
    // Long enough for any machine, however busy: no test waits for it to pass.
    let output = bench(&[&["write-bw", "--timeout", "120", "--json", path], arguments].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    report
}

/// Every way to set a connection up carries the same octets.
#[test]
fn revisions_and_indications_can_be_chosen() {
    for (name, arguments) in [
        ("rev0", &["--revision", "0", "--permissive"][..]),
        ("rev1", &["--revision", "1"]),
        ("rev2", &["--revision", "2", "--ird", "0", "--ord", "128"]),
        ("write", &["--revision", "2", "--rtr", "write"]),
        ("read", &["--revision", "2", "--rtr", "read"]),
        ("send", &["--revision", "2", "--rtr", "send"]),
        ("none", &["--revision", "2", "--rtr", "none"]),
        ("unnegotiated", &["--unnegotiated", "--rtr", "send,read"]),
    ] {
        let report = measure(name, &[&["--size", "4k", "--iters", "200"], arguments].concat());
        assert_eq!((&report["messages"], &report["corrupt_bytes"]), (&200.into(), &0.into()), "{name}");
    }
}

/// A single CPU polls both ends in one loop and shares its time with the other tests.
#[test]
fn one_cpu_polls_both_ends() {
    // Whichever the process may use: a container's CPUs need not begin at 0.
    let allowed = core_affinity::get_core_ids().unwrap()[0].id;
    let cpu = &*allowed.to_string();
    let report = measure(
        "one-cpu",
        &["--cpus", cpu, "--mtu", "9000", "--size", "64k", "--iters", "300", "--qps", "2"],
    );
    assert_eq!(report["cpus"], serde_json::json!([allowed]));
    assert_eq!((&report["messages"], &report["corrupt_bytes"]), (&600.into(), &0.into()));
    let output = bench(&["ping", "--timeout", "120", "--cpus", cpu, "-S", "20000", "-C", "50"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(&format!("polling: CPU {cpu}, both ends in one loop")),
        "{said}"
    );
    let refused = bench(&["write-bw", "--cpus", "1023"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("CPU 1023 cannot be used"));
}

/// Of several cores one pings; the frames of all are in the capture.
#[test]
fn one_of_several_cores_pings() {
    let directory = tempfile::tempdir().unwrap();
    let [capture, report] = ["capture", "report"].map(|name| directory.path().join(name));
    let [pcap, json] = [&capture, &report].map(|path| path.to_str().unwrap());
    let line =
        ["--cores", "2", "--core", "1", "--events", "-C", "20", "--connections", "2", "--timeout", "120"];
    let output = bench(&[&["ping", "--pcap", pcap, "--json", json], &line[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let [part] = &report["by_core"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&part["core"], &part["connections"], &part["pings"]), (&1.into(), &2.into(), &40.into()));
    // Six messages a ping, each a frame of more than 64 bytes.
    assert!(std::fs::metadata(capture).unwrap().len() > 40 * 6 * 64);
}

#[test]
fn the_report_has_its_keys() {
    let report = measure("keys", &["--mtu", "9000", "--size", "64k", "--iters", "500"]);
    for key in [
        "test",
        "device",
        "mtu",
        "size",
        "qps",
        "depth",
        "markers",
        "crc",
        "cpus",
        "duration_s",
        "messages",
        "bytes",
        "gbit_per_s",
        "peak_gbit_per_s",
        "mmsg_per_s",
        "verify",
        "verified",
        "compared_bytes",
        "compared_fraction",
        "corrupt_bytes",
        "retransmitted_segments",
        "out_of_order_segments",
        "held_frames_peak",
        "bytes_copied_rx",
        "bytes_copied_tx",
    ] {
        assert!(report.get(key).is_some(), "{key} is missing");
    }
    assert_eq!((&report["messages"], &report["verified"]), (&500.into(), &true.into()));
    assert_eq!(report["bytes"], 500 * 65_536);
    assert_eq!(report["corrupt_bytes"], 0);
    // Once to receive, once to send, and again with each retransmission, which happens if a busy machine
    // delays one end.
    let octets = 500.0 * 65_536.0;
    let again = 9000.0 * report["retransmitted_segments"].as_f64().unwrap() / octets;
    for (copied, most) in [("bytes_copied_rx", 1.001), ("bytes_copied_tx", 1.001 + again)] {
        let per_octet = report[copied].as_f64().unwrap() / octets;
        assert!((1.0..most).contains(&per_octet), "{copied}: {per_octet} an octet");
    }
}

#[test]
fn markers_small_frames_and_many_queue_pairs_are_verified() {
    let cases: [&[&str]; 4] = [
        &["--size", "100000", "--iters", "50", "--markers", "on"],
        &["--size", "1", "--iters", "2000", "--depth", "7"],
        &["--size", "5000", "--iters", "300", "--qps", "4", "--mtu", "576"],
        &["--size", "8M", "--iters", "3", "--crc", "off", "--mtu", "4000"],
    ];
    for (n, case) in cases.into_iter().enumerate() {
        let report = measure(&format!("case{n}"), &[case, &["--verify", "all"]].concat());
        assert_eq!(report["corrupt_bytes"], 0, "{case:?}");
        assert_eq!(report["compared_bytes"], report["bytes"], "{case:?}");
    }
}

#[test]
fn a_capture_holds_the_run() {
    let capture = temporary("pcapng");
    let path = capture.to_str().unwrap();
    measure("capture", &["--size", "4k", "--iters", "20", "--pcap", path]);
    let octets = std::fs::read(&capture).unwrap();
    std::fs::remove_file(capture).unwrap();
    assert_eq!(octets[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng section");
    assert!(octets.len() > 20 * 4096);
    let request = b"MPA ID Req Frame";
    assert!(octets.windows(request.len()).any(|window| window == request), "the startup is in it");
}

/// Wireshark's dissector verifies the checksums, where it is installed. The far end of the ring leaves its
/// checksums to hardware, which a ring does not have.
#[test]
fn a_capture_has_no_bad_checksum() {
    let capture = temporary("checksums.pcapng");
    let path = capture.to_str().unwrap();
    measure("checksums", &["--size", "64k", "--iters", "200", "--pcap", path]);
    let count = |filter: &str| {
        let checks = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"];
        let output =
            Command::new("tshark").args(["-n", "-r", path]).args(checks).args(["-Y", filter]).output();
        output.map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).lines().count()
        })
    };
    let counts = count("tcp.checksum.status == Good && ip.checksum.status == Good")
        .and_then(|good| Ok((good, count("tcp.checksum.status == Bad || ip.checksum.status == Bad")?)));
    std::fs::remove_file(&capture).unwrap();
    match counts {
        Ok((good, bad)) => assert!(good > 200 && bad == 0, "{good} frames are good, {bad} are bad"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => eprintln!("tshark is not installed"),
        Err(error) => panic!("tshark: {error}"),
    }
}

/// The error is one clear line that names the remedy.
#[test]
fn what_cannot_be_is_said_in_one_line() {
    let cases: [(&[&str], &str); 5] = [
        (&["write-bw", "--device", "tap:t"], "--listen ADDR:PORT"),
        (
            &["write-bw", "--device", "tap:t,mtu=1400", "--mtu", "1400", "198.18.0.1:1"],
            "'mtu' is given twice",
        ),
        (&["write-bw", "--listen", "198.18.0.1:1"], "leave out --listen"),
        (
            &["write-bw", "--device", "af_packet:wl-none", "--listen", "198.18.0.1:1"],
            "there is no interface 'wl-none'",
        ),
        (
            &["write-bw", "--json", "/nonexistent/dir/file", "--size", "64", "--iters", "1"],
            "/nonexistent/dir/file",
        ),
    ];
    for (arguments, expected) in cases {
        let output = bench(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("warpline-bench: ") && last.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn wrong_command_lines_are_refused() {
    for arguments in [
        &["write-bw", "--device", "teleport"][..],
        &["write-bw", "--device", "af_packet", "--listen", "198.18.0.1:1"],
        &["write-bw", "--device", "pci:eth0", "--listen", "198.18.0.1:1"],
        &["write-bw", "--size", "0"],
        &["write-bw", "--mtu", "100"],
        &["write-bw", "--qps", "0"],
        &["write-bw", "--iters", "10", "--duration", "1"],
        &["write-bw", "--markers", "maybe"],
        &["read-bandwidth"],
        &[],
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
