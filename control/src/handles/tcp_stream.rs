//! TCP connections in streaming mode (RFC 5044 §7.1): octets both ways, and MPA from there, whoever opened them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpline_dataplane::core::ring::{ConnectionId, Direction};
use warpline_dataplane::limits;
use warpline_dataplane::tcp::{Behaviour, CloseReason};
use warpline_dataplane::wire::mpa::StartupFrame;

use crate::engine::request::Request;
use crate::engine::startup::{ReadDepths, StartupFault};
use crate::engine::streaming::StreamRequest;
use crate::handles::device::{Shared, Stopped};
use crate::handles::listener::{ConnectionRequest, ListenConfig};
use crate::handles::queue_pair::QueuePair;
use crate::vocabulary::connect::{self, ConnectConfig, ConnectError, Connected, STARTUP_TIMEOUT};
use crate::vocabulary::socket_pair::SocketPair;

/// Octets that an application may have queued: what the core keeps, less room for a startup frame of MPA each way.
const QUEUED_MAX_OCTETS: usize = limits::STREAM_SEND_OCTETS - 2 * StartupFrame::MAX_LEN;

/// How a TCP connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The time that TCP's handshake may take.
    pub timeout: Duration,
    /// How TCP behaves, if not as the device is set up.
    pub tcp: Option<Behaviour>,
    /// The local address and port. The device chooses what is not given: an unspecified address, port 0.
    pub local: Option<SocketAddr>,
}

impl Default for StreamConfig {
    /// Ten seconds, TCP as on the device, any local address and port.
    fn default() -> Self {
        Self { timeout: STARTUP_TIMEOUT, tcp: None, local: None }
    }
}

/// How Full Operation without startup frames runs: what those frames settle otherwise. The peer must be told
/// by other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnnegotiatedConfig {
    /// The version of DDP and RDMAP, 0 or 1.
    pub version: u8,
    /// The RDMA Reads that the peer may have outstanding here, and this end there (RFC 5040 §6.1): the peer's
    /// ORD and IRD. Up to [`READ_DEPTH_MAX`](limits::READ_DEPTH_MAX) each.
    pub depths: ReadDepths,
}

impl Default for UnnegotiatedConfig {
    /// Version 1, and [`READ_DEPTH_USUAL`](limits::READ_DEPTH_USUAL) Reads either way.
    fn default() -> Self {
        let depths = ReadDepths { ird: limits::READ_DEPTH_USUAL, ord: limits::READ_DEPTH_USUAL };
        Self { version: 1, depths }
    }
}

/// Why octets were not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpStreamError {
    /// Nothing came, or nothing could be queued, in time.
    #[error("nothing could be read or written in time")]
    TimedOut,
    /// The connection ended, not in an orderly way.
    #[error("the connection ended: {0}")]
    Closed(CloseReason),
    /// This end has finished: it sends nothing more.
    #[error("this end of the connection has finished: nothing more can be sent")]
    Finished,
    /// The octets are MPA's: its startup is under way, or it is in Full Operation.
    #[error("the connection is not in streaming mode: MPA has started on it")]
    NotStreaming,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why MPA did not start on a connection in streaming mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// Streaming octets wait to be read (MPA-7.1.5-01). Nothing has changed: read them, then start.
    #[error("{octets} octets of streaming data wait to be read: read them before MPA is started")]
    PendingStreamData {
        /// How many.
        octets: usize,
    },
    /// The last streaming message does not fit behind what is queued. Nothing has changed.
    #[error("{octets} octets do not fit behind what is queued: write less, or wait until it is acknowledged")]
    NoRoom {
        /// Octets of the message.
        octets: usize,
    },
    /// MPA has started already, or this end has finished.
    #[error("the connection is not in streaming mode: MPA has started on it, or it is closed")]
    NotStreaming,
    /// The queue pair has a connection, or had one. Nothing has changed.
    #[error("the queue pair has or had a connection: make a new one for each")]
    QueuePairInUse,
    /// The queue pair belongs to another device. Nothing has changed.
    #[error("the queue pair belongs to another device: make one on the device of the connection")]
    OtherDevice,
    /// MPA startup failed: MPA error 4 (RFC 5044 §8). The connection is closed.
    #[error("MPA startup failed: {0}")]
    Startup(StartupFault),
    /// The connection ended meanwhile.
    #[error("the connection ended: {0}")]
    Closed(CloseReason),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed(CloseReason),
    /// Nobody polls the core any more.
    Stopped,
}

