//! perftest's family: both ends in one process, and in two. What a report says is compared with what was
//! asked for; no test depends on how long anything takes.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use signal_hook::consts::SIGSEGV;

/// All tests poll on the same CPUs, one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
    // Long enough for any machine, however busy: no test waits for it to pass.
    command.args(arguments).args(["--timeout", "120"]);
    command
}

fn temporary(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("perftest-{}-{name}", std::process::id()))
}

fn read_report(path: PathBuf) -> Value {
    let report = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    report
}

/// The words that have one CPU poll both ends: the program then need not look for idle ones.
fn together() -> [String; 2] {
    // Whichever the process may use: a container's CPUs need not begin at 0.
    ["--cpus".into(), core_affinity::get_core_ids().unwrap()[0].id.to_string()]
}

/// Runs a test on the ring. Returns what it printed, and its report.
fn run(name: &str, line: &str) -> (String, Value) {
    let json = temporary(name);
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = bench(&words);
    if name != "both" {
        command.args(together());
    }
    let output = command.args(["--json", json.to_str().unwrap()]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {errors}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), read_report(json))
}

fn measure(name: &str, line: &str) -> Value {
    run(name, line).1
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

/// The last line of the error output of a run that has to fail.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).trim_end().lines().last().unwrap_or_default().to_owned()
}

/// Every bandwidth test moves as many bytes as it was asked to, and compares some, all or none of them.
#[test]
fn bandwidth_tests_move_and_compare_what_they_are_asked_to() {
    let _turn = turn();
    for (verb, size) in [("write", 5000), ("read", 5000), ("send", 5000), ("atomic", 8)] {
        for verify in ["sample", "all", "off"] {
            let sizes = if verb == "atomic" { String::new() } else { format!("-s {size}") };
            let line = format!("{verb}-bw {sizes} -n 700 -q 2 --verify {verify}");
            let report = measure(&format!("{verb}-{verify}"), &line);
            assert_eq!(report["test"], format!("{verb}-bw"));
            assert_eq!((number(&report, "messages"), number(&report, "size")), (1400, size), "{line}");
            assert_eq!(number(&report, "bytes"), 1400 * size, "{line}");
            assert_eq!(number(&report, "corrupt_bytes"), 0, "{line}");
            let compared = number(&report, "compared_bytes");
            match verify {
                "off" => assert_eq!(compared, 0, "{line}"),
                "all" => assert_eq!(compared, 1400 * size, "{line}"),
                _ => assert!(compared >= 2 * size && compared < 140 * size, "{line}: {compared}"),
            }
            assert_eq!(report["compared_fraction"], compared as f64 / (1400 * size) as f64, "{line}");
            // The bytes that came into buffers: each of them once, as far as the core has copied them.
            if verb != "atomic" {
                assert!(number(&report, "bytes_copied_rx") >= 1400 * size, "{line}: {report}");
            }
            assert!(report["gbit_per_s"].as_f64().unwrap() > 0.0);
        }
    }
}

/// Both ends send: twice as many messages, and no more.
#[test]
fn both_directions_are_added_up() {
    let _turn = turn();
    for line in [
        "write-bw -s 3000 -n 400 -b -q 2",
        "write-bw -s 3000 -n 400 -b -q 2 --verify all --region 64k",
        "read-bw -s 3000 -n 400 -b -q 2",
        "send-bw -s 3000 -n 400 -b -q 2 --use-srq",
        "atomic-bw -n 400 -b -q 2 -A CMP_AND_SWAP --verify all",
    ] {
        let report = measure("both", line);
        assert_eq!((number(&report, "messages"), &report["bidirectional"]), (1600, &json!(true)), "{line}");
        assert_eq!(number(&report, "bytes"), 1600 * number(&report, "size"), "{line}");
        let compared = number(&report, "compared_bytes");
        assert!(compared > 0 && number(&report, "corrupt_bytes") == 0, "{line}: {report}");
        if line.contains("all") {
            assert_eq!(compared, number(&report, "bytes"), "{line}");
        }
    }
}

