//! Bursts of the peer over a bad path, and the comparison after each.

use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::work::Status;

use super::Reached;
use super::conversation::Conversation;
use super::faults;
use super::plan::Planner;
use crate::reference::fields::{Model, Segment, opcode};
use crate::reference::memory::{Memory, Wish};
use crate::reference::target::{Code, End, Target};

/// Segments of the peer before a stream that cannot be delivered fails the test.
const ROUNDS_MAX: usize = 3000;

/// How a burst travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// A segment is one FPDU or several, in order.
    Aligned,
    /// Segments begin and end anywhere, overtake and overlap each other.
    Wild,
}

/// What is wrong with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A segment of DDP, before the ULPDU with this number.
    Field(usize),
    /// An octet of the FPDU with this number.
    Damage(usize),
    /// The last message is a Terminate.
    Terminate,
}

impl Conversation {
    /// The whole conversation.
    pub(super) fn run(&mut self) {
        for _ in 0..self.rng.u32(2..6) {
            if self.rng.u32(..4) > 0 {
                self.post_receives();
            }
            for _ in 0..self.rng.u32(..8) {
                self.post();
            }
            self.rest();
            self.compare();
            self.burst();
            if self.end.is_some() {
                return;
            }
        }
    }

    pub(super) fn note(&self, reached: &mut Reached) {
        match &self.end {
            Some(End::Error { code, .. }) => *reached.errors.entry(*code).or_default() += 1,
            Some(End::Terminated(_)) => reached.terminated += 1,
            None => {}
        }
        reached.deliveries += self.target.deliveries.len() as u64;
        reached.responses += self.target.responses.len() as u64;
        reached.sent += self.messages_sent as u64;
        reached.placed_beyond_gaps += self.subject.peer.core.statistics().fpdus_placed_out_of_order;
    }

    /// Messages of the peer, delivered and compared.
    fn burst(&mut self) {
        let before = self.target.clone();
        let in_order = !self.setup.markers_received;
        let mut rng = self.rng.fork();
        let mut planner = Planner::new(&mut rng, before.clone(), in_order);
        for _ in 0..planner_messages(&mut self.rng) {
            planner.add();
        }
        let terminate = planner.terminate();
        let mut ulpdus = planner.ulpdus;
        if ulpdus.is_empty() {
            return;
        }
        let plan = ulpdus.clone();
        let mut flaw =
            if self.work.is_idle() && self.rng.bool() { self.flaw(ulpdus.len()) } else { Flaw::None };
        match flaw {
            Flaw::Field(number) => match self.wrong(&before, &plan, number) {
                Some(ulpdu) => ulpdus.insert(number, ulpdu),
                None => flaw = Flaw::None,
            },
            Flaw::Terminate => ulpdus.push(terminate),
            _ => {}
        }
        let (position, first) = (self.stream.len(), self.ends.len());
        for ulpdu in &ulpdus {
            self.frame(ulpdu);
        }
        if let Flaw::Damage(number) = flaw {
            self.damage(first + number);
        }
        self.judge_from(position);
        self.deliver(first, flaw);
        if self.end.is_none() {
            self.rest();
            self.compare();
            return;
        }
        let wrong = if let Flaw::Field(number) = flaw { &ulpdus[number][..] } else { &[] };
        self.compare_end(&after(&before, &plan, wrong), flaw);
    }

    fn flaw(&mut self, ulpdus: usize) -> Flaw {
        match self.rng.u32(..10) {
            0..=6 => Flaw::Field(self.rng.usize(..ulpdus)),
            7..=8 => Flaw::Damage(self.rng.usize(..ulpdus)),
            _ => Flaw::Terminate,
        }
    }

    /// A ULPDU like one of the plan, but for a field, or one that nobody waits for. Where octets may be
    /// placed beyond gaps, it is one that the reference refuses: memory must not depend on the order of
    /// Placement.
    fn wrong(&mut self, before: &Target, plan: &[Vec<u8>], number: usize) -> Option<Vec<u8>> {
        let mut there = before.clone();
        for ulpdu in &plan[..number] {
            there.take(ulpdu).expect("the plan is valid");
        }
        for _ in 0..20 {
            let model = if self.rng.bool() { number } else { self.rng.usize(..plan.len()) };
            let wrong = match self.rng.u32(..3) {
                0 => faults::unasked(&mut self.rng, &there),
                _ => faults::change(&mut self.rng, &plan[model]),
            };
            let refused = there.clone().take(&wrong).is_err();
            if refused || !self.setup.markers_received {
                return Some(wrong);
            }
        }
        None
    }

