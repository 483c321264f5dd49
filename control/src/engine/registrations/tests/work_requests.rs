//! Work requests at any core, beside the registrations of control: nothing that was invalidated or named anew
//! is valid at a core that is given it later.

use warpline_dataplane::memory::Binding;

use super::*;

const STREAMS: u32 = 5;

/// What the application has of a registration or a window.
#[derive(Clone, Copy)]
struct Owned {
    first: STag,
    last: STag,
    is_window: bool,
    /// The only stream that may use it.
    stream: Option<u32>,
    /// It was registered anew for all streams.
    is_everywhere: bool,
}

/// A work request that is not complete before other cores have followed.
struct Changing {
    id: ChangeId,
    /// The first name of the memory.
    first: STag,
    /// What it invalidates, or registers.
    stag: STag,
    invalidates: bool,
}

/// What was asked of control.
struct Registering {
    reply: Receiver<Result<STag, MemoryError>>,
    is_window: bool,
    stream: Option<u32>,
    /// The stream that it is for has ended.
    is_ended: bool,
}

/// Queue pairs with homes at the cores of a world, and what they do to its memory.
struct Application {
    world: World,
    rng: Rng,
    /// The core of each queue pair, by number.
    homes: Vec<u8>,
    registering: Vec<Registering>,
    owned: Vec<Owned>,
    leaving: Vec<(STag, STag, Receiver<DeregisterOutcome>)>,
    changing: Vec<Changing>,
    /// Names whose change has taken too long: they are valid nowhere once all cores have answered.
    overdue: Vec<STag>,
    /// Names that are valid nowhere any more.
    ended: Vec<STag>,
    /// The key that was assigned last.
    last_key: u16,
    bound: usize,
    registered: usize,
    given_invalid: usize,
    followed: usize,
    unanswered: usize,
    seen_everywhere: usize,
}