/// The ways to post, to complete and to wait change nothing in what arrives.
#[test]
fn options_of_posting_carry_the_same_bytes() {
    let _turn = turn();
    for line in [
        "write-bw -s 64 -n 3001 -I 64 -Q 7 -l 5 -t 64 --packing off",
        "write-bw -s 64 -n 3001 -I 64 --verify all --region 640",
        "write-bw -s 100000 -n 60 -t 1 --region 256k --verify all",
        "write-bw -s 4k -n 3000 --region 2M --events --mtu 9000",
        "read-bw -s 64 -n 3001 -Q 16 -t 16 -l 1",
        "read-bw -s 70000 -n 50 --ord 1 --ird 1 --markers on --verify all",
        "send-bw -s 64 -n 3001 --inline-size 64 -Q 8 -r 2",
        "send-bw -s 300000 -n 30 -r 5 --crc off --verify all",
        "send-bw -s 512 -n 2000 -q 3 --use-srq --rx-depth 8 --verify all",
        "atomic-bw -n 3001 -Q 3 -t 5 -l 3",
        "write-bw -s 5000 -n 300 --device ring,vlan=7,mtu=9000",
    ] {
        let report = measure("posting", line);
        let qps = number(&report, "qps");
        let words: Vec<&str> = line.split_whitespace().collect();
        let iters: u64 = words[words.iter().position(|word| *word == "-n").unwrap() + 1].parse().unwrap();
        assert_eq!(number(&report, "messages"), iters * qps, "{line}");
        assert_eq!(
            report["inline"],
            words.contains(&"64") && line.contains("-I 64") || line.contains("inline")
        );
        let (compared, bytes) = (number(&report, "compared_bytes"), number(&report, "bytes"));
        assert!(compared > 0 && (compared == bytes || !line.contains("all")), "{line}: {report}");
        assert_eq!(number(&report, "corrupt_bytes"), 0, "{line}");
    }
}

/// A damaged byte is found, whatever carries it and however much is compared, and the run fails.
#[test]
fn damage_is_found() {
    let _turn = turn();
    for line in [
        "write-bw -s 4k -n 300 --damage 1",
        "write-bw -s 4k -n 3000 --damage 2",
        "write-bw -s 4k -n 300 --verify all --damage 1",
        "read-bw -s 4k -n 300 --damage 1",
        "read-bw -s 4k -n 300 --verify all --damage 1",
        "send-bw -s 4k -n 300 --damage 1",
        "send-bw -s 4k -n 300 --verify all --damage 300",
        "atomic-bw -n 300 --damage 1",
        "write-lat -s 64 -n 100 --damage 2",
        "read-lat -s 64 -n 100 --damage 2",
        "send-lat -s 64 -n 100 --damage 2",
        "atomic-lat -n 100 --verify all --damage 99",
    ] {
        let json = temporary("damage");
        let words: Vec<&str> = line.split_whitespace().collect();
        let output =
            bench(&words).args(together()).args(["--json", json.to_str().unwrap()]).output().unwrap();
        let corrupt = number(&read_report(json), "corrupt_bytes");
        // Both ends of a ping compare, and both have the option.
        assert!((1..=2).contains(&corrupt), "{line}: {corrupt}");
        assert!(
            complaint(&output).ends_with(&format!("{corrupt} bytes arrived wrong")),
            "{line}: {output:?}"
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("wrong: {corrupt}")), "{line}");
    }
}

#[test]
fn latency_tests_report_distributions() {
    let _turn = turn();
    for (line, time, ways) in [
        ("write-lat -s 64 -n 300", "half round trip", 2),
        ("write-lat -s 64 -n 300 -I 64 --verify all", "half round trip", 2),
        ("write-lat -s 100000 -n 40 --markers on --verify all", "half round trip", 2),
        ("read-lat -s 1 -n 300 --verify all", "round trip", 1),
        ("send-lat -s 5000 -n 300 --verify all --use-srq -r 4", "half round trip", 2),
        ("send-lat -s 64 -n 300 -e", "half round trip", 2),
        ("atomic-lat -n 300 -A FETCH_AND_ADD", "round trip", 1),
    ] {
        let (printed, report) = run("latency", &format!("{line} -H -U"));
        let pings = number(&report, "messages");
        assert_eq!(report["time"], time, "{line}");
        let us = |key: &str| report[key].as_f64().unwrap();
        let rising = ["min_us", "p50_us", "p99_us", "p999_us", "max_us"].map(us);
        assert!(rising[0] > 0.0 && rising.is_sorted(), "{line}: {report}");
        assert!((us("min_us")..=us("max_us")).contains(&us("mean_us")), "{line}: {report}");
        // The figures are those of the times beside them.
        let unsorted: Vec<f64> = serde_json::from_value(report["unsorted_us"].clone()).unwrap();
        let histogram: Vec<(f64, u64)> = serde_json::from_value(report["histogram"].clone()).unwrap();
        assert_eq!(unsorted.len() as u64, pings, "{line}");
        assert_eq!(histogram.iter().map(|(_, count)| count).sum::<u64>(), pings, "{line}");
        let mean = unsorted.iter().sum::<f64>() / pings as f64;
        assert!((mean / us("mean_us") - 1.0).abs() < 0.002, "{line}: {mean}, {report}");
        let least = unsorted.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((least / us("min_us") - 1.0).abs() < 0.002, "{line}: {least}, {report}");
        assert!(
            printed.contains("t_typical[usec]") && printed.contains("#iteration     t[usec]"),
            "{printed}"
        );
        let arrived = ways * number(&report, "bytes");
        let compared = number(&report, "compared_bytes");
        assert!(compared > 0 && compared <= arrived, "{line}: {report}");
        assert!(!line.contains("all") || compared == arrived, "{line}: {report}");
        assert_eq!(number(&report, "corrupt_bytes"), 0, "{line}");
    }
}

