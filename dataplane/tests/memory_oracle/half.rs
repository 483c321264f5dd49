//! One half of a connection in the model: plain memory, and the expected completions of its queues.

use std::collections::VecDeque;

use fastrand::Rng;
use warpline_dataplane::memory::{Access, Grant, STag};
use warpline_dataplane::qp::work::{CompletionKind, Slice, Status};

use super::grants::{Named, Reach, WINDOWS, What};
use super::hazards::{Area, Span, Touches};
use super::memory::{Memory, PD, region_of};
use super::receives::{DueReceive, Receive, pieces};
use super::stack::World;

const AREA_OCTETS: usize = 32 * 1024;
/// Memory whose STag may be invalidated.
const DISPOSABLES: u8 = 4;
const DISPOSABLE_OCTETS: usize = 1024;
/// The inbox holds this many short slots, and after them as many long ones as fit.
const SHORT_SLOTS: usize = 16;
const SHORT_OCTETS: usize = 512;
const LONG_OCTETS: usize = 6 * 1024;

/// How a send request is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Completed, with this number of octets.
    Done(u32),
    /// By a fault of this end's own, in these words.
    Locally(Status),
}

/// A send request that is not complete.
#[derive(Debug)]
pub(crate) struct Due {
    pub id: u64,
    pub kind: CompletionKind,
    pub ends: Ends,
    /// Whether a success is reported.
    pub signaled: bool,
    pub touches: Touches,
}

/// One end's part of a connection.
pub(crate) struct Half {
    areas: Vec<(Area, Memory)>,
    /// Its grants to its peer.
    pub names: Vec<Named>,
    /// Send requests that are posted and not yet complete, in order.
    pub due: VecDeque<Due>,
    /// Receives that no message has been sent for.
    pub receives: VecDeque<Receive>,
    pub due_receives: VecDeque<DueReceive>,
    free_slots: Vec<usize>,
    /// Its receives are those that are shared.
    pub shares: bool,
    /// The youngest of those that it took, and how many it took.
    pub last_shared: u64,
    pub shared_taken: u64,
    /// The octets received of a message that uses one of those and is never Delivered.
    pub begun: Option<Vec<u8>>,
    pub next_id: u64,
    /// It has failed, or its peer has: nothing more is posted.
    pub over: bool,
    /// A request of a stream that ends has failed.
    pub failed: bool,
    /// Its connection was cut off with work outstanding: how much of that was carried out is open.
    pub cut_off: bool,
    /// Its host has started again since, and knows nothing of it.
    pub gone: bool,
}

impl Half {
    /// Memory and names of `side` of the connection `number`, all registered.
    pub(crate) fn new(rng: &mut Rng, world: &mut impl World, number: usize, side: usize) -> Self {
        let host = world.host_of(number, side);
        let mut kinds = vec![
            (Area::Source, AREA_OCTETS, Access::empty()),
            (Area::Shared, AREA_OCTETS, Access::all()),
            (Area::Sink, AREA_OCTETS, Access::LOCAL_WRITE),
            (Area::Inbox, AREA_OCTETS, Access::LOCAL_WRITE),
        ];
        kinds.extend((0..DISPOSABLES).map(|n| {
            // One on which windows can be bound that change octets, one for windows that do not, and two for
            // none.
            let access =
                [Access::all(), Access::REMOTE | Access::WINDOW_BIND, Access::REMOTE, Access::REMOTE_WRITE];
            (Area::Disposable(n), DISPOSABLE_OCTETS, access[usize::from(n)])
        }));
        let (mut areas, mut names) = (Vec::new(), Vec::new());
        for (area, octets, access) in kinds {
            let mut content = vec![0; octets];
            rng.fill(&mut content);
            // A peer may invalidate only a registration that is for its stream alone (RDMAP-8.1.1-02).
            let alone = matches!(area, Area::Disposable(_));
            let stream = alone.then_some(world.qp(number, side).number.0);
            let region = region_of(&content);
            let grant = Grant { stream, ..Grant::new(region.clone(), PD, 0, access) };
            let stag = world.register(rng, host, grant);
            if alone || area == Area::Shared {
                let reach = Reach { span: Span { area, range: 0..octets }, base_to: 0, access, alone };
                names.push(Named::new(What::Registration(area, access), stag, Some(reach)));
            }
            areas.push((area, Memory::new(stag, region, content)));
        }
        for _ in 0..WINDOWS {
            let stag = world.allocate_window(rng, host);
            names.push(Named::new(What::Window(None), stag, None));
        }
        let slots = SHORT_SLOTS + (AREA_OCTETS - SHORT_SLOTS * SHORT_OCTETS) / LONG_OCTETS;
        Self {
            areas,
            names,
            due: VecDeque::new(),
            receives: VecDeque::new(),
            due_receives: VecDeque::new(),
            free_slots: (0..slots).collect(),
            shares: world.qp(number, side).shares_receives(),
            last_shared: 0,
            shared_taken: 0,
            begun: None,
            next_id: 1,
            over: false,
            failed: false,
            cut_off: false,
            gone: false,
        }
    }

