//! A wire with faults: takes frames from one device and hands them to the other, both ways, in real time, and
//! loses, delays, reorders, duplicates and damages some on the way.
//!
//! It is transparent to both ends: it has no addresses, and frames keep theirs. It naps while nothing is due,
//! so that it leaves the CPU to the ends, and it counts what it did to the frames and how well it kept its
//! times.

mod arguments;
mod forwarder;

pub use arguments::Impair;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpline::link::fault::{Fault, Statistics};
use warpline::open;
use warpline_tools::error::CommandError;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, note, say};

pub use forwarder::Forwarder;
use forwarder::Punctuality;

/// The counters of a direction.
#[derive(Serialize, Debug)]
struct Direction {
    /// Frames that came from the device.
    received: u64,
    /// Frames handed to the other device.
    delivered: u64,
    /// Lost as asked for.
    lost: u64,
    /// Sent twice as asked for.
    duplicated: u64,
    /// Held back as asked for.
    reordered: u64,
    /// With a bit inverted as asked for, those lost for want of a checksum included.
    corrupted: u64,
    /// Cut in two as asked for.
    split: u64,
    /// Joined with the frame before as asked for.
    merged: u64,
    /// Lost because the queue of the line, or of frames on their way, was full.
    queue_full: u64,
    /// Lost because they exceed the MTU: give a larger one, or turn segmentation offload off at the sender.
    oversize: u64,
}

impl From<Statistics> for Direction {
    fn from(counted: Statistics) -> Self {
        Self {
            received: counted.sent,
            delivered: counted.delivered,
            lost: counted.lost,
            duplicated: counted.duplicated,
            reordered: counted.reordered,
            corrupted: counted.corrupted_bits + counted.corrupted_lost,
            split: counted.split,
            merged: counted.merged,
            queue_full: counted.queue_full,
            oversize: counted.oversize,
        }
    }
}

/// The report.
#[derive(Serialize, Debug)]
struct Report {
    test: &'static str,
    seed: u64,
    duration_s: f64,
    to_right: Direction,
    to_left: Direction,
    /// Frames that a device still had no room for at the end.
    not_delivered: usize,
    #[serde(flatten)]
    punctuality: Punctuality,
}

/// Forwards until the time is over, or without one until standard input ends, or until a signal, and reports.
///
/// # Errors
///
/// [`CommandError`].
pub fn run(args: &Impair) -> Result<(), CommandError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let [left, right] = args.devices()?;
    let eal = open::eal(&[&left, &right], &args.eal)?;
    let (left, right) = (open::port(eal, &left)?, open::port(eal, &right)?);
    let _lcore = eal.register_thread().ok();
    let fault = Fault::new(left, args.seed, args.to_right(), args.to_left());
    let mut forwarder = Forwarder::new(fault, right, warpline::now());
    let started = Instant::now();
    let over: Box<dyn Fn() -> bool> = match args.duration {
        Some(seconds) => Box::new(move || started.elapsed() >= Duration::from_secs(seconds.into())),
        None => end_of_input(),
    };
    note!("ready");
    while !over() && !interrupt::is_requested() {
        if let Some(nap) = forwarder.poll(warpline::now())
            && !args.spin
        {
            thread::sleep(nap);
        }
    }
    let report = Report {
        test: "impair",
        seed: args.seed,
        duration_s: started.elapsed().as_secs_f64(),
        to_right: forwarder.fault().inbound().into(),
        to_left: forwarder.fault().outbound().into(),
        not_delivered: forwarder.waiting(),
        punctuality: forwarder.punctuality(),
    };
    print(&report);
    json.map_or(Ok(()), |file| file.write_json(&[report], false))
}

/// Returns a predicate that is true once standard input has ended: by Ctrl-D, or with the program that
/// started this one.
fn end_of_input() -> Box<dyn Fn() -> bool> {
    let ended = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&ended);
    thread::spawn(move || {
        let mut buffer = [0; 256];
        let mut input = std::io::stdin().lock();
        while input.read(&mut buffer).is_ok_and(|octets| octets > 0) {}
        setter.store(true, Ordering::Relaxed);
    });
    Box::new(move || ended.load(Ordering::Relaxed))
}

fn print(report: &Report) {
    say!(
        "{:<14} {:>10} {:>10} {:>8} {:>10} {:>9} {:>9} {:>7} {:>7} {:>10} {:>8}",
        "direction",
        "received",
        "delivered",
        "lost",
        "duplicated",
        "reordered",
        "corrupted",
        "split",
        "merged",
        "queue full",
        "oversize"
    );
    for (name, way) in [("left to right", &report.to_right), ("right to left", &report.to_left)] {
        say!(
            "{name:<14} {:>10} {:>10} {:>8} {:>10} {:>9} {:>9} {:>7} {:>7} {:>10} {:>8}",
            way.received,
            way.delivered,
            way.lost,
            way.duplicated,
            way.reordered,
            way.corrupted,
            way.split,
            way.merged,
            way.queue_full,
            way.oversize
        );
    }
    let Punctuality { polls, late_polls, latest_us } = report.punctuality;
    say!(
        "{:.1} s, seed {}; {polls} polls, {late_polls} more than a millisecond after the one before, \
         {latest_us} us at worst; {} frames not delivered",
        report.duration_s,
        report.seed,
        report.not_delivered
    );
}
