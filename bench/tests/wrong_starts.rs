//! Commands that cannot run: each says at once what is wrong and what to write instead, in these words, and
//! has touched nothing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The exit status for a command line that is wrong in itself, and for one that is wrong here.
const USAGE: i32 = 2;
const FAILURE: i32 = 1;
/// How soon a wrong start is reported: a moment of a person, and no timeout of a protocol.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Starts of which one is as quick as that: a busy machine may delay some.
const STARTS: usize = 10;

/// A wrong start: the words, the exit status, and the line that says what is wrong.
struct Wrong {
    line: &'static str,
    status: i32,
    said: &'static str,
}

const fn usage(line: &'static str, said: &'static str) -> Wrong {
    Wrong { line, status: USAGE, said }
}

const fn failure(line: &'static str, said: &'static str) -> Wrong {
    Wrong { line, status: FAILURE, said }
}

/// What no machine can run: names, addresses and numbers that do not go together. A word before the command
/// that has a = is for the environment. `{CPUS}` are the CPUs that this process may use.
const WRONG: &[Wrong] = &[
    // The device.
    usage(
        "write-bw --device teleport",
        "invalid value 'teleport' for '--device <NAME>': device 'teleport': there is no kind 'teleport'; the \
         kinds are ring, packet:INTERFACE, tap:INTERFACE, af_packet:INTERFACE, af_xdp:INTERFACE, memif:PATH, \
         vhost:PATH, virtio_user:PATH, pci:ADDRESS and eal:PORT",
    ),
    failure(
        "WARPLINE_DEVICE=teleport ping",
        "device 'teleport': there is no kind 'teleport'; the kinds are ring, packet:INTERFACE, \
         tap:INTERFACE, af_packet:INTERFACE, af_xdp:INTERFACE, memif:PATH, vhost:PATH, virtio_user:PATH, \
         pci:ADDRESS and eal:PORT",
    ),
    usage(
        "write-bw -d af_packet --listen 198.18.0.1",
        "invalid value 'af_packet' for '--device <NAME>': device 'af_packet': write af_packet:INTERFACE: the \
         name of a network interface, 1 to 15 bytes, as `ip link` lists it",
    ),
    usage(
        "write-bw -d pci:eth0 --listen 198.18.0.1",
        "invalid value 'pci:eth0' for '--device <NAME>': device 'pci:eth0': write pci:ADDRESS: the address \
         of a PCI device, as in pci:0000:01:00.0 (`lspci -D` lists them)",
    ),
    usage(
        "write-bw -d tap:t,color=red 198.18.0.2",
        "invalid value 'tap:t,color=red' for '--device <NAME>': device 'tap:t,color=red': tap has no option \
         'color'; its options are address, gateway, route, mtu, vlan, connections, cores, mac and queues",
    ),
    failure(
        "ping --cores 2 --core 2",
        "--core 2: the device has 2 cores, from 0 on: --cores, or cores= in its name",
    ),
    failure(
        "write-bw -d tap:t,mtu=1400 --mtu 1400 198.18.0.2",
        "device 'tap:t,mtu=1400,mtu=1400': the option 'mtu' is given twice",
    ),
    usage(
        "write-bw -d tap:t,mtu=99 198.18.0.2",
        "invalid value 'tap:t,mtu=99' for '--device <NAME>': device 'tap:t,mtu=99': '99' is no value of the \
         option 'mtu': it is 576 to 9600 bytes",
    ),
    usage("write-bw --mtu 100", "invalid value '100' for '--mtu <BYTES>': 100 is not in 576..=9600"),
    usage(
        "write-bw -i 1",
        "invalid value '1' for '--ib-port <PORT>': a device has one port, which is part of its name: leave \
         out -i, and name the device with -d",
    ),
    // The two ends.
    failure(
        "write-bw -d tap:t",
        "with device tap:t, one end needs --listen ADDR:PORT, the other HOST:PORT and --address ADDR/PREFIX \
         (or address=ADDR/PREFIX in the name of the device)",
    ),
    failure(
        "write-bw --listen 198.18.0.1",
        "the device ring has both ends in this process: name another with --device, or leave out --listen, \
         --address and HOST:PORT",
    ),
    usage(
        "write-bw -d tap:t --address 198.18.0.1/33 198.18.0.2",
        "invalid value '198.18.0.1/33' for '--address <ADDR/PREFIX>': '198.18.0.1/33' is not an address with \
         its prefix: write it like 198.18.0.1/24 or fd00::1/64",
    ),
    failure(
        "write-bw -d tap:t,address=198.18.0.1 --listen 198.18.0.9",
        "198.18.0.9 is no address of the device: name it in --address, or leave out --address",
    ),
    failure(
        "write-bw -d tap:t --listen 0.0.0.0",
        "--listen without an address takes those of the device, and tap:t has none: give it \
         address=ADDR/PREFIX, or say --listen ADDR:PORT",
    ),
    failure(
        "write-bw -d tap:t,address=198.18.0.1 0.0.0.0",
        "connect to a host, as in 198.18.0.2:7471: an unspecified address is for --listen",
    ),
    usage(
        "write-bw -d tap:t,address=198.18.0.1 198.18.0.2:x",
        "invalid value '198.18.0.2:x' for '[HOST:PORT]': '198.18.0.2:x' has no port from 1 to 65535: write \
         HOST, HOST:PORT, ADDR:PORT or [IPV6]:PORT, as in 198.18.0.2:7471",
    ),
    failure(
        "write-bw -d tap:t,address=198.18.0.1 fd00::2",
        "fd00::2: the device has no address of that version of IP: give it one with address=ADDR/PREFIX",
    ),
    usage("write-bw -p 0", "invalid value '0' for '--port <PORT>': 0 is not in 1..=65535"),
    usage(
        "ping --timeout 0 198.18.0.2",
        "invalid value '0' for '--timeout <S>': '0' is not a timeout: write 0.1 to 3600 seconds",
    ),
    // What is measured.
    usage(
        "write-bw --size 65M",
        "invalid value '65M' for '--size <SIZE>': '65M' is not a size: write 1 to 67108864 bytes, with k or \
         M for units",
    ),
    failure("write-bw -s 4M --region 1M", "a --region of 1048576 bytes does not hold a message of 4194304"),
    failure(
        "write-bw -s 4k -I 64",
        "no message would go inline: --inline-size is 64, and messages have 4096 bytes",
    ),
    failure(
        "write-bw -t 4 -Q 8",
        "a --depth of 4 is too small for --post-list 1 and --cq-mod 8: 8 messages without a completion would \
         leave no room for the next 1",
    ),
    failure("write-bw --run-infinitely", "--run-infinitely measures one size: give --size"),
    usage("write-bw -n 5 -D 1", "the argument '--iters <N>' cannot be used with '--duration <S>'"),
    usage("write-bw -A FETCH_AND_ADD", "unexpected argument '-A' found"),
    failure(
        "write-bw -q 32769",
        "32769 queue pairs are more than half of the connections that the device has room for: add \
         connections=65538 to --device",
    ),
    failure(
        "write-bw -q 51 -d ring,connections=100",
        "51 queue pairs are more than half of the connections that the device has room for: add \
         connections=102 to --device",
    ),
    usage("write-bw -q 0", "invalid value '0' for '--qps <QPS>': 0 is not in 1..=1000000"),
    failure(
        "write-bw -q 2 --idle 32767",
        "32769 queue pairs are more than half of the connections that the device has room for: add \
         connections=65538 to --device",
    ),
    usage("write-lat --beside 0", "invalid value '0' for '--beside <N>': 0 is not in 1..1000000"),
    usage("write-bw --beside 2", "unexpected argument '--beside' found"),
    usage("read-bandwidth", "unrecognized subcommand 'read-bandwidth'"),
    failure("tcp-rdma --duration 0", "--duration is 0.01 to 3600 seconds"),
    // Where it runs, and what it writes.
    failure("write-bw --cpus 1023", "CPU 1023 cannot be used: this process may use {CPUS} (taskset -p $$)"),
    failure(
        "write-bw -d tap:t,address=198.18.0.1 198.18.0.2 --cpus 1023",
        "CPU 1023 cannot be used: this process may use {CPUS} (taskset -p $$)",
    ),
    usage(
        "write-bw --cpus all",
        "invalid value 'all' for '--cpus <CPU>': 'all' is no CPU: this process may use {CPUS}",
    ),
    failure(
        "write-bw --json /nonexistent/report",
        "/nonexistent/report: No such file or directory (os error 2)",
    ),
    failure("ping --pcap /nonexistent/file", "/nonexistent/file: No such file or directory (os error 2)"),
    failure("write-bw --pcap - --json -", "two files go to standard output: name one of them"),
];

