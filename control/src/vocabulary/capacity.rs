//! How many of each thing a device has room for.

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::limits;

/// How many of each thing a device has room for. A large capacity takes address space, and no memory before
/// it is used: about 2 KiB for each queue pair that is connected, besides its queues, and 100 bytes for each
/// connection in TIME-WAIT.
///
/// The quotas ([`Quotas`](crate::Quotas)) say what of it one holder may have;
/// [`DeviceConfig::with_capacity`](crate::DeviceConfig::with_capacity) sets both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Connections, those being opened or closed included: 2^24 at most.
    pub connections: usize,
    /// Queue pairs: 2^24 at most.
    pub queue_pairs: usize,
    /// Registrations and windows: 32,768 at most, so that the names of memory stay sparse.
    pub registrations: usize,
    /// Connections in TIME-WAIT. The oldest makes room for another.
    pub time_waits: usize,
    /// Listeners, of connections and of streams: 8,192 at most.
    pub listeners: usize,
    /// Frames that may be held back for octets that are not consumed yet, of all connections. Never more than
    /// half of those that the device has. With fewer than 256 even a few connections may be failed, or given
    /// up by their peers, when they wait for lost segments or for readers at once: each byte stream may be
    /// sent 64 KiB before its window is made to fit.
    pub frames: usize,
    /// Bytes of the buffers of byte streams, of all connections: 2^40 at most. They are allocated as they are
    /// needed, 2 MiB at a time, so that less is room for no stream, and serve one stream after the other. Not
    /// counted are frames.
    pub stream_bytes: usize,
}

impl Capacity {
    /// Returns the capacity for `connections` connections, each with a queue pair; the rest follows from
    /// that, or is as usual.
    pub const fn of(connections: usize) -> Self {
        Self {
            connections,
            queue_pairs: connections,
            registrations: limits::REGISTRATIONS_MAX,
            time_waits: connections.saturating_mul(limits::TIME_WAITS_PER_CONNECTION),
            listeners: limits::LISTENERS_PER_CORE,
            frames: limits::HELD_FRAMES_PER_CORE,
            stream_bytes: limits::BYTE_STREAM_BYTES_PER_CORE,
        }
    }

    /// Returns each number with its name and its bounds.
    const fn bounds(&self) -> [(&'static str, usize, usize); 7] {
        [
            ("connections", self.connections, limits::CONNECTIONS_MAX),
            ("queue pairs", self.queue_pairs, limits::CONNECTIONS_MAX),
            ("registrations", self.registrations, limits::REGISTRATIONS_MAX),
            ("connections in TIME-WAIT", self.time_waits, limits::TIME_WAITS_MAX),
            ("listeners", self.listeners, limits::LISTENERS_MAX),
            ("frames", self.frames, limits::HELD_FRAMES_MAX),
            ("bytes for byte streams", self.stream_bytes, limits::BYTE_STREAM_BYTES_MAX),
        ]
    }

    /// Returns the first number that is impossible: its name, itself, and the greatest that is possible; the
    /// least is 1.
    pub(crate) fn fault(&self) -> Option<(&'static str, usize, usize)> {
        self.bounds().into_iter().find(|(_, number, most)| !(1..=*most).contains(number))
    }

    /// Returns the tables of one of `cores` cores. Peers do not come to all cores alike, so each has a
    /// quarter more than its share.
    pub(crate) fn tables(&self, cores: u8) -> Tables {
        let part = |of: usize| (of + of / 4).div_ceil(cores.into()).min(of);
        let share = |of| if cores == 1 { of } else { part(of) };
        let (usual, connections) = (Tables::default(), share(self.connections));
        Tables {
            connections,
            time_waits: share(self.time_waits),
            // One at least for each that has something to send.
            send_descriptors: usual.send_descriptors.max(connections),
            held_frames: share(self.frames),
            queue_pairs: share(self.queue_pairs),
            listeners: self.listeners,
            ..usual
        }
    }
}

impl Default for Capacity {
    /// Returns room for 65,536 connections.
    fn default() -> Self {
        Self::of(limits::CONNECTIONS_PER_CORE)
    }
}
