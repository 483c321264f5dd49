//! The Initiator's side of connection setup at the control thread.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::core::ring::{self, Command, ConnectionId, FullOperation};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::qp::terminate;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, SECOND};

use super::Control;
use super::connections::{Phase, Waiter, full_operation};
use super::request::Reply;
use crate::engine::startup::{self, Initiator, Offer, Proposal, StartupFault};
use crate::handles::device::CrcPolicy;
use crate::handles::driver;
use crate::handles::tcp_stream::StreamShared;
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected, Revision};
use crate::vocabulary::socket_pair::SocketPair;

/// How long after its deadline a core that does not answer is waited for.
pub(super) const UNANSWERED_NS: u64 = SECOND;

/// What an application wants of a connection.
pub(crate) struct Wish {
    /// The queue pair itself: its number may be another's before the peer has answered.
    qp: Arc<SharedQp>,
    remote: SocketAddr,
    config: ConnectConfig,
    /// The revision to ask for.
    revision: u8,
    reply: Reply<Result<Connected, ConnectError>>,
    /// The connection was in streaming mode before, and is so again after a rejection.
    stream: Option<Arc<StreamShared>>,
}

impl Wish {
    pub(super) fn new(
        qp: Arc<SharedQp>,
        remote: SocketAddr,
        config: ConnectConfig,
        reply: Reply<Result<Connected, ConnectError>>,
    ) -> Self {
        let revision = config.revision.first(config.terms, config.private_data.len());
        Self { qp, remote, config, revision, reply, stream: None }
    }

    /// The same on a connection that is there.
    pub(super) fn on(self, stream: Arc<StreamShared>) -> Self {
        Self { stream: Some(stream), ..self }
    }

    pub(super) const fn qp(&self) -> &Arc<SharedQp> {
        &self.qp
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        driver::nanos(self.config.timeout)
    }

    pub(super) fn refuse(self, error: ConnectError) {
        self.reply.send(Err(error));
    }
}

/// A connection that the core is opening.
pub(super) struct Opening {
    /// The whole of the handshake and the startup is over by then.
    deadline: Instant,
    /// Gone once nobody waits any more.
    wish: Option<Wish>,
}

/// A connection whose Reply is awaited.
pub(super) struct Initiating {
    pub(super) initiator: Initiator,
    wish: Wish,
}

impl Initiating {
    pub(super) const fn stream(&self) -> Option<&Arc<StreamShared>> {
        self.wish.stream.as_ref()
    }
}

impl Control {
    pub(super) fn connect(&mut self, now: Instant, wish: Wish) {
        if !self.queue_pairs.bind(&wish.qp) {
            wish.reply.send(Err(ConnectError::QueuePairInUse));
            return;
        }
        let deadline = now + wish.timeout_ns();
        self.open(now, deadline, wish);
    }

    /// Has the core open a TCP connection, of which all is to be over by `deadline`.
    fn open(&mut self, now: Instant, deadline: Instant, wish: Wish) {
        let token = self.connections.next_token;
        self.connections.next_token += 1;
        let (remote, timeout_ns, tcp) = (wish.remote, deadline - now, wish.config.tcp);
        let local = wish.config.local;
        self.connections.opening.insert(token, Opening { deadline, wish: Some(wish) });
        self.alarm.set(deadline + UNANSWERED_NS);
        self.commands.push(Command::Connect { token, local, remote, timeout_ns, tcp });
    }

    pub(super) fn on_connect_failed(&mut self, token: u64, error: ring::ConnectError) {
        if self.on_stream_connect_failed(token, error) {
            return;
        }
        let Some(wish) = self.connections.opening.remove(&token).and_then(|opening| opening.wish) else {
            return;
        };
        self.queue_pairs.unbind(&wish.qp);
        wish.reply.send(Err(connect_error(error)));
    }

    /// TCP is open: the Request goes out, before anything else (MPA-7.1-02, MPA-7.1.2-01).
    pub(super) fn on_connected(&mut self, now: Instant, token: u64, id: ConnectionId, local: SocketAddr) {
        if self.on_stream_connected(token, id, local) {
            return;
        }
        let Some(Opening { deadline, wish: Some(wish) }) = self.connections.opening.remove(&token) else {
            return self.reset(id);
        };
        self.connections.pairs.insert(id, SocketPair { local, remote: canonical(wish.remote) });
        self.request(now, id, deadline, wish);
    }

