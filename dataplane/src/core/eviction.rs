//! Connections that hold many frames for long are failed when another connection cannot go on without one.
//!
//! Example: of 8192 frames, four connections hold 1500 each and eight hundred hold two or three. The fair
//! share is ten. A connection that holds none finds none for the octets that are next: one of the four is
//! failed, and no other, whichever of them consume octets now and then.

use arrayvec::ArrayVec;

use crate::device::Device;
use crate::endpoint::Connection;
use crate::limits;
use crate::time::Instant;

use super::Core;

/// A connection that may be failed for what it holds. The greater holds more, or has consumed nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    frames: usize,
    stands: bool,
    slot: u32,
}

/// The connections that hold most, the greatest last.
type Holders = ArrayVec<Holder, { limits::HELD_FAILURES_PER_LOOK }>;

impl<D: Device> Core<D> {
    /// Makes room after the connection in `slot` found none for octets in order. Now and then, looks at all
    /// connections and fails those that hold most, until there is room: the frames of connections before Full
    /// Operation have a bound of their own, and only those connections compete for them.
    #[cold]
    pub(super) fn relieve_shortage(&mut self, now: Instant, slot: u32) {
        let held = &self.endpoints.context.pools.held;
        let Some(needy) = self.endpoints.table.at(slot) else { return };
        let received = needy.tcp.received();
        let in_startup = received.is_in_startup() && held.is_crowded(true);
        if now < self.evict_at || held.is_well_off(received.frames()) || !held.is_crowded(in_startup) {
            return;
        }
        self.evict_at = now + limits::HELD_LOOK_NS;
        let last_look = core::mem::replace(&mut self.looked_at, now);
        let since_ns = Some(now - last_look).filter(|since_ns| *since_ns <= limits::HELD_PATIENCE_NS);
        let mut holders = self.endpoints.table.iter().filter(|&other| competes(other, in_startup)).count();
        // The needy one has a share, too.
        holders += usize::from(received.frames() == 0);
        let fair = fair_share(held.bound(in_startup), holders);
        for Holder { slot, .. } in self.rank_holders(since_ns, in_startup, fair).into_iter().rev() {
            let held = &self.endpoints.context.pools.held;
            let fair = fair_share(held.bound(in_startup), holders);
            if !held.is_crowded(in_startup) {
                return;
            }
            let Some(mut endpoint) = self.endpoints.at(now, slot) else { continue };
            if endpoint.connection.tcp.received().frames() >= fair {
                let outcome = endpoint.evict();
                self.apply(slot, outcome);
                holders -= 1;
            }
        }
    }

    /// Looks at all connections of a kind, and returns those that have held the fair share or more for long:
    /// the ones that hold most.
    fn rank_holders(&mut self, since_ns: Option<u64>, in_startup: bool, fair: usize) -> Holders {
        let mut most = Holders::new();
        for slot in 0..self.endpoints.table.slots() {
            let Some((_, connection)) = self.endpoints.table.at_mut(slot) else { continue };
            let received = connection.tcp.received();
            if in_startup && !received.is_in_startup() {
                continue;
            }
            let frames = received.frames();
            connection.holding.look(since_ns, received.unread(), frames >= fair);
            if !connection.holding.is_long() {
                continue;
            }
            let holder = Holder { frames, stands: connection.holding.stands(), slot };
            let at = most.partition_point(|other| *other < holder);
            if !most.is_full() {
                most.insert(at, holder);
            } else if at > 0 {
                // The least makes room.
                most[..at].rotate_left(1);
                most[at - 1] = holder;
            }
        }
        most
    }
}

/// Returns true if a connection holds frames that others could have: those before Full Operation only, or
/// all.
const fn competes(connection: &Connection, in_startup: bool) -> bool {
    let received = connection.tcp.received();
    received.frames() > 0 && (!in_startup || received.is_in_startup())
}

/// Returns the frames that each of `holders` connections may have if all have as many: one at least.
const fn fair_share(bound: usize, holders: usize) -> usize {
    match bound.checked_div(holders) {
        Some(share) if share > 0 => share,
        _ => 1,
    }
}
