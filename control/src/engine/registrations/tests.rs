//! Registrations at several cores, each a table of STags that carries out its commands late or never.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::channel::Receiver;
use fastrand::Rng;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{
    Access, AccessError, Accessor, BindError, Binding, Claims, FastRegistration, Invalidation, Reach, Region,
    StagTable,
};
use warpline_dataplane::time::MILLISECOND;

use super::*;
use crate::vocabulary::duration::nanos;

const DOMAIN: ProtectionDomainId = ProtectionDomainId(7);
const ACCESSOR: Accessor = Accessor { pd: DOMAIN, stream: 1 };

/// The memory of a core, and the commands that concern it.
struct Core {
    stags: StagTable,
    commands: VecDeque<Command>,
    is_polled: bool,
}

/// Cores, and the registrations of one Protection Domain.
struct World {
    now: Instant,
    out: Outbox,
    registrations: Registrations,
    cores: Vec<Core>,
    /// The changes that control has ended.
    ended: Vec<(ChangeId, ChangeResult)>,
    /// Readers that revocations have ended.
    streams_ended: usize,
}

impl World {
    fn new(cores: u8) -> Self {
        let slots = limits::REGIONS_PER_CORE;
        let claims = (cores > 1).then(|| Arc::new(Claims::new(slots)));
        let core = |number| Core {
            stags: match &claims {
                Some(claims) => StagTable::with_claims(slots, claims.clone(), number),
                None => StagTable::with_slots(slots),
            },
            commands: VecDeque::new(),
            is_polled: true,
        };
        Self {
            now: Instant::from_nanos(1),
            out: Outbox::new(cores),
            cores: (0..cores).map(core).collect(),
            ended: Vec::new(),
            streams_ended: 0,
            registrations: Registrations::new(KeyedSequence::new([3; 16]), 100, 100, claims),
        }
    }

    fn register(&mut self) -> Receiver<Result<STag, MemoryError>> {
        self.register_for(None)
    }

    fn register_for(&mut self, stream: Option<u32>) -> Receiver<Result<STag, MemoryError>> {
        let grant = Grant { stream, ..Grant::new(Region::heap(64).unwrap(), DOMAIN, 0, Access::all()) };
        let (reply, receiver) = Reply::new();
        self.registrations.register(self.now, &mut self.out, grant, reply);
        self.deliver();
        receiver
    }

    fn allocate_window(&mut self) -> Receiver<Result<STag, MemoryError>> {
        let (reply, receiver) = Reply::new();
        self.registrations.allocate_window(self.now, &mut self.out, DOMAIN, reply);
        self.deliver();
        receiver
    }

    fn adopt(&mut self, core: u8) {
        self.registrations.adopt(&mut self.out, DOMAIN, core);
        self.deliver();
    }

    fn deregister(&mut self, stag: STag, patience: Option<Duration>) -> Receiver<DeregisterOutcome> {
        self.deregister_named(stag, stag, patience)
    }

    fn deregister_named(
        &mut self,
        stag: STag,
        last: STag,
        patience: Option<Duration>,
    ) -> Receiver<DeregisterOutcome> {
        let (reply, receiver) = Reply::new();
        let request = DeregisterRequest { stag, last, patience, readers: Readers::Stay, reply };
        self.registrations.deregister(self.now, &mut self.out, request);
        self.deliver();
        receiver
    }

    fn revoke(&mut self, stag: STag, patience: Duration) -> Receiver<DeregisterOutcome> {
        let (reply, receiver) = Reply::new();
        let (patience, readers) = (Some(patience), Readers::End);
        let request = DeregisterRequest { stag, last: stag, patience, readers, reply };
        self.registrations.deregister(self.now, &mut self.out, request);
        self.deliver();
        receiver
    }

    fn deliver(&mut self) {
        for (number, core) in (0..).zip(&mut self.cores) {
            core.commands.extend(std::iter::from_fn(|| self.out.next_command(number)));
        }
        while let Some(reply) = self.out.next_reply() {
            reply();
        }
    }

