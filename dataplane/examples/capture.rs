//! Records what passes over a lossy simulated link in a file for Wireshark.
//!
//! `cargo run --package warpline-dataplane --no-default-features --example capture -- FILE`

use std::fs::File;
use std::io;
use std::process::ExitCode;

use warpline_dataplane::device::sim::{self, EndConfig, Impairments};
use warpline_dataplane::device::tap::{Tap, TapConfig};
use warpline_dataplane::device::{Device, Frame};
use warpline_dataplane::time::{Instant, MICROSECOND};

/// 2024-01-01 00:00:00 UTC.
const ORIGIN_UNIX_NS: u64 = 1_704_067_200_000_000_000;
/// The type of frames for experiments on a local network (IEEE 802).
const LOCAL_EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: capture FILE");
        return ExitCode::from(2);
    };
    match File::create(&path).and_then(record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Sends ten frames over the link, answers each that arrives, and records all at the sender's end.
fn record(file: File) -> io::Result<()> {
    let lossy = Impairments { loss: 0.2, ..Impairments::default() };
    let (a, mut b) = sim::link(7, EndConfig { outbound: lossy, ..EndConfig::a() }, EndConfig::b());
    let config =
        TapConfig { interface_name: "link0".into(), origin_unix_ns: ORIGIN_UNIX_NS, ..TapConfig::default() };
    let mut a = Tap::new(a, file, &config)?;
    let mut received = Vec::new();
    for number in 0..10 {
        let now = Instant::from_nanos(number * 10 * MICROSECOND);
        send(&mut a, &mut b, now, 100 + number as usize);
        while let Some(arrival) = b.next_arrival() {
            b.receive(arrival, &mut received, 1);
            send(&mut b, &mut a, arrival, 60);
        }
        while let Some(arrival) = a.next_arrival() {
            a.receive(arrival, &mut received, 1);
        }
        received.clear();
    }
    a.flush()
}

/// Sends one frame of `octets` octets from one device to the other.
fn send(from: &mut impl Device, to: &mut impl Device, now: Instant, octets: usize) {
    let Some(mut frame) = from.allocate() else { return };
    if let Some(space) = frame.append(octets) {
        space.fill(0);
        space[..6].copy_from_slice(&to.mac().0);
        space[6..12].copy_from_slice(&from.mac().0);
        space[12..14].copy_from_slice(&LOCAL_EXPERIMENTAL);
    }
    from.transmit(now, &mut vec![frame]);
}
