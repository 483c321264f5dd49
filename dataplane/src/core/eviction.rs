//! Connections that hold many frames for long are failed when another connection cannot go on without one.
//!
//! Example: of 8192 frames, four connections hold 1500 each and eight hundred hold two or three. The fair
//! share is ten. A connection that holds none finds none for the octets that are next: one of the four is
//! failed, and no other, whichever of them consume octets now and then.

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::endpoint::{Connection, Endpoints};
use crate::limits;
use crate::time::Instant;

/// When connections are failed for the frames that they hold.
pub(super) struct Eviction {
    /// When connections that hold frames are looked at next, if these are scarce.
    evict_at: Instant,
    /// When they were looked at last.
    looked_at: Instant,
    /// The look at them, while it goes on.
    look: Option<Look>,
}

impl Eviction {
    /// Returns one that has looked at no connection yet.
    pub(super) const fn new() -> Self {
        Self { evict_at: Instant::ZERO, looked_at: Instant::ZERO, look: None }
    }

    /// Makes room after the connection in `slot` found none for octets in order. Now and then, begins to look
    /// at all connections, to fail those that hold most, until there is room: the frames of connections
    /// before Full Operation have a bound of their own, and only those connections compete for them. Returns
    /// true if a look begins, for which [`go_on`](Self::go_on) is to be called.
    #[cold]
    pub(super) fn relieve_shortage<F>(&mut self, now: Instant, endpoints: &Endpoints<F>, slot: u32) -> bool {
        let held = &endpoints.context.pools.held;
        let Some(needy) = endpoints.table.at(slot) else { return false };
        let received = needy.tcp.received();
        let in_startup = received.is_in_startup() && held.is_crowded(true);
        if now < self.evict_at
            || self.look.is_some()
            || held.is_well_off(received.frames())
            || !held.is_crowded(in_startup)
        {
            return false;
        }
        self.evict_at = now + limits::HELD_LOOK_NS;
        let last_look = core::mem::replace(&mut self.looked_at, now);
        let since_ns = Some(now - last_look).filter(|since_ns| *since_ns <= limits::HELD_PATIENCE_NS);
        // The needy one has a share, too.
        let holders = usize::from(received.frames() == 0);
        self.look = Some(Look { in_startup, since_ns, holders, fair: None, next: 0, most: Holders::new() });
        true
    }

    /// Goes on with the look at all connections, if there is one. Returns true if none goes on.
    pub(super) fn go_on<F: Frame>(&mut self, now: Instant, endpoints: &mut Endpoints<F>) -> bool {
        let Some(look) = &mut self.look else { return true };
        if !look.visit_next(endpoints) {
            return false;
        }
        if let Some(look) = self.look.take() {
            look.fail_holders(now, endpoints);
        }
        true
    }
}

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
struct Look {
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

impl Look {
    /// Visits as many connections as one poll has time for. Returns true if all are counted and ranked.
    fn visit_next<F>(&mut self, endpoints: &mut Endpoints<F>) -> bool {
        let Endpoints { table, context, .. } = endpoints;
        let mut left = limits::CONNECTIONS_VISITED_PER_POLL as u32;
        loop {
            let end = table.slots().min(self.next.saturating_add(left));
            left -= end - self.next;
            for slot in self.next..end {
                if let Some((_, connection)) = table.at_mut(slot) {
                    self.visit(slot, connection);
                }
            }
            self.next = end;
            if end < table.slots() {
                return false;
            }
            if self.fair.is_some() {
                return true;
            }
            self.fair = Some(fair_share(context.pools.held.bound(self.in_startup), self.holders));
            self.next = 0;
        }
    }

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

    /// Fails the connections that are ranked, those that hold most first, until there is room.
    fn fail_holders<F: Frame>(self, now: Instant, endpoints: &mut Endpoints<F>) {
        let Self { in_startup, mut holders, most, .. } = self;
        for Holder { slot, .. } in most.into_iter().rev() {
            let held = &endpoints.context.pools.held;
            let fair = fair_share(held.bound(in_startup), holders);
            if !held.is_crowded(in_startup) {
                return;
            }
            // The slot may have another connection by now.
            let Some(connection) = endpoints.table.at(slot) else { continue };
            if connection.holding.is_long()
                && competes(connection, in_startup)
                && connection.tcp.received().frames() >= fair
                && let Some(mut endpoint) = endpoints.at(now, slot)
            {
                let outcome = endpoint.evict();
                endpoints.apply(slot, outcome);
                holders = holders.saturating_sub(1);
            }
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
