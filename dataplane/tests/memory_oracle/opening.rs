//! Work that changes an end's grants to its peer: it binds windows, renews registrations and invalidates
//! names.

use warpline_dataplane::memory::{Access, Binding, FastRegistration};
use warpline_dataplane::qp::work::{Operation, SliceList};

use super::grants::{Reach, SHARED, What};
use super::half::Ends;
use super::hazards::{Span, Touches};
use super::play::Play;
use super::stack::World;
use super::work::{Effect, Work};

/// Work of this end alone, that changes the name in `place`.
fn local(operation: Operation, place: usize, effect: Effect) -> Work {
    let touches = Touches { opens: Some(place), ..Touches::default() };
    Work { operation, local: SliceList::default().into(), touches, ends: Ends::Done(0), effect }
}

impl<W: World> Play<W> {
    /// Any rights out of `all`.
    fn rights(&mut self, all: Access) -> Access {
        // Mostly all of them, or little could be done.
        if self.rng.u32(..3) > 0 { all } else { Access::from_bits_truncate(self.rng.u8(..)) & all }
    }

    /// A part of `octets` octets, not empty.
    fn part(&mut self, octets: usize) -> core::ops::Range<usize> {
        let (one, other) = (self.rng.usize(..octets), self.rng.usize(..octets));
        one.min(other)..one.max(other) + 1
    }

    /// Ensures that octets which the peer has read from this half by the name in `place` need not be sent
    /// again: when the peer's Reads are complete, its next message acknowledges them.
    fn settle(&mut self, number: usize, side: usize, place: usize) {
        if !self.halves[number][side].names[place].unsettled {
            return;
        }
        self.complete_all(number, 1 - side);
        self.post_empty(number, 1 - side);
        self.complete_all(number, 1 - side);
        self.halves[number][side].names.iter_mut().for_each(|named| named.unsettled = false);
    }

    /// A window, under its next name, on a part of a registration.
    pub(crate) fn a_bind(&mut self, number: usize, side: usize) -> Option<Work> {
        let half = &self.halves[number][side];
        let place = half.place(&mut self.rng, |half, place| {
            let named = &half.names[place];
            named.is_window() && named.reach.is_none() && !half.is_invalidated_soon(place)
        })?;
        let below = half.place(&mut self.rng, |half, place| {
            let named = &half.names[place];
            let open = named.reach.as_ref();
            !named.is_window() && open.is_some_and(|reach| reach.access.contains(Access::WINDOW_BIND))
        })?;
        self.settle(number, side, place);
        let named = &self.halves[number][side].names[below];
        let (registration, reach) = (named.stag, named.reach.clone()?);
        let writable = reach.access.contains(Access::LOCAL_WRITE);
        let access = self.rights(if writable { Access::REMOTE } else { Access::REMOTE_READ });
        let part = self.part(reach.span.range.len());
        let zero_based = self.rng.bool();
        let window = self.halves[number][side].names[place].another_stag(&mut self.rng);
        let (to, octets) = (reach.base_to + part.start as u64, part.len() as u64);
        let binding = Binding { window, registration, to, len: octets, access, zero_based };
        let start = reach.span.range.start;
        let reach = Reach {
            span: Span { area: reach.span.area, range: start + part.start..start + part.end },
            base_to: if zero_based { 0 } else { to },
            access,
            alone: true,
        };
        self.tally.binds += 1;
        let effect = Effect::Open { place, stag: window, reach, below: Some(below) };
        Some(local(Operation::Bind(binding), place, effect))
    }

    /// A part of memory that is registered and not valid, with other Tagged Offsets and rights.
    pub(crate) fn a_registration(&mut self, number: usize, side: usize) -> Option<Work> {
        let half = &self.halves[number][side];
        let place = half.place(&mut self.rng, |half, place| {
            let named = &half.names[place];
            !named.is_window() && named.reach.is_none() && !half.is_invalidated_soon(place)
        })?;
        self.settle(number, side, place);
        let half = &self.halves[number][side];
        let What::Registration(area, allowed) = half.names[place].what else { return None };
        let len = half.memory(area).content.len();
        let stag = half.names[place].another_stag(&mut self.rng);
        let access = self.rights(allowed);
        let range = self.part(len);
        // The last two: no Tagged Offset follows the last octet's own, and the range does not begin where a
        // page does.
        let base_to = [0, range.start as u64, u64::MAX - range.len() as u64, self.rng.u64(..1 << 63)];
        let base_to = base_to[self.rng.usize(..4)];
        let alone = self.rng.u32(..4) > 0 || !self.world.cores_follow(self.world.host_of(number, side));
        let wanted = FastRegistration {
            stag,
            offset: range.start as u64,
            len: range.len() as u64,
            base_to,
            access,
            all_streams: !alone,
        };
        let reach = Reach { span: Span { area, range }, base_to, access, alone };
        self.tally.registrations += 1;
        let effect = Effect::Open { place, stag, reach, below: None };
        Some(local(Operation::Register(wanted), place, effect))
    }

    /// Of a name that no request of the peer is on its way to.
    pub(crate) fn a_local_invalidation(&mut self, number: usize, side: usize) -> Option<Work> {
        let [half, peer] = [side, 1 - side].map(|side| &self.halves[number][side]);
        // What the peer has sent after a message that waits is acknowledged, and not carried out.
        if half.shares && self.world.waits_for_shared_receives() && !half.due_receives.is_empty() {
            return None;
        }
        let place = half.place(&mut self.rng, |half, place| {
            let used = peer.due.iter().any(|due| due.touches.through == Some(place));
            place != SHARED && half.names[place].reach.is_some() && !used && !half.holds_windows(place)
        })?;
        self.tally.invalidations += 1;
        let stag = half.names[place].stag;
        Some(local(Operation::LocalInvalidate { stag }, place, Effect::Invalidate(place)))
    }
}
