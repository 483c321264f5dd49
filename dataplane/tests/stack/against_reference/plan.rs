//! What the peer sends: messages of every kind, cut into segments, which the reference takes.

use fastrand::Rng;
use warpline_dataplane::memory::STag;

use super::subject::{
    COUNTERS, COUNTERS_OCTETS, INBOX, KEYS, READABLE, READABLE_OCTETS, SINK, SINK_OCTETS, SLOT_OCTETS, SLOTS,
};
use crate::reference::fields::{AtomicRequest, AtomicResponse, Model, ReadRequest, Segment, opcode};
use crate::reference::target::{Code, Outstanding, Range, Receive, Target, terminate};

const SINK_BASE: u64 = 0xffff_f000;
const COUNTERS_BASE: u64 = 0x1000;
const INBOX_BASE: u64 = 0x100;
/// Octets of a message for a registration, and of payload in a segment: some FPDUs fit no TCP segment.
const MESSAGE_OCTETS_MAX: usize = 4000;
const PAYLOAD_OCTETS_MAX: usize = 2200;
/// Requests of each kind in one burst: with one more by a fault they are within IRD.
const REQUESTS_MAX: usize = 2;

/// Returns a buffer in slot `number % SLOTS`: up to four ranges that do not overlap, in any order.
pub(super) fn receive(rng: &mut Rng, number: u64) -> Receive {
    let slot = INBOX_BASE + (number as usize % SLOTS * SLOT_OCTETS) as u64;
    let count = rng.usize(1..=4);
    let part = SLOT_OCTETS / count;
    let mut ranges: Vec<_> = (0..count)
        .map(|n| {
            let octets = if rng.u32(..3) == 0 { rng.usize(1..40) } else { rng.usize(1..part) };
            let at = n * part + rng.usize(..=part - octets);
            Range { stag: INBOX.0, to: slot + at as u64, octets }
        })
        .collect();
    rng.shuffle(&mut ranges);
    Receive { id: number, ranges }
}

