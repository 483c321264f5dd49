//! Requests of every kind, of chance, and what each does in the model.

use warpline_dataplane::limits;
use warpline_dataplane::qp::work::{InlineData, Operation, Payload, Slice, SliceList};

use super::half::{DISPOSABLES, Due, Ends, Receive};
use super::hazards::{Area, Span, Touches};
use super::play::{NOWHERE, Play};

/// Longest message of Writes and Reads.
const LONG_OCTETS: usize = 12_000;

/// What is to be posted: the request, and what the model knows of it.
pub struct Work {
    pub operation: Operation,
    pub local: Payload,
    pub touches: Touches,
    pub ends: Ends,
    /// What it does in the model.
    pub effect: Effect,
}

/// What a request does in the model.
pub enum Effect {
    /// Octets come to the peer's memory.
    Write {
        target: Span,
        octets: Vec<u8>,
        then: Option<Message>,
    },
    /// The peer's octets come here.
    Read {
        from: Span,
        sink: Vec<Span>,
    },
    /// The peer's integer is changed, and comes here as it was.
    Change {
        target: Span,
        sink: Span,
        result: fn(u64, [u64; 4]) -> u64,
        operands: [u64; 4],
    },
    Message(Message),
    /// An STag of this end's own.
    Invalidate(Area),
}

/// What comes out of the peer's receive queue.
pub struct Message {
    pub octets: Vec<u8>,
    pub immediate: Option<u64>,
    pub invalidates: Option<Area>,
    pub solicited: bool,
}

impl Play {
    /// The octets of a request that are sent: in the request, or in as many ranges of memory as there may be.
    fn local(&mut self, number: usize, side: usize, octets: usize) -> (Payload, Vec<Span>, Vec<u8>) {
        if octets <= 64 && self.rng.u32(..3) == 0 {
            let mut data = vec![0; octets];
            self.rng.fill(&mut data);
            self.tally.inlined += 1;
            return (InlineData::try_from(&data[..]).expect("few").into(), Vec::new(), data);
        }
        let half = &self.halves[number][side];
        let more = self.rng.usize(..limits::SCATTER_GATHER_ELEMENTS);
        let mut cuts: Vec<usize> = (0..more).map(|_| self.rng.usize(0..=octets)).collect();
        cuts.extend([0, octets]);
        cuts.sort_unstable();
        let spans: Vec<Span> = cuts
            .windows(2)
            .map(|pair| {
                let area = if self.rng.u32(..4) == 0 { Area::Sink } else { Area::Source };
                half.span(&mut self.rng, area, pair[1] - pair[0])
            })
            .collect();
        let slices: Vec<Slice> = spans.iter().map(|span| half.slice(span)).collect();
        let local = SliceList::try_from(&slices[..]).expect("few enough");
        (local.into(), spans.clone(), half.gather(&spans))
    }

    fn octets(&mut self, most: usize) -> usize {
        match self.rng.u32(..6) {
            0 => self.rng.usize(..4.min(most + 1)),
            1..=3 => self.rng.usize(0..=most.min(300)),
            _ => self.rng.usize(0..=most),
        }
    }

    /// The oldest receive of the peer that no message was sent for, in octets.
    fn room(&self, number: usize, side: usize) -> Option<usize> {
        self.halves[number][1 - side].receives.front().map(Receive::octets)
    }

    pub fn a_send(&mut self, number: usize, side: usize) -> Option<Work> {
        let room = self.room(number, side)?;
        let octets = self.octets(room);
        let (local, sources, data) = self.local(number, side, octets);
        let solicited = self.rng.bool();
        let invalidates = if self.rng.u32(..6) == 0 { self.disposable(number, 1 - side) } else { None };
        let invalidate = invalidates.map(|area| self.halves[number][1 - side].memory(area).stag);
        self.tally.sends += 1;
        self.tally.invalidations += u64::from(invalidate.is_some());
        Some(Work {
            operation: Operation::Send { invalidate, solicited },
            local,
            touches: Touches { sources, ..Touches::default() },
            ends: Ends::Done(octets as u32),
            effect: Effect::Message(Message { octets: data, immediate: None, invalidates, solicited }),
        })
    }

    /// A valid STag of that end that may be invalidated.
    fn disposable(&mut self, number: usize, side: usize) -> Option<Area> {
        let area = Area::Disposable(self.rng.u8(..DISPOSABLES));
        self.halves[number][side].memory(area).valid.then_some(area)
    }

    /// A range of the peer's memory that may be written.
    fn target(&mut self, number: usize, side: usize, octets: usize) -> (Span, Slice) {
        let mut area = Area::Shared;
        if octets <= 64 && self.rng.u32(..4) == 0 {
            area = self.disposable(number, 1 - side).unwrap_or(area);
        }
        let there = &self.halves[number][1 - side];
        let span = there.span(&mut self.rng, area, octets);
        let slice = there.slice(&span);
        (span, slice)
    }

    pub fn a_write(&mut self, number: usize, side: usize) -> Work {
        let octets = self.octets(LONG_OCTETS);
        let (local, sources, data) = self.local(number, side, octets);
        let (target, remote) = self.target(number, side, octets);
        self.tally.writes += 1;
        Work {
            operation: Operation::Write { stag: remote.stag, to: remote.to },
            local,
            touches: Touches { sources, written: Some(target.clone()), ..Touches::default() },
            ends: Ends::Done(octets as u32),
            effect: Effect::Write { target, octets: data, then: None },
        }
    }

