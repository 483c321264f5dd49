//! The commands of README.md that start the benchmark, run as they stand there: by a shell, in a home and a
//! network namespace of their own.
//!
//! Other blocks are run beside what they need: those of the examples and the tutorial in
//! `control/tests/examples.rs`, the one of C in `ffi/c/tests/programs.rs`. `scripts/tests/test_documents.py`
//! finds a block that nobody runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// All blocks poll on the same CPUs, one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// What the lines of a block are: one after the other, or one for each of two shells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shells {
    One,
    Two,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The block of shell commands in README.md that begins with `first`.
fn block(first: &str) -> String {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut blocks = blocks.filter(|block| block.starts_with(first));
    let found = blocks.next().unwrap_or_else(|| panic!("README.md has no commands that begin with {first}"));
    assert!(blocks.next().is_none(), "two blocks begin with {first}");
    found.to_owned()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The memory in hugepages of 2 MiB that nobody has reserved.
fn free_hugepage_mib() -> u64 {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    2 * free.ok().and_then(|pages| pages.trim().parse::<u64>().ok()).unwrap_or(0)
}

/// Runs a block in at most five minutes, and returns what it printed.
fn run(block: &str, shells: Shells) -> Output {
    let _turn = TURN.lock();
    let home = tempfile::tempdir().unwrap();
    let mut script = String::from("set -e\n");
    match shells {
        Shells::One => script.push_str(block),
        // The second line is typed when the first says that it waits.
        Shells::Two => {
            let mut lines = block.lines();
            let [first, second] = [lines.next().unwrap(), lines.next().unwrap()];
            assert_eq!(lines.next(), None, "two shells have a line each");
            script.extend([
                "{ ",
                first,
                "; } 2> $HOME/log & first=$!\n",
                "for _ in $(seq 2400); do grep -q 'waiting at' $HOME/log && break\n",
                "kill -0 $first || { cat $HOME/log >&2; exit 3; }; sleep 0.1; done\n",
                second,
                "\nwait $first\n",
            ]);
        }
    }
    let program = Path::new(env!("CARGO_BIN_EXE_warpline-bench"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "10", "300"]);
    if is_root() {
        command.args(["unshare", "--net"]);
    }
    let command = command.args(["bash", "-c", &script]).env("PATH", path).env("HOME", home.path());
    command.env_remove("WARPLINE_DEVICE").current_dir(root()).output().unwrap()
}

/// What a block prints, which must succeed.
fn printed(block: &str, shells: Shells) -> String {
    let output = run(block, shells);
    assert!(output.status.success(), "{block}{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_first_measurement() {
    let said = printed(&block("warpline-bench write-bw --mtu 9000"), Shells::One);
    assert!(said.contains(" 65536 ") && said.contains("wrong: 0"), "{said}");
}

#[test]
fn pings_of_rping() {
    let said = printed(&block("warpline-bench ping --size 64"), Shells::One);
    let pings = said.lines().last().unwrap_or_default();
    assert!(pings.contains("1000"), "{said}");
}

#[test]
fn two_ends_of_a_veth_pair() {
    let block = block("ip link add e1");
    if !is_root() {
        eprintln!("skipped: needs root, for a network namespace");
        return;
    }
    let said = printed(&block, Shells::One);
    assert!(said.contains(" 65536 ") && said.contains("wrong: 0"), "{said}");
}

#[test]
fn two_ends_of_a_socket() {
    let block = block("warpline-bench write-bw --device vhost:$HOME/x.sock");
    if free_hugepage_mib() < 700 {
        eprintln!("skipped: needs hugepages, the only memory that a peer of vhost-user may share");
        return;
    }
    let said = printed(&block, Shells::Two);
    assert!(said.contains(" 65536 ") && said.contains("wrong: 0"), "{said}");
}
