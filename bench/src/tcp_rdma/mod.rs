//! `tcp-rdma`: a stream of transfers over ordinary TCP, placed by the TCP RDMA option
//! (draft-csapuntz-tcprdma-00) or read and copied: how fast, and how often each byte is copied.

mod receiving;
mod sending;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use warpline::open::{self, Eal};
use warpline::tcp_rdma::{HttpRid, Rid};
use warpline::{
    Behaviour, ByteStream, ByteStreamConfig, Device, DeviceConfig, DeviceName, Region, Statistics,
    StreamConfig, TcpListenConfig,
};
use warpline_tools::arguments::{Switch, TIMEOUT_SECONDS, parse_timeout};
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, note, say};

use crate::arguments::parse_size;
use crate::device::{self, BenchDevice, config};
use crate::endpoint::{Driver, Endpoint};
use crate::error::BenchError;
use crate::placement::{Placement, keep_off, parse_cpu};
use receiving::{Form, Receiving};
use sending::Sending;

const PORT: u16 = 7475;
/// Transfers that the receiver has buffers for, and has asked for.
const OUTSTANDING: u32 = 16;
/// Bytes that wait to be read, where bytes are not placed.
const RECEIVE_BYTES: usize = 1 << 20;

/// `tcp-rdma`.
#[derive(Args, Debug)]
pub struct TcpRdma {
    /// The largest IP packets, in bytes.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [1500, 9000],
          value_parser = clap::value_parser!(u16).range(576..=9600))]
    mtu: Vec<u16>,
    /// Whether the ends use the option.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Use::On, Use::Off])]
    option: Vec<Use>,
    /// Whether the sender says how long a transfer is (the option takes 20 bytes) or does not (16 bytes), as
    /// an HTTP server that does not know it.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    total: Switch,
    /// Bytes of a transfer.
    #[arg(long, short = 's', value_name = "BYTES", value_parser = parse_size, default_value = "64k")]
    size: u32,
    /// How long to measure each, in seconds.
    #[arg(long, short = 'D', value_name = "S", default_value_t = 1.0)]
    duration: f64,
    /// The CPUs that poll: one for each end, or a single one for both. Without it, the idlest two that are
    /// free, or the idlest one.
    #[arg(long, value_name = "CPU", value_delimiter = ',', num_args = 1..=2, value_parser = parse_cpu)]
    cpus: Vec<usize>,
    /// More arguments for DPDK's EAL, as one string: "--no-huge -m 512".
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    eal: String,
    /// How long an end may be silent, in seconds, before the other gives it up.
    #[arg(long, value_name = "S", value_parser = parse_timeout, default_value = TIMEOUT_SECONDS)]
    timeout: Duration,
    /// Write all frames to a capture in the pcapng format; - is standard output. Where there are several
    /// measurements, each has a file of its own: f.pcapng becomes f-1500-on.pcapng. Slows the run.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write the results as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Whether the ends use the option.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Use {
    /// Transfers are placed.
    On,
    /// They are read.
    Off,
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::On { "on" } else { "off" })
    }
}

/// One result.
#[derive(Serialize, Debug)]
struct Row {
    test: &'static str,
    option: Use,
    mtu: u16,
    size: u32,
    seconds: f64,
    /// Bytes delivered in that time.
    bytes: u64,
    gbit_per_s: f64,
    /// Times that a byte delivered was copied at the receiver, and at the sender.
    copies_received: f64,
    copies_sent: f64,
    /// Transfers whose bytes were compared.
    compared: u64,
    /// What became of the segments that the receiver got with the option, by cause.
    transfers: BTreeMap<String, u64>,
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &TcpRdma) -> Result<(), BenchError> {
    if !(0.01..=3600.0).contains(&args.duration) {
        return Err(BenchError::options("--duration is 0.01 to 3600 seconds"));
    }
    let json = OutputFile::open_some(args.json.as_deref())?;
    let placement = Placement::choose(&args.cpus)?;
    let eal = open::eal(&[], &args.eal)?;
    keep_off(&placement.cpus());
    note!("{placement}");
    say!("option    MTU    size     Gb/s   copies at the receiver   at the sender   transfers compared");
    let mut rows = Vec::new();
    for &mtu in &args.mtu {
        for &option in &args.option {
            if interrupt::is_requested() {
                break;
            }
            let capture = OutputFile::open_some(args.capture(mtu, option).as_deref())?;
            let row = measure(args, eal, placement, mtu, option, capture)?;
            let Row { size, gbit_per_s, copies_received, copies_sent, compared, .. } = row;
            say!(
                "{option:6} {mtu:6} {size:7} {gbit_per_s:8.2} {copies_received:24.3} {copies_sent:15.3} \
                 {compared:20}"
            );
            if option == Use::On {
                say!("       {}", outcome(&row.transfers));
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Err(BenchError::interrupted());
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&rows, true))?)
}

