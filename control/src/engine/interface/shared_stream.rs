//! The state of a connection in streaming mode (RFC 5044 §7.1) that the application and the engine share.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpline_dataplane::limits;
use warpline_dataplane::ring::{ConnectionId, Direction};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::wire::mpa::StartupFrame;

use crate::vocabulary::connect::SocketPair;
use crate::vocabulary::device::Stopped;
use crate::vocabulary::stream::TcpStreamError;

/// Octets that an application may have queued: what the core keeps, less room for a startup frame of MPA each
/// way.
const QUEUED_MAX_OCTETS: usize = limits::STREAM_SEND_BYTES - 2 * StartupFrame::MAX_LEN;

/// How a connection in streaming mode has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed(CloseReason),
    /// It is in Full Operation, and does not come back.
    GivenToMpa,
    /// The core is no longer polled.
    Stopped,
}

/// Guarded by the lock of [`SharedStream`].
#[derive(Debug, Default)]
struct State {
    /// Octets that the core has lent and the application has not taken: at most
    /// [`STREAM_UNCONSUMED_BYTES`](limits::STREAM_UNCONSUMED_BYTES).
    received: VecDeque<u8>,
    /// The peer sends nothing more.
    peer_finished: bool,
    /// Octets of each piece that is written and not acknowledged.
    pieces: VecDeque<usize>,
    /// Octets of all of them.
    queued: usize,
    /// This end sends nothing more.
    finished: bool,
    /// Sent octets belong to MPA.
    mpa_sends: bool,
    /// Received octets belong to MPA.
    mpa_receives: bool,
    end: Option<End>,
    /// The application has dropped its handle.
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

    fn queue(&mut self, octets: usize) {
        self.pieces.push_back(octets);
        self.queued += octets;
    }

    fn writable(&self) -> bool {
        self.room() > 0 || self.finished || self.mpa_sends || self.end.is_some()
    }

    /// Returns the error of a stream that cannot be written, for any reason but lack of room.
    fn check_write(&self) -> Result<(), TcpStreamError> {
        match self.end {
            Some(End::Closed(reason)) => Err(TcpStreamError::Closed(reason)),
            Some(End::GivenToMpa) => Err(TcpStreamError::NotStreaming),
            Some(End::Stopped) => Err(Stopped.into()),
            None if self.mpa_sends => Err(TcpStreamError::NotStreaming),
            None if self.finished => Err(TcpStreamError::Finished),
            None => Ok(()),
        }
    }

    /// Returns the result of a read when no octet waits.
    fn read_without_octets(&self) -> Result<usize, TcpStreamError> {
        match self.end {
            Some(End::GivenToMpa) => Err(TcpStreamError::NotStreaming),
            None if self.mpa_receives => Err(TcpStreamError::NotStreaming),
            _ if self.peer_finished => Ok(0),
            Some(End::Closed(CloseReason::Finished)) => Ok(0),
            Some(End::Closed(reason)) => Err(TcpStreamError::Closed(reason)),
            Some(End::Stopped) => Err(Stopped.into()),
            None => Err(TcpStreamError::TimedOut),
        }
    }
}

/// The state of a connection in streaming mode that an application and the control thread share.
#[derive(Debug)]
pub(crate) struct SharedStream {
    pub(crate) connection: ConnectionId,
    pub(crate) pair: SocketPair,
    /// The ends may have agreed on the TCP RDMA option.
    pub(crate) rdma_option: bool,
    state: Mutex<State>,
    changed: Condvar,
}

