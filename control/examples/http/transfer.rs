//! How heads and bodies go through a byte stream, at either end. Functions that may have to wait take a
//! timeout: a client waits, a server of many connections passes zero and comes back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use warpline::tcp_rdma::RidFormat;
use warpline::{
    Annotation, ByteStreamConfig, ByteStreamError, ByteStreamReader, ByteStreamWriter, Piece, ReadItem,
    Region, Section, TransferBuffer, UnsolicitedConfig,
};

use crate::ends::Outcome;
use crate::message::{Framing, HEAD_BYTES_MAX, Parsed, Refused};

/// The longest body that a client sends unsolicited: the bytes of a buffer that a server has for such.
pub const UNSOLICITED_BYTES: usize = 256 << 10;
/// How many such buffers a connection has.
pub const UNSOLICITED_BUFFERS: usize = 4;
/// How long the end of a transfer is waited for whose length the peer has not said.
const END_OF_TRANSFER: Duration = Duration::from_millis(10);
/// Bytes of a piece of a file.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces of a connection that are under way at a time: all of a file that is in memory.
const PIECES: usize = 4;
/// The longest line with the length of a chunk, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes of a body that are copied at a time.
const SCRATCH_BYTES: usize = 16 << 10;

/// Returns how the byte streams of a server are set up.
pub fn server_stream() -> ByteStreamConfig {
    let unsolicited = UnsolicitedConfig { count: UNSOLICITED_BUFFERS, bytes: UNSOLICITED_BYTES };
    ByteStreamConfig {
        send_bytes: 64 << 10,
        receive_bytes: 256 << 10,
        unsolicited: Some(unsolicited),
        rid_format: RidFormat::Http,
        ..ByteStreamConfig::default()
    }
}

/// Collects the bytes of a text whose end its parser knows: a head, or the line before a chunk.
#[derive(Debug, Default)]
pub struct Collector {
    bytes: Vec<u8>,
}

impl Collector {
    /// Returns true if no byte of a text has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads a text, and nothing of what follows it: a body may belong in a buffer, and so may what comes
    /// after it. `None` if the peer has finished before the first byte. After
    /// [`TimedOut`](ByteStreamError::TimedOut) the next call goes on.
    pub fn read<T>(
        &mut self,
        reader: &mut ByteStreamReader,
        parse: impl Fn(&[u8]) -> Parsed<T>,
        timeout: Duration,
    ) -> Outcome<Option<T>> {
        let mut scratch = [0; 2048];
        loop {
            let seen = reader.peek(&mut scratch);
            let before = self.bytes.len();
            self.bytes.extend_from_slice(&scratch[..seen]);
            if seen == 0 {
                // One byte, to wait for more without taking what is not the text's.
                let mut byte = [0];
                match reader.read(&mut byte, timeout)? {
                    0 if self.bytes.is_empty() => return Ok(None),
                    0 => return Err(ByteStreamError::PeerFinished.into()),
                    _ => self.bytes.push(byte[0]),
                }
            }
            // RFC 9112 §2.2: an empty line before a request is ignored; httparse does.
            let parsed = parse(&self.bytes[..self.bytes.len().min(HEAD_BYTES_MAX)])?;
            let of_text = parsed.as_ref().map_or(self.bytes.len(), |(_, len)| *len);
            if seen > 0 {
                // They were seen: this does not wait.
                reader.read_exact(&mut scratch[..of_text - before], timeout)?;
            }
            if let Some((text, _)) = parsed {
                self.bytes.clear();
                return Ok(Some(text));
            }
        }
    }
}

/// What comes next of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// So many bytes, and no more.
    Bytes(u64),
    /// Bytes to the end of the stream.
    ToTheEnd,
    /// The line with the length of a chunk (RFC 9112 §7.1).
    ChunkLine,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of the line after a chunk.
    ChunkEnd,
    /// Fields after the last chunk, and an empty line. The fields are dropped (§7.1.2).
    Trailers,
    /// The ends of the transfers that the body was in, until then.
    Ends(Option<Instant>),
}

/// Reads bodies wherever their bytes are: in the stream, or in the buffers for unsolicited transfers, which
/// are given back as soon as they were read.
pub struct BodyReader {
    scratch: Vec<u8>,
    line: Collector,
    expected: Expected,
    /// The greatest length that is taken.
    limit: u64,
    /// Unsolicited buffers that parts of the body are in.
    held: BTreeSet<u16>,
    /// Bytes of the body that were read.
    pub bytes: u64,
    /// Of all bodies, bytes that were in a buffer.
    pub placed_bytes: u64,
}

impl BodyReader {
    pub fn new() -> Self {
        Self {
            scratch: Vec::new(),
            line: Collector::default(),
            expected: Expected::Ends(None),
            limit: 0,
            held: BTreeSet::new(),
            bytes: 0,
            placed_bytes: 0,
        }
    }

