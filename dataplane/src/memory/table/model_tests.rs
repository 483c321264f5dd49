//! Random work on the table, beside a model of it that counts nothing and looks everything up: after each
//! step both give the same answer, and every access by every name is allowed by both, to the same octet, or
//! refused by both for the same reason.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::memory::{Binding, FastRegistration, Invalidation, Reach};

const SLOTS: u16 = 4;
/// Of these, the ones that are mostly registrations, and those that are mostly windows.
const REGISTRATIONS: Range<u16> = 0..2;
const WINDOWS: Range<u16> = 2..SLOTS;
const KEYS: u16 = 3;
const OCTETS: u64 = 16;
/// Stands for the key that the slot has by then.
const CURRENT: u16 = 100;
/// Stands for a key that it does not have.
const NEXT: u16 = 101;
/// Stands for the key it was given first.
const FIRST: u16 = 102;

/// The memory of each slot, so that one that reaches another's is found out.
static REGIONS: LazyLock<Vec<Region>> =
    LazyLock::new(|| (0..SLOTS).map(|_| Region::heap(OCTETS as usize).unwrap()).collect());

#[derive(Clone, Debug)]
enum Step {
    Insert { stag: STag, who: Accessor, exclusive: bool, base_to: u64, access: Access },
    AllocateWindow { stag: STag, who: Accessor },
    Remove { stag: STag },
    Invalidate { stag: STag, who: Accessor, by: Invalidation },
    Bind { binding: Binding, who: Accessor },
    Register { wanted: FastRegistration, who: Accessor },
    Retain { stag: STag },
    Release { stag: STag },
    EndStream { stream: u32 },
}

/// An STag of one of `slots`; mostly with the key that `usual` stands for.
fn stags(slots: Range<u16>, usual: u16) -> impl Strategy<Value = STag> {
    // Any other slot now and then: a window where a registration should be.
    let slots = prop_oneof![9 => slots, 1 => 0..SLOTS];
    (slots, prop_oneof![4 => Just(usual), 1 => 0..KEYS]).prop_map(|(index, key)| STag::new(index, key))
}

fn accessors() -> impl Strategy<Value = Accessor> {
    // Mostly of one domain: otherwise little is ever allowed.
    (prop_oneof![9 => Just(1), 1 => Just(2)], 0..2_u32)
        .prop_map(|(pd, stream)| Accessor { pd: ProtectionDomainId(pd), stream })
}

fn accesses() -> impl Strategy<Value = Access> {
    prop_oneof![2 => Just(Access::all()), 1 => (0..32_u8).prop_map(Access::from_bits_truncate)]
}

fn remote_accesses() -> impl Strategy<Value = Access> {
    prop_oneof![9 => accesses().prop_map(|access| access & Access::REMOTE), 1 => accesses()]
}

fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 4 => 0..OCTETS, 1 => u64::MAX - OCTETS - 1..=u64::MAX]
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..OCTETS / 4, 1 => Just(OCTETS), 1 => u64::MAX - 1..=u64::MAX]
}