    /// MPA-7.1.2-01: the Request. The next octet of the peer belongs to its Reply.
    pub(super) fn request(&mut self, now: Instant, id: ConnectionId, deadline: Instant, wish: Wish) {
        let ConnectConfig { markers, terms, permissive, ref private_data, .. } = wish.config;
        let offer = Offer { markers, crc: self.crc == CrcPolicy::Always };
        let proposal = Proposal { offer, revision: wish.revision, terms, permissive };
        match Initiator::new(proposal, private_data, deadline) {
            Ok((initiator, octets)) => {
                self.alarm.set(deadline);
                self.send_on(id, wish.stream.as_ref(), octets);
                let initiating = Initiating { initiator, wish };
                self.connections.table.insert(id, Phase::AwaitingReply(initiating));
            }
            Err(error) => {
                self.queue_pairs.unbind(&wish.qp);
                wish.reply.send(Err(error.into()));
                match wish.stream {
                    Some(shared) => self.stream_again(now, id, shared),
                    None => self.leave(now, id, Box::default()),
                }
            }
        }
    }

    pub(super) fn on_reply_octets(
        &mut self,
        now: Instant,
        id: ConnectionId,
        result: Result<Option<startup::Reply>, StartupFault>,
        behind: &[u8],
    ) {
        let reply = match result {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(fault) => return self.fail_startup(now, id, fault),
        };
        let Some(Phase::AwaitingReply(Initiating { wish, .. })) = self.connections.table.remove(&id) else {
            return;
        };
        let Wish { qp, config, reply: waiter, stream, .. } = wish;
        match reply {
            startup::Reply::Accepted { setup, .. } if !self.queue_pairs.is_there(&qp) => {
                // MPAv2-9.3-01: nothing is left at this end that could serve the connection.
                let terminate = terminate::only_fpdu(MpaError::LocalCatastrophic, setup.agreement);
                waiter.send(Err(ConnectError::QueuePairInUse));
                Self::end_stream(stream.as_ref());
                self.leave(now, id, terminate[..].into());
            }
            startup::Reply::Accepted { setup, private_data, peer } => {
                // MPA-7.1.2-14, A-20: the next octet each way belongs to an FPDU.
                // A nudge looks like an indication, so only a peer that negotiates those gets any.
                let nudges = config.nudges && peer.depths.is_some();
                let operation = FullOperation { nudges, ..full_operation(qp.number, true, setup) };
                let operation = self.queue_pairs.adapt(&qp, operation);
                self.commands.push(Command::Start { connection: id, operation });
                let (version, depths) = (setup.agreement.version, setup.outcome.depths);
                let connected = Connected { private_data, peer, version, depths };
                self.operate(id, qp, Waiter::Connect(waiter, connected), None);
            }
            startup::Reply::Rejected { private_data, peer } => {
                self.queue_pairs.unbind(&qp);
                // MPA-7.1.2-13, A-01: MPA is left, and TCP stays open if it has another use. A-03: what is behind the Reply are
                // streaming octets.
                match stream {
                    Some(shared) => {
                        shared.lend(behind);
                        self.stream_again(now, id, shared);
                    }
                    None => self.leave(now, id, Box::default()),
                }
                waiter.send(Err(ConnectError::Rejected { private_data, peer }));
            }
            startup::Reply::Unmet { error, terminate, peer } => {
                // MPAv2-9.1-07, MPAv2-9.2-08: the Responder is told, and the connection ends.
                self.queue_pairs.unbind(&qp);
                waiter.send(Err(ConnectError::Unmet { error, peer }));
                Self::end_stream(stream.as_ref());
                self.leave(now, id, terminate);
            }
        }
    }

    /// MPA-7.1.2-12, MPA-8-07: the connection is closed. The application is told, unless the peer may understand an
    /// unenhanced Request.
    pub(super) fn fail_startup(&mut self, now: Instant, id: ConnectionId, fault: StartupFault) {
        if let Some(Phase::AwaitingReply(initiating)) = self.connections.table.remove(&id)
            && let Some(wish) = self.not_fallen_back(now, initiating, fault)
        {
            self.queue_pairs.unbind(&wish.qp);
            Self::end_stream(wish.stream.as_ref());
            wish.reply.send(Err(ConnectError::Startup(fault)));
        }
        self.leave(now, id, Box::default());
    }