    /// Changes an octet of an FPDU of the peer, which its CRC does not know. Not of its length, if there are
    /// Markers: they may show the error before its turn. Without CRCs only a Marker.
    fn damage(&mut self, number: usize) {
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let to = self.ends[number];
        let spared = if self.setup.markers_received { 6 } else { 0 };
        if self.setup.crc {
            let at = self.rng.usize(from + spared..to);
            self.stream[at] ^= 1 << self.rng.u32(..8);
        } else if self.setup.markers_received {
            let marker = from.next_multiple_of(512);
            if marker < to {
                self.stream[marker + 2] ^= 1 << self.rng.u32(..8);
            }
        }
    }

    /// Brings all of the stream to the core, from the FPDU with the number `first` on, or as much as it takes
    /// until an error; and then more, which changes nothing.
    fn deliver(&mut self, first: usize, flaw: Flaw) {
        let path = if self.rng.bool() { Path::Aligned } else { Path::Wild };
        // Damage on the way could repair an FPDU that is damaged already.
        let mut damaged = vec![matches!(flaw, Flaw::Damage(_)); self.ends.len()];
        let mut rounds = 0;
        while self.accepted() < self.stream.len() && self.subject.qp.error().is_none() {
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "{} of {} octets", self.accepted(), self.stream.len());
            match path {
                Path::Aligned => self.send_aligned(&mut damaged[first..], first),
                Path::Wild => self.send_wild(),
            }
            if flaw == Flaw::None && self.rng.u32(..6) == 0 {
                self.post();
            }
            let losses = if self.rng.u32(..4) == 0 { 8 } else { 0 };
            self.hear(losses);
            if self.rng.bool() {
                self.acknowledge();
            }
            if self.waits_for_more(rounds) {
                break;
            }
        }
        if self.subject.qp.error().is_some() {
            let memory = self.subject.memory();
            for _ in 0..4 {
                self.send_wild();
                self.hear(0);
            }
            assert!(self.subject.memory() == memory, "something was placed after the error");
        }
    }

    /// A length that was damaged may announce more octets than there are: all of them wait.
    fn waits_for_more(&self, rounds: usize) -> bool {
        rounds > 400 && self.end.is_none()
    }

    /// A few segments in order, each of one FPDU or of several, of which some are lost or damaged.
    fn send_aligned(&mut self, damaged: &mut [bool], first: usize) {
        let mut from = self.accepted();
        for _ in 0..self.rng.usize(1..8) {
            if from == self.stream.len() {
                return;
            }
            let number = self.ends.partition_point(|end| *end <= from);
            let last = number + if self.rng.u32(..3) == 0 { self.rng.usize(..4) } else { 0 };
            let end = self.ends[last.min(self.ends.len() - 1)];
            let whole = end.min(from + self.largest_segment());
            let mut octets = self.stream[from..whole].to_vec();
            let (lost, wrong_checksum) = (self.rng.u32(..12) == 0, self.rng.u32(..16) == 0);
            // Beyond TCP's checksum, but not the length of an FPDU, which may be acknowledged: the FPDU is
            // dropped and comes again.
            let again = damaged.get_mut(number - first.min(number));
            if let Some(again) = again
                && self.setup.crc
                && whole == self.ends[number]
                && (number == 0 || self.ends[number - 1] == from)
                && !*again
                && self.rng.u32(..20) == 0
            {
                *again = true;
                let at = self.rng.usize(8..octets.len());
                octets[at] ^= 1 << self.rng.u32(..8);
            }
            if !lost {
                self.inject(from, &octets, wrong_checksum);
            }
            from = whole;
        }
    }

    fn largest_segment(&self) -> usize {
        self.setup.mtu_octets - 40
    }

    /// A few segments around octets that are missing, in any order, some lost, damaged or twice.
    fn send_wild(&mut self) {
        let near = self.accepted().min(self.stream.len() - 1);
        for _ in 0..self.rng.usize(1..6) {
            let from = match self.rng.u32(..3) {
                0 => near,
                _ => (near + self.rng.usize(..3000)).saturating_sub(self.rng.usize(..300)),
            };
            let from = from.min(self.stream.len() - 1);
            let aligned = self.ends[self.ends.partition_point(|end| *end <= from)];
            let most = self.largest_segment();
            let to = if self.rng.bool() { aligned } else { from + 1 + self.rng.usize(..most) };
            let to = to.min(from + most).min(self.stream.len());
            let octets = self.stream[from..to].to_vec();
            let damaged = self.rng.u32(..10) == 0;
            for _ in 0..=usize::from(self.rng.u32(..8) == 0) {
                self.inject(from, &octets, damaged);
            }
        }
    }

    /// The stream has ended: with the error of the reference, its Terminate, and memory as it was then.
    fn compare_end(&mut self, beyond: &[Memory], flaw: Flaw) {
        let error = self.subject.qp.error().map(number);
        let end = self.end.clone().expect("an end");
        let (End::Error { code, .. } | End::Terminated(code)) = end;
        assert_eq!(error, Some(code), "flaw: {flaw:?}");
        self.rest();
        let may_send = self.setup.initiator || self.valid_fpdus > 0;
        let due = match end {
            End::Error { terminate, .. } if may_send => Some(terminate),
            _ => None,
        };
        assert!(self.terminate == due, "{:02x?} was sent, not {due:02x?}", self.terminate);
        self.finish();
        let [receives, sends] = self.completions();
        let flushed = self.compare_deliveries(&receives);
        assert!(flushed.iter().all(|receive| receive.status != Status::Success), "{flushed:?}");
        let open = self.target.open.iter().map(|(receive, _)| receive.id);
        let waiting = self.target.receives.iter().map(|receive| receive.id);
        let due: Vec<_> = open.chain(waiting).collect();
        let ids: Vec<_> = flushed.iter().map(|receive| receive.id).collect();
        if self.setup.shares_receives {
            assert!(due.starts_with(&ids), "flushed {ids:?} of {due:?}");
        } else {
            assert_eq!(ids, due, "flushed");
        }
        let done = sends.iter().take_while(|send| send.status == Status::Success).count();
        self.work.complete(&sends[..done], &self.target);
        self.work.flush(&sends[done..]);
        self.compare_memory_at_end(beyond, flaw);
    }

    /// Without Markers memory is that of the reference. With them, what came beyond a gap before the error
    /// was found may be there too, as in one of `beyond`.
    fn compare_memory_at_end(&self, beyond: &[Memory], flaw: Flaw) {
        let beyond = if self.setup.markers_received { beyond } else { &[] };
        let memory = self.subject.memory();
        for (number, region) in self.target.memory.0.iter().enumerate() {
            // Nothing but a Delivery changes a counter.
            let beyond = if region.rights.remote_atomic { &[] } else { beyond };
            for (at, expected) in region.octets.iter().enumerate() {
                let octet = memory[number][at];
                let may_be = || beyond.iter().any(|memory| memory.0[number].octets[at] == octet);
                assert!(
                    octet == *expected || may_be(),
                    "STag {:#x} has {octet:#x} at {at}, not {expected:#x}: {flaw:?}",
                    region.stag
                );
            }
        }
    }
}

