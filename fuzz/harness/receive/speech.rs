//! The contents of the peers' streams: startup frames, valid and invalid FPDUs, and noise.

use warpline_dataplane::crc32c;
use warpline_dataplane::mpa::{self, fpdu};

use super::input::Input;
use super::memory::{BASE_TO, GRANTED_OCTETS, Memory, PURPOSES};

/// MPA Request and Reply, Rev 1, with CRC (RFC 5044 §7.1.1).
pub const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\x00\x00";
pub const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

/// The framing of a stream, where it affects its FPDUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    /// Where Full Operation begins in the stream.
    pub start: usize,
    pub markers: bool,
}

/// The numbers of the next messages in order, on each queue.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    send: u32,
    request: u32,
    answer: u32,
}

impl Default for Next {
    fn default() -> Self {
        Self { send: 1, request: 1, answer: 1 }
    }
}

/// Appends the octets that `input` selects to `stream`.
pub fn append(input: &mut Input<'_>, stream: &mut Vec<u8>, framing: Framing, next: &mut Next) {
    match input.below(11) {
        0 => stream.extend_from_slice(REQUEST),
        1 => stream.extend_from_slice(REPLY),
        2 => stream.extend_from_slice(input.octets(2048)),
        3 => {
            let ulpdu = input.octets(2048).to_vec();
            let damage = input.octet();
            append_fpdu(stream, framing, &ulpdu, damage);
        }
        4 | 5 => {
            let ulpdu = tagged(input);
            let damage = input.octet();
            append_fpdu(stream, framing, &ulpdu, damage);
        }
        6 => {
            let ulpdu = untagged(input, &mut next.send);
            let damage = input.octet();
            append_fpdu(stream, framing, &ulpdu, damage);
        }
        7 | 8 => {
            let ulpdu = request(input, &mut next.request);
            let damage = input.octet();
            append_fpdu(stream, framing, &ulpdu, damage);
        }
        9 => {
            let ulpdu = answer(input, &mut next.answer);
            let damage = input.octet();
            append_fpdu(stream, framing, &ulpdu, damage);
        }
        _ => {
            // A Terminate (RFC 5040 §4.8).
            let mut ulpdu = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
            ulpdu.extend(input.octets(64));
            append_fpdu(stream, framing, &ulpdu, input.octet());
        }
    }
}

fn payload(input: &mut Input<'_>) -> Vec<u8> {
    let octets = usize::from(input.u16() % 3000);
    let seed = input.octet();
    (0..octets).map(|at| seed.wrapping_add(at as u8)).collect()
}

/// A tagged DDP Segment (RFC 5041 §4.2), usually one of an RDMA Write.
fn tagged(input: &mut Input<'_>) -> Vec<u8> {
    let oddity = input.octet();
    let control = if oddity & 0x80 == 0 { 0x81 } else { input.octet() | 0x80 };
    let opcode = if oddity & 0x40 == 0 { 0x40 } else { input.octet() };
    let stag = Memory::stag(usize::from(oddity & 7) % (PURPOSES.len() + 1));
    let to = BASE_TO.wrapping_add(u64::from(input.u16()) % (GRANTED_OCTETS as u64 + 64));
    let to = if oddity & 0x20 == 0 { to } else { to.wrapping_add(u64::from(input.u32()) << 32) };
    let mut ulpdu = vec![control, opcode];
    ulpdu.extend(stag.0.to_be_bytes());
    ulpdu.extend(to.to_be_bytes());
    ulpdu.extend(payload(input));
    ulpdu
}

/// An untagged DDP Segment (RFC 5041 §4.3), usually one of an RDMAP Send.
fn untagged(input: &mut Input<'_>, msn: &mut u32) -> Vec<u8> {
    let oddity = input.octet();
    let last = oddity & 1 == 0;
    let control = if oddity & 0x80 == 0 { 1 | u8::from(last) << 6 } else { input.octet() & 0x7f };
    let opcode = if oddity & 0x40 == 0 { 0x43 } else { input.octet() };
    let queue = if oddity & 0x20 == 0 { 0 } else { input.u32() % 4 };
    let number = if oddity & 0x10 == 0 { *msn } else { input.u32() };
    let offset = u32::from(input.u16());
    let mut ulpdu = vec![control, opcode, 0, 0, 0, 0];
    ulpdu.extend(queue.to_be_bytes());
    ulpdu.extend(number.to_be_bytes());
    ulpdu.extend(offset.to_be_bytes());
    ulpdu.extend(payload(input));
    if last {
        *msn = msn.wrapping_add(1);
    }
    ulpdu
}