    /// Begins a body, which ends as `framing` says, and has at most `limit` bytes.
    pub fn begin(&mut self, framing: Framing, limit: u64) {
        self.scratch.resize(SCRATCH_BYTES, 0);
        self.bytes = 0;
        self.limit = limit;
        self.expected = match framing {
            Framing::Length(bytes) => Expected::Bytes(bytes),
            Framing::Chunked => Expected::ChunkLine,
            Framing::Unsaid | Framing::OtherCoding => Expected::ToTheEnd,
        };
    }

    /// Reads a body to its end, and hands it to `sink` in parts.
    pub fn read_all(
        &mut self,
        reader: &mut ByteStreamReader,
        timeout: Duration,
        mut sink: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome {
        while !self.read(reader, timeout, &mut sink)? {}
        Ok(())
    }

    /// Reads the next part of the body and hands it to `sink`. Returns true at its end. After
    /// [`TimedOut`](ByteStreamError::TimedOut) the next call goes on.
    pub fn read(
        &mut self,
        reader: &mut ByteStreamReader,
        timeout: Duration,
        sink: &mut impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome<bool> {
        self.expected = match self.expected {
            Expected::Bytes(0) => Expected::Ends(None),
            Expected::Bytes(left) => Expected::Bytes(left - self.read_bytes(reader, left, timeout, sink)?),
            Expected::ToTheEnd => match self.read_bytes(reader, u64::MAX, timeout, sink) {
                Ok(_) => Expected::ToTheEnd,
                Err(error) if is(&*error, &ByteStreamError::PeerFinished) => Expected::Ends(None),
                Err(error) => return Err(error),
            },
            Expected::ChunkLine => match self.read_line(reader, chunk_length, timeout)? {
                0 => Expected::Trailers,
                bytes if bytes > self.limit - self.bytes => return Err(Refused::TooLarge.into()),
                bytes => Expected::Chunk(bytes),
            },
            Expected::Chunk(0) => Expected::ChunkEnd,
            Expected::Chunk(left) => Expected::Chunk(left - self.read_bytes(reader, left, timeout, sink)?),
            Expected::ChunkEnd => {
                self.read_line(reader, end_of_line, timeout)?;
                Expected::ChunkLine
            }
            Expected::Trailers => {
                self.read_line(reader, trailers, timeout)?;
                Expected::Ends(None)
            }
            Expected::Ends(_) if self.held.is_empty() => return Ok(true),
            Expected::Ends(until) => self.read_end(reader, until, timeout)?,
        };
        Ok(false)
    }

    fn read_line<T>(
        &mut self,
        reader: &mut ByteStreamReader,
        parse: impl Fn(&[u8]) -> Parsed<T>,
        timeout: Duration,
    ) -> Outcome<T> {
        Ok(self.line.read(reader, parse, timeout)?.ok_or(ByteStreamError::PeerFinished)?)
    }

    /// Reads some of the next `left` bytes. Returns how many.
    fn read_bytes(
        &mut self,
        reader: &mut ByteStreamReader,
        left: u64,
        timeout: Duration,
        sink: &mut impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome<u64> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.scratch.len());
        let read = match reader.read_item(&mut self.scratch[..most], timeout)? {
            ReadItem::Octets(octets) => {
                sink(&self.scratch[..octets])?;
                octets as u64
            }
            ReadItem::Placed { rid, buffer, offset, octets } => {
                if u64::from(octets) > left {
                    return Err(Refused::Malformed.into());
                }
                let (memory, start) = reader.buffer(rid, buffer).ok_or("a buffer that is not ours")?;
                self.copy(memory, (start + offset as usize, octets as usize), sink)?;
                self.placed_bytes += u64::from(octets);
                if let TransferBuffer::Unsolicited(buffer) = buffer {
                    self.held.insert(buffer);
                }
                u64::from(octets)
            }
            ReadItem::Complete { buffer: TransferBuffer::Unsolicited(buffer), .. } => {
                self.held.remove(&buffer);
                reader.release(buffer, timeout)?;
                0
            }
            ReadItem::Finished => return Err(ByteStreamError::PeerFinished.into()),
            _ => 0,
        };
        self.bytes += read;
        Ok(read)
    }

    /// Gives the next buffer back that the body was in: when its transfer is complete, or after a moment if
    /// the peer has not said how long it is.
    fn read_end(
        &mut self,
        reader: &mut ByteStreamReader,
        until: Option<Instant>,
        timeout: Duration,
    ) -> Outcome<Expected> {
        let now = Instant::now();
        let until = until.unwrap_or(now + END_OF_TRANSFER);
        match reader.read_item(&mut [], timeout.min(until - now)) {
            Ok(ReadItem::Complete { buffer: TransferBuffer::Unsolicited(buffer), .. }) => {
                self.held.remove(&buffer);
                reader.release(buffer, timeout)?;
            }
            // The buffer may have the beginning of what follows the body.
            Ok(ReadItem::Placed { .. }) => return Err(Refused::Malformed.into()),
            Ok(ReadItem::Complete { .. }) => {}
            Err(ByteStreamError::TimedOut) if Instant::now() < until => {
                self.expected = Expected::Ends(Some(until));
                return Err(ByteStreamError::TimedOut.into());
            }
            Ok(_) | Err(ByteStreamError::TimedOut) => {
                while let Some(buffer) = self.held.pop_first() {
                    reader.release(buffer, timeout)?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Expected::Ends(Some(until)))
    }

    /// Returns when [`read`](Self::read) must be called again, whether or not anything comes.
    pub const fn deadline(&self) -> Option<Instant> {
        match self.expected {
            Expected::Ends(until) => until,
            _ => None,
        }
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

/// The line before a chunk (RFC 9112 §7.1): its length, and extensions, which are ignored.
fn chunk_length(bytes: &[u8]) -> Parsed<u64> {
    match httparse::parse_chunk_size(bytes) {
        Ok(httparse::Status::Complete((len, bytes))) if len <= CHUNK_LINE_BYTES_MAX => Ok(Some((bytes, len))),
        Ok(httparse::Status::Partial) if bytes.len() < CHUNK_LINE_BYTES_MAX => Ok(None),
        _ => Err(Refused::Malformed),
    }
}

fn end_of_line(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [b'\r', b'\n', ..] => Ok(Some(((), 2))),
        [] | [b'\r'] => Ok(None),
        _ => Err(Refused::Malformed),
    }
}

fn trailers(bytes: &[u8]) -> Parsed<()> {
    let mut fields = [httparse::EMPTY_HEADER; crate::message::FIELDS_MAX];
    match httparse::parse_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete((len, _))) if len <= HEAD_BYTES_MAX => Ok(Some(((), len))),
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Ok(None),
        _ => Err(Refused::Malformed),
    }
}

/// Returns true if `error` is of this kind.
pub fn is(error: &(dyn std::error::Error + Send + Sync + 'static), kind: &ByteStreamError) -> bool {
    error
        .downcast_ref::<ByteStreamError>()
        .is_some_and(|error| std::mem::discriminant(error) == std::mem::discriminant(kind))
}

/// Sends files from a few pieces of memory. A long file of any length takes the same memory, a short one what
/// it needs, and a connection that sends none has none.
#[derive(Default)]
pub struct FileSender {
    /// Each with the number after which it may be filled again.
    pieces: Vec<(Region, u64)>,
    next: usize,
    scratch: Vec<u8>,
}

impl FileSender {
    /// Sends the next bytes of a file, of which `left` are still to be sent, as part of a section if one is
    /// named. `source` fills a buffer with them. Returns how many.
    ///
    /// # Errors
    ///
    /// Those of `source`, and [`ByteStreamError`]. After [`TimedOut`](ByteStreamError::TimedOut) nothing was
    /// sent.
    pub fn send(
        &mut self,
        writer: &mut ByteStreamWriter,
        source: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
        left: u64,
        section: Option<(Section, u32)>,
        timeout: Duration,
    ) -> Outcome<u64> {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        if self.next == self.pieces.len() {
            self.pieces.push((Region::heap(part).ok_or("no memory")?, 0));
        }
        if self.scratch.len() < part {
            self.scratch.resize(part, 0);
        }
        let (memory, free_after) = &mut self.pieces[self.next];
        wait_for_piece(writer, *free_after, timeout)?;
        if memory.len() < part {
            *memory = Region::heap(part).ok_or("no memory")?;
        }
        source(&mut self.scratch[..part])?;
        if !memory.write(0, &self.scratch[..part]) {
            return Err("a piece is too short".into());
        }
        let piece = Piece { memory: memory.clone(), range: 0..part };
        *free_after = writer.write_memory(Annotation { starts_message: false, section }, &piece, timeout)?;
        self.next = (self.next + 1) % PIECES;
        Ok(part as u64)
    }

    /// Frees the memory if the stack holds none of it.
    pub fn rest(&mut self, writer: &ByteStreamWriter) {
        if self.pieces.iter().all(|(_, free_after)| writer.acknowledged() >= *free_after) {
            *self = Self::default();
        }
    }
}

/// Waits until the stack holds piece `number` no more.
fn wait_for_piece(
    writer: &mut ByteStreamWriter,
    number: u64,
    timeout: Duration,
) -> Result<(), ByteStreamError> {
    let begin = Instant::now();
    while writer.acknowledged() < number {
        let left = timeout.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(ByteStreamError::TimedOut);
        }
        match writer.wait_acknowledged(left.min(Duration::from_millis(1))) {
            Ok(()) | Err(ByteStreamError::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The section that a body of `bytes` bytes is, if its length fits.
pub fn section(index: u32, bytes: u64, unsolicited: bool) -> Option<Section> {
    let rid = warpline::tcp_rdma::HttpRid { request_index: index }.into();
    Some(Section { rid, unsolicited, total_octets: Some(u32::try_from(bytes).ok()?) })
}
