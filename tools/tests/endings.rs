//! How rigs end when something around them does: the reader of their output, the room for a file, the
//! patience of their user.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use signal_hook::consts::SIGPIPE;

mod running;

use running::Running;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-tools"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A reader that has seen enough ends the command, as SIGPIPE ends any, and in silence.
#[test]
fn a_closed_pipe_ends_quietly() {
    let mut running = Running::start(&["reassembly", "--connections", "10,20,30,40"]);
    running.wait_for_output("\n");
    drop(running.child.stdout.take());
    let (status, _, errors) = running.end();
    assert_eq!(status.signal(), Some(SIGPIPE), "{errors}");
    assert_eq!(errors, "");
}

/// A report has its file before anything is measured.
#[test]
fn a_report_is_opened_first() {
    for line in [&["reassembly"][..], &["impair", "--left", "eal:net_null0", "--right", "eal:net_null1"]] {
        let output = command(&[line, &["--json", "/nonexistent/report"]].concat()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {errors}");
        let expected = "warpline-tools: /nonexistent/report: No such file or directory (os error 2)";
        assert_eq!(errors.trim_end().lines().last(), Some(expected), "{line:?}");
        assert!(output.stdout.is_empty(), "{line:?}: {output:?}");
    }
}

/// Ends that wait, for a peer or for commands, end too, and leave no socket.
#[test]
fn a_signal_ends_what_waits() {
    let eal = ["--eal", "--in-memory --no-huge --no-pci -m 200"];
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let own = format!("memif:{},role=server,address=198.18.0.1/24", socket.display());
    let files = ["--send", "/dev/null", "--receive", "/dev/null", "--receive-octets", "8"];
    for (line, code) in [
        (&["operations", "--device", &own, "--listen", "7471"][..], 0),
        (&[&["exchange", "--device", &own, "--listen", "7471"], &files[..]].concat(), 1),
    ] {
        let mut running = Running::start_with_input(&[line, &eal[..]].concat());
        running.wait_for_error("ready");
        running.signal("-INT");
        let (status, _, errors) = running.end();
        assert_eq!(status.code(), Some(code), "{line:?}: {errors}");
        assert!(!socket.exists(), "{line:?} leaves its socket");
    }
}
