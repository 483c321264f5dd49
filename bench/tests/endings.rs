//! How commands end when something around them does: the peer, the reader of their output, the room for a
//! file, the patience of their user.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM};
use tempfile::TempDir;

#[path = "../../tools/tests/running/mod.rs"]
mod running;

use running::Running;

/// All tests poll on the same CPUs, one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// Waits until it has a handler for `signal`, whose default would end it.
    fn wait_until_it_catches(&self, signal: i32) {
        eventually(|| {
            let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
            u64::from_str_radix(caught, 16).unwrap() >> (signal - 1) & 1 == 1
        });
    }

    /// Waits until it has computed for another half second, however long it takes to get that.
    fn wait_until_it_has_computed(&self) {
        let ticks = || {
            // proc_pid_stat(5): fields 14 and 15, in hundredths of a second, after the name in parentheses.
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
            let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            fields[11..=12].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
        };
        let before = ticks();
        eventually(|| ticks() >= before + 50);
    }
}

/// Waits until `condition` holds.
fn eventually(mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 300, "it does not happen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The last line of the error output of a run that fails by itself.
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).trim_end().lines().last().unwrap_or_default().to_owned()
}

fn temporary(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("endings-{}-{name}", std::process::id()))
}

/// Two processes over shared memory: the one that listens, and the one that connects.
fn two_ends(test: &str, listening: &[&str], connecting: &[&str]) -> (Running, Running, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let end = |role: &str, options: &[&str]| {
        let device = format!("memif:{},role={role}", directory.path().join("sock").display());
        let eal = "--in-memory --no-huge --no-pci -m 200";
        Running::start(&[&[test, "--device", &device, "--eal", eal], options].concat())
    };
    let mut listening = end("server", &[&["--listen", "198.18.0.2:7471"], listening].concat());
    listening.wait_for_error("waiting at");
    let to = ["--address", "198.18.0.1/24", "198.18.0.2:7471"];
    let connecting = end("client", &[&to, connecting].concat());
    (listening, connecting, directory)
}

/// A peer that says nothing any more is given up after --timeout, by the end whose bytes it does not
/// acknowledge, and by the end that waits for its bytes. TCP alone retransmits for minutes.
#[test]
fn a_peer_that_is_gone_is_given_up() {
    let _turn = turn();
    for gone in ["listening", "connecting"] {
        // Where one end does not run for so long, the other gives it up too early: it has more time then.
        let mut seconds = 3;
        let (listening, connecting, _directory) = loop {
            let timeout = ["--timeout", &seconds.to_string()];
            let line = [&["-s", "4k", "--run-infinitely", "-D", "1"], &timeout[..]].concat();
            let (listening, mut connecting, directory) = two_ends("write-bw", &timeout, &line);
            if connecting.prints(" 4096 ") {
                break (listening, connecting, directory);
            }
            assert!(seconds < 60, "it has ended before it printed a measurement");
            seconds *= 2;
        };
        let (gone, mut left) =
            if gone == "listening" { (listening, connecting) } else { (connecting, listening) };
        gone.signal("-STOP");
        let (status, _, errors) = left.end();
        let last = errors.trim_end().lines().last().unwrap_or_default();
        assert!(!status.success() && last.starts_with("warpline-bench: the other end: "), "{errors}");
        assert!(last.contains("connection timed out"), "{errors}");
    }
}

/// A reader that has seen enough ends the command, as SIGPIPE ends any, and in silence.
#[test]
fn a_closed_pipe_ends_quietly() {
    let _turn = turn();
    for line in
        [&["write-bw", "--size", "64k", "--run-infinitely", "-D", "1"][..], &["write-bw", "--iters", "1000"]]
    {
        let mut running = Running::start(line);
        running.wait_for_output("\n");
        drop(running.child.stdout.take());
        let (status, _, errors) = running.end();
        assert_eq!(status.signal(), Some(SIGPIPE), "{line:?}: {errors}");
        assert_eq!(errors, "", "{line:?}");
    }
}

