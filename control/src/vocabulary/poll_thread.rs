//! How the thread that polls a core runs.

/// The behaviour of a poll thread after a poll without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Idle {
    /// Polls again at once: least latency, for a CPU of its own, of which it takes all.
    Spin,
    /// Polls for 50 microseconds more, not at all where the process has one CPU, then sleeps until there is
    /// something to do: posted work, a request of the API, a timer that is due, or frames.
    ///
    /// Frames wake it where the other end of the link is in the same process, at packet sockets (`packet`),
    /// and at ports whose driver has receive interrupts: `net_tap`, `net_virtio_user`, most adapters. At
    /// other ports (`net_af_packet`, `net_af_xdp`, `net_memif`, `net_vhost`) it looks for frames from time to
    /// time, at first after 50 microseconds and at last every millisecond.
    #[default]
    Sleep,
}

/// A thread that polls a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PollThread {
    /// The CPU it is pinned to; the scheduler's choice without.
    pub lcore: Option<usize>,
    /// The behaviour after a poll without work.
    pub idle: Idle,
}

/// Why a poll thread could not be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PollThreadError {
    /// The system started no thread.
    #[error("no thread for the core: {0}; check the limit on threads (ulimit -u)")]
    Spawn(#[from] std::io::Error),
    /// The thread could not be pinned.
    #[error(
        "CPU {lcore} cannot be used: choose one that is online and allowed for this process (taskset -p)"
    )]
    Pin {
        /// The CPU asked for.
        lcore: usize,
    },
}
