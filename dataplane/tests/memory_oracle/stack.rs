//! What the model needs of the stack that it is compared with: hosts, and connections between them, each with
//! a queue pair at both ends.

use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::memory::{Grant, STag};
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::Completion;

/// Send and receive requests of a queue pair.
pub(crate) const DEPTH: usize = 48;

/// What paths have done to frames, and what the cores have dropped for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    pub inverted_bits: u64,
    pub altered_payloads: u64,
    pub cut: u64,
    pub joined: u64,
    pub wrong_checksums: u64,
    pub wrong_crcs: u64,
}

/// Hosts with connections between them, in virtual time. A connection has a number, and two sides: 0 is the
/// Initiator.
pub(crate) trait World {
    /// Returns how many hosts there are.
    fn hosts(&self) -> usize;

    /// Returns the host of one side of a connection.
    fn host_of(&self, number: usize, side: usize) -> usize;

    /// Returns the queue pair of one side of a connection.
    fn qp(&self, number: usize, side: usize) -> &Arc<SharedQp>;

    /// Returns true if Placement may go on beyond gaps: the connection has Markers.
    fn has_markers(&self, number: usize) -> bool;

    /// Returns the queue of receives that queue pairs of a host share.
    fn shared_receives(&self, host: usize) -> &Arc<SharedReceiveQueue>;

    /// Returns true if each queue pair of a host knows the names of all memory there and their keys: it has
    /// one core (docs/exceptions.md).
    fn knows_all_names(&self, _host: usize) -> bool {
        true
    }

    /// Returns true if all cores of a host follow in time what a work request at one of them grants to all
    /// streams. It fails if one that stalls does not (seed 26998).
    fn cores_follow(&self, _host: usize) -> bool {
        true
    }

    /// Returns true if a message for a queue pair of a host that shares receives waits for one as long as it
    /// takes.
    fn waits_for_shared_receives(&self) -> bool {
        false
    }

    /// Registers memory at a host. Returns its name.
    fn register(&mut self, rng: &mut Rng, host: usize, grant: Grant) -> STag;

    /// Makes a window at a host that is bound to nothing. Returns its name.
    fn allocate_window(&mut self, rng: &mut Rng, host: usize) -> STag;

    /// Takes the completions of all queues of a host, each with the number and side of its connection.
    fn poll_completions(&mut self, host: usize) -> Vec<((usize, usize), Completion)>;

    /// Polls everything once; if there is nothing to do, time moves on.
    fn step(&mut self);

    /// Returns what became of frames so far.
    fn damage(&self) -> Damage;

    /// Returns the seconds of virtual time so far.
    fn seconds(&self) -> u64;

    /// Describes the seed, for a failure.
    fn describe(&self) -> String;
}