    /// Has a core carry out its next command.
    fn poll(&mut self, number: u8) {
        let core = &mut self.cores[usize::from(number)];
        let Some(command) = core.commands.pop_front().filter(|_| core.is_polled) else { return };
        let (now, out, registrations) = (self.now, &mut self.out, &mut self.registrations);
        match command {
            Command::Register { stag, grant } => {
                registrations.on_registered(out, number, stag, core.stags.insert(stag, grant));
            }
            Command::AllocateWindow { stag, pd } => {
                registrations.on_registered(out, number, stag, core.stags.allocate_window(stag, pd));
            }
            Command::Deregister { stag } => {
                registrations.on_deregistered(now, out, number, stag, core.stags.remove(stag));
            }
            Command::Probe { stag, attempt } => {
                let result = core.stags.check_unused(stag);
                let answer = ProbeAnswer { core: number, stag, attempt, result };
                registrations.on_probed(now, out, answer);
            }
            Command::Remove { stag } => {
                core.stags.revoke(stag);
                registrations.on_deregistered(now, out, number, stag, core.stags.remove(stag));
            }
            Command::Revoke { stag } if core.stags.has_windows(stag) => {
                registrations.on_deregistered(now, out, number, stag, Err(RemoveError::WindowsBound));
            }
            Command::Revoke { stag } => {
                core.stags.revoke(stag);
                // What reads from it ends.
                while core.stags.check_unused(stag) == Err(RemoveError::InUse) {
                    core.stags.release(stag);
                    self.streams_ended += 1;
                }
                registrations.on_deregistered(now, out, number, stag, core.stags.remove(stag));
            }
            Command::Follow(change) => {
                let result = core.stags.follow(&change);
                registrations.on_followed(out, number, change.id, result);
            }
            Command::EndChange { id, result } => self.ended.push((id, result)),
            _ => panic!("no command of registrations"),
        }
        self.deliver();
    }

    /// Reports what a work request at a core has changed. Returns the name of a change that others follow.
    fn report(&mut self, core: u8, reach: Reach) -> Option<ChangeId> {
        let Reach::OtherCores(change) = reach else { return None };
        let id = change.id;
        self.registrations.on_grant_changed(self.now, &mut self.out, core, change);
        self.deliver();
        Some(id)
    }

    /// Has all cores that are polled carry out what they are to do, and time pass, until nothing is left.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let busy = (0..self.cores.len() as u8).find(|core| self.is_busy(*core));
            let due = self.registrations.next_deadline();
            match busy {
                Some(core) => self.poll(core),
                None if due == Instant::NEVER => return,
                None => self.pass_to(due),
            }
        }
        panic!("it does not come to an end");
    }

    /// Returns true if a core is polled and has something to do.
    fn is_busy(&self, core: u8) -> bool {
        let core = &self.cores[usize::from(core)];
        core.is_polled && !core.commands.is_empty()
    }

    fn pass_to(&mut self, time: Instant) {
        self.now = self.now.max(time);
        self.registrations.on_time(self.now, &mut self.out);
        self.deliver();
    }

    fn end(&mut self, core: u8) {
        self.cores[usize::from(core)].is_polled = false;
        self.out.remove_core(core);
        self.registrations.on_core_ended(self.now, &mut self.out, core);
        self.deliver();
    }

    fn has(&self, core: u8, stag: STag) -> bool {
        self.cores[usize::from(core)].stags.owner(stag).is_some()
    }

    fn registered_at(&mut self, cores: &[u8]) -> STag {
        for core in cores {
            self.adopt(*core);
        }
        let reply = self.register();
        self.settle();
        reply.try_recv().expect("all have answered").expect("there is room")
    }
}

