//! Tests of the receive interrupts of a port of `net_tap`. Needs root and `/dev/net/tun`.
#![allow(missing_docs)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use common::{eal, pool};
use dpdk::{Port, PortConfig, RxInterrupt, RxTrigger};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A network namespace with the tap's interface in it, so that only this test makes the kernel send to it.
struct Namespace(String);

impl Namespace {
    fn with(interface: &str) -> Self {
        let name = format!("warpline-tap-{}", std::process::id());
        ip(&["netns", "add", &name]);
        let namespace = Self(name);
        ip(&["link", "set", interface, "netns", &namespace.0]);
        ip(&["-n", &namespace.0, "address", "add", "198.18.0.1/24", "dev", interface]);
        ip(&["-n", &namespace.0, "link", "set", interface, "up"]);
        namespace
    }

    /// Has the kernel look for a neighbour that is not there: it sends an ARP request.
    fn send_a_frame(&self, neighbour: u8) {
        let datagram = format!("echo > /dev/udp/198.18.0.{neighbour}/9");
        ip(&["netns", "exec", &self.0, "bash", "-c", &datagram]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().expect("ip of iproute2");
    assert!(status.success(), "ip {}: {status}", arguments.join(" "));
}

fn may_make_taps() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    root && Path::new("/dev/net/tun").exists()
}

/// Whether the descriptor is readable, at once or, with `patient`, before long.
fn is_readable(interrupt: RxInterrupt<'_>, patient: bool) -> bool {
    let timeout = Timespec { tv_sec: if patient { 120 } else { 0 }, tv_nsec: 0 };
    let mut fds = [PollFd::new(&interrupt.fd, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => return fds[0].revents().contains(PollFlags::IN),
            // The driver's own signal.
            Err(Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_frame_of_the_kernel_raises_the_interrupt_of_a_tap() {
    if !may_make_taps() {
        eprintln!("skipped: needs root and /dev/net/tun");
        return;
    }
    let interface = format!("wl-rx{}", std::process::id() % 1_000_000);
    eal().add_vdev(&format!("net_tap0,iface={interface}")).unwrap();
    let pool = pool(1023, 2048);
    let start = |name: &str, rx_interrupts| {
        let config = PortConfig {
            receive_descriptors: 64,
            transmit_descriptors: 64,
            rx_interrupts,
            ..PortConfig::default()
        };
        Port::open(eal(), name).unwrap().start(&config, std::slice::from_ref(&pool)).unwrap()
    };
    let (_port, mut pairs) = start("net_tap0", true);
    let queue = &mut pairs[0].receive;
    let trigger = queue.interrupt().expect("a receive interrupt").trigger;
    assert_eq!(trigger, RxTrigger::Level);
    let namespace = Namespace::with(&interface);
    for neighbour in 100..110 {
        queue.enable_interrupt().unwrap();
        namespace.send_a_frame(neighbour);
        assert!(is_readable(queue.interrupt().unwrap(), true), "no interrupt");
        queue.disable_interrupt();
        let mut frames = Vec::new();
        while frames.is_empty() || is_readable(queue.interrupt().unwrap(), false) {
            queue.receive(&mut frames, 32);
        }
    }
    drop(namespace);

    // Drivers without interrupts start as well, and a port that is not configured for interrupts has none.
    let alone =
        format!("net_memif7,role=server,socket-abstract=yes,socket=warpline-tap-{}", std::process::id());
    for vdev in ["net_null7", "net_ring7", &alone, &format!("net_tap1,iface={interface}b")] {
        eal().add_vdev(vdev).unwrap();
    }
    for (name, asked) in [("net_null7", true), ("net_ring7", true), ("net_memif7", true), ("net_tap1", false)]
    {
        let (_port, mut pairs) = start(name, asked);
        assert!(pairs[0].receive.interrupt().is_none(), "{name}");
        assert!(pairs[0].receive.enable_interrupt().is_err(), "{name}");
    }
}
