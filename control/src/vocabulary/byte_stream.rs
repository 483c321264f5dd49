//! How byte streams are set up, and why they end.

use std::io;

use warpline_dataplane::byte_stream::SectionError;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::wire::tcp_rdma::RidFormat;

use super::device::Stopped;
use super::stream::SwitchError;

/// Buffers for transfers that nobody expects (draft-csapuntz-tcprdma-00 §3.1.7). They are all that a peer can
/// occupy by such transfers (§6.1).
// Requirements: TRO-6.1-03
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsolicitedConfig {
    /// How many, up to [`UNSOLICITED_BUFFERS_PER_STREAM`](crate::limits::UNSOLICITED_BUFFERS_PER_STREAM).
    pub count: usize,
    /// Bytes of each.
    pub bytes: usize,
}

/// The sizes of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteStreamConfig {
    /// Bytes that may be written and not acknowledged by the peer. There is memory for some at first, and for
    /// more as they are written, while the device has any.
    pub send_bytes: usize,
    /// Bytes that wait to be read, beside those in TCP's window. There is memory for 64 KiB at first, and for
    /// more as the application reads; without the TCP RDMA option, TCP's window is bounded by it until there
    /// is memory for all.
    pub receive_bytes: usize,
    /// Buffers for transfers that nobody expects; without, such transfers are read as ordinary bytes.
    pub unsolicited: Option<UnsolicitedConfig>,
    /// The format of the names of the peer's transfers: the bits that it has as zero are received as zeros
    /// (draft-csapuntz-tcprdma-00 §5).
    pub rid_format: RidFormat,
    /// Whether [`read_item`](crate::ByteStreamReader::read_item) says where messages begin, as the peer's A
    /// bits have it (draft-csapuntz-tcprdma-00 §3.1.6).
    pub message_starts: bool,
    /// Bytes of complete messages beyond a gap that wait to be read; 0, and each message is read in its turn.
    /// If not 0, [`read_item`](crate::ByteStreamReader::read_item) says where messages begin too.
    ///
    /// [`ByteStreamReader`](crate::ByteStreamReader#messages-beyond-a-gap) describes how they are read. A
    /// longer message is read in its turn.
    // Requirements: TRO-3.1.6-03
    pub early_message_bytes: usize,
    /// Whether there are file descriptors to sleep on. A thread that only polls needs none, and costs no
    /// system call.
    pub events: bool,
}

impl Default for ByteStreamConfig {
    /// Returns 1 MiB each way, no unsolicited buffers, names of all 46 bits, no messages beyond a gap, and
    /// file descriptors.
    fn default() -> Self {
        Self {
            send_bytes: 1 << 20,
            receive_bytes: 1 << 20,
            unsolicited: None,
            rid_format: RidFormat::Opaque,
            message_starts: false,
            early_message_bytes: 0,
            events: true,
        }
    }
}

/// Why bytes of a byte stream were not read or written.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ByteStreamError {
    /// Nothing came, or nothing could be written, in time.
    #[error("nothing could be read or written in time")]
    TimedOut,
    /// The connection ended, not in an orderly way.
    #[error("the connection ended: {0}")]
    Closed(CloseReason),
    /// The peer has finished before all that was asked for had come.
    #[error("the peer has finished: there is nothing more to read")]
    PeerFinished,
    /// This end has finished: it sends nothing more.
    #[error("this end of the connection has finished: nothing more can be written")]
    Finished,
    /// A range does not lie in its memory, is empty, or the memory is constant.
    #[error("the range does not lie inside the memory, or the memory is constant")]
    OutsideMemory,
    /// A transfer of this name is expected already.
    #[error("a transfer of this name is expected already")]
    NameInUse,
    /// The section contradicts what was said about its transfer before; nothing was written.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// There is no memory for the buffers. [`Device::stream_memory`](crate::Device::stream_memory) counts it.
    #[error(
        "no memory is left for the buffers of the stream: close others, or give the device more \
        (Capacity::stream_bytes, and hugepages for the EAL)"
    )]
    NoMemory,
    /// There is no file descriptor left.
    #[error("no file descriptor is left: {0}")]
    NoDescriptor(#[from] io::Error),
    /// The connection cannot become a byte stream.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
