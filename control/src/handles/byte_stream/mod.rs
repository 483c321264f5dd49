//! Byte streams: ordinary TCP at the speed of the data plane, and the TCP RDMA option for those who want it
//! (draft-csapuntz-tcprdma-00). The threads of an application and the core share rings; the control thread
//! has no part in what is read and written.
mod handle;
mod reader;
mod section_read;
mod writer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use warpline_dataplane::byte_stream::{self as dataplane, RingGrowth, SharedByteStream, UnsolicitedPool};
use warpline_dataplane::limits;
use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::tcp::Snapshot;

use super::context::DeviceContext;
use super::event_fd::EventFd;
use crate::vocabulary::byte_stream::{ByteStreamConfig, ByteStreamError};
use crate::vocabulary::connect::SocketPair;
use crate::vocabulary::device::Stopped;
use handle::Link;

pub use handle::ByteStreamHandle;
pub use reader::ByteStreamReader;
pub use writer::{ByteStreamWriter, Piece};

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

/// Returns the rings of a stream. They come from the memory that the streams of the device share, and begin
/// short: most connections carry little.
///
/// With the TCP RDMA option, octets wait in the ring while their records do, so the receive ring has its
/// length from the beginning. Only with `rdma_option` there are transfers and beginnings of messages.
pub(super) fn prepare(
    context: &DeviceContext,
    config: &ByteStreamConfig,
    rdma_option: bool,
) -> Result<dataplane::ByteStreamConfig, ByteStreamError> {
    let memory = &context.stream_memory;
    let ring = |bytes: usize| memory.take(bytes.max(1)).ok_or(ByteStreamError::NoMemory);
    let growth = RingGrowth {
        pool: memory.clone(),
        send_octets: config.send_bytes.max(1),
        receive_octets: config.receive_bytes.max(1),
    };
    let send_bytes = growth.send_octets.min(limits::BYTE_STREAM_SEND_BYTES_AT_FIRST);
    let receive_bytes = match growth.receive_octets {
        bytes if rdma_option => bytes,
        bytes => bytes.min(limits::BYTE_STREAM_RECEIVE_BYTES_AT_FIRST),
    };
    let mut rings = dataplane::ByteStreamConfig::new(ring(send_bytes)?, ring(receive_bytes)?);
    rings.growth = Some(growth);
    if let Some(unsolicited) = config.unsolicited.filter(|_| rdma_option) {
        // The application can read all of a buffer, whatever was placed in it.
        let bytes = unsolicited.count.saturating_mul(unsolicited.bytes);
        let memory = memory.take_zeroed(bytes).ok_or(ByteStreamError::NoMemory)?;
        let pool = UnsolicitedPool::new(memory, unsolicited.bytes).ok_or(ByteStreamError::NoMemory)?;
        rings.unsolicited = Some(pool);
    }
    rings.rid_format = config.rid_format;
    rings.message_starts = config.message_starts;
    if config.early_message_bytes > 0 && rdma_option {
        rings.early_ring = Some(ring(config.early_message_bytes)?);
    }
    Ok(rings)
}

/// Returns the rings with file descriptors for their reader and their writer, if they are `wanted`.
pub(super) fn with_events(
    mut rings: dataplane::ByteStreamConfig,
    wanted: bool,
) -> Result<(dataplane::ByteStreamConfig, Events), ByteStreamError> {
    if !wanted {
        return Ok((rings, None));
    }
    let [reader, writer] = [Arc::new(EventFd::new()?), Arc::new(EventFd::new()?)];
    rings.reader = Some(reader.clone());
    rings.writer = Some(writer.clone());
    Ok((rings, Some([reader, writer])))
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
        Self {
            reader: ByteStreamReader::new(shared.clone(), link.clone(), reader_event),
            writer: ByteStreamWriter::new(shared, link, writer_event),
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
    /// sent again and why. `None` once it is closed, or if its core, one of several, does not answer within a
    /// second.
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
