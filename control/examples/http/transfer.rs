//! How heads and bodies go through a byte stream, at either end.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::{Duration, Instant};

use warpline::{
    Annotation, ByteStreamConfig, ByteStreamError, ByteStreamReader, ByteStreamWriter, DeviceConfig, Piece,
    ReadItem, Region, Section, TransferBuffer, UnsolicitedConfig,
};

use crate::ends::{Outcome, PATIENCE};
use crate::message::{HEAD_BYTES_MAX, Parsed};

/// The longest body that a client sends unsolicited: the bytes of a buffer that a server has for such.
pub const UNSOLICITED_BYTES: usize = 256 << 10;
/// How many such buffers a connection has.
pub const UNSOLICITED_BUFFERS: usize = 8;
/// How long the end of a transfer is waited for whose length the peer has not said.
const END_OF_TRANSFER: Duration = Duration::from_millis(10);
/// Bytes of a piece of a file.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces of a connection that are under way at a time: all of a file that is in memory.
const PIECES: usize = 8;

/// Returns how the byte streams of a server are set up.
pub fn server_stream() -> ByteStreamConfig {
    let unsolicited = UnsolicitedConfig { count: UNSOLICITED_BUFFERS, bytes: UNSOLICITED_BYTES };
    ByteStreamConfig { unsolicited: Some(unsolicited), ..ByteStreamConfig::default() }
}

/// Reads the head of a message, and nothing of what follows it: the body may belong in a buffer, and so may
/// what comes after it. `None` if the peer has finished.
pub fn read_head<T>(reader: &mut ByteStreamReader, parse: impl Fn(&[u8]) -> Parsed<T>) -> Outcome<Option<T>> {
    let mut head = Vec::new();
    let mut scratch = [0; 2048];
    loop {
        let seen = reader.peek(&mut scratch);
        let read = head.len();
        head.extend_from_slice(&scratch[..seen]);
        if seen == 0 {
            // One byte, to wait for more without taking what is not the head's.
            let mut byte = [0];
            match reader.read(&mut byte, PATIENCE)? {
                0 if head.is_empty() => return Ok(None),
                0 => return Err(ByteStreamError::PeerFinished.into()),
                _ => head.push(byte[0]),
            }
        }
        // RFC 9112 §2.2: an empty line before a request is ignored; httparse does.
        let parsed = parse(&head[..head.len().min(HEAD_BYTES_MAX)])?;
        let of_head = parsed.as_ref().map_or(head.len(), |(_, len)| *len);
        if seen > 0 {
            reader.read_exact(&mut scratch[..of_head - read], PATIENCE)?;
        }
        if let Some((message, _)) = parsed {
            return Ok(Some(message));
        }
    }
}

/// Reads bodies wherever their bytes are: in the stream, or in the buffers for unsolicited transfers, which
/// are given back as soon as they were read.
pub struct BodyReader {
    scratch: Vec<u8>,
    /// Unsolicited buffers that parts of the body are in.
    held: BTreeSet<u16>,
    /// Bytes that were in a buffer.
    pub placed_bytes: u64,
}

impl BodyReader {
    pub fn new() -> Self {
        Self { scratch: vec![0; 64 << 10], held: BTreeSet::new(), placed_bytes: 0 }
    }

    /// Reads a body of `bytes` bytes, or to the end of the stream, and hands it to `sink` in parts. Returns
    /// how many bytes it had.
    pub fn read(
        &mut self,
        reader: &mut ByteStreamReader,
        bytes: Option<u64>,
        mut sink: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome<u64> {
        let mut read = 0;
        while bytes.is_none_or(|bytes| read < bytes) {
            let left = bytes.map_or(u64::MAX, |bytes| bytes - read);
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.scratch.len());
            match reader.read_item(&mut self.scratch[..most], PATIENCE)? {
                ReadItem::Octets(octets) => {
                    sink(&self.scratch[..octets])?;
                    read += octets as u64;
                }
                ReadItem::Placed { rid, buffer, offset, octets } => {
                    if u64::from(octets) > left {
                        return Err("a transfer goes beyond its message".into());
                    }
                    let (memory, start) = reader.buffer(rid, buffer).ok_or("a buffer that is not ours")?;
                    self.copy(memory, (start + offset as usize, octets as usize), &mut sink)?;
                    read += u64::from(octets);
                    self.placed_bytes += u64::from(octets);
                    if let TransferBuffer::Unsolicited(buffer) = buffer {
                        self.held.insert(buffer);
                    }
                }
                // One with bytes is given back after them.
                ReadItem::Complete {
                    buffer: TransferBuffer::Unsolicited(buffer), total_octets: 0, ..
                } => {
                    reader.release(buffer, PATIENCE)?;
                }
                ReadItem::Complete { .. } | ReadItem::Nothing => {}
                ReadItem::Finished if bytes.is_none() => break,
                ReadItem::Finished => return Err(ByteStreamError::PeerFinished.into()),
            }
        }
        self.give_back(reader)?;
        Ok(read)
    }