/// What takes nothing is noticed before anything is measured, and what is full later ends the run.
#[test]
fn a_capture_that_cannot_be_written_ends_the_run() {
    let _turn = turn();
    for measurement in ["write-bw", "ping"] {
        let output = command(&[measurement, "--pcap", "/dev/full"]).output().unwrap();
        assert_eq!(complaint(&output), "warpline-bench: /dev/full: No space left on device (os error 28)");
        assert!(!String::from_utf8_lossy(&output.stdout).contains(" 4096 "), "{output:?}");
    }
    let fifo = temporary("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let path = fifo.to_str().unwrap();
    let mut running =
        Running::start(&["write-bw", "-s", "4k", "--run-infinitely", "-D", "1", "--pcap", path]);
    let mut capture = File::open(&fifo).unwrap();
    capture.read_exact(&mut vec![0; 100_000]).unwrap();
    drop(capture);
    let (status, output, errors) = running.end();
    fs::remove_file(&fifo).unwrap();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert_eq!(errors, format!("warpline-bench: {path}: Broken pipe (os error 32)\n"));
    assert!(output.contains("wrong: 0"), "it reports what it has measured: {output}");
}

/// A report has its file before anything is measured, and what the file held until it is replaced.
#[test]
fn a_report_is_opened_first() {
    let _turn = turn();
    for line in [
        &["write-bw"][..],
        &["ping"],
        &["floor"],
        &["line-rate"],
        &["tcp-rdma"],
        &["connect-rate"],
        &["cache-line"],
        &["cores"],
    ] {
        let output = command(&[line, &["--json", "/nonexistent/report"]].concat()).output().unwrap();
        let expected = "warpline-bench: /nonexistent/report: No such file or directory (os error 2)";
        assert_eq!(complaint(&output), expected);
        assert!(output.stdout.is_empty(), "{line:?}: {output:?}");
    }
    let kept = temporary("kept");
    fs::write(&kept, "a report of last week, which is long").unwrap();
    let line = ["write-bw", "-s", "64", "-n", "10", "--json", kept.to_str().unwrap()];
    assert!(!command(&[&line[..], &["--pcap", "/dev/full"]].concat()).output().unwrap().status.success());
    assert_eq!(fs::read_to_string(&kept).unwrap(), "a report of last week, which is long");
    assert!(command(&line).output().unwrap().status.success());
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    fs::remove_file(kept).unwrap();
    assert_eq!(report["messages"], 10);
}

/// `-` is standard output, which then has the file and nothing else.
#[test]
fn standard_output_can_be_the_file() {
    let _turn = turn();
    for line in [&["write-bw", "-s", "64", "-n", "10"][..], &["ping", "-C", "10"]] {
        let output = command(&[line, &["--json", "-"]].concat()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report.is_object() && output.status.success(), "{output:?}");
        assert!(!output.stderr.is_empty(), "the lines for people are there");
    }
    let output = command(&["write-bw", "-s", "64", "-n", "10", "--pcap", "-"]).output().unwrap();
    assert_eq!(output.stdout[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng section");
    let both = command(&["write-bw", "--pcap", "-", "--json", "-"]).output().unwrap();
    assert!(complaint(&both).contains("two files go to standard output"), "{both:?}");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["write-bw", "-s", "64", "-n", "10"]).stdout(full).output().unwrap();
    assert_eq!(complaint(&output), "warpline-bench: standard output: No space left on device (os error 28)");
}

/// Commands that would take an hour end on SIGINT and on SIGTERM, with what they have measured.
#[test]
fn a_signal_ends_every_command_with_what_it_has() {
    let _turn = turn();
    for (line, begun, result) in [
        (&["write-bw", "-s", "4k", "-D", "3600"][..], "#bytes", "wrong: 0"),
        (&["write-bw", "-s", "4k", "-n", "1000000000", "-b"], "#bytes", "wrong: 0"),
        (&["send-bw", "-s", "4k", "-D", "3600", "--verify", "all"], "#bytes", "wrong: 0"),
        (&["read-bw", "-D", "1"], " 2 ", "wrong: 0"),
        (&["write-lat", "-s", "64", "-D", "3600"], "#bytes", "wrong: 0"),
        (&["atomic-lat", "-n", "1000000000"], "#bytes", "wrong: 0"),
        (&["tcp-rdma", "-D", "3600", "--eal", "--no-huge -m 256"], "option", "on "),
        (&["line-rate", "-D", "60", "--eal", "--no-huge -m 256"], "memory", "transmit"),
        (&["connect-rate", "-D", "600", "--eal", "--no-huge -m 256"], "polling", "closed a second"),
        (&["cache-line", "-D", "60"], "", "and back"),
        (&["cores", "-D", "60", "--eal", "--no-huge -m 512"], "polling", "scale, nothing shared"),
    ] {
        let two = core_affinity::get_core_ids().unwrap().len() >= 2;
        if !two && line[0] == "cache-line" {
            continue;
        }
        for signal in ["-INT", "-TERM"] {
            let cpus = ["--cpus", "0,1"];
            let more = if line[0] == "cache-line" { &cpus[..] } else { &[] };
            let mut running = Running::start(&[line, more].concat());
            if begun.is_empty() {
                // It says nothing before it has measured.
                running.wait_until_it_catches(SIGTERM);
            } else {
                running.wait_for_output(begun);
            }
            running.wait_until_it_has_computed();
            running.signal(signal);
            let (status, output, errors) = running.end();
            assert!(status.success(), "{line:?} {signal}: {status} {output} {errors}");
            assert!(output.contains(result), "{line:?} {signal}: {output}");
        }
    }
}

/// Ends that wait, for a peer or for commands, end too, and leave no socket.
#[test]
fn a_signal_ends_what_waits() {
    let _turn = turn();
    let eal = ["--eal", "--in-memory --no-huge --no-pci -m 200"];
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let device = |options: &str| format!("memif:{}{options}", socket.display());
    let [listening, own] = [device(",role=server"), device(",role=server,address=198.18.0.1/24")];
    for (line, ready, code) in [
        (&["write-bw", "--device", &listening, "--listen", "198.18.0.2:7471"][..], "waiting at", Some(0)),
        (&["ping", "--device", &listening, "--listen", "198.18.0.2:7471"], "waiting at", Some(0)),
        (&["write-bw", "--device", &own, "198.18.0.2:7471", "--timeout", "3600"], "", None),
        (&["ping", "--device", &own, "198.18.0.2:7471", "--timeout", "3600"], "", None),
    ] {
        let mut running = Running::start_with_input(&[line, &eal[..]].concat());
        if ready.is_empty() {
            eventually(|| socket.exists());
            running.wait_until_it_catches(SIGINT);
            std::thread::sleep(std::time::Duration::from_millis(500));
        } else {
            running.wait_for_error(ready);
        }
        running.signal("-INT");
        let (status, _, errors) = running.end();
        if let Some(code) = code {
            assert_eq!(status.code(), Some(code), "{line:?}: {errors}");
        } else {
            assert_eq!(status.signal(), Some(SIGINT), "{line:?}: {status} {errors}");
            assert!(errors.ends_with("warpline-bench: interrupted before anything was measured\n"));
        }
        assert!(!Path::new(&socket).exists(), "{line:?} leaves its socket");
    }
}

/// An end on AF_XDP takes its program off the interface, whatever it was doing.
#[test]
fn a_signal_takes_the_xdp_program_along() {
    let _turn = turn();
    if !fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        eprintln!("skipped: needs root, for a network namespace");
        return;
    }
    let script = r#"
        ip link add e1 type veth peer name e2 && ip link set e1 up && ip link set e2 up
        "$0" write-bw --device af_xdp:e2,address=198.18.0.2/24 --eal "--in-memory --no-huge --no-pci -m 200" \
            --listen 198.18.0.2:7471 2> "$1" & end=$!
        for _ in $(seq 2400); do grep -q "waiting at" "$1" && break; kill -0 $end || exit 3; sleep 0.1; done
        ip link show e2 | grep -c xdp
        kill -TERM $end; wait $end; echo "status $?"
        ip link show e2 | grep -c xdp"#;
    let log = temporary("xdp");
    let this = env!("CARGO_BIN_EXE_warpline-bench");
    let output = Command::new("unshare").args(["--net", "bash", "-c", script, this]).arg(&log).output();
    let (output, said) = (output.unwrap(), fs::read_to_string(&log).unwrap_or_default());
    fs::remove_file(log).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = printed.lines().filter(|line| !line.starts_with("target:")).collect();
    if output.status.code() == Some(3) {
        assert!(said.contains("warpline-bench:"), "{said}");
        eprintln!("skipped: there is no AF_XDP here: {said}");
        return;
    }
    assert_eq!(lines, ["2", "status 0", "0"], "{printed} {said}");
}
