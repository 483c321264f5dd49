//! One seed: random work on the stack and on the model, and the comparison.

use fastrand::Rng;
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::work::{Completion, CompletionKind, Operation, SendRequest, SliceList, Status};

use super::half::{Due, Ends, Half};
use super::hazards::{Needs, Touches};
use super::pool::Pool;
use super::receives::deliver;
use super::stack::{DEPTH, Damage, World};
use super::work::{Effect, Work};

/// An STag that names no memory.
pub(crate) const NOWHERE: STag = STag(0xfeed_ffff);
/// Virtual time within which every pending event must occur, whatever the network does.
const PATIENCE_S: u64 = 2000;

/// How much was done, to see that a run tries everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub sends: u64,
    pub writes: u64,
    pub reads: u64,
    pub atomics: u64,
    pub immediates: u64,
    pub invalidations: u64,
    pub binds: u64,
    pub registrations: u64,
    pub through_windows: u64,
    pub through_renewed: u64,
    pub unsignaled: u64,
    pub fences: u64,
    pub inlined: u64,
    pub local_faults: u64,
    pub remote_faults: u64,
    pub name_faults: u64,
    pub shared_receives: u64,
    /// Messages that were sent before the shared receive for them was posted, which is for some worlds.
    pub awaited: u64,
    pub damage: Damage,
}

impl Tally {
    fn fields(&mut self) -> [&mut u64; 23] {
        let Self { sends, writes, reads, atomics, immediates, .. } = self;
        let Self { shared_receives, binds, registrations, through_windows, through_renewed, .. } = self;
        let Self {
            invalidations, unsignaled, fences, inlined, local_faults, remote_faults, name_faults, ..
        } = self;
        let Damage { inverted_bits, altered_payloads, cut, joined, wrong_checksums, wrong_crcs } =
            &mut self.damage;
        [
            sends,
            writes,
            reads,
            atomics,
            immediates,
            invalidations,
            binds,
            registrations,
            through_windows,
            through_renewed,
            unsignaled,
            fences,
            inlined,
            local_faults,
            remote_faults,
            name_faults,
            shared_receives,
            inverted_bits,
            altered_payloads,
            cut,
            joined,
            wrong_checksums,
            wrong_crcs,
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        self.awaited += other.awaited;
        for (sum, more) in self.fields().into_iter().zip(other.fields()) {
            *sum += *more;
        }
    }

    /// Nothing of it was left out.
    pub(crate) fn expect_everything(mut self) {
        assert!(self.fields().iter().all(|count| **count > 0), "{self:?}");
    }
}

/// Random work on the connections of a world, in the model and on the stack.
pub(crate) struct Play<W> {
    pub seed: u64,
    pub rng: Rng,
    pub world: W,
    /// The shared receive pools of the hosts.
    pub pools: Vec<Pool>,
    /// Both halves of each connection.
    pub halves: Vec<[Half; 2]>,
    pub tally: Tally,
}

impl<W: World> Play<W> {
    /// Returns a play on the hosts of `world`.
    pub(crate) fn on(seed: u64, mut rng: Rng, mut world: W) -> Self {
        let pools = (0..world.hosts()).map(|host| Pool::new(&mut rng, &mut world, host)).collect();
        Self { seed, rng, world, pools, halves: Vec::new(), tally: Tally::default() }
    }

    /// Registers the memory of the next connection at both ends.
    pub(crate) fn add_connection(&mut self) {
        let number = self.halves.len();
        let half = |side| Half::new(&mut self.rng, &mut self.world, number, side);
        self.halves.push([0, 1].map(half));
    }

    pub(crate) fn run(mut self) -> Tally {
        for _ in 0..self.rng.u32(20..250) {
            self.act();
        }
        for number in 0..self.halves.len() {
            if self.rng.u32(..3) == 0 {
                let side = self.rng.usize(..2);
                self.end_badly(number, side);
            }
        }
        self.settle_all();
        self.expect_all_memory();
        self.tally.damage = self.world.damage();
        self.tally
    }