    /// Gives the buffers back that the body was in: when their transfers are complete, or after a moment if
    /// the peer has not said how long they are.
    fn give_back(&mut self, reader: &mut ByteStreamReader) -> Outcome {
        while !self.held.is_empty() {
            match reader.read_item(&mut [], END_OF_TRANSFER) {
                Ok(ReadItem::Complete { buffer: TransferBuffer::Unsolicited(buffer), .. }) => {
                    self.held.remove(&buffer);
                    reader.release(buffer, PATIENCE)?;
                }
                // The buffer may have the beginning of what follows the body.
                Ok(ReadItem::Placed { .. }) => return Err("a transfer goes beyond its message".into()),
                Ok(ReadItem::Complete { .. }) => {}
                Ok(_) | Err(ByteStreamError::TimedOut) => {
                    while let Some(buffer) = self.held.pop_first() {
                        reader.release(buffer, PATIENCE)?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        memory: &Region,
        (mut at, mut left): (usize, usize),
        sink: &mut impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome {
        while left > 0 {
            let part = left.min(self.scratch.len());
            if !memory.read(at, &mut self.scratch[..part]) {
                return Err("a transfer outside its buffer".into());
            }
            sink(&self.scratch[..part])?;
            (at, left) = (at + part, left - part);
        }
        Ok(())
    }
}

/// Sends files from a few pieces of the device's memory, which it sends by reference where it can. A file of
/// any length takes the same memory.
pub struct FileSender {
    /// Each with the number after which it may be filled again.
    pieces: Vec<(Region, u64)>,
    next: usize,
    scratch: Vec<u8>,
}

impl FileSender {
    pub fn new(config: &DeviceConfig) -> Outcome<Self> {
        let piece = || config.memory.allocate(PIECE_BYTES).or_else(|| Region::heap(PIECE_BYTES));
        let pieces = (0..PIECES).map(|_| Some((piece()?, 0))).collect::<Option<_>>();
        Ok(Self { pieces: pieces.ok_or("no memory")?, next: 0, scratch: vec![0; PIECE_BYTES] })
    }

    /// Waits until a piece can be filled. Waiting sends what is corked, so a head is written after it.
    pub fn wait(&self, writer: &mut ByteStreamWriter) -> Outcome {
        wait_for_piece(writer, self.pieces[self.next].1)
    }

    /// Sends the next `bytes` bytes of `file`, as a section of a transfer if one is named.
    pub fn send(
        &mut self,
        writer: &mut ByteStreamWriter,
        file: &mut impl Read,
        bytes: u64,
        section: Option<Section>,
    ) -> Outcome {
        let mut sent = 0;
        while sent < bytes {
            let part = usize::try_from(bytes - sent).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let (memory, free_after) = &mut self.pieces[self.next];
            wait_for_piece(writer, *free_after)?;
            file.read_exact(&mut self.scratch[..part])?;
            if !memory.write(0, &self.scratch[..part]) {
                return Err("a piece is too short".into());
            }
            let section = section.map(|section| (section, sent as u32));
            let piece = Piece { memory: memory.clone(), range: 0..part };
            *free_after =
                writer.write_memory(Annotation { starts_message: false, section }, &piece, PATIENCE)?;
            // The first piece goes with the head.
            writer.uncork();
            self.next = (self.next + 1) % PIECES;
            sent += part as u64;
        }
        Ok(())
    }
}

/// Waits until the stack holds piece `number` no more.
fn wait_for_piece(writer: &mut ByteStreamWriter, number: u64) -> Outcome {
    let begin = Instant::now();
    while writer.acknowledged() < number {
        match writer.wait_acknowledged(Duration::from_millis(1)) {
            Ok(()) => {}
            Err(ByteStreamError::TimedOut) if begin.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The section that a body of `bytes` bytes is, if its length fits.
pub fn section(index: u32, bytes: u64, unsolicited: bool) -> Option<Section> {
    let rid = warpline::tcp_rdma::HttpRid { request_index: index }.into();
    Some(Section { rid, unsolicited, total_octets: Some(u32::try_from(bytes).ok()?) })
}
