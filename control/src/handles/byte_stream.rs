//! Byte streams: ordinary TCP at the speed of the data plane, and the TCP RDMA option for those who want it
//! (draft-csapuntz-tcprdma-00). The threads of an application and the core share rings; the control thread
//! has no part in what is read and written.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpline_dataplane::byte_stream::{
    self as dataplane, Annotation, Buffer, ByteReader, ByteWriter, ReadItem, Section, SectionError,
    SentTransfers, SharedByteStream, TransferCounters, UnsolicitedPool,
};
use warpline_dataplane::memory::Region;
use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::tcp::{CloseReason, Snapshot};
use warpline_dataplane::wire::tcp_rdma::Rid;

use super::byte_stream_handle::{ByteStreamHandle, Link};
use super::context::DeviceContext;
use super::event_fd::EventFd;
use super::section_read::SectionRead;
use crate::vocabulary::byte_stream::{ByteStreamConfig, ByteStreamError};
use crate::vocabulary::device::Stopped;
use crate::vocabulary::socket_pair::SocketPair;

/// A TCP connection whose bytes the application and the core share, from
/// [`TcpStream::into_byte_stream`](crate::TcpStream::into_byte_stream).
///
/// Dropping both halves closes the connection: what was written is sent, and a FIN after it. If bytes have
/// arrived that were not read, or others arrive after that, the connection is reset instead, and what was
/// written may be lost (RFC 9293 §3.6.1, RFC 2525 §2.17): read to the peer's end where that matters. A peer
/// that takes nothing for five seconds is reset too, and any peer after a minute. Of all connections there
/// may be, those that were dropped and have not ended are half at most, to one address a sixteenth; others
/// are reset at once.
pub struct ByteStream {
    /// The half that reads.
    pub reader: ByteStreamReader,
    /// The half that writes.
    pub writer: ByteStreamWriter,
}

/// The file descriptors of a byte stream: of its reader, and of its writer.
pub(super) type Events = Option<[Arc<EventFd>; 2]>;

/// Returns the rings of a stream, and its file descriptors.
pub(super) fn prepare(
    context: &DeviceContext,
    config: &ByteStreamConfig,
) -> Result<(dataplane::ByteStreamConfig, Events), ByteStreamError> {
    let ring = |bytes: usize| context.allocate(bytes.max(1)).ok_or(ByteStreamError::NoMemory);
    let mut rings = dataplane::ByteStreamConfig::new(ring(config.send_bytes)?, ring(config.receive_bytes)?);
    if let Some(unsolicited) = config.unsolicited {
        let memory = ring(unsolicited.count.saturating_mul(unsolicited.bytes))?;
        let pool = UnsolicitedPool::new(memory, unsolicited.bytes).ok_or(ByteStreamError::NoMemory)?;
        rings.unsolicited = Some(pool);
    }
    rings.rid_format = config.rid_format;
    rings.message_starts = config.message_starts;
    let mut events = None;
    if config.events {
        let [reader, writer] = [Arc::new(EventFd::new()?), Arc::new(EventFd::new()?)];
        rings.reader = Some(reader.clone());
        rings.writer = Some(writer.clone());
        events = Some([reader, writer]);
    }
    Ok((rings, events))
}

impl ByteStream {
    pub(super) fn new(
        context: Arc<DeviceContext>,
        connection: ConnectionId,
        pair: SocketPair,
        shared: Arc<SharedByteStream>,
        events: Events,
    ) -> Self {
        let [reader_event, writer_event] = match events {
            Some([reader, writer]) => [Some(reader), Some(writer)],
            None => [None, None],
        };
        let link =
            Arc::new(Link::new(ByteStreamHandle { context, connection, pair, shared: shared.clone() }));
        let reader = ByteReader::new(shared.clone());
        let writer = ByteWriter::new(shared);
        Self {
            reader: ByteStreamReader {
                reader,
                link: link.clone(),
                event: reader_event,
                timeout: Duration::MAX,
                told: HashSet::new(),
                met: VecDeque::new(),
                cancelling: None,
            },
            writer: ByteStreamWriter {
                writer,
                link,
                event: writer_event,
                timeout: Duration::MAX,
                corked: false,
                sent: SentTransfers::default(),
            },
        }
    }

