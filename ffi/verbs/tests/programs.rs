//! Programs in C, compiled against rdma-core, that run with the library in front: in a network namespace with
//! an interface of its own, whose address is the kernel's. Needs root, `cc` and rdma-core's libraries.
#![allow(missing_docs)]

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicU32, Ordering};

/// A program may take so long, in seconds: many times what it does.
const LIMIT: &str = "120";

/// A network namespace with the interface `rdma0` and the address 198.18.0.1.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("warpline-verbs-{}-{}", id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        run("ip", &["netns", "add", &name]);
        let namespace = Self(name);
        let name = &namespace.0;
        run("ip", &["-n", name, "link", "add", "rdma0", "type", "veth", "peer", "name", "far"]);
        run("ip", &["-n", name, "address", "add", "198.18.0.1/24", "dev", "rdma0"]);
        for interface in ["lo", "far", "rdma0"] {
            run("ip", &["-n", name, "link", "set", interface, "up"]);
        }
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {}: {output:?}", arguments.join(" "));
    output
}

/// Returns where cargo has put the library that was built for the tests: beside this one.
fn library() -> PathBuf {
    let test = env::current_exe().expect("this test");
    let library = test.with_file_name("libwarpline_verbs.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// Compiles `tests/c/{source}.c` as `name`, and returns where that is.
fn compiled(source: &str, name: &str, options: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source).with_extension("c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).display().to_string();
    let source = source.display().to_string();
    let mut arguments = vec!["-o", &program, &source, "-Wall", "-Wextra", "-Werror", "-O1", "-g"];
    arguments.extend(options);
    run("cc", &arguments);
    program
}

/// Compiles `name`, and runs it with the library in front.
fn play(name: &str) {
    if !fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        eprintln!("skipped: needs root");
        return;
    }
    let program = compiled(name, name, &["-libverbs", "-lrdmacm", "-lpthread"]);
    let namespace = Namespace::new();
    let output = Command::new("timeout")
        .args([LIMIT, "ip", "netns", "exec", &namespace.0, &program])
        .env("LD_PRELOAD", library())
        .env("WARPLINE_DEVICE", "packet:rdma0")
        .output()
        .expect("timeout and ip");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{words}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{words}");
}

#[test]
fn every_operation_moves_what_it_should() {
    play("operations");
}

#[test]
fn sends_are_built_and_completions_are_read_by_fields() {
    play("extended");
}

#[test]
fn bad_input_is_an_error() {
    play("misuse");
}

#[test]
fn children_have_devices_of_their_own() {
    play("forks");
}

#[test]
fn destroyed_queue_pairs_leave_no_completions() {
    play("destroyed");
}

#[test]
fn destroyed_completion_queues_leave_nothing_on_their_channel() {
    play("shared_channel");
}

#[test]
fn what_stands_still_ends_after_its_disconnect() {
    play("stands_still");
}

#[test]
fn a_killed_program_is_missed_by_its_peer() {
    play("killed");
}

#[test]
fn a_peer_that_leaves_without_an_answer_has_rejected() {
    play("strangers");
}

/// A program that loads the libraries by name finds these functions; other libraries are found where the
/// program says.
#[test]
#[cfg(target_arch = "x86_64")]
fn libraries_are_found_by_name() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("beside");
    fs::create_dir_all(&directory).unwrap();
    compiled("loaded", "beside/libbeside.so", &["-shared", "-fPIC"]);
    let beside = format!("-Wl,--enable-new-dtags,-rpath,{}", directory.display());
    let program = compiled("loading", "loading", &["-ldl", &beside]);
    let output = Command::new(&program)
        .env("LD_PRELOAD", library())
        .env("WARPLINE_DEVICE", "packet:none")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{words}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{words}");
}
