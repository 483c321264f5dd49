//! Frames that one connection holds and others lack.
//!
//! A core holds a limited number of frames for all its connections. A connection that holds many leaves the
//! others enough: the frames it may hold become fewer with those that are left, a complete FPDU always finds
//! a frame to pass through, as do octets for which a byte stream has room, and when a connection finds none
//! for octets that are next, those that have held more than their share for long are failed
//! (`core/eviction.rs`).

use crate::tcp::Pools;
use crate::tcp::receive_queue::HeldPool;

use super::chunk::Chunk;
use super::connection::Connection;
use super::mode::Mode;

impl Connection {
    /// Discards the octets that arrived in order and were not acknowledged, if the connection then holds more
    /// than its share: the peer sends them again. Returns true if there were any. Streaming octets belong to
    /// control and stay.
    #[inline]
    pub(crate) fn drop_unacked_surplus<F>(&mut self, pools: &mut Pools<Chunk, F>) -> bool {
        // One that keeps no frame has no surplus.
        if self.tcp.received().frames() == 0 || !pools.held.is_short() {
            return false;
        }
        let promised_frames = self.promised_frames(&pools.held);
        pools.held.is_over_share(self.tcp.received().frames())
            && self.tcp.received().frames() > promised_frames
            && !self.mode.receives_stream()
            && self.tcp.shed(pools)
    }

    /// Returns the frames that the window was promised; 0 for a window without a promise.
    #[inline]
    pub(super) const fn promised_frames<F>(&self, held: &HeldPool<F>) -> usize {
        match &self.mode {
            Mode::Bytes(stream) => stream.promise.frames(held),
            _ => 0,
        }
    }

    /// Whether `octets` octets that are next in order leave their frame at once: then they may use the frames
    /// that are reserved for that. Streaming octets stay, and so do those after a message that waits, and
    /// those for which an application has no room.
    pub(super) fn octets_pass(&mut self, octets: usize) -> bool {
        match &mut self.mode {
            Mode::Bytes(stream) => self.tcp.received().available() == 0 && stream.inbound.takes(octets),
            _ => !self.mode.receives_stream() && !self.mode.awaits_receive(),
        }
    }
}
