//! Requests that must be refused because of the peer's grants or of this end's memory, and the expected
//! errors.

use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::memory::{Access, Binding, FastRegistration, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::work::{Operation, Payload, Slice, SliceList, Status};
use warpline_dataplane::rdmap::RdmapError;

use super::grants::{Named, Refusal, SHARED, What};
use super::half::Half;
use super::hazards::Area;
use super::play::{NOWHERE, Play};
use super::stack::World;

/// A request, its local payload, and the error that it causes.
pub(super) type Fault = (Operation, Payload, StreamError);

/// How RFC 5041 §7.2 numbers it, of a Write; a right that is not there has the number of an STag that is not
///
const fn of_write(refusal: Refusal) -> StreamError {
    match refusal {
        Refusal::Invalid => StreamError::Ddp(DdpError::InvalidStag),
        Refusal::NotAssociated => StreamError::Ddp(DdpError::NotAssociated),
        Refusal::Rights => StreamError::Ddp(DdpError::AccessRights),
        Refusal::Wrap => StreamError::Ddp(DdpError::ToWrap),
        Refusal::Bounds => StreamError::Ddp(DdpError::BaseOrBounds),
    }
}

/// The number in RFC 5040 §4.8 of the refusal of a request for octets.
const fn of_request(refusal: Refusal) -> StreamError {
    StreamError::Rdmap(match refusal {
        Refusal::Invalid => RdmapError::InvalidStag,
        Refusal::NotAssociated => RdmapError::NotAssociated,
        Refusal::Rights => RdmapError::AccessRights,
        Refusal::Wrap => RdmapError::ToWrap,
        Refusal::Bounds => RdmapError::BaseOrBounds,
    })
}

impl<W: World> Play<W> {
    /// A request by one of the peer's names, of this connection or another, that the name does not allow.
    pub(crate) fn fault_through(&mut self, number: usize, side: usize) -> Option<Fault> {
        // Few are none at all, so that one of these is found.
        (0..20).find_map(|_| {
            let owner = if self.rng.u32(..3) == 0 { self.rng.usize(..self.halves.len()) } else { number };
            let half = &self.halves[owner][1 - side];
            let place = self.rng.usize(..half.names.len());
            // The name of another host's memory may be that of something here.
            let host = |number| self.world.host_of(number, 1 - side);
            let settled = !half.cut_off && half.is_steady(place);
            let known = host(owner) == host(number) && (owner == number || settled);
            let fault = if self.rng.u32(..4) == 0 {
                self.fault_of_invalidating(number, side, owner, place)
            } else {
                self.fault_of_reaching(number, side, owner, place)
            };
            fault.filter(|_| known)
        })
    }

    fn fault_of_reaching(&mut self, number: usize, side: usize, owner: usize, place: usize) -> Option<Fault> {
        let kind = self.rng.u32(..3);
        let (right, octets) =
            [(Access::REMOTE_WRITE, 16), (Access::REMOTE_READ, 16), (Access::REMOTE_ATOMIC, 8)]
                [kind as usize];
        let named = &self.halves[owner][1 - side].names[place];
        let (first, len) =
            named.reach.as_ref().map_or((0, 1), |reach| (reach.base_to, reach.span.range.len() as u64));
        let ends = [first.wrapping_sub(1), first, (first + len).wrapping_sub(octets - 1), u64::MAX - 7];
        let to = ends[self.rng.usize(..4)];
        let stag = named.former.filter(|_| self.rng.u32(..3) == 0).unwrap_or(named.stag);
        let refusal = named.refusal(stag, owner == number, right, to, octets as usize);
        let source = Slice { stag: self.halves[number][side].memory(Area::Source).stag, to: 7, len: 16 };
        let sink = self.sink(number, side, octets as u32);
        match kind {
            0 => Some((Operation::Write { stag, to }, source.into(), of_write(refusal?))),
            1 => Some((Operation::Read { stag, to }, sink.into(), of_request(refusal?))),
            _ => {
                let error = match refusal {
                    Some(refusal) => of_request(refusal),
                    // The alignment of the integer's memory counts, not that of its Tagged Offset.
                    // Requirements: RDMAPX-5-02
                    None if named.octet(to)? % 8 != 0 => StreamError::Rdmap(RdmapError::CatastrophicStream),
                    None => return None,
                };
                Some((Operation::FetchAdd { stag, to, add: 1, mask: 0 }, sink.into(), error))
            }
        }
    }

    /// A Send that invalidates an STag which the peer must not invalidate (RDMAP-8.1.1-02).
    fn fault_of_invalidating(
        &mut self,
        number: usize,
        side: usize,
        owner: usize,
        place: usize,
    ) -> Option<Fault> {
        self.room(number, side).filter(|octets| *octets >= 16)?;
        let half = &self.halves[owner][1 - side];
        let named = &half.names[place];
        let stag = named.former.filter(|_| self.rng.u32(..3) == 0).unwrap_or(named.stag);
        let on_it = |other: &Named| other.what == What::Window(Some(place));
        let bound = half.names.iter().any(|other| on_it(other) && other.reach.is_some());
        let may = named.reach.as_ref().is_some_and(|reach| {
            stag == named.stag && reach.alone && owner == number && reach.access.intersects(Access::REMOTE)
        });
        // Without a window it is granted; one that is not settled may or may not hold it.
        if may && !bound {
            return None;
        }
        let operation = Operation::Send { invalidate: Some(stag), solicited: false };
        let source = Slice { stag: self.halves[number][side].memory(Area::Source).stag, to: 7, len: 16 };
        Some((operation, source.into(), StreamError::Rdmap(RdmapError::CannotInvalidate)))
    }

    /// A request on memory of this end that is not registered, or must not be written: a Terminate is sent
    /// in its place.
    // Requirements: RDMAP-7.1-02
    pub(crate) fn local_fault(&mut self, number: usize, side: usize) -> (Operation, Payload, Status) {
        let changes = match self.rng.u32(..5) {
            0 => self.bad_bind(number, side),
            1 => self.bad_registration(number, side),
            2 => Some(self.bad_invalidation(number, side)),
            _ => None,
        };
        if let Some((operation, status)) = changes {
            return (operation, SliceList::default().into(), status);
        }
        let half = &self.halves[number][side];
        let source = half.memory(Area::Source);
        let len = source.content.len() as u64;
        let good = Slice { stag: source.stag, to: 0, len: 10 };
        let window = half.names.iter().find(|named| named.is_window() && named.reach.is_some());
        let bad = match self.rng.u32(..5) {
            0 => Slice { stag: NOWHERE, to: 0, len: 1 },
            1 => Slice { to: len - 5, len: 6, ..good },
            2 => Slice { to: u64::MAX, len: 1, ..good },
            3 => Slice { stag: STag(source.stag.0 ^ 0x1_0000), ..good },
            // For the peer, not for its owner.
            _ => window.map_or(Slice { stag: NOWHERE, ..good }, |named| {
                let to = named.reach.as_ref().map_or(0, |reach| reach.base_to);
                Slice { stag: named.stag, to, len: 1 }
            }),
        };
        let stag = self.halves[number][1 - side].memory(Area::Shared).stag;
        let list = |slices: &[Slice]| SliceList::try_from(slices).expect("two").into();
        let (operation, local) = match self.rng.u32(..4) {
            0 => (Operation::SEND, list(&[good, bad])),
            1 => (Operation::Write { stag, to: 0 }, list(&[bad, good])),
            2 => (Operation::Read { stag, to: 0 }, bad.into()),
            // Readable, and a Read would write it.
            _ => (Operation::Read { stag, to: 0 }, good.into()),
        };
        (operation, local, Status::LocalProtection)
    }

    /// A place for a failing request: mostly a closed one, where the fault alone causes the refusal.
    fn place_to_fail(&mut self, number: usize, side: usize, window: bool) -> Option<usize> {
        let half = &self.halves[number][side];
        let closed = |half: &Half, place: usize| {
            half.names[place].is_window() == window && half.names[place].reach.is_none()
        };
        let closed = if self.rng.u32(..5) > 0 { half.place(&mut self.rng, closed) } else { None };
        closed.or_else(|| half.place(&mut self.rng, |half, place| half.names[place].is_window() == window))
    }

    fn bad_bind(&mut self, number: usize, side: usize) -> Option<(Operation, Status)> {
        let place = self.place_to_fail(number, side, true)?;
        let half = &self.halves[number][side];
        let (named, shared) = (&half.names[place], &half.names[SHARED]);
        let window = named.another_stag(&mut self.rng);
        let (octets, access) = (half.memory(Area::Shared).content.len() as u64, Access::REMOTE_READ);
        let zero_based = self.rng.bool();
        let good = Binding { window, registration: shared.stag, to: 0, len: octets, access, zero_based };
        // One octet of another registration.
        let other = |registration, to| Binding { registration, to, len: 1, ..good };
        let open = |lacks: Access| {
            let mut reaches = half
                .names
                .iter()
                .filter(|named| !named.is_window())
                .filter_map(|named| Some((named.stag, named.reach.as_ref()?)));
            let (stag, reach) = reaches.find(|(_, reach)| !reach.access.intersects(lacks))?;
            Some(other(stag, reach.base_to))
        };
        let bad = match self.rng.u32(..11) {
            0 => Binding { to: 1, ..good },
            1 => Binding { len: 0, ..good },
            2 => Binding { to: u64::MAX, ..good },
            3 => Binding { window: named.stag, ..good },
            4 => Binding { window: half.memory(Area::Source).stag, ..good },
            5 => {
                let closed = half.names.iter().find(|named| !named.is_window() && named.reach.is_none());
                other(closed.map_or(NOWHERE, |named| named.stag), 0)
            }
            6 => Binding { access: Access::LOCAL_WRITE | access, ..good },
            7 => other(named.stag, 0),
            // A window that would let the peer write memory that its owner must not change.
            8 => Binding { access: Access::REMOTE_WRITE, ..open(Access::LOCAL_WRITE)? },
            _ if named.reach.is_some() => good,
            _ => open(Access::WINDOW_BIND)?,
        };
        Some((Operation::Bind(bad), Status::Bind))
    }

    fn bad_registration(&mut self, number: usize, side: usize) -> Option<(Operation, Status)> {
        let place = self.place_to_fail(number, side, false)?;
        let half = &self.halves[number][side];
        let named = &half.names[place];
        let What::Registration(area, allowed) = named.what else { return None };
        let stag = named.another_stag(&mut self.rng);
        let octets = half.memory(area).content.len() as u64;
        let good =
            FastRegistration { stag, offset: 0, len: octets, base_to: 0, access: allowed, all_streams: true };
        let bad = match self.rng.u32(..8) {
            0 => FastRegistration { offset: 1, ..good },
            1 => FastRegistration { len: 0, ..good },
            // The sum of exactly 2^64 wraps.
            2 => FastRegistration { base_to: u64::MAX - octets + 1, ..good },
            3 => FastRegistration { stag: named.stag, ..good },
            4 => FastRegistration { stag: half.names.last()?.stag, len: 1, ..good },
            5 | 6 if !allowed.is_all() => FastRegistration { access: Access::all(), ..good },
            _ if named.reach.is_some() => good,
            _ => FastRegistration { len: u64::MAX, ..good },
        };
        Some((Operation::Register(bad), Status::LocalProtection))
    }

    fn bad_invalidation(&mut self, number: usize, side: usize) -> (Operation, Status) {
        let half = &self.halves[number][side];
        let place = self.rng.usize(..half.names.len());
        let named = &half.names[place];
        let bound =
            half.names.iter().any(|other| other.what == What::Window(Some(place)) && other.reach.is_some());
        let stag = match named.former {
            _ if named.reach.is_none() || bound => named.stag,
            Some(former) => former,
            None => NOWHERE,
        };
        (Operation::LocalInvalidate { stag }, Status::LocalProtection)
    }
}
