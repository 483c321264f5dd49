//! Tests that the examples run, and that docs/tutorial.md shows their code and output.
#![cfg(feature = "dpdk")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(50);

/// A directory of a test's own, which goes with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        Self(tempfile::Builder::new().prefix(&format!("warpline-{name}-")).tempdir().unwrap().keep())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The example called `name`, which `cargo test` has built beside this test.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    Command::new(program)
}

/// Returns the output of a program, which must end in time.
fn finish(mut child: Child, name: &str) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            panic!("{name} does not end: {output:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The last line that a program prints, which must succeed.
fn says(child: Child, name: &str) -> String {
    let output = finish(child, name);
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_greeting_is_written() {
    let said = says(start(&mut example("write_into_peer")), "write_into_peer");
    assert_eq!(said, "44 bytes written into the peer's memory and verified");
}

#[test]
fn messages_go_there_and_back() {
    let said = says(start(&mut example("ping_pong")), "ping_pong");
    assert!(said.starts_with("1000 messages of 64 bytes there and back, median "), "{said}");
}

#[test]
fn values_are_put_and_got() {
    let said = says(start(&mut example("key_value")), "key_value");
    assert!(said.starts_with("3 clients put and got 150 values"), "{said}");
}

#[test]
fn a_file_is_fetched() {
    let directory = Directory::new("file-transfer");
    let file = directory.0.join("original");
    let octets: Vec<u8> = (0..1_234_567_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&file, &octets).unwrap();
    let mut program = example("file_transfer");
    program.env("WARPLINE_FILE", &file).env("WARPLINE_DIRECTORY", &directory.0);
    assert_eq!(
        says(start(&mut program), "file_transfer"),
        "original: 1234567 bytes fetched by the server and verified"
    );
    assert!(fs::read(directory.0.join("received/original")).unwrap() == octets);
}

/// Three clients each, with the TCP RDMA option and without.
// Requirements: TRO-5.2.1-01, TRO-5.2.2-01, TRO-5.2.3-01
#[test]
fn files_are_got_and_posted_by_http() {
    let output = finish(start(&mut example("http")), "http");
    assert!(output.status.success(), "http: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let client = |option, placed| {
        format!(
            "14 responses, 1 connections, the last one {option} the option: 20781875 bytes of bodies, \
             {placed} placed, "
        )
    };
    let (with, without) = (client("with", 20_781_875), client("without", 0));
    let [server_with, server_without] = [1_386_732, 0]
        .map(|placed| format!("the server: 62345625 bytes sent, 10386732 received, {placed} of them placed"));
    let expected = [&with, &with, &with, &server_with, &without, &without, &without, &server_without];
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    for (line, expected) in said.lines().zip(expected) {
        let copied = line.strip_prefix(expected.as_str()).unwrap_or_else(|| panic!("{said}"));
        if let Some(copied) = copied.strip_suffix(" copied") {
            let copied: u64 = copied.parse().unwrap();
            let heads = if *expected == with { copied } else { copied - 20_781_875 };
            assert!((14 * 80..14 * 250).contains(&heads), "heads of {heads} bytes");
        }
    }
}

/// READs of the last one find the end of the file; two fail.
// Requirements: TRO-5.1.1-01, TRO-5.1.2-01, TRO-5.1.2-02, TRO-5.1.3-01
#[test]
fn blocks_are_read_and_written_in_the_shape_of_nfs() {
    let output = finish(start(&mut example("nfs_shaped")), "nfs_shaped");
    assert!(output.status.success(), "nfs_shaped: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines.contains(&"the server: 219 calls, 6666666 bytes written, 6666666 of them placed")
            && lines.contains(&"219 replies, 6666671 bytes read, 6666671 placed, 2 transfers of nothing"),
        "{said}"
    );
    let last = lines.iter().find_map(|line| line.split_once(" replies out of order, "));
    let (out_of_order, copied) = last.unwrap_or_else(|| panic!("{said}"));
    let copied: u64 = copied.strip_suffix(" bytes copied").unwrap().parse().unwrap();
    assert!(out_of_order.parse::<u64>().unwrap() > 0, "{said}");
    assert!(copied < 219 * 100, "heads of replies alone: {said}");
}

/// The programs of the tutorial, in two processes, as it starts them.
#[test]
fn the_tutorial_works() {
    let directory = Directory::new("tutorial");
    let socket = directory.0.join("hello.sock");
    let device = |role: &str, host: u8| {
        let socket = socket.display();
        format!("memif:{socket},role={role},address=198.18.0.{host}/24")
    };
    let server = example("hello_server")
        .arg(device("server", 2))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !socket.exists() {
        assert!(begin.elapsed() < PATIENCE, "the server makes no socket");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut client = example("hello_client");
    client.args([&device("client", 1), "198.18.0.2"]);
    assert_eq!(says(start(&mut client), "hello_client"), "written, read back and counted");
    assert_eq!(says(server, "hello_server"), "the client has written: hello");
}

/// Every block of Rust in the tutorial appears in one of its programs, line by line.
#[test]
fn the_tutorial_shows_what_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tutorial = fs::read_to_string(root.join("docs/tutorial.md")).unwrap();
    let programs = ["hello_server", "hello_client"]
        .map(|name| fs::read_to_string(root.join(format!("control/examples/{name}.rs"))).unwrap());
    let blocks: Vec<_> =
        tutorial.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 8, "{} blocks", blocks.len());
    for block in blocks {
        assert!(programs.iter().any(|program| program.contains(block)), "not in a program:\n{block}");
    }
}
