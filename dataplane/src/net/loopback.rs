//! Frames from the host to itself. A connection to an address of the host's own sends frames to the host's
//! own hardware address; the next poll delivers them, and they never reach the device (RFC 1122 §3.3.1.1
//! leaves the host's own address to the host).
//!
//! A frame from the wire cannot pass for one: there the host's own address is no valid source (RFC 1122
//! §3.2.1.3).

use std::collections::VecDeque;

use crate::limits;

/// Frames from the host to itself.
#[derive(Debug)]
pub(super) struct Loopback<F> {
    frames: VecDeque<F>,
    capacity: usize,
}

impl<F> Loopback<F> {
    /// Returns a queue for the host of a device that has `device_frames`: it holds no more than a quarter of
    /// them.
    pub(super) fn new(device_frames: usize) -> Self {
        let capacity = limits::LOOPBACK_FRAMES.min(device_frames / 4);
        Self { frames: VecDeque::with_capacity(capacity), capacity }
    }

    /// Returns the number of frames in the queue.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns how many frames a connection may add. A quarter of the queue is left to replies, which nothing
    /// sends again.
    pub(super) fn room(&self) -> usize {
        (self.capacity - self.capacity / 4).saturating_sub(self.frames.len())
    }

    /// Appends a frame.
    ///
    /// # Errors
    ///
    /// `frame`, when there is no room.
    pub(super) fn push(&mut self, frame: F) -> Result<(), F> {
        if self.frames.len() >= self.capacity {
            return Err(frame);
        }
        self.frames.push_back(frame);
        Ok(())
    }

    /// Dequeues the oldest frame.
    pub(super) fn pop(&mut self) -> Option<F> {
        self.frames.pop_front()
    }
}
