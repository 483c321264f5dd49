//! The counters of the ends in this process, and its CPU time, before and after a measurement.

use std::fs;
use std::time::{Duration, Instant};

use warpline::{Device, DeviceName, Statistics, Stopped};

use super::client::Measured;
use super::latency::Pings;
use super::plan::{Figure, Plan, Verify};
use super::report::{
    Beside, CoreLatencies, CoreReport, Counts, CpuUse, Latencies, Rate, Report, Setting, Transfer,
};
use super::settings::Settings;

/// The counters of the ends in this process, and its CPU time.
pub struct Snapshot {
    near: Statistics,
    far: Option<Statistics>,
    /// CPU time of all threads; `None` where the kernel does not say.
    cpu_time: Option<Duration>,
    time: Instant,
}

impl Snapshot {
    /// Takes the counters of `device`, and of the other end if it is in this process.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn take(device: &Device, other: Option<&Device>) -> Result<Self, Stopped> {
        let near = device.statistics()?;
        let far = other.map(Device::statistics).transpose()?;
        let cpu_time = fs::read_to_string("/proc/self/stat").ok().and_then(|text| cpu_time(&text));
        Ok(Self { near, far, cpu_time, time: Instant::now() })
    }

    /// Returns how much a counter has grown since `before`, over the ends.
    fn since(&self, before: &Self, counter: impl Fn(&Statistics) -> u64) -> u64 {
        let sum = |snapshot: &Self| counter(&snapshot.near) + snapshot.far.as_ref().map_or(0, &counter);
        sum(self).saturating_sub(sum(before))
    }

    fn cpu_use(&self, before: &Self) -> CpuUse {
        let seconds = self.time.duration_since(before.time).as_secs_f64();
        let cpu_time = self.cpu_time.zip(before.cpu_time).map(|(after, before)| after.saturating_sub(before));
        let idle_percent = |after: &Statistics, before: &Statistics| {
            let polls = after.polls.saturating_sub(before.polls).max(1);
            100.0 * after.idle_polls.saturating_sub(before.idle_polls) as f64 / polls as f64
        };
        CpuUse {
            cpu_percent: cpu_time.map(|time| 100.0 * time.as_secs_f64() / seconds),
            idle_polls_percent: idle_percent(&self.near, &before.near),
            peer_idle_polls_percent: self
                .far
                .as_ref()
                .zip(before.far.as_ref())
                .map(|(after, before)| idle_percent(after, before)),
        }
    }

    fn counts(&self, before: &Self) -> Counts {
        let peaks = self.far.as_ref().unwrap_or(&self.near);
        Counts {
            retransmitted_segments: self.since(before, |counted| counted.tcp.retransmitted_segments),
            out_of_order_segments: self.since(before, |counted| counted.tcp.out_of_order_segments),
            held_frames_peak: peaks.tcp.held_frames_peak,
            receives_awaited: self.since(before, |counted| counted.receives_awaited),
            bytes_copied_rx: self.since(before, |counted| counted.bytes_copied_rx),
            bytes_copied_tx: self.since(before, |counted| counted.bytes_copied_tx),
        }
    }

    /// Returns the report of what was measured between `before` and now on the device `name`.
    pub fn report(
        &self,
        before: &Self,
        settings: &Settings,
        name: &DeviceName,
        plan: &Plan,
        measured: &Measured,
        by_core: Vec<CoreReport>,
    ) -> Report {
        let bytes = measured.messages * u64::from(plan.size);
        let seconds = measured.active.as_secs_f64();
        let answers = plan.figure == Figure::Latency && plan.verb.is_answered_by_message();
        // What is compared is of the pings before, too.
        let alone = measured.alone.as_ref().map_or(0, |alone| alone.times.count());
        let all_bytes = bytes + alone * u64::from(plan.size);
        let arrived_bytes = if answers { 2 * all_bytes } else { all_bytes };
        let latencies = measured.pings.as_ref().map(|pings| Latencies::new(settings, pings));
        Report {
            setting: Setting {
                test: settings.test(),
                device: name.to_string(),
                mtu: name.mtu(),
                size: plan.size,
                region_bytes: plan.region,
                qps: settings.bandwidth.qps,
                idle_qps: settings.bandwidth.idle.unwrap_or(0),
                depth: if plan.figure == Figure::Latency { 1 } else { plan.depth },
                cq_mod: plan.completion_each,
                bidirectional: plan.bidirectional,
                inline: plan.inline,
                use_srq: settings.receiving.use_srq,
                events: settings.common.events,
                markers: settings.common.markers.is_on(),
                crc: settings.common.crc.is_on(),
                cpus: settings.common.run.polling.cpus.clone(),
                cores: settings.cores,
            },
            transfer: Transfer {
                duration_s: seconds,
                messages: measured.messages,
                bytes,
                arrived_bytes,
                verify: plan.verify,
                verified: plan.verify != Verify::Off,
                compared_bytes: measured.compared_bytes,
                compared_fraction: measured.compared_bytes as f64 / arrived_bytes.max(1) as f64,
                corrupt_bytes: measured.corrupt_bytes,
            },
            beside: latencies.as_ref().and_then(|latencies| beside(settings, measured, latencies)),
            latencies,
            rate: rate(plan, measured),
            counts: self.counts(before),
            cpu_use: settings.common.cpu_util.then(|| self.cpu_use(before)),
            by_core,
        }
    }
}