impl TcpRdma {
    /// The capture of one measurement: the file that was asked for, if there is only one.
    fn capture(&self, mtu: u16, option: Use) -> Option<PathBuf> {
        let path = self.pcap.as_ref()?;
        if self.mtu.len() * self.option.len() == 1 || path.as_os_str() == "-" {
            return Some(path.clone());
        }
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{mtu}-{option}"));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        Some(path.with_file_name(name))
    }
}

/// What became of transfers, in a line: how many bytes were placed, and each cause why others were not.
fn outcome(transfers: &BTreeMap<String, u64>) -> String {
    const NO_CAUSES: [&str; 7] = [
        "segments_placed",
        "segments_placed_out_of_order",
        "octets_placed",
        "octets_delivered",
        "octets_refused",
        "messages_early",
        "messages_early_refused",
    ];
    let of = |name| transfers.get(name).copied().unwrap_or(0);
    let (delivered, refused) = (of("octets_delivered"), of("octets_refused"));
    let causes: Vec<_> = transfers
        .iter()
        .filter(|(name, count)| **count > 0 && !NO_CAUSES.contains(&name.as_str()))
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    let separator = if causes.is_empty() { "" } else { ": " };
    format!("{delivered} bytes placed, {refused} not{separator}{}", causes.join(", "))
}

/// The name of transfer `number`: they repeat after 2^32.
fn rid(number: u64) -> Rid {
    HttpRid { request_index: number as u32 }.into()
}

/// The ends, before they are polled.
struct EndsToStart {
    near: Device,
    far: Device,
    near_driver: Driver,
    far_driver: Driver,
}

fn start(eal: Eal, mtu: u16, capture: Option<OutputFile>) -> Result<EndsToStart, BenchError> {
    let ring = "ring".parse::<DeviceName>()?.with_option("mtu", mtu)?;
    let (near, far) = open::ring_pair(eal, &open::wire_config(&ring))?;
    let on_ring = |host| -> DeviceConfig { config(Switch::On, device::on_ring(&ring, host)) };
    let (near, near_driver) = Device::start_manual(BenchDevice::new(near, capture, "ring")?, &on_ring(1))?;
    let (far, far_driver) = Device::start_manual(BenchDevice::new(far, None, "ring")?, &on_ring(2))?;
    Ok(EndsToStart { near, far, near_driver: Driver::new(near_driver), far_driver: Driver::new(far_driver) })
}

