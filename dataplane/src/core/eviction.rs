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

/// A look at all connections, which takes several polls: it counts those that hold frames, and then ranks
/// those that have held more than their share for long.
pub(super) struct Look {
    /// Only connections before Full Operation compete.
    in_startup: bool,
    /// The time since the look before, if that counts.
    since_ns: Option<u64>,
    /// Connections that hold frames, and the one that needs some: all of them once `fair` is known.
    holders: usize,
    /// The fair share of each.
    fair: Option<usize>,
    /// The next slot to visit.
    next: u32,
    most: Holders,
}

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
        if now < self.evict_at
            || self.look.is_some()
            || held.is_well_off(received.frames())
            || !held.is_crowded(in_startup)
        {
            return;
        }
        self.evict_at = now + limits::HELD_LOOK_NS;
        let last_look = core::mem::replace(&mut self.looked_at, now);
        let since_ns = Some(now - last_look).filter(|since_ns| *since_ns <= limits::HELD_PATIENCE_NS);
        // The needy one has a share, too.
        let holders = usize::from(received.frames() == 0);
        self.look = Some(Look { in_startup, since_ns, holders, fair: None, next: 0, most: Holders::new() });
        self.walks_on = true;
    }

    /// Goes on with the look at all connections, if there is one. Returns true if none goes on.
    pub(super) fn go_on_looking(&mut self, now: Instant) -> bool {
        let Some(look) = &mut self.look else { return true };
        let table = &mut self.endpoints.table;
        let mut left = limits::CONNECTIONS_VISITED_PER_POLL as u32;
        loop {
            let end = table.slots().min(look.next.saturating_add(left));
            left -= end - look.next;
            for slot in look.next..end {
                if let Some((_, connection)) = table.at_mut(slot) {
                    look.visit(slot, connection);
                }
            }
            look.next = end;
            if end < table.slots() {
                return false;
            }
            if look.fair.is_some() {
                break;
            }
            look.fair =
                Some(fair_share(self.endpoints.context.pools.held.bound(look.in_startup), look.holders));
            look.next = 0;
        }
        if let Some(look) = self.look.take() {
            self.fail_holders(now, look);
        }
        true
    }

    /// Fails the connections that a look has ranked, those that hold most first, until there is room.
    fn fail_holders(&mut self, now: Instant, look: Look) {
        let Look { in_startup, mut holders, most, .. } = look;
        for Holder { slot, .. } in most.into_iter().rev() {
            let held = &self.endpoints.context.pools.held;
            let fair = fair_share(held.bound(in_startup), holders);
            if !held.is_crowded(in_startup) {
                return;
            }
            // The slot may have another connection by now.
            let Some(connection) = self.endpoints.table.at(slot) else { continue };
            if connection.holding.is_long()
                && competes(connection, in_startup)
                && connection.tcp.received().frames() >= fair
                && let Some(mut endpoint) = self.endpoints.at(now, slot)
            {
                let outcome = endpoint.evict();
                self.endpoints.apply(slot, outcome);
                holders = holders.saturating_sub(1);
            }
        }
    }
}

impl Look {
    /// Counts a connection that holds frames, or ranks it if it has held the fair share or more for long.
    fn visit(&mut self, slot: u32, connection: &mut Connection) {
        let Some(fair) = self.fair else {
            self.holders += usize::from(competes(connection, self.in_startup));
            return;
        };
        let received = connection.tcp.received();
        if self.in_startup && !received.is_in_startup() {
            return;
        }
        let frames = received.frames();
        connection.holding.look(self.since_ns, received.unread(), frames >= fair);
        if !connection.holding.is_long() {
            return;
        }
        let holder = Holder { frames, stands: connection.holding.stands(), slot };
        let most = &mut self.most;
        let at = most.partition_point(|other| *other < holder);
        if !most.is_full() {
            most.insert(at, holder);
        } else if at > 0 {
            // The least makes room.
            most[..at].rotate_left(1);
            most[at - 1] = holder;
        }
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
