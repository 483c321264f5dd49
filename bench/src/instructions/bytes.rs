//! Byte streams: one end writes from its memory, the other reads, or has buffers for what the TCP RDMA option
//! names.

use std::time::Duration;

use warpline::tcp_rdma::{HttpRid, Rid};
use warpline::{Annotation, ByteStream, ByteStreamError, Piece, ReadItem, Region, Section};

use crate::error::BenchError;

/// Pieces that are written and not acknowledged, at most: twice the window.
const OUTSTANDING: u64 = 32;
/// Transfers that the receiver has buffers for: those outstanding, and those that were read late.
const EXPECTED: u64 = 2 * OUTSTANDING;

/// Returns the name of transfer `number`.
fn rid(number: u64) -> Rid {
    HttpRid { request_index: number as u32 }.into()
}

fn failed(error: &ByteStreamError) -> BenchError {
    BenchError::Peer(error.to_string())
}

/// The end that writes.
pub struct Sender {
    stream: ByteStream,
    /// What is written, again and again.
    pieces: Vec<Piece>,
    /// Whether each piece is a transfer.
    transfers: bool,
    written: u64,
}

impl Sender {
    /// Returns a sender of pieces of `size` bytes of `memory`.
    pub fn new(stream: ByteStream, memory: &Region, size: usize, transfers: bool) -> Self {
        let pieces = (0..memory.len() / size)
            .map(|number| Piece { memory: memory.clone(), range: number * size..(number + 1) * size })
            .collect();
        Self { stream, pieces, transfers, written: 0 }
    }

    /// Returns how many pieces the other end has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.stream.writer.acknowledged()
    }

    /// Returns true if nothing that it has written is outstanding.
    pub fn is_done(&self) -> bool {
        self.acknowledged() == self.written
    }

    /// Writes as many pieces as may be outstanding.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the connection has ended.
    pub fn step(&mut self) -> Result<(), BenchError> {
        let end = self.acknowledged() + OUTSTANDING;
        while self.written < end {
            let piece = &self.pieces[self.written as usize % self.pieces.len()];
            let section = Section::solicited(rid(self.written), Some(piece.range.len() as u32));
            let section = self.transfers.then_some((section, 0));
            let annotation = Annotation { starts_message: self.transfers, section };
            match self.stream.writer.write_memory(annotation, piece, Duration::ZERO) {
                Ok(_) => self.written += 1,
                Err(ByteStreamError::TimedOut) => return Ok(()),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(())
    }
}

/// The end that reads.
pub struct Receiver {
    stream: ByteStream,
    read: Read,
}

enum Read {
    /// Bytes, to this place.
    Bytes(Vec<u8>),
    /// Transfers, to their buffers.
    Transfers { memory: Region, size: usize, expected: u64, complete: u64 },
}

impl Receiver {
    /// Returns a receiver that reads up to `size` bytes at a time.
    pub fn new(stream: ByteStream, size: usize) -> Self {
        Self { stream, read: Read::Bytes(vec![0; size]) }
    }

    /// Returns a receiver of transfers of `size` bytes each into `memory`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    pub fn with_transfers(stream: ByteStream, memory: Region, size: usize) -> Result<Self, BenchError> {
        let read = Read::Transfers { memory, size, expected: 0, complete: 0 };
        let mut receiver = Self { stream, read };
        receiver.step()?;
        Ok(receiver)
    }

    /// Reads all there is, and names the buffers of the next transfers.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the connection has ended, or a transfer was not placed.
    pub fn step(&mut self) -> Result<(), BenchError> {
        let reader = &mut self.stream.reader;
        let result = match &mut self.read {
            Read::Bytes(place) => loop {
                match reader.read(place, Duration::ZERO) {
                    Ok(0) => break Err(ByteStreamError::PeerFinished),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            },
            Read::Transfers { memory, size, expected, complete } => loop {
                while *expected < *complete + EXPECTED {
                    let at = *expected as usize % (memory.len() / *size) * *size;
                    match reader.expect(rid(*expected), memory, at..at + *size) {
                        Ok(()) => *expected += 1,
                        Err(error) => return Err(failed(&error)),
                    }
                }
                match reader.read_item(&mut [0; 64], Duration::ZERO) {
                    Ok(ReadItem::Complete { .. }) => *complete += 1,
                    Ok(ReadItem::Octets(_)) => {
                        return Err(BenchError::Peer("a transfer was not placed".into()));
                    }
                    Ok(ReadItem::Finished) => break Err(ByteStreamError::PeerFinished),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            },
        };
        match result {
            Err(ByteStreamError::TimedOut) => Ok(()),
            result => result.map_err(|error| failed(&error)),
        }
    }
}
