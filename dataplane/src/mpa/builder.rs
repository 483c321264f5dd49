//! Builds the FPDUs of a segment: their payload is copied into the frame, or the frame refers to it.

use super::Framing;
use super::fpdu::{self, LENGTH_LEN};
use crate::crc32c::Digest;
use crate::device::Frame;
use crate::memory::Region;

/// Writes FPDUs one after the other.
pub struct FpduWriter<'o> {
    out: &'o mut [u8],
    filled: usize,
    position: u64,
    framing: Framing,
}

impl<'o> FpduWriter<'o> {
    /// A writer to the front of `out`, which begins at `position` of the stream. Markers need the position
    /// modulo 512 only.
    pub const fn new(out: &'o mut [u8], position: u64, framing: Framing) -> Self {
        Self { out, filled: 0, position, framing }
    }

    /// Appends the FPDU of the ULPDU that consists of `header` and `payload_len` octets of payload, which
    /// `fill` writes as in [`fpdu::encode`]. Returns false, and what follows is unspecified, if `fill` does
    /// or there is no room.
    #[must_use]
    pub fn push(
        &mut self,
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> bool {
        let position = self.position + self.filled as u64;
        let end = self.filled + fpdu::wire_len(position, header.len() + payload_len, self.framing.markers);
        let Some(room) = self.out.get_mut(self.filled..end) else { return false };
        self.filled = end;
        fpdu::encode(room, position, self.framing, header, payload_len, fill)
    }

    /// Returns true if the FPDUs take all of the room.
    pub const fn is_full(&self) -> bool {
        self.filled == self.out.len()
    }
}

/// Payload in constant memory, which a frame can refer to.
#[derive(Clone, Copy)]
pub struct ConstantPayload<'p> {
    /// The octets.
    pub octets: &'p [u8],
    /// The region that they lie in.
    pub region: &'p Region,
    /// Where they begin in the region.
    pub offset: usize,
}

/// How the payload of an FPDU got into its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadIn {
    /// The frame refers to it.
    Reference,
    /// It was copied, because the device cannot refer to the memory.
    Copy,
}

impl ConstantPayload<'_> {
    /// Appends the FPDU of `header` and this payload to `frame`, after room for `reserved` octets. It has no
    /// Markers, and a CRC if `crc` is true. Returns `None`, and what was appended is unspecified, if there is
    /// no room.
    #[must_use]
    pub fn append_fpdu<F: Frame>(
        &self,
        frame: &mut F,
        reserved: usize,
        header: &[u8],
        crc: bool,
    ) -> Option<PayloadIn> {
        let len = self.octets.len();
        let room = frame.append(reserved + LENGTH_LEN + header.len())?;
        fpdu::encode_head(&mut room[reserved..], header, len)?;
        let digest = crc.then(|| {
            let mut digest = Digest::new();
            digest.update(&room[reserved..]);
            digest.update(self.octets);
            digest
        });
        let (tail, tail_len) = fpdu::tail(digest, len);
        if frame.append_region(self.region, self.offset, len) {
            frame.append(tail_len)?.copy_from_slice(&tail[..tail_len]);
            return Some(PayloadIn::Reference);
        }
        let room = frame.append(len + tail_len)?;
        let (payload, rest) = room.split_at_mut(len);
        payload.copy_from_slice(self.octets);
        rest.copy_from_slice(&tail[..tail_len]);
        Some(PayloadIn::Copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::sim::{self, EndConfig};
    use crate::mpa::receiver::FpduReceiver;

    const HEADER: [u8; 14] = [0xc1; 14];

    fn push(writer: &mut FpduWriter<'_>, payload: &[u8]) -> bool {
        writer.push(&HEADER, payload.len(), |at, out| {
            out.copy_from_slice(&payload[at..at + out.len()]);
            true
        })
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|octet| octet as u8).collect()
    }

    /// At every phase of the Markers, the receiver finds the FPDUs that were written one after the other.
    #[test]
    fn fpdus_are_found_where_they_were_written() {
        for markers in [false, true] {
            let framing = Framing { markers, crc: true };
            for position in (0..1024).step_by(4) {
                let lens = [0, 1, 500, 64, 900];
                let mut out = vec![0; 4096];
                let mut writer = FpduWriter::new(&mut out, position, framing);
                assert!(lens.iter().all(|len| push(&mut writer, &payload(*len))));
                let filled = writer.filled;
                assert!(!writer.is_full());
                let mut octets = &out[..filled];
                let mut fpdus = FpduReceiver::at(position, framing);
                for len in lens {
                    let located = fpdus.next(&octets).expect("valid").expect("whole");
                    assert_eq!(located.ulpdu_len(), HEADER.len() + len);
                    octets = &octets[located.wire_len()..];
                    fpdus.advance(&located);
                }
                assert!(octets.is_empty());
            }
        }
    }

    #[test]
    fn room_must_fit_the_fpdus_exactly() {
        let framing = Framing { markers: true, crc: true };
        let len = fpdu::wire_len(0, HEADER.len() + 40, true);
        for (room, fits, full) in [(len - 1, false, false), (len, true, true), (len + 1, true, false)] {
            let mut out = vec![0; room];
            let mut writer = FpduWriter::new(&mut out, 0, framing);
            assert_eq!((push(&mut writer, &payload(40)), writer.is_full()), (fits, full), "{room}");
        }
        let mut out = vec![0; len];
        let mut writer = FpduWriter::new(&mut out, 0, framing);
        assert!(!writer.push(&HEADER, 40, |_, _| false), "the payload cannot be had");
    }

    /// A frame that refers to the payload, and one of a device that cannot, hold the same FPDU as one that is
    /// written.
    #[test]
    fn both_kinds_of_payload_make_the_same_fpdu() {
        let region = Region::owned(payload(1000)).expect("memory").freeze().expect("no other owner");
        for (gather, expected) in [(true, PayloadIn::Reference), (false, PayloadIn::Copy)] {
            let (mut device, _peer) = sim::link(1, EndConfig { gather, ..EndConfig::a() }, EndConfig::b());
            for (offset, len, crc) in [(0, 1000, true), (3, 997, true), (8, 513, false)] {
                let octets = &region.constant().expect("it is frozen")[offset..offset + len];
                let constant = ConstantPayload { octets, region: &region, offset };
                let mut frame = device.allocate().expect("a frame");
                assert_eq!(constant.append_fpdu(&mut frame, 54, &HEADER, crc), Some(expected));
                let pieces = (0..).map_while(|index| frame.piece(index)).collect::<Vec<_>>().concat();
                let framing = Framing { markers: false, crc };
                let mut out = vec![0; pieces.len() - 54];
                let mut writer = FpduWriter::new(&mut out, 0, framing);
                assert!(push(&mut writer, octets) && writer.is_full());
                assert_eq!(pieces[54..], out, "{len} octets from {offset}");
            }
        }
    }

    #[test]
    fn a_full_frame_takes_no_fpdu() {
        let region = Region::owned(payload(1500)).expect("memory").freeze().expect("no other owner");
        let octets = region.constant().expect("it is frozen");
        let (mut device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
        let mut frame = device.allocate().expect("a frame");
        let constant = ConstantPayload { octets, region: &region, offset: 0 };
        assert_eq!(constant.append_fpdu(&mut frame, 54, &HEADER, true), None);
    }
}