    /// TCP ended while the Reply was awaited. A reset may be all that an enhanced Request gets.
    pub(super) fn on_closed_without_reply(
        &mut self,
        now: Instant,
        initiating: Initiating,
        reason: CloseReason,
    ) {
        let fault = if reason == CloseReason::Reset { StartupFault::Closed } else { StartupFault::TimedOut };
        if let Some(wish) = self.not_fallen_back(now, initiating, fault) {
            self.queue_pairs.unbind(&wish.qp);
            Self::end_stream(wish.stream.as_ref());
            wish.reply.send(Err(ConnectError::Closed(reason)));
        }
    }

    /// Tries an unenhanced Request on a new connection, if `fault` and the application let it; gives back the wish if not.
    // MPAv2-10-05
    fn not_fallen_back(&mut self, now: Instant, initiating: Initiating, fault: StartupFault) -> Option<Wish> {
        let Initiating { initiator, wish } = initiating;
        let deadline = initiator.deadline();
        // There is no second connection to a peer that was in streaming mode.
        let once = wish.stream.is_some();
        if once
            || wish.config.revision != Revision::TwoThenOne
            || !initiator.may_fall_back(fault)
            || now >= deadline
        {
            return Some(wish);
        }
        self.open(now, deadline, Wish { revision: 1, ..wish });
        None
    }

    /// Answers for a core that does not: nobody polls it.
    pub(super) fn look_at_openings(&mut self, now: Instant) {
        for opening in self.connections.opening.values_mut() {
            let at = opening.deadline + UNANSWERED_NS;
            if now < at {
                self.alarm.set(at);
            } else if let Some(wish) = opening.wish.take() {
                self.queue_pairs.unbind(&wish.qp);
                wish.reply.send(Err(ConnectError::TimedOut));
            }
        }
        self.streams.look_at_openings(now, &mut self.alarm);
    }
}

/// Why a connection could not be opened, in the words of the API.
pub(super) const fn connect_error(error: ring::ConnectError) -> ConnectError {
    match error {
        ring::ConnectError::Closed(CloseReason::Refused) => ConnectError::Refused,
        ring::ConnectError::Closed(CloseReason::TimedOut) => ConnectError::TimedOut,
        ring::ConnectError::Closed(reason) => ConnectError::Closed(reason),
        ring::ConnectError::NoRoom => ConnectError::TooManyConnections,
        ring::ConnectError::Unreachable => ConnectError::Unreachable,
        ring::ConnectError::NoPort => ConnectError::NoPort,
        ring::ConnectError::NoAddress => ConnectError::NoAddress,
        ring::ConnectError::NoRoute => ConnectError::NoRoute,
    }
}

/// The address that an IPv4-mapped IPv6 address stands for (RFC 4291 §2.5.5.2).
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use warpline_dataplane::device::sim::{self, EndConfig};
    use warpline_dataplane::qp::error::StreamError;

    use super::super::request::Request;
    use crate::{
        CloseError, CompletionQueue, ConnectConfig, Device, DeviceConfig, ListenConfig, PollThread, QpConfig,
    };

    const PATIENCE: Duration = Duration::from_secs(30);

    /// MPAv2-9.3-01, MPAv2-8-01: the Responder has accepted, and meanwhile what the connection was for is gone.
    #[test]
    fn a_queue_pair_that_has_gone_is_a_local_catastrophe() {
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (near_address, far_address) = ([198, 18, 0, 1], [198, 18, 0, 2]);
        let start = |device, address: [u8; 4]| {
            Device::start(device, &DeviceConfig::new(address, 24), PollThread::default()).unwrap()
        };
        let (near, far) = (start(near, near_address), start(far, far_address));
        let completions = CompletionQueue::new(8);
        let queue_pair = |device: &Device| {
            let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
            device.protection_domain().queue_pair(&config, &completions, &completions).unwrap()
        };
        let (near_qp, far_qp) = (queue_pair(&near), queue_pair(&far));
        let listener = far.listen(4711, &ListenConfig::default()).unwrap();
        let (qp, config) = (near_qp.shared.clone(), ConnectConfig::default());
        let remote = SocketAddr::from((far_address, 4711));
        let connecting = near.shared.begin(|reply| Request::Connect { qp, remote, config, reply }).unwrap();
        let request = listener.accept(PATIENCE).unwrap();
        drop(near_qp);
        request.accept(&far_qp, b"").unwrap();
        assert!(connecting.recv_timeout(PATIENCE).unwrap().is_err());
        let error = StreamError::Terminated { layer: 2, error_type: 0, code: 5 };
        assert_eq!(far_qp.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
    }
}
