//! The end that receives transfers: in their buffers, or by reading.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use warpline::{ByteStream, ByteStreamError, ReadItem, Region};
use warpline_tools::interrupt;

use super::sending::pattern;
use super::{OUTSTANDING, rid};
use crate::error::BenchError;

/// One transfer in so many is compared.
const COMPARED_EACH: u64 = 64;
/// How long the stream runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(50);
/// Reads of one step.
const READS: usize = 32;

/// What was received.
pub struct Received {
    /// The time that was measured, and the bytes delivered in it.
    pub elapsed: Duration,
    pub measured_bytes: u64,
    /// All bytes delivered, and those of them that the application copied.
    pub delivered_bytes: u64,
    pub copied_bytes: u64,
    /// Transfers that were compared.
    pub compared: u64,
}

impl Received {
    /// Returns the sum of what came on several streams at the same time, which is the longest of theirs.
    pub fn sum(parts: &[Self]) -> Self {
        let sum = |count: fn(&Self) -> u64| parts.iter().map(count).sum();
        Self {
            elapsed: parts.iter().map(|part| part.elapsed).max().unwrap_or_default(),
            measured_bytes: sum(|part| part.measured_bytes),
            delivered_bytes: sum(|part| part.delivered_bytes),
            copied_bytes: sum(|part| part.copied_bytes),
            compared: sum(|part| part.compared),
        }
    }
}

/// How transfers come.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// They are placed.
    pub placed: bool,
    /// The sender says how long each is, so that the stream reports when it is complete.
    pub total: bool,
}

/// Where it reports.
pub struct Report {
    /// The sender's core.
    pub core: usize,
    pub sender: Sender<(usize, Result<Received, BenchError>)>,
}

/// The end that receives.
pub struct Receiving {
    opened: Receiver<ByteStream>,
    report: Option<Report>,
    stream: Option<ByteStream>,
    /// Where transfers are placed, or copied to: one slot for each that is outstanding.
    memory: Region,
    /// The same, for a reader that copies.
    slots: Vec<u8>,
    size: usize,
    form: Form,
    /// The transfer that is being ended, as nobody said how long it is.
    ending: bool,
    duration: Duration,
    /// Transfers that are complete, and bytes of the next one.
    complete: u64,
    in_next: usize,
    delivered: u64,
    /// When the measurement began, and what was delivered by then.
    begin: Option<(Instant, u64)>,
    opened_at: Option<Instant>,
    compared: u64,
    corrupt_bytes: u64,
    /// Transfers to be asked for that there was no room for.
    to_ask: u32,
}

impl Receiving {
    pub fn new(
        opened: Receiver<ByteStream>,
        report: Report,
        memory: Region,
        size: u32,
        form: Form,
        duration: Duration,
    ) -> Self {
        Self {
            opened,
            report: Some(report),
            stream: None,
            slots: vec![0; if form.placed { 0 } else { memory.len() }],
            memory,
            size: size as usize,
            form,
            ending: false,
            duration,
            complete: 0,
            in_next: 0,
            delivered: 0,
            begin: None,
            opened_at: None,
            compared: 0,
            corrupt_bytes: 0,
            to_ask: OUTSTANDING,
        }
    }

    /// Does what there is to do now, and reports when the time is over.
    pub fn step(&mut self) {
        if self.report.is_none() {
            return;
        }
        if self.stream.is_none() {
            self.stream = self.opened.try_recv().ok();
            self.opened_at = self.stream.as_ref().map(|_| Instant::now());
            return;
        }
        let result = match self.ask().and_then(|()| self.read_all()) {
            Ok(()) => self.measured(),
            Err(error) => Some(Err(BenchError::Setup(error.to_string()))),
        };
        if let Some(result) = result
            && let Some(report) = self.report.take()
        {
            self.stream = None;
            // It is waited for.
            let _ = report.sender.send((report.core, result));
        }
    }

    fn slot(&self, number: u64) -> usize {
        (number % u64::from(OUTSTANDING)) as usize * self.size
    }

