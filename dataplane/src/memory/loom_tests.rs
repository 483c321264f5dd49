//! What the cores of a device do at the same time to memory that several of them have, in every order that
//! memory allows. `scripts/test` runs them, with `RUSTFLAGS="--cfg loom"`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loom::cell::UnsafeCell;
use loom::thread;

use super::{
    Access, Accessor, BindError, Binding, Claims, FastRegistration, Grant, Invalidation, InvalidationError,
    ProtectionDomainId, Reach, Region, STag, StagTable,
};
use crate::ring::{Command, Event};
use crate::sync::ArrayQueue;

const PD: ProtectionDomainId = ProtectionDomainId(1);
const STAG: STag = STag::new(0, 1);
const WINDOW: STag = STag::new(1, 1);
const OCTETS: usize = 8;

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

const fn stream(stream: u32) -> Accessor {
    Accessor { pd: PD, stream }
}

fn grant() -> Grant {
    let access = Access::LOCAL_WRITE | Access::REMOTE | Access::WINDOW_BIND;
    Grant::new(Region::heap(OCTETS).unwrap(), PD, 0, access)
}

fn is_valid(stags: &StagTable, stag: STag, who: Accessor) -> bool {
    stags.check(stag, who, Access::REMOTE_WRITE, 0, OCTETS).is_ok()
}

/// Returns the tables of two cores.
fn two_cores() -> [StagTable; 2] {
    let claims = Arc::new(Claims::new(2));
    [0, 1].map(|core| StagTable::with_claims(2, claims.clone(), core))
}

fn binding(key: u16) -> Binding {
    let (window, access) = (WINDOW.with_key(key), Access::REMOTE);
    Binding { window, registration: STAG, to: 0, len: OCTETS as u64, access, zero_based: false }
}

/// Of two cores that bind a window at the same time one does.
#[test]
fn a_window_is_bound_at_one_core() {
    model(4, || {
        let [mut a, mut b] = two_cores();
        for stags in [&mut a, &mut b] {
            stags.insert(STAG, grant()).unwrap();
            stags.allocate_window(WINDOW, PD).unwrap();
        }
        let other = thread::spawn(move || (b.bind(&binding(3), stream(1)), b));
        let here = a.bind(&binding(2), stream(0));
        let (there, b) = other.join().unwrap();
        assert!(here.is_ok() != there.is_ok(), "{here:?}, {there:?}");
        assert_eq!(here.and(there), Err(BindError::StillValid));
        assert_eq!(is_valid(&a, WINDOW.with_key(2), stream(0)), here.is_ok());
        assert_eq!(is_valid(&b, WINDOW.with_key(3), stream(1)), there.is_ok());
    });
}

/// A core is given memory while another, which has had it alone, invalidates it: it comes invalid, or the
/// core is to follow.
#[test]
fn memory_that_spreads_while_it_is_invalidated_is_not_valid_in_the_end() {
    model(4, || {
        let [mut a, mut b] = two_cores();
        a.insert(STAG, grant()).unwrap();
        let other = thread::spawn(move || {
            b.insert(STAG, grant()).unwrap();
            b
        });
        let reach = a.invalidate(STAG, stream(0), Invalidation::Local).unwrap();
        let mut b = other.join().unwrap();
        assert!(!is_valid(&a, STAG, stream(0)));
        match reach {
            Reach::ThisCore => assert!(!is_valid(&b, STAG, stream(1))),
            Reach::OtherCores(change) => {
                b.follow(&change).unwrap();
                assert!(!is_valid(&b, STAG, stream(1)));
            }
        }
    });
}

/// A core is given memory while another gives it another name, for all streams: the first name is valid
/// nowhere, and the second at both once the core has followed.
#[test]
fn memory_that_is_named_anew_does_not_spread_under_its_old_name() {
    model(4, || {
        let [mut a, mut b] = two_cores();
        a.insert(STAG, grant()).unwrap();
        assert_eq!(a.invalidate(STAG, stream(0), Invalidation::Local), Ok(Reach::ThisCore));
        let other = thread::spawn(move || {
            b.insert(STAG, grant()).unwrap();
            b
        });
        let stag = STAG.with_key(2);
        let (len, access) = (OCTETS as u64, Access::REMOTE);
        let wanted = FastRegistration { stag, offset: 0, len, base_to: 0, access, all_streams: true };
        let Ok(Reach::OtherCores(change)) = a.register(&wanted, stream(0)) else {
            panic!("every core is to have it")
        };
        let mut b = other.join().unwrap();
        assert!(is_valid(&a, stag, stream(0)));
        assert!(!is_valid(&b, stag, stream(1)) && !is_valid(&b, STAG, stream(1)));
        b.follow(&change).unwrap();
        assert!(is_valid(&b, stag, stream(1)) && !is_valid(&b, STAG, stream(1)));
    });
}

