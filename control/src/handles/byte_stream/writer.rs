//! The half of a byte stream that writes.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::byte_stream::{
    Annotation, ByteWriter, Section, SectionError, SentTransfers, SharedByteStream,
};
use warpline_dataplane::memory::Region;
use warpline_dataplane::tcp::{CloseReason, Snapshot};
use warpline_dataplane::wire::tcp_rdma::Rid;

use super::super::event_fd::EventFd;
use super::handle::Link;
use super::{Deadline, to_io};
use crate::vocabulary::byte_stream::ByteStreamError;
use crate::vocabulary::device::Stopped;

/// The part of a message to be written, in memory that stays as it is until it is acknowledged.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The memory.
    pub memory: Region,
    /// The bytes of it.
    pub range: Range<usize>,
}

/// The half of a byte stream that writes. Its methods wait for at most the time that they are given, and with
/// [`Duration::ZERO`] not at all.
///
/// What is written goes out at once. With [`cork`](Self::cork) it waits for [`uncork`](Self::uncork), so that
/// the parts of a message are cut into segments together.
pub struct ByteStreamWriter {
    writer: ByteWriter,
    pub(super) link: Arc<Link>,
    event: Option<Arc<EventFd>>,
    timeout: Duration,
    corked: bool,
    /// What was said about transfers, so that no section contradicts it.
    sent: SentTransfers,
}

impl ByteStreamWriter {
    pub(super) fn new(shared: Arc<SharedByteStream>, link: Arc<Link>, event: Option<Arc<EventFd>>) -> Self {
        Self {
            writer: ByteWriter::new(shared),
            link,
            event,
            timeout: Duration::MAX,
            corked: false,
            sent: SentTransfers::default(),
        }
    }

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
            let number = this.writer.write_memory(annotation, memory, range.start, range.len());
            if number.is_none() {
                // Corked or not: what waits makes room when it is sent.
                this.writer.commit();
            }
            number.map(Ok)
        })?;
        self.record_section(&annotation, range.len());
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
            self.record_section(&annotation, written);
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

    fn record_section(&mut self, annotation: &Annotation, bytes: usize) {
        if let Some((section, buffer_offset)) = &annotation.section {
            self.sent.record(section, *buffer_offset, bytes);
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

    /// Has what is written wait, as far as there is room: a call that finds none sends it.
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
    /// sent again and why. `None` once it is closed, or if its core, one of several, does not answer within a
    /// second.
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
    /// then may the thread sleep. A [corked](Self::cork) stream without room sends what it has.
    pub fn arm(&mut self) -> bool {
        if self.writer.room() == 0 {
            // Nothing else would make room, and so wake the thread.
            self.writer.commit();
        }
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
            // Looked at first: what came before the end counts, and an attempt may not have seen it yet.
            let end = this.link.handle().shared.end();
            attempt(this).or_else(|| end.map(|reason| Err(ByteStreamError::Closed(reason))))
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