    /// Asks for transfers, a byte each, when their buffers are named.
    fn ask(&mut self) -> Result<(), ByteStreamError> {
        while self.to_ask > 0 {
            let number = self.complete + u64::from(OUTSTANDING - self.to_ask);
            let at = self.slot(number);
            let Some(stream) = &mut self.stream else { return Ok(()) };
            if stream.writer.room() == 0 {
                return Ok(());
            }
            if self.form.placed {
                match stream.reader.expect(rid(number), &self.memory, at..at + self.size) {
                    Err(ByteStreamError::TimedOut) => return Ok(()),
                    result => result?,
                }
            }
            stream.writer.write(&[1], Duration::ZERO)?;
            self.to_ask -= 1;
        }
        Ok(())
    }

    fn read_all(&mut self) -> Result<(), ByteStreamError> {
        for _ in 0..READS {
            if !(if self.form.placed { self.read_placed()? } else { self.read_copied()? }) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the next part of the stream. Returns false if there is none for now.
    fn read_placed(&mut self) -> Result<bool, ByteStreamError> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        if self.ending {
            // All of it was read: its name and its place are free once the core has seen that.
            match stream.reader.cancel(rid(self.complete), Duration::ZERO) {
                Ok(()) => self.ending = false,
                Err(ByteStreamError::TimedOut) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.on_complete();
            return Ok(true);
        }
        match stream.reader.read_item(&mut [0; 64], Duration::ZERO) {
            Ok(ReadItem::Placed { octets, .. }) => {
                self.delivered += u64::from(octets);
                self.in_next += octets as usize;
                if self.in_next == self.size {
                    self.in_next = 0;
                    self.ending = !self.form.total;
                }
            }
            Ok(ReadItem::Complete { .. }) => self.on_complete(),
            Ok(ReadItem::Octets(_) | ReadItem::Finished) => return Err(ByteStreamError::PeerFinished),
            Ok(_) | Err(ByteStreamError::TimedOut) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Reads the next bytes to their slot. Returns false if there are none for now.
    fn read_copied(&mut self) -> Result<bool, ByteStreamError> {
        let at = self.slot(self.complete);
        let Some(stream) = &mut self.stream else { return Ok(false) };
        match stream.reader.read(&mut self.slots[at + self.in_next..at + self.size], Duration::ZERO) {
            Ok(0) => return Err(ByteStreamError::PeerFinished),
            Ok(read) => {
                self.delivered += read as u64;
                self.in_next += read;
            }
            Err(ByteStreamError::TimedOut) => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.in_next == self.size {
            self.in_next = 0;
            self.on_complete();
        }
        Ok(true)
    }

    fn on_complete(&mut self) {
        if self.complete.is_multiple_of(COMPARED_EACH) {
            self.compare();
        }
        self.complete += 1;
        self.to_ask += 1;
    }

    fn compare(&mut self) {
        let at = self.slot(self.complete);
        let mut octets = vec![0; self.size];
        if self.form.placed {
            let read = self.memory.read(at, &mut octets);
            debug_assert!(read, "a slot lies in the memory");
        } else {
            octets.copy_from_slice(&self.slots[at..at + self.size]);
        }
        // The sender's memory has as many transfers.
        let wrong = octets.iter().enumerate().filter(|(index, octet)| **octet != pattern(at + index)).count();
        self.corrupt_bytes += wrong as u64;
        self.compared += 1;
    }

    /// Returns the result when the time is over.
    fn measured(&mut self) -> Option<Result<Received, BenchError>> {
        let now = Instant::now();
        let Some((begin, before)) = self.begin else {
            if self.opened_at.is_some_and(|opened| now - opened >= WARM_UP) {
                self.begin = Some((now, self.delivered));
            }
            return None;
        };
        if now - begin < self.duration && !interrupt::is_requested() {
            return None;
        }
        if self.corrupt_bytes > 0 {
            return Some(Err(BenchError::Corrupt(self.corrupt_bytes)));
        }
        Some(Ok(Received {
            elapsed: now - begin,
            measured_bytes: self.delivered - before,
            delivered_bytes: self.delivered,
            copied_bytes: self.stream.as_ref().map_or(0, |stream| stream.reader.bytes_copied()),
            compared: self.compared,
        }))
    }
}
