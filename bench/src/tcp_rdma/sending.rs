//! The end that sends transfers, as many as the receiver has asked for.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use warpline::{Annotation, ByteStream, ByteStreamError, Piece, Region, Section};
use warpline_tools::arguments::Switch;

use super::rid;

/// The value at `offset` of the memory that is sent: it differs within a word, a line and a transfer.
pub fn pattern(offset: usize) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)) as u8
}

/// Fills the memory that is sent.
pub fn fill(memory: &Region) {
    let octets: Vec<u8> = (0..memory.len()).map(pattern).collect();
    let written = memory.write(0, &octets);
    debug_assert!(written, "all of the memory is written");
}

/// The end that sends.
pub struct Sending {
    opened: Receiver<ByteStream>,
    stream: Option<ByteStream>,
    memory: Region,
    size: u32,
    /// Whether it says how long a transfer is.
    total: Switch,
    /// Transfers that the receiver has asked for, and those sent.
    asked: u64,
    sent: u64,
}

impl Sending {
    pub const fn new(opened: Receiver<ByteStream>, memory: Region, size: u32, total: Switch) -> Self {
        Self { opened, stream: None, memory, size, total, asked: 0, sent: 0 }
    }

    /// Does what there is to do now.
    pub fn step(&mut self) {
        if self.stream.is_none() {
            self.stream = self.opened.try_recv().ok();
        }
        let Some(stream) = &mut self.stream else { return };
        // Each byte of the receiver asks for a transfer.
        let mut asked = [0; 64];
        match stream.reader.read(&mut asked, Duration::ZERO) {
            // The receiver has all it wants.
            Ok(0) => return self.stream = None,
            Ok(more) => self.asked += more as u64,
            Err(ByteStreamError::TimedOut) => {}
            Err(_) => return self.stream = None,
        }
        while self.sent < self.asked {
            let at = (self.sent * u64::from(self.size)) as usize % self.memory.len();
            let piece = Piece { memory: self.memory.clone(), range: at..at + self.size as usize };
            // Requirements: TRO-3.1.4-02
            let section = Section::solicited(rid(self.sent), self.total.is_on().then_some(self.size));
            let annotation = Annotation { starts_message: true, section: Some((section, 0)) };
            if stream.writer.write_memory(annotation, &piece, Duration::ZERO).is_err() {
                break;
            }
            if !self.total.is_on() {
                // Only the sender can tell.
                stream.writer.end_transfer(rid(self.sent));
            }
            self.sent += 1;
        }
    }
}