/// Returns the rate of a bandwidth test.
fn rate(plan: &Plan, measured: &Measured) -> Option<Rate> {
    let seconds = measured.active.as_secs_f64();
    let rate = Rate {
        gbit_per_s: gbit_per_s(measured.messages, plan.size, seconds),
        peak_gbit_per_s: gbit_per_s(1, plan.size, 1.0) * measured.peak_messages_per_s,
        mmsg_per_s: measured.messages as f64 / seconds / 1e6,
    };
    (plan.figure == Figure::Bandwidth).then_some(rate)
}

/// Returns the part of a core in a result.
pub fn of_core(core: usize, plan: &Plan, measured: &Measured) -> CoreReport {
    let latencies = measured.pings.as_ref().map(|Pings { times, .. }| CoreLatencies {
        p50_us: times.quantile_us(0.5),
        p99_us: times.quantile_us(0.99),
    });
    CoreReport { core, messages: measured.messages, rate: rate(plan, measured), latencies }
}

/// Returns what streamed beside pings with these `latencies`.
fn beside(settings: &Settings, measured: &Measured, latencies: &Latencies) -> Option<Beside> {
    let alone = measured.alone.as_ref()?;
    let ((qps, plan), alone_p50_us) = (settings.beside(), alone.times.quantile_us(0.5));
    Some(Beside {
        bulk_qps: qps,
        bulk_size: plan.size,
        bulk_gbit_per_s: gbit_per_s(alone.messages_beside, plan.size, measured.active.as_secs_f64()),
        alone_p50_us,
        alone_p99_us: alone.times.quantile_us(0.99),
        p99_per_alone_p50: latencies.p99_us / alone_p50_us,
    })
}

/// Returns the CPU time in the text of /proc/PID/stat (proc(5)): fields 14 and 15, user and system time, in
/// hundredths of a second. The name in field 2 is in parentheses and may hold anything.
fn cpu_time(text: &str) -> Option<Duration> {
    const TICK_MS: u64 = 10;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    let ticks = fields.next()??.checked_add(fields.next()??)?;
    ticks.checked_mul(TICK_MS).map(Duration::from_millis)
}

/// Returns the rate of `messages` of `size` bytes in `seconds`.
pub fn gbit_per_s(messages: u64, size: u32, seconds: f64) -> f64 {
    messages as f64 * f64::from(size) * 8.0 / seconds / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read() {
        let text = "7 (a) b (c)) R 1 2 3 4 5 6 7 8 9 10 250 30 0 0 20 0 1 0";
        assert_eq!(cpu_time(text), Some(Duration::from_millis(2800)));
        assert_eq!(cpu_time("7 (a) R 1 2"), None);
        assert!(cpu_time(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }
}