fn steps() -> impl Strategy<Value = Step> {
    let by = prop_oneof![Just(Invalidation::Local), Just(Invalidation::Remote)];
    let binding = (
        stags(WINDOWS, NEXT),
        stags(REGISTRATIONS, CURRENT),
        offsets(),
        lengths(),
        remote_accesses(),
        any::<bool>(),
    )
        .prop_map(|(window, registration, to, octets, access, zero_based)| Binding {
            window,
            registration,
            to,
            len: octets,
            access,
            zero_based,
        });
    let wanted = (stags(REGISTRATIONS, NEXT), offsets(), lengths(), offsets(), accesses(), any::<bool>())
        .prop_map(|(stag, offset, octets, base_to, access, all_streams)| FastRegistration {
            stag,
            offset,
            len: octets,
            base_to,
            access,
            all_streams,
        });
    prop_oneof![
        3 => (stags(REGISTRATIONS, NEXT), accessors(), any::<bool>(), offsets(), accesses()).prop_map(
            |(stag, who, exclusive, base_to, access)| Step::Insert { stag, who, exclusive, base_to, access }
        ),
        2 => (stags(WINDOWS, NEXT), accessors()).prop_map(|(stag, who)| Step::AllocateWindow { stag, who }),
        2 => stags(0..SLOTS, FIRST).prop_map(|stag| Step::Remove { stag }),
        5 => (stags(0..SLOTS, CURRENT), accessors(), by)
            .prop_map(|(stag, who, by)| Step::Invalidate { stag, who, by }),
        6 => (binding, accessors()).prop_map(|(binding, who)| Step::Bind { binding, who }),
        4 => (wanted, accessors()).prop_map(|(wanted, who)| Step::Register { wanted, who }),
        3 => stags(0..SLOTS, CURRENT).prop_map(|stag| Step::Retain { stag }),
        3 => stags(0..SLOTS, CURRENT).prop_map(|stag| Step::Release { stag }),
        1 => (0..2_u32).prop_map(|stream| Step::EndStream { stream }),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    /// Whose memory.
    memory: u16,
    start: u64,
    octets: u64,
    base_to: u64,
    access: Access,
    stream: Option<u32>,
}

impl Granted {
    /// Where in the memory `octets` octets at `to` lie.
    fn place(&self, to: u64, octets: u64) -> Result<u64, AccessError> {
        let end = u128::from(to) + u128::from(octets);
        if end >= 1 << 64 {
            return Err(AccessError::Wrap);
        }
        let inside = to >= self.base_to && end <= u128::from(self.base_to) + u128::from(self.octets);
        if inside { Ok(self.start + (to - self.base_to)) } else { Err(AccessError::Bounds) }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    first_key: u16,
    key: u16,
    pd: ProtectionDomainId,
    window: bool,
    allowed: Access,
    valid: bool,
    granted: Option<Granted>,
    readers: u32,
}

impl Entry {
    fn is_for(&self, who: Accessor) -> bool {
        let stream = self.granted.and_then(|granted| granted.stream);
        self.pd == who.pd && (stream.is_none() || stream == Some(who.stream))
    }
}

#[derive(Default)]
struct Model(BTreeMap<u16, Entry>);

fn index(stag: STag) -> u16 {
    stag.index() as u16
}

/// Whether `base_to + octets` is 2^64 or more.
fn wraps(base_to: u64, octets: u64) -> bool {
    u128::from(base_to) + u128::from(octets) >= 1 << 64
}

impl Model {
    /// `stag` with the key that its own stands for.
    fn resolve(&self, stag: STag) -> STag {
        let entry = self.0.get(&index(stag));
        let current = entry.map_or(0, |entry| entry.key);
        match stag.key() {
            CURRENT => stag.with_key(current),
            NEXT => stag.with_key((current + 1) % KEYS),
            FIRST => stag.with_key(entry.map_or(0, |entry| entry.first_key)),
            _ => stag,
        }
    }

    fn named(&self, stag: STag) -> Option<&Entry> {
        self.0.get(&index(stag)).filter(|entry| entry.key == stag.key())
    }

    fn valid(&self, stag: STag) -> Option<(&Entry, Granted)> {
        let entry = self.named(stag).filter(|entry| entry.valid)?;
        Some((entry, entry.granted?))
    }

    /// Whether a window reaches the memory of slot `of`, or still has to be read by.
    fn has_windows(&self, of: u16) -> bool {
        self.0.values().any(|entry| {
            let reaches = entry.granted.is_some_and(|granted| granted.memory == of);
            entry.window && reaches && (entry.valid || entry.readers > 0)
        })
    }

    fn take(&mut self, stag: STag, who: Accessor, window: bool, allowed: Access) -> Result<(), InsertError> {
        if stag.0 == 0 || self.0.contains_key(&index(stag)) {
            return Err(InsertError::NoSlot);
        }
        let (key, pd) = (stag.key(), who.pd);
        let entry =
            Entry { first_key: key, key, pd, window, allowed, valid: false, granted: None, readers: 0 };
        self.0.insert(index(stag), entry);
        Ok(())
    }

    fn grant(&mut self, stag: STag, granted: Granted) {
        let entry = self.0.get_mut(&index(stag)).unwrap();
        (entry.key, entry.valid, entry.granted) = (stag.key(), true, Some(granted));
    }

    fn remove(&mut self, stag: STag) -> Result<(), RemoveError> {
        match self.0.get(&index(stag)) {
            Some(entry) if entry.first_key == stag.key() => {
                if entry.readers > 0 {
                    return Err(RemoveError::InUse);
                }
                if !entry.window && self.has_windows(index(stag)) {
                    return Err(RemoveError::WindowsBound);
                }
                self.0.remove(&index(stag));
                Ok(())
            }
            _ => Err(RemoveError::Unknown),
        }
    }

    fn invalidate(&mut self, stag: STag, who: Accessor, by: Invalidation) -> Result<(), InvalidationError> {
        let (entry, granted) = self.valid(stag).ok_or(InvalidationError::InvalidStag)?;
        if entry.pd != who.pd {
            return Err(InvalidationError::NotAssociated);
        }
        if by == Invalidation::Remote {
            let stream = granted.stream.ok_or(InvalidationError::Shared)?;
            if stream != who.stream {
                return Err(InvalidationError::NotAssociated);
            }
            if !granted.access.intersects(Access::REMOTE) {
                return Err(InvalidationError::Rights);
            }
        }
        if !entry.window && self.has_windows(index(stag)) {
            return Err(InvalidationError::WindowsBound);
        }
        self.0.get_mut(&index(stag)).unwrap().valid = false;
        Ok(())
    }

    fn renamed(&self, name: STag, who: Accessor) -> Result<&Entry, BindError> {
        let entry = self.0.get(&index(name)).filter(|_| name.0 != 0).ok_or(BindError::InvalidStag)?;
        match entry {
            _ if entry.pd != who.pd => Err(BindError::NotAssociated),
            _ if entry.key == name.key() => Err(BindError::KeyReused),
            Entry { valid: true, .. } => Err(BindError::StillValid),
            Entry { readers: 1.., .. } => Err(BindError::InUse),
            _ => Ok(entry),
        }
    }

    fn bind(&mut self, binding: &Binding, who: Accessor) -> Result<(), BindError> {
        let window = self.renamed(binding.window, who)?;
        let (below, whole) = self.valid(binding.registration).ok_or(BindError::InvalidStag)?;
        if !window.window || below.window {
            return Err(BindError::InvalidStag);
        }
        if !below.is_for(who) {
            return Err(BindError::NotAssociated);
        }
        let changes =
            binding.access.contains(Access::REMOTE_WRITE) || binding.access.contains(Access::REMOTE_ATOMIC);
        if binding.access.intersects(Access::LOCAL_WRITE | Access::WINDOW_BIND)
            || !whole.access.contains(Access::WINDOW_BIND)
            || changes && !whole.access.contains(Access::LOCAL_WRITE)
        {
            return Err(BindError::Rights);
        }
        let start = match whole.place(binding.to, binding.len) {
            Err(AccessError::Wrap) => return Err(BindError::Wrap),
            Err(_) => return Err(BindError::Bounds),
            Ok(_) if binding.len == 0 => return Err(BindError::Bounds),
            Ok(start) => start,
        };
        let granted = Granted {
            memory: whole.memory,
            start,
            octets: binding.len,
            base_to: if binding.zero_based { 0 } else { binding.to },
            access: binding.access,
            stream: Some(who.stream),
        };
        self.grant(binding.window, granted);
        Ok(())
    }

    fn register(&mut self, wanted: &FastRegistration, who: Accessor) -> Result<(), BindError> {
        let entry = self.renamed(wanted.stag, who)?;
        if entry.window {
            return Err(BindError::InvalidStag);
        }
        if self.has_windows(index(wanted.stag)) {
            return Err(BindError::WindowsBound);
        }
        if !entry.allowed.contains(wanted.access) {
            return Err(BindError::Rights);
        }
        if wraps(wanted.base_to, wanted.len) {
            return Err(BindError::Wrap);
        }
        let end = u128::from(wanted.offset) + u128::from(wanted.len);
        if wanted.len == 0 || end > u128::from(OCTETS) {
            return Err(BindError::Bounds);
        }
        let granted = Granted {
            memory: index(wanted.stag),
            start: wanted.offset,
            octets: wanted.len,
            base_to: wanted.base_to,
            access: wanted.access,
            stream: (!wanted.all_streams).then_some(who.stream),
        };
        self.grant(wanted.stag, granted);
        Ok(())
    }

    fn check(&self, stag: STag, who: Accessor, access: Access, to: u64, octets: u64) -> Answer {
        let (entry, granted) = self.valid(stag).ok_or(AccessError::InvalidStag)?;
        if !entry.is_for(who) {
            return Err(AccessError::NotAssociated);
        }
        let start = granted.place(to, octets)?;
        let remote = access.intersects(Access::REMOTE);
        if !granted.access.contains(access) || entry.window && !remote {
            return Err(AccessError::Rights);
        }
        Ok((granted.memory, start))
    }
}

/// The memory and the place in it.
type Answer = Result<(u16, u64), AccessError>;

fn found(target: Target<'_>) -> (u16, u64) {
    let (region, offset) = target.region();
    let memory = REGIONS.iter().position(|of| of.address() == region.address()).unwrap();
    (memory as u16, offset as u64)
}

fn take_step(table: &mut StagTable, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    match *step {
        Step::Insert { stag, who, exclusive, base_to, access } => {
            let stag = model.resolve(stag);
            let region = REGIONS[stag.index()].clone();
            let stream = exclusive.then_some(who.stream);
            let real = table.insert(stag, Grant { region, pd: who.pd, stream, base_to, access });
            let expected = if wraps(base_to, OCTETS) {
                Err(InsertError::Wrap)
            } else {
                model.take(stag, who, false, access).map(|()| {
                    let memory = index(stag);
                    let granted = Granted { memory, start: 0, octets: OCTETS, base_to, access, stream };
                    model.grant(stag, granted);
                })
            };
            prop_assert_eq!(real, expected);
        }
        Step::AllocateWindow { stag, who } => {
            let stag = model.resolve(stag);
            let expected = model.take(stag, who, true, Access::empty());
            prop_assert_eq!(table.allocate_window(stag, who.pd), expected);
        }
        Step::Remove { stag } => {
            let stag = model.resolve(stag);
            prop_assert_eq!(table.remove(stag), model.remove(stag));
        }
        Step::Invalidate { stag, who, by } => {
            let stag = model.resolve(stag);
            let expected = model.invalidate(stag, who, by).map(|()| Reach::ThisCore);
            prop_assert_eq!(table.invalidate(stag, who, by), expected);
        }
        Step::Bind { binding, who } => {
            let window = model.resolve(binding.window);
            let registration = model.resolve(binding.registration);
            let binding = Binding { window, registration, ..binding };
            let (real, expected) = (table.bind(&binding, who), model.bind(&binding, who));
            prop_assert_eq!(real.is_ok(), expected.is_ok(), "{:?} {:?}", real, expected);
        }
        Step::Register { wanted, who } => {
            let wanted = FastRegistration { stag: model.resolve(wanted.stag), ..wanted };
            let expected = model.register(&wanted, who).map(|()| Reach::ThisCore);
            prop_assert_eq!(table.register(&wanted, who), expected);
        }
        Step::Retain { stag } => {
            let stag = model.resolve(stag);
            table.retain(stag);
            if model.valid(stag).is_some() {
                model.0.get_mut(&index(stag)).unwrap().readers += 1;
            }
        }
        Step::Release { stag } => {
            let stag = model.resolve(stag);
            if model.named(stag).is_some_and(|entry| entry.readers > 0) {
                table.release(stag);
                model.0.get_mut(&index(stag)).unwrap().readers -= 1;
            }
        }
        Step::EndStream { stream } => {
            table.end_stream(stream);
            for entry in model.0.values_mut() {
                let ends = entry.granted.is_some_and(|granted| granted.stream == Some(stream));
                entry.valid &= !ends;
            }
        }
    }
    Ok(())
}

fn compare(table: &StagTable, model: &Model) -> Result<(), TestCaseError> {
    const ACCESSES: [Access; 5] = [
        Access::empty(),
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
    ];
    let names = (0..SLOTS).flat_map(|index| (0..KEYS).map(move |key| STag::new(index, key)));
    for stag in names {
        let entry = model.named(stag);
        let edges = entry.and_then(|entry| entry.granted).map_or(vec![0], |granted| {
            let (first, end) = (granted.base_to, granted.base_to + granted.octets);
            vec![0, first.wrapping_sub(1), first, end - 1, end, u64::MAX]
        });
        for (&to, octets) in edges.iter().flat_map(|to| [0, 1, 2].map(|octets| (to, octets))) {
            let retained = entry.filter(|entry| entry.readers > 0);
            let expected = retained.and_then(|entry| {
                let granted = entry.granted?;
                granted.place(to, octets).ok().map(|start| (granted.memory, start))
            });
            prop_assert_eq!(table.retained(stag, to, octets as usize).map(found), expected, "{:?}", stag);
            for (pd, stream) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                let who = Accessor { pd: ProtectionDomainId(pd), stream };
                for access in ACCESSES {
                    let real = table.check(stag, who, access, to, octets as usize).map(found);
                    let expected = model.check(stag, who, access, to, octets);
                    let asked = (stag, who, access, to, octets);
                    prop_assert!(real == expected, "{:?}, not {:?}: {:?}", real, expected, asked);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    // Requirements: DDP-8.2-04, DDP-8.3.1-01 to DDP-8.3.1-05
    #[test]
    fn every_access_is_allowed_as_the_model_has_it(steps in prop::collection::vec(steps(), 1..80)) {
        let (mut table, mut model) = (StagTable::with_slots(usize::from(SLOTS)), Model::default());
        for step in &steps {
            take_step(&mut table, &mut model, step)?;
            compare(&table, &model)?;
        }
    }
}