    pub(crate) fn memory(&self, area: Area) -> &Memory {
        &self.areas.iter().find(|(name, _)| *name == area).expect("every half has every area").1
    }

    pub(crate) fn memory_mut(&mut self, area: Area) -> &mut Memory {
        &mut self.areas.iter_mut().find(|(name, _)| *name == area).expect("every half has every area").1
    }

    /// The octets of `spans`, one after the other.
    pub(crate) fn gather(&self, spans: &[Span]) -> Vec<u8> {
        spans.iter().flat_map(|span| self.memory(span.area).content[span.range.clone()].to_vec()).collect()
    }

    /// Writes `octets` to `spans` of one area, one after the other, as far as there are octets.
    pub(crate) fn scatter(&mut self, spans: &[Span], octets: &[u8]) {
        if let Some(first) = spans.first() {
            self.memory_mut(first.area).scatter(spans, octets);
        }
    }

    /// How the stack names `span`.
    pub(crate) fn slice(&self, span: &Span) -> Slice {
        let octets = span.range.len() as u32;
        Slice { stag: self.memory(span.area).stag, to: span.range.start as u64, len: octets }
    }

    /// A range of `octets` octets somewhere in `area`.
    pub(crate) fn span(&self, rng: &mut Rng, area: Area, octets: usize) -> Span {
        let start = rng.usize(0..=self.memory(area).content.len() - octets);
        Span { area, range: start..start + octets }
    }

    /// The next request's name.
    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A receive into a slot of its own, in pieces of any order; `None` when all slots are in use.
    pub(crate) fn receive(&mut self, rng: &mut Rng) -> Option<Receive> {
        if self.free_slots.is_empty() {
            return None;
        }
        let slot = self.free_slots.swap_remove(rng.usize(..self.free_slots.len()));
        let (start, octets) = match slot.checked_sub(SHORT_SLOTS) {
            None => (slot * SHORT_OCTETS, SHORT_OCTETS),
            Some(long) => (SHORT_SLOTS * SHORT_OCTETS + long * LONG_OCTETS, LONG_OCTETS),
        };
        let pieces = pieces(rng, start..start + octets, octets / 2);
        Some(Receive { id: self.id(), slot, pieces })
    }

    /// Frees the slot of a receive that is complete.
    pub(crate) fn release(&mut self, receive: &Receive) {
        self.free_slots.push(receive.slot);
    }

    /// Asserts that all memory matches the model.
    #[track_caller]
    pub(crate) fn expect_memory(&self, what: &str) {
        for (area, memory) in &self.areas {
            if self.cut_off {
                memory.expect_any(&format!("{what}, {area:?}"));
            } else {
                memory.expect_all(&format!("{what}, {area:?}"));
            }
        }
    }

    /// All requests so far have been carried out.
    pub(crate) fn settle(&mut self) {
        self.areas.iter_mut().for_each(|(_, memory)| memory.settle());
    }

    /// Returns the first name and the present one of all windows, and of all registrations after them.
    pub(crate) fn all_names(&self) -> Vec<[STag; 2]> {
        let windows = self.names.iter().filter(|named| named.is_window());
        windows.map(|named| [named.first, named.stag]).chain(self.registrations()).collect()
    }

    /// Returns the first name and the present one of all registrations.
    pub(crate) fn registrations(&self) -> impl Iterator<Item = [STag; 2]> {
        self.areas.iter().map(|(area, memory)| {
            let is_it = |named: &&Named| matches!(named.what, What::Registration(of, _) if of == *area);
            let named = self.names.iter().find(is_it);
            [memory.stag, named.map_or(memory.stag, |named| named.stag)]
        })
    }

    /// The memory that was first named `first` is its application's again, which writes to all of it: nothing
    /// changes that any more.
    pub(crate) fn take_back(&mut self, rng: &mut Rng, first: STag) {
        let (_, memory) = self.areas.iter_mut().find(|(_, memory)| memory.stag == first).expect("it has it");
        memory.overwrite(rng);
    }
}
