//! What FPDUs are built from: the entries of a run that is not yet acknowledged, each time it is sent.

use super::entry::{SendEntry, Traits};
use super::{FpduDescriptor, FpduRun, Origin, ProviderMessage, Reads, Sender, Source};
use crate::ddp::segmentation::Message;
use crate::memory::StagTable;
use crate::mpa;
use crate::qp::indication;
use crate::qp::payload::Slice;
use crate::qp::reads::ResponsePayload;
use crate::rdmap::message;
use crate::wire::atomic::AtomicResponse;
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::rdmap::Opcode;

/// A small message, all of which is in one FPDU.
pub struct SmallMessage<'s> {
    entry: &'s SendEntry,
    version: u8,
}

impl SmallMessage<'_> {
    /// The octets of its FPDU, in a stream without Markers.
    #[inline]
    pub fn fpdu_octets(&self) -> usize {
        self.entry.fpdu_octets as usize
    }

    /// Octets of its payload.
    #[inline]
    pub const fn payload_octets(&self) -> usize {
        self.entry.message_octets as usize
    }

    /// Its payload, if that is the one range of memory of a request that is not fenced.
    #[inline]
    pub fn range(&self) -> Option<Slice> {
        self.entry.traits.contains(Traits::RANGE).then(|| self.entry.request.compact().local())
    }

    /// Octets of the header of its FPDU.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.entry.header_len as usize
    }

    /// The same of a [range](Self::range).
    #[inline]
    pub fn header_len_of_range(&self) -> usize {
        if self.entry.request.compact().is_write() { Tagged::LEN } else { Untagged::LEN }
    }

    /// Copies its payload to `out`, whatever that is. Returns false if it cannot be had.
    #[inline]
    #[must_use]
    pub fn copy(&self, stags: &StagTable, out: &mut [u8]) -> bool {
        // The number of an entry is in requests that await a response.
        debug_assert!(!self.entry.is_gated(), "it is not small");
        self.entry.copy(0, stags, 0, out)
    }

    /// Writes the header of its FPDU to `out`.
    #[inline]
    pub fn emit_header(&self, out: &mut [u8]) {
        let Some(message) = self.entry.message(self.version) else {
            debug_assert!(false, "a message that is not sent");
            return;
        };
        message.segment(0, mpa::fpdu::MULPDU_MAX).0.emit(out);
    }

    /// Writes the header of its FPDU, whose payload is a [range](Self::range), to `out`.
    #[inline]
    pub fn emit_header_of_range(&self, out: &mut [u8]) {
        if self.entry.request.compact().is_write() {
            self.write_header().emit(out);
        } else {
            self.emit_send_header(out);
        }
    }

    // Not inlined: the loop over many Writes needs the registers.
    #[inline(never)]
    fn emit_send_header(&self, out: &mut [u8]) {
        let Self { entry, version } = *self;
        let request = entry.request.compact();
        let invalidate = request.invalidates();
        let opcode = Opcode::send(invalidate.is_some(), request.is_solicited());
        let message = message::send(version, opcode, invalidate.unwrap_or_default(), entry.msn, entry.octets);
        debug_assert_eq!(entry.message(version), Some(message), "it is another message");
        message.segment(0, mpa::fpdu::MULPDU_MAX).0.emit(out);
    }

    /// The header of its FPDU, if it is a Write.
    #[inline]
    fn write_header(&self) -> Tagged {
        let Self { entry, version } = *self;
        let (stag, to) = entry.request.compact().remote();
        let message = message::write(version, stag, to, entry.octets);
        debug_assert_eq!(entry.message(version), Some(message), "it is another message");
        Tagged { last: true, version, rsvd_ulp: message.rsvd_ulp[0], stag, to }
    }
}

impl Sender {
    /// The first FPDU of a run that is not yet acknowledged.
    #[inline]
    pub fn first_of(&self, run: &FpduRun, reads: &Reads) -> Option<FpduDescriptor> {
        let Origin::Requests(number) = run.origin else { return self.first_of_another(run, reads) };
        let entry = self.entries.get(number.wrapping_sub(self.completed) as usize)?;
        Some(entry.fpdu(&entry.message(self.numbers.version)?, number, run.offset, run.first_ulpdu_octets()))
    }

    /// The FPDU of a run that does not belong to requests, if there is one.
    fn first_of_another(&self, run: &FpduRun, reads: &Reads) -> Option<FpduDescriptor> {
        let (version, mulpdu) = (self.numbers.version, run.first_ulpdu_octets());
        let descriptor = |message: Message, source| {
            let (header, octets) = message.segment(run.offset, mulpdu);
            FpduDescriptor { header, octets, source }
        };
        let provided = match run.origin {
            Origin::Requests(_) => return None,
            Origin::Response(number) => {
                let response = reads.inbound.numbered(number)?;
                let (header, octets) = response.message.segment(run.offset, mulpdu);
                let source = match response.payload {
                    ResponsePayload::Memory(source) => Source::Memory(Slice {
                        stag: source.stag,
                        to: source.to.wrapping_add(u64::from(run.offset)),
                        len: octets,
                    }),
                    ResponsePayload::Atomic { identifier, original } => {
                        Source::AtomicResponse { identifier, original }
                    }
                };
                return Some(FpduDescriptor { header, octets, source });
            }
            Origin::Terminate => {
                let octets = self.terminate.as_ref()?.len() as u32;
                return Some(descriptor(message::terminate(version, octets), Source::Terminate));
            }
            Origin::Indication(rtr) => ProviderMessage::Indication(rtr),
            Origin::IndicationResponse => {
                ProviderMessage::Response { stag: self.answered.0, to: self.answered.1 }
            }
        };
        Some(descriptor(indication::message(version, provided), Source::Provider))
    }