/// Sizes without --size, and what goes inline of them.
#[test]
fn a_sweep_has_every_size() {
    let _turn = turn();
    for line in ["write-bw -a -n 3 -I 16", "read-lat -n 3", "send-bw -n 3 -q 2"] {
        let reports = measure("sweep", line);
        let reports = reports.as_array().unwrap();
        let sizes: Vec<u64> = reports.iter().map(|report| number(report, "size")).collect();
        assert_eq!(sizes, (1..=23).map(|power| 1 << power).collect::<Vec<u64>>(), "{line}");
        for report in reports {
            let small = line.contains("-I") && number(report, "size") <= 16;
            assert_eq!((&report["inline"], number(report, "corrupt_bytes")), (&json!(small), 0), "{report}");
            assert_eq!(number(report, "messages"), 3 * number(report, "qps"), "{report}");
        }
    }
}

#[test]
fn limits_and_cpu_use_are_reported() {
    let _turn = turn();
    let report = measure("limits", "write-bw -s 4k -n 300 -w 0.000001 -y 0.000001 --cpu-util");
    assert!(report["cpu_percent"].as_f64().unwrap() >= 0.0);
    for key in ["idle_polls_percent", "peer_idle_polls_percent"] {
        assert!((0.0..=100.0).contains(&report[key].as_f64().unwrap()), "{report}");
    }
    for (limit, figure) in [("-w", "Gb/s"), ("-y", "million messages a second")] {
        let output = bench(&["write-bw", "-s", "4k", "-n", "50", limit, "1e9"]).output().unwrap();
        let complaint = complaint(&output);
        assert!(
            complaint.contains(figure) && complaint.contains("below the limit of 1000000000"),
            "{complaint}"
        );
    }
}

/// More queue pairs than are looked at between two polls, whose messages go to one region: each sends all of
/// its messages. With a rate limit they take no less time than it says.
#[test]
fn many_queue_pairs_share_a_region_and_keep_to_their_rates() {
    let line = "write-bw -s 4k -q 40 -t 4 -n 200 --one-region --verify off --region 64k --rate 0.02";
    let _turn = turn();
    let report = measure("many", line);
    assert_eq!(number(&report, "messages"), 40 * 200, "{report}");
    // 40 times 0.02 Gb/s, and what may leave at once.
    let gigabits = report["gbit_per_s"].as_f64().unwrap();
    assert!(gigabits < 0.9, "{report}");
}

