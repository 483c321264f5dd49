//! The results: perftest's columns, and JSON.

use serde::Serialize;

use super::latency::Pings;
use super::plan::{Figure, Verify};
use super::settings::Settings;

/// What a result was measured with.
#[derive(Serialize, Clone, Debug)]
pub struct Setting {
    /// The name of the command.
    pub test: &'static str,
    /// The device.
    pub device: String,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Bytes of a message.
    pub size: u32,
    /// Bytes that messages went to, one after the other and then again.
    pub region_bytes: u32,
    /// Queue pairs.
    pub qps: u32,
    /// More queue pairs, which were idle.
    pub idle_qps: u32,
    /// Messages outstanding on each.
    pub depth: u32,
    /// Messages for each completion.
    pub cq_mod: u32,
    /// Whether both ends sent at the same time; the figures are the sums.
    pub bidirectional: bool,
    /// Whether payload went in the work requests.
    pub inline: bool,
    /// Whether this end's queue pairs took their receives from one queue.
    pub use_srq: bool,
    /// Whether this end slept while there was nothing to do.
    pub events: bool,
    /// Whether Markers were in use.
    pub markers: bool,
    /// Whether CRCs were in use.
    pub crc: bool,
    /// The CPUs that polled the ends in this process; a single one polled both.
    pub cpus: Vec<usize>,
    /// Cores of each device in this process.
    pub cores: u32,
}

/// How much was transferred and compared.
#[derive(Serialize, Clone, Debug)]
pub struct Transfer {
    /// Time spent transferring, in seconds; pauses of `--verify all` are not in it.
    pub duration_s: f64,
    /// Messages transferred; of pings, those without the answers.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes that arrived: those, and the answers to pings.
    #[serde(skip)]
    pub arrived_bytes: u64,
    /// How much was to be compared.
    pub verify: Verify,
    /// Whether anything was compared.
    pub verified: bool,
    /// Bytes compared with what was sent.
    pub compared_bytes: u64,
    /// Their share of all bytes that arrived, the answers to pings included.
    pub compared_fraction: f64,
    /// Bytes of them that were not what was sent.
    pub corrupt_bytes: u64,
}

/// What the ends in this process counted meanwhile.
#[derive(Serialize, Clone, Debug)]
pub struct Counts {
    /// Segments that TCP sent again.
    pub retransmitted_segments: u64,
    /// Segments that came beyond a gap.
    pub out_of_order_segments: u64,
    /// The most frames a connection held at once.
    pub held_frames_peak: u32,
    /// Messages that had to wait for a receive.
    pub receives_awaited: u64,
    /// Bytes copied from frames to buffers.
    pub bytes_copied_rx: u64,
    /// Bytes copied from buffers to frames, retransmissions included.
    pub bytes_copied_tx: u64,
}

/// The use of CPUs. The keys of the report name the unit.
#[allow(clippy::struct_field_names)]
#[derive(Serialize, Clone, Debug)]
pub struct CpuUse {
    /// CPU time of all threads of this process, in percent of the time that passed: 200 for two CPUs. The
    /// kernel counts it in hundredths of a second.
    pub cpu_percent: Option<f64>,
    /// Polls of this end that found nothing to do, in percent of all.
    pub idle_polls_percent: f64,
    /// The same at the other end, if it is in this process.
    pub peer_idle_polls_percent: Option<f64>,
}

/// A rate. The keys of the report name the unit.
#[allow(clippy::struct_field_names)]
#[derive(Serialize, Clone, Debug)]
pub struct Rate {
    /// Mean rate of payload.
    pub gbit_per_s: f64,
    /// Rate of the best hundredth of a second, or the mean in a shorter run. With --bidirectional, of this
    /// end's messages.
    pub peak_gbit_per_s: f64,
    /// Messages per second, in millions.
    pub mmsg_per_s: f64,
}