    /// The FPDUs of a run that is not yet acknowledged, in order.
    #[cfg(test)]
    pub(super) fn fpdus(&self, run: FpduRun, reads: &Reads) -> impl Iterator<Item = FpduDescriptor> {
        let mut fpdus: Vec<_> = self.first_of(&run, reads).into_iter().collect();
        assert!(self.all_after_first(&run, 1, |fpdu| {
            fpdus.push(*fpdu);
            true
        }));
        fpdus.into_iter()
    }

    /// Calls `f` for the FPDUs of a run that is not yet acknowledged, in order, except the first `from`, at
    /// least one. Ends, and returns false, when `f` does.
    #[inline]
    pub fn all_after_first(
        &self,
        run: &FpduRun,
        from: usize,
        mut f: impl FnMut(&FpduDescriptor) -> bool,
    ) -> bool {
        let Origin::Requests(number) = run.origin else { return true };
        let mut number = number.wrapping_add(from as u32);
        let mut left = run.fpdus() - from;
        let index = number.wrapping_sub(self.completed) as usize;
        if left == 0 || index > self.entries.len() {
            return true;
        }
        for entry in self.entries.from(index) {
            let Some(message) = entry.message(self.numbers.version) else { continue };
            left -= 1;
            // Only the last may be a part of its message.
            let mulpdu = match left {
                0 => message.header_len() + run.last_octets as usize,
                _ => mpa::fpdu::MULPDU_MAX,
            };
            if !f(&entry.fpdu(&message, number, 0, mulpdu)) {
                return false;
            }
            number = number.wrapping_add(1);
            if left == 0 {
                break;
            }
        }
        true
    }

    /// The message of a run of one FPDU that is not yet acknowledged, if that is a complete small message.
    #[inline]
    pub fn small_message(&self, run: &FpduRun) -> Option<SmallMessage<'_>> {
        let Origin::Requests(number) = run.origin else { return None };
        let entry = self.entries.get(number.wrapping_sub(self.completed) as usize)?;
        let is_entire = run.offset == 0 && entry.is_all_in(run.first_octets);
        let found = run.more == 0 && entry.traits.contains(Traits::SMALL) && is_entire;
        found.then_some(SmallMessage { entry, version: self.numbers.version })
    }

    /// Calls `f` for the first FPDUs of a run that is not yet acknowledged, as long as each is a complete
    /// small message and `f` returns true. Returns how often it did.
    #[inline]
    pub fn each_small_message(&self, run: &FpduRun, mut f: impl FnMut(SmallMessage<'_>) -> bool) -> usize {
        let Origin::Requests(number) = run.origin else { return 0 };
        let first = number.wrapping_sub(self.completed) as usize;
        // Only the first and the last may be a part of their message.
        let is_entire = |index, octets| self.entries.get(index).is_some_and(|entry| entry.is_all_in(octets));
        if run.offset > 0 || !is_entire(first, run.first_octets) {
            return 0;
        }
        let is_last_cut = run.more > 0 && !is_entire(first + usize::from(run.more), run.last_octets);
        let mut complete = 0;
        for part in self.entries.in_a_row(first..first + run.fpdus() - usize::from(is_last_cut)) {
            for entry in part {
                if !entry.traits.contains(Traits::SMALL) {
                    return complete;
                }
                if !f(SmallMessage { entry, version: self.numbers.version }) {
                    return complete;
                }
                complete += 1;
            }
        }
        complete
    }

    /// Copies the payload of an FPDU from `at` on to `out`. Payload of [`Source::Memory`] is read without the
    /// sender. Returns false if the octets are not available.
    #[must_use]
    pub fn copy(&self, source: Source, stags: &StagTable, at: usize, out: &mut [u8]) -> bool {
        let mut response = [0; AtomicResponse::LEN];
        let octets = match source {
            Source::Memory(_) => return false,
            Source::Request { number, offset } => {
                let entry = self.entries.get(number.wrapping_sub(self.completed) as usize);
                let offset = u64::from(offset) + at as u64;
                return entry.is_some_and(|entry| entry.copy(number, stags, offset, out));
            }
            Source::AtomicResponse { identifier, original } => {
                AtomicResponse { identifier, original }.emit(&mut response);
                &response[..]
            }
            Source::Terminate => self.terminate.as_ref().map_or(&[][..], |message| message),
            Source::Provider => &indication::READ_REQUEST[..],
        };
        octets.get(at..at + out.len()).is_some_and(|octets| {
            out.copy_from_slice(octets);
            true
        })
    }
}