/// Pings are measured alone, and as many again beside queue pairs that stream, whatever carries them.
#[test]
fn pings_are_measured_beside_bulk() {
    let _turn = turn();
    for (line, ways) in [
        ("write-lat -s 64 -n 60 --beside 3", 2),
        ("write-lat -s 64 -n 60 --beside 300", 2),
        ("send-lat -s 5000 -n 60 --beside 3 --use-srq -r 4", 2),
        ("send-lat -s 64 -n 60 --beside 3 -e", 2),
        ("read-lat -s 64 -n 60 --beside 3", 1),
        ("atomic-lat -n 60 --beside 3", 1),
    ] {
        let (printed, report) = run("beside", &format!("{line} --verify all -U"));
        let queue_pairs = if line.contains("300") { 300 } else { 3 };
        assert_eq!((number(&report, "messages"), number(&report, "bulk_qps")), (60, queue_pairs), "{line}");
        assert_eq!(report["unsorted_us"].as_array().unwrap().len(), 60, "{line}");
        // Each of the others has sent a message before the second ping, and the pings of both times are
        // compared.
        assert!(number(&report, "bytes_copied_rx") >= queue_pairs * number(&report, "bulk_size"), "{report}");
        assert_eq!(number(&report, "compared_bytes"), 2 * ways * number(&report, "bytes"), "{line}");
        assert_eq!((&report["compared_fraction"], number(&report, "corrupt_bytes")), (&json!(1.0), 0));
        let figure = |key: &str| report[key].as_f64().unwrap();
        assert!(figure("bulk_gbit_per_s") > 0.0 && figure("alone_p50_us") > 0.0, "{line}: {report}");
        assert!(figure("alone_p50_us") <= figure("alone_p99_us"), "{line}: {report}");
        let medians = figure("p99_us") / figure("alone_p50_us");
        assert!((figure("p99_per_alone_p50") / medians - 1.0).abs() < 0.001, "{line}: {report}");
        assert!(printed.contains("bulk[Gb/sec]   t_alone[usec]   99%/t_alone"), "{printed}");
    }
}

/// Queue pairs that are idle are connected, and transfer nothing.
#[test]
fn queue_pairs_stay_idle() {
    let _turn = turn();
    for line in ["write-bw -s 4k", "read-bw -s 4k -b", "send-bw -s 4k --use-srq", "atomic-bw"] {
        let (printed, report) = run("idle", &format!("{line} -n 300 -q 2 --idle 300 --verify all"));
        let messages = if line.ends_with(" -b") { 1200 } else { 600 };
        assert_eq!((number(&report, "messages"), number(&report, "idle_qps")), (messages, 300), "{line}");
        assert_eq!(number(&report, "compared_bytes"), number(&report, "bytes"), "{line}");
        // The Reply of each connection's startup.
        let sent = printed.split_once("target: TCP: ").unwrap().1.split_once(' ').unwrap().0;
        assert!(sent.parse::<u64>().unwrap() >= 302, "{printed}");
    }
}

