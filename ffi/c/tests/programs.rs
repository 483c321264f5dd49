//! Tests of the installed C library: programs find it with pkg-config, compile with the system's compiler,
//! and run.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

const STRICT: [&str; 6] = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} does not run: {error}"))
}

/// Returns the output of a command that must succeed.
fn printed(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The library in a place of its own, installed once for all tests that run at a time: to join its objects
/// takes seconds.
static PREFIX: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());

/// The library, and a place for the programs of a test. Both go with the last that uses them.
struct Installed {
    prefix: Arc<TempDir>,
    programs: TempDir,
}

impl Installed {
    fn new() -> Self {
        let directory = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // A test that cannot install fails; the next one tries again.
        let mut shared = PREFIX.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = shared.upgrade().unwrap_or_else(|| {
            let prefix = Arc::new(directory());
            let program = std::env::current_exe().unwrap();
            // Next to the tests, where Cargo has put the libraries.
            let built = program.parent().unwrap();
            let mut install = Command::new(root().join("scripts/install-c"));
            printed(install.arg("--built").arg(built).arg(prefix.path()));
            *shared = Arc::downgrade(&prefix);
            prefix
        });
        Self { prefix, programs: directory() }
    }

    /// A file of the library, by its path under the prefix.
    fn file(&self, path: &str) -> PathBuf {
        self.prefix.path().join(path)
    }

    fn pkg_config(&self, wanted: &[&str]) -> Vec<String> {
        let path = self.file("lib/pkgconfig");
        let flags =
            printed(Command::new("pkg-config").args(wanted).arg("warpline").env("PKG_CONFIG_PATH", path));
        flags.split_whitespace().map(str::to_owned).collect()
    }

    /// The example of that name, compiled.
    fn compile(&self, name: &str, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> PathBuf {
        let program = self.programs.path().join(name);
        let source = root().join("ffi/c/examples").join(name).with_extension("c");
        printed(
            Command::new("cc").args(STRICT).arg("-o").arg(&program).arg(source).args(flags).arg("-lpthread"),
        );
        program
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.file("lib"));
        command
    }
}

#[test]
fn a_program_with_the_shared_library() {
    let installed = Installed::new();
    let program = installed.compile("ping_pong", installed.pkg_config(&["--cflags", "--libs"]));
    let libraries = printed(installed.command("ldd").arg(&program));
    let ours = format!("libwarpline.so.0 => {}", installed.file("lib/libwarpline.so.0").display());
    assert!(libraries.contains(&ours), "{libraries}");
    assert_eq!(printed(installed.command(&program).arg("200")), "200 pings answered\n");

    // A failure is put in words.
    let failing = run(installed.command(&program).args(["server", "afpacket:eth1,address=198.18.0.1"]));
    let words = String::from_utf8_lossy(&failing.stderr);
    assert_eq!(failing.status.code(), Some(1));
    assert!(
        words.starts_with("warpline_device_open: device 'afpacket:eth1,") && words.ends_with("(-22)\n"),
        "{words}"
    );
}

#[test]
fn a_program_with_the_static_library() {
    let installed = Installed::new();
    let mut flags = installed.pkg_config(&["--cflags", "--libs", "--static"]);
    for flag in &mut flags {
        if flag == "-lwarpline" {
            *flag = installed.file("lib/libwarpline.a").display().to_string();
        }
    }
    let program = installed.compile("ping_pong", flags);
    assert!(!printed(Command::new("ldd").arg(&program)).contains("libwarpline"));
    assert_eq!(printed(Command::new(&program).arg("200")), "200 pings answered\n");
}

/// The block of shell commands in README.md that begins with `first`.
fn block(first: &str) -> String {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let found = blocks.filter(|block| block.starts_with(first)).collect::<Vec<_>>();
    let [found] = found[..] else { panic!("README.md has {} blocks that begin with {first}", found.len()) };
    found.to_owned()
}

