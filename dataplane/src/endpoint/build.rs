//! FPDUs out: a run of them is built from the buffers of work requests.

use crate::crc32c::Engine;
use crate::memory::{RetainedMemory, STag, StagTable, Target};
use crate::mpa::encode::{FpduWriter, fill_in_crcs, write_small};
use crate::mpa::fpdu::Filled;
use crate::qp::run::{FpduDescriptor, FpduRun, Source};
use crate::qp::sender::SmallMessage;
use crate::statistics::Statistics;
use crate::wire::tcp::SeqNumber;

use super::mode::Mode;
use super::operating::Operating;
use super::queue_pair::QueuePair;

/// What the FPDUs of a connection are built from.
#[derive(Clone, Copy)]
pub(super) struct FpduSources<'e> {
    pub(super) operating: &'e Operating,
    pub(super) qp: &'e QueuePair,
    pub(super) stags: &'e StagTable,
}

/// FPDUs of small messages at the front of a segment.
#[derive(Default)]
struct SmallFpdus {
    /// How many were built.
    built: usize,
    /// Their octets.
    octets: usize,
    /// Octets of payload in them.
    payload_octets: u64,
}

impl<'e> FpduSources<'e> {
    /// Returns what the FPDUs of a connection in `mode` are built from; `None` if it sends none.
    #[inline]
    pub(super) const fn of(
        mode: &'e Mode,
        queue_pair: Option<&'e QueuePair>,
        stags: &'e StagTable,
    ) -> Option<Self> {
        match (mode, queue_pair) {
            (Mode::FullOperation(operating), Some(qp)) => Some(Self { operating, qp, stags }),
            _ => None,
        }
    }

    /// Builds the FPDUs of a run, which begins at `begin`, one after the other.
    pub(super) fn build_run(
        &self,
        run: &FpduRun,
        begin: SeqNumber,
        out: &mut [u8],
        statistics: &mut Statistics,
    ) -> bool {
        let Self { operating, qp, .. } = *self;
        let position = operating.position_of(begin);
        let crc = operating.crc.then(Engine::best);
        let mut small = SmallFpdus::default();
        if !operating.markers_sent {
            if let Some(message) = qp.sender.small_message(run) {
                statistics.fpdus_sent += 1;
                statistics.bytes_copied_tx += message.payload_octets() as u64;
                return self.build_small_message(&message, crc, out);
            }
            small = self.build_small_messages(run, crc, out);
        }
        statistics.fpdus_sent += small.built as u64;
        statistics.bytes_copied_tx += small.payload_octets;
        if small.built == run.fpdus() {
            return small.octets == out.len();
        }
        let mut writer = FpduWriter::after(out, small.octets, position, operating.send_framing());
        let mut build = |fpdu: &FpduDescriptor| {
            statistics.fpdus_sent += 1;
            statistics.bytes_copied_tx += u64::from(fpdu.octets);
            self.build_fpdu(fpdu, &mut writer)
        };
        let begun = small.built > 0 || qp.sender.first_of(run, &qp.reads).is_some_and(|first| build(&first));
        let built = begun && qp.sender.all_after_first(run, small.built.max(1), build);
        built && writer.is_full()
    }

    /// Builds the FPDU of a small message in a stream without Markers. Returns false, and `out` is
    /// unspecified, if that is not the room for it, or its memory cannot be had.
    #[inline]
    fn build_small_message(&self, message: &SmallMessage<'_>, crc: Option<Engine>, out: &mut [u8]) -> bool {
        if out.len() != message.fpdu_octets() {
            return false;
        }
        let written = match message.range() {
            None => self.write_without_range(message, out),
            Some(local) => {
                let payload = self.stags.retained(local.stag, local.to, local.len as usize);
                payload.is_some_and(|payload| write_range(message, &payload, out))
            }
        };
        if let Some(engine) = crc {
            fill_in_crcs(out, engine);
        }
        written
    }

    /// Builds the first FPDUs of a run in a stream without Markers, as long as they are small messages.
    // Not inlined: its loop needs the registers.
    #[inline(never)]
    fn build_small_messages(&self, run: &FpduRun, crc: Option<Engine>, out: &mut [u8]) -> SmallFpdus {
        let (mut filled, mut payload_octets) = (0, 0);
        // Most messages of a segment are from the same memory.
        let mut last: Option<(STag, RetainedMemory<'_>)> = None;
        let built = self.qp.sender.each_small_message(run, |message| {
            let octets = message.fpdu_octets();
            let Some(room) = out.get_mut(filled..filled + octets) else { return false };
            let Some(local) = message.range() else {
                let written = self.write_without_range(&message, room);
                if written {
                    filled += octets;
                    payload_octets += message.payload_octets() as u64;
                }
                return written;
            };
            let memory = match last {
                Some((stag, memory)) if stag == local.stag => memory,
                _ => {
                    let Some(memory) = self.stags.retained_memory(local.stag) else { return false };
                    last = Some((local.stag, memory));
                    memory
                }
            };
            let Some(payload) = memory.target(local.to, local.len as usize) else { return false };
            let written = write_range(&message, &payload, room);
            if written {
                filled += octets;
                payload_octets += u64::from(local.len);
            }
            written
        });
        if let Some(engine) = crc {
            fill_in_crcs(&mut out[..filled], engine);
        }
        SmallFpdus { built, octets: filled, payload_octets }
    }

    /// Writes the FPDU of a small message whose payload is anything but one range of memory to `out`, of
    /// which it takes all, without its CRC. Returns false, and `out` is unspecified, if the payload cannot be
    /// had.
    // Not inlined: the loop over many messages needs the registers.
    #[inline(never)]
    fn write_without_range(&self, message: &SmallMessage<'_>, out: &mut [u8]) -> bool {
        let fill = |room: &mut [u8]| message.copy(self.stags, room);
        write_small(out, message.header_len(), message.payload_octets(), |out| message.emit_header(out), fill)
    }

    /// Builds one FPDU: its payload is copied once, from the user's buffer to its place in the frame.
    #[inline]
    fn build_fpdu(&self, descriptor: &FpduDescriptor, writer: &mut FpduWriter<'_>) -> bool {
        let FpduDescriptor { header, octets, source } = descriptor;
        match *source {
            Source::Memory(slice) if slice.len > 0 => {
                let target = self.stags.retained(slice.stag, slice.to, slice.len as usize);
                target.is_some_and(|target| writer.push_segment(header, target))
            }
            source => {
                let fill = |at, out: &mut [u8]| self.qp.sender.copy(source, self.stags, at, out);
                writer.push_segment(header, Filled { octets: *octets as usize, fill })
            }
        }
    }
}

/// Writes the FPDU of a small message whose payload is `payload` to `out`, of which it takes all, without its
/// CRC. Returns false, and `out` is unspecified, if that is too short.
#[inline]
fn write_range(message: &SmallMessage<'_>, payload: &Target<'_>, out: &mut [u8]) -> bool {
    let emit = |out: &mut [u8]| message.emit_header_of_range(out);
    write_small(out, message.header_len_of_range(), payload.octets(), emit, |room| payload.read(0, room))
}
