//! The half of a byte stream that reads.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::byte_stream::{Buffer, ByteReader, ReadItem, SharedByteStream, TransferCounters};
use warpline_dataplane::memory::Region;
use warpline_dataplane::wire::tcp_rdma::Rid;

use super::super::event_fd::EventFd;
use super::handle::Link;
use super::section_read::SectionRead;
use super::{Deadline, to_io};
use crate::vocabulary::byte_stream::ByteStreamError;

/// Bytes that a section is read in, at most, where it lies in other places than its own.
const SCRATCH_BYTES: usize = 16 << 10;

/// The half of a byte stream that reads. Its methods wait for at most the time that they are given, and with
/// [`Duration::ZERO`] not at all.
///
/// # Messages beyond a gap
///
/// With [`early_message_bytes`](crate::ByteStreamConfig::early_message_bytes),
/// [`read_item`](Self::read_item) returns a message as soon as all of its bytes have arrived, also if bytes
/// before it have not, for example while a lost segment is sent again (draft-csapuntz-tcprdma-00, abstract):
///
/// 1. [`ReadItem::EarlyMessage`] has the position of the message, counted from the first byte of the byte
///    stream, and its length. The items after it are [`ReadItem::EarlyOctets`], until all of its bytes were
///    copied. Messages are returned in the order in which they became whole.
/// 2. When the gap has closed, the message has its turn: [`ReadItem::MessageStart`] and
///    [`ReadItem::HandedOut`], with the same position and length, and its bytes are passed over. Those that
///    were placed in a buffer are not: [`ReadItem::Placed`] and [`ReadItem::Complete`] are returned as for
///    any other transfer.
///
/// ```
/// # use std::time::Duration;
/// # use warpline::{ByteStreamError, ByteStreamReader, ReadItem};
/// /// Calls `process` with each message of a stream without transfers, early where that can be.
/// fn messages(
///     reader: &mut ByteStreamReader,
///     mut process: impl FnMut(Vec<u8>),
/// ) -> Result<(), ByteStreamError> {
///     // The early message that is being read, and how many bytes of it are to come; and the one in order.
///     let (mut early, mut early_left) = (Vec::new(), 0);
///     let mut in_order = Vec::new();
///     let mut out = [0; 4096];
///     loop {
///         match reader.read_item(&mut out, Duration::MAX)? {
///             ReadItem::EarlyMessage { octets, .. } => early_left = octets as usize,
///             ReadItem::EarlyOctets(read) => {
///                 early.extend_from_slice(&out[..read]);
///                 early_left -= read;
///                 if early_left == 0 {
///                     process(std::mem::take(&mut early));
///                 }
///             }
///             ReadItem::Octets(read) => in_order.extend_from_slice(&out[..read]),
///             // The one before it is whole. One that was returned early has left nothing here.
///             ReadItem::MessageStart if !in_order.is_empty() => process(std::mem::take(&mut in_order)),
///             ReadItem::Finished => {
///                 if !in_order.is_empty() {
///                     process(in_order);
///                 }
///                 return Ok(());
///             }
///             _ => {}
///         }
///     }
/// }
/// ```
///
/// The A bits of the peer's segments say where messages begin (draft-csapuntz-tcprdma-00 §3.1.6), and a
/// message ends where the next one begins. So the last message that has arrived waits for the beginning of
/// the next one, or for its turn; and two messages are returned as one if a middlebox has joined their
/// segments. A message is read in its turn, once, if it is longer than `early_message_bytes`, if earlier ones
/// leave it no room there, or if too many wait to be read:
/// [`messages_early_refused`](TransferCounters::messages_early_refused) counts them. If the connection ends
/// before the gap closes, a message that was returned early has no turn.
///
/// What is returned early is a copy, and the stream loses nothing: [`read`](Self::read) and
/// [`read_section`](Self::read_section) return the bytes of such a message again, in their turn.
///
/// A peer that sends messages beyond a gap and never closes it occupies the `early_message_bytes` that were
/// asked for, and frames within the receive window of TCP as any peer can; an early message that is read
/// makes room for another. Other bounds are
/// [`EARLY_MESSAGES_PER_STREAM`](crate::limits::EARLY_MESSAGES_PER_STREAM),
/// [`EARLY_MESSAGES_PER_SEGMENT`](crate::limits::EARLY_MESSAGES_PER_SEGMENT) and
/// [`MESSAGE_STARTS_PER_STREAM`](crate::limits::MESSAGE_STARTS_PER_STREAM).
// Requirements: TRO-3.1.6-03, A-43
pub struct ByteStreamReader {
    reader: ByteReader,
    pub(super) link: Arc<Link>,
    event: Option<Arc<EventFd>>,
    timeout: Duration,
    /// Unsolicited buffers reported to the application, the ends of whose transfers were not reported yet.
    reported: HashSet<u16>,
    /// Ends of such transfers, which [`read_section`](Self::read_section) has met.
    met: VecDeque<ReadItem>,
    /// The transfer that the core was asked to end in a call that did not wait for it long enough.
    cancelling: Option<Rid>,
}

