//! Frames that one connection holds and others lack.
//!
//! A core holds a limited number of frames for all its connections. A connection that holds many leaves the
//! others enough: the frames it may hold become fewer with those that are left, a complete FPDU always finds
//! a frame to pass through, as do octets for which a byte stream has room, and when a connection finds none
//! for octets that are next, those that have held more than their share for long are failed
//! (`core/eviction.rs`).

use crate::device::Frame;
use crate::drops::DropCause;
use crate::mpa::MpaError;
use crate::qp::error::StreamError;
use crate::tcp::Changes;

use super::connection::Mode;
use super::{Endpoint, Outcome};

impl<F: Frame> Endpoint<'_, F> {
    /// Discards the octets that arrived in order and were not acknowledged, if the connection then holds more
    /// than its share: the peer sends them again. Returns true if there were any. Streaming octets belong to
    /// control and stay.
    #[inline]
    pub(crate) fn drop_unacked_surplus(&mut self) -> bool {
        // One that keeps no frame has no surplus.
        if self.connection.tcp.received().frames() == 0 || !self.context.pools.held.is_short() {
            return false;
        }
        let promised_frames = self.promised_frames();
        let pools = &mut self.context.pools;
        pools.held.is_over_share(self.connection.tcp.received().frames())
            && self.connection.tcp.received().frames() > promised_frames
            && !self.connection.receives_stream()
            && self.connection.tcp.shed(pools)
    }

    /// Returns the frames that the window was promised; 0 for a window without a promise.
    #[inline]
    pub(super) const fn promised_frames(&self) -> usize {
        match &self.connection.mode {
            Mode::Bytes(stream) => stream.promise.frames(&self.context.pools.held),
            _ => 0,
        }
    }

    /// Whether `octets` octets that are next in order leave their frame at once: then they may use the frames
    /// that are reserved for that. Streaming octets stay, and so do those after a message that waits, and
    /// those for which an application has no room.
    pub(super) fn octets_pass(&mut self, octets: usize) -> bool {
        let connection = &mut *self.connection;
        match &mut connection.mode {
            Mode::Bytes(stream) => connection.tcp.received().available() == 0 && stream.inbound.takes(octets),
            _ => !connection.receives_stream() && !connection.awaits_receive(),
        }
    }

    /// Frees the frames of a connection, and the acknowledged octets in them: it is reset, and its users
    /// are notified. One that waits for a receive waits no longer, and sends its peer the reason.
    pub(crate) fn evict(&mut self) -> Outcome {
        if self.connection.awaits_receive() {
            self.expire_receive_wait();
            return Outcome::SCHEDULE;
        }
        self.context.statistics.count(DropCause::HeldTooLong);
        if matches!(&self.connection.mode, Mode::FullOperation(operating) if !operating.failed) {
            self.fail_stream(StreamError::Mpa(MpaError::LocalCatastrophic), None);
        }
        self.connection.tcp.abort();
        self.connection.tcp.release_received(&mut self.context.pools);
        self.on_changes(Changes::CLOSED);
        Outcome::SCHEDULE
    }
}
