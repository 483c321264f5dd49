//! Ordinary TCP streams for applications, with or without the TCP RDMA option
//! (draft-csapuntz-tcprdma-00): an application and a core share one [`SharedByteStream`] per connection.
//!
//! Octets go out from a ring that the application fills, or from memory that it lends ([`ByteWriter`]). A
//! [`Section`] annotates some of them: they belong in a buffer of the peer, and each segment that carries a
//! part of them says so. Octets come in through a second ring ([`ByteReader`]); those of a transfer that the
//! application [expects](ByteReader::expect) are placed in its buffer when their segment arrives, and are not
//! copied again.
//!
//! The stream stays the truth. The option is no part of the stream, and nothing protects it but TCP's
//! checksum, which whoever changes it can compute again. So a placement is a claim of the segment that no
//! later claim takes back: no octet of a buffer is written for two places of the stream, in stream order the
//! first one has it, and all other octets are read from the stream. What a reader receives, octet after
//! octet, is the stream.
//!
//! # How it works
//!
//! A TCP connection that carries no FPDUs can be an application's byte stream. Control opens it, as one in
//! streaming mode, and gives it away by `Command::AttachByteStream`; from then on application and core share
//! two rings of octets, and the core reports to control only the end. `byte_stream` handles neither TCP nor
//! frames: its positions count from the beginning of the stream, and `endpoint/annotation.rs` translates
//! them.
//!
//! - Out. An application writes pieces: octets in its ring, or memory that it lends. `Outbound` cuts them
//!   into runs of one segment each (`ByteRun`), which are the descriptors of TCP's send queue, and keeps the
//!   pieces until no segment can be sent again. Octets are found by their place, so nothing is copied between
//!   the ring and the frame.
//! - The TCP RDMA option of a segment is a function of its run and of the part of the run that it has
//!   (`ByteRun::rdma_option`). It is computed where TCP builds the header, so a retransmission, a segment
//!   that a narrower path cuts and a part of one have the right option without a state of their own. A run
//!   has at most one part of a section, and begins with a message if it has the beginning of one; TCP leaves
//!   room for the option (`SendPayload::option_octets`).
//! - In. Octets that are next in order are copied from the frame to the ring; the reader copies them again.
//!   Octets of a transfer go from the frame to the buffer of the transfer when their segment arrives, also
//!   beyond a gap, and a record stands for them between the octets of the ring.
//!   Segments of a burst that continue a transfer in order differ in their buffer offset only: what the
//!   first has shown holds for the others, and the transfer has their octets when the burst ends
//!   (`Continuation`).
//! - Claims. The option can be lost, copied to another segment, or changed, by whoever can compute
//!   TCP's checksum. What came in order has its place in a buffer for good (`Intervals`); what lies beyond a
//!   gap holds it until the gap closes. If the octets in the gap claim the same place, they get it, and what
//!   was placed there is read from its frame, which TCP still holds. `read_section` puts a section right
//!   whose octets were placed elsewhere or not at all.
//! - Transfers are reported. One is complete when what is kept of its buffer covers it, without a gap, and
//!   all of it was delivered. An unsolicited one takes a name and a buffer with its first octet, and gives
//!   both back if no octet of it reaches the application. A sender refuses sections that contradict those
//!   before them (`SentTransfers`), and a transfer of nothing without an octet to go with.
//! - Messages. The A bit of a segment is a record before its first octet, for a reader that asks for it
//!   (`message_starts`). It is as true as the peer and the path are: nothing protects it.
//! - Messages beyond a gap. A segment beyond a gap may complete messages: what two known beginnings
//!   enclose, of which TCP holds every octet. `endpoint/annotation.rs` looks for them if the application has
//!   given memory for them (`early_message_bytes`). `Inbound` copies them to a ring of their own
//!   (`EarlyRing`), and the reader dequeues them from there before it goes on in order. The copies leave the
//!   stream as it is: frames, placements and positions are the same with and without them, and `read` and
//!   `read_section`, which know nothing of them, return every octet. The reader remembers which messages
//!   `read_item` has handed out, and passes over their octets in their turn, but for those that were placed,
//!   which are reported as ever. Nothing that comes in order is copied so.
//! - Memory. Rings begin short and come from a pool that the streams of a device share ([`RingGrowth`]): most
//!   connections carry little, and a new one costs no allocation of its own. The application's half takes a
//!   longer ring, at most four times before the longest, and the core goes on in it where it stands; each
//!   ring is dropped when its last octet was read, or acknowledged. While the receive ring may grow, the
//!   window is bounded by it. Queues between the two halves take memory as they are used (`LazyQueue`).
//! - Bounds. Transfers, intervals, placements, records, pieces, unsolicited buffers and early messages of a
//!   connection have limits (`limits.rs`). Where one is reached, octets are read from the stream, in their
//!   turn, and `TransferCounters` says why. A transfer with too many gaps gives up the narrowest one, or
//!   octets that found no interval once would end the placing of all that follow.
//! - Window. The window counts the ring and frames that it was promised, as without the option, while more
//!   than half of the records are free (`endpoint/stream_halves.rs`). Where records are out, octets that were
//!   placed wait in frames as far as those were promised; more of them are copied to the ring, and read from
//!   the stream. A record alone says where a message begins, so a stream whose reader asks for that waits
//!   whatever comes, and its window counts frames only.

mod counters;
mod early;
#[cfg(all(test, not(loom)))]
mod growth_tests;
mod inbound;
mod intervals;
mod lazy_queue;
#[cfg(all(test, loom))]
mod loom_tests;
mod message_starts;
mod octet_ring;
mod outbound;
mod placements;
mod placing;
mod reader;
mod receive_ring;
mod record_writer;
mod run;
mod sent_transfers;
mod shared;
mod transfers;
mod writer;

pub use counters::TransferCounters;
pub use inbound::Inbound;
pub use outbound::Outbound;
pub use placing::Arrived;
pub use reader::{ByteReader, ReadItem};
pub use run::{ByteRun, Section, SectionPart};
pub use sent_transfers::{SectionError, SentTransfers};
pub use shared::{ByteStreamConfig, RingGrowth, SharedByteStream};
pub use transfers::Buffer;
pub use transfers::UnsolicitedPool;
pub use writer::{Annotation, ByteWriter};