fn invalidate(world: &mut World, core: u8, stag: STag) -> Option<ChangeId> {
    let stags = &mut world.cores[usize::from(core)].stags;
    let reach = stags.invalidate(stag, ACCESSOR, Invalidation::Local).expect("it is valid");
    world.report(core, reach)
}

fn register_for_all(world: &mut World, core: u8, stag: STag) -> Option<ChangeId> {
    let access = Access::all();
    let wanted = FastRegistration { stag, offset: 0, len: 64, base_to: 0, access, all_streams: true };
    let stags = &mut world.cores[usize::from(core)].stags;
    let reach = stags.register(&wanted, ACCESSOR).expect("it is free");
    world.report(core, reach)
}

fn is_valid(world: &World, core: u8, stag: STag) -> bool {
    let stags = &world.cores[usize::from(core)].stags;
    match stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, AccessError::InvalidStag);
            false
        }
    }
}

/// An invalidation is complete when every core has followed, also one that was given the memory meanwhile.
// Requirements: DDP-8.3-02
#[test]
fn what_all_streams_use_is_invalidated_at_every_core() {
    let mut world = World::new(4);
    let stag = world.registered_at(&[0, 1, 2]);
    let id = invalidate(&mut world, 1, stag).expect("others have it");
    assert!(is_valid(&world, 0, stag) && !is_valid(&world, 1, stag));
    world.poll(0);
    assert!(!is_valid(&world, 0, stag) && is_valid(&world, 2, stag) && world.ended.is_empty());
    world.adopt(3);
    world.settle();
    assert_eq!(world.ended, [(id, Ok(()))]);
    assert!((0..4).all(|core| !is_valid(&world, core, stag)));
}

/// Memory that is registered anew for all streams is valid at every core, and at those that are given it
/// later; nothing of it at any once it is invalidated.
#[test]
fn what_is_registered_anew_for_all_streams_is_valid_at_every_core() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1]);
    invalidate(&mut world, 0, stag).expect("core 1 has it");
    world.settle();
    let anew = stag.with_key(stag.key().wrapping_add(1));
    let id = register_for_all(&mut world, 0, anew).expect("core 1 has it");
    world.adopt(2);
    world.settle();
    assert_eq!(world.ended.last(), Some(&(id, Ok(()))));
    assert!((0..3).all(|core| is_valid(&world, core, anew) && !is_valid(&world, core, stag)));
    let id = invalidate(&mut world, 2, anew).expect("others have it");
    world.settle();
    assert_eq!(world.ended.last(), Some(&(id, Ok(()))));
    assert!((0..3).all(|core| !is_valid(&world, core, anew)));
}

/// A core that still sends by the last name of memory keeps it from being registered anew: the new name is
/// valid nowhere, also not at a core that is given the memory later.
#[test]
fn a_registration_that_a_core_cannot_follow_is_taken_back() {
    let mut world = World::new(4);
    let stag = world.registered_at(&[0, 1, 2]);
    let sends = Access::empty();
    world.cores[2].stags.check_retained(stag, ACCESSOR, sends, 0, 64).unwrap();
    invalidate(&mut world, 0, stag).expect("others have it");
    world.settle();
    let [refused, granted] = [1, 2].map(|more| stag.with_key(stag.key().wrapping_add(more)));
    let id = register_for_all(&mut world, 0, refused).expect("others have it");
    world.settle();
    world.adopt(3);
    world.settle();
    assert_eq!(world.ended.last(), Some(&(id, Err(BindError::InUse))));
    assert!((0..4).all(|core| !is_valid(&world, core, refused)));
    world.cores[2].stags.release(stag);
    let id = register_for_all(&mut world, 1, granted).expect("others have it");
    world.settle();
    assert_eq!(world.ended.last(), Some(&(id, Ok(()))));
    assert!((0..4).all(|core| is_valid(&world, core, granted)));
}