/// A connection in streaming mode as the application and the control thread see it.
#[derive(Debug, Default)]
struct State {
    /// Octets that the core has lent and the application has not taken: at most
    /// [`STREAM_LENT_OCTETS`](limits::STREAM_LENT_OCTETS).
    received: VecDeque<u8>,
    /// The peer sends nothing more.
    peer_finished: bool,
    /// Octets of each piece that is written and not acknowledged.
    pieces: VecDeque<usize>,
    /// Octets of all of them.
    queued: usize,
    /// This end sends nothing more.
    finished: bool,
    /// What is sent belongs to MPA.
    mpa_sends: bool,
    /// What is received belongs to MPA.
    mpa_receives: bool,
    end: Option<End>,
    /// The application has dropped it.
    abandoned: bool,
}

impl State {
    fn readable(&self) -> bool {
        !self.received.is_empty() || self.peer_finished || self.mpa_receives || self.end.is_some()
    }

    fn room(&self) -> usize {
        if self.pieces.len() < limits::STREAM_SEND_PIECES {
            QUEUED_MAX_OCTETS.saturating_sub(self.queued)
        } else {
            0
        }
    }

    fn writable(&self) -> bool {
        self.room() > 0 || self.finished || self.mpa_sends || self.end.is_some()
    }

    /// Why nothing can be written, if that is not for want of room.
    fn check_write(&self) -> Result<(), TcpStreamError> {
        match self.end {
            Some(End::Closed(reason)) => Err(TcpStreamError::Closed(reason)),
            Some(End::Stopped) => Err(Stopped.into()),
            None if self.mpa_sends => Err(TcpStreamError::NotStreaming),
            None if self.finished => Err(TcpStreamError::Finished),
            None => Ok(()),
        }
    }

    /// What a read gives when there are no octets.
    fn end_of_octets(&self) -> Result<usize, TcpStreamError> {
        match self.end {
            _ if self.mpa_receives && self.end.is_none() => Err(TcpStreamError::NotStreaming),
            _ if self.peer_finished => Ok(0),
            Some(End::Closed(CloseReason::Finished)) => Ok(0),
            Some(End::Closed(reason)) => Err(TcpStreamError::Closed(reason)),
            Some(End::Stopped) => Err(Stopped.into()),
            None => Err(TcpStreamError::TimedOut),
        }
    }
}

/// What an application and the control thread share of a connection in streaming mode.
#[derive(Debug)]
pub(crate) struct StreamShared {
    pub(crate) connection: ConnectionId,
    pub(crate) pair: SocketPair,
    state: Mutex<State>,
    changed: Condvar,
}

