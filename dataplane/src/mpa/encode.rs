//! Builds the FPDUs of a segment: their payload is copied into the frame, or the frame refers to it.

use super::Framing;
use super::fpdu::{self, LENGTH_LEN, Markers, Passes, Payload};
use crate::crc32c::{Digest, Engine};
use crate::device::Frame;
use crate::limits;
use crate::memory::{Region, Target};
use crate::wire::ddp;

// A small payload is copied in one pass and summed in another, which takes less time.
const _: () = assert!(limits::SMALL_MESSAGE_BYTES as usize <= LONG_MIN_LEN);

/// From this many bytes of payload on [`Head::write`] is worth its checks.
pub const LONG_MIN_LEN: usize = 512;

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

    /// A writer as [`new`](Self::new) returns it, after FPDUs that fill the first `filled` octets of `out`.
    pub const fn after(out: &'o mut [u8], filled: usize, position: u64, framing: Framing) -> Self {
        Self { out, filled, position, framing }
    }

    /// Appends the FPDU of the ULPDU that consists of `header` and `payload_len` octets of payload, which
    /// `fill` writes as in [`fpdu::encode`]. Returns false, and what follows is unspecified, if `fill` does
    /// or there is no room.
    #[cfg(test)]
    #[must_use]
    fn push(
        &mut self,
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> bool {
        let framing = self.framing;
        match self.reserve_room(header.len() + payload_len) {
            Some((position, room)) => fpdu::encode(room, position, framing, header, payload_len, fill),
            None => false,
        }
    }

    /// Returns the room of the next FPDU, whose ULPDU has `ulpdu_len` bytes, and its position.
    #[cfg(test)]
    fn reserve_room(&mut self, ulpdu_len: usize) -> Option<(u64, &mut [u8])> {
        let position = self.position + self.filled as u64;
        let end = self.filled + fpdu::wire_len(position, ulpdu_len, self.framing.markers);
        let room = self.out.get_mut(self.filled..end)?;
        self.filled = end;
        Some((position, room))
    }

    /// Appends the FPDU of a DDP segment. Returns false, and what follows is unspecified, if there is no room
    /// for it or its payload cannot be had.
    #[inline]
    #[must_use]
    pub fn push_segment(&mut self, header: &ddp::Header, payload: impl Payload) -> bool {
        let Framing { markers, crc } = self.framing;
        let header_len = header.header_len();
        let markers = Markers::of(self.position + self.filled as u64, markers);
        let end = self.filled + markers.wire_len(header_len + payload.octets());
        let Some(room) = self.out.get_mut(self.filled..end) else { return false };
        self.filled = end;
        // Into most small FPDUs of a stream with Markers none falls.
        if markers.first() < fpdu::unmarked_len(header_len + payload.octets()) {
            let mut emitted = [0; ddp::Header::MAX_LEN];
            header.emit(&mut emitted);
            return fpdu::encode_marked(room, markers, crc, &emitted[..header_len], payload);
        }
        let put_header = |room: &mut [u8]| {
            header.emit(room);
        };
        let passes = Passes::summed(crc, payload.octets());
        fpdu::encode_unmarked(room, passes, header_len, put_header, payload)
    }

    /// Returns true if the FPDUs fill all of the room.
    pub const fn is_full(&self) -> bool {
        self.filled == self.out.len()
    }
}

