//! Random work on the tables of three cores that share claims, beside a model that has one truth for each
//! slot: what it grants, to whom, and at which core. What other cores are to follow they follow at once.
//! After each step every stream reaches, by every name, at its core exactly what the model lets it reach.

use super::*;
use crate::memory::{Binding, FastRegistration, GrantChange, Invalidation, Reach};

const PD: ProtectionDomainId = ProtectionDomainId(1);
const CORES: usize = 3;
const STREAMS: usize = 4;
const SLOTS: usize = 4;
/// Slots from this one on are windows, those before registrations.
const WINDOWS: usize = 2;
const KEYS: u16 = 4;
const ALL: Access = Access::all();

/// What a slot grants.
#[derive(Clone, Copy, Debug)]
struct Granted {
    /// The core that has granted it alone; `None` for what the registration grants at every core.
    core: Option<usize>,
    stream: Option<usize>,
    /// The registration that a window is bound to.
    of: Option<usize>,
}

/// A slot that is in use.
#[derive(Clone, Debug)]
struct Entry {
    first: STag,
    /// The queue pair that it was registered for.
    exclusive: Option<usize>,
    key: u16,
    granted: Option<Granted>,
    /// How it was registered anew last, for all streams.
    anew: Option<GrantChange>,
    has: [bool; CORES],
}

impl Entry {
    /// Returns what it grants at `core`.
    fn granted_at(&self, core: usize) -> Option<Granted> {
        self.granted.filter(|granted| self.has[core] && granted.core.is_none_or(|at| at == core))
    }
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Destroyed,
    Idle,
    At(usize),
}

/// How often what the test is about has happened.
#[derive(Debug, Default)]
struct Seen {
    bound: usize,
    registered: usize,
    registered_at_all: usize,
    at_other_core: usize,
    followed: usize,
    held_elsewhere: usize,
    given_invalid: usize,
    forgotten: usize,
}

struct World {
    rng: fastrand::Rng,
    claims: Arc<Claims>,
    tables: Vec<StagTable>,
    slots: [Option<Entry>; SLOTS],
    streams: [Stream; STREAMS],
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> Self {
        let claims = Arc::new(Claims::new(SLOTS));
        let table = |core| StagTable::with_claims(SLOTS, claims.clone(), core as u8);
        Self {
            rng: fastrand::Rng::with_seed(seed),
            tables: (0..CORES).map(table).collect(),
            claims,
            slots: [const { None }; SLOTS],
            streams: [Stream::Destroyed; STREAMS],
            seen: Seen::default(),
        }
    }

    /// Returns a name of slot `slot`, mostly the one that it has.
    fn name(&mut self, slot: usize) -> STag {
        let current = self.slots[slot].as_ref().map_or(0, |entry| entry.key);
        let key = if self.rng.u8(..4) > 0 { current } else { self.rng.u16(..KEYS) };
        STag::new(slot as u16, key)
    }

    fn next_name(&mut self, slot: usize) -> STag {
        let stag = self.name(slot);
        stag.with_key((stag.key() + 1) % KEYS)
    }

    /// Assigns a name to a slot, as control does.
    fn assign(&mut self, slot: usize) {
        let stream = self.rng.usize(..STREAMS);
        let is_exclusive = slot < WINDOWS && self.streams[stream] != Stream::Destroyed && self.rng.bool();
        let exclusive = is_exclusive.then_some(stream);
        let first = STag::new(slot as u16, self.rng.u16(1..KEYS));
        let granted = (slot < WINDOWS).then_some(Granted { core: None, stream: exclusive, of: None });
        let entry = Entry { first, exclusive, key: first.key(), granted, anew: None, has: [false; CORES] };
        self.slots[slot].get_or_insert(entry);
    }

    fn give(&mut self, slot: usize, core: usize) {
        let Some(entry) = self.slots[slot].as_mut().filter(|entry| !entry.has[core]) else { return };
        entry.has[core] = true;
        let table = &mut self.tables[core];
        if slot >= WINDOWS {
            return assert_eq!(table.allocate_window(entry.first, PD), Ok(()));
        }
        let stream = entry.exclusive.map(|stream| stream as u32);
        let grant = Grant { stream, ..Grant::new(Region::heap(16).unwrap(), PD, 0, ALL) };
        assert_eq!(table.insert(entry.first, grant), Ok(()));
        if let Some(change) = &entry.anew {
            assert_eq!(table.follow(change), Ok(()));
        }
        self.seen.given_invalid += usize::from(entry.granted_at(core).is_none());
    }