    /// Posts something somewhere, or lets time pass.
    pub(crate) fn act(&mut self) {
        let (number, side) = (self.rng.usize(..self.halves.len()), self.rng.usize(..2));
        match self.rng.u32(..10) {
            0..=1 => self.post_receives(number, side),
            2..=7 => self.post_any(number, side),
            8 => self.run_for(20),
            _ => self.run_for(200),
        }
    }

    /// Waits until everything that was posted is complete, but for receives without a message.
    pub(crate) fn settle_all(&mut self) {
        for number in 0..self.halves.len() {
            for side in [0, 1] {
                self.complete_all(number, side);
            }
        }
        self.until("all receives are complete", |this| {
            this.halves.iter().flatten().all(|half| half.over || half.due_receives.is_empty())
        });
    }

    /// All memory matches the model, and all shared receives are accounted for.
    pub(crate) fn expect_all_memory(&self) {
        for host in 0..self.world.hosts() {
            self.expect_pool(host, &format!("seed {}, shared receives of host {host}", self.seed));
        }
        for (number, halves) in self.halves.iter().enumerate() {
            for (side, half) in halves.iter().enumerate() {
                half.expect_memory(&format!("seed {}, connection {number}, side {side}", self.seed));
            }
        }
    }

    fn run_for(&mut self, steps: u32) {
        for _ in 0..self.rng.u32(..steps) {
            self.world.step();
        }
        self.take_completions();
    }

    /// Runs until `done`, taking completions.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let give_up = self.world.seconds() + PATIENCE_S;
        loop {
            self.take_completions();
            if done(self) {
                return;
            }
            self.post_awaited();
            assert!(
                self.world.seconds() < give_up,
                "seed {}: {what}: never; {}",
                self.seed,
                self.world.describe()
            );
            self.world.step();
        }
    }

    // Sends.

    fn post_any(&mut self, number: usize, side: usize) {
        if self.halves[number][side].over {
            return;
        }
        let work = match self.rng.u32(..23) {
            0..=4 => self.a_send(number, side),
            5..=8 => Some(self.a_write(number, side)),
            9..=12 => Some(self.a_read(number, side)),
            13..=15 => Some(self.an_atomic(number, side)),
            16 => self.immediate_data(number, side),
            17 => self.a_write_with_immediate(number, side),
            18..=20 => self.a_bind(number, side),
            21 => self.a_registration(number, side),
            _ => self.a_local_invalidation(number, side),
        };
        if let Some(work) = work {
            self.post(number, side, work);
        }
    }

    /// Posts `work` when nothing that is outstanding makes its outcome a matter of chance, and carries it out
    /// in the model.
    pub(crate) fn post(&mut self, number: usize, side: usize, work: Work) {
        let needs = |this: &Self| {
            let due = this.halves[number][side].due.iter();
            due.map(|due| work.touches.needs(&due.touches)).max().unwrap_or(Needs::Nothing)
        };
        if needs(self) == Needs::Completion || self.halves[number][side].due.len() == DEPTH {
            self.complete_all(number, side);
        }
        if self.halves[number][side].over {
            return;
        }
        let fenced = needs(self) == Needs::Fence || self.rng.u32(..10) == 0;
        let signaled = self.rng.u32(..3) > 0;
        self.tally.fences += u64::from(fenced);
        self.tally.unsignaled += u64::from(!signaled);
        let id = self.halves[number][side].id();
        let request = SendRequest { signaled, fenced, ..SendRequest::new(id, work.operation, work.local) };
        self.world.qp(number, side).post_send(request).expect("there is room");
        let due = Due { id, kind: work.operation.kind(), ends: work.ends, signaled, touches: work.touches };
        self.halves[number][side].due.push_back(due);
        self.carry_out(number, side, work.effect);
    }

    /// An empty Write that reports its completion.
    pub(crate) fn post_empty(&mut self, number: usize, side: usize) {
        let half = &mut self.halves[number][side];
        let id = half.id();
        let operation = Operation::Write { stag: NOWHERE, to: u64::MAX };
        let request = SendRequest::new(id, operation, SliceList::default());
        self.world.qp(number, side).post_send(request).expect("there is room");
        let due = Due {
            id,
            kind: CompletionKind::Write,
            ends: Ends::Done(0),
            signaled: true,
            touches: Touches::default(),
        };
        half.due.push_back(due);
    }