impl SharedStream {
    pub(crate) fn new(connection: ConnectionId, pair: SocketPair, rdma_option: bool) -> Arc<Self> {
        Arc::new(Self { connection, pair, rdma_option, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until the state meets `condition`, or for `timeout`.
    fn wait(&self, timeout: Duration, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| !condition(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads octets that wait, at least one; waits up to `timeout` for it. Returns 0 after the last octet of
    /// a peer that has finished. `take` is called with the number of octets before another thread can start
    /// MPA on the connection.
    pub(crate) fn read(
        &self,
        out: &mut [u8],
        timeout: Duration,
        take: impl FnOnce(u32) -> Result<(), Stopped>,
    ) -> Result<usize, TcpStreamError> {
        let mut state = self.wait(timeout, State::readable);
        if state.received.is_empty() {
            return state.read_without_octets();
        }
        let octets = out.len().min(state.received.len());
        for (out, octet) in out.iter_mut().zip(state.received.drain(..octets)) {
            *out = octet;
        }
        take(octets as u32)?;
        Ok(octets)
    }

    /// Queues the first octets of `octets`, as many as there is room for, at least one; waits up to `timeout`
    /// for room. `send` is called with them before another thread can start MPA on the connection.
    pub(crate) fn write(
        &self,
        octets: &[u8],
        timeout: Duration,
        send: impl FnOnce(Box<[u8]>) -> Result<(), Stopped>,
    ) -> Result<usize, TcpStreamError> {
        let mut state = self.wait(timeout, State::writable);
        state.check_write()?;
        let octets = &octets[..octets.len().min(state.room())];
        if octets.is_empty() {
            return if state.room() > 0 { Ok(0) } else { Err(TcpStreamError::TimedOut) };
        }
        state.queue(octets.len());
        send(octets.into())?;
        Ok(octets.len())
    }

    /// Ends what this end sends, unless it has ended already; `send` is called under the lock then.
    pub(crate) fn finish(&self, send: impl FnOnce()) {
        let mut state = self.lock();
        if state.check_write().is_ok() {
            state.finished = true;
            send();
        }
    }

    /// Waits until both ends have finished.
    pub(crate) fn wait_closed(&self, timeout: Duration) -> Result<(), TcpStreamError> {
        match self.wait(timeout, |state| state.end.is_some()).end {
            Some(End::Closed(CloseReason::Finished)) => Ok(()),
            Some(End::Closed(reason)) => Err(TcpStreamError::Closed(reason)),
            Some(End::GivenToMpa) => Err(TcpStreamError::NotStreaming),
            Some(End::Stopped) => Err(Stopped.into()),
            None => Err(TcpStreamError::TimedOut),
        }
    }

    /// Records that the application has dropped its handle.
    pub(crate) fn abandon(&self) {
        self.change(|state| state.abandoned = true);
    }

    /// Adds octets that the core has lent.
    pub(crate) fn lend(&self, octets: &[u8]) {
        self.change(|state| state.received.extend(octets));
    }

    /// Returns the number of octets that wait to be read.
    pub(crate) fn pending_octets(&self) -> usize {
        self.lock().received.len()
    }

    /// Removes and returns the octets that wait to be read.
    pub(crate) fn dequeue_pending(&self) -> Vec<u8> {
        self.lock().received.drain(..).collect()
    }

    /// Counts a piece that the engine sends on its own.
    pub(crate) fn charge(&self, octets: usize) {
        self.change(|state| state.queue(octets));
    }

    /// Returns true if a piece of `octets` fits.
    pub(crate) fn has_room(&self, octets: usize) -> bool {
        self.lock().room() >= octets
    }

    /// Removes whole pieces that the peer has acknowledged.
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

    /// Records that both directions are in Full Operation, from which there is no way back.
    pub(crate) fn set_given_to_mpa(&self) {
        self.change(|state| _ = state.end.get_or_insert(End::GivenToMpa));
    }

    pub(crate) fn set_stopped(&self) {
        self.change(|state| _ = state.end.get_or_insert(End::Stopped));
    }

    /// Gives the octets in `direction` to MPA from now on.
    pub(crate) fn give_to_mpa(&self, direction: Direction) {
        self.change(|state| {
            state.mpa_sends |= direction.sends();
            state.mpa_receives |= direction.receives();
            if direction.receives() {
                state.received.clear();
            }
        });
    }

    /// Takes both directions back from MPA: the octets are streaming octets again.
    pub(crate) fn give_back(&self) {
        self.change(|state| (state.mpa_sends, state.mpa_receives) = (false, false));
    }

    /// Returns true if MPA has the octets in all of `direction` already.
    pub(crate) fn is_of_mpa(&self, direction: Direction) -> bool {
        let state = self.lock();
        (!direction.sends() || state.mpa_sends) && (!direction.receives() || state.mpa_receives)
    }

    /// Returns true if received octets are streaming octets.
    pub(crate) fn receives(&self) -> bool {
        !self.lock().mpa_receives
    }

    /// Returns true if sent octets are streaming octets.
    pub(crate) fn sends(&self) -> bool {
        !self.lock().mpa_sends
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }
}
