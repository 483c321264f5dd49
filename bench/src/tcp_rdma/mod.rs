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

use crate::arguments::{PollArguments, Polling, parse_size};
use crate::device::{self, config};
use crate::endpoint::{Driver, Endpoint};
use crate::error::BenchError;
use crate::link::{Link, Started};
use crate::placement::{Placement, cpus_of, is_crowded, keep_off, words};
use receiving::{Form, Received, Receiving, Report};
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
    #[command(flatten)]
    polling: PollArguments,
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
    /// Cores of each device: each of the sender's has a stream.
    cores: usize,
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
    /// The parts of the sender's cores, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_core: Vec<CoreRow>,
}

/// The part of a core.
#[derive(Serialize, Debug)]
struct CoreRow {
    core: usize,
    bytes: u64,
    gbit_per_s: f64,
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
    let Polling { cores, cpus } = args.polling.of(&"ring".parse()?)?;
    let placements = Placement::of_cores(&cpus, cores)?;
    let cpus = cpus_of(&placements);
    let eal = open::eal(&[], &args.eal)?;
    keep_off(&cpus);
    note!("{}", words(&placements));
    is_crowded(placements.len(), &cpus);
    say!("option    MTU    size     Gb/s   copies at the receiver   at the sender   transfers compared");
    let mut rows = Vec::new();
    for &mtu in &args.mtu {
        for &option in &args.option {
            if interrupt::is_requested() {
                break;
            }
            let capture = OutputFile::open_some(args.capture(mtu, option).as_deref())?;
            let row = Setting { args, eal, placements: &placements, mtu, option }.measure(capture)?;
            let Row { size, gbit_per_s, copies_received, copies_sent, compared, .. } = row;
            say!(
                "{option:6} {mtu:6} {size:7} {gbit_per_s:8.2} {copies_received:24.3} {copies_sent:15.3} \
                 {compared:20}"
            );
            for CoreRow { core, gbit_per_s, .. } in &row.by_core {
                say!("       core {core}: {gbit_per_s:.2} Gb/s");
            }
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

/// What a row is measured with.
struct Setting<'a> {
    args: &'a TcpRdma,
    eal: Eal,
    placements: &'a [Placement],
    mtu: u16,
    option: Use,
}

impl Setting<'_> {
    /// Starts the two ends.
    fn start(&self, capture: Option<OutputFile>) -> Result<[Started; 2], BenchError> {
        let ring = "ring".parse::<DeviceName>()?.with_option("mtu", self.mtu)?;
        let wire = open::wire_config(&ring);
        let [near, far] = Link::wire(self.eal, &wire, self.placements.len(), capture)?;
        let on_ring = |host| -> DeviceConfig { config(Switch::On, device::on_ring(&ring, host)) };
        Ok([near.start(&on_ring(1))?, far.start(&on_ring(2))?])
    }

    /// Transfers from the near end to the far one, on a stream of each near core, and returns the result.
    fn measure(&self, capture: Option<OutputFile>) -> Result<Row, BenchError> {
        let [near, far] = self.start(capture)?;
        let (near_device, far_device) = (near.device, far.device);
        let gives_way = self.placements.len() > cpus_of(self.placements).len();
        let driver = |core| Driver::new(core).giving_way(gives_way);
        let cores = near.cores.into_iter().map(driver).zip(far.cores.into_iter().map(driver));
        thread::scope(|scope| {
            let (report, reported) = mpsc::channel();
            // Cores are polled until their devices are gone.
            let stop = Arc::new(AtomicBool::new(false));
            // Before a thread is there to be stopped.
            let works = (0..self.placements.len())
                .map(|core| self.works(core, [&near_device, &far_device], &report, &stop))
                .collect::<Result<Vec<_>, _>>()?;
            drop(report);
            let (mut ends, mut opening) = (Vec::new(), Vec::new());
            for ((placement, (near, far)), (works, streams)) in self.placements.iter().zip(cores).zip(works) {
                let [send, receive] = works;
                match *placement {
                    Placement::Apart { near: near_cpu, far: far_cpu } => ends.extend([
                        Endpoint::start(scope, near, near_cpu, send),
                        Endpoint::start(scope, far, far_cpu, receive),
                    ]),
                    Placement::Together(cpu) => {
                        ends.push(Endpoint::start(scope, near.with_other_end(far, receive), cpu, send));
                    }
                }
                opening.push(streams);
            }
            let received = self.transfer([&near_device, &far_device], opening, &reported);
            let statistics = near_device.statistics().and_then(|near| Ok((near, far_device.statistics()?)));
            drop((near_device, far_device));
            stop.store(true, Ordering::Relaxed);
            for end in ends {
                end.join()?;
            }
            let statistics = statistics?;
            Ok(row(self, &received?, &statistics))
        })
    }

    /// Returns what the thread of a core does at the near and at the far end, and where their streams go.
    fn works(
        &self,
        core: usize,
        [near, far]: [&Device; 2],
        report: &mpsc::Sender<(usize, Result<Received, BenchError>)>,
        stop: &Arc<AtomicBool>,
    ) -> Result<([Work; 2], [mpsc::Sender<ByteStream>; 2]), BenchError> {
        let args = self.args;
        let ring_bytes = args.size as usize * OUTSTANDING as usize;
        let memory = |device: &Device| -> Result<Region, BenchError> {
            let allocated = device.config().memory.allocate(ring_bytes);
            allocated.ok_or_else(|| BenchError::Memory(format!("{ring_bytes} bytes")))
        };
        let (source, target) = (memory(near)?, memory(far)?);
        sending::fill(&source);
        let (send_stream, near_stream) = mpsc::channel();
        let (receive_stream, far_stream) = mpsc::channel();
        let form = Form { placed: self.option == Use::On, total: args.total.is_on() };
        let duration = Duration::from_secs_f64(args.duration);
        let mut sending = Sending::new(near_stream, source, args.size, args.total);
        let report = Report { core, sender: report.clone() };
        let mut receiving = Receiving::new(far_stream, report, target, args.size, form, duration);
        let polling = || {
            let stop = stop.clone();
            move || {
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        };
        let (near_polling, far_polling) = (polling(), polling());
        let send = move |_: &mut Driver| {
            sending.step();
            near_polling()
        };
        let receive = move |_: &mut Driver| {
            receiving.step();
            far_polling()
        };
        Ok(([Box::new(send), Box::new(receive)], [send_stream, receive_stream]))
    }

    /// Connects a stream of each core, has the threads transfer on them, and returns what has come on each.
    fn transfer(
        &self,
        [near, far]: [&Device; 2],
        opening: Vec<[mpsc::Sender<ByteStream>; 2]>,
        reported: &mpsc::Receiver<(usize, Result<Received, BenchError>)>,
    ) -> Result<Vec<Received>, BenchError> {
        let cores = opening.len();
        let streams = connect(near, far, self.option, self.args.timeout)?;
        for ([send, receive], (near, far)) in opening.into_iter().zip(streams) {
            // Both ends are polled until they are stopped.
            let _ = receive.send(far);
            let _ = send.send(near);
        }
        let ended = |_| BenchError::Setup("a receiver has ended".into());
        let mut received = Vec::with_capacity(cores);
        for _ in 0..cores {
            let (core, part) = reported.recv().map_err(ended)?;
            received.push((core, part?));
        }
        received.sort_by_key(|(core, _)| *core);
        Ok(received.into_iter().map(|(_, part)| part).collect())
    }
}

/// What a thread does between the polls of a core.
type Work = Box<dyn FnMut(&mut Driver) -> ControlFlow<()> + Send>;

fn row(setting: &Setting<'_>, parts: &[Received], (near, far): &(Statistics, Statistics)) -> Row {
    let Setting { args, mtu, option, .. } = setting;
    let received = Received::sum(parts);
    let gbit_per_s = |part: &Received| part.measured_bytes as f64 * 8.0 / part.elapsed.as_secs_f64() / 1e9;
    let by_core = parts.iter().enumerate().filter(|_| parts.len() > 1);
    let by_core = by_core.map(|(core, part)| CoreRow {
        core,
        bytes: part.measured_bytes,
        gbit_per_s: gbit_per_s(part),
    });
    // All that was delivered, from the first byte on: the counters of the core have no beginning.
    let delivered = received.delivered_bytes.max(1) as f64;
    Row {
        test: "tcp-rdma",
        option: *option,
        mtu: *mtu,
        size: args.size,
        cores: parts.len(),
        seconds: received.elapsed.as_secs_f64(),
        bytes: received.measured_bytes,
        gbit_per_s: gbit_per_s(&received),
        copies_received: (far.bytes_copied_rx + received.copied_bytes) as f64 / delivered,
        copies_sent: near.bytes_copied_tx as f64 / delivered,
        compared: received.compared,
        transfers: far.transfers.named().into_iter().map(|counter| (counter.name, counter.value)).collect(),
        by_core: by_core.collect(),
    }
}

/// Connects each core of the near end to the far one; both are polled meanwhile.
fn connect(
    near: &Device,
    far: &Device,
    option: Use,
    timeout: Duration,
) -> Result<Vec<(ByteStream, ByteStream)>, BenchError> {
    let setup = |error: &dyn std::fmt::Display| BenchError::Setup(error.to_string());
    let user_timeout_ms = u32::try_from(timeout.as_millis()).ok();
    let tcp = Behaviour { rdma_option: option == Use::On, user_timeout_ms, ..near.config().tcp };
    let tcp = Some(tcp);
    let listening = TcpListenConfig { tcp, ..TcpListenConfig::default() };
    let listener = far.listen_streams(PORT, &listening).map_err(|error| setup(&error))?;
    let remote = (far.config().addresses[0].address, PORT).into();
    let rings =
        ByteStreamConfig { receive_bytes: RECEIVE_BYTES, events: false, ..ByteStreamConfig::default() };
    let stream = |core| {
        let core = (near.cores() > 1).then_some(core);
        let opening = StreamConfig { tcp, timeout, core, ..StreamConfig::default() };
        let near = near.connect_stream(remote, &opening).map_err(|error| setup(&error))?;
        let far = listener.accept(timeout).map_err(|error| setup(&error))?;
        let near = near.into_byte_stream(&rings).map_err(|error| setup(&error))?;
        let far = far.into_byte_stream(&rings).map_err(|error| setup(&error))?;
        Ok((near, far))
    };
    (0..near.cores()).map(stream).collect()
}