    /// Waits until everything posted is complete.
    pub(crate) fn complete_all(&mut self, number: usize, side: usize) {
        if self.halves[number][side].due.back().is_some_and(|due| !due.signaled)
            && !self.halves[number][side].over
        {
            self.until("there is room", |this| {
                this.halves[number][side].due.len() < DEPTH
                    || this.halves[number][side].due.iter().all(|due| !due.signaled)
            });
            if self.halves[number][side].due.len() < DEPTH {
                self.post_empty(number, side);
            }
        }
        self.until("all sends are complete", |this| {
            let half = &this.halves[number][side];
            half.over || half.due.is_empty()
        });
        let idle = |half: &Half| !half.cut_off && half.due.is_empty() && half.due_receives.is_empty();
        if self.halves[number].iter().all(idle) {
            self.halves[number].iter_mut().for_each(Half::settle);
        }
    }

    fn carry_out(&mut self, number: usize, side: usize, effect: Effect) {
        let is_message = matches!(effect, Effect::Message(_) | Effect::Write { then: Some(_), .. });
        self.tally.awaited += u64::from(is_message && self.room(number, side).is_none());
        let [first, second] = &mut self.halves[number];
        let (here, there) = if side == 0 { (first, second) } else { (second, first) };
        match effect {
            Effect::Write { target, octets, then } => {
                there.scatter(&[target], &octets);
                if let Some(message) = then {
                    deliver(there, message);
                }
            }
            Effect::Read { from, sink } => here.scatter(&sink, &there.gather(&[from])),
            Effect::Change { target, sink, result, operands } => {
                let before = there.gather(std::slice::from_ref(&target));
                let value = u64::from_ne_bytes(before[..].try_into().expect("eight octets"));
                there.scatter(&[target], &result(value, operands).to_ne_bytes());
                here.scatter(&[sink], &before);
            }
            Effect::Message(message) => deliver(there, message),
            Effect::Invalidate(place) => here.names[place].reach = None,
            Effect::Open { place, stag, reach, below } => here.names[place].open(stag, reach, below),
        }
    }

    // Completions.

    pub(crate) fn take_completions(&mut self) {
        for host in 0..self.world.hosts() {
            for ((number, side), completion) in self.world.poll_completions(host) {
                if self.halves[number][side].cut_off {
                    self.take_of_cut_off(number, side, &completion);
                } else if self.halves[number][side].over && completion.kind == CompletionKind::Receive {
                    self.take_last_receive(number, side, &completion);
                } else if self.halves[number][side].over {
                    self.halves[number][side].take_ending(&completion);
                } else if completion.kind == CompletionKind::Receive {
                    self.dequeue_receive(number, side, &completion);
                } else {
                    self.dequeue_send(number, side, &completion);
                }
            }
        }
    }

    pub(crate) fn what(&self, number: usize, side: usize, completion: &Completion) -> String {
        let errors = [0, 1].map(|side| self.world.qp(number, side).error());
        format!("seed {}, connection {number}, side {side}: {completion:?}, errors {errors:?}", self.seed)
    }

    fn dequeue_send(&mut self, number: usize, side: usize, completion: &Completion) {
        let what = self.what(number, side, completion);
        let due = &mut self.halves[number][side].due;
        // Those before it that report no success are complete too (RDMAP-5.5-08).
        while due.front().is_some_and(|due| !due.signaled && due.id != completion.id) {
            due.pop_front();
        }
        let due = due.pop_front().unwrap_or_else(|| panic!("{what}: nothing is outstanding"));
        assert_eq!((completion.id, completion.kind), (due.id, due.kind), "{what}, not {due:?}");
        assert_eq!(
            (completion.status, Ends::Done(completion.byte_len)),
            (Status::Success, due.ends),
            "{what}, of {due:?}"
        );
        assert!(due.signaled, "{what}: it was not to be told");
    }
}
