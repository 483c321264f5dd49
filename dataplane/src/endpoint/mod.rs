//! One connection with the queue pair or the stream that it carries: everything between a TCP segment and a
//! completion.
//!
//! A core looks an [`Endpoint`] up once for each input: a segment, a timer, a doorbell, a command, a turn to
//! send. The endpoint borrows all it needs and reaches no other connection. It returns the changes that an
//! input causes for the core as an [`Outcome`]. Octets that arrive go through TCP's receive queue, MPA and
//! DDP to the queue pair; work requests go from the queue pair as FPDUs to TCP's send queue.
//!
//! An `RdmapStream` is an endpoint in Full Operation that has its queue pair.

mod await_receive;
mod byte_stream;
mod close;
mod connection;
mod context;
mod cut_runs;
mod endpoints;
mod holding_tracker;
mod icmp;
mod in_place;
mod inputs;
mod linger;
mod nudge;
mod nudges;
mod operating;
mod out_of_order;
mod parts;
mod payload;
mod plain_ack;
mod queue_pair;
mod queue_pairs;
mod rdmap_stream;
mod receive;
mod receive_wait;
mod send_stream;
mod shortage;
mod stream;
mod stream_halves;
mod transmit;

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::tcp::{Changes, Refusal};
use crate::time::Instant;
use rdmap_stream::RdmapStream;

pub use connection::{Chunk, Connection, Mode, OpenKind};
pub use context::Context;
pub use cut_runs::CutRunStore;
pub use endpoints::Endpoints;
pub use icmp::Unreachable;
pub use in_place::{Followers, Plain};
pub use queue_pair::QueuePair;
pub use queue_pairs::QueuePairs;
pub use transmit::{StreamFailed, Turn};

/// One connection with its queue pair, if it carries the stream of one, and what it shares with others.
pub struct Endpoint<'c, F> {
    /// The time of the input.
    pub now: Instant,
    /// The name of the connection.
    pub id: ConnectionId,
    /// The connection.
    pub connection: &'c mut Connection,
    /// The queue pair whose stream it carries. There is one in Full Operation until the connection is closed
    /// for its users, and none before and after.
    pub queue_pair: Option<&'c mut QueuePair>,
    /// The context that the endpoints of a core share.
    pub context: &'c mut Context<F>,
}

/// The changes that an input causes for the core.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The connection needs a turn to send.
    pub dirty: bool,
    /// The changes in TCP.
    pub changes: Changes,
    /// The connection gave octets back for want of frames: connections that hold many are in the way.
    pub dropped_surplus: bool,
    /// The segment is answered with a RST: it is of an older connection between the same ports.
    pub reset: bool,
    /// Why TCP refused the segment, or a part of it.
    pub refusal: Option<Refusal>,
}

impl Outcome {
    /// Nothing changes.
    pub const NONE: Self =
        Self { dirty: false, changes: Changes::empty(), dropped_surplus: false, reset: false, refusal: None };
    /// The connection needs a turn to send.
    pub const DIRTY: Self = Self { dirty: true, ..Self::NONE };
}

impl<F: Frame> Endpoint<'_, F> {
    /// Returns the connection as a stream of FPDUs; `None` before Full Operation, and when its users know
    /// that it is closed.
    #[inline]
    fn rdmap(&mut self) -> Option<RdmapStream<'_, F>> {
        let qp = self.queue_pair.as_deref_mut()?;
        let Connection { tcp, mode: Mode::FullOperation(operating), stream, .. } = &mut *self.connection
        else {
            debug_assert!(false, "a queue pair is bound to a connection that is not in Full Operation");
            return None;
        };
        Some(RdmapStream { now: self.now, id: self.id, tcp, operating, stream, qp, context: self.context })
    }
}