/// The CPUs that this process may use, as the kernel lists them.
fn cpus() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().to_owned()
}

/// Starts a command. Returns its exit status, its error output, and how long it took.
fn start(line: &str) -> (Option<i32>, String, Duration) {
    let words = line.split_whitespace();
    let (environment, words): (Vec<_>, Vec<_>) =
        words.partition(|word| word.split_once('=').is_some_and(|(name, _)| name == "WARPLINE_DEVICE"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
    command.args(words).env_remove("WARPLINE_DEVICE").stdin(Stdio::null());
    command.envs(environment.iter().filter_map(|word| word.split_once('=')));
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(output.stdout.is_empty(), "{line}: {output:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap(), begin.elapsed())
}

#[test]
fn each_wrong_start_says_what_to_write_instead() {
    assert!(WRONG.len() >= 30);
    let cpus = cpus();
    for wrong in WRONG {
        let said = wrong.said.replace("{CPUS}", &cpus);
        let (status, errors, _) = start(wrong.line);
        // A usage error goes on with the usage.
        let found =
            if wrong.status == USAGE { errors.lines().next() } else { errors.trim_end().lines().last() };
        let prefix = if wrong.status == USAGE { "error: " } else { "warpline-bench: " };
        assert_eq!(found, Some(&*format!("{prefix}{said}")), "{}", wrong.line);
        assert_eq!(status, Some(wrong.status), "{}: {errors}", wrong.line);
        if wrong.status == FAILURE {
            assert_eq!(errors.lines().count(), 1, "{}: nothing else is said: {errors}", wrong.line);
        }
    }
}

#[test]
fn each_wrong_start_ends_at_once() {
    for wrong in WRONG {
        let quick = (0..STARTS).any(|_| start(wrong.line).2 < AT_ONCE);
        assert!(quick, "{} takes longer than {AT_ONCE:?}", wrong.line);
    }
}

/// A name is looked up before anything else is touched; how its failure is worded is up to the system.
#[test]
fn an_unknown_host_is_named() {
    let (status, errors, _) = start("write-bw -d tap:t,address=198.18.0.1 no-such-host.invalid:7471");
    assert_eq!(status, Some(FAILURE));
    assert!(errors.starts_with("warpline-bench: no-such-host.invalid: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// perftest's letters that mean nothing here are taken, those that name ends are those of ours.
#[test]
fn letters_of_perftest_are_taken() {
    let line = "send-bw -d ring -R -F -p 18515 -s 64 -n 10";
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
    let output = command.args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The help names every form of an address that is taken.
#[test]
fn the_help_names_the_forms_of_an_address() {
    let help =
        Command::new(env!("CARGO_BIN_EXE_warpline-bench")).args(["write-bw", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for form in [
        "HOST:PORT, ADDR:PORT or `[IPV6]:PORT`",
        "Without a port it is the usual one, 7471",
        "PORT alone or 0.0.0.0:PORT is at all addresses",
        "--timeout <S>",
        "--cpus <CPU>",
    ] {
        assert!(help.contains(form), "{form}: {help}");
    }
}