    /// Takes a slot from all cores, as control does, unless windows are bound to it.
    fn forget(&mut self, slot: usize) {
        let Some(entry) = &self.slots[slot] else { return };
        let having: Vec<usize> = (0..CORES).filter(|core| entry.has[*core]).collect();
        let first = entry.first;
        for core in &having {
            let bound = self.has_windows(slot, *core);
            let expected = if bound { Err(RemoveError::WindowsBound) } else { Ok(()) };
            assert_eq!(self.tables[*core].check_unused(first), expected);
        }
        if having.iter().any(|core| self.has_windows(slot, *core)) {
            return;
        }
        for core in having {
            self.tables[core].revoke(first);
            assert_eq!(self.tables[core].remove(first), Ok(()));
        }
        self.claims.forget(first);
        self.slots[slot] = None;
        self.seen.forgotten += 1;
    }

    /// Returns true if a window is bound to registration `slot` at `core`.
    fn has_windows(&self, slot: usize, core: usize) -> bool {
        let granted = |entry: &Option<Entry>| entry.as_ref()?.granted_at(core);
        self.slots.iter().filter_map(granted).any(|granted| granted.of == Some(slot))
    }

    fn change_stream(&mut self, stream: usize, core: usize) {
        let number = stream as u32;
        match self.streams[stream] {
            Stream::Destroyed => self.streams[stream] = Stream::Idle,
            Stream::Idle if self.rng.u8(..4) > 0 => {
                self.tables[core].begin_stream(number);
                self.streams[stream] = Stream::At(core);
            }
            Stream::At(_) if self.rng.u8(..4) > 0 => {}
            // One without a core ends at any.
            state @ (Stream::Idle | Stream::At(_)) => {
                let core = if let Stream::At(home) = state { home } else { core };
                self.tables[core].end_stream(number);
                self.streams[stream] = Stream::Destroyed;
                for entry in self.slots.iter_mut().flatten() {
                    if entry.exclusive == Some(stream) {
                        self.claims.end_stream(entry.first);
                    }
                    entry.granted = entry.granted.filter(|granted| granted.stream != Some(stream));
                }
            }
        }
    }

    fn invalidate(&mut self, slot: usize, stream: usize, core: usize) {
        let stag = self.name(slot);
        let by = if self.rng.bool() { Invalidation::Local } else { Invalidation::Remote };
        let expected = self.model_invalidate(stag, stream, core, by);
        let who = Accessor { pd: PD, stream: stream as u32 };
        let real = self.tables[core].invalidate(stag, who, by);
        let entry = self.slots[slot].as_ref();
        assert_eq!(real.as_ref().map(drop).map_err(|error| *error), expected, "{stag:?} {entry:?}");
        if let (Ok(reach), Some(Entry { granted: Some(granted), .. })) = (real, entry) {
            self.seen.at_other_core += usize::from(granted.core.is_some_and(|holder| holder != core));
            self.follow(core, reach);
            self.slots[slot].as_mut().unwrap().granted = None;
        }
    }

    /// Has all cores that have the slot follow a change of `core`.
    fn follow(&mut self, core: usize, reach: Reach) -> Option<GrantChange> {
        let Reach::OtherCores(change) = reach else { return None };
        let entry = self.slots[change.stag.index()].as_ref().unwrap();
        assert_eq!(change.stag, entry.first);
        for other in (0..CORES).filter(|other| *other != core && entry.has[*other]) {
            assert_eq!(self.tables[other].follow(&change), Ok(()));
            self.seen.followed += 1;
        }
        Some(change)
    }

    fn model_invalidate(
        &self,
        stag: STag,
        stream: usize,
        core: usize,
        by: Invalidation,
    ) -> Result<(), InvalidationError> {
        let named = self.slots[stag.index()].as_ref().filter(|entry| entry.key == stag.key());
        let entry = named.filter(|entry| entry.has[core]).ok_or(InvalidationError::InvalidStag)?;
        let granted = entry.granted.ok_or(InvalidationError::InvalidStag)?;
        if entry.granted_at(core).is_none() && by == Invalidation::Remote {
            return Err(InvalidationError::InvalidStag);
        }
        let is_own = granted.stream == Some(stream);
        if by == Invalidation::Remote && !is_own {
            let is_shared = granted.stream.is_none();
            return Err(if is_shared { InvalidationError::Shared } else { InvalidationError::NotAssociated });
        }
        if (0..CORES).any(|core| self.has_windows(stag.index(), core)) {
            return Err(InvalidationError::WindowsBound);
        }
        Ok(())
    }

