//! Tests of a device on a port with receive interrupts: an interface of the kernel. Needs root and
//! `/dev/net/tun`.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use common::poll_thread::{cpu_ticks, in_a_second, sleeps};
use common::{FAR, PORT, config};
use warpline::{Device, ListenConfig, PollThread, open};

/// A network namespace with the interface in it.
struct Namespace(String);

impl Namespace {
    fn with(interface: &str) -> Self {
        let name = format!("warpline-idle-{}", std::process::id());
        ip(&["netns", "add", &name]);
        let namespace = Self(name);
        ip(&["link", "set", interface, "netns", &namespace.0]);
        // The driver gave it the address of the port.
        ip(&["-n", &namespace.0, "link", "set", interface, "address", "02:00:00:00:77:01"]);
        ip(&["-n", &namespace.0, "address", "add", "198.18.0.1/24", "dev", interface]);
        ip(&["-n", &namespace.0, "link", "set", interface, "up"]);
        namespace
    }

    /// Makes the kernel connect to the device; returns the result.
    fn connect(&self) -> String {
        let connect = format!("timeout 120 bash -c ': < /dev/tcp/{FAR}/{PORT}'");
        let Output { stderr, .. } = run(&["netns", "exec", &self.0, "bash", "-c", &connect]);
        String::from_utf8_lossy(&stderr).into_owned()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new("ip").args(arguments).output().expect("ip of iproute2")
}

fn ip(arguments: &[&str]) {
    let output = run(arguments);
    assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
}

fn may_make_taps() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    root && Path::new("/dev/net/tun").exists()
}

/// One test: the EAL starts once per process.
#[test]
fn frames_of_the_kernel_wake_a_device_that_sleeps() {
    if !may_make_taps() {
        eprintln!("skipped: needs root and /dev/net/tun");
        return;
    }
    let interface = format!("wl-id{}", std::process::id() % 1_000_000);
    let name = format!("tap:{interface}").parse().unwrap();
    let port = open::port(open::eal(&[&name], "-m 64").unwrap(), &name).unwrap();
    let namespace = Namespace::with(&interface);
    let device = Device::start(port, &config(FAR), PollThread::default()).unwrap();
    let _listener = device.listen(PORT, &ListenConfig::default()).unwrap();
    for _ in 0..5 {
        let outcome = namespace.connect();
        assert!(outcome.is_empty(), "{outcome}");
        thread::sleep(Duration::from_millis(20));
    }
    let asleep = in_a_second(sleeps);
    // To look for frames every millisecond would be a thousand times; the kernel's own frames on a new link
    // are few.
    assert!(asleep < 200.0, "went to sleep {asleep} times in a second");
    // Without its interface, a tap's descriptor is always ready. A loop that waits for it would use a whole
    // CPU.
    drop(namespace);
    let ticks = in_a_second(cpu_ticks);
    assert!(ticks < 20.0, "{ticks} hundredths of a second");
    drop(device);
}
