//! Random requests of every kind, and the effect of each in the model.

use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, STag};
use warpline_dataplane::qp::work::{InlineData, Operation, Payload, Slice, SliceList};

use super::grants::{Reach, Target};
use super::half::{Ends, Half};
use super::hazards::{Area, Span, Touches};
use super::play::{NOWHERE, Play};
use super::stack::World;

/// Longest message of Writes and Reads.
const LONG_OCTETS: usize = 12_000;

/// A request to be posted, and its state in the model.
pub(crate) struct Work {
    pub operation: Operation,
    pub local: Payload,
    pub touches: Touches,
    pub ends: Ends,
    /// Its effect in the model.
    pub effect: Effect,
}

/// The effect of a request in the model.
pub(crate) enum Effect {
    /// Octets are written to the peer's memory.
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
    /// The peer's integer is changed, and its previous value is returned.
    Change {
        target: Span,
        sink: Span,
        result: fn(u64, [u64; 4]) -> u64,
        operands: [u64; 4],
    },
    Message(Message),
    /// The name in that place of this end's own.
    Invalidate(usize),
    /// The name in that place of this end's own is called otherwise and reaches something.
    Open {
        place: usize,
        stag: STag,
        reach: Reach,
        below: Option<usize>,
    },
}

/// A message that the peer's receive queue completes.
pub(crate) struct Message {
    pub octets: Vec<u8>,
    pub immediate: Option<u64>,
    /// The place of the receiver's name.
    pub invalidates: Option<usize>,
    pub solicited: bool,
}

impl<W: World> Play<W> {
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

    pub(crate) fn a_send(&mut self, number: usize, side: usize) -> Option<Work> {
        let room = self.room_or_patience(number, side)?;
        let octets = self.octets(room);
        let (local, sources, data) = self.local(number, side, octets);
        let solicited = self.rng.bool();
        let there = &self.halves[number][1 - side];
        let invalidable = |half: &Half, place| half.is_steady(place) && half.is_invalidable(place);
        let invalidates = if self.rng.u32(..4) == 0 { there.place(&mut self.rng, invalidable) } else { None };
        let invalidate = invalidates.map(|place| there.names[place].stag);
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

    /// Octets of the peer's memory for which `right` is granted.
    fn target(&mut self, number: usize, side: usize, right: Access, octets: usize) -> Target {
        let target = self.halves[number][1 - side].target(&mut self.rng, right, octets, false);
        self.count(number, side, &target);
        target
    }

    fn count(&mut self, number: usize, side: usize, target: &Target) {
        let named = &self.halves[number][1 - side].names[target.place];
        self.tally.through_windows += u64::from(named.is_window());
        self.tally.through_renewed += u64::from(!named.is_window() && named.former.is_some());
    }

    pub(crate) fn a_write(&mut self, number: usize, side: usize) -> Work {
        let octets = self.octets(LONG_OCTETS);
        let (local, sources, data) = self.local(number, side, octets);
        let Target { span, stag, to, place } = self.target(number, side, Access::REMOTE_WRITE, octets);
        self.tally.writes += 1;
        Work {
            operation: Operation::Write { stag, to },
            local,
            touches: Touches {
                sources,
                written: Some(span.clone()),
                through: Some(place),
                ..Touches::default()
            },
            ends: Ends::Done(octets as u32),
            effect: Effect::Write { target: span, octets: data, then: None },
        }
    }

    pub(crate) fn a_write_with_immediate(&mut self, number: usize, side: usize) -> Option<Work> {
        self.room_or_patience(number, side)?;
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

    pub(crate) fn immediate_data(&mut self, number: usize, side: usize) -> Option<Work> {
        self.room_or_patience(number, side)?;
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

    pub(crate) fn a_read(&mut self, number: usize, side: usize) -> Work {
        let octets = self.octets(LONG_OCTETS);
        let Target { span: from, mut stag, mut to, place } =
            self.target(number, side, Access::REMOTE_READ, octets);
        self.halves[number][1 - side].names[place].unsettled = true;
        let here = &self.halves[number][side];
        let sink = here.span(&mut self.rng, Area::Sink, octets);
        if octets == 0 && self.rng.bool() {
            // All fields of a zero-length Read are ignored.
            // Requirements: RDMAP-5.2.1-09
            (stag, to) = (NOWHERE, u64::MAX);
        }
        let local = here.slice(&sink);
        self.tally.reads += 1;
        Work {
            operation: Operation::Read { stag, to },
            local: local.into(),
            touches: Touches {
                sink: Some(sink.clone()),
                read: Some(from.clone()),
                through: Some(place),
                ..Touches::default()
            },
            ends: Ends::Done(octets as u32),
            effect: Effect::Read { from, sink: vec![sink] },
        }
    }

    pub(crate) fn an_atomic(&mut self, number: usize, side: usize) -> Work {
        let [here, there] = [side, 1 - side].map(|side| &self.halves[number][side]);
        let sink = here.span(&mut self.rng, Area::Sink, 8);
        // Aligned.
        // Requirements: RDMAPX-5-02
        let found = there.target(&mut self.rng, Access::REMOTE_ATOMIC, 8, true);
        let before = there.gather(std::slice::from_ref(&found.span));
        let before = u64::from_ne_bytes(before[..].try_into().expect("eight octets"));
        let local = here.slice(&sink).into();
        let [one, two, three, four]: [u64; 4] = core::array::from_fn(|_| self.rng.u64(..));
        let mask = [0, 0x8000_0000, u64::MAX, two][self.rng.usize(..4)];
        let compare = if self.rng.bool() { before } else { three };
        let compare_mask = [0, u64::MAX, 0xffff, four][self.rng.usize(..4)];
        self.tally.atomics += 1;
        self.count(number, side, &found);
        let Target { span: target, stag, to, place } = found;
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
                through: Some(place),
                ..Touches::default()
            },
            ends: Ends::Done(8),
            effect: Effect::Change { target, sink, result, operands },
        }
    }
}

/// RFC 7306 §5.1.1, as the document defines it. Operands: the addend, and the ends of fields.
fn add(value: u64, [data, mask, ..]: [u64; 4]) -> u64 {
    let (mut carry, mut sum) = (0, 0);
    for bit in 0..64 {
        let both = carry + (value >> bit & 1) + (data >> bit & 1);
        sum |= (both & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { both >> 1 };
    }
    sum
}

/// RFC 7306 §5.1.2. Operands: the new value and its mask, the expected value and its mask.
fn compare_and_swap(value: u64, [swap, swap_mask, compare, compare_mask]: [u64; 4]) -> u64 {
    if (compare ^ value) & compare_mask == 0 { value & !swap_mask | swap & swap_mask } else { value }
}