    /// Returns the slot of `name` if it can be granted anew at `core`.
    fn free_slot(&self, name: STag, core: usize) -> Result<&Entry, BindError> {
        let entry = self.slots[name.index()].as_ref().filter(|entry| entry.has[core] && name.0 != 0);
        match entry.ok_or(BindError::InvalidStag)? {
            entry if entry.key == name.key() => Err(BindError::KeyReused),
            entry if entry.granted.is_some() => Err(BindError::StillValid),
            entry => Ok(entry),
        }
    }

    fn bind(&mut self, slot: usize, stream: usize, core: usize) {
        let window = self.next_name(slot);
        let below = self.rng.usize(..WINDOWS);
        let registration = self.name(below);
        let expected = self.model_bind(window, registration, stream, core);
        let access = Access::REMOTE;
        let binding = Binding { window, registration, to: 0, len: 16, access, zero_based: false };
        let who = Accessor { pd: PD, stream: stream as u32 };
        assert_eq!(self.tables[core].bind(&binding, who), expected, "{binding:?}");
        self.seen.bound += usize::from(expected.is_ok());
        self.grant(window, expected, Granted { core: Some(core), stream: Some(stream), of: Some(below) });
    }

    fn model_bind(
        &self,
        window: STag,
        registration: STag,
        stream: usize,
        core: usize,
    ) -> Result<(), BindError> {
        self.free_slot(window, core)?;
        if window.index() < WINDOWS {
            return Err(BindError::InvalidStag);
        }
        let below = self.slots[registration.index()].as_ref().filter(|entry| entry.key == registration.key());
        let granted = below.and_then(|entry| entry.granted_at(core)).ok_or(BindError::InvalidStag)?;
        if granted.stream.is_some_and(|only| only != stream) {
            return Err(BindError::NotAssociated);
        }
        Ok(())
    }

    fn register(&mut self, slot: usize, stream: usize, core: usize) {
        let stag = self.next_name(slot);
        let all_streams = self.rng.bool();
        let expected = self.model_register(stag, core);
        let wanted = FastRegistration { stag, offset: 0, len: 16, base_to: 0, access: ALL, all_streams };
        let who = Accessor { pd: PD, stream: stream as u32 };
        let real = self.tables[core].register(&wanted, who);
        assert_eq!(real.as_ref().map(drop).map_err(|error| *error), expected, "{wanted:?}");
        let anew = real.ok().and_then(|reach| self.follow(core, reach));
        let (at, only) = if all_streams { (None, None) } else { (Some(core), Some(stream)) };
        self.grant(stag, expected, Granted { core: at, stream: only, of: None });
        match (expected, anew) {
            (Ok(()), None) => self.seen.registered += 1,
            (Ok(()), anew) => {
                self.seen.registered_at_all += 1;
                let entry = self.slots[stag.index()].as_mut().unwrap();
                // It ends with no stream any more.
                (entry.anew, entry.exclusive) = (anew, None);
            }
            (Err(_), _) => {}
        }
    }

    fn model_register(&self, stag: STag, core: usize) -> Result<(), BindError> {
        self.free_slot(stag, core)?;
        if stag.index() >= WINDOWS {
            return Err(BindError::InvalidStag);
        }
        assert!(!self.has_windows(stag.index(), core), "it could not be invalidated");
        Ok(())
    }

    /// Records what a work request has granted, or why it was refused.
    fn grant(&mut self, stag: STag, result: Result<(), BindError>, granted: Granted) {
        let Some(entry) = &mut self.slots[stag.index()] else { return };
        match result {
            Ok(()) => (entry.key, entry.granted) = (stag.key(), Some(granted)),
            Err(BindError::StillValid) => {
                let elsewhere =
                    entry.granted.is_some_and(|held| held.core.is_some() && held.core != granted.core);
                self.seen.held_elsewhere += usize::from(elsewhere);
            }
            Err(_) => {}
        }
    }