fn untagged_header(control: u8, opcode: u8, queue: u32, msn: u32) -> Vec<u8> {
    let mut ulpdu = vec![control, opcode, 0, 0, 0, 0];
    ulpdu.extend(queue.to_be_bytes());
    ulpdu.extend(msn.to_be_bytes());
    ulpdu.extend([0; 4]);
    ulpdu
}

/// A place in memory, usually granted.
fn place(input: &mut Input<'_>, oddity: u8) -> (u32, u64) {
    let stag = Memory::stag(usize::from(oddity & 7) % (PURPOSES.len() + 1));
    (stag.0, BASE_TO.wrapping_add(u64::from(input.u16()) % (GRANTED_OCTETS as u64 + 64)))
}

/// A Read Request (RFC 5040 §4.4) or an Atomic Request (RFC 7306 §5.2.1), usually the next.
fn request(input: &mut Input<'_>, next: &mut u32) -> Vec<u8> {
    let oddity = input.octet();
    let msn = if oddity & 0x80 == 0 { *next } else { input.u32() };
    *next = next.wrapping_add(1);
    let (stag, to) = place(input, oddity);
    if oddity & 0x40 == 0 {
        let mut ulpdu = untagged_header(0x41, 0x41, 1, msn);
        ulpdu.extend(input.u32().to_be_bytes());
        ulpdu.extend(u64::from(input.u32()).to_be_bytes());
        let octets = u32::from(input.u16());
        ulpdu.extend(if oddity & 0x20 == 0 { octets % 3000 } else { octets << 16 }.to_be_bytes());
        ulpdu.extend(stag.to_be_bytes());
        ulpdu.extend(to.to_be_bytes());
        ulpdu
    } else {
        let mut ulpdu = untagged_header(0x41, 0x4a, 1, msn);
        ulpdu.extend([0, 0, 0, input.octet() & 3]);
        ulpdu.extend(input.u32().to_be_bytes());
        ulpdu.extend(stag.to_be_bytes());
        ulpdu.extend((if oddity & 0x20 == 0 { to & !7 } else { to }).to_be_bytes());
        ulpdu.extend([input.octet(); 32]);
        ulpdu
    }
}

/// An answer to a Read or an Atomic Operation of the core's, which it may even have asked for.
fn answer(input: &mut Input<'_>, next: &mut u32) -> Vec<u8> {
    let oddity = input.octet();
    if oddity & 0x80 == 0 {
        let (stag, to) = place(input, oddity & 2);
        let mut ulpdu = vec![if oddity & 0x40 == 0 { 0xc1 } else { 0x81 }, 0x42];
        ulpdu.extend(stag.to_be_bytes());
        ulpdu.extend(to.to_be_bytes());
        ulpdu.extend(payload(input));
        ulpdu
    } else {
        let mut ulpdu = untagged_header(0x41, 0x4b, 3, *next);
        *next = next.wrapping_add(1);
        ulpdu.extend(u32::from(oddity & 0x3f).to_be_bytes());
        ulpdu.extend([input.octet(); 8]);
        ulpdu
    }
}

/// An FPDU (RFC 5044 §4) with its Markers. `damage` selects the damage, if any: the place of an octet and its
/// change, and in its high bit whether the CRC is that of the damaged octets.
fn append_fpdu(stream: &mut Vec<u8>, framing: Framing, ulpdu: &[u8], damage: u8) {
    // After noise the place may be no multiple of four; then no later octets of the peer form an FPDU.
    let position = (stream.len().saturating_sub(framing.start) & !3) as u64;
    let mut octets = vec![0; fpdu::wire_len(position, ulpdu.len(), framing.markers)];
    let built = fpdu::encode(
        &mut octets,
        position,
        mpa::Framing { markers: framing.markers, crc: true },
        ulpdu,
        0,
        |_, _| true,
    );
    assert!(built, "an FPDU of {} octets", ulpdu.len());
    if damage & 0x7f != 0 {
        let at = usize::from(damage & 0x3f) * octets.len() / 64;
        octets[at] ^= if damage & 0x40 == 0 { 1 } else { 0x80 };
        if damage & 0x80 != 0 {
            let crc = octets.len() - fpdu::CRC_LEN;
            let value = crc32c::checksum(&octets[..crc]).to_le_bytes();
            octets[crc..].copy_from_slice(&value);
        }
    }
    stream.extend(octets);
}
