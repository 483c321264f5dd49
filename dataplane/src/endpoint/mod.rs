//! One connection with the queue pair or the stream that it carries: everything between a TCP segment and a
//! completion.
//!
//! A core looks an [`Endpoint`] up once for each input: a segment, a timer, a doorbell, a command, or when it
//! is served. The endpoint borrows all it needs and reaches no other connection. It returns the changes that
//! an input causes for the core as an [`Outcome`]. Octets that arrive go through TCP's receive queue, MPA and
//! DDP to the queue pair; work requests go from the queue pair as FPDUs to TCP's send queue.
//!
//! An endpoint decides what an input is about, lends that a narrower view of its parts, and does what follows
//! for the connection:
//!
//! - `RdmapStream` is an endpoint in Full Operation that has its queue pair. FPDUs are consumed in the frames
//!   that bring them (`consume`), from TCP's receive queue (`in_order`) or beyond a gap (`out_of_order`), and
//!   go to TCP's send queue by `FpduQueueing`.
//! - `ByteStream` is an endpoint whose octets are those of an application's byte stream.
//! - `StreamingOctets` has the streaming octets to the peer and to control.
//! - `FpduSources`, `PayloadBuilding` and `Continuations` have what segments are built from.
//!
//! An [`Outcome`] says after an input that the connection is to be scheduled, that the segment is answered
//! with a RST, or that frames are scarce; an `AfterTransmit` says of a connection that was served that there
//! is more, that it waits until a deadline, that the connection is closed, or in TIME-WAIT. The context is
//! what the endpoints of a core share: pools, STags, backlogs, budgets, events, counters. `Endpoint` and
//! `Connection` name no slot of the table and no other endpoint, so no input of one connection can change
//! another.
//!
//! What cannot happen is asserted in builds with debug assertions, in pairs: a connection has a queue pair
//! from the beginning of Full Operation until it is closed for its users, and neither before nor after; a
//! connection leaves the table when it is served, and only then.
//!
//! # Messages that wait for a receive
//!
//! A message that meets no receive ends the stream, or waits for one where the queue pair asks for it
//! (`endpoint/await_receive.rs`). Its FPDU then stays in TCP's receive queue, verified, and all that follows
//! stays after it: Responses, the peer's Terminate, its FIN. Octets are acknowledged as they come, so the
//! window closes by what waits and no acknowledged octet is ever dropped; the peer probes the window, is
//! answered, and may give up by a user timeout of its own. A receive posted to the queue pair's own queue
//! wakes it by the doorbell. A shared queue rings a second bell, only while a queue pair waits for it, and
//! the core resumes those that wait in the order in which they began to, 64 a poll. At the deadline of a
//! message the stream fails as it does without waiting. When frames are scarce, a wait that has held more
//! than its share of them for four seconds ends early with the same result.
//!
//! # Errors
//!
//! A failed check ends the stream: nothing more is placed or delivered, the peer gets one Terminate (unless
//! this end is a Responder that has not yet received an FPDU and so may send none), then the connection
//! closes, and is reset if that takes more than five seconds. If the application destroys the queue pair
//! meanwhile, all of it that TCP has is built once more and kept by the connection, up to a MiB, with the
//! Terminate after it (`endpoint/linger.rs`): the memory is free at once, and the Terminate still goes out
//! when the peer's window opens in time. Receives are flushed at once; sends when TCP has let go of their
//! buffers. The application sees the first error in `QueuePair::error` and in the status of its work
//! requests.
//!
//! # Nudges
//!
//! An Initiator sends a Write without payload 200 ms after its first FPDU, and at most two more, to a peer
//! that negotiates indications and has sent no FPDU yet; `ConnectConfig::nudges` turns that off (`nudge`). A
//! connection has one version of DDP and RDMAP, 1, or 0 with an RDMA Consortium peer, which is sent and
//! checked in both directions.

mod abort_timer;
mod annotation;
mod await_receive;
mod build;
mod burst;
mod byte_stream;
mod chunk;
mod close;
mod connection;
mod consume;
mod context;
mod continuations;
mod cut_runs;
mod endpoints;
mod fpdu_queueing;
mod holding_tracker;
mod in_order;
mod inputs;
mod linger;
mod mode;
mod nudge;
mod operating;
mod out_of_order;
mod outcome;
mod payload;
mod queue_pair;
mod queue_pair_commands;
mod queue_pairs;
mod rdmap_stream;
mod receive;
mod receive_wait;
mod receive_waiters;
mod report;
mod send_stream;
mod shortage;
mod single_fpdu;
mod stream_halves;
mod streaming;
mod transmit;
mod unconsumed;

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::time::Instant;
use byte_stream::ByteStream;
use mode::Mode;
use payload::PayloadBuilding;
use rdmap_stream::RdmapStream;
use streaming::StreamingOctets;

pub(crate) use burst::{Burst, BurstOutcome};
pub(crate) use chunk::Chunk;
pub use connection::Connection;
pub(crate) use connection::OpenKind;
pub(crate) use context::Context;
pub(crate) use continuations::may_be_continued;
pub(crate) use cut_runs::CutRunStore;
pub(crate) use endpoints::{Depth, Endpoints};
pub(crate) use inputs::Unreachable;
pub(crate) use outcome::Outcome;
pub(crate) use queue_pair::QueuePair;
pub(crate) use queue_pairs::{QueuePairs, Unaccepted};
pub(crate) use receive_waiters::ReceiveWaiters;
pub(crate) use report::Report;
pub(crate) use transmit::{AfterTransmit, StreamFailed};

/// One connection with its queue pair, if it carries the stream of one, and what it shares with others.
pub(crate) struct Endpoint<'c, F> {
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

impl<F: Frame> Endpoint<'_, F> {
    /// Returns the streaming octets of the connection.
    #[inline]
    fn streaming(&mut self) -> StreamingOctets<'_, F> {
        let Connection { tcp, stream, unconsumed, .. } = &mut *self.connection;
        StreamingOctets { id: self.id, tcp, stream, unconsumed, context: self.context }
    }

    /// Returns the connection as a byte stream; `None` if it carries none.
    #[inline]
    fn byte_stream(&mut self) -> Option<ByteStream<'_, F>> {
        let Connection { tcp, mode: Mode::Bytes(halves), stream, .. } = &mut *self.connection else {
            return None;
        };
        Some(ByteStream { now: self.now, tcp, halves, stream, context: self.context })
    }

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

    /// Returns what the payload of the connection's segments is built with.
    #[inline]
    fn payload(&mut self) -> PayloadBuilding<'_, F> {
        let Context { stags, cut_runs, statistics, pools, .. } = &mut *self.context;
        let queue_pair = self.queue_pair.as_deref();
        PayloadBuilding {
            id: self.id,
            connection: self.connection,
            queue_pair,
            stags,
            cut_runs,
            statistics,
            pools,
        }
    }
}
