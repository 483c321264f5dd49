//! Frames that are held are a core's own, and few. A connection that holds many leaves the others enough: what it may hold
//! shrinks with what is left, an FPDU that comes whole always finds a frame to pass through, and who holds frames without
//! getting anywhere, while others are short of them, is failed.

use super::Core;
use super::connection::Mode;
use super::statistics::DropCause;
use crate::device::Device;
use crate::limits;
use crate::mpa::MpaError;
use crate::qp::error::StreamError;
use crate::tcp;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// How long a connection has held frames without consuming an octet: in looks at it, which are taken while frames are short.
#[derive(Clone, Copy, Debug)]
pub struct Standstill {
    unread: SeqNumber,
    looks: u8,
}

impl Standstill {
    /// It has not been looked at.
    pub const fn new() -> Self {
        Self { unread: SeqNumber(0), looks: 0 }
    }

    /// Takes a look at a connection that holds `frames` frames and has consumed all before `unread`.
    fn look(&mut self, unread: SeqNumber, frames: usize) {
        let stands = frames > 0 && unread == self.unread;
        self.looks = if stands { self.looks.saturating_add(1) } else { 0 };
        self.unread = unread;
    }

    const fn is_long(self) -> bool {
        self.looks >= limits::HELD_LOOKS_WITHOUT_PROGRESS
    }
}

impl<D: Device> Core<D> {
    /// Gives back what came in order and was not acknowledged, if the connection then holds more than its share: the peer
    /// sends it again. Gives whether it did. Streaming octets belong to control and stay.
    pub(super) fn shed_surplus(&mut self, index: u32) -> bool {
        if !self.pools.held.is_short() {
            return false;
        }
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
        let surplus = self.pools.held.is_over_share(connection.tcp.received().frames());
        surplus && !connection.receives_stream() && connection.tcp.shed(&mut self.pools)
    }

    /// A segment found no room among the frames held. Now and then, looks for connections that have stood still for long and
    /// fails those of them that hold the most, until others have room again.
    pub(super) fn relieve(&mut self, now: Instant) {
        if now < self.relief_at || !self.pools.held.is_crowded() {
            return;
        }
        self.relief_at = now + limits::HELD_LOOK_NS;
        let mut most = 0;
        for connection in self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()) {
            let received = connection.tcp.received();
            let frames = received.frames();
            connection.standstill.look(received.unread(), frames);
            if connection.standstill.is_long() {
                most = most.max(frames);
            }
        }
        let mut failures = 0;
        for index in 0..self.slots.len() as u32 {
            if failures >= limits::HELD_FAILURES_PER_LOOK || !self.pools.held.is_crowded() {
                return;
            }
            let Some(connection) = self.slots[index as usize].connection.as_ref() else { continue };
            let frames = connection.tcp.received().frames();
            if frames > 0 && connection.standstill.is_long() && 2 * frames >= most {
                self.fail_holder(now, index);
                failures += 1;
            }
        }
    }

    /// The connection gives up its frames, and what was acknowledged in them: it is reset, and its users are told.
    /// One that waits for a receive waits no longer, and tells its peer why.
    fn fail_holder(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_ref() else { return };
        if connection.awaits_receive() {
            return self.end_wait(now, index);
        }
        self.statistics.count(DropCause::HeldTooLong);
        if matches!(&connection.mode, Mode::FullOperation(operating) if !operating.failed) {
            self.fail_stream(now, index, StreamError::Mpa(MpaError::LocalCatastrophic), None);
        }
        if let Some(connection) = self.slots[index as usize].connection.as_mut() {
            connection.tcp.abort();
            connection.tcp.release_received(&mut self.pools);
        }
        self.mark_dirty(index);
        self.on_progress(now, index, tcp::Changes::CLOSED);
    }
}