impl Application {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let cores = rng.u8(2..5);
        Self {
            world: World::new(cores),
            homes: (0..STREAMS).map(|_| rng.u8(..cores)).collect(),
            rng,
            registering: Vec::new(),
            owned: Vec::new(),
            leaving: Vec::new(),
            changing: Vec::new(),
            overdue: Vec::new(),
            ended: Vec::new(),
            last_key: 0,
            bound: 0,
            registered: 0,
            given_invalid: 0,
            followed: 0,
            unanswered: 0,
            seen_everywhere: 0,
        }
    }

    fn step(&mut self) {
        let cores = self.world.cores.len() as u8;
        let (core, stream) = (self.rng.u8(..cores), self.rng.u32(..STREAMS));
        let is_exclusive = self.rng.u8(..3) == 0;
        match self.rng.u8(..24) {
            0 => {
                let only = is_exclusive.then_some(stream);
                let reply = self.world.register_for(only);
                let is_ended = false;
                self.registering.push(Registering { reply, is_window: false, stream: only, is_ended });
            }
            1 => {
                let reply = self.world.allocate_window();
                let is_ended = false;
                self.registering.push(Registering { reply, is_window: true, stream: None, is_ended });
            }
            2 if self.rng.u8(..4) == 0 => self.world.adopt(core),
            3..7 => self.invalidate(stream),
            7..10 => self.register_anew(stream),
            10..13 => self.bind(stream),
            13 if !self.owned.is_empty() => {
                let at = self.rng.usize(..self.owned.len());
                if self.is_changing(self.owned[at].first) {
                    return;
                }
                let Owned { first, last, .. } = self.owned.swap_remove(at);
                let reply = self.world.deregister_named(first, last, None);
                self.leaving.push((first, last, reply));
            }
            14 => self.begin_anew(stream, core),
            15 => {
                let due = self.world.registrations.next_deadline();
                if due != Instant::NEVER {
                    self.world.pass_to(due);
                }
            }
            _ => self.poll(core),
        }
        self.take_replies();
    }

    /// Has a core carry out its next command.
    fn poll(&mut self, core: u8) {
        let next = self.world.cores[usize::from(core)].commands.front();
        if let Some(Command::Register { stag, .. }) = next {
            self.given_invalid += usize::from(self.ended.contains(stag));
        }
        self.world.poll(core);
    }

    fn is_changing(&self, first: STag) -> bool {
        self.changing.iter().any(|changing| changing.first == first)
    }

    /// Returns true if a name is valid nowhere any more, or its end has taken too long.
    fn has_ended(&self, stag: STag) -> bool {
        self.ended.contains(&stag) || self.overdue.contains(&stag)
    }

    /// Completes the work requests whose changes have ended.
    fn complete(&mut self) {
        for (id, result) in std::mem::take(&mut self.world.ended) {
            let at = self.changing.iter().position(|changing| changing.id == id).expect("it is under way");
            let Changing { first, stag, invalidates, .. } = self.changing.swap_remove(at);
            let owned = self.owned.iter_mut().find(|owned| owned.first == first).expect("it waits");
            if result.is_err() {
                assert_eq!(result, Err(BindError::Unanswered), "nothing reads");
                owned.is_everywhere = false;
                self.overdue.push(stag);
                self.unanswered += 1;
                continue;
            }
            self.followed += 1;
            if invalidates {
                self.ended.push(stag);
                owned.is_everywhere &= owned.last != stag;
            } else {
                let is_over = self.ended.contains(&stag) || self.overdue.contains(&stag);
                owned.is_everywhere = owned.last == stag && !is_over;
            }
        }
    }

    /// Records that a work request of `stream` has changed memory: it is complete, or waits for other cores.
    fn changed(&mut self, stream: u32, reach: Reach, changing: impl FnOnce(ChangeId) -> Changing) -> bool {
        let id = self.world.report(self.homes[stream as usize], reach);
        self.changing.extend(id.map(changing));
        self.complete();
        id.is_none()
    }

    fn take_replies(&mut self) {
        self.complete();
        let (owned, ended, world) = (&mut self.owned, &mut self.ended, &self.world);
        self.registering.retain(|asked| match asked.reply.try_recv() {
            Ok(Ok(stag)) => {
                let &Registering { is_window, stream, is_ended, .. } = asked;
                owned.push(Owned { first: stag, last: stag, is_window, stream, is_everywhere: false });
                ended.extend(is_ended.then_some(stag));
                false
            }
            Ok(Err(_)) => false,
            Err(_) => true,
        });
        self.leaving.retain(|(first, last, reply)| match reply.try_recv() {
            Ok(outcome) => {
                assert_eq!(outcome, DeregisterOutcome::Done);
                let cores = 0..world.cores.len() as u8;
                assert!(cores.into_iter().all(|core| !world.has(core, *first)), "{first:?}");
                ended.push(*last);
                false
            }
            Err(_) => true,
        });
    }

    fn stags_of(&mut self, stream: u32) -> &mut StagTable {
        &mut self.world.cores[usize::from(self.homes[stream as usize])].stags
    }

    fn next_key(&mut self) -> u16 {
        self.last_key += 1;
        self.last_key
    }

    /// Returns the place of a registration or window that the application owns.
    fn any(&mut self, is_window: bool) -> Option<usize> {
        let places = self.owned.iter().enumerate().filter(|(_, owned)| owned.is_window == is_window);
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        (!places.is_empty()).then(|| places[self.rng.usize(..places.len())])
    }

    fn invalidate(&mut self, stream: u32) {
        if self.owned.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.owned.len());
        let Owned { first, last: stag, .. } = self.owned[at];
        let accessor = Accessor { stream, ..ACCESSOR };
        if let Ok(reach) = self.stags_of(stream).invalidate(stag, accessor, Invalidation::Local)
            && self.changed(stream, reach, |id| Changing { id, first, stag, invalidates: true })
        {
            self.ended.push(stag);
            self.owned[at].is_everywhere = false;
        }
    }

    fn register_anew(&mut self, stream: u32) {
        let Some(at) = self.any(false) else { return };
        let Owned { first, last: before, .. } = self.owned[at];
        // An application waits for one before it posts the other.
        if self.is_changing(first) {
            return;
        }
        let (stag, all_streams) = (before.with_key(self.next_key()), self.rng.bool());
        let access = Access::all();
        let wanted = FastRegistration { stag, offset: 0, len: 64, base_to: 0, access, all_streams };
        if let Ok(reach) = self.stags_of(stream).register(&wanted, Accessor { stream, ..ACCESSOR }) {
            assert!(self.has_ended(before), "{before:?} was valid elsewhere");
            let only = (!all_streams).then_some(stream);
            self.owned[at] = Owned { last: stag, stream: only, is_everywhere: false, ..self.owned[at] };
            self.registered += 1;
            let is_complete =
                self.changed(stream, reach, |id| Changing { id, first, stag, invalidates: false });
            assert_eq!(is_complete, !all_streams);
        }
    }

    fn bind(&mut self, stream: u32) {
        let (Some(at), Some(below)) = (self.any(true), self.any(false)) else { return };
        let before = self.owned[at];
        if self.is_changing(before.first) {
            return;
        }
        let (window, registration) = (before.last.with_key(self.next_key()), self.owned[below].last);
        let (access, zero_based) = (Access::REMOTE, false);
        let binding = Binding { window, registration, to: 0, len: 64, access, zero_based };
        if self.stags_of(stream).bind(&binding, Accessor { stream, ..ACCESSOR }).is_ok() {
            assert!(before.last == before.first || self.has_ended(before.last), "bound elsewhere");
            self.owned[at] = Owned { last: window, stream: Some(stream), ..before };
            self.bound += 1;
        }
    }

    /// Destroys a queue pair. The next one of its number begins at `core`.
    fn begin_anew(&mut self, stream: u32, core: u8) {
        self.stags_of(stream).end_stream(stream);
        self.world.registrations.end_stream(QpNumber(stream));
        let ends = self.owned.iter().filter(|owned| owned.stream == Some(stream));
        self.ended.extend(ends.map(|owned| owned.last));
        for asked in &mut self.registering {
            asked.is_ended |= asked.stream == Some(stream);
        }
        self.homes[stream as usize] = core;
        self.stags_of(stream).begin_stream(stream);
    }

    /// Returns how many cores have a stream that reaches memory by `stag`.
    fn reach(&self, stag: STag) -> usize {
        let reaches = |(stream, home): (u32, &u8)| {
            let stags = &self.world.cores[usize::from(*home)].stags;
            let accessor = Accessor { stream, ..ACCESSOR };
            stags.check(stag, accessor, Access::REMOTE_WRITE, 0, 64).is_ok().then_some(*home)
        };
        (0..).zip(&self.homes).filter_map(reaches).collect::<BTreeSet<u8>>().len()
    }

    fn check(&self) {
        for stag in &self.ended {
            assert_eq!(self.reach(*stag), 0, "{stag:?}");
        }
        let is_for_one = |owned: &&Owned| owned.last != owned.first && owned.stream.is_some();
        for owned in self.owned.iter().filter(is_for_one) {
            assert!(self.reach(owned.last) <= 1, "{:?}", owned.last);
        }
    }

    /// Checks, when no core has anything to do, that what was registered anew for all streams is valid at all
    /// cores that have the memory.
    fn check_everywhere(&mut self) {
        for owned in self.owned.iter().filter(|owned| owned.is_everywhere) {
            for (number, core) in (0..).zip(&self.world.cores) {
                let checked = core.stags.check(owned.last, ACCESSOR, Access::REMOTE_WRITE, 0, 64);
                assert_eq!(
                    checked.is_ok(),
                    self.world.has(number, owned.first),
                    "{:?} at {number}",
                    owned.last
                );
                self.seen_everywhere += usize::from(checked.is_ok() && number > 0);
            }
        }
    }

    /// Has all cores carry out what they are to do.
    fn drain(&mut self) {
        while let Some(core) = (0..self.world.cores.len() as u8).find(|core| self.world.is_busy(*core)) {
            self.poll(core);
            self.complete();
        }
        self.take_replies();
        self.ended.append(&mut self.overdue);
        assert!(self.changing.is_empty() && self.world.registrations.changes.is_empty());
    }

    /// Deregisters everything: windows too, which registrations may be waiting for.
    fn end(&mut self) {
        self.drain();
        assert!(self.registering.is_empty());
        for Owned { first, last, .. } in std::mem::take(&mut self.owned) {
            let reply = self.world.deregister_named(first, last, None);
            self.leaving.push((first, last, reply));
        }
        for _ in 0..1000 {
            self.drain();
            let due = self.world.registrations.next_deadline();
            if due == Instant::NEVER {
                break;
            }
            self.world.pass_to(due);
        }
        assert!(self.leaving.is_empty());
        assert_eq!(self.world.registrations.len(), 0);
        assert!(self.world.registrations.of_stream.is_empty());
    }
}

// Requirements: DDP-8.3-02, DDP-8.3.1-02, DDP-8.3.1-03
#[test]
fn nothing_that_was_invalidated_is_valid_at_a_core_that_gets_it_later() {
    let (mut bound, mut registered, mut given_invalid, mut ended) = (0, 0, 0, 0);
    let (mut followed, mut unanswered, mut seen_everywhere) = (0, 0, 0);
    for seed in 0..200 {
        let mut application = Application::new(seed);
        for step in 0..500 {
            application.step();
            if step % 8 == 0 {
                application.check();
            }
            if step % 100 == 0 {
                application.drain();
                application.check();
                application.check_everywhere();
            }
        }
        application.end();
        application.check();
        bound += application.bound;
        registered += application.registered;
        given_invalid += application.given_invalid;
        ended += application.ended.len();
        followed += application.followed;
        unanswered += application.unanswered;
        seen_everywhere += application.seen_everywhere;
    }
    let seen = [bound, registered, given_invalid, ended, followed, unanswered, seen_everywhere];
    assert!(seen.iter().all(|seen| *seen > 100), "too little has happened: {seen:?}");
}