/// A core that ends is not waited for, and one that was removed from memory has followed already.
#[test]
fn a_change_ends_without_a_core_that_has_ended() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1, 2]);
    let id = invalidate(&mut world, 0, stag).expect("others have it");
    world.poll(2);
    assert_eq!(world.ended, []);
    world.end(1);
    world.settle();
    assert_eq!(world.ended, [(id, Ok(()))]);
    let removed = world.deregister(stag, None);
    world.settle();
    assert_eq!(removed.try_recv(), Ok(DeregisterOutcome::Done));
    assert!(world.registrations.changes.is_empty());
}

/// A core that is not polled makes a work request fail after a while. What it is to follow it follows later,
/// and a registration that it has not followed is valid nowhere.
#[test]
fn a_change_waits_for_a_silent_core_for_a_while() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1, 2]);
    world.cores[2].is_polled = false;
    let id = invalidate(&mut world, 0, stag).expect("others have it");
    world.settle();
    assert_eq!(std::mem::take(&mut world.ended), [(id, Err(BindError::Unanswered))]);
    assert!(!is_valid(&world, 1, stag) && is_valid(&world, 2, stag));
    let anew = stag.with_key(stag.key().wrapping_add(1));
    let id = register_for_all(&mut world, 0, anew).expect("others have it");
    world.settle();
    assert_eq!(std::mem::take(&mut world.ended), [(id, Err(BindError::Unanswered))]);
    world.cores[2].is_polled = true;
    world.settle();
    assert_eq!(world.ended, [], "its late answers are nobody's");
    assert!((0..3).all(|core| !is_valid(&world, core, stag) && !is_valid(&world, core, anew)));
    assert!(world.registrations.changes.is_empty());
}

/// A registration whose core ends goes on at the others, and is taken back if one of them refuses.
#[test]
fn the_change_of_a_core_that_ends_goes_on() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1, 2]);
    world.cores[2].stags.check_retained(stag, ACCESSOR, Access::empty(), 0, 64).unwrap();
    invalidate(&mut world, 0, stag).expect("others have it");
    world.settle();
    world.ended.clear();
    let anew = stag.with_key(stag.key().wrapping_add(1));
    register_for_all(&mut world, 0, anew).expect("others have it");
    world.poll(1);
    assert!(is_valid(&world, 1, anew));
    world.end(0);
    world.settle();
    assert!(!is_valid(&world, 1, anew) && !is_valid(&world, 2, anew));
    assert_eq!(world.ended, [], "there is no request any more");
    assert!(world.registrations.changes.is_empty());
}

/// What a core has registered for all streams, and could not report before it ended, others invalidate.
#[test]
fn what_an_ended_core_has_not_reported_is_invalidated() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1, 2]);
    invalidate(&mut world, 0, stag).expect("others have it");
    world.settle();
    let anew = stag.with_key(stag.key().wrapping_add(1));
    let access = Access::all();
    let wanted = FastRegistration { stag: anew, offset: 0, len: 64, base_to: 0, access, all_streams: true };
    let unreported = world.cores[0].stags.register(&wanted, ACCESSOR).unwrap();
    assert!(matches!(unreported, Reach::OtherCores(_)));
    world.end(0);
    invalidate(&mut world, 1, anew).expect("it may be valid elsewhere");
    world.settle();
    let next = anew.with_key(anew.key().wrapping_add(1));
    register_for_all(&mut world, 1, next).expect("core 2 has it");
    world.settle();
    assert!(is_valid(&world, 1, next) && is_valid(&world, 2, next));
}