    fn step(&mut self) {
        let (slot, core) = (self.rng.usize(..SLOTS), self.rng.usize(..CORES));
        let stream = self.rng.usize(..STREAMS);
        match (self.rng.u8(..20), self.streams[stream]) {
            (0..2, _) => self.assign(slot),
            (2..6, _) => self.give(slot, core),
            (6, _) => self.forget(slot),
            (7..9, _) => self.change_stream(stream, core),
            (9..13, Stream::At(core)) => self.invalidate(slot, stream, core),
            (13..17, Stream::At(core)) => self.bind(slot, stream, core),
            (17.., Stream::At(core)) => self.register(slot, stream, core),
            _ => {}
        }
    }

    /// Checks what each stream reaches at its core, by every name.
    fn compare(&self) {
        let at_cores = self.streams.iter().enumerate().filter_map(|(stream, state)| match state {
            Stream::At(core) => Some((stream, *core)),
            Stream::Destroyed | Stream::Idle => None,
        });
        for (stream, core) in at_cores {
            let who = Accessor { pd: PD, stream: stream as u32 };
            for (slot, key) in (0..SLOTS).flat_map(|slot| (0..KEYS).map(move |key| (slot, key))) {
                let entry = self.slots[slot].as_ref().filter(|entry| entry.key == key);
                let granted = entry.and_then(|entry| entry.granted_at(core));
                let expected = match granted {
                    None => Err(AccessError::InvalidStag),
                    Some(Granted { stream: Some(only), .. }) if only != stream => {
                        Err(AccessError::NotAssociated)
                    }
                    Some(_) => Ok(()),
                };
                let stag = STag::new(slot as u16, key);
                let real = self.tables[core].check(stag, who, Access::REMOTE_READ, 0, 16).map(drop);
                // A copy that its stream has invalidated at its own core says that it is for that stream.
                let is_same = real == expected || real.is_err() && expected.is_err();
                assert!(is_same, "{real:?} instead of {expected:?}: {stag:?} at {core}, {entry:?}");
            }
        }
    }
}

/// Nothing is valid at two cores that only one may grant, nor at any core after it was invalidated or named
/// anew, and every refusal has its reason.
// Requirements: DDP-8.3-02, DDP-8.3.1-02, DDP-8.3.1-03
#[test]
fn the_cores_of_a_device_grant_as_one() {
    let mut total = [0; 8];
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..1000 {
            world.step();
            world.compare();
        }
        let Seen { bound, registered, registered_at_all, at_other_core, followed, .. } = world.seen;
        let Seen { held_elsewhere, given_invalid, forgotten, .. } = world.seen;
        let granted = [bound, registered, registered_at_all];
        let seen = [at_other_core, followed, held_elsewhere, given_invalid, forgotten];
        for (total, seen) in total.iter_mut().zip(granted.into_iter().chain(seen)) {
            *total += seen;
        }
    }
    assert!(total.iter().all(|seen| *seen > 100), "too little has happened: {total:?}");
}

const STAG: STag = STag::new(0, 1);
const WINDOW: STag = STag::new(2, 1);

fn two_cores() -> [StagTable; 2] {
    let claims = Arc::new(Claims::new(SLOTS));
    [0, 1].map(|core| StagTable::with_claims(SLOTS, claims.clone(), core))
}

const fn stream(stream: u32) -> Accessor {
    Accessor { pd: PD, stream }
}

fn is_valid(table: &StagTable, stag: STag, who: Accessor) -> bool {
    table.check(stag, who, Access::REMOTE_READ, 0, 16).is_ok()
}

fn grant() -> Grant {
    Grant::new(Region::heap(16).unwrap(), PD, 0, ALL)
}

/// Invalidates by a work request of `who`. Returns what other cores are to follow.
fn invalidate(table: &mut StagTable, stag: STag, who: Accessor) -> Option<GrantChange> {
    match table.invalidate(stag, who, Invalidation::Local).unwrap() {
        Reach::ThisCore => None,
        Reach::OtherCores(change) => Some(change),
    }
}

