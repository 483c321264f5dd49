//! What the API asks of the control thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{self, Receiver, Sender};
use warpline_dataplane::core::listeners::ListenAddress;
use warpline_dataplane::core::ring::ConnectionId;
use warpline_dataplane::core::statistics::Statistics;
use warpline_dataplane::memory::{Access, ProtectionDomainId, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRing, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::Snapshot;

use super::streaming::StreamRequest;
use crate::engine::startup::ReadsWanted;
use crate::handles::device::Usage;
use crate::handles::listener::{Accepted, AnswerError, IncomingEnds, ListenConfig, ListenError};
use crate::handles::memory::{Addressing, MemoryError};
use crate::handles::queue_pair::{CreateError, Halves, QpConfig};
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected};

/// Where the answer goes. Dropped without an answer when the control thread ends.
pub(crate) struct Reply<T>(Taker<T>);

/// Who takes an answer.
enum Taker<T> {
    /// Somebody who waits for it.
    Waits(Sender<T>),
    /// Nobody waits: this is called on the control thread, with nothing when that ends, and must not wait either.
    Called(Option<Call<T>>),
}

type Call<T> = Box<dyn FnOnce(Option<T>) + Send>;

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        if let Self::Called(call) = self
            && let Some(call) = call.take()
        {
            call(None);
        }
    }
}

impl<T> Reply<T> {
    /// A place for an answer, and where it is found.
    pub(crate) fn new() -> (Self, Receiver<T>) {
        let (sender, receiver) = channel::bounded(1);
        (Self(Taker::Waits(sender)), receiver)
    }

    /// A place for an answer that `call` takes: nobody waits.
    pub(crate) fn call(call: impl FnOnce(Option<T>) + Send + 'static) -> Self {
        Self(Taker::Called(Some(Box::new(call))))
    }

    /// Answers. Who does not wait any more does not want to know.
    pub(crate) fn send(mut self, answer: T) {
        match &mut self.0 {
            Taker::Waits(sender) => _ = sender.send(answer),
            Taker::Called(call) => {
                if let Some(call) = call.take() {
                    call(Some(answer));
                }
            }
        }
    }
}

/// How a deregistration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deregistration {
    /// No core reaches the memory any more.
    Done,
    /// Sends still read from it.
    InUse,
    /// Windows are bound to it.
    WindowsBound,
    /// The core did not answer.
    Unanswered,
}

/// One request of the API.
///
/// A queue pair's number is good for what its owner asks: [`DestroyQp`](Self::DestroyQp) comes behind all of that, and the
/// number is another's only after it. What lasts longer, or comes from others, names the queue pair itself.
pub(crate) enum Request {
    Register {
        region: Region,
        pd: ProtectionDomainId,
        stream: Option<QpNumber>,
        access: Access,
        addressing: Addressing,
        reply: Reply<Result<STag, MemoryError>>,
    },
    AllocateWindow {
        pd: ProtectionDomainId,
        reply: Reply<Result<STag, MemoryError>>,
    },
    /// Of a registration or a window.
    Deregister {
        /// The name it was given first.
        stag: STag,
        /// What it was called last.
        last: STag,
        /// How long to try again while sends read from the memory, or windows are bound to it; for as long as it takes without.
        patience: Option<Duration>,
        reply: Reply<Deregistration>,
    },
    CreateQp {
        pd: ProtectionDomainId,
        config: QpConfig,
        completions: (Arc<CompletionRing>, Arc<CompletionRing>),
        /// Where its receives come from, if not from a queue of its own.
        receives: Option<Arc<SharedReceiveQueue>>,
        reply: Reply<Result<Halves, CreateError>>,
    },
    DestroyQp {
        qp: QpNumber,
        reply: Reply<()>,
    },
    Connect {
        qp: Arc<SharedQp>,
        remote: SocketAddr,
        config: ConnectConfig,
        reply: Reply<Result<Connected, ConnectError>>,
    },
    Listen {
        /// Port 0 for a free one.
        at: ListenAddress,
        config: ListenConfig,
        /// Both ends: what nobody has taken is taken back.
        incoming: IncomingEnds,
        /// Called on the control thread whenever something has come in.
        told: Option<Box<dyn Fn() + Send>>,
        /// The port.
        reply: Reply<Result<u16, ListenError>>,
    },
    Unlisten {
        at: ListenAddress,
    },
    Accept {
        connection: ConnectionId,
        qp: Arc<SharedQp>,
        reads: ReadsWanted,
        private_data: Box<[u8]>,
        reply: Reply<Result<Accepted, AnswerError>>,
    },
    Reject {
        connection: ConnectionId,
        private_data: Box<[u8]>,
        reply: Reply<Result<(), AnswerError>>,
    },
    Disconnect {
        qp: Arc<SharedQp>,
    },
    Abort {
        qp: QpNumber,
    },
    /// About connections in streaming mode.
    Stream(StreamRequest),
    Statistics {
        reply: Reply<Statistics>,
    },
    ConnectionReport {
        qp: QpNumber,
        reply: Reply<Option<Snapshot>>,
    },
    Usage {
        reply: Reply<Usage>,
    },
}
