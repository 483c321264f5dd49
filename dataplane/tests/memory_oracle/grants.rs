//! The grants of an end to its peer in the model: registrations, which may be renewed, and windows on them.
//! The access rules are those of RFC 5041 §7.1 and §8 and RFC 5040 §7.2, with the checks in the order of
//!

use core::ops::Range;

use fastrand::Rng;
use warpline_dataplane::memory::{Access, STag};

use super::half::Half;
use super::hazards::{Area, Span};

/// The place of the registration that is for all, always.
pub(super) const SHARED: usize = 0;
/// Windows of each end.
pub(super) const WINDOWS: usize = 4;

/// The memory that a valid name grants access to.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub span: Span,
    /// The Tagged Offset of the first octet.
    pub base_to: u64,
    pub access: Access,
    /// It is for the peer of this half alone.
    pub alone: bool,
}

/// The object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Of memory, and of no more rights than these.
    Registration(Area, Access),
    /// Of a part of the registration in that place, if it has ever been bound.
    Window(Option<usize>),
}

/// A name that this end advertises to its peer.
#[derive(Debug)]
pub(crate) struct Named {
    pub what: What,
    /// The name that it had at first.
    pub first: STag,
    pub stag: STag,
    /// Its previous name.
    pub former: Option<STag>,
    pub reach: Option<Reach>,
    /// The peer has read by it, and no later message of the peer has shown this end that the octets arrived.
    /// Until then they may have to be read once more: no other memory can have the name, and a window holds
    /// on to its registration.
    pub unsettled: bool,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Invalid,
    NotAssociated,
    Rights,
    Wrap,
    Bounds,
}

impl Named {
    pub(crate) const fn new(what: What, stag: STag, reach: Option<Reach>) -> Self {
        Self { what, first: stag, stag, former: None, reach, unsettled: false }
    }

    pub(crate) const fn is_window(&self) -> bool {
        matches!(self.what, What::Window(_))
    }

    /// From now on it is called `stag` and reaches `reach`.
    pub(crate) fn open(&mut self, stag: STag, reach: Reach, below: Option<usize>) {
        self.former = Some(self.stag);
        self.stag = stag;
        self.reach = Some(reach);
        if let What::Window(of) = &mut self.what {
            *of = below;
        }
    }

    /// Another key than it has and had.
    pub(crate) fn another_stag(&self, rng: &mut Rng) -> STag {
        loop {
            let stag = self.stag.with_key(rng.u16(..));
            if stag != self.stag && Some(stag) != self.former {
                return stag;
            }
        }
    }

    /// Returns the error for an access by `stag`, from its own peer or that of another half; `None` if it is
    /// granted.
    pub(crate) fn refusal(
        &self,
        stag: STag,
        own: bool,
        right: Access,
        to: u64,
        octets: usize,
    ) -> Option<Refusal> {
        let Some(reach) = self.reach.as_ref().filter(|_| stag == self.stag) else {
            return Some(Refusal::Invalid);
        };
        // Wide enough for all sums.
        let (begin, end) = (u128::from(to), u128::from(to) + octets as u128);
        let base = u128::from(reach.base_to);
        if reach.alone && !own {
            Some(Refusal::NotAssociated)
        } else if end >= 1 << 64 {
            Some(Refusal::Wrap)
        } else if begin < base || end > base + reach.span.range.len() as u128 {
            Some(Refusal::Bounds)
        } else if !reach.access.contains(right) {
            Some(Refusal::Rights)
        } else {
            None
        }
    }

    /// The octet of memory that a Tagged Offset inside is.
    pub(crate) fn octet(&self, to: u64) -> Option<usize> {
        let reach = self.reach.as_ref()?;
        Some(reach.span.range.start + (to - reach.base_to) as usize)
    }
}

/// Octets of the peer's memory, and a name for them.
pub(crate) struct Target {
    pub span: Span,
    pub stag: STag,
    pub to: u64,
    /// Where the name is.
    pub place: usize,
}

impl Half {
    /// Returns true if both ends agree on the memory that the name in `place` grants: no request in flight
    /// changes it.
    pub(crate) fn is_steady(&self, place: usize) -> bool {
        let changed = self.due.iter().any(|due| due.touches.opens == Some(place));
        !changed && !self.is_invalidated_soon(place)
    }

    /// Returns true if a message of the peer that invalidates the name is in flight, or has not been
    /// processed.
    pub(crate) fn is_invalidated_soon(&self, place: usize) -> bool {
        let slot = self.names[place].stag.index();
        let mut invalidated = self.due_receives.iter().filter_map(|due| due.invalidated);
        invalidated.any(|stag| stag.index() == slot)
    }

    /// Whether windows are on the registration in `place`, or may be: one that changes may have been on any.
    pub(crate) fn holds_windows(&self, place: usize) -> bool {
        self.names.iter().enumerate().any(|(window, named)| {
            let on_it = named.what == What::Window(Some(place));
            named.is_window()
                && (!self.is_steady(window) || on_it && (named.reach.is_some() || named.unsettled))
        })
    }

    /// Returns true if the peer may invalidate the name (RDMAP-8.1.1-02).
    pub(crate) fn is_invalidable(&self, place: usize) -> bool {
        let reach = self.names[place].reach.as_ref();
        reach.is_some_and(|reach| reach.alone && reach.access.intersects(Access::REMOTE))
            && !self.holds_windows(place)
    }

    /// A place of `half`'s names that fulfils `wanted`.
    pub(crate) fn place(&self, rng: &mut Rng, wanted: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let places: Vec<usize> = (0..self.names.len()).filter(|place| wanted(self, *place)).collect();
        rng.choice(places)
    }

    /// `octets` octets of this half that its peer has the `right` to, by any name. `aligned`: where an
    /// integer can be.
    pub(crate) fn target(&self, rng: &mut Rng, right: Access, octets: usize, aligned: bool) -> Target {
        let inside = |range: &Range<usize>| {
            let first = if aligned { range.start.next_multiple_of(8) } else { range.start };
            (first + octets <= range.end).then(|| first..=range.end - octets)
        };
        let usable = |this: &Self, place: usize| {
            let reach = this.names[place].reach.as_ref();
            this.is_steady(place)
                && reach
                    .is_some_and(|reach| reach.access.contains(right) && inside(&reach.span.range).is_some())
        };
        // The others are few among many.
        let other = if rng.bool() { None } else { self.place(rng, usable) };
        let place = other.unwrap_or(SHARED);
        let named = &self.names[place];
        let reach = named.reach.as_ref().expect("it is usable");
        let starts = inside(&reach.span.range).expect("it is usable");
        let mut start = rng.usize(starts.clone());
        if aligned {
            // Often the same range, so that one access observes the effects of another.
            start = if rng.bool() { (starts.start() + 8 * rng.usize(..4)).min(*starts.end()) } else { start }
                & !7;
        }
        let to = reach.base_to + (start - reach.span.range.start) as u64;
        let span = Span { area: reach.span.area, range: start..start + octets };
        Target { span, stag: named.stag, to, place }
    }
}