/// Draws the messages of a burst.
pub(super) struct Planner<'a> {
    rng: &'a mut Rng,
    /// What the reference will be after them.
    pub target: Target,
    /// Placement is in the order of the stream, so that Writes may overlap.
    in_order: bool,
    /// Writes that must not overlap begin here, and Reads of the sink end there.
    cursor: usize,
    read_to: usize,
    /// Keys that a message of this burst has used.
    used: [bool; KEYS.len()],
    reads: usize,
    atomics: usize,
    pub ulpdus: Vec<Vec<u8>>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(rng: &'a mut Rng, target: Target, in_order: bool) -> Self {
        let cursor = rng.usize(..SINK_OCTETS / 2);
        Self {
            rng,
            target,
            in_order,
            cursor,
            read_to: if in_order { 0 } else { cursor },
            used: [false; KEYS.len()],
            reads: 0,
            atomics: 0,
            ulpdus: Vec::new(),
        }
    }

    /// Adds a message of any kind.
    pub(super) fn add(&mut self) {
        match self.rng.u32(..12) {
            0..=3 => self.write(),
            4..=6 => self.send(),
            7 => self.immediate(),
            8 => self.read_request(),
            9 => self.atomic_request(),
            _ => self.response(),
        }
    }

    fn octets(&mut self, octets: usize) -> Vec<u8> {
        (0..octets).map(|_| self.rng.u8(..)).collect()
    }

    /// Octets of a message: none, few or many.
    fn length(&mut self, most: usize) -> usize {
        let length = match self.rng.u32(..8) {
            0 => 0,
            1..=3 => self.rng.usize(..100),
            _ => self.rng.usize(..MESSAGE_OCTETS_MAX),
        };
        length.min(most)
    }

    /// Cuts a message into segments, which `model` gives their headers from their offsets on.
    fn cut(&mut self, code: u8, octets: &[u8], model: impl Fn(usize) -> Model) {
        let mut at = 0;
        loop {
            let most = if self.rng.bool() { 1400 } else { self.rng.usize(1..PAYLOAD_OCTETS_MAX) };
            let end = (at + most).min(octets.len());
            let last = end == octets.len();
            let segment = Segment {
                last,
                reserved: 0,
                version: 1,
                rdmap_version: 1,
                opcode: code,
                model: model(at),
                payload: octets[at..end].to_vec(),
            };
            let mut ulpdu = segment.ulpdu();
            if self.rng.u32(..4) == 0 {
                // Receivers ignore reserved bits.
                ulpdu[0] |= self.rng.u8(..) & 0x3c;
                ulpdu[1] |= self.rng.u8(..) & 0x30;
            }
            self.take(ulpdu);
            if last {
                return;
            }
            at = end;
        }
    }

    fn take(&mut self, ulpdu: Vec<u8>) {
        assert_eq!(self.target.take(&ulpdu), Ok(()), "the plan is valid");
        self.ulpdus.push(ulpdu);
    }

    /// A key that is valid and that no message of this burst has used: using it twice would depend on the
    /// order of Placement.
    fn unused_key(&mut self) -> Option<STag> {
        let number = self.rng.usize(..KEYS.len());
        let stag = KEYS[number];
        let valid = self.target.memory.0.iter().any(|region| region.stag == stag.0 && region.valid);
        if !valid || self.used[number] {
            return None;
        }
        self.used[number] = true;
        Some(stag)
    }

    fn write(&mut self) {
        let (stag, to, most) = match self.rng.u32(..6) {
            0 => match self.unused_key() {
                Some(key) => (key, self.rng.u64(..100), 600),
                None => return,
            },
            _ if self.in_order => {
                let at = self.rng.usize(..SINK_OCTETS);
                (SINK, SINK_BASE + at as u64, SINK_OCTETS - at)
            }
            _ => (SINK, SINK_BASE + self.cursor as u64, SINK_OCTETS - self.cursor),
        };
        let octets = self.length(most);
        let octets = self.octets(octets);
        if stag == SINK {
            self.cursor = (self.cursor + octets.len() + self.rng.usize(..50)).min(SINK_OCTETS);
        }
        // STag and TO of an empty Write mean nothing.
        let (stag, to) = if octets.is_empty() { (self.rng.u32(..), self.rng.u64(..)) } else { (stag.0, to) };
        self.cut(opcode::WRITE, &octets, |at| Model::Tagged { stag, to: to.wrapping_add(at as u64) });
    }

    fn send(&mut self) {
        let Some(receive) = self.target.receives.front() else { return };
        let room = receive.octets();
        let mut code = self.rng.u8(opcode::SEND..=opcode::SEND_SOLICITED_INVALIDATE);
        let mut invalidate = self.rng.u32(..);
        if matches!(code, opcode::SEND_INVALIDATE | opcode::SEND_SOLICITED_INVALIDATE) {
            match self.unused_key() {
                Some(key) if self.rng.bool() => invalidate = key.0,
                _ => code = opcode::SEND,
            }
        }
        let octets = if self.rng.u32(..8) == 0 { room } else { self.length(room) };
        let octets = self.octets(octets);
        let msn = self.target.next_msn(0);
        self.cut(code, &octets, |mo| Model::Untagged { invalidate, queue: 0, msn, mo: mo as u32 });
    }

    /// A message that is one segment, in the Untagged model.
    fn one(&mut self, code: u8, queue: u32, payload: Vec<u8>) {
        let model = Model::Untagged {
            invalidate: self.rng.u32(..),
            queue,
            msn: self.target.next_msn(queue as usize),
            mo: 0,
        };
        let segment =
            Segment { last: true, reserved: 0, version: 1, rdmap_version: 1, opcode: code, model, payload };
        self.take(segment.ulpdu());
    }

    fn immediate(&mut self) {
        if !self.target.receives.is_empty() {
            let octets = self.octets(8);
            let code = self.rng.u8(opcode::IMMEDIATE..=opcode::IMMEDIATE_SOLICITED);
            self.one(code, 0, octets);
        }
    }

    fn read_request(&mut self) {
        if !self.target.takes_requests || self.reads == REQUESTS_MAX {
            return;
        }
        self.reads += 1;
        let (source_stag, base, room) = match self.rng.u32(..3) {
            0 if self.read_to > 0 => (SINK.0, SINK_BASE, self.read_to),
            _ => (READABLE.0, 0, READABLE_OCTETS),
        };
        let at = self.rng.usize(..room);
        let size = self.length(room - at) as u32;
        let (sink_stag, sink_to) = (self.rng.u32(..), self.rng.u64(..u64::MAX / 2));
        let mut request = ReadRequest { sink_stag, sink_to, size, source_stag, source_to: base + at as u64 };
        if size == 0 {
            (request.source_stag, request.source_to) = (self.rng.u32(..), self.rng.u64(..));
        }
        self.one(opcode::READ_REQUEST, 1, request.octets());
    }

    fn atomic_request(&mut self) {
        if !self.target.takes_requests || self.atomics == REQUESTS_MAX {
            return;
        }
        self.atomics += 1;
        let at = self.rng.usize(..COUNTERS_OCTETS / 8) * 8;
        let value =
            &self.target.memory.0.iter().find(|region| region.stag == COUNTERS.0).unwrap().octets[at..];
        let value = u64::from_ne_bytes(value[..8].try_into().unwrap());
        let mut mask = || if self.rng.bool() { self.rng.u64(..) } else { 0 };
        let (mask, compare_mask) = (mask(), mask());
        let request = AtomicRequest {
            code: if self.rng.bool() { 0 } else { 2 },
            identifier: self.rng.u32(..),
            stag: COUNTERS.0,
            to: COUNTERS_BASE + at as u64,
            data: self.rng.u64(..),
            mask,
            compare: if self.rng.bool() { value } else { self.rng.u64(..) },
            compare_mask,
        };
        self.one(opcode::ATOMIC_REQUEST, 1, request.octets());
    }

    /// The response to the oldest request of the core.
    fn response(&mut self) {
        match self.target.outstanding.front().copied() {
            Some(Outstanding::Read { sink: Range { stag, to, octets }, delivered: 0 }) => {
                let octets = self.octets(octets);
                self.cut(opcode::READ_RESPONSE, &octets, |at| Model::Tagged { stag, to: to + at as u64 });
            }
            Some(Outstanding::Atomic { identifier, .. }) => {
                let response = AtomicResponse { identifier, original: self.rng.u64(..) };
                self.one(opcode::ATOMIC_RESPONSE, 3, response.octets());
            }
            _ => {}
        }
    }

    /// A Terminate of the peer, which ends the stream.
    pub(super) fn terminate(&mut self) -> Vec<u8> {
        let code = Code { layer: 1, error_type: 1, number: self.rng.u8(..4) };
        let model = Model::Untagged { invalidate: 0, queue: 2, msn: 1, mo: 0 };
        let payload = terminate(code, &self.ulpdus.last().cloned().unwrap_or_default());
        let opcode = opcode::TERMINATE;
        Segment { last: true, reserved: 0, version: 1, rdmap_version: 1, opcode, model, payload }.ulpdu()
    }
}
