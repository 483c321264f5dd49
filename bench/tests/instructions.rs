//! Tests of the transfers whose instructions `scripts/bench` counts: each unit is what its name says, and no
//! poll is idle.

use std::path::PathBuf;
use std::process::Command;

fn run(name: &str, cases: &str) -> Vec<serde_json::Value> {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["instructions", "--eal", "--no-huge -m 256", "--cases", cases, "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let reports = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    reports
}

/// 16 Writes of 64 bytes are 16 FPDUs of 84 bytes: ULPDU_Length, 14 bytes of DDP and RDMAP headers, payload
/// and CRC, a multiple of four. They fit one segment of 1448 bytes.
#[test]
fn small_messages_share_segments_or_not() {
    let reports = run("small", "packed-64,single-64");
    let [packed, packed_idle, single, single_idle] = &reports[..] else { panic!("{reports:?}") };
    for (report, segments) in [(packed, 256), (single, 16 * 128)] {
        let (writer, target) = (&report["writer"], &report["target"]);
        assert_eq!(writer["data_segments_sent"], segments);
        assert_eq!(target["frames_received"], segments);
        for messages in [&writer["messages"], &writer["fpdus"], &target["fpdus"]] {
            assert_eq!(messages, 16 * writer["polls"].as_u64().unwrap());
        }
        assert_eq!((&writer["idle_polls"], &target["idle_polls"]), (&0.into(), &0.into()));
    }
    for idle in [packed_idle, single_idle] {
        for end in [&idle["writer"], &idle["target"]] {
            assert_eq!(end["polls"], end["idle_polls"]);
            assert_eq!((&end["frames_sent"], &end["frames_received"]), (&0.into(), &0.into()));
        }
    }
}

/// Every poll moves a full burst, each frame of it once.
#[test]
fn large_messages_fill_every_poll() {
    for report in
        run("large", "segment-1500,segment-9000").iter().filter(|report| report["unit"] == "segment")
    {
        let (writer, target) = (&report["writer"], &report["target"]);
        let polls = writer["polls"].as_u64().unwrap();
        assert_eq!(writer["data_segments_sent"], 32 * polls);
        assert_eq!(target["frames_received"], 32 * polls);
        assert_eq!(writer["retransmitted_segments"], 0);
        let octets = 32 * polls * (report["mtu"].as_u64().unwrap() - 72);
        let messages = writer["messages"].as_u64().unwrap();
        // The payload of full segments, but for the shorter last one of a message.
        assert!((octets * 9 / 10..=octets).contains(&(messages * 65_536)), "{messages} messages");
    }
}

#[test]
fn an_unknown_case_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(["instructions", "--cases", "packed-65"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no case 'packed-65', only segment-1500"), "{said}");
}

/// The state of each of 1024 connections is used once before it is another's turn again.
#[test]
fn many_connections_take_turns() {
    let reports = run("spread", "spread-64");
    let (writer, target) = (&reports[0]["writer"], &reports[0]["target"]);
    assert_eq!(writer["messages"], 16 * 256, "four for each connection");
    for counted in [&writer["data_segments_sent"], &writer["fpdus"], &target["fpdus"], &target["frames_sent"]]
    {
        assert_eq!(counted, &writer["messages"], "a segment and an acknowledgement each");
    }
    assert_eq!((&writer["idle_polls"], &target["idle_polls"]), (&0.into(), &0.into()));
}