    /// Returns the peer's address and port.
    pub fn remote(&self) -> SocketAddr {
        self.reader.link.handle().remote()
    }

    /// Returns our address and port.
    pub fn local(&self) -> SocketAddr {
        self.reader.link.handle().local()
    }

    /// Returns true if the ends have agreed on the TCP RDMA option.
    pub fn has_rdma_option(&self) -> bool {
        self.writer.has_rdma_option()
    }

    /// Returns the state of its TCP at this moment: round-trip time, windows, what is in flight, what was
    /// sent again and why. `None` once it is closed.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn tcp(&self) -> Result<Option<Snapshot>, Stopped> {
        self.writer.tcp()
    }

    /// Returns a handle for other threads, which can reset the connection while its halves wait.
    pub fn handle(&self) -> ByteStreamHandle {
        self.writer.link.handle().clone()
    }

    /// Resets the connection. Where its halves are in use elsewhere, [`handle`](Self::handle) does it.
    pub fn abort(&self) {
        self.writer.abort();
    }

    /// Waits until both ends have finished.
    ///
    /// # Errors
    ///
    /// As [`ByteStreamWriter::wait_closed`].
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<(), ByteStreamError> {
        self.writer.wait_closed(timeout)
    }
}

/// The part of a message to be written, in memory that stays as it is until it is acknowledged.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The memory.
    pub memory: Region,
    /// The bytes of it.
    pub range: Range<usize>,
}

/// The half of a byte stream that reads. Its methods wait for at most the time that they are given, and with
/// [`Duration::ZERO`] not at all.
pub struct ByteStreamReader {
    reader: ByteReader,
    link: Arc<Link>,
    event: Option<Arc<EventFd>>,
    timeout: Duration,
    /// Unsolicited buffers that the application was told of, and not of the end of their transfers.
    told: HashSet<u16>,
    /// Ends of such transfers, which [`read_section`](Self::read_section) has met.
    met: VecDeque<ReadItem>,
    /// The transfer that the core was asked to end in a call that did not wait for it long enough.
    cancelling: Option<Rid>,
}

impl ByteStreamReader {
    /// Reads what there is, at least one byte, wherever it lies: bytes of a transfer are copied from their
    /// buffer. An unsolicited buffer is given back when the end of its transfer is read so. Returns 0 when
    /// the peer has finished and all was read, or if `out` is empty.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::TimedOut`], [`ByteStreamError::Closed`].
    pub fn read(&mut self, out: &mut [u8], timeout: Duration) -> Result<usize, ByteStreamError> {
        if out.is_empty() {
            return Ok(0);
        }
        self.wait(timeout, |this| match this.reader.read_plain(out) {
            0 if this.reader.is_finished() => Some(this.link.handle().end().map_or(Ok(0), Err)),
            0 => None,
            read => Some(Ok(read)),
        })
    }