/// A window is bound at one core while another invalidates the memory below it: one of the two is refused.
#[test]
fn memory_is_invalidated_or_a_window_of_it_is_bound() {
    model(4, || {
        let [mut a, mut b] = two_cores();
        for stags in [&mut a, &mut b] {
            stags.insert(STAG, grant()).unwrap();
            stags.allocate_window(WINDOW, PD).unwrap();
        }
        let other = thread::spawn(move || (b.bind(&binding(2), stream(1)), b));
        let invalidated = a.invalidate(STAG, stream(0), Invalidation::Local);
        let (bound, b) = other.join().unwrap();
        assert!(bound.is_ok() != invalidated.is_ok(), "{bound:?}, {invalidated:?}");
        assert_eq!(bound.err(), invalidated.is_ok().then_some(BindError::InvalidStag));
        assert_eq!(invalidated.err(), bound.is_ok().then_some(InvalidationError::WindowsBound));
        assert_eq!(is_valid(&b, WINDOW.with_key(2), stream(1)), bound.is_ok());
    });
}

/// Memory that a work request has invalidated is its owner's when the other core has followed: what that has
/// placed comes before.
// Requirements: DDP-8.3-02
#[test]
fn memory_that_was_invalidated_is_its_owners() {
    static WAS_INVALIDATED: AtomicBool = AtomicBool::new(false);
    model(4, || {
        let [mut a, mut b] = two_cores();
        for stags in [&mut a, &mut b] {
            stags.insert(STAG, grant()).unwrap();
        }
        let core = Arc::new(Core::new());
        let other = thread::spawn({
            let core = core.clone();
            move || core.run(b, 2)
        });
        let Ok(Reach::OtherCores(change)) = a.invalidate(STAG, stream(0), Invalidation::Local) else {
            panic!("core 1 has it too")
        };
        assert!(core.commands.push(Command::Follow(change)).is_ok());
        thread::yield_now();
        if let Some(Event::Followed { result: Ok(()), .. }) = core.events.pop() {
            WAS_INVALIDATED.store(true, Ordering::Relaxed);
            core.part.with_mut(|_| ());
        }
        other.join().unwrap();
    });
    assert!(WAS_INVALIDATED.load(Ordering::Relaxed), "the core has never answered in time");
}

/// What control and peers see of a core: its rings, and the part of the memory that its peers write to.
struct Core {
    commands: ArrayQueue<Command>,
    events: ArrayQueue<Event>,
    part: UnsafeCell<u8>,
}

impl Core {
    fn new() -> Self {
        Self { commands: ArrayQueue::new(1), events: ArrayQueue::new(1), part: UnsafeCell::new(0) }
    }

    /// Carries out what control asks for, and between the commands places what peers write.
    fn run(&self, mut stags: StagTable, steps: usize) {
        for _ in 0..steps {
            match self.commands.pop() {
                Some(Command::Probe { stag, attempt }) => {
                    let result = stags.check_unused(stag);
                    assert!(self.events.push(Event::Probed { stag, attempt, result }).is_ok());
                }
                Some(Command::Remove { stag }) => {
                    stags.revoke(stag);
                    let result = stags.remove(stag);
                    assert!(self.events.push(Event::Deregistered { stag, result }).is_ok());
                }
                Some(Command::Follow(change)) => {
                    let result = stags.follow(&change);
                    assert!(self.events.push(Event::Followed { id: change.id, result }).is_ok());
                }
                _ => {}
            }
            if is_valid(&stags, STAG, stream(0)) {
                self.part.with_mut(|_| ());
            }
            thread::yield_now();
        }
    }
}

/// Memory that two cores have is its owner's when both have answered: what either has placed comes before
/// that, and neither places anything after it.
// Requirements: DDP-8.3.1-07
#[test]
fn memory_of_two_cores_is_its_owners() {
    static WAS_REMOVED: AtomicBool = AtomicBool::new(false);
    // Three threads: a switch from each core to the next, and to control, is enough for any answer.
    model(2, || {
        let cores = Arc::new([Core::new(), Core::new()]);
        let threads: Vec<_> = two_cores()
            .into_iter()
            .zip(0..)
            .map(|(mut stags, number): (_, usize)| {
                stags.insert(STAG, grant()).unwrap();
                let cores = cores.clone();
                thread::spawn(move || cores[number].run(stags, 2))
            })
            .collect();
        let command = |command: fn() -> Command| {
            cores.iter().all(|core| core.commands.push(command()).is_ok());
            thread::yield_now();
            cores.iter().all(|core| core.events.pop().is_some_and(|event| is_agreed(&event)))
        };
        let is_removed = command(|| Command::Probe { stag: STAG, attempt: 1 })
            && command(|| Command::Remove { stag: STAG });
        if is_removed {
            WAS_REMOVED.store(true, Ordering::Relaxed);
            // The owner may do with it what they like.
            for core in cores.iter() {
                core.part.with_mut(|_| ());
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert!(WAS_REMOVED.load(Ordering::Relaxed), "the cores have never answered in time");
}

/// Returns true if a core answers that nothing uses the memory, or that it has removed it.
fn is_agreed(event: &Event) -> bool {
    matches!(event, Event::Probed { result: Ok(()), .. } | Event::Deregistered { result: Ok(()), .. })
}