/// The key of memory that is registered anew may be the one that control gave it. A core that is given the
/// memory later has what it was registered anew for, and not what control has registered.
#[test]
fn a_key_that_recurs_brings_nothing_back() {
    let mut world = World::new(2);
    let stag = world.registered_at(&[0]);
    let other = stag.with_key(stag.key().wrapping_add(1));
    for (from, to, len) in [(stag, other, 64), (other, stag, 8)] {
        let stags = &mut world.cores[0].stags;
        assert_eq!(stags.invalidate(from, ACCESSOR, Invalidation::Local), Ok(Reach::ThisCore));
        let access = Access::REMOTE_READ;
        let wanted = FastRegistration { stag: to, offset: 0, len, base_to: 0, access, all_streams: true };
        let reach = stags.register(&wanted, ACCESSOR).unwrap();
        world.report(0, reach);
        world.settle();
        if to == stag {
            break;
        }
        // For one stream, which control does not learn of, between them.
        let stags = &mut world.cores[0].stags;
        assert_eq!(stags.invalidate(to, ACCESSOR, Invalidation::Local), Ok(Reach::ThisCore));
        let wanted = FastRegistration { stag: to.with_key(0x5555), all_streams: false, ..wanted };
        assert_eq!(stags.register(&wanted, ACCESSOR), Ok(Reach::ThisCore));
        assert_eq!(stags.invalidate(wanted.stag, ACCESSOR, Invalidation::Local), Ok(Reach::ThisCore));
        let wanted = FastRegistration { stag: to, len: 32, all_streams: true, ..wanted };
        let reach = stags.register(&wanted, ACCESSOR).unwrap();
        world.report(0, reach);
        world.settle();
    }
    world.adopt(1);
    world.settle();
    for core in 0..2 {
        let stags = &world.cores[core].stags;
        assert!(stags.check(stag, ACCESSOR, Access::REMOTE_READ, 0, 8).is_ok());
        let beyond = stags.check(stag, ACCESSOR, Access::REMOTE_READ, 0, 9);
        assert_eq!(beyond.err(), Some(AccessError::Bounds), "{core}");
        let written = stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 8);
        assert_eq!(written.err(), Some(AccessError::Rights), "{core}");
    }
}

/// Two cores report what they have changed, one after the other, the later change first. A core that is given
/// the memory after that has what is granted now.
#[test]
fn the_report_of_an_earlier_change_ends_no_later_one() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1]);
    let invalidated = world.cores[1].stags.invalidate(stag, ACCESSOR, Invalidation::Local).unwrap();
    let (other, access) = (stag.with_key(stag.key().wrapping_add(1)), Access::REMOTE_READ);
    let wanted = FastRegistration { stag: other, offset: 0, len: 8, base_to: 0, access, all_streams: true };
    let registered = world.cores[0].stags.register(&wanted, ACCESSOR).unwrap();
    world.report(0, registered);
    world.report(1, invalidated);
    world.settle();
    world.adopt(2);
    world.settle();
    for core in &world.cores {
        assert!(core.stags.check(other, ACCESSOR, access, 0, 8).is_ok());
        assert!(core.stags.check(stag, ACCESSOR, access, 0, 8).is_err());
    }
}

/// The change of memory whose registration has ended is over.
#[test]
fn a_change_of_memory_that_is_gone_ends() {
    let mut world = World::new(2);
    let stag = world.registered_at(&[0, 1]);
    let reach = world.cores[0].stags.invalidate(stag, ACCESSOR, Invalidation::Local).unwrap();
    let removed = world.deregister(stag, None);
    world.settle();
    assert_eq!(removed.try_recv(), Ok(DeregisterOutcome::Done));
    let id = world.report(0, reach).expect("core 1 had it");
    world.settle();
    assert_eq!(world.ended, [(id, Ok(()))]);
}