/// A registration that one core has given another name comes to the next core invalid, and can be registered
/// there once it is free.
#[test]
fn a_core_gets_nothing_that_was_invalidated() {
    let [mut a, mut b] = two_cores();
    a.insert(STAG, grant()).unwrap();
    assert!(invalidate(&mut a, STAG, stream(0)).is_none());
    let anew = |key| FastRegistration {
        stag: STAG.with_key(key),
        offset: 0,
        len: 16,
        base_to: 0,
        access: ALL,
        all_streams: false,
    };
    assert!(matches!(a.register(&anew(2), stream(0)), Ok(Reach::ThisCore)));
    b.insert(STAG, grant()).unwrap();
    assert!(!is_valid(&b, STAG, stream(1)) && !is_valid(&b, STAG.with_key(2), stream(1)));
    assert_eq!(b.register(&anew(3), stream(1)).unwrap_err(), BindError::StillValid);
    // Its peer cannot invalidate what is not for it, and its owner can.
    let by_peer = b.invalidate(STAG.with_key(2), stream(1), Invalidation::Remote);
    assert_eq!(by_peer.unwrap_err(), InvalidationError::InvalidStag);
    let change = invalidate(&mut b, STAG.with_key(2), stream(1)).expect("core 0 has it valid");
    assert!(is_valid(&a, STAG.with_key(2), stream(0)));
    a.follow(&change).unwrap();
    assert!(!is_valid(&a, STAG.with_key(2), stream(0)));
    assert_eq!(b.register(&anew(2), stream(1)).unwrap_err(), BindError::KeyReused);
    assert!(b.register(&anew(3), stream(1)).is_ok());
    assert!(is_valid(&b, STAG.with_key(3), stream(1)) && !is_valid(&a, STAG.with_key(3), stream(1)));
}

/// What all streams of a domain use is invalid at another core when that has followed. An owner that
/// invalidates it a second time meanwhile waits for that too.
#[test]
fn an_invalidation_reaches_the_other_core() {
    let [mut a, mut b] = two_cores();
    for table in [&mut a, &mut b] {
        table.insert(STAG, grant()).unwrap();
    }
    let claims = b.claims.clone().unwrap();
    let change = invalidate(&mut a, STAG, stream(0)).expect("core 1 has it");
    assert!(!is_valid(&a, STAG, stream(0)) && is_valid(&b, STAG, stream(1)));
    assert_eq!(claims.release(STAG, false), Ok(true), "core 1 has it valid still");
    b.follow(&change).unwrap();
    assert!(!is_valid(&b, STAG, stream(1)));
    // It is the last of what there is to do.
    b.follow(&change).unwrap();
    b.remove(STAG).unwrap();
    b.follow(&change).unwrap();
}

/// A window that is bound at one core keeps the memory below it from being invalidated at another.
#[test]
fn a_window_at_one_core_keeps_its_memory_at_all() {
    let [mut a, mut b] = two_cores();
    for table in [&mut a, &mut b] {
        table.insert(STAG, grant()).unwrap();
        table.allocate_window(WINDOW, PD).unwrap();
    }
    let window = WINDOW.with_key(2);
    let (access, zero_based) = (Access::REMOTE, false);
    let binding = Binding { window, registration: STAG, to: 0, len: 16, access, zero_based };
    a.bind(&binding, stream(0)).unwrap();
    let refused = b.invalidate(STAG, stream(1), Invalidation::Local);
    assert_eq!(refused.unwrap_err(), InvalidationError::WindowsBound);
    // A refused binding counts for nothing.
    let other = Binding { window: WINDOW.with_key(3), ..binding };
    assert_eq!(b.bind(&other, stream(1)), Err(BindError::StillValid));
    let change = invalidate(&mut b, window, stream(1)).expect("core 0 has bound it");
    assert!(is_valid(&a, window, stream(0)));
    a.follow(&change).unwrap();
    assert!(!is_valid(&a, window, stream(0)));
    assert!(invalidate(&mut b, STAG, stream(1)).is_some());
}

/// A window that another core has invalidated is bound to its memory until its own core has unbound it: that
/// does not go meanwhile, and the window is not bound anew.
#[test]
fn a_window_is_unbound_where_it_was_bound() {
    let claims = Arc::new(Claims::new(1 << 16));
    let [mut a, mut b] = [0, 1].map(|core| StagTable::with_claims(1 << 16, claims.clone(), core));
    // The last slot that there can be.
    let memory = STag::new(u16::MAX, 1);
    for table in [&mut a, &mut b] {
        table.insert(memory, grant()).unwrap();
        table.allocate_window(WINDOW, PD).unwrap();
    }
    let window = WINDOW.with_key(2);
    let (access, zero_based) = (Access::REMOTE, false);
    let binding = Binding { window, registration: memory, to: 0, len: 16, access, zero_based };
    a.bind(&binding, stream(0)).unwrap();
    a.retain(window);
    let change = invalidate(&mut b, window, stream(1)).expect("core 0 has bound it");
    a.follow(&change).unwrap();
    let anew = Binding { window: WINDOW.with_key(3), ..binding };
    for _ in 0..2 {
        assert_eq!(a.remove(memory), Err(RemoveError::WindowsBound));
        let refused = b.invalidate(memory, stream(1), Invalidation::Local);
        assert_eq!(refused.unwrap_err(), InvalidationError::WindowsBound);
        assert_eq!(b.bind(&anew, stream(1)), Err(BindError::InUse));
    }
    // What reads by it ends.
    a.release(window);
    b.bind(&anew, stream(1)).unwrap();
    assert!(a.remove(memory).is_ok() && b.remove(memory) == Err(RemoveError::WindowsBound));
    assert!(invalidate(&mut b, WINDOW.with_key(3), stream(1)).is_none());
    assert!(invalidate(&mut b, memory, stream(1)).is_some());
}

