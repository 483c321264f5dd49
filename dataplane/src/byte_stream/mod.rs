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
//! first one has it, and all other octets are read from the stream. What a reader is told, octet after octet,
//! is the stream.

mod counters;
mod early;
mod inbound;
mod intervals;
#[cfg(all(test, loom))]
mod loom_tests;
mod octet_ring;
mod outbound;
mod reader;
mod run;
mod sent_transfers;
mod shared;
mod transfers;
mod unsolicited;
mod writer;

pub use counters::TransferCounters;
pub use inbound::{Arrived, Inbound};
pub use outbound::Outbound;
pub use reader::{ByteReader, ReadItem};
pub use run::{ByteRun, Section, SectionPart};
pub use sent_transfers::{SectionError, SentTransfers};
pub use shared::{ByteStreamConfig, SharedByteStream};
pub use transfers::Buffer;
pub use unsolicited::UnsolicitedPool;
pub use writer::{Annotation, ByteWriter};
