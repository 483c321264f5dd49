//! A thread that polls some cores of both ends of one device or several, and posts on the lanes between them.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use warpline::CoreDriver;
use warpline::open::Eal;

use super::course::{Course, Stage, Variant};
use super::lane::{Collector, Lane};
use crate::endpoint::NAP;
use crate::error::BenchError;
use crate::placement::pin_to;
use crate::times::thread_time;

/// What a thread polls, and posts on.
#[derive(Default)]
pub struct Load {
    pub drivers: Vec<CoreDriver>,
    /// The core that is not polled while [`Variant::Measured`] is measured, if it is one of this thread's.
    pub stalls: Option<CoreDriver>,
    pub work: Work,
}

/// The lanes of a thread.
#[derive(Default)]
pub struct Work {
    /// Those whose messages count.
    pub lanes: Vec<Lane>,
    /// Those whose messages do not.
    pub beside: Vec<Lane>,
    /// The poller of all lanes' completions, if this thread is that.
    pub collector: Option<Collector>,
}

impl Work {
    fn step(&mut self, post: bool) -> Result<(), BenchError> {
        if let Some(collector) = &mut self.collector {
            collector.step()?;
        }
        self.lanes.iter_mut().chain(&mut self.beside).try_for_each(|lane| lane.step(post))
    }

    fn messages(&self) -> u64 {
        self.lanes.iter().map(Lane::messages).sum()
    }

    /// Returns true if there are more messages than `before`, or no lanes to count them of.
    fn has_counted(&self, before: u64) -> bool {
        self.lanes.is_empty() || self.messages() > before
    }

    fn is_done(&self) -> bool {
        self.lanes.iter().chain(&self.beside).all(Lane::is_done)
    }
}

impl Load {
    /// Polls each core once. Returns true if there was anything to do.
    fn poll(&mut self, stalled: bool) -> bool {
        let mut worked = false;
        for driver in self.drivers.iter_mut().chain(self.stalls.as_mut().filter(|_| !stalled)) {
            worked |= driver.poll_once();
        }
        worked
    }
}

/// What a thread did in a slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub variant: Variant,
    pub messages: u64,
    pub time: Duration,
    /// The CPU time that the thread got.
    pub cpu_time: Duration,
}

/// A moment in a slice.
struct Mark {
    messages: u64,
    time: Instant,
    cpu_time: Duration,
}

/// What a thread has done. Dropped, the lanes give their memory back.
pub struct Done {
    pub slices: Vec<Slice>,
    /// The work of all loads.
    #[expect(dead_code, reason = "its memory is given back when no core is polled")]
    pub work: Vec<Work>,
}

/// A thread that polls.
pub struct Worker<'c> {
    pub course: &'c Course,
    /// Its place among the threads, and its CPU.
    pub number: usize,
    pub cpu: usize,
    /// What it polls: one for each variant, or one for both.
    pub loads: Vec<Load>,
    /// The work of each load comes here when the connections are open.
    pub opened: mpsc::Receiver<Vec<Work>>,
}

impl Worker<'_> {
    /// Follows the course to its end. The cores are no longer polled then.
    ///
    /// # Errors
    ///
    /// [`BenchError::Pin`]; [`BenchError::Peer`] when messages fail.
    pub fn run(mut self) -> Result<Done, BenchError> {
        let followed = self.follow();
        if followed.is_err() {
            self.course.set_failed();
        }
        let work = self.loads.into_iter().map(|load| load.work).collect();
        followed.map(|slices| Done { slices, work })
    }

    fn follow(&mut self) -> Result<Vec<Slice>, BenchError> {
        pin_to(self.cpu)?;
        // Without it, packet buffers come without this CPU's cache: slower, not wrong.
        let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
        self.set_up();
        let mut slices = Vec::new();
        let mut begun = None;
        // The stage may be a later one by now.
        let mut before = Course::FIRST;
        loop {
            let now = self.course.stage();
            if now != before {
                // What ends otherwise was cut off.
                if let (Some((variant, begun)), Stage::Drain(_)) = (begun.take(), now.1) {
                    slices.push(self.slice(variant, &begun));
                }
                if let Stage::Measure(variant) = now.1 {
                    begun = Some((variant, self.mark(variant)));
                }
                before = now;
            }
            match now.1 {
                Stage::SetUp => _ = self.poll_all(),
                Stage::Settle(variant) => self.step(variant, true)?,
                Stage::Measure(variant) => {
                    self.step(variant, true)?;
                    if let Some((_, mark)) = &begun
                        && self.load(variant).work.has_counted(mark.messages)
                    {
                        self.course.set_through(self.number, now.0);
                    }
                }
                Stage::Drain(variant) => {
                    self.step(variant, false)?;
                    if self.load(variant).work.is_done() {
                        self.course.set_through(self.number, now.0);
                    }
                }
                Stage::End => return Ok(slices),
            }
        }
    }

    /// Polls until the connections are open.
    fn set_up(&mut self) {
        while self.course.stage().1 == Stage::SetUp {
            if !self.poll_all() {
                thread::sleep(NAP);
            }
        }
        // None comes if they were not opened: the course has ended then.
        for (load, work) in self.loads.iter_mut().zip(self.opened.try_iter().flatten()) {
            load.work = work;
        }
    }

    fn poll_all(&mut self) -> bool {
        self.loads.iter_mut().fold(false, |worked, load| load.poll(false) | worked)
    }

    fn load(&mut self, variant: Variant) -> &mut Load {
        let last = self.loads.len() - 1;
        &mut self.loads[variant.index().min(last)]
    }

    #[inline]
    fn step(&mut self, variant: Variant, post: bool) -> Result<(), BenchError> {
        let load = self.load(variant);
        load.poll(variant == Variant::Measured && post);
        load.work.step(post)
    }

    fn mark(&mut self, variant: Variant) -> Mark {
        let messages = self.load(variant).work.messages();
        Mark { messages, time: Instant::now(), cpu_time: thread_time() }
    }

    fn slice(&mut self, variant: Variant, begun: &Mark) -> Slice {
        let ended = self.mark(variant);
        Slice {
            variant,
            messages: ended.messages - begun.messages,
            time: ended.time - begun.time,
            cpu_time: ended.cpu_time.saturating_sub(begun.cpu_time),
        }
    }
}