/// A core has the memory of a domain from the first queue pair of the domain there.
#[test]
fn memory_goes_where_queue_pairs_are() {
    let mut world = World::new(3);
    let stag = world.register().try_recv().expect("no core is asked").unwrap();
    world.settle();
    assert!((0..3).all(|core| !world.has(core, stag)));
    world.adopt(1);
    let later = world.register();
    assert!(later.try_recv().is_err(), "core 1 has not answered");
    world.settle();
    let later = later.try_recv().expect("core 1 has answered").unwrap();
    assert!(world.has(1, stag) && world.has(1, later) && !world.has(0, later));
    world.adopt(2);
    world.adopt(2);
    world.settle();
    assert!(world.has(2, stag) && world.has(2, later));
    for stag in [stag, later] {
        let reply = world.deregister(stag, None);
        world.settle();
        assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done));
        assert!((0..3).all(|core| !world.has(core, stag)));
    }
    assert_eq!((world.registrations.len(), world.registrations.next_deadline()), (0, Instant::NEVER));
}

/// As long as one core uses the memory it stays valid at all.
#[test]
fn memory_in_use_stays_everywhere() {
    let mut world = World::new(2);
    let stag = world.registered_at(&[0, 1]);
    world.cores[1].stags.retain(stag);
    let reply = world.deregister(stag, Some(Duration::from_millis(50)));
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::InUse));
    for core in &world.cores {
        assert!(core.stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok());
    }
    world.cores[1].stags.release(stag);
    let reply = world.deregister(stag, Some(Duration::from_millis(50)));
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done));
}

/// What reads from memory that is revoked has the time that the application gives it. Then it ends, at each
/// core, and what has come to its end meanwhile is left alone.
#[test]
fn a_revocation_ends_what_reads_after_the_patience() {
    let patience = Duration::from_millis(50);
    for cores in [&[0][..], &[0, 1]] {
        for [first, last] in [[false, false], [true, false], [true, true]] {
            let mut world = World::new(2);
            let stag = world.registered_at(cores);
            let readers = [(0, first), (*cores.last().unwrap(), last)];
            for (core, _) in readers.into_iter().filter(|(_, reads)| *reads) {
                world.cores[usize::from(core)].stags.retain(stag);
            }
            let begun = world.now;
            let reply = world.revoke(stag, patience);
            world.settle();
            assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done));
            assert!((0..2).all(|core| !world.has(core, stag)));
            assert_eq!(world.streams_ended, usize::from(first) + usize::from(last));
            assert_eq!(world.now >= begun + nanos(patience), first, "nothing was to be waited for");
            assert_eq!(world.registrations.len(), 0);
        }
    }
    // One ends by itself.
    let mut world = World::new(2);
    let stag = world.registered_at(&[0, 1]);
    world.cores[1].stags.retain(stag);
    let reply = world.revoke(stag, patience);
    world.poll(0);
    world.poll(1);
    world.pass_to(world.now + 10 * MILLISECOND);
    assert!(reply.try_recv().is_err());
    world.cores[1].stags.release(stag);
    world.settle();
    assert_eq!((reply.try_recv(), world.streams_ended), (Ok(DeregisterOutcome::Done), 0));
}

/// A window that is bound keeps memory from being revoked, and a core that is not polled is named: it may be
/// tried again then.
#[test]
fn a_revocation_that_fails_is_tried_again() {
    let patience = Duration::from_millis(50);
    let mut world = World::new(2);
    let stag = world.registered_at(&[0, 1]);
    let window = world.allocate_window();
    world.settle();
    let window = window.try_recv().unwrap().unwrap();
    let bound = window.with_key(window.key().wrapping_add(1));
    let (access, zero_based) = (Access::REMOTE, false);
    let binding = Binding { window: bound, registration: stag, to: 0, len: 64, access, zero_based };
    world.cores[0].stags.bind(&binding, ACCESSOR).unwrap();
    let reply = world.revoke(stag, patience);
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::WindowsBound));
    assert!(world.cores[0].stags.check(bound, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok());
    assert!(world.cores[1].stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok(), "as it was");
    let unbound = world.cores[0].stags.invalidate(bound, ACCESSOR, Invalidation::Local);
    assert_eq!(unbound, Ok(Reach::ThisCore));

    world.cores[0].stags.retain(stag);
    world.cores[1].is_polled = false;
    let reply = world.revoke(stag, patience);
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Unanswered(CoreSet::EMPTY.with(1))));
    assert!(!world.has(0, stag) && world.has(1, stag));
    world.cores[1].is_polled = true;
    let reply = world.deregister(stag, Some(patience));
    world.settle();
    assert_eq!((reply.try_recv(), world.has(1, stag)), (Ok(DeregisterOutcome::Done), false));
}

