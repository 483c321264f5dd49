//! Benchmarks with `--cores 2`: each core does its part, all of it arrives, and the parts are the whole. How
//! fast says nothing here. What `cores` itself measures, `cores.rs` tests.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use signal_hook::consts::SIGSEGV;

/// All tests poll on the same CPUs, one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a benchmark on the wire in memory. Returns its first result, and what it said on standard error.
fn measure(line: &str) -> (Value, String) {
    let words = line.split_whitespace();
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(words)
        .args(["--eal", "--no-huge -m 512", "--json", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (report.as_array().map_or(report.clone(), |all| all[0].clone()), said)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

/// What the cores of a report say of `key`, in their order.
fn by_core(report: &Value, key: &str) -> Vec<u64> {
    let cores = report["by_core"].as_array().unwrap_or_else(|| panic!("no cores: {report}"));
    let numbers: Vec<_> = cores.iter().map(|core| number(core, "core")).collect();
    assert_eq!(numbers, (0..cores.len() as u64).collect::<Vec<_>>(), "{report}");
    cores.iter().map(|core| number(core, key)).collect()
}

fn first_cpu() -> String {
    core_affinity::get_core_ids().unwrap()[0].id.to_string()
}

/// Three queue pairs are two of core 0 and one of core 1. Every message arrives, and every byte is compared.
#[test]
fn queue_pairs_are_placed_over_the_cores_in_turn() {
    let _turn = turn();
    for (line, size) in [
        ("write-bw -s 5000", 5000),
        ("read-bw -s 5000", 5000),
        ("send-bw -s 5000", 5000),
        ("send-bw -s 5000 --use-srq", 5000),
        ("atomic-bw", 8),
        ("write-bw -s 5000 --events", 5000),
    ] {
        let (report, _) = measure(&format!("{line} -n 300 -q 3 --cores 2 --verify all"));
        assert_eq!((number(&report, "cores"), number(&report, "messages")), (2, 900), "{line}");
        assert_eq!(by_core(&report, "messages"), [600, 300], "{line}");
        assert_eq!(number(&report, "compared_bytes"), 900 * size, "{line}");
        assert_eq!(number(&report, "corrupt_bytes"), 0, "{line}");
    }
    let (report, _) = measure("write-bw -s 5000 -n 300 -q 4 -b --cores 2 --verify all --idle 2");
    assert_eq!((number(&report, "messages"), by_core(&report, "messages")), (2400, vec![1200, 1200]));
    assert_eq!(number(&report, "compared_bytes"), 2400 * 5000);
}

/// A core without a queue pair is polled beside the one that has it.
#[test]
fn a_core_may_have_nothing_to_do() {
    let _turn = turn();
    let (report, _) = measure("write-bw -s 64 -n 500 --cores 2 --verify all");
    assert_eq!((number(&report, "messages"), by_core(&report, "messages")), (500, vec![500]));
    assert_eq!(number(&report, "compared_bytes"), 500 * 64);
}

/// What one core damages fails the run of both.
#[test]
fn damage_at_one_core_is_found() {
    let _turn = turn();
    let words = "write-bw -s 64 -n 500 -q 2 --cores 2 --verify all --damage 1";
    let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
        .args(words.split_whitespace())
        .args(["--eal", "--no-huge -m 512"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.trim_end().ends_with("bytes arrived wrong"), "{said}");
}

/// In a latency test, and in `ping`, each core pings.
#[test]
fn each_core_pings() {
    let _turn = turn();
    for line in ["write-lat -s 64", "read-lat -s 64", "send-lat -s 64", "atomic-lat"] {
        let (report, _) = measure(&format!("{line} -n 100 --cores 2 --verify all"));
        assert_eq!((number(&report, "messages"), by_core(&report, "messages")), (200, vec![100, 100]));
        assert_eq!((&report["compared_fraction"], number(&report, "corrupt_bytes")), (&json!(1.0), 0));
    }
    // Three stream beside the two, at either core.
    let (report, _) = measure("send-lat -s 64 -n 50 --beside 3 --cores 2 --verify all");
    assert_eq!((number(&report, "bulk_qps"), by_core(&report, "messages")), (3, vec![50, 50]));
    assert!(report["bulk_gbit_per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["compared_fraction"], json!(1.0));
    let (report, said) = measure("ping -S 5000 -C 40 --connections 2 --cores 2");
    assert_eq!((number(&report, "pings"), by_core(&report, "pings")), (160, vec![80, 80]));
    assert_eq!((number(&report, "corrupt_bytes"), &report["validated"]), (0, &json!(true)));
    assert_eq!(said.matches(": connected").count(), 4, "{said}");
}

/// More cores than CPUs take turns, which one line of standard error says.
#[test]
fn cores_beyond_the_cpus_take_turns() {
    let _turn = turn();
    let line = format!("send-bw -s 512 -n 200 -q 5 --cores 3 --verify all --cpus {}", first_cpu());
    let (report, said) = measure(&line);
    assert_eq!((number(&report, "messages"), by_core(&report, "messages")), (1000, vec![400, 400, 200]));
    assert_eq!(number(&report, "compared_bytes"), 1000 * 512);
    let warning =
        format!("warning: 3 loops poll on CPU {}: they take turns, and give way while idle", first_cpu());
    assert_eq!(said.lines().filter(|line| *line == warning).count(), 1, "{said}");
}

/// The name of the device lists the CPUs of its cores, as for any program.
#[test]
fn the_name_of_a_device_lists_its_cores() {
    let _turn = turn();
    let cpus: Vec<_> = core_affinity::get_core_ids().unwrap().iter().map(|cpu| cpu.id).take(2).collect();
    if let [first, second] = cpus[..] {
        let line = format!("write-bw -s 64 -n 100 -q 2 --device ring,cores={first}+{second}");
        let (report, _) = measure(&line);
        assert_eq!((&report["cpus"], by_core(&report, "messages")), (&json!(cpus), vec![100, 100]));
    }
}

/// Each core opens connections and closes them; or they share those that are to stay open.
#[test]
fn each_core_opens_connections() {
    let _turn = turn();
    let (report, _) = measure("connect-rate -D 1 -c 8 --cores 2");
    let cores = by_core(&report, "connections");
    assert_eq!((cores.len(), cores.iter().sum::<u64>()), (2, number(&report, "connections")), "{report}");
    assert!(cores.iter().all(|count| *count > 0), "{report}");
    let (report, _) = measure("connect-rate --open 501 --cores 2");
    assert_eq!((number(&report, "connections"), number(&report, "cores")), (501, 2));
    assert_eq!(by_core(&report, "connections"), [251, 250]);
    assert_eq!(number(&report, "registrations"), 1000);
}

/// A queue for each core: what one receives is compared by the command, and each has its part of the sums.
#[test]
fn each_core_has_a_queue_of_the_null_device() {
    let _turn = turn();
    for direction in ["transmit", "receive"] {
        let line = format!(
            "line-rate -D 0.1 --mtu 1500 --size 64k --connections 2 --cores 2 --direction {direction}"
        );
        let (row, _) = measure(&line);
        assert_eq!((number(&row, "cores"), number(&row, "retransmitted_segments")), (2, 0), "{row}");
        for key in ["packets", "bytes", "fpdus"] {
            let cores = by_core(&row, key);
            assert_eq!((cores.len(), cores.iter().sum::<u64>()), (2, number(&row, key)), "{key}: {row}");
            assert!(cores.iter().all(|count| *count > 0), "{key}: {row}");
        }
        let each = number(&row, "bytes") as f64 / number(&row, "packets") as f64;
        assert!((1433.0..1448.1).contains(&each), "{each} bytes a packet: {row}");
    }
}

/// A stream of each core, placed or read: what is copied is what it is with one.
#[test]
fn each_core_has_a_byte_stream() {
    let _turn = turn();
    for (option, copies) in [("on", 1.0), ("off", 2.0)] {
        let line = format!("tcp-rdma -D 0.2 --mtu 1500 -s 16k --cores 2 --option {option}");
        let (row, _) = measure(&line);
        let cores = by_core(&row, "bytes");
        assert_eq!((cores.len(), cores.iter().sum::<u64>()), (2, number(&row, "bytes")), "{row}");
        assert!(cores.iter().all(|bytes| *bytes > 0) && number(&row, "compared") >= 2, "{row}");
        // Transfers on their way when the counters are read are copied, and not delivered.
        let begun = 2.0 * 16.0 * f64::from(16 << 10) / number(&row, "bytes") as f64;
        let received = row["copies_received"].as_f64().unwrap();
        assert!((copies..copies + 0.1 + begun).contains(&received), "{row}");
    }
}

/// The end that listens, in a process of its own.
struct Listening(Child);

impl Drop for Listening {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes, on a port with one queue: its first core hands over what is another's, which both ends say.
/// Queue pairs are at the core of the listening end that the other one names.
#[test]
fn two_processes_have_two_cores_each() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let device = |role| {
        let mac = if role == "server" { "02:00:00:00:00:02" } else { "02:00:00:00:00:01" };
        format!("memif:{},role={role},mac={mac}", directory.path().join("sock").display())
    };
    let end = |role, line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
        command.args(line.split_whitespace()).args([
            "--timeout",
            "120",
            "--cores",
            "2",
            "--device",
            &device(role),
        ]);
        command.args(["--eal", "--in-memory --no-huge --no-pci -m 256"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut listening = Listening(end("server", "write-bw --listen 198.18.0.2:7471").spawn().unwrap());
    let mut errors = BufReader::new(listening.0.stderr.take().unwrap()).lines();
    let said: Vec<_> =
        errors.by_ref().map(Result::unwrap).take_while(|line| !line.starts_with("waiting")).collect();
    assert!(said.iter().any(|line| line.contains("the first core receives and sends for all")), "{said:?}");
    let line = "write-bw -s 5000 -n 200 -q 4 --verify all --address 198.18.0.1/24 198.18.0.2:7471 --json -";
    let client = end("client", line).output().unwrap();
    let complaints: Vec<_> = errors.map(Result::unwrap).collect();
    let mut printed = String::new();
    listening.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let served = listening.0.wait().unwrap();
    // DPDK 22.11's driver may end a process whose peer leaves.
    if [client.status, served].iter().any(|status| status.signal() == Some(SIGSEGV)) {
        eprintln!("skipped: net_memif has ended a process");
        return;
    }
    assert!(served.success(), "{complaints:?}");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let report: Value = serde_json::from_slice(&client.stdout).unwrap();
    assert_eq!((number(&report, "messages"), by_core(&report, "messages")), (800, vec![400, 400]));
    assert_eq!((number(&report, "compared_bytes"), number(&report, "corrupt_bytes")), (800 * 5000, 0));
    // Each core of the listening end has received the FPDUs of two queue pairs.
    for core in ["target core 0", "target core 1"] {
        let line = printed.lines().find(|line| line.starts_with(core)).unwrap_or_default();
        let received = line.split_once("FPDUs sent, ").and_then(|(_, rest)| rest.split_once(" received"));
        let received: u64 = received.map_or(0, |(count, _)| count.parse().unwrap());
        assert!(received >= 400 * 4, "{printed}");
    }
}

/// What cannot be is refused before anything starts.
#[test]
fn what_cannot_be_is_refused() {
    let cpu = first_cpu();
    for (line, reason) in [
        ("ping --cores 2 --core 2 --pcap x.pcapng", "--core 2: the device has 2 cores, from 0 on"),
        ("write-bw -s 64 --device ring,cores=0-1 --cores 2", "leave that out, or --cores and --cpus"),
        ("write-bw -s 64 --cores 65", "65 is not in 1..=64"),
        ("line-rate --cores 0", "0 is not in 1..=64"),
        (&format!("connect-rate --cpus {cpu},{cpu},{cpu}"), "lists 3 CPUs, and 2 are polled on at most"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
            .args(line.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason), "{line}: {said}");
    }
    assert!(!std::path::Path::new("x.pcapng").exists());
}