    /// Reads until `out` is full; waits `timeout` each time there is nothing to read.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`ByteStreamError::PeerFinished`].
    pub fn read_exact(&mut self, out: &mut [u8], timeout: Duration) -> Result<(), ByteStreamError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..], timeout)? {
                0 => return Err(ByteStreamError::PeerFinished),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Takes the next part of the stream: bytes that were placed in a buffer are not copied.
    /// [`ReadItem::Nothing`] is never returned.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_item(&mut self, out: &mut [u8], timeout: Duration) -> Result<ReadItem, ByteStreamError> {
        if let Some(item) = self.met.pop_front() {
            return Ok(item);
        }
        let item = self.wait(timeout, |this| match this.reader.read(out, usize::MAX) {
            ReadItem::Nothing => None,
            ReadItem::Finished => Some(this.link.handle().end().map_or(Ok(ReadItem::Finished), Err)),
            item => Some(Ok(item)),
        })?;
        match item {
            ReadItem::Placed { buffer: Buffer::Unsolicited(buffer), .. } => {
                self.told.insert(buffer);
            }
            ReadItem::Complete { buffer: Buffer::Unsolicited(buffer), .. } => {
                self.told.remove(&buffer);
            }
            _ => {}
        }
        Ok(item)
    }

    /// Copies the next bytes to `out` without taking them, as far as they have come and no placed ones come
    /// before them. Returns how many; does not wait.
    pub fn peek(&mut self, out: &mut [u8]) -> usize {
        self.reader.peek(out)
    }

    /// Has the bytes of transfer `rid` placed in `range` of `memory` as they arrive. Ask before the peer can
    /// know that name: if an unsolicited transfer has it, [`read_item`](Self::read_item) returns
    /// [`ReadItem::NotExpected`], and nothing is placed in the memory.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::OutsideMemory`], [`ByteStreamError::NameInUse`]; [`ByteStreamError::TimedOut`] if
    /// the core has not seen what was asked before, [`ByteStreamError::Closed`].
    pub fn expect(&mut self, rid: Rid, memory: &Region, range: Range<usize>) -> Result<(), ByteStreamError> {
        let len = range.len();
        if range.start > range.end || !memory.contains(range.start, len) || memory.is_constant() {
            return Err(ByteStreamError::OutsideMemory);
        }
        if self.reader.buffer(rid, Buffer::Expected).is_some() {
            return Err(ByteStreamError::NameInUse);
        }
        self.wait(self.timeout, |this| {
            if let Some(reason) = this.link.handle().shared.end() {
                return Some(Err(ByteStreamError::Closed(reason)));
            }
            this.reader.expect(rid, memory, range.start, len).then_some(Ok(()))
        })
    }

    /// Ends transfer `rid` and waits until its buffer is the application's alone. The bytes
    /// of it that were placed and not read are copied aside, to be read from there. On a connection that has
    /// ended nothing is placed any more.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::TimedOut`]. Another call goes on where this one has stopped: an application that
    /// polls the cores itself calls it with [`Duration::ZERO`] between polls.
    pub fn cancel(&mut self, rid: Rid, timeout: Duration) -> Result<(), ByteStreamError> {
        if self.cancelling != Some(rid) {
            self.wait(timeout, |this| {
                (this.reader.has_ended() || this.reader.cancel(rid)).then_some(Ok(()))
            })?;
            self.cancelling = Some(rid);
        }
        self.wait(timeout, |this| this.reader.has_settled().then_some(Ok(())))?;
        self.cancelling = None;
        self.reader.save_placed(rid);
        Ok(())
    }

    /// Gives the unsolicited buffer `buffer` back, after [`ReadItem::Complete`], or, for a transfer whose
    /// total is not known, when all of it was read: another transfer may have it from then on. On a
    /// connection that has ended there is no other.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::TimedOut`].
    pub fn release(&mut self, buffer: u16, timeout: Duration) -> Result<(), ByteStreamError> {
        self.wait(timeout, |this| {
            (this.reader.has_ended() || this.reader.release(buffer)).then_some(Ok(()))
        })?;
        self.told.remove(&buffer);
        Ok(())
    }

    /// Returns the memory of a buffer and the place where it begins there.
    pub fn buffer(&self, rid: Rid, buffer: Buffer) -> Option<(&Region, usize)> {
        self.reader.buffer(rid, buffer)
    }

    /// Copies from `offset` of unsolicited buffer `buffer` to `out`. Returns false if there is no such
    /// buffer, or the range does not lie in it.
    #[must_use]
    pub fn copy_unsolicited(&self, buffer: u16, offset: usize, out: &mut [u8]) -> bool {
        let part = self.unsolicited_part(buffer, offset, out.len());
        part.is_some_and(|(memory, at)| memory.read(at, out))
    }

    /// Returns the memory of bytes `offset..offset + len` of unsolicited buffer `buffer`, and where they
    /// begin there; `None` if there is no such buffer, or the range does not lie in it.
    pub fn unsolicited_part(&self, buffer: u16, offset: usize, len: usize) -> Option<(&Region, usize)> {
        let pool = self.reader.unsolicited()?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= pool.buffer_octets());
        pool.buffer(buffer).filter(|_| inside).map(|(memory, at)| (memory, at + offset))
    }

    /// Reads the next `range.len()` bytes of the stream into `range` of `memory`, of which transfer `rid`,
    /// expected to begin at its start, places what it can. Bytes that are in their place already are not
    /// copied. What was not placed is copied to its place, and what was placed elsewhere in the buffer, by an
    /// option that was damaged on its way or a peer that errs, is brought there: the stream decides. Returns
    /// how many bytes were in their place.
    ///
    /// If the end of another transfer comes meanwhile, the next [`read_item`](Self::read_item) returns it;
    /// the unsolicited buffer of one that `read_item` has said nothing about is given back.
    ///
    /// Bytes wait for their place in memory of their own, as many as `receive_bytes` of the
    /// [configuration](ByteStreamConfig). Where the peer has more of them, the transfer is ended, and the
    /// rest of the section is read without being placed.
    ///
    /// # Errors
    ///
    /// As [`read_exact`](Self::read_exact).
    // Requirements: A-25
    pub fn read_section(
        &mut self,
        rid: Rid,
        (memory, range): (&Region, Range<usize>),
        timeout: Duration,
    ) -> Result<usize, ByteStreamError> {
        let mut section = SectionRead::new(rid, memory, range, !self.link.handle().shared.has_rdma_option());
        let aside_max = self.link.handle().shared.receive_bytes();
        let mut scratch = [0; SCRATCH_BYTES];
        while section.left() > 0 {
            if section.aside_bytes() > aside_max {
                // Most is not placed: nothing of the rest is, so that it needs no memory beside its own.
                self.cancel(rid, timeout)?;
                section.write_aside()?;
            }
            // A part that was placed elsewhere is copied at most in such pieces.
            let left = section.left().min(SCRATCH_BYTES);
            let item = self.wait(timeout, |this| match this.reader.read(&mut scratch, left) {
                ReadItem::Nothing => None,
                item => Some(Ok(item)),
            })?;
            match item {
                ReadItem::Octets(read) => section.take(&scratch[..read])?,
                ReadItem::Placed { rid, buffer, offset, octets } => {
                    let found = self.reader.buffer(rid, buffer);
                    section.take_placed((rid, buffer, offset, octets), found)?;
                }
                ReadItem::Complete { rid: other, buffer, .. } if other != rid => {
                    self.meet(item, buffer, timeout)?;
                }
                ReadItem::Complete { buffer: Buffer::Unsolicited(buffer), .. } => {
                    self.release(buffer, timeout)?;
                }
                ReadItem::NotExpected { rid: other } if other != rid => self.met.push_back(item),
                ReadItem::Finished => {
                    return Err(self.link.handle().end().unwrap_or(ByteStreamError::PeerFinished));
                }
                // Nothing of the section.
                _ => {}
            }
        }
        if section.aside_bytes() > 0 {
            self.cancel(rid, timeout)?;
            section.write_aside()?;
        }
        Ok(section.in_place)
    }

    /// Returns what became of the segments with the TCP RDMA option that have arrived: how many bytes were
    /// placed, and why others were not.
    pub fn transfer_counters(&self) -> TransferCounters {
        self.link.handle().transfer_counters()
    }

    /// Takes the end of a transfer that is not read here.
    fn meet(&mut self, end: ReadItem, buffer: Buffer, timeout: Duration) -> Result<(), ByteStreamError> {
        match buffer {
            // All of it was copied: nobody else would give the buffer back.
            Buffer::Unsolicited(buffer) if !self.told.remove(&buffer) => self.release(buffer, timeout),
            _ => {
                self.met.push_back(end);
                Ok(())
            }
        }
    }

    /// Returns true if everything was read and the peer sends nothing more.
    pub fn is_finished(&mut self) -> bool {
        self.reader.is_finished()
    }

    /// Bytes copied to slices of the application so far.
    pub const fn bytes_copied(&self) -> u64 {
        self.reader.octets_copied()
    }

    /// How long [`io::Read`] waits; without limit at first.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the file descriptor that becomes readable when there is something to read, after
    /// [`arm`](Self::arm); `None` for a stream without.
    pub fn event_fd(&self) -> Option<&EventFd> {
        self.event.as_deref()
    }

    /// Has the file descriptor become readable at the next change. Returns true if there is nothing to read:
    /// only then may the thread sleep.
    pub fn arm(&mut self) -> bool {
        self.reader.arm();
        self.met.is_empty() && !self.reader.is_readable()
    }

    /// Calls `attempt` until it returns something, for at most `timeout`.
    fn wait<T>(
        &mut self,
        timeout: Duration,
        mut attempt: impl FnMut(&mut Self) -> Option<Result<T, ByteStreamError>>,
    ) -> Result<T, ByteStreamError> {
        let mut deadline = Deadline::new(timeout);
        loop {
            if let Some(result) = attempt(self) {
                return result;
            }
            self.reader.arm();
            if let Some(result) = attempt(self) {
                return result;
            }
            deadline.sleep(self.event.as_deref())?;
        }
    }
}

