//! The records of a run about its applications: attempts, decisions, listeners, connections.

use std::sync::Arc;

use crossbeam::channel::Receiver;
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::tcp::CloseReason;

use crate::engine::interface::request::{Arrival, NewQueuePair};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::connect::ConnectConfig;

/// Where hosts listen for MPA, and for streaming mode. Nothing listens at the port after them.
pub(super) const MPA_PORT: u16 = 1;
pub(super) const STREAM_PORT: u16 = 2;
pub(super) const CLOSED_PORT: u16 = 3;

/// A request to connect.
pub(super) struct Attempt {
    pub(super) config: ConnectConfig,
}

/// A listener of the application at a host.
pub(super) struct Listening {
    pub(super) side: usize,
    pub(super) at: ListenAddress,
    pub(super) queue: Queue,
}

/// Where arrivals wait for the application.
#[derive(Clone)]
pub(super) enum Queue {
    Mpa(Receiver<Arrival>),
    Streams(Receiver<Arc<SharedStream>>),
}

/// An application's decision about a Request, with the Private Data of its Reply.
pub(super) enum Decision {
    Accept(Box<[u8]>),
    Reject(Box<[u8]>),
}

impl Decision {
    pub(super) fn private_data(&self) -> &[u8] {
        let (Self::Accept(private_data) | Self::Reject(private_data)) = self;
        private_data
    }
}

/// One end of a connection in Full Operation.
pub(super) struct EstablishedEnd {
    pub(super) qp: Arc<NewQueuePair>,
    pub(super) version: u8,
}

/// A connection whose application has the reply that it is in Full Operation.
#[derive(Default)]
pub(super) struct Established {
    /// The Initiator's end, and the Responder's.
    pub(super) ends: [Option<EstablishedEnd>; 2],
    /// An application, or a limit of time, ends it otherwise than in an orderly way.
    pub(super) disturbed: bool,
}

impl Established {
    /// Returns true unless an orderly end is still to come.
    pub(super) fn is_settled(&self) -> bool {
        let [Some(near), Some(far)] = &self.ends else { return true };
        self.disturbed
            || [near, far].iter().all(|end| match end.qp.status.close_state().reason {
                Some(reason) => {
                    assert_eq!((reason, end.qp.shared.error()), (CloseReason::Finished, None));
                    true
                }
                None => false,
            })
    }
}
