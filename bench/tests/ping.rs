//! `ping`: both ends in one process, and in two over shared memory. That it speaks rping's language is for
//! others to judge: `scripts/interop/siw`, and the peer in Python of `scripts/interop`.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use signal_hook::consts::SIGSEGV;
use tempfile::TempDir;

fn ping(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
    // Long enough for any machine, however busy: no test waits for it to pass.
    command.args(["ping", "--timeout", "120"]).args(arguments);
    command
}

fn temporary(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ping-{}-{name}", std::process::id()))
}

/// Reads and removes a report.
fn report(path: &Path) -> Value {
    let report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    report
}

/// Each end polls on a CPU of its own. All tests use the same two CPUs, one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the last line of the error output says of a failed run.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).trim_end().lines().last().unwrap_or_default().to_owned()
}

/// Every setting carries the same pings, and every octet is returned.
#[test]
fn both_ends_in_one_process() {
    let _turn = turn();
    for (name, arguments, pings) in [
        ("small", &["-S", "64", "-C", "500"][..], 500),
        ("large", &["-S", "100000", "-C", "40", "--mtu", "9000"], 40),
        ("one-octet", &["-S", "1", "-C", "20"], 20),
        ("markers", &["-S", "20000", "-C", "50", "--markers", "on"], 50),
        ("no-crc", &["-S", "20000", "-C", "50", "--crc", "off"], 50),
        ("rev0", &["-C", "50", "--revision", "0", "--permissive"], 50),
        ("rev1", &["-C", "50", "--revision", "1"], 50),
        ("depth-one", &["-C", "50", "--revision", "2", "--ird", "1", "--ord", "1"], 50),
        ("private-data", &["-C", "50", "--revision", "2", "--private-data", "508", "--rtr", "read"], 50),
        ("connections", &["-C", "5", "--connections", "4"], 20),
    ] {
        let json = temporary(name);
        let output = ping(arguments).args(["--json", json.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let report = report(&json);
        assert_eq!((&report["pings"], &report["corrupt_bytes"]), (&pings.into(), &0.into()), "{name}");
        let time = |key: &str| report[key].as_f64().unwrap();
        let rising = ["min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(time);
        assert!(rising[0] > 0.0 && rising.is_sorted(), "{name}: {report}");
        assert!((time("min_us")..=time("max_us")).contains(&time("mean_us")), "{name}: {report}");
    }
}

/// A shared-memory interface between two processes.
fn memif(role: &str, socket: &Path) -> [String; 4] {
    let socket = socket.display();
    // The same for every client: a neighbour is not asked again for its address because it uses another one.
    let mac = if role == "server" { "02:00:00:00:00:02" } else { "02:00:00:00:00:01" };
    let device = format!("memif:{socket},role={role},mac={mac}");
    ["--device".into(), device, "--eal".into(), "--in-memory --no-huge --no-pci -m 200".into()]
}

/// A server in a process of its own.
struct Server {
    process: Child,
    /// Removed with the socket in it. Short, as the path of a socket has to be.
    _directory: TempDir,
    socket: PathBuf,
    json: PathBuf,
    /// A client has died of a segmentation fault.
    client_died: Cell<bool>,
}

impl Server {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (socket, json) = (directory.path().join("sock"), temporary(&format!("{name}-server")));
        let mut process = ping(&["--listen", "198.18.0.2:7174", "--json", json.to_str().unwrap()])
            .args(memif("server", &socket))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap()).lines();
        assert!(errors.any(|line| line.unwrap().starts_with("waiting at")), "it did not start");
        // What it says later must find somebody who reads.
        std::thread::spawn(move || errors.for_each(drop));
        Self { process, _directory: directory, socket, json, client_died: Cell::new(false) }
    }

    fn client(&self, arguments: &[&str]) -> Output {
        let mut client = ping(&["--address", "198.18.0.1/24", "198.18.0.2:7174"]);
        let output = client.args(memif("client", &self.socket)).args(arguments).output().unwrap();
        self.client_died.set(self.client_died.get() || output.status.signal() == Some(SIGSEGV));
        output
    }

    /// What became of its clients, once it has ended well.
    fn served(&mut self) -> Value {
        assert!(self.process.wait().unwrap().success());
        report(&self.json)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a scenario on a server, and once or twice more if an end dies of a segmentation fault.
///
/// When the peer of a memif leaves, net_memif of DPDK 22.11 unmaps the shared memory on the interrupt thread,
/// even if the thread that polls is in the middle of a burst. That happens only where another process takes
/// the CPU of the poll thread away at that moment.
fn with_server(name: &str, arguments: &[&str], scenario: impl Fn(&mut Server)) {
    let _turn = turn();
    for attempt in 1.. {
        let mut server = Server::start(name, arguments);
        let Err(failure) = catch_unwind(AssertUnwindSafe(|| scenario(&mut server))) else { return };
        // A server that is still there ends by this signal.
        let _ = server.process.kill();
        let server_died = server.process.wait().unwrap().signal() == Some(SIGSEGV);
        if attempt == 3 || !(server_died || server.client_died.get()) {
            resume_unwind(failure);
        }
    }
}

/// The buffer for a client grows with what it advertises; the server ends when it has served the number of
/// clients that it was asked to.
#[test]
fn a_server_serves_as_many_clients_as_it_was_told_to() {
    with_server("two", &["--clients", "2", "-S", "64"], serve_two);
}

fn serve_two(server: &mut Server) {
    for size in ["5000", "300000"] {
        let output = server.client(&["-S", size, "-C", "30"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let served = server.served();
    for (client, octets) in served.as_array().unwrap().iter().zip([150_000, 9_000_000]) {
        assert_eq!((&client["pings"], &client["bytes"]), (&30.into(), &octets.into()), "{served}");
        // How it ended is not judged: the acknowledgement of our FIN may vanish with the process that sent
        // it.
        assert_eq!(client["revision"], 2, "{served}");
        assert_eq!(client["agreed"], serde_json::json!({"ird": 32, "ord": 32}));
    }
}

/// The server closes a connection after the given number of pings, and the client reports that. The server
/// ends on a signal.
#[test]
fn a_server_closes_connections_and_ends_on_a_signal() {
    with_server("closing", &["--count", "7"], close_one);
}

fn close_one(server: &mut Server) {
    let output = server.client(&["-C", "100"]);
    assert!(complaint(&output).contains("closed the connection in ping 7"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" 64     7 "), "what was measured is told");
    let pid = server.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let served = server.served();
    assert_eq!(served[0]["pings"], 7, "{served}");
}

#[test]
fn a_server_can_reject() {
    with_server("rejecting", &["--clients", "1", "--reject", "--private-data", "20"], reject_one);
}

fn reject_one(server: &mut Server) {
    let output = server.client(&[]);
    assert!(
        complaint(&output).contains("rejected the connection with 20 bytes of Private Data: 00 01 02"),
        "{output:?}"
    );
    assert_eq!(server.served()[0]["ended"], "rejected");
}

#[test]
fn wrong_command_lines_are_refused() {
    for arguments in [
        &["--size", "0"][..],
        &["--count", "0"],
        &["--clients", "3"],
        &["--reject"],
        &["--private-data", "513"],
        &["--listen", "198.18.0.1:1", "--connections", "2"],
        &["--listen", "198.18.0.1:1", "198.18.0.2:1"],
    ] {
        let output = ping(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    for (arguments, expected) in [
        (&["--device", "tap:t", "198.18.0.2:1"][..], "--listen ADDR:PORT"),
        (&["198.18.0.2:1"], "leave out --listen"),
        (&["-C", "1", "--json", "/nonexistent/dir/file"], "/nonexistent/dir/file"),
    ] {
        let complaint = complaint(&ping(arguments).output().unwrap());
        assert!(complaint.starts_with("warpline-bench: ") && complaint.contains(expected), "{complaint}");
    }
}