impl io::Read for ByteStreamReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Self::read(self, out, self.timeout).map_err(to_io)
    }
}

impl fmt::Debug for ByteStreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStreamReader").field("pair", &self.link.handle().pair).finish_non_exhaustive()
    }
}

/// The half of a byte stream that writes. Its methods wait for at most the time that they are given, and with
/// [`Duration::ZERO`] not at all.
///
/// What is written goes out at once. With [`cork`](Self::cork) it waits for [`uncork`](Self::uncork), so that
/// the parts of a message are cut into segments together.
pub struct ByteStreamWriter {
    writer: ByteWriter,
    link: Arc<Link>,
    event: Option<Arc<EventFd>>,
    timeout: Duration,
    corked: bool,
    /// What was said about transfers, so that no section contradicts it.
    sent: SentTransfers,
}

impl ByteStreamWriter {
    /// Writes as much of `bytes` as there is room for, at least one byte. Returns how many.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::TimedOut`], [`ByteStreamError::Closed`], [`ByteStreamError::Finished`].
    pub fn write(&mut self, bytes: &[u8], timeout: Duration) -> Result<usize, ByteStreamError> {
        self.write_some(timeout, bytes.is_empty(), |writer| writer.write(bytes))
    }

    /// Writes as much of `buffers`, one after the other, as there is room for, at least one byte. Returns how
    /// many.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_vectored(
        &mut self,
        buffers: &[IoSlice<'_>],
        timeout: Duration,
    ) -> Result<usize, ByteStreamError> {
        let empty = buffers.iter().all(|buffer| buffer.is_empty());
        self.write_some(timeout, empty, |writer| writer.write_vectored(buffers))
    }

