//! What the peers say inside their streams: startup frames, FPDUs good and bad, and noise.

use warpline_dataplane::crc32c;
use warpline_dataplane::mpa::fpdu;

use super::input::Input;
use super::memory::{BASE_TO, GRANTED_OCTETS, Memory, PURPOSES};

/// MPA Request and Reply, Rev 1, with CRC (RFC 5044 §7.1.1).
pub const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\x00\x00";
pub const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

/// What a stream is like, where its FPDUs are concerned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    /// Where Full Operation begins in the stream.
    pub start: usize,
    pub markers: bool,
}

/// Appends what `input` asks for to `stream`. `msn` is the number of the next Send in order.
pub fn append(input: &mut Input<'_>, stream: &mut Vec<u8>, framing: Framing, msn: &mut u32) {
    match input.below(8) {
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
            let ulpdu = untagged(input, msn);
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

/// An FPDU (RFC 5044 §4) with Markers where they belong. `damage` says what is wrong with it, if anything: the place of an
/// octet and what is done to it, and in its high bit whether the CRC is that of the damaged octets.
fn append_fpdu(stream: &mut Vec<u8>, framing: Framing, ulpdu: &[u8], damage: u8) {
    // After noise the place may be no multiple of four; then nothing the peer says is an FPDU.
    let position = (stream.len().saturating_sub(framing.start) & !3) as u64;
    let mut octets = vec![0; fpdu::wire_len(position, ulpdu.len(), framing.markers)];
    let built = fpdu::encode(&mut octets, position, framing.markers, true, ulpdu, 0, |_, _| true);
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