impl ByteStreamReader {
    pub(super) fn new(shared: Arc<SharedByteStream>, link: Arc<Link>, event: Option<Arc<EventFd>>) -> Self {
        Self {
            reader: ByteReader::new(shared),
            link,
            event,
            timeout: Duration::MAX,
            reported: HashSet::new(),
            met: VecDeque::new(),
            cancelling: None,
        }
    }

    /// Reads what there is, at least one byte, wherever it lies: bytes of a transfer are copied from their
    /// buffer. An unsolicited buffer is given back when the end of its transfer is read so. Returns 0 when
    /// the peer has finished and all was read, or if `out` is empty.
    ///
    /// Bytes are in stream order: those that [`read_item`](Self::read_item) has returned
    /// [early](Self#messages-beyond-a-gap) are returned again in their turn, unless it has passed over them
    /// after [`ReadItem::HandedOut`].
    ///
    /// # Errors
    ///
    /// [`ByteStreamError::TimedOut`], [`ByteStreamError::Closed`].
    pub fn read(&mut self, out: &mut [u8], timeout: Duration) -> Result<usize, ByteStreamError> {
        if out.is_empty() {
            return Ok(0);
        }
        self.wait(timeout, |this| {
            let reported = &mut this.reported;
            let read = this.reader.read_octets_with(out, |buffer| {
                reported.remove(&buffer);
            });
            match read {
                0 if this.reader.is_finished() => Some(this.link.handle().end().map_or(Ok(0), Err)),
                0 => None,
                read => Some(Ok(read)),
            }
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
    /// [`ReadItem::Nothing`] is never returned. Whole [messages beyond a gap](Self#messages-beyond-a-gap)
    /// come first where the stream was configured for them.
    ///
    /// If `out` is empty and bytes to be copied are next, it is [`ReadItem::Octets`] or
    /// [`ReadItem::EarlyOctets`] with 0, and they stay.
    ///
    /// [`ReadItem::HandedOut`] reports the turn of a message to a program that reads with this method alone:
    /// other methods that read return its bytes, and the rest of a message that one of them has begun is
    /// returned here too.
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
                self.reported.insert(buffer);
            }
            ReadItem::Complete { buffer: Buffer::Unsolicited(buffer), .. } => {
                self.reported.remove(&buffer);
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
        })?;
        if self.cancelling == Some(rid) {
            // That was the transfer before, which the core ends first: nothing has cancelled this one yet.
            self.cancelling = None;
        }
        Ok(())
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
        self.reported.remove(&buffer);
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
    /// the unsolicited buffer of one that `read_item` has said nothing about is given back. An unsolicited
    /// transfer that has the name `rid` is ended, as [`cancel`](Self::cancel) does, and its buffer is given
    /// back under the same condition.
    ///
    /// The section is read in stream order: bytes that `read_item` has returned
    /// [early](Self#messages-beyond-a-gap) are read again, unless it has passed over them after
    /// [`ReadItem::HandedOut`].
    ///
    /// Bytes wait for their place in memory of their own, as many as `receive_bytes` of the
    /// [configuration](crate::ByteStreamConfig). Where the peer has more of them, the transfer is ended, and
    /// the rest of the section is read without being placed.
    ///
    /// # Errors
    ///
    /// As [`read_exact`](Self::read_exact).
    // Requirements: A-25
    pub fn read_section(
        &mut self,
        rid: Rid,
        memory: &Region,
        range: Range<usize>,
        timeout: Duration,
    ) -> Result<usize, ByteStreamError> {
        let mut section = SectionRead::new(rid, memory, range, !self.link.handle().shared.has_rdma_option());
        let aside_max = self.link.handle().shared.receive_bytes();
        let mut scratch = [0; SCRATCH_BYTES];
        while section.left() > 0 {
            if section.aside_bytes() > aside_max {
                // Most is not placed: nothing of the rest is, so that it needs no memory beside its own.
                self.end_section(&mut section, timeout)?;
            }
            // A part that was placed elsewhere is copied at most in such pieces.
            let left = section.left().min(SCRATCH_BYTES);
            let item = self.wait(timeout, |this| match this.reader.read_in_order(&mut scratch, left) {
                ReadItem::Nothing => None,
                item => Some(Ok(item)),
            })?;
            match item {
                ReadItem::Octets(read) => section.accept(&scratch[..read])?,
                ReadItem::Placed { rid, buffer, offset, octets } => {
                    let found = self.reader.buffer(rid, buffer);
                    section.accept_placed(rid, buffer, offset, octets, found)?;
                }
                ReadItem::Complete { rid: other, buffer, .. } if other != rid => {
                    self.meet(item, buffer, timeout)?;
                }
                ReadItem::Complete { buffer: buffer @ Buffer::Unsolicited(_), .. } => {
                    section.unsolicited = None;
                    self.meet(item, buffer, timeout)?;
                }
                ReadItem::NotExpected { rid: other } if other != rid => self.met.push_back(item),
                ReadItem::Finished => {
                    return Err(self.link.handle().end().unwrap_or(ByteStreamError::PeerFinished));
                }
                // Nothing of the section.
                _ => {}
            }
        }
        if section.aside_bytes() > 0 || section.unsolicited.is_some() {
            self.end_section(&mut section, timeout)?;
        }
        Ok(section.in_place)
    }

    /// Ends the transfer of a section, and writes to its place what was read of it.
    fn end_section(
        &mut self,
        section: &mut SectionRead<'_>,
        timeout: Duration,
    ) -> Result<(), ByteStreamError> {
        self.cancel(section.rid, timeout)?;
        if let Some(buffer) = section.unsolicited.take().filter(|buffer| !self.reported.contains(buffer)) {
            // Nobody else knows of it, so nobody else could give it back.
            self.reader.save_unsolicited(section.rid, buffer);
            self.release(buffer, timeout)?;
        }
        section.write_aside()
    }

    /// Returns what became of the segments with the TCP RDMA option that have arrived: how many bytes were
    /// placed, and why others were not.
    pub fn transfer_counters(&self) -> TransferCounters {
        self.link.handle().transfer_counters()
    }

    /// Takes the end of a transfer of another name than the section's, or of one in an unsolicited buffer.
    fn meet(&mut self, end: ReadItem, buffer: Buffer, timeout: Duration) -> Result<(), ByteStreamError> {
        match buffer {
            // All of it was copied: nobody else would give the buffer back.
            Buffer::Unsolicited(buffer) if !self.reported.remove(&buffer) => self.release(buffer, timeout),
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
    /// only then may the thread sleep. A [message beyond a gap](Self#messages-beyond-a-gap) is something to
    /// read, which only [`read_item`](Self::read_item) takes.
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