/// What has begun to use the memory after it was found unused keeps the application waiting, and nothing new
/// begins.
#[test]
fn a_late_reader_is_waited_for() {
    let mut world = World::new(2);
    let stag = world.registered_at(&[0, 1]);
    let reply = world.deregister(stag, None);
    world.poll(0);
    world.poll(1);
    // Both have answered that nothing uses it.
    world.cores[0].stags.retain(stag);
    for _ in 0..10 {
        world.poll(0);
        world.poll(1);
        let due = world.registrations.next_deadline();
        world.pass_to(due);
    }
    assert!(reply.try_recv().is_err() && world.has(0, stag) && !world.has(1, stag));
    world.adopt(1);
    assert!(!world.is_busy(1), "nothing is given to a core that memory is taken from");
    world.cores[0].stags.release(stag);
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done));
}

/// A core that is not polled is named, and what waits for it ends; nothing waits for one that has ended.
#[test]
fn a_silent_core_is_named() {
    let mut world = World::new(3);
    let stag = world.registered_at(&[0, 1, 2]);
    world.cores[2].is_polled = false;
    let reply = world.deregister(stag, Some(Duration::from_millis(50)));
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Unanswered(CoreSet::EMPTY.with(2))));
    assert!(world.has(0, stag), "as it was");
    let registering = world.register();
    world.settle();
    assert_eq!(registering.try_recv(), Ok(Err(MemoryError::Unanswered(CoreSet::EMPTY.with(2)))));
    let reply = world.deregister(stag, None);
    world.end(2);
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done));
    assert!(!world.has(0, stag) && !world.has(1, stag));
    assert_eq!(world.registrations.len(), 0, "the one without a handle is gone too");
}

/// Nobody waits for a core that has ended: neither what is registered later, nor what only that core had.
#[test]
fn the_others_go_on_without_a_core_that_has_ended() {
    let mut world = World::new(3);
    let only_there = world.registered_at(&[1]);
    let registering = world.register();
    world.end(1);
    registering.try_recv().expect("no core is left to confirm it").expect("there is room");
    let later = world.register().try_recv().expect("no core is asked").unwrap();
    world.adopt(0);
    let window = world.allocate_window();
    world.settle();
    window.try_recv().expect("core 0 has answered").unwrap();
    for stag in [only_there, later] {
        assert!(world.cores[0].stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok());
        let reply = world.deregister(stag, None);
        world.settle();
        assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done));
    }
}

/// A core alone is asked to deregister memory that it uses, and answers only when two have it.
#[test]
fn a_late_refusal_is_none_of_the_other_question() {
    let mut world = World::new(2);
    let stag = world.registered_at(&[0]);
    world.cores[0].stags.retain(stag);
    world.deregister(stag, Some(Duration::from_millis(5)));
    world.pass_to(world.now + 5 * MILLISECOND);
    world.adopt(1);
    world.poll(1);
    let reply = world.deregister(stag, Some(Duration::from_millis(5)));
    world.poll(1);
    world.poll(0);
    assert!(!world.is_busy(1), "it is in use at core 0, and removed nowhere");
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::InUse));
    assert!(world.cores[1].stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok());
}

