//! The library as a C program meets it: installed, found by pkg-config, compiled by the system's compiler, run.
#![allow(missing_docs)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STRICT: [&str; 6] =
    ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} does not run: {error}"))
}

/// What a command prints that succeeds.
fn printed(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The library in a place of its own, which goes with it.
struct Installed(PathBuf);

impl Installed {
    fn new(name: &str) -> Self {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // What an earlier run may have left; else it is an error that nobody minds.
        let _ = std::fs::remove_dir_all(&prefix);
        let program = std::env::current_exe().unwrap();
        // Next to the tests, where Cargo has put the libraries.
        let built = program.parent().unwrap();
        printed(Command::new(root().join("scripts/install-c")).arg("--built").arg(built).arg(&prefix));
        Self(prefix)
    }

    fn pkg_config(&self, wanted: &[&str]) -> Vec<String> {
        let path = self.0.join("lib/pkgconfig");
        let flags =
            printed(Command::new("pkg-config").args(wanted).arg("warpline").env("PKG_CONFIG_PATH", path));
        flags.split_whitespace().map(str::to_owned).collect()
    }

    /// The example, compiled.
    fn compile(&self, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> PathBuf {
        let program = self.0.join("ping_pong");
        let source = root().join("ffi/c/examples/ping_pong.c");
        printed(
            Command::new("cc").args(STRICT).arg("-o").arg(&program).arg(source).args(flags).arg("-lpthread"),
        );
        program
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.0.join("lib"));
        command
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // A test that has failed says more than this.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_with_the_shared_library() {
    let installed = Installed::new("shared");
    let program = installed.compile(installed.pkg_config(&["--cflags", "--libs"]));
    let libraries = printed(installed.command("ldd").arg(&program));
    let ours = format!("libwarpline.so.0 => {}", installed.0.join("lib/libwarpline.so.0").display());
    assert!(libraries.contains(&ours), "{libraries}");
    assert_eq!(printed(installed.command(&program).arg("200")), "200 pings answered\n");

    // A failure is put in words.
    let failing = run(installed.command(&program).args(["server", "--no-huge", "none", "198.18.0.1"]));
    let words = String::from_utf8_lossy(&failing.stderr);
    assert_eq!(failing.status.code(), Some(1));
    assert!(words.starts_with("warpline_open: '198.18.0.1'") && words.ends_with("(-22)\n"), "{words}");
}

#[test]
fn a_program_with_the_static_library() {
    let installed = Installed::new("static");
    let mut flags = installed.pkg_config(&["--cflags", "--libs", "--static"]);
    for flag in &mut flags {
        if flag == "-lwarpline" {
            *flag = installed.0.join("lib/libwarpline.a").display().to_string();
        }
    }
    let program = installed.compile(flags);
    assert!(!printed(Command::new("ldd").arg(&program)).contains("libwarpline"));
    assert_eq!(printed(Command::new(&program).arg("200")), "200 pings answered\n");
}

/// Two processes, each with a DPDK port of its own, and shared memory between these.
#[cfg(feature = "dpdk")]
#[test]
fn two_programs_over_dpdk() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let installed = Installed::new("dpdk");
    let program = installed.compile(installed.pkg_config(&["--cflags", "--libs"]));
    // The path of a socket has to be short.
    let socket = std::env::temp_dir().join(format!("warpline-c-{}.sock", std::process::id()));
    let end = |role: &str, address: &str| {
        let port = format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
        let mut command = installed.command(&program);
        command.arg(role).arg(format!("--in-memory --no-huge -m 200 --vdev={port}"));
        command.args(["net_memif0", address]);
        command
    };
    let mut server = end("server", "198.18.0.2/24").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listening\n");
    let answered = run(end("client", "198.18.0.1/24").args(["198.18.0.2", "200"]));
    if !answered.status.success() {
        // It waits for the client that has failed.
        server.kill().unwrap();
    }
    let ended = server.wait().unwrap();
    // The server's driver may have done so.
    let _ = std::fs::remove_file(&socket);
    let words = String::from_utf8_lossy(&answered.stderr);
    assert_eq!(String::from_utf8_lossy(&answered.stdout), "200 pings answered\n", "{words}");
    assert!(ended.success(), "{ended}");
}
