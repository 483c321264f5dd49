//! Tests that the examples run, that docs/tutorial.md shows their code and output, and that the commands of
//! README.md and the tutorial that start them run as they stand there.
#![cfg(feature = "dpdk")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a program may take: longer than any does on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(4);

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

/// Lets one test at a time start programs on devices of their own, each of which takes hugepages: there may
/// not be enough for the programs of two.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Waits until a process listens at `socket`: its file is there a moment earlier, and who connects then is
/// refused.
fn until_listening(socket: &Path) {
    // unix(7): type, path and flags; the last are those of a socket that accepts.
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(3) == Some(&"00010000") && fields.last().is_some_and(|path| Path::new(path) == socket)
    };
    let begin = Instant::now();
    while !fs::read_to_string("/proc/net/unix").unwrap().lines().any(listens) {
        assert!(begin.elapsed() < PATIENCE, "nobody listens at {}", socket.display());
        std::thread::sleep(Duration::from_millis(10));
    }
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

/// Each example takes its device from the environment where it is not told one, and says what is wrong with
/// it in words: `main` prints the sentence of its error.
#[test]
fn examples_obey_the_environment() {
    let said = |name: &str, arguments: &[&str], device: Option<&str>| {
        let mut program = example(name);
        program.args(arguments).env_remove("WARPLINE_DEVICE");
        if let Some(device) = device {
            program.env("WARPLINE_DEVICE", device);
        }
        let output = finish(start(&mut program), name);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let unknown = "Error: device 'teleport': there is no kind 'teleport'; the kinds are ";
    for (name, arguments) in [
        ("hello_server", &[][..]),
        ("hello_client", &["198.18.0.2"]),
        ("ping_pong", &["server"]),
        ("ping_pong", &["client", "198.18.0.2"]),
        ("ping_pong", &[]),
        ("key_value", &["server"]),
        ("file_transfer", &["server"]),
        ("nfs_shaped", &["client", "198.18.0.2"]),
        ("http", &["server", "."]),
        ("http", &["client", "198.18.0.2:80", "get", ".", "/x"]),
        ("write_into_peer", &[]),
    ] {
        let (success, errors) = said(name, arguments, Some("teleport"));
        assert!(!success && errors.starts_with(unknown), "{name} {arguments:?}: {errors}");
        if !arguments.is_empty() {
            let (success, errors) = said(name, arguments, None);
            assert!(!success && !errors.contains("panicked"), "{name} {arguments:?}: {errors}");
            assert!(errors.contains("DEVICE"), "{name} {arguments:?}: {errors}");
        }
    }
    for name in ["ping_pong", "write_into_peer"] {
        let (success, errors) = said(name, &[], Some("tap:t,address=198.18.0.1"));
        assert!(!success && errors.contains("WARPLINE_DEVICE is tap:t"), "{errors}");
        assert!(said(name, &[], Some("ring,mtu=9000")).0, "{name}");
    }
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

/// A segment with the TCP RDMA option that describes a transfer, as RFC 9293 and draft-csapuntz-tcprdma-00
/// §3.1 say.
#[derive(Debug)]
struct Described {
    source_port: u16,
    /// Bits A and U.
    aligned: bool,
    unsolicited: bool,
    rid: u64,
    /// Octets of the option.
    form: usize,
    payload: Vec<u8>,
}

fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// Reads the segments of a frame that describe transfers.
fn described(frame: &[u8]) -> Option<Described> {
    if frame[12..14] != [8, 0] || frame[23] != 6 {
        return None;
    }
    let packet = &frame[14..14 + number(&frame[16..18]) as usize];
    let tcp = &packet[usize::from(packet[0] & 15) * 4..];
    let (mut list, payload) = tcp.split_at(usize::from(tcp[12] >> 4) * 4);
    list = &list[20..];
    while let [kind, rest @ ..] = list
        && *kind != 0
    {
        let len = if *kind == 1 { 1 } else { usize::from(rest[0]) };
        if *kind == 25 && len >= 16 {
            return Some(Described {
                source_port: number(&tcp[..2]) as u16,
                aligned: list[2] & 0x80 != 0,
                unsolicited: list[2] & 0x40 != 0,
                rid: number(&list[2..8]) & 0x3fff_ffff_ffff,
                form: len,
                payload: payload.to_vec(),
            });
        }
        list = &list[len..];
    }
    None
}

/// Reads all such segments of a capture (draft-ietf-opsawg-pcapng §4.3).
fn transfers_of(capture: &Path) -> Vec<Described> {
    const ENHANCED_PACKET: usize = 6;
    let capture = fs::read(capture).unwrap();
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut segments) = (0, Vec::new());
    while at < capture.len() {
        if word(at) == ENHANCED_PACKET {
            segments.extend(described(&capture[at + 28..at + 28 + word(at + 20)]));
        }
        at += word(at + 4);
    }
    assert!(segments.len() > 100, "{} segments", segments.len());
    segments
}

/// What the client of HTTP gets, it has asked for; what it posts, the server does not expect. Names are the
/// index of the request, and all other bits zero.
// Requirements: TRO-5.2.1-01, TRO-5.2.2-01, TRO-5.2.3-01
#[test]
fn a_capture_shows_the_transfers_of_http() {
    let directory = Directory::new("http-capture");
    let capture = directory.0.join("http.pcapng");
    let output = finish(start(example("http").arg("--pcap").arg(&capture)), "http");
    assert!(output.status.success(), "{output:?}");
    let segments = transfers_of(&capture);
    for from_server in [true, false] {
        let mut segments = segments.iter().filter(|segment| (segment.source_port == 80) == from_server);
        assert!(segments.clone().count() > 50, "from the server: {from_server}");
        let as_said = |segment: &Described| {
            segment.unsolicited != from_server && segment.rid < 14 && segment.form == 20
        };
        assert!(segments.all(as_said), "from the server: {from_server}");
    }
}

/// Replies to READ are expected, the data of WRITE is not. Bits 40 to 45 of names are zero, and so is the
/// index of the operation, as in NFS version 3. A message begins with the record mark of ONC RPC.
// Requirements: TRO-5.1.1-01, TRO-5.1.1-03, TRO-5.1.1-04, TRO-5.1.2-01, TRO-5.1.3-01, TRO-5.1.4-01
#[test]
fn a_capture_shows_the_transfers_of_nfs() {
    let directory = Directory::new("nfs-capture");
    let capture = directory.0.join("nfs.pcapng");
    let output = finish(start(example("nfs_shaped").arg("--pcap").arg(&capture)), "nfs_shaped");
    assert!(output.status.success(), "{output:?}");
    let segments = transfers_of(&capture);
    let mut seen = [[0; 2]; 2];
    for Described { source_port, aligned, unsolicited, rid, payload, .. } in segments {
        let from_server = source_port == 7471;
        assert_eq!(unsolicited, !from_server);
        assert_eq!(rid >> 32, 0, "{rid:x}");
        seen[usize::from(from_server)][usize::from(aligned)] += 1;
        if aligned {
            // The last fragment of a record (RFC 5531 §11), its length, its XID, and 0 for a call or 1.
            let [mark, xid, kind] = [0, 4, 8].map(|at| number(&payload[at..at + 4]));
            let length = mark & 0x7fff_ffff;
            assert!(mark >> 31 == 1 && length < 70_000, "{mark:x}");
            assert_eq!((xid, kind), (rid, u64::from(from_server)));
        }
    }
    assert!(seen.iter().flatten().all(|count| *count > 50), "{seen:?}");
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

/// A server on two cores: clients are at both, or at one by chance, once in 128 times.
#[test]
fn a_server_has_two_cores() {
    let said = says(start(&mut example("two_cores")), "two_cores");
    let counts =
        said.strip_prefix("8 clients have written, at 2 cores: [").and_then(|rest| rest.strip_suffix(']'));
    let counts: Vec<usize> =
        counts.unwrap_or_else(|| panic!("{said}")).split(", ").map(|count| count.parse().unwrap()).collect();
    assert_eq!((counts.len(), counts.iter().sum::<usize>()), (2, 8), "{said}");
}

/// The programs of the tutorial, in two processes, as it starts them.
#[test]
fn the_tutorial_works() {
    let _turn = one_at_a_time();
    let directory = Directory::new("tutorial");
    let socket = directory.0.join("hello.sock");
    let device = |role: &str, host: u8| {
        let socket = socket.display();
        format!("memif:{socket},role={role},address=198.18.0.{host}/24")
    };
    let server = start(example("hello_server").arg(device("server", 2)));
    until_listening(&socket);
    let mut client = example("hello_client");
    client.args([&device("client", 1), "198.18.0.2"]);
    assert_eq!(says(start(&mut client), "hello_client"), "written, read back and counted");
    assert_eq!(says(server, "hello_server"), "the client has written: hello");
}

/// The block of shell commands in a document that begins with `first`. The programs are those that `cargo
/// test` has built beside this test.
fn block(first: &str, document: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(root.join(document)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut blocks = blocks.filter(|block| block.starts_with(first));
    let found = blocks.next().unwrap_or_else(|| panic!("{document} has no commands that begin with {first}"));
    assert!(blocks.next().is_none(), "two blocks begin with {first}");
    let built = PathBuf::from(example("http").get_program());
    found.replace("target/release/examples/", &format!("{}/", built.parent().unwrap().display()))
}

/// A shell that runs `script`, and is ended before it would be given up.
fn shell(script: &str, home: &Path) -> Command {
    let mut command = Command::new("timeout");
    let seconds = (PATIENCE.as_secs() - 20).to_string();
    command.args(["--kill-after", "10", &seconds, "bash", "-c", script]);
    command.env("HOME", home).env_remove("WARPLINE_DEVICE");
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The memory in hugepages of 2 MiB that nobody has reserved.
fn free_hugepage_mib() -> u64 {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    2 * free.ok().and_then(|pages| pages.trim().parse::<u64>().ok()).unwrap_or(0)
}

/// The commands of the tutorial, in two shells as it has them.
#[test]
fn the_tutorial_runs_as_it_stands() {
    let (server, client) = (
        block("target/release/examples/hello_server", "docs/tutorial.md"),
        block("target/release/examples/hello_client", "docs/tutorial.md"),
    );
    let _turn = one_at_a_time();
    if free_hugepage_mib() < 512 {
        eprintln!("skipped: needs hugepages, the only memory that a peer of vhost-user may share");
        return;
    }
    let directory = Directory::new("shells");
    let server = start(&mut shell(&server, &directory.0));
    until_listening(&directory.0.join("hello.sock"));
    let client = says(start(&mut shell(&client, &directory.0)), "hello_client");
    let server = says(server, "hello_server");
    let tutorial =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/tutorial.md"));
    let promised = format!("The client prints `{client}`, the server `{server}`.");
    assert!(tutorial.unwrap().contains(&promised), "{promised}");
}

/// The commands of README.md that serve files, in two shells as it has them: those of the second are typed
/// when the server prints that it is ready.
#[test]
fn the_server_of_files_runs_as_it_stands() {
    let (first, second) = (
        block("cargo build --release --package warpline --examples", "README.md"),
        block("sudo ip addr add 198.18.0.1/24 dev tap0", "README.md"),
    );
    if !may_make_taps() {
        eprintln!("skipped: needs root and /dev/net/tun");
        return;
    }
    let _turn = one_at_a_time();
    // What the first line builds is built. The last one is the server, which goes on.
    let commands: Vec<&str> = first.lines().skip(1).collect();
    let (server, before) = commands.split_last().unwrap();
    // Root needs no sudo, which may not be there.
    let script = [
        "set -e",
        "sudo() { if [ $BASHPID = $$ ]; then \"$@\"; else exec \"$@\"; fi; }",
        &before.join("\n"),
        "{",
        server,
        "} 2>~/errors & server=$!",
        "trap 'kill $server; cat ~/errors >&2; wait' EXIT",
        "until grep -qx ready ~/errors; do kill -0 $server; sleep 0.1; done",
        &second,
    ]
    .join("\n");
    let directory = Directory::new("readme");
    let mut command = Command::new("unshare");
    let shell = shell(&script, &directory.0);
    command.arg("--net").arg(shell.get_program()).args(shell.get_args()).env("HOME", &directory.0);
    let output = finish(start(command.env_remove("WARPLINE_DEVICE")), "the commands of README.md");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("14 responses, 1 connections"), "{output:?}");
    let copyright = fs::read_to_string("/usr/share/doc/base-files/copyright").unwrap_or_default();
    assert!(!copyright.is_empty() && said.contains(&copyright), "{output:?}");
}

fn may_make_taps() -> bool {
    is_root() && Path::new("/dev/net/tun").exists()
}

/// Every block of Rust in the tutorial appears in one of its programs, line by line.
#[test]
fn the_tutorial_shows_what_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tutorial = fs::read_to_string(root.join("docs/tutorial.md")).unwrap();
    let programs = ["hello_server", "hello_client", "two_cores"]
        .map(|name| fs::read_to_string(root.join(format!("control/examples/{name}.rs"))).unwrap());
    let blocks: Vec<_> =
        tutorial.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 8, "{} blocks", blocks.len());
    for block in blocks {
        assert!(programs.iter().any(|program| program.contains(block)), "not in a program:\n{block}");
    }
}
