//! A measurement: threads that poll, and the one that opens the connections and says what they do.

use std::sync::mpsc;
use std::thread;

use super::course::{Course, Stage};
use super::worker::{Done, Load, Slice, Work, Worker};
use crate::error::BenchError;

/// Returns `items` in as many parts as there are threads: each takes one in turn.
pub fn dealt<T>(items: impl IntoIterator<Item = T>, threads: usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, item) in items.into_iter().enumerate() {
        parts[number % threads].push(item);
    }
    parts
}

/// What was measured.
pub struct Measured<T> {
    /// What the measurement returned.
    pub value: T,
    /// The slices of each thread.
    pub slices: Vec<Vec<Slice>>,
}

/// Has a thread on each of `cpus` poll its part of `loads`. Opens the connections by `open`, which returns
/// the work of each thread, one for each of its loads; then measures by `measure`.
///
/// # Errors
///
/// That of a thread, else that of `open` or `measure`.
pub fn run<O, T>(
    cpus: &[usize],
    loads: Vec<Vec<Load>>,
    open: impl FnOnce() -> Result<(Vec<Vec<Work>>, O), BenchError>,
    measure: impl FnOnce(&Course, O) -> Result<T, BenchError>,
) -> Result<Measured<T>, BenchError> {
    let course = &Course::new(cpus.len());
    thread::scope(|scope| {
        let threads = cpus.iter().zip(loads).enumerate().map(|(number, (&cpu, loads))| {
            let (opening, opened) = mpsc::channel();
            let worker = Worker { course, number, cpu, loads, opened };
            (opening, scope.spawn(move || worker.run()))
        });
        let (openings, threads): (Vec<_>, Vec<_>) = threads.unzip();
        let value = open().and_then(|(work, opened)| {
            for (opening, work) in openings.iter().zip(work) {
                // A thread that has ended early returns its error.
                let _ = opening.send(work);
            }
            measure(course, opened)
        });
        course.enter(Stage::End);
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // No core is polled any more when their memory is given back.
        let done = ended.collect::<Vec<_>>().into_iter().collect::<Result<Vec<Done>, _>>()?;
        let slices = done.iter().map(|done| done.slices.clone()).collect();
        drop(done);
        Ok(Measured { value: value?, slices })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_cores_in_turn() {
        assert_eq!(dealt(0..5, 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(dealt(0..1, 2), [vec![0], vec![]]);
    }
}