/// Memory after a plan whose Writes do not overlap; and memory with `wrong` too, if it would fit somewhere:
/// what is wrong with it may show in its turn only.
fn after(before: &Target, plan: &[Vec<u8>], wrong: &[u8]) -> [Memory; 2] {
    let mut target = before.clone();
    for ulpdu in plan {
        target.take(ulpdu).expect("the plan is valid");
    }
    let mut memory = target.memory.clone();
    let Some(segment) = Segment::parse(wrong) else { return [target.memory, memory] };
    let octets = segment.payload.len();
    match segment.model {
        Model::Tagged { stag, to } => {
            let response = segment.opcode == opcode::READ_RESPONSE;
            let wish = if response { Wish::LocalWrite } else { Wish::RemoteWrite };
            if let Ok(place) = memory.check(stag, to, octets.max(1), wish) {
                memory.write(place, &segment.payload);
            }
        }
        Model::Untagged { msn, mo, .. } => {
            let open = before.open.iter().map(|(receive, _)| receive);
            let mut receives = open.chain(&before.receives);
            let number = msn.wrapping_sub(before.next_msn(0)) as usize;
            if let Some(receive) = receives.nth(number) {
                let places = receive.octets_from(&memory, mo as usize);
                for (place, octet) in places.zip(&segment.payload).collect::<Vec<_>>() {
                    memory.write(place, &[*octet]);
                }
            }
        }
    }
    [target.memory, memory]
}

fn planner_messages(rng: &mut fastrand::Rng) -> u32 {
    if rng.u32(..4) == 0 { rng.u32(1..30) } else { rng.u32(1..8) }
}

/// What a Terminate says of an error of the stack.
fn number(error: StreamError) -> Code {
    match error {
        StreamError::Mpa(error) => Code { layer: 2, error_type: 0, number: error.code() },
        StreamError::Ddp(error) => Code { layer: 1, error_type: error.error_type(), number: error.code() },
        StreamError::Rdmap(error) => Code { layer: 0, error_type: error.error_type(), number: error.code() },
        StreamError::Terminated { layer, error_type, code } => Code { layer, error_type, number: code },
        other => panic!("{other:?}"),
    }
}