/// The commands of README.md, as they stand there but for what is installed: the libraries that the tests
/// have built, not a release.
#[test]
fn the_commands_of_the_readme_run_as_they_stand() {
    let home = tempfile::tempdir().unwrap();
    let block = block("scripts/install-c ~/warpline");
    let (install, rest) = block.split_once('\n').unwrap();
    let built = std::env::current_exe().unwrap();
    let built = built.parent().unwrap().display();
    let install = install.replacen("install-c", &format!("install-c --built {built}"), 1);
    // What is compiled stays out of the sources.
    let script = format!("set -e\n{install}\ncd\nln -s {}/ffi .\n{rest}", root().display());
    let mut shell = Command::new("timeout");
    let said = printed(
        shell
            .args(["300", "bash", "-c", &script])
            .env("HOME", home.path())
            .env_remove("WARPLINE_DEVICE")
            .current_dir(root()),
    );
    let promised = block.rsplit('"').nth(1).unwrap();
    assert_eq!(said.lines().last(), Some(promised), "{said}");
}

/// Nothing else: another symbol could meet one of the program, or of another library in it.
#[test]
fn the_library_exports_the_functions_of_the_header() {
    let installed = Installed::new();
    let header = std::fs::read_to_string(installed.file("include/warpline.h")).unwrap();
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| !line.trim_start().starts_with('*'))
        .flat_map(|line| line.split(|character: char| character.is_whitespace() || character == '*'))
        .filter_map(|word| word.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("warpline_"))
        .collect();
    assert!(declared.len() > 100 && declared.contains("warpline_device_open"), "{declared:?}");
    for (library, kind) in [("lib/libwarpline.so", "--dynamic"), ("lib/libwarpline.a", "--extern-only")] {
        let list = ["--defined-only", "--format=posix", kind];
        let exported = printed(Command::new("nm").args(list).arg(installed.file(library)));
        let names = exported.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name);
        assert_eq!(names.collect::<BTreeSet<&str>>(), declared, "{library}");
    }
}

/// Both ends by one thread that sleeps until something happens.
#[test]
fn a_program_that_waits_for_events() {
    let installed = Installed::new();
    let program = installed.compile("events", installed.pkg_config(&["--cflags", "--libs"]));
    assert_eq!(printed(&mut installed.command(&program)), "the server has said: hello\n");
}

/// Two processes, each with a DPDK port of its own, and shared memory between these.
#[cfg(feature = "dpdk")]
#[test]
fn two_programs_over_dpdk() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let installed = Installed::new();
    let program = installed.compile("ping_pong", installed.pkg_config(&["--cflags", "--libs"]));
    // The path of a socket has to be short.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let end = |role: &str, address: &str| {
        let device = format!("memif:{},role={role},address={address}", socket.display());
        let mut command = installed.command(&program);
        command.env("WARPLINE_EAL", "--no-huge -m 200").args([role, &device]);
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
    let words = String::from_utf8_lossy(&answered.stderr);
    assert_eq!(String::from_utf8_lossy(&answered.stdout), "200 pings answered\n", "{words}");
    assert!(ended.success(), "{ended}");
}

/// The client in C and the server in Rust, in two processes.
#[cfg(feature = "dpdk")]
#[test]
fn a_client_in_c_for_a_server_in_rust() {
    use std::io::{BufRead, BufReader, Read};

    let program = std::env::current_exe().unwrap();
    let server = program.parent().unwrap().parent().unwrap().join("examples/hello_server");
    assert!(server.exists(), "{} is not built: cargo build --package warpline --examples", server.display());
    let installed = Installed::new();
    let client = installed.compile("client", installed.pkg_config(&["--cflags", "--libs"]));
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let device =
        |role: &str, host: u8| format!("memif:{},role={role},address=198.18.0.{host}/24", socket.display());
    let mut serving = Command::new(server);
    serving.arg(device("server", 2));
    serving.stdout(std::process::Stdio::piped());
    let mut serving = serving.spawn().unwrap();
    // The client's driver looks for the socket once.
    let (mut output, mut served) = (BufReader::new(serving.stdout.take().unwrap()), String::new());
    output.read_line(&mut served).unwrap();
    assert!(served.starts_with("listening on "), "{served}");
    let mut connecting = installed.command(client);
    let said = run(connecting.args([&device("client", 1), "198.18.0.2"]));
    if !said.status.success() {
        // It waits for the client that has failed.
        serving.kill().unwrap();
    }
    output.read_to_string(&mut served).unwrap();
    serving.wait().unwrap();
    let words = String::from_utf8_lossy(&said.stderr);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "written, read back and counted\n", "{words}");
    assert!(served.ends_with("the client has written: hello\n"), "{served}");
}