    /// Writes all of `bytes`; waits `timeout` each time there is no room.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); some bytes may be written then.
    pub fn write_all(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), ByteStreamError> {
        self.write_annotated(Annotation::default(), bytes, timeout)
    }

    /// Writes all of `bytes`, the first bytes of a message: with the TCP RDMA option they begin a segment,
    /// which says so.
    ///
    /// # Errors
    ///
    /// As [`write_all`](Self::write_all).
    // Requirements: TRO-3.1.6-01
    pub fn write_message(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), ByteStreamError> {
        self.write_annotated(Annotation { starts_message: true, section: None }, bytes, timeout)
    }

    /// Writes all of `bytes` as a section of a transfer, for the peer's buffer from `buffer_offset` on.
    ///
    /// Without bytes, and with a total of 0, it is a transfer of nothing, as the reply to a READ that fails
    /// has it (draft-csapuntz-tcprdma-00 §5.1.2). It needs a byte of no section to go with: the last one
    /// written, while the stream is [corked](Self::cork). Without bytes and with another total, or none,
    /// nothing is written.
    ///
    /// The sections of a transfer say the same total or none, have no byte of the buffer twice, and have none
    /// beyond the total (§3.1.4). A transfer ends with its last byte; one without a total when
    /// [`end_transfer`](Self::end_transfer) says so.
    ///
    /// # Errors
    ///
    /// As [`write_all`](Self::write_all). [`ByteStreamError::Section`] if it contradicts a section before, or
    /// a transfer of nothing has no byte to go with; nothing was written then.
    pub fn write_section(
        &mut self,
        section: Section,
        buffer_offset: u32,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), ByteStreamError> {
        let annotation = Annotation { starts_message: false, section: Some((section, buffer_offset)) };
        self.write_annotated(annotation, bytes, timeout)
    }