/// Transfers from the near end to the far one, and returns the result.
fn measure(
    args: &TcpRdma,
    eal: Eal,
    placement: Placement,
    mtu: u16,
    option: Use,
    capture: Option<OutputFile>,
) -> Result<Row, BenchError> {
    let EndsToStart { near, far, near_driver, far_driver } = start(eal, mtu, capture)?;
    let ring_bytes = args.size as usize * OUTSTANDING as usize;
    let memory = |device: &Device| -> Result<Region, BenchError> {
        let allocated = device.config().memory.allocate(ring_bytes);
        allocated.ok_or_else(|| BenchError::Memory(format!("{ring_bytes} bytes")))
    };
    let (source, target) = (memory(&near)?, memory(&far)?);
    sending::fill(&source);
    let duration = Duration::from_secs_f64(args.duration);
    thread::scope(|scope| {
        let (send_stream, near_stream) = mpsc::channel();
        let (receive_stream, far_stream) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        // Cores are polled until their devices are gone.
        let stop = Arc::new(AtomicBool::new(false));
        let polling = |stop: &Arc<AtomicBool>| {
            let stop = stop.clone();
            move || {
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        };
        let mut sending = Sending::new(near_stream, source, args.size, args.total);
        let form = Form { placed: option == Use::On, total: args.total.is_on() };
        let mut receiving = Receiving::new(far_stream, report, target, args.size, form, duration);
        let near_polling = polling(&stop);
        let far_polling = polling(&stop);
        let send = move |_: &mut Driver| {
            sending.step();
            near_polling()
        };
        let receive = move |_: &mut Driver| {
            receiving.step();
            far_polling()
        };
        let ends = match placement {
            Placement::Apart { near, far } => vec![
                Endpoint::start(scope, near_driver, near, send),
                Endpoint::start(scope, far_driver, far, receive),
            ],
            Placement::Together(cpu) => {
                vec![Endpoint::start(scope, near_driver.with_other_end(far_driver, receive), cpu, send)]
            }
        };
        let connected = connect(&near, &far, option, args.timeout);
        let received = match connected {
            Ok((near_stream, far_stream)) => {
                // Both ends are polled until they are stopped.
                let _ = receive_stream.send(far_stream);
                let _ = send_stream.send(near_stream);
                reported.recv().unwrap_or_else(|_| Err(BenchError::Setup("the receiver has ended".into())))
            }
            Err(error) => Err(error),
        };
        let statistics = near.statistics().and_then(|near| Ok((near, far.statistics()?)));
        drop((near, far));
        stop.store(true, Ordering::Relaxed);
        for end in ends {
            end.join()?;
        }
        let statistics = statistics?;
        Ok(row(args, mtu, option, &received?, &statistics))
    })
}

fn row(
    args: &TcpRdma,
    mtu: u16,
    option: Use,
    received: &receiving::Received,
    (near, far): &(Statistics, Statistics),
) -> Row {
    let seconds = received.elapsed.as_secs_f64();
    let bytes = received.measured_bytes;
    // All that was delivered, from the first byte on: the counters of the core have no beginning.
    let delivered = received.delivered_bytes.max(1) as f64;
    Row {
        test: "tcp-rdma",
        option,
        mtu,
        size: args.size,
        seconds,
        bytes,
        gbit_per_s: bytes as f64 * 8.0 / seconds / 1e9,
        copies_received: (far.bytes_copied_rx + received.copied_bytes) as f64 / delivered,
        copies_sent: near.bytes_copied_tx as f64 / delivered,
        compared: received.compared,
        transfers: far.transfers.named().into_iter().map(|counter| (counter.name, counter.value)).collect(),
    }
}

/// Connects the near end to the far one; both are polled meanwhile.
fn connect(
    near: &Device,
    far: &Device,
    option: Use,
    timeout: Duration,
) -> Result<(ByteStream, ByteStream), BenchError> {
    let setup = |error: &dyn std::fmt::Display| BenchError::Setup(error.to_string());
    let user_timeout_ms = u32::try_from(timeout.as_millis()).ok();
    let tcp = Behaviour { rdma_option: option == Use::On, user_timeout_ms, ..near.config().tcp };
    let tcp = Some(tcp);
    let listening = TcpListenConfig { tcp, ..TcpListenConfig::default() };
    let listener = far.listen_streams(PORT, &listening).map_err(|error| setup(&error))?;
    let remote = (far.config().addresses[0].address, PORT).into();
    let opening = StreamConfig { tcp, timeout, ..StreamConfig::default() };
    let near = near.connect_stream(remote, &opening).map_err(|error| setup(&error))?;
    let far = listener.accept(timeout).map_err(|error| setup(&error))?;
    let rings =
        ByteStreamConfig { receive_bytes: RECEIVE_BYTES, events: false, ..ByteStreamConfig::default() };
    let near = near.into_byte_stream(&rings).map_err(|error| setup(&error))?;
    let far = far.into_byte_stream(&rings).map_err(|error| setup(&error))?;
    Ok((near, far))
}