/// What cannot be is refused in one line that names the reason, never passed over.
#[test]
fn what_cannot_be_is_refused() {
    for (line, reason) in [
        ("write-bw -s 100 -I 64", "no message would go inline"),
        ("write-bw -s 64k --region 4k", "does not hold a message"),
        ("write-bw -s 64 -t 16 -Q 16 -l 2", "too small for --post-list 2 and --cq-mod 16"),
        ("write-bw -s 64 --one-region", "--one-region needs --verify off"),
        ("write-bw --run-infinitely", "give --size"),
        ("send-lat -n 1000001 -U -s 64", "at most 1000000 times"),
        ("send-bw -q 32768 --idle 1", "32769 queue pairs are more than half of the connections"),
        ("send-bw -s 64M -r 8192 -n 1", "8192 receives of 67108864 bytes"),
    ] {
        let output = bench(&line.split_whitespace().collect::<Vec<_>>()).output().unwrap();
        let complaint = complaint(&output);
        assert!(
            complaint.starts_with("warpline-bench: ") && complaint.contains(reason),
            "{line}: {complaint}"
        );
    }
    for line in [
        "read-bw -I 64",
        "read-bw -r 5",
        "write-bw --use-srq",
        "write-bw -I 65",
        "write-bw --rate 0",
        "write-bw -l 33",
        "write-bw -H",
        "write-bw -w -1",
        "write-bw -A FETCH_AND_ADD",
        "write-bw --run-infinitely -n 5",
        "write-bw --run-infinitely -b",
        "atomic-bw -s 16",
        "atomic-lat -I 8",
        "write-lat -q 2",
        "send-lat -b",
        "read-lat -t 5",
        "send-lat -U -D 1",
        "write-lat --beside 0",
        "write-lat --beside 1000000",
        "write-lat --idle 2",
        "write-bw --beside 2",
        "write-bw --idle 0",
        "write-lat --beside 2 --listen 198.18.0.2:1 --device tap:t",
        "read-bw --idle 2 --listen 198.18.0.2:1 --device tap:t",
        "send-bw --verify some",
        "send-bw -s 64 --listen 198.18.0.2:1 --device tap:t",
    ] {
        let output = bench(&line.split_whitespace().collect::<Vec<_>>()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
    }
}

/// A process with its standard output read by this one.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Waits for a line of standard output, or of the error output if `errors`, with `text` in it.
    fn wait_for(&mut self, text: &str, errors: bool) {
        let found = if errors {
            let mut errors = BufReader::new(self.child.stderr.take().unwrap()).lines();
            let found = errors.any(|line| line.unwrap().contains(text));
            // What it says later must find somebody who reads.
            std::thread::spawn(move || errors.for_each(drop));
            found
        } else {
            self.output.by_ref().lines().any(|line| line.unwrap().contains(text))
        };
        assert!(found, "it did not say '{text}'");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn end(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// It goes on until a signal, with a line for each interval, and reports the whole.
#[test]
fn a_run_without_end_ends_on_a_signal() {
    let _turn = turn();
    let json = temporary("infinite");
    let line = ["write-bw", "-s", "4k", "--run-infinitely", "-D", "1", "--json", json.to_str().unwrap()];
    let mut process = Process::start(bench(&line));
    process.wait_for("#bytes", false);
    process.wait_for(" 4096 ", false);
    process.signal("-TERM");
    let (status, printed) = process.end();
    assert!(status.success() && printed.contains("wrong: 0"), "{printed}");
    let report = read_report(json);
    assert_eq!(number(&report, "bytes"), 4096 * number(&report, "messages"));
    assert!(number(&report, "messages") > 0 && number(&report, "compared_bytes") > 0, "{report}");
}

/// Two processes over shared memory: the connecting end decides, the listening end obeys, and each end finds
/// what is damaged at its own.
#[test]
fn two_processes_measure_together() {
    let _turn = turn();
    for (line, listening, connecting, compared_all) in [
        ("write-bw", "", "-s 5000 -n 300 -q 2 -b", false),
        ("read-bw", "", "-s 5000 -n 300 --verify all", true),
        ("send-bw", "--use-srq -r 16", "-s 5000 -n 300 -q 2 --verify all", true),
        ("send-lat", "", "-s 64 -n 100 --verify all", true),
        ("atomic-bw", "", "-n 300 --verify all", true),
        ("write-bw", "", "-s 5000 -n 300 --verify all --idle 3", true),
    ] {
        let json = temporary("two");
        let connecting = format!("{connecting} --json {}", json.display());
        let (served, output) = two_processes(line, listening, &connecting);
        assert!(served && output.status.success(), "{line}: {output:?}");
        let report = read_report(json);
        let ways = if line == "send-lat" { 2 } else { 1 };
        let (compared, arrived) = (number(&report, "compared_bytes"), ways * number(&report, "bytes"));
        assert!(compared > 0 && (!compared_all || compared == arrived), "{line}: {report}");
        assert_eq!(number(&report, "corrupt_bytes"), 0, "{line}");
    }
    let json = temporary("two-beside");
    let connecting = format!("-n 50 --verify all --beside 3 --json {}", json.display());
    let (served, output) = two_processes("read-lat", "", &connecting);
    assert!(served && output.status.success(), "{output:?}");
    for report in read_report(json).as_array().unwrap() {
        assert_eq!((&report["compared_fraction"], number(report, "corrupt_bytes")), (&json!(1.0), 0));
        assert!(report["bulk_gbit_per_s"].as_f64().unwrap() > 0.0, "{report}");
    }
    let (served, output) = two_processes("write-bw", "--damage 1", "-s 5000 -n 300");
    assert!(!served, "the listening end has found it");
    assert!(complaint(&output).ends_with("1 bytes arrived wrong"), "{output:?}");
}

/// Super-frames of two processes over a vhost-user socket, either of which may listen: every byte arrives.
#[test]
fn two_processes_exchange_super_frames() {
    let _turn = turn();
    if free_hugepage_mib() < 600 {
        eprintln!("skipped: needs hugepages, the only memory that a peer of vhost-user may share");
        return;
    }
    for (index, line) in
        ["write-bw --mtu 1500", "read-bw --mtu 9000", "send-bw --mtu 1500"].iter().enumerate()
    {
        let words: Vec<&str> = line.split(' ').collect();
        let json = temporary(&format!("super-frames-{index}"));
        let directory = tempfile::tempdir().unwrap();
        let device = |kind: &str| {
            let socket = directory.path().join("sock");
            format!("{kind}:{},super_frames=on,mtu={}", socket.display(), words[2])
        };
        let run = |kind: &str, options: &str| {
            let mut command = bench(&[words[0], "--device", &device(kind), "--eal", "-m 200"]);
            command.args(options.split_whitespace());
            command
        };
        let mut server = Process::start(run("vhost", "--listen 198.18.0.2:7471"));
        server.wait_for("waiting at", true);
        let client = "-s 500000 -n 300 --verify all --address 198.18.0.1/24 198.18.0.2:7471";
        let output = run("virtio_user", &format!("{client} --json {}", json.display())).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(server.end().0.success(), "{line}");
        let report = read_report(json);
        assert_eq!((number(&report, "messages"), number(&report, "corrupt_bytes")), (300, 0), "{line}");
        assert_eq!(number(&report, "compared_bytes"), number(&report, "bytes"), "{line}");
    }
}

/// The memory in hugepages of 2 MiB that nobody has reserved.
fn free_hugepage_mib() -> u64 {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    2 * free.ok().and_then(|pages| pages.trim().parse::<u64>().ok()).unwrap_or(0)
}

/// Runs both ends, and once or twice more if the listening end dies of a segmentation fault: net_memif of
/// DPDK 22.11 unmaps the shared memory when the peer leaves, even if the thread that polls is in the middle
/// of a burst. Returns whether the listening end ended well, and the result of the other.
fn two_processes(test: &str, listening: &str, connecting: &str) -> (bool, Output) {
    for attempt in 1.. {
        let (status, output) = both_processes(test, listening, connecting);
        if attempt == 3 || status.signal() != Some(SIGSEGV) {
            return (status.success(), output);
        }
    }
    unreachable!("attempts are bounded")
}

fn both_processes(test: &str, listening: &str, connecting: &str) -> (ExitStatus, Output) {
    let directory = tempfile::tempdir().unwrap();
    let memif = |role: &str, mac: u8, options: &str| {
        let socket = directory.path().join("sock");
        let device = format!("memif:{},role={role},mac=02:00:00:00:00:{mac:02}", socket.display());
        let eal = "--in-memory --no-huge --no-pci -m 200";
        let mut command = bench(&[test, "--device", &device, "--eal", eal]);
        command.args(options.split_whitespace());
        command
    };
    let mut server = Process::start(memif("server", 2, &format!("{listening} --listen 198.18.0.2:7471")));
    server.wait_for("waiting at", true);
    let client = format!("{connecting} --address 198.18.0.1/24 198.18.0.2:7471");
    let output = memif("client", 1, &client).output().unwrap();
    (server.end().0, output)
}

/// The listening end runs one kind of test, and says so to a client of another.
#[test]
fn another_test_is_rejected() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let device = |role: &str| format!("memif:{},role={role}", directory.path().join("sock").display());
    let eal = ["--eal", "--in-memory --no-huge --no-pci -m 200"];
    let mut server = bench(&["write-bw", "--device", &device("server"), "--listen", "198.18.0.2:7471"]);
    server.args(eal);
    let mut server = Process::start(server);
    server.wait_for("waiting at", true);
    let mut client = bench(&["read-lat", "--device", &device("client"), "-s", "64"]);
    client.args(eal).args(["--address", "198.18.0.1/24", "198.18.0.2:7471"]);
    let said = complaint(&client.output().unwrap());
    assert!(said.contains("the listening end runs write-bw, not read-lat"), "{said}");
    server.signal("-KILL");
}

/// A client that the listening end has no memory for is rejected, and the next one is measured.
#[test]
fn a_client_without_room_does_not_end_the_listening_end() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let device = |role: &str| format!("memif:{},role={role}", directory.path().join("sock").display());
    let eal = ["--eal", "--in-memory --no-huge --no-pci -m 300"];
    let listening = ["send-bw", "-r", "8192", "--device", &device("server"), "--listen", "198.18.0.2:7471"];
    let mut server = bench(&listening);
    server.args(eal);
    let mut server = Process::start(server);
    server.wait_for("waiting at", true);
    let client = |address: &str, size: &str| {
        let mut client = bench(&["send-bw", "--device", &device("client"), "-s", size, "-n", "100"]);
        client.args(eal).args(["--address", address, "198.18.0.2:7471"]).output().unwrap()
    };
    let said = complaint(&client("198.18.0.1/24", "64M"));
    assert!(said.contains("8192 receives of 67108864 bytes"), "{said}");
    let output = client("198.18.0.3/24", "64");
    assert!(output.status.success(), "{output:?}");
    assert!(server.end().0.success());
}