    /// Writes `piece` without copying it before it goes into frames, as a section if `annotation` says so.
    /// The memory must stay as it is until the number that this returns is
    /// [acknowledged](Self::acknowledged).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`ByteStreamError::OutsideMemory`], [`ByteStreamError::Section`].
    pub fn write_memory(
        &mut self,
        annotation: Annotation,
        piece: &Piece,
        timeout: Duration,
    ) -> Result<u64, ByteStreamError> {
        let Piece { memory, range } = piece;
        if range.is_empty() || range.len() > 1 << 31 || !memory.contains(range.start, range.len()) {
            return Err(ByteStreamError::OutsideMemory);
        }
        self.check_open()?;
        self.check_section(&annotation, range.len())?;
        let number = self.wait(timeout, |this| {
            this.writer.write_memory(annotation, memory, range.start, range.len()).map(Ok)
        })?;
        self.note_section(&annotation, range.len());
        self.send();
        Ok(number)
    }

    /// How many pieces the stack holds no more: those of [`write_memory`](Self::write_memory) with this
    /// number or a lower one may change.
    pub fn acknowledged(&self) -> u64 {
        self.writer.released_pieces()
    }

    /// Waits until the peer has acknowledged everything that was written.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::TimedOut`], [`ByteStreamError::Closed`].
    pub fn wait_acknowledged(&mut self, timeout: Duration) -> Result<(), ByteStreamError> {
        self.uncork();
        self.wait(timeout, |this| this.writer.is_acknowledged().then_some(Ok(())))
    }

    /// Writes all of `bytes`, with what `annotation` says about them. Without bytes, see
    /// [`write_section`](Self::write_section).
    ///
    /// # Errors
    ///
    /// As [`write_section`](Self::write_section).
    pub fn write_annotated(
        &mut self,
        mut annotation: Annotation,
        mut bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), ByteStreamError> {
        self.check_section(&annotation, bytes.len())?;
        if bytes.is_empty() {
            return self.write_nothing(&annotation);
        }
        while !bytes.is_empty() {
            let written =
                self.write_some(timeout, false, |writer| writer.write_annotated(annotation, bytes))?;
            self.note_section(&annotation, written);
            bytes = &bytes[written..];
            annotation.starts_message = false;
            if let Some((_, offset)) = &mut annotation.section {
                *offset = offset.wrapping_add(written as u32);
            }
            if !bytes.is_empty() {
                // There is no room for the rest before some of it has gone.
                self.writer.commit();
            }
        }
        Ok(())
    }

    /// Ends transfer `rid`, of which not all was sent, or whose total is not known: the next section with
    /// this name is of another transfer.
    pub fn end_transfer(&mut self, rid: Rid) {
        self.sent.end(rid);
    }

    // Requirements: TRO-5.1.2-02
    fn write_nothing(&mut self, annotation: &Annotation) -> Result<(), ByteStreamError> {
        let nothing = annotation.section.filter(|(section, _)| section.total_octets == Some(0));
        let Some((section, buffer_offset)) = nothing else { return Ok(()) };
        self.check_open()?;
        if self.writer.write_nothing(section, buffer_offset) {
            Ok(())
        } else {
            Err(SectionError::NothingToGoWith.into())
        }
    }

    fn check_section(&self, annotation: &Annotation, bytes: usize) -> Result<(), SectionError> {
        match &annotation.section {
            Some((section, buffer_offset)) => self.sent.check(section, *buffer_offset, bytes),
            None => Ok(()),
        }
    }

    fn note_section(&mut self, annotation: &Annotation, bytes: usize) {
        if let Some((section, buffer_offset)) = &annotation.section {
            self.sent.note(section, *buffer_offset, bytes);
        }
    }

    fn write_some(
        &mut self,
        timeout: Duration,
        empty: bool,
        mut write: impl FnMut(&mut ByteWriter) -> usize,
    ) -> Result<usize, ByteStreamError> {
        if empty {
            return Ok(0);
        }
        self.check_open()?;
        let written = self.wait(timeout, |this| match write(&mut this.writer) {
            0 => {
                // What is there has to go before there is room.
                this.writer.commit();
                None
            }
            written => Some(Ok(written)),
        })?;
        self.send();
        Ok(written)
    }

    fn check_open(&self) -> Result<(), ByteStreamError> {
        if self.writer.is_finished() { Err(ByteStreamError::Finished) } else { Ok(()) }
    }

    fn send(&mut self) {
        if !self.corked {
            self.writer.commit();
        }
    }