impl StreamShared {
    pub(crate) fn new(connection: ConnectionId, pair: SocketPair) -> Arc<Self> {
        Arc::new(Self { connection, pair, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `done` or for `timeout`.
    fn wait(&self, timeout: Duration, done: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| !done(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Octets that the core has lent.
    pub(crate) fn lend(&self, octets: &[u8]) {
        self.change(|state| state.received.extend(octets));
    }

    /// Octets that wait to be read.
    pub(crate) fn pending_octets(&self) -> usize {
        self.lock().received.len()
    }

    /// All of them.
    pub(crate) fn take_pending(&self) -> Vec<u8> {
        self.lock().received.drain(..).collect()
    }

    /// Notes a piece that is queued.
    pub(crate) fn charge(&self, octets: usize) {
        self.change(|state| {
            state.pieces.push_back(octets);
            state.queued += octets;
        });
    }

    /// Whether a piece of `octets` fits.
    pub(crate) fn has_room(&self, octets: usize) -> bool {
        self.lock().room() >= octets
    }

    /// The peer has acknowledged whole pieces.
    pub(crate) fn acknowledged(&self, octets: usize) {
        self.change(|state| {
            let mut left = octets;
            while let Some(piece) = state.pieces.front().copied().filter(|piece| *piece <= left) {
                state.pieces.pop_front();
                state.queued -= piece;
                left -= piece;
            }
        });
    }

    pub(crate) fn set_peer_finished(&self) {
        self.change(|state| state.peer_finished = true);
    }

    pub(crate) fn peer_finished(&self) -> bool {
        self.lock().peer_finished
    }

    pub(crate) fn finished(&self) -> bool {
        self.lock().finished
    }

    pub(crate) fn set_end(&self, reason: CloseReason) {
        self.change(|state| _ = state.end.get_or_insert(End::Closed(reason)));
    }

    pub(crate) fn set_stopped(&self) {
        self.change(|state| _ = state.end.get_or_insert(End::Stopped));
    }

    /// The octets in `direction` are MPA's from now on.
    pub(crate) fn give_to_mpa(&self, direction: Direction) {
        self.change(|state| {
            state.mpa_sends |= direction.sends();
            state.mpa_receives |= direction.receives();
            if direction.receives() {
                state.received.clear();
            }
        });
    }

    /// The octets are streaming octets again.
    pub(crate) fn give_back(&self) {
        self.change(|state| (state.mpa_sends, state.mpa_receives) = (false, false));
    }

    /// Whether MPA has the octets in all of `direction` already.
    pub(crate) fn is_of_mpa(&self, direction: Direction) -> bool {
        let state = self.lock();
        (!direction.sends() || state.mpa_sends) && (!direction.receives() || state.mpa_receives)
    }

    /// Whether what is received are streaming octets.
    pub(crate) fn receives(&self) -> bool {
        !self.lock().mpa_receives
    }

    /// Whether what is sent are streaming octets.
    pub(crate) fn sends(&self) -> bool {
        !self.lock().mpa_sends
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }
}

/// A TCP connection in streaming mode, from [`Device::connect_stream`](crate::Device::connect_stream),
/// [`TcpListener::accept`](crate::TcpListener::accept) or [`ConnectionRequest::reject_to_stream`].
///
/// Octets go both ways until MPA is started, at once or later: as Initiator by [`initiate`](Self::initiate), as Responder by
/// [`respond`](Self::respond), whoever opened the connection (MPA-7.1-06), or without startup frames by
/// [`start_unnegotiated`](Self::start_unnegotiated). When startup ends in a rejection, the connection is in streaming mode
/// again (MPA-7.1.2-07, MPA-7.1.2-13).
///
/// What is not read closes TCP's window; what is written waits in a queue of about 64 KiB. Dropping it in streaming mode
/// closes the connection in an orderly way; once MPA has started, the queue pair decides.
pub struct TcpStream {
    device: Arc<Shared>,
    shared: Arc<StreamShared>,
}

impl TcpStream {
    pub(crate) const fn new(device: Arc<Shared>, shared: Arc<StreamShared>) -> Self {
        Self { device, shared }
    }

    /// The peer's address and port.
    pub fn remote(&self) -> SocketAddr {
        self.shared.pair.remote
    }

    /// Our address and port.
    pub fn local(&self) -> SocketAddr {
        self.shared.pair.local
    }

    /// Octets that can be read at once.
    pub fn available(&self) -> usize {
        self.shared.pending_octets()
    }

    /// Reads what there is, at least one octet; waits for it for `timeout`. 0 when the peer has finished and all was read.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`].
    pub fn read(&self, out: &mut [u8], timeout: Duration) -> Result<usize, TcpStreamError> {
        let mut state = self.shared.wait(timeout, State::readable);
        if state.received.is_empty() {
            return state.end_of_octets();
        }
        let octets = out.len().min(state.received.len());
        for (out, octet) in out.iter_mut().zip(state.received.drain(..octets)) {
            *out = octet;
        }
        // Before the lock is given up: what starts MPA comes after it.
        self.tell(StreamRequest::Take { connection: self.shared.connection, octets: octets as u32 })?;
        Ok(octets)
    }

    /// Reads until `out` is full; waits `timeout` each time there is nothing to read.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`]; [`Closed`](TcpStreamError::Closed) when the peer finishes before.
    pub fn read_exact(&self, out: &mut [u8], timeout: Duration) -> Result<(), TcpStreamError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..], timeout)? {
                0 => return Err(TcpStreamError::Closed(CloseReason::Finished)),
                octets => filled += octets,
            }
        }
        Ok(())
    }

    /// Queues as much of `octets` as there is room for, at least one octet; waits for room for `timeout`. Gives how many
    /// it took.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`].
    pub fn write(&self, octets: &[u8], timeout: Duration) -> Result<usize, TcpStreamError> {
        let mut state = self.shared.wait(timeout, State::writable);
        state.check_write()?;
        let octets = &octets[..octets.len().min(state.room())];
        if octets.is_empty() {
            return if state.room() > 0 { Ok(0) } else { Err(TcpStreamError::TimedOut) };
        }
        state.pieces.push_back(octets.len());
        state.queued += octets.len();
        // Before the lock is given up: what starts MPA comes after it.
        self.tell(StreamRequest::Write { connection: self.shared.connection, octets: octets.into() })?;
        Ok(octets.len())
    }

    /// Queues all of `octets`; waits `timeout` each time there is no room.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`]; some octets may be queued then.
    pub fn write_all(&self, mut octets: &[u8], timeout: Duration) -> Result<(), TcpStreamError> {
        while !octets.is_empty() {
            let written = self.write(octets, timeout)?;
            octets = &octets[written..];
        }
        Ok(())
    }

    /// Closes our half of the connection after everything written. The peer's half stays open.
    pub fn finish(&self) {
        let mut state = self.shared.lock();
        if state.check_write().is_ok() {
            state.finished = true;
            // A stopped device has closed everything.
            let _ = self.tell(StreamRequest::Finish { connection: self.shared.connection });
        }
    }

    /// Resets the connection.
    pub fn abort(&self) {
        // As above.
        let _ = self.tell(StreamRequest::Abort { connection: self.shared.connection });
    }

    /// Waits until both ends have finished.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError::Closed`] when the connection ended otherwise, [`TcpStreamError::TimedOut`] after `timeout`.
    pub fn wait_closed(&self, timeout: Duration) -> Result<(), TcpStreamError> {
        match self.shared.wait(timeout, |state| state.end.is_some()).end {
            Some(End::Closed(CloseReason::Finished)) => Ok(()),
            Some(End::Closed(reason)) => Err(TcpStreamError::Closed(reason)),
            Some(End::Stopped) => Err(Stopped.into()),
            None => Err(TcpStreamError::TimedOut),
        }
    }

    /// Starts MPA as its Initiator, at once or after streaming octets: our last one is followed by the Request, and the next
    /// one of the peer belongs to its Reply (MPA-7.1-05). Returns when sends may be posted. The address and TCP part of `config` mean
    /// nothing here; [`Revision::TwoThenOne`](crate::Revision::TwoThenOne) is revision 2, there being one connection only.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]. After [`Rejected`](ConnectError::Rejected) the connection is in streaming mode again, with all that
    /// came behind the Reply; with [`PendingStreamData`](ConnectError::PendingStreamData) it still is.
    pub fn initiate(&self, qp: &QueuePair, config: &ConnectConfig) -> Result<Connected, ConnectError> {
        if !qp.is_of(&self.device) {
            return Err(ConnectError::OtherDevice);
        }
        connect::check(config)?;
        let (connection, qp, remote, config) =
            (self.shared.connection, qp.shared.clone(), self.shared.pair.remote, config.clone());
        self.ask(|reply| StreamRequest::Initiate { connection, qp, remote, config, reply })?
    }

    /// Starts MPA as its Responder: `last_message`, which may be empty, is our last streaming octets before the Reply, and
    /// the peer's next octet belongs to its Request, however soon that comes (MPA-7.1.5-02). Waits for the Request. Of
    /// `config`, the backlog and TCP part mean nothing here.
    ///
    /// Octets that wait to be read are the beginning of the Request, unless there is a last message: then nothing can have
    /// followed it, and they are streaming data that was forgotten (MPA-7.1.5-01).
    ///
    /// # Errors
    ///
    /// [`SwitchError`].
    pub fn respond(
        &self,
        last_message: &[u8],
        config: &ListenConfig,
    ) -> Result<ConnectionRequest, SwitchError> {
        let (connection, last_message, config) = (self.shared.connection, last_message.into(), *config);
        let asked =
            self.ask(|reply| StreamRequest::Respond { connection, last_message, config, reply })??;
        Ok(ConnectionRequest::new(self.device.clone(), connection, self.shared.pair, asked))
    }

    /// Full Operation without startup frames, as draft-culley-iwarp-mpa-00 has it: Markers and CRCs always, and no waiting
    /// for the other end. In `direction`, the octets behind those written and read so far belong to it; the other direction
    /// stays in streaming mode until it is started too, with the same queue pair (C00-8.1-01 to C00-8.1-06). Both ends must
    /// know where that is, and what `config` says; that of the second call counts no more.
    ///
    /// # Errors
    ///
    /// [`SwitchError`].
    pub fn start_unnegotiated(
        &self,
        qp: &QueuePair,
        direction: Direction,
        config: &UnnegotiatedConfig,
    ) -> Result<(), SwitchError> {
        if !qp.is_of(&self.device) {
            return Err(SwitchError::OtherDevice);
        }
        let (connection, qp, config) = (self.shared.connection, qp.shared.clone(), *config);
        self.ask(|reply| StreamRequest::Start { connection, qp, direction, config, reply })?
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(crate::engine::request::Reply<T>) -> StreamRequest,
    ) -> Result<T, Stopped> {
        self.device.ask(|reply| Request::Stream(request(reply)))
    }

    fn tell(&self, request: StreamRequest) -> Result<(), Stopped> {
        self.device.tell(Request::Stream(request))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.shared.change(|state| state.abandoned = true);
        // A stopped device has closed everything.
        let _ = self.tell(StreamRequest::Abandon { connection: self.shared.connection });
    }
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpStream").field("pair", &self.shared.pair).finish_non_exhaustive()
    }
}
