//! Two variants compared: the rates of their slices, and the ratio.

use std::time::Duration;

use serde::Serialize;

use super::course::Variant;
use super::worker::Slice;
use crate::error::BenchError;

/// A median, and the quartiles on its two sides.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    pub median: f64,
    pub lower_quartile: f64,
    pub upper_quartile: f64,
}

impl Quartiles {
    /// Summarises values, of which there is at least one.
    pub fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "something was measured");
        values.sort_by(f64::total_cmp);
        let quantile = |quantile: f64| {
            let at = quantile * (values.len() - 1) as f64;
            let (below, above) = (values[at.floor() as usize], values[at.ceil() as usize]);
            below + (above - below) * at.fract()
        };
        Self { median: quantile(0.5), lower_quartile: quantile(0.25), upper_quartile: quantile(0.75) }
    }
}

/// Two variants that were measured in slices, in turn.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Comparison {
    /// Pairs of slices.
    pub pairs: usize,
    /// Million messages a second, the median, and the same in gigabits.
    pub mmsg_per_s: f64,
    pub gbit_per_s: f64,
    /// The same of what it is held beside.
    pub reference_mmsg_per_s: f64,
    pub reference_gbit_per_s: f64,
    /// The rates of the pairs' slices, one divided by the other.
    pub ratio: Quartiles,
    /// The CPU time that the threads got in the slices, of all that there was, in percent: what is missing,
    /// others used.
    pub cpu_percent: f64,
}

impl Comparison {
    /// Summarises the slices of each thread, with messages of `size` bytes.
    ///
    /// # Errors
    ///
    /// [`CommandError::Interrupted`](warpline_tools::error::CommandError::Interrupted) if a signal came
    /// before the first pair was complete.
    pub fn of(threads: &[Vec<Slice>], size: u32) -> Result<Self, BenchError> {
        let rates = |variant| {
            let slices = |thread: &Vec<Slice>| {
                thread.iter().filter(|slice| slice.variant == variant).map(rate).collect::<Vec<_>>()
            };
            sums(&threads.iter().map(slices).collect::<Vec<_>>())
        };
        let (measured, reference) = (rates(Variant::Measured), rates(Variant::Reference));
        let pairs = measured.len().min(reference.len());
        if pairs == 0 {
            return Err(BenchError::interrupted());
        }
        let (measured, reference) = (&measured[..pairs], &reference[..pairs]);
        let ratios = measured.iter().zip(reference).map(|(measured, reference)| measured / reference);
        let [mmsg_per_s, reference_mmsg_per_s] =
            [measured, reference].map(|rates| Quartiles::of(rates.to_vec()).median / 1e6);
        let gbit_per_s = |mmsg_per_s: f64| mmsg_per_s * f64::from(size) * 8.0 / 1e3;
        let sum = |of: fn(&Slice) -> Duration| threads.iter().flatten().map(of).sum::<Duration>();
        let (cpu_time, time) = (sum(|slice| slice.cpu_time), sum(|slice| slice.time));
        Ok(Self {
            pairs,
            mmsg_per_s,
            gbit_per_s: gbit_per_s(mmsg_per_s),
            reference_mmsg_per_s,
            reference_gbit_per_s: gbit_per_s(reference_mmsg_per_s),
            ratio: Quartiles::of(ratios.collect()),
            cpu_percent: 100.0 * cpu_time.div_duration_f64(time),
        })
    }

    /// Returns the rates and the ratio in words.
    pub fn words(&self) -> String {
        let Quartiles { median, lower_quartile, upper_quartile } = self.ratio;
        format!(
            "{:.3} M/s ({:.2} Gb/s) beside {:.3} ({:.2}): {median:.3} ({lower_quartile:.3} to \
             {upper_quartile:.3}), {} pairs of slices, {:.0} % of the CPUs",
            self.mmsg_per_s,
            self.gbit_per_s,
            self.reference_mmsg_per_s,
            self.reference_gbit_per_s,
            self.pairs,
            self.cpu_percent
        )
    }
}

/// Messages a second.
fn rate(slice: &Slice) -> f64 {
    slice.messages as f64 / slice.time.as_secs_f64()
}

/// Returns the sums of the rates of all threads in each slice that all of them have.
fn sums(threads: &[Vec<f64>]) -> Vec<f64> {
    let slices = threads.iter().map(Vec::len).min().unwrap_or_default();
    (0..slices).map(|slice| threads.iter().map(|thread| thread[slice]).sum()).collect()
}

#[cfg(test)]
mod tests {
    use warpline_tools::error::CommandError;

    use super::*;

    fn slice(variant: Variant, messages: u64, ms: u64) -> Slice {
        let time = Duration::from_millis(ms);
        Slice { variant, messages, time, cpu_time: time / 2 }
    }

    #[test]
    fn quartiles_lie_between_values() {
        let quartiles = Quartiles::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quartiles, Quartiles { median: 2.5, lower_quartile: 1.75, upper_quartile: 3.25 });
        assert_eq!(
            Quartiles::of(vec![7.0]),
            Quartiles { median: 7.0, lower_quartile: 7.0, upper_quartile: 7.0 }
        );
    }

    /// Two threads, each with slices of its own length: their rates are added, and compared pair by pair.
    #[test]
    fn rates_are_those_of_all_threads() {
        let (measured, reference) = (Variant::Measured, Variant::Reference);
        let threads = [
            vec![slice(measured, 1_000_000, 100), slice(reference, 500_000, 50), slice(measured, 9, 50)],
            vec![slice(measured, 500_000, 50), slice(reference, 2_000_000, 100)],
        ];
        let found = Comparison::of(&threads, 64).unwrap();
        assert_eq!((found.pairs, found.mmsg_per_s, found.reference_mmsg_per_s), (1, 20.0, 30.0));
        assert!((found.ratio.median - 2.0 / 3.0).abs() < 1e-9 && (found.gbit_per_s - 10.24).abs() < 1e-9);
        assert!((found.cpu_percent - 50.0).abs() < 1e-6);
    }

    /// Each slice ends with a message in it, or the measurement ends early.
    #[test]
    fn without_a_pair_there_is_no_rate() {
        let threads = [vec![slice(Variant::Measured, 1, 50)]];
        assert!(matches!(Comparison::of(&threads, 64), Err(BenchError::Command(CommandError::Interrupted))));
    }
}