/// Latencies, in microseconds.
#[derive(Serialize, Clone, Debug)]
pub struct Latencies {
    /// `half round trip`, or `round trip` for operations that are answered by their result.
    pub time: &'static str,
    /// The least.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The standard deviation.
    pub stdev_us: f64,
    /// The time that 99 % did not exceed.
    pub p99_us: f64,
    /// The time that 99.9 % did not exceed.
    pub p999_us: f64,
    /// The greatest.
    pub max_us: f64,
    /// Times and their counts (`--report-histogram`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Vec<(f64, u64)>>,
    /// All times in their order (`--report-unsorted`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsorted_us: Option<Vec<f64>>,
}

/// What streamed beside the pings (`--beside`), and the latency alone, measured before.
#[derive(Serialize, Clone, Debug)]
pub struct Beside {
    /// Queue pairs that streamed.
    pub bulk_qps: u32,
    /// Bytes of their messages.
    pub bulk_size: u32,
    /// Mean rate of their payload.
    pub bulk_gbit_per_s: f64,
    /// The median latency alone.
    pub alone_p50_us: f64,
    /// The latency that 99 % did not exceed alone.
    pub alone_p99_us: f64,
    /// The latency that 99 % did not exceed beside them, in medians alone.
    pub p99_per_alone_p50: f64,
}

/// The result of one size.
#[derive(Serialize, Clone, Debug)]
pub struct Report {
    /// What it was measured with.
    #[serde(flatten)]
    pub setting: Setting,
    /// How much was transferred and compared.
    #[serde(flatten)]
    pub transfer: Transfer,
    /// The figure of a bandwidth test.
    #[serde(flatten)]
    pub rate: Option<Rate>,
    /// The figure of a latency test.
    #[serde(flatten)]
    pub latencies: Option<Latencies>,
    /// What streamed beside it.
    #[serde(flatten)]
    pub beside: Option<Beside>,
    /// The counters.
    #[serde(flatten)]
    pub counts: Counts,
    /// The use of CPUs (`--cpu-util`).
    #[serde(flatten)]
    pub cpu_use: Option<CpuUse>,
    /// The parts of the cores of this end, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_core: Vec<CoreReport>,
}

/// The part of a core in a result.
#[derive(Serialize, Clone, Debug)]
pub struct CoreReport {
    /// Its number.
    pub core: usize,
    /// Messages transferred.
    pub messages: u64,
    /// The figure of a bandwidth test.
    #[serde(flatten)]
    pub rate: Option<Rate>,
    /// The median of a latency test, and the time that 99 % did not exceed.
    #[serde(flatten)]
    pub latencies: Option<CoreLatencies>,
}

/// Latencies of a core, in microseconds.
#[allow(clippy::struct_field_names)]
#[derive(Serialize, Clone, Copy, Debug)]
pub struct CoreLatencies {
    pub p50_us: f64,
    pub p99_us: f64,
}

impl CoreReport {
    fn line(&self) -> String {
        let mut line = format!(" core {}: {} messages", self.core, self.messages);
        if let Some(rate) = &self.rate {
            line = format!("{line}, {:.2} Gb/s, {:.6} Mpps", rate.gbit_per_s, rate.mmsg_per_s);
        }
        if let Some(CoreLatencies { p50_us, p99_us }) = self.latencies {
            line = format!("{line}, {p50_us:.2} usec typical, {p99_us:.2} at 99 %");
        }
        line
    }
}

impl Latencies {
    /// Returns the latencies of `pings`, with all times if `settings` ask for them.
    pub fn new(settings: &Settings, pings: &Pings) -> Self {
        let times = &pings.times;
        let half = settings.verb.is_answered_by_message();
        let in_us = |ns: &u64| *ns as f64 / 1e3;
        Self {
            time: if half { "half round trip" } else { "round trip" },
            min_us: times.min_us(),
            p50_us: times.quantile_us(0.5),
            mean_us: times.mean_us(),
            stdev_us: times.stdev_us(),
            p99_us: times.quantile_us(0.99),
            p999_us: times.quantile_us(0.999),
            max_us: times.max_us(),
            histogram: settings.latency.report_histogram.then(|| times.counts()),
            unsorted_us: settings.latency.report_unsorted.then(|| pings.in_order.iter().map(in_us).collect()),
        }
    }
}

