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

/// What differs from full segments in one thing moves as many of them, and nothing is sent twice.
#[test]
fn cases_like_full_segments_fill_every_poll() {
    let cases = "ipv6-1500,vlan-1500,no-checksums-1500,marks-1500,sack-1500,bytes-1500,transfers-1500,\
                 two-ranges-1500";
    let reports = run("like-segments", cases);
    assert_eq!(reports.len(), 2 * cases.split(',').count());
    for report in reports.iter().filter(|report| report["unit"] == "segment") {
        let (writer, target, name) = (&report["writer"], &report["target"], &report["name"]);
        let expected = match name.as_str().unwrap() {
            "transfers-1500" => "bytes-1500",
            "two-ranges-1500" => "send-1500",
            _ => "segment-1500",
        };
        assert_eq!(report["resembles"], expected, "{name}");
        let polls = writer["polls"].as_u64().unwrap();
        assert_eq!(writer["data_segments_sent"], 32 * polls, "{name}");
        assert_eq!(target["frames_received"], 32 * polls, "{name}");
        // Each poll, and each change of the marks in it.
        let acknowledgements = if name == "marks-1500" { 2 * polls } else { polls };
        assert_eq!(target["frames_sent"], acknowledgements, "{name}: an acknowledgement each");
        assert_eq!(writer["retransmitted_segments"], 0, "{name}");
        assert_eq!((&writer["idle_polls"], &target["idle_polls"]), (&0.into(), &0.into()), "{name}");
    }
}

/// The writer learns of marks where it is told, and of what arrives late: a segment or more in each turn, the
/// last of them not before the acknowledgement has left.
#[test]
fn marks_and_blocks_arrive() {
    let reports = run("disturbed", "segment-1500,marks-1500,sack-1500,marks-packed-64");
    let counted = |name: &str, end: &str, counter: &str| {
        let report = reports.iter().find(|report| report["name"] == name).unwrap();
        report[end][counter].as_u64().unwrap()
    };
    assert_eq!(counted("marks-1500", "writer", "ecn_reductions"), 0);
    assert!(counted("marks-packed-64", "writer", "ecn_reductions") > 0);
    assert_eq!(counted("marks-packed-64", "target", "frames_received"), 64, "a segment in each turn");
    let polls = counted("sack-1500", "target", "polls");
    assert!(counted("sack-1500", "target", "out_of_order_segments") >= polls);
    assert!(counted("sack-1500", "writer", "reordered_segments") >= polls);
    assert_eq!(counted("segment-1500", "target", "out_of_order_segments"), 0);
}

/// 16 messages share a segment, whatever they take at the target.
#[test]
fn cases_like_packed_messages_fill_every_segment() {
    let cases =
        "send-packed-64,two-ranges-packed-64,shared-packed-64,invalidate-packed-64,immediate-packed-8";
    for report in run("like-packed", cases).iter().filter(|report| report["unit"] == "message") {
        let (writer, target, name) = (&report["writer"], &report["target"], &report["name"]);
        let polls = writer["polls"].as_u64().unwrap();
        assert_eq!(writer["data_segments_sent"], polls, "{name}");
        assert_eq!(target["frames_received"], polls, "{name}");
        for messages in [&writer["messages"], &writer["fpdus"], &target["fpdus"]] {
            assert_eq!(messages, 16 * polls, "{name}");
        }
        assert_eq!((&writer["idle_polls"], &target["idle_polls"]), (&0.into(), &0.into()), "{name}");
    }
}

/// One core is both ends: no frame passes its device.
#[test]
fn a_host_reaches_itself() {
    let reports = run("loopback", "loopback-1500");
    let writer = &reports[0]["writer"];
    assert_eq!(reports[0]["target"], serde_json::Value::Null);
    // Both ends are connections of the core, which share what it sends: one sends 32 segments, or what is
    // left of its quantum.
    let (segments, polls) = (&writer["data_segments_sent"], &writer["polls"]);
    let mean = segments.as_f64().unwrap() / polls.as_f64().unwrap();
    assert!((31.0..=32.0).contains(&mean), "{mean} segments a poll");
    for nothing in ["idle_polls", "frames_sent", "frames_received", "retransmitted_segments"] {
        assert_eq!(writer[nothing], 0, "{nothing}");
    }
}

/// Connections that are idle change nothing in what the busy one sends, and have no frames.
#[test]
fn one_connection_is_busy_among_many() {
    let reports = run("idle", "packed-64,beside-10000-idle");
    let [alone, _, among, idle] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((&among["name"], &among["resembles"]), (&"beside-10000-idle".into(), &alone["name"]));
    for end in ["writer", "target"] {
        assert_eq!(among[end], alone[end], "{end}");
        assert_eq!((&idle[end]["frames_sent"], &idle[end]["frames_received"]), (&0.into(), &0.into()));
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

/// Each of several cores does in a poll what one alone does, and takes as many polls as its end has turns.
#[test]
fn each_core_does_what_one_alone_does() {
    for (one, several) in [
        ("packed-64", ["packed-64-2-cores", "packed-64-8-cores"]),
        ("segment-1500", ["segment-1500-2-cores", "segment-1500-8-cores"]),
    ] {
        let reports = run(&format!("cores-{one}"), &[&[one], &several[..]].concat().join(","));
        let busy: Vec<_> = reports.iter().filter(|report| report["unit"] != "poll").collect();
        let [alone, two, eight] = busy[..] else { panic!("{reports:?}") };
        for end in ["writer", "target"] {
            let count = |report: &serde_json::Value, key: &str| report[end][key].as_u64().unwrap();
            assert_eq!(4 * count(two, "polls"), count(eight, "polls"), "{one}");
            for report in [two, eight] {
                let polls = count(report, "polls");
                for key in ["fpdus", "frames_received", "frames_sent", "data_segments_sent"] {
                    assert_eq!(
                        count(report, key) * count(alone, "polls"),
                        count(alone, key) * polls,
                        "{one} {key}"
                    );
                }
                assert_eq!((count(report, "idle_polls"), count(report, "retransmitted_segments")), (0, 0));
            }
        }
    }
}