/// The answer to an attempt that was abandoned is none to the next.
#[test]
fn a_late_answer_is_none_of_the_next_attempt() {
    let mut world = World::new(2);
    let stag = world.registered_at(&[0, 1]);
    world.deregister(stag, Some(Duration::from_millis(5)));
    world.pass_to(world.now + 5 * MILLISECOND);
    let reply = world.deregister(stag, Some(Duration::from_millis(5)));
    world.poll(1);
    world.poll(1);
    world.poll(0);
    world.cores[0].stags.retain(stag);
    world.settle();
    assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::InUse));
    for core in &world.cores {
        assert!(core.stags.check(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok(), "as it was");
    }
}

/// Cores that answer in any order, adopt, use memory, stall and end: when a deregistration is done, no core
/// that is polled has the memory, and nothing is left in the end.
#[test]
fn after_a_deregistration_no_core_has_the_memory() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let cores = rng.u8(1..5);
        let mut world = World::new(cores);
        let mut registering = Vec::new();
        let (mut free, mut leaving) = (Vec::new(), Vec::new());
        let mut readers: Vec<(u8, STag)> = Vec::new();
        for _ in 0..400 {
            let core = rng.u8(..cores);
            match rng.u8(..16) {
                0 => registering.push(world.register()),
                1 => world.adopt(core),
                2 if !free.is_empty() => {
                    let stag: STag = free.swap_remove(rng.usize(..free.len()));
                    let patience = rng.bool().then(|| Duration::from_millis(rng.u64(1..100)));
                    leaving.push((stag, world.deregister(stag, patience)));
                }
                3 if !free.is_empty() => {
                    let stag = free[rng.usize(..free.len())];
                    let stags = &mut world.cores[usize::from(core)].stags;
                    if stags.check_retained(stag, ACCESSOR, Access::REMOTE_WRITE, 0, 64).is_ok() {
                        readers.push((core, stag));
                    }
                }
                4 if !readers.is_empty() => {
                    let (core, stag) = readers.swap_remove(rng.usize(..readers.len()));
                    world.cores[usize::from(core)].stags.release(stag);
                }
                5 => {
                    let due = world.registrations.next_deadline();
                    if due != Instant::NEVER {
                        world.pass_to(due);
                    }
                }
                6 if rng.u8(..20) == 0 && world.out.alive().len() > 1 => world.end(core),
                _ => world.poll(core),
            }
            registering.retain(|reply| match reply.try_recv() {
                Ok(Ok(stag)) => {
                    free.push(stag);
                    false
                }
                Ok(Err(error)) => {
                    let MemoryError::Unanswered(silent) = error else { panic!("seed {seed}: {error}") };
                    assert!(silent.and(world.out.alive()) == silent, "seed {seed}: {silent} have ended");
                    false
                }
                Err(_) => true,
            });
            leaving.retain(|(stag, reply)| match reply.try_recv() {
                Ok(DeregisterOutcome::Done) => {
                    DONE.fetch_add(1, Ordering::Relaxed);
                    let alive = world.out.alive();
                    assert!(alive.iter().all(|core| !world.has(core, *stag)), "seed {seed}: {stag:?}");
                    false
                }
                Ok(_) => {
                    free.push(*stag);
                    false
                }
                Err(_) => true,
            });
        }
        for (core, stag) in readers {
            world.cores[usize::from(core)].stags.release(stag);
        }
        world.settle();
        free.extend(registering.iter().filter_map(|reply| reply.try_recv().ok()?.ok()));
        free.extend(
            leaving
                .iter()
                .filter(|(_, reply)| reply.try_recv() != Ok(DeregisterOutcome::Done))
                .map(|(stag, _)| *stag),
        );
        for stag in free {
            let reply = world.deregister(stag, None);
            world.settle();
            assert_eq!(reply.try_recv(), Ok(DeregisterOutcome::Done), "seed {seed}: {stag:?}");
        }
        assert_eq!(world.registrations.len(), 0, "seed {seed}");
        assert_eq!(world.registrations.next_deadline(), Instant::NEVER, "seed {seed}");
    }
    assert!(DONE.load(Ordering::Relaxed) > 1000, "too few deregistrations were seen");
}

mod work_requests;