/// Returns perftest's heading.
pub fn heading(settings: &Settings) -> String {
    let mut heading = String::from(match settings.figure {
        Figure::Bandwidth => {
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
        }
        Figure::Latency => {
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
             t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
        }
    });
    if settings.latency.beside.is_some() {
        heading.push_str("   bulk[Gb/sec]   t_alone[usec]   99%/t_alone");
    }
    if settings.common.cpu_util {
        heading.push_str("   CPU_Util[%]   idle polls[%]");
    }
    heading
}

/// Returns the line of a rate under [`heading`].
pub fn rate_line(size: u32, messages: u64, rate: &Rate) -> String {
    format!(
        " {size:<10} {messages:<14} {:<18.2} {:<20.2} {:<14.6}",
        rate.peak_gbit_per_s, rate.gbit_per_s, rate.mmsg_per_s
    )
}

impl Report {
    /// Returns the line under [`heading`].
    pub fn line(&self) -> String {
        let (size, messages) = (self.setting.size, self.transfer.messages);
        let mut line = match (&self.rate, &self.latencies) {
            (Some(rate), _) => rate_line(size, messages, rate),
            (None, Some(times)) => format!(
                " {size:<6} {messages:<14} {:<14.2} {:<12.2} {:<16.2} {:<14.2} {:<15.2} {:<22.2} {:<23.2}",
                times.min_us,
                times.max_us,
                times.p50_us,
                times.mean_us,
                times.stdev_us,
                times.p99_us,
                times.p999_us
            ),
            (None, None) => String::new(),
        };
        if let Some(Beside { bulk_gbit_per_s, alone_p50_us, p99_per_alone_p50, .. }) = &self.beside {
            line = format!("{line}  {bulk_gbit_per_s:<14.2} {alone_p50_us:<15.2} {p99_per_alone_p50:<13.1}");
        }
        if let Some(CpuUse { cpu_percent, idle_polls_percent, peer_idle_polls_percent }) = &self.cpu_use {
            let peer = peer_idle_polls_percent.map_or_else(String::new, |peer| format!(" and {peer:.1}"));
            let cpu = cpu_percent.map_or_else(|| "unknown".into(), |percent| format!("{percent:.1}"));
            line = format!("{line}  {cpu:<13} {idle_polls_percent:.1}{peer}");
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// Returns a line for each core, if there are several.
    pub fn core_lines(&self) -> Vec<String> {
        self.by_core.iter().map(CoreReport::line).collect()
    }

    /// Returns the lines with all times, if they were asked for.
    pub fn time_lines(&self) -> Vec<String> {
        let Some(times) = &self.latencies else { return Vec::new() };
        let mut lines = Vec::new();
        if let Some(histogram) = &times.histogram {
            lines.push(String::from(" t[usec]        #iterations"));
            lines.extend(histogram.iter().map(|(us, count)| format!(" {us:<14.3} {count}")));
        }
        if let Some(unsorted) = &times.unsorted_us {
            lines.push(String::from(" #iteration     t[usec]"));
            lines.extend(unsorted.iter().enumerate().map(|(index, us)| format!(" {index:<14} {us:.3}")));
        }
        lines
    }
}

/// Returns the line that says how much of all results was compared.
pub fn compared_line(reports: &[Report]) -> String {
    let compared: u64 = reports.iter().map(|report| report.transfer.compared_bytes).sum();
    let arrived: u64 = reports.iter().map(|report| report.transfer.arrived_bytes).sum();
    let corrupt: u64 = reports.iter().map(|report| report.transfer.corrupt_bytes).sum();
    let percent = 100.0 * compared as f64 / arrived.max(1) as f64;
    format!("compared: {compared} bytes, {percent:.2} % of all; wrong: {corrupt}")
}
