//! Repeated measurements of a rate.

use serde::Serialize;

/// Measurements of a figure; the median is reported.
pub const REPEATS: u32 = 9;

/// The median of some measurements in Gb/s, and their range.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Rates {
    #[serde(rename = "gbit_per_s")]
    pub median: f64,
    /// The slowest.
    #[serde(rename = "min_gbit_per_s")]
    pub least: f64,
    /// The fastest.
    #[serde(rename = "max_gbit_per_s")]
    pub most: f64,
}

impl Rates {
    /// Summarises measurements, of which there is at least one.
    pub fn of(mut gbit_per_s: Vec<f64>) -> Self {
        assert!(!gbit_per_s.is_empty(), "a rate was measured");
        gbit_per_s.sort_by(f64::total_cmp);
        Self {
            median: gbit_per_s[gbit_per_s.len() / 2],
            least: gbit_per_s[0],
            most: gbit_per_s[gbit_per_s.len() - 1],
        }
    }
}

/// Returns the rate of `bytes` in `seconds`.
pub fn gbit_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / seconds / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let rates = Rates::of(vec![3.0, 1.0, 9.0, 2.0, 4.0]);
        let expected = serde_json::json!({"gbit_per_s": 3.0, "min_gbit_per_s": 1.0, "max_gbit_per_s": 9.0});
        assert_eq!(serde_json::to_value(rates).unwrap(), expected);
        assert!((gbit_per_s(1_000_000_000, 4.0) - 2.0).abs() < 1e-9);
    }
}