/// Memory that control takes back from a core does not become valid there when another registers it anew.
#[test]
fn a_revoked_slot_follows_nothing() {
    let [mut a, mut b] = two_cores();
    for table in [&mut a, &mut b] {
        table.insert(STAG, grant()).unwrap();
    }
    let change = invalidate(&mut a, STAG, stream(0)).unwrap();
    b.follow(&change).unwrap();
    b.revoke(STAG);
    let stag = STAG.with_key(2);
    let anew = FastRegistration { stag, offset: 0, len: 16, base_to: 0, access: ALL, all_streams: true };
    let Ok(Reach::OtherCores(change)) = a.register(&anew, stream(0)) else { panic!("core 1 has it") };
    b.follow(&change).unwrap();
    assert!(is_valid(&a, stag, stream(0)) && !is_valid(&b, stag, stream(1)));
}

/// The next queue pair with the number of one that has ended at another core does not have its memory.
// Requirements: DDP-8.3.1-03
#[test]
fn a_number_begins_without_the_grants_of_its_last_stream() {
    let [mut a, mut b] = two_cores();
    for table in [&mut a, &mut b] {
        table.insert(STAG, Grant { stream: Some(7), ..grant() }).unwrap();
    }
    a.begin_stream(7);
    assert!(is_valid(&a, STAG, stream(7)));
    a.end_stream(7);
    b.begin_stream(7);
    assert!(!is_valid(&b, STAG, stream(7)));
    let window = |key| Binding {
        window: WINDOW.with_key(key),
        registration: STAG,
        to: 0,
        len: 16,
        access: Access::REMOTE,
        zero_based: false,
    };
    b.allocate_window(WINDOW, PD).unwrap();
    assert_eq!(b.bind(&window(2), stream(7)), Err(BindError::InvalidStag));
}

/// A window that is bound at one core is bound at another after it was invalidated, and not before.
#[test]
fn a_window_is_bound_at_one_core_at_a_time() {
    let [mut a, mut b] = two_cores();
    for table in [&mut a, &mut b] {
        table.insert(STAG, grant()).unwrap();
        table.allocate_window(WINDOW, PD).unwrap();
    }
    let window = |key| Binding {
        window: WINDOW.with_key(key),
        registration: STAG,
        to: 0,
        len: 16,
        access: Access::REMOTE,
        zero_based: false,
    };
    a.bind(&window(2), stream(0)).unwrap();
    assert_eq!(b.bind(&window(3), stream(1)), Err(BindError::StillValid));
    let invalidated = a.invalidate(WINDOW.with_key(2), stream(0), Invalidation::Remote);
    assert!(matches!(invalidated, Ok(Reach::ThisCore)));
    assert_eq!(b.bind(&window(3), stream(1)), Ok(()));
    assert!(is_valid(&b, WINDOW.with_key(3), stream(1)) && !is_valid(&a, WINDOW.with_key(3), stream(1)));
    b.end_stream(1);
    assert_eq!(a.bind(&window(4), stream(0)), Ok(()));
    // By a name of before it is closed at the other core, which has to follow.
    let Ok(Reach::OtherCores(change)) = b.unbind(WINDOW, stream(1)) else { panic!("core 0 has it bound") };
    a.follow(&change).unwrap();
    assert!(!is_valid(&a, WINDOW.with_key(4), stream(0)));
    assert!(matches!(b.unbind(WINDOW, stream(1)), Ok(Reach::ThisCore)));
    assert_eq!(b.bind(&window(5), stream(1)), Ok(()));
}