/// Writes the FPDU of a segment whose payload is short to `out`, of which it takes all in a stream without
/// Markers. `emit` writes the header, which has `header_len` octets, and `fill` the payload, which has
/// `payload_octets`. The CRC field is zero: [`fill_in_crcs`] fills in those of a segment at once, so that
/// this loop and that one have the registers that they need. Returns false, and `out` is unspecified, if
/// `out` is too short or `fill` returns false.
#[inline]
#[must_use]
pub fn write_small(
    out: &mut [u8],
    header_len: usize,
    payload_octets: usize,
    emit: impl FnOnce(&mut [u8]),
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> bool {
    let ulpdu_len = header_len + payload_octets;
    debug_assert_eq!(out.len(), fpdu::unmarked_len(ulpdu_len), "the room of another FPDU");
    // PAD, if there is any, and the CRC field. The payload goes over the rest.
    // MPA-4.1-04, C00-6-02
    let Some(last) = out.last_chunk_mut() else { return false };
    *last = [0; 4 + fpdu::CRC_LEN];
    let Some((length, ulpdu)) = out.split_first_chunk_mut::<LENGTH_LEN>() else { return false };
    *length = (ulpdu_len as u16).to_be_bytes();
    let Some((header, rest)) = ulpdu.split_at_mut_checked(header_len) else { return false };
    emit(header);
    rest.get_mut(..payload_octets).is_some_and(fill)
}

/// ULPDU_Length and header of FPDUs that follow each other in a message, with equally long payloads, in a
/// stream without Markers: one is an image of the other but for its place.
#[derive(Clone, Copy)]
pub struct Head {
    header: ddp::Header,
    image: [u8; Self::MAX_LEN],
}

impl Head {
    const MAX_LEN: usize = LENGTH_LEN + ddp::Header::MAX_LEN;
    // What the image has after a short header is where payload comes.
    const _FITS: () = assert!(Self::MAX_LEN <= LENGTH_LEN + ddp::Tagged::LEN + LONG_MIN_LEN);

    /// Returns that of an FPDU with `payload_octets` octets of payload.
    pub fn new(header: ddp::Header, payload_octets: usize) -> Self {
        let mut image = [0; Self::MAX_LEN];
        let (length, room) = image.split_at_mut(LENGTH_LEN);
        length.copy_from_slice(&((header.header_len() + payload_octets) as u16).to_be_bytes());
        header.emit(room);
        Self { header, image }
    }

    /// Turns it into that of the FPDU that begins `octets` octets of payload later in its message.
    #[inline]
    pub const fn move_on(&mut self, octets: u32) {
        self.header.move_on(octets);
    }

    /// Writes the FPDU whose payload is all of `payload`, and as long as the others, to `out`, all of which
    /// it fills. With `markers`, which fall into it, it is as long as it has to be. Returns false, and `out`
    /// is unspecified, if `out` is too short.
    #[inline]
    #[must_use]
    pub fn write(&self, out: &mut [u8], payload: &Target<'_>, markers: Markers, passes: Passes) -> bool {
        if !markers.are_none() {
            return write_marked(out, &self.header, payload, markers, passes);
        }
        let Some(image) = out.first_chunk_mut() else { return false };
        *image = self.image;
        let Some(room) = out.get_mut(LENGTH_LEN..) else { return false };
        self.header.emit_place(room);
        write_after_head(out, LENGTH_LEN + self.header.header_len(), payload, passes)
    }
}

/// Writes the FPDU of a header and a payload to `out` in a stream with Markers.
// Not inlined: the loop over the continuations of a message needs the registers.
#[inline(never)]
fn write_marked(
    out: &mut [u8],
    header: &ddp::Header,
    payload: &Target<'_>,
    markers: Markers,
    passes: Passes,
) -> bool {
    let mut emitted = [0; ddp::Header::MAX_LEN];
    let header_len = header.emit(&mut emitted);
    fpdu::encode_marked(out, markers, passes.engine.is_some(), &emitted[..header_len], *payload)
}

/// Writes all of an FPDU but ULPDU_Length and header, which have the first `head_len` octets of `out`.
#[inline]
fn write_after_head(out: &mut [u8], head_len: usize, payload: &Target<'_>, passes: Passes) -> bool {
    debug_assert!(head_len - LENGTH_LEN + payload.octets() <= fpdu::MULPDU_MAX, "the length has 16 bits");
    debug_assert_eq!(
        out.len(),
        fpdu::unmarked_len(head_len - LENGTH_LEN + payload.octets()),
        "the room of another FPDU"
    );
    // PAD, if there is any, and the CRC field. The payload goes over the rest.
    // MPA-4.1-04, C00-6-02
    let Some(last) = out.last_chunk_mut() else { return false };
    *last = [0; 4 + fpdu::CRC_LEN];
    let Some((head, rest)) = out.split_at_mut_checked(head_len) else { return false };
    let Some((place, tail)) = rest.split_at_mut_checked(payload.octets()) else { return false };
    let Some(engine) = passes.engine.filter(|_| passes.one) else {
        let copied = payload.read(0, place);
        if let Some((engine, (covered, field))) = passes.engine.zip(out.split_last_chunk_mut()) {
            *field = engine.append(0, covered).to_le_bytes();
        }
        return copied;
    };
    let mut digest = Digest::with_engine(engine);
    digest.update(head);
    let Some((pad, field)) = tail.split_last_chunk_mut() else { return false };
    if !payload.read_summed(0, place, &mut digest) {
        return false;
    }
    if !pad.is_empty() {
        digest.update(pad);
    }
    *field = digest.finish().to_le_bytes();
    true
}

/// Fills in the CRC fields of complete FPDUs, one after the other, without Markers.
pub fn fill_in_crcs(fpdus: &mut [u8], engine: Engine) {
    let mut rest = fpdus;
    while let Some(&length) = rest.first_chunk() {
        let len = fpdu::unmarked_len(usize::from(u16::from_be_bytes(length)));
        let Some((fpdu, after)) = rest.split_at_mut_checked(len) else { return };
        if let Some((covered, field)) = fpdu.split_last_chunk_mut() {
            *field = engine.append(0, covered).to_le_bytes();
        }
        rest = after;
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
    use crate::memory::{Access, Accessor, Grant, ProtectionDomainId, STag, StagTable};
    use crate::mpa::fpdu::Filled;
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
                    let located = fpdus.next(&octets).expect("valid").expect("complete");
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

    /// A small message makes the same FPDU as any other segment.
    #[test]
    fn small_fpdus_are_like_others() {
        let octets: Vec<u8> = (1..=255).cycle().take(600).collect();
        let region = Region::owned(octets.clone()).expect("memory");
        let (stag, pd) = (STag::new(0, 1), ProtectionDomainId(1));
        let mut stags = StagTable::with_slots(1);
        stags.insert(stag, Grant::new(region, pd, 0, Access::empty())).expect("a slot");
        let target = |at: u64, len| stags.check(stag, Accessor { pd, stream: 1 }, Access::empty(), at, len);
        let tagged =
            ddp::Tagged { last: true, version: 1, rsvd_ulp: 0x40, stag: STag(0x0102_0304), to: 1 << 40 };
        let untagged = ddp::Untagged { last: true, version: 1, rsvd_ulp: [3; 5], queue: 0, msn: 4, mo: 0 };
        let headers = [ddp::Header::Tagged(tagged), ddp::Header::Untagged(untagged)];
        for (header, len) in headers
            .iter()
            .flat_map(|header| (1..limits::SMALL_MESSAGE_BYTES as usize).map(move |len| (header, len)))
        {
            for crc in [None, Some(Engine::best())] {
                let payload = target(7, len).expect("it is inside");
                let mut expected = vec![0xee; fpdu::unmarked_len(header.header_len() + len)];
                let mut out = expected.clone();
                let framing = Framing { markers: false, crc: crc.is_some() };
                let mut writer = FpduWriter::new(&mut expected, 0, framing);
                let fill = |at: usize, out: &mut [u8]| {
                    out.copy_from_slice(&octets[7 + at..7 + at + out.len()]);
                    true
                };
                assert!(writer.push_segment(header, Filled { octets: len, fill }) && writer.is_full());
                let emit = |out: &mut [u8]| assert_eq!(header.emit(out), header.header_len());
                let fill = |room: &mut [u8]| payload.read(0, room);
                assert!(write_small(&mut out, header.header_len(), payload.octets(), emit, fill));
                if let Some(engine) = crc {
                    fill_in_crcs(&mut out, engine);
                }
                assert_eq!(out, expected, "{len}");
            }
        }
    }

    /// A long payload that is copied from memory makes the same FPDU as any other segment.
    #[test]
    fn long_fpdus_are_like_others() {
        let octets: Vec<u8> = (1..=255).cycle().take(9000).collect();
        let region = Region::owned(octets.clone()).expect("memory");
        let (stag, pd) = (STag::new(0, 1), ProtectionDomainId(1));
        let mut stags = StagTable::with_slots(1);
        stags.insert(stag, Grant::new(region, pd, 0, Access::empty())).expect("a slot");
        stags.retain(stag);
        let memory = stags.retained_memory(stag).expect("a reader");
        let tagged = ddp::Tagged { last: false, version: 1, rsvd_ulp: 0x40, stag: STag(7), to: 1 << 40 };
        let untagged = ddp::Untagged { last: false, version: 1, rsvd_ulp: [3; 5], queue: 0, msn: 4, mo: 8 };
        for before in [ddp::Header::Tagged(tagged), ddp::Header::Untagged(untagged)] {
            let mut header = before;
            header.move_on(0x1_0203);
            for (position, len) in [None, Some(0), Some(4), Some(20), Some(484), Some(500), Some(504)]
                .into_iter()
                .flat_map(|position| {
                    (LONG_MIN_LEN..LONG_MIN_LEN + 5).chain([1428, 8927]).map(move |len| (position, len))
                })
            {
                for (crc, one) in [(false, false), (true, false), (true, true)] {
                    let passes = Passes { engine: crc.then(Engine::best), one };
                    let payload = memory.target(7, len).expect("it is inside");
                    let markers = Markers::of(position.unwrap_or_default(), position.is_some());
                    let mut expected = vec![0xee; markers.wire_len(header.header_len() + len)];
                    let mut out = expected.clone();
                    let framing = Framing { markers: position.is_some(), crc };
                    let mut emitted = [0; ddp::Header::MAX_LEN];
                    let header_len = header.emit(&mut emitted);
                    let mut writer = FpduWriter::new(&mut expected, position.unwrap_or_default(), framing);
                    let fill = |at: usize, out: &mut [u8]| {
                        out.copy_from_slice(&octets[7 + at..7 + at + out.len()]);
                        true
                    };
                    assert!(writer.push(&emitted[..header_len], len, fill) && writer.is_full());
                    let mut head = Head::new(before, len);
                    head.move_on(0x1_0203);
                    assert!(head.write(&mut out, &payload, markers, passes));
                    assert_eq!(out, expected, "{len} at {position:?}, {crc}, {one}");
                    assert!(
                        markers.are_none() || !head.write(&mut out[1..], &payload, markers, passes),
                        "no room"
                    );
                }
            }
        }
    }

    /// A header is as good as its octets.
    #[test]
    fn fpdus_of_segments_are_those_of_their_octets() {
        let tagged = ddp::Tagged { last: true, version: 1, rsvd_ulp: 0x40, stag: STag(7), to: 99 };
        let untagged = ddp::Untagged { last: false, version: 1, rsvd_ulp: [3; 5], queue: 0, msn: 4, mo: 8 };
        for header in [ddp::Header::Tagged(tagged), ddp::Header::Untagged(untagged)] {
            for (markers, crc) in [(false, true), (false, false), (true, true)] {
                let framing = Framing { markers, crc };
                let mut emitted = [0; ddp::Header::MAX_LEN];
                let header_len = header.emit(&mut emitted);
                let (mut expected, mut out) = (vec![1; 4000], vec![1; 4000]);
                let mut writers = [&mut expected, &mut out].map(|out| FpduWriter::new(out, 484, framing));
                for len in (0..9).chain([1428]) {
                    let payload = payload(len);
                    let fill = |at: usize, out: &mut [u8]| {
                        out.copy_from_slice(&payload[at..at + out.len()]);
                        true
                    };
                    assert!(writers[0].push(&emitted[..header_len], len, fill));
                    assert!(writers[1].push_segment(&header, Filled { octets: len, fill }));
                    assert_eq!(writers[0].filled, writers[1].filled);
                    assert!(!writers[1].push_segment(&header, Filled { octets: 4000, fill }), "no room");
                }
                let filled = writers[0].filled;
                let missing = Filled { octets: 1, fill: |_: usize, _: &mut [u8]| false };
                assert!(!writers[1].push_segment(&header, missing), "the payload cannot be had");
                assert_eq!(expected[..filled], out[..filled], "{header:?}, {framing:?}");
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