    pub fn a_write_with_immediate(&mut self, number: usize, side: usize) -> Option<Work> {
        self.room(number, side)?;
        let mut work = self.a_write(number, side);
        let (Operation::Write { stag, to }, Effect::Write { then, .. }) = (work.operation, &mut work.effect)
        else {
            unreachable!("a Write")
        };
        let (immediate, solicited) = (self.rng.u64(..), self.rng.bool());
        work.operation = Operation::WriteWithImmediate { stag, to, immediate, solicited };
        *then =
            Some(Message { octets: Vec::new(), immediate: Some(immediate), invalidates: None, solicited });
        self.tally.immediates += 1;
        Some(work)
    }

    pub fn immediate_data(&mut self, number: usize, side: usize) -> Option<Work> {
        self.room(number, side)?;
        let (immediate, solicited) = (self.rng.u64(..), self.rng.bool());
        let message =
            Message { octets: Vec::new(), immediate: Some(immediate), invalidates: None, solicited };
        self.tally.immediates += 1;
        Some(Work {
            operation: Operation::Immediate { immediate, solicited },
            local: SliceList::default().into(),
            touches: Touches::default(),
            ends: Ends::Done(0),
            effect: Effect::Message(message),
        })
    }

    pub fn a_read(&mut self, number: usize, side: usize) -> Work {
        let octets = self.octets(LONG_OCTETS);
        let [here, there] = [side, 1 - side].map(|side| &self.halves[number][side]);
        let sink = here.span(&mut self.rng, Area::Sink, octets);
        let from = there.span(&mut self.rng, Area::Shared, octets);
        let mut remote = there.slice(&from);
        if octets == 0 && self.rng.bool() {
            // RDMAP-5.2.1-09: nothing of a zero-length Read is looked at.
            (remote.stag, remote.to) = (NOWHERE, u64::MAX);
        }
        let local = here.slice(&sink);
        self.tally.reads += 1;
        Work {
            operation: Operation::Read { stag: remote.stag, to: remote.to },
            local: local.into(),
            touches: Touches { sink: Some(sink.clone()), read: Some(from.clone()), ..Touches::default() },
            ends: Ends::Done(octets as u32),
            effect: Effect::Read { from, sink: vec![sink] },
        }
    }

    pub fn an_atomic(&mut self, number: usize, side: usize) -> Work {
        let [here, there] = [side, 1 - side].map(|side| &self.halves[number][side]);
        let sink = here.span(&mut self.rng, Area::Sink, 8);
        let mut target = there.span(&mut self.rng, Area::Shared, 8);
        // RDMAPX-5-02: aligned. Often the same, so that one sees what another did.
        let start = if self.rng.bool() { 8 * self.rng.usize(..4) } else { target.range.start & !7 };
        target.range = start..start + 8;
        let before = there.gather(std::slice::from_ref(&target));
        let before = u64::from_ne_bytes(before[..].try_into().expect("eight octets"));
        let Slice { stag, to, .. } = there.slice(&target);
        let local = here.slice(&sink).into();
        let [one, two, three, four]: [u64; 4] = core::array::from_fn(|_| self.rng.u64(..));
        let mask = [0, 0x8000_0000, u64::MAX, two][self.rng.usize(..4)];
        let compare = if self.rng.bool() { before } else { three };
        let compare_mask = [0, u64::MAX, 0xffff, four][self.rng.usize(..4)];
        self.tally.atomics += 1;
        let (operation, result, operands): (_, fn(u64, [u64; 4]) -> u64, _) = match self.rng.u32(..3) {
            0 => (Operation::FetchAdd { stag, to, add: one, mask }, add, [one, mask, 0, 0]),
            1 => {
                let swap =
                    Operation::CompareSwap { stag, to, compare, compare_mask, swap: one, swap_mask: mask };
                (swap, compare_and_swap, [one, mask, compare, compare_mask])
            }
            _ => (Operation::Swap { stag, to, swap: one, mask }, compare_and_swap, [one, mask, 0, 0]),
        };
        Work {
            operation,
            local,
            touches: Touches {
                sink: Some(sink.clone()),
                changed: Some(target.clone()),
                ..Touches::default()
            },
            ends: Ends::Done(8),
            effect: Effect::Change { target, sink, result, operands },
        }
    }

    /// Of an STag that no request of the peer is on its way to.
    pub fn a_local_invalidation(&mut self, number: usize, side: usize) -> Option<Work> {
        if self.rng.u32(..3) > 0 {
            return None;
        }
        let area = self.disposable(number, side)?;
        let busy = |due: &Due| due.touches.written.as_ref().is_some_and(|span| span.area == area);
        if self.halves[number][1 - side].due.iter().any(busy) {
            return None;
        }
        self.tally.invalidations += 1;
        Some(Work {
            operation: Operation::LocalInvalidate { stag: self.halves[number][side].memory(area).stag },
            local: SliceList::default().into(),
            touches: Touches::default(),
            ends: Ends::Done(0),
            effect: Effect::Invalidate(area),
        })
    }
}

/// RFC 7306 §5.1.1, as the document spells it out. Operands: what is added, and the ends of fields.
fn add(value: u64, [data, mask, ..]: [u64; 4]) -> u64 {
    let (mut carry, mut sum) = (0, 0);
    for bit in 0..64 {
        let both = carry + (value >> bit & 1) + (data >> bit & 1);
        sum |= (both & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { both >> 1 };
    }
    sum
}

/// RFC 7306 §5.1.2. Operands: what comes in and where, what is expected and where.
fn compare_and_swap(value: u64, [swap, swap_mask, compare, compare_mask]: [u64; 4]) -> u64 {
    if (compare ^ value) & compare_mask == 0 { value & !swap_mask | swap & swap_mask } else { value }
}
