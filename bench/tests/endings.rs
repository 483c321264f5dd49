//! How commands end when something around them does: the peer.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// All tests poll on the same CPUs, one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that runs, with its outputs here.
struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_warpline-bench"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Waits for a line of the error output that has `text`.
    fn wait_for_error(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "it has ended before it said {text}");
        }
    }

    /// Waits for a line of its output that has `text`.
    fn wait_for_output(&mut self, text: &str) {
        // Without a buffer: what comes later is for `end`.
        let (mut line, mut octet) = (Vec::new(), [0]);
        let output = self.child.stdout.as_mut().unwrap();
        while !String::from_utf8_lossy(&line).contains(text) {
            if octet[0] == b'\n' {
                line.clear();
            }
            assert_eq!(output.read(&mut octet).unwrap(), 1, "it has ended before it printed {text}");
            line.push(octet[0]);
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end. Returns how it ended, the rest of its output and of its errors.
    fn end(&mut self) -> (ExitStatus, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut output).unwrap();
        }
        self.errors.read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), output, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless the test has failed or has stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        let line = ["-s", "4k", "--run-infinitely", "-D", "1", "--timeout", "3"];
        let (listening, mut connecting, _directory) = two_ends("write-bw", &["--timeout", "3"], &line);
        connecting.wait_for_output(" 4096 ");
        let (gone, mut left) =
            if gone == "listening" { (listening, connecting) } else { (connecting, listening) };
        gone.signal("-STOP");
        let (status, _, errors) = left.end();
        let last = errors.trim_end().lines().last().unwrap_or_default();
        assert!(!status.success() && last.starts_with("warpline-bench: the other end: "), "{errors}");
        assert!(last.contains("connection timed out"), "{errors}");
    }
}
