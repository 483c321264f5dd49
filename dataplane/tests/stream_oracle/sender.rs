//! An application that writes what its plan says, in parts, at times of its own.

use super::bell::Bell;
use super::plan::{Plan, Step};
use super::receiver::Gates;
use super::region_of;
use warpline_dataplane::byte_stream::{Annotation, ByteWriter};

pub(crate) struct Sender {
    plan: Plan,
    writer: ByteWriter,
    bell: Bell,
    /// Pieces that were acknowledged when it began to wait for room.
    acknowledged: u64,
    step: usize,
    /// Octets of the step that are written.
    in_step: usize,
    /// All octets so far: the stream.
    pub written: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(plan: Plan, writer: ByteWriter, bell: Bell) -> Self {
        Self { plan, writer, bell, acknowledged: 0, step: 0, in_step: 0, written: Vec::new() }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.writer.is_finished()
    }

    pub(crate) fn state(&self) -> String {
        let step = self.plan.steps.get(self.step);
        let (room, end) = (self.writer.room(), self.writer.shared().end());
        format!("sent {} {step:?} {} room {room} {end:?}", self.written.len(), self.in_step)
    }

    pub(crate) fn act(&mut self, rng: &mut fastrand::Rng, gates: &mut Gates) {
        if self.is_finished() {
            return;
        }
        // Room for pieces alone may come before, when the core takes them over.
        self.bell.expect_rung(self.writer.released_pieces() > self.acknowledged, "room");
        self.write_some(rng, gates);
        if self.writer.room() == 0 && !self.is_finished() {
            self.bell.wait();
            self.acknowledged = self.writer.released_pieces();
            assert!(self.writer.arm(), "it has a bell");
        }
    }

    fn write_some(&mut self, rng: &mut fastrand::Rng, gates: &mut Gates) {
        for _ in 0..rng.usize(1..10) {
            if self.step >= self.plan.steps.len().min(self.plan.finishes_after) {
                gates.end_of_stream = Some(self.written.len());
                return self.writer.finish();
            }
            if !self.take_step(rng, gates) {
                break;
            }
        }
        if rng.u8(..4) > 0 || self.writer.room() == 0 {
            self.writer.commit();
        }
    }

    /// Writes a part of the present step. Returns false if it has to wait.
    fn take_step(&mut self, rng: &mut fastrand::Rng, gates: &mut Gates) -> bool {
        match self.plan.steps[self.step] {
            Step::Begin(transfer) => {
                if gates.may_begin(transfer) {
                    self.step += 1;
                    return true;
                }
                // The receiver may need to read on before it is ready.
                if rng.u8(..8) == 0 {
                    self.write(rng, Annotation::default(), 1);
                    self.writer.commit();
                }
                false
            }
            Step::Plain { octets, starts_message } => {
                let starts_message = starts_message && self.in_step == 0;
                let written =
                    self.write(rng, Annotation { starts_message, section: None }, octets - self.in_step);
                self.advance(written, octets)
            }
            Step::Section { transfer, offset, octets } => {
                let begin = self.written.len();
                let section = (self.plan.transfers[transfer].section(), (offset + self.in_step) as u32);
                let annotation = Annotation { starts_message: false, section: Some(section) };
                if octets == 0 {
                    // It goes with an octet of no section.
                    if self.write(rng, Annotation::default(), 1) == 0 {
                        return false;
                    }
                    let nothing = self.plan.transfers[transfer].section();
                    assert!(self.writer.write_nothing(nothing, offset as u32));
                    gates.mark_sent(transfer, begin + 1..begin + 1, offset);
                    return self.advance(0, 0);
                }
                let written = self.write(rng, annotation, octets - self.in_step);
                gates.mark_sent(transfer, begin..begin + written, offset + self.in_step);
                self.advance(written, octets)
            }
        }
    }

    fn advance(&mut self, written: usize, of: usize) -> bool {
        self.in_step += written;
        if self.in_step == of {
            (self.step, self.in_step) = (self.step + 1, 0);
        }
        written > 0 || of == 0
    }

    /// Writes up to `most` octets, from a copy or from memory. Returns how many.
    fn write(&mut self, rng: &mut fastrand::Rng, annotation: Annotation, most: usize) -> usize {
        let seed = rng.u64(..);
        let mut octets = vec![0; if rng.u8(..4) == 0 && most > 0 { rng.usize(1..=most) } else { most }];
        fastrand::Rng::with_seed(seed).fill(&mut octets);
        let written = if rng.u8(..4) == 0 && most > 0 {
            let lent = self.writer.write_memory(annotation, &region_of(&octets), 0, octets.len());
            if lent.is_some() { octets.len() } else { 0 }
        } else if matches!(annotation, Annotation { starts_message: false, section: None }) {
            self.writer.write(&octets)
        } else {
            self.writer.write_annotated(annotation, &octets)
        };
        self.written.extend(&octets[..written]);
        written
    }
}
