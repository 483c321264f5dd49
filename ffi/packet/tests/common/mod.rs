//! What the tests have in common: a network namespace for each test, its interfaces, and frames.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod frames;
pub mod tap;

use std::fs;
use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use packet::{Config, NotPushed, Offload, PacketSocket, Sent};

/// The longest that a test waits for anything. No test depends on how long something takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a thread with a network namespace of its own, in which no interface is up and new ones have
/// no IPv6. The namespace ends with the thread and with what the thread has open. Without privilege the test
/// is skipped.
pub fn in_namespace(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: a flag; this thread shares no file system information that the call would take away.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                eprintln!("skipped: no network namespace: {}", io::Error::last_os_error());
                return;
            }
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs a program of iproute2, with the words of `arguments`, in the namespace of this thread.
pub fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("iproute2");
    assert!(output.status.success(), "{program} {arguments}: {output:?}");
}

/// Makes a veth pair: `near`, for a packet socket, and `far`, on which the kernel has the addresses
/// 198.18.0.1 and fd00::1, with neighbours 198.18.0.2 and fd00::2 at `near`.
pub fn make_veth() {
    run("ip", "link add name near address 02:00:00:00:00:02 type veth peer name far");
    run("ip", "link set far address 02:00:00:00:00:01");
    let _ = fs::write("/proc/sys/net/ipv6/conf/far/disable_ipv6", "0");
    run("ip", "link set near up");
    run("ip", "link set far up");
    run("ip", "address add 198.18.0.1/24 dev far");
    run("ip", "address add fd00::1/64 dev far nodad");
    run("ip", "neighbour add 198.18.0.2 lladdr 02:00:00:00:00:02 dev far");
    run("ip", "neighbour add fd00::2 lladdr 02:00:00:00:00:02 dev far");
}

/// A configuration for `interface` with frames of up to 1518 octets and small rings.
pub const fn config(interface: &str) -> Config<'_> {
    Config {
        interface,
        frame_octets: 1518,
        receive_frames: 64,
        transmit_frames: 64,
        fanout: None,
        filter: None,
    }
}

pub fn open(config: &Config<'_>) -> PacketSocket {
    PacketSocket::open(config).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until `attempt` returns something.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Sends `frame`, as soon as the kernel takes it.
pub fn send(socket: &mut PacketSocket, frame: &[u8], offload: Option<Offload>) {
    send_all(socket, &[(frame, offload)]);
}

/// Sends `frames`, as soon as the kernel takes them.
pub fn send_all(socket: &mut PacketSocket, frames: &[(&[u8], Option<Offload>)]) {
    let mut left = frames;
    eventually("the kernel to take all frames", || {
        left = &left[offer(socket, left).frames..];
        left.is_empty().then_some(())
    });
}

/// Offers a burst of those `frames` that fit one.
pub fn offer(socket: &mut PacketSocket, frames: &[(&[u8], Option<Offload>)]) -> Sent {
    let mut burst = socket.burst();
    for (frame, offload) in frames {
        match burst.push([*frame].into_iter(), offload.as_ref()) {
            Ok(head) => assert_eq!(head, &frame[..frame.len().min(128)]),
            Err(NotPushed::Full) => break,
            Err(NotPushed::Refused) => panic!("a frame of {} octets is refused", frame.len()),
        }
    }
    burst.send()
}

/// Waits for the next frame and returns what `look` makes of it.
pub fn next<T>(socket: &mut PacketSocket, look: impl FnOnce(&packet::Received<'_>) -> T) -> T {
    eventually("a frame", || socket.has_frames().then_some(()));
    let received = socket.receive().expect("a frame, as has_frames says");
    look(&received)
}

/// Waits for the next frame and returns its octets.
pub fn next_octets(socket: &mut PacketSocket) -> Vec<u8> {
    next(socket, |received| received.octets().to_vec())
}
