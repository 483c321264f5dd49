//! An application's request to connect, as far as the engine has come with it.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::ring;
use warpline_dataplane::tcp::CloseReason;

use crate::engine::interface::reply::Reply;
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected};
use crate::vocabulary::duration::nanos;

/// An application's request to connect a queue pair.
pub(in crate::engine) struct ConnectAttempt {
    /// The queue pair itself: its number may be another's before the peer has replied.
    pub(super) qp: Arc<SharedQp>,
    pub(super) remote: SocketAddr,
    pub(super) config: ConnectConfig,
    /// The revision of MPA to ask for.
    pub(super) revision: u8,
    /// This is the second connection: the peer did not understand the enhanced Request on the first one.
    pub(super) fell_back: bool,
    pub(super) reply: Reply<Result<Connected, ConnectError>>,
    /// The connection was in streaming mode before, and is so again after a rejection.
    pub(super) stream: Option<Arc<SharedStream>>,
}

impl ConnectAttempt {
    pub(in crate::engine) fn new(
        qp: Arc<SharedQp>,
        remote: SocketAddr,
        config: ConnectConfig,
        reply: Reply<Result<Connected, ConnectError>>,
    ) -> Self {
        let revision = config.revision.first(config.terms, config.private_data.len());
        Self { qp, remote, config, revision, fell_back: false, reply, stream: None }
    }

    /// Returns true if the application has given the local port.
    pub(super) fn has_local_port(&self) -> bool {
        self.config.local.is_some_and(|local| local.port() != 0)
    }

    /// Returns the time that TCP's handshake and MPA startup may take together, in nanoseconds.
    pub(super) fn timeout_ns(&self) -> u64 {
        nanos(self.config.timeout)
    }
}

/// Returns the error of the API for an error of the core.
pub(super) const fn connect_error(error: ring::ConnectError) -> ConnectError {
    match error {
        ring::ConnectError::Closed(CloseReason::Refused) => ConnectError::Refused,
        ring::ConnectError::Closed(CloseReason::TimedOut) => ConnectError::TimedOut,
        ring::ConnectError::Closed(reason) => ConnectError::Closed(reason),
        ring::ConnectError::NoRoom => ConnectError::TooManyConnections,
        ring::ConnectError::Unreachable => ConnectError::Unreachable,
        ring::ConnectError::NoPort => ConnectError::NoPort,
        ring::ConnectError::OtherCore { owner } => ConnectError::OtherCore { owner },
        ring::ConnectError::NoAddress => ConnectError::NoAddress,
        ring::ConnectError::NoRoute => ConnectError::NoRoute,
    }
}