    /// Has what is written wait, as far as there is room.
    pub const fn cork(&mut self) {
        self.corked = true;
    }

    /// Sends what was written since [`cork`](Self::cork).
    pub fn uncork(&mut self) {
        self.corked = false;
        self.writer.commit();
    }

    /// Bytes that can be written at once.
    pub fn room(&self) -> usize {
        self.writer.room()
    }

    /// Closes our half of the connection after everything written. The peer's half stays open.
    pub fn finish(&mut self) {
        self.writer.finish();
    }

    /// Returns true if the ends have agreed on the TCP RDMA option. Known once the core has the stream, which
    /// is before its first byte is read.
    pub fn has_rdma_option(&self) -> bool {
        self.link.handle().has_rdma_option()
    }

    /// Returns the state of its TCP at this moment: round-trip time, windows, what is in flight, what was
    /// sent again and why. `None` once it is closed.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn tcp(&self) -> Result<Option<Snapshot>, Stopped> {
        self.link.handle().tcp()
    }

    /// Resets the connection.
    pub fn abort(&self) {
        self.link.handle().abort();
    }

    /// Waits until both ends have finished.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::Closed`] when the connection ended otherwise, [`ByteStreamError::TimedOut`].
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<(), ByteStreamError> {
        self.wait(timeout, |this| match this.link.handle().shared.end() {
            Some(CloseReason::Finished) => Some(Ok(())),
            Some(reason) => Some(Err(ByteStreamError::Closed(reason))),
            None => None,
        })
    }

    /// How long [`io::Write`] waits; without limit at first.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the file descriptor that becomes readable when there is more room, after [`arm`](Self::arm);
    /// `None` for a stream without.
    pub fn event_fd(&self) -> Option<&EventFd> {
        self.event.as_deref()
    }

    /// Has the file descriptor become readable at the next change. Returns true if there is no room: only
    /// then may the thread sleep.
    pub fn arm(&self) -> bool {
        self.writer.arm();
        self.writer.room() == 0 && self.link.handle().shared.end().is_none()
    }

    /// Calls `attempt` until it returns something, for at most `timeout`.
    fn wait<T>(
        &mut self,
        timeout: Duration,
        mut attempt: impl FnMut(&mut Self) -> Option<Result<T, ByteStreamError>>,
    ) -> Result<T, ByteStreamError> {
        let mut deadline = Deadline::new(timeout);
        let mut attempt = |this: &mut Self| {
            attempt(this).or_else(|| {
                this.link.handle().shared.end().map(|reason| Err(ByteStreamError::Closed(reason)))
            })
        };
        loop {
            if let Some(result) = attempt(self) {
                return result;
            }
            self.writer.arm();
            if let Some(result) = attempt(self) {
                return result;
            }
            deadline.sleep(self.event.as_deref())?;
        }
    }
}

impl io::Write for ByteStreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::write(self, bytes, self.timeout).map_err(to_io)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::write_vectored(self, buffers, self.timeout).map_err(to_io)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.commit();
        Ok(())
    }
}

impl fmt::Debug for ByteStreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStreamWriter").field("pair", &self.link.handle().pair).finish_non_exhaustive()
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("pair", &self.reader.link.handle().pair).finish_non_exhaustive()
    }
}

fn to_io(error: ByteStreamError) -> io::Error {
    let kind = match &error {
        ByteStreamError::TimedOut => io::ErrorKind::WouldBlock,
        ByteStreamError::Closed(_) => io::ErrorKind::ConnectionReset,
        ByteStreamError::Finished => io::ErrorKind::BrokenPipe,
        ByteStreamError::PeerFinished => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Bytes that a section is read in, at most, where it lies in other places than its own.
const SCRATCH_BYTES: usize = 16 << 10;

/// The end of a wait.
struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    /// Sleeps until `event` is readable, or for a moment without one.
    fn sleep(&mut self, event: Option<&EventFd>) -> Result<(), ByteStreamError> {
        let left = self.timeout.saturating_sub(self.start.elapsed());
        if left.is_zero() {
            return Err(ByteStreamError::TimedOut);
        }
        match event {
            Some(event) => {
                event.wait(left);
                event.clear();
            }
            None => std::thread::yield_now(),
        }
        Ok(())
    }
}
